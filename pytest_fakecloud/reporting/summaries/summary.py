"""What the summaries of all services have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..bodies import compact, parsed, readable, scalar, shortened
from ..connections import on_connection, reply

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["Scene", "Summary", "envelope", "error_of", "listed", "pairs", "taken", "worked"]

SHOWN = 6
"""How many items of a list are named."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A call in words: ``what`` was asked, the ``answer`` (empty: as it came), lines ``below``.

    ``script`` is a text that many calls share and that is shown with the first of them.
    """

    what: str
    answer: str = ""
    below: Sequence[str] = ()
    script: tuple[str, str] | None = None


@dataclass(slots=True)
class Scene:
    """What a summary may need beyond its call.

    ``ids`` gives the short form of each message id, ``published`` the first publishing of each
    message (its time as text), ``ends`` the end of each partition's log by handle and topic,
    ``hidden`` whether the words of the call are somebody's secret, ``made`` the message of each
    request whose answer was lost, by the request's number, ``gathered`` the calls that another one
    tells in its row (a transaction's in its EXEC), by that one's number, ``told`` the numbers of
    those, ``bodies`` what was published with each message, as the row of the request has it.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)
    ends: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    hidden: bool = False
    made: Mapping[int, str] = field(default_factory=dict)
    gathered: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    told: Set[int] = frozenset()
    bodies: dict[str, str] = field(default_factory=dict)

    def short(self, message_id: object) -> str:
        """The short form of a message id."""
        return self.ids.get(str(message_id), str(message_id))


def listed(items: Sequence[str], most: int = SHOWN) -> str:
    """The first items, and how many more there are."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def pairs(values: Mapping[str, Any]) -> str:
    """Names and values, each in JSON so that text and number differ."""
    return listed([f"{name}={shortened(compact(value))}" for name, value in values.items()])


def envelope(call: Call) -> Any:
    """The ``result`` of an answer.

    Raises ``LookupError``, ``TypeError`` or ``ValueError`` where there is none.
    """
    return (reply(call) if on_connection(call) else parsed(call.answer))["result"]


def worked(call: Call) -> bool:
    """Whether a call has a whole answer that is no error."""
    return call.status is not None and call.status < 400 and call.outcome == "answered"


def taken(call: Call) -> bool:
    """Whether a call did what it was to do, though its whole answer was lost on its way."""
    return call.reached and call.status in (200, 201, 202) and call.outcome == "lost"


def error_of(call: Call) -> str:
    """The status and the error's text; empty for an answer that is no error."""
    if call.status is None or call.status < 400:
        return ""
    if on_connection(call) and call.answer.startswith(b"-"):
        return reply(call)["error"]  # type: ignore[no-any-return]  # whose status is no part of it
    body = parsed(call.answer)
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return f"{call.status} {scalar(body['error'])}"
    return f"{call.status} {readable(call.answer)}".strip()
