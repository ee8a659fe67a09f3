"""What a test may ask of a value, in assertions, listings and faults alike, and what agrees with it.

A text asks for itself, or with `*` for any text in its place; a pattern is searched for; a predicate
decides by itself; of a body, text means its UTF-8 bytes.  What could never agree is refused: in an
assertion that something did not happen it would prove nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from ..core.errors import ContractError
from ..core.timeparse import instant_us, to_datetime
from .arguments import text
from .model import Headers

Sort: TypeAlias = Literal["number", "flag", "text", "bytes", "json", "dict", "headers", "instant"]


def _is_pattern(wanted: object) -> bool:
    return hasattr(wanted, "search") and isinstance(getattr(wanted, "pattern", None), str | bytes)


def _is_text_pattern(wanted: Any) -> bool:
    return _is_pattern(wanted) and isinstance(wanted.pattern, str)


def _is_predicate(wanted: object) -> bool:
    return callable(wanted) and not _is_pattern(wanted)


def _compares(wanted: object) -> bool:
    """Whether a value may know of itself what it equals, as `unittest.mock.ANY` does."""
    return not _is_pattern(wanted) and type(wanted).__module__ not in ("builtins", "datetime")


# -- what may be asked -----------------------------------------------------------------------------

_SORTS: dict[Sort, tuple[Callable[[Any], bool], str]] = {
    "number": (
        lambda one: one is None or (isinstance(one, int) and not isinstance(one, bool)),
        "a whole number, None",
    ),
    "flag": (lambda one: isinstance(one, bool), "True, False"),
    "text": (
        lambda one: one is None or isinstance(one, str) or _is_text_pattern(one),
        "a text, a pattern, None",
    ),
    "bytes": (
        lambda one: isinstance(one, bytes | bytearray | str) or _is_pattern(one),
        "bytes, a text",
    ),
    "json": (
        lambda one: _is_text_pattern(one) or _is_json(one),
        "what JSON can hold (dict with text keys, list, text, number, True, False, None)",
    ),
    "dict": (lambda one: isinstance(one, Mapping), "a dict"),
    "headers": (lambda one: isinstance(one, Mapping), "a dict"),
}


def check(name: str, sort: Sort, wanted: object) -> None:
    """Refuse a value that nothing of this sort could agree with; raises `ContractError`."""
    if _is_predicate(wanted):
        if inspect.iscoroutinefunction(wanted):
            raise ContractError(
                f"{name}={wanted!r} is to be awaited, so it would hold for everything: give a plain"
                " predicate"
            )
        return
    if sort == "headers" and isinstance(wanted, Mapping):
        _check_headers(name, wanted)
        return
    if _compares(wanted):
        return
    if sort == "instant":
        instant_us(wanted)  # type: ignore[arg-type]
        return
    holds, expected = _SORTS[sort]
    if not holds(wanted):
        raise ContractError(f"{name}={wanted!r}: give {expected} or a predicate")


def _check_headers(name: str, wanted: Mapping[Any, object]) -> None:
    for header, value in wanted.items():
        text(f"{name} name", header)
        if value is None:
            raise ContractError(f"{name}[{header!r}]=None: give a text, a pattern or a predicate")
        check(f"{name}[{header!r}]", "text", value)


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(value[key]) for key in value)
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, str | int | float) or _compares(value)


# -- what agrees -----------------------------------------------------------------------------------


def agrees(found: object, wanted: Any) -> bool:
    """Whether a value is what was asked for: equal, matching a pattern, or liked by a predicate.

    Text with `*` matches any text in its place.
    """
    if _is_pattern(wanted):
        return isinstance(found, type(wanted.pattern)) and bool(wanted.search(found))
    if callable(wanted):
        return bool(wanted(found))
    if isinstance(wanted, str) and "*" in wanted and isinstance(found, str):
        return _fits(found, wanted.split("*"))
    return bool(found == wanted)


def agrees_as(sort: Sort, found: Any, wanted: Any) -> bool:
    """Whether a value of this sort is what was asked for; see `check` for what may be."""
    if not _is_predicate(wanted):
        if sort == "bytes" and isinstance(wanted, str):
            return bool(found == wanted.encode("utf-8", "surrogatepass"))
        if sort == "bytes" and _is_text_pattern(wanted):
            return bool(wanted.search(found.decode("utf-8", "replace")))
        if sort == "instant" and not _compares(wanted):
            return bool(found == to_datetime(instant_us(wanted)))
    return agrees(found, wanted)


def _fits(found: str, pieces: Sequence[str]) -> bool:
    if not found.startswith(pieces[0]) or not found.endswith(pieces[-1]):
        return False
    at = len(pieces[0])
    for piece in pieces[1:-1]:
        place = found.find(piece, at)
        if place < 0:
            return False
        at = place + len(piece)
    return len(found) - len(pieces[-1]) >= at


# -- what differs, in words ------------------------------------------------------------------------


def differing(name: str, found: object, wanted: object) -> str:
    """Return the words for a value that is not the one asked for."""
    if _is_predicate(wanted):
        return f"{name} is {found!r}, which the predicate refuses"
    return f"{name} is {found!r}, not {wanted!r}"


def header_differences(headers: Headers, wanted: Mapping[str, object]) -> Iterator[str]:
    """Yield, in words, which headers are not as asked for; of several values any may agree."""
    for name, value in wanted.items():
        found = [one for key, one in headers if key.lower() == name.lower()]
        if not found:
            yield f"header {name} is absent, not {value!r}"
        elif not any(agrees(one, value) for one in found):
            yield differing(f"header {name}", found[0] if len(found) == 1 else found, value)


def asked_text(fields: Mapping[str, object]) -> str:
    """Return, in words, what was asked for."""
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())
