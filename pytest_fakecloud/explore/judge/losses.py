"""What the loss of a call, a client or an answer keeps a client from, in a trial with one such loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...core.touches import Touch
from ...kv.table import kinds as commands
from ..values.accesses import Access
from ..values.disturbances import DELAYS, PAUSES, Disturbance, with_trait
from ..values.names import StrandName, actor_of
from ..values.trial import Trial
from .services import OF_CONSUMERS, STORES

if TYPE_CHECKING:
    from .evidence import Evidence

_LOSSES = with_trait("loss")
"""Kinds of disturbances that can keep a client from having an effect."""
_PAUSES_OF_ALL = PAUSES - DELAYS
"""Kinds of disturbances that pause all clients, and so change no order."""


def loss_in(trial: Trial, undisturbed: Evidence, workers: frozenset[str]) -> Loss | None:
    """Return the loss of a trial. None if there are other disturbances, except pauses of all clients at
    points of the worker that it hit.
    """
    losses = [disturbance for disturbance in trial.applied if disturbance.kind in _LOSSES]
    if len(losses) != 1:
        return None
    loss = Loss(losses[0], trial, undisturbed, workers)
    strand = loss.disturbance.strand if loss.is_of_worker else ""
    is_alone = all(
        disturbance.kind in _PAUSES_OF_ALL and disturbance.strand == strand
        for disturbance in trial.applied.without(losses).with_series(0)
    )
    return loss if is_alone else None


@dataclass(frozen=True, eq=False)
class Loss:
    """The only disturbance of a trial that can have kept a client from an effect, and what it lost."""

    disturbance: Disturbance
    _trial: Trial
    _undisturbed: Evidence
    _workers: frozenset[str]

    @cached_property
    def actor(self) -> str:
        """The client, worker or delivery that the disturbance hit."""
        return actor_of(self.disturbance.strand)

    @property
    def is_of_worker(self) -> bool:
        """Whether it is a worker, which starts again if it fails."""
        return self.actor in self._workers

    @property
    def is_of_delivery(self) -> bool:
        return StrandName.of(self.actor).is_delivery

    @cached_property
    def has_gone_on(self) -> bool:
        """Whether the disturbed worker or delivery ended its work later, and will not start again."""
        if not self.is_of_worker:
            return self.actor in map(actor_of, self._trial.effects.acknowledged)
        starts = [access.strand for access in self.own_accesses]
        has_crashed = self.disturbance.kind == "crash" and starts[-1:] == [self.disturbance.strand]
        return bool(starts) and starts[-1] not in self._trial.errors and not has_crashed

    @cached_property
    def own_accesses(self) -> list[Access]:
        """The accesses of the disturbed client and of its restarts."""
        return [access for access in self._trial.effects.accesses if access.actor == self.actor]

    @cached_property
    def lost_effects(self) -> Sequence[Access]:
        """The lasting effects that the disturbed client has without the disturbance, and that neither it
        nor anybody else had here. ``_NOTHING_IS_LOST`` and ``_IS_NOT_LOST`` are the exceptions.
        """
        if any(reason(self) for reason in _NOTHING_IS_LOST):
            return ()
        return [
            effect
            for effect in self._missing()
            if effect.actor == self.actor
            and not any(reason(self, effect) for reason in _IS_NOT_LOST)
        ]

    def _acts_otherwise(self) -> bool:
        """Return whether the disturbed client changes what nobody changes without the disturbance: it
        notes ``RPUSH failed 7``, for example, in place of ``SADD done 7``.
        """
        return any(
            access.has_effect
            and access.shape not in self._undisturbed.change_counts
            and access.name not in OF_CONSUMERS
            for access in self.own_accesses
        )

    def _is_dead_letter(self) -> bool:
        """Return whether a delivery has not succeeded: ``RPUSH orders`` was lost, each attempt answered
        500, and the dead letter waits for a person.
        """
        deliveries = {
            access.actor for access in self._trial.effects.accesses if access.made_by.is_delivery
        }
        return not deliveries <= set(map(actor_of, self._trial.effects.acknowledged))

    def _awaits_lease(self) -> bool:
        """Return whether a later attempt finds a key taken, which expires: ``SET lock relay/2 NX EX 60``
        fails as long as the lock of the relay that crashed lives.
        """
        return any(
            access.has_condition
            and not access.has_effect
            and self._trial.effects.remaining.get(access.keys[0]) is False
            for access in self._later_commands
        )

    @cached_property
    def _later_commands(self) -> list[Access]:
        """The commands of other starts or attempts of the disturbed client."""
        own = (access for access in self.own_accesses if access.call is None)
        return [command for command in own if command.strand != self.disturbance.strand]

    def _is_decided_against(self, effect: Access) -> bool:
        """Return whether a later attempt could see what somebody else wrote in place of an effect: bob
        has run ``SET owner bob``, and ann's second attempt reads it.
        """
        key = effect.keys[0]
        is_seen = any(key in later.keys and effect.meets(later) for later in self._later_commands)
        return is_seen and any(
            command.has_effect and key in command.keys and command.actor != self.actor
            for command in self._trial.effects.accesses
            if command.call is None
        )

    def _missing(self) -> Sequence[Access]:
        """Return the lasting effects without the disturbance that nobody had here."""
        # A command that sets the value that its key has already counts as done.
        effective = (
            access
            for access in self._trial.effects.accesses
            if access.has_effect
            or (access.name in commands.REPEATABLE and not access.has_condition)
        )
        counts = Counter(aspect for access in effective for aspect in (access.shape, access.text))
        undisturbed_counts = self._undisturbed.change_counts
        rarer = (
            access
            for access in self._undisturbed.accesses
            if counts[access.shape] < undisturbed_counts[access.shape]
        )
        return [
            access
            for access in rarer
            if lasts(access, self._undisturbed.trial)
            and counts[access.text] < undisturbed_counts[access.text]
        ]

    def _is_superseded(self, effect: Access) -> bool:
        """Return whether without the disturbance, too, nothing remains of an effect: ``SET status busy``
        is followed by ``SET status done``.
        """
        accesses = self._undisturbed.accesses
        later = accesses[accesses.index(effect) + 1 :]
        same = (
            access for access in later if (access.name, access.keys) == (effect.name, effect.keys)
        )
        return effect.name in commands.LOSES_UPDATES and any(
            {*access.fields} >= {*effect.fields} for access in same
        )

    def _lacks_work(self) -> bool:
        """Return whether others could not write data that the disturbed client reads or takes without
        the disturbance, such as a record or an element: an effect of what does not exist is not lost.
        """
        if self.disturbance.kind != "rotate_token":
            return False  # Only the rotation of a token keeps others from their effects, too.
        own = [access for access in self._undisturbed.accesses if access.actor == self.actor]
        sources = {key for access in own for key in access.keys}
        missing = _writes_by_actor(self._undisturbed.trial) - _writes_by_actor(self._trial)
        writes = (key._replace(writes=True) for actor, key in missing if actor != self.actor)
        return any(write.conflicts(source) for write in writes for source in sources)

    @property
    def left_keys(self) -> list[Touch]:
        """The keys that the disturbed client left, and that are gone without the disturbance."""
        return [
            access.keys[-1]
            for access in self.own_accesses
            if access.has_effect
            and self._trial.effects.remaining.get(access.keys[-1])
            and access.keys[-1] not in self._undisturbed.trial.effects.remaining
        ]


_NOTHING_IS_LOST = (
    Loss._lacks_work, Loss._acts_otherwise, Loss._is_dead_letter, Loss._awaits_lease
)  # fmt: skip
"""Why a disturbed client has lost nothing although effects are missing."""
_IS_NOT_LOST = Loss._is_decided_against, Loss._is_superseded
"""Why an effect that is missing is not lost."""


def lasts(access: Access, trial: Trial) -> bool:
    """Return whether an effect remains at the end of a trial: something sent, or a key without TTL."""
    if access.call is not None:
        return access.has_effect and access.name in STORES
    return access.has_effect and any(trial.effects.remaining.get(key, False) for key in access.keys)


def _writes_by_actor(trial: Trial) -> Counter[tuple[str, Touch]]:
    """Count the changes of each key or other subject by each client, worker or delivery."""
    return Counter(
        (access.actor, key)
        for access in trial.effects.accesses
        if access.has_effect
        for key in access.keys
    )
