"""The stacks that each call keeps for the history of a failing test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest
import redis
import redis.asyncio
import requests

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.core.exits import Exits, exiting
from pytest_fakecloud.core.frames import place_at
from pytest_fakecloud.process.stacks import Stacks


@pytest.fixture(params=["inprocess", "socket"])
def kv(request: pytest.FixtureRequest) -> Iterator[KVServer]:
    with Cloud(transport=request.param) as cloud, exiting() as exits:
        stacks = Stacks()
        stacks.watch_sockets(exits)
        cloud.journal._recorder.shared.note_caller = stacks.note
        yield cloud.kv_server()


def functions(kv: KVServer) -> list[list[str]]:
    recorded = kv.journal._recorder.shared.stacks
    numbers = [call.number for call in kv.journal.calls(command="GET")]
    return [
        [code.co_name for code, _ in recorded[number].places] if number in recorded else []
        for number in numbers
    ]


def get_article(kv: KVServer) -> None:
    requests.post(kv.url, json=["GET", "article"], headers=kv.headers, timeout=10)


def test_a_call_has_the_lines_of_its_caller_and_of_the_test(kv: KVServer) -> None:
    get_article(kv)
    [names] = functions(kv)
    assert names == ["get_article", "test_a_call_has_the_lines_of_its_caller_and_of_the_test"]
    [call] = kv.journal._recorder.shared.stacks.values()
    assert "requests" in call.library


def test_a_call_from_another_thread_has_the_lines_of_this_thread(kv: KVServer) -> None:
    thread = threading.Thread(target=get_article, args=[kv])
    thread.start()
    thread.join()
    assert functions(kv) == [["get_article"]]


def test_a_call_of_a_task_has_the_lines_of_the_task(kv: KVServer) -> None:
    async def get() -> None:
        async with httpx.AsyncClient() as client:
            await client.post(kv.url, json=["GET", "article"], headers=kv.headers)

    async def main() -> None:
        await asyncio.gather(get(), get())

    asyncio.run(main())
    assert functions(kv) == [["get"], ["get"]]


async def _of_library(client: httpx.AsyncClient, kv: KVServer) -> None:
    await asyncio.create_task(client.post(kv.url, json=["GET", "article"], headers=kv.headers))


async def _waits_for(client: httpx.AsyncClient, kv: KVServer) -> None:
    request = client.post(kv.url, json=["GET", "article"], headers=kv.headers)
    await asyncio.wait_for(request, 30)


async def _waits_twice(client: httpx.AsyncClient, kv: KVServer) -> None:
    request = client.post(kv.url, json=["GET", "article"], headers=kv.headers)
    await asyncio.wait_for(asyncio.wait_for(request, 30), 30)


async def _of_redis_py(client: httpx.AsyncClient, kv: KVServer) -> None:
    async with redis.asyncio.Redis.from_url(kv.database_url, socket_timeout=30) as connection:
        await connection.get("article")


@pytest.mark.parametrize("get", [_of_library, _waits_for, _waits_twice, _of_redis_py])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_call_of_a_task_of_a_library_has_the_lines_of_the_task_that_awaits_it(
    kv: KVServer, get: Callable[[httpx.AsyncClient, KVServer], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with httpx.AsyncClient() as client:
            await get(client, kv)

    asyncio.run(main())
    assert functions(kv) == [[get.__name__, "main"]]


def test_a_task_that_a_function_with_a_timeout_runs_has_the_lines_of_its_caller(
    kv: KVServer,
) -> None:
    async def get(client: httpx.AsyncClient) -> None:
        await client.post(kv.url, json=["GET", "article"], headers=kv.headers)

    async def main() -> None:
        async with httpx.AsyncClient() as client:
            await asyncio.wait_for(get(client), 30)

    asyncio.run(main())
    assert functions(kv) == [["get", "main"]]


def test_a_task_of_a_library_that_nothing_awaits_has_no_lines(kv: KVServer) -> None:
    async def main() -> None:
        async with httpx.AsyncClient() as client:
            request = client.post(kv.url, json=["GET", "article"], headers=kv.headers)
            task = asyncio.create_task(request)
            while not task.done():
                await asyncio.sleep(0)

    asyncio.run(main())
    assert functions(kv) == [[]]


def test_the_commands_of_a_pipeline_have_the_line_that_sent_them(kv: KVServer) -> None:
    with redis.Redis.from_url(kv.database_url) as client:
        pipeline = client.pipeline(transaction=False)
        pipeline.get("article").get("author")
        pipeline.execute()
        client.get("article")
    assert functions(kv) == [["test_the_commands_of_a_pipeline_have_the_line_that_sent_them"]] * 3


class Connection:
    """A connection to a server that neither reads nor answers, with the lines that sent on it."""

    def __init__(self, exits: Exits) -> None:
        self.stacks = Stacks()
        self.stacks.watch_sockets(exits)
        listener = socket.create_server(("127.0.0.1", 0))
        exits.callback(listener.close)
        self.sock = socket.create_connection(listener.getsockname())
        exits.callback(self.sock.close)
        self.client = self.sock.getsockname()

    def sent_from(self) -> list[int]:
        """Return the lines of this file that sent what a call has received."""
        stack = self.stacks.of(self.client)
        return [] if stack is None else [int(place_at(stack.places[0])["line"])]


@pytest.fixture
def connection() -> Iterator[Connection]:
    with exiting() as exits:
        yield Connection(exits)


def test_the_lines_of_a_connection_are_those_that_sent_last(connection: Connection) -> None:
    connection.sock.sendall(b"1")
    [first] = connection.sent_from()
    connection.sock.sendall(b"2")
    assert connection.sent_from() == [first + 2]


def test_a_client_that_does_not_wait_for_its_responses_has_no_lines(connection: Connection) -> None:
    connection.sock.sendall(b"1")
    connection.sock.sendall(b"2")
    assert connection.sent_from() == []
    connection.sock.sendall(b"3")
    assert connection.sent_from() == []


def test_a_closed_connection_has_no_lines(connection: Connection) -> None:
    connection.sock.sendall(b"1")
    connection.sock.close()
    assert connection.sent_from() == []


def test_sockets_are_restored() -> None:
    before = {**vars(socket.socket)}
    with exiting() as exits:
        Stacks().watch_sockets(exits)
    assert {**vars(socket.socket)} == before


def test_lines_are_forgotten_with_their_calls(kv: KVServer) -> None:
    get_article(kv)
    kv.journal.clear()
    assert not kv.journal._recorder.shared.stacks
