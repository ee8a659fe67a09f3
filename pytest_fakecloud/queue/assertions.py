"""What a test can look at in a queue, and what it can assert; nothing here moves time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.clock import Clock
from ..core.errors import ContractError
from ..core.journal import Found
from .arguments import ANY
from .asking import agrees
from .delivery.drivers import waiting
from .engine.engine import Engine
from .matching import asked_for, assert_matching, mismatches
from .model import MESSAGE, Attempt
from .views import (
    STATES,
    WORDS,
    DeadLetterView,
    PublishedMessage,
    ScheduleView,
)


class QueueAssertions:
    """The part of a queue's handle that looks and asserts."""

    engine: Engine
    clock: Clock

    # -- looking ---------------------------------------------------------------------------------

    def messages(
        self,
        state: str | None = None,
        url: object = None,
        label: object = None,
        kind: str | None = None,
        queue: str | None = None,
    ) -> Found[PublishedMessage]:
        """The messages, callbacks included, in the order they were published.

        `state` is `pending`, `in_flight`, `delivered`, `dead_lettered` or `cancelled`, or one of the
        service's own words.  `url`, `label`, `kind` and `queue` are text (`*` matches anything), a
        pattern or a predicate; `ContractError` for what no message could have.
        """
        self.clock.settle()
        if state is not None and state not in STATES and str(state).upper() not in WORDS:
            raise ContractError(f"unknown state {state!r}, expected one of {', '.join(STATES)}")
        asked = asked_for(url=url, label=label, kind=kind, queue=queue)
        with self.engine.lock:
            self.engine.history.sweep()
            records = list(self.engine.messages.values())
        if state is not None:
            records = [
                one for one in records if state in (WORDS[one.state], one.state, one.state.lower())
            ]
        found = (PublishedMessage(self.engine, one.id) for one in records)
        return Found(one for one in found if not mismatches(one, asked))

    def message(self, message_id: str) -> PublishedMessage:
        """The message of that id; `ContractError` when there is none."""
        if not isinstance(message_id, str):
            raise ContractError(f"message({message_id!r}): give the id of a message, a text")
        # Of a first-era message to a topic, the delivery to its first endpoint.
        own_id = self.engine.groups_of_tasks.get(message_id, [message_id])[0]
        if own_id not in self.engine.messages:
            raise ContractError(f"this queue has no message {message_id!r}")
        return PublishedMessage(self.engine, own_id)

    def attempts(
        self, id: str | PublishedMessage | None = None, *, url: object = None
    ) -> Found[Attempt]:
        """The attempts, oldest first: all, of one message, or to a URL."""
        self.clock.settle()
        asked = asked_for(url=url)
        wanted = id.id if isinstance(id, PublishedMessage) else id
        if wanted is not None and not isinstance(wanted, str):
            raise ContractError(f"attempts({wanted!r}): give a message or its id, or url=")
        messages = self.engine.messages
        with self.engine.lock:
            self.engine.history.sweep()
            return Found(
                one
                for one in self.engine.attempts
                if one.message_id in messages
                and (
                    wanted is None or wanted in (one.message_id, messages[one.message_id].public_id)
                )
                and (not asked or agrees(one.url, url))
            )

    def dead_letters(self, url: object = None) -> Found[DeadLetterView]:
        """The dead letters that have not expired, oldest first."""
        self.clock.settle()
        asked = asked_for(url=url)
        found = (
            DeadLetterView(self.engine, row.id, row.message_id, row.at_us)
            for row in self.engine.dead_letters.all()
        )
        return Found(one for one in found if not asked or agrees(one.url, url))

    def schedules(self) -> Found[ScheduleView]:
        """The schedules, in the order they were created."""
        return Found(ScheduleView(self.engine, one) for one in list(self.engine.schedules.by_id))

    def pending(self) -> Found[PublishedMessage]:
        """The messages that have not come to an end."""
        self.clock.settle()
        return Found(PublishedMessage(self.engine, one) for one in list(self.engine.pending))

    # -- asserting -------------------------------------------------------------------------------

    def assert_published(
        self,
        url: object = None,
        *,
        json: object = ANY,
        body: object = ANY,
        headers: Mapping[str, object] | None = None,
        label: object = None,
        method: str | None = None,
        queue: str | None = None,
        times: int | None = None,
    ) -> Found[PublishedMessage]:
        """The messages that were published like this; fails unless there is one, or `times`.

        Callbacks do not count: the queue published them, not the application.
        """
        self.clock.settle()
        asked = asked_for(
            url=url,
            json=json,
            body=body,
            headers=headers,
            label=label,
            method=method,
            queue=queue,
        )
        return assert_matching(
            "a message to be published", self.messages(kind=MESSAGE), asked, times=times
        )

    def assert_not_published(self, url: object = None, **where: Any) -> None:
        """Fail when any message was published like this."""
        self.assert_published(url, times=0, **where)

    def assert_delivered(
        self,
        url: object = None,
        *,
        json: object = ANY,
        body: object = ANY,
        headers: Mapping[str, object] | None = None,
        label: object = None,
        times: int | None = None,
    ) -> Found[PublishedMessage]:
        """The messages that were delivered like this; fails unless there is one, or `times`.

        Never drives: what is due and not yet attempted is not delivered.
        """
        asked = asked_for(url=url, json=json, body=body, headers=headers, label=label)
        return assert_matching(
            "a message to be delivered", self.messages(), asked, times=times, state="delivered"
        )

    def assert_dead_lettered(
        self,
        url: object = None,
        *,
        json: object = ANY,
        body: object = ANY,
        headers: Mapping[str, object] | None = None,
        label: object = None,
        times: int | None = None,
    ) -> Found[PublishedMessage]:
        """The messages that were given up; fails unless there is one, or exactly `times`."""
        asked = asked_for(url=url, json=json, body=body, headers=headers, label=label)
        return assert_matching(
            "a message to be dead-lettered",
            self.messages(),
            asked,
            times=times,
            state="dead_lettered",
        )

    def assert_idle(self) -> None:
        """Fail when a message has not come to an end."""
        if self.engine.pending:
            raise AssertionError(f"the queue is not idle: {waiting(self.engine)}")
