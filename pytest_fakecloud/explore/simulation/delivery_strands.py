"""Deliveries of queues in a trial, which are strands, and their disturbances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ...core.errors import counted, shown
from ...queue.delivery.routes import parts_of
from ...queue.model import SUCCESS, Outcome
from ..fakes.deliveries import DueDelivery
from ..values.disturbances import KINDS, Disturbance, Kind, with_trait
from ..values.trial import Choices
from .part import Common, Part
from .strand import PauseState, Strand

if TYPE_CHECKING:
    from ...queue.delivery.routes import DestinationRoute
    from ...queue.model import Deliver, Exchange

OF_DELIVERIES = with_trait("delivery")
"""Kinds that are applied at the start of a delivery."""
_Loss = Literal["unreachable", "unheard"]
"""A lost delivery: its destination is not reached, or the answer of its destination is lost."""
AT_DELIVERIES: tuple[Kind, ...] = ("duplicate", "crash_after_response")
"""Faults of one delivery."""
LOST_ATTEMPTS: tuple[Kind, ...] = ("fail", "unreachable")
"""Losses of the first attempts of a delivery."""


class DeliveryStrands(Part):
    """Begins deliveries as strands, and performs them."""

    def __init__(self, common: Common) -> None:
        super().__init__(common)
        self.planned_faults: dict[str, tuple[str, ...]] = {}
        """The faults of the next delivery of each message, by the message's internal ID."""
        self._losses: dict[str, list[_Loss]] = {}
        """The losses of the next deliveries of each message, by the message's public ID."""

    def begin(self, due: DueDelivery) -> Strand | None:
        """Begin a delivery; return its strand, or None if there is nothing to run: the queue lets the
        message wait, or the attempt has failed already. Then its disturbances do not count as applied.
        """
        self._log.add_point(due.scheduled_name, 0, _delivery_disturbances(due))
        disturbances = [
            disturbance
            for disturbance in self._script.schedule.at(due.scheduled_name, 0)
            if disturbance.kind in OF_DELIVERIES
        ]
        self._plan(due, disturbances)
        self._access_log.touch_message(due)
        due.timer.cancel()
        assert due.timer.begin is not None
        body = due.timer.begin(due.timer.due_us)
        if body is None:
            return None
        deadline_us = self._fakes.now_us() + max(0, due.message.timeout_us - 1000)
        pause = PauseState(deadline_us=deadline_us)
        strand = self._strands.add(Strand(due.scheduled_name, "delivery", body, due, pause=pause))
        self._strands.created_by[due.scheduled_name] = len(self._access_log.steps) - 1
        words = _delivery_words(due, disturbances)
        self._log.note_applied(disturbances, due.scheduled_name, words)
        return strand

    def _plan(self, due: DueDelivery, disturbances: Sequence[Disturbance]) -> None:
        """Store the faults of a delivery and of the deliveries that retry it."""
        kinds = (disturbance.kind for disturbance in disturbances)
        self.planned_faults[due.message.id] = tuple(kind for kind in kinds if kind in AT_DELIVERIES)
        for disturbance in disturbances:
            if disturbance.kind not in LOST_ATTEMPTS:
                continue
            losses: list[_Loss] = ["unreachable"] * disturbance.attempts
            if disturbance.kind == "fail":
                losses[0] = "unheard"  # The first attempt reaches the destination.
            self._losses[due.message.public_id] = losses

    async def deliver(
        self, exchange: Exchange, proceed: Deliver, route: DestinationRoute | None
    ) -> Outcome:
        """Make a delivery, or lose it if the schedule says so."""
        losses = self._losses.get(exchange.delivery.message_id)
        loss = losses.pop(0) if losses else None
        if loss == "unreachable":
            error = ConnectionError("the connection was refused")
            return Outcome(exception=error, where="explore")
        outcome = await proceed(exchange)
        where = "" if route is None else parts_of(route).where
        if route is not None and where in ("call", "wsgi", "asgi"):
            # Count only exceptions as failures, because a handler may answer 500 on purpose.
            self._log.note_handler_call((where, route.prefix), succeeded=outcome.exception is None)
        strand = self._current_thread.strand()
        if outcome.status in SUCCESS and loss is None and strand is not None:
            self._log.acknowledged.add(strand.name)
        if outcome.status is not None:
            self._log.note_error(outcome.exception)
        if loss == "unheard":
            error = ConnectionError("the answer was lost")
            return Outcome(exception=error, where=outcome.where)
        return outcome

    def report(self, name: str, due: DueDelivery) -> None:
        """Record the end of a delivery, and how it failed if it did."""
        self._access_log.touch_message(due)
        attempt = due.message.attempts[-1]
        if attempt.state != "delivered":
            answer = attempt.status if attempt.status is not None else "nothing"
            if due.message.state == "RETRY":
                # The queue has lost the answer of a successful attempt.
                is_success = attempt.status is not None and 200 <= attempt.status < 300
                again = ", and is delivered again" if is_success else ", so it is retried"
                answer = f"{answer}{again}"
            self._log.add_line(name, f"answered {answer}")


def _delivery_words(due: DueDelivery, disturbances: Sequence[Disturbance]) -> str:
    url = due.message.url
    words = f"is delivered to {url if isinstance(url, str) else shown(url)}"
    for disturbance in disturbances:
        words += KINDS[disturbance.kind].of_delivery
        count = disturbance.attempts
        if disturbance.kind == "unreachable" and count > 1:
            words += f" {count} times"
        elif disturbance.kind == "fail" and count > 1:
            verb = "fails" if count == 2 else "fail"
            words += f", and {counted(count - 1, 'more attempt')} {verb}"
    return words


def _delivery_disturbances(due: DueDelivery) -> Choices:
    """Return the disturbances of a delivery: losses of one attempt, of all retries, of all attempts."""
    disturbances: list[tuple[Kind, str]] = [(kind, "") for kind in AT_DELIVERIES]
    retries = due.message.max_retries - due.message.retried
    if retries > 1:
        disturbances.append(("fail", str(retries)))
    if retries > 0:
        disturbances.append(("unreachable", "1"))
    if retries > 1:
        disturbances.append(("unreachable", str(retries)))
    return (*disturbances, ("fail", str(retries + 1)), ("unreachable", str(retries + 1)))
