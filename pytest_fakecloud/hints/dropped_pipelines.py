"""Finds functions of a failed test that do not execute the pipelines that they create."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from ..cloud.base import BaseCloud, context_of
from ..core.functions import codes_of
from ..core.libraries import is_library
from .inspection import place_in, trees

_PIPELINE = re.compile(rb"\.(pipeline|multi)\(")
_PIPELINES = {
    "redis.client": "Pipeline",
    "redis.asyncio.client": "Pipeline",
    "valkey.client": "Pipeline",
    "valkey.asyncio.client": "Pipeline",
    "upstash_redis.client": "Pipeline",
    "upstash_redis.asyncio.client": "AsyncPipeline",
}
"""The classes of Redis clients' pipelines, by module."""


class _DroppedPipeline(NamedTuple):
    """A function that opens a pipeline of a Redis client, and neither executes it nor passes it on."""

    file: Path
    function: str
    opened: ast.Assign

    def __str__(self) -> str:
        place = place_in(self.file, self.opened.lineno)
        return f"{place}: {self.function}() does not execute the pipeline that it creates"


def dropped_pipelines(
    cloud: BaseCloud, frames: Sequence[FrameType], functions: Iterable[object]
) -> Iterator[str]:
    """Yield hints about functions that drop a pipeline, if the failed test uses their names: its own
    functions (``functions``), the code on the stacks of its error and of its calls, or the functions
    with such names beside a dropped pipeline.

    A function that makes no call is on no stack, so only its name connects it with the test.
    """
    files = [*trees(_PIPELINE)]
    dropped = [drop for file, tree in files for drop in _drops(file, tree)]
    if not dropped:
        return
    names = _names_in([*codes_of(functions), *_codes_on_stacks(cloud, frames)])
    for _, tree in files:
        names = _with_names_of_called(tree, names)
    # An inner function follows those around it.
    hints = {id(drop.opened): str(drop) for drop in dropped if drop.function in names}
    yield from hints.values()


def _codes_on_stacks(cloud: BaseCloud, frames: Sequence[FrameType]) -> Iterator[CodeType]:
    records = context_of(cloud).recorder
    stacks = [records.shared.stacks.get(entry.number) for entry in records.entries]
    codes = [frame.f_code for frame in frames]
    codes += [code for stack in stacks if stack is not None for code, _ in stack.places]
    for code in codes:
        # The code of a module contains the functions that it only defines.
        if code.co_name != "<module>" and not is_library(code.co_filename):
            yield code


def _names_in(codes: Iterable[CodeType]) -> set[str]:
    """Return the names of functions and of what they use, with their inner functions."""
    names: set[str] = set()
    waiting = [*codes]
    while waiting:
        code = waiting.pop()
        names.update((code.co_name, *code.co_names))
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return names


def _with_names_of_called(tree: ast.Module, names: Iterable[str]) -> set[str]:
    """Return names, with those that the functions of a module with such names use."""
    used = {
        function.name: {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(function)
            if isinstance(node, ast.Name | ast.Attribute)
        }
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    waiting, reached = set(names), set[str]()
    while waiting:
        reached |= waiting
        waiting = set[str]().union(*(used.get(name, ()) for name in waiting)) - reached
    return reached


def _drops(file: Path, tree: ast.Module) -> Iterator[_DroppedPipeline]:
    members = _members_of_pipelines()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = [*ast.walk(function)]
        assignments = [
            node for node in inside if isinstance(node, ast.Assign) and _opens_pipe(node)
        ]
        names = {ast.unparse(assignment.targets[0]) for assignment in assignments}
        used = [node for node in inside if isinstance(node, ast.Attribute)]
        commands = {
            attribute.attr
            for attribute in used
            if isinstance(attribute.value, ast.Name) and attribute.value.id in names
        }
        statements = {id(_base(node.value)) for node in inside if isinstance(node, ast.Expr)}
        # A command returns its pipeline, so a used value of it passes the pipeline on.
        is_passed_on = any(
            node.id in names and isinstance(node.ctx, ast.Load) and id(node) not in statements
            for node in inside
            if isinstance(node, ast.Name)
        ) or any(
            not names.isdisjoint(node.names)
            for node in inside
            if isinstance(node, ast.Global | ast.Nonlocal)
        )
        is_executed = any(attribute.attr.startswith("exec") for attribute in used)
        if commands and commands <= members and not is_passed_on and not is_executed:
            yield _DroppedPipeline(file, function.name, assignments[0])


def _members_of_pipelines() -> set[str]:
    kinds = (getattr(sys.modules.get(module), kind, None) for module, kind in _PIPELINES.items())
    return {name for kind in kinds if kind is not None for name in dir(kind)}


def _opens_pipe(node: ast.Assign) -> bool:
    called = node.value.func if isinstance(node.value, ast.Call) else None
    is_pipe = isinstance(called, ast.Attribute) and called.attr in ("pipeline", "multi")
    return is_pipe and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)


def _base(value: ast.expr) -> ast.expr:
    """Return the expression on which a chain of methods is called."""
    if isinstance(value, ast.Await):
        value = value.value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
        while isinstance(value, ast.Attribute):  # such as the `json` of a pipeline
            value = value.value
    return value
