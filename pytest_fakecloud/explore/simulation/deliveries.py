"""Deliveries of the queue, with the events that the schedule contains for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.fatal_errors import broken_promise
from ...queue.model import Outcome
from ..call_events import delivery_words
from ..runtime.deliveries import Due
from ..runtime.strands import Strand
from ..schedule import Kind
from .state import RunState

if TYPE_CHECKING:
    from ...queue.delivery.destination_routes import DestinationRoute
    from ...queue.model import Delivery


class DeliveryStrands:
    """Begins deliveries as strands, and performs them."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._world = state.world
        self._record = state.record
        self._mishaps: dict[str, tuple[str, ...]] = {}
        self._losses: dict[str, list[str]] = {}

    def begin(self, due: Due) -> Strand | None:
        kinds: list[tuple[Kind, str]] = [("duplicate", ""), ("crash_after_answer", "")]
        left = due.message.max_retries - due.message.retried
        if left > 0:
            kinds += [("fail", str(left))] if left > 1 else []
            kinds.append(("unreachable", "1"))
            kinds += [("unreachable", str(left))] if left > 1 else []
        kinds += [("fail", str(left + 1)), ("unreachable", str(left + 1))]
        self._record.note(due.name, 0, kinds)
        possible = ("duplicate", "crash_after_answer", "fail", "unreachable")
        hit = [event for event in self._state.schedule.at(due.name, 0) if event.kind in possible]
        self._mishaps[due.message.id] = tuple(
            e.kind for e in hit if e.kind in ("duplicate", "crash_after_answer")
        )
        for event in hit:
            if event.kind in ("fail", "unreachable"):
                first = ["unheard"] if event.kind == "fail" else []
                rest = int(event.detail or 1) - len(first)
                self._losses[due.message.public_id] = first + ["unreachable"] * rest
        self._record.touch_message(due)
        body = due.begin()
        if body is None:
            return None
        self._record.run.fired += hit
        strand = self._state.add(Strand(due.name, "delivery", body, due))
        strand.began_us = self._world.now_us()
        strand.patience_us = max(0, due.message.timeout_us - 1000)
        self._state.created_by[due.name] = len(self._record.run.steps) - 1
        self._record.say(due.name, delivery_words(due, hit), event=bool(hit))
        return strand

    def perform(
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
            handled = self._record.run.handled.setdefault((route.where, route.prefix), [])
            handled.append(outcome.exception is None)
        broken = broken_promise(outcome.exception) if outcome.status is not None else None
        if broken is not None:
            self._record.run.broken = self._record.run.broken or broken
        if loss == "unheard":
            error = ConnectionError("the answer was lost")
            return Outcome(exception=error, where=outcome.where)
        return outcome

    def faults_of(self, message_id: str) -> tuple[str, ...]:
        """Return the faults that apply to a delivery that is about to begin."""
        return self._mishaps.pop(message_id, ())
