"""Reading in one thread while others write never fails and never skips an item.

Threads switch far more often than usual, so that unsafe iterations fail.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.http.messages import Request
from pytest_fakecloud.reporting.lookups import Lookups
from pytest_fakecloud.reporting.rows.rows import rows

from .budget import cases
from .harness import in_threads

SECONDS = cases(12) / 100
"""How long threads try to interfere."""


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Let threads switch after every few steps."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1) as cloud:
        yield cloud


def at_once(*jobs: Callable[[], object]) -> None:
    """Repeat each job in its own thread; raise the exceptions of any."""
    until = monotonic() + SECONDS
    errors: list[BaseException] = []

    def work(job: Callable[[], object]) -> None:
        try:
            while monotonic() < until and not errors:
                job()
        except BaseException as error:
            errors.append(error)

    in_threads(*(partial(work, job) for job in jobs))
    if errors:
        raise errors[0]


def send(fake: Any, method: str, target: str, body: bytes = b"") -> None:
    """Send a request without a socket."""
    response = fake._app.respond(Request(method, target, list(fake.headers.items()), body))
    assert response.status < 500, (method, target, response)


def test_clients_that_come_and_go_while_info_is_asked(cloud: Cloud) -> None:
    server = cloud.kv_server()
    port = int(server.database_url.rpartition(":")[2])
    engine = server._engine
    staying = [engine.session(None, "port") for _ in range(300)]

    def come_and_go() -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"PING\r\n")
            assert client.recv(100)

    at_once(
        come_and_go,
        *[lambda: engine.abandon(engine.session(None, "port"))] * 3,
        lambda: server.execute("INFO", "clients"),
        lambda: server.execute("CLIENT", "LIST"),
        lambda: server.execute("ACL", "SETUSER", "someone", "on", "nopass", "allchannels"),
        lambda: server.execute("ACL", "DELUSER", "someone"),
    )
    assert engine.connected.keys() >= {session.id for session in staying}


def test_keys_users_and_listeners(cloud: Cloud) -> None:
    server = cloud.kv_server()
    numbers = itertools.count()
    at_once(
        lambda: send(server, "POST", f"/set/k{next(numbers) % 500}/v"),
        lambda: send(server, "POST", f"/del/k{next(numbers) % 500}"),
        lambda: send(server, "POST", f"/acl/setuser/u{next(numbers) % 9}/on/nopass/%2B@all/~*"),
        lambda: send(server, "POST", f"/acl/deluser/u{next(numbers) % 9}"),
        lambda: server.execute("INFO", "everything"),
        lambda: server.execute("ACL", "LIST"),
        lambda: server.snapshot(),
        lambda: list(server.keys()) if hasattr(server, "keys") else None,
    )


@pytest.mark.slow
def test_vectors_and_namespaces(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    numbers = itertools.count()
    body = b'{"id": "%d", "vector": [1, 2]}'
    at_once(
        lambda: send(index, "POST", f"/upsert/n{next(numbers) % 20}", body % (next(numbers) % 90)),
        lambda: send(index, "POST", f"/query/n{next(numbers) % 20}", b'{"vector": [1, 2]}'),
        lambda: send(index, "DELETE", f"/delete-namespace/n{next(numbers) % 20}"),
        lambda: send(index, "GET", "/info"),
        lambda: send(index, "GET", "/list-namespaces"),
        lambda: [index.vectors(name, limit=5) for name in index.namespaces()[:1]],
        lambda: index.snapshot(),
    )


def test_records_and_groups(cloud: Cloud) -> None:
    broker = cloud.broker()
    numbers = itertools.count()
    at_once(
        lambda: send(broker, "POST", f"/produce/t{next(numbers) % 20}/value"),
        lambda: send(broker, "GET", f"/consume/g{next(numbers) % 9}/i/t{next(numbers) % 20}"),
        lambda: send(broker, "POST", f"/delete-consumer/g{next(numbers) % 9}/i"),
        lambda: send(broker, "GET", "/topics"),
        lambda: send(broker, "GET", "/consumers"),
        lambda: (broker.topics(), broker.groups()),
        lambda: broker.snapshot(),
    )


def test_messages_schedules_groups_and_flow_control(cloud: Cloud) -> None:
    queue = cloud.queue()
    numbers = itertools.count()
    to = "/v2/publish/https://example.com/"
    group = b'{"endpoints": [{"url": "https://example.com"}]}'

    def publish() -> None:
        headers = [
            *queue.headers.items(),
            ("Upstash-Delay", "1h"),
            ("Upstash-Flow-Control-Key", f"k{next(numbers) % 9}"),
            ("Upstash-Flow-Control-Value", "parallelism=1"),
        ]
        assert queue._app.respond(Request("POST", to, headers, b"x")).status < 300  # type: ignore[union-attr]

    def schedule() -> None:
        headers = [*queue.headers.items(), ("Upstash-Cron", "0 0 1 1 *")]
        target = "/v2/schedules/https://example.com/"
        assert queue._app.respond(Request("POST", target, headers, b"x")).status < 300  # type: ignore[union-attr]

    at_once(
        publish,
        schedule,
        lambda: send(queue, "POST", f"/v2/topics/g{next(numbers) % 20}/endpoints", group),
        lambda: send(queue, "DELETE", f"/v2/topics/g{next(numbers) % 20}"),
        lambda: send(queue, "POST", "/v2/queues", b'{"queueName": "q%d"}' % (next(numbers) % 20)),
        lambda: send(queue, "DELETE", f"/v2/queues/q{next(numbers) % 20}"),
        *(
            partial(send, queue, "GET", path)
            for path in ("/v2/topics", "/v2/queues", "/v2/schedules", "/v2/flowControl", "/v2/logs")
        ),
        lambda: (queue.pending(), queue.schedules(), queue.dead_letters()),
        lambda: queue.snapshot(),
    )


@pytest.mark.slow
def test_fakes_that_start_and_close_while_the_cloud_is_looked_at(cloud: Cloud) -> None:
    first, last = cloud.kv_server(name="first"), cloud.kv_server(name="last")

    def start_and_close() -> None:
        cloud.kv_server().close()

    def look() -> None:
        assert [fake.name for fake in cloud._context.fakes][:2] == ["first", "last"]
        _ = cloud.env, cloud.violations(), cloud.fakes()
        cloud.snapshot()

    def listen() -> None:
        heard: list[Any] = []
        for stop in [cloud._on_start.add(heard.append) for _ in range(3)]:
            stop()

    def be_called() -> None:
        with contextlib.suppress(AssertionError):
            first.assert_called("GET")
        send(last, "GET", "/get/k")

    at_once(
        start_and_close,
        start_and_close,
        look,
        look,
        listen,
        be_called,
        lambda: rows(cloud, lookups=Lookups()),
    )


def test_another_seed_reaches_every_stream() -> None:
    ids = Ids(1)
    streams: list[Any] = []

    def ask() -> None:
        if len(streams) < 200:
            streams.append(ids.stream("kept", str(len(streams))))
            streams[-1].hex(8)

    at_once(ask, ask, lambda: ids.reseed(2), lambda: ids.reseed(3))
    ids.reseed(4)
    before = [stream.hex(8) for stream in streams]
    ids.reseed(4)
    assert [stream.hex(8) for stream in streams] == before
