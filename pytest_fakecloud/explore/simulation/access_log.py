"""What the code accesses in a trial, by step and by command."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ...core.touches import Touch
from ...kv.touches import key_of_touch
from ...queue.touches import touches_of_delivery
from ..fakes.deliveries import DueDelivery
from ..fakes.fakes import Fakes
from ..fakes.fingerprint import Fingerprints, content_of
from ..values.accesses import Access
from ..values.footprint import CHECKS_PROMISE, CommandLine
from ..values.schedule import Schedule
from ..values.trial import Effects, Step
from .current_thread import ThreadInTrial
from .script import Script


@dataclass(slots=True)
class AccessLog:
    """What has been accessed so far: the footprints of the steps, the commands with the values that they
    found, and from these the fingerprints of states and the effects on the fakes.
    """

    _fakes: Fakes
    _script: Script
    _current_thread: ThreadInTrial
    fingerprints: Fingerprints = field(init=False)
    steps: list[Step] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    _running: tuple[Access, Any, Sequence[bytes], list[str]] | None = None
    """The latest command that writes, its database, its keys, and their contents before it."""

    def __post_init__(self) -> None:
        self.fingerprints = Fingerprints(self._fakes)

    def touch(self, touches: Collection[Touch]) -> None:
        """Record accesses of the code to data, before they happen: for the fingerprints and, with steps,
        in the footprint of the running one.
        """
        if self._current_thread.is_checking_promise():
            return
        self.fingerprints.note(touches)
        if self.steps:
            footprint = self.steps[-1].footprint
            for touch in touches:
                footprint.add(touch)
                if touch.writes and self._script.subject.promises.at_step:
                    footprint.add(CHECKS_PROMISE)

    def touch_message(self, due: DueDelivery) -> None:
        self.touch([*touches_of_delivery(due.queue.name, due.first_name, due.message)])

    def touch_lock(self, name: str) -> None:
        self.touch([Touch("", "lock", name, True)])

    def note_access(self, session: Any, line: CommandLine) -> None:
        """Record a command with the values of its keys, for the search for anomalies."""
        self.note_changes()
        strand = self._current_thread.executing()
        if strand is None or not line.keys:
            return
        name, now = strand.scheduled_name, self._fakes.now_us()
        unit = strand.line if session.in_script else object()
        before = tuple(map(session.db.find, line.key_names))
        access = Access(
            name, unit, line.words, line.keys, before, line.writes, now, bound=line.bound
        )
        self.accesses.append(access)
        if line.writes:
            self._running = access, session.db.values, line.key_names, [*map(content_of, before)]

    def note_changes(self) -> None:
        """Note whether the latest command has changed its keys, now that it has run."""
        if self._running is not None:
            access, values, names, contents = self._running
            access.has_changed = [content_of(values.get(name)) for name in names] != contents
            self._running = None

    def effects(self, applied: Schedule, acknowledged: Set[str]) -> Effects:
        """Return what the trial has done to the data of the fakes, before a check changes them, with
        these disturbances and acknowledged deliveries.
        """
        # Only trials in which nothing but the order of calls differs are compared by what they leave.
        left, left_with_ttl = self.fingerprints.left() if applied.has_only_orders else ({}, {})
        remaining: dict[Touch, bool] = {}
        pending: set[Touch] = set()
        for access in self.accesses:
            for key in access.keys:
                keyspace = self._fakes.keyspaces.get((key.fake, key.kind))
                name = key_of_touch(key)
                if keyspace is not None and name in keyspace.values:
                    remaining[key] = name not in keyspace.expires
                    groups: dict[Any, Any] = getattr(keyspace.values[name], "groups", {})
                    if any(group.pending for group in groups.values()):
                        pending.add(key)
        return Effects(self.accesses, remaining, left, left_with_ttl, pending, acknowledged)
