"""Test the calls that move the clock or deliver: they have the same effects on a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import trio

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.actions import NotIdleError, run, until_idle
from pytest_fakecloud.queue.delivery.destinations import Sender
from pytest_fakecloud.queue.errors import LoopError
from pytest_fakecloud.queue.fake import Queue

from .engine.bench import Bench
from .scene import DEST, NOW, Scene

END = "2026-01-01T01:00:00Z"

Call = Callable[[Queue], object]
CALLS: dict[str, Call] = {
    "advance": lambda queue: queue.clock.advance("1h"),
    "move_to": lambda queue: queue.clock.move_to(END),
    "run_until_idle": lambda queue: queue.run_until_idle("1h"),
}
AWAITABLE: dict[str, Callable[[Queue], Any]] = {
    "advance": lambda queue: queue.clock.aio.advance("1h"),
    "move_to": lambda queue: queue.clock.aio.move_to(END),
    "run_until_idle": lambda queue: queue.aio.run_until_idle("1h"),
}


def awaited(name: str, run: Callable[[Any], object]) -> Call:
    async def main(queue: Queue) -> None:
        await AWAITABLE[name](queue)

    return lambda queue: run(lambda: main(queue))


def in_asyncio(function: Callable[[], Any]) -> None:
    asyncio.run(function())


every_call = pytest.mark.parametrize(
    "call",
    [pytest.param(call, id=name) for name, call in CALLS.items()]
    + [pytest.param(awaited(name, in_asyncio), id=f"asyncio-{name}") for name in AWAITABLE]
    + [pytest.param(awaited(name, trio.run), id=f"trio-{name}") for name in AWAITABLE],
)


@every_call
def test_what_becomes_due_is_delivered_in_order_and_at_its_time(call: Call) -> None:
    with Scene() as scene:
        scene.answer = lambda request: 200 if request.retried else 500
        for delay in ("30m", "10m", "50m"):
            scene.queue.publish(DEST, json=delay, delay=delay)
        call(scene.queue)
        seen = [(request.json(), request.retried) for request in scene.came]
        assert seen == [(delay, n) for delay in ("10m", "30m", "50m") for n in (0, 1)]
        assert [round(at) for at in scene.times[::2]] == [600, 1800, 3000]
        assert scene.queue.attempts().last.status == 200


@every_call
def test_a_chain_of_deliveries_in_one_call_has_a_limit(call: Call) -> None:
    with Scene(loop_limit=5) as scene:
        scene.answer = lambda request: scene.queue.publish(DEST, delay="1s") and 200
        scene.queue.publish(DEST)
        with pytest.raises(LoopError, match="loop: 50 deliveries caused each other in one call"):
            call(scene.queue)
        assert len(scene.queue.pending()) == 1
        # The next call starts a new chain.
        count = len(scene.came)
        scene.queue.clock.advance("40s")
        assert len(scene.came) == count + 41


@every_call
def test_a_handler_that_moves_the_clock_is_a_mistake_of_the_test(call: Call) -> None:
    with Scene() as scene:
        scene.answer = lambda request: scene.queue.clock.advance("1h")
        scene.queue.publish(DEST)
        with pytest.raises(ContractError, match="cannot be advanced again from inside a handler"):
            call(scene.queue)


@every_call
def test_an_exception_of_a_handler_is_raised_on_request(call: Call) -> None:
    with Scene(raise_exceptions=True) as scene:
        scene.answer = lambda request: {}["missing"]
        scene.queue.publish(DEST, delay="1m", retries=0)
        with pytest.raises(KeyError, match="missing"):
            call(scene.queue)


@pytest.mark.parametrize("name", AWAITABLE)
@pytest.mark.parametrize("run", [in_asyncio, trio.run])
def test_coroutine_functions_run_in_the_loop_that_awaits(
    name: str, run: Callable[[Any], object]
) -> None:
    seen: list[object] = []

    def loop() -> object:
        if run is trio.run:
            return trio.lowlevel.current_trio_token()
        return asyncio.get_running_loop()

    async def handler(request: object) -> int:
        seen.append(loop())
        return 200

    with Scene() as scene:
        scene.queue.destinations.call(DEST, handler)
        scene.queue.publish(DEST, delay="1m")

        async def main() -> None:
            await AWAITABLE[name](scene.queue)
            assert seen == [loop()]

        run(main)
        assert scene.queue.clock.now() > NOW


@every_call
def test_idle_connections_are_closed_after_each_call(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[int] = []
    monkeypatch.setattr(Sender, "release", lambda sender: released.append(len(scene.came)))
    with Scene() as scene:
        scene.queue.publish(DEST, delay="10m")
        call(scene.queue)
        assert released == [1]


@pytest.mark.parametrize("within", ["1h", "1m"])
def test_a_run_ends_with_or_without_an_error(within: str) -> None:
    bench = Bench()
    bench.publish(Delay="1h")
    released: list[int] = []
    bench.clock.moving_call_ends.add(lambda: released.append(len(bench.sent)))
    if within == "1h":
        assert len(run(bench.engine, until_idle(bench.engine, within))) == 1
    else:
        with pytest.raises(NotIdleError):
            run(bench.engine, until_idle(bench.engine, within))
    assert released == [len(bench.sent)]
