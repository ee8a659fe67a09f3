"""The two servers of a comparison, each a process with an empty database on a TCP port, and results."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from pytest_fakecloud.core.timers import monotonic
from tests.kv.backing import free_port


@dataclass
class Outcome:
    """The names of passed and failed tests, the reason for an early end, and the output."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ended: str = ""
    output: str = ""

    def joined(self, again: Outcome) -> Outcome:
        """Return the outcome of two runs, in which a test fails only if it passed in neither."""
        passed = Counter(self.passed) | Counter(again.passed)
        failed = [name for name in again.failed if name not in passed]
        return Outcome(sorted(passed.elements()), failed, again.ended, again.output)

    def beyond(self, other: Outcome) -> list[str]:
        """Return the tests that passed here and not there, repeated as often as they did."""
        return sorted((Counter(self.passed) - Counter(other.passed)).elements())


STARTING = 15.0
"""Seconds within which a server must listen."""

Server = Callable[[], AbstractContextManager[int]]
"""Starts a server; the context's value is its port."""


@contextlib.contextmanager
def fake() -> Iterator[int]:
    """Serve the database port of a fake in the stock dialect."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kv.suites.port"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def real() -> Iterator[int]:
    """Serve ``redis-server`` without persistence."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("no redis-server on the path: install one, or compare with --only fake")
    with tempfile.TemporaryDirectory(prefix="kv") as folder:
        port = free_port()
        process = subprocess.Popen(
            [binary, "--port", str(port), "--save", "", "--dir", folder,
             "--enable-debug-command", "yes", "--enable-protected-configs", "yes"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait(process, port)
            yield port
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = monotonic() + STARTING
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or monotonic() > deadline:
                raise RuntimeError("redis-server does not start") from None


SERVERS: dict[str, Server] = {"real": real, "fake": fake}
