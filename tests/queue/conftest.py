"""Fixtures of the tests of the queue's edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pytest_fakecloud.queue.delivery.deadlines import Deadlines
from pytest_fakecloud.queue.delivery.sender import Sender

from .edge import RawServer, Script, Table


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
    table.loops.close()
