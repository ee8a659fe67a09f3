"""The pytest plugin: options, marker, hooks and fixtures.

Every pytest run in an environment imports it, so it imports only pytest, and when pytest starts
``pytest_run.run`` and ``pytest_run.ini``. Other modules are imported when a test first uses a fake or
the marker, or for early fakes.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from .broker.fake import Broker
    from .cloud.cloud import Cloud
    from .kv.fake import KVServer
    from .pytest_run.run import Run
    from .queue.capture.fake import CallbackCapture
    from .queue.delivery.destination_server import Destination
    from .queue.fake import Queue
    from .vector.fake import VectorIndex

__all__: list[str] = []

MARKER = (
    "fakecloud(now=, clock=, seed=, process_time=, transport=, tls=, strict=, env=, "
    "kv_server={...}, vector_index={...}, broker={...}, queue={...}, callback_capture={...}, "
    "destination={...}): settings of this test's fakes"
)
OPTIONS: dict[str, dict[str, Any]] = {
    "--fakecloud-seed": {
        "metavar": "SEED",
        "help": "random seed of the fakes in every test (default: the test's node id)",
    },
    "--fakecloud-journal": {
        "choices": ("failed", "always", "never"),
        "default": "failed",
        "help": "when a test's report shows the journal of its fakes (default: failed)",
    },
    "--fakecloud-report": {
        "metavar": "DIR",
        "help": "write an HTML timeline of the fakes of each failing test into this folder",
    },
    "--fakecloud-record": {
        "metavar": "DIR",
        "help": "write the calls of each test as an HTTP archive (HAR) into this folder",
    },
    "--fakecloud-otlp": {
        "metavar": "URL|FILE",
        "help": "send the calls of each test as a trace to an OpenTelemetry collector, or write the "
        "traces as lines of JSON to a file",
    },
}

_FIXTURES = frozenset({
    "fakecloud", "fakecloud_session", "fakecloud_settings", "fakecloud_session_settings",
    "fakecloud_env", "kv_server", "vector_index", "broker", "queue", "callback_capture", "destination",
    "fakecloud_kv", "fakecloud_vector", "fakecloud_broker", "fakecloud_queue",
})  # fmt: skip
"""The names of the plugin's fixtures."""
_FAKED_FILES = frozenset({"fs", "fs_class", "fs_module", "fs_session"})
"""Fixtures of pyfakefs. When they end, pyfakefs makes Python forget all modules imported since."""
CLIENT_VARIABLES = ("KV_", "QSTASH_", "REDIS_URL", "UPSTASH_")
"""How the names of the variables begin that official clients read (``hints.variables``)."""
_RUN = pytest.StashKey["Run"]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of a configuration, created by the first hook that gets the configuration, at the
    latest by ``pytest_configure()``. pytest closes it when it unconfigures, or if it cannot even import
    a conftest.
    """
    if _RUN not in config.stash:
        # Imported here, because pytest would rewrite it with this module (see ``_keep_bytecode()``).
        from .pytest_run.run import Run

        config.stash[_RUN] = run = Run(config)
        config.add_cleanup(run.close)
    return config.stash[_RUN]


def _has_used_fakes() -> bool:
    """Return whether this process has used fakes or the marker, maybe without a fixture. Else no report
    needs ``pytest_run.outcomes``, whose import takes 35 ms.
    """
    return "pytest_fakecloud.cloud.fake" in sys.modules


# -- hooks, in the order in which pytest calls them ------------------------------------------------


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the options and the ini settings. This is the first hook."""
    _keep_bytecode(pluginmanager)
    from .pytest_run.ini import INI_SETTINGS

    group = parser.getgroup("fakecloud")
    for option, keywords in OPTIONS.items():
        group.addoption(option, **keywords)
    for name, setting in INI_SETTINGS.items():
        parser.addini(name, setting.help, type=setting.pytest_type, default=setting.default)


def _keep_bytecode(pluginmanager: pytest.PytestPluginManager) -> None:
    """Let Python load the other modules of this package from the bytecode of their installation.

    pytest rewrites the assertions in all modules of an installed plugin. For the modules of one fake
    that takes 0.35 s, in the first run after an installation and in every run that writes no bytecode
    (``PYTHONDONTWRITEBYTECODE=1``). Uses a private name of pytest's import hook.
    """
    marked: set[str] = getattr(pluginmanager.rewrite_hook, "_must_rewrite", set())
    marked.discard("pytest_fakecloud")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Start the early fakes before conftests and the application's settings are imported."""
    run = run_of(early_config)
    if run.is_early:
        from .pytest_run.early import start_early_fakes
        from .pytest_run.ini import check_run_options

        check_run_options(early_config)
        start_early_fakes(run)
    yield


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and validate the settings of the run."""
    config.pluginmanager.register(_fixture_of(run_of(config)))
    config.addinivalue_line("markers", MARKER)
    from .pytest_run.ini import check_run_options

    check_run_options(config)


def pytest_exception_interact(call: pytest.CallInfo[None], report: object) -> None:
    """Explain the failed import of a module that needs an environment variable of a fake."""
    if not isinstance(report, pytest.CollectReport) or call.excinfo is None:
        return
    text = str(report.longrepr).upper()
    if any(beginning in text for beginning in CLIENT_VARIABLES):
        from .pytest_run.outcomes import hints_about_import

        lines = hints_about_import(call.excinfo.value)
        if lines:
            report.sections.append(("fakecloud", "\n".join(lines)))


# Last, so that pytest captures what returning the fakes to their baseline prints and logs.
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Begin a test. Check its markers, even if it uses no fake, and those that its fixtures add."""
    run = item.config.stash[_RUN]
    run.begin_test(item)
    _check_fixtures(item)
    _check_markers(run, item)
    try:
        yield
    finally:
        # Note what the fixtures of the test have requested and imported at run time.
        if run.owners:
            run.prepare_clouds(item)
    _check_markers(run, item)


def _check_markers(run: Run, item: pytest.Item) -> None:
    """Fail a test with invalid markers, or with own ones that cannot apply to its fakes, if any have
    been added since the last check.
    """
    markers = [*item.iter_markers("fakecloud")]
    if markers != run.test.checked_markers:
        from .pytest_run.checks import check_markers

        check_markers(run.options, item, run.node_of_fakes(item))
        run.test.checked_markers = markers
        run.set_variables(item)


def _check_fixtures(item: pytest.Item) -> None:
    """Import the fakes before a test that fakes files; reject parameters of the plugin's fixtures."""
    names: tuple[str, ...] | list[str] = getattr(item, "fixturenames", ())
    if not _FAKED_FILES.isdisjoint(names) and not _FIXTURES.isdisjoint(names):
        from .pytest_run.faked_files import import_fakes

        import_fakes()
    parameters = getattr(getattr(item, "callspec", None), "params", None)
    if parameters and not _FIXTURES.isdisjoint(parameters):
        from .pytest_run.checks import reject_parameters

        reject_parameters(item, _FIXTURES.intersection(parameters))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Let the fakes that a fixture of a wide scope starts in clouds that outlive tests stay, and note
    what else it changes in them. Note its parameter for the fixtures with settings.
    """
    if fixturedef.scope == "function":
        return (yield)
    run = run_of(request.config)
    run.fixture_parameter = getattr(request, "param", {})
    with run.wide_fixture(fixturedef):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Tell the run when the code of a test begins and ends. Fail a passing test for strict-mode
    violations, and for a marker that is invalid or has no effect; explain an error by those of
    callbacks.
    """
    run = item.config.stash[_RUN]
    run.begin_call(item)
    try:
        yield
    except BaseException as error:
        run.end_call(item)
        if run.owners and isinstance(error, Exception):
            from .pytest_run import outcomes

            outcomes.explain(run, item, error)
        raise
    run.end_call(item)
    # Look at the recorded errors too: unittest.TestCase keeps its failures until the report.
    if getattr(item, "_excinfo", None) or run.test.has_failed_subtest:
        return
    _check_markers(run, item)
    if run.owners:
        from .pytest_run import outcomes

        outcomes.check(run, item)
    if run.test.checked_markers:
        from .pytest_run.checks import check_marker_effect

        has_session_cloud = "fakecloud_session" in run.owners
        check_marker_effect(item, run.test.requested_cloud, has_session_cloud=has_session_cloud)


# Last, because the fixtures end first.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End what a test has started itself after its fixtures, so that an exception fails this test. If a
    fixture fails, pytest does not call this, and the report reads it first
    (``pytest_runtest_makereport()``).
    """
    item.config.stash[_RUN].end_teardown()


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: object, right: object) -> None:
    """Note two values that an assertion found unequal, which findings of the test's report compare."""
    run = run_of(config)
    if op == "==" and run.owners:
        from .reporting.statement.failed import UnequalValues

        run.test.unequal = UnequalValues.by_caller(left, right)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """End the test after the report of its teardown, in which the state of the test and its cloud are
    still read. Add the report of its fakes to those of pytest, and advice to errors about scopes.
    """
    failed = call.excinfo is not None or getattr(item, "_excinfo", None)
    if failed and _has_used_fakes():
        from .pytest_run.outcomes import hide_ours

        hide_ours(item, call)
    report = yield
    if call.excinfo is not None and "ScopeMismatch: " in str(report.longrepr):
        from .pytest_run.outcomes import scope_advice

        report.longrepr = f"{report.longrepr}{scope_advice(str(report.longrepr), _FIXTURES)}"
    run = item.config.stash[_RUN]
    # pytest reports each subtest, while the code of the test runs.
    if call.when == "call" and report.failed and not run.test.has_run:
        run.test.has_failed_subtest = True
    if run.owners and (report.failed or run.options.reports_passing):
        from .pytest_run import outcomes

        outcomes.report_on(run, item, call, report)
    if call.when == "teardown":
        if run.owners and call.excinfo is not None:
            from .pytest_run import outcomes

            outcomes.end_failed_teardown(run, report)
        run.end_test()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Let pytest-xdist send the reports of tests that have used fakes, whatever their texts contain."""
    data = yield
    if not _has_used_fakes():
        return data
    from .pytest_run.outcomes import encodable_data

    return encodable_data(data)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Colour the reports of the fakes just before pytest prints the failures."""
    every = [
        report
        for kind in ("failed", "error", "passed")
        for report in terminalreporter.getreports(kind)
    ]
    reports = [report for report in every if hasattr(report, "fakecloud_lines")]
    if reports and terminalreporter.hasmarkup:
        from .pytest_run.outcomes import colour

        for report in reports:
            colour(report, config.get_terminal_writer().markup)
    yield


def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the index of the reports."""
    if config.getoption("--fakecloud-report", None):
        from .pytest_run import outcomes

        outcomes.write_timelines_index(run_of(config))


# -- fixtures --------------------------------------------------------------------------------------


def _fixture_of(run: Run) -> object:
    """Return a plugin of pytest with the run as a fixture. The fixtures that each test with a fake needs
    have neither the argument ``request``, of which pytest makes a new fixture for each test, nor
    ``pytestconfig``, which has that argument.
    """

    class RunFixture:
        @pytest.fixture(scope="session")
        @staticmethod
        def _fakecloud_run() -> Run:
            return run

    return RunFixture()


@pytest.fixture(scope="session")
def fakecloud_settings(_fakecloud_run: Run) -> dict[str, Any]:
    """Settings of the fakes, with the marker's keywords. Override it to apply them to many tests."""
    return cast("dict[str, Any]", _fakecloud_run.fixture_parameter)


@pytest.fixture(scope="session")
def fakecloud_session_settings(_fakecloud_run: Run) -> dict[str, Any]:
    """Settings of the session's fakes, with the marker's keywords. Override it in the top conftest.

    They apply to the fakes of ``fakecloud_session`` and, with ``fakecloud_scope = session`` or
    ``fakecloud_early``, to the fixtures' fakes.
    """
    return cast("dict[str, Any]", _fakecloud_run.fixture_parameter)


@pytest.fixture(scope="session")
def fakecloud_session(_fakecloud_run: Run, fakecloud_session_settings: dict[str, Any]) -> Cloud:
    """A Cloud that lasts for the whole run, for your own session fixtures.

    Its fakes keep their address and credentials and return to their baseline before each test.
    ``load()`` the data that all tests start from, then call ``set_baseline()``.
    """
    from .pytest_run.opening import open_session_cloud

    return open_session_cloud(_fakecloud_run, fakecloud_session_settings).cloud


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    """Return the scope of the fixtures of fakes. pytest calls this with the name of each of them, which
    all have the same scope.
    """
    return run_of(config).scope


@pytest.fixture(scope=_scope)
def fakecloud(
    _fakecloud_run: Run,
    fakecloud_settings: dict[str, Any],
    fakecloud_session_settings: dict[str, Any],
) -> Generator[Cloud, None, None]:
    """The test's Cloud: its clock, its seed, and additional fakes.

    ``fakecloud.clock.advance("24h")`` moves the clock of all fakes of the test.
    ``fakecloud.kv_server(name="second")`` starts another fake.
    """
    from .pytest_run.opening import open_cloud

    # Both fixtures with settings are arguments, although a scope uses one of them: tests can be
    # parametrized with them, and settings of the session without an effect cause a warning.
    try:
        yield open_cloud(_fakecloud_run, fakecloud_settings, fakecloud_session_settings)
    finally:
        _fakecloud_run.close_cloud()


def _fake(cloud: Cloud, fixture: str) -> Any:
    """Return the fake of a fixture in a cloud."""
    from .pytest_run.opening import start_fake

    return start_fake(cloud, fixture)


@pytest.fixture(scope=_scope)
def kv_server(fakecloud: Cloud) -> KVServer:
    """A key-value server (Redis commands over REST and the Redis protocol), empty for each test.

    Configure your code with ``kv_server.url`` and ``kv_server.token``, or use
    ``kv_server.client()``. Inspect data with ``kv_server.value(key)``, ``.contents()`` and
    ``.ttl(key)``.
    """
    return cast("KVServer", _fake(fakecloud, "kv_server"))


@pytest.fixture(scope=_scope)
def vector_index(fakecloud: Cloud) -> VectorIndex:
    """A vector index, empty for each test.

    The first upsert sets its dimension unless the marker does. Inspect data with
    ``vector_index.vectors()``; assert with ``assert_upserted()`` and ``assert_queried()``.
    """
    return cast("VectorIndex", _fake(fakecloud, "vector_index"))


@pytest.fixture(scope=_scope)
def broker(fakecloud: Cloud) -> Broker:
    """A message broker (partitioned log with consumer groups), empty for each test.

    Create topics with ``broker.create_topic("orders", partitions=3)``. Inspect data with
    ``broker.records("orders")`` and ``broker.group("g")``.
    """
    return cast("Broker", _fake(fakecloud, "broker"))


@pytest.fixture(scope=_scope)
def queue(fakecloud: Cloud) -> Queue:
    """An HTTP message queue with deliveries, retries and callbacks, empty for each test.

    Messages are delivered when the test runs the queue, with ``queue.run_until_idle()``,
    ``queue.clock.advance("24h")`` or ``queue.deliver_due()``. With ``fakecloud_scope = session`` or
    ``fakecloud_early``, they are also delivered in the background.
    """
    return cast("Queue", _fake(fakecloud, "queue"))


@pytest.fixture(scope=_scope)
def callback_capture(fakecloud: Cloud) -> CallbackCapture:
    """A receiver for the queue's callbacks and failure callbacks.

    Publish with ``callback_capture.callback_url`` and ``.failure_url``. List ``callbacks()`` and
    ``failures()``, or wait with ``wait_for_callback()`` and ``wait_for_failure()``.
    """
    return cast("CallbackCapture", _fake(fakecloud, "callback_capture"))


@pytest.fixture(scope=_scope)
def destination(fakecloud: Cloud) -> Destination:
    """A server at ``.url`` that receives deliveries, with a pytest-httpserver in ``.server``.

    Unmet expectations fail the test.
    """
    return cast("Destination", _fake(fakecloud, "destination"))


@pytest.fixture(scope=_scope)
def fakecloud_kv(fakecloud: Cloud) -> KVServer:
    """The same fake as ``kv_server``, for suites that have another fixture of that name."""
    return cast("KVServer", _fake(fakecloud, "kv_server"))


@pytest.fixture(scope=_scope)
def fakecloud_vector(fakecloud: Cloud) -> VectorIndex:
    """The same fake as ``vector_index``, for suites that have another fixture of that name."""
    return cast("VectorIndex", _fake(fakecloud, "vector_index"))


@pytest.fixture(scope=_scope)
def fakecloud_broker(fakecloud: Cloud) -> Broker:
    """The same fake as ``broker``, for suites that have another fixture of that name."""
    return cast("Broker", _fake(fakecloud, "broker"))


@pytest.fixture(scope=_scope)
def fakecloud_queue(fakecloud: Cloud) -> Queue:
    """The same fake as ``queue``, for suites that have another fixture of that name."""
    return cast("Queue", _fake(fakecloud, "queue"))


@pytest.fixture
def fakecloud_env(request: pytest.FixtureRequest, fakecloud: Cloud) -> Cloud:
    """Set the environment variables that clients read, for every fake that the test requests.

    These are the official clients' own variables, and ``KV_URL`` and ``REDIS_URL`` for Redis
    clients, task queues and caches. The variables of a fake that starts later are set when it
    starts. If a service has several fakes, the variables point to the first one; a fake with a name
    of its own also has variables that begin with it (see ``Cloud.env``). They are restored when the
    test and all its fixtures have ended.
    """
    from .pytest_run.checks import check_env
    from .pytest_run.env import set_variables

    check_env(request.node)
    set_variables(fakecloud, run_of(request.config).test.exits)
    return fakecloud
