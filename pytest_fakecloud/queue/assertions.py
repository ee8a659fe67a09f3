"""What a test can look at in a queue, and what it can assert; nothing here moves time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from ..core.errors import ContractError, shown
from ..core.found import Found, expect, found_of
from ..core.matching import MESSAGE_ID, Query
from ..core.timekeeper import Timekeeper
from ..core.wording import check_times
from .engine.engine import Engine
from .fields import ATTEMPTS, AttemptFields, DeadLetterFields, ListedFields, MessageFields
from .model import MESSAGE, Attempt
from .unfinished import waiting
from .views import (
    DEAD_LETTERS,
    MESSAGES,
    SCHEDULES,
    WORDS,
    DeadLetterView,
    PublishedMessage,
    ScheduleView,
    found_messages,
)


class QueueAssertions:
    """The part of a queue's handle that looks and asserts."""

    _engine: Engine
    _time: Timekeeper

    def _look(self) -> None:
        self._engine.looked_at = True
        self._time.settle()

    # -- looking ---------------------------------------------------------------------------------

    def messages(
        self, state: object = None, **where: Unpack[ListedFields]
    ) -> Found[PublishedMessage]:
        """Return the messages, callbacks included, in the order they were published.

        ``state`` is ``pending``, ``in_flight``, ``delivered``, ``dead_lettered`` or ``cancelled``, or
        one of the service's own words. ``where`` are the fields that must agree: ``url``, ``label``,
        ``kind``, ``queue`` and whatever else a message has. Raises ``ContractError`` for what no
        message could have.
        """
        __tracebackhide__ = True
        self._look()
        # The service's own words come in capitals, as the API shows them.
        own = isinstance(state, str) and state.upper() in WORDS
        asked = Query(
            _given(where, **{"service_state" if own else "state": state}), MESSAGES, "message"
        )
        with self._engine.lock:
            self._engine.history.sweep()
            ids = list(self._engine.messages)
        found = (PublishedMessage(self._engine, one) for one in ids)
        return found_messages(one for one in found if asked(one))

    def message(self, message_id: str) -> PublishedMessage:
        """Return the message of that id; ``ContractError`` when there is none."""
        __tracebackhide__ = True
        self._look()
        if not isinstance(message_id, str):
            raise ContractError(f"message({shown(message_id)}): give the id of a message, a text")
        # Of a first-era message to a topic, the delivery to its first endpoint.
        own_id = self._engine.groups_of_tasks.get(message_id, [message_id])[0]
        if own_id not in self._engine.messages:
            raise ContractError(f"this queue has no message {message_id!r}")
        return PublishedMessage(self._engine, own_id)

    def attempts(
        self, id: str | PublishedMessage | None = None, **where: Unpack[AttemptFields]
    ) -> Found[Attempt]:
        """Return the attempts, oldest first: all, or those of one message.

        ``where`` are the fields of an attempt that must agree, such as ``url`` or ``status``.
        """
        __tracebackhide__ = True
        self._look()
        asked = Query(where, ATTEMPTS, "attempt")
        wanted = id.id if isinstance(id, PublishedMessage) else id
        if wanted is not None and not isinstance(wanted, str):
            raise ContractError(f"attempts({shown(wanted)}): give a message or its id, or url=")
        MESSAGE_ID.check("id", wanted)
        with self._engine.lock:
            self._engine.history.sweep()
            messages = self._engine.messages
            found = [
                one
                for one in self._engine.attempts
                if wanted is None or wanted in (one.message_id, messages[one.message_id].public_id)
            ]
        return found_of(filter(asked, found), ATTEMPTS, "attempt")

    def dead_letters(
        self, url: object = None, **where: Unpack[DeadLetterFields]
    ) -> Found[DeadLetterView]:
        """Return the dead letters that have not expired, oldest first.

        ``where`` are further fields of a dead letter that must agree, such as ``status``.
        """
        __tracebackhide__ = True
        self._look()
        asked = Query(_given(where, url=url), DEAD_LETTERS, "dead letter")
        found = (
            DeadLetterView(self._engine, row.id, row.message_id, row.at_us)
            for row in self._engine.dead_letters.all()
        )
        return found_of(filter(asked, found), DEAD_LETTERS, "dead letter")

    def schedules(self) -> Found[ScheduleView]:
        """Return the schedules, in the order they were created."""
        found = (ScheduleView(self._engine, one) for one in list(self._engine.schedules.by_id))
        return found_of(found, SCHEDULES, "schedule")

    def pending(self) -> Found[PublishedMessage]:
        """Return the messages that have not come to an end."""
        self._look()
        return found_messages(
            PublishedMessage(self._engine, one) for one in list(self._engine.pending)
        )

    # -- asserting -------------------------------------------------------------------------------

    def assert_published(
        self,
        url: object = None,
        *,
        times: int | None = None,
        **where: Unpack[MessageFields],
    ) -> Found[PublishedMessage]:
        """Return the messages that were published like this.

        Fails unless there is at least one, or exactly ``times``. Callbacks do not count: the queue
        published them, not the application. See ``MessageFields`` for what can be asked.
        """
        __tracebackhide__ = True
        messages = self.messages()
        own = "a callback, which the queue published itself"
        return self._expect(
            "a message to be published",
            [one for one in messages if one.kind == MESSAGE],
            _given(where, url=url),
            times,
            not_counted=((one, own) for one in messages if one.kind != MESSAGE),
        )

    def assert_not_published(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Fail when any message was published like this."""
        __tracebackhide__ = True
        self.assert_published(url, times=0, **where)

    def assert_delivered(
        self,
        url: object = None,
        *,
        times: int | None = None,
        **where: Unpack[MessageFields],
    ) -> Found[PublishedMessage]:
        """Return the messages, callbacks included, that were delivered like this.

        Fails unless there is at least one, or exactly ``times``. Never drives: what is due and not
        yet attempted is not delivered.
        """
        __tracebackhide__ = True
        given = {**_given(where, url=url), "state": "delivered"}
        return self._expect("a message to be delivered", self.messages(), given, times)

    def assert_not_delivered(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Fail when any message was delivered like this."""
        __tracebackhide__ = True
        self.assert_delivered(url, times=0, **where)

    def assert_dead_lettered(
        self,
        url: object = None,
        *,
        times: int | None = None,
        **where: Unpack[MessageFields],
    ) -> Found[PublishedMessage]:
        """Return the messages like this that were given up.

        Fails unless there is at least one, or exactly ``times``.
        """
        __tracebackhide__ = True
        given = {**_given(where, url=url), "state": "dead_lettered"}
        return self._expect("a message to be dead-lettered", self.messages(), given, times)

    def assert_not_dead_lettered(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Fail when any message like this was given up."""
        __tracebackhide__ = True
        self.assert_dead_lettered(url, times=0, **where)

    def assert_idle(self) -> None:
        """Fail when a message has not come to an end."""
        __tracebackhide__ = True
        self._look()
        if self._engine.pending:
            raise AssertionError(f"the queue is not idle: {waiting(self._engine)}")

    def _expect(
        self,
        what: str,
        messages: Iterable[PublishedMessage],
        given: Mapping[str, object],
        times: int | None,
        not_counted: Iterable[tuple[PublishedMessage, str]] = (),
    ) -> Found[PublishedMessage]:
        __tracebackhide__ = True
        check_times(times)
        asked = Query(given, MESSAGES, "message")
        return expect(
            what,
            messages,
            asked,
            times=times,
            show=lambda one: one.timeline,
            not_counted=[pair for pair in not_counted if asked(pair[0])],
            none="there is no message at all",
        )


def _given(where: Mapping[str, Any], **first: object) -> dict[str, object]:
    """Return what is asked; the first argument of a call asks for nothing when it was not given."""
    return {name: wanted for name, wanted in first.items() if wanted is not None} | dict(where)
