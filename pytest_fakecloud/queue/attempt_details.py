"""Details of delivery attempts for reports, such as the request, the response and logged
exceptions.

Details are kept for callbacks and for attempts that did not end in a 2xx. Source: decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, NamedTuple

from ..core.errors import report_failure
from ..core.recording.recorder import Recorder
from .delivery_log import DeliveryLog, LogCollector
from .handler_errors import raised_text
from .model import MESSAGE, Delivery, HeaderList, Outcome, SigningKeys, first
from .signature_checks import shortened_body, signature_details

_MAX_FINISHED = 1_000
_QUEUES_OWN = ("upstash-", "user-agent", "content-type", "host", "content-length")
"""Beginnings of the names of headers that the queue sets itself."""


class StartedDelivery(NamedTuple):
    """A delivery in progress, with its journal number and what has happened during it."""

    number: int
    delivery: Delivery
    log: DeliveryLog


class FinishedDelivery(NamedTuple):
    """A delivery with its journal number and its outcome."""

    number: int
    delivery: Delivery
    outcome: Outcome

    @property
    def size(self) -> int:
        """The number of bytes in the two bodies."""
        return len(self.delivery.body) + len(self.outcome.body)


class AttemptDetails:
    """Collects the details of one queue's attempts.

    ``recorder`` writes the queue's journal, ``keys`` are its signing keys, and ``now`` returns the
    Unix time in seconds that its signatures use. ``one_at_a_time`` is True if deliveries do not
    overlap. Only then can an exception that is logged during a delivery be attributed to this
    delivery. ``finished`` are the most recent deliveries.
    """

    recorder: Recorder

    def __init__(self, keys: SigningKeys, now: Callable[[], float], *, one_at_a_time: bool) -> None:
        self._keys = keys
        self._now = now
        self._one_at_a_time = one_at_a_time
        self._started: dict[tuple[str, str, int], StartedDelivery] = {}
        self.finished: deque[FinishedDelivery] = deque()
        self._finished_bytes = 0

    def watched(self, send: Callable[[Delivery], Outcome]) -> Callable[[Delivery], Outcome]:
        """Return ``send`` wrapped so that each delivery is recorded."""

        def watching(delivery: Delivery) -> Outcome:
            with self._start_recording(delivery):
                return send(delivery)

        return watching

    def awatched(
        self, send: Callable[[Delivery], Awaitable[Outcome]]
    ) -> Callable[[Delivery], Awaitable[Outcome]]:
        """Return the coroutine function ``send`` wrapped so that each delivery is recorded."""

        async def watching(delivery: Delivery) -> Outcome:
            with self._start_recording(delivery):
                return await send(delivery)

        return watching

    def _start_recording(self, delivery: Delivery) -> AbstractContextManager[None]:
        """Record a delivery, and return a context manager that collects what happens during it, if
        that can be attributed to the delivery.
        """
        key = _key(delivery)
        earlier = self._started.get(key)
        number = earlier.number if earlier else self.recorder.reserve()
        log = DeliveryLog(self._collector)
        self._started[key] = StartedDelivery(number, delivery, log)
        return log if self._one_at_a_time else nullcontext()

    @cached_property
    def _collector(self) -> LogCollector:
        return LogCollector()

    def finish(self, delivery: Delivery, outcome: Outcome) -> dict[str, Any]:
        """Return the fields of the ``attempt`` event that describe a finished attempt.

        ``began`` is the journal number at which the attempt started. ``alone`` is True if the
        attempt caused everything recorded since. Callbacks also have ``sent`` and ``sent_type``,
        because their body reports the result. Attempts that failed or logged an exception have
        these fields and ``sent_headers``, ``answer``, ``answer_type`` and ``logged`` (the
        exceptions as text). A 401 or 403 has ``signature`` (``SignatureDetails``), a 3xx has
        ``location``.
        """
        started = self._started.pop(_key(delivery), None)
        if started is None:
            return {}
        sent = started.delivery
        self._keep(FinishedDelivery(started.number, sent, outcome))
        fields: dict[str, Any] = {
            "began": started.number,
            "alone": self._one_at_a_time,
            "where": outcome.where,
        }
        succeeded = outcome.delivered and not started.log.logged
        if succeeded and sent.kind is MESSAGE:
            return fields
        problems: list[str] = []
        # Record an error while collecting details, because it must not fail the delivery.
        with report_failure("the request and the response cannot be described", problems.append):
            fields["sent"] = shortened_body(sent.body)
            fields["sent_type"] = first(sent.headers, "Content-Type") or ""
            if not succeeded:
                fields |= self._exchanged(sent, started.log, outcome)
        return {**fields, "logged": problems} if problems else fields

    def _keep(self, delivery: FinishedDelivery) -> None:
        """Keep a delivery for reports, and forget old ones until the journal's limit is met."""
        self.finished.append(delivery)
        self._finished_bytes += delivery.size
        limit = self.recorder.shared.large.limit
        while len(self.finished) > _MAX_FINISHED or self._finished_bytes > limit:
            self._finished_bytes -= self.finished.popleft().size

    def _exchanged(self, sent: Delivery, log: DeliveryLog, outcome: Outcome) -> dict[str, Any]:
        fields: dict[str, Any] = {"sent_headers": _published_headers(sent.headers)}
        if outcome.status is not None:
            fields["answer"] = shortened_body(outcome.body)
            fields["answer_type"] = first(outcome.headers, "Content-Type") or ""
        fields["logged"] = [
            raised_text(error, "the handler logged")
            for error in log.logged
            if error is not outcome.exception
        ]
        if outcome.status in (401, 403):
            fields["signature"] = signature_details(sent, log.refused, self._keys, self._now())
        if outcome.status is not None and 300 <= outcome.status < 400:
            fields["location"] = first(outcome.headers, "Location")
        return fields

    def forget(self) -> None:
        self._started.clear()
        self.finished.clear()
        self._finished_bytes = 0


def _key(delivery: Delivery) -> tuple[str, str, int]:
    return delivery.message_id, delivery.url, delivery.attempt


def _published_headers(headers: HeaderList) -> list[list[str]]:
    """Return the headers that the publisher chose."""
    return [
        [name, value]
        for name, value in headers
        if not (lower := name.lower()).startswith(_QUEUES_OWN) and not lower.endswith("-signature")
    ]
