"""Methods of the ``queue`` fake that publish, schedule, cancel, retry and load without HTTP.

Data is loaded into a copy of the queue first, so that invalid data changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core.errors import ContractError
from ..core.ids import Ids
from ..core.settings import SWITCH, choice, whole
from ..core.timekeeper import Timekeeper
from ..core.timeparse import Duration
from ..handle import action
from .arguments import (
    ABSENT,
    FlowControl,
    body_of,
    flow_control_pairs,
    forwarded_pairs,
    in_seconds,
    keywords,
    known_keys,
    labels_of,
    section,
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
            if wanted not in engine.messages and wanted not in engine.groups_of_tasks:
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
            row = engine.dead_letters.get(wanted)
            (accepted,) = engine.publisher.retry_dead_letters([engine.dead_letters.message(row)])
            engine.dead_letters.delete([row])
        return PublishedMessage(engine, accepted.message_id)

    def _dead_letter_of(self, message: PublishedMessage) -> str:
        rows = {row.message_id: row.id for row in self._engine.dead_letters.all()}
        found = rows.get(message._id)
        if found is None:
            state = message.state
            why = "was retried, deleted or expired" if state == "dead_lettered" else f"is {state}"
            raise ContractError(f"{message!r} is not a dead letter: it {why}")
        return found


_Step = Callable[[QueueActions], object]


def load(queue: QueueActions, data: Mapping[str, Any]) -> None:
    """Load URL groups, queues, schedules and messages into a queue.

    Each step runs twice, in a copy of the queue and, if all succeed there, in the queue itself.
    """
    steps = list(_steps(data))
    with queue._engine.lock:
        for place in (_Trial(queue._engine), queue):
            for step in steps:
                step(place)


class _Trial(QueueActions):
    """A copy of a queue with the same rules, on its own frozen clock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.twin(Timekeeper(now=engine.clock.now()), Ids(0))
        self._engine.restore(engine.snapshot())

    def _check_open(self) -> None:
        """Do nothing, because this copy is never closed."""


def _steps(data: Mapping[str, Any]) -> Iterator[_Step]:
    known_keys("the data", data, ("url_groups", "queues", "schedules", "messages"))
    for name, endpoints in section(data, "url_groups", dict).items():
        yield _group(name, endpoints)
    for name, settings in section(data, "queues", dict).items():
        yield _queue(name, settings)
    for schedule in section(data, "schedules", list):
        yield _schedule(keywords("a schedule", schedule, QueueActions.schedule))
    for message in section(data, "messages", list):
        yield _message(keywords("a message", message, QueueActions.publish))


def _group(name: str, endpoints: object) -> _Step:
    text("url_groups name", name)
    listed = [_endpoint(name, one) for one in section({name: endpoints}, name, list)]

    def step(place: QueueActions) -> None:
        engine = place._engine
        engine.url_groups.add_all(name, listed, engine.clock.now_us())

    return step


def _endpoint(group: str, given: object) -> tuple[str, str | None]:
    one: dict[str, Any] = {"url": given}
    if isinstance(given, Mapping):
        one = known_keys(f"an endpoint of {group}", given, ("url", "name"))
    name = one.get("name")
    if name is not None:
        text("name", name)
    return text("url", one.get("url")), name


def _queue(name: str, settings: object) -> _Step:
    text("queues name", name)
    given = known_keys(
        f"queue {name}", {} if settings is None else settings, ("parallelism", "paused")
    )
    whole(1).read("parallelism", given.setdefault("parallelism", 1))
    SWITCH.read("paused", given.setdefault("paused", False))
    given["paused"] = bool(given["paused"])
    return lambda place: place._engine.queues.upsert(name, **given)


def _schedule(given: dict[str, Any]) -> _Step:
    return lambda place: place.schedule(**given)


def _message(given: dict[str, Any]) -> _Step:
    if isinstance(given.get("label"), Iterator):
        # Copy an iterator, because the message is published twice, in the copy and in the queue.
        given["label"] = [*given["label"]]
    return lambda place: place.publish(**given)
