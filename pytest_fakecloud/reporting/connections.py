"""Calls on database connections: their replies, and groups of calls that share a row.

A client sends several commands when it connects, and a transaction consists of several commands;
one row shows all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.calls import Call
from .bodies import parsed, readable, scalar
from .masking import hides_words
from .resp_reply import is_error, value_of

if TYPE_CHECKING:
    from ..core.calls import Entry

_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
"""Commands that set up a connection."""
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""


def on_connection(call: Call) -> bool:
    """Return whether a call is a command on a database connection, not an HTTP request."""
    return call.method == "RESP"


def reply(call: Call) -> Any:
    """Return the reply of a call in the form of a REST response: ``{"result": …}`` or ``{"error":
    text}``.

    Errors inside an array have the second form too. Raises ``ValueError`` for an incomplete reply.
    """
    value = value_of(call.answer)
    return value if is_error(value) else {"result": value}


@dataclass(slots=True)
class _Connection:
    """One connection of a client to a fake.

    ``setup`` are the commands that set up the connection so far; None after another command, until
    the next HELLO. ``steps`` are the commands of the open transaction, of which the first is its
    MULTI; None outside of transactions.
    """

    setup: list[Call] | None = field(default_factory=list)
    steps: list[Call] | None = None


def gathered(entries: Iterable[Entry]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the commands that set up a connection under their first call, and transactions under
    their EXEC or DISCARD.

    Return a mapping from the number of the call that has a row to the other calls in this row, and
    the numbers of the calls without a row of their own. The setup of a fake's only connection has
    no row at all if the connection has other commands, because they show that it exists.
    """
    groups: dict[int, list[Call]] = {}
    without_row: set[int] = set()
    connections: dict[str, dict[object, _Connection]] = {}
    setups: dict[str, set[int]] = {}
    used: set[str] = set()
    for call in entries:
        if not isinstance(call, Call) or not on_connection(call) or call.client is None:
            continue
        own = connections.setdefault(call.handle, {})
        connection = own.setdefault(call.client, _Connection())
        if _sets_up(call, connection):
            assert connection.setup is not None
            connection.setup.append(call)
            first = connection.setup[0]
            groups[first.number] = connection.setup
            setups.setdefault(call.handle, set()).add(first.number)
            if call is not first:
                without_row.add(call.number)
            continue
        used.add(call.handle)
        parts = _end_of_transaction(call, connection)
        if parts is not None:
            groups[call.number] = parts[1:]
            without_row.update(part.number for part in parts)
    for handle in used:
        if len(connections[handle]) == 1:
            without_row |= setups.get(handle, set())
    return groups, without_row


def _sets_up(call: Call, connection: _Connection) -> bool:
    """Return whether a call belongs to the setup of its connection, and note if the setup is over."""
    name = _name(call)
    succeeded = call.fault is None and (call.status == 200 or name == _REFUSABLE)
    if name == "HELLO":
        connection.setup = []
    if name not in _GREETINGS or not succeeded:
        connection.setup = None
    return connection.setup is not None


def _end_of_transaction(call: Call, connection: _Connection) -> list[Call] | None:
    """Return the commands of the transaction that a call ends; None for another call, which may
    begin or continue a transaction.
    """
    name, steps = _name(call), connection.steps
    if name == "MULTI" and call.status == 200 and call.fault is None:
        connection.steps = [call]
    elif name in ("EXEC", "DISCARD"):
        connection.steps = None
        return steps
    elif steps is not None and call.answer == b"+QUEUED\r\n" and call.fault is None:
        steps += [] if hides_words(call) else [call]
    return None


def _name(call: Call) -> str:
    return str((call.facts.get("command") or [""])[0])


def error_of(call: Call) -> tuple[str, str]:
    """Return the status and the message of an error response; empty strings for any other response."""
    if call.status is None or call.status < 400:
        return "", ""
    if on_connection(call) and call.answer.startswith(b"-"):
        return "", str(reply(call)["error"])  # a Redis reply has no status
    body = parsed(call.answer)
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return str(call.status), scalar(body["error"])
    return str(call.status), readable(call.answer)
