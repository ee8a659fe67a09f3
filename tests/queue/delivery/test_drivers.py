"""Test what a queue does after each run of its deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pytest_fakecloud.core.clock import Target
from pytest_fakecloud.queue.delivery.drivers import Driver, NotIdleError

from ..engine.bench import Bench


def run_in_a_loop(driver: Driver, targets: Iterable[Target]) -> Any:
    return asyncio.run(driver.run_async(targets))


@pytest.mark.parametrize("run", [Driver.run, run_in_a_loop])
@pytest.mark.parametrize("within", ["1h", "1m"])
def test_idle_connections_are_closed_after_each_run(
    run: Callable[[Driver, Iterable[Target]], Any], within: str
) -> None:
    bench = Bench()
    bench.publish(Delay="1h")
    released: list[int] = []
    driver = Driver(bench.engine, lambda: None, lambda: released.append(len(bench.sent)))
    targets = driver.until_idle(within)
    if within == "1h":
        assert len(run(driver, targets)) == 1
    else:
        with pytest.raises(NotIdleError):
            run(driver, targets)
    assert released == [len(bench.sent)]
