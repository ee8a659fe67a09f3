"""Publishing, which converts a request to stored messages unless they repeat earlier ones.

Decided here: default headers of a URL group are treated as if they had been sent, and headers of
the request override them. A callback counts towards the daily messages and is never rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...core.calls import HeaderPairs
from .. import errors
from ..errors import QueueError, bad_request, not_found
from ..model import Api, Message, MessageKind, PublishSettings
from ..wire.headers import (
    LLM_URL,
    NAMED,
    check_public,
    check_url,
    named_url,
    read_given,
    settings_to_republish,
)
from ..wire.values import is_name
from ..workflow.runs import WorkflowRuns
from .data import QueueData, copies
from .dead_letters import DeadLetters
from .deduplication import Deduplication, deduplication_key
from .lifecycle import Lifecycle
from .queues import Queues
from .quota import Quota
from .schedules import MessageSchedule, Schedules, as_scheduled
from .url_groups import UrlGroup, UrlGroups


class Accepted(NamedTuple):
    message_id: str
    url: str
    deduplicated: bool = False


class Published(NamedTuple):
    """The result of a publish request, which creates messages or a schedule."""

    accepted: Sequence[Accepted] = ()
    group: bool = False
    schedule_id: str | None = None
    duplicate: bool = False
    """Whether nothing new was stored, because every message was a duplicate."""


def _check_queued(settings: PublishSettings) -> None:
    """Raise a 400 error for settings that a message of an ordered queue cannot have.

    The vendor's documentation does not allow them; the texts are *decided here*. The header
    ``Upstash-Queue-Name`` may be combined with them, because clients send it for schedules, which
    may have a delay.
    """
    if settings.delay_us or settings.not_before_us is not None:
        raise bad_request(
            "invalid delay: a message of a queue cannot be delayed, publish it without a queue"
        )
    if settings.flow is not None:
        raise bad_request(
            "invalid flow control: a message of a queue cannot have a flow control key, use the"
            " parallelism of the queue"
        )


class Publisher:
    """Accepts publish requests, callbacks, runs of schedules, and retries of dead letters.

    ``publish()`` and ``publish_again()`` take the lock.
    """

    def __init__(
        self,
        data: QueueData,
        lifecycle: Lifecycle,
        queues: Queues,
        url_groups: UrlGroups,
        schedules: Schedules,
        dead_letters: DeadLetters,
        workflow: WorkflowRuns,
        quota: Quota,
        deduplication: Deduplication,
    ) -> None:
        self._data = data
        self._lifecycle = lifecycle
        self._queues = queues
        self._url_groups = url_groups
        self._schedules = schedules
        self._dead_letters = dead_letters
        self._workflow = workflow
        self._quota = quota
        self._deduplication = deduplication

    def publish(
        self,
        destination: str,
        headers: HeaderPairs,
        body: bytes,
        *,
        query: HeaderPairs = (),
        caller_ip: str = "127.0.0.1",
        queue_name: str | None = None,
        api: Api = "v2",
        schedule_only: bool = False,
    ) -> Published:
        """Accept a publish request. If it has a cron expression, create a schedule.

        Raises ``QueueError``: 400 for a malformed request, 412 if a plan limit is exceeded, 413 for
        a body that is too large, 429 if the daily limit is exceeded.
        """
        with self._data.lock:
            now = self._data.clock.now_us()
            group = self._url_groups.find(destination) if self._url_groups.by_name else None
            defaults = None if group is None else group.headers
            settings = PublishSettings(**read_given(headers, query, defaults))
            if queue_name is not None:
                settings = settings._replace(queue_name=queue_name)
                if settings.cron is None and not schedule_only:
                    _check_queued(settings)
            retries = self._quota.check(settings, body, now)
            targets = self._targets(destination, settings, group)
            if settings.cron is not None or schedule_only:
                self._deduplication.forget_expired(now)
                key = deduplication_key(settings, body, destination)
                key = None if key is None else f"schedule:{key}"
                earlier = self._deduplication.earlier_id(key, now)
                if earlier is not None:
                    # Observed: a schedule keeps its deduplication id when it has been deleted.
                    return Published(schedule_id=earlier, duplicate=True)
                sent = [*headers, *query]
                schedule = self._schedules.create(
                    destination, settings, body=body, caller_ip=caller_ip, sent=sent, api=api
                )
                self._deduplication.remember(key, schedule.id, now)
                return Published(schedule_id=schedule.id)
            drafts = [
                self._draft(settings, body, now, retries, caller_ip, api=api, **target)
                for target in targets
            ]
            return self._store(drafts, now, group=group is not None)

    def publish_run(self, schedule: MessageSchedule, at_us: int) -> list[str]:
        """Create the messages of a run of a schedule, and return their ids."""
        settings = schedule.settings
        group = self._url_groups.find(schedule.destination)
        if group is not None:
            # Use the group's current default headers, as for any publish request to the group.
            fields = read_given(schedule.sent, defaults=group.headers)
            settings = as_scheduled(PublishSettings(**fields))
            settings = settings._replace(queue_name=schedule.settings.queue_name)
            self._quota.check(settings, schedule.body, self._data.clock.now_us())
        retries = self._quota.retries(settings.retries)
        sender = schedule.caller_ip
        origin = {"api": schedule.api, "schedule_id": schedule.id}
        drafts = [
            self._draft(settings, schedule.body, at_us, retries, sender, **origin, **target)
            for target in self._targets(schedule.destination, settings, group)
        ]
        return [
            accepted.message_id
            for accepted in self._store(drafts, self._data.clock.now_us()).accepted
        ]

    def _targets(
        self, destination: str, settings: PublishSettings, group: UrlGroup | None
    ) -> list[dict[str, str | None]]:
        """Return the fields of the messages to a destination; raise a 400 error if it is invalid.

        What could be the name of a URL group is one, so it raises a 404 error if there is none.
        """
        if group is not None:
            return [
                {"url": endpoint.url, "topic_name": group.name, "endpoint_name": endpoint.name}
                for endpoint in group.endpoints
            ]
        if not destination.partition("?")[0]:
            raise bad_request(errors.NO_DESTINATION)
        if destination.startswith("api/"):
            named = named_url(destination)
            if named is None:
                raise bad_request(
                    f"invalid destination url: {errors.INVALID_SCHEME}; of the service's own"
                    f" destinations there are {' and '.join(NAMED)}"
                )
            if named == LLM_URL and settings.callback is None:
                raise bad_request("invalid destination: api/llm needs the Upstash-Callback header")
            return [{"url": named}]
        if is_name(destination):
            raise not_found("topic", destination)
        check_url(destination, "destination")
        if self._data.settings.production_checks:
            check_public(destination)
        return [{"url": destination}]

    def check_destination(self, destination: str) -> None:
        """Raise ``QueueError`` if nothing can be published to a destination."""
        self._targets(destination, PublishSettings(), self._url_groups.find(destination))

    def publish_callback(
        self,
        source: Message,
        kind: MessageKind,
        url: str,
        nested: HeaderPairs,
        body: bytes,
        at_us: int,
    ) -> None:
        """Publish a callback about a message, with the settings nested in the message's headers."""
        fields = read_given(nested) if nested else {}
        retries = self._quota.callback_retries(fields.get("retries"), source.max_retries)
        redaction = source.settings.redaction
        if "redaction" in fields:
            redaction = fields["redaction"].with_other(redaction)
        fields |= {"content_type": "application/json", "retries": retries, "redaction": redaction}
        settings = PublishSettings(**fields)
        self._quota.count_message(at_us)
        origin = {
            "url": url, "kind": kind, "source_id": source.id, "source_attempt": len(source.attempts)
        }  # fmt: skip
        draft = self._draft(settings, body, at_us, retries, source.caller_ip, **origin)
        try:
            if draft.queue_name is not None:
                self._queues.check([draft.queue_name])
            repeats = None
            if settings.workflow or kind == "failure_callback":
                repeats = self._workflow.accept(draft, at_us)
        except QueueError as error:
            # Record the error in the message's timeline, because no client waits for a response.
            source.lost_callbacks += (error.message,)
            return
        if repeats is None:
            if draft.queue_name is None:
                source.open_children += 1
            else:
                self._queues.create_if_missing(draft.queue_name, at_us)
            self._lifecycle.accept(draft, at_us, source=source)

    def publish_again(self, message: Message, settings: PublishSettings, body: bytes) -> None:
        with self._data.lock:
            now = self._data.clock.now_us()
            self._store([self._draft_again(message, settings, body, now)], now)

    def retry_dead_letters(
        self, letters: Iterable[Message], headers: HeaderPairs = ()
    ) -> Sequence[Accepted]:
        """Publish the messages of dead letters again, and delete the letters. A message keeps its body,
        headers and settings, but not its delay, deduplication id and attempts.

        ``headers`` override the settings of the messages. If one is rejected (``QueueError`` as in
        ``publish()``), none is published and no letter is deleted.
        """
        now = self._data.clock.now_us()
        overrides = read_given(headers)
        overrides.pop("content_type", None)
        messages, drafts = [*letters], []
        for message in messages:
            settings = settings_to_republish(message.settings, overrides, message.max_retries)
            draft = self._draft_again(message, settings, message.body, now)
            draft.kind, draft.schedule_id = message.kind, message.schedule_id
            draft.retry_of = message.id
            drafts.append(draft)
        accepted = self._store(drafts, now).accepted
        self._dead_letters.delete(messages)
        return accepted

    def _draft_again(
        self, message: Message, settings: PublishSettings, body: bytes, now: int
    ) -> Message:
        """Return a message that repeats an earlier one and is not stored yet."""
        retries = self._quota.check(settings, body, now)
        draft = self._draft(settings, body, now, retries, message.caller_ip, url=message.url)
        draft.topic_name, draft.endpoint_name = message.topic_name, message.endpoint_name
        draft.api = message.api
        draft.wait_timeout_us = message.wait_timeout_us
        draft.wait_deadline_us = message.wait_deadline_us
        draft.invoked_run_id = message.invoked_run_id
        return draft

    def _draft(
        self,
        settings: PublishSettings,
        body: bytes,
        now_us: int,
        retries: int,
        caller_ip: str,
        **origin: Any,
    ) -> Message:
        """Return a message that is not stored yet. ``origin`` are further fields of it."""
        not_before = now_us + settings.delay_us
        if settings.not_before_us is not None:
            not_before = max(now_us, settings.not_before_us)
        ceiling = self._data.limits.timeout_us
        return Message(
            id=self._data.new_message_id(),
            body=body,
            settings=settings,
            created_us=now_us,
            not_before_us=not_before,
            max_retries=retries,
            timeout_us=min(settings.timeout_us or ceiling, ceiling),
            caller_ip=caller_ip,
            queue_name=settings.queue_name,
            **origin,
        )

    def _store(self, drafts: list[Message], now: int, *, group: bool = False) -> Published:
        """Store the drafts that repeat no earlier message. If one is rejected, none is stored."""
        if self._deduplication.keys:
            self._deduplication.forget_expired(now)
        keys: list[str | None] = []
        queue_names: set[str] = set()
        for draft in drafts:
            settings, key = draft.settings, None
            if draft.queue_name is not None:
                queue_names.add(draft.queue_name)
            if settings.deduplication_id is not None or settings.content_based_deduplication:
                run = self._workflow.identity_of_run(settings) if settings.workflow else ""
                key = deduplication_key(
                    settings, draft.body, draft.url, draft.topic_name, by_endpoint=group, run=run
                )
            keys.append(key)
        if self._data.limits.daily_messages is not None:
            new = {key or draft.id for key, draft in zip(keys, drafts, strict=True)}
            earlier_id = self._deduplication.earlier_id
            self._quota.check_room(sum(earlier_id(key, now) is None for key in new))
        if queue_names:
            self._queues.check(queue_names)
        runs = None
        if len(drafts) > 1 and any(draft.settings.workflow for draft in drafts):
            # Save the runs, because a later step may be rejected after an earlier one.
            runs = copies(self._workflow.runs)
        accepted: list[Accepted] = []
        stored: list[Message] = []
        new_ids: dict[str, str] = {}
        try:
            for draft, key in zip(drafts, keys, strict=True):
                earlier = None
                if key is not None:
                    earlier = self._deduplication.earlier_id(key, now) or new_ids.get(key)
                if earlier is None and (
                    draft.settings.workflow or draft.kind == "failure_callback"
                ):
                    earlier = self._workflow.accept(draft, now)
                if earlier is not None:
                    accepted.append(Accepted(earlier, draft.url, deduplicated=True))
                    continue
                accepted.append(Accepted(draft.id, draft.url))
                stored.append(draft)
                if key is not None:
                    new_ids[key] = draft.id
        except QueueError:
            if runs is not None:
                self._workflow.runs = runs
            raise
        try:
            for key, message_id in new_ids.items():
                self._deduplication.remember(key, message_id, now)
            if group and stored and stored[0].api == "v1":
                # Use one public id for the deliveries of a v1 message to all endpoints of a topic.
                shared = self._data.new_message_id()
                self._data.groups_of_tasks[shared] = [draft.id for draft in stored]
                for draft in stored:
                    draft.public_id = shared
            for draft in stored:
                if draft.queue_name is not None:
                    self._queues.create_if_missing(draft.queue_name, now)
                self._quota.count_message(now)
                self._lifecycle.accept(draft, now)
        except BaseException:
            # A signal's handler may have interrupted it. Publish all messages of a call, or none.
            for key, message_id in new_ids.items():
                self._deduplication.forget(key, message_id)
            for draft in stored:
                self._lifecycle.take_back(draft)
            raise
        for draft in stored:
            # Store a step with which its run exceeds a limit: its delivery fails the run.
            rejection = self._workflow.rejection(draft) if draft.settings.workflow else None
            if rejection is not None:
                raise rejection
        return Published(accepted, group=group, duplicate=bool(accepted) and not stored)
