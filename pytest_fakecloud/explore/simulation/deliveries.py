"""Deliveries of the cloud's queues, with the events that the schedule contains for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from ...core.errors import broken_promise, counted, shown
from ...queue.model import Outcome
from ..schedule import Event, Kind
from .state import Part, RunState
from .strands import Due, Strand

if TYPE_CHECKING:
    from ...queue.delivery.destinations import DestinationRoute
    from ...queue.engine.schedules import Schedule, Schedules
    from ...queue.handle import Queue
    from ...queue.model import Exchange, Message, Proceed, Sending

_HORIZON_US = 30 * 86_400 * 1_000_000
"""Microseconds after the start until which deliveries are made, as in ``run_until_idle``."""
_Loss = Literal["unreachable", "unheard"]
"""A lost delivery: its destination is not reached, or the answer of its destination is lost."""
_FAULTS: tuple[Kind, ...] = ("duplicate", "crash_after_response")
_KINDS: tuple[Kind, ...] = (*_FAULTS, "fail", "unreachable")
"""The events that are possible at the start of a delivery."""


class Deliveries:
    """The messages that the queues deliver in one run, numbered in the order of their creation."""

    def __init__(self, queues: Sequence[Queue], start_us: int) -> None:
        self._queues = queues
        self._end_us = start_us + _HORIZON_US
        self._ordinals: dict[str, int] = {}
        self._ended: list[tuple[Schedules, Schedule]] = []

    def are_left(self) -> bool:
        """Return whether a queue has a message to deliver, now or later."""
        for queue in self._queues:  # noqa: SIM110 - called at every turn
            if queue._engine.timers:
                return True
        return False

    def next_us(self, after_us: int = -1) -> int | None:
        found = [q._engine.next_due_us() for q in self._queues if q._engine.pending]
        return min(
            (at for at in found if at is not None and after_us < at <= self._end_us), default=None
        )

    def next_firing_us(self) -> int | None:
        """Return the time at which the next schedule of a queue fires, or None."""
        found = (queue._engine.schedules.earliest_run_us() for queue in self._queues)
        return min((at for at in found if at is not None), default=None)

    def end_schedules(self) -> None:
        """Let no schedule fire until ``resume_schedules()``."""
        for queue in self._queues:
            schedules = queue._engine.schedules
            for schedule in schedules.by_id.values():
                schedules.unplan(schedule)
                self._ended.append((schedules, schedule))

    def resume_schedules(self) -> None:
        """Let the schedules fire again, because the run has ended."""
        for schedules, schedule in self._ended:
            if schedules.by_id.get(schedule.id) is schedule:
                schedules.replan(schedule)
        self._ended.clear()

    def due(self, now_us: int) -> list[Due]:
        """Return the deliveries that can begin at a given time, in the order of their due times."""
        # Number messages by creation, so that names do not depend on the order of delivery.
        for message in self._messages():
            self._ordinals.setdefault(message.id, len(self._ordinals) + 1)
        found = [
            Due(queue, queue._engine.messages[id_], timer, self._ordinals[id_])
            for queue in self._queues
            for id_, timer in queue._engine.timers.items()
            if timer.lane == "driven" and timer.due_us <= now_us and not timer.cancelled
        ]
        return sorted(found, key=lambda due: (due.timer.due_us, due.timer.sequence))

    def names(self) -> dict[str, str]:
        """Return the names that a story uses for messages, by message ID."""
        return {
            message.public_id: f"message {self._ordinals[message.id]}"
            for message in self._messages()
            if message.id in self._ordinals
        }

    def _messages(self) -> Iterator[Message]:
        for queue in self._queues:
            yield from queue._engine.messages.values()


class DeliveryStrands(Part):
    """Begins deliveries as strands, and performs them."""

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._faults: dict[str, tuple[str, ...]] = {}
        """The faults of the next delivery of each message, by the message's internal ID."""
        self._losses: dict[str, list[_Loss]] = {}
        """The losses of the next deliveries of each message, by the message's public ID."""

    def begin(self, due: Due) -> Strand | None:
        """Begin a delivery; return its strand, or None if the delivery must wait."""
        self._record.add_point(due.name, 0, _possible_events(due))
        events = [e for e in self._state.schedule.at(due.name, 0) if e.kind in _KINDS]
        self._plan(due, events)
        self._record.touch_message(due)
        due.timer.cancel()
        assert due.timer.begin is not None
        body = due.timer.begin(due.timer.due_us)
        if body is None:
            return None
        self._run.fired += events
        strand = self._state.add(Strand(due.name, "delivery", body, due))
        strand.deadline_us = self._world.now_us() + max(0, due.message.timeout_us - 1000)
        self._state.created_by[due.name] = len(self._run.steps) - 1
        self._record.add_line(due.name, _words(due, events), event=bool(events))
        return strand

    def _plan(self, due: Due, events: Sequence[Event]) -> None:
        """Store the faults of a delivery and of the deliveries that retry it."""
        self._faults[due.message.id] = tuple(e.kind for e in events if e.kind in _FAULTS)
        for event in events:
            if event.kind not in ("fail", "unreachable"):
                continue
            losses: list[_Loss] = ["unreachable"] * int(event.detail or 1)
            if event.kind == "fail":
                losses[0] = "unheard"  # The first attempt reaches the destination.
            self._losses[due.message.public_id] = losses

    def perform(
        self, exchange: Exchange, proceed: Proceed, route: DestinationRoute | None
    ) -> Sending:
        """Perform a delivery, or lose it if the schedule says so."""
        losses = self._losses.get(exchange.delivery.message_id)
        loss = losses.pop(0) if losses else None
        if loss == "unreachable":
            error = ConnectionError("the connection was refused")
            return Outcome(exception=error, where="explore")
        outcome = yield from proceed(exchange)
        if route is not None and route._where in ("call", "wsgi", "asgi"):
            # Count only exceptions as failures, because a handler may answer 500 on purpose.
            handled = self._run.handler_outcomes.setdefault((route._where, route.prefix), [])
            handled.append(outcome.exception is None)
        if outcome.status is not None:
            self._run.broken = self._run.broken or broken_promise(outcome.exception)
        if loss == "unheard":
            error = ConnectionError("the answer was lost")
            return Outcome(exception=error, where=outcome.where)
        return outcome

    def faults_of(self, message_id: str) -> tuple[str, ...]:
        """Return the faults that apply to a delivery that is about to begin."""
        return self._faults.pop(message_id, ())


def _words(due: Due, events: Sequence[Event]) -> str:
    url = due.message.url
    words = f"is delivered to {url if isinstance(url, str) else shown(url)}"
    for event in events:
        count = int(event.detail or 0)
        if event.kind == "duplicate":
            words += " twice"
        elif event.kind == "crash_after_response":
            words += "; the queue loses the answer"
        elif event.kind == "unreachable":
            words += ", which is unreachable" + f" {count} times" * (count > 1)
        elif event.kind == "fail":
            words += "; the answer is lost"
            if count > 1:
                verb = "fails" if count == 2 else "fail"
                words += f", and {counted(count - 1, 'more attempt')} {verb}"
    return words


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
