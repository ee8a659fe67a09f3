"""Event loops of strands: a loop that waits lets other strands run, and its tasks are strands."""

from __future__ import annotations

import math

from ...core.touches import READS_CLOCK
from ..values.limits import OTHER_SERVERS
from .event_loop import EventLoop
from .part import Part
from .turns import Waiting


class Loops(Part):
    """What happens in the event loops of a trial."""

    def start(self, loop: EventLoop) -> None:
        """Called when a loop starts: its strand gets a main task, to which its present tasks belong."""
        host = self._current_thread.host()
        if host is None or host.loop is loop:
            return
        loop.strand = host
        main = host.start_loop(loop)
        if main is not None:
            self._strands.add(main)
            for task in loop.pending_tasks():
                self._strands.tasks[task] = main

    def end(self, loop: EventLoop) -> None:
        """Called when a loop ends, and with it all its tasks."""
        host = self._current_thread.host()
        if host is None or host.loop is not loop:
            return
        host.end_loop()
        tasks = [
            strand for strand in self._strands if strand.role == "task" and strand.host is host
        ]
        for strand in sorted(tasks, key=lambda strand: strand.rested_at):
            while strand.state == "parked":
                # A request may still wait for its turn after its task has ended, e.g. because of a
                # timeout. The fake handles it, because it has already been sent.
                strand.go_on()
                strand.release()
            strand.end()
            strand.release()

    def idle(self, loop: EventLoop, timeout: float | None) -> bool:
        """Let other strands run while an event loop waits; return False if it is not explored here."""
        host = loop.strand
        if (
            host is None
            or self._current_thread.is_checking_promise()
            or self._current_thread.host() is not host
        ):
            return False
        self._turns.check_alive(host)
        if self._fakes.clock.is_moving:
            return True
        if loop.has_strangers() and loop.has_events(OTHER_SERVERS):
            return True
        wake_us = None
        if timeout is not None:
            wake_us = self._fakes.now_us() + math.ceil(timeout * 1e6)
            self._log.touch([READS_CLOCK])
        # A switch names this place in the loop by the last point of its main task.
        host.points = 0 if host.main_task is None else host.main_task.points
        self._turns.yield_turn_of_loop(host, Waiting(loop.has_events, wake_us, is_of_loop=True))
        return True

    def add_task(self, task: object, is_inner: bool) -> None:
        """Called when a task is created. An *inner* one belongs to the task that creates it."""
        creator = self._current_thread.registered_strand()
        if is_inner and creator is not None and creator.role == "task":
            self._strands.tasks[task] = creator

    def note_unhandled(self, error: BaseException) -> None:
        if not self._log.note_error(error):
            self._log.note(f"a task raised {error!r}, which no code awaited")
