"""A server ends within its deadline after a signal, whatever it is doing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fakecloud.standalone.serving import STOP_SECONDS
from tests.harness import PACKAGE

from .conftest import STARTS_WITHIN, Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="signals are different there"),
]
BUSY = """
import sys
from pytest_fakecloud import cli
from pytest_fakecloud.standalone import serving
from pytest_fakecloud.standalone.control.clouds import CloudRoutes

def busy(self, request):
    with self._cloud.fakes().where(service="queue").only()._engine.lock:
        print("busy", flush=True)
        while True:
            pass

CloudRoutes.get_seed = busy
serving.STOP_SECONDS = float(sys.argv[1])
sys.exit(cli.main(["serve", "--json", "--random", "kv", "queue"]))
"""
"""A server with a request that ends only with its process, and holds the lock of a fake."""


@contextlib.contextmanager
def busy_server(stop_seconds: float) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(stop_seconds)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PACKAGE.parent,
    )
    timer = threading.Timer(STARTS_WITHIN, process.kill)
    timer.start()
    assert process.stdout is not None
    server = Server(process, json.loads(process.stdout.readline()))

    def ask() -> None:
        with contextlib.suppress(Exception):
            server.ask("GET", "/seed")

    caller = threading.Thread(target=ask)
    caller.start()
    try:
        assert process.stdout.readline() == "busy\n"
        yield process
    finally:
        timer.cancel()
        process.kill()
        process.communicate()
        caller.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_busy_server_ends_in_time(number: int) -> None:
    with busy_server(STOP_SECONDS) as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err.endswith(
        f"pytest-fakecloud: still busy {STOP_SECONDS:g} s after {signal.Signals(number).name}; "
        "exiting anyway\n"
    )
    assert STOP_SECONDS < 1, "SIGTERM ends a server within a second"


def test_a_second_signal_ends_it_at_once() -> None:
    with busy_server(1000) as process:
        process.send_signal(signal.SIGINT)
        status = Path(f"/proc/{process.pid}/status")
        # When the second signal has its default action again, the first one has been handled.
        is_caught = True
        while status.exists() and is_caught:
            process.poll()
            caught = int(status.read_text().partition("SigCgt:")[2].split()[0], 16)
            is_caught = bool(caught >> (signal.SIGTERM - 1) & 1)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM
    assert err == ""
