"""Commands that list and claim the pending entries of consumer groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import NIL_ARRAY, Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int, try_int
from ...table.versions import EARLY_CONSUMERS
from ...values.stream import Consumer, Group, Pending, format_id
from ..arguments import options
from .groups import find_consumer, find_group
from .ids import entry_reply, parse_id, parse_interval, parse_start


@command("XPENDING")
def xpending(session: Session, args: Args) -> Reply:
    """Return a summary of a group's pending entries, or the entries in a range of IDs."""
    if len(args) == 2:
        _, group = find_group(session, args[0], args[1])
        return _summary(group)
    if not 5 <= len(args) <= 8:
        raise CommandError(errors.SYNTAX)
    min_idle, words = 0, args[2:]
    if words[0].upper() == b"IDLE":
        min_idle, words = parse_int(words[1]), words[2:]
        if len(words) < 3:
            raise CommandError(errors.SYNTAX)
    first, last, count_text, *names = words
    count = max(parse_int(count_text), 0)
    start, end = parse_interval(first, last)
    _, group = find_group(session, args[0], args[1])
    pending = group.pending
    if names:
        consumer = group.consumers.get(names[0])
        if consumer is None:
            return []
        pending = consumer.pending
    details: Iterator[Reply] = (
        [format_id(entry_id), each.consumer.name, max(idle, 0), each.deliveries]
        for entry_id, each in pending.items(start, end)
        if (idle := session.now_ms - each.delivered_ms) >= min_idle or not min_idle
    )
    return list(islice(details, count))


def _summary(group: Group) -> Reply:
    if not group.pending:
        return [0, None, None, NIL_ARRAY]
    lowest, highest = group.pending.ends()
    holders: list[Reply] = [
        [consumer.name, b"%d" % len(consumer.pending)]
        for consumer in group.sorted_consumers()
        if consumer.pending
    ]
    return [len(group.pending), format_id(lowest), format_id(highest), holders]


@dataclass(slots=True)
class _Claim:
    """The options of XCLAIM, or those of XAUTOCLAIM that concern a claimed entry."""

    force: bool = False
    justid: bool = False
    retrycount: int | None = None
    delivered_ms: int | None = None
    last_id: int = 0

    def give(
        self, group: Group, entry_id: int, pending: Pending, consumer: Consumer, now_ms: int
    ) -> None:
        """Give a pending entry to a consumer."""
        group.give(entry_id, pending, consumer)
        delivered_ms = now_ms if self.delivered_ms is None else self.delivered_ms
        pending.delivered_ms = delivered_ms if 0 <= delivered_ms <= now_ms else now_ms
        if self.retrycount is not None and self.retrycount >= 0:
            pending.deliveries = self.retrycount
        elif not self.justid:
            pending.deliveries += 1
        consumer.active_ms = now_ms

    def reply(self, entry_id: int, fields: list[bytes]) -> Reply:
        return format_id(entry_id) if self.justid else entry_reply(entry_id, fields)


def _claim_number(text: bytes, command_name: str, what: str) -> int:
    number = try_int(text)
    if number is None:
        raise CommandError(errors.bad_claim_argument(what, command_name))
    return number


def _leading_ids(args: Args, at: int) -> list[int]:
    """Return the IDs from ``at`` on, which end at the first argument that is not an ID."""
    ids: list[int] = []
    for text in args[at:]:
        try:
            ids.append(parse_id(text))
        except CommandError:
            break
    return ids


_CLAIM_SIZES = {
    **dict.fromkeys((b"FORCE", b"JUSTID"), 0),
    **dict.fromkeys((b"IDLE", b"TIME", b"RETRYCOUNT", b"LASTID"), 1),
}


def _parse_claim(session: Session, args: Args, at: int) -> _Claim:
    claim = _Claim()
    for word, values in options(args, at, _CLAIM_SIZES, errors.unrecognized_claim_option):
        if word == b"FORCE":
            claim.force = True
        elif word == b"JUSTID":
            claim.justid = True
        elif word == b"LASTID":
            claim.last_id = parse_id(values[0])
        else:
            number = _claim_number(values[0], "XCLAIM", f"{word.decode()} option")
            if word == b"RETRYCOUNT":
                claim.retrycount = number
            else:
                claim.delivered_ms = session.now_ms - number if word == b"IDLE" else number
    return claim


@command("XCLAIM")
def xclaim(session: Session, args: Args) -> Reply:
    """Transfer pending entries to another consumer."""
    stream, group = find_group(session, args[0], args[1])
    min_idle = max(_claim_number(args[3], "XCLAIM", "min-idle-time"), 0)
    ids = _leading_ids(args, 4)
    claim = _parse_claim(session, args, 4 + len(ids))
    changed = claim.last_id > group.last_id
    group.last_id = max(group.last_id, claim.last_id)
    now_ms = session.now_ms
    _note_claimant(session, args[0], group, args[2])
    claimed: list[Reply] = []
    for entry_id in ids:
        fields = stream.get(entry_id)
        if fields is None:
            changed |= group.acknowledge(entry_id)
            continue
        pending = group.pending.get(entry_id)
        if pending is None and not claim.force:
            continue
        if pending is not None and min_idle and now_ms - pending.delivered_ms < min_idle:
            continue
        consumer = find_consumer(session, args[0], group, args[2])
        if pending is None:
            pending = group.deliver(entry_id, consumer, now_ms)
        claim.give(group, entry_id, pending, consumer, now_ms)
        claimed.append(claim.reply(entry_id, fields))
    if claimed or changed:
        session.db.touch_unwatched(args[0])
    return claimed


def _note_claimant(session: Session, key: bytes, group: Group, name: bytes) -> None:
    """Note that a consumer was seen. Older versions do so only when it claims an entry."""
    if session.engine.table.knows[EARLY_CONSUMERS]:
        find_consumer(session, key, group, name)


_MAX_AUTOCLAIM_COUNT = (2**63 - 1) // 16
"""Maximum COUNT of XAUTOCLAIM in Redis, which allocates 16 bytes for each entry."""
_ATTEMPTS_PER_ENTRY = 10
"""Number of pending entries that XAUTOCLAIM examines for each entry of its COUNT."""


@command("XAUTOCLAIM")
def xautoclaim(session: Session, args: Args) -> Reply:
    """Transfer entries that have been pending for a minimum time to another consumer.

    Returns the ID to continue from, the entries, and the IDs of deleted entries.
    """
    min_idle = max(_claim_number(args[3], "XAUTOCLAIM", "min-idle-time"), 0)
    start = parse_start(args[4])
    count, claim = 100, _Claim()
    for word, values in options(args, 5, {b"COUNT": 1, b"JUSTID": 0}):
        if word == b"COUNT":
            count = parse_int(values[0], 1, _MAX_AUTOCLAIM_COUNT, errors.XAUTOCLAIM_COUNT)
        else:
            claim.justid = True
    stream, group = find_group(session, args[0], args[1])
    _note_claimant(session, args[0], group, args[2])
    now_ms = session.now_ms
    attempts = _ATTEMPTS_PER_ENTRY * count
    following = 0
    claimed: list[Reply] = []
    deleted: list[Reply] = []
    examined = list(islice(group.pending.items(start), attempts + 1))
    for at, (entry_id, pending) in enumerate(examined):
        if at == attempts or len(claimed) + len(deleted) == count:
            following = entry_id
            break
        fields = stream.get(entry_id)
        if fields is None:
            group.acknowledge(entry_id)
            deleted.append(format_id(entry_id))
        elif not min_idle or now_ms - pending.delivered_ms >= min_idle:
            consumer = find_consumer(session, args[0], group, args[2])
            claim.give(group, entry_id, pending, consumer, now_ms)
            claimed.append(claim.reply(entry_id, fields))
    if claimed or deleted:
        session.db.touch_unwatched(args[0])
    return [format_id(following), claimed, deleted]
