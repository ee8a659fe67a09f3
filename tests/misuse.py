"""Check that arguments of a wrong type raise ``ContractError``.

A table lists for each public method valid arguments, and the kinds of values that each may have.
All other kinds must raise ``ContractError``, never another error, and must not be accepted: an
assertion that cannot match would pass with ``times=0``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.handle import Handle


class Matcher:
    """A matcher as in other libraries, equal to any value."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


COMMON: Mapping[str, Any] = {
    "None": None,
    "whole": 1,
    "negative": -1,
    "fraction": 1.5,
    "nan": float("nan"),
    "boolean": True,
    "empty list": [],
    "empty mapping": {},
    "mapping by numbers": {1: 1},
    "function": lambda value: True,
    "object": object(),
    "matcher": Matcher(),
}
"""Kinds of values that every service treats alike."""
Kinds = Mapping[str, set[str]]
Table = Mapping[str, tuple[Mapping[str, Any], Kinds]]
"""By method name: valid arguments, and the kinds that each parameter accepts."""
OTHERS = {"client"}
"""Methods that pass everything on to the client, which validates it."""


def cases(table: Table) -> list[Any]:
    """Return a case for each parameter of each method."""
    return [
        pytest.param(method, name, id=f"{method}-{name}")
        for method, (_, parameters) in table.items()
        for name in parameters
    ]


def outcome(call: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    """Return ``"taken"``, or the message of the error."""
    try:
        call(**arguments)
    except ContractError as error:
        return f"refused: {error}"
    except AssertionError:
        pass  # the right type, but not for long
    return "taken"


def check_table(kind: type[Handle], table: Table, without_parameters: set[str]) -> None:
    """Check that the table has every public method of the fake with all its parameters."""
    own = {
        name: method
        for owner in (kind, *kind.__bases__)
        if owner is not Handle
        for name, method in vars(owner).items()
        if not name.startswith("_") and inspect.isfunction(method)
    }
    own["restore"] = Handle.restore
    assert set(own) == set(table) | without_parameters | OTHERS
    for name, (_, parameters) in table.items():
        assert _parameters(own[name]) <= set(parameters), name


def _parameters(method: Callable[..., object]) -> set[str]:
    found: set[str] = set()
    for one in inspect.signature(method).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            fields = re.fullmatch(r"Unpack\[(\w+)\]", str(one.annotation))
            assert fields, f"{method.__qualname__}: the fields of **{one.name} have no names"
            found |= set(inspect.unwrap(method).__globals__[fields[1]].__annotations__)
        else:
            found.add(one.name)
    return found - {"self"}


def check_wrong_types(
    handle: Handle,
    case: tuple[str, str],
    table: Table,
    values: Mapping[str, Any],
    state: Callable[[], object],
) -> None:
    """Check that a wrong kind raises an error that names it, and changes nothing."""
    method, name = case
    before = state()
    good, parameters = table[method]
    for kind in values.keys() - parameters[name]:
        refusal = outcome(getattr(handle, method), {**good, name: values[kind]})
        assert refusal.startswith("refused: "), kind
        # For a list or a mapping the message may name only the wrong item.
        value = repr(values[kind])
        item = re.search(r"[\w.']+", value)
        named = (name.removesuffix("s"), method, item[0] if item else value)
        assert any(word in refusal for word in named), f"{kind}: {refusal}"
        assert state() == before, kind


def check_right_types(
    prepare: Callable[[], AbstractContextManager[Handle]],
    case: tuple[str, str],
    table: Table,
    values: Mapping[str, Any],
) -> None:
    """Check that valid kinds are accepted; otherwise the errors might have another reason."""
    method, name = case
    good, parameters = table[method]
    for kind in parameters[name]:
        with prepare() as handle:
            assert outcome(getattr(handle, method), {**good, name: values[kind]}) == "taken", kind
