"""Findings about what the application did with results: scans, ranges, streams, retries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

from ...core.calls import Call
from ...core.errors import ContractError
from ...reporting.calls import QUEUED, SEVERAL, command_of, envelope, has_full_answer, lines_of
from ...reporting.model import Finding, ReportSubject, Severity
from ...reporting.report import Detector, ObservedTest, Write, about_entry
from ...reporting.values import parsed
from ..command_fields import keys_of
from ..table import kinds
from ..table.registry import COMMANDS
from . import keys
from .history import WRITES, Command, commands, databases_of, history

_SCANS = {
    name: 1 + spec.synopsis.split().index("cursor")
    for name, spec in COMMANDS.items()
    if "cursor" in spec.synopsis.split()
}
"""Commands that return one page, with the index of their cursor argument."""
_SEARCHING = {name for name, spec in COMMANDS.items() if spec.synopsis.startswith("index filter")}
"""Commands that search an index."""


def scan_not_finished(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find scans that returned a cursor and were not continued."""
    unfinished: dict[tuple[str, ...], tuple[Command, str]] = {}
    for command in history(test, fake):
        place = _SCANS.get(command.name)
        if place is None or len(command.words) <= place:
            continue
        scan, cursor = tuple(command.words[:place]), command.words[place]
        continues = unfinished.get(scan, (command, cursor))[1] == cursor
        if isinstance(command.result, list) and (continues or cursor == "0"):
            unfinished[scan] = command, str(command.result[0])
        elif continues:
            unfinished.pop(scan, None)
    for (name, *_), (command, cursor) in unfinished.items():
        if cursor != "0":
            yield about_entry("scan_not_finished", command.entry, command=name, cursor=cursor)


def pattern_too_wide(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find removed keys that a pattern such as ``cart:4*`` matched like ``cart:41`` beside others."""
    matched: dict[str, tuple[Command, str]] = {}
    for command in history(test, fake):
        words, result = command.words, command.result
        if command.name in ("KEYS", "SCAN") and isinstance(result, list):
            options = [word.upper() for word in words]
            pattern = words[options.index("MATCH") + 1] if "MATCH" in options else words[1]
            if re.fullmatch(r"[^*?\[\\]*\w\*", pattern):
                keys_found = result[1] if command.name == "SCAN" else result
                longer = [key for key in keys_found if re.match(r"\w", key[len(pattern) - 1 :])]
                if len(longer) < len(keys_found):
                    matched |= dict.fromkeys(longer, (command, pattern))
        elif command.name in ("DEL", "UNLINK") and (wrong := matched.keys() & set(command.keys)):
            scan, pattern = matched[min(wrong)]
            values = {"pattern": pattern, "keys": sorted(wrong)}
            yield command.finding("pattern_too_wide", [scan.entry.number], **values)


def commands_failed(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find pipelines and transactions in which some commands failed and the others were executed."""
    executed = Counter(command.entry.number for command in commands(test, fake))
    for call in test.calls_of(fake):
        steps = test.lookups.grouped_calls.get(call.number, ())
        count = len(steps or lines_of(call))
        has_several = call.route in SEVERAL or bool(steps)
        failed = count - executed[call.number]
        if has_several and call.status == 200 and executed[call.number] and failed > 0:
            what = "transaction" if call.route == "multi-exec" or steps else "pipeline"
            yield about_entry(
                "commands_failed", call,
                failed=failed, executed=executed[call.number], commands=count, what=what,
            )  # fmt: skip


def never_executed(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find commands that a transaction queued and did not execute, and that no later one repeated."""
    queued: dict[object, list[Call]] = {}
    missed: dict[tuple[tuple[str, ...], ...], tuple[Call, str]] = {}  # with the command at the end
    for call in test.calls_of(fake):
        name = command_of(call)
        if call.response_body == QUEUED and call.fault is None:
            queued.setdefault(call.client, []).append(call)
        elif name in ("EXEC", "DISCARD") and (steps := queued.pop(call.client, None)):
            sent = _names_and_keys(steps)
            is_null = call.status == 200 and has_full_answer(call) and envelope(call) is None
            if name == "DISCARD" or is_null:
                missed[sent] = call, name
            else:
                missed.pop(sent, None)
    missed |= {_names_and_keys(steps): (steps[-1], "") for steps in queued.values()}
    for sent, (call, end) in missed.items():
        # An application expects that a watched key may change.
        severity: Severity = "hint" if end == "EXEC" else "cause"
        values = {"commands": list(map(" ".join, sent)), "ended": bool(end)}
        values["discarded"] = end == "DISCARD"
        finding = about_entry("never_executed", call, severity=severity, **values)
        keys_sent = dict.fromkeys(key for _, *keys_of_one in sent for key in keys_of_one)
        subjects = tuple(ReportSubject("key", key, call.fake) for key in keys_sent)
        yield replace(finding, subjects=subjects)


def _names_and_keys(calls: Iterable[Call]) -> tuple[tuple[str, ...], ...]:
    return tuple((command_of(call), *keys_of(lines_of(call)[0])) for call in calls)


def searched_before_ready(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find searches without a hit while changes were not searchable yet that match by now."""
    searching = [command for command in history(test, fake) if command.name in _SEARCHING]
    searches = fake.searches() if searching else []
    for command, search in zip(reversed(searching), reversed(searches), strict=False):
        is_same = parsed(command.words[2]) == search.filter
        if search.total or not search.pending or not is_same:
            continue
        with suppress(ContractError):
            index, keys = fake.search_index(search.index), []
            for key in {*index.documents, *index.pending}:
                why = index.explain(key, search.filter)
                # A key that would match has no other reason.
                keys += [key] if all("not indexed yet" in reason for reason in why) else []
            if keys:
                yield command.finding("searched_before_ready", keys=sorted(keys))


# -- requests and deliveries that the application received -----------------------------------------


@dataclass(slots=True, eq=False)
class _Try:
    """An attempt of a message or a request, with equal ``same`` for its repetitions."""

    same: object
    began: int
    ended: int
    failed: bool
    message: str = ""
    queue: str = ""
    attempt: int = 0
    target: str = ""
    delivered_twice: bool = False
    lock: Command | None = field(default=None, init=False)


def repeated_after_failure(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find additions that a retry repeated after a failure (another attempt of a message, or an
    identical request to the application after one that raised an exception or was answered 5xx), and
    those of a delivery that a fault duplicated.
    """
    tries = list(_tries(test))
    latest: dict[tuple[object, tuple[str, ...]], tuple[_Try, Command]] = {}
    for command in commands(test, fake):
        number = command.entry.number
        during = next(
            (attempt for attempt in tries if attempt.began < number < attempt.ended), None
        )
        if during is not None and command.sets_nx and command.succeeded:
            during.lock = command
        if during is None or command.name not in kinds.ADDS_AGAIN:
            continue
        write = during.same, tuple(command.words)
        before, first = latest.get(write, (during, command))
        latest[write] = during, command
        was_repeated = first is not command and during.delivered_twice
        if not (was_repeated if before is during else before.failed):
            continue
        locks = [lock for lock in (before.lock, during.lock) if lock is not None]
        if len({lock.key for lock in locks}) < 2:  # the second attempt could not set the key again
            locks = []
        marks = [lock.key for lock in locks] or ["", ""]
        finding = command.finding(
            "repeated_after_failure", [earlier.entry.number for earlier in (first, *locks)],
            command=command.name, message=before.message, attempt=before.attempt,
            target=before.target, mark_before=marks[0], mark=marks[1], twice=before is during,
        )  # fmt: skip
        # The exception that made the message fail is a finding about the message.
        about = (ReportSubject("message", before.message, before.queue),) if before.message else ()
        yield replace(finding, subjects=(*finding.subjects, *about))


def _tries(test: ObservedTest) -> Iterator[_Try]:
    for event in test.attempts:
        message, status = str(event.data.get("message_id")), event.data.get("status")
        failed = not isinstance(status, int) or status >= 400
        attempt = event.data.get("number") or 0
        ids, twice = (message, event.fake, attempt), "duplicate" in (event.data["faults"] or ())
        yield _Try(message, event.data["began"], event.number, failed, *ids, delivered_twice=twice)
    for request in test.served:
        if request.ended and not request.overlaps:
            failed = bool(request.raised) or request.status is None or request.status >= 500
            same = request.target, request.body, request.headers
            yield _Try(same, request.began, request.ended, failed, target=request.target)


_OF_SERVERS = (commands_failed, never_executed, searched_before_ready, keys.no_subscriber)


def _for_each_database(detect: Detector) -> Detector:
    """Call a detector for each database of a server that clients have used."""

    @wraps(detect)
    def detect_each(test: ObservedTest, fake: Any) -> Iterator[Finding]:
        place = fake.name, "databases"
        if place not in test.commands:
            test.commands[place] = databases_of(test, fake)
        for database in test.commands[place]:
            yield from detect(test, database)

    return detect_each


FINDINGS = tuple(
    detector if detector in _OF_SERVERS else _for_each_database(detector)
    for detector in (
        keys.races, keys.wrong_time, keys.expire_not_executed, keys.lock_without_ttl, keys.key_mismatch,
        keys.lock_of_another, keys.ttl_ended, keys.ttl_renewed, keys.value_of_other_kind,
        keys.null_in_script, commands_failed, never_executed,
        searched_before_ready, scan_not_finished, pattern_too_wide,
        keys.no_subscriber, keys.held_by_failed_attempt, keys.found_nothing, keys.started_late,
        keys.newest_first,
        repeated_after_failure,
    )
)  # fmt: skip
OF_TEST = ()


def writes(test: ObservedTest, fake: Any) -> Iterator[Write]:
    for command in commands(test, fake):
        if command.name in WRITES or command.name in kinds.ADDS_AGAIN:
            yield Write(
                command.entry.number, command.name, command.words, command.name in kinds.ADDS_AGAIN
            )


def addition(call: Call) -> tuple[object, set[str]] | None:
    """Return the commands of a call if one adds to the data (see `repeated_after_lost_answer`)."""
    lines = lines_of(call)
    return (lines, set()) if any(line[0].upper() in kinds.ADDS_AGAIN for line in lines) else None


def subjects(call: Call) -> Iterator[ReportSubject]:
    for line in lines_of(call):
        name, *arguments = line
        if name.upper() in ("PUBLISH", "SPUBLISH"):
            yield from (ReportSubject("channel", channel, call.fake) for channel in arguments[:1])
        elif name.upper().endswith("SUBSCRIBE"):
            yield from (ReportSubject("channel", channel, call.fake) for channel in arguments)
        else:
            yield from (ReportSubject("key", key, call.fake) for key in keys_of(line))
