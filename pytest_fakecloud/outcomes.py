"""Connect test outcomes with fakes: fail passing tests for violations, explain failing ones."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pytest

from .core.calls import Call
from .core.errors import report_failure
from .core.fatal_errors import ends_the_test
from .core.wording import counted
from .session.options import misuse
from .session.run import Run, end, run_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .any_cloud import AnyCloud
    from .core.problems import Problem
    from .reporting.model import Report
    from .reporting.page import Picture

NO_REPORT = "the report of the fakes could not be made"


class FakecloudWarning(pytest.PytestWarning):
    """A warning about something that looks wrong but that the real service would accept."""


def check(run: Run) -> None:
    """Fail a passing test for its strict-mode violations."""
    failed: list[str] = []
    failure: BaseException | None = None
    warned: list[str] = []
    with report_failure("the check for strict-mode violations could not be made", failed.append):
        # Check for undelivered messages first: the code below reads the journals, which would count
        # as an inspection by the test.
        warned = _undelivered(run)
        failure = _failure(run)
    if failed:
        failure = misuse(failed[0])
    if failure is not None:
        raise failure
    for text in warned:
        _warn(text)


def _undelivered(run: Run) -> list[str]:
    """Describe messages that a passing test published but never delivered, except those that fail
    it as strict-mode violations.
    """
    found = [(cloud, text) for cloud in run.clouds() for text in cloud._undelivered(run.strict)]
    if not found:
        return []
    from .reporting.masking import Mask

    return [Mask(cloud).text(text) for cloud, text in found]


def explain(run: Run, error: Exception) -> None:
    """Raise an earlier exception of a callback that explains the error of a failed test.

    An outcome of pytest is raised as it is and ends the test. An assertion becomes the cause of the
    error, so that pytest shows both.
    """
    found: _Found = []
    with report_failure("the exceptions of callbacks could not be read", _warn):
        found = _found(run)
    ending = _ending(found)
    if ending is not None:
        raise ending
    failed = _failed_assertion(found)
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)  # type: ignore[arg-type]
    if failed is not None and failed not in chain:
        chain[-1].__cause__ = failed


_Found: TypeAlias = list[tuple["AnyCloud", "Problem"]]


def _found(run: Run) -> _Found:
    """Return the violations that fail a test, each with its cloud.

    An outcome of pytest raised by a callback ends the test even without strict mode.
    """
    return [
        (cloud, problem)
        for cloud in run.clouds()
        for problem in cloud.problems
        if problem.kind in run.strict or _ending([(cloud, problem)]) is not None
    ]


def _ending(found: _Found) -> BaseException | None:
    """Return the first outcome of pytest that a callback raised, or None."""
    ends = (ends_the_test(one.exception) for _, one in found if one.kind == "assertion")
    return next(filter(None, ends), None)


def _failed_assertion(found: _Found) -> BaseException | None:
    """Return the first assertion that failed in a callback, or None."""
    failed = (one.exception for _, one in found if one.kind == "assertion")
    return next(filter(None, failed), None)


def _failure(run: Run) -> BaseException | None:
    """Return the failure of a passing test, or None."""
    clouds = run.clouds()
    found = _found(run)
    if not found:
        for cloud in clouds:
            _warn_of_refused_clients(cloud)
        return None
    ending = _ending(found)
    if ending is not None:
        return ending
    from .reporting.masking import Mask
    from .reporting.report import problems
    from .reporting.text import problem
    from .reporting.wording import Scene

    kinds = {problem.kind for _, problem in found}
    # Report each violation only once: a client that retries repeats the same one.
    lines = [
        Mask(cloud).text(problem(one, Scene()))
        for cloud in clouds
        for one in problems(cloud)
        if one.values.get("problem") in kinds
    ]
    text = (
        f"fakecloud: the test passed, but with {counted(len(found), 'strict-mode violation')}\n"
        + "\n".join(lines)
    )
    failed = _failed_assertion(found)
    if failed is not None:
        # Raise the assertion itself, so that pytest shows its message, source line and values.
        failed.add_note(text)
        return failed
    failure = pytest.fail.Exception(text, pytrace=False)
    failure.__cause__ = next((p.exception for _, p in found if p.exception is not None), None)
    return failure


def _warn_of_refused_clients(cloud: AnyCloud) -> None:
    entries = cloud.journal.entries
    meant: Callable[[Call], bool] = partial(_is_meant, cloud)
    if not any(isinstance(e, Call) and e.status == 401 and not meant(e) for e in entries):
        return
    from .reporting.report import rejected
    from .reporting.wording import Scene, sentence

    for one in rejected(cloud, every_call=True, meant=meant):
        why = sentence(one, Scene())
        _warn(f"{why} (if that is intended: fakecloud.allow('refused', path=...))")


def _is_meant(cloud: AnyCloud, call: Call) -> bool:
    return cloud._allowed.covers(
        "refused", {"path": call.path, "method": call.method, "handle": call.handle}
    )


def _warn(text: str) -> None:
    # Ignore exceptions: these warnings must never fail a passing test or the run, whatever the
    # warning filters.
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(FakecloudWarning(text), stacklevel=1)


def report_on(
    run: Run, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Add the journal of a test's fakes to its report."""
    # Catch all exceptions, because one raised here would abort the whole run, e.g. when a
    # stand-alone server no longer responds.
    with report_failure(NO_REPORT, lambda line: report.sections.append(("fakecloud", line))):
        _explain(run, item, call, report)


def _explain(
    run: Run, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    clouds = run.clouds()
    if not clouds:
        return
    in_call = call.when == "call"
    # Each cloud has its own clock, so the run's cloud gets a separate page next to the test's.
    names = [item.nodeid, f"{item.nodeid} (session)"]
    if run.recordings and (in_call or (call.when == "setup" and report.failed)):
        from .recordings import write as record
        from .reporting.page import file_name

        for cloud, name in zip(clouds, names, strict=False):
            with report_failure(f"the recording of {name} could not be written", _warn):
                record(cloud, run.recordings / f"{file_name(name)}.har")
    wanted = run.journal_when
    if (wanted == "always" and in_call) or (
        wanted == "failed"
        and report.failed
        and not (call.when == "teardown" and run.test.is_reported)
    ):
        run.test.is_reported = True
        texts = []
        for cloud, name in zip(clouds, names, strict=False):
            texts.append(_report_of(run, cloud, name, item, call, report))
        report.sections.append(("fakecloud", "\n\n".join(texts)))


def _report_of(
    run: Run,
    cloud: AnyCloud,
    name: str,
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
) -> str:
    from .reporting.report import report_of
    from .reporting.text import text, wrapped

    lines: list[str] = []
    if call.excinfo is not None:
        from .reporting.hints.missing_requests import hints_about_error, hints_about_silence
        from .reporting.hints.mistakes import mistakes
        from .reporting.hints.stale_clients import old_token_hints
        from .reporting.hints.unread_variables import unread_variables

        with report_failure("the hints about missing requests could not be made", lines.append):
            lines += hints_about_error(cloud, call.excinfo.value) or old_token_hints(cloud)
            if not lines and call.when == "call" and cloud is run.test.cloud:
                known = list(vars(getattr(item, "module", None) or object).values())
                lines += hints_about_silence(cloud, known, call.excinfo.value)
            if not lines and call.when == "call":
                lines += unread_variables(cloud, getattr(item, "fixturenames", ()), report.caplog)
            lines += mistakes(cloud, call.excinfo.value)
    with report_failure(NO_REPORT, lines.append):
        width = shutil.get_terminal_size().columns
        data = report_of(
            cloud,
            test=name,
            failure=str(report.longrepr) if report.failed else "",
            served=run.served(cloud),
            # Use the run's own measurement, because tests can freeze pytest's clock.
            idle_s=run.idle_s() if call.when == "call" else None,
            raised=None if call.excinfo is None else call.excinfo.value,
            hints=lines,
            log=report.caplog,
        )
        raised = None if call.excinfo is None else call.excinfo.value
        link = _written(run, cloud, data, item, raised) if run.timelines and report.failed else ""
        shown = text(data, link=link, width=width)
        # Tools search for the first line of a hint, so only the indented lines below it are wrapped.
        lines = [part for line in lines
                 for part in (wrapped(line, width) if line.startswith(" ") else [line])]  # fmt: skip
        lines.append(shown)
    return "\n".join(lines)


def _written(
    run: Run, cloud: AnyCloud, data: Report, item: pytest.Item, raised: BaseException | None
) -> str:
    """Write the HTML page of a test and its JSON; return the path of the page."""
    from .reporting import as_json, page

    assert run.timelines is not None
    links: list[str] = []
    with report_failure("(it could not be written", lambda line: links.append(f"{line})")):
        written = page.write(cloud, run.timelines, data, _picture_of(raised))
        as_json.write(data, written.with_suffix(".json"))
        links.append(str(written))
        # These properties are copied to the report of the teardown, which JUnit's XML reads.
        item.user_properties.append(("fakecloud_timeline", str(written)))
    return "".join(links)


def _picture_of(raised: BaseException | None) -> Picture | None:
    """Return a function that draws a broken promise of ``explore()``; None for any other failure."""
    if raised is None or not hasattr(raised, "runs"):
        return None
    from .explore.exploration import BrokenSchedule
    from .explore.picture import picture

    return partial(picture, found=raised) if isinstance(raised, BrokenSchedule) else None


def finish(config: pytest.Config) -> None:
    """Close the fakes that outlive tests and write the index of timelines."""
    run = run_of(config)
    folder = run.timelines
    # An ``on_close`` callback may raise. Test outcomes have already been reported, so only print
    # the error.
    with report_failure("fakecloud: no index of the timelines", partial(print, file=sys.stderr)):
        # A folder that could not be created has already been reported.
        if folder is not None and os.path.isdir(folder):
            from .reporting.page import write_index

            write_index(folder)
    with report_failure(
        "fakecloud: the session's fakes did not close", partial(print, file=sys.stderr)
    ):
        end(config)
