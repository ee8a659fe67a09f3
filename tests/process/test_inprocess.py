"""In-process transport: requests that take the socket, other tools, and no traces afterwards."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import re
import subprocess
import sys
import unittest.mock
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, cast

import httpx
import httpx2
import pytest
import requests
import responses
import respx
import urllib3

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.cloud.base import Transport
from pytest_fakecloud.process.inprocess import origins

from ..harness import in_threads
from ..interruptions import interrupted, places
from .conftest import CLIENTS, GONE, Send, by_requests, by_session


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, transport="inprocess") as opened:
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


def sockets(fake: Any) -> int:
    """Return the number of new connections to a fake since the last call."""
    ports = {call.client[1] for call in fake.journal.calls() if call.client is not None}
    return len(ports - {0})


def test_an_armed_fault_takes_the_socket(send: Send, kv: KVServer) -> None:
    kv.faults.respond(503, times=1)
    assert send("GET", f"{kv.url}/get/k", kv.headers, None)[0] == 503
    assert sockets(kv) == 1
    assert send("GET", f"{kv.url}/get/k", kv.headers, None)[0] == 200
    assert sockets(kv) == 1


def test_streams_take_the_socket(kv: KVServer) -> None:
    headers = {**kv.headers, "Accept": "text/event-stream"}
    with httpx.stream("POST", f"{kv.url}/subscribe/news", headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: subscribe,news")
        kv.execute("PUBLISH", "news", "hello")
        assert next(line for line in lines if "hello" in line) == "data: message,news,hello"
    assert sockets(kv) == 1


def test_a_waiting_endpoint_never_blocks_the_loop(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1})
    url = f"{broker.url}/consume/g/i/orders"
    headers = {**broker.headers, "Kafka-Timeout": "4000"}

    async def run() -> int:
        async with httpx.AsyncClient() as client:
            waiting = asyncio.create_task(client.get(url, headers=headers))
            turns = 0
            while not broker.journal.calls(route="consume"):
                await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0.001)
                turns += 1
            produced = await client.post(
                f"{broker.url}/produce/orders", json={"value": "v"}, headers=broker.headers
            )
            assert produced.status_code == 200
            assert [record["value"] for record in (await waiting).json()] == ["v"]
            return turns

    assert asyncio.run(run()) == 20


def test_other_origins_go_where_they_went(send: Send, kv: KVServer) -> None:
    with Cloud(seed=2) as other:
        stranger = other.kv_server()
        assert send("GET", f"{stranger.url}/get/k", stranger.headers, None)[0] == 200
        assert sockets(stranger) == 1


def test_responses_and_respx_do_not_stand_between(kv: KVServer) -> None:
    with respx.mock:
        assert httpx.get(f"{kv.url}/get/k", headers=kv.headers).status_code == 200
        with pytest.raises(respx.models.AllMockedAssertionError):
            httpx.get("http://elsewhere.test/")
    assert sockets(kv) == 0


def test_no_response_of_httpx_is_left_to_the_garbage_collector(kv: KVServer) -> None:
    async def in_asyncio() -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.get(f"{kv.url}/ping", headers=kv.headers)

    def of_a_stream() -> httpx.Response:
        with httpx.stream("GET", f"{kv.url}/ping", headers=kv.headers) as response:
            assert [*response.iter_bytes()] == [b'{"result":"PONG"}']
            return response

    gc.collect()
    gc.disable()
    try:
        for answer in (
            lambda: httpx.get(f"{kv.url}/ping", headers=kv.headers),
            of_a_stream,
            lambda: asyncio.run(in_asyncio()),
        ):
            reference = weakref.ref(answer())
            assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("transport", ["socket", "inprocess"])
def test_a_response_of_httpx_is_closed_in_the_way_of_its_client(transport: Transport) -> None:
    async def of_an_async_client(url: str, headers: dict[str, str]) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.get(url, headers=headers)

    with Cloud(1, transport=transport) as cloud:
        kv = cloud.kv_server()
        url = f"{kv.url}/ping"
        of_sync, of_async = (
            httpx.get(url, headers=kv.headers),
            asyncio.run(of_an_async_client(url, kv.headers)),
        )
        of_sync.close()
        asyncio.run(of_async.aclose())
        with pytest.raises(RuntimeError, match="close on an sync"):
            asyncio.run(of_sync.aclose())
        with pytest.raises(RuntimeError, match="close on an async"):
            of_async.close()


def test_a_closed_fake_is_gone(send: Send, cloud: Cloud) -> None:
    kv = cloud.kv_server()
    kv.close()
    with pytest.raises(GONE):
        send("GET", f"{kv.url}/get/k", kv.headers, None)


def test_the_newest_shortcut_that_is_left_is_used() -> None:
    origin = ("http", "shortcuts.test", 80)
    first, second = cast("Any", object()), cast("Any", object())
    origins.add(origin, first)
    origins.add(origin, second)
    origins.remove(origin, first)
    assert origins.shortcuts[origin] is second
    origins.remove(origin, second)
    assert origin not in origins.shortcuts


def test_an_interrupted_start_leaves_no_shortcut() -> None:
    with Cloud(seed=1, transport="inprocess") as cloud:

        def start() -> None:
            cloud.kv_server().close()

        connecting = [
            place for place in places(start) if "_connect" in f"{place.line}{place.caller}"
        ]
        assert any("Exits.callback" in place.line for place in connecting)
        assert any("Origins.add" in place.line for place in connecting)
        for place in connecting:
            assert interrupted(start, place)
            for fake in cloud.fakes():
                fake.close()
            assert not origins.shortcuts, place


# -- patches ---------------------------------------------------------------------------------------


def functions() -> list[Any]:
    return [
        httpx.HTTPTransport.handle_request,
        httpx.AsyncHTTPTransport.handle_async_request,
        httpx2.HTTPTransport.handle_request,
        httpx2.AsyncHTTPTransport.handle_async_request,
        requests.adapters.HTTPAdapter.send,
        urllib3.connectionpool.HTTPConnectionPool._make_request,
        responses.RequestsMock._on_request,
        httpx._transports.default.create_ssl_context,  # type: ignore[attr-defined]
        httpx2._transports.default.create_ssl_context,  # type: ignore[attr-defined]
    ]


def test_nothing_is_left_when_the_last_cloud_closes() -> None:
    before = functions()
    with Cloud(transport="inprocess") as first:
        first.kv_server()
        assert functions()[0] is not before[0]
        with (
            Cloud(transport="inprocess") as second,
            second.kv_server().intercept("https://kv.test"),
        ):
            pass
        assert functions()[0] is not before[0]
    assert functions() == before


def test_a_patch_that_somebody_kept_sends_as_the_library_does(kv: KVServer) -> None:
    with Cloud(transport="inprocess") as cloud:
        cloud.kv_server()
        send = httpx.HTTPTransport.handle_request
        send_async = httpx.AsyncHTTPTransport.handle_async_request
        mocked = responses.RequestsMock._on_request
    kv.close()
    with Cloud(transport="socket") as cloud:
        real = cloud.kv_server()
        request = httpx.Request("GET", f"{real.url}/ping", headers=real.headers)
        with httpx.HTTPTransport() as transport:
            assert send(transport, request).status_code == 200

        async def later() -> int:
            async with httpx.AsyncHTTPTransport() as transport:
                return (await send_async(transport, request)).status_code

        assert asyncio.run(later()) == 200
        assert sockets(real) == 2
        with responses.RequestsMock() as mock:
            mock.get("http://mocked.test/", body="mocked")
            prepared = requests.Request("GET", "http://mocked.test/").prepare()
            assert mocked(mock, requests.adapters.HTTPAdapter(), prepared).text == "mocked"


class _Ours:
    """This package's patch with the start and stop of other tools' patches."""

    def start(self) -> None:
        self.cloud = Cloud(transport="inprocess")
        self.kv = self.cloud.kv_server()
        self.interception = self.kv.intercept("https://kv.test")

    def stop(self) -> None:
        self.cloud.close()


def _mocked(pool: Any, *args: Any, **kwargs: Any) -> Any:
    raise ConnectionError("mocked")


OTHERS: dict[str, Callable[[], Any]] = {
    "_Respx": partial(respx.mock, assert_all_mocked=False, using="httpx"),
    "_Responses": partial(responses.RequestsMock, assert_all_requests_are_fired=False),
    "_UnitTestMock": partial(
        unittest.mock.patch, "urllib3.connectionpool.HTTPConnectionPool._make_request", _mocked
    ),
}
"""Other tools that patch the libraries, each with ``start()`` and ``stop()``."""
ORDERS = [
    (starts, stops)
    for starts in itertools.permutations(range(2))
    for stops in itertools.permutations(range(2))
]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(("starts", "stops"), ORDERS)
def test_patches_started_and_stopped_in_any_order_leave_nothing_behind(
    other: str, starts: tuple[int, ...], stops: tuple[int, ...]
) -> None:
    with Cloud(seed=3) as outside:
        kv = outside.kv_server()
        tools = [_Ours(), OTHERS[other]()]
        for number in starts:
            tools[number].start()
        for number in stops:
            tools[number].stop()
        # The current functions work like the libraries' own.
        for client in CLIENTS:
            assert client("GET", f"{kv.url}/get/k", kv.headers, None)[0] == 200
        assert sockets(kv) == len(CLIENTS)
        for client in CLIENTS:
            with pytest.raises(GONE):
                client("GET", "http://127.0.0.1:9/", {}, None)
    assert not origins.shortcuts
    assert not origins.detours


def test_three_tools_in_any_order() -> None:
    for starts in itertools.permutations(range(3)):
        for stops in itertools.permutations(range(3)):
            tools: list[Any] = [_Ours(), OTHERS["_Responses"](), OTHERS["_UnitTestMock"]()]
            for number in starts:
                tools[number].start()
            for number in stops:
                tools[number].stop()
    with Cloud(seed=3) as outside:
        kv = outside.kv_server()
        assert by_requests("GET", f"{kv.url}/get/k", kv.headers, None)[0] == 200
        assert sockets(kv) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.slow
def test_a_forked_child_reaches_its_parents_fake() -> None:
    """In its own process, because a fork of this one would copy held locks."""
    source = """
import os
import httpx, httpx2, requests, urllib3
from pytest_fakecloud import Cloud

with Cloud(transport="inprocess") as cloud:
    kv = cloud.kv_server()
    pool = urllib3.PoolManager()
    senders = {
        "httpx": lambda url: httpx.get(url, headers=kv.headers),
        "httpx2": lambda url: httpx2.get(url, headers=kv.headers),
        "requests": lambda url: requests.get(url, headers=kv.headers),
        "urllib3": lambda url: pool.request("GET", url, headers=kv.headers),
    }
    for name, send in senders.items():
        send(f"{kv.url}/incr/{name}")
        child = os.fork()
        if not child:
            send(f"{kv.url}/incr/{name}")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, name
        assert kv.value(name) == "2", name
    assert len(kv.journal.calls()) == 8
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_many_threads_send_at_once(kv: KVServer) -> None:
    def work() -> None:
        for _ in range(20):
            by_session("POST", kv.url, kv.headers, b'["INCR","n"]')

    in_threads(*[work] * 4)
    assert kv.value("n") == "80"


def test_a_urllib3_that_takes_fewer_words_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Like the fork that niquests installs in place of urllib3.
    whole = urllib3.HTTPResponse

    class Fewer(whole):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **options: Any) -> None:
            assert "version_string" not in options
            super().__init__(*args, **options)

    monkeypatch.setattr(urllib3, "HTTPResponse", Fewer)
    with Cloud(1, transport="inprocess") as cloud:
        kv = cloud.kv_server()
        answer = urllib3.request("POST", kv.url, json=["PING"], headers=kv.headers)
        assert (type(answer), answer.json()) == (Fewer, {"result": "PONG"})
        assert answer.version_string == "HTTP/1.1"


@pytest.mark.parametrize("kind", ["drop", "lose_response"])
def test_a_call_without_an_answer_fails_as_over_the_socket(
    send: Send, kind: Literal["drop", "lose_response"]
) -> None:
    outcomes = []
    for transport in ("socket", "inprocess"):
        with Cloud(seed=1, transport=cast("Any", transport)) as opened:
            kv = opened.kv_server()

            def run(kv: KVServer = kv) -> None:
                try:
                    send("POST", kv.url, kv.headers, b'["INCR","n"]')
                except Exception as error:
                    outcomes.append((transport, type(error), sockets(kv), error))  # noqa: B023

            if transport == "socket":
                getattr(kv.faults, kind)()
                run()
            else:
                opened.explore(run, schedule=f"run.1 {kind}")
    (_, over_socket, used, first), *_, (_, in_process, unused, second) = outcomes
    assert (over_socket, used, unused) == (in_process, 1, 0)
    texts = [re.sub(r"0x[0-9a-f]+|port=\d+", "", str(error)) for error in (first, second)]
    assert texts[0] == texts[1]


def test_httpx2_under_the_name_of_httpx_is_wrapped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``httpx2.alias_httpx()``, with which a program also gets httpx2 for httpx."""
    original = httpx2.HTTPTransport.handle_request
    monkeypatch.setitem(sys.modules, "httpx", httpx2)
    with Cloud(transport="inprocess") as cloud:
        kv = cloud.kv_server()
        wrapped: Any = httpx2.HTTPTransport.handle_request
        assert wrapped.__wrapped__ is original
        assert httpx2.get(f"{kv.url}/ping", headers=kv.headers).json() == {"result": "PONG"}
        assert sockets(kv) == 0
