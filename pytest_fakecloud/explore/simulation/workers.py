"""Deliveries of the queue and restarts of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.errors import ContractError
from ...core.fatal_errors import broken_promise
from ...queue.model import Outcome
from ..call_events import delivery_words
from ..runtime.deliveries import Due
from ..runtime.strands import Strand
from ..schedule import Kind
from .clock import ClockMoves

if TYPE_CHECKING:
    from ...queue.delivery.destination_routes import DestinationRoute
    from ...queue.model import Delivery

MOST_STARTS = 12
"""Maximum number of times that one worker is started."""
MOST_ATTEMPTS = 3
"""Maximum number of restarts of a worker while a group's committed offsets and lag stay the same."""


class Workers(ClockMoves):
    """Begins and performs the queue's deliveries, and starts workers again."""

    def _begin_delivery(self, due: Due) -> Strand | None:
        kinds: list[tuple[Kind, str]] = [("duplicate", ""), ("crash_after_answer", "")]
        left = due.message.max_retries - due.message.retried
        if left > 0:
            kinds += [("fail", str(left))] if left > 1 else []
            kinds.append(("unreachable", "1"))
            kinds += [("unreachable", str(left))] if left > 1 else []
        kinds += [("fail", str(left + 1)), ("unreachable", str(left + 1))]
        self._note(due.name, 0, kinds)
        possible = ("duplicate", "crash_after_answer", "fail", "unreachable")
        hit = [event for event in self._schedule.at(due.name, 0) if event.kind in possible]
        self._mishaps[due.message.id] = tuple(
            e.kind for e in hit if e.kind in ("duplicate", "crash_after_answer")
        )
        for event in hit:
            if event.kind in ("fail", "unreachable"):
                first = ["unheard"] if event.kind == "fail" else []
                rest = int(event.detail or 1) - len(first)
                self._losses[due.message.public_id] = first + ["unreachable"] * rest
        self._touch_message(due)
        body = due.begin()
        if body is None:
            return None
        self.run.fired += hit
        strand = self._add(Strand(due.name, "delivery", body, due))
        strand.began_us = self._world.now_us()
        strand.patience_us = max(0, due.message.timeout_us - 1000)
        self._by[due.name] = len(self.run.steps) - 1
        self._say(due.name, delivery_words(due, hit), event=bool(hit))
        return strand

    def perform_delivery(
        self,
        delivery: Delivery,
        perform: Callable[..., Outcome],
        route: DestinationRoute | None,
    ) -> Outcome:
        """Perform a delivery, or lose it if the schedule says so."""
        losses = self._losses.get(delivery.message_id)
        loss = losses.pop(0) if losses else ""
        if loss == "unreachable":
            error = ConnectionError("the connection was refused")
            return Outcome(exception=error, refused=True, where="explore")
        outcome = perform(delivery)
        if route is not None and route.where in ("call", "wsgi", "asgi"):
            # Count only exceptions as failures, because a handler may answer 500 on purpose.
            handled = self.run.handled.setdefault((route.where, route.prefix), [])
            handled.append(outcome.exception is None)
        broken = broken_promise(outcome.exception) if outcome.status is not None else None
        if broken is not None:
            self.run.broken = self.run.broken or broken
        if loss == "unheard":
            error = ConnectionError("the answer was lost")
            return Outcome(exception=error, where=outcome.where)
        return outcome

    def faults_of(self, message_id: str) -> tuple[str, ...]:
        """Return the faults that apply to a delivery that is about to begin."""
        return self._mishaps.pop(message_id, ())

    def _workers_may_begin(self, now: int) -> bool:
        # Start workers only if no delivery or sleep is pending, so that they have work to do.
        if self._world.deliveries.next_us(after_us=now) is not None:
            return False
        return not any(
            s.state == "waiting" and s.wake_us is not None and not s.is_daemon
            for s in self._strands
        )

    def _worker_again(self, now: int) -> Strand | None:
        """Restart a worker that ended before all of its work existed, and return its strand, or
        return None.
        """
        if not self._workers_may_begin(now):
            return None
        for strand in list(self._strands):
            if strand.role != "worker" or strand.starts >= MOST_STARTS or strand.state != "ended":
                continue
            program = _program(strand)
            own = [s for s in self._strands if s.role == "worker" and _program(s) == program]
            if strand is not own[-1]:
                continue
            behind = self._backlog(strand)
            if behind:
                starts = self._starts.setdefault((program, behind), set())
                starts.add(strand.starts)
                behind = behind if len(starts) <= MOST_ATTEMPTS else ()
            if behind:
                self._leave_groups(strand)
            # The worker may have checked for work before another strand created it.
            if behind or any(
                other.last_call > strand.first_call and (other.role != "worker" or other.is_restart)
                for other in self._strands
                if other not in own and other.root is other
            ):
                return self._start_again(strand)
        return None

    def _backlog(self, strand: Strand) -> tuple[object, ...]:
        """Return the offsets and lag of each group that has not committed all records."""
        groups = {(broker, group) for broker, group, _ in strand.members}
        views = [broker.group(group) for broker, group in groups if group in broker.groups()]
        return tuple(
            (view.name, tuple(view.committed.items()), view.total_lag)
            for view in sorted(views, key=lambda view: view.name)
            if view.total_lag
        )

    def _start_again(self, strand: Strand, *, failed: bool = False) -> Strand:
        starts = strand.starts + 1
        name = f"{_program(strand)}/{starts}"
        again = Strand(name, "worker", strand.body, starts=starts, is_restart=failed)
        if failed:
            # Double the pause before each restart, as process managers do.
            again.wake_us = self._world.now_us() + 1_000_000 * min(2 ** (strand.starts - 1), 30)
        self._add(again)
        if not failed:
            self.run.looks.add(name)
        return again

    def _leave_groups(self, strand: Strand) -> None:
        for broker, group, instance in sorted(strand.members, key=lambda one: one[1:]):
            try:
                broker.expire(group, instance)
            except ContractError:
                continue  # the consumer has already left
            self._say(strand.name, f"the session of {instance} in {group} ended")


def _program(worker: Strand) -> str:
    """Return the name of the program that a worker runs, which is the name of its first start."""
    return worker.title.partition("/")[0]
