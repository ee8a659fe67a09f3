"""The log of all messages, which is read in pages, newest entries first by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model import LogEntry, Message
from ..wire.filters import Filters, page

MOST = 100
"""Maximum page size in the vendor's OpenAPI file. (The Python client says 1000, but follows the
cursor.)
"""


@dataclass(slots=True)
class Logs:
    """All log entries, in the order in which they were written."""

    entries: list[LogEntry] = field(default_factory=list)

    def page(
        self, filters: Filters, messages: Mapping[str, Message], no_answer_status: int
    ) -> tuple[list[LogEntry], str | None]:
        """Return a page of the matching entries, and the cursor of the next page.

        Entries of forgotten messages are left out.
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
