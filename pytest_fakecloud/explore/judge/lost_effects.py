"""Patterns of anomalies: effects that nobody has although the work counts as done, or half of it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...kv.table import kinds as commands
from ..values.accesses import NUMBER, Access
from ..values.trial import Trial
from .evidence import Evidence, Findings, described
from .losses import Loss, lasts
from .repetitions import counts_attempts
from .services import commits_records, subject_of


def early_end(evidence: Evidence, *, of_delivery: bool) -> Findings:
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
    ending = described(*last_taking) or went_on
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


def partial_update(evidence: Evidence) -> Findings:
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
                    f"{described(half)}, and nobody ran {lost_effect.summary}",
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
        and not counts_attempts(evidence, access)
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
