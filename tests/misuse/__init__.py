"""Wrong arguments of public calls: a table of values, and two files of rows (`tests/notations.py`).

``methods.txt`` lists the kinds of values that each parameter of a call accepts. Every other kind of
``KINDS`` must raise ``ContractError`` and change nothing: an assertion that accepts a condition that
cannot match would pass with ``times=0``::

    == broker.commit(group='g', topic='orders', partition=0, offset=0)
    group, topic => str
    partition, offset => 1

The heading is a valid call. Each row gives other values to one argument after the other, and names the
kinds that it may have; ``-`` stands for none, and the argument ``*`` is the first, without its name.
The heading ``kinds`` defines groups of kinds, ``(NAME)`` below a call includes the rows of the heading
``(NAME)``, and a heading that begins with ``not passed`` names kinds that the calls below do not get.

``errors.txt`` has the error of each wrong call, below the call that it belongs to::

    == queue.publish(**{'url': DEST, **dict(?)})
    url=5 => has url=5 is not a string

The result is the error, or a part of it after ``has``; ``…`` stands for any characters. Each of several
headings above the rows must raise these errors.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.core.errors import ContractError

from ..notations import tables
from ..stubs import PARTS
from .world import World

CALLS_FILE = Path(__file__).with_name("methods.txt")
ERRORS_FILE = Path(__file__).with_name("errors.txt")


class Matcher:
    """A matcher as in other libraries, equal to any value."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Unshowable:
    """An object without a repr, which the error message must survive."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


async def coroutine(*_: object) -> None:
    """A coroutine that is never awaited."""


KINDS: Mapping[str, Any] = {
    "None": None,
    "1": 1,
    "-1": -1,
    "1.5": 1.5,
    "nan": float("nan"),
    "True": True,
    "''": "",
    "str": "orders",
    "control": "nonsense\0",
    "bytes": b"orders",
    "[]": [],
    "[1,2]": [1, 2],
    "[str]": ["orders"],
    "{}": {},
    "{1:1}": {1: 1},
    "{str:1}": {"a": 1},
    "{str:str}": {"a": "b"},
    "{str}": {"orders"},
    "array": np.array([1, 2]),
    "table": np.array([[1, 2]]),
    "function": lambda *_: True,
    "coroutine": coroutine,
    "object": object(),
    "unshowable": Unshowable(),
    "matcher": Matcher(),
}
"""Kinds of values. ``str`` is the name of a topic, a group, an instance and a namespace."""
UNSHOWABLE = "<Unshowable, whose repr raises>"
"""What an error says of a value that has no repr."""


class Method(NamedTuple):
    """A valid call, and the kinds of values that each of its arguments accepts."""

    call: str
    accepted: Mapping[str, set[str]]
    passed: set[str]

    @property
    def name(self) -> str:
        return self.call.partition("(")[0]


def methods() -> dict[str, Method]:
    """Return the calls of ``methods.txt`` by their text."""
    groups: dict[str, set[str]] = {}
    parts: dict[str, dict[str, set[str]]] = {}
    calls: dict[str, Method] = {}
    passed = set(KINDS)
    for heading, parameters in tables(CALLS_FILE).items():
        accepted: dict[str, set[str]] = {}
        for names, kinds in parameters:
            if names in parts:
                accepted |= parts[names]
            else:
                accepted |= {name: _kinds(kinds, groups) for name in names.split(", ")}
        if heading == "kinds":
            groups = accepted
        elif heading.startswith("not passed"):
            passed = KINDS.keys() - accepted["values"]
        elif heading.startswith("("):
            parts[heading] = accepted
        else:
            calls[heading] = Method(heading, accepted, passed)
    return calls


def _kinds(text: str, groups: Mapping[str, set[str]]) -> set[str]:
    words = set(text.split()) - {"-"}
    group_words = words & groups.keys()
    assert words - group_words <= KINDS.keys(), text
    return (words - group_words).union(*(groups[name] for name in group_words))


def errors() -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Yield the calls of each list of ``errors.txt``, with its arguments and patterns of errors."""
    calls: list[str] = []
    for call, cases in tables(ERRORS_FILE, raw=True).items():
        calls.append(call)
        if cases:
            yield calls, [(arguments, _pattern(error)) for arguments, error in cases]
            calls = []


def _pattern(error: str) -> str:
    pattern = ".*".join(map(re.escape, error.removeprefix("has ").split("…")))
    return f"(?s){pattern}" if error.startswith("has ") else f"(?s)^{pattern}$"


def bound(call: str, world: World) -> tuple[Callable[..., object], dict[str, Any]]:
    """Return the function and the arguments of a call."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    arguments = {
        word.arg: eval(ast.unparse(word.value), world) for word in node.keywords if word.arg
    }
    return eval(ast.unparse(node.func), world), arguments


def outcome(function: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    """Return ``"taken"``, or the message of the error."""
    try:
        first = [arguments["*"]] if "*" in arguments else []
        result = function(*first, **{name: arguments[name] for name in arguments if name != "*"})
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        if isinstance(result, Cloud | Fake):
            result.close()
    except ContractError as error:
        return f"refused: {error}"
    except AssertionError:
        pass  # the right type, but not for long
    return "taken"


def names(refusal: str, method: str, name: str, value: object) -> bool:
    """Return whether an error names the parameter, the method or the value.

    For a list or a mapping the message may name only the wrong item.
    """
    if name == "*":
        return len(refusal) > len("refused: ") + 20
    text = getattr(value, "__name__", UNSHOWABLE if type(value) is Unshowable else repr(value))
    words = (name.removesuffix("s"), method.rpartition(".")[2], text)
    return any(word in refusal for word in (*words, *re.findall(r"[\w.']+", text)))


@contextmanager
def opened() -> Iterator[World]:
    """Yield the names for the calls of the tables, and close what they opened."""
    world = World()
    try:
        yield world
    finally:
        world.close()


def parameters(method: Callable[..., object]) -> set[str]:
    """Return the names of the arguments of a method, including those of the TypedDict in its stub."""
    parameter_names: set[str] = set()
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            fields = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
            assert fields, f"{method.__qualname__}: the fields of **{parameter.name} have no names"
            parameter_names |= set(PARTS[method.__module__.split(".")[1]][fields[1]])
        else:
            parameter_names.add(parameter.name)
    return parameter_names - {"self"}
