"""The public surface, generated from the list of public names in ``pytest_fakecloud/__init__.py``.

``python -m docs.generate`` writes ``__init__.pyi`` for type checkers, and the stubs of ``tests.stubs``.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest_fakecloud
from pytest_fakecloud import _PART_NAMES, _PUBLIC_NAMES

from .stubs import type_text

STUB = Path(pytest_fakecloud.__file__).with_suffix(".pyi")
_PROTOCOLS = (
    "__enter__",
    "__exit__",
    "__len__",
    "__iter__",
    "__getitem__",
    "__contains__",
    "__eq__",
)


def public_names() -> str:
    """Return ``__init__.pyi``: imports of the public names, which their aliases re-export."""
    lines = [
        f"from .{module} import {name} as {name}" for name, module in sorted(_PUBLIC_NAMES.items())
    ]
    return "\n".join(
        [
            "# Written by `python -m docs.generate` from `_PUBLIC_NAMES` of `__init__.py`.",
            *lines,
            "",
            "_PUBLIC_NAMES: dict[str, str]",
            "_PART_NAMES: dict[str, str]",
            "__all__: list[str]",
            "",
        ]
    )


def surface() -> str:
    """All public names and the classes of parts in order, the members of each below it."""
    names = _PUBLIC_NAMES | _PART_NAMES
    return "\n".join(line for name in sorted(names) for line in _lines(name, names[name]))


def _lines(name: str, module: str) -> Iterator[str]:
    value = getattr(import_module(f"{pytest_fakecloud.__name__}.{module}"), name)
    if inspect.isfunction(value):
        yield f"{name}{_signature(value)}"
        return
    if not isinstance(value, type):
        yield f"{name} = {value}"
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    for member, text in sorted(_members(value)):
        yield f"    {member}{text}"
    if own := [protocol for protocol in _PROTOCOLS if protocol in _declared(value)]:
        yield f"    {' '.join(own)}"


def _declared(kind: type) -> dict[str, object]:
    """Return what a class and its bases in this package declare, the class itself first."""
    members: dict[str, object] = {}
    for owner in kind.__mro__:
        if owner.__module__.startswith("pytest_fakecloud."):
            for name, value in vars(owner).items():
                members.setdefault(name, value)
    return members


def _members(kind: Any) -> Iterator[tuple[str, str]]:
    if issubclass(kind, BaseException) or "__init__" in _declared(kind):
        yield "__init__", _signature(kind.__init__)
    seen = {"__init__"}
    for name, value in _declared(kind).items():
        if not name.startswith("_"):
            seen.add(name)
            yield name, _text(value, kind, name)
    for name, annotation in _fields(kind).items():
        if name not in seen and not name.startswith("_"):
            seen.add(name)
            yield name, f": {annotation}"
    for name in _assigned(kind) - seen:
        yield name, " (set when it is made)"


def _text(value: Any, kind: Any, name: str) -> str:
    if isinstance(value, property | cached_property):
        made: Any = value.fget if isinstance(value, property) else value.func
        returned = getattr(made, "__annotations__", {}).get("return")
        return f": {returned or _fields(kind).get(name, 'Any')}"
    if isinstance(value, classmethod | staticmethod):
        return f"{_signature(value.__func__)} [{type(value).__name__}]"
    if inspect.isfunction(value):
        return _signature(value)
    return f": {_fields(kind).get(name, type(value).__name__)}"


def _signature(function: Any) -> str:
    try:
        text = str(inspect.signature(function))
    except (TypeError, ValueError):
        return "(...)"
    # Annotations are strings here. Addresses must not make two runs differ.
    text = re.sub(r"(: |-> )'((?:[^'\\]|\\.)*)'", r"\1\2", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _fields(kind: Any) -> dict[str, object]:
    members: dict[str, object] = {}
    for owner in reversed(kind.__mro__):
        if owner.__module__.startswith("pytest_fakecloud."):
            for name, annotation in inspect.get_annotations(owner).items():
                # A TypedDict wraps the annotations; one of settings has types instead of strings.
                text = getattr(annotation, "__forward_arg__", annotation)
                members[name] = text if isinstance(text, str) else type_text(text)
    return members


def _assigned(kind: type) -> set[str]:
    """Return the public attributes that a class sets in ``__init__``."""
    names = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("pytest_fakecloud.") or "__init__" not in vars(owner):
            continue
        try:
            source = textwrap.dedent(inspect.getsource(vars(owner)["__init__"]))
        except (OSError, TypeError):  # a dataclass has a generated one
            continue
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
                and not node.attr.startswith("_")
            ):
                names.add(node.attr)
    return names
