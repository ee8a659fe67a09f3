"""Findings about keys: locks without a TTL, keys read under another name, lost updates."""

from __future__ import annotations

import difflib
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.calls import faults_ended
from ...core.timeparse import to_datetime
from ..bodies import as_plain, parsed
from ..connections import is_error, on_connection, reply
from ..model import Finding
from .look import NONE, Look, about_key, executed

if TYPE_CHECKING:
    from ...core.calls import Call

HELD = re.compile(
    r"(?i)(^|[^a-z])(locks?|locked|mutex|lease|idempoten\w*|dedup\w*|once|processed|seen)([^a-z]|$)"
)
EXPIRING = {"EX", "PX", "EXAT", "PXAT"}
_SPANS = {"EXPIRE": 1_000_000, "SETEX": 1_000_000, "PEXPIRE": 1_000, "PSETEX": 1_000}
"""Commands that set a relative expiry, with the length of its unit in microseconds."""
_INSTANTS = {"EXPIREAT": 1_000_000, "PEXPIREAT": 1_000}
"""Commands that set an absolute expiry, with the length of its unit in microseconds."""
_READS = {"GET", "HGET", "HGETALL", "LRANGE", "SMEMBERS", "ZRANGE", "EXISTS", "TTL", "JSON.GET"}
WRITES = {
    "SET", "SETEX", "PSETEX", "SETNX", "MSET", "HSET", "HMSET", "LPUSH", "RPUSH", "SADD", "ZADD",
    "INCR", "INCRBY", "JSON.SET", "APPEND", "GETSET",
}  # fmt: skip
_FAR_US = 24 * 3600 * 1_000_000
"""Difference in microseconds below which two times are taken to come from the same clock."""
MAKING = {"INCR", "INCRBY", "INCRBYFLOAT", "DECR", "DECRBY"}
ADDING = {"RPUSH", "LPUSH", "XADD", "HINCRBY", "ZINCRBY", "APPEND", *MAKING}
"""Commands that change the data again each time they are repeated."""
_BYTES = re.compile(r"""(?<![A-Za-z0-9])b(?:'[^']*'|"[^"]*")""")
NEAR = 0.8
"""Minimum similarity, from 0 to 1, at which two keys are reported as a mismatch."""


def commands(look: Look, handle: Any) -> list[tuple[Call, list[str], Any]]:
    """Return each executed command with its call and its result."""
    if handle.name not in look.commands:
        look.commands[handle.name] = list(_commands(look, handle))
    return look.commands[handle.name]


def _commands(look: Look, handle: Any) -> Iterator[tuple[Call, list[str], Any]]:
    for call in look.calls_of(handle):
        lines = call.facts.get("words")
        if not isinstance(lines, list) or not executed(call):
            continue
        if on_connection(call):
            lines, answers = _replied(look, call)
        else:
            body = parsed(call.answer)
            answers = body if call.route in ("pipeline", "multi-exec") else [body]
        if not isinstance(answers, list) or len(answers) != len(lines):
            continue
        for line, came in zip(lines, answers, strict=True):
            if isinstance(came, dict) and "result" in came and "error" not in came:
                decodes = call.facts.get("encoding") == "base64"
                result = as_plain(came["result"]) if decodes else came["result"]
                yield call, [line[0].upper(), *line[1:]], result


def _replied(look: Look, call: Call) -> tuple[list[list[str]], list[Any]]:
    """Return the commands that a call on a database connection executed, and their results."""
    if call.number in look.scene.told or "answer" in call.cut or not call.answer:
        return [], []
    steps, envelope = look.scene.gathered.get(call.number), reply(call)
    if not steps:
        return call.facts["words"], [envelope]
    results = envelope.get("result") if call.facts["command"] == ["EXEC"] else None
    if not isinstance(results, list):
        return [], []
    lines = [step.facts["words"][0] for step in steps]
    return lines, [one if is_error(one) else {"result": one} for one in results]


def sets_nx(line: list[str]) -> bool:
    """Return whether a command sets a key only if the key does not exist."""
    return line[0] == "SETNX" or (line[0] == "SET" and "NX" in map(str.upper, line[3:]))


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


def other_name(look: Look, handle: Any) -> Iterator[Finding]:
    """Find pairs of similar keys where one was only read and the other only written."""
    read: dict[str, Call] = {}
    written: dict[str, Call] = {}
    touched: set[str] = set()
    for call, line, _ in commands(look, handle):
        if line[0] not in _READS:
            touched.update(line[1:])
        names = read if line[0] in _READS else written if line[0] in WRITES else None
        if names is not None and len(line) > 1:
            names.setdefault(line[1], call)
    present = {str(key) for key in handle.keys()}  # noqa: SIM118 (a handle is no dict)
    unread = [key for key in written if key not in read]
    for key, call in read.items():
        if key in touched or key in present:
            continue
        near = difflib.get_close_matches(key, unread, 1, NEAR) or _of_one_kind(key, read, unread)
        # Names that differ only in a number refer to different things.
        if near and re.sub(r"\d", "", key) != re.sub(r"\d", "", near[0]):
            run = _same_run(look, call, written[near[0]])
            write = written[near[0]].number
            yield about_key("key_mismatch", call, key, [write], other=near[0], run=run)


def _same_run(look: Look, *calls: Call) -> str:
    """Return the ID of the workflow run during which all calls were made; an empty string if there
    is none.
    """
    runs = set()
    for call in calls:
        around = look.attempt_around(call)
        began = around.data["began"] if around is not None else None
        runs.add(look.scene.header(began, "upstash-workflow-runid"))
    return runs.pop() if len(runs) == 1 else ""


def _of_one_kind(key: str, read: Iterable[str], unread: Iterable[str]) -> list[str]:
    """Return the only unread key with the same prefix, if only one key with the prefix was read."""
    prefix, colon, _ = key.rpartition(":")
    alike = [one for one in unread if one.rpartition(":")[:2] == (prefix, colon)]
    others = [one for one in read if one.rpartition(":")[:2] == (prefix, colon)]
    return alike if colon and len(alike) == len(others) == 1 else []


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


def not_streamed(look: Look, handle: Any) -> Iterator[Finding]:
    """Find subscriptions that were rejected because the request does not accept a stream."""
    for call in look.calls_of(handle):
        if call.route not in ("subscribe", "psubscribe", "monitor") or call.status != 400:
            continue
        accepted = call.headers.get("Accept")
        if call.fault is None and "text/event-stream" not in (accepted or ""):
            values = {"command": call.route, "accept": accepted or "none"}
            yield Finding("accept_missing", handle.name, (call.number,), values=values)


def deadline_of(call: Call, line: list[str]) -> int | None:
    """Return the time in microseconds at which a command lets its key expire; None if it sets no
    TTL.
    """
    words = [word.upper() for word in line]
    try:
        if words[0] in _SPANS and len(words) > 2:
            return call.at_us + int(words[2]) * _SPANS[words[0]]
        if words[0] in _INSTANTS and len(words) > 2:
            return int(words[2]) * _INSTANTS[words[0]]
        options = {"SET": words[3:], "GETEX": words[2:]}.get(words[0], [])
        for option, number in itertools.pairwise(options):
            if option in EXPIRING:
                since = 0 if option.endswith("AT") else call.at_us
                return since + int(number) * (1_000 if option.startswith("P") else 1_000_000)
    except ValueError:
        pass
    return None


def expiry_taken(look: Look, handle: Any) -> Iterator[Finding]:
    """Find SET commands that removed the TTL of a key that was never given another."""
    until: dict[str, int] = {}
    for call, line, result in commands(look, handle):
        if line[0] not in ("SET", *_SPANS) or result in (None, 0) or len(line) < 3:
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
        elif line[0] in _SPANS and len(line) == 3 and line[1] in counted:
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


def python_in_key(look: Look, handle: Any) -> Iterator[Finding]:
    """Find keys that contain ``None`` or ``b'...'``, as Python formats missing values and bytes."""
    last: dict[str, Call] = {}
    for call, line, _ in commands(look, handle):
        if line[0] in _READS | WRITES and len(line) > 1:
            last[line[1]] = call
    for key, call in last.items():
        if NONE.search(key):
            yield about_key("none_in_key", call, key)
        elif found := _BYTES.search(key):
            yield about_key("bytes_in_key", call, key, text=found[0])


def other_counter(look: Look, handle: Any) -> Iterator[Finding]:
    """Find pairs of a counter that was decremented without an initial value and a number that was
    set but never used.
    """
    known: set[str] = set()
    used: set[str] = set()
    numbers: dict[str, str] = {}
    down: dict[str, Call] = {}
    for call, line, result in commands(look, handle):
        if line[0] == "SET" and len(line) > 2 and line[2].isdigit() and line[1] not in known:
            numbers[line[1]] = line[2]
        else:
            used.update(line[1:])
        first = len(line) > 1 and line[1] not in known
        if line[0] == "DECR" and first and result == -1:
            down[line[1]] = call
        known.update(line[1:])
    unused = [key for key in numbers if key not in used]
    for key, call in down.items():
        if len(unused) == 1:
            near = {"other": unused[0], "value": numbers[unused[0]]}
            yield about_key("counter_mismatch", call, key, **near)


def lost_update(look: Look, handle: Any) -> Iterator[Finding]:
    """Find SET commands that replaced a value which another connection wrote after this
    connection's GET.
    """
    read: dict[tuple[object, str], tuple[int, Any]] = {}
    watched: dict[tuple[object, str], int] = {}
    written: dict[str, tuple[int, object, str]] = {}
    for at, (call, line, result) in enumerate(_by_execution(look, handle)):
        if call.client is None or len(line) < 2:
            continue
        mine = call.client, line[1]
        if line[0] == "WATCH":
            watched.update(((call.client, key), at) for key in line[1:])
        elif line[0] == "GET":
            read[mine] = at, result
        elif line[0] == "SET" and len(line) == 3:
            since, was = read.pop(mine, (at, None))
            after, whose, value = written.get(line[1], (-1, None, ""))
            # `check_then_set` reports keys that did not exist.
            raced = after > since and whose != call.client and was not in (None, value)
            if raced:
                late = watched.get(mine, -1) > after
                values = {"written": line[2], "overwritten": value, "read": was}
                yield about_key("lost_update", call, line[1], watch_late=late, **values)
            written[line[1]] = at, call.client, line[2]


def _by_execution(look: Look, handle: Any) -> list[tuple[Call, list[str], Any]]:
    """Return the commands in order of execution: a fault's function may run before its call."""
    return sorted(
        commands(look, handle),
        key=lambda one: faults_ended(one[0]) if held_up(one[0]) else one[0].number,
    )


def held_up(call: Call) -> bool:
    return any(one.get("moment") == "before" for one in call.faults)


_CHECKS = {"GET": 2, "EXISTS": 2, "HGET": 3, "HEXISTS": 3}
"""Commands that check for a value, with the number of words up to the key or field."""
_UNCHECKED = {"SET": 2, "HSET": 3}
"""Unconditional writes, with the number of words up to the key or field."""


def check_then_set(look: Look, handle: Any) -> Iterator[Finding]:
    """Find clients that both found a value missing, within a second, and then both wrote it."""
    seen: dict[tuple[str, ...], list[tuple[Call, str]]] = {}
    for call, line, result in _by_execution(look, handle):
        name, options = line[0], set(map(str.upper, line[3:]))
        words = _CHECKS.get(name) or _UNCHECKED.get(name, 0)
        steps = seen.setdefault(tuple(line[1:words]), []) if words else []
        if name in _CHECKS and len(line) == words and not result and len(steps) < 2:
            steps.append((call, name))
        elif name in _UNCHECKED and len(steps) > 1 and not options & {"NX", "XX"}:
            steps.append((call, name))
            if len(steps) == 4 and call.at_us - steps[0][0].at_us <= 1_000_000:
                yield about_key(
                    "check_then_set", call, line[1], [one.number for one, _ in steps],
                    times=2, read=steps[0][1], write=name, item=" ".join(line[1:words]),
                )  # fmt: skip
        else:
            for item in [one for one in seen if one and one[0] in line[1:]]:
                del seen[item]


def ttl_not_set(look: Look, handle: Any) -> Iterator[Finding]:
    """Find keys without a TTL whose EXPIRE was sent but not executed."""
    for call in look.calls_of(handle):
        for line in () if executed(call) else call.facts.get("words") or ():
            name = line[0].upper() if line else ""
            if name in _SPANS and len(line) > 2 and handle.ttl(line[1]) == -1:
                yield about_key("ttl_not_set", call, line[1], command=name)


def by_wall_clock(look: Look, handle: Any) -> Iterator[Finding]:
    """Find absolute expiries computed from the wall clock while the fake clock shows another time."""
    real_us = int(time.time() * 1e6)
    for call, line, _ in commands(look, handle):
        words = [word.upper() for word in line]
        absolute = words[0] in _INSTANTS or {"EXAT", "PXAT"} & set(words[2:])
        deadline = deadline_of(call, line) if absolute else None
        if deadline is None or abs(call.at_us - real_us) < _FAR_US:
            continue
        if abs(deadline - real_us) < _FAR_US and abs(deadline - call.at_us) > _FAR_US:
            option = words[0] if words[0] in _INSTANTS else ("EXAT" if "EXAT" in words else "PXAT")
            shown = {"at": f"{to_datetime(deadline):%Y-%m-%d %H:%M:%SZ}",
                     "now": f"{call.at:%Y-%m-%d %H:%M:%SZ}"}  # fmt: skip
            yield about_key("expires_by_wall_clock", call, line[1], command=option, **shown)


FINDINGS: tuple[Callable[[Look, Any], Iterator[Finding]], ...] = (
    check_then_set,
    ttl_not_set,
    by_wall_clock,
    never_expires,
    other_name,
    held_by_other,
    expiry_taken,
    renewed,
    not_streamed,
    python_in_key,
    other_counter,
    lost_update,
)
