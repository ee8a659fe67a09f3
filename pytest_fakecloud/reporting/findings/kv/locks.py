"""Findings about locks and other keys that are set only if they do not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ...model import Finding
from ..look import Look, about_key
from .commands import EXPIRING, MAKING, ZADD_OPTIONS, commands, sets_nx

if TYPE_CHECKING:
    from ....core.calls import Call, Event

HELD = re.compile(
    r"(?i)(^|[^a-z])(locks?|locked|mutex|lease|idempoten\w*|dedup\w*|once|processed|seen)([^a-z]|$)"
)


def _deleted_after(look: Look, handle: Any, taken: Call, key: str) -> bool:
    return any(
        call.number > taken.number and line[0] in ("DEL", "UNLINK") and key in line[1:]
        for call, line, _ in commands(look, handle)
    )


def never_expires(look: Look, handle: Any) -> Iterator[Finding]:
    """Find locks and idempotency keys that were set with NX and have no TTL."""
    for call, line, result in commands(look, handle):
        options = {word.upper() for word in line[3:]}
        if not sets_nx(line) or options & EXPIRING or len(line) < 3 or result in (None, 0):
            continue
        if (
            HELD.search(line[1])
            and handle.ttl(line[1]) == -1
            and not _deleted_after(look, handle, call, line[1])
        ):
            yield about_key("lock_without_ttl", call, line[1])


def held_by_other(look: Look, handle: Any) -> Iterator[Finding]:
    """Find locks that were deleted while they held a value that another client had set."""
    taken: dict[str, list[str]] = {}
    for call, line, result in commands(look, handle):
        if line[0] == "SET" and sets_nx(line):
            if result is not None:
                taken.setdefault(line[1], []).append(line[2])
        elif line[0] == "DEL":
            for key in line[1:]:
                holders = taken.get(key, [])
                if len(set(holders)) > 1 and result:
                    held = {"holder": holders[-1], "earlier": holders[0]}
                    yield about_key("lock_of_another", call, key, **held)


def changed_nothing(look: Look, handle: Any) -> Iterator[Finding]:
    """Find writes that had no effect because of NX or XX.

    Two cases are expected and not reported: a lock that is held, unless a failed attempt of the
    same message set it, and a counter that NX initializes.
    """
    marked: dict[str, Event | None] = {}
    found: list[tuple[Call, str, dict[str, Any]]] = []
    counted: set[str] = set()
    for call, line, result in commands(look, handle):
        if len(line) > 1 and line[0] in MAKING:
            counted.add(line[1])
        if len(line) < 3:
            continue
        option, members = _prevented(line, result)
        values: dict[str, Any] = {"message": "", "attempt": 0}
        if sets_nx(line):
            during = look.attempt_around(call)
            if result not in (None, 0):
                marked[line[1]] = during
            elif left := _left_by(marked.get(line[1]), during):
                option, values = option or "NX", left
        if option and not (HELD.search(line[1]) and not values["message"]):
            values |= {"command": line[0], "option": option, "members": members}
            found.append((call, line[1], values))
    for call, key, values in found:
        if key not in counted:
            yield about_key("changed_nothing", call, key, **values)


def _prevented(line: list[str], result: Any) -> tuple[str, list[str]]:
    """Return the option that prevented a write, and the affected members or fields; an empty string
    and an empty list if none did.
    """
    words = [word.upper() for word in line]
    if words[0] == "SET" and result is None and "GET" not in words[3:]:
        return next((one for one in ("NX", "XX") if one in words[3:]), ""), []
    if words[0] == "HSETNX" and result == 0:
        return "HSETNX", [line[2]]
    if words[0] == "ZADD" and result == 0:
        options = list(takewhile(ZADD_OPTIONS.__contains__, words[2:]))
        if "NX" in options:
            return "ZADD", line[3 + len(options) :: 2]
    return "", []


def _left_by(first: Event | None, during: Event | None) -> dict[str, Any]:
    """Return details of the failed attempt to deliver the same message during which the key was
    set; an empty mapping if there is none.
    """
    if first is None or during is None or first is during:
        return {}
    about, status = first.data.get("message_id"), first.data.get("status")
    if about != during.data.get("message_id") or (isinstance(status, int) and status < 300):
        return {}
    return {"message": str(about), "attempt": first.data.get("number")}
