"""Deliveries of the queue, with the events that the schedule contains for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from ...core.fatal_errors import broken_promise
from ...queue.model import Outcome
from ..call_events import delivery_words
from ..runtime.deliveries import Due
from ..runtime.strands import Strand
from ..schedule import Event, Kind
from .state import RunState

if TYPE_CHECKING:
    from ...queue.delivery.destination_routes import DestinationRoute
    from ...queue.model import Delivery

Loss = Literal["unreachable", "unheard"]
"""A lost delivery: its destination is not reached, or the answer of its destination is lost."""
_FAULTS: tuple[Kind, ...] = ("duplicate", "crash_after_answer")
_KINDS: tuple[Kind, ...] = (*_FAULTS, "fail", "unreachable")
"""The events that are possible at the start of a delivery."""


class DeliveryStrands:
    """Begins deliveries as strands, and performs them."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._world = state.world
        self._record = state.record
        self._faults: dict[str, tuple[str, ...]] = {}
        """The faults of the next delivery of each message, by the message's internal ID."""
        self._losses: dict[str, list[Loss]] = {}
        """The losses of the next deliveries of each message, by the message's public ID."""

    def begin(self, due: Due) -> Strand | None:
        """Begin a delivery; return its strand, or None if the delivery must wait."""
        self._record.note(due.name, 0, _possible_events(due))
        events = [e for e in self._state.schedule.at(due.name, 0) if e.kind in _KINDS]
        self._plan(due, events)
        self._record.touch_message(due)
        body = due.begin()
        if body is None:
            return None
        self._record.run.fired += events
        strand = self._state.add(Strand(due.name, "delivery", body, due))
        strand.began_us = self._world.now_us()
        strand.patience_us = max(0, due.message.timeout_us - 1000)
        self._state.created_by[due.name] = len(self._record.run.steps) - 1
        self._record.say(due.name, delivery_words(due, events), event=bool(events))
        return strand

    def _plan(self, due: Due, events: Sequence[Event]) -> None:
        """Store the faults of a delivery and of the deliveries that retry it."""
        self._faults[due.message.id] = tuple(e.kind for e in events if e.kind in _FAULTS)
        for event in events:
            if event.kind not in ("fail", "unreachable"):
                continue
            losses: list[Loss] = ["unreachable"] * int(event.detail or 1)
            if event.kind == "fail":
                losses[0] = "unheard"  # The first attempt reaches the destination.
            self._losses[due.message.public_id] = losses

    def perform(
        self,
        delivery: Delivery,
        perform: Callable[..., Outcome],
        route: DestinationRoute | None,
    ) -> Outcome:
        """Perform a delivery, or lose it if the schedule says so."""
        losses = self._losses.get(delivery.message_id)
        loss = losses.pop(0) if losses else None
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
        return self._faults.pop(message_id, ())


def _possible_events(due: Due) -> list[tuple[Kind, str]]:
    """Return the events of a delivery: a loss of one attempt, of all retries, and of all attempts."""
    events: list[tuple[Kind, str]] = [(kind, "") for kind in _FAULTS]
    left = due.message.max_retries - due.message.retried
    if left > 1:
        events.append(("fail", str(left)))
    if left > 0:
        events.append(("unreachable", "1"))
    if left > 1:
        events.append(("unreachable", str(left)))
    return [*events, ("fail", str(left + 1)), ("unreachable", str(left + 1))]
