"""The pytest face: options, ini settings, marker, hooks and fixtures.

Imported in every pytest run of an environment, so it imports pytest only. What a run with fakes
needs is imported when a test first asks for one; until then the hooks look, and do nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .any_cloud import AnyCloud
    from .broker.handle import Broker
    from .kv.handle import KVServer
    from .queue.capture.handle import CallbackCapture
    from .queue.delivery.destination_server import Destination
    from .queue.handle import Queue
    from .session import Run
    from .vector.handle import VectorIndex

__all__: list[str] = []

MARKER = (
    "fakecloud(now=, clock=, seed=, process_time=, strict=, env=, transport=, tls=, "
    "kv_server={...}, vector_index={...}, broker={...}, queue={...}, callback_capture={...}, "
    "destination={...}): settings of this test's fakes"
)
OPTIONS: dict[str, dict[str, Any]] = {
    "--fakecloud-seed": {
        "metavar": "SEED",
        "help": "random seed of every test's fakes (default: made from the test's node id)",
    },
    "--fakecloud-journal": {
        "choices": ("failed", "always", "never"),
        "default": "failed",
        "help": "when a test's report shows the journal of its fakes (default: failed)",
    },
    "--fakecloud-url": {
        "metavar": "URL",
        "help": "use the fakes of a stand-alone server (pytest-fakecloud serve) instead of "
        "starting some; PYTEST_FAKECLOUD_TOKEN is its control token",
    },
    "--fakecloud-report": {
        "metavar": "DIR",
        "help": "write an HTML timeline of the fakes of each failing test into this folder",
    },
    "--fakecloud-record": {
        "metavar": "DIR",
        "help": "keep the calls of each test as an HTTP archive (HAR) in this folder",
    },
}


class Default(str):
    """The value of a setting that nobody has set."""

    __slots__ = ()


SETTINGS: dict[str, tuple[str, Any, Any]] = {
    "fakecloud_strict": (
        "what fails a passing test: true, false, or names out of "
        "'unrouted unstubbed bug unused_fault unmet rejected_step assertion undelivered'; "
        "true is all but undelivered",
        None,
        "true",
    ),
    "fakecloud_clock": ("the clock's mode: running or frozen", None, Default("running")),
    "fakecloud_env": (
        "set the official clients' environment variables in every test that uses a fake",
        "bool",
        False,
    ),
    "fakecloud_call_sites": (
        "record the application's line of each call for reports: auto (in tests that failed in the "
        "last run), true or false",
        None,
        "auto",
    ),
    "fakecloud_transport": (
        "how clients of the test process reach the fakes: socket, or inprocess (quicker; requests, "
        "httpx and urllib3)",
        None,
        "socket",
    ),
    "fakecloud_share_tls_context": (
        "let httpx clients made while a fake is open share one TLS context, which saves some 20 ms "
        "for each",
        "bool",
        True,
    ),
    "fakecloud_scope": (
        "how long the fixtures' fakes live: function, or session (same address and credentials "
        "for all tests, back to the baseline before each)",
        None,
        Default("function"),
    ),
    "fakecloud_early": (
        "fakes to start, with their environment variables, before conftests and the settings of "
        "the application are imported: names out of 'kv_server vector_index broker queue'; "
        "implies fakecloud_scope = session",
        "args",
        [],
    ),
}
"""Ini settings: what each is for, its type and its default."""
CHECKED = ("--fakecloud-report", "--fakecloud-record")
"""Options whose values are looked at before the run begins, as all settings are."""

_FAKED_FILES = frozenset({"fs", "fs_class", "fs_module", "fs_session"})
"""The fixtures of pyfakefs, which forgets at their end all modules that were imported meanwhile."""
_SESSION = f"{__package__}.session"
_ITEM = pytest.StashKey[pytest.Item | None]()
_configs: list[pytest.Config] = []
"""The runs of this process: one, and inside a test that runs pytest itself, that one's after it.

Fixtures look here because asking for ``request`` costs each test some 40 us.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the command line options and ini settings."""
    group = parser.getgroup("fakecloud")
    for option, keywords in OPTIONS.items():
        group.addoption(option, **keywords)
    for name, (text, kind, default) in SETTINGS.items():
        parser.addini(name, text, type=kind, default=default)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check the settings that hold for the whole run."""
    config.addinivalue_line("markers", MARKER)
    if _is_set(config):
        from .session import check_settings

        check_settings(config)
    _configs.append(config)


def _is_set(config: pytest.Config) -> bool:
    """Whether any setting is other than its default, and so may be one that has no meaning."""
    if any(config.getoption(option, None) for option in CHECKED):
        return True
    try:
        return any(config.getini(name) != default for name, (*_, default) in SETTINGS.items())
    except (ValueError, pytest.UsageError):
        return True


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Start the early fakes before anybody imports conftests or an application's settings."""
    early = early_config.getini("fakecloud_early")
    if early:
        from .session import begin_early

        begin_early(early_config, early)
    yield


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the session's fakes."""
    if config in _configs:
        _configs.remove(config)
    run = _run_of(config)
    if run is None:
        return
    if run.timelines is None and not run.has_fakes:
        from .session import end

        end(config)
        return
    from .outcomes import finish

    finish(config)


# -- hooks -----------------------------------------------------------------------------------------


def _run_of(config: pytest.Config) -> Run | None:
    """The run of a configuration, None while no test of this process has asked for a fake."""
    session: Any = sys.modules.get(_SESSION)
    return None if session is None else session.run_of(config)


def present() -> Run:
    """The run whose test is running; it hears of that test at the latest now."""
    config = _configs[-1]
    run, item = _run_of(config), config.stash.get(_ITEM, None)
    if run is None:
        from .session import run_of

        run = run_of(config)
    if item is not None and run.item is not item:
        run.begin_test(item)
        run.begin_call()
    return run


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """See an overridden ``fakecloud_settings``, which may have parameters."""
    if _SESSION in sys.modules or not _FIXTURES.isdisjoint(metafunc.fixturenames):
        from .session import ask_for_settings

        ask_for_settings(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reset the session's fakes, and refuse a marker with unknown keys whatever the fixtures."""
    item.config.stash[_ITEM] = item
    names: tuple[str, ...] | list[str] = getattr(item, "fixturenames", ())
    if not _FAKED_FILES.isdisjoint(names) and not _FIXTURES.isdisjoint(names):
        from .session import import_fakes

        import_fakes()
    run, is_marked = _run_of(item.config), item.get_closest_marker("fakecloud") is not None
    if run is None and is_marked:
        from .session import run_of

        run = run_of(item.config)
    if run is not None:
        run.begin_test(item)
        if is_marked:
            run.settings_of(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a passing test, in its call phase, for what it left behind."""
    run = _run_of(item.config)
    if run is not None:
        run.begin_call()
    try:
        yield
    except Exception as error:
        run = run or _run_of(item.config)
        if run is not None and run.has_fakes:
            from .outcomes import explain

            explain(run, error)
        raise
    run = run or _run_of(item.config)
    # A unittest.TestCase keeps its failure, skip or expected failure to itself until the report.
    if run is not None and run.has_fakes and not getattr(item, "_excinfo", None):
        from .outcomes import check

        check(run)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the journal of the test's fakes to its report."""
    failed = call.excinfo is not None or getattr(item, "_excinfo", None)
    if failed and "pytest_fakecloud.core.errors" in sys.modules:
        from .reporting.tracebacks import hide_ours

        hide_ours(item, call)
    report = yield
    run = _run_of(item.config)
    if run is not None:
        if run.has_fakes and (report.failed or run.tells_of_passing):
            from .outcomes import report_on

            report_on(run, item, call, report)
        if call.when == "teardown":
            run.end_test()
    if call.when == "teardown":
        item.config.stash[_ITEM] = None
    return report


def pytest_exception_interact(call: pytest.CallInfo[None], report: object) -> None:
    """Explain a module that could not be imported because a variable of a fake is not set."""
    if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
        from .reporting.mistakes import at_import

        lines = at_import(call.excinfo.value)
        if lines:
            report.sections.append(("fakecloud", "\n".join(lines)))


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
    from .session import run_of

    run = run_of(pytestconfig)
    return run.given(lambda: run.long_cloud(fakecloud_session_settings))


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
    handle: KVServer = present().test_handle("kv_server")
    return handle


@pytest.fixture
def vector_index() -> VectorIndex:
    """A vector index, fresh for this test.

    Its dimension is that of the first upsert unless the marker sets one; look inside with
    ``vector_index.vectors()``, check with ``assert_upserted`` and ``assert_queried``.
    """
    handle: VectorIndex = present().test_handle("vector_index")
    return handle


@pytest.fixture
def broker() -> Broker:
    """A partitioned log with consumer groups, fresh for this test.

    Make topics with ``broker.create_topic("orders", partitions=3)``; look inside with
    ``broker.records("orders")`` and ``broker.group("g")``.
    """
    handle: Broker = present().test_handle("broker")
    return handle


@pytest.fixture
def queue() -> Queue:
    """An HTTP message queue that delivers, retries and calls back, fresh for this test.

    Nothing is delivered until the test drives it: ``queue.run_until_idle()``,
    ``queue.advance("24h")``, ``queue.deliver_due()``.
    """
    handle: Queue = present().test_handle("queue")
    return handle


@pytest.fixture
def callback_capture() -> CallbackCapture:
    """A receiver of the queue's callbacks and failure callbacks.

    Publish with ``callback_capture.callback_url`` and ``.failure_url``; look at ``.callbacks`` and
    ``.failures``, or wait with ``wait_for_callback()`` and ``wait_for_failure()``.
    """
    handle: CallbackCapture = present().test_handle("callback_capture")
    return handle


@pytest.fixture
def destination() -> Destination:
    """A pytest-httpserver with ``.url``, to receive deliveries; unmet expectations fail the test."""
    handle: Destination = present().test_handle("destination")
    return handle


@pytest.fixture
def fakecloud_kv() -> KVServer:
    """The same fake as ``kv_server``, by a name no suite has of its own."""
    handle: KVServer = present().test_handle("kv_server")
    return handle


@pytest.fixture
def fakecloud_vector() -> VectorIndex:
    """The same fake as ``vector_index``, by a name no suite has of its own."""
    handle: VectorIndex = present().test_handle("vector_index")
    return handle


@pytest.fixture
def fakecloud_broker() -> Broker:
    """The same fake as ``broker``, by a name no suite has of its own."""
    handle: Broker = present().test_handle("broker")
    return handle


@pytest.fixture
def fakecloud_queue() -> Queue:
    """The same fake as ``queue``, by a name no suite has of its own."""
    handle: Queue = present().test_handle("queue")
    return handle


@pytest.fixture
def fakecloud_env(
    fakecloud: AnyCloud, monkeypatch: pytest.MonkeyPatch
) -> Generator[AnyCloud, None, None]:
    """Set the variables that clients read their address and token from, for every fake of the test.

    The official clients' own, and ``KV_URL`` and ``REDIS_URL`` for Redis clients, task queues and
    caches. A fake started later sets its own at that moment; the first fake of a service has the names.
    """
    from .session import publish_env

    end = publish_env(fakecloud, monkeypatch)
    yield fakecloud
    end()


_FIXTURES = frozenset(
    name for name, value in list(globals().items()) if type(value) is type(fakecloud)
)
"""The names of the fixtures of this module."""
