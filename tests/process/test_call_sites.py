"""The report of a test that failed before contains the source line of each call."""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import fastapi
import flask
import httpx
import pytest
import redis
from asgiref import sync as asgiref

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.exits import Exits
from pytest_fakecloud.process import call_sites
from pytest_fakecloud.process.call_sites import note_site
from pytest_fakecloud.process.stacks import Stacks
from pytest_fakecloud.reporting.lookups import Lookups
from pytest_fakecloud.reporting.render.as_json import as_json
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.rows.rows import rows as report_rows

from ..harness import Run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a warning of the HTTP library that it imports
    from starlette import testclient


@pytest.fixture
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """A cloud, with the transport that the test is parametrized with."""
    transport: Any = getattr(request, "param", "socket")
    with Cloud(
        seed="seed", now="2026-03-01T12:00:00Z", delivery="driven", transport=transport
    ) as opened:
        # These stacks know no client, as for one that sends over TLS.
        opened.journal._recorder.shared.note_caller = partial(note_site, stacks=Stacks())
        yield opened


rows = partial(report_rows, lookups=Lookups())


def places(cloud: Cloud) -> list[str]:
    return [row.where.function if row.where else "" for row in rows(cloud) if row.kind == "call"]


def test_a_report_has_the_source_lines_around_a_call(cloud: Cloud) -> None:
    httpx.post(cloud.kv_server().url, json=["GET", "a"])
    [row] = as_json(report_of(cloud, test="t", failure=""))["rows"]
    [called] = [line for line in row["where"]["source"] if line["line"] == row["where"]["line"]]
    assert called["text"] == '    httpx.post(cloud.kv_server().url, json=["GET", "a"])'
    assert [line["text"].strip()[:5] for line in row["where"]["source"]][1:3] == ["httpx", "[row]"]


def test_a_folder_beside_the_package_or_a_library_is_the_applications() -> None:
    for folder in (Path(call_sites.__file__).parents[1], Path(sysconfig.get_path("stdlib"))):
        assert call_sites._is_application(f"{folder}_demo{os.sep}app.py")
        assert not call_sites._is_application(f"{folder}{os.sep}app.py")


def test_over_http_and_over_the_redis_protocol(cloud: Cloud) -> None:
    server = cloud.kv_server()

    def over_http() -> None:
        httpx.post(server.url, json=["GET", "a"], headers=server.headers)

    def by_client() -> None:
        server.client().get("a")

    def over_redis() -> None:
        with redis.Redis.from_url(server.database_url) as client:
            client.get("a")

    over_http()
    by_client()
    assert places(cloud) == ["over_http", "by_client"]
    cloud.journal.clear()
    assert cloud.journal._recorder.shared.sites == {}
    over_redis()
    assert set(places(cloud)) == {"over_redis"}


def test_no_other_thread_is_searched_if_the_client_sends_on_a_socket(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = Stacks()
    cloud.journal._recorder.shared.note_caller = partial(note_site, stacks=stacks)
    monkeypatch.setattr(sys, "_current_frames", lambda: pytest.fail("it walks running threads"))
    server = cloud.kv_server()

    def over_http() -> None:
        httpx.post(server.url, json=["GET", "a"], headers=server.headers)

    def over_redis() -> None:
        with redis.Redis.from_url(server.database_url) as client:
            client.get("a")

    async def in_an_event_loop() -> None:
        async with httpx.AsyncClient() as client:
            await client.post(server.url, json=["GET", "a"], headers=server.headers)

    with closing(Exits()) as exits:
        stacks.watch_sockets(exits)
        by_an_executor(over_http)
        over_redis()
        asyncio.run(in_an_event_loop())
    assert cloud.journal._recorder.shared.failures == []
    gets = [row.where and row.where.function for row in rows(cloud) if row.operation == "GET"]
    assert gets == ["over_http", "over_redis", "in_an_event_loop"]


def test_the_callers_of_a_helper_are_known_up_to_the_test(cloud: Cloud) -> None:
    server = cloud.kv_server()

    def helper() -> None:
        httpx.post(server.url, json=["GET", "a"], headers=server.headers)

    def charge() -> None:
        helper()

    def pay(depth: int = 0) -> None:
        charge() if depth == 0 else pay(depth - 1)

    pay()
    pay(20)
    short, long = as_json(report_of(cloud))["rows"]
    assert [caller["function"] for caller in short["where"]["callers"]][:2] == ["charge", "pay"]
    assert short["where"]["callers"][2]["function"].startswith("test_the_callers")
    assert len(long["where"]["callers"]) == 5, "the number of places is limited"


def test_the_callers_of_a_coroutine_are_known(cloud: Cloud) -> None:
    server = cloud.kv_server()

    async def helper(client: httpx.AsyncClient) -> None:
        await client.post(server.url, json=["GET", "a"], headers=server.headers)

    async def application() -> None:
        async with httpx.AsyncClient() as client:
            await helper(client)

    asyncio.run(application())
    [row] = rows(cloud)
    assert row.where is not None
    assert [row.where.function, row.where.callers[0].function] == ["helper", "application"]


def test_in_an_event_loop(cloud: Cloud) -> None:
    server = cloud.kv_server()

    async def ask(client: httpx.AsyncClient) -> None:
        await client.post(server.url, json=["GET", "a"], headers=server.headers)

    async def application() -> None:
        async with httpx.AsyncClient() as client:
            await ask(client)
            await asyncio.gather(ask(client), asyncio.sleep(0))

    asyncio.run(application())
    assert places(cloud)[0] == "ask"


def test_a_request_has_no_line_of_a_concurrent_request(cloud: Cloud) -> None:
    server = cloud.kv_server()

    async def ask(client: httpx.AsyncClient) -> None:
        await client.post(server.url, json=["GET", "a"])

    async def application() -> None:
        async with httpx.AsyncClient(headers=server.headers) as client:
            # This task runs only code of a library.
            await asyncio.gather(client.post(server.url, json=["DBSIZE"]), ask(client))

    asyncio.run(application())
    functions = {row.operation: row.where and row.where.function for row in rows(cloud)}
    assert functions["DBSIZE"] is None
    assert functions["GET"] in (None, "ask")


def test_calls_of_tasks_that_wait_at_the_same_time_have_their_own_lines(cloud: Cloud) -> None:
    server = cloud.kv_server()
    server.execute("RPUSH", "other", "x")

    async def one(client: httpx.AsyncClient) -> None:
        await client.post(server.url, json=["BLPOP", "list", 30])

    async def other(client: httpx.AsyncClient) -> None:
        while not cloud.journal.calls(command="BLPOP"):
            await asyncio.sleep(0)
        for _ in range(20):
            await client.post(server.url, json=["LLEN", "other"])
        await client.post(server.url, json=["RPUSH", "list", "x"])

    async def application() -> None:
        async with httpx.AsyncClient(headers=server.headers) as client:
            await asyncio.wait_for(asyncio.gather(one(client), other(client)), 30)

    asyncio.run(application())
    functions = {row.where.function for row in rows(cloud) if row.operation == "LLEN" and row.where}
    assert functions == {"other"}


async def sleeping(ended: asyncio.Event) -> None:
    await asyncio.sleep(60)


async def waiting_for_an_event(ended: asyncio.Event) -> None:
    await ended.wait()


async def waiting_in_a_library(ended: asyncio.Event) -> None:
    await cancelled(ended)


def library(source: str) -> dict[str, Any]:
    """Return the names of a module whose file is among those of installed libraries."""
    names: dict[str, Any] = {"__name__": "somelibrary"}
    exec(compile(source, httpx.__file__, "exec"), names)
    return names


cancelled = library("async def cancelled(event):\n    await event.wait()")["cancelled"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("other", [sleeping, waiting_for_an_event, waiting_in_a_library])
def test_a_call_has_the_line_of_the_task_that_sent_it(
    cloud: Cloud, other: Callable[[asyncio.Event], Any], is_async: bool
) -> None:
    """The other task waits while a client blocks the loop, or while the loop waits for a response.

    If the other task may wait for a response too, the line is unknown, unless the task that sent the
    call is using its socket at the moment, as a client that blocks the loop is.
    """
    server = cloud.kv_server()

    async def send() -> None:
        if is_async:
            async with httpx.AsyncClient() as client:
                await client.post(server.url, json=["GET", "a"], headers=server.headers)
        else:
            httpx.post(server.url, json=["GET", "a"], headers=server.headers)

    async def application() -> None:
        ended = asyncio.Event()
        task = asyncio.ensure_future(other(ended))
        await asyncio.sleep(0)
        await asyncio.ensure_future(send())
        task.cancel()

    asyncio.run(application())
    (place,) = places(cloud)
    assert place == "send" or (is_async and other is waiting_in_a_library and place == "")


def test_a_task_that_is_suspended_during_the_search_is_found_once(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cloud.kv_server()
    # The answer after the task has been suspended, though it is still on the stack that was read.
    monkeypatch.setattr(asyncio, "current_task", lambda loop: None)

    async def send() -> None:
        httpx.post(server.url, json=["GET", "a"], headers=server.headers)

    asyncio.run(send())
    assert places(cloud) == ["send"]


# -- in worker threads -----------------------------------------------------------------------------


def by_test_client(handler: Callable[[], Any]) -> None:
    app = fastapi.FastAPI()
    app.get("/")(handler)
    with testclient.TestClient(app) as client:
        assert client.get("/").status_code == 200


def by_asgi_transport_twice_at_the_same_time(handler: Callable[[], Any]) -> None:
    app, meet = fastapi.FastAPI(), threading.Barrier(2, timeout=30)

    @app.get("/")
    def endpoint() -> None:
        meet.wait()
        handler()

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as web:
            await asyncio.gather(web.get("/"), web.get("/"))

    asyncio.run(ask())


def by_test_client_in_an_event_loop(handler: Callable[[], Any]) -> None:
    async def endpoint() -> None:
        handler()

    by_test_client(endpoint)


def by_an_asynchronous_flask_view(handler: Callable[[], Any]) -> None:
    app = flask.Flask("shop")

    @app.get("/")
    async def view() -> str:
        handler()
        return ""

    assert app.test_client().get("/").status_code == 200


def by_asgiref(handler: Callable[[], Any]) -> None:
    for is_sensitive in (True, False):
        asgiref.async_to_sync(asgiref.sync_to_async(handler, thread_sensitive=is_sensitive))()
        asyncio.run(asgiref.sync_to_async(handler, thread_sensitive=is_sensitive)())


def by_asyncio(handler: Callable[[], Any]) -> None:
    async def application() -> None:
        await asyncio.to_thread(handler)
        await asyncio.get_running_loop().run_in_executor(None, handler)
        asyncio.get_running_loop().call_soon(handler)
        await asyncio.sleep(0)

    asyncio.run(application())


def by_an_executor(handler: Callable[[], Any]) -> None:
    with ThreadPoolExecutor() as executor:
        executor.submit(handler).result()


@pytest.mark.parametrize(
    "serve",
    [
        by_test_client, by_asgi_transport_twice_at_the_same_time, by_test_client_in_an_event_loop,
        by_an_asynchronous_flask_view, by_asgiref, by_asyncio, by_an_executor,
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("cloud", "protocol"),
    [("socket", "REST"), ("socket", "RESP"), ("inprocess", "REST")],
    indirect=["cloud"],
)
def test_a_synchronous_handler_has_its_line_wherever_it_runs(
    cloud: Cloud, serve: Callable[[Callable[[], Any]], None], protocol: str
) -> None:
    """The test, an event loop and its tasks wait for the worker thread at the same time."""
    server = cloud.kv_server()
    client: Any = server.client()
    if protocol == "RESP":
        client = redis.Redis.from_url(server.database_url)

    def handler() -> None:
        client.get("a")

    with closing(client):
        serve(handler)
    assert {row.where and row.where.function for row in rows(cloud) if row.operation == "GET"} == {
        "handler"
    }


@pytest.mark.parametrize("cloud", ["socket", "inprocess"], indirect=True)
def test_a_worker_that_runs_only_a_library_has_the_line_that_waits_for_it(cloud: Cloud) -> None:
    get = cloud.kv_server().client().get

    async def awaiting() -> None:
        await asyncio.to_thread(get, "a")
        await asyncio.get_running_loop().run_in_executor(None, get, "a")
        await anyio.to_thread.run_sync(get, "a")
        await asgiref.sync_to_async(get)("a")
        await asgiref.sync_to_async(get, thread_sensitive=False)("a")
        await asyncio.wait_for(asyncio.to_thread(get, "a"), 30)

    async def waiting() -> None:
        await asyncio.gather(asyncio.sleep(0), *[awaiting() for _ in range(2)])

    asyncio.run(waiting())
    assert set(places(cloud)) == {"awaiting"}
    cloud.journal.clear()
    asgiref.async_to_sync(awaiting)()
    assert set(places(cloud)) == {"awaiting"}
    cloud.journal.clear()

    def blocking() -> None:
        with ThreadPoolExecutor() as executor:
            executor.submit(get, "a").result()
            list(executor.map(get, "abc"))

    blocking()
    assert set(places(cloud)) == {"blocking"}
    cloud.journal.clear()
    # Each worker is awaited by a task of its own, which runs only code of a library.

    async def gathering() -> None:
        await asyncio.gather(*[asyncio.to_thread(get, "a") for _ in range(2)])

    asyncio.run(gathering())
    assert set(places(cloud)) == {""}


def test_a_call_inside_wait_for_has_the_line_of_the_task_that_waits(cloud: Cloud) -> None:
    """Before Python 3.12, a task of its own makes the call, which runs only code of a library."""
    server = cloud.kv_server()

    async def send() -> None:
        async with httpx.AsyncClient(headers=server.headers) as client:
            await asyncio.wait_for(client.post(server.url, json=["GET", "a"]), 30)

    asyncio.run(send())
    assert places(cloud) == ["send"]


def test_the_line_is_shown_at_its_first_use(cloud: Cloud) -> None:
    server = cloud.kv_server()
    for key in "ab":
        httpx.post(server.url, json=["GET", key], headers=server.headers)
    httpx.post(server.url, json=["GET", "c"], headers=server.headers)
    text = section(cloud, width=140)
    for key in ("key", '"c"'):
        assert text.count(f' httpx.post(server.url, json=["GET", {key}], headers=') == 1


SOURCE = """
import httpx

def application(server):
    return httpx.post(server.url, json=["GET", "a"], headers=server.headers).json()

def test_it(kv_server):
    answer = application(kv_server)
    print("recorded:", len(kv_server.journal._recorder.shared.sites))
    assert answer == 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "options", "shown"),
    [
        ("auto", [], [False, True]), ("auto", ["--fakecloud-report=pages"], [True]),
        ("true", [], [True]), ("false", ["--fakecloud-report=pages"], [False, False]),
    ],
)  # fmt: skip
def test_they_are_recorded_for_pages_and_tests_that_failed_in_the_last_run(
    run: Run, pytester: Any, setting: str, options: list[str], shown: list[bool]
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_call_sites = {setting}")
    for expected in shown:
        text = "\n".join(run(SOURCE, "-p", "cacheprovider", *options).outlines)
        assert ("recorded: 1" in text) is expected
