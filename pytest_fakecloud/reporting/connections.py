"""Calls on database connections: their replies, and groups of calls that share a row.

A client sends several commands when it connects, and a transaction consists of several commands;
one row shows all of them. Source of the format of replies: the specifications of RESP2 and RESP3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..core.calls import Call, Entry
from .bodies import parsed, readable, scalar
from .calls import QUEUED, command_of, on_connection
from .masking import hides_words

_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
"""Commands that set up a connection."""
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""
_SCALARS: Mapping[bytes, Callable[[str], Any]] = {
    b"-": lambda text: {"error": text},
    b":": int,
    b",": float,
    b"#": lambda text: text == "t",
}
"""Functions that read values of one line. Status replies and large numbers remain strings."""


def reply(call: Call) -> Any:
    """Return the reply of a call as REST does: ``{"result": …}`` or ``{"error": text}``.

    Errors inside an array have the second form too. Raises ``ValueError`` for an incomplete reply.
    """
    value, _ = _read(call.response_body, 0)
    return value if is_error(value) else {"result": value}


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["error"]


def _read(data: bytes, start: int) -> tuple[Any, int]:
    """Return the value that begins at an index, and the index after the value."""
    end = data.index(b"\r\n", start)
    kind, text = data[start : start + 1], data[start + 1 : end].decode("utf-8", "replace")
    after = end + 2
    if kind == b"_" or (text == "-1" and kind in (b"$", b"*")):
        return None, after
    if kind in (b"$", b"=", b"!"):
        end = after + int(text)
        if len(data) < end + 2:
            raise ValueError("the reply was cut")
        return _string(kind, data[after:end].decode("utf-8", "replace")), end + 2
    if kind in (b"*", b"~", b">"):
        return _read_array(data, after, int(text))
    if kind in (b"%", b"|"):
        pairs, after = _read_array(data, after, 2 * int(text))
        if kind == b"|":  # an attribute, which precedes the value that it describes
            return _read(data, after)
        return dict(zip(map(str, pairs[::2]), pairs[1::2], strict=True)), after
    return _SCALARS.get(kind, str)(text), after


def _string(kind: bytes, text: str) -> Any:
    if kind == b"!":
        return {"error": text}
    return text[4:] if kind == b"=" else text  # a verbatim string begins with its format ("txt:")


def _read_array(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        item, start = _read(data, start)
        items.append(item)
    return items, start


def gathered(entries: Iterable[Entry]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the setup of a connection under its first call, and a transaction under its last one.

    Return a mapping from the number of the call that has a row to the calls in this row, and the
    numbers of the calls without a row of their own. The setup of a fake's only connection has no
    row at all if the connection has other commands, because they show that it exists.
    """
    connections: dict[tuple[str, object], list[Call]] = {}
    for call in entries:
        if isinstance(call, Call) and on_connection(call) and call.client is not None:
            connections.setdefault((call.handle, call.client), []).append(call)
    count = Counter(handle for handle, _ in connections)
    groups: dict[int, list[Call]] = {}
    without_row: set[int] = set()
    for (handle, _), calls in connections.items():
        setups = _setups(calls)
        in_setups = {call.number for setup in setups for call in setup}
        others = [call for call in calls if call.number not in in_setups]
        groups |= {setup[0].number: setup for setup in setups}
        is_known = bool(others) and count[handle] == 1
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


def error_of(call: Call) -> tuple[str, str]:
    """Return the status and the message of an error response; empty strings for any other response."""
    if call.status is None or call.status < 400:
        return "", ""
    if on_connection(call) and call.response_body.startswith(b"-"):
        return "", str(reply(call)["error"])  # a Redis reply has no status
    body = parsed(call.response_body)
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return str(call.status), scalar(body["error"])
    return str(call.status), readable(call.response_body)
