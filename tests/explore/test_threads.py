"""Libraries that replace threads and sockets."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import socket
import sys
import threading

import pytest
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis

from pytest_fakecloud import Cloud, KVServer

from .conftest import holds
from .test_verdicts import error


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
