"""Check that the generated pages of the documentation are up to date."""

from __future__ import annotations

import ast
import importlib
import inspect
import re

import pytest

from pytest_fakecloud import _PART_NAMES, _PUBLIC_NAMES
from pytest_fakecloud.kv.table.registry import COMMANDS, command_table

from .blocks import DOCS

if not DOCS.exists():
    pytest.skip("an installed package has no docs folder", allow_module_level=True)

from docs.generate.differences import MISSING, NEWEST
from docs.generate.markdown import modules
from docs.generate.pages import PAGES


@pytest.mark.parametrize("place", PAGES)
def test_page_is_current(place: str) -> None:
    assert (DOCS / place).read_text(encoding="utf-8") == PAGES[place](), (
        "run: python -m docs.generate"
    )


def test_every_public_name_has_its_place() -> None:
    pages = [page() for place, page in PAGES.items() if place.startswith("reference/api/")]
    headings = re.findall(r"^## `(\w+)`$", "".join(pages), re.M)
    assert sorted(headings) == sorted(_PUBLIC_NAMES | _PART_NAMES)


def test_public_docstrings_name_no_class_without_a_page() -> None:
    """The name of an internal class leads a reader of the API pages nowhere."""
    documented = _PUBLIC_NAMES | _PART_NAMES
    internal = {
        node.name
        for _, module in modules()
        for node in module.body
        if isinstance(node, ast.ClassDef)
    } - {*documented, "Path"}
    assert len(internal) > 500
    missing = [
        (name, member, word)
        for name, module in documented.items()
        for member, value in _documented(_named(name, module))
        for word in re.findall(r"``([A-Z]\w+)", inspect.getdoc(value) or "")
        if word in internal
    ]
    assert missing == []


def _named(name: str, module: str) -> object:
    return getattr(importlib.import_module(f"pytest_fakecloud.{module}"), name)


def _documented(value: object) -> list[tuple[str, object]]:
    members = inspect.getmembers(value) if isinstance(value, type) else []
    return [("", value), *(member for member in members if not member[0].startswith("_"))]


def test_what_later_versions_lack_is_listed() -> None:
    page = PAGES["fidelity/differences.md"]()
    table = command_table("redis", NEWEST, ())
    for missing in MISSING.values():
        for command in missing.commands:
            # A container such as CLUSTER is found, but not with a subcommand that it lacks.
            spec = table.find([word.encode() for word in command.split()])
            assert spec is None or spec.name != command, f"{command} is not missing any more"
        for line in missing.options:
            name, *_, option = line.split()
            assert option not in COMMANDS[name].options, f"{line} is not missing any more"
        for text in (*missing.commands, *missing.options):
            assert f"`{text}`" in page


def test_errors_of_every_service_are_listed() -> None:
    page = PAGES["reference/errors.md"]()
    for text in (
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "422 Invalid vector dimension: <actual>, expected: <expected>",
        "401 unable to authenticate: invalid token",
        "NOPERM this user has no permissions to run the '<name>' command",
    ):
        assert f"\n{text}\n" in page


def test_decisions_of_every_service_are_listed() -> None:
    page = (DOCS / "fidelity/differences.md").read_text(encoding="utf-8")
    assert page.count("\n- ") > 60
    for title in ("Everywhere", "Key-value", "Vector", "Broker", "Queue"):
        assert f"\n### {title}\n" in page
    assert "a slot number, which deletions do not change" in page
