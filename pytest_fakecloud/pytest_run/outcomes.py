"""The outcomes of tests: failures and warnings of passing tests, reports of failing ones."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import nullcontext
from functools import partial
from itertools import chain
from traceback import walk_tb
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ..cloud.base import context_of, undelivered
from ..cloud.cloud import Cloud
from ..cloud.services import SERVICES
from ..core.calls import Call
from ..core.errors import (
    ContractError,
    chain_of,
    counted,
    encodable,
    ends_the_test,
    if_installed,
    report_hook_failure,
)
from ..core.frames import is_own
from ..core.libraries import is_library
from ..core.output_files import file_name, write_public
from ..core.violations import Violation, with_allowance
from .ini import INI_SETTINGS
from .options import SESSION_SETTINGS, SETTINGS, fixture_of, misuse
from .warning import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from ..reporting.model import Comparison
    from ..reporting.observed import ObservedTest
    from ..reporting.render.text import TextLine
    from ..reporting.report import Report
    from .run import Run


def check(run: Run, item: pytest.Item) -> None:
    """Fail a passing test for its strict-mode violations, and issue its warnings."""
    failed: list[str] = []
    failure: BaseException | None = None
    warned: list[str] = []
    with report_hook_failure(
        "the check for strict-mode violations could not be made", failed.append
    ):
        clouds, kinds = _clouds_to_report(run), run.settings_of_test(item).strict
        for cloud in clouds:
            if texts := undelivered(cloud, kinds):
                warned += _masked(cloud, texts)
        violations = _failing_violations(clouds, kinds)
        if violations:
            failure = _failure(clouds, violations)
        else:
            for cloud in clouds:
                if context_of(cloud).recorder.entries:
                    warned += _refused_clients(cloud)
    if failed:
        failure = misuse(failed[0])
    if failure is not None:
        raise failure
    for text in warned:
        warn(item, text)


def _clouds_to_report(run: Run) -> list[Cloud]:
    """Return the cloud that the test has requested, and the other open ones, if they were used: an
    application may call fakes that no test requests.
    """
    requested = run.test.requested_cloud
    clouds = [] if requested is None else [requested]
    for owner in run.owners.values():
        cloud = owner.cloud
        if cloud is requested:
            continue
        if context_of(cloud).recorder.entries or cloud.violations():
            clouds.append(cloud)
    return clouds


def _masked(cloud: Cloud, texts: list[str]) -> list[str]:
    """Return texts without the credentials of a cloud."""
    from ..reporting.mask import Mask

    return [*map(Mask(cloud).text, texts)]


def explain(run: Run, item: pytest.Item, error: Exception) -> None:
    """Raise an outcome of pytest that a callback raised before the error of a failed test, or let a
    callback's failed assertion be the cause of the error.
    """
    violations: list[Violation] = []
    with report_hook_failure("the exceptions of callbacks could not be read", partial(warn, item)):
        violations = _failing_violations(_clouds_to_report(run), run.settings_of_test(item).strict)
    ending = _ending(violations)
    if ending is not None:
        raise ending
    failed = _failed_assertion(violations)
    if failed is None:
        return
    chain = chain_of(error)
    if failed not in chain:
        chain[-1].__cause__ = failed


def _failing_violations(clouds: list[Cloud], kinds: Container[str]) -> list[Violation]:
    """Return the violations that fail a test. An outcome of pytest raised by a callback ends the
    test even without strict mode.
    """
    failing = []
    for cloud in clouds:
        for violation in cloud.violations():
            if violation.kind in kinds or _ending([violation]) is not None:
                failing.append(violation)
    return failing


def _ending(violations: list[Violation]) -> BaseException | None:
    """Return the first outcome of pytest that a callback raised, or None."""
    ends = (
        ends_the_test(violation.exception)
        for violation in violations
        if violation.kind == "assertion"
    )
    return next(filter(None, ends), None)


def _failed_assertion(violations: list[Violation]) -> BaseException | None:
    """Return the first assertion that failed in a callback, or None."""
    return next((p.exception for p in violations if p.kind == "assertion" and p.exception), None)


def _failure(clouds: list[Cloud], violations: list[Violation]) -> BaseException:
    """Return the failure of a passing test with violations."""
    ending = _ending(violations)
    if ending is not None:
        return ending
    text = (
        f"fakecloud: the test passed, but with {counted(len(violations), 'strict-mode violation')}\n"
        + "\n".join(_described(clouds, {violation.kind for violation in violations}))
    )
    failed = _failed_assertion(violations)
    if failed is not None:
        # Raise the assertion itself, so that pytest shows its message, source line and values.
        failed.add_note(text)
        return failed
    failure = pytest.fail.Exception(text, pytrace=False)
    failure.__cause__ = next((p.exception for p in violations if p.exception is not None), None)
    return failure


def _described(clouds: list[Cloud], kinds: set[str]) -> list[str]:
    """Describe the violations of these kinds, equal ones of a client that retries only once."""
    from ..reporting.lookups import Lookups
    from ..reporting.mask import Mask
    from ..reporting.render.wording import violation
    from ..reporting.violations import violations

    return [
        Mask(cloud).text(violation(finding, Lookups()))
        for cloud in clouds
        for finding in violations(cloud)
        if finding.values.get("violation") in kinds
    ]


def _refused_clients(cloud: Cloud) -> list[str]:
    """Describe clients whose credentials were rejected, unless the test allows it."""

    def meant(call: Call) -> bool:
        facts = {"path": call.path, "method": call.method, "fake": call.fake}
        return cloud._allowed.covers("refused", facts)

    entries = context_of(cloud).recorder.entries
    if not any(isinstance(e, Call) and e.status == 401 and not meant(e) for e in entries):
        return []
    from ..reporting.lookups import Lookups
    from ..reporting.render.wording import sentence
    from ..reporting.violations import rejected

    return [
        with_allowance(sentence(finding, Lookups()), "refused", {"fake": finding.fake})
        for finding in rejected(cloud, every_call=True, meant=meant)
    ]


def write_timelines_index(run: Run) -> None:
    """Write the index of the timelines of failed tests."""
    with report_hook_failure(
        "fakecloud: no index of the timelines", partial(print, file=sys.stderr)
    ):
        folder = run.options.timelines
        # A folder that could not be created has already been reported.
        if folder is not None and os.path.isdir(folder):
            from ..reporting.render.page import write_index

            write_index(folder)


# -- the report of a test --------------------------------------------------------------------------

NO_REPORT = "the report of the fakes could not be made"
_SECTION = "fakecloud"
_MARKED = {"red": True, "bold": True}
"""The colour of marked lines, which pytest has for lines of an exception."""


def report_on(
    run: Run, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Add the report of a test's fakes to pytest's report of a failure. Also write the recording of the
    test, export its trace, and keep its rows if it passed, as far as options ask for that.
    """
    # Catch all exceptions, e.g. of a lost server: one raised here would abort the run.
    with report_hook_failure(NO_REPORT, lambda line: report.sections.append((_SECTION, line))):
        clouds = _clouds_to_report(run)
        # Each cloud has its own clock, so the run's cloud gets a separate page next to the test's.
        names = [item.nodeid, f"{item.nodeid} (session)"]
        named = list(zip(clouds, names, strict=False))
        folder = run.options.recordings
        if folder and _adds_to_recording(run, clouds, call, report):
            _record(folder, named, item)
        if run.options.traces is not None:
            _export_traces(run, named, item, call, report)
        is_pass = report.passed and call.excinfo is None  # not that of a skipped test
        if run.options.timelines is not None and is_pass and not run.test.has_failed_subtest:
            if call.when == "call" and run.test.has_run:
                _note_pass(run, named, item)
            elif call.when == "teardown":
                _keep_pass(run, item)
        if named and _is_wanted(run, call, report):
            run.test.is_reported = True
            from ..reporting.render.text import TextLine

            phase = _Phase(run, item, call, report, [])
            lines: list[TextLine] = []
            for cloud, name in named:
                lines += [TextLine("")] * bool(lines) + _lines(phase, cloud, name)
            _show(report, lines, phase.headlines)


def end_failed_teardown(run: Run, report: pytest.TestReport) -> None:
    """End what the test has started itself, after the report of its failed teardown, which has read it.
    Add an exception to the report, because the outcome of the test is known.
    """

    def show(line: str) -> None:
        report.sections.append((f"{_SECTION} teardown", line))

    with report_hook_failure("the fakes that the test has started could not all be closed", show):
        run.end_teardown()


def _show(report: pytest.TestReport, lines: list[TextLine], headlines: list[str]) -> None:
    """Add the lines to a report, and what the failing statement read, or else the first finding, to the
    message of the exception.

    The message is what JUnit's XML, annotations of a CI server and the summary on a CI server
    show of a failure; JUnit's XML contains the sections of the exception, but not of the report.
    """
    lines = [line._replace(text=encodable(line.text)) for line in lines]
    text = "\n".join(line.text for line in lines)
    # pytest-xdist sends the attributes of a report, built-in values, to the process that prints it.
    report.fakecloud_lines = list(map(tuple, lines))  # type: ignore[attr-defined]
    failure: Any = report.longrepr
    crash = getattr(failure, "reprcrash", None)
    if headlines and crash is not None:
        crash.message = f"{crash.message}\n\n{encodable(headlines[0])}"
    if hasattr(failure, "addsection"):
        failure.addsection(_SECTION, text, "-")
    else:
        report.sections.append((_SECTION, text))


def encodable_data(data: Any) -> Any:
    """Return the data of a report with encodable strings. pytest-xdist ends a run for any other, such
    as a file's name in the exception of a handler.
    """
    if isinstance(data, str):
        return encodable(data)
    if isinstance(data, dict):
        return {encodable_data(name): encodable_data(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(map(encodable_data, data))
    return data


def colour(report: pytest.TestReport, markup: Callable[..., str]) -> None:
    """Colour the section of a report for the terminal, after all loggers have read the report,
    because files must not contain colours.
    """
    lines = report.fakecloud_lines
    text = "\n".join(markup(line, **_MARKED) if marked else line for line, marked in lines)
    failure: Any = report.longrepr
    if hasattr(failure, "sections"):
        failure.sections = [
            (name, text if name == _SECTION else other, mark)
            for name, other, mark in failure.sections
        ]
    report.sections = [
        (name, text if name == _SECTION else other) for name, other in report.sections
    ]


def _adds_to_recording(
    run: Run, clouds: list[Cloud], call: pytest.CallInfo[None], report: pytest.TestReport
) -> bool:
    """Return whether to write the calls of a test: at the end of its code or of a failed set-up, and
    again if its teardown has added some. It may also have reset the fakes, and their journals.
    """
    entries = [entry for cloud in clouds for entry in context_of(cloud).recorder.entries]
    recorded = run.test.recorded
    if call.when == "teardown":
        is_due = len(entries) > len(recorded) and entries[: len(recorded)] == recorded
    else:
        is_due = report.failed if call.when == "setup" else run.test.has_run
    if is_due:
        run.test.recorded = entries
    return is_due


def _record(folder: Path, named: list[tuple[Cloud, str]], item: pytest.Item) -> None:
    from ..cloud.cloud import archive_writer

    write = archive_writer("--fakecloud-record")
    for cloud, name in named:
        with report_hook_failure(
            f"the recording of {name} could not be written", partial(warn, item)
        ):
            write(cloud, folder / f"{file_name(name)}.har")


def _export_traces(
    run: Run,
    named: list[tuple[Cloud, str]],
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
) -> None:
    """Make the traces of a test at the end of its code or of a failed set-up, because its teardown may
    reset the fakes. Export them after the teardown, which ends what the test has replaced in the
    process, such as HTTP clients.
    """
    from ..reporting.report import report_of
    from .otlp import export, target_of, trace_of

    failure = partial(warn, item)
    if call.when == "call" or (call.when == "setup" and report.failed):
        for cloud, name in named:
            with report_hook_failure(f"the trace of {name} could not be made", failure):
                test_report = report_of(cloud, test=name, served=run.test.served(cloud))
                run.test.traces.append(trace_of(test_report, failed=report.failed))
    elif call.when == "teardown":
        target = target_of(str(run.options.traces), item.config.invocation_params.dir)
        for trace in run.test.traces:
            with report_hook_failure("--fakecloud-otlp: a trace is lost", failure):
                export(target, trace)
        run.test.traces.clear()


def _note_pass(run: Run, named: list[tuple[Cloud, str]], item: pytest.Item) -> None:
    """Note the reports of a test's own code, which has passed. Its teardown may reset the fakes."""
    from ..reporting.render.as_json import as_json
    from ..reporting.report import report_of

    if _last_pass() is None or _folder_of_passes(item) is None:
        return
    for cloud, name in named:
        with report_hook_failure(f"the run of {name} could not be kept", partial(warn, item)):
            run.test.passed_reports[name] = as_json(report_of(cloud, test=name))


def _keep_pass(run: Run, item: pytest.Item) -> None:
    """Keep a passing run in pytest's cache, for the page of a later run that fails."""
    last_pass = _last_pass()
    for name, report in run.test.passed_reports.items():
        with report_hook_failure(f"the run of {name} could not be kept", partial(warn, item)):
            if last_pass is not None and (folder := _folder_of_passes(item)) is not None:
                last_pass.keep(folder, name, report)


def _last_pass() -> ModuleType | None:
    """Return the module that keeps and compares passing runs; None if it is not installed."""
    with if_installed("last_pass"):
        from ..last_pass import comparison

        return comparison
    return None


def _folder_of_passes(item: pytest.Item) -> Path | None:
    """Return the folder of passing runs; None if pytest's cache is disabled."""
    cache: pytest.Cache | None = getattr(item.config, "cache", None)
    return None if cache is None else cache.mkdir("fakecloud")


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
    headlines: list[str]
    """What the failing statement read, and the sentences of the findings, the most important first; they
    are added while the text is made.
    """

    @property
    def raised(self) -> BaseException | None:
        return None if self.call.excinfo is None else self.call.excinfo.value

    @property
    def is_call(self) -> bool:
        return self.call.when == "call"

    @property
    def pages(self) -> Path | None:
        """The folder of pages; None if the test has no page."""
        return self.run.options.timelines if self.report.failed else None


def _lines(phase: _Phase, cloud: Cloud, name: str) -> list[TextLine]:
    from ..core.characters import visible
    from ..reporting.render.text import WIDE, WIDTH, TextLine, wrapped

    # A worker of pytest-xdist prints to a terminal whose width it cannot see.
    unknown = WIDTH if "PYTEST_XDIST_WORKER" in os.environ else WIDE
    width = shutil.get_terminal_size((unknown, 24)).columns
    hints = [] if phase.raised is None else _hints(phase, cloud, phase.raised)
    lines: list[TextLine] = []
    for hint in hints:
        # Tools search for the first line of a hint, so only the indented lines are wrapped.
        texts = wrapped(hint, width) if hint.startswith(" ") else [visible(hint)]
        lines += [TextLine(text, True) for text in texts]
    # An error can have a context manager in which the fakes hold the data that it is about.
    scene: Any = getattr(type(phase.raised), "_fakecloud_scene", None)
    failed = report_hook_failure(NO_REPORT, lambda text: lines.append(TextLine(text)))
    with failed, nullcontext() if scene is None else scene(phase.raised, cloud):
        lines += _report_lines(phase, cloud, name, hints, width)
    return lines


def _report_lines(
    phase: _Phase, cloud: Cloud, name: str, hints: list[str], width: int
) -> list[TextLine]:
    from ..reporting.render.text import lines_of
    from ..reporting.render.wording import headline, sentence
    from ..reporting.report import report_of

    run, report = phase.run, phase.report
    data = report_of(
        cloud,
        test=name,
        failure=str(report.longrepr) if report.failed else "",
        served=run.test.served(cloud),
        # Use the run's own measurement, because tests can freeze pytest's clock.
        idle_s=run.test.slept_seconds() if phase.is_call else None,
        raised=phase.raised,
        unequal=run.test.unequal,
        hints=hints,
        log=report.caplog,
        compare=partial(_compared, phase, name),
    )
    if text := encodable(headline(data)):
        phase.headlines.append(text)
        phase.item.user_properties.append(("fakecloud_statement", text))
    phase.headlines.extend(sentence(finding, data.lookups) for finding in data.findings)
    link = "" if phase.pages is None else _written(phase.pages, cloud, data, phase)
    return lines_of(data, link=link, width=width)


def _hints(phase: _Phase, cloud: Cloud, raised: BaseException) -> list[str]:
    """Return the likely reasons of a failure that the journal does not show."""
    lines: list[str] = []
    with report_hook_failure("the hints about missing requests could not be made", lines.append):
        _add_hints_about_setup(lines, phase, cloud, raised)
        lines += phase.run.hints(cloud, phase.item)
    return lines


def _add_hints_about_setup(
    lines: list[str], phase: _Phase, cloud: Cloud, raised: BaseException
) -> None:
    """Add hints one after the other, so that those made before an exception remain."""
    item = phase.item
    with if_installed("hints"):
        from ..hints.missing_requests import hints_about_error, hints_about_silence, old_token_hints
        from ..hints.mistakes import mistakes
        from ..hints.variables import unread_variables, unrequested_fakes

        lines += hints_about_error(cloud, raised) or old_token_hints(cloud)
        if not lines and phase.run.test.requested_cloud in (None, cloud):
            lines += unrequested_fakes(cloud, raised, getattr(item, "fixturenames", ()))
        if not lines and phase.is_call and cloud is phase.run.test.requested_cloud:
            values = list(vars(getattr(item, "module", None) or object).values())
            lines += hints_about_silence(cloud, values, raised)
        if not lines and phase.is_call:
            names, module = getattr(item, "fixturenames", ()), getattr(item, "module", None)
            lines += unread_variables(cloud, names, phase.report.caplog, module)
        lines += mistakes(cloud, raised, _functions_of(item))


def hints_about_import(error: BaseException) -> list[str]:
    """Return the hints about an error that a module raised while pytest was importing it."""
    with if_installed("hints"):
        from ..hints.variables import at_import

        return at_import(error)
    return []


def _functions_of(item: pytest.Item) -> list[object]:
    """Return the functions of a test and of its fixtures, and its parameters, which may be some."""
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    fixtures = [
        getattr(fixture, "func", None) for fixture in chain.from_iterable(definitions.values())
    ]
    return [getattr(item, "obj", None), *fixtures, *parameters.values()]


def _compared(phase: _Phase, name: str, test: ObservedTest) -> Comparison | None:
    """Return what a test did otherwise than in its last passing run; None without such a run, or if the
    test has no page.
    """
    last_pass, folder = _last_pass(), _folder_of_passes(phase.item)
    # What is kept has no rows of a teardown.
    if phase.pages is None or last_pass is None or folder is None or not phase.is_call:
        return None
    passed = last_pass.last_passing_run(folder, name)
    return None if passed is None else last_pass.compared(test, passed)


def _written(folder: Path, cloud: Cloud, data: Report, phase: _Phase) -> str:
    """Write the HTML page of a test and its JSON; return the path of the page, or the failure."""
    from ..reporting.render import as_json, page

    # An error such as a broken promise can have a function that makes its page.
    picture: Any = getattr(type(phase.raised), "_fakecloud_picture", None)
    failures: list[str] = []
    with report_hook_failure("it could not be written", failures.append):
        own_page = None if picture is None else partial(picture, phase.raised)
        path = folder / f"{file_name(data.test)}.html"
        written = write_public(path, page.page(cloud, data, own_page))
        as_json.write(data, written.with_suffix(".json"))
        # These properties are copied to the report of the teardown, which JUnit's XML reads.
        phase.item.user_properties.append(("fakecloud_timeline", str(written)))
        return str(written)
    return f"({failures[0]})"


# -- advice about scopes ----------------------------------------------------------------------------

_MISMATCH = re.compile(r"fixture (\w+) with a (\w+) scoped request")


def scope_advice(error: str, fixtures: Container[str]) -> str:
    """Return how a fixture of a wide scope can use a fake, or fakes of a wide scope can have settings,
    if that is what pytest's error is about.
    """
    match = _MISMATCH.search(error)
    if match is None or match[1] not in fixtures:
        return ""
    name = match[1]
    scope = match[2] if match[2] in INI_SETTINGS["fakecloud_scope"].choices else "session"
    if name in (SETTINGS, SESSION_SETTINGS):
        # The fakes of the whole run take no settings of single tests.
        is_session = name == SESSION_SETTINGS or scope == "session"
        wide = ("session", SESSION_SETTINGS) if is_session else (scope, SETTINGS)
        return (
            "\n\nfakecloud: the fakes last longer than a test (fakecloud_scope, or those of "
            f"fakecloud_session), so the fixture with their settings must, too:\n"
            f"    @pytest.fixture(scope={wide[0]!r})\n    def {wide[1]}():"
        )
    lines = ["", "", "fakecloud: let the fakes last as long as this fixture; in pytest.ini:"]
    lines += ["    [pytest]", f"    fakecloud_scope = {scope}"]
    if name == "fakecloud_env":
        lines += ["    fakecloud_env = true", "and request the fakes instead of fakecloud_env"]
    else:
        start = fixture_of(name.removeprefix("fakecloud_"))
        start = f".{start}()" if start in SERVICES else ""
        lines.append(f"or use the cloud that lasts for the run: fakecloud_session{start}")
    return "\n".join(lines)


# -- the tracebacks of failed tests -----------------------------------------------------------------

_RUNNERS = ("_pytest.", "pluggy.")


def hide_ours(item: Any, call: Any) -> None:
    """Remove this package's frames from a failure, before pytest writes its report.

    Only failed assertions and ``ContractError`` are changed; a bug in a fake keeps its frames.
    ``--full-trace`` keeps all frames. ``item`` and ``call`` are pytest's objects.
    """
    if item.config.getoption("fulltrace"):
        return
    if call.excinfo is not None:
        call.excinfo = _hidden(call.excinfo)
    # A unittest.TestCase keeps its failures in a list until the report.
    excinfos = getattr(item, "_excinfo", None)
    if isinstance(excinfos, list):
        excinfos[:] = map(_hidden, excinfos)


def _hidden(info: Any) -> Any:
    error: BaseException = info.value
    is_outcome = ends_the_test(error) is error  # such as that of pytest.fail()
    if not is_outcome and not isinstance(error, AssertionError | ContractError):
        return info
    chain = chain_of(error)
    rests = [_without_ours(raised.__traceback__) for raised in chain]
    if not _has_testers(rests[0][0]) or not any(has_ours for _, has_ours in rests):
        return info
    error.__traceback__ = rests[0][0]
    for cause, (trace, _) in zip(chain[1:], rests[1:], strict=True):
        cause.__traceback__ = trace if _has_testers(trace) else None
    return type(info).from_exception(error)


def _without_ours(trace: TracebackType | None) -> tuple[TracebackType | None, bool]:
    """Return a traceback without this package's frames, and whether it had any."""
    entries = []
    has_ours = False
    while trace is not None:
        if is_own(trace.tb_frame):
            has_ours = True
        else:
            entries.append(trace)
        trace = trace.tb_next
    visible: TracebackType | None = None
    for entry in reversed(entries):
        visible = TracebackType(visible, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return visible, has_ours


def _has_testers(trace: TracebackType | None) -> bool:
    return any(
        not str(frame.f_globals.get("__name__")).startswith(_RUNNERS)
        and not is_library(frame.f_code.co_filename)
        for frame, _ in walk_tb(trace)
    )
