"""Rows with their wording, for comparison in tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_fakecloud import Cloud
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.reporting.lookups import lookups_of
from pytest_fakecloud.reporting.model import ReportRow
from pytest_fakecloud.reporting.render.wording import Summary, describe
from pytest_fakecloud.reporting.rows.rows import rows


@dataclass(frozen=True)
class Shown:
    """A row and its wording."""

    row: ReportRow
    words: Summary

    def __getattr__(self, name: str) -> Any:
        """Return a field of the wording, or of the row."""
        return getattr(self.words if name in Summary.__dataclass_fields__ else self.row, name)

    @property
    def line(self) -> str:
        """The request and its answer in one line."""
        return (
            f"{self.words.what} <-- {self.words.answer}" if self.words.answer else self.words.what
        )


def shown(cloud: Cloud, served: Any = ()) -> list[Shown]:
    """Return the rows of a cloud with their wording, except actions of the test on the fakes."""
    lookups = lookups_of(cloud, list(cloud.journal.entries), [])
    every = rows(cloud, served=served, lookups=lookups)
    return [Shown(row, describe(row, lookups)) for row in every if row.kind != "action"]


def deliver(queue: Queue, url: str, **options: Any) -> None:
    """Publish a message, and deliver until nothing is due."""
    queue.publish(url, **options)
    queue.run_until_idle()


def lines(cloud: Cloud) -> list[str]:
    """Return the requests of clients with their answers."""
    return [row.line for row in shown(cloud) if row.words.answer]


def linked(
    error: BaseException | None = None,
    *,
    cause: BaseException | None = None,
    context: BaseException | None = None,
) -> BaseException:
    """Return an error (default: a failed assertion) with another one as its cause or context."""
    error = AssertionError() if error is None else error
    error.__cause__, error.__context__ = cause, context
    return error
