"""What a test can look at in a queue, and what it can assert; nothing here moves time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kernel.clock import Clock
from ..kernel.errors import ContractError
from ..kernel.journal import Found
from .arguments import ANY
from .driving import waiting
from .engine import Engine
from .headers import as_text
from .inspection import STATES, WORDS, DeadLetterView, PublishedMessage, ScheduleView
from .matching import agrees, assert_matching, mismatches
from .model import MESSAGE, Attempt


class Looking:
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
        service's own words.  `url` and `label` are text (`*` matches anything), a pattern or a
        predicate.
        """
        self.clock.settle()
        if state is not None and state not in STATES and str(state).upper() not in WORDS:
            raise ContractError(f"unknown state {state!r}, expected one of {', '.join(STATES)}")
        found: Found[PublishedMessage] = Found()
        with self.engine.lock:
            records = list(self.engine.messages.values())
        for record in records:
            words = (WORDS[record.state], record.state, record.state.lower())
            if state is not None and state not in words:
                continue
            if url is not None and not agrees(as_text(record.url), url):
                continue
            if label is not None and not any(agrees(one, label) for one in record.settings.labels):
                continue
            if kind is not None and record.kind != kind:
                continue
            if queue is not None and record.queue_name != queue:
                continue
            found.append(PublishedMessage(self.engine, record.id))
        return found

    def message(self, message_id: str) -> PublishedMessage:
        """The message of that id; `ContractError` when there is none."""
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
        wanted = id.id if isinstance(id, PublishedMessage) else id
        messages = self.engine.messages
        with self.engine.lock:
            return Found(
                one
                for one in self.engine.attempts
                if (
                    wanted is None or wanted in (one.message_id, messages[one.message_id].public_id)
                )
                and (url is None or agrees(as_text(one.url), url))
            )

    def dead_letters(self, url: object = None) -> Found[DeadLetterView]:
        """The dead letters that have not expired, oldest first."""
        self.clock.settle()
        found = (
            DeadLetterView(self.engine, row.id, row.message_id, row.at_us)
            for row in self.engine.dead_letters.all()
        )
        return Found(one for one in found if url is None or agrees(one.url, url))

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
        asked: dict[str, Any] = {"url": url, "json": json, "body": body, "headers": headers}
        asked |= {"label": label, "method": method, "queue": queue}

        def why_not(message: PublishedMessage) -> list[str]:
            return mismatches(message, **asked)

        return assert_matching(
            "a message to be published",
            self.messages(kind=MESSAGE),
            why_not,
            times=times,
            asked=_asked(asked),
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
        return self._assert_state(
            "a message to be delivered", "delivered", times, url, json, body, headers, label
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
        return self._assert_state(
            "a message to be dead-lettered", "dead_lettered", times, url, json, body, headers, label
        )

    def _assert_state(
        self,
        what: str,
        state: str,
        times: int | None,
        url: object,
        json: object,
        body: object,
        headers: Mapping[str, object] | None,
        label: object,
    ) -> Found[PublishedMessage]:
        asked: dict[str, Any] = {"url": url, "json": json, "body": body, "headers": headers}
        asked["label"] = label

        def why_not(message: PublishedMessage) -> list[str]:
            return mismatches(message, state=state, **asked)

        return assert_matching(what, self.messages(), why_not, times=times, asked=_asked(asked))

    def assert_idle(self) -> None:
        """Fail when a message has not come to an end."""
        if self.engine.pending:
            raise AssertionError(f"the queue is not idle: {waiting(self.engine)}")


def _asked(asked: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name}={value!r}"
        for name, value in asked.items()
        if value is not None and value is not ANY
    )
