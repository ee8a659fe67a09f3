"""The database port: commands over TCP, one at a time, and the memory of the journal for each.

Run ``python -m benchmarks.port``. The servers run in processes of their own: the fake, fakeredis'
server, a Redis server, a thread that answers everything with ``+OK``, and a loop in Python that
parses, sets and records, which is the minimum for any fake in Python. Exits with 1 if a limit is
missed.

All processes run on one processor (``stay_on_one_processor()``).
"""

from __future__ import annotations

import gc
import importlib.util
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import httpx

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Fake

from .raw import raw_server
from .timing import compare, limit, line, stay_on_one_processor

ROUNDS = 25
CALLS = 300
RECORDED = 5_000
COMMANDS = {
    "SET": (b"SET", b"key", b"value"),
    "GET": (b"GET", b"key"),
    "LPUSH": (b"LPUSH", b"list", b"item"),
    "XADD": (b"XADD", b"stream", b"*", b"field", b"value"),
}


def packed(words: tuple[bytes, ...]) -> bytes:
    """Return a command in the Redis protocol."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


# -- servers in processes of their own -------------------------------------------------------------


def serve(name: str) -> None:
    """Start a server, print its address, and serve until the standard input is closed."""
    with ExitStack() as stack:
        if name == "fake":
            address = stack.enter_context(Cloud(1)).kv_server().database_url
        elif name == "fakeredis":
            from fakeredis import TcpFakeServer

            server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"redis://127.0.0.1:{server.server_address[1]}"
        else:
            run = _answer_ok if name == "thread" else _parse_set_and_record
            address = f"redis://127.0.0.1:{stack.enter_context(raw_server(run))}"
        print(address, flush=True)
        sys.stdin.read()


def _answer_ok(sock: socket.socket) -> None:
    while sock.recv(65_536):
        sock.sendall(b"+OK\r\n")


def _parse_set_and_record(sock: socket.socket) -> None:
    values: dict[bytes, bytes] = {}
    journal: list[tuple[float, bytes]] = []
    while data := sock.recv(65_536):
        words = data.split(b"\r\n")[2::2]
        values[words[1]] = words[-1]
        journal.append((time.time(), b"%b" % data))
        sock.sendall(b"+OK\r\n")


class Server:
    """A server process, and a connection to it."""

    def __init__(self, process: subprocess.Popen[str], sock: socket.socket) -> None:
        self._process = process
        self._socket = sock

    def ask(self, data: bytes) -> bytes:
        """Send a command, and return its reply, which arrives in one packet."""
        self._socket.sendall(data)
        return self._socket.recv(65_536)

    def cpu_us(self) -> float:
        """Return the processor time of the process in microseconds (Linux)."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


@contextmanager
def started(name: str) -> Iterator[Server]:
    """Start a server and log in."""
    words = [sys.executable, "-m", "benchmarks.port", name]
    folder = tempfile.TemporaryDirectory(prefix="port")
    if name == "redis":
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        words = ["redis-server", "--port", str(port), "--save", "", "--dir", folder.name]
    pipe = subprocess.PIPE
    with folder, subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            if name == "redis":
                while "eady to accept" not in process.stdout.readline():
                    pass
                address = urlsplit(f"redis://127.0.0.1:{port}")
            else:
                address = urlsplit(process.stdout.readline().strip())
            with socket.create_connection((address.hostname, address.port)) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = Server(process, sock)
                if address.password is not None:
                    login = packed((b"AUTH", address.password.encode()))
                    assert server.ask(login) == b"+OK\r\n"
                yield server
        finally:
            process.kill()


def single() -> list[bool]:
    """Compare single commands with other servers, in turns."""
    names = ["fake", "thread", "loop"]
    names += ["fakeredis"] if importlib.util.find_spec("fakeredis") else []
    names += ["redis"] if shutil.which("redis-server") else []
    holds = []
    with ExitStack() as stack:
        servers = {name: stack.enter_context(started(name)) for name in names}
        for command, words in COMMANDS.items():
            calls: dict[str, Callable[[], object]] = {
                name: partial(server.ask, packed(words)) for name, server in servers.items()
            }
            table = compare(calls, rounds=ROUNDS, calls=CALLS, title=f"{command} over TCP")
            print(table)
            line(f"{command} over TCP, fake / a loop in Python", table.ratio("fake", "loop"))
            if "fakeredis" in servers:
                ratio = table.ratio("fakeredis", "fake")
                holds.append(line(f"{command} over TCP, fakeredis / fake", ratio, at_least=1.4))
            if "redis" in servers:
                ratio = table.ratio("fake", "redis")
                holds.append(line(f"{command} over TCP, fake / redis-server", ratio, 2.6))
        if sys.platform == "linux":
            fake, loop = processor_times(servers, packed(COMMANDS["SET"]))
            line("SET, processor time of a loop in Python / a thread with +OK", loop)
            holds.append(line("SET, processor time of the fake / a thread with +OK", fake, 2.2))
    return holds


def processor_times(servers: dict[str, Server], data: bytes) -> tuple[float, float]:
    """Return the processor times of the fake and of the loop for a command, divided by that of the
    answering thread.
    """
    rounds = []
    for _ in range(ROUNDS):
        taken = {}
        for name in ("fake", "loop", "thread"):
            began = servers[name].cpu_us()
            for _ in range(CALLS):
                servers[name].ask(data)
            taken[name] = servers[name].cpu_us() - began
        rounds.append((taken["fake"] / taken["thread"], taken["loop"] / taken["thread"]))
    fake, loop = map(median, zip(*rounds, strict=True))
    return fake, loop


# -- memory ----------------------------------------------------------------------------------------


def memory() -> list[bool]:
    """Measure the bytes that the journal keeps for a small command, a small REST call and an attempt."""
    with Cloud(1) as cloud, ExitStack() as stack:
        kv, broker, queue = cloud.kv_server(), cloud.broker(topics={"t": 1}), cloud.queue()
        queue.destinations.accept("https://app.example.com/")
        address = urlsplit(kv.database_url)
        sock = stack.enter_context(socket.create_connection((address.hostname, address.port)))
        sock.sendall(packed((b"AUTH", (address.password or "").encode())))
        assert sock.recv(99) == b"+OK\r\n"
        official = kv.client()
        client = stack.enter_context(httpx.Client(trust_env=False))

        def command() -> None:
            sock.sendall(packed(COMMANDS["SET"]))
            sock.recv(99)

        def post(fake: Fake, path: str, body: bytes) -> None:
            client.post(fake.url + path, content=body, headers=fake.headers).raise_for_status()

        def publish() -> None:
            post(queue, "/v2/publish/https://app.example.com/hook", b"{}")
            queue.run_until_idle()

        # A call over REST also keeps the bytes of its headers: more than half, with the official client.
        calls: dict[str, tuple[Callable[[], object], int]] = {
            "SET over TCP": (command, 600),
            "SET by httpx": (partial(post, kv, "", b'["SET","key","value"]'), 700),
            "SET by upstash-redis": (partial(official.set, "key", "value"), 1000),
            "produce by httpx": (partial(post, broker, "/produce/t", b'{"value":"v"}'), 700),
            "publish by httpx, and its attempt": (publish, 600),
        }
        return [
            limit(f"{name}, bytes of a journal entry", kept_by(cloud, run), most)
            for name, (run, most) in calls.items()
        ]


def kept_by(cloud: Cloud, run: Callable[[], object]) -> float:
    """Return the bytes of each entry that a call adds to the journal: those that clearing it frees.
    Other bytes that the call leaves behind are the data of the fakes.
    """
    run()
    cloud.journal.clear()
    tracemalloc.start()
    for _ in range(RECORDED):
        run()
    entries = len(cloud.journal)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    cloud.journal.clear()
    bytes_per_entry = (before - tracemalloc.get_traced_memory()[0]) / entries
    tracemalloc.stop()
    return bytes_per_entry


def main() -> int:
    if sys.argv[1:]:
        serve(sys.argv[1])
        return 0
    stay_on_one_processor()
    holds = [*single(), *memory()]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
