"""The replay of a queue."""

from __future__ import annotations

from typing import Any

from ..cloud.fake import Context, Fake, core_of
from ..core.calls import Event
from ..queue.fake import Queue, finished_deliveries
from ..queue.model import Outcome
from ..queue.wire.values import as_text
from . import journal


class ReplayedQueue(journal.ReplayedFake):
    """A replayed queue, whose delivery attempts end with the outcomes of the real ones."""

    delivers = True

    def __init__(self, real: Fake, context: Context, time: journal.Time) -> None:
        super().__init__(real, context, time)
        # Use the recorded outcomes of the deliveries, and send no requests.
        core_of(self.fake).engine.data.report = lambda kind, text, **fields: None
        self._begun: dict[int, Any] = {}

    @staticmethod
    def is_delivering(real: Fake) -> bool:
        pending = core_of(real).engine.data.pending
        return any(message.state == "ACTIVE" for message in list(pending.values()))

    def begin_attempt(self, event: Event) -> None:
        engine = core_of(self.fake).engine
        self.time.expect(event.at_us)
        for message in _messages_of(event, engine):
            attempt = (
                engine.attempts.begin(message.id) if message.id in engine.data.pending else None
            )
            if attempt is not None:
                self._begun[event.number] = attempt
                return
        raise journal.Inexact(
            f"the delivery of row {event.number} cannot be repeated as it happened"
        )

    def finish_attempt(self, event: Event) -> None:
        begun, number = self._begun.pop(event.number), event.data.get("number")
        engine: Any = core_of(self.real).engine
        attempts = (
            attempt for message in _messages_of(event, engine) for attempt in message.attempts
        )
        attempt = next((attempt for attempt in attempts if attempt.number == number), None)
        if attempt is not None:
            ended = attempt.ended_us or attempt.at_us
            outcome = Outcome(
                attempt.status, list(attempt.headers.pairs), attempt.body, attempt.exception,
                virtual_us=ended - attempt.at_us, where=attempt.where,
            )  # fmt: skip
        else:
            # The message is gone, such as after a restore.
            outcome = self._kept_outcome(event)
            ended = event.at_us + outcome.virtual_us
        begun.attempt.faults = event.data.get("faults") or []
        self.time.expect(ended)
        core_of(self.fake).engine.deliveries.finish(begun, outcome)
        self.settled_us = ended

    def _kept_outcome(self, event: Event) -> Outcome:
        assert isinstance(self.real, Queue)
        for number, _, outcome in finished_deliveries(self.real):
            if number == event.data.get("began"):
                return outcome
        raise journal.Inexact(f"the queue no longer has the details of attempt {event.number}")


REPLAYED = ReplayedQueue


def _messages_of(event: Event, engine: Any) -> list[Any]:
    """Return the messages of an attempt: several receivers of a message have the same public ID."""
    url, message_id = event.data.get("url"), event.data.get("message_id")
    every = list(engine.data.messages.values())
    return [
        message
        for message in every
        if message.public_id == message_id and as_text(message.url) == url
    ]
