"""Dead letters, kept for the plan's retention period on the queue's clock.

Decided here: listings start with the oldest dead letter. A listing of workflow runs only
(``source=workflow``) omits their failure callbacks, because a run contains the state of its failure
callback. A retried message keeps its body, headers and settings, but not its delay, deduplication
id and attempts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..errors import not_found
from ..model import Message, Outcome
from ..wire.filters import Filters, page
from .state import State


class DeadLetter(NamedTuple):
    """A dead letter with its id ``<unix-ms>-<n>``, its message, and the time at which it was added."""

    id: str
    number: int
    message_id: str
    at_us: int


class DeadLetters:
    """The dead letters, in the order in which they were added. Expired ones are removed on access."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.rows: dict[str, DeadLetter] = {}
        self._count = 0

    def add(self, message: Message, at_us: int) -> str:
        row = DeadLetter(f"{at_us // 1000}-{self._count}", self._count, message.id, at_us)
        self._count += 1
        self.rows[row.id] = row
        return row.id

    def all(self) -> list[DeadLetter]:
        """Return the dead letters that have not expired, oldest first."""
        with self._state.lock:
            oldest = self._state.clock.now_us() - self._state.limits.retention_us
            for row in list(self.rows.values()):
                if row.at_us > oldest:
                    break
                del self.rows[row.id]
            return list(self.rows.values())

    def get(self, dlq_id: str) -> DeadLetter:
        """Return a dead letter; raise a 404 error if it does not exist or has expired."""
        self.all()
        found = self.rows.get(dlq_id)
        if found is None:
            raise not_found("dlq message", dlq_id)
        return found

    def message(self, row: DeadLetter) -> Message:
        return self._state.messages[row.message_id]

    def select(self, filters: Filters) -> tuple[list[DeadLetter], str | None]:
        """Return a page of the matching dead letters, and the cursor of the next page."""
        with self._state.lock:
            no_answer = self._state.settings.no_answer_status
            rows = []
            runs_only = filters.fields.get("source") == ["workflow"]
            for row in self.all():
                message = self.message(row)
                if runs_only and message.failure_of is not None:
                    continue
                status = (message.last_outcome or Outcome()).status_or(no_answer)
                if filters.matches(message, row.at_us, status=status, dlq_id=row.id):
                    rows.append(row)
            return page(rows, lambda row: row.number, filters, latest_first=False)

    def delete(self, rows: Iterable[DeadLetter]) -> int:
        with self._state.lock:
            return sum(self.rows.pop(row.id, None) is not None for row in rows)
