"""A stand-alone server under load: clients that disconnect, a stop, a bounded journal."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import urllib3

from benchmarks.load import TOKEN, Server, start
from tests.standalone.conftest import Serve, fetch

from ..harness import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="signals are different there"),
]
CLIENTS = 16
STOPS_WITHIN = 10
"""A limit in seconds for a busy machine; `python -m benchmarks.load` requires two."""


def loaded(serve: Serve, entries: int = 200) -> tuple[Any, Server]:
    running = serve("kv", "--kv-token", TOKEN, "--journal-entries", str(entries))
    host, _, port = running.summary["fakes"][0]["url"].removeprefix("http://").rpartition(":")
    return running, Server(running.process, (host, int(port)))


def until_busy(running: Any) -> None:
    """Wait until the clients of other processes have been answered."""

    def is_busy() -> bool:
        status, rows = running.ask("GET", "/journal")
        return status == 200 and len(rows) > 100

    wait_until(is_busy, 30)


def test_every_request_of_many_clients_is_answered(serve: Serve) -> None:
    _, server = loaded(serve)
    times, errors = start([server], CLIENTS, 0.4).finish()
    assert errors == []
    assert len(times) > CLIENTS


def test_a_stop_under_load_is_soon(serve: Serve) -> None:
    running, server = loaded(serve)
    load = start([server], CLIENTS, 20, 1)
    until_busy(running)
    assert server.terminate() < STOPS_WITHIN
    assert server.process.returncode == 0
    load.finish()


def test_a_stop_with_open_streams_and_long_polls(serve: Serve) -> None:
    running = serve("kv", "broker", "--broker", 'topics={"t": 1}')
    kv, broker = running.summary["fakes"]
    threads = [
        threading.Thread(target=hold, args=(url, headers))
        for url, headers in (
            (f"{kv['url']}/subscribe/news", kv["headers"]),
            (f"{broker['url']}/consume/g/i/t?timeout=60000", broker["headers"]),
        )
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(running.ask("GET", "/journal")[1]) >= 2, 30)
    assert Server(running.process, ("", 0)).terminate() < STOPS_WITHIN
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def hold(url: str, headers: dict[str, str]) -> None:
    """Keep one request open."""
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        fetch("GET", url, headers={**headers, "Accept": "text/event-stream"})


def test_clients_that_are_killed_leave_nothing_behind(serve: Serve) -> None:
    running, server = loaded(serve)
    load = start([server], CLIENTS, 20, 1)
    until_busy(running)
    for process in load.processes:
        os.kill(process.pid, signal.SIGKILL)
        process.join(10)
    times, errors = start([server], CLIENTS, 0.3, 1).finish()
    assert errors == []
    assert times
    wait_until(lambda: connections(server) <= 2)
    with pytest.raises(queue.Empty):
        load.results.get_nowait()


def connections(server: Server) -> int:
    """Sockets of the server besides the two it listens on and the hub's own pair."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    if not folder.exists():
        return 0
    kinds = []
    for entry in folder.iterdir():
        try:
            kinds.append(str(entry.readlink()))
        except OSError:
            continue
    return sum(kind.startswith("socket:") for kind in kinds) - 4


@pytest.mark.slow
def test_the_journal_of_a_server_is_bounded(serve: Serve) -> None:
    running, server = loaded(serve, 40)
    start([server], CLIENTS, 0.3, 1).finish()
    rows = running.ask("GET", "/journal")[1]
    assert 40 <= len(rows) <= 50
    numbers = [row["number"] for row in rows]
    assert numbers == sorted(numbers)
    assert numbers[0] > 40
