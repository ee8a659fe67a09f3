"""The hub: mounting, closing, accepting, and leaks."""

from __future__ import annotations

import errno
import gc
import json
import os
import queue
import selectors
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.threads import WorkerPool
from pytest_fakecloud.http import hub as hub_module
from pytest_fakecloud.http.hub import Hub, default_hub
from pytest_fakecloud.http.messages import Answer
from pytest_fakecloud.http.ports import PortAllocator, ephemeral_range
from pytest_fakecloud.http.server import RESET_ON_CLOSE, Connection

from ..budget import cases
from ..demo import Demo, FunctionApp, Raw, fetch, handled_by
from ..harness import in_threads, wait_until
from .conftest import Unhindered


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def workers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("fakecloud-worker")]


def app_that(answers: Callable[[], bytes]) -> FunctionApp:
    """Return an app that responds with the body that a function returns."""
    return FunctionApp(lambda request: Answer(answers()))


hello = app_that(lambda: b"hello")


linux_only = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts /proc/self/fd")


# -- mounting ------------------------------------------------------------------------------------


def test_a_mount_has_an_address_of_its_own(hub: Hub) -> None:
    first, second = hub.mount(hello), hub.mount(hello)
    assert first.host == "127.0.0.1"
    assert first.url == f"http://127.0.0.1:{first.port}"
    assert first.port != second.port
    assert fetch(first).body == b"hello"
    assert len(hub.open_mounts()) == 2


def test_a_mount_is_a_with_block(hub: Hub) -> None:
    with closing(hub.mount(hello)) as mount:
        assert mount.closed is False
    assert mount.closed is True
    with pytest.raises(ConnectionRefusedError):
        Raw(mount.address)
    assert repr(mount) == f"<Mount {mount.url} closed>"


def test_a_closed_mount_can_be_closed_again(hub: Hub) -> None:
    mount = hub.mount(hello)
    mount.close()
    mount.close()
    mount.reset_connections()
    mount.refuse()
    mount.listen_again()
    with pytest.raises(ConnectionRefusedError):
        Raw(mount.address)


def test_a_chosen_port_can_be_had_again_at_once(hub: Hub) -> None:
    first = hub.mount(hello)
    port = first.port
    with Raw(first.address) as raw:
        raw.get("/")
        first.close()
    second = hub.mount(hello, port=port)
    assert second.port == port
    assert fetch(second).status == 200


def test_a_taken_port_is_an_error_that_names_it(hub: Hub) -> None:
    first = hub.mount(hello)
    taken = rf"cannot listen on port {first.port} of 127\.0\.0\.1"
    with pytest.raises(ContractError, match=taken):
        hub.mount(hello, port=first.port)


def test_an_address_of_another_machine_is_an_error(hub: Hub) -> None:
    with pytest.raises(ContractError, match=r"cannot listen on any port of 192\.0\.2\.1"):
        hub.mount(hello, host="192.0.2.1")


def test_ipv6(hub: Hub) -> None:
    try:
        mount = hub.mount(hello, host="::1")
    except ContractError:
        pytest.skip("this machine has no IPv6 loopback")
    assert mount.url == f"http://[::1]:{mount.port}"
    with socket.create_connection(("::1", mount.port)) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"hello" in sock.recv(1000)


def test_the_hub_stops_and_starts_again(hub: Hub) -> None:
    first = hub.mount(hello)
    loop = hub._loop
    hub.stop()
    assert loop is not None
    assert loop.over.wait(20)
    assert first.closed
    assert fetch(hub.mount(hello)).body == b"hello"
    hub.stop()
    hub.stop()


def test_a_hub_that_does_not_run_watches_no_socket(hub: Hub) -> None:
    hub.mount(hello)
    hub.stop()
    with socket.socket() as sock:
        assert not hub.register(sock, mock.Mock())
        hub.unregister(sock)


def test_there_is_one_hub_for_the_process() -> None:
    assert default_hub() is default_hub()
    with Demo() as first, Demo() as second:
        assert first.mount.hub is second.mount.hub is default_hub()


def test_the_process_ends_without_delay() -> None:
    # Mounts, idle connections and a waiting request are still open at exit.
    script = """
import socket, sys, threading, time
sys.path.insert(0, ".")
from tests.demo import Demo, Raw
demos = [Demo() for _ in range(3)]
raws = [Raw(demo.mount.address) for demo in demos]
raws[0].get("/echo/x")
raws[1].send("GET /wait/1 HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")
demos[1]._engine.parked.acquire(timeout=10)
for raw in raws:
    raw.sock.detach()  # open until the very end, without a warning about it
print(time.time(), flush=True)
"""
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script], capture_output=True, text=True,
        timeout=60, cwd=root, check=False,
    )  # fmt: skip
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert ended - float(done.stdout) < 2.0


# -- ports ---------------------------------------------------------------------------------------


def test_ports_come_in_sequence_outside_the_ephemeral_range(hub: Hub) -> None:
    first, last = ephemeral_range()
    ports = []
    for _ in range(200):
        with closing(hub.mount(hello)) as mount:
            ports.append(mount.port)
    assert all(not first <= port <= last for port in ports)
    assert len(set(ports)) == 200


def test_allocators_start_at_random_places() -> None:
    assert len({PortAllocator((32768, 60999)).take() for _ in range(50)}) > 30


@pytest.mark.parametrize(
    ("ephemeral", "expected"),
    [
        ((32768, 60999), range(10240, 32768)),  # Linux
        ((49152, 65535), range(10240, 49152)),  # macOS, Windows
        ((10000, 30000), range(30001, 65536)),
        ((1024, 65535), range(10240, 65536)),  # nothing left: shared
        ((1024, 65000), range(10240, 65536)),
    ],
)
def test_the_range_of_ports(ephemeral: tuple[int, int], expected: range) -> None:
    assert PortAllocator(ephemeral).ports == expected


def test_an_allocator_goes_round_and_gives_each_port_once() -> None:
    allocator = PortAllocator((10240 + 2000, 65535))
    assert sorted(allocator.take() for _ in allocator.ports) == list(allocator.ports)
    assert allocator.take() in allocator.ports


def test_taken_ports_are_passed_over(hub: Hub) -> None:
    allocator = hub.ports
    here = allocator.ports[allocator._next]
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", here))
        except OSError:
            pytest.skip("somebody else has this port")
        assert hub.mount(hello).port != here


def test_when_every_port_is_taken(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = hub.mount(hello)
    monkeypatch.setattr(hub.ports, "ports", range(mount.port, mount.port + 1))
    monkeypatch.setattr(hub.ports, "_next", 0)
    with pytest.raises(ContractError, match=r"cannot listen on any port of 127\.0\.0\.1"):
        hub.mount(hello)


# -- closing -------------------------------------------------------------------------------------


def test_closing_ends_open_connections(demo: Demo, unhindered: Unhindered) -> None:
    with Raw(demo.mount.address) as idle, Raw(demo.mount.address) as used:
        used.get("/echo/x")
        with unhindered():
            demo.close()
        assert used.is_closed()
        assert idle.is_closed()
    wait_until(lambda: not demo.mount.live)


def test_closing_wakes_parked_handlers(demo: Demo, unhindered: Unhindered) -> None:
    raws = [Raw(demo.mount.address) for _ in range(10)]
    for raw in raws:
        raw.send("GET /wait/1 HTTP/1.1\r\nHost: h\r\n\r\n")
    for _ in raws:
        assert demo._engine.parked.acquire(timeout=10)
    with unhindered():
        demo.close()
    for raw in raws:
        assert raw.is_closed()
        raw.sock.close()


def test_connections_are_shut_before_handlers_are_woken(hub: Hub) -> None:
    order = []
    release = threading.Event()

    mount = hub.mount(app_that(lambda: b"late" * release.wait(10)))
    with Raw(mount.address) as raw:
        raw.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        wait_until(lambda: any(c.inside for c in mount.live))

        def wake() -> None:
            order.append(raw.is_closed())
            release.set()

        mount.on_stop.append(wake)
        mount.close()
    assert order == [True]


def test_a_failing_callback_of_a_closing_mount_leaves_the_others_alone(
    demo: Demo, unhindered: Unhindered
) -> None:
    error = ValueError("a callback")
    last = mock.Mock()
    demo.mount.on_stop[:] = [mock.Mock(side_effect=[error, None]), *demo.mount.on_stop, last]
    with Raw(demo.mount.address) as raw:
        demo.park(raw, "/wait/1")
        with unhindered(), pytest.raises(ValueError, match="a callback"):
            demo.mount.close()
        assert raw.is_closed()
    last.assert_called_once_with()


def test_a_handler_that_does_not_leave_is_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "LEAVE_SECONDS", 0.05)
    release = threading.Event()

    def stubborn() -> bytes:
        return b"late" * release.wait(10)

    mount = hub.mount(app_that(stubborn))
    with Raw(mount.address) as raw:
        raw.send("POST /publish HTTP/1.1\r\nHost: h\r\n\r\n")
        wait_until(lambda: any(c.inside for c in mount.live))
        with pytest.warns(RuntimeWarning, match="still busy 0.05 s after") as caught:
            mount.close()
    text = str(caught[0].message)
    assert "POST /publish" in text
    assert "fakecloud-worker-" in text
    assert "in stubborn" in text
    release.set()
    wait_until(lambda: not mount.live)


def test_a_handler_may_close_its_own_server(hub: Hub, unhindered: Unhindered) -> None:
    done = threading.Event()

    def closes() -> bytes:
        with unhindered():
            mount.close()
        done.set()
        return b""

    mount = hub.mount(app_that(closes))
    with Raw(mount.address) as raw, warnings.catch_warnings():
        warnings.simplefilter("error")
        raw.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert raw.is_closed()
        assert done.wait(10)


def test_resetting_lets_parked_handlers_go(demo: Demo, unhindered: Unhindered) -> None:
    demo.mount.on_reset.append(demo._engine.signal.close)
    with Raw(demo.mount.address) as raw:
        demo.park(raw, "/wait/1")
        with unhindered():
            demo.mount.reset_connections()
        assert raw.is_closed()
    assert fetch(demo.mount, "/echo/x").status == 200


@pytest.fixture(params=[pytest.param(True, marks=linux_only), False])
def stops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a test with listeners that keep their port (Linux) and with ones that are closed."""
    monkeypatch.setattr(hub_module, "CAN_STOP_LISTENING", request.param)
    return bool(request.param)


@pytest.mark.usefixtures("stops")
def test_refusing_and_accepting_again(demo: Demo) -> None:
    for _ in range(3):
        with Raw(demo.mount.address) as raw:
            assert raw.get("/echo/x", "Connection: close").status == 200
            demo.mount.refuse()
            demo.mount.refuse()
            with pytest.raises(ConnectionRefusedError):
                Raw(demo.mount.address)
            demo.mount.listen_again()
            demo.mount.listen_again()
    assert fetch(demo.mount, "/echo/x").status == 200
    demo.mount.refuse()
    demo.close()


@pytest.mark.skipif(
    sys.platform == "win32", reason="a connection keeps its port until it is closed"
)
@pytest.mark.usefixtures("stops")
def test_a_connection_that_no_worker_serves_yet_does_not_keep_the_port(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Callable[[], None]] = []
    monkeypatch.setattr(hub.workers, "submit", lambda job, abandon: jobs.append(job))
    mount = hub.mount(hello)
    with Raw(mount.address):
        wait_until(lambda: len(jobs) == 1)
        mount.refuse()
        mount.listen_again()
    with Raw(mount.address):
        wait_until(lambda: len(jobs) == 2)
        mount.close()
        hub.mount(hello, port=mount.port)
    for job in jobs:
        job()


def test_a_port_that_is_still_taken_is_asked_for_again(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "CAN_STOP_LISTENING", False)
    demo.mount.refuse()
    bind, refusals = demo.mount.hub.bind, iter([True, True, False])

    def late(host: str, port: int) -> tuple[socket.socket, int]:
        if next(refusals):
            raise ContractError("taken")
        return bind(host, port)

    monkeypatch.setattr(demo.mount.hub, "bind", late)
    demo.mount.listen_again()
    assert fetch(demo.mount, "/echo/x").status == 200


def test_a_port_that_somebody_else_took_is_told(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "CAN_STOP_LISTENING", False)
    monkeypatch.setattr(hub_module, "LEAVE_SECONDS", 0.05)
    demo.mount.refuse()
    taken = pytest.raises(ContractError, match="cannot listen on port")
    with socket.create_server(demo.mount.address), taken:
        demo.mount.listen_again()
    demo.mount.listen_again()
    assert fetch(demo.mount, "/echo/x").status == 200


@linux_only
def test_closing_leaves_no_port_in_time_wait(hub: Hub) -> None:
    mount = hub.mount(hello)
    with Raw(mount.address) as raw:
        raw.get("/")
        mount.close()
        raw.is_closed()
        wait_until(lambda: not mount.live)
    local = f"0100007F:{mount.port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        assert not [line for line in table if line.split()[1] == local]


# -- the acceptor --------------------------------------------------------------------------------


def test_a_broken_socket_does_not_end_the_hub(hub: Hub) -> None:
    good, bad = hub.mount(hello), hub.mount(hello)
    bad.listener.close()  # without the hub's knowledge
    third = hub.mount(hello)
    for mount in (good, third):
        assert fetch(mount).body == b"hello"
    bad.close()


def test_a_descriptor_closed_under_the_hub_does_not_end_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "DefaultSelector", selectors.SelectSelector)
    good, bad = hub.mount(hello), hub.mount(hello)
    socket.close(bad.listener.detach())
    assert fetch(good).body == b"hello"
    assert fetch(hub.mount(hello)).body == b"hello"


def test_a_select_based_hub_is_woken_for_new_sockets(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "DefaultSelector", selectors.SelectSelector)
    hub.mount(hello)
    time.sleep(0.02)  # the hub's thread is inside select() now
    for _ in range(20):
        with closing(hub.mount(hello)) as mount, Raw(mount.address) as raw:
            assert raw.get("/").body == b"hello"
    loop = hub._loop
    hub.stop()
    assert loop is not None
    assert loop.over.wait(20)


class _Listener:
    """A listening socket whose accept fails a given number of times."""

    def __init__(self, sock: socket.socket, errors: list[OSError]) -> None:
        self.sock = sock
        self.errors = errors

    def accept(self) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return self.sock.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)


def test_running_out_of_descriptors_is_survived_and_told_once(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    mount = hub.mount(hello)
    errors = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]
    mount.listener = _Listener(mount.listener, errors)  # type: ignore[assignment]
    assert fetch(mount).body == b"hello"
    assert errors == []
    output = capfd.readouterr().err
    assert output.count("cannot accept a connection: Too many open files") == 1
    assert repr(mount) in output
    assert "ulimit -n" in output


_FEW_DESCRIPTORS = """
import resource, socket, threading, time
from pytest_fakecloud.http.hub import Hub
from pytest_fakecloud.http.messages import Answer
from tests.demo import FunctionApp

hub = Hub()
mount = hub.mount(FunctionApp(lambda request: Answer(b"hello")))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
clients = []
try:
    while True:
        clients.append(socket.create_connection(mount.address, 5))
except OSError:
    pass
before = time.process_time()
threading.Event().wait(0.5)
assert time.process_time() - before < 0.2, "the hub is busy with nothing"
while len(clients) > 2:
    clients.pop().close()
clients[0].sendall(b"GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")
assert b"hello" in clients[0].recv(1000)
deadline = time.monotonic() + 5
while len(mount.live) > 2 and time.monotonic() < deadline:
    threading.Event().wait(0.01)
with socket.create_connection(mount.address, 5) as another:
    another.sendall(b"GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")
    assert b"hello" in another.recv(1000)
hub.stop()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are not limited there")
def test_a_process_at_its_limit_of_descriptors_recovers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FEW_DESCRIPTORS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Too many open files" in done.stderr
    assert done.stderr.count("cannot accept") <= 3


def test_a_connection_that_was_reset_before_it_is_accepted(hub: Hub) -> None:
    mount = hub.mount(hello)
    errors: list[OSError] = [ConnectionAbortedError(errno.ECONNABORTED, "gone")]
    mount.listener = _Listener(mount.listener, errors)  # type: ignore[assignment]
    assert fetch(mount).body == b"hello"


def test_when_no_thread_can_be_started_the_connection_ends(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = hub.mount(hello)

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("pytest_fakecloud.core.threads.start_thread", start)
        with Raw(mount.address) as raw:
            assert raw.is_closed()
    assert len(hub.workers.threads) == 0
    assert fetch(mount).body == b"hello"


def test_what_nobody_takes_is_printed(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(connection: Connection, data: bytes) -> bool:
        raise KeyError("no such command")

    mount = hub.mount(None, protocol=handled_by(broken))
    with Raw(mount.address) as raw:
        raw.send("x")
        assert raw.is_closed()
    wait_until(lambda: not mount.live)
    assert "KeyError: 'no such command'" in capfd.readouterr().err


def test_not_even_pytest_fail_ends_a_worker(hub: Hub) -> None:
    taken: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    app = app_that(lambda: pytest.fail("said the handler"))
    mount = hub.mount(app)
    with Raw(mount.address) as raw:
        assert raw.get("/").status == 500
        assert raw.get("/").status == 500
    assert ["said the handler" in violation.text for violation in app.violations] == [True] * 2

    def protocol(connection: Connection, data: bytes) -> bool:
        pytest.fail("said the protocol")

    mount = hub.mount(None, protocol=handled_by(protocol))
    mount.on_error.append(taken.put)
    for _ in range(3):
        with Raw(mount.address) as raw:
            raw.send("x")
            assert raw.is_closed()
    wait_until(lambda: len(hub.workers.idle) == len(hub.workers.threads) > 0)


def test_a_socket_that_cannot_be_made_for_a_while(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    mount = hub.mount(hello)
    forbidden: list[Any] = [RuntimeError("a test tried to use socket.socket")] * 2
    mount.listener = _Listener(mount.listener, forbidden)  # type: ignore[assignment]
    assert fetch(mount).body == b"hello"
    assert "tried to use socket.socket" in capfd.readouterr().err


def test_a_protocol_of_its_own(hub: Hub) -> None:
    def shout(connection: Connection, data: bytes) -> bool:
        connection.sock.sendall(data.upper())
        return True

    mount = hub.mount("an engine", protocol=handled_by(shout))
    assert mount.app == "an engine"
    with Raw(mount.address) as raw:
        raw.send("hello\n")
        assert raw.sock.recv(100) == b"HELLO\n"
        mount.close()
        assert raw.is_closed()


def test_a_request_that_comes_while_the_mount_closes_does_not_reach_the_app(hub: Hub) -> None:
    connection = Connection(socket.socket(), None, hub.mount(hello))
    assert connection.enter("before")
    connection.leave()
    connection.end()
    assert not connection.enter("after")
    assert not connection.inside
    connection.sock.close()


# -- workers -------------------------------------------------------------------------------------


def test_the_pool_grows_while_handlers_are_parked(demo: Demo) -> None:
    # Two hundred long polls are open, and each request that feeds them needs a worker.
    raws = [Raw(demo.mount.address) for _ in range(200)]
    try:
        for raw in raws:
            raw.send("GET /wait/5 HTTP/1.1\r\nHost: h\r\n\r\n")
        for _ in raws:
            assert demo._engine.parked.acquire(timeout=30)
        for number in range(5):
            with Raw(demo.mount.address) as other:
                assert other.get(f"/add/{number}", method="POST").status == 200
        for raw in raws:
            assert json.loads(raw.reply().body)["words"] == ["0", "1", "2", "3", "4"]
    finally:
        for raw in raws:
            raw.sock.close()


def test_no_job_is_lost_while_the_pool_shrinks() -> None:
    pool = WorkerPool(keep=0, linger=0.0005, spare=3)
    ran = threading.Semaphore(0)
    for number in range(2000):
        pool.submit(ran.release, lambda: None)
        if number % 7 == 0:
            time.sleep(0.0006)
    for _ in range(2000):
        assert ran.acquire(timeout=10)
    wait_until(lambda: len(pool.threads) == 0)
    assert len(pool.idle) == 0


@pytest.mark.parametrize("is_used", [False, True])
def test_a_dropped_mount_gives_its_address_up(hub: Hub, is_used: bool) -> None:
    mount = hub.mount(hello)
    address, live, reference = mount.address, mount.live, weakref.ref(mount)
    if is_used:
        with Raw(address) as raw:  # The hub has served nothing else since.
            assert raw.get("/").body == b"hello"
        wait_until(lambda: not live)
    del mount
    gc.collect()
    wait_until(lambda: reference() is None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address).close()


# -- stress --------------------------------------------------------------------------------------


@linux_only
def test_ten_thousand_mounts_leave_no_descriptor_and_no_thread(hub: Hub) -> None:
    hub.mount(hello).close()
    gc.collect()
    before = descriptors(), threading.active_count()
    for _ in range(10_000):
        hub.mount(hello).close()
    after = descriptors(), threading.active_count()
    # Fewer is fine: workers of earlier tests may have ended.
    assert after <= before
    assert after[1] <= before[1]
    assert not hub.open_mounts()


@linux_only
def test_mounts_that_were_used_leave_no_descriptor(hub: Hub) -> None:
    def use() -> None:
        with closing(hub.mount(hello)) as mount, Raw(mount.address) as raw:
            assert raw.get("/").body == b"hello"
            Raw(mount.address).sock.close()
        wait_until(lambda: not mount.live)

    use()
    wait_until(lambda: len(hub.workers.idle) == len(hub.workers.threads))
    before = descriptors()
    for _ in range(300):
        use()
    assert descriptors() == before
    assert len(hub.workers.threads) <= 5


@pytest.mark.slow
def test_no_request_is_answered_by_another_mounts_app(hub: Hub) -> None:
    # Four threads mount apps and send requests. Their clients outlive the mounts and keep sending.
    rounds, stop = cases(20), time.monotonic() + 60
    answered = [0] * 4
    wrong: list[str] = []

    def hammer(number: int) -> None:
        round_ = 0
        while (round_ < rounds or answered[number] <= 20) and not wrong:
            assert time.monotonic() < stop
            round_ += 1
            name = f"{number}-{round_}"
            mount = hub.mount(app_that(name.encode))
            closer = threading.Timer(0.002, mount.close)
            closer.start()
            raw = None
            try:
                for _ in range(200):
                    if raw is None:
                        raw = Raw(mount.address)
                    reply = raw.get("/")
                    if reply.body != name.encode():
                        wrong.append(f"{name} got {reply}")
                    answered[number] += 1
            except (OSError, EOFError):
                pass
            finally:
                if raw is not None:
                    raw.sock.close()
                closer.join()

    in_threads(*(partial(hammer, number) for number in range(4)))
    assert wrong == []
    assert all(count > 20 for count in answered)
    wait_until(lambda: len(hub.workers.idle) == len(hub.workers.threads))
    assert fetch(hub.mount(hello)).body == b"hello"


def test_clients_that_vanish_at_any_point(demo: Demo) -> None:
    request = b"POST /add/w HTTP/1.1\r\nHost: h\r\nContent-Length: 300\r\n\r\n" + b"x" * 300
    for position in range(0, len(request) + 1, 7):
        with Raw(demo.mount.address) as raw:
            raw.send(request[:position])
            if position % 2:
                raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    wait_until(lambda: not demo.mount.live)
    assert len(demo.app.seen) <= 1  # only a complete request counts
    assert fetch(demo.mount, "/echo/x").status == 200
    assert demo.context.violations == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_parents_fakes_alone_and_has_its_own() -> None:
    with Demo() as demo, Raw(demo.mount.address) as connection:
        connection.get("/echo/x")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            verdict = b"failed"
            try:
                with Raw(demo.mount.address) as raw:  # served by the parent
                    ok = raw.get("/add/child", method="POST").status == 200
                with Demo() as own, Raw(own.mount.address) as raw:  # served by the child
                    ok = ok and raw.get("/echo/y").status == 200
                demo.close()
                verdict = b"fine" if ok else b"wrong"
            finally:
                os.write(write, verdict)
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 100) == b"fine"
        os.close(read)
        os.close(write)
        assert demo.words == ["child"]
        assert connection.get("/echo/x").status == 200
        assert fetch(demo.mount, "/echo/x").status == 200


@linux_only
def test_a_forked_child_does_not_keep_the_port() -> None:
    with Demo() as demo:
        theirs, ours = socket.socketpair()
        with theirs, ours:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                theirs.sendall(b"here")
                ours.close()
                theirs.recv(1)
                os._exit(0)
            assert ours.recv(4) == b"here"
            demo.close()
            with pytest.raises(ConnectionRefusedError):
                Raw(demo.mount.address)
        os.waitpid(child, 0)


def test_a_host_may_be_given_as_a_complete_name(hub: Hub) -> None:
    mount = hub.mount(hello, host="localhost.")
    assert mount.url == f"http://localhost:{mount.port}"
    with Raw(mount.address) as raw:
        assert raw.ask("GET / HTTP/1.1\r\nHost: localhost.\r\n\r\n").body == b"hello"
