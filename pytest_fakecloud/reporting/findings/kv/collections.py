"""Findings about scans, ranges, sorted sets and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...model import Finding
from ..look import Look, about_key
from .commands import ZADD_OPTIONS, commands

if TYPE_CHECKING:
    from ....core.calls import Call

_SCANS = {"SCAN": 1, "HSCAN": 2, "SSCAN": 2, "ZSCAN": 2}
"""Commands that return one page, with the index of their cursor argument."""


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


_RANKED = {"ZRANGE", "ZREVRANGE", "ZRANK", "ZREVRANK", "ZPOPMAX", "ZPOPMIN"}
_SCORES_KEPT = {*_RANKED, "ZSCORE", "ZCARD", "ZADD", "ZMSCORE", "ZCOUNT", "ZRANGEBYSCORE"}


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
            while rest and rest[0].upper() in ZADD_OPTIONS:
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


_PAGED = {"ZRANGE", "ZREVRANGE", "LRANGE"}
_NOT_BY_RANK = {"BYSCORE", "BYLEX", "LIMIT", "WITHSCORES"}


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
