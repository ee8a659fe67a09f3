"""explore(): which schedules it tries, what it reports, and what it restores."""

from __future__ import annotations

import asyncio
import gc
import importlib
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
import trio
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis
from upstash_redis.errors import UpstashError

from pytest_fakecloud import (
    BrokenPromiseError,
    Cloud,
    ContractError,
    History,
    KVServer,
    eventually,
    once,
    replay_schedule,
)
from pytest_fakecloud.cloud.base import use_in_fixtures
from pytest_fakecloud.explore.simulation import calls as calls_module
from pytest_fakecloud.explore.simulation import clock as clock_module
from pytest_fakecloud.explore.simulation import scheduler
from pytest_fakecloud.explore.values.disturbances import KINDS, Kind
from pytest_fakecloud.kv.engine import limits

from ..harness import Run, quiet_but
from .conftest import failure, holds


def claim(redis: Redis) -> Callable[[], None]:
    """Increment a claim and mark it as taken."""

    def run() -> None:
        redis.incr("claims")
        redis.set("taken", "yes", ex=60)

    return run


def at_most_one(kv: KVServer, key: str = "claims") -> Callable[[], None]:
    def check() -> None:
        count = int(kv.value(key) or 0)
        assert count <= 1, f"{count} {key}"

    return check


def test_the_story_lists_calls_with_times_and_source_lines(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    error = failure(cloud, claim(redis), at_most_one(kv))
    text = str(error)
    head, _, story = text.partition(":\n")
    assert head.startswith(
        "the promise was broken by a schedule of 1 disturbance, after 2 schedules in "
    )
    assert re.sub(r"py:\d+", "py:LINE", story) == (
        "cause: run's INCR claims (test_explore.py:LINE) succeeds, but its answer is lost\n"
        "1. +0 s  run: INCR claims succeeds, but its answer is lost (test_explore.py:LINE)\n"
        "2. +3 s  run: INCR claims → 2 (test_explore.py:LINE); SET taken yes EX 60 → OK "
        "(test_explore.py:LINE)\n"
        "check: 2 claims\n"
        'replay it with @pytest_fakecloud.replay_schedule("run.1 lose_response")'
    )
    assert isinstance(error.__cause__, AssertionError)
    assert (error.schedule, len(error.disturbances)) == ("run.1 lose_response", 1)


def test_the_result_counts_schedules_by_their_source(cloud: Cloud, redis: Redis) -> None:
    result = cloud.explore(lambda: redis.set("k", "v"), holds, budget=150)
    assert result.singles == result.all_singles
    parts = (result.orders, result.singles, result.extended, result.drawn, result.replayed)
    assert sum(parts) == result.tried
    assert 0 < result.extended < result.tried <= 150
    assert f"{result.tried:,} schedules in " in str(result)
    assert f"all {result.singles:,} of one disturbance, {result.extended:,} of several" in str(
        result
    )


def test_equal_seeds_try_equal_schedules(cloud: Cloud, redis: Redis) -> None:
    def tried(seed: int) -> list[str]:
        texts: list[str] = []

        def check(history: History) -> None:
            texts.append(history.schedule)

        def run() -> None:
            redis.set("a", "v")
            redis.set("b", "v")
            redis.set("c", "v")

        cloud.explore(run, check, seed=seed, budget=30)
        return texts

    first = tried(1)
    assert tried(1) == first != tried(2)
    assert len(set(first)) == 31, "each once, and the undisturbed trial"


def test_schedules_of_several_disturbances_are_drawn_and_shrunk(cloud: Cloud, kv: KVServer) -> None:
    """The bug needs three failures, so schedules with one or two disturbances do not find it."""

    def run() -> None:
        for number in range(5):
            try:
                httpx.get(f"{kv.url}/incr/n{number % 5}", headers=kv.headers).raise_for_status()
            except httpx.HTTPError:
                redis_free.append(number)

    redis_free: list[int] = []

    def check() -> None:
        assert len(redis_free) < 3, "three calls have failed"

    error = failure(
        cloud,
        run,
        check,
        setup=redis_free.clear,
        kinds=("respond", "drop"),
        budget=2000,
        match="three calls",
    )
    assert len(error.disturbances) == 3


class MemoryCache(dict[str, Any]):
    """The part of pytest's cache that keeps failing schedules."""

    def set(self, key: str, value: object) -> None:
        self[key] = value


def test_a_failure_is_tried_first_the_next_time(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    cache = MemoryCache()
    use_in_fixtures(cloud, {}, cache)
    run, check = claim(redis), at_most_one(kv)
    error = failure(cloud, run, check)
    assert error.tried > 1
    again = failure(cloud, run, check)
    assert (again.tried, again.schedule) == (1, error.schedule)
    assert "s (1 that failed last time; seed 1):" in str(again)
    # It is forgotten when the code no longer fails with it.
    for key, stored in cache.items():
        assert stored == error.schedule
        cache[key] = "run.1 respond"
    assert failure(cloud, run, check).tried == error.tried + 1
    # A search with a seed is the same each time.
    assert failure(cloud, run, check, seed=cloud.seed).tried == error.tried
    # Something that is no schedule counts as nothing.
    cache.update(dict.fromkeys(cache, "no schedule"))
    assert failure(cloud, run, check).tried == error.tried


def test_the_cache_of_pytest_keeps_a_failure_for_the_next_run(run: Run) -> None:
    source = """
    def test_it(kv_server, fakecloud):
        redis = kv_server.client(rest_retries=0)

        def check():
            assert kv_server.value("n")

        fakecloud.explore(lambda: redis.incr("n"), check, kinds=("drop", "duplicate"))
    """
    for tried in ("2 schedules", "1 schedule"):
        result = run(source, *quiet_but("cacheprovider"), quiet=False)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"*broken by a schedule of 1 disturbance, after {tried} in *"])


def test_a_schedule_is_replayed(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    run, check = claim(redis), at_most_one(kv)
    failure(cloud, run, check, schedule="run.1 duplicate", match="by the given schedule")
    assert cloud.explore(run, check, schedule="run.2 duplicate").tried == 1

    @replay_schedule("run.1 duplicate")
    def test() -> None:
        cloud.explore(run, check)

    with pytest.raises(BrokenPromiseError, match="by the given schedule") as caught:
        test()
    assert caught.value.tried == 0

    @replay_schedule("run.1 duplicate")
    async def test_async() -> None:
        await cloud.aio.explore(run, check)

    with pytest.raises(BrokenPromiseError, match="by the given schedule"):
        asyncio.run(test_async())


def test_a_replayed_test_must_explore(cloud: Cloud, redis: Redis) -> None:
    @replay_schedule("ping.1 drop")
    def test() -> None:
        redis.ping()

    @replay_schedule("ping.1 drop")
    async def test_async() -> None:
        redis.ping()

    @replay_schedule("ping.1 drop")
    def test_skipped() -> None:
        pytest.skip("not here")

    @replay_schedule("ping.1 drop")
    async def test_explored() -> None:
        await cloud.aio.explore(redis.ping, holds)

    with pytest.raises(ContractError, match="did not call explore"):
        test()
    with pytest.raises(ContractError, match="did not call explore"):
        asyncio.run(test_async())
    with pytest.raises(pytest.skip.Exception):
        test_skipped()
    asyncio.run(test_explored())


@pytest.mark.parametrize("mode", ["autojump", "yes", 1])
def test_a_process_time_that_explore_does_not_have_is_refused(
    cloud: Cloud, redis: Redis, mode: Any
) -> None:
    with pytest.raises(ContractError, match=r"process_time=.*: pass True or False"):
        cloud.explore(redis.ping, holds, process_time=mode)


@pytest.mark.parametrize(
    ("disturbance", "results", "errors", "crashed"),
    [
        ("ann.2 crash", {"bob": None}, [], ["ann"]),
        ("ann.2 respond", {"bob": None}, ["ann"], []),
        ("ann.2 duplicate", {"ann": 2, "bob": None}, [], []),
        ("relay.1 crash", {"ann": 2, "bob": None, "relay/2": True}, [], ["relay"]),
    ],
)
def test_results_are_those_of_clients_and_workers_that_returned(
    cloud: Cloud,
    kv: KVServer,
    disturbance: str,
    results: dict[str, object],
    errors: list[str],
    crashed: list[str],
) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def ann() -> int:
        return int(redis.set("a", "1")) + int(redis.set("b", "2"))

    def bob() -> None:
        redis.get("a")

    def relay() -> bool:
        return bool(redis.ping())

    histories: list[History] = []
    workers = {"relay": relay} if disturbance.startswith("relay") else {}
    clients = {"ann": ann, "bob": bob}
    cloud.explore(clients, histories.append, workers=workers, schedule=disturbance)
    (history,) = histories
    assert history.results == results
    assert (list(history.errors), history.crashed) == (errors, crashed)


def test_explore_restores_data_clock_journal_and_patches(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    kv.execute("SET", "kept", "1")
    now, entries, token = cloud.clock.now(), len(cloud.journal), kv.token
    faults, real_sleep = kv.faults, time.sleep
    threads = threading.enumerate()  # Other tests may have left some that never end.
    cloud.explore(claim(redis), holds, budget=40)
    assert kv.contents() == {"kept": "1"}
    assert (cloud.clock.now(), kv.token) == (now, token)
    assert len(cloud.journal) == entries
    assert kv.faults is faults
    assert time.sleep is real_sleep
    assert abs(time.time() - real_time()) < 5
    new = [thread.name for thread in threading.enumerate() if thread not in threads]
    assert [name for name in new if name.startswith("explore")] == []
    assert kv.client().ping() == "PONG"


def test_methods_that_others_put_into_sockets_are_restored(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("connect", "send", "recv", "close"):
        original = getattr(socket.socket, name)
        monkeypatch.setattr(socket.socket, name, lambda *args, of=original: of(*args))
    before = dict(vars(socket.socket))
    cloud.explore(claim(redis), schedule="")
    assert dict(vars(socket.socket)) == before


def real_time(read: Callable[[], float] = time.time) -> float:
    return read()


def test_garbage_is_collected_between_schedules(cloud: Cloud, redis: Redis) -> None:
    is_running = False
    finalized: list[bool] = []

    class Garbage:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            finalized.append(is_running)

    def client() -> None:
        nonlocal is_running
        is_running = True
        try:
            Garbage()
            redis.incr("n")
            for _ in range(25_000):
                cycle: list[Any] = []
                cycle.append(cycle)
        finally:
            # A call that fails twice ends the client.
            is_running = False

    cloud.explore(client, holds, budget=4, kinds=("lose_response", "respond"))
    assert finalized
    assert not any(finalized)
    assert gc.isenabled()


def test_the_keys_of_the_baseline_are_measured_once_for_all_trials(
    cloud: Cloud, kv: KVServer, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv.load({"small": "x"})
    measured: list[limits.Memory] = []
    has_room = limits.Memory.has_room

    def measure(memory: limits.Memory, size: int = 0) -> bool:
        measured.append(memory)
        return has_room(memory, size)

    monkeypatch.setattr(limits.Memory, "has_room", measure)
    result = cloud.explore(lambda: redis.incr("n"), holds, budget=10)
    assert result.tried == 10
    assert len(measured) == 1


def test_a_trial_cannot_write_if_the_baseline_fills_the_memory(
    cloud: Cloud, kv: KVServer, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_MEMORY", 1_000)
    kv.load({"large": "x" * 2_000})

    def run() -> str:
        try:
            return str(redis.set("other", "x"))
        except UpstashError as error:
            return str(error)

    def check(history: History) -> None:
        assert str(history.results["run"]).startswith("OOM")

    assert cloud.explore(run, check, kinds="delay", budget=3, trust=False)


def test_objects_that_the_session_froze_stay_frozen(cloud: Cloud, redis: Redis) -> None:
    frozen = gc.get_freeze_count()
    assert frozen > 0, "the conftest of all tests freezes what it collected"
    cloud.explore(claim(redis), holds, budget=2)
    assert 0 < gc.get_freeze_count() <= frozen


def test_the_journal_holds_the_failing_run_alone(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    failure(cloud, claim(redis), at_most_one(kv))
    commands = [call.facts["command"] for call in kv.journal.calls()]
    assert commands == [["INCR"], ["INCR"], ["SET"]]
    assert kv.journal.calls()[0].fault == "lose_response"


def test_a_running_clock_runs_again_after_exploring() -> None:
    with Cloud(seed=1, delivery="driven") as cloud:
        kv = cloud.kv_server()
        cloud.explore(Redis(kv.url, kv.token).ping, holds, budget=20)
        assert cloud.clock.mode == "running"
        assert abs(cloud.clock.now().timestamp() - time.time()) < 5


@pytest.mark.parametrize("mode", [True, "autojump"])
def test_a_cloud_that_has_the_process_time_already(mode: Any) -> None:
    with Cloud(seed=1, delivery="driven", now="2026-11-20T12:00:00Z", process_time=mode) as cloud:
        kv = cloud.kv_server()
        redis = kv.client(rest_retries=1, rest_retry_interval=3600)
        now = cloud.clock.now()
        error = failure(cloud, lambda: redis.incr("n"), once("n"))
        assert "+3600 s" in error.story
        assert (cloud.clock.now(), time.time()) == (now, now.timestamp())
        if mode == "autojump":
            time.sleep(60)
            assert cloud.clock.now().timestamp() == now.timestamp() + 60


def test_explore_is_awaitable_in_trio(cloud: Cloud, kv: KVServer) -> None:
    async def main() -> None:
        result = await cloud.aio.explore(kv.client().ping, holds, budget=10)
        assert result.tried == 10

    trio.run(main)


def test_every_kind_is_tried_and_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "exploration.md").read_text("utf-8")
    assert get_args(Kind) == tuple(KINDS)
    table = page.partition("| Disturbance | What happens |")[2].partition("\n\n")[0]
    assert [kind for kind in KINDS if f" {kind}" not in table] == []


def test_faults_that_the_test_injects_apply_while_exploring(cloud: Cloud, kv: KVServer) -> None:
    kv.faults.respond(418, route="command")

    def run() -> None:
        assert httpx.post(kv.url, json=["PING"], headers=kv.headers).status_code in (418, 503)

    cloud.explore(run, kinds="respond", budget=5)


def test_sleeps_of_the_code_take_no_real_time(cloud: Cloud, kv: KVServer) -> None:
    def run() -> None:
        for _ in range(3):
            try:
                httpx.get(f"{kv.url}/incr/n", headers=kv.headers).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(3600)

    def check() -> None:
        time.sleep(86400)

    cloud.explore(run, check, budget=30, trust=False)


# -- asynchronous code -----------------------------------------------------------------------------


def transfers(kv: KVServer) -> dict[str, Callable[[], Any]]:
    async def add(amount: int) -> None:
        async with AsyncRedis(kv.url, kv.token) as redis:
            total = int(await redis.get("total") or 0)
            await asyncio.sleep(1)
            await redis.set("total", str(total + amount))

    return {"one": lambda: add(1), "two": lambda: add(2)}


def all_added(kv: KVServer) -> Callable[[History], Any]:
    async def check(history: History) -> None:
        if not history.errors and not history.crashed:
            assert kv.value("total") == "3", f"{kv.value('total')} in all"

    return check


@pytest.mark.parametrize("home", ["time", "asyncio"])
def test_modules_imported_while_exploring_sleep_in_real_time_afterwards(
    cloud: Cloud, redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    # The module stands for anyio's event loop, which is imported on the first trial and used by all
    # of anyio's sleeps.
    (tmp_path / "imported_late.py").write_text(f"from {home} import sleep", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def client() -> None:
        importlib.import_module("imported_late")
        redis.incr("n")

    cloud.explore(client, holds, budget=3)
    late = sys.modules.pop("imported_late")
    assert late.sleep is sys.modules[home].sleep  # type: ignore[attr-defined]


def test_asynchronous_clients_in_a_plain_test(cloud: Cloud, kv: KVServer) -> None:
    # In the undisturbed trial the second client runs while the first one sleeps.
    with pytest.raises(AssertionError, match="in all"):
        cloud.explore(transfers(kv), all_added(kv), kinds="switch")


def test_asynchronous_clients_in_a_loop(cloud: Cloud, kv: KVServer) -> None:
    async def increments() -> None:
        async with AsyncRedis(kv.url, kv.token) as redis:
            await redis.incr("n")

    async def main() -> None:
        await cloud.aio.explore(increments, holds, budget=10)
        with pytest.raises(BrokenPromiseError, match="2 n"):
            await cloud.aio.explore(increments, at_most_one(kv, "n"))

    asyncio.run(main())


def test_asynchronous_handlers_sleep_on_the_clock(cloud: Cloud, kv: KVServer) -> None:
    queue = cloud.queue()
    handled: list[float] = []

    async def handle(request: object) -> None:
        await asyncio.sleep(600)
        async with AsyncRedis(kv.url, kv.token) as redis:
            await redis.incr("n")
        handled.append(cloud.clock.now().timestamp())

    queue.destinations.call("https://app.example.com/hook", handle)

    def run() -> None:
        client = queue.client()
        client.message.publish(url="https://app.example.com/hook", body="x")

    start = cloud.clock.now().timestamp()
    cloud.explore(run, schedule="", setup=handled.clear)
    assert handled == [start + 600]
    result = cloud.explore(
        run, holds, budget=25, setup=handled.clear, kinds=("crash", "drop", "respond")
    )
    assert result.tried > 3


def test_timeouts_of_a_loop_follow_the_clock(cloud: Cloud, kv: KVServer) -> None:
    ended: list[float] = []

    async def run() -> None:
        async with AsyncRedis(kv.url, kv.token) as redis:
            await redis.ping()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await asyncio.sleep(3600)
        ended.append(cloud.clock.now().timestamp())

    start = cloud.clock.now().timestamp()
    cloud.explore(run, schedule="", setup=ended.clear)
    assert ended == [pytest.approx(start + 600, abs=0.01)]


# -- misuse ----------------------------------------------------------------------------------------


def test_a_failed_assertion_without_message_is_reported(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def check() -> None:
        if kv.value("n") == "2":
            raise AssertionError

    failure(cloud, lambda: redis.incr("n"), check, kinds="duplicate", match="an assertion failed")


def test_invalid_arguments_of_sleep_raise_the_usual_errors(cloud: Cloud, redis: Redis) -> None:
    refused: list[type[Exception]] = []

    def run() -> None:
        redis.ping()
        for wrong in (-1, "1"):
            try:
                time.sleep(wrong)  # type: ignore[arg-type]
            except Exception as error:
                refused.append(type(error))

    cloud.explore(run, schedule="")
    assert refused == [ValueError, TypeError]


def test_a_thread_of_the_code_sleeps_on_the_clock(cloud: Cloud, redis: Redis) -> None:
    before = cloud.clock.now()
    seen: list[Any] = []

    def run() -> None:
        redis.ping()
        thread = threading.Thread(target=lambda: seen.append(time.sleep(60)))
        thread.start()
        thread.join()
        seen.append((cloud.clock.now() - before).total_seconds())

    cloud.explore(run, schedule="", setup=seen.clear)
    assert seen == [None, 60]


def test_a_promise_broken_in_the_undisturbed_run_is_reported(cloud: Cloud, redis: Redis) -> None:
    def check() -> None:
        raise AssertionError("never right")

    broken = failure(cloud, redis.ping, check, match="by the undisturbed trial")
    assert broken.story.endswith("check: never right")
    assert (broken.disturbances, broken.schedule) == ((), "")
    # An error of the code explains more than the promise that it breaks.
    with pytest.raises(ZeroDivisionError) as raised:
        cloud.explore(lambda: redis.ping() and 1 / 0, check)
    (note,) = raised.value.__notes__
    assert "raised by client in the undisturbed trial" in note
    assert "catch it in the client if it is expected" in note


def test_pytest_fail_ends_the_test_as_itself(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def check() -> None:
        if int(kv.value("claims") or 0) > 1:
            pytest.fail("claimed twice")

    with pytest.raises(pytest.fail.Exception, match="claimed twice"):
        cloud.explore(claim(redis), check)


def test_an_assertion_of_the_code_is_a_promise(cloud: Cloud, kv: KVServer) -> None:
    def run() -> None:
        assert httpx.get(f"{kv.url}/ping", headers=kv.headers).status_code == 200

    error = failure(cloud, run)
    assert error.schedule == "run.1 respond"


def test_an_outcome_of_the_check_names_the_schedule(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def check() -> None:
        if kv.value("taken") is None:
            pytest.fail("nothing there")

    with pytest.raises(pytest.fail.Exception) as caught:
        cloud.explore(claim(redis), check)
    assert caught.value.__notes__ == ["raised by check=, after the schedule 'run.2 crash'"]


class Taken(Exception):
    """An exception of the application."""


@pytest.mark.parametrize("error", [Taken, SystemExit])
@pytest.mark.parametrize("form", ["function", "coroutine", "list", "predicate"])
def test_an_exception_of_a_check_after_a_disturbance_breaks_the_promise(
    cloud: Cloud, kv: KVServer, redis: Redis, form: str, error: type[BaseException]
) -> None:
    def take() -> None:
        redis.set("lock", "x")
        redis.delete("lock")

    def check() -> None:
        if redis.get("lock"):
            raise error("still")

    async def awaited() -> None:
        check()

    def predicate() -> bool:
        return kv.value("lock") is None or bool(check())

    checks: Any = {
        "function": check,
        "coroutine": awaited,
        "list": [holds, check],
        "predicate": eventually(predicate, within="1s"),
    }
    broken_promise = failure(cloud, take, checks[form], kinds="crash")
    assert broken_promise.schedule == "take.2 crash"
    assert f"check: {error.__name__}: still" in str(broken_promise)
    traceback = (
        broken_promise.__cause__.__traceback__ if broken_promise.__cause__ is not None else None
    )
    assert isinstance(broken_promise.__cause__, error)
    assert traceback is not None
    assert traceback.tb_frame.f_code.co_filename == __file__, "no frames of explore()"
    with pytest.raises(error):  # in the undisturbed trial
        cloud.explore(lambda: redis.set("lock", "x"), checks[form])


def test_an_exception_in_another_order_of_calls_can_be_replayed(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def check(history: History) -> None:
        assert kv.value("k") == "bob", {"ann": ""}[f"no name after {history.schedule}"]

    clients = {name: (lambda name=name: redis.set("k", name)) for name in ("ann", "bob")}
    error = failure(cloud, clients, check, kinds="switch")
    assert "check: KeyError: 'no name after ann.1 switch bob'" in str(error)
    error = failure(cloud, clients, check, schedule="ann.1 switch bob")
    assert "check: KeyError: 'no name after ann.1 switch bob'" in str(error)


def test_invalid_arguments_of_explore_are_rejected(cloud: Cloud, redis: Redis) -> None:
    for wrong, text in (
        (lambda: cloud.explore(lambda: None), "made no call"),
        (lambda: cloud.explore(()), "run= is empty"),
        (lambda: cloud.explore(redis.ping, budget=2.5), "budget=2.5"),
        (lambda: cloud.explore(redis.ping, budget=0), "budget=0"),
        (lambda: cloud.explore(redis.ping, budget="0s"), "budget='0s'"),
        (lambda: cloud.explore(redis.ping), "nothing can fail"),
        (lambda: cloud.explore(lambda: redis.ping() and cloud.clock.advance("x")), "a duration"),
        (lambda: cloud.explore(redis.ping, lambda: False), "check returned False"),
        (lambda: cloud.explore(redis.ping, holds, kinds="switch"), "has no point for switch"),
        (lambda: cloud.explore(redis.ping, holds, kinds=("drop", "rebalance")), "rebalance cannot"),
        (lambda: cloud.explore(redis.ping, holds, schedule="ping.7 drop"), "were not applied"),
        (lambda: cloud.explore(redis.ping, holds, schedule="pong.1 drop"), "'pong' is not a"),
        (lambda: cloud.explore([redis.ping], [holds, 3]), "is not a function"),
        (lambda: cloud.explore(redis.ping, [holds, lambda: False]), "check returned False"),
        (lambda: cloud.explore(redis.ping, lambda: "fine"), "returned 'fine', which is neither"),
        (lambda: cloud.explore(redis.ping, lambda: (x for x in "ab")), "whose code has not run"),
        (lambda: cloud.explore(redis.ping, "holds"), "nor a list of functions"),
        (lambda: cloud.explore(redis.ping, holds, setup=3), "setup=3 is not a function"),
        (lambda: cloud.explore("ping"), "run='ping' is not a function"),
        (lambda: cloud.explore([redis.ping, "ping"]), "run='ping' is not a function"),
        (lambda: cloud.explore(redis.ping, kinds="losing_answer"), "lose_response"),
        (lambda: cloud.explore(redis.ping, services="kv"), "is not a fake"),
        (lambda: cloud.explore(redis.ping, schedule="run drop"), "a client, the number of one"),
        (lambda: cloud.explore(redis.ping, schedule="run.1 droop"), "drop"),
        (lambda: cloud.explore(redis.ping, schedule="run.1 switch"), "runs first"),
        (lambda: cloud.explore(redis.ping, schedule="run.1 delay"), "number of seconds"),
        (lambda: cloud.explore(redis.ping, schedule="run.1 delay soon"), "number of seconds"),
        *(
            (partial(cloud.explore, redis.ping, schedule=f"run.1 {disturbance}"), text)
            for disturbance, text in (
                ("fail", "number of attempts"),
                ("unreachable 0", "number of attempts"),
                ("tick", "none of the spans"),
                ("tick 2ms", "none of the spans"),
                ("jump 0", "neither a number"),
                ("past 4", "has no number"),
                ("past edge", "has no number"),
                ("nearly soon", "neither a number"),
                ("drop 1", "has a detail"),
            )
        ),
        (lambda: cloud.explore({"a b": redis.ping}), "a single word"),
        (lambda: replay_schedule("nonsense"), "a client, the number of one of its calls"),
        (lambda: replay_schedule("run.1 crash, run.1 crash"), "'run.1 crash' cannot be applied"),
        (lambda: replay_schedule("run.1 jump, run.1 jump"), "'run.1 jump' cannot be applied"),
        (lambda: replay_schedule("run.1 drop, run.1 crash"), "cannot be applied"),
    ):
        with pytest.raises(ContractError, match=text):
            wrong()  # type: ignore[no-untyped-call]


def test_clients_of_one_name_are_numbered(cloud: Cloud, redis: Redis) -> None:
    def ping() -> None:
        redis.ping()

    result = cloud.explore({"ping": ping, "ping2": ping}, holds, workers=[ping, ping], budget=1)
    assert {name.partition("/")[0] for name in result.calls} == {"ping", "ping2", "ping3", "ping4"}


def test_a_queue_that_delivers_in_the_background_is_rejected_once_it_is_used() -> None:
    url = "https://app.test/hook"
    with Cloud(seed=1, now="2026-01-01T00:00:00Z") as cloud:
        queue, redis = cloud.queue(unstubbed="accept"), cloud.kv_server().client(rest_retries=0)
        queue.publish(url)
        queue.run_until_idle()
        client = queue.client()
        for use in (
            lambda: client.message.publish(url=url),
            lambda: client.message.publish(url=url, delay="1h"),
            lambda: client.schedule.create(destination=url, cron="* * * * *"),
        ):
            assert len(cloud.every_failure(lambda: redis.get("key"))) == 3
            with pytest.raises(ContractError, match="delivers in the background"):
                cloud.explore(use)
            with pytest.raises(ContractError, match=r"and every_failure\(\) must control"):
                cloud.every_failure(use)
            with pytest.raises(
                ContractError, match=r'return \{"queue": \{"delivery": "driven"\}\}'
            ):
                cloud.explore(lambda: redis.get("key"), setup=use)
        queue.publish(url, delay="1h")
        with pytest.raises(ContractError, match='start it with delivery="driven"'):
            cloud.explore(lambda: redis.get("key"))


def test_code_without_an_end_is_refused(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calls() -> None:
        while True:
            redis.ping()

    def sleeps() -> None:
        while True:
            time.sleep(1)

    async def awaits() -> None:
        while True:
            await asyncio.sleep(1)

    monkeypatch.setattr(scheduler, "MOST_TURNS", 100)
    monkeypatch.setattr(scheduler, "_LATEST_STEPS", 20)
    monkeypatch.setattr(calls_module, "MOST_POINTS", 50)
    for endless, words in (
        (calls, "has made 50 calls, with the gaps in pipelines, and goes on"),
        (sleeps, "goes on after 100 steps"),
        (awaits, "goes on after 100 steps"),
    ):
        # Coroutines that wait have no line.
        place = r"(:main)?" if endless is awaits else r" \(test_explore.py:\d+\)"
        with pytest.raises(ContractError, match=f"^{endless.__name__}{place} {words}"):
            cloud.explore([endless, redis.ping], holds)  # type: ignore[list-item]

    monkeypatch.setattr(scheduler, "MOST_TURNS", 20_000)
    monkeypatch.setattr(clock_module, "MOST_FORCED_MOVES", 100)
    words = r"time has moved 100 times and the trial goes on: sleeps \(test_explore.py:\d+\) waits again"
    with pytest.raises(ContractError, match=words):
        cloud.explore([sleeps, redis.ping], holds)


def test_a_failure_that_depends_on_state_outside_the_fakes_is_an_error(
    cloud: Cloud, redis: Redis
) -> None:
    runs: list[int] = []

    def run() -> None:
        redis.ping()
        runs.append(1)
        assert len(runs) != 5

    with pytest.raises(ContractError, match="state outside the fakes"):
        cloud.explore(run)


def test_an_anomaly_that_does_not_repeat_is_named(cloud: Cloud, redis: Redis) -> None:
    """A partial update is reported after the search, in a further trial."""
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        if redis.setnx("lock", "run"):
            try:
                redis.rpush("users", "run")
            finally:
                if len(runs) != 4:
                    redis.delete("lock")

    with pytest.raises(ContractError, match=r"broke the promise \(partial update \(lock, users\)"):
        cloud.explore(run, kinds="respond", budget=5)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    # A trial of another test that a lock of the operating system blocks leaves its thread behind.
    before = threading.enumerate()
    yield
    left = [t.name for t in threading.enumerate() if t not in before]
    assert [name for name in left if name.startswith("explore")] == []
