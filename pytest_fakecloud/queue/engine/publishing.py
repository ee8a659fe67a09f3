"""Publishing, which converts a request to stored messages unless they repeat earlier ones.

Decided here: default headers of a URL group are treated as if they had been sent, and headers of
the request override them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import QueueError
from ..model import MESSAGE, Api, HeaderList, HeaderPairs, Kind, Message, PublishSettings
from ..wire.headers import read_given, read_settings, settings_to_republish
from ..wire.targets import Target, target_of, targets_of
from .deduplication import Deduplication, deduplication_key
from .lifecycle import Lifecycle
from .ordered_queues import OrderedQueue
from .quota import Quota
from .schedules import Schedule, Schedules, as_scheduled
from .state import State, copies
from .url_groups import UrlGroup


class Accepted(NamedTuple):
    message_id: str
    url: str
    deduplicated: bool = False


class _Origin(NamedTuple):
    """The fields of a new message that depend on the request, schedule or message behind it."""

    caller_ip: str
    api: Api = "v2"
    kind: Kind = MESSAGE
    source_id: str | None = None
    schedule_id: str | None = None
    retry_of: str | None = None


@dataclass(eq=False, slots=True)
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
    """Accepts messages for an engine. ``schedules`` are the schedules that publish messages."""

    def __init__(self, state: State, lifecycle: Lifecycle, quota: Quota) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._quota = quota
        self.deduplication = Deduplication(state.settings.dedup_window_us)
        self.schedules = Schedules(state, self._publish_run)

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
                settings = settings._replace(queue_name=queue_name)
            retries = self._quota.check(settings, body, now)
            targets = self._targets(destination, settings, group)
            if settings.cron is not None or schedule_only:
                sent = [*headers, *query]
                return self._schedule(destination, settings, body, caller_ip, sent, api)
            origin = _Origin(caller_ip, api)
            drafts = [
                self._draft(target, settings, body, now, retries, origin) for target in targets
            ]
            return self._store(drafts, now, group=group is not None)

    def _schedule(
        self,
        destination: str,
        settings: PublishSettings,
        body: bytes,
        caller_ip: str,
        sent: HeaderList,
        api: Api,
    ) -> Published:
        now = self._state.clock.now_us()
        self.deduplication.forget_expired(now)
        key = deduplication_key(settings, body, destination)
        key = None if key is None else f"schedule:{key}"
        earlier = self.deduplication.earlier_id(key, now)
        if earlier in self.schedules.by_id:
            return Published(schedule_id=earlier, repeated=True)
        schedule = self.schedules.create(destination, settings, body, caller_ip, sent=sent, api=api)
        self.deduplication.remember(key, schedule.id, now)
        return Published(schedule_id=schedule.id)

    def _publish_run(self, schedule: Schedule, at_us: int) -> list[str]:
        settings = schedule.settings
        group = self._state.url_groups.find(schedule.destination)
        if group is not None:
            # Use the group's current default headers, as for any publish request to the group.
            given = read_given(schedule.sent, defaults=group.headers)
            settings = as_scheduled(PublishSettings(**given))
            settings = settings._replace(queue_name=schedule.settings.queue_name)
            self._quota.check(settings, schedule.body, self._state.clock.now_us())
        retries = self._quota.retries(settings)
        origin = _Origin(schedule.caller_ip, schedule.api, schedule_id=schedule.id)
        drafts = [
            self._draft(target, settings, schedule.body, at_us, retries, origin)
            for target in self._targets(schedule.destination, settings, group)
        ]
        accepted = self._store(drafts, self._state.clock.now_us()).accepted
        return [one.message_id for one in accepted]

    def publish_callback(
        self, source: Message, kind: Kind, url: str, nested: HeaderPairs, body: bytes, at_us: int
    ) -> None:
        """Publish a callback about a message, with the settings nested in the message's headers."""
        state = self._state
        settings = read_settings(nested)
        retries = self._quota.callback_retries(settings, source.max_retries)
        settings = settings._replace(
            content_type="application/json",
            retries=retries,
            redaction=settings.redaction.with_other(source.settings.redaction),
        )
        self._quota.count_message(at_us)
        origin = _Origin(source.caller_ip, kind=kind, source_id=source.id)
        draft = self._draft(Target(url), settings, body, at_us, retries, origin)
        try:
            self._check_queues([draft])
            repeats = state.workflow.accept(draft, at_us)
        except QueueError as error:
            # Record the error in the message's timeline, because no client waits for a response.
            source.lost_callbacks += (error.message,)
            return
        if repeats is None:
            if draft.queue_name is None:
                source.open_children += 1
            self._create_queue_if_missing(draft, at_us)
            self._lifecycle.accept(draft, at_us, source=source)

    def retry_dead_letters(
        self, messages: Iterable[Message], headers: HeaderPairs = ()
    ) -> list[Accepted]:
        """Publish the messages of dead letters again; ``headers`` override their settings.

        If one is rejected (``QueueError`` as in ``publish()``), none is published.
        """
        given = read_given(headers)
        given.pop("content_type", None)
        drafts = []
        with self._state.lock:
            now = self._state.clock.now_us()
            for message in messages:
                settings = settings_to_republish(message.settings, given, message.max_retries)
                origin = _Origin(
                    message.caller_ip,
                    message.api,
                    kind=message.kind,
                    schedule_id=message.schedule_id,
                    retry_of=message.id,
                )
                drafts.append(self._draft_copy(message, settings, message.body, now, origin))
            return self._store(drafts, now).accepted

    def publish_again(self, message: Message, settings: PublishSettings, body: bytes) -> None:
        with self._state.lock:
            now = self._state.clock.now_us()
            origin = _Origin(message.caller_ip, message.api)
            self._store([self._draft_copy(message, settings, body, now, origin)], now)

    def _draft_copy(
        self, message: Message, settings: PublishSettings, body: bytes, now: int, origin: _Origin
    ) -> Message:
        retries = self._quota.check(settings, body, now)
        draft = self._draft(target_of(message), settings, body, now, retries, origin)
        draft.wait_timeout_us = message.wait_timeout_us
        draft.wait_deadline_us = message.wait_deadline_us
        draft.invoked_run_id = message.invoked_run_id
        return draft

    def _targets(
        self, destination: str, settings: PublishSettings, group: UrlGroup | None
    ) -> list[Target]:
        public_only = self._state.settings.production_checks
        return targets_of(destination, settings, group, public_only=public_only)

    def _draft(
        self,
        target: Target,
        settings: PublishSettings,
        body: bytes,
        now_us: int,
        retries: int,
        origin: _Origin,
    ) -> Message:
        state = self._state
        not_before = now_us + settings.delay_us
        if settings.not_before_us is not None:
            not_before = max(now_us, settings.not_before_us)
        ceiling = state.limits.timeout_us
        return Message(
            id=state.new_message_id(),
            body=body,
            settings=settings,
            created_us=now_us,
            not_before_us=not_before,
            max_retries=retries,
            retry_delay=settings.retry_delay,
            timeout_us=min(settings.timeout_us or ceiling, ceiling),
            queue_name=settings.queue_name,
            **target._asdict(),
            **origin._asdict(),
        )

    def _store(self, drafts: list[Message], now: int, *, group: bool = False) -> Published:
        """Store the drafts that repeat no earlier message. If one is rejected, none is stored."""
        self.deduplication.forget_expired(now)
        keys = [
            deduplication_key(
                draft.settings, draft.body, draft.url, draft.topic_name, by_endpoint=group
            )
            for draft in drafts
        ]
        self._check_room(drafts, keys, now)
        self._check_queues(drafts)
        workflow, runs = self._state.workflow, None
        if len(drafts) > 1 and any(draft.settings.workflow for draft in drafts):
            # Save the runs, because a later step may be rejected after an earlier one.
            runs = copies(workflow.runs)
        try:
            accepted, new_ids = self._accept_all(drafts, keys, now)
        except QueueError:
            if runs is not None:
                workflow.runs = runs
            raise
        for key, message_id in new_ids.items():
            self.deduplication.remember(key, message_id, now)
        stored = [
            draft for draft, one in zip(drafts, accepted, strict=True) if not one.deduplicated
        ]
        if group and stored and stored[0].api == "v1":
            self._share_public_id(stored)
        for draft in stored:
            self._create_queue_if_missing(draft, now)
            self._quota.count_message(now)
            self._lifecycle.accept(draft, now)
        return Published(accepted, group=group)

    def _check_room(self, drafts: list[Message], keys: list[str | None], now: int) -> None:
        if self._state.limits.daily_messages is not None:
            new = {key or draft.id for key, draft in zip(keys, drafts, strict=True)}
            earlier_id = self.deduplication.earlier_id
            self._quota.check_room(sum(earlier_id(key, now) is None for key in new))

    def _accept_all(
        self, drafts: list[Message], keys: list[str | None], now: int
    ) -> tuple[list[Accepted], dict[str, str]]:
        """Return the result for each draft, and the ids of new messages by deduplication key."""
        accepted: list[Accepted] = []
        new_ids: dict[str, str] = {}
        for draft, key in zip(drafts, keys, strict=True):
            earlier = self.deduplication.earlier_id(key, now)
            if earlier is None and key is not None:
                earlier = new_ids.get(key)
            if earlier is None:
                earlier = self._state.workflow.accept(draft, now)
            if earlier is not None:
                accepted.append(Accepted(earlier, draft.url, deduplicated=True))
                continue
            accepted.append(Accepted(draft.id, draft.url))
            if key is not None:
                new_ids[key] = draft.id
        return accepted, new_ids

    def _share_public_id(self, stored: list[Message]) -> None:
        # Use one public id for the deliveries of a v1 message to all endpoints of a topic.
        shared = self._state.new_message_id()
        self._state.groups_of_tasks[shared] = [draft.id for draft in stored]
        for draft in stored:
            draft.public_id = shared

    def _check_queues(self, drafts: Iterable[Message]) -> None:
        names = {one.queue_name for one in drafts if one.queue_name is not None}
        if names:
            self._state.queues.check(names)

    def _create_queue_if_missing(self, draft: Message, now: int) -> None:
        # Create the queue only now, so that a rejected message does not leave an empty queue.
        queues, name = self._state.queues, draft.queue_name
        if name is not None and name not in queues.by_name:
            queues.by_name[name] = OrderedQueue(name, now, now)
