"""The log of what happened to messages, and its pages; newest first unless asked otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .filters import Filters, page
from .model import LogEntry, Message

#: The vendor's documents say 100, the Python client 1000.
MOST = 1000


@dataclass(slots=True)
class Logs:
    """All rows in the order they were written."""

    entries: list[LogEntry] = field(default_factory=list)

    def page(
        self, filters: Filters, message_of: Callable[[str], Message], no_answer_status: int
    ) -> tuple[list[LogEntry], str | None]:
        """Return one page of the matching rows and the cursor to the next."""
        rows = [
            entry
            for entry in self.entries
            if filters.empty
            or filters.matches(
                message_of(entry.message_id),
                entry.time_us,
                state=entry.state,
                status=_status(entry, no_answer_status),
            )
        ]
        return page(rows, lambda entry: entry.number, filters, latest_first=True)


def _status(entry: LogEntry, no_answer_status: int) -> int | None:
    if entry.outcome is None:
        return None
    return no_answer_status if entry.outcome.status is None else entry.outcome.status
