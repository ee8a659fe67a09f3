"""Calls on connections to a database: what they sent and received, and those that are one row, the setup
of a connection and each transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ...core.calls import Call, on_connection
from ...core.secrets import HIDDEN
from ...reporting.contract import ConnectionExchange
from ...reporting.lookups import Lookups
from ...reporting.masked import MaskedCall
from ...reporting.strings import compact
from ..resp.replies import is_error, reply
from .calls import QUEUED, command_of, hides_words, lines_of
from .wording import command_text

_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
"""Commands that set up a connection."""
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""


def gathered(calls_of_servers: Iterable[Call]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the setup of a connection under its first call, and a transaction under its last one.

    Return a mapping from the number of the call that has a row to the calls in this row, and the
    numbers of the calls without a row of their own. The setup of a fake's only connection has no
    row at all if the connection has other commands, because they show that it exists.
    """
    connections: dict[tuple[str, object], list[Call]] = {}
    for call in calls_of_servers:
        if on_connection(call) and call.client is not None:
            connections.setdefault((call.fake, call.client), []).append(call)
    count = Counter(fake for fake, _ in connections)
    groups: dict[int, list[Call]] = {}
    without_row: set[int] = set()
    for (fake, _), calls in connections.items():
        setups = _setups(calls)
        in_setups = {call.number for setup in setups for call in setup}
        others = [call for call in calls if call.number not in in_setups]
        groups |= {setup[0].number: setup for setup in setups}
        is_known = bool(others) and count[fake] == 1
        without_row |= in_setups if is_known else in_setups - groups.keys()
        for end, steps in _transactions(others):
            groups[end.number] = steps[1:]
            without_row.update(step.number for step in steps)
    return groups, without_row


def _setups(calls: Iterable[Call]) -> list[list[Call]]:
    """Return the commands that set up a connection: its first ones, and those from each HELLO."""
    setups: list[list[Call]] = [[]]
    is_open = True  # until another command
    for call in calls:
        name = command_of(call)
        succeeded = call.fault is None and (call.status == 200 or name == _REFUSABLE)
        if name == "HELLO":
            setups.append([])
            is_open = True
        is_open = is_open and name in _GREETINGS and succeeded
        if is_open:
            setups[-1].append(call)
    return list(filter(None, setups))


def _transactions(calls: Iterable[Call]) -> Iterator[tuple[Call, list[Call]]]:
    """Yield the end of each transaction on a connection, and its other commands from its MULTI."""
    steps: list[Call] | None = None
    for call in calls:
        name = command_of(call)
        if name == "MULTI" and call.status == 200 and call.fault is None:
            steps = [call]
        elif name in ("EXEC", "DISCARD"):
            if steps is not None:
                yield call, steps
            steps = None
        elif steps is not None and call.response_body == QUEUED and call.fault is None:
            steps += [] if hides_words(call) else [call]


def exchange(call: MaskedCall, lookups: Lookups) -> ConnectionExchange | None:
    """Return the commands on a connection that one row shows, and the reply as a value; None for a
    request of HTTP.
    """
    if not on_connection(call):
        return None
    steps = lookups.grouped_calls.get(call.number, ())
    lines = [line for step in (*steps, call) for line in lines_of(step)]
    if hides_words(call):
        lines = [[line[0], HIDDEN] for line in lines]
    body, answer = call.response_body, None
    with suppress(ValueError, LookupError, RecursionError):  # of an incomplete reply
        value = reply(call)
        answer = compact(value["error"] if is_error(value) else value["result"])
    # The bytes of a string follow its length.
    content = body.partition(b"\r\n")[2][:-2] if body[:1] == b"$" else body
    return ConnectionExchange("\n".join(map(command_text, lines)), answer, content)


def error_of(call: Call) -> str | None:
    """Return the error with which a command on a connection was answered; None for any other call."""
    if not on_connection(call) or not call.response_body.startswith(b"-"):
        return None
    return str(reply(call)["error"])


def rejection(call: Call, fake: object) -> dict[str, str] | None:
    """Return why a password on a connection or a token in a URL was rejected; None for a header."""
    if on_connection(call):
        return {"kind": "password" if b"WRONGPASS" in call.response_body else "no_password"}
    has_header = call.request_headers.get("Authorization") is not None
    return {"kind": "query"} if "_token=" in call.target and not has_header else None
