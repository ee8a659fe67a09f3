"""The log of all messages, read in pages, newest first by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model import LogEntry, Message
from ..wire.filters import Filters, page

MOST = 100
"""Maximum page size, from the vendor's OpenAPI file; the Python client says 1000 but follows the
cursor.
"""


@dataclass(slots=True)
class Logs:
    """All log rows in the order in which they were written."""

    entries: list[LogEntry] = field(default_factory=list)

    def page(
        self, filters: Filters, messages: Mapping[str, Message], no_answer_status: int
    ) -> tuple[list[LogEntry], str | None]:
        """Return one page of the matching rows and the cursor of the next page.

        Rows of forgotten messages are left out.
        """
        rows = [
            entry
            for entry in self.entries
            if entry.message_id in messages
            and (
                filters.empty
                or filters.matches(
                    messages[entry.message_id],
                    entry.time_us,
                    state=entry.state,
                    status=_status(entry, no_answer_status),
                )
            )
        ]
        return page(rows, lambda entry: entry.number, filters, latest_first=True)


def _status(entry: LogEntry, no_answer_status: int) -> int | None:
    if entry.outcome is None:
        return None
    return no_answer_status if entry.outcome.status is None else entry.outcome.status
