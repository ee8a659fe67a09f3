"""Findings about commands during the requests and deliveries that the application received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ...bodies import parsed
from ...model import Finding
from ..look import Look, about_key, executed
from .commands import ADDING, READS, commands, sets_nx

if TYPE_CHECKING:
    from ....core.calls import Call


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
        writes = any(key in other[1:] and other[0] not in READS
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
