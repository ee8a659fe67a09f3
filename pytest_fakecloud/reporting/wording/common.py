"""Wording for all services: templates, lists, times; errors, faults, credentials, actions."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...core.calls import Call, Event
from ...core.errors import counted, listed, plural, shortfall
from ..calls import compact, on_connection, parsed, reply, shortened
from ..model import Lookups

EXCERPT = 400
"""Maximum length of a body in a row, in characters."""
Values = Mapping[str, Any]
"""The values of a finding, and the name of its ``fake``."""
Sentences = Mapping[str, "str | Callable[[Values, Lookups], str]"]
"""The sentence of each kind of finding: a template filled with its values, or a function."""


class Script(NamedTuple):
    """A Lua script; ``sha`` is the beginning of the hash of its source."""

    sha: str
    source: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The description of a row.

    ``what`` describes the request or event, ``answer`` the response. ``below`` are lines of
    explanation, ``remarks`` are short explanations that may share a line.
    """

    what: str
    answer: str = ""
    below: Sequence[str] = ()
    script: Script | None = None
    remarks: Sequence[str] = ()
    note: str = ""


class _Template(string.Formatter):
    """Formats the sentence of a finding with its values.

    ``{name}`` is a string, shortened; ``{name:raw}`` is a string in full; ``{name:json}`` is JSON;
    ``{name:id}`` is the short form of an ID; ``{name:list}`` is a list of strings, ``{name:quoted}``
    one of strings in quotes, ``{name:counts}`` one of names with their counts;
    ``{name:namespace}`` is the name of a namespace; ``{name:record}`` is a count with its noun.
    """

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups

    def format_field(self, value: Any, format_spec: str) -> str:
        match format_spec:
            case "":
                return shortened(str(value))
            case "raw":
                return str(value)
            case "json":
                return compact(shortened(value) if isinstance(value, str) else value)
            case "id":
                return self._lookups.short(value)
            case "list":
                return listed([shortened(str(one)) for one in value], 4)
            case "quoted":
                return listed([compact(shortened(one)) for one in value], 4)
            case "counts":
                return listed([f"{name} {count}" for name, count in value.items()])
            case "namespace":
                return namespace(value)
            case "record" | "earlier record" | "vector":
                return counted(value, format_spec)
            case _:
                raise ValueError(f"unknown format {format_spec!r}")


def filled(template: str, values: Values, lookups: Lookups) -> str:
    return _Template(lookups).vformat(template, (), values)


def namespace(name: str) -> str:
    return f"namespace {compact(name)}" if name else "the default namespace"


def pairs(values: Mapping[str, Any]) -> str:
    """Format names with values in JSON, which distinguishes strings from numbers."""
    return listed([f"{name}={shortened(compact(value))}" for name, value in values.items()])


def envelope(call: Call) -> Any:
    """Return the ``result`` of a response.

    Raises ``LookupError``, ``TypeError`` or ``ValueError`` if the response has none.
    """
    return (reply(call) if on_connection(call) else parsed(call.response_body))["result"]


def action(event: Event, lookups: Lookups) -> str:
    arguments = event.data.get("arguments") or []
    given = ", ".join(arguments)
    did = {"add_fault": "added", "remove_fault": "removed"}.get(event.kind)
    if did:
        limits = f" ({given})" if given else ""
        return f"{event.handle} fault {did}: {event.data['fault']}{limits}"
    if event.kind == "clear_faults":
        return f"{event.handle} faults cleared"
    if event.kind in ("hold", "release"):
        return f"{event.handle}.holding() {'began' if event.kind == 'hold' else 'ended'}"
    message = event.data.get("message_id")
    made = f" -> {lookups.short(message)}" if message else ""
    owner, _, name = event.kind.rpartition(".")
    if owner in ("", "faults"):
        return f"{event.handle}.{event.kind}({given}){made}"
    thing, *rest = arguments
    return f"{event.handle}.{owner}({thing}).{name}({', '.join(rest)}){made}"


def _continued(values: Values, lookups: Lookups) -> str:
    later = counted(values["later"], "call")
    error = " ".join(filter(None, [values["status"], values["error"]]))
    return f"{values['call']} was answered {error}, and {later} followed"


def _swallowed(values: Values, lookups: Lookups) -> str:
    answered = values["status"] or "with an error"
    return f"this {values['call']} was answered {answered}, and the test saw no exception"


def _unused_fault(values: Values, lookups: Lookups) -> str:
    faults: dict[str, list[str]] = {}
    for one in values["faults"]:
        how = shortfall(one["deed"], one["used"], one["planned"])
        faults.setdefault(how, []).append(one["fault"])
    found = [
        f"the {plural('fault', len(those))} {listed(those)} {how}" for how, those in faults.items()
    ]
    named = "; ".join(found) or "a fault was used less often than planned"
    return f"{named}; the calls were {listed(values['calls'])}"


def _rejected(values: Values, lookups: Lookups) -> str:
    reasons = "; ".join(
        _WHY_REJECTED[one["kind"]].format(fake=values["fake"], **one) for one in values["reasons"]
    )
    return f"answered 401 to {values['rejected']} of {counted(values['calls'], 'call')}: {reasons}"


_WHY_REJECTED = {
    "none": "no credentials were sent",
    "query": "the _token in the URL is wrong",
    "read_only": "the credentials are the read-only token",
    "other": "the credentials are those of {other}",
    "unknown": "the credentials are not those of {fake}",
}
SENTENCES: Sentences = {
    "continued_after_error": _continued,
    "error_not_seen": _swallowed,
    "unused_fault": _unused_fault,
    "never_called": "no call was received",
    "clock_frozen": "{seconds:raw} s of wall-clock time passed while the fake clock was frozen; "
    "fakecloud.clock.advance() moves it, time.sleep() does not",
    "rejected": _rejected,
    "problem": "[{problem:raw}] {text:raw}",
    "failed": "{text:raw}",
    "more": "and {count:raw} more",
}
