"""Calls on database connections: replies as values, and groups of calls that share a row.

A client sends several commands when it connects, and a transaction consists of several commands;
one row shows all of them. Source: the protocol's specification (RESP2 and RESP3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..core.calls import Call
from .bodies import parsed, readable, scalar
from .masking import hides_words

if TYPE_CHECKING:
    from ..core.calls import Entry

_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""
_SPREAD = b"*~>"


def on_connection(call: Call) -> bool:
    """Return whether a call is a command on a database connection, not an HTTP request."""
    return call.method == "RESP"


def reply(call: Call) -> Any:
    """Return the reply of a call in the form of a REST response: ``{"result": …}`` or ``{"error":
    text}``.

    Errors inside an array have the second form too. Raises ``ValueError`` for an incomplete reply.
    """
    value, _ = _read(call.answer, 0)
    return value if is_error(value) else {"result": value}


def is_error(value: Any) -> bool:
    """Return whether a value of a reply is an error."""
    return isinstance(value, dict) and list(value) == ["error"]


def _read(data: bytes, at: int) -> tuple[Any, int]:
    end = data.index(b"\r\n", at)
    kind, text = data[at : at + 1], data[at + 1 : end].decode("utf-8", "replace")
    at = end + 2
    if kind == b"-":
        return {"error": text}, at
    if kind == b":":
        return int(text), at
    if kind == b",":
        return float(text), at
    if kind == b"#":
        return text == "t", at
    if kind == b"_" or text == "-1":
        return None, at
    if kind in (b"$", b"=", b"!"):
        end = at + int(text)
        if len(data) < end + 2:
            raise ValueError("the reply was cut")
        value = data[at:end].decode("utf-8", "replace")
        if kind == b"!":
            return {"error": value}, end + 2
        return value[4:] if kind == b"=" else value, end + 2
    if kind in (b"%", b"|"):
        found = {}
        for _ in range(int(text)):
            key, at = _read(data, at)
            found[key if isinstance(key, str) else str(key)], at = _read(data, at)
        # An attribute precedes the value that it describes, so return the next value.
        return _read(data, at) if kind == b"|" else (found, at)
    if kind and kind in _SPREAD:
        items = []
        for _ in range(int(text)):
            item, at = _read(data, at)
            items.append(item)
        return items, at
    return text, at  # status ("+") or large number ("(")


def gathered(entries: Iterable[Entry]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the commands that set up a connection under their first call, and transactions under
    their EXEC or DISCARD.

    Return a mapping from the number of the call that has a row to the other calls in this row, and
    the numbers of these other calls.
    """
    found: dict[int, list[Call]] = {}
    told: set[int] = set()
    clients: dict[str, set[object]] = {}
    silent: dict[str, set[int]] = {}
    greeting: dict[object, Call | None] = {}
    steps: dict[object, list[Call]] = {}
    spoke: set[str] = set()
    for call in entries:
        if not isinstance(call, Call) or not on_connection(call) or call.client is None:
            continue
        whose = call.handle, call.client
        clients.setdefault(call.handle, set()).add(call.client)
        name = (call.facts.get("command") or [""])[0]
        greets = name in _GREETINGS and call.fault is None
        greets = greets and (call.status == 200 or name == _REFUSABLE)
        if name == "HELLO":
            greeting.pop(whose, None)
        first = greeting.get(whose, call if greets else None)
        greeting[whose] = first if greets else None
        if first is not None and greets:
            found.setdefault(first.number, []).append(call)
            silent.setdefault(call.handle, set()).add(first.number)
            if call is not first:
                told.add(call.number)
            continue
        spoke.add(call.handle)
        if name == "MULTI" and call.status == 200 and call.fault is None:
            steps[whose] = [call]
        elif name in ("EXEC", "DISCARD") and whose in steps:
            parts = steps.pop(whose)
            found[call.number] = parts[1:]
            told.update(part.number for part in parts)
        elif whose in steps and call.answer == b"+QUEUED\r\n":
            steps[whose] += [call] if call.fault is None and not hides_words(call) else []
    # If there is only one connection, its other commands already show that it exists.
    for handle in spoke:
        if len(clients[handle]) == 1:
            told |= silent.get(handle, set())
    return found, told


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
