"""XDEL, XDELEX and XACKDEL: deleting entries, with policies for entries that groups refer to."""

from __future__ import annotations

from ... import errors
from ...engine.engine import Session
from ...errors import CommandError
from ...reply import Reply
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.stream import Stream
from .ids import parse_ids

POLICIES = (b"KEEPREF", b"DELREF", b"ACKED")
"""Policies for deleting an entry that is pending in groups.

KEEPREF keeps the entry's ID in the groups, DELREF removes it from them, and ACKED deletes the entry
only if all groups have acknowledged it.
"""
DELETED, ABSENT, KEPT = 1, -1, 2


def forget_entry(stream: Stream, entry_id: int) -> None:
    """Remove a pending entry from all groups of a stream."""
    for group in stream.groups.values():
        group.acknowledge(entry_id)


@command("XDEL")
def xdel(session: Session, args: Args) -> Reply:
    """Delete entries by ID and return the number that existed."""
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return 0
    deleted = sum(map(stream.delete, parse_ids(args[1:])))
    if deleted:
        session.db.touch(args[0])
    return deleted


def _parse_ids_with_policy(args: Args, at: int) -> tuple[bytes, list[int]]:
    """Parse ``[KEEPREF|DELREF|ACKED] IDS numids id [id ...]``."""
    policy = b"KEEPREF"
    if args[at].upper() in POLICIES:
        policy = args[at].upper()
        at += 1
    if len(args) - at < 3 or args[at].upper() != b"IDS":
        raise CommandError(errors.SYNTAX)
    count = parse_int(args[at + 1], 1, error=errors.XDELEX_NUMIDS)
    if count != len(args) - at - 2:
        raise CommandError(errors.XDELEX_IDS)
    return policy, parse_ids(args[at + 2 :])


def _delete_with_policy(stream: Stream, entry_id: int, policy: bytes) -> int:
    """Delete an entry as far as the policy allows; return DELETED, ABSENT or KEPT (still awaited)."""
    if policy == b"ACKED" and entry_id in stream and stream.awaited(entry_id):
        return KEPT
    if policy == b"DELREF":
        forget_entry(stream, entry_id)
    return DELETED if stream.delete(entry_id) else ABSENT


@command("XDELEX")
def xdelex(session: Session, args: Args) -> Reply:
    """Delete entries, with a policy for groups that refer to them; return the result for each ID."""
    policy, ids = _parse_ids_with_policy(args, 1)
    stream = session.db.get(args[0], Stream)
    if stream is None:
        return [ABSENT] * len(ids)
    outcomes = [_delete_with_policy(stream, entry_id, policy) for entry_id in ids]
    if DELETED in outcomes:
        session.db.touch(args[0])
    return list(outcomes)


@command("XACKDEL")
def xackdel(session: Session, args: Args) -> Reply:
    """Acknowledge entries in a group and delete them as XDELEX does.

    An entry is deleted even if it is not pending in the group, as tests of the official clients
    show.
    """
    policy, ids = _parse_ids_with_policy(args, 2)
    stream = session.db.get(args[0], Stream)
    group = None if stream is None else stream.groups.get(args[1])
    if stream is None or group is None:
        return [ABSENT] * len(ids)
    acknowledged = [group.acknowledge(entry_id) for entry_id in ids]
    outcomes = [_delete_with_policy(stream, entry_id, policy) for entry_id in ids]
    if any(acknowledged) or DELETED in outcomes:
        session.db.touch(args[0])
    return list(outcomes)
