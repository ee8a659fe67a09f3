"""Wording for all services: sentences from templates, lists, times."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.timeparse import to_datetime
from ...core.wording import counted, listed
from ..bodies import compact, parsed, shortened
from ..connections import on_connection, reply

if TYPE_CHECKING:
    from ...core.calls import Call
    from ..model import Finding
    from ..scene import Scene

Sentences = Mapping[str, "str | Callable[[Finding, Scene], str]"]
"""The sentence of each kind of finding: a template filled with its values, or a function."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The description of a row.

    ``what`` describes the request or event, ``answer`` the response. ``below`` are lines of
    explanation, ``remarks`` are short explanations that may share a line. ``script`` is the name
    and source of a Lua script.
    """

    what: str
    answer: str = ""
    below: Sequence[str] = ()
    script: tuple[str, str] | None = None
    remarks: Sequence[str] = ()
    note: str = ""


class _Template(string.Formatter):
    """Formats the sentence of a finding with its values.

    ``{name}`` is a string, shortened; ``{name:json}`` is JSON; ``{name:list}`` is a list of
    strings; ``{name:raw}`` is a string in full; ``{name:record}`` is a count with its noun (``2
    records``).
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "json":
            return compact(shortened(value) if isinstance(value, str) else value)
        if format_spec == "list":
            return listed([shortened(str(one)) for one in value], 4)
        if format_spec == "raw":
            return str(value)
        if format_spec:
            return counted(value, format_spec)
        return shortened(str(value))


def filled(template: str, values: Mapping[str, Any]) -> str:
    return _Template().vformat(template, (), values)


def pairs(values: Mapping[str, Any]) -> str:
    """Format names with values in JSON, which distinguishes strings from numbers."""
    return listed([f"{name}={shortened(compact(value))}" for name, value in values.items()])


def clock_time(at_us: int, like_us: int | None = None) -> str:
    """Return a time in UTC, with its date unless ``like_us`` is on the same day."""
    at = to_datetime(at_us)
    part = f".{at.microsecond // 1000:03}".removesuffix(".000")
    same_day = like_us is not None and to_datetime(like_us).date() == at.date()
    day = "" if same_day else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M:%S}{part}Z"


def envelope(call: Call) -> Any:
    """Return the ``result`` of a response.

    Raises ``LookupError``, ``TypeError`` or ``ValueError`` if the response has none.
    """
    return (reply(call) if on_connection(call) else parsed(call.answer))["result"]
