"""Restarts of workers that ended before all of their work existed, or that failed."""

from __future__ import annotations

from ...core.errors import ContractError
from ..runtime.strands import Strand
from .state import RunState

MOST_STARTS = 12
"""Maximum number of times that one worker is started."""
MOST_RESTARTS_WITHOUT_PROGRESS = 3
"""Maximum number of restarts of a worker while a group's committed offsets and lag stay the same."""


class WorkerRestarts:
    """Starts workers again, each at most ``MOST_STARTS`` times."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._world = state.world
        self._record = state.record
        self._starts: dict[tuple[object, ...], set[int]] = {}

    def may_begin(self, now: int) -> bool:
        # Start workers only if no delivery or sleep is pending, so that they have work to do.
        if self._world.deliveries.next_us(after_us=now) is not None:
            return False
        return not any(
            s.state == "waiting" and s.wake_us is not None and not s.is_daemon
            for s in self._state.strands
        )

    def again(self, now: int) -> Strand | None:
        """Restart a worker that ended before all of its work existed; return its new strand or None.

        A worker has work left if a group of its consumers has not committed all records, or if
        another strand has made a call after the worker's first one.
        """
        if not self.may_begin(now):
            return None
        latest = {_program(s): s for s in self._state.strands if s.role == "worker"}
        for strand in [s for s in self._state.strands if s in latest.values()]:
            if strand.state != "ended" or strand.starts >= MOST_STARTS:
                continue
            has_backlog = self._may_try_backlog(strand)
            if has_backlog:
                self.leave_groups(strand)
            if has_backlog or self._may_have_missed_work(strand):
                return self.start_again(strand)
        return None

    def _may_try_backlog(self, strand: Strand) -> bool:
        """Return whether records are left, and the last restarts have changed something."""
        backlog = self._backlog(strand)
        if not backlog:
            return False
        starts = self._starts.setdefault((_program(strand), backlog), set())
        starts.add(strand.starts)
        return len(starts) <= MOST_RESTARTS_WITHOUT_PROGRESS

    def _may_have_missed_work(self, strand: Strand) -> bool:
        """Return whether another strand may have created work after the worker looked for it."""
        return any(
            other.last_call > strand.first_call and (other.role != "worker" or other.is_restart)
            for other in self._state.strands
            if other.root is other
            and not (other.role == "worker" and _program(other) == _program(strand))
        )

    def _backlog(self, strand: Strand) -> tuple[object, ...]:
        """Return the offsets and lag of each group that has not committed all records."""
        groups = {(broker, group) for broker, group, _ in strand.members}
        views = [broker.group(group) for broker, group in groups if group in broker.groups()]
        return tuple(
            (view.name, tuple(view.committed.items()), view.total_lag)
            for view in sorted(views, key=lambda view: view.name)
            if view.total_lag
        )

    def start_again(self, strand: Strand, *, failed: bool = False) -> Strand:
        starts = strand.starts + 1
        name = f"{_program(strand)}/{starts}"
        again = Strand(name, "worker", strand.body, starts=starts, is_restart=failed)
        if failed:
            # Double the pause before each restart, as process managers do.
            again.wake_us = self._world.now_us() + 1_000_000 * min(2 ** (strand.starts - 1), 30)
        self._state.add(again)
        if not failed:
            self._record.run.looks.add(name)
        return again

    def leave_groups(self, strand: Strand) -> None:
        for broker, group, instance in sorted(strand.members, key=lambda one: one[1:]):
            try:
                broker.expire(group, instance)
            except ContractError:
                continue  # the consumer has already left
            self._record.say(strand.name, f"the session of {instance} in {group} ended")


def _program(worker: Strand) -> str:
    """Return the name of the program that a worker runs, which is the name of its first start."""
    return worker.title.partition("/")[0]
