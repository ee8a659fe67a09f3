"""The two servers of a comparison, each a process with an empty database on a TCP port, and results."""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from pytest_fakecloud.core.timers import monotonic
from tests.harness import wait_until
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
def fake(node_ports: Sequence[int] = ()) -> Iterator[int]:
    """Serve the database port of a fake in the stock dialect: of a cluster with a node on each of
    ``node_ports``, if there are any.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kv.suites.port", "--nodes", *map(str, node_ports)],
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
def real(port: int = 0, *options: str) -> Iterator[int]:
    """Serve ``redis-server`` without persistence, on this port or on a free one."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("no redis-server on the path: install one, or compare with --only fake")
    with tempfile.TemporaryDirectory(prefix="kv") as folder:
        port = port or free_port()
        process = subprocess.Popen(
            [binary, "--port", str(port), "--save", "", "--dir", folder,
             "--enable-debug-command", "yes", "--enable-protected-configs", "yes", *options],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait(process, port)
            yield port
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(node_ports: Sequence[int]) -> Iterator[int]:
    """Serve a cluster of ``redis-server``: one node with all slots, or primaries with a replica each."""
    nodes = [f"127.0.0.1:{port}" for port in node_ports]
    with ExitStack() as stack:
        for port in node_ports:
            stack.enter_context(real(port, "--cluster-enabled", "yes"))
        if len(nodes) == 1:
            _cli("-p", str(node_ports[0]), "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        else:
            _cli("--cluster", "create", *nodes, "--cluster-replicas", "1", "--cluster-yes")
        for port in node_ports:
            wait_until(functools.partial(_knows_the_cluster, port, len(nodes)))
        yield node_ports[0]


def _knows_the_cluster(port: int, nodes: int) -> bool:
    info = _cli("-p", str(port), "CLUSTER", "INFO")
    return "cluster_state:ok" in info and f"cluster_known_nodes:{nodes}" in info


def _cli(*arguments: str) -> str:
    command = ["redis-cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


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
