"""The fakes compared with other libraries, in turns in one run.

Run ``python -m benchmarks.peers``. It measures the cost of a server or mock for each test, of one
call, and of a query among vectors. The libraries do not do the same work: ``responses`` and
``respx`` return prepared answers, the fakes and fakeredis keep data. Missing libraries are listed
as such. Containers are measured if Docker is running; otherwise the table has the start time that
their vendor publishes.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import numpy as np
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.vector.engine.engine import VectorEngine

from .timing import NOT_INSTALLED, Table, compare, line
from .vector import PEERS as VECTOR_PEERS
from .vector import TOP_K, attempt, filled_engine, random_vectors

Call = Callable[[], object]
ROWS = 2_000
DIMENSION = 384
FAKE = "http://fake.test/get/key"
PUBLISHED = {
    "testcontainers, Redis": "not measured here; published: asks once a second for up to 120 s (4.15.0)"
}
"""Published start times, for libraries that cannot be measured."""


def there(*modules: str) -> bool:
    """Return whether all these modules can be imported."""
    return all(importlib.util.find_spec(name) for name in modules)


def docker() -> bool:
    """Return whether containers can be started."""
    if not there("testcontainers", "redis") or shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


# -- a double for each test ------------------------------------------------------------------------


def lives() -> list[bool]:
    """Compare the time from nothing to the first answer, including the end: the cost for a test."""
    plain = httpx.Client(trust_env=False)
    candidates: dict[str, tuple[bool, Call]] = {
        "kv_server": (True, lambda: kv_life(plain)),
        "pytest-httpserver": (there("pytest_httpserver"), lambda: httpserver_life(plain)),
        "responses": (there("responses"), responses_life),
        "respx": (there("respx"), respx_life),
        "fakeredis, in process": (there("fakeredis"), lambda: life(fakeredis_calls)),
        "fakeredis, TCP server": (there("fakeredis", "redis"), lambda: life(fakeredis_tcp_calls)),
        "moto server": (there("moto") and there("moto.server", "flask"), moto_life),
        "qdrant, local": (there("qdrant_client"), qdrant_life),
        "chromadb, ephemeral": (there("chromadb"), chroma_life),
        "testcontainers, Redis": (docker(), container_life),
    }
    calls = {name: call for name, (here, call) in candidates.items() if here}
    missing = {
        name: PUBLISHED.get(name, NOT_INSTALLED)
        for name, (here, _) in candidates.items()
        if not here
    }
    slow = {"pytest-httpserver", "fakeredis, TCP server", "moto server", "testcontainers, Redis"}
    counts = {name: 1 if name in slow else 20 for name in calls}
    table = compare(
        calls,
        rounds=7,
        calls=counts,
        title="a double of its own, to its first answer",
        missing=missing,
    )
    plain.close()
    show(table)
    return [
        line(
            f"{row.name} / kv_server, a double and its first answer",
            table.typical_ratio(row.name, "kv_server"),
        )
        for row in table.rows[1:]
    ]


def kv_life(client: httpx.Client) -> None:
    """Start a cloud and its key-value server, and send a SET over HTTP."""
    with Cloud(1) as cloud:
        kv = cloud.kv_server()
        assert client.get(f"{kv.url}/set/key/value", headers=kv.headers).json() == {"result": "OK"}


def httpserver_life(client: httpx.Client) -> None:
    from pytest_httpserver import HTTPServer

    with HTTPServer() as server:
        server.expect_request("/set/key/value").respond_with_json({"result": "OK"})
        assert client.get(server.url_for("/set/key/value")).json() == {"result": "OK"}


def responses_life() -> None:
    import responses

    with responses.RequestsMock() as mock:
        mock.get(FAKE, json={"result": "OK"})
        assert requests.get(FAKE, timeout=5).json() == {"result": "OK"}


def respx_life() -> None:
    import respx

    with respx.mock, httpx.Client(trust_env=False, verify=False) as client:
        respx.get(FAKE).respond(json={"result": "OK"})
        assert client.get(FAKE).json() == {"result": "OK"}


def life(make: Callable[[ExitStack], Call]) -> None:
    """Prepare the calls of `requesting()`, whose preparation includes a first answer, and close."""
    with ExitStack() as stack:
        make(stack)


def moto_life() -> None:
    from moto.server import ThreadedMotoServer

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    try:
        assert httpx.get(f"http://127.0.0.1:{port}/moto-api/data.json", trust_env=False).is_success
    finally:
        server.stop()


def qdrant_life() -> None:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    params = models.VectorParams(size=4, distance=models.Distance.COSINE)
    client.create_collection("c", vectors_config=params)
    client.close()


def chroma_life() -> None:
    import chromadb

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    client.create_collection("life")
    client.delete_collection("life")


def container_life() -> None:
    from testcontainers.redis import RedisContainer

    with RedisContainer() as container:
        assert container.get_client().ping()


# -- one call --------------------------------------------------------------------------------------


def requesting() -> list[bool]:
    """Compare one small call, on open connections if there are any."""
    missing: dict[str, str] = {}
    calls: dict[str, Call] = {}
    with ExitStack() as stack:
        cloud = stack.enter_context(Cloud(1))
        kv = cloud.kv_server()
        kv.load({"key": "value"})
        inside = stack.enter_context(Cloud(1, transport="inprocess")).kv_server()
        client = stack.enter_context(httpx.Client(trust_env=False, headers=kv.headers))
        session = stack.enter_context(requests.Session())
        session.headers.update(kv.headers)
        calls["kv_server by httpx"] = lambda: client.get(f"{kv.url}/get/key")
        calls["kv_server by requests"] = lambda: session.get(f"{kv.url}/get/key")
        own = stack.enter_context(httpx.Client(headers=inside.headers))
        calls["kv_server in process, httpx"] = lambda: own.get(f"{inside.url}/get/key")
        for name, (modules, prepare) in REQUESTS.items():
            if there(*modules):
                calls[name] = prepare(stack)
            else:
                missing[name] = NOT_INSTALLED
        table = compare(calls, rounds=15, calls=50, title="one call", missing=missing)
    show(table)
    pairs = (
        ("pytest-httpserver by httpx", "kv_server by httpx"),
        ("responses by requests", "kv_server by requests"),
        ("respx by httpx", "kv_server in process, httpx"),
        ("fakeredis TCP by redis-py", "kv_server by httpx"),
    )
    names = {row.name for row in table.rows}
    return [
        line(f"{theirs} / {ours}, one call", table.ratio(theirs, ours))
        for theirs, ours in pairs
        if theirs in names
    ]


def httpserver_calls(stack: ExitStack) -> Call:
    from pytest_httpserver import HTTPServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = stack.enter_context(HTTPServer())
    server.expect_request("/get/key").respond_with_json({"result": "value"})
    client = stack.enter_context(httpx.Client(trust_env=False))
    url = server.url_for("/get/key")

    def call() -> None:
        client.get(url)
        server.log.clear()

    return call


def responses_calls(stack: ExitStack) -> Call:
    """Activate the mock only during a call, because it replaces all of requests."""
    import responses

    mock = responses.RequestsMock(assert_all_requests_are_fired=False)
    mock.get(FAKE, json={"result": "value"})
    session = stack.enter_context(requests.Session())

    def call() -> None:
        mock.start()
        try:
            session.get(FAKE)
        finally:
            mock.stop(allow_assert=False)
        mock.calls.reset()

    return call


def respx_calls(stack: ExitStack) -> Call:
    """Use a mock as the transport of one client."""
    import respx

    router = respx.Router(assert_all_called=False)
    router.get(FAKE).respond(json={"result": "value"})
    transport = httpx.MockTransport(router.handler)
    client = stack.enter_context(httpx.Client(transport=transport, trust_env=False))

    def call() -> None:
        client.get(FAKE)
        router.calls.clear()

    return call


def fakeredis_calls(stack: ExitStack) -> Call:
    import fakeredis

    client = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    stack.callback(client.close)
    client.set("key", "value")
    return lambda: client.get("key")


def fakeredis_tcp_calls(stack: ExitStack) -> Call:
    import redis
    from fakeredis import TcpFakeServer

    server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    # The default interval would add half a second to the end of the server.
    serve = partial(server.serve_forever, poll_interval=0.01)
    threading.Thread(target=serve, daemon=True).start()
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    client = redis.Redis("127.0.0.1", server.server_address[1])
    stack.callback(client.close)
    client.set("key", "value")
    return lambda: client.get("key")


def port_calls(stack: ExitStack) -> Call:
    import redis

    kv = stack.enter_context(Cloud(1)).kv_server()
    client = redis.Redis.from_url(kv.database_url)
    stack.callback(client.close)
    client.set("key", "value")
    return lambda: client.get("key")


def moto_calls(stack: ExitStack) -> Call:
    import boto3
    from moto.server import ThreadedMotoServer

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    stack.callback(server.stop)
    made_up = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    client = boto3.client("sqs", endpoint_url=f"http://127.0.0.1:{port}", **made_up)
    stack.callback(client.close)
    url = client.create_queue(QueueName="q")["QueueUrl"]
    return lambda: client.send_message(QueueUrl=url, MessageBody="x")


def queue_calls(stack: ExitStack) -> Call:
    cloud = stack.enter_context(Cloud(1, delivery="driven"))
    queue = cloud.queue()
    queue.destinations.accept()
    client = stack.enter_context(httpx.Client(trust_env=False, headers=queue.headers))
    url = f"{queue.url}/v2/publish/https://app.example.com"
    return lambda: client.post(url, content=b"x", headers={"Upstash-Delay": "30d"})


REQUESTS: dict[str, tuple[tuple[str, ...], Callable[[ExitStack], Call]]] = {
    "kv_server's port by redis-py": (("redis",), port_calls),
    "queue, publish by httpx": ((), queue_calls),
    "pytest-httpserver by httpx": (("pytest_httpserver",), httpserver_calls),
    "responses by requests": (("responses",), responses_calls),
    "respx by httpx": (("respx",), respx_calls),
    "fakeredis in process": (("fakeredis",), fakeredis_calls),
    "fakeredis TCP by redis-py": (("fakeredis", "redis"), fakeredis_tcp_calls),
    "moto server, SQS by boto3": (("moto", "boto3", "flask"), moto_calls),
}


# -- a query among vectors -------------------------------------------------------------------------


def querying() -> list[bool]:
    """Compare a query for the nearest ten of several thousand vectors, in process."""
    vectors: np.ndarray[Any, Any] = random_vectors(ROWS, DIMENSION)
    query_vector = random_vectors(1, DIMENSION)[0]
    engine: VectorEngine = filled_engine(vectors)
    from pytest_fakecloud.vector.model import Include, VectorQuery

    query = [VectorQuery(vector=query_vector, top_k=TOP_K, include=Include())]
    calls: dict[str, Call] = {"vector_index": lambda: engine.query("", query)}
    missing: dict[str, str] = {}
    for name, make in VECTOR_PEERS.items():
        peer = attempt(name, lambda make=make: make(vectors, query_vector))  # type: ignore[misc]
        if peer is None:
            missing[name] = NOT_INSTALLED
        else:
            calls[name] = peer
    title = f"a query among {ROWS:,} vectors of {DIMENSION}"
    table = compare(calls, rounds=9, title=title, missing=missing)
    show(table)
    return [
        line(f"{row.name} / vector_index, {title}", table.ratio(row.name, "vector_index"))
        for row in table.rows[1:]
    ]


def show(table: Table) -> None:
    print(f"\n{table.title}\n{table}")


def main() -> int:
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    holds = [*lives(), *requesting(), *querying()]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
