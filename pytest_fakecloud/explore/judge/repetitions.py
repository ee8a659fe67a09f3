"""A pattern of anomalies: an effect that happens twice."""

from __future__ import annotations

from collections import Counter

from ...kv.table import kinds as commands
from ..values.accesses import Access
from ..values.disturbances import DELAYS, PAUSES, with_trait
from ..values.trial import Trial
from .evidence import Evidence, Findings, described, effects_of
from .services import OF_CONSUMERS, subject_of

_SECOND_TIME = with_trait("repeat")
"""Kinds of disturbances after which code runs, or a request arrives, a second time."""
_MOVES_OF_TIME = PAUSES | DELAYS
"""Kinds of disturbances that let time pass."""


def repeated_effect(evidence: Evidence) -> Findings:
    """An effect happens once more than without disturbances, in one of the ``_REPETITIONS``: a crash
    after ``INCR sent`` lets the worker start again, and send once more. ``_MAY_REPEAT`` are the
    exceptions.
    """
    undisturbed = evidence.undisturbed
    counts: Counter[object] = Counter()
    own_counts: Counter[object] = Counter()
    for effect, access in effects_of(evidence.trial):
        own = effect, access.actor
        counts[effect] += 1
        own_counts[own] += 1
        if not 0 < undisturbed.effect_counts[effect] == counts[effect] - 1:
            continue
        is_second = own_counts[own] > max(1, undisturbed.effect_counts_by_actor[own])
        is_repetition = any(repeats(evidence, access, is_second) for repeats in _REPETITIONS)
        if is_repetition and not any(reason(evidence, access) for reason in _MAY_REPEAT):
            yield subject_of(access), f"{described(access)} once too often"


def _by_attempt(evidence: Evidence, access: Access, is_second: bool) -> bool:
    """Return whether a second attempt has an effect: ``relay/2`` repeats what ``relay`` has done.

    Exception: its client has the effect once here, because its first attempt was refused something.
    """
    is_again = bool(evidence.trial.applied.kinds & _SECOND_TIME)
    is_attempt = is_again and (access.made_by.is_delivery or access.made_by.attempt > 1)
    return is_attempt and (is_second or access.actor not in evidence.undisturbed.actors)


def _by_write(evidence: Evidence, access: Access, is_second: bool) -> bool:
    """Return whether a relative write has an effect: ann and bob have both read that nobody has sent the
    mail, and both count it with ``INCR sent``.

    Exceptions: a disturbance ``_lets_time_pass``, or the client has the effect once, but later than all
    that happens without disturbances: bob was refused a lock, and has tried again.
    """
    is_later = access.at_us - evidence.trial.start_us > evidence.undisturbed.last_us
    return (
        access.is_relative and not _lets_time_pass(evidence.trial) and (is_second or not is_later)
    )


def _arrives_twice(evidence: Evidence, access: Access) -> bool:
    """Return whether the network has repeated a call (``ann.1 duplicate``), which accuses any INCR."""
    return any(d.kind == "duplicate" and d.point for d in evidence.trial.applied)


def _lets_time_pass(trial: Trial) -> bool:
    """Return whether time may pass (``ann.1 delay 60``): then a quota or a window may allow more."""
    return trial.applied.moves_clock or bool(trial.applied.kinds & _MOVES_OF_TIME)


def _may_compensate(evidence: Evidence, access: Access) -> bool:
    """Return whether a client does something else with a key than anybody without disturbances: it may
    compensate for an earlier effect, as ``DECR sent`` does for ``INCR sent``.
    """
    return any(
        (other.strand, other.keys[0]) == (access.strand, access.keys[0])
        for other in evidence.accesses
        if other.shape not in evidence.undisturbed.shapes
    )


def counts_attempts(evidence: Evidence, access: Access) -> bool:
    """Return whether a command counts one more as the first write of every attempt of its client,
    besides other counters and what takes work: it counts the attempts.
    """
    if not _counts_one(access):
        return False
    first: dict[str, Access] = {}
    root, counted = access.actor, (access.name, access.keys, access.fields)
    for other in evidence.accesses:
        takes_work = other.name in OF_CONSUMERS | commands.CONSUMES | commands.MOVES
        if other.has_effect and not takes_work and other.actor == root:
            is_same = (other.name, other.keys, other.fields) == counted
            if is_same or not _counts_one(other):
                first.setdefault(other.strand, other)
    return all((write.name, write.keys, write.fields) == counted for write in first.values())


def _counts_one(access: Access) -> bool:
    """Return whether a command adds one to a counter."""
    is_number = access.name == "INCR" or access.bound.named("increment") == ("1",)
    return access.call is None and is_number and access.is_relative


_REPETITIONS = _by_attempt, _by_write
"""How an effect happens once too often."""
_MAY_REPEAT = _arrives_twice, counts_attempts, _may_compensate
"""Why an effect may happen once more."""
