"""Findings about the TTL of keys: removed, renewed, never set, set by another clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.timeparse import to_datetime
from ...model import Finding
from ..look import Look, about_key, executed
from .commands import EXPIRING, INSTANTS, MAKING, READS, SPANS, commands, deadline_of, held_up

if TYPE_CHECKING:
    from ....core.calls import Call

_FAR_US = 24 * 3600 * 1_000_000
"""Difference in microseconds below which two times are taken to come from the same clock."""


def expiry_taken(look: Look, handle: Any) -> Iterator[Finding]:
    """Find SET commands that removed the TTL of a key that was never given another."""
    until: dict[str, int] = {}
    for call, line, result in commands(look, handle):
        if line[0] not in ("SET", *SPANS) or result in (None, 0) or len(line) < 3:
            continue
        key, deadline = line[1], deadline_of(call, line)
        if deadline is not None:
            until[key] = deadline
        elif "KEEPTTL" in map(str.upper, line[3:]):
            continue
        elif call.at_us < until.pop(key, 0) and handle.ttl(key) == -1:
            yield about_key("ttl_removed", call, key)


def renewed(look: Look, handle: Any) -> Iterator[Finding]:
    """Find counters whose TTL was renewed repeatedly before it expired."""
    counted: set[str] = set()
    spans: dict[str, list[tuple[int, int]]] = {}
    last: dict[str, Call] = {}
    for call, line, _ in commands(look, handle):
        if line[0] in ("INCR", "INCRBY"):
            counted.add(line[1])
        elif line[0] in SPANS and len(line) == 3 and line[1] in counted:
            deadline = deadline_of(call, line)
            before = spans.setdefault(line[1], [])
            if before and call.at_us >= before[-1][1]:
                before.clear()
            if deadline is not None:
                before.append((call.at_us, deadline))
                last[line[1]] = call
    for key, several in spans.items():
        (began, first_end), (at, _) = several[0], several[-1]
        if len(several) > 2 and at >= first_end:
            span = f"{(first_end - began) / 1e6:g}"
            times = len(several) - 1
            yield about_key("ttl_renewed", last[key], key, seconds=span, times=times)


def ttl_not_set(look: Look, handle: Any) -> Iterator[Finding]:
    """Find keys without a TTL whose EXPIRE was sent but not executed."""
    for call in look.calls_of(handle):
        for line in () if executed(call) else call.facts.get("words") or ():
            name = line[0].upper() if line else ""
            if name in SPANS and len(line) > 2 and handle.ttl(line[1]) == -1:
                yield about_key("ttl_not_set", call, line[1], command=name)


def by_wall_clock(look: Look, handle: Any) -> Iterator[Finding]:
    """Find absolute expiries computed from the wall clock while the fake clock shows another time."""
    real_us = int(time.time() * 1e6)
    for call, line, _ in commands(look, handle):
        words = [word.upper() for word in line]
        absolute = words[0] in INSTANTS or {"EXAT", "PXAT"} & set(words[2:])
        deadline = deadline_of(call, line) if absolute else None
        if deadline is None or abs(call.at_us - real_us) < _FAR_US:
            continue
        if abs(deadline - real_us) < _FAR_US and abs(deadline - call.at_us) > _FAR_US:
            option = words[0] if words[0] in INSTANTS else ("EXAT" if "EXAT" in words else "PXAT")
            shown = {"at": f"{to_datetime(deadline):%Y-%m-%d %H:%M:%SZ}",
                     "now": f"{call.at:%Y-%m-%d %H:%M:%SZ}"}  # fmt: skip
            yield about_key("expires_by_wall_clock", call, line[1], command=option, **shown)


def made_anew(look: Look, handle: Any) -> Iterator[Finding]:
    """Find counters that were recreated without a TTL after they had expired."""
    until: dict[str, int] = {}
    began: dict[str, Call] = {}
    for call, line, result in commands(look, handle):
        deadline = deadline_of(call, line)
        if deadline is not None and result not in (None, 0):
            until[line[1]] = deadline
            began.pop(line[1], None)
        elif line[0] in MAKING and line[1] in until and _first(line, result):
            # If a fault's function ran first, the time of the execution is unknown.
            ended = call.at_us >= until[line[1]] or held_up(call)
            began |= {line[1]: call} if ended else {}
    for key, call in began.items():
        if handle.ttl(key) == -1:
            name = call.facts["command"][0]
            yield about_key("counter_recreated", call, key, command=name)


def _first(line: list[str], result: Any) -> bool:
    step = line[2] if len(line) > 2 else "1"
    try:
        return abs(float(result)) == abs(float(step))
    except (TypeError, ValueError):
        return False


def read_after_expiry(look: Look, handle: Any) -> Iterator[Finding]:
    """Find keys that were read after they had expired."""
    until: dict[str, int] = {}
    setter: dict[str, Call] = {}
    late: dict[str, tuple[Call, Call, int]] = {}
    for call, line, result in commands(look, handle):
        deadline = deadline_of(call, line)
        if deadline is not None and result not in (None, 0):
            until[line[1]], setter[line[1]] = deadline, call
        elif line[0] in READS and not result and call.at_us >= until.get(line[1], call.at_us + 1):
            late[line[1]] = call, setter[line[1]], until[line[1]]
        elif line[0] not in READS:
            for key in line[1:]:
                if call.at_us >= until.get(key, call.at_us + 1):
                    del until[key]
    for key, (call, first, end) in late.items():
        values = {"seconds": (call.at_us - end) / 1e6, "ttl": _ttl_of(first, key)}
        yield about_key("read_after_expiry", call, key, [first.number], **values)


def _ttl_of(call: Call, key: str) -> str:
    """Return the words that set a key's TTL, such as ``EX 10``, in one of a call's commands."""
    for line in call.facts["words"]:
        if line[1:2] == [key] and deadline_of(call, [line[0].upper(), *line[1:]]) is not None:
            at = next((n for n, word in enumerate(line) if n and word.upper() in EXPIRING), 0)
            return " ".join([line[at].upper(), line[at + 1 if at else 2]])
    return str(call.facts["command"][0])
