"""A pytest run inside the test, with only the plugins a test asks for."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest

# A run in this process forgets the modules it imported, so all it may import is imported here: once
# and not for every run, and numpy cannot be imported twice.
for _name in (
    "httpx", "hypothesis", "multiprocessing.connection", "numpy", "requests", "responses",
    "upstash_redis", "upstash_vector", "qstash",
    "pytest_fakecloud.broker.handle", "pytest_fakecloud.cloud", "pytest_fakecloud.control.record",
    "pytest_fakecloud.failures", "pytest_fakecloud.hints", "pytest_fakecloud.kv.handle",
    "pytest_fakecloud.process_time", "pytest_fakecloud.queue.capture",
    "pytest_fakecloud.queue.handle", "pytest_fakecloud.timeline",
    "pytest_fakecloud.transport.client_cost", "pytest_fakecloud.transport.inprocess",
    "pytest_fakecloud.transport.intercept", "pytest_fakecloud.transport.tls",
    "pytest_fakecloud.vector.handle",
):  # fmt: skip
    importlib.import_module(_name)

Run = Callable[..., pytest.RunResult]

QUIET = tuple(
    f"-pno:{name}"
    for name in (
        "cacheprovider", "randomly", "asyncio", "django", "anyio", "socket", "timeout", "xdist",
        "hypothesispytest", "pytest_httpx", "respx", "requests_mock",
    )
)  # fmt: skip


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Write a test file and run it in this process; other plugins of the environment stay out."""

    def run_source(source: str, *options: str, quiet: bool = True) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess(*(QUIET if quiet else ()), *options)

    return run_source
