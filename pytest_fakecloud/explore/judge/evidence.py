"""What patterns of anomalies look at: the accesses of a trial beside those of the undisturbed trial."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from ...core.touches import Touch
from ...kv.table import kinds as commands
from ..values.accesses import Access
from ..values.disturbances import DELAYS, PAUSES, Disturbance, with_trait
from ..values.names import actor_of
from ..values.trial import Trial
from .services import OF_CONSUMERS, STORES, deletes_no_vector, subject_of

_LOSSES = with_trait("loss")
"""Kinds of disturbances that can keep a client from having an effect."""
_LOSSES_OF_ALL = with_trait("loss of all")
"""Those that can keep all clients from their effects."""
PAUSES_OF_ALL = PAUSES - DELAYS
"""Kinds of disturbances that pause all clients, and so change no order."""
_WORD = re.compile(r"[A-Za-z_-]{1,14}")
"""The name of a field or member that a program contains, unlike an ID."""


class Evidence:
    """What patterns look at: the accesses of a trial, and those of the trial without disturbances."""

    def __init__(
        self,
        trial: Trial,
        undisturbed: Evidence | None,
        workers: frozenset[str],
        differences: Sequence[tuple[str, str]],
    ) -> None:
        self.trial = trial
        self.undisturbed = self if undisturbed is None else undisturbed
        """The evidence of the trial without disturbances, which what is compared with it shares."""
        self.workers = workers
        """The names of the clients that start again when they fail."""
        self.differences = differences
        """What the trial leaves that no trial in one piece leaves, each with a description."""
        self.accesses = trial.effects.accesses
        self.commands = [access for access in self.accesses if access.call is None]
        self.places: dict[Touch, list[int]] = {}
        """The indexes of the commands that access each key, in order."""
        for at, command in enumerate(self.commands):
            for key in command.keys:
                self.places.setdefault(key, []).append(at)
        self.reading = {command.unit for command in self.commands if not command.is_write}
        """Scripts and single commands in which a command only reads; a script may also write."""

    def of_key(self, key: Touch, after: int) -> Iterator[Access]:
        """Yield the commands that access a key, after an index of ``commands``."""
        return (self.commands[at] for at in self.places.get(key, ()) if at > after)

    def is_blind(self, write: Access) -> bool:
        """Return whether a write has no condition (``SETNX``), and its script does not read."""
        is_conditional = write.name in commands.IF_NEW | commands.IF_EQUAL
        is_guarded = is_conditional or bool(write.options & commands.CONDITIONS)
        return not is_guarded and write.unit not in self.reading

    @cached_property
    def takeovers(self) -> list[tuple[Access, Access, Touch, int]]:
        """Each client's lock, the next holder's, their key, and the index of the latter."""
        takeovers = []
        for at, acquisition in enumerate(self.commands):
            key = acquisition.keys[0]
            for place in self.places[key] if acquisition.acquires else ():
                other = self.commands[place]
                if place <= at or not other.is_write:
                    continue
                if other.strand == acquisition.strand:
                    break
                if other.acquires:
                    takeovers.append((acquisition, other, key, place))
                    break
        return takeovers

    @cached_property
    def loss(self) -> Disturbance | None:
        """The only disturbance that can have kept a client from an effect. None if there are others,
        except pauses of all clients at points of the worker that it hit.
        """
        losses = [disturbance for disturbance in self.trial.applied if disturbance.kind in _LOSSES]
        if len(losses) != 1:
            return None
        pauses = self.trial.applied.without(losses).with_series(0)
        strand = losses[0].strand if actor_of(losses[0].strand) in self.workers else ""
        is_alone = all(
            disturbance.kind in PAUSES_OF_ALL and disturbance.strand == strand
            for disturbance in pauses
        )
        return losses[0] if is_alone else None

    @cached_property
    def disturbed_actor(self) -> str:
        """The client or delivery that the loss hit."""
        return "" if self.loss is None else actor_of(self.loss.strand)

    @cached_property
    def has_gone_on(self) -> bool:
        """Whether the disturbed worker or delivery ended its work later, and will not start again."""
        if self.disturbed_actor not in self.workers:
            return self.disturbed_actor in map(actor_of, self.trial.effects.acknowledged)
        starts = [access.strand for access in self.own_accesses]
        is_dead = self.loss is not None and self.loss.kind == "crash" and self.loss.strand
        return bool(starts) and starts[-1] not in self.trial.errors and starts[-1] != is_dead

    @cached_property
    def own_accesses(self) -> list[Access]:
        """The accesses of the disturbed client and of its restarts."""
        return [access for access in self.accesses if access.actor == self.disturbed_actor]

    @cached_property
    def change_counts(self) -> Counter[object]:
        """How often something of each shape, and of each text, was changed."""
        changes = [
            access
            for access in self.accesses
            if access.has_effect and not deletes_no_vector(access)
        ]
        return Counter(aspect for change in changes for aspect in (change.shape, change.text))

    @cached_property
    def effects(self) -> Counter[object]:
        return Counter(effect for effect, _ in effects_of(self.trial))

    @cached_property
    def effects_by_actor(self) -> Counter[tuple[object, str]]:
        return Counter((effect, access.actor) for effect, access in effects_of(self.trial))

    @cached_property
    def actors(self) -> set[str]:
        return {access.actor for access in self.accesses}

    @cached_property
    def shapes(self) -> set[object]:
        return {access.shape for access in self.accesses}

    @cached_property
    def shapes_of_state(self) -> set[object]:
        """The shapes without those of counters: gaps between numbers that they gave out are no state."""
        accesses = self.accesses
        return {
            access.shape for at, access in enumerate(accesses) if not is_id(access, accesses, at)
        }

    @cached_property
    def last_us(self) -> int:
        """The time of the last access, in microseconds from the start."""
        return max(access.at_us for access in self.accesses) - self.trial.start_us

    @cached_property
    def lost_effects(self) -> Sequence[Access]:
        """The lasting effects that the disturbed client has without the disturbance, and that neither it
        nor anybody else had here.

        Exceptions: the client ``lacks_work``, ``_acts_otherwise`` or ``_awaits_lease``, there
        ``_is_dead_letter``, or the effect ``_is_decided_against`` or ``_is_superseded``.
        """
        if (
            self.loss is None
            or self.lacks_work
            or self._acts_otherwise()
            or self._is_dead_letter()
            or self._awaits_lease()
        ):
            return ()
        return [
            effect
            for effect in self._missing()
            if effect.actor == self.disturbed_actor
            and not self._is_decided_against(effect)
            and not self._is_superseded(effect)
        ]

    def _acts_otherwise(self) -> bool:
        """Return whether the disturbed client changes what nobody changes without the disturbance: it
        notes ``RPUSH failed 7``, for example, in place of ``SADD done 7``.
        """
        return any(
            access.has_effect
            and access.shape not in self.undisturbed.change_counts
            and access.name not in OF_CONSUMERS
            for access in self.own_accesses
        )

    def _is_dead_letter(self) -> bool:
        """Return whether a delivery has not succeeded: ``RPUSH orders`` was lost, each attempt answered
        500, and the dead letter waits for a person.
        """
        deliveries = {access.actor for access in self.accesses if access.made_by.is_delivery}
        return not deliveries <= set(map(actor_of, self.trial.effects.acknowledged))

    def _awaits_lease(self) -> bool:
        """Return whether a later attempt finds a key taken, which expires: ``SET lock relay/2 NX EX 60``
        fails as long as the lock of the relay that crashed lives.
        """
        return any(
            access.has_condition
            and not access.has_effect
            and self.trial.effects.remaining.get(access.keys[0]) is False
            for access in self._later_commands
        )

    @cached_property
    def _later_commands(self) -> list[Access]:
        """The commands of other starts or attempts of the disturbed client."""
        disturbed = "" if self.loss is None else self.loss.strand
        own = (access for access in self.own_accesses if access.call is None)
        return [command for command in own if command.strand != disturbed]

    def _is_decided_against(self, effect: Access) -> bool:
        """Return whether a later attempt could see what somebody else wrote in place of an effect: bob
        has run ``SET owner bob``, and ann's second attempt reads it.
        """
        key = effect.keys[0]
        is_seen = any(key in later.keys and effect.meets(later) for later in self._later_commands)
        return is_seen and any(
            command.has_effect and key in command.keys and command.actor != self.disturbed_actor
            for command in self.commands
        )

    def _missing(self) -> Sequence[Access]:
        """Return the lasting effects without the disturbance that nobody had here."""
        # A command that sets the value that its key has already counts as done.
        effective = (
            access
            for access in self.accesses
            if access.has_effect
            or (access.name in commands.REPEATABLE and not access.has_condition)
        )
        counts = Counter(aspect for access in effective for aspect in (access.shape, access.text))
        usual_counts = self.undisturbed.change_counts
        rarer = (
            access
            for access in self.undisturbed.accesses
            if counts[access.shape] < usual_counts[access.shape]
        )
        return [
            access
            for access in rarer
            if lasts(access, self.undisturbed.trial)
            and counts[access.text] < usual_counts[access.text]
        ]

    def _is_superseded(self, effect: Access) -> bool:
        """Return whether without the disturbance, too, nothing remains of an effect: ``SET status busy``
        is followed by ``SET status done``.
        """
        accesses = self.undisturbed.accesses
        later = accesses[accesses.index(effect) + 1 :]
        same = (
            access for access in later if (access.name, access.keys) == (effect.name, effect.keys)
        )
        return effect.name in commands.LOSES_UPDATES and any(
            {*access.fields} >= {*effect.fields} for access in same
        )

    @cached_property
    def lacks_work(self) -> bool:
        """Whether others could not write data that the disturbed client reads or takes without the
        disturbance, such as a record or an element: an effect of what does not exist is not lost.
        """
        if self.loss is None or self.loss.kind not in _LOSSES_OF_ALL:
            return False
        own = [
            access for access in self.undisturbed.accesses if access.actor == self.disturbed_actor
        ]
        sources = {key for access in own for key in access.keys}
        missing = _writes_by_root(self.undisturbed.trial) - _writes_by_root(self.trial)
        writes = (
            key._replace(writes=True) for root, key in missing if root != self.disturbed_actor
        )
        return any(write.conflicts(source) for write in writes for source in sources)

    def counts_attempts(self, access: Access) -> bool:
        """Return whether a command counts one more as the first write of every attempt of its client,
        besides other counters and what takes work: it counts the attempts.
        """
        if not _counts_one(access):
            return False
        first: dict[str, Access] = {}
        root, counted = access.actor, (access.name, access.keys, access.fields)
        for other in self.accesses:
            takes_work = other.name in OF_CONSUMERS | commands.CONSUMES | commands.MOVES
            if other.has_effect and not takes_work and other.actor == root:
                is_same = (other.name, other.keys, other.fields) == counted
                if is_same or not _counts_one(other):
                    first.setdefault(other.strand, other)
        return all((write.name, write.keys, write.fields) == counted for write in first.values())

    @property
    def left_keys(self) -> list[Touch]:
        """The keys that the disturbed client left, and that are gone without the disturbance."""
        return [
            access.keys[-1]
            for access in self.own_accesses
            if access.has_effect
            and self.trial.effects.remaining.get(access.keys[-1])
            and access.keys[-1] not in self.undisturbed.trial.effects.remaining
        ]


def _counts_one(access: Access) -> bool:
    """Return whether a command adds one to a counter."""
    is_number = access.name == "INCR" or access.bound.named("increment") == ("1",)
    return access.call is None and is_number and access.is_relative


def lasts(access: Access, trial: Trial) -> bool:
    """Return whether an effect remains at the end of a trial: something sent, or a key without TTL."""
    if access.call is not None:
        return access.has_effect and access.name in STORES
    return access.has_effect and any(trial.effects.remaining.get(key, False) for key in access.keys)


def _writes_by_root(trial: Trial) -> Counter[tuple[str, Touch]]:
    """Count the changes of each key or other subject by each client, worker or delivery."""
    return Counter(
        (access.actor, key)
        for access in trial.effects.accesses
        if access.has_effect
        for key in access.keys
    )


def effects_of(trial: Trial) -> Iterator[tuple[object, Access]]:
    """Yield the relative writes to keys that stay, and the keys, fields and members that are new.

    A second attempt may store the same data under another name, such as a random ID.
    """
    names: set[object] = set()
    for at, access in enumerate(trial.effects.accesses):
        if (
            access.call is not None
            or not access.has_effect
            or not trial.effects.remaining.get(access.keys[0])
        ):
            continue
        is_replaced = any(
            other.has_effect
            and other.name in commands.LOSES_UPDATES
            and access.keys[0] in other.keys
            and access.meets(other)
            for other in (trial.effects.accesses[at + 1 :] if access.is_relative else ())
            if other.call is None
        )
        if access.is_relative and not is_replaced and not is_id(access, trial.effects.accesses, at):
            yield access.text, access
        for created in (
            access.creates if access.name in commands.CREATES and not access.has_condition else ()
        ):
            if (subject_of(access), created) not in names:
                names.add((subject_of(access), created))
                # A field or member with a plain name is another effect than one with another name.
                is_named = access.name in commands.FIELDS and _WORD.fullmatch(created)
                yield (access.shape, created) if is_named else access.shape, access


def is_id(access: Access, accesses: Sequence[Access], at: int) -> bool:
    """Return whether a counter gives out numbers, one of which the client's next accesses contain, or
    is the version of a hash, which each write of the hash increases.
    """
    if access.name == "HINCRBY":
        near = [other for other in accesses[max(0, at - 1) : at + 2] if other.keys == access.keys]
        return access.words[-1] == "1" and any(other.name == "HSET" for other in near)
    counter: Any = (access.before[0] or b"0") if access.name == "INCR" else None
    if not isinstance(counter, bytes) or not re.fullmatch(rb"-?\d+", counter):
        return False
    number = re.compile(rf"\b{int(counter) + 1}\b")
    later = (other for other in accesses[at + 1 :] if other.strand == access.strand)
    return any(number.search(other.content) for other in later if other.keys != access.keys)
