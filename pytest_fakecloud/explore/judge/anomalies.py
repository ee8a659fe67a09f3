"""Anomalies: patterns in a trial that are wrong whatever the application promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial

from ...core.errors import ContractError, shown, unknown_name
from ...kv.table import kinds
from ..values.accesses import NUMBER, Access
from ..values.disturbances import CLOCK, DELAYS, PAUSES, with_role
from ..values.names import StrandName
from ..values.trial import Anomaly, Trial
from .evidence import Evidence, effects_of, is_id, lasts

_SECOND_TIME = with_role("repeat")
"""Kinds of disturbances after which code runs, or a request arrives, a second time."""
_MOVES_OF_TIME = PAUSES | DELAYS
"""Kinds of disturbances that let time pass."""


Findings = Iterator[tuple[str, str]]
"""Subjects of a pattern, each with what happened in words."""


def _description(*accesses: Access) -> str:
    return ", then ".join(f"{access.strand}: {access.summary}" for access in accesses)


def _not_serializable(evidence: Evidence) -> Findings:
    yield from evidence.differences


# -- locks -----------------------------------------------------------------------------------------


def _foreign_release(evidence: Evidence) -> Findings:
    for acquisition, other, key, place in evidence.takeovers:
        for command in evidence.of_key(key, place):
            is_late = command.strand == acquisition.strand and command.changes
            # XX only tells that somebody holds the lock.
            if is_late and (evidence.is_blind(command) or "XX" in command.options):
                yield key.name, _description(acquisition, other, command)
            if is_late or (command.strand == other.strand and command.is_write):
                break


def _expired_lock(evidence: Evidence) -> Findings:
    for acquisition, other, key, place in evidence.takeovers:
        peers = [command for command in evidence.commands if command.strand == other.strand]
        for command in evidence.commands[place + 1 :]:
            is_late = (
                command.strand == acquisition.strand and command.changes and key not in command.keys
            )
            is_shared = any(command.keys[0] in peer.keys and command.meets(peer) for peer in peers)
            # What is added to data is not lost, whoever else adds to it.
            is_overwriting = command.name in kinds.LOSES_UPDATES and evidence.is_blind(command)
            if is_late and is_overwriting and is_shared:
                yield key.name, _description(acquisition, other, command)
                break


# -- effects that are lost, or that happen twice ---------------------------------------------------


def _repeated_effect(evidence: Evidence) -> Findings:
    # A call that arrives twice is the network's doing: each INCR in the world would be accused.
    trial = evidence.trial
    if any(disturbance.kind == "duplicate" and disturbance.point for disturbance in trial.fired):
        return
    undisturbed_counts = evidence.undisturbed.effects
    if not undisturbed_counts:
        return
    count: Counter[object] = Counter()
    roots = {access.actor for access in evidence.undisturbed_trial.effects.accesses}
    end_us = (
        max(access.at_us for access in evidence.undisturbed_trial.effects.accesses)
        - evidence.undisturbed_trial.start_us
    )
    usual_counts = Counter(
        (effect, access.actor) for effect, access in effects_of(evidence.undisturbed_trial)
    )
    counts_by_root: Counter[object] = Counter()
    is_again = any(disturbance.kind in _SECOND_TIME for disturbance in trial.fired)
    # A quota, a bucket or a window may allow more when time has passed.
    is_allowed = any(
        disturbance.kind in _MOVES_OF_TIME or disturbance.detail == CLOCK
        for disturbance in trial.fired
    )
    for effect, access in effects_of(trial):
        root = access.actor
        count[effect] += 1
        counts_by_root[effect, root] += 1
        is_new = 0 < undisturbed_counts[effect] == count[effect] - 1
        # A client whose first attempt was refused something may get it here, or later than usual.
        is_second = counts_by_root[effect, root] > max(1, usual_counts[effect, root])
        is_later = access.at_us - trial.start_us > end_us
        is_attempt = is_again and (access.made_by.is_delivery or access.made_by.attempt > 1)
        is_attempt = is_attempt and (is_second or root not in roots)
        is_relative = access.is_relative and not is_allowed and (is_second or not is_later)
        is_more = is_attempt or is_relative
        if is_new and is_more and not evidence.counts_attempts(access):
            # Who does something else with a key may compensate for an earlier effect.
            shapes = {other.shape for other in evidence.undisturbed_trial.effects.accesses}
            others = (other for other in trial.effects.accesses if other.shape not in shapes)
            if all(
                (other.strand, other.keys[0]) != (access.strand, access.keys[0]) for other in others
            ):
                yield access.subject, f"{_description(access)} once too often"


def _early_end(evidence: Evidence, *, of_delivery: bool) -> Findings:
    """Work counts as done without its effect, because a handler has answered, a worker has gone on,
    or a client has taken it.
    """
    client = evidence.disturbed_actor
    if StrandName.of(client).is_delivery is not of_delivery or not evidence.lost_effects:
        return
    undisturbed_ends = _ends(evidence.undisturbed_trial, client)
    ends = _ends(evidence.trial, client)
    if undisturbed_ends and not ends:
        return  # It has taken nothing that could be lost.
    takings = [end for end in ends if end.call is None]
    # A worker that starts again takes more, which it does not lose.
    stopped = {disturbance.strand for disturbance in evidence.trial.fired}
    lost_takings = [end for end in takings if end.strand in stopped]
    last_taking = [] if of_delivery else lost_takings[-1:] or takings[-1:] or ends[-1:]
    is_over = len(ends) >= len(undisturbed_ends) > 0
    if client in evidence.workers or of_delivery:
        is_left = evidence.left_keys or evidence.trial.effects.pending
        is_over = evidence.has_gone_on and (of_delivery or not is_left)
    ending = (
        _description(*last_taking) or f"{client} {'was acknowledged' if of_delivery else 'went on'}"
    )
    for effect in evidence.lost_effects if is_over else ():
        yield (
            last_taking[0].subject if last_taking else client,
            f"{ending}, and nobody ran {effect.summary}",
        )


def _ends(trial: Trial, client: str) -> list[Access]:
    """Return the accesses by which a client and its restarts took work for good."""
    own_accesses = [access for access in trial.effects.accesses if access.actor == client]
    # A script that notes elsewhere what it takes loses nothing.
    noted_units = {
        access.unit
        for access in own_accesses
        if access.changes and access.name not in kinds.CONSUMES
    }
    takings = [
        access
        for access in own_accesses
        if access.name in kinds.CONSUMES and access.before[0] is not None
    ]
    commits = [access for access in own_accesses if access.commits_records]
    commits = [access for access in commits if access.name == "commit"] or commits
    return [*commits, *(access for access in takings if access.unit not in noted_units)]


def _partial_update(evidence: Evidence) -> Findings:
    """A client that was disturbed has one of two effects on a server, and nobody has the other."""
    client = evidence.disturbed_actor
    is_started_again = client in evidence.workers or StrandName.of(client).is_delivery
    if is_started_again or not evidence.lost_effects:
        return
    undisturbed_accesses = evidence.undisturbed_trial.effects.accesses
    accesses = evidence.trial.effects.accesses
    if any(access.name == "consume" for access in undisturbed_accesses if access.actor == client):
        return  # It is a worker.
    # Gaps between numbers that a counter gave out are no state.
    usual_shapes = {
        access.shape
        for at, access in enumerate(undisturbed_accesses)
        if not is_id(access, undisturbed_accesses, at)
    }
    lasting = [
        access
        for access in evidence.own_accesses
        if lasts(access, evidence.trial) and access.shape in usual_shapes
    ]
    compared = set(_comparing_units(evidence.own_accesses))
    lasting = [access for access in lasting if access.unit not in compared]
    # A second attempt repairs all but what it cannot repeat.
    # A script that also notes an entry can recognise that it has run.
    entries = {access.unit: access for access in evidence.own_accesses if _is_entry(access)}
    # A client that got an error could have taken back what it added; one that has crashed could not.
    is_alive = evidence.loss is not None and evidence.loss.kind != "crash"
    lasting = [
        access
        for access in lasting
        if access.call is None
        and ((access.acquires and evidence.left_keys) or (access.is_relative and is_alive))
        and entries.get(access.unit, access) is access
        and not evidence.counts_attempts(access)
    ]
    for lost_effect in evidence.lost_effects:
        is_repeated = any(
            access.text == lost_effect.text
            and access.content == lost_effect.content
            and access.changes
            for access in accesses
        )
        for effect in () if is_repeated else lasting:
            is_one_store = effect.keys[0].fake == lost_effect.keys[0].fake
            if is_one_store and {*effect.keys}.isdisjoint(lost_effect.keys):
                yield (
                    f"{effect.subject}, {lost_effect.subject}",
                    f"{_description(effect)}, and nobody ran {lost_effect.summary}",
                )
                break


def _is_entry(access: Access) -> bool:
    """Return whether a command notes something that was not there, such as an ID that has been used."""
    is_creation = access.name in kinds.CREATES | kinds.IF_NEW and bool(access.creates)
    return access.call is None and access.changes and (is_creation or access.name in kinds.APPENDS)


def _comparing_units(accesses: Sequence[Access]) -> Iterator[object]:
    """Yield the scripts that read what they set to a word, such as the status of an order: a script that
    has run can recognise it.
    """
    reads: dict[object, list[Access]] = {}
    for access in accesses:
        if not access.is_write:
            reads.setdefault(access.unit, []).append(access)
        elif access.changes and not all(map(NUMBER.fullmatch, access.values)):
            own = reads.get(access.unit, ())
            if any(read.keys[0] in access.keys and read.meets(access) for read in own):
                yield access.unit


# -- all patterns ----------------------------------------------------------------------------------


PATTERNS: dict[str, tuple[Callable[[Evidence], Findings], str]] = {
    "not serializable": (_not_serializable, "no rule connects what the clients leave"),
    "foreign release": (_foreign_release, "the holder does not rely on the lock"),
    "expired lock": (_expired_lock, "the late write repeats one that another holder made"),
    "early commit": (partial(_early_end, of_delivery=False), "the effect may be lost"),
    "early acknowledgement": (partial(_early_end, of_delivery=True), "the effect may be lost"),
    "partial update": (_partial_update, "a later request or a person repairs the difference"),
    "repeated effect": (_repeated_effect, "the number counts attempts"),
}
"""All patterns, in the order in which they are reported, by the names that the literature uses: the
function that finds the pattern, and when it does no harm.
"""


LAST = frozenset({"partial update"})
"""The patterns that a search without a promise only reports if it has found no other: what is correct
depends on whether the caller of a client that failed tries again.
"""


class AnomalyError(AssertionError):
    """The assertion that an anomaly stands for in a search without a promise."""

    def __init__(self, anomaly: Anomaly) -> None:
        allowed = f"{anomaly.name}: {anomaly.subject}"
        _, harmless = PATTERNS[anomaly.name]
        super().__init__(f"{anomaly}. It is harmless if {harmless}: then pass allow={allowed!r}")


class Allowed:
    """The anomalies that the caller allows: a name, or a name with a subject ("name: key*")."""

    def __init__(self, allow: str | Iterable[str]) -> None:
        texts = (allow,) if isinstance(allow, str) else tuple(allow)
        self._unused = dict.fromkeys(texts)
        self._entries = []
        for text in texts:
            if not isinstance(text, str):
                raise ContractError(f"allow={shown(text)} is not the name of an anomaly")
            name, _, subject = text.partition(":")
            if name not in PATTERNS:
                raise ContractError(unknown_name("anomaly", name, PATTERNS, "allow"))
            self._entries.append((text, name, subject.strip() or "*"))

    def covers(self, anomaly: Anomaly) -> bool:
        for text, name, subject in self._entries:
            if anomaly.name == name and fnmatchcase(anomaly.subject, subject):
                self._unused.pop(text, None)
                return True
        return False

    def unused(self) -> int:
        """Return the number of entries that no trial has needed."""
        return len(self._unused)

    def check_used(self) -> None:
        """Raise ``ContractError`` for an entry that no trial needed."""
        if self._unused:
            text = next(iter(self._unused))
            raise ContractError(f"allow={text!r}: no trial shows this anomaly: leave it out")


def find_anomalies(evidence: Evidence, allowed: Allowed) -> list[Anomaly]:
    """Return the anomalies of a trial that are not allowed, one for each name and subject."""
    anomalies: dict[tuple[str, str], Anomaly] = {}
    for name, (find, _) in PATTERNS.items():
        for subject, words in find(evidence):
            anomalies.setdefault((name, subject), Anomaly(name, subject, words))
    return [anomaly for anomaly in anomalies.values() if not allowed.covers(anomaly)]
