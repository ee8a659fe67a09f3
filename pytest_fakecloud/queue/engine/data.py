"""The data that all parts of a queue's engine share: its messages, their logs, numbers and ids."""

from __future__ import annotations

import threading
from typing import Any

from ...core.clock import Timekeeper
from ...core.ids import Ids
from ...core.timers import Lane
from ..errors import not_found
from ..model import Attempt, LogEntry, Message, Outcome, Report
from ..settings import QueueConfig


def copies(items: dict[str, Any]) -> dict[str, Any]:
    return {key: item.copy() for key, item in items.items()}


def no_report(kind: str, text: str, **fields: Any) -> None:
    """Ignore a problem: the default for an engine without a fake."""


class QueueData:
    """The messages of a queue, the rules that apply to them, and the clock and the lock of its engine.

    ``pending`` are the unfinished messages. ``groups_of_tasks`` maps the public id of a v1 message to
    the ids of its deliveries. ``under_way`` are the messages whose deliveries are being performed.
    ``answered`` maps an id to the outcome of the attempt and the time at which it will be applied.
    ``sequence`` is the latest number of a message, an attempt, a run or an entry of a log.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        *,
        settings: QueueConfig,
        name: str = "queue",
        in_background: bool = False,
        report: Report = no_report,
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.limits = settings.plan
        self.in_background = in_background
        """Whether threads deliver what is due. Otherwise, calls of the test do."""
        self.report = report
        self.lock = threading.RLock()
        self._message_ids = ids.stream(name, "message ids")
        self._other_ids = ids.stream(name, "other ids")
        self.messages: dict[str, Message] = {}
        self.pending: dict[str, Message] = {}
        self.groups_of_tasks: dict[str, list[str]] = {}
        self.under_way: dict[str, Message] = {}
        self.answered: dict[str, tuple[int, Outcome]] = {}
        self.sequence = 0
        self.closed = False

    @property
    def attempts_lane(self) -> Lane:
        """The lane of the clock's timers that begin attempts."""
        return "background" if self.in_background else "driven"

    @property
    def changes_lane(self) -> Lane:
        """The lane of the clock's timers that change data without a delivery."""
        # With background delivery, no call of the test fires timers.
        return "background" if self.in_background else "state"

    # -- ids and numbers ---------------------------------------------------------------------------

    def new_id(self, prefix: str) -> str:
        return prefix + self._other_ids.base58(28)

    def new_message_id(self) -> str:
        message_id = "msg_" + self._message_ids.hex(32)
        # A message that a file kept may have an id that the same seed gives again.
        return self.new_message_id() if message_id in self.messages else message_id

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    # -- logs --------------------------------------------------------------------------------------

    def log(self, message: Message, state: str, at_us: int, **details: Any) -> None:
        """Add an entry to a message's log. ``details`` are its further fields."""
        message.log.append(self.log_entry(message, state, at_us, **details))

    def log_entry(self, message: Message, state: str, at_us: int, **details: Any) -> LogEntry:
        self.sequence = number = self.sequence + 1
        return LogEntry(number, at_us, message.id, state, **details)

    # -- looking up; acquires the lock -------------------------------------------------------------

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts of the messages that still exist, oldest first."""
        with self.lock:
            return sorted(
                (attempt for message in self.messages.values() for attempt in message.attempts),
                key=lambda attempt: attempt.sequence,
            )

    def task_ids(self, message_id: str) -> list[str]:
        """Return the ids of a message's deliveries; a v1 message to a topic has one per endpoint."""
        return self.groups_of_tasks.get(message_id, [message_id])

    def message(self, message_id: str) -> Message:
        """Return a message that clients may still read; raise a 404 error otherwise."""
        with self.lock:
            message = self.messages.get(self.task_ids(message_id)[0])
            if message is None or message.state == "CANCELED":
                raise not_found("message", message_id)
            end = message.finished_us
            if end is not None and self.clock.now_us() > end + self.settings.message_grace_us:
                raise not_found("message", message_id)
            return message

    def tasks(self, message_id: str) -> list[Message]:
        """Return a message's deliveries (v1 topics have several); raise a 404 error if unknown."""
        with self.lock:
            ids = self.groups_of_tasks.get(message_id)
            if ids is None:
                return [self.message(message_id)]
            return [self.messages[task_id] for task_id in ids]
