"""Methods of the ``queue`` fake that publish, schedule, cancel and retry without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.errors import ContractError
from ..core.settings import choice
from ..core.timeparse import Duration
from ..handle import action
from .arguments import (
    ABSENT,
    FlowControl,
    body_of,
    flow_control_pairs,
    forwarded_pairs,
    in_seconds,
    labels_of,
    setting_pairs,
    text,
)
from .engine.engine import Engine
from .errors import not_found
from .model import Api
from .views import DeadLetterView, PublishedMessage, ScheduleView


class QueueActions:
    """Mixin of ``Queue`` with the actions of a client. These calls are not recorded in the journal."""

    _engine: Engine

    def _check_open(self) -> None:
        """Raise ``ContractError`` if the queue is closed."""
        raise NotImplementedError

    @action
    def publish(
        self,
        url: str,
        *,
        json: Any = ABSENT,
        body: bytes | str = b"",
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        retries: int | None = None,
        callback: str | None = None,
        failure_callback: str | None = None,
        queue: str | None = None,
        method: str | None = None,
        label: str | Sequence[str] | None = None,
        timeout: Duration | None = None,
        deduplication_id: str | None = None,
        flow_control: FlowControl | None = None,
        settings: Mapping[str, str] | None = None,
        api: Api = "v2",
    ) -> PublishedMessage:
        """Publish a message without HTTP and return it, or the first message if ``url`` is a URL
        group.

        ``headers`` are forwarded to the destination. ``flow_control`` is a dict of a key and its
        limits: `{"key": "tenant-1", "parallelism": 2, "rate": 10, "period": "1m"}`. ``settings``
        are additional ``Upstash-*`` headers of the request. Raises ``QueueError`` where the service
        would return an error, and ``ContractError`` for arguments that no request could contain.
        """
        __tracebackhide__ = True
        self._check_open()
        choice("v1", "v2").read("api", api)
        pairs = setting_pairs(settings) + forwarded_pairs(headers)
        headers_of: tuple[tuple[str, Any, Callable[[str, Any], str]], ...] = (
            ("Method", method, text),
            ("Callback", callback, text),
            ("Failure-Callback", failure_callback, text),
            ("Deduplication-Id", deduplication_id, text),
            ("Retries", retries, lambda _, value: str(value)),
            ("Label", label, labels_of),
            ("Delay", delay, in_seconds),
            ("Timeout", timeout, in_seconds),
        )
        for header, value, formatted in headers_of:
            if value is not None:
                name = header.lower().replace("-", "_")
                pairs.append((f"Upstash-{header}", formatted(name, value)))
        if flow_control is not None:
            pairs += flow_control_pairs(flow_control)
        if json is not ABSENT:
            pairs.append(("Content-Type", "application/json"))
        result = self._engine.publisher.publish(
            text("url", url),
            pairs,
            body_of(body, json),
            queue_name=None if queue is None else text("queue", queue),
            api=api,
            counted=False,
        )
        if not result.accepted:
            raise ContractError(f"nothing was published to {url!r}: the group has no endpoints")
        return PublishedMessage(self._engine, result.accepted[0].message_id)

    @action
    def schedule(
        self,
        destination: str,
        cron: str,
        *,
        id: str | None = None,
        body: bytes | str = b"",
        settings: Mapping[str, str] | None = None,
    ) -> ScheduleView:
        """Create a schedule, or replace the schedule with that id."""
        __tracebackhide__ = True
        self._check_open()
        pairs = [("Upstash-Cron", text("cron", cron)), *setting_pairs(settings)]
        if id is not None:
            pairs.append(("Upstash-Schedule-Id", text("id", id)))
        result = self._engine.publisher.publish(
            text("destination", destination),
            pairs,
            body_of(body, ABSENT),
            schedule_only=True,
            counted=False,
        )
        return ScheduleView(self._engine, str(result.schedule_id))

    @action
    def cancel(self, message_id: str | PublishedMessage) -> int:
        """Cancel a message and return the number of cancelled deliveries.

        Returns 0 if the message has already been delivered, dead-lettered or cancelled. (The
        service's endpoint for a single message returns 404 then, and its endpoint for several
        messages does not count the message.) Raises ``QueueError`` (404) for an unknown id.
        """
        __tracebackhide__ = True
        wanted = message_id.id if isinstance(message_id, PublishedMessage) else message_id
        if not isinstance(wanted, str):
            raise ContractError(f"cancel({wanted!r}) is invalid; pass a message or its id")
        engine = self._engine
        with engine.lock:
            if engine.task_ids(wanted)[0] not in engine.messages:
                raise not_found("message", wanted)
            return engine.cancel_pending(wanted)

    @action
    def retry_dead_letter(
        self, dlq_id: str | DeadLetterView | PublishedMessage
    ) -> PublishedMessage:
        """Publish the message of a dead letter again and remove the dead letter."""
        __tracebackhide__ = True
        wanted = dlq_id.id if isinstance(dlq_id, DeadLetterView) else dlq_id
        if isinstance(wanted, PublishedMessage):
            wanted = self._dead_letter_of(wanted)
        if not isinstance(wanted, str):
            raise ContractError(
                f"retry_dead_letter({wanted!r}) is invalid; pass a dead letter or its id"
            )
        engine = self._engine
        with engine.lock:
            (accepted,) = engine.retry_dead_letters([engine.dead_letters.get(wanted)])
        return PublishedMessage(engine, accepted.message_id)

    def _dead_letter_of(self, message: PublishedMessage) -> str:
        ids = {letter.message_id: letter.id for letter in self._engine.dead_letters.all()}
        found = ids.get(message._id)
        if found is None:
            state = message.state
            why = "was retried, deleted or expired" if state == "dead_lettered" else f"is {state}"
            raise ContractError(f"{message!r} is not a dead letter: it {why}")
        return found
