"""Publishing, which converts a request to stored messages and recognises duplicates.

Decided here: a duplicate has the same deduplication id or, with content-based deduplication, the
same destination, body, content type and forwarded headers. Endpoints of a URL group are compared
separately. Default headers of a URL group are treated as if they had been sent, and headers of the
request override them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, NamedTuple

from ..errors import INVALID_SCHEME, QueueError, bad_request
from ..model import (
    Api,
    HeaderList,
    Kind,
    Message,
    PublishSettings,
)
from ..wire.headers import (
    check_url,
    over,
    read_given,
    read_settings,
)
from ..wire.named import LLM_URL, NAMED, named_url
from .lifecycle import Lifecycle
from .quota import Quota, check_public
from .schedules import Schedule, Schedules, as_scheduled
from .state import State

Pairs = Sequence[tuple[str, str]]


class Accepted(NamedTuple):
    """One message of an accepted publish request."""

    message_id: str
    url: str
    deduplicated: bool = False


class Target(NamedTuple):
    """A URL to deliver to, with the URL group and the endpoint that it belongs to."""

    url: str
    topic_name: str | None = None
    endpoint_name: str | None = None
    endpoint_id: str | None = None


@dataclass(slots=True)
class Published:
    """The result of a publish request, which creates messages or a schedule."""

    accepted: list[Accepted] = field(default_factory=list)
    group: bool = False
    schedule_id: str | None = None
    repeated: bool = False

    @property
    def duplicate(self) -> bool:
        """Whether nothing new was stored, because every message was a duplicate."""
        return self.repeated or (
            bool(self.accepted) and all(one.deduplicated for one in self.accepted)
        )


class Publisher:
    """Accepts messages for an engine."""

    def __init__(
        self, state: State, lifecycle: Lifecycle, quota: Quota, schedules: Schedules
    ) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._quota = quota
        self._schedules = schedules
        self.seen: dict[str, tuple[int, str]] = {}

    # -- entry points ----------------------------------------------------------------------------

    def publish(
        self,
        destination: str,
        headers: Pairs,
        body: bytes,
        *,
        query: Pairs = (),
        caller_ip: str = "127.0.0.1",
        queue_name: str | None = None,
        api: Api = "v2",
        schedule_only: bool = False,
        counted: bool = True,
    ) -> Published:
        """Accept a publish request. If it has a cron expression, create a schedule.

        Raises ``QueueError``: 400 for a malformed request, 412 if a plan limit is exceeded, 413 for
        a body that is too large, 429 if a rate limit is exceeded.
        """
        state = self._state
        with state.lock:
            now = state.clock.now_us()
            group = state.url_groups.find(destination)
            defaults = None if group is None else group.headers
            settings = PublishSettings(**read_given(headers, query, defaults))
            if counted:
                self._quota.count_request(now)
            if queue_name is not None:
                settings = replace(settings, queue_name=queue_name)
            retries = self._quota.check(settings, body, now)
            targets = self._targets(destination, settings, group)
            if settings.cron is not None or schedule_only:
                published = self._schedule(destination, settings, body, caller_ip, api)
                if not published.repeated:
                    created = self._schedules.get(str(published.schedule_id))
                    created.sent = [*headers, *query]
                return published
            drafts = [
                self._draft(target, settings, body, now, retries, caller_ip=caller_ip, api=api)
                for target in targets
            ]
            return self._store(drafts, now, group=group is not None)

    def _schedule(
        self, destination: str, settings: PublishSettings, body: bytes, caller_ip: str, api: Api
    ) -> Published:
        now = self._state.clock.now_us()
        self._forget_seen(now)
        mark = self._mark(None, destination, settings, body)
        mark = None if mark is None else f"schedule:{mark}"
        repeated = self._repeated(mark, now)
        if repeated in self._schedules.by_id:
            return Published(schedule_id=repeated, repeated=True)
        schedule = self._schedules.create(destination, settings, body, caller_ip)
        schedule.api = api
        self._remember(mark, schedule.id, now)
        return Published(schedule_id=schedule.id)

    def publish_scheduled(self, schedule: Schedule, at_us: int) -> list[str]:
        """Create the messages of one run of a schedule and return their ids."""
        settings = schedule.settings
        group = self._state.url_groups.find(schedule.destination)
        if group is not None:
            # Use the group's current default headers, as for any publish request to the group.
            given = read_given(schedule.sent, defaults=group.headers)
            settings = as_scheduled(PublishSettings(**given))
            settings = replace(settings, queue_name=schedule.settings.queue_name)
            self._quota.check(settings, schedule.body, self._state.clock.now_us())
        retries = self._quota.retries(settings)
        drafts = [
            self._draft(
                target,
                settings,
                schedule.body,
                at_us,
                retries,
                caller_ip=schedule.caller_ip,
                api=schedule.api,
            )
            for target in self._targets(schedule.destination, settings, group)
        ]
        for draft in drafts:
            draft.schedule_id = schedule.id
        stored = self._store(drafts, self._state.clock.now_us())
        return [one.message_id for one in stored.accepted]

    def publish_callback(
        self,
        source: Message,
        kind: Kind,
        url: str,
        nested: HeaderList,
        body: bytes,
        at_us: int,
    ) -> None:
        """Publish a callback about a message, with the settings nested in the message's headers."""
        state = self._state
        settings = read_settings(nested)
        retries = self._quota.callback_retries(settings, source.max_retries)
        own: dict[str, Any] = {"content_type": "application/json", "retries": retries}
        if not state.settings.delayed_callbacks:
            own |= {"delay_us": 0, "not_before_us": None}
        settings = replace(settings, **own)
        self._quota.count_message(at_us)
        draft = self._draft(Target(url), settings, body, at_us, retries, caller_ip=source.caller_ip)
        draft.kind = kind
        draft.source_id = source.id
        try:
            self._check_queues([draft])
            repeats = state.workflow.accept(draft, at_us)
        except QueueError as error:
            # Record the error in the message's timeline, because no client waits for a response.
            source.lost_callbacks += (error.message,)
            return
        if repeats is None:
            source.open_children += draft.queue_name is None
            self._queue(draft, at_us)
            self._lifecycle.trace_back(draft, source, True, at_us)
            self._lifecycle.accept(draft, at_us)

    def retry_dead_letters(
        self, messages: Iterable[Message], headers: Pairs = ()
    ) -> list[Accepted]:
        """Publish the messages of dead letters again; ``headers`` override their settings.

        If one is rejected (``QueueError`` as in ``publish()``), none is published.
        """
        given = read_given(headers)
        given.pop("content_type", None)
        with self._state.lock:
            now = self._state.clock.now_us()
            drafts = [self._retry(message, given, now) for message in messages]
            return self._store(drafts, now).accepted

    def publish_again(self, message: Message, settings: PublishSettings, body: bytes) -> None:
        """Publish a message again to its destination; raises ``QueueError`` like ``publish()``."""
        with self._state.lock:
            now = self._state.clock.now_us()
            self._store([self._again(message, settings, body, now)], now)

    def _retry(self, message: Message, given: dict[str, Any], now: int) -> Message:
        settings = repeated(message.settings, given, message.max_retries)
        draft = self._again(message, settings, message.body, now)
        draft.kind = message.kind
        draft.schedule_id = message.schedule_id
        draft.retry_of = message.id
        return draft

    def _again(self, message: Message, settings: PublishSettings, body: bytes, now: int) -> Message:
        return self._draft(
            Target(message.url, message.topic_name, message.endpoint_name, message.endpoint_id),
            settings,
            body,
            now,
            self._quota.check(settings, body, now),
            caller_ip=message.caller_ip,
            api=message.api,
        )

    # -- destinations ----------------------------------------------------------------------------

    def _targets(self, destination: str, settings: PublishSettings, group: Any) -> list[Target]:
        if group is not None:
            return [Target(one.url, group.name, one.name, one.id) for one in group.endpoints]
        named = named_url(destination)
        if named == LLM_URL and settings.callback is None:
            raise bad_request("invalid destination: api/llm needs the Upstash-Callback header")
        if named is not None:
            return [Target(named)]
        if destination.startswith("api/"):
            raise bad_request(
                f"invalid destination url: {INVALID_SCHEME}; of the service's own destinations there"
                f" are {' and '.join(NAMED)}"
            )
        check_url(destination, "destination")
        if self._state.settings.production_checks:
            check_public(destination)
        return [Target(destination)]

    # -- storing ---------------------------------------------------------------------------------

    def _draft(
        self,
        target: Target,
        settings: PublishSettings,
        body: bytes,
        now_us: int,
        retries: int,
        *,
        caller_ip: str,
        api: Api = "v2",
    ) -> Message:
        state = self._state
        not_before = now_us + settings.delay_us
        if settings.not_before_us is not None:
            not_before = max(now_us, settings.not_before_us)
        ceiling = state.limits.timeout_us
        return Message(
            id=state.new_message_id(),
            url=target.url,
            body=body,
            settings=settings,
            created_us=now_us,
            not_before_us=not_before,
            max_retries=retries,
            retry_delay=settings.retry_delay,
            timeout_us=min(settings.timeout_us or ceiling, ceiling),
            caller_ip=caller_ip,
            topic_name=target.topic_name,
            endpoint_name=target.endpoint_name,
            endpoint_id=target.endpoint_id,
            queue_name=settings.queue_name,
            api=api,
        )

    def _store(self, drafts: list[Message], now: int, *, group: bool = False) -> Published:
        state = self._state
        self._forget_seen(now)
        marks = [
            self._mark(one.topic_name, one.url, one.settings, one.body, group) for one in drafts
        ]
        if state.limits.daily_messages is not None:
            new = {mark or draft.id for mark, draft in zip(marks, drafts, strict=True)}
            self._quota.check_room(sum(self._repeated(one, now) is None for one in new))
        self._check_queues(drafts)
        result = Published(group=group)
        stored: list[Message] = []
        fresh: dict[str, str] = {}
        saved = self._workflow_saved(drafts)
        for draft, mark in zip(drafts, marks, strict=True):
            repeated = self._repeated(mark, now) or fresh.get(mark or "")
            if repeated is None:
                try:
                    repeated = state.workflow.accept(draft, now)
                except QueueError:
                    if saved is not None:
                        state.workflow.restore(saved)
                    raise
            if repeated is not None:
                result.accepted.append(Accepted(repeated, draft.url, True))
                continue
            stored.append(draft)
            result.accepted.append(Accepted(draft.id, draft.url))
            if mark is not None:
                fresh[mark] = draft.id
        for mark, message_id in fresh.items():
            self._remember(mark, message_id, now)
        if group and stored and stored[0].api == "v1":
            self._join(stored)
        for draft in stored:
            self._queue(draft, now)
            self._quota.count_message(now)
            self._lifecycle.accept(draft, now)
        return result

    def _workflow_saved(self, drafts: list[Message]) -> object:
        # Save the state of the runs, because an earlier step may be accepted before a later one is
        # rejected.
        if len(drafts) > 1 and any(draft.settings.workflow for draft in drafts):
            return self._state.workflow.snapshot()
        return None

    def _join(self, stored: list[Message]) -> None:
        # Use one public id for the deliveries of a v1 message to all endpoints of a topic.
        shared = self._state.new_message_id()
        self._state.groups_of_tasks[shared] = [draft.id for draft in stored]
        for draft in stored:
            draft.public_id = shared

    def _check_queues(self, drafts: Iterable[Message]) -> None:
        names = {one.queue_name for one in drafts if one.queue_name is not None}
        if names:
            self._state.queues.check(names, self._state.limits.queues)

    def _queue(self, draft: Message, now: int) -> None:
        # Create the queue only now, so that a rejected message does not leave an empty queue.
        queues, name = self._state.queues, draft.queue_name
        if name is not None and name not in queues.by_name:
            queues.upsert(name, now)

    def _mark(
        self,
        topic_name: str | None,
        url: str,
        settings: PublishSettings,
        body: bytes,
        group: bool = False,
    ) -> str | None:
        if settings.deduplication_id is not None:
            return f"id:{settings.deduplication_id}" + (f":{url}" if group else "")
        if not settings.content_based_deduplication:
            return None
        digest = hashlib.sha256()
        for part in (
            topic_name or "",
            url,
            settings.content_type or "",
            *sorted(f"{name.lower()}:{value}" for name, value in settings.forward),
        ):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\x00")
        digest.update(body)
        return f"content:{digest.hexdigest()}"

    def _remember(self, mark: str | None, given_id: str, now: int) -> None:
        if mark is not None:
            expires = now + self._state.settings.dedup_window_us
            self.seen.pop(mark, None)
            self.seen[mark] = (expires, given_id)

    def _repeated(self, mark: str | None, now: int) -> str | None:
        if mark is None or mark not in self.seen:
            return None
        expires, message_id = self.seen[mark]
        return message_id if expires > now else None

    def _forget_seen(self, now: int) -> None:
        # Examine the first entries only: all are kept for the same time, so the oldest ones come
        # first.
        expired = [mark for mark, seen in islice(self.seen.items(), _SWEEP) if seen[0] <= now]
        for mark in expired:
            del self.seen[mark]


_SWEEP = 64


def repeated(
    settings: PublishSettings, given: dict[str, Any], max_retries: int | None = None
) -> PublishSettings:
    """Return the settings for publishing a message again, overridden by ``given``.

    Delay and deduplication are dropped unless ``given`` contains them. ``max_retries`` applies if
    neither contains a number of retries.
    """
    plain = replace(
        settings,
        delay_us=0,
        not_before_us=None,
        deduplication_id=None,
        content_based_deduplication=False,
        retries=max_retries if settings.retries is None else settings.retries,
    )
    kept = {one.name: getattr(plain, one.name) for one in fields(plain)}
    return PublishSettings(**merge_given(kept, given))


def merge_given(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return settings overridden by others. A forwarded header replaces those of the same name."""
    merged = {**base, **given}
    for name in ("forward", "callback_headers", "failure_callback_headers"):
        if base.get(name) and given.get(name):
            merged[name] = over(base[name], given[name])
    return merged


def error_item(error: QueueError) -> dict[str, object]:
    """Return the item of a batch response that reports a rejected message."""
    return {"error": error.message, "status": error.status}
