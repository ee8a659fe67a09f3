"""The start and the end of each strand, and restarts of workers."""

from __future__ import annotations

import threading

from ...core.errors import ContractError, broken_promise, ends_the_test
from ..run import Operation
from .deliveries import Due
from .loops import awaited
from .state import Part, RunState
from .strands import Strand, Waiting, Work

MOST_STARTS = 12
"""Maximum number of times that one worker is started."""
MOST_RESTARTS_WITHOUT_PROGRESS = 3
"""Maximum number of restarts of a worker while a group's committed offsets and lag stay the same."""


class Lifecycle(Part):
    """Runs the code of strands, and records their starts and outcomes."""

    def __init__(self, state: RunState, restarts: WorkerRestarts) -> None:
        super().__init__(state)
        self._restarts = restarts
        self._operations: dict[str, Operation] = {}
        """The operation of each client, by the client's title."""

    def perform(self, strand: Strand) -> object:
        """Run a strand's code, and return what it returns or, for a coroutine, awaits."""
        result = strand.body()
        self._connections.finish_calls(strand)
        return awaited(self._world, result)

    def begins(self, strand: Strand) -> None:
        """Record the start of a strand; for a client, also the start of an operation."""
        self._run.strands.add(strand.name)
        if strand.role == "client":
            operation = self._record.begin(strand.title, strand.title, (), {})
            self._operations[strand.title] = operation
            self._record.history.clients.append(operation)

    def new_thread(self, parent: Strand, thread: threading.Thread) -> Strand:
        self._connections.finish_calls(parent)
        target = getattr(thread, "_target", None)
        name = getattr(target, "__name__", "").strip("_")
        name = name if name.isidentifier() else "thread"
        name = self._state.new_name(f"{parent.root.title}+{name}")
        self._state.created_by[name] = len(self._run.steps) - 1
        child = Strand(name, "thread", parent=parent, thread=-1, is_daemon=thread.daemon)
        return self._state.add(child)

    def ended(self, strand: Strand) -> None:
        """Store the result of a strand; report a failed delivery; restart a worker that failed."""
        error = strand.error
        if (outcome := ends_the_test(error)) is not None:
            raise outcome
        if strand.crashed:
            strand.root.crashed = True
            self._connections.cut(lambda owner: owner.root is strand.root)
        self._store_outcome(strand)
        if strand.due is not None:
            self._report_delivery(strand.name, strand.due)
        if strand.crashed or (error is not None and broken_promise(error) is None):
            self._restarts.leave_groups(strand)
            if strand.role == "worker" and strand.work.starts < MOST_STARTS:
                self._restarts.start_again(strand, failed=True)

    def _store_outcome(self, strand: Strand) -> None:
        history, error = self._record.history, strand.error
        if strand.crashed and strand.root is strand:
            history.crashed.append(strand.title)
        has_returned = error is None and not strand.crashed
        if strand.role in ("client", "worker") and has_returned:
            history.results[strand.title] = strand.result
        if strand.role != "delivery" and error is not None:
            history.errors[strand.title] = error
        if strand.role == "client":
            operation = self._operations[strand.title]
            operation.error = error
            if has_returned:
                self._record.end(operation, strand.result)
            else:
                self._record.touch_history(writes=True)

    def _report_delivery(self, name: str, due: Due) -> None:
        """Add a line to the story if a delivery has failed."""
        self._record.touch_message(due)
        attempt = due.message.attempts[-1]
        if attempt.state != "delivered":
            said = attempt.status if attempt.status is not None else "nothing"
            again = ", so it is retried" if due.message.state == "RETRY" else ""
            self._record.add_line(name, f"answered {said}{again}")

    def unhandled(self, error: BaseException) -> None:
        """Called with an exception of a task that no code awaited."""
        broken = broken_promise(error)
        if broken is not None:
            self._run.broken = self._run.broken or broken
        else:
            self._run.notes[f"a task raised {error!r}, which no code awaited"] = None


class WorkerRestarts(Part):
    """Starts workers again, each at most ``MOST_STARTS`` times."""

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._starts: dict[tuple[object, ...], set[int]] = {}

    def may_begin(self, now: int) -> bool:
        # Start workers only if no delivery or sleep is pending, so that they have work to do.
        if self._world.deliveries.next_us(after_us=now) is not None:
            return False
        return not any(
            s.state == "waiting" and s.waiting.wake_us is not None and not s.is_daemon
            for s in self._state.strands
        )

    def again(self, now: int) -> Strand | None:
        """Restart a worker that ended before all of its work existed; return its new strand or None.

        A worker has work left if a group of its consumers has not committed all records, or if
        another strand has made a call after the worker's first one.
        """
        if not self.may_begin(now):
            return None
        latest: dict[str, Strand] = {}
        for strand in reversed(self._state.strands):
            if strand.role == "worker":
                latest.setdefault(_program(strand), strand)
        for strand in reversed(latest.values()):  # the worker that started first comes first
            if strand.state != "ended" or strand.work.starts >= MOST_STARTS:
                continue
            has_backlog = self._note_backlog(strand)
            if has_backlog:
                self.leave_groups(strand)
            if has_backlog or self._may_have_missed_work(strand):
                return self.start_again(strand)
        return None

    def _note_backlog(self, strand: Strand) -> bool:
        """Note a start that left records; return whether another restart may change that."""
        backlog = self._backlog(strand)
        if not backlog:
            return False
        starts = self._starts.setdefault((_program(strand), backlog), set())
        starts.add(strand.work.starts)
        return len(starts) <= MOST_RESTARTS_WITHOUT_PROGRESS

    def _may_have_missed_work(self, strand: Strand) -> bool:
        """Return whether another strand may have created work after the worker looked for it."""
        return any(
            other.work.last_call > strand.work.first_call
            and (other.role != "worker" or other.work.is_restart)
            for other in self._state.strands
            if other.root is other
            and not (other.role == "worker" and _program(other) == _program(strand))
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
        name = f"{_program(strand)}/{before + 1}"
        again = self._state.add(Strand(name, "worker", strand.body, work=Work(before + 1, failed)))
        if failed:
            # Double the pause before each restart, as process managers do.
            pause_us = 1_000_000 * min(2 ** (before - 1), 30)
            again.waiting = Waiting(wake_us=self._world.now_us() + pause_us)
        else:
            self._run.idle_restarts.add(name)
        return again

    def leave_groups(self, strand: Strand) -> None:
        for broker, group, instance in sorted(strand.work.consumers, key=lambda one: one[1:]):
            try:
                broker.group(group).expire(instance)
            except ContractError:
                continue  # the consumer has already left
            self._record.add_line(strand.name, f"the session of {instance} in {group} ended")


def _program(worker: Strand) -> str:
    """Return the name of the program that a worker runs, which is the name of its first start."""
    return worker.title.partition("/")[0]
