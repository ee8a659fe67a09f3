"""Findings about the results of requests: scans, ranges, streams, pipelines, subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...calls import SEVERAL, lines_of
from ...model import Finding
from ..detectors import ObservedTest, about_entry
from .commands import SCRIPTS, UNKNOWN, Command
from .history import commands, history, with_expiries

_SCANS = {"SCAN": 1, "HSCAN": 2, "SSCAN": 2, "ZSCAN": 2}
"""Commands that return one page, with the index of their cursor argument."""
_RANKED = {"ZRANGE", "ZREVRANGE", "ZRANK", "ZREVRANK", "ZPOPMAX", "ZPOPMIN"}
_PAGED = {"ZRANGE", "ZREVRANGE", "LRANGE"}
_NOT_BY_RANK = {"BYSCORE", "BYLEX", "LIMIT", "WITHSCORES"}


def scan_not_finished(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find scans that returned a cursor and were not continued."""
    unfinished: dict[tuple[str, ...], tuple[Command, str]] = {}
    for command in history(test, handle):
        place = _SCANS.get(command.name)
        if place is None or len(command.words) <= place:
            continue
        scan, given = tuple(command.words[:place]), command.words[place]
        continues = unfinished.get(scan, (command, given))[1] == given
        if isinstance(command.result, list) and (continues or given == "0"):
            unfinished[scan] = command, str(command.result[0])
        elif continues:
            unfinished.pop(scan, None)
    for (name, *_), (command, cursor) in unfinished.items():
        if cursor != "0":
            yield about_entry("scan_not_finished", command.entry, command=name, cursor=cursor)


def equal_scores(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find ranges of members with equal scores, whose names therefore determine the order."""
    if getattr(handle, "_rewound", 0) or any(one.name == "" for one in history(test, handle)):
        return  # the data may contain other members
    scores = _Scores()
    ranged: dict[str, tuple[Command, dict[str, float]]] = {}
    for command, expiries in with_expiries(test, handle):
        key = command.key
        if expiries.expired(key, command.at_us):
            scores.pop(key, None)
        by_rank = command.name in _RANKED and not command.options & {"BYLEX", "BYSCORE"}
        if by_rank and command.result is not None and (known := scores.all_equal(key)):
            ranged[key] = command, known
        scores.follow(command)
        if command.name == "ZADD" and not scores.all_equal(key):
            ranged.pop(key, None)
    for command, known in ranged.values():
        score = f"{next(iter(known.values())):g}"
        yield command.finding("equal_scores", members=len(known), score=score)


class _Scores(dict[str, dict[str, float] | None]):
    """The scores of the members of each sorted set; None if they are unknown."""

    def all_equal(self, key: str) -> dict[str, float]:
        """Return the scores of several members if all are equal; otherwise an empty mapping."""
        known = self.get(key) or {}
        return known if len(known) > 1 and len(set(known.values())) == 1 else {}

    def follow(self, command: Command) -> None:
        if command.name == "ZADD":
            known = self.get(command.key, {})
            self[command.key] = _after_zadd(command, known) if known is not None else None
        elif command.name in ("DEL", "UNLINK") and command.result is not UNKNOWN:
            command.drop_replaced(self)
        elif command.changes_any:
            self.clear()
        elif command.changes and not command.changes_only_ttl:
            self.update(dict.fromkeys(command.arguments))


def _after_zadd(command: Command, known: dict[str, float]) -> dict[str, float] | None:
    options = command.zadd_options
    if command.result is UNKNOWN or not {"GT", "LT", "INCR"}.isdisjoint(options):
        return None
    pairs = command.words[2 + len(options) :]
    given = dict(zip(pairs[1::2], map(float, pairs[::2]), strict=False))
    if "NX" in options:
        return given | known
    if "XX" in options:
        return known | {member: given[member] for member in given.keys() & known.keys()}
    return known | given


def never_acknowledged(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find stream entries that were claimed again, in a group that has acknowledged none."""
    acknowledged: set[tuple[str, str]] = set()
    again: dict[tuple[str, str], tuple[Command, list[str]]] = {}
    for command in history(test, handle):
        if command.name == "" or command.name in SCRIPTS:
            return  # it may have acknowledged entries
        key, group = (*command.arguments, "", "")[:2]
        if command.name == "XACK":
            acknowledged.add((key, group))
        elif ids := _claimed(command):
            again[key, group] = command, ids
    for (key, group), (command, ids) in again.items():
        if (key, group) not in acknowledged:
            yield command.finding("never_acknowledged", group=group, entries=ids)


def _claimed(command: Command) -> list[str]:
    """Return the IDs of the stream entries that a command claimed."""
    entries = command.result if isinstance(command.result, list) else []
    if command.name == "XAUTOCLAIM" and entries:
        entries = entries[1]  # after the cursor
    elif command.name != "XCLAIM":
        return []
    # With JUSTID, the result contains IDs in place of entries.
    return [str(one[0]) for one in entries if isinstance(one, list) and one]


def pages_overlap(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find ranges by rank that start at the stop index of another, which that range includes."""
    before: dict[tuple[str, ...], tuple[int, int, Command]] = {}
    reported: set[tuple[str, ...]] = set()
    for command in commands(test, handle):
        words, result = command.words, command.result
        options = {word.upper() for word in words[4:]}
        if command.name not in _PAGED or not isinstance(result, list) or options & _NOT_BY_RANK:
            continue
        if not all(word.isascii() and word.isdigit() for word in words[2:4]):
            continue
        start, stop = int(words[2]), int(words[3])
        listing = (command.name, command.key, *sorted(options))
        if listing in before and listing not in reported:
            first, last, page = before[listing]
            same_size = stop - start == last - first > 0
            meets = bool(result) and result[:1] == page.result[last - first :]
            if same_size and start == last and meets:
                reported.add(listing)
                values = {"command": command.name, "start": start, "first": first, "stop": stop,
                          "member": str(result[0])}  # fmt: skip
                number = page.entry.number
                yield command.finding("pages_overlap", [number], severity="hint", **values)
        before[listing] = start, stop, command


def accept_missing(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find subscriptions that were rejected because the request does not accept a stream."""
    for call in test.calls_of(handle):
        if call.route not in ("subscribe", "psubscribe", "monitor") or call.status != 400:
            continue
        accepted = call.request_headers.get("Accept") or "none"
        if call.fault is None and "text/event-stream" not in accepted:
            yield about_entry("accept_missing", call, command=call.route, accept=accepted)


def commands_failed(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find pipelines and transactions in which some commands failed and the others were executed."""
    executed = Counter(command.entry.number for command in commands(test, handle))
    for call in test.calls_of(handle):
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
