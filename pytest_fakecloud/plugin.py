"""The pytest face: options, ini settings, marker, hooks and fixtures.

Imported in every pytest run of an environment, so it imports pytest only; all else is imported
where it is used.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from .services import SERVICES, by_word
from .session import (
    Run,
    ask_for_settings,
    begin,
    check_settings,
    end,
    misuse,
    present,
    publish_env,
    run_of,
)

if TYPE_CHECKING:
    from .any_cloud import AnyCloud
    from .broker.handle import Broker
    from .kv.handle import KVServer
    from .queue.capture.handle import CallbackCapture, Destination
    from .queue.handle import Queue
    from .vector.handle import VectorIndex


UNTOLD = "what the fakes saw cannot be told"


class FakecloudWarning(pytest.PytestWarning):
    """Something looks wrong, but the real service would have done the same."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the command line options and ini settings."""
    group = parser.getgroup("fakecloud")
    group.addoption(
        "--fakecloud-seed",
        metavar="SEED",
        help="random seed of every test's fakes (default: made from the test's node id)",
    )
    group.addoption(
        "--fakecloud-journal",
        choices=("failed", "always", "never"),
        default="failed",
        help="when a test's report shows the journal of its fakes (default: failed)",
    )
    group.addoption(
        "--fakecloud-url",
        metavar="URL",
        help="use the fakes of a stand-alone server (pytest-fakecloud serve) instead of starting "
        "some: its console address, or the address and the variable PYTEST_FAKECLOUD_TOKEN",
    )
    group.addoption(
        "--fakecloud-report",
        metavar="DIR",
        help="write an HTML timeline of the fakes of each failing test into this folder",
    )
    group.addoption(
        "--fakecloud-record",
        metavar="DIR",
        help="keep the calls of each test as an HTTP archive (HAR) in this folder",
    )
    parser.addini(
        "fakecloud_strict",
        "what fails a passing test: true, false, or names out of "
        "'unrouted unstubbed bug unused_fault unmet'",
        default="true",
    )
    parser.addini("fakecloud_clock", "the clock's mode: running or frozen", default="running")
    parser.addini(
        "fakecloud_env",
        "set the official clients' environment variables in every test that uses a fake",
        type="bool",
        default=False,
    )
    parser.addini(
        "fakecloud_transport",
        "how clients of the test process reach the fakes: socket, or inprocess (quicker; requests, "
        "httpx and urllib3)",
        default="socket",
    )
    parser.addini(
        "fakecloud_share_tls_context",
        "let httpx clients made while a fake is open share one TLS context, which saves some 20 ms "
        "for each",
        type="bool",
        default=True,
    )
    parser.addini(
        "fakecloud_scope",
        "how long the fixtures' fakes live: function, or session (same address and credentials "
        "for all tests, back to the baseline before each)",
        default="function",
    )
    parser.addini(
        "fakecloud_early",
        "fakes to start, with their environment variables, before conftests and the settings of "
        f"the application are imported: names out of '{' '.join(_early())}'; "
        "implies fakecloud_scope = session",
        type="args",
        default=[],
    )


def _early() -> list[str]:
    """The services whose variables an application reads: those that may be started early."""
    return [service.fixture for service in by_word().values()]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check the settings that hold for the whole run."""
    config.addinivalue_line(
        "markers",
        "fakecloud(now=, clock=, seed=, process_time=, strict=, env=, transport=, tls=, "
        + ", ".join(f"{fixture}={{...}}" for fixture in SERVICES)
        + "): settings of this test's fakes",
    )
    check_settings(config)
    begin(config)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Start the early fakes before anybody imports conftests or an application's settings."""
    early = early_config.getini("fakecloud_early")
    if early:
        known = _early()
        unknown = [name for name in early if name not in known]
        if unknown:
            raise pytest.UsageError(
                f"fakecloud_early: {', '.join(unknown)} is no service; "
                f"the services are: {', '.join(known)}"
            )
        # Without a configured run, as where a conftest cannot be imported, there is no other end.
        early_config.add_cleanup(partial(end, early_config))
        check_settings(early_config)
        from .core.errors import ContractError

        try:
            run_of(early_config).start_early(early)
        except (ContractError, OSError) as error:
            raise pytest.UsageError(f"fakecloud_early: {error}") from error
    yield


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the session's fakes."""
    run = run_of(config)
    folder = run.timelines
    if folder is None and not run.has_fakes:
        end(config)
        return
    from .core.errors import telling

    # What a tester hung on a fake's end may raise; the outcomes are out, and stand.
    with telling("fakecloud: no index of the timelines", partial(print, file=sys.stderr)):
        # A name that no system takes was refused before there was anything to list.
        if folder is not None and os.path.isdir(folder):
            from .reporting.page import write_index

            write_index(folder)
    with telling("fakecloud: the session's fakes did not close", partial(print, file=sys.stderr)):
        end(config)


# -- hooks -----------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """See an overridden ``fakecloud_settings``, which may have parameters."""
    ask_for_settings(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reset the session's fakes, and refuse a marker with unknown keys whatever the fixtures."""
    run = run_of(item.config)
    run.begin_test(item)
    if item.get_closest_marker("fakecloud") is not None:
        run.settings_of(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a passing test, in its call phase, for what it left behind."""
    run = run_of(item.config)
    run.begin_call()
    yield
    # A unittest.TestCase keeps its failure, skip or expected failure to itself until the report.
    if not getattr(item, "_excinfo", None):
        _check(run)


def _check(run: Run) -> None:
    if not run.has_fakes:
        return
    from .core.errors import telling

    untold: list[str] = []
    failure: BaseException | None = None
    with telling("whether the test left problems behind cannot be told", untold.append):
        failure = _failure(run)
    if untold:
        failure = misuse(untold[0])
    if failure is not None:
        raise failure


def _failure(run: Run) -> BaseException | None:
    """What a passing test fails for, if anything."""
    clouds = run.clouds()
    found = [
        (cloud, problem)
        for cloud in clouds
        for problem in cloud.problems
        if problem.kind in run.strict
    ]
    if not found:
        for cloud in clouds:
            _warn_of_refused_clients(cloud)
        return None
    from .reporting.masking import Mask
    from .reporting.section import counted

    masks = {id(cloud): Mask(cloud) for cloud in clouds}
    # A client that tries again leaves the same problem behind again.
    text = "\n".join(
        counted(
            f"[{problem.kind}] {masks[id(cloud)].text(problem.text)}" for cloud, problem in found
        )
    )
    failure = pytest.fail.Exception(
        f"fakecloud: the test passed, but left {len(found)} problem(s) behind\n{text}",
        pytrace=False,
    )
    failure.__cause__ = next((p.exception for _, p in found if p.exception is not None), None)
    return failure


def _warn_of_refused_clients(cloud: AnyCloud) -> None:
    if not any(call.status == 401 for call in cloud.journal.calls()):
        return
    from .reporting.section import refused

    for _, why in refused(cloud, every_call=True):
        _warn(why)


def _warn(text: str) -> None:
    # Whatever the run makes of warnings, these never fail a passing test, or the run.
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(FakecloudWarning(text), stacklevel=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the journal of the test's fakes to its report."""
    report = yield
    run = run_of(item.config)
    if run.has_fakes:
        from .core.errors import telling

        # A server elsewhere may be gone. An error here would end the whole run.
        with telling(UNTOLD, lambda line: report.sections.append(("fakecloud", line))):
            _explain(run, item, call, report)
    if call.when == "teardown":
        run.end_test()
    return report


def _explain(
    run: Run, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    clouds = run.clouds()
    if not clouds:
        return
    in_call = call.when == "call"
    # Each cloud has a clock of its own, so the run's has a page of its own beside the test's.
    names = [item.nodeid, f"{item.nodeid} (session)"]
    if run.recordings and (in_call or (call.when == "setup" and report.failed)):
        from .core.errors import telling
        from .recordings import write as record
        from .reporting.page import file_name

        for cloud, name in zip(clouds, names, strict=False):
            with telling(f"the recording of {name} could not be written", _warn):
                record(cloud, run.recordings / f"{file_name(name)}.har")
    wanted = run.journal_when
    if (wanted == "always" and in_call) or (
        wanted == "failed" and report.failed and not (call.when == "teardown" and run.told)
    ):
        run.told = True
        texts = []
        for cloud, name in zip(clouds, names, strict=False):
            texts.append(_told(run, cloud, name, item, call, report))
        report.sections.append(("fakecloud", "\n\n".join(texts)))


def _told(
    run: Run,
    cloud: AnyCloud,
    name: str,
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
) -> str:
    from .core.errors import telling
    from .reporting.section import section

    links: list[str] = []
    if run.timelines and report.failed:
        from .reporting.page import write

        with telling("(it could not be written", lambda line: links.append(f"{line})")):
            link = str(write(cloud, run.timelines, name, str(report.longrepr)))
            links.append(link)
            # As JUnit's XML has them, with the report of the teardown.
            item.user_properties.append(("fakecloud_timeline", link))
    lines: list[str] = []
    if call.excinfo is not None:
        from .reporting.hints import hints, suspicions

        with telling("what kept requests from their fakes cannot be told", lines.append):
            lines += hints(cloud, call.excinfo.value)
            if not lines and call.when == "call" and cloud is run.cloud:
                known = list(vars(getattr(item, "module", None) or object).values())
                lines += suspicions(
                    cloud, getattr(item, "fixturenames", ()), known, call.excinfo.value
                )
    with telling(UNTOLD, lines.append):
        width = shutil.get_terminal_size().columns
        lines.append(
            section(cloud, link="".join(links), width=width, idle_s=run.idle_s(call.duration))
        )
    return "\n".join(lines)


# -- fixtures --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fakecloud_settings() -> dict[str, Any]:
    """Settings of the fakes, as the marker takes them; override it to set them for many tests."""
    return {}


@pytest.fixture(scope="session")
def fakecloud_session_settings() -> dict[str, Any]:
    """Settings of the session's fakes, as the marker takes them; override it in a conftest."""
    return {}


@pytest.fixture(scope="session")
def fakecloud_session(
    pytestconfig: pytest.Config, fakecloud_session_settings: dict[str, Any]
) -> AnyCloud:
    """A Cloud that lives as long as the run, for session fixtures of your own.

    Its handles keep address and credentials and return to their baseline before each test:
    ``load`` what all tests start from, then ``set_baseline()``.
    """
    return run_of(pytestconfig).long_cloud(fakecloud_session_settings)


@pytest.fixture
def fakecloud() -> AnyCloud:
    """The test's Cloud: its clock, its seed, and more fakes than the fixtures give.

    ``fakecloud.clock.advance("24h")`` moves time for all fakes of the test;
    ``fakecloud.kv_server(name="second")`` starts another one at once.
    """
    return present().test_cloud()


@pytest.fixture
def kv_server() -> KVServer:
    """A key-value server (Redis' command language over REST), fresh for this test.

    Point code at ``kv_server.url`` and ``kv_server.token``, or take ``kv_server.client()``; look
    inside with ``kv_server.value(key)``, ``.values()``, ``.ttl(key)``.
    """
    handle: KVServer = present().test_cloud().fixture_handle("kv_server")
    return handle


@pytest.fixture
def vector_index() -> VectorIndex:
    """A vector index, fresh for this test.

    Its dimension is that of the first upsert unless the marker sets one; look inside with
    ``vector_index.vectors()``, check with ``assert_upserted`` and ``assert_queried``.
    """
    handle: VectorIndex = present().test_cloud().fixture_handle("vector_index")
    return handle


@pytest.fixture
def broker() -> Broker:
    """A partitioned log with consumer groups, fresh for this test.

    Make topics with ``broker.create_topic("orders", partitions=3)``; look inside with
    ``broker.records("orders")`` and ``broker.group("g")``.
    """
    handle: Broker = present().test_cloud().fixture_handle("broker")
    return handle


@pytest.fixture
def queue() -> Queue:
    """An HTTP message queue that delivers, retries and calls back, fresh for this test.

    Nothing is delivered until the test drives it: ``queue.run_until_idle()``,
    ``queue.advance("24h")``, ``queue.deliver_due()``.
    """
    handle: Queue = present().test_cloud().fixture_handle("queue")
    return handle


@pytest.fixture
def callback_capture() -> CallbackCapture:
    """A receiver of the queue's callbacks and failure callbacks.

    Publish with ``callback_capture.callback_url`` and ``.failure_url``; look at ``.callbacks`` and
    ``.failures``, or wait with ``wait_for_callback()`` and ``wait_for_failure()``.
    """
    handle: CallbackCapture = present().test_cloud().fixture_handle("callback_capture")
    return handle


@pytest.fixture
def destination() -> Destination:
    """A pytest-httpserver with ``.url``, to receive deliveries; unmet expectations fail the test."""
    handle: Destination = present().test_cloud().fixture_handle("destination")
    return handle


@pytest.fixture
def fakecloud_kv() -> KVServer:
    """The same fake as ``kv_server``, by a name no suite has of its own."""
    handle: KVServer = present().test_cloud().fixture_handle("kv_server")
    return handle


@pytest.fixture
def fakecloud_vector() -> VectorIndex:
    """The same fake as ``vector_index``, by a name no suite has of its own."""
    handle: VectorIndex = present().test_cloud().fixture_handle("vector_index")
    return handle


@pytest.fixture
def fakecloud_broker() -> Broker:
    """The same fake as ``broker``, by a name no suite has of its own."""
    handle: Broker = present().test_cloud().fixture_handle("broker")
    return handle


@pytest.fixture
def fakecloud_queue() -> Queue:
    """The same fake as ``queue``, by a name no suite has of its own."""
    handle: Queue = present().test_cloud().fixture_handle("queue")
    return handle


@pytest.fixture
def fakecloud_env(
    fakecloud: AnyCloud, monkeypatch: pytest.MonkeyPatch
) -> Generator[AnyCloud, None, None]:
    """Set the environment variables the official clients read, for every fake of the test.

    A fake started later sets its own at that moment; the first fake of a service has the names.
    """
    end = publish_env(fakecloud, monkeypatch)
    yield fakecloud
    end()
