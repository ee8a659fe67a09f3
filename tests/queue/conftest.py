"""Fixtures for the tests of the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.queue.delivery.applications import Deadlines
from pytest_fakecloud.queue.delivery.destinations import Sender, route_context_of
from pytest_fakecloud.queue.fake import Queue

from .edge import RawServer, Script, Table
from .engine.bench import Bench
from .scene import NOW, Scene


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue(Context.alone(now=NOW, seed=1)) as queue:
        yield queue


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Scene() as scene:
        yield scene


@pytest.fixture
def serve() -> Iterator[Callable[..., RawServer]]:
    servers: list[RawServer] = []

    def start(script: Script | None = None) -> RawServer:
        servers.append(RawServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def sender() -> Iterator[Sender]:
    sender = Sender()
    yield sender
    sender.close()


@pytest.fixture
def deadlines() -> Iterator[Deadlines]:
    deadlines = Deadlines(30.0)
    yield deadlines
    deadlines.close()


@pytest.fixture
def table(deadlines: Deadlines) -> Iterator[Table]:
    table = Table(deadlines)
    yield table
    route_context_of(table).close()
