"""A pytest run inside the test, with only the plugins a test asks for."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import pytest

# A run in this process forgets the modules it imported, so all it may import is imported here: once
# and not for every run, and numpy cannot be imported twice.
_KEPT = (
    "httpx",
    "hypothesis",
    "multiprocessing.connection",
    "numpy",
    "requests",
    "responses",
    "upstash_redis",
    "upstash_vector",
    "qstash",
    "pytest_fakecloud.broker.handle",
    "pytest_fakecloud.cloud",
    "pytest_fakecloud.recordings",
    "pytest_fakecloud.failures",
    "pytest_fakecloud.reporting.hints",
    "pytest_fakecloud.kv.handle",
    "pytest_fakecloud.process_time",
    "pytest_fakecloud.queue.capture.handle",
    "pytest_fakecloud.queue.delivery.destination_server",
    "pytest_fakecloud.queue.handle",
    "pytest_fakecloud.reporting.page",
    "pytest_fakecloud.transport.client_cost",
    "pytest_fakecloud.transport.inprocess",
    "pytest_fakecloud.transport.intercept",
    "pytest_fakecloud.transport.tls",
    "pytest_fakecloud.vector.handle",
)

Run = Callable[..., pytest.RunResult]

QUIET = tuple(
    f"-pno:{name}"
    for name in (
        "cacheprovider", "randomly", "asyncio", "django", "anyio", "socket", "timeout", "xdist",
        "hypothesispytest", "pytest_httpx", "respx", "requests_mock",
    )
)  # fmt: skip


@functools.cache
def _import_what_runs_need() -> None:
    for name in _KEPT:
        importlib.import_module(name)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Write a test file and run it in this process; other plugins of the environment stay out."""
    # Before pytester is made: it forgets at its end what was imported since.
    _import_what_runs_need()
    pytester: pytest.Pytester = request.getfixturevalue("pytester")

    def run_source(source: str, *options: str, quiet: bool = True) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess(*(QUIET if quiet else ()), *options)

    return run_source
