"""Anomalies: patterns in a trial that are wrong whatever the application promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from ...core.errors import ContractError, shown, unknown_name
from ...core.touches import Touch
from ...kv.table import kinds as commands
from ..values.accesses import NUMBER, Access
from ..values.disturbances import DELAYS, PAUSES, with_trait
from ..values.trial import Anomaly, Trial
from .evidence import Evidence, effects_of
from .losses import Loss, lasts
from .services import OF_CONSUMERS, commits_records, subject_of

_SECOND_TIME = with_trait("repeat")
"""Kinds of disturbances after which code runs, or a request arrives, a second time."""
_MOVES_OF_TIME = PAUSES | DELAYS
"""Kinds of disturbances that let time pass."""


Findings = Iterator[tuple[str, str]]
"""Subjects of a pattern, each with what happened in words."""


def _description(*accesses: Access) -> str:
    return ", then ".join(f"{access.strand}: {access.summary}" for access in accesses)


def _not_serializable(evidence: Evidence) -> Findings:
    """Clients leave what they leave in no order in which each runs in one piece (``serial``)."""
    yield from evidence.unserial_differences


# -- locks -----------------------------------------------------------------------------------------


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


def _foreign_release(evidence: Evidence) -> Findings:
    """A client changes its lock after another one has taken it, and ``_ignores_holder``: ann's lock
    expires, bob acquires it, and ann deletes it.
    """
    for acquisition, other, key, place in _takeovers(evidence):
        for command in evidence.of_key(key, place):
            is_late = command.strand == acquisition.strand and command.has_effect
            if is_late and _ignores_holder(evidence, command):
                yield key.name, _description(acquisition, other, command)
            if is_late or (command.strand == other.strand and command.is_write):
                break  # The other one has released its lock, or renewed it.


def _ignores_holder(evidence: Evidence, command: Access) -> bool:
    """Return whether a command changes a lock whoever holds it: ``DEL lock``, or ``SET lock ann XX``,
    which only tells that somebody does. Not in a script that reads the lock first.
    """
    return _is_blind(evidence, command) or "XX" in command.options


def _expired_lock(evidence: Evidence) -> Findings:
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
                yield key.name, _description(acquisition, other, command)
                break


def _ignores_data(evidence: Evidence, command: Access) -> bool:
    """Return whether a command replaces data whatever they are: ``SET stock 3``, not ``INCR stock``."""
    return command.name in commands.LOSES_UPDATES and _is_blind(evidence, command)


def _is_blind(evidence: Evidence, write: Access) -> bool:
    """Return whether a write has no condition (``SETNX``), and its script does not read."""
    is_conditional = write.name in commands.IF_NEW | commands.IF_EQUAL
    is_guarded = is_conditional or bool(write.options & commands.CONDITIONS)
    return not is_guarded and write.unit not in evidence.reading


# -- an effect that happens twice ------------------------------------------------------------------


def _repeated_effect(evidence: Evidence) -> Findings:
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
            yield subject_of(access), f"{_description(access)} once too often"


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


def _counts_attempts(evidence: Evidence, access: Access) -> bool:
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
_MAY_REPEAT = _arrives_twice, _counts_attempts, _may_compensate
"""Why an effect may happen once more."""


# -- effects that are lost -------------------------------------------------------------------------


def _early_end(evidence: Evidence, *, of_delivery: bool) -> Findings:
    """Work counts as done without its effect: it ``_is_over`` although, for example, ``relay`` crashed
    between ``LPOP jobs`` and ``INCR done``, or a handler answered 200 before it failed.
    """
    loss = evidence.loss
    if loss is None or loss.is_of_delivery is not of_delivery or not loss.lost_effects:
        return
    ends = _ends(evidence.trial, loss.actor)
    if not _is_over(evidence, loss, ends):
        return
    takings = [end for end in ends if end.call is None]
    # A worker that starts again takes more, which it does not lose.
    stopped = {disturbance.strand for disturbance in evidence.trial.applied}
    lost_takings = [end for end in takings if end.strand in stopped]
    last_taking = [] if of_delivery else lost_takings[-1:] or takings[-1:] or ends[-1:]
    went_on = f"{loss.actor} {'was acknowledged' if of_delivery else 'went on'}"
    ending = _description(*last_taking) or went_on
    for effect in loss.lost_effects:
        yield (
            subject_of(last_taking[0]) if last_taking else loss.actor,
            f"{ending}, and nobody ran {effect.summary}",
        )


def _is_over(evidence: Evidence, loss: Loss, ends: Sequence[Access]) -> bool:
    """Return whether nobody does the work again: its handler has answered, its worker has gone on, or a
    client has taken as much as without the disturbance.

    Exceptions: the client has taken nothing that could be lost, as it crashed before ``LPOP jobs``; or
    a later worker can find the work, in a key such as ``processing``, or pending in a stream.
    """
    undisturbed_ends = _ends(evidence.undisturbed.trial, loss.actor)
    if undisturbed_ends and not ends:
        return False
    if not (loss.is_of_delivery or loss.is_of_worker):
        return len(ends) >= len(undisturbed_ends) > 0
    can_be_found = bool(loss.left_keys or evidence.trial.effects.pending)
    return loss.has_gone_on and (loss.is_of_delivery or not can_be_found)


def _ends(trial: Trial, client: str) -> list[Access]:
    """Return the accesses by which a client and its restarts took work for good: ``LPOP jobs``, XACK, or
    a commit. Not in a script that notes elsewhere what it takes, which loses nothing.
    """
    own_accesses = [access for access in trial.effects.accesses if access.actor == client]
    noted_units = {
        access.unit
        for access in own_accesses
        if access.has_effect and access.name not in commands.CONSUMES
    }
    takings = [
        access
        for access in own_accesses
        if access.name in commands.CONSUMES and access.before[0] is not None
    ]
    commits = [access for access in own_accesses if commits_records(access)]
    commits = [access for access in commits if access.name == "commit"] or commits
    return [*commits, *(access for access in takings if access.unit not in noted_units)]


def _partial_update(evidence: Evidence) -> Findings:
    """A client that was disturbed has one of two effects on a server, and nobody has the other: the one
    ``_cannot_be_repaired``. For example, the answer to ``DECR stock`` is lost, so there is no
    ``RPUSH orders``.

    Exceptions: a client that ``_is_started_again``, an access that is ``_recognised`` by its script, and
    an effect that somebody ``_had_in_the_same_words``.
    """
    loss = evidence.loss
    if loss is None or not loss.lost_effects or _is_started_again(evidence, loss):
        return
    recognised = _recognised(loss.own_accesses)
    halves = [
        access
        for access in loss.own_accesses
        if access not in recognised and _cannot_be_repaired(evidence, loss, access)
    ]
    for lost_effect in loss.lost_effects:
        if _had_in_the_same_words(evidence, lost_effect):
            continue
        for half in halves:
            is_one_store = half.keys[0].fake == lost_effect.keys[0].fake
            if is_one_store and {*half.keys}.isdisjoint(lost_effect.keys):
                yield (
                    f"{subject_of(half)}, {subject_of(lost_effect)}",
                    f"{_description(half)}, and nobody ran {lost_effect.summary}",
                )
                break


def _had_in_the_same_words(evidence: Evidence, effect: Access) -> bool:
    """Return whether somebody had an effect in its words: bob's ``SADD done 7`` counts for ann's."""
    words = effect.text, effect.content
    changes = (access for access in evidence.accesses if access.has_effect)
    return any((access.text, access.content) == words for access in changes)


def _is_started_again(evidence: Evidence, loss: Loss) -> bool:
    """Return whether a worker, a delivery or a consumer is disturbed, which does the rest later: after a
    crash, ``relay/2`` reads the record again whose offset ``relay`` has not committed.
    """
    accesses = evidence.undisturbed.accesses
    routes = {access.name for access in accesses if access.actor == loss.actor}
    return loss.is_of_worker or loss.is_of_delivery or "consume" in routes


def _cannot_be_repaired(evidence: Evidence, loss: Loss, access: Access) -> bool:
    """Return whether a second attempt cannot repair an effect that stays: a lock that is left, or a
    relative write, such as ``DECR stock``, of a client that has not crashed, and so could have taken
    back what it added.

    Exceptions: numbers that a counter gave out (``shapes_of_state``), and those that count attempts.
    """
    is_alive = loss.disturbance.kind != "crash"
    return (
        access.call is None
        and ((access.acquires and bool(loss.left_keys)) or (access.is_relative and is_alive))
        and lasts(access, evidence.trial)
        and access.shape in evidence.undisturbed.shapes_of_state
        and not _counts_attempts(evidence, access)
    )


def _recognised(accesses: Sequence[Access]) -> set[Access]:
    """Return the accesses of scripts that can recognise that they have run: another access of the script
    notes an entry, or one compares what it sets.
    """
    entries = {access.unit: access for access in accesses if _is_entry(access)}
    compared = set(_comparing_units(accesses))
    return {
        access
        for access in accesses
        if access.unit in compared or entries.get(access.unit, access) is not access
    }


def _is_entry(access: Access) -> bool:
    """Return whether a command notes something that was not there, such as an ID that has been used."""
    is_creation = access.name in commands.CREATES | commands.IF_NEW and bool(access.creates)
    return (
        access.call is None
        and access.has_effect
        and (is_creation or access.name in commands.APPENDS)
    )


def _comparing_units(accesses: Sequence[Access]) -> Iterator[object]:
    """Yield the scripts that read what they set to a word, such as a status: they know if they ran."""
    reads: dict[object, list[Access]] = {}
    for access in accesses:
        if not access.is_write:
            reads.setdefault(access.unit, []).append(access)
        elif access.has_effect and not all(map(NUMBER.fullmatch, access.values)):
            own = reads.get(access.unit, ())
            if any(read.keys[0] in access.keys and read.meets(access) for read in own):
                yield access.unit


# -- all patterns ----------------------------------------------------------------------------------


class Pattern(NamedTuple):
    """A pattern of anomalies: the function that finds it, and when it does no harm.

    A search without a promise reports one that ``is_doubtful`` only if it has found no other: whether it
    is wrong depends on what the caller of a client that failed does next.
    """

    find: Callable[[Evidence], Findings]
    harmless_if: str
    is_doubtful: bool = False


PATTERNS = {
    "not serializable": Pattern(_not_serializable, "no rule connects what the clients leave"),
    "foreign release": Pattern(_foreign_release, "the holder does not rely on the lock"),
    "expired lock": Pattern(_expired_lock, "the late write repeats one that another holder made"),
    "early commit": Pattern(partial(_early_end, of_delivery=False), "the effect may be lost"),
    "early acknowledgement": Pattern(
        partial(_early_end, of_delivery=True), "the effect may be lost"
    ),
    "partial update": Pattern(
        _partial_update, "a later request or a person repairs the difference", is_doubtful=True
    ),
    "repeated effect": Pattern(_repeated_effect, "the number counts attempts"),
}
"""All patterns by name, in the order in which they are reported."""


class AnomalyError(AssertionError):
    """The assertion that an anomaly stands for in a search without a promise."""

    def __init__(self, anomaly: Anomaly) -> None:
        allowed = f"{anomaly.name}: {anomaly.subject}"
        harmless_if = PATTERNS[anomaly.name].harmless_if
        super().__init__(f"{anomaly}. It is harmless if {harmless_if}: then pass allow={allowed!r}")


class Allowed:
    """The anomalies that the caller allows: a name, or a name with a subject ("name: key*")."""

    def __init__(self, allow: str | Iterable[str]) -> None:
        texts = (allow,) if isinstance(allow, str) else tuple(allow)
        self._entries = []
        for text in texts:
            if not isinstance(text, str):
                raise ContractError(f"allow={shown(text)} is not the name of an anomaly")
            name, _, subject = text.partition(":")
            if name not in PATTERNS:
                raise ContractError(unknown_name("anomaly", name, PATTERNS, "allow"))
            self._entries.append((text, name, subject.strip() or "*"))

    def entry_for(self, anomaly: Anomaly) -> str | None:
        """Return the first entry that allows an anomaly, or None."""
        for text, name, subject in self._entries:
            if anomaly.name == name and fnmatchcase(anomaly.subject, subject):
                return text
        return None

    def check_used(self, used: Container[str]) -> None:
        """Raise ``ContractError`` for an entry that no trial needed."""
        for text, _, _ in self._entries:
            if text not in used:
                raise ContractError(f"allow={text!r}: no trial shows this anomaly: leave it out")


def find_anomalies(evidence: Evidence) -> list[Anomaly]:
    """Return the anomalies of a trial, one for each name and subject."""
    anomalies: dict[tuple[str, str], Anomaly] = {}
    for name, pattern in PATTERNS.items():
        for subject, words in pattern.find(evidence):
            anomalies.setdefault((name, subject), Anomaly(name, subject, words))
    return [*anomalies.values()]
