"""The reports of failed tests in other processes: as text, and as pages in a folder."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from ..cloud.cloud import Cloud
from ..core.errors import counted, report_failure
from ..core.output_files import file_name, write_public

if TYPE_CHECKING:
    from ..reporting.report import Report

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MOST_TEXTS = 3
"""Maximum number of failed tests whose reports are kept, to print them at the end."""


class FailedTest(NamedTuple):
    """A failed test: its report as text, what its failing statement read in one line, and the path of
    its page, if one was written.
    """

    name: str
    text: str
    statement: str
    page: Path | None


class FailedTests:
    """Makes the reports of failed tests, and writes their pages into a folder, if there is one."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = Lock()
        self._tests: dict[str, FailedTest] = {}
        """The last failure of each test, the newest last; only the newest have texts."""

    def add(self, cloud: Cloud, name: str, failure: str, read: Sequence[object]) -> FailedTest:
        """Make the report of a test that has failed with a cloud.

        ``failure`` is the error as its runner shows it, also in colours, ``read`` the names and values
        that the failing statement compared (see `report_of()`).
        """
        test = self._reported(cloud, name, failure, read)
        with self._lock:
            self._tests.pop(name, None)
            self._tests[name] = test
            for old in list(self._tests.values())[:-MOST_TEXTS]:
                self._tests[old.name] = old._replace(text="")
        return test

    def _reported(
        self, cloud: Cloud, name: str, failure: str, read: Sequence[object]
    ) -> FailedTest:
        # Imported late, because most servers make no report.
        from ..reporting.render.text import lines_of
        from ..reporting.render.wording import headline
        from ..reporting.report import report_of

        lines: list[str] = []
        statement, page = "", None
        with report_failure("the report of the fakes could not be made", lines.append):
            text = _COLOUR.sub("", failure)
            report = report_of(cloud, test=name, failure=text, read=read)
            statement = headline(report)
            link = ""
            if self._folder is not None:
                page, link = self._written(self._folder, cloud, report)
            lines += [line.text for line in lines_of(report, link=link, width=_width())]
        return FailedTest(name, "\n".join(lines), statement, page)

    def _written(self, folder: Path, cloud: Cloud, report: Report) -> tuple[Path | None, str]:
        """Write the page of a report and its JSON; return its path, and the path or an error as text."""
        from ..reporting.render import as_json, page

        failures: list[str] = []
        with report_failure("it could not be written", failures.append):
            path = folder / f"{file_name(report.test)}.html"
            written = write_public(path, page.page(cloud, report))
            as_json.write(report, written.with_suffix(".json"))
            return written.absolute(), str(written)
        return None, f"({failures[0]})"

    def summary(self) -> str:
        """Return the names of the failed tests with their reports, of all but the newest in one line
        each, and where the pages are. Empty if no test has failed.
        """
        with self._lock:
            tests = list(self._tests.values())
        if not tests:
            return ""
        title = f" fakecloud: {counted(len(tests), 'failed test')} "
        short = [f"{test.name}: {test.statement}" for test in tests if not test.text]
        blocks = [f"{title:-^{_width()}}", "\n".join(short)]
        blocks += [f"{test.name}:\n{test.text}" for test in tests if test.text]
        if any(test.page for test in tests):
            blocks.append(f"pages of the failed tests: {self._folder}")
        return "\n\n".join(filter(None, blocks))

    def write_index(self) -> None:
        """Write the index of the pages; an error is printed."""
        from ..reporting.render.page import write_index

        with report_failure("no index of the pages", partial(print, file=sys.stderr)):
            if self._folder is not None and self._folder.is_dir():
                write_index(self._folder)


def _width() -> int:
    """Return the width of the terminal in columns, or that of a file."""
    from ..reporting.render.text import WIDE, WIDEST

    return min(shutil.get_terminal_size((WIDE, 24)).columns, WIDEST)
