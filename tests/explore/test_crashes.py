"""Crashes of clients that catch everything: the trial ends, and the result names the client."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import redis as redis_py
import redis.asyncio as redis_async
from upstash_redis import Redis

from pytest_fakecloud import Cloud, ContractError, History, KVServer
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.explore.world import threads

from .conftest import expects


def _forever(call: Callable[[], object]) -> object:
    while True:
        try:
            return call()
        except:  # noqa: E722
            continue


def _rest(kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    _forever(lambda: redis.incr("n"))


def _protocol(kv: KVServer) -> None:
    redis = redis_py.Redis.from_url(kv.database_url)
    _forever(lambda: redis.incr("n"))


def _nested(kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    _forever(lambda: _forever(lambda: redis.incr("n")))


def _in_a_thread(kv: KVServer) -> None:
    thread = threading.Thread(target=_rest, args=(kv,))
    thread.start()
    thread.join()


def _in_a_pool(kv: KVServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_rest, kv).result()


async def _later(kv: KVServer) -> None:
    redis = redis_async.Redis.from_url(kv.database_url)
    while True:
        try:
            await redis.incr("n")
            break
        except:  # noqa: E722
            await asyncio.sleep(0)
    await redis.aclose()


@pytest.mark.parametrize("run", [_rest, _protocol, _nested, _in_a_thread, _in_a_pool, _later])
def test_a_client_that_catches_its_crash_is_abandoned(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch, run: Callable[[KVServer], object]
) -> None:
    # An abandoned thread of a pool waits for work, so that its join takes all of this time.
    monkeypatch.setattr(threads, "LOST_AFTER", 0.2)

    def check(history: History) -> None:
        assert int(kv.value("n") or 0) == 2 - len(history.crashed), "it got another answer"

    result = cloud.explore(
        {"ann": lambda: run(kv), "bob": lambda: _rest(kv)}, check, kinds="crash", budget=3
    )
    notes = [note for note in result.notes if "caught its crash" in note]
    assert notes
    assert run is _later or "test_crashes.py:" in notes[0]


def test_an_abandoned_client_leaves_the_waits_of_later_checks_in_fake_time(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Threads that earlier tests have left, such as the idle ones of trio, could end a wait.
    earlier = {thread for thread in threading.enumerate() if thread is not threading.main_thread()}
    enumerate_all = threading.enumerate
    monkeypatch.setattr(
        threading, "enumerate", lambda: [t for t in enumerate_all() if t not in earlier]
    )
    redis = kv.client()
    cloud.explore(lambda: _rest(kv), lambda: None, kinds="crash", budget=3, trust=False)

    def check() -> None:
        assert redis.get("n")
        began = cloud.clock.now()
        assert not threading.Event().wait(60)
        assert cloud.clock.now() - began == timedelta(seconds=60)

    before = monotonic()
    cloud.explore(lambda: redis.incr("n"), check, schedule="")
    assert monotonic() - before < 20


def test_code_without_an_end_is_an_error_although_it_catches_everything(
    cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fakecloud.explore.simulation.calls.MOST_POINTS", 20)
    redis = Redis(kv.url, kv.token)

    def run() -> None:
        while True:
            _forever(lambda: redis.incr("n"))

    with pytest.raises(ContractError, match=r"has made 20 calls, .* and goes on"):
        cloud.explore(run, lambda: None)


def _times_out(*_: object) -> None:
    """Handle a signal as pytest-timeout does."""
    pytest.fail("Timeout >1.0s")


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="Windows has no SIGALRM")
@pytest.mark.parametrize(
    ("number", "handler", "error"),
    [
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
        (getattr(signal, "SIGALRM", 0), _times_out, pytest.fail.Exception),
    ],
    ids=["Ctrl-C", "pytest-timeout"],
)
def test_an_exception_of_a_signal_ends_a_client_that_catches_everything(
    cloud: Cloud,
    kv: KVServer,
    number: int,
    handler: Callable[..., object],
    error: type[BaseException],
) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    has_begun = False

    def run() -> None:
        nonlocal has_begun
        for _ in range(100):
            try:
                redis.incr("n")
            except:  # noqa: E722
                if not has_begun:
                    has_begun = True
                    os.kill(os.getpid(), number)

    before = signal.signal(number, handler)
    try:
        with pytest.raises(error):
            cloud.explore(run, lambda: None, kinds="crash")
    finally:
        signal.signal(number, before)
    assert has_begun
    cloud.explore(lambda: redis.incr("n"), expects(kv, "1"), kinds="tick", budget=1)
