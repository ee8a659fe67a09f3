"""Threads that do not start or begin their code, and libraries that replace threads or sockets."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.explore.simulation import watchdog

from .conftest import expects, failure, holds
from .test_verdicts import error

pytestmark = [
    pytest.mark.timeout(30),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in thread"),
]


def _hook(*_: object) -> None:
    raise ValueError("an error of a hook")


@pytest.fixture(params=[threading.settrace, threading.setprofile])
def install(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], None]]:
    """Install a function that Python calls in new threads."""
    before = {
        threading.settrace: threading.gettrace(),
        threading.setprofile: threading.getprofile(),
    }
    yield request.param
    request.param(before[request.param])


def _refuses(patch: pytest.MonkeyPatch) -> None:
    """Let the system start no further thread."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    name = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
    patch.setattr(threading, name, refuse)


def test_code_goes_on_after_a_thread_whose_hook_raises(
    cloud: Cloud, kv: KVServer, redis: Redis, install: Callable[[Any], None]
) -> None:
    def work() -> None:
        thread = threading.Thread(target=redis.incr, args=("lost",))
        install(_hook)
        thread.start()
        install(None)
        thread.join()
        assert not thread.is_alive()
        redis.incr("n")

    result = cloud.explore([work, work], expects(kv, "2"), kinds="switch", budget=3)
    note = "not explored: the thread work+incr, which ended before its code began"
    assert note in str(result)
    assert kv.value("lost") is None


def test_a_client_whose_thread_ends_before_its_code_is_an_error(
    cloud: Cloud, redis: Redis, install: Callable[[Any], None]
) -> None:
    text = error(cloud, {"ann": redis.ping}, holds, setup=lambda: install(_hook))
    assert text.startswith("the thread of ann ended before its code began")


def test_a_thread_that_does_not_begin_its_code_is_an_error(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LOST_AFTER", 0.2)
    lock = _thread.allocate_lock()

    class Waiting(threading.Thread):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "run":

                def run() -> None:
                    with lock:
                        value()

                value = run
            super().__setattr__(name, value)

    def work() -> None:
        redis.ping()
        thread = Waiting(target=redis.incr, args=("n",))
        thread.start()
        thread.join()

    with lock:
        text = error(cloud, {"ann": work}, holds)
    assert text.startswith("the thread of ann+incr has not begun its code after 0.2 seconds")
    assert text.endswith("with lock:")


def test_a_thread_that_cannot_start_can_be_started_again(
    cloud: Cloud, kv: KVServer, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        thread = threading.Thread(target=redis.incr, args=("n",), daemon=False)
        with monkeypatch.context() as patch:
            _refuses(patch)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                thread.start()
        with pytest.raises(RuntimeError, match="before it is started"):
            thread.join()
        thread.start()
        with pytest.raises(RuntimeError, match="only be started once"):
            thread.start()
        thread.join()
        assert not thread.is_alive()
        assert not thread.daemon

    cloud.explore([work, work], expects(kv, "2"), kinds="switch", budget=3)


def test_a_thread_that_is_not_initialized_raises_the_error_of_python(
    cloud: Cloud, redis: Redis
) -> None:
    class Thread(threading.Thread):
        def __init__(self) -> None:
            pass

    def work() -> None:
        redis.ping()
        with pytest.raises(RuntimeError, match="__init__"):
            Thread().start()

    cloud.explore([work, work], holds, kinds="switch", budget=3)


def test_a_thread_that_fails_before_it_counts_as_started_is_reported(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``Thread.start()`` waits for it forever, also without the exploration."""
    monkeypatch.setattr(watchdog, "REAL_WAIT", 0.2)

    class Failing(threading.Thread):
        def _bootstrap_inner(self) -> None:
            raise ValueError("an error of a tool")

    def work() -> None:
        redis.ping()
        Failing(target=redis.ping).start()

    broken = failure(cloud, {"ann": work}, holds)
    assert "stuck: ann waits forever at test_threads.py" in str(broken)


def test_a_client_for_which_the_system_has_no_thread_is_an_error(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def work() -> None:
            _refuses(patch)
            redis.incr("n")
            redis.incr("n")

        with pytest.raises(RuntimeError, match="can't start new thread"):
            cloud.explore([work, work], holds, kinds="switch", budget=3)


class GreenSocket:
    """A socket like those of eventlet, some of whose methods are attributes of its objects."""

    connect = connect_ex = send = sendall = recv = recv_into = None


def test_sockets_whose_methods_cannot_be_replaced_are_an_error(
    cloud: Cloud, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", GreenSocket)
        text = error(cloud, redis.ping, holds)
    assert "socket.socket by tests.explore.test_threads.GreenSocket, which has no methods" in text
    assert "shutdown, close, " in text
    assert "connect," not in text


def test_event_loops_in_threads_that_share_one_of_the_system_are_an_error(
    cloud: Cloud, kv: KVServer, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process that gevent has patched; for clients without event loops, no error follows."""

    async def ping() -> None:
        async with AsyncRedis(kv.url, kv.token) as client:
            await client.ping()

    async def check() -> None:
        await asyncio.sleep(1)
        await ping()

    def catches() -> None:
        with contextlib.suppress(Exception):
            asyncio.new_event_loop().close()
        redis.ping()

    monkeypatch.setattr(sys, "_current_frames", dict)
    monkeypatch.setattr(threading, "get_ident", lambda: _thread.get_ident())
    for client in (ping, catches):
        text = error(cloud, {"ann": client}, check)
        assert text.startswith("ann runs an event loop, but tests has replaced the threads")
    cloud.explore([redis.ping, redis.ping], check, kinds="switch", budget=3, trust=False)
