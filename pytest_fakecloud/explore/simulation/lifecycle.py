"""The start, the code and the end of each strand."""

from __future__ import annotations

import inspect
from typing import Any

from ...core.fatal_errors import broken_promise, ends_the_test
from ..history import Operation, begin_client, end
from ..runtime.deliveries import Due
from ..runtime.loops import await_in_own_loop
from ..runtime.strands import Strand
from .state import RunState
from .workers import MOST_STARTS, WorkerRestarts


class Lifecycle:
    """Runs the code of strands, and records their starts and outcomes."""

    def __init__(self, state: RunState, restarts: WorkerRestarts) -> None:
        self._restarts = restarts
        self._world = state.world
        self._record = state.record
        self._connections = state.connections
        self._operations: dict[str, Operation] = {}
        """The operation of each client, by the client's title."""

    def perform(self, strand: Strand) -> object:
        """Run the code of a strand and return its result."""
        if inspect.iscoroutinefunction(strand.body):
            return await_in_own_loop(self._world, strand.body)
        result = strand.body()
        self._connections.finish_calls(strand)
        if inspect.iscoroutine(result):
            return await_in_own_loop(self._world, lambda: _awaited(result))
        return result

    def begins(self, strand: Strand) -> None:
        """Record the start of a strand; for a client, also the start of an operation."""
        self._record.run.strands.add(strand.name)
        strand.began_us = strand.began_us or self._world.now_us()
        if strand.role == "client":
            self._operations[strand.title] = begin_client(self._record.history, strand.title)
            self._record.touch_history(False)

    def ended(self, strand: Strand) -> None:
        """Store the result of a strand, and restart a worker that failed."""
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
            if strand.role == "worker" and strand.starts < MOST_STARTS:
                self._restarts.start_again(strand, failed=True)

    def _store_outcome(self, strand: Strand) -> None:
        """Store the result or the error of a strand in the history."""
        history, error = self._record.history, strand.error
        if strand.crashed and strand.root is strand:
            history.crashed.append(strand.title)
        has_returned = error is None and not strand.crashed
        if strand.role in ("client", "worker") and has_returned:
            history.results[strand.title] = strand.result
        if strand.role != "delivery" and error is not None:
            history.errors[strand.title] = error
        if strand.role == "client":
            self._record.touch_history(True)
            operation = self._operations[strand.title]
            operation.error = error
            if has_returned:
                end(history, operation, strand.result)

    def _report_delivery(self, name: str, due: Due) -> None:
        """Add a line to the story if a delivery has failed."""
        self._record.touch_message(due)
        attempt = due.message.attempts[-1]
        if attempt.state != "delivered":
            said = attempt.status if attempt.status is not None else "nothing"
            again = ", so it is retried" if due.message.state == "RETRY" else ""
            self._record.say(name, f"answered {said}{again}")

    def unhandled(self, error: BaseException) -> None:
        """Called with an exception of a task that no code awaited."""
        broken = broken_promise(error)
        if broken is not None:
            self._record.run.broken = self._record.run.broken or broken
        else:
            self._record.run.notes[f"a task raised {error!r}, which no code awaited"] = None


async def _awaited(value: Any) -> Any:
    return await value
