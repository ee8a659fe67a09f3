"""Sleeps that move the clock: in threads and event loops, with clients and tools, and restored."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic as took_monotonic
from time import sleep as took_sleep
from typing import Any, ClassVar

import anyio
import freezegun
import httpx
import pytest
import qstash
import time_machine
import trio
import trio.testing
import upstash_redis
import upstash_redis.asyncio
import upstash_vector

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.process import loops
from pytest_fakecloud.process import sleepers as moving
from pytest_fakecloud.process.loops import Autojump

from ..harness import Run, in_threads

NOON = "2026-01-01T12:00:00Z"
NAMES = ("sleep", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


@contextmanager
def in_no_time(most: float = 20.0) -> Iterator[None]:
    """Fail if the block takes more real seconds; its sleeps would take half a minute."""
    began = monotonic()
    yield
    assert monotonic() - began < most


@contextmanager
def jumping(**settings: Any) -> Iterator[Cloud]:
    with in_no_time(), Cloud(seed=1, now=NOON, process_time="autojump", **settings) as cloud:
        yield cloud


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with jumping() as made:
        yield made


def since_noon(cloud: Cloud) -> float:
    return (cloud.clock.now() - datetime(2026, 1, 1, 12, tzinfo=UTC)).total_seconds()


# -- threads ---------------------------------------------------------------------------------------


def test_a_sleep_moves_all_time_there_is(cloud: Cloud) -> None:
    wall, mono, counter = time.time(), time.monotonic(), time.perf_counter_ns()
    time.sleep(40)
    took_sleep(20)
    assert since_noon(cloud) == 60
    assert time.time() - wall == 60
    assert datetime.now(UTC) == cloud.clock.now()
    assert 60 <= time.monotonic() - mono < 80
    assert 60 <= took_monotonic() - mono < 80
    assert 60e9 <= time.perf_counter_ns() - counter < 80e9


def by_default(seconds: float, sleep: Any = time.sleep, *, clock: Any = time.monotonic) -> float:
    began: float = clock()
    sleep(seconds)
    ended: float = clock()
    return ended - began


class Waiter:
    pause = time.sleep
    clocks: ClassVar[dict[str, Any]] = {"monotonic": time.monotonic}


SLEEPS: list[Any] = [time.sleep]


def test_a_function_that_was_bound_before_moves_the_clock_too(cloud: Cloud) -> None:
    began = Waiter.clocks["monotonic"]()
    assert 40 <= by_default(40) < 60
    Waiter().pause(40)
    SLEEPS[0](40)
    assert since_noon(cloud) == 120
    assert 120 <= Waiter.clocks["monotonic"]() - began < 150

    class Late:
        pause = time.sleep

    Late().pause(40)
    assert since_noon(cloud) == 160


def test_expiries_and_deliveries_happen_while_the_application_sleeps() -> None:
    with jumping(delivery="driven") as cloud:
        kv, queue = cloud.kv_server(), cloud.queue()
        arrived: list[float] = []
        queue.destinations.call("https://app.test", lambda _: arrived.append(since_noon(cloud)))
        queue.publish("https://app.test/hook", delay="10s")
        kv.client().set("lock", "mine", ex=30)
        time.sleep(29)
        assert arrived == [10.0]
        assert kv.client().get("lock") == "mine"
        time.sleep(1)
        assert kv.client().get("lock") is None


def test_a_loop_that_polls_ends(cloud: Cloud) -> None:
    for read in (time.time, time.monotonic, time.perf_counter):
        end = read() + 30
        while read() < end:
            time.sleep(0.5)
    assert 89 <= since_noon(cloud) <= 91


def test_sleeps_at_the_same_time_share_it_in_their_order(cloud: Cloud) -> None:
    seen: list[tuple[float, str]] = []

    def work(name: str, seconds: float) -> None:
        for _ in range(3):
            time.sleep(seconds)
            seen.append((since_noon(cloud), name))

    in_threads(lambda: work("a", 10), lambda: work("b", 25))
    # These hold for any scheduling of threads: each sleeps its own time, and no time repeats.
    assert {name: [at for at, sleeper in seen if sleeper == name] for name in "ab"}["b"][-1] >= 75
    assert [at for at, _ in seen] == sorted(at for at, _ in seen)
    assert 75 <= since_noon(cloud) <= 105


def test_many_threads_wait_for_nobody() -> None:
    with jumping() as cloud, concurrent.futures.ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(time.sleep, 60) for _ in range(40)]:
            future.result(10)
        assert since_noon(cloud) >= 300


def test_a_thread_that_sleeps_while_the_first_one_waits_for_it(cloud: Cloud) -> None:
    in_threads(lambda: time.sleep(3600))
    assert since_noon(cloud) == 3600


def test_a_sleep_that_the_test_moves_over(cloud: Cloud) -> None:
    woke = []
    thread = threading.Thread(target=lambda: (time.sleep(60), woke.append(since_noon(cloud))))
    thread.start()
    cloud.clock.advance("1h")
    thread.join(10)
    assert woke
    assert woke[0] >= 60


def test_a_sleep_under_way_at_the_end_sleeps_the_rest_in_real_time() -> None:
    with Cloud(seed=1, now=NOON) as cloud:
        entered = threading.Event()
        slept: list[float] = []
        with cloud.autojump():
            policy: Any = time.sleep.__wrapped__.__closure__[0].cell_contents  # type: ignore[attr-defined]
            sleepers = policy._sleepers

            def work() -> None:
                # Another thread always wakes first, so this one sleeps until the end.
                sleepers._wait_for_turn = lambda sleeper: entered.set() and False
                sleepers.sleep(50, slept.append)

            thread = threading.Thread(target=work)
            thread.start()
            assert entered.wait(10)
        thread.join(10)
        assert slept == [50.0]


def test_what_is_no_span_is_left_to_the_real_sleep(cloud: Cloud) -> None:
    with pytest.raises(ValueError, match="non-negative"):
        time.sleep(-1)
    with pytest.raises(TypeError):
        time.sleep("1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="exactly one argument"):
        time.sleep()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no keyword arguments"):
        time.sleep(seconds=1)  # type: ignore[call-arg]
    assert since_noon(cloud) == 0


def test_a_sleep_that_a_tool_has_put_in_place_may_have_other_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[tuple[float, bool]] = []
    # As gevent's.
    monkeypatch.setattr(time, "sleep", lambda seconds=0, ref=True: slept.append((seconds, ref)))
    with jumping() as cloud:
        time.sleep()  # type: ignore[call-arg]
        time.sleep(2, ref=False)  # type: ignore[call-arg]
        assert slept == [(0, True), (2, False)]
        assert since_noon(cloud) == 0
        time.sleep(3)
        assert since_noon(cloud) == 3


def test_who_waits_until_a_deadline_is_over_comes_past_it(cloud: Cloud) -> None:
    deadline = time.time() + 5
    # A real sleep takes slightly longer than requested, even one of zero seconds.
    for _ in range(3):
        time.sleep(max(0, deadline - time.time()))
        if time.time() > deadline:
            break
    assert time.time() > deadline
    assert since_noon(cloud) == pytest.approx(5, abs=1e-4)


def test_a_loop_in_debug_mode_calls_no_sleep_slow(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> float:
        await asyncio.gather(*(asyncio.sleep(seconds) for seconds in range(60)))
        await asyncio.sleep(3600)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return asyncio.get_running_loop().slow_callback_duration

    assert asyncio.run(work(), debug=True) == pytest.approx(0.1)
    # A busy machine may really be slow for a moment.
    assert "took 1.000 seconds" not in caplog.text
    assert "took 3600.000 seconds" not in caplog.text


def test_the_standard_librarys_own_waits_stay_real() -> None:
    with jumping() as cloud:
        # These waits have a timeout and sleep in small steps.
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.05)
        child.communicate(b"\n", timeout=60)
        assert not threading.Event().wait(0.001)
        assert since_noon(cloud) == 0


# -- event loops -----------------------------------------------------------------------------------


def test_asyncio_sleeps_share_the_time(cloud: Cloud) -> None:
    async def main(cloud: Cloud) -> list[float]:
        async def one(seconds: float) -> float:
            await asyncio.sleep(seconds)
            return since_noon(cloud)

        return list(await asyncio.gather(*map(one, (30, 10, 20, 10))))

    assert asyncio.run(main(cloud)) == [30, 10, 20, 10]


def test_timeouts_of_asyncio_end_when_they_would(cloud: Cloud) -> None:
    async def main(cloud: Cloud) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(100), 5)
        assert since_noon(cloud) == pytest.approx(5, abs=0.5)
        assert await asyncio.wait_for(asyncio.sleep(5, "done"), 100) == "done"

        async def tick() -> None:
            while True:
                await asyncio.sleep(2)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tick(), 7)
        assert since_noon(cloud) == pytest.approx(17, abs=0.5)
        task = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert since_noon(cloud) == pytest.approx(18, abs=0.5)

    asyncio.run(main(cloud))


def test_a_loops_time_goes_with_the_clock_and_never_back() -> None:
    async def main() -> None:
        with in_no_time(), Cloud(now=NOON) as cloud:
            loop = asyncio.get_running_loop()
            began = loop.time()
            with cloud.autojump():
                await asyncio.sleep(50)
            end = loop.time()
            assert 50 <= end - began < 55
            # The next sleep in the same loop continues from there.
            with cloud.autojump():
                await asyncio.sleep(50)
            assert 100 <= loop.time() - began < 105

    asyncio.run(main())


def test_trio_sleeps_and_timeouts(cloud: Cloud) -> None:
    async def main(cloud: Cloud) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 10)
            nursery.start_soon(trio.sleep, 20)
            nursery.start_soon(trio.sleep_until, trio.current_time() + 30)
        assert since_noon(cloud) == pytest.approx(30, abs=0.5)
        with trio.move_on_after(5) as scope:
            await trio.sleep(100)
        assert scope.cancelled_caught
        assert since_noon(cloud) == pytest.approx(35, abs=0.5)
        await trio.sleep_until(began)
        assert 34 < trio.current_time() - began < 40

    trio.run(main, cloud)


def test_a_clock_of_trio_that_can_jump_jumps(cloud: Cloud) -> None:
    async def main() -> float:
        began = trio.current_time()
        await trio.sleep(0)
        await trio.sleep(60)
        return trio.current_time() - began

    assert 60 <= trio.run(main, clock=trio.testing.MockClock(rate=1.0)) < 65
    assert since_noon(cloud) == 60


def test_a_clock_of_trio_that_cannot_be_moved_is_refused() -> None:
    class Own(trio.abc.Clock):
        def start_clock(self) -> None:
            pass

        def current_time(self) -> float:
            return monotonic()

        def deadline_to_sleep_time(self, deadline: float) -> float:
            return deadline - monotonic()

    with (
        jumping() as cloud,
        pytest.raises(ContractError, match="cannot be moved: run the test with trio's own clock"),
    ):
        trio.run(trio.sleep, 60, clock=Own())
    assert since_noon(cloud) == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_follows(backend: str, cloud: Cloud) -> None:
    async def main(cloud: Cloud) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 10)
            group.start_soon(anyio.sleep, 25)
        assert since_noon(cloud) == pytest.approx(25, abs=0.5)
        with pytest.raises(TimeoutError):
            with anyio.fail_after(5):
                await anyio.sleep(60)
        assert since_noon(cloud) == pytest.approx(30, abs=0.5)

    anyio.run(main, cloud, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_follows_by_a_loop_that_the_process_has_forgotten(
    backend: str, monkeypatch: pytest.MonkeyPatch, cloud: Cloud
) -> None:
    # As after a nested pytest run in the test.
    anyio.run(anyio.sleep, 0, backend=backend)
    monkeypatch.delitem(sys.modules, f"anyio._backends._{backend}")
    anyio.run(anyio.sleep, 25, backend=backend)
    assert since_noon(cloud) == pytest.approx(25, abs=0.5)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_answer_under_way_is_not_overtaken(
    backend: str, monkeypatch: pytest.MonkeyPatch, cloud: Cloud
) -> None:
    # A busy machine may take longer for an answer than the default values allow.
    monkeypatch.setattr(moving, "PATIENCE", 20.0)
    monkeypatch.setattr(loops, "_IDLE_TIMEOUT", 20.0)

    async def main(cloud: Cloud) -> None:
        kv = cloud.kv_server()
        done: list[str] = []

        async def call() -> None:
            async with httpx.AsyncClient(timeout=5, trust_env=False) as client:
                for number in range(20):
                    answer = await client.post(
                        kv.url,
                        json=["SET", f"k{number}", "v"],
                        headers={"Authorization": f"Bearer {kv.token}"},
                    )
                    assert answer.json() == {"result": "OK"}
            assert since_noon(cloud) < 5
            done.append("calls")

        async def heartbeat() -> None:
            await anyio.sleep(60)
            done.append("heartbeat")

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            group.start_soon(heartbeat)
        assert done == ["calls", "heartbeat"]

    anyio.run(main, cloud, backend=backend)


# -- timeouts in which nobody sleeps ---------------------------------------------------------------


async def _asyncio_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20):
            await asyncio.Event().wait()


async def _asyncio_wait_for() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 20)


async def _asyncio_call_later() -> None:
    rung = asyncio.Event()
    asyncio.get_running_loop().call_later(20, rung.set)
    await rung.wait()


async def _asyncio_wait() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    assert (await asyncio.wait([task], timeout=20))[1] == {task}
    task.cancel()


async def _anyio_move_on() -> None:
    with anyio.move_on_after(20):
        await anyio.Event().wait()


async def _trio_move_on() -> None:
    with trio.move_on_after(20):
        await trio.sleep_forever()


async def _trio_fail() -> None:
    with pytest.raises(trio.TooSlowError), trio.fail_after(20):
        await trio.Event().wait()


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("asyncio", _asyncio_timeout), ("asyncio", _asyncio_wait_for), ("asyncio", _asyncio_wait),
        ("asyncio", _asyncio_call_later), ("asyncio", _anyio_move_on), ("trio", _anyio_move_on),
        ("trio", _trio_move_on), ("trio", _trio_fail),
    ],
)  # fmt: skip
def test_a_timeout_moves_the_clock_where_nobody_sleeps(loop: str, waits: Any, cloud: Cloud) -> None:
    async def three_times() -> None:
        for _ in range(2):
            await waits()
        # Also works after a sleep, which moves the clock itself.
        await anyio.sleep(10)
        await waits()

    anyio.run(three_times, backend=loop)
    assert since_noon(cloud) == pytest.approx(70, abs=3)


def test_what_falls_due_on_the_way_to_a_timeout_happens() -> None:
    async def work(rung: asyncio.Event) -> None:
        async with asyncio.timeout(3600):
            await rung.wait()

    with jumping(delivery="driven") as cloud:
        queue = cloud.queue()
        rung = asyncio.Event()
        queue.destinations.call("https://app.test/", lambda request: rung.set())
        queue.publish("https://app.test/", delay="1h")
        queue.publish("https://app.test/", delay="10m")
        with pytest.raises(TimeoutError):
            asyncio.run(work(asyncio.Event()))
        assert rung.is_set()
        assert since_noon(cloud) == pytest.approx(3600, abs=3)


def test_a_timeout_that_is_not_reached_moves_nothing(cloud: Cloud) -> None:
    async def quick() -> None:
        for _ in range(100):
            async with asyncio.timeout(20):
                await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(20, lambda: None).cancel()
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 20) == "done"

    asyncio.run(quick())
    assert since_noon(cloud) < 5


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_slow_answer_is_not_overtaken_by_its_own_timeout(backend: str, cloud: Cloud) -> None:
    async def get(url: str, headers: dict[str, str]) -> int:
        async with httpx.AsyncClient(timeout=5) as client:
            return (await client.get(f"{url}/get/k", headers=headers)).status_code

    kv = cloud.kv_server()
    kv.faults.call(lambda: threading.Event().wait(0.5), times=1)
    assert anyio.run(get, kv.url, kv.headers, backend=backend) == 200
    assert since_noon(cloud) < 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_a_handler_raises_on_the_way_to_a_timeout_comes_up_at_the_end(backend: str) -> None:
    async def work() -> None:
        with anyio.move_on_after(1.3):
            await anyio.Event().wait()

    with Cloud(seed=1, now=NOON, delivery="driven") as cloud:
        queue = cloud.queue()
        queue.destinations.call("https://app.test/", lambda request: pytest.fail("not now"))
        queue.publish("https://app.test/", delay="1s")
        with pytest.raises(pytest.fail.Exception, match="not now"), cloud.autojump():
            anyio.run(work, backend=backend)


def test_threads_and_loops_together(cloud: Cloud) -> None:
    async def main(cloud: Cloud) -> None:
        sleeping = asyncio.to_thread(time.sleep, 20)
        await asyncio.gather(sleeping, asyncio.sleep(10), asyncio.sleep(40))
        assert since_noon(cloud) == pytest.approx(40, abs=21)
        # The loop is blocked by a thread that sleeps longer.
        task = asyncio.create_task(asyncio.sleep(5))
        await asyncio.sleep(0)
        in_threads(lambda: time.sleep(90))
        await task

    asyncio.run(main(cloud))


def test_a_loop_that_never_rests_does_not_keep_a_sleeper() -> None:
    async def main() -> None:
        sleeping = asyncio.create_task(asyncio.sleep(60))
        while not sleeping.done():
            await asyncio.sleep(0)

    with jumping():
        asyncio.run(main())


# -- within deliveries -----------------------------------------------------------------------------


def test_a_handler_that_sleeps_takes_that_long() -> None:
    with jumping(delivery="driven") as cloud:
        queue = cloud.queue()
        seen = []

        def slow(_: object) -> int:
            time.sleep(20)
            seen.append(since_noon(cloud))
            return 200

        async def slow_too(_: object) -> int:
            await asyncio.sleep(20)
            seen.append(since_noon(cloud))
            return 200

        queue.destinations.call("https://app.test/sync", slow)
        queue.destinations.call("https://app.test/async", slow_too)
        queue.publish("https://app.test/sync", delay="10s")
        queue.publish("https://app.test/async", delay="10s")
        time.sleep(100)
        assert seen == [30.0, pytest.approx(50.0, abs=0.5)]
        assert since_noon(cloud) == 100
        queue.publish("https://app.test/sync")
        queue.run_until_idle()
        assert since_noon(cloud) == 120


def test_a_handler_that_sleeps_in_the_background() -> None:
    with jumping(delivery="background") as cloud:
        queue = cloud.queue()
        done = threading.Event()

        def slow(_: object) -> int:
            time.sleep(20)
            done.set()
            return 200

        queue.destinations.call("https://app.test", slow)
        queue.publish("https://app.test")
        time.sleep(1)
        assert done.wait(10)
        assert since_noon(cloud) >= 20


def test_a_handler_in_the_running_loop_sleeps() -> None:
    async def main(cloud: Cloud) -> None:
        queue = cloud.queue()
        seen = []

        async def slow(_: object) -> int:
            await asyncio.sleep(20)
            seen.append(since_noon(cloud))
            return 200

        queue.destinations.call("https://app.test", slow)
        queue.publish("https://app.test", delay="10s")
        await asyncio.sleep(60)
        assert seen == [30]
        queue.publish("https://app.test")
        await queue.aio.run_until_idle()
        assert seen == [30, 80]

    with jumping(delivery="driven") as cloud:
        asyncio.run(main(cloud))


# -- clients ---------------------------------------------------------------------------------------


def unreachable(cloud: Cloud) -> tuple[Any, Any, Any]:
    fakes = cloud.kv_server(), cloud.vector_index(), cloud.queue()
    for fake in fakes:
        fake.faults.down()
    return fakes


REFUSED = r"refused|failed"


def test_client_side_retries_take_no_time(cloud: Cloud) -> None:
    kv, vector, queue = unreachable(cloud)
    client = qstash.QStash(queue.token, base_url=queue.url)
    with pytest.raises(Exception, match=REFUSED):
        client.message.publish(url="https://app.test", body="x")
    with pytest.raises(Exception, match=REFUSED):
        upstash_redis.Redis(kv.url, kv.token, rest_retries=5, rest_retry_interval=3).get("k")
    with pytest.raises(Exception, match=REFUSED):
        upstash_vector.Index(vector.url, vector.token, retries=5, retry_interval=3).info()
    assert since_noon(cloud) > 60


def test_client_side_retries_of_async_clients_take_no_time(cloud: Cloud) -> None:
    async def main(cloud: Cloud) -> None:
        kv, vector, queue = unreachable(cloud)
        index = upstash_vector.AsyncIndex(vector.url, vector.token, retries=5, retry_interval=3)
        with pytest.raises(Exception, match=REFUSED):
            await index.info()
        client = qstash.AsyncQStash(queue.token, base_url=queue.url)
        with pytest.raises(Exception, match=REFUSED):
            await client.message.publish(url="https://app.test", body="x")
        options = {"rest_retries": 5, "rest_retry_interval": 3}
        with pytest.raises(Exception, match=REFUSED):
            await upstash_redis.asyncio.Redis(kv.url, kv.token, **options).get("k")
        assert since_noon(cloud) > 45

    asyncio.run(main(cloud))


# -- beside other tools ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "travel",
    [partial(time_machine.travel, tick=False), freezegun.freeze_time],
    ids=["time_machine", "freezegun"],
)
def test_a_travel_of_another_tool_inside_goes_along(travel: Any, cloud: Cloud) -> None:
    with travel("2030-01-01T00:00:00Z"):
        time.sleep(60)
        assert datetime.now(UTC) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    assert datetime.now(UTC) == cloud.clock.now()
    time.sleep(1)
    assert since_noon(cloud) == 61


def test_a_travel_that_ends_later_keeps_its_time() -> None:
    real = time.time()
    travel = time_machine.travel("2030-01-01T00:00:00Z", tick=False)
    with Cloud(now=NOON, process_time="autojump"):
        travel.start()
        time.sleep(60)
    assert datetime.now(UTC) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    travel.stop()
    assert abs(time.time() - real) < 60


def test_freezegun_around_it_is_ticked() -> None:
    with freezegun.freeze_time("2026-01-01T12:00:00Z") as frozen, in_no_time():
        with Cloud(seed=1, process_time="autojump") as cloud:
            time.sleep(90)
            assert datetime.now(UTC) == datetime(2026, 1, 1, 12, 1, 30, tzinfo=UTC)
            assert cloud.clock.now() == datetime.now(UTC)
        assert frozen() == datetime(2026, 1, 1, 12, 1, 30)
        with pytest.raises(ContractError, match="freezegun has set this process's time"):
            Cloud(now="2030-01-01T00:00:00Z", process_time=True)


def test_what_somebody_put_in_its_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    with jumping() as cloud:
        ours = time.sleep
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", slept.append)
            time.sleep(30)
        assert time.sleep is ours
        monkeypatch.setattr(time, "sleep", slept.append)
    time.sleep(20)
    assert slept == [30, 20]
    assert cloud.closed
    monkeypatch.undo()
    # A replacement restored late works like the original.
    assert time.sleep is ours
    time.sleep(0.001)
    assert cloud.clock.now() == datetime(2026, 1, 1, 12, tzinfo=UTC)
    with jumping() as cloud:
        time.sleep(30)
        assert since_noon(cloud) == 30
    assert "built-in" in repr(time.sleep)


# -- the end ---------------------------------------------------------------------------------------


def test_what_is_imported_meanwhile_is_given_back_too() -> None:
    really, late = time.sleep, types.ModuleType("imported_late")
    sys.modules["imported_late"] = late
    try:
        with jumping() as cloud:
            exec("from time import sleep", vars(late))
            assert late.sleep is not really
            late.sleep(60)
            assert since_noon(cloud) == 60
        assert late.sleep is really
    finally:
        del sys.modules["imported_late"]


LATE_TRIO = """
import importlib.util
import sys
from pytest_fakecloud import Cloud

def ours():
    return [one for one in sys.meta_path if type(one).__module__.startswith("pytest_fakecloud")]

with Cloud(seed=1, now="2026-01-01T12:00:00Z", process_time="autojump") as cloud:
    assert "trio" not in sys.modules
    import json.tool  # another module passes by
    assert importlib.util.find_spec("trio")  # only a search
    import trio

    began = cloud.clock.now()
    trio.run(trio.sleep, 3600)
    print((cloud.clock.now() - began).total_seconds())
with Cloud(seed=1, now="2026-01-01T12:00:00Z", process_time="autojump") as cloud:
    pass
print(ours() == [])
"""


UNUSED_TRIO = """
import sys
from pytest_fakecloud import Cloud

def ours():
    return [one for one in sys.meta_path if type(one).__module__.startswith("pytest_fakecloud")]

with Cloud(process_time="autojump"):
    assert ours()
assert "trio" not in sys.modules
print(ours() == [])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "output"),
    [(LATE_TRIO, ["3600.0", "True"]), (UNUSED_TRIO, ["True"])],
    ids=["imported later, it sleeps on the clock", "not imported, nobody waits for it"],
)
def test_trio_in_a_process_that_has_not_imported_it(source: str, output: list[str]) -> None:
    made = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60
    )
    assert made.stdout.split() == output, made.stderr


def test_a_start_that_fails_leaves_nothing_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(jumps: Autojump) -> None:
        raise LookupError

    before = time.sleep, asyncio.sleep, asyncio.BaseEventLoop.call_at
    monkeypatch.setattr(Autojump, "_call_at_of_loops", fails)
    with pytest.raises(LookupError):
        Cloud(process_time="autojump")
    assert (time.sleep, asyncio.sleep, asyncio.BaseEventLoop.call_at) == before


def test_all_names_are_given_back() -> None:
    def names() -> list[object]:
        here = sys.modules[__name__]
        return [
            *(getattr(time, name) for name in NAMES),
            asyncio.sleep, asyncio.tasks.sleep, trio.sleep, trio.sleep_until,
            here.took_sleep, here.took_monotonic,  # type: ignore[attr-defined]
            *(by_default.__defaults__ or ()), vars(Waiter)["pause"], *SLEEPS,
        ]  # fmt: skip

    before = names()
    with Cloud(now=NOON, process_time="autojump"):
        assert not set(map(id, names())) & set(map(id, before))
    assert names() == before
    with Cloud(now=NOON) as cloud:
        assert names() == before
        with pytest.raises(ZeroDivisionError), cloud.autojump():
            1 / 0  # noqa: B018
        assert names() == before


def test_a_block_leaves_a_running_clock_running_from_where_it_is() -> None:
    with in_no_time(), Cloud() as cloud:
        began = cloud.clock.now()
        with cloud.autojump():
            assert cloud.clock.mode == "frozen"
            time.sleep(3600)
        assert cloud.clock.mode == "running"
        assert timedelta(hours=1) <= cloud.clock.now() - began < timedelta(hours=1, minutes=1)
        cloud.clock.freeze()
        cloud.clock.resume()


def test_a_block_within_process_time() -> None:
    with in_no_time(), Cloud(now=NOON, process_time=True) as cloud:
        with cloud.autojump():
            time.sleep(60)
            assert since_noon(cloud) == 60
        assert datetime.now(UTC) == cloud.clock.now()
        with pytest.raises(ContractError, match="cannot run"):
            cloud.clock.resume()
        cloud.clock.advance("60s")
        assert datetime.now(UTC) == cloud.clock.now()


def test_one_cloud_has_the_sleeps_of_a_process() -> None:
    with Cloud(process_time="autojump"):
        with pytest.raises(ContractError, match="move only one"):
            Cloud(process_time="autojump")
        with (
            Cloud() as other,
            pytest.raises(ContractError, match="move only one"),
            other.autojump(),
        ):
            raise AssertionError
        assert datetime.now(UTC)
    with Cloud(process_time="autojump"):
        pass


def test_a_block_inside_of_another_changes_nothing() -> None:
    with in_no_time(), Cloud(seed=1, now=NOON, process_time="autojump") as cloud:
        began = cloud.clock.now()
        with cloud.autojump(), cloud.autojump():
            time.sleep(60)
        time.sleep(60)
        assert cloud.clock.now() == began + timedelta(seconds=120)
    with in_no_time(), Cloud(seed=1, now=NOON, clock="frozen") as cloud:
        began = cloud.clock.now()
        with cloud.autojump():
            with cloud.autojump():
                time.sleep(60)
            time.sleep(60)
        assert cloud.clock.now() == began + timedelta(seconds=120)


def test_as_a_marker(run: Run) -> None:
    run(
        """
        import time
        from time import sleep
        import pytest

        real = time.sleep

        @pytest.mark.fakecloud(process_time="autojump", now="2026-01-01T00:00:00Z")
        def test_slept_over(fakecloud, kv_server):
            kv_server.client().set("k", "v", ex=3600)
            sleep(3599)
            time.sleep(2)
            assert kv_server.client().get("k") is None
            assert time.gmtime()[:5] == (2026, 1, 1, 1, 0)

        def test_given_back(kv_server):
            assert time.sleep is real is sleep

        def test_in_a_block(fakecloud, kv_server):
            kv_server.client().set("k", "v", ex=3600)
            with fakecloud.autojump():
                sleep(3601)
            assert kv_server.client().get("k") is None
            assert time.sleep is real is sleep
        """
    ).assert_outcomes(passed=3)
