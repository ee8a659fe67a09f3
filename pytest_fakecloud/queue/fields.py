"""The fields of received callbacks: which there are, what they may be asked for, what differs."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..kernel.errors import ContractError
from ..kernel.instants import instant_us
from .arguments import text
from .matching import agrees

if TYPE_CHECKING:
    from .captured import Callback

_FIELDS = {
    "status": "number",
    "body": "bytes",
    "json": "json",
    "source_body": "bytes",
    "source_json": "json",
    "source_message_id": "text",
    "retried": "number",
    "max_retries": "number",
    "dlq_id": "text",
    "url": "text",
    "is_final": "flag",
    "verified": "flag",
    "problem": "text",
    "failure": "flag",
    "headers": "dict",
    "raw": "dict",
    "at": "instant",
}


def asked_text(fields: Mapping[str, object]) -> str:
    """Return, in words, what was asked for."""
    if not fields:
        return ""
    return " with " + ", ".join(f"{name}={value!r}" for name, value in fields.items())


def differences(item: Callback, fields: Mapping[str, object]) -> list[str]:
    """Return, in words, in what an item is not the one asked for; [] when it is."""
    return [
        difference
        for name, value in fields.items()
        for difference in _difference(item, name, value)
    ]


_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "number": (
        lambda one: one is None or (isinstance(one, int) and not isinstance(one, bool)),
        "a whole number, None",
    ),
    "flag": (lambda one: isinstance(one, bool), "True, False"),
    "text": (
        lambda one: one is None or isinstance(one, str) or hasattr(one, "search"),
        "a text, a pattern, None",
    ),
    "bytes": (lambda one: isinstance(one, bytes | bytearray | str), "bytes, a text"),
    "dict": (lambda one: isinstance(one, Mapping), "a dict"),
}


def check_fields(fields: Mapping[str, object]) -> None:
    """Refuse fields that callbacks lack, and values that could never agree: they prove nothing."""
    for name, wanted in fields.items():
        if name not in _FIELDS:
            raise ContractError(f"a callback has no {name!r}; it has: {', '.join(_FIELDS)}")
        if callable(wanted) or _compares(wanted):
            continue
        kind = _FIELDS[name]
        if kind == "instant":
            instant_us(wanted)  # type: ignore[arg-type]
        elif kind != "json":
            holds, expected = _KINDS[kind]
            if not holds(wanted):
                raise ContractError(f"{name}={wanted!r}: give {expected} or a predicate")
    headers = fields.get("headers")
    for name in headers if isinstance(headers, Mapping) else ():
        text("headers name", name)


def _compares(wanted: object) -> bool:
    """Whether a value may know of itself what it equals, as `unittest.mock.ANY` does."""
    return type(wanted).__module__ not in ("builtins", "datetime")


def _as_id(name: str, wanted: object) -> object:
    # The message itself stands for its id.
    return getattr(wanted, "id", wanted) if name == "source_message_id" else wanted


def _difference(item: Callback, name: str, wanted: object) -> Iterator[str]:
    if name == "headers" and isinstance(wanted, Mapping):
        yield from _header_differences(item, wanted)
        return
    value = getattr(item, name)
    if name in ("json", "source_json"):
        try:
            value = value()
        except ValueError:
            yield f"{name} is no JSON: {item.body if name == 'json' else item.source_body!r}"
            return
    if callable(wanted):
        if not wanted(value):
            yield f"{name} is {value!r}, which the predicate refuses"
        return
    if _agrees(item, name, value, wanted):
        return
    if isinstance(value, dict | list) and isinstance(wanted, dict | list):
        lines = difflib.ndiff(_listed(wanted), _listed(value))
        yield "\n    ".join([f"{name} differs (- expected, + received):", *lines])
        return
    yield f"{name} is {value!r}, not {wanted!r}"


def _agrees(item: Callback, name: str, value: object, wanted: object) -> bool:
    if _FIELDS[name] == "instant" and not _compares(wanted):
        return item.at_us == instant_us(wanted)  # type: ignore[arg-type]
    if _FIELDS[name] == "bytes" and isinstance(wanted, str):
        return value == wanted.encode("utf-8", "surrogatepass")
    if _FIELDS[name] == "text":
        return agrees(value, _as_id(name, wanted))
    return value == wanted


def _header_differences(item: Callback, wanted: Mapping[Any, object]) -> Iterator[str]:
    for name, value in wanted.items():
        found = item.header(name)
        if found is None:
            yield f"header {name} is absent, not {value!r}"
        elif callable(value):
            if not value(found):
                yield f"header {name} is {found!r}, which the predicate refuses"
        elif not agrees(found, value):
            yield f"header {name} is {found!r}, not {value!r}"


def _listed(value: object) -> list[str]:
    return json.dumps(value, indent=2, sort_keys=True, default=repr).splitlines()
