"""A pytest run inside the test, with only the plugins a test asks for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

QUIET = (
    "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:asyncio", "-p", "no:django",
    "-p", "no:anyio", "-p", "no:socket", "-p", "no:timeout", "-p", "no:xdist", "-p", "no:pytest_httpx",
)  # fmt: skip


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Write a test file and run it in this process; other plugins of the environment stay out."""

    def run_source(source: str, *options: str, quiet: bool = True) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess(*(QUIET if quiet else ()), *options)

    return run_source
