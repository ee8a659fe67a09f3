"""Fork stand-alone servers from a process that has imported all modules.

``python -m tests.standalone.nursery SOCKET`` reads one JSON object per line from the socket and
answers each with a line: either a server to start, with the file descriptor of its standard output,
or one whose exit code to return. A forked server starts in a tenth of the time; ``test_cli`` tests
what only a new process shows.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from pytest_fakecloud.core.timers import monotonic

AVAILABLE = sys.platform == "linux"
"""True where forking is safe and cheap."""
NEEDED = (
    "numpy", "pytest_fakecloud.broker.fake", "pytest_fakecloud.cloud.cloud",
    "pytest_fakecloud.http.messages", "pytest_fakecloud.http.server", "pytest_fakecloud.kv.fake",
    "pytest_fakecloud.queue.fake", "pytest_fakecloud.standalone.api",
    "pytest_fakecloud.queue.inspect.data", "pytest_fakecloud.standalone.state_file",
    "pytest_fakecloud.process.surroundings", "pytest_fakecloud.vector.fake",
)  # fmt: skip


class Nursery:
    """The client of the nursery process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._answers = self._socket.makefile("r")

    def begin(self, arguments: list[str], environment: dict[str, str]) -> Born:
        """Start ``pytest-fakecloud`` with these arguments; standard error is discarded."""
        read, write = os.pipe()
        order = {"arguments": arguments, "environment": environment, "folder": os.getcwd()}
        number = self.ask(order, write)
        os.close(write)
        return Born(self, number, read)

    def ask(self, order: Any, *files: int) -> Any:
        """Send one line, and return the answer."""
        socket.send_fds(self._socket, [json.dumps(order).encode() + b"\n"], files)
        return json.loads(self._answers.readline())

    def close(self) -> None:
        """End the process; its servers have ended before."""
        self._answers.close()
        self._socket.close()
        self._process.wait(10)


class Born:
    """A forked server, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, nursery: Nursery, number: int, read: int) -> None:
        self._nursery = nursery
        self.pid = number
        self.stdout = open(read, encoding="utf-8")  # noqa: SIM115
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the server runs."""
        if self.returncode is None:
            self.returncode = self._nursery.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the exit code; raise ``subprocess.TimeoutExpired`` if it does not exist in time."""
        until = monotonic() + timeout
        while (code := self.poll()) is None:
            if monotonic() > until:
                raise subprocess.TimeoutExpired("pytest-fakecloud", timeout)
            signal.sigtimedwait([], 0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the server has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def tend(orders: socket.socket) -> None:
    """Execute each line until the socket closes. The function returns in forked servers, too."""
    from pytest_fakecloud import cli

    for name in NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        text, files, *_ = socket.recv_fds(orders, 1 << 20, 1)
        if not text:
            return
        order = json.loads(text)
        if "ended" in order:
            number, status = os.waitpid(order["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if number else None
        elif (answer := os.fork()) == 0:
            orders.close()
            os.dup2(files[0], 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.close(files[0])
            os.environ.clear()
            os.environ.update(order["environment"])
            os.chdir(order["folder"])
            gc.unfreeze()
            sys.exit(cli.main(order["arguments"]))
        else:
            os.close(files[0])
        orders.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    tend(socket.socket(fileno=int(sys.argv[1])))
