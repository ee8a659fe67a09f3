"""Functions about a single call: its commands, and whether it was executed and answered."""

from __future__ import annotations

from ..core.calls import Call, Entry, faults_ended

SEVERAL = ("pipeline", "multi-exec")
"""Routes of a key-value server for several commands."""
QUEUED = b"+QUEUED\r\n"
"""The reply to a command in a transaction; EXEC executes the command."""
QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
UPSERTS = ("upsert", "upsert-data")
"""Routes of a vector index, repeated here because `vector.assertions` would import NumPy."""
PUBLISHING = ("publish", "enqueue", "batch")
"""Routes of a queue that create messages."""


def on_connection(call: Call) -> bool:
    """Return whether a call is a command on a database connection, not an HTTP request."""
    return call.method == "RESP"


def lines_of(call: Call) -> list[list[str]]:
    """Return the commands of a call to a key-value server, each with its name and arguments."""
    lines = call.facts.get("words")
    return lines if isinstance(lines, list) else []


def command_of(call: Call) -> str:
    """Return the first command of a call to a key-value server; empty for another call."""
    return str((call.facts.get("command") or [""])[0])


def has_full_answer(call: Call) -> bool:
    """Return whether a call received a complete response that is not an error."""
    return call.status is not None and call.status < 400 and call.outcome == "answered"


def executed(call: Call) -> bool:
    return call.reached and call.status == 200


def executed_at(entry: Entry) -> int:
    """Return the journal number at which a call was executed, after any fault's function before it."""
    if isinstance(entry, Call) and any(one.get("moment") == "before" for one in entry.faults):
        return faults_ended(entry)
    return entry.number


def executed_but_lost(call: Call) -> bool:
    """Return whether a call was executed although its client received no whole response, or an error.

    If a fault altered the response, the status is the fault's own.
    """
    if call.outcome == "altered":
        return call.reached and (call.status or 0) >= 400
    is_lost = call.outcome in ("lost", "truncated")
    return call.reached and call.status in (200, 201, 202) and is_lost
