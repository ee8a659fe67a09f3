"""Counts the entries of a stream that a consumer group has read (``entries-read``), and its lag.

Deleted entries make the number of entries before an ID uncertain. Redis 7.2 and later (``estimate``)
then compute the counter from the stream, and report it as unknown for all IDs before the last
deleted one. Redis 7.0 incremented the counter instead while a group was positioned before the first
entry of the stream, when the counter can have any value, so it could report a negative lag.
"""

from __future__ import annotations

from .consumer_group import UNKNOWN_ENTRIES_READ, Group
from .stream import Stream


def entries_up_to(stream: Stream, entry_id: int, *, estimate: bool = True) -> int:
    """Return the number of entries ever added up to an ID, or UNKNOWN_ENTRIES_READ.

    The number is known for the last entry and, unless an entry behind the first one was deleted,
    for the first entry and the IDs before it.
    """
    if not stream.length and entry_id <= stream.last_id:
        return stream.entries_added
    if estimate and entry_id and entry_id < stream.max_deleted_id:
        return UNKNOWN_ENTRIES_READ
    if entry_id == stream.last_id:
        return stream.entries_added
    if entry_id > stream.last_id:
        return UNKNOWN_ENTRIES_READ
    if not stream.max_deleted_id or stream.max_deleted_id < stream.first_id:
        if entry_id < stream.first_id:
            return stream.entries_added - stream.length
        if entry_id == stream.first_id:
            return stream.entries_added - stream.length + 1
    return UNKNOWN_ENTRIES_READ


def lag(stream: Stream, group: Group, *, estimate: bool = True) -> int | None:
    """Return the number of entries that a group has not read yet, or None if unknown."""
    if not stream.entries_added:
        return 0
    if _is_countable(stream, group, group.last_id, estimate):
        return stream.entries_added - group.entries_read
    read = entries_up_to(stream, group.last_id, estimate=estimate)
    return None if read == UNKNOWN_ENTRIES_READ else stream.entries_added - read


def advance(stream: Stream, group: Group, entry_id: int, *, estimate: bool = True) -> None:
    """Move a group to an entry that it has just received, and count the entry as read."""
    if entry_id <= group.last_id:
        return
    after = group.last_id if estimate else entry_id
    if _is_countable(stream, group, after, estimate) and (not estimate or after >= stream.first_id):
        group.entries_read += 1
    else:
        group.entries_read = entries_up_to(stream, entry_id, estimate=estimate)
    group.last_id = entry_id


def _is_countable(stream: Stream, group: Group, after: int, estimate: bool) -> bool:
    """Return whether a group's counter is known and no entry from ``after`` on was deleted."""
    if group.entries_read == UNKNOWN_ENTRIES_READ:
        return False
    if not estimate and stream.first_id > stream.max_deleted_id:
        return True
    return not (stream.length and stream.max_deleted_id and after <= stream.max_deleted_id)
