"""Findings about commands during the requests and deliveries that the application received."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ...bodies import parsed
from ...calls import executed
from ...model import Finding
from ..detectors import ObservedTest, about_key
from .commands import ADDING, Command
from .history import commands, history


@dataclass(slots=True, eq=False)
class _Try:
    """An attempt of a message, or a request to the application, with the journal numbers of its
    start and end.

    Repetitions of the same message or request have equal values of ``same``. ``lock`` is the last
    key that the try set with NX.
    """

    same: object
    began: int
    ended: int
    failed: bool
    message: str = ""
    attempt: int = 0
    target: str = ""
    lock: Command | None = field(default=None, init=False)


def repeated_after_failure(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find writes with an additional effect that a retry repeated after a failure.

    Retries are attempts of one message, or identical requests to the application if an earlier one
    raised an exception or was answered 5xx. After a 4xx, an identical request is a new request.
    """
    tries = [*_requests(test), *_attempts(test)]
    latest: dict[tuple[object, tuple[str, ...]], tuple[_Try, Command]] = {}
    for command in commands(test, handle):
        number = command.entry.number
        during = next((one for one in tries if one.began < number < one.ended), None)
        if during is not None and command.sets_nx and command.succeeded:
            during.lock = command
        if during is None or command.name not in ADDING:
            continue
        write = during.same, tuple(command.words)
        before, first = latest.get(write, (during, command))
        latest[write] = during, command
        if before is during or not before.failed:
            continue
        locks = _differing_locks(before, during)
        names = [one.key for one in locks]
        yield command.finding(
            "repeated_after_failure", [one.entry.number for one in (first, *locks)],
            command=command.name, message=before.message, attempt=before.attempt,
            target=before.target, marks=names, numbered=_are_numbered(names, before, during),
        )  # fmt: skip


def _differing_locks(before: _Try, during: _Try) -> list[Command]:
    """Return the locks of two tries if their keys differ only in their second halves."""
    if before.lock is None or during.lock is None:
        return []
    first, second = before.lock.key, during.lock.key
    half = max(len(first), len(second)) // 2 + 1
    is_alike = first != second and first[:half] == second[:half]
    return [before.lock, during.lock] if is_alike else []


def _are_numbered(keys: list[str], before: _Try, during: _Try) -> bool:
    """Return whether two keys differ only in the number of the attempt or of the retry at the end.

    ``lock:1`` and ``lock:2`` end with the numbers of the attempts 1 and 2, ``lock:0`` and
    ``lock:1`` with the numbers of their retries.
    """
    if not keys or not before.attempt:
        return False
    for less in (0, 1):  # the retries are numbered from 0
        first, second = str(before.attempt - less), str(during.attempt - less)
        if keys[0].endswith(first) and keys[0].removesuffix(first) + second == keys[1]:
            return True
    return False


def _requests(test: ObservedTest) -> Iterator[_Try]:
    for one in test.served:
        if one.ended and not one.overlaps:
            failed = bool(one.raised) or one.status is None or one.status >= 500
            same = one.target, one.body, one.headers
            yield _Try(same, one.began, one.ended, failed, target=one.target)


def _attempts(test: ObservedTest) -> Iterator[_Try]:
    for event in test.attempts:
        message, status = str(event.data.get("message_id")), event.data.get("status")
        failed = not isinstance(status, int) or status >= 400
        attempt = event.data.get("number") or 0
        yield _Try(message, event.data["began"], event.number, failed, message, attempt)


@dataclass(frozen=True, slots=True)
class _Increment:
    """An increment of a counter during a request to an endpoint, with its journal number."""

    target: str
    result: int
    number: int


def limit_shared(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find counters that requests to several endpoints incremented before one of them returned 429."""
    increments: dict[str, list[_Increment]] = {}
    counting = [
        (command, key)
        for command in commands(test, handle)
        if (key := _counter(command)) and type(command.result) is int
    ]
    for request in test.served:
        if request.overlaps or not request.ended:
            continue
        target = request.target.partition("?")[0]
        for command, key in counting:
            number = command.entry.number
            if not request.began < number < request.ended:
                continue
            earlier = increments.setdefault(key, [])
            if earlier and command.result != earlier[-1].result + 1:
                earlier.clear()  # the counter was reset
            others = [one for one in earlier if one.target != target]
            if request.status == 429 and others:
                yield about_key(
                    "limit_shared", command.entry, key, [one.number for one in others[-5:]],
                    severity="hint",
                    target=target, count=command.result, own=len(earlier) - len(others) + 1,
                    others=dict(Counter(one.target for one in others)),
                )  # fmt: skip
            earlier.append(_Increment(target, command.result, number))


def _counter(command: Command) -> str:
    """Return the key that a command, or a script with one key, counts; empty for other commands."""
    if command.name in ("EVAL", "EVALSHA"):
        has_key = command.words[2:3] == ["1"] and len(command.words) > 3
        return command.words[3] if has_key else ""
    return command.key if command.name in ("INCR", "INCRBY") else ""


def stopped_writing(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find received numbers that were not written although they exceed the stored ones.

    As strings, they are less. Example: the version 9 is stored, and the application receives the
    version 10, reads the stored version with HGET, and writes nothing before it receives the next.
    """
    calls = {call.number for call in test.calls}
    every = history(test, handle)
    numbers = [command.entry.number for command in every]
    received = sorted(_received(test), key=lambda one: one[0])
    written_before: set[str] = set()
    found: list[Finding] = []
    for (number, content), (end, _) in pairwise([*received, (sys.maxsize, {})]):
        during = every[bisect_left(numbers, number) : bisect_left(numbers, end)]
        for command, is_written in _hash_reads(during):
            new = str(content.get(command.words[2], ""))
            if is_written:
                written_before.add(command.key)
            elif command.key in written_before and _less_as_string(new, command.result):
                values = {"field": command.words[2], "known": command.result, "new": new}
                evidence = [number] if number in calls else []
                found.append(command.finding("stopped_writing", evidence, command="HGET", **values))
    if found:
        yield replace(found[0], rows=tuple(number for one in found for number in one.rows))


def _hash_reads(during: list[Command]) -> Iterator[tuple[Command, bool]]:
    """Yield each HGET command, and whether its key may have been changed afterwards."""
    for at, command in enumerate(during):
        if command.name == "HGET" and len(command.words) == 3:
            yield (
                command,
                any(
                    one.changes and (one.changes_any or command.key in one.arguments)
                    for one in during[at:]
                ),
            )


def _less_as_string(new: str, known: Any) -> bool:
    are_numbers = isinstance(known, str) and new.isdecimal() and known.isdecimal()
    return are_numbers and int(new) > int(known) and new < known


def _received(test: ObservedTest) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects that the application received, each with its journal number."""
    bodies: list[tuple[int, Any]] = [(one.began, one.body) for one in test.served]
    bodies += [(number, sent.body) for number, (sent, _) in test.lookups.attempts.items()]
    for call in test.calls:
        if call.route == "consume" and executed(call):
            records = parsed(call.response_body)
            bodies += [(call.number, one["value"]) for one in records or ()]
    for number, body in bodies:
        if isinstance(value := parsed(body), dict):
            yield number, value
