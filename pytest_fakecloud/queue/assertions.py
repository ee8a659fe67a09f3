"""Methods of the ``queue`` fake that inspect it and make assertions, without moving the clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ..core.errors import ContractError, brief, did_you_mean, listed, shown
from ..core.field_types import MESSAGE_ID, checked_count
from ..core.journal import Results, expect, results_of
from ..core.matching import Query
from ..core.timekeeper import Timekeeper
from .engine.engine import Engine
from .model import Attempt
from .views import (
    ATTEMPTS,
    DEAD_LETTERS,
    MESSAGES,
    SCHEDULES,
    STATE_NAMES,
    DeadLetterView,
    PublishedMessage,
    ScheduleView,
    found_messages,
)

if TYPE_CHECKING:
    from .typed import AttemptFields, DeadLetterFields, ListedFields, MessageFields


_COMPARED = 1000
"""Maximum number of messages whose ids are compared with an unknown one; more would take seconds."""


class QueueAssertions:
    """Mixin of ``Queue`` with its listings and assertions."""

    _engine: Engine
    _time: Timekeeper

    def _note_inspection(self) -> None:
        self._engine.inspected = True
        self._time.settle()

    def messages(
        self, state: object = None, **where: Unpack[ListedFields]
    ) -> Results[PublishedMessage]:
        """Return the messages, including callbacks, in the order in which they were published.

        ``state`` is ``pending``, ``in_flight``, ``delivered``, ``dead_lettered`` or ``cancelled``,
        or a state name of the service. ``where`` are conditions on fields such as ``url``,
        ``label``, ``kind`` or ``queue``. Raises ``ContractError`` for a value that no message could
        have.
        """
        __tracebackhide__ = True
        self._note_inspection()
        of_service = isinstance(state, str) and state.upper() in STATE_NAMES
        given = _conditions(where, **{"service_state" if of_service else "state": state})
        asked = Query(given, MESSAGES, "message")
        with self._engine.lock:
            self._engine.sweep()
            ids = list(self._engine.messages)
        found = (PublishedMessage(self._engine, one) for one in ids)
        return found_messages(one for one in found if asked(one))

    def message(self, message_id: str) -> PublishedMessage:
        """Return the message with the given id; raise ``ContractError`` if it does not exist."""
        __tracebackhide__ = True
        self._note_inspection()
        if not isinstance(message_id, str):
            raise ContractError(
                f"message({shown(message_id)}) is invalid; pass the id of a message as a string"
            )
        # Return the first delivery of a v1 message to a topic, which has one delivery per endpoint.
        own_id = self._engine.task_ids(message_id)[0]
        if own_id not in self._engine.messages:
            known = [one.public_id for one in list(self._engine.messages.values())[-_COMPARED:]]
            raise ContractError(
                f"this queue has no message {brief(message_id)}"
                f"{did_you_mean(message_id, known) or '.'} "
                f"Its latest messages: {listed(known[::-1]) or 'none'}"
            )
        return PublishedMessage(self._engine, own_id)

    def attempts(
        self, id: str | PublishedMessage | None = None, **where: Unpack[AttemptFields]
    ) -> Results[Attempt]:
        """Return all attempts, or the attempts of one message, oldest first.

        ``where`` are conditions on fields of an attempt, such as ``url`` or ``status``.
        """
        __tracebackhide__ = True
        self._note_inspection()
        asked = Query(where, ATTEMPTS, "attempt")
        # The deliveries of a v1 message to a topic share their public id, but not their own id.
        wanted = id._record.id if isinstance(id, PublishedMessage) else id
        if wanted is not None and not isinstance(wanted, str):
            raise ContractError(
                f"attempts({shown(wanted)}) is invalid; pass a message or its id, or url="
            )
        MESSAGE_ID.check("id", wanted)
        with self._engine.lock:
            self._engine.sweep()
            messages = self._engine.messages
            found = [
                one
                for one in self._engine.attempts
                if wanted is None or wanted in (one.message_id, messages[one.message_id].public_id)
            ]
        return results_of(filter(asked, found), ATTEMPTS, "attempt")

    def dead_letters(
        self, url: object = None, **where: Unpack[DeadLetterFields]
    ) -> Results[DeadLetterView]:
        """Return the dead letters that have not expired, oldest first.

        ``where`` are conditions on fields of a dead letter, such as ``status``.
        """
        __tracebackhide__ = True
        self._note_inspection()
        asked = Query(_conditions(where, url=url), DEAD_LETTERS, "dead letter")
        found = (DeadLetterView(self._engine, letter) for letter in self._engine.all_dead_letters())
        return results_of(filter(asked, found), DEAD_LETTERS, "dead letter")

    def schedules(self) -> Results[ScheduleView]:
        """Return the schedules in the order in which they were created."""
        self._time.settle()
        found = (ScheduleView(self._engine, one) for one in list(self._engine.schedules.by_id))
        return results_of(found, SCHEDULES, "schedule")

    # The look-ups with which reports repeat the actions on dead letters and schedules.

    def _dead_letter(self, id: str) -> DeadLetterView:
        return self.dead_letters(id=id).only()

    def _schedule(self, id: str) -> ScheduleView:
        return self.schedules().where(id=id).only()

    def pending(self) -> Results[PublishedMessage]:
        """Return the messages that are not yet delivered, dead-lettered or cancelled."""
        self._note_inspection()
        return found_messages(
            PublishedMessage(self._engine, one) for one in list(self._engine.pending)
        )

    def assert_published(
        self, url: object = None, *, times: int | None = None, **where: Unpack[MessageFields]
    ) -> Results[PublishedMessage]:
        """Assert that a matching message was published, and return all matching messages.

        ``times`` is the exact number of messages expected (at least one by default). Callbacks do
        not count, because the queue publishes them itself. The fields are those of ``messages()``.
        """
        __tracebackhide__ = True
        messages = self.messages()
        own = "a callback, which the queue published itself"
        return self._expect(
            "a message to be published",
            [one for one in messages if one.kind == "message"],
            _conditions(where, url=url),
            times,
            not_counted=((one, own) for one in messages if one.kind != "message"),
        )

    def assert_not_published(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Assert that no matching message was published."""
        __tracebackhide__ = True
        self.assert_published(url, times=0, **where)

    def assert_delivered(
        self, url: object = None, *, times: int | None = None, **where: Unpack[MessageFields]
    ) -> Results[PublishedMessage]:
        """Assert that a matching message was delivered, and return all matching messages.

        ``times`` is the exact number of messages expected (at least one by default). Callbacks
        count. This method delivers nothing, so a message that is due but has not been attempted
        does not count.
        """
        __tracebackhide__ = True
        given = {**_conditions(where, url=url), "state": "delivered"}
        return self._expect("a message to be delivered", self.messages(), given, times)

    def assert_not_delivered(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Assert that no matching message was delivered."""
        __tracebackhide__ = True
        self.assert_delivered(url, times=0, **where)

    def assert_dead_lettered(
        self, url: object = None, *, times: int | None = None, **where: Unpack[MessageFields]
    ) -> Results[PublishedMessage]:
        """Assert that a matching message was dead-lettered, and return all matching messages.

        ``times`` is the exact number of messages expected (at least one by default).
        """
        __tracebackhide__ = True
        given = {**_conditions(where, url=url), "state": "dead_lettered"}
        return self._expect("a message to be dead-lettered", self.messages(), given, times)

    def assert_not_dead_lettered(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Assert that no matching message was dead-lettered."""
        __tracebackhide__ = True
        self.assert_dead_lettered(url, times=0, **where)

    def assert_idle(self) -> None:
        """Assert that every message is delivered, dead-lettered or cancelled."""
        __tracebackhide__ = True
        self._note_inspection()
        if self._engine.pending:
            # Imported here, because a first fake needs no texts about messages.
            from .attempt_reports import unfinished_text

            raise AssertionError(f"the queue is not idle: {unfinished_text(self._engine)}")

    def _expect(
        self,
        what: str,
        messages: Iterable[PublishedMessage],
        given: Mapping[str, object],
        times: int | None,
        not_counted: Iterable[tuple[PublishedMessage, str]] = (),
    ) -> Results[PublishedMessage]:
        __tracebackhide__ = True
        checked_count("times", times)
        asked = Query(given, MESSAGES, "message")
        return expect(
            what,
            messages,
            asked,
            times=times,
            show=lambda one: one.timeline,
            not_counted=[pair for pair in not_counted if asked(pair[0])],
            if_empty="the queue has no messages",
        )


def _conditions(where: Mapping[str, Any], **first: object) -> dict[str, object]:
    """Merge conditions on fields; a condition in ``first`` that is None is left out."""
    return {name: wanted for name, wanted in first.items() if wanted is not None} | dict(where)
