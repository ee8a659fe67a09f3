"""The calls on connections to a database that are one row: its setup, and each transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ...core.calls import Call, Entry, on_connection
from ...reporting.mask import hides_words
from .calls import QUEUED, command_of

_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
"""Commands that set up a connection."""
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""


def gathered(entries: Iterable[Entry]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the setup of a connection under its first call, and a transaction under its last one.

    Return a mapping from the number of the call that has a row to the calls in this row, and the
    numbers of the calls without a row of their own. The setup of a fake's only connection has no
    row at all if the connection has other commands, because they show that it exists.
    """
    connections: dict[tuple[str, object], list[Call]] = {}
    for call in entries:
        if isinstance(call, Call) and on_connection(call) and call.client is not None:
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
