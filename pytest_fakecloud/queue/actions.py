"""Methods of the ``queue`` fake that publish and schedule messages without HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import ContractError
from ..core.settings import choice
from ..core.timeparse import Duration
from ..handle import action
from .arguments import ABSENT, FlowControl, body_of, publish_pairs, text
from .engine.engine import Engine
from .model import Api
from .views import PublishedMessage, ScheduleView


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
        pairs = publish_pairs(
            json=json,
            headers=headers,
            delay=delay,
            retries=retries,
            callback=callback,
            failure_callback=failure_callback,
            method=method,
            label=label,
            timeout=timeout,
            flow_control=flow_control,
            settings=settings,
            deduplication_id=deduplication_id,
        )
        result = self._engine.publish(
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
        url: str,
        cron: str,
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
        flow_control: FlowControl | None = None,
        settings: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> ScheduleView:
        """Create a schedule, or replace the schedule with that id.

        ``cron`` is a cron expression, with an optional time zone: `"CRON_TZ=Europe/Berlin 0 9 * * *"`.
        The other arguments are those of ``publish()``, for each message that the schedule publishes.
        Raises ``QueueError`` where the service would return an error, and ``ContractError`` for
        arguments that no request could contain.
        """
        __tracebackhide__ = True
        self._check_open()
        pairs = [("Upstash-Cron", text("cron", cron))]
        if id is not None:
            pairs.append(("Upstash-Schedule-Id", text("id", id)))
        pairs += publish_pairs(
            json=json,
            headers=headers,
            delay=delay,
            retries=retries,
            callback=callback,
            failure_callback=failure_callback,
            method=method,
            label=label,
            timeout=timeout,
            flow_control=flow_control,
            settings=settings,
        )
        result = self._engine.publish(
            text("url", url),
            pairs,
            body_of(body, json),
            queue_name=None if queue is None else text("queue", queue),
            schedule_only=True,
            counted=False,
        )
        return ScheduleView(self._engine, str(result.schedule_id))
