"""The pytest face: options, ini settings, marker, hooks and fixtures.

Imported in every pytest run of an environment, so it imports pytest only; all else is imported
where it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .broker.handle import Broker
    from .cloud import Cloud
    from .kv.handle import KVServer
    from .queue.capture import CallbackCapture, Destination
    from .queue.handle import Queue
    from .transport.changes import Changes
    from .vector.handle import VectorIndex

CLOUD = pytest.StashKey["Cloud"]()
STRICT = pytest.StashKey[tuple[str, ...]]()
SESSION = pytest.StashKey["SessionCloud"]()
OVERRIDDEN = pytest.StashKey[bool]()
_present: dict[pytest.Config, pytest.Item] = {}
"""The test that each run of this process is at; a run inside a test's run comes last.

Fixtures look here because asking for ``request`` costs each test some 40 us.
"""
SERVICE_NAMES = ("kv_server", "vector_index", "broker", "queue")
GENERAL_SETTINGS = ("now", "clock", "seed", "process_time", "strict", "env", "transport", "tls")
PER_TEST_SETTINGS = ("strict", "env")
FIXTURES = frozenset(
    (
        *SERVICE_NAMES,
        *("callback_capture", "destination", "fakecloud", "fakecloud_env"),
        *("fakecloud_kv", "fakecloud_vector", "fakecloud_broker", "fakecloud_queue"),
    )
)


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
        "the application are imported: names out of 'kv_server vector_index broker queue'; "
        "implies fakecloud_scope = session",
        type="args",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check the settings that hold for the whole run."""
    config.addinivalue_line(
        "markers",
        "fakecloud(now=, clock=, seed=, process_time=, strict=, env=, transport=, tls=, "
        "kv_server={...}, vector_index={...}, broker={...}, queue={...}): settings of this test's fakes",
    )
    if config.getini("fakecloud_scope") not in ("function", "session"):
        raise pytest.UsageError(
            f"fakecloud_scope = {config.getini('fakecloud_scope')} is unknown: "
            "give function or session"
        )


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Start the early fakes before anybody imports conftests or an application's settings."""
    early = early_config.getini("fakecloud_early")
    if early:
        unknown = [name for name in early if name not in SERVICE_NAMES]
        if unknown:
            raise pytest.UsageError(
                f"fakecloud_early: {', '.join(unknown)} is no service; "
                f"the services are: {', '.join(SERVICE_NAMES)}"
            )
        session_of(early_config).start_early(early)
    yield


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the session's fakes."""
    _present.pop(config, None)
    session = config.stash.get(SESSION, None)
    if session is not None:
        session.close()


# -- the session's cloud ---------------------------------------------------------------------------


class SessionCloud:
    """The one cloud that lives as long as the run, and returns to its baseline before each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cloud: Cloud | None = None
        self._environment = pytest.MonkeyPatch()
        self._known: list[Any] | None = None
        self._seed: Any = "session"
        self._seed_is_given = False
        self._kept: Changes | None = None
        self.early: tuple[str, ...] = ()

    @property
    def in_use(self) -> bool:
        """Whether the fixtures' fakes live in the session's cloud."""
        return (
            bool(self.early)
            or self._url is not None
            or self._config.getini("fakecloud_scope") == "session"
        )

    @cached_property
    def journal_when(self) -> str:
        """When a test's report shows the journal: failed, always or never."""
        return str(self._config.getoption("--fakecloud-journal"))

    @cached_property
    def recordings(self) -> Path | None:
        """The folder for the archives of all tests' calls."""
        folder = self._config.getoption("--fakecloud-record")
        return self._config.invocation_params.dir / folder if folder else None

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        config = self._config
        mode = config.getini("fakecloud_clock")
        if mode not in ("running", "frozen"):
            raise pytest.UsageError(f"fakecloud_clock = {mode} is unknown: give running or frozen")
        return {
            "clock": "frozen" if mode == "frozen" else None,
            "strict": config.getini("fakecloud_strict"),
            "env": config.getini("fakecloud_env"),
            "seed": config.getoption("--fakecloud-seed", None),
            "transport": config.getini("fakecloud_transport"),
            "share_tls_context": config.getini("fakecloud_share_tls_context"),
        }

    def defaults(self, seed: Any) -> dict[str, Any]:
        """Settings by options and ini; ``seed`` where they give none."""
        found = dict(self._defaults)
        found["seed"] = found["seed"] or seed
        return found

    @property
    def _url(self) -> str | None:
        url: str | None = self._config.getoption("--fakecloud-url", None)
        return url

    def cloud(self, settings: Mapping[str, Any] | None = None) -> Cloud:
        """The session's cloud; made when first asked for."""
        if self._cloud is None and self._url is not None:
            from .cloud import Cloud

            self._cloud = Cloud.connect(self._url)
        elif self._cloud is None:
            layers = [settings] if settings else []
            self._seed_is_given = any("seed" in layer for layer in layers)
            merged = _merged(self.defaults(self._seed), layers)
            self._seed = merged["seed"]
            self._cloud = _start(merged, "background")
        elif settings:
            self._cloud.fixture_settings = {**self._cloud.fixture_settings, **settings}
        return self._cloud

    def start_early(self, names: list[str]) -> None:
        """Start fakes and set their variables for the whole run."""
        self.early = tuple(names)
        cloud = self.cloud()
        for name in names:
            handle = cloud.fixture_handle(name)
            for variable, value in handle.env.items():
                self._environment.setenv(variable, value)

    def keep_changes(self, settings: Mapping[str, Any]) -> None:
        """Leave in place what a test's cloud changes in the process, for the next test with fakes.

        Taking it back and doing it again is a good part of what a fake costs a test.
        """
        if self._kept is None:
            from .transport.changes import Changes

            self._kept = Changes(
                shares_tls_context=settings["share_tls_context"],
                in_process=settings["transport"] == "inprocess",
            )

    def take_changes_back(self) -> None:
        """Leave the process as it was: a test without fakes comes, or none at all."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def begin_test(self, item: pytest.Item) -> None:
        """Return every handle to its baseline; nothing of an earlier test is left.

        Randomness starts over from the test's own seed, whatever ran before it.
        """
        if self._kept is not None and FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            self.take_changes_back()
        if not self._seed_is_given:
            self._seed = self._config.getoption("--fakecloud-seed", None) or item.nodeid
        if self._cloud is not None:
            if self._known is not None:
                self._cloud.keep_only(self._known)
            self._known = None
            self._cloud.begin()
            self._cloud.reseed(self._seed)

    def begin_call(self) -> None:
        """Mark what came in between the reset and the test's own code."""
        if self._cloud is not None:
            # What a test's own code starts from here on ends with the test.
            self._known = list(self._cloud.handles)
            for call in self._cloud.journal.calls():
                call.note = call.note or "came before the test's own code: maybe an earlier test's"

    def close(self) -> None:
        """End the session's fakes and give the environment back."""
        self._environment.undo()
        self.take_changes_back()
        if self._cloud is not None:
            self._cloud.close()


def session_of(config: pytest.Config) -> SessionCloud:
    """The run's session cloud, which starts nothing until asked."""
    session = config.stash.get(SESSION, None)
    if session is None:
        session = config.stash[SESSION] = SessionCloud(config)
    return session


# -- settings --------------------------------------------------------------------------------------


def settings_for(item: pytest.Item, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of one test: function > class > module > fakecloud_settings > options > ini.

    Settings of a service are merged key by key. Fails the test for unknown keys.
    """
    markers = list(item.iter_markers("fakecloud"))
    for marker in markers:
        if marker.args:
            raise _misuse(f"the fakecloud marker takes keywords only, got {marker.args!r}")
    layers: list[Mapping[str, Any]] = [overrides] if overrides else []
    layers += [marker.kwargs for marker in reversed(markers)]
    return _merged(session_of(item.config).defaults(item.nodeid), layers)


def _misuse(text: str) -> BaseException:
    """What a wrong setting does to its test: an error whose text is all there is to see."""
    return pytest.fail.Exception(f"fakecloud: {text}", pytrace=False)


def _merged(settings: dict[str, Any], layers: list[Mapping[str, Any]]) -> dict[str, Any]:
    known = (*GENERAL_SETTINGS, *SERVICE_NAMES)
    for layer in layers:
        for name, value in layer.items():
            if name not in known:
                raise _misuse(
                    f"fakecloud has no setting {name!r}; the settings are: {', '.join(known)}"
                )
            if name not in SERVICE_NAMES:
                settings[name] = value
            elif isinstance(value, Mapping):
                settings[name] = {**settings.get(name, {}), **value}
            else:
                raise _misuse(
                    f"the setting {name} is a dict of that service's settings, got {value!r}"
                )
    return settings


def _strict_kinds(value: object) -> tuple[str, ...]:
    """The kinds of problem that fail a test, out of a bool, names, or the ini's text."""
    from .cloud import PROBLEM_KINDS

    if isinstance(value, bool):
        return PROBLEM_KINDS if value else ()
    kinds = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (str(value),)
    unknown = [kind for kind in kinds if kind not in PROBLEM_KINDS]
    if unknown:
        raise _misuse(
            f"strict={value!r}: {', '.join(map(repr, unknown))} is no kind of problem; "
            f"give a bool or names out of: {', '.join(PROBLEM_KINDS)}"
        )
    return kinds


@cache
def _strict_kinds_of_text(text: str) -> tuple[str, ...]:
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return _strict_kinds(True)
    if word in ("false", "0", "no", "off", ""):
        return _strict_kinds(False)
    return _strict_kinds(word.replace(",", " ").split())


def _start(settings: Mapping[str, Any], delivery: Any) -> Cloud:
    from .cloud import Cloud

    cloud = Cloud(
        settings["seed"],
        settings.get("now"),
        settings["clock"],
        settings.get("process_time", False),
        delivery=delivery,
        transport=settings["transport"],
        tls=settings.get("tls", False),
        share_tls_context=settings["share_tls_context"],
    )
    cloud.fixture_settings = settings
    return cloud


# -- hooks -----------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reset the session's fakes, and refuse a marker with unknown keys whatever the fixtures."""
    _present.pop(item.config, None)
    _present[item.config] = item
    session_of(item.config).begin_test(item)
    if item.get_closest_marker("fakecloud") is not None:
        settings_for(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a passing test, in its call phase, for what it left behind."""
    session = item.config.stash.get(SESSION, None)
    if session is not None:
        session.begin_call()
    yield
    cloud = item.stash.get(CLOUD, None)
    # A unittest.TestCase keeps its failure, skip or expected failure to itself until the report.
    if cloud is not None and not getattr(item, "_excinfo", None):
        _check(cloud, item)


def _check(cloud: Cloud, item: pytest.Item) -> None:
    kinds = item.stash[STRICT]
    problems = [problem for problem in cloud.problems if problem.kind in kinds]
    if not problems:
        _warn_of_refused_clients(cloud)
        return
    text = "\n".join(f"[{problem.kind}] {problem.text}" for problem in problems)
    failure = pytest.fail.Exception(
        f"fakecloud: the test passed, but left {len(problems)} problem(s) behind\n{text}",
        pytrace=False,
    )
    raise failure from next((p.exception for p in problems if p.exception is not None), None)


def _warn_of_refused_clients(cloud: Cloud) -> None:
    if not any(call.status == 401 for call in cloud.journal.calls()):
        return
    from .report import refused

    for _, why in refused(cloud, every_call=True):
        # Whatever the run makes of warnings, wrong credentials never fail a passing test.
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(FakecloudWarning(why), stacklevel=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the journal of the test's fakes to its report."""
    report = yield
    cloud = item.stash.get(CLOUD, None)
    if cloud is None:
        return report
    if call.when == "teardown":
        # The items live as long as the run, and the data of their fakes would with them.
        del item.stash[CLOUD]
        return report
    session = session_of(item.config)
    if session.recordings and call.when == "call":
        from .control.record import write as record
        from .timeline import file_name

        record(cloud, session.recordings / f"{file_name(item.nodeid)}.har")
    when = session.journal_when
    if (when == "always" and call.when == "call") or (when == "failed" and report.failed):
        from .report import section

        folder = item.config.getoption("--fakecloud-report")
        link = ""
        if folder and report.failed:
            from .timeline import write

            path = item.config.invocation_params.dir / folder
            link = str(write(cloud, path, item.nodeid, str(report.longrepr)))
        text = section(cloud, link=link)
        if call.excinfo is not None:
            from .hints import hints, suspicions

            found = hints(cloud, call.excinfo.value)
            if not found and call.when == "call":
                names = vars(getattr(item, "module", None) or object).values()
                found = suspicions(cloud, getattr(item, "fixturenames", ()), names)
            text = "\n".join([*found, text])
        report.sections.append(("fakecloud", text))
    return report


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
) -> Cloud:
    """A Cloud that lives as long as the run, for session fixtures of your own.

    Its handles keep address and credentials and return to their baseline before each test:
    ``load`` what all tests start from, then ``set_baseline()``.
    """
    return session_of(pytestconfig).cloud(fakecloud_session_settings)


def _test_cloud() -> Cloud:
    """The cloud of the test that runs, made by whichever of its fixtures asks first.

    Not through the fixture ``fakecloud``, because each fixture more costs a test some 40 us.
    """
    item = next(reversed(_present.values()))
    found: Cloud | None = item.stash.get(CLOUD, None)
    if found is not None and not found.closed:
        return found
    own = _fixture_value(item, "fakecloud_settings") if _is_overridden(item) else {}
    settings = settings_for(item, own)
    strict = settings["strict"]
    kinds = _strict_kinds_of_text(strict) if isinstance(strict, str) else _strict_kinds(strict)
    item.stash[STRICT] = kinds
    session = session_of(item.config)
    if session.in_use:
        _refuse_per_test(item, own)
        cloud: Cloud = _fixture_value(item, "fakecloud_session")
    else:
        session.keep_changes(settings)
        cloud = _start(settings, "driven")
        item.addfinalizer(cloud.close)
    item.stash[CLOUD] = cloud
    if settings["env"]:
        _publish_env(cloud, _fixture_value(item, "monkeypatch"))
    return cloud


def _fixture_value(item: pytest.Item, name: str) -> Any:
    """What ``request.getfixturevalue`` gives, without a request."""
    found: Any = item
    return found._request.getfixturevalue(name)


def _is_overridden(item: pytest.Item) -> bool:
    """Whether a test has a ``fakecloud_settings`` other than ours, which is empty.

    Asked once for all tests of a module or class: getting a fixture's value costs each test 20 us.
    """
    name, parent = "fakecloud_settings", item.parent
    if parent is None or name in getattr(item, "fixturenames", ()):
        return True
    found = parent.stash.get(OVERRIDDEN, None)
    if found is None:
        try:
            known = item.session._fixturemanager.getfixturedefs(name, item)
            found = known is None or len(known) != 1
        except Exception:
            # Not for plugins to rely on, so another pytest may have another one.
            found = True
        parent.stash[OVERRIDDEN] = found
    return found


@pytest.fixture
def fakecloud() -> Cloud:
    """The test's Cloud: its clock, its seed, and more fakes than the fixtures give.

    ``fakecloud.clock.advance("24h")`` moves time for all fakes of the test;
    ``fakecloud.kv_server(name="second")`` starts another one at once.
    """
    return _test_cloud()


def _refuse_per_test(item: pytest.Item, own: Mapping[str, Any]) -> None:
    given = {name for marker in item.iter_markers("fakecloud") for name in marker.kwargs} | set(own)
    refused = sorted(given - set(PER_TEST_SETTINGS))
    if refused:
        raise _misuse(
            f"{', '.join(refused)} cannot be set for one test, because the fakes live for the "
            "whole session (fakecloud_scope or fakecloud_early): set them in the session fixture "
            "fakecloud_session_settings"
        )


@pytest.fixture
def kv_server() -> KVServer:
    """A key-value server (Redis' command language over REST), fresh for this test.

    Point code at ``kv_server.url`` and ``kv_server.token``, or take ``kv_server.client()``; look
    inside with ``kv_server.value(key)``, ``.values()``, ``.ttl(key)``.
    """
    handle: KVServer = _test_cloud().fixture_handle("kv_server")
    return handle


@pytest.fixture
def vector_index() -> VectorIndex:
    """A vector index, fresh for this test.

    Its dimension is that of the first upsert unless the marker sets one; look inside with
    ``vector_index.vectors()``, check with ``assert_upserted`` and ``assert_queried``.
    """
    handle: VectorIndex = _test_cloud().fixture_handle("vector_index")
    return handle


@pytest.fixture
def broker() -> Broker:
    """A partitioned log with consumer groups, fresh for this test.

    Make topics with ``broker.create_topic("orders", partitions=3)``; look inside with
    ``broker.records("orders")`` and ``broker.group("g")``.
    """
    handle: Broker = _test_cloud().fixture_handle("broker")
    return handle


@pytest.fixture
def queue() -> Queue:
    """An HTTP message queue that delivers, retries and calls back, fresh for this test.

    Nothing is delivered until the test drives it: ``queue.run_until_idle()``,
    ``queue.advance("24h")``, ``queue.deliver_due()``.
    """
    handle: Queue = _test_cloud().fixture_handle("queue")
    return handle


@pytest.fixture
def callback_capture() -> CallbackCapture:
    """A receiver of the queue's callbacks and failure callbacks.

    Publish with ``callback_capture.callback_url`` and ``.failure_url``; look at ``.callbacks`` and
    ``.failures``, or wait with ``wait_for_callback()`` and ``wait_for_failure()``.
    """
    handle: CallbackCapture = _test_cloud().fixture_handle("callback_capture")
    return handle


@pytest.fixture
def destination() -> Destination:
    """A pytest-httpserver with ``.url``, to receive deliveries; unmet expectations fail the test."""
    handle: Destination = _test_cloud().fixture_handle("destination")
    return handle


@pytest.fixture
def fakecloud_kv() -> KVServer:
    """The same fake as ``kv_server``, by a name no suite has of its own."""
    handle: KVServer = _test_cloud().fixture_handle("kv_server")
    return handle


@pytest.fixture
def fakecloud_vector() -> VectorIndex:
    """The same fake as ``vector_index``, by a name no suite has of its own."""
    handle: VectorIndex = _test_cloud().fixture_handle("vector_index")
    return handle


@pytest.fixture
def fakecloud_broker() -> Broker:
    """The same fake as ``broker``, by a name no suite has of its own."""
    handle: Broker = _test_cloud().fixture_handle("broker")
    return handle


@pytest.fixture
def fakecloud_queue() -> Queue:
    """The same fake as ``queue``, by a name no suite has of its own."""
    handle: Queue = _test_cloud().fixture_handle("queue")
    return handle


@pytest.fixture
def fakecloud_env(fakecloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Set the environment variables the official clients read, for every fake of the test.

    A fake started later sets its own at that moment; the first fake of a service has the names.
    """
    _publish_env(fakecloud, monkeypatch)
    return fakecloud


def _publish_env(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def publish(handle: Any) -> None:
        variables = dict(handle.env)
        if cloud.authority is not None:
            variables.update(cloud.authority.variables)
        for name, value in variables.items():
            if name not in seen:
                seen.add(name)
                monkeypatch.setenv(name, value)

    for handle in cloud.handles:
        publish(handle)
    cloud.on_start(publish)
