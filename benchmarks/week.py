"""A stand-alone server for a week: ``python -m benchmarks.week [--days 7] [--calls 200]``.

A served cloud with all four services runs hour by hour on a frozen clock. In each hour, clients
make a number of calls (sets with a TTL, vectors that are replaced, records that are produced and
consumed, messages that are delivered or rejected until they are dead letters). Some calls have no
token or a large body. An open console requests everything that it shows. The memory, threads and
open files of the server are printed at the end of each day.

Exits with 1 if memory grows by more than 10 MB a day after the second day, if threads or open files
grow by more than a few, or if a call fails unexpectedly.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3

from .timing import limit

GROWTH = 10.0
"""Megabytes per day by which memory may grow once journals and history are full."""
SPARE = 8
"""Number of threads and open files that may be added temporarily."""


class Destination(BaseHTTPRequestHandler):
    """The application that receives deliveries; it rejects every fifth one."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).count += 1
        self.send_response(500 if self.count % 5 == 0 else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Week:
    """One server, its clients and its console."""

    def __init__(self, summary: dict[str, Any], pid: int, destination: str) -> None:
        self.pool = urllib3.PoolManager(retries=False, timeout=30)
        self.fakes = {fake["fixture"]: fake for fake in summary["fakes"]}
        self.control = summary["control"]
        self.pid = pid
        self.destination = destination
        self.failed: list[str] = []
        self.calls = 0

    def ask(self, fixture: str, method: str, path: str, body: object = None, **more: str) -> None:
        """Make one call of a client, and keep a response that is not a success."""
        fake = self.fakes[fixture]
        headers = {**fake["headers"], "Content-Type": "application/json", **more}
        content = None if body is None else json.dumps(body)
        answer = self.pool.request(method, fake["url"] + path, body=content, headers=headers)
        self.calls += 1
        if answer.status >= 300:
            self.failed.append(f"{method} {path}: {answer.status} {answer.data[:200]!r}")

    def look(self, path: str, body: object = None) -> None:
        headers = {"Authorization": f"Bearer {self.control['token']}"}
        url = f"{self.control['url']}/__control__{path}"
        content = None if body is None else json.dumps(body)
        answer = self.pool.request(
            "GET" if body is None else "POST", url, body=content, headers=headers
        )
        if answer.status >= 300:
            self.failed.append(f"{path}: {answer.status} {answer.data[:200]!r}")

    def hour(self, number: int, calls: int) -> None:
        """Make the calls of clients and the console in an hour, and advance the clock by an hour."""
        for at in range(calls // 8):
            name = f"{number * calls + at}"
            self.ask("kv_server", "POST", "/", ["SET", f"k:{name}", "x" * 200, "EX", 3600])
            self.ask("kv_server", "POST", "/pipeline", [["INCR", "n"], ["GET", f"k:{name}"]])
            vector = {"id": f"v{at}", "vector": [0.1] * 64, "metadata": {"n": name}}
            self.ask("vector_index", "POST", "/upsert", vector)
            self.ask("vector_index", "POST", "/query", {"vector": [0.2] * 64, "topK": 3})
            self.ask("broker", "POST", "/produce/orders", {"value": name, "key": name})
            self.ask("broker", "GET", f"/consume/g/i/orders?timeout=1&n={name}")
            self.ask("queue", "POST", f"/v2/publish/{self.destination}", {"n": name})
            delay = {"Upstash-Delay": "30m", "Upstash-Retries": "1"}
            self.ask("queue", "POST", f"/v2/publish/{self.destination}", {"late": name}, **delay)
        for fake in self.fakes.values():
            self.pool.request("POST", fake["url"] + "/", body=b"x" * 1_000_000)
        for path in ("/state", "/clock", "/journal?limit=200", "/violations"):
            self.look(path)
        for fake in self.fakes.values():
            self.look(f"/fakes/{fake['name']}/view")
        self.look("/clock", {"action": "advance", "by": "1h"})

    def figures(self) -> tuple[float, int, int]:
        """Return the resident megabytes, threads and open files of the server."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        memory = int(status.split("VmRSS:")[1].split()[0]) / 1024
        threads = int(status.split("Threads:")[1].split()[0])
        return memory, threads, len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument(
        "--hours", type=int, default=24, help="hours of a day in which there are calls"
    )
    parser.add_argument("--calls", type=int, default=200, help="calls of clients in an hour")
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Destination)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        sys.executable,
        "-m",
        "pytest_fakecloud",
        "serve",
        "--json",
        "--random",
        "--clock",
        "frozen",
    ]
    command += ["--now", "2026-01-01T00:00:00Z", "--broker", 'topics={"orders": 2}']
    command += ["--broker", "retention=1d", "--vector", "dimension=64"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        summary = json.loads(process.stdout.readline())
        week = Week(summary, process.pid, f"http://127.0.0.1:{server.server_port}/hook")
        days = []
        for day in range(options.days):
            for hour in range(options.hours):
                week.hour(day * 24 + hour, options.calls)
            days.append(week.figures())
            memory, threads, files = days[-1]
            print(
                f"day {day + 1}: {week.calls:9,} calls  {memory:6.1f} MB  {threads:3} threads  "
                f"{files:3} open files",
                flush=True,
            )
    finally:
        process.terminate()
        process.wait(30)
        server.shutdown()
    for text in week.failed[:5]:
        print(f"    {text}")
    settled, last = days[min(1, len(days) - 1)], days[-1]
    grown = (last[0] - settled[0]) / max(1, len(days) - 2)
    held = limit("memory a day after the second, MB", grown, GROWTH)
    same = last[1] - settled[1] <= SPARE and last[2] - settled[2] <= SPARE
    return 0 if not week.failed and held and same else 1


if __name__ == "__main__":
    sys.exit(main())
