"""Dead letters: messages that have failed, until their letter is retried, deleted or has expired.

A dead letter is kept for the plan's retention period on the queue's clock. Decided here: listings start
with the oldest. A listing of workflow runs only (``source=workflow``) omits their failure callbacks,
because a run contains the state of its failure callback.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import existing
from ..model import Message, Outcome
from ..wire.records import Filters, page

if TYPE_CHECKING:
    from .data import QueueData


def _number(letter: Message) -> int:
    return int(str(letter.dlq_id).partition("-")[2])


class DeadLetters:
    """The dead letters. ``by_id`` maps the id ``<unix-ms>-<n>`` of each to the id of its message, with
    which it ends. ``count`` is the number of all that there have been. Expired ones are removed on
    access.
    """

    def __init__(self, data: QueueData) -> None:
        self._data = data
        self.by_id: dict[str, str] = {}
        self.count = 0

    def add(self, message: Message, at_us: int) -> None:
        message.dlq_id = f"{at_us // 1000}-{self.count}"
        message.finished_us = at_us
        self.count += 1
        self.by_id[message.dlq_id] = message.id

    def all(self) -> list[Message]:
        """Return the messages of the dead letters that have not expired, oldest first."""
        self._drop_expired()
        return [self._data.messages[message_id] for message_id in self.by_id.values()]

    def find(self, dlq_id: str) -> Message | None:
        """Return a dead letter's message, or None if it does not exist or has expired."""
        self._drop_expired()
        return self._data.messages.get(self.by_id.get(dlq_id, ""))

    def get(self, dlq_id: str) -> Message:
        """Return a dead letter's message; raise a 404 error if it does not exist or has expired."""
        return existing(self.find(dlq_id), "dlq message", dlq_id)

    def _drop_expired(self) -> None:
        now_us = self._data.clock.now_us()
        for dlq_id, message_id in list(self.by_id.items()):
            if self.expires_us(self._data.messages[message_id]) > now_us:
                break
            del self.by_id[dlq_id]

    def select(self, filters: Filters) -> tuple[list[Message], str | None]:
        """Return a page of the matching dead letters, and the cursor of the next page."""
        no_answer = self._data.settings.no_answer_status
        letters = []
        for letter in self.all():
            if filters.fields.get("source") == ["workflow"] and letter.failure_of is not None:
                continue
            status = (letter.last_outcome or Outcome()).status_or(no_answer)
            own = {"responseStatus": status, "dlqId": letter.dlq_id, "dlqIds": letter.dlq_id}
            if filters.matches(letter, letter.finished_us or 0, own):
                letters.append(letter)
        return page(letters, _number, filters, latest_first=False)

    def delete(self, letters: Iterable[Message]) -> int:
        """Delete dead letters but not their messages, and return the number of those that existed."""
        deleted = [
            letter for letter in letters if self.by_id.pop(letter.dlq_id or "", None) is not None
        ]
        for letter in deleted:
            letter.has_left_dlq = True
        return len(deleted)

    def expires_us(self, letter: Message) -> int:
        """Return the time at which a dead letter expires, in microseconds."""
        return (letter.finished_us or 0) + self._data.limits.retention_us
