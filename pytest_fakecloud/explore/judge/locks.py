"""Patterns of anomalies: locks that their holders have lost."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.touches import Touch
from ...kv.table import kinds as commands
from ..values.accesses import Access
from .evidence import Evidence, Findings, described


def _takeovers(evidence: Evidence) -> Iterator[tuple[Access, Access, Touch, int]]:
    """Yield each client's lock, the next holder's, their key, and the index of the latter."""
    for at, acquisition in enumerate(evidence.commands):
        key = acquisition.keys[0]
        for place in evidence.places[key] if acquisition.acquires else ():
            other = evidence.commands[place]
            if place <= at or not other.is_write:
                continue
            if other.strand == acquisition.strand:
                break
            if other.acquires:
                yield acquisition, other, key, place
                break


def foreign_release(evidence: Evidence) -> Findings:
    """A client changes its lock after another one has taken it, and ``_ignores_holder``: ann's lock
    expires, bob acquires it, and ann deletes it.
    """
    for acquisition, other, key, place in _takeovers(evidence):
        for command in evidence.of_key(key, place):
            is_late = command.strand == acquisition.strand and command.has_effect
            if is_late and _ignores_holder(evidence, command):
                yield key.name, described(acquisition, other, command)
            if is_late or (command.strand == other.strand and command.is_write):
                break  # The other one has released its lock, or renewed it.


def _ignores_holder(evidence: Evidence, command: Access) -> bool:
    """Return whether a command changes a lock whoever holds it: ``DEL lock``, or ``SET lock ann XX``,
    which only tells that somebody does. Not in a script that reads the lock first.
    """
    return _is_blind(evidence, command) or "XX" in command.options


def expired_lock(evidence: Evidence) -> Findings:
    """A client overwrites data that the next holder of its lock accesses, and ``_ignores_data``: ann
    reads the stock, her lock expires, bob acquires it and reads the stock, and ann sets it.
    """
    for acquisition, other, key, place in _takeovers(evidence):
        peers = [command for command in evidence.commands if command.strand == other.strand]
        for command in evidence.commands[place + 1 :]:
            is_late = (
                command.strand == acquisition.strand
                and command.has_effect
                and key not in command.keys
            )
            is_shared = any(command.keys[0] in peer.keys and command.meets(peer) for peer in peers)
            if is_late and is_shared and _ignores_data(evidence, command):
                yield key.name, described(acquisition, other, command)
                break


def _ignores_data(evidence: Evidence, command: Access) -> bool:
    """Return whether a command replaces data whatever they are: ``SET stock 3``, not ``INCR stock``."""
    return command.name in commands.LOSES_UPDATES and _is_blind(evidence, command)


def _is_blind(evidence: Evidence, write: Access) -> bool:
    """Return whether a write has no condition (``SETNX``), and its script does not read."""
    is_conditional = write.name in commands.IF_NEW | commands.IF_EQUAL
    is_guarded = is_conditional or bool(write.options & commands.CONDITIONS)
    return not is_guarded and write.unit not in evidence.reading
