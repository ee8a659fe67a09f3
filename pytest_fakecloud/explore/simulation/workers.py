"""Restarts of workers, which end when they find no work, or fail."""

from __future__ import annotations

from ...cloud.fake import Fake
from ...core.errors import ContractError
from ...http.messages import Request
from ..values.names import StrandName
from .part import Common, Part
from .strand import Strand, Work

MOST_STARTS = 12
"""Maximum number of times that one worker is started."""
MOST_RESTARTS_WITHOUT_PROGRESS = 3
"""Maximum number of restarts of a worker while a group's committed offsets and lag stay the same."""


class Workers(Part):
    """Starts workers again while there may be work for them."""

    def __init__(self, common: Common) -> None:
        super().__init__(common)
        self._starts: dict[tuple[object, ...], set[int]] = {}
        """The starts that left the same records, by program and backlog."""
        self._calls = 0
        """The number of calls of the trial so far."""

    def note_call(self, strand: Strand, fake: Fake, request: Request) -> None:
        """Note a call, which may create work, look for work, or join a group."""
        self._calls += 1
        work = strand.root.work
        work.last_call = self._calls
        work.first_call = work.first_call or self._calls
        if fake.fixture == "broker" and request.route in ("consume", "commit"):
            group, instance = request.params.get("group"), request.params.get("instance")
            if group and instance:
                work.consumers.add((fake, group, instance))

    def may_begin(self, now: int) -> bool:
        # Start workers only if no delivery or sleep is pending, so that they have work to do.
        if self._fakes.deliveries.next_us(after_us=now) is not None:
            return False
        return not any(
            strand.state == "waiting"
            and strand.waiting.wake_us is not None
            and not strand.is_daemon
            for strand in self._strands
        )

    def to_restart(self, now: int) -> Strand | None:
        """Return a worker that has left work, or that ended before all of its work existed, or None."""
        if not self.may_begin(now):
            return None
        latest: dict[str, Strand] = {}
        for strand in reversed(self._strands):
            if strand.type == "worker":
                latest.setdefault(_program(strand), strand)
        for strand in reversed(latest.values()):  # the worker that started first comes first
            can_restart = strand.state == "ended" and strand.work.starts < MOST_STARTS
            if can_restart and (self._has_left_work(strand) or self._may_have_missed_work(strand)):
                return strand
        return None

    def restart(self, strand: Strand) -> Strand:
        """Restart a worker; return its new strand."""
        if self._has_left_work(strand):
            key = _program(strand), self._backlog(strand)
            self._starts.setdefault(key, set()).add(strand.work.starts)
            self.leave_groups(strand)
        return self.start_again(strand)

    def _has_left_work(self, strand: Strand) -> bool:
        """Return whether a start left records, and another one may change that."""
        backlog = self._backlog(strand)
        starts = {*self._starts.get((_program(strand), backlog), ()), strand.work.starts}
        return bool(backlog) and len(starts) <= MOST_RESTARTS_WITHOUT_PROGRESS

    def _may_have_missed_work(self, strand: Strand) -> bool:
        """Return whether another strand may have created work after the worker looked for it."""
        return any(
            other.work.last_call > strand.work.first_call
            and (other.type != "worker" or other.work.follows_failure)
            for other in self._strands
            if other.root is other
            and not (other.type == "worker" and _program(other) == _program(strand))
        )

    def _backlog(self, strand: Strand) -> tuple[object, ...]:
        """Return the offsets and lag of each group that has not committed all records."""
        groups = {(broker, group) for broker, group, _ in strand.work.consumers}
        views = [
            view._described()
            for broker, group in groups
            for view in broker.groups()
            if view.name == group
        ]
        return tuple(
            (view.name, tuple(view.committed.items()), view.total_lag)
            for view in sorted(views, key=lambda view: view.name)
            if view.total_lag
        )

    def start_again(self, strand: Strand, *, failed: bool = False) -> Strand:
        """Add the worker's next start; one that failed pauses first."""
        before = strand.work.starts
        name = str(StrandName(_program(strand), before + 1))
        new_start = self._strands.add(
            Strand(name, "worker", strand.body, work=Work(before + 1, failed))
        )
        if failed:
            # Double the pause before each restart, as process managers do.
            pause_us = 1_000_000 * min(2 ** (before - 1), 30)
            new_start.start_at(self._fakes.now_us() + pause_us)
        else:
            self._log.idle_restarts.add(name)
        return new_start

    def leave_groups(self, strand: Strand) -> None:
        for broker, group, instance in sorted(
            strand.work.consumers, key=lambda consumer: consumer[1:]
        ):
            try:
                broker.group(group).expire(instance)
            except ContractError:
                continue  # the consumer has already left
            self._log.add_line(strand.scheduled_name, f"the session of {instance} in {group} ended")


def _program(worker: Strand) -> str:
    """Return the name of the program that a worker runs, which is the name of its first start."""
    return StrandName.of(worker.name).program
