"""The reports of tests: the journal of a test's fakes, its page, and its recording."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ..core.errors import report_failure
from .run import Run
from .warning import warn

if TYPE_CHECKING:
    from pathlib import Path

    from ..cloud import Cloud
    from ..reporting.model import Report
    from ..reporting.page import Picture

NO_REPORT = "the report of the fakes could not be made"


def report_on(
    run: Run, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Add the journal of a test's fakes to its report, and write its recording."""
    # Catch all exceptions, e.g. of a lost server: one raised here would abort the run.
    with report_failure(NO_REPORT, lambda line: report.sections.append(("fakecloud", line))):
        clouds = run.clouds()
        # Each cloud has its own clock, so the run's cloud gets a separate page next to the test's.
        names = [item.nodeid, f"{item.nodeid} (session)"]
        named = list(zip(clouds, names, strict=False))
        folder = run.options.recordings
        if folder and (call.when == "call" or (call.when == "setup" and report.failed)):
            _record(folder, named, item)
        if named and _is_wanted(run, call, report):
            run.test.is_reported = True
            phase = _Phase(run, item, call, report)
            texts = [_text(phase, cloud, name) for cloud, name in named]
            report.sections.append(("fakecloud", "\n\n".join(texts)))


def _record(folder: Path, named: list[tuple[Cloud, str]], item: pytest.Item) -> None:
    from ..cloud import archive_writer
    from ..reporting.page import file_name

    write = archive_writer("--fakecloud-record")
    for cloud, name in named:
        with report_failure(f"the recording of {name} could not be written", partial(warn, item)):
            write(cloud, folder / f"{file_name(name)}.har")


def _is_wanted(run: Run, call: pytest.CallInfo[None], report: pytest.TestReport) -> bool:
    if run.options.journal_when == "always":
        return call.when == "call"
    is_repeated = call.when == "teardown" and run.test.is_reported
    return run.options.journal_when == "failed" and report.failed and not is_repeated


class _Phase(NamedTuple):
    """The set-up, call or teardown of a test that is reported."""

    run: Run
    item: pytest.Item
    call: pytest.CallInfo[None]
    report: pytest.TestReport

    @property
    def raised(self) -> BaseException | None:
        return None if self.call.excinfo is None else self.call.excinfo.value

    @property
    def is_call(self) -> bool:
        return self.call.when == "call"


def _text(phase: _Phase, cloud: Cloud, name: str) -> str:
    from ..reporting.text import wrapped

    width = shutil.get_terminal_size().columns
    hints = [] if phase.raised is None else _hints(phase, cloud, phase.raised)
    lines: list[str] = []
    for hint in hints:
        # Tools search for the first line of a hint, so only the indented lines are wrapped.
        lines += wrapped(hint, width) if hint.startswith(" ") else [hint]
    with report_failure(NO_REPORT, lines.append):
        lines.append(_journal(phase, cloud, name, hints, width))
    return "\n".join(lines)


def _journal(phase: _Phase, cloud: Cloud, name: str, hints: list[str], width: int) -> str:
    from ..reporting.report import report_of
    from ..reporting.text import text

    run, report = phase.run, phase.report
    data = report_of(
        cloud,
        test=name,
        failure=str(report.longrepr) if report.failed else "",
        served=run.observation.served(cloud),
        # Use the run's own measurement, because tests can freeze pytest's clock.
        idle_s=run.sleep.seconds() if phase.is_call else None,
        raised=phase.raised,
        hints=hints,
        log=report.caplog,
    )
    folder = run.options.timelines if report.failed else None
    link = "" if folder is None else _written(folder, cloud, data, phase)
    return text(data, link=link, width=width)


def _hints(phase: _Phase, cloud: Cloud, raised: BaseException) -> list[str]:
    """Return the likely reasons of a failure that the journal does not show."""
    from ..reporting.hints.missing_requests import (
        hints_about_error,
        hints_about_silence,
        old_token_hints,
    )
    from ..reporting.hints.variables import mistakes, unread_variables, unrequested_fakes

    item = phase.item
    lines: list[str] = []
    with report_failure("the hints about missing requests could not be made", lines.append):
        lines += hints_about_error(cloud, raised) or old_token_hints(cloud)
        if not lines and phase.run.test.cloud in (None, cloud):
            lines += unrequested_fakes(cloud, raised, getattr(item, "fixturenames", ()))
        if not lines and phase.is_call and cloud is phase.run.test.cloud:
            known = list(vars(getattr(item, "module", None) or object).values())
            lines += hints_about_silence(cloud, known, raised)
        if not lines and phase.is_call:
            lines += unread_variables(cloud, getattr(item, "fixturenames", ()), phase.report.caplog)
        lines += mistakes(cloud, raised)
    return lines


def _written(folder: Path, cloud: Cloud, data: Report, phase: _Phase) -> str:
    """Write the HTML page of a test and its JSON; return the path of the page, or the failure."""
    from ..reporting import as_json, page

    failures: list[str] = []
    with report_failure("it could not be written", failures.append):
        written = page.write(cloud, folder, data, _picture_of(phase.raised))
        as_json.write(data, written.with_suffix(".json"))
        # These properties are copied to the report of the teardown, which JUnit's XML reads.
        phase.item.user_properties.append(("fakecloud_timeline", str(written)))
        return str(written)
    return f"({failures[0]})"


def _picture_of(raised: BaseException | None) -> Picture | None:
    """Return the function of an error that makes its page, such as a broken promise; else None."""
    picture: Any = getattr(type(raised), "_fakecloud_picture", None)
    return None if picture is None else partial(picture, raised)
