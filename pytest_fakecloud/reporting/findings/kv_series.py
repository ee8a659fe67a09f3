"""Findings about series of commands: scans, transactions, counters, streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ..bodies import parsed
from ..model import Finding
from .kv import ADDING, EXPIRING, HELD, MAKING, commands, deadline_of, held_up, sets_nx
from .look import Look, about, about_key, executed

if TYPE_CHECKING:
    from ...core.calls import Call, Event

_SCANS = {"SCAN": 1, "HSCAN": 2, "SSCAN": 2, "ZSCAN": 2}
"""Commands that return one page, with the index of their cursor argument."""
_RANKED = {"ZRANGE", "ZREVRANGE", "ZRANK", "ZREVRANK", "ZPOPMAX", "ZPOPMIN"}
_PAGED = {"ZRANGE", "ZREVRANGE", "LRANGE"}
_NOT_BY_RANK = {"BYSCORE", "BYLEX", "LIMIT", "WITHSCORES"}
_SCORES_KEPT = {*_RANKED, "ZSCORE", "ZCARD", "ZADD", "ZMSCORE", "ZCOUNT", "ZRANGEBYSCORE"}
_ZADD = {"NX", "XX", "GT", "LT", "CH", "INCR"}


def failed_inside(look: Look, handle: Any) -> Iterator[Finding]:
    """Find pipelines and transactions in which some commands failed and the others were executed."""
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
            values = {
                "failed": failed, "executed": well, "commands": len(lines), "what": what
            }  # fmt: skip
            yield Finding("commands_failed", handle.name, (call.number,), values=values)


def scan_not_ended(look: Look, handle: Any) -> Iterator[Finding]:
    """Find scans that returned a cursor and were not continued."""
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
            values = {"command": name, "cursor": cursor}
            yield Finding("scan_not_finished", handle.name, (call.number,), values=values)


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


_READS = {"GET", "HGET", "HGETALL", "EXISTS", "LRANGE", "SMEMBERS", "JSON.GET"}


def read_after_expiry(look: Look, handle: Any) -> Iterator[Finding]:
    """Find keys that were read after they had expired."""
    until: dict[str, int] = {}
    setter: dict[str, Call] = {}
    late: dict[str, tuple[Call, Call, int]] = {}
    for call, line, result in commands(look, handle):
        deadline = deadline_of(call, line)
        if deadline is not None and result not in (None, 0):
            until[line[1]], setter[line[1]] = deadline, call
        elif line[0] in _READS and not result and call.at_us >= until.get(line[1], call.at_us + 1):
            late[line[1]] = call, setter[line[1]], until[line[1]]
        elif line[0] not in _READS:
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


def without_subscriber(look: Look, handle: Any) -> Iterator[Finding]:
    """Find messages published to a channel without subscribers, while a channel with subscribers
    received none.
    """
    subscribed: dict[str, int] = {}
    heard: set[str] = set()
    unheard: dict[str, tuple[Call, int]] = {}
    for call in look.calls_of(handle):
        for line in call.facts.get("words") or ():
            if line and line[0].upper() == "SUBSCRIBE":
                subscribed.update(dict.fromkeys(line[1:], call.number))
    for call, line, result in commands(look, handle):
        if line[0] == "PUBLISH" and result == 0:
            steps = look.scene.gathered.get(call.number) or [call]
            lines = [
                [words[0].upper(), *words[1:]] for one in steps for words in one.facts["words"]
            ]
            unheard[line[1]] = call, lines.index(line)
        elif line[0] == "PUBLISH":
            heard.add(line[1])
    others = [one for one in subscribed if one not in heard and one not in unheard]
    for channel, (call, at) in unheard.items():
        if others and channel not in heard and channel not in subscribed:
            values = {"others": others, "line": at}
            evidence = [subscribed[one] for one in others]
            yield about("channel", "no_subscriber", call, channel, evidence, **values)


def _first(line: list[str], result: Any) -> bool:
    step = line[2] if len(line) > 2 else "1"
    try:
        return abs(float(result)) == abs(float(step))
    except (TypeError, ValueError):
        return False


def same_scores(look: Look, handle: Any) -> Iterator[Finding]:
    """Find ranges of members with equal scores, whose names therefore determine the order."""
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
            members = len(scores[key])
            yield about_key("equal_scores", call, key, members=members, score=score)


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
        options = list(takewhile(_ZADD.__contains__, words[2:]))
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


def repeated_after_failure(look: Look, handle: Any) -> Iterator[Finding]:
    """Find writes with an additional effect that a retry repeated after a failure.

    Retries are attempts of one message, or identical requests to the application if an earlier one
    raised an exception or was answered 5xx. After a 4xx, an identical request is a new request.
    """
    tries = [*_requests(look), *_attempts(look)]
    done: dict[tuple[object, tuple[str, ...]], tuple[_Try, Call]] = {}
    marked: dict[int, tuple[str, int]] = {}
    for call, line, result in commands(look, handle):
        now = next((one for one in tries if one.began < call.number < one.ended), None)
        if now is not None and sets_nx(line) and result not in (None, 0):
            marked[now.began] = line[1], call.number
        if now is None or line[0] not in ADDING:
            continue
        about = now.same, tuple(line)
        before, first = done.get(about, (now, call))
        if before is not now and before.failed:
            marks = _marks(marked, before, now)
            evidence = [marked[one.began][1] for one in (before, now)] if marks else []
            yield about_key(
                "repeated_after_failure", call, line[1], [first.number, *evidence],
                command=line[0], message=before.message, attempt=before.attempt,
                target=before.target, marks=marks, numbered=_numbered(marks, before, now),
            )  # fmt: skip
        done[about] = now, call


def _numbered(marks: Sequence[str], before: _Try, now: _Try) -> bool:
    """Return whether two keys differ only in the number of the attempt or of the retry at the end."""
    for first, second in ((before.attempt, now.attempt), (before.attempt - 1, now.attempt - 1)):
        ends = marks and before.attempt and marks[0].endswith(str(first))
        if ends and marks[0].removesuffix(str(first)) + str(second) == marks[1]:
            return True
    return False


def _marks(marked: Mapping[int, tuple[str, int]], before: _Try, now: _Try) -> list[str]:
    """Return the keys that two attempts set with NX if the keys differ only in their endings."""
    keys = [marked.get(one.began, ("", 0))[0] for one in (before, now)]
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*keys, strict=False)))
    return keys if keys[0] != keys[1] and common > max(map(len, keys)) // 2 else []


@dataclass(frozen=True, slots=True)
class _Try:
    """An attempt of a message, or a request to the application, with the journal numbers of its
    start and end.

    Repetitions of the same message or request have equal values of ``same``.
    """

    same: object
    began: int
    ended: int
    failed: bool
    message: str = ""
    attempt: int = 0
    target: str = ""


def _requests(look: Look) -> Iterator[_Try]:
    for one in look.served:
        if one.alone and one.ended:
            failed = bool(one.raised) or one.status is None or one.status >= 500
            same = one.target, one.body, one.headers
            yield _Try(same, one.began, one.ended, failed, target=one.target)


def _attempts(look: Look) -> Iterator[_Try]:
    for event in look.attempts:
        message, status = str(event.data.get("message_id")), event.data.get("status")
        failed = not isinstance(status, int) or status >= 400
        number = event.data.get("number") or 0
        yield _Try(message, event.data["began"], event.number, failed, message, number)


def never_acknowledged(look: Look, handle: Any) -> Iterator[Finding]:
    """Find stream entries that were claimed again, in a group that has acknowledged none."""
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
            yield about_key("never_acknowledged", call, key, group=group, entries=ids)


def overlapping_pages(look: Look, handle: Any) -> Iterator[Finding]:
    """Find two ranges by rank where the second starts at the stop index of the first, which the
    first range already includes.
    """
    before: dict[tuple[str, ...], tuple[int, int, list[Any], int]] = {}
    told: set[tuple[str, ...]] = set()
    for call, line, result in commands(look, handle):
        options = {word.upper() for word in line[4:]}
        if line[0] not in _PAGED or not isinstance(result, list) or options & _NOT_BY_RANK:
            continue
        if not all(word.isascii() and word.isdigit() for word in line[2:4]):
            continue
        start, stop = int(line[2]), int(line[3])
        alike = (line[0], line[1], *sorted(options))
        first, last, members, page = before.get(alike, (0, 0, [], 0))
        same_size = stop - start == last - first > 0
        meets = bool(result) and result[:1] == members[last - first :]
        if same_size and start == last and meets and alike not in told:
            told.add(alike)
            values = {"command": line[0], "start": start, "first": first, "stop": stop}
            values["member"] = str(result[0])
            yield about_key("pages_overlap", call, line[1], [page], **values)
        before[alike] = start, stop, result, call.number


def shared_limit(look: Look, handle: Any) -> Iterator[Finding]:
    """Find counters that requests to several endpoints incremented before one of them returned 429."""
    counted: dict[str, list[tuple[str, int, int]]] = {}
    steps = [(call, _counter(line), result) for call, line, result in commands(look, handle)]
    for one in look.served:
        if not one.alone or not one.ended:
            continue
        target = one.target.partition("?")[0]
        for call, key, result in steps:
            if not key or type(result) is not int or not one.began < call.number < one.ended:
                continue
            known = counted.setdefault(key, [])
            rises = not known or result == known[-1][1] + 1
            others = Counter(each for each, *_ in known if each != target)
            if one.status == 429 and rises and others:
                own = len(known) - others.total() + 1
                values = {"target": target, "count": result, "own": own, "others": dict(others)}
                evidence = [number for each, _, number in known if each != target]
                yield about_key("limit_shared", call, key, evidence[-5:], **values)
            known.append((target, result, call.number))


def _counter(line: list[str]) -> str:
    """Return the key of a command that counts, or of a script with one key; empty for other
    commands.
    """
    if line[0] in ("EVAL", "EVALSHA"):
        return line[3] if line[2:3] == ["1"] and len(line) > 3 else ""
    return line[1] if line[0] in ("INCR", "INCRBY") and len(line) > 1 else ""


def stopped_writing(look: Look, handle: Any) -> Iterator[Finding]:
    """Find received numbers that were not written although they are greater than the stored number;
    as strings, they are less.
    """
    received = sorted(_received(look), key=lambda one: one[0])
    steps = commands(look, handle)
    known: set[str] = set()
    numbers = {call.number for call in look.calls}
    found: list[Finding] = []
    for at, (call, line, result) in enumerate(steps):
        came = [one for one in received if one[0] < call.number]
        if line[0] != "HGET" or len(line) != 3 or not came:
            continue
        key, field, after = line[1], line[2], received[len(came) :]
        until = after[0][0] if after else float("inf")
        writes = any(key in other[1:] and other[0] not in _READS
                     for one, other, _ in steps[at + 1 :] if one.number < until)  # fmt: skip
        new = str(came[-1][1].get(field, ""))
        if writes:
            known.add(key)
        elif key in known and _less_as_string(new, result):
            values = {"command": "HGET", "field": field, "known": result, "new": new}
            evidence = [came[-1][0]] if came[-1][0] in numbers else []
            found.append(about_key("stopped_writing", call, key, evidence, **values))
    if found:
        yield replace(found[0], rows=tuple(number for one in found for number in one.rows))


def _less_as_string(new: str, known: Any) -> bool:
    numbers = isinstance(known, str) and new.isdecimal() and known.isdecimal()
    return numbers and int(new) > int(known) and new < known


def _received(look: Look) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects that the application received, each with its journal number."""
    bodies: list[tuple[int, Any]] = [(one.began, one.body) for one in look.served]
    bodies += [(number, sent.body) for number, (sent, _) in look.scene.attempts.items()]
    for call in look.calls:
        if call.route == "consume" and executed(call):
            bodies += [(call.number, record["value"]) for record in parsed(call.answer)]
    for number, body in bodies:
        if isinstance(value := parsed(body), dict):
            yield number, value


FINDINGS: tuple[Callable[[Look, Any], Iterator[Finding]], ...] = (
    failed_inside,
    scan_not_ended,
    made_anew,
    read_after_expiry,
    without_subscriber,
    same_scores,
    changed_nothing,
    repeated_after_failure,
    never_acknowledged,
    overlapping_pages,
    shared_limit,
    stopped_writing,
)
