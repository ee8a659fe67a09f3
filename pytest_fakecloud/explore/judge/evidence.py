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
from ..values.trial import Trial
from .losses import Loss, loss_in
from .services import deletes_no_vector, subject_of

_WORD = re.compile(r"[A-Za-z_-]{1,14}")
"""The name of a field or member that a program contains, unlike an ID."""


Findings = Iterator[tuple[str, str]]
"""Subjects of a pattern, each with what happened in words."""


class Evidence:
    """What patterns look at: the accesses of a trial, and those of the trial without disturbances."""

    def __init__(
        self,
        trial: Trial,
        undisturbed: Evidence | None,
        workers: frozenset[str],
        unserial_differences: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.trial = trial
        self.undisturbed = self if undisturbed is None else undisturbed
        """That of the trial without disturbances, shared by all trials that are compared with it."""
        self.workers = workers
        """The names of the programs that start again when they fail."""
        self.unserial_differences = unserial_differences
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

    @cached_property
    def loss(self) -> Loss | None:
        return loss_in(self.trial, self.undisturbed, self.workers)

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
    def effect_counts(self) -> Counter[object]:
        return Counter(effect for effect, _ in effects_of(self.trial))

    @cached_property
    def effect_counts_by_actor(self) -> Counter[tuple[object, str]]:
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


def described(*accesses: Access) -> str:
    """Return accesses in words, in their order."""
    return ", then ".join(f"{access.strand}: {access.summary}" for access in accesses)


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
    """Return whether a counter gives out numbers, one of which later accesses of its strand contain, or
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
