"""The names in the map of the code exist, and the steps of a report are in their order."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.reporting.report import report_of

from ..harness import syntax
from .blocks import ROOT

PACKAGE = ROOT / "pytest_fakecloud"
MAP = (ROOT / "docs/contributing/map.md").read_text()


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names that a module defines, those of methods also with their classes."""
    names = set[str]()
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = ast.FunctionDef | ast.AsyncFunctionDef
            members = {item.name for item in node.body if isinstance(item, functions)}
            members |= {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}
            fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            members |= {field.id for field in fields if isinstance(field, ast.Name)}
            names |= {f"{node.name}.{member}" for member in members}
    return frozenset(names)


@cache
def classes() -> dict[str, list[Path]]:
    """Return the modules of the package by the classes that they define.

    Only the few modules whose classes the map names are parsed.
    """
    modules: dict[str, list[Path]] = {}
    for path in PACKAGE.rglob("*.py"):
        for name in re.findall(r"^ *class (\w+)", path.read_text("utf-8"), re.MULTILINE):
            modules.setdefault(name, []).append(path)
    return modules


def steps() -> Iterator[tuple[str, str]]:
    """Yield the modules and the names in the tables whose first column is a module, and those in the
    form "`name` in `module`".
    """
    for name, module in re.findall(r"`([\w.]+)` in `([\w.]+)`", MAP):
        yield module, name
    for table in re.findall(r"^\| Module \|.*\n((?:\|.*\n)+)", MAP, re.MULTILINE):
        module = ""
        for row in table.splitlines()[1:]:
            first, second = (cell.strip() for cell in row.split("|")[1:3])
            module = first.strip("`") or module
            for name in re.findall(r"`([\w.]+)`", second):
                yield module, name


STEPS = list(steps())


def test_there_are_steps() -> None:
    assert len(STEPS) > 30


@pytest.mark.parametrize(("module", "name"), STEPS)
def test_a_step_names_what_its_module_defines(module: str, name: str) -> None:
    place = module.replace(".", "/")
    paths = [
        PACKAGE / f"{place}.py",
        *PACKAGE.glob(f"explore/**/{place}.py"),
        *PACKAGE.glob(f"explore/{place}/*.py"),
    ]
    assert any(name in names_in(path) for path in paths if path.exists())


def test_methods_in_the_text_exist() -> None:
    methods = {
        name
        for name in re.findall(r"`([A-Z]\w+\.\w+)(?:\(\))?`", MAP)
        if name.split(".")[0] in classes()
    }
    assert len(methods) > 30
    unknown = {
        name
        for name in methods
        if not any(name in names_in(path) for path in classes()[name.split(".")[0]])
    }
    assert not unknown


def used_by_report(cloud: Cloud, **options: Any) -> list[str]:
    """Return the modules of `reporting/` of which a report calls a function, by their first call."""
    modules: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        _, package, module = str(frame.f_globals.get("__name__")).partition(
            "pytest_fakecloud.reporting."
        )
        if event == "call" and package:
            modules.setdefault(module.replace(".", "/"))

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        report_of(cloud, **options)
    finally:
        sys.setprofile(former)
    return list(modules)


def test_the_steps_of_a_report_are_in_the_order_of_their_use(
    fakecloud: Cloud, kv_server: KVServer
) -> None:
    table = MAP.partition("| Module of `reporting/` |")[2].partition("\n| `report` |")[0]
    steps = [re.findall(r"`([\w/]+)`", cell) for cell in re.findall(r"(?m)^\| (.+?) \|", table)]
    kv_server.client().get("stock")
    with pytest.raises(AssertionError) as failed:
        assert kv_server.value("stock") == "1"
    used: set[int] = set()
    for options in ({"raised": failed.value}, {"read": ["stock"]}):
        modules = used_by_report(fakecloud, **options)
        order = [at for module in modules for at, step in enumerate(steps) if module in step]
        assert order == sorted(order)
        used.update(order)
    [passed] = used ^ set(range(len(steps)))  # A caller passes the comparison.
    assert "last_pass/comparison" in steps[passed]
