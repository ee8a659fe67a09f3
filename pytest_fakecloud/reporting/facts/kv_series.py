"""Facts about commands that belong together: pages of a scan, transactions, counters, streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ..bodies import shortened
from ..summaries.summary import listed
from .kv import HELD, commands, deadline_of
from .look import Fact, Look

if TYPE_CHECKING:
    from ...core.calls import Call, Event

__all__ = ["FACTS"]

_SCANS = {"SCAN": 1, "HSCAN": 2, "SSCAN": 2, "ZSCAN": 2}
"""Commands that answer in pages, with the place of the cursor in each."""
_MAKING = {"INCR", "INCRBY", "INCRBYFLOAT", "DECR", "DECRBY"}
_ADDING = {"RPUSH", "LPUSH", "XADD", "HINCRBY", "ZINCRBY", "APPEND", *_MAKING}
_RANKED = {"ZRANGE", "ZREVRANGE", "ZRANK", "ZREVRANK", "ZPOPMAX", "ZPOPMIN"}
_SCORES_KEPT = {*_RANKED, "ZSCORE", "ZCARD", "ZADD", "ZMSCORE", "ZCOUNT", "ZRANGEBYSCORE"}
_ZADD = {"NX", "XX", "GT", "LT", "CH", "INCR"}


def failed_inside(look: Look) -> Iterator[Fact]:
    """A pipeline or transaction in which some commands failed and the others were carried out."""
    for handle in look.handles("kv"):
        done: dict[int, int] = {}
        for call, _, _ in commands(look, handle):
            done[call.number] = done.get(call.number, 0) + 1
        for call in look.calls_of(handle):
            steps = look.scene.gathered.get(call.number, ())
            lines = [step.facts["words"][0] for step in steps] or call.facts.get("words") or []
            several = call.route in ("pipeline", "multi-exec") or bool(steps)
            well = done.get(call.number, 0)
            failed = len(lines) - well
            if several and call.status == 200 and well and failed > 0:
                what = "transaction" if call.route == "multi-exec" or steps else "pipeline"
                rest = "one was" if well == 1 else f"{well} were"
                yield Fact(
                    f"{handle.name}: {failed} of the {len(lines)} commands of this {what} failed; "
                    f"the other {rest} carried out",
                    call.number,
                )


def scan_not_ended(look: Look) -> Iterator[Fact]:
    """A scan that answered with a cursor to go on with, and nobody did."""
    for handle in look.handles("kv"):
        left: dict[tuple[str, ...], tuple[Call, str]] = {}
        for call, line, result in commands(look, handle):
            place = _SCANS.get(line[0])
            if place is None or len(line) <= place or not isinstance(result, list):
                continue
            about = (line[0], *line[1:place])
            cursor = str(result[0])
            if left.get(about, (call, ""))[1] in ("", line[place]) or line[place] == "0":
                left[about] = call, cursor
        for (name, *_), (call, cursor) in left.items():
            if cursor != "0":
                yield Fact(
                    f"{handle.name}: this {name} had more to come (its cursor is {cursor}, not 0), "
                    "and no call went on with it",
                    call.number,
                )


def made_anew(look: Look) -> Iterator[Fact]:
    """A counter that was made again after its expiry, without one."""
    for handle in look.handles("kv"):
        until: dict[str, int] = {}
        began: dict[str, Call] = {}
        for call, line, result in commands(look, handle):
            deadline = deadline_of(call, line)
            if deadline is not None and result not in (None, 0):
                until[line[1]] = deadline
                began.pop(line[1], None)
            elif line[0] in _MAKING and line[1] in until and _first(line, result):
                # When a call that a fault held up was carried out, nobody knows.
                ended = call.at_us >= until[line[1]] or "before" in (call.fault or "")
                if ended:
                    began[line[1]] = call
        for key, call in began.items():
            if handle.ttl(key) == -1:
                yield Fact(
                    f"{handle.name}: {shortened(key)} had expired, so this {call.facts['command'][0]} "
                    "made it anew, and without an expiry",
                    call.number,
                )


def _first(line: list[str], result: Any) -> bool:
    """Whether a counter has just the value that one step from nothing gives it."""
    step = line[2] if len(line) > 2 else "1"
    try:
        return abs(float(result)) == abs(float(step))
    except (TypeError, ValueError):
        return False


def same_scores(look: Look) -> Iterator[Fact]:
    """A range by rank of members that all have the same score: text decides on their order."""
    for handle in look.handles("kv"):
        scores: dict[str, dict[str, str]] = {}
        unknown: set[str] = set()
        asked: dict[str, Call] = {}
        for call, line, result in commands(look, handle):
            if not line[0].startswith("Z") or len(line) < 3:
                continue
            key, options = line[1], {word.upper() for word in line[3:]}
            if line[0] not in _SCORES_KEPT or "INCR" in options or result is None:
                unknown.add(key)
            elif line[0] == "ZADD":
                rest = line[2:]
                while rest and rest[0].upper() in _ZADD:
                    rest = rest[1:]
                scores.setdefault(key, {}).update(zip(rest[1::2], rest[::2], strict=False))
            elif line[0] in _RANKED and not options & {"BYLEX", "BYSCORE"}:
                known = scores.get(key, {}).values()
                if len(known) > 1 and len(set(map(float, known))) == 1:
                    asked[key] = call
        for key, call in asked.items():
            if key not in unknown:
                score = next(iter(scores[key].values()))
                yield Fact(
                    f"{handle.name}: all {len(scores[key])} members of {shortened(key)} have the "
                    f"score {score}, so they stand in the order of their text",
                    call.number,
                )


def changed_nothing(look: Look) -> Iterator[Fact]:
    """A write that NX or XX kept from changing anything.

    Locks are meant to be refused, but not for a mark that an attempt which failed had left. A counter
    is set with NX to begin it.
    """
    attempts = [one for one in look.events("attempt") if one.data.get("alone")]
    for handle in look.handles("kv"):
        marked: dict[str, Event | None] = {}
        found: list[tuple[Call, str, str]] = []
        counted: set[str] = set()
        for call, line, result in commands(look, handle):
            if len(line) > 1 and line[0] in _MAKING:
                counted.add(line[1])
            if len(line) < 3:
                continue
            why = _refused(line, result)
            options = {word.upper() for word in line[3:]}
            if line[0] == "SETNX" or (line[0] == "SET" and "NX" in options):
                during = _attempt_around(attempts, call)
                if result in (None, 0):
                    left = _left_by(marked.get(line[1]), during, look)
                    why = why + left if why else left and f"{shortened(line[1])} was there{left}"
                else:
                    marked[line[1]] = during
            if why:
                text = f"{handle.name}: this {line[0]} changed nothing: {why}"
                found.append((call, line[1], text))
        for call, key, text in found:
            if key not in counted:
                yield Fact(text, call.number)


def _refused(line: list[str], result: Any) -> str:
    """Why a write changed nothing; empty where it changed something, or was meant not to."""
    if HELD.search(line[1]):
        return ""
    key, words = shortened(line[1]), [word.upper() for word in line]
    if words[0] == "SET" and result is None and "GET" not in words[3:]:
        if "NX" in words[3:]:
            return f"{key} was there already (NX)"
        return f"{key} was not there (XX)" if "XX" in words[3:] else ""
    if words[0] == "HSETNX" and result == 0:
        return f"{key} had the field {shortened(line[2])} already"
    if words[0] == "ZADD" and result == 0:
        options = list(takewhile(_ZADD.__contains__, words[2:]))
        members = [shortened(one) for one in line[3 + len(options) :: 2]]
        return f"{key} had {listed(members, 3)} already (NX only adds)" if "NX" in options else ""
    return ""


def _left_by(first: Event | None, during: Event | None, look: Look) -> str:
    """Which attempt of the same message had failed and left a mark behind; empty for none."""
    if first is None or during is None or first is during:
        return ""
    about, status = first.data.get("message_id"), first.data.get("status")
    if about != during.data.get("message_id") or (isinstance(status, int) and status < 300):
        return ""
    number = first.data.get("number")
    return f", from attempt {number} of {look.scene.short(about)}, which had failed"


def _attempt_around(attempts: list[Event], call: Call) -> Event | None:
    """The attempt during which a call came; None for one of the test's own."""
    for one in attempts:
        if isinstance(began := one.data.get("began"), int) and began < call.number < one.number:
            return one
    return None


def repeated_after_failure(look: Look) -> Iterator[Fact]:
    """A write that adds, done again by a request or attempt of which an earlier try had failed."""
    spans = _tries(look)
    for handle in look.handles("kv"):
        done: dict[tuple[str, tuple[str, ...]], _Try] = {}
        for call, line, _ in commands(look, handle):
            if line[0] not in _ADDING:
                continue
            now = next((one for one in spans if one.began < call.number < one.ended), None)
            if now is None:
                continue
            about = now.what, tuple(line)
            before = done.get(about)
            if before is not None and before is not now and before.failed:
                yield Fact(
                    f"{handle.name}: this {line[0]} repeats one of {before.name}, which had failed "
                    "after it",
                    call.number,
                )
            done[about] = now


@dataclass(frozen=True, slots=True)
class _Try:
    """A request to the application or an attempt: from which number to which, and how it ended."""

    what: str
    name: str
    began: int
    ended: int
    failed: bool


def _tries(look: Look) -> list[_Try]:
    found = [
        _Try(
            one.target,
            f"an earlier {one.target}",
            one.began,
            one.ended,
            _failed(one.status, one.raised),
        )
        for one in look.served
        if one.alone and one.ended
    ]
    for event in look.events("attempt"):
        began, about = event.data.get("began"), str(event.data.get("message_id"))
        if isinstance(began, int) and event.data.get("alone"):
            name = f"attempt {event.data.get('number')} of {look.scene.short(about)}"
            failed = _failed(event.data.get("status"), "")
            found.append(_Try(about, name, began, event.number, failed))
    return found


def _failed(status: object, raised: str) -> bool:
    return bool(raised) or not isinstance(status, int) or status >= 400


def never_acknowledged(look: Look) -> Iterator[Fact]:
    """Entries of a stream that were claimed again, in a group that has acknowledged none."""
    for handle in look.handles("kv"):
        acknowledged: set[tuple[str, str]] = set()
        again: dict[tuple[str, str], tuple[Call, list[str]]] = {}
        for call, line, result in commands(look, handle):
            if line[0] == "XACK" and len(line) > 2:
                acknowledged.add((line[1], line[2]))
            elif line[0] in ("XAUTOCLAIM", "XCLAIM") and len(line) > 3:
                entries = result[1] if line[0] == "XAUTOCLAIM" and result else result
                ids = [str(one[0]) for one in entries or () if isinstance(one, list) and one]
                if ids:
                    again[line[1], line[2]] = call, ids
        for (key, group), (call, ids) in again.items():
            if (key, group) not in acknowledged:
                yield Fact(
                    f"{handle.name}: group {shortened(group)} of {shortened(key)} got "
                    f"{listed(ids, 3)} again; it has acknowledged nothing (no XACK came)",
                    call.number,
                )


FACTS: tuple[Callable[[Look], Iterator[Fact]], ...] = (
    failed_inside,
    scan_not_ended,
    made_anew,
    same_scores,
    changed_nothing,
    repeated_after_failure,
    never_acknowledged,
)
