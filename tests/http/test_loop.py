"""Connections that the hub's thread serves, in the order in which bytes arrive."""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pytest_fakecloud.core.threads import step_aside
from pytest_fakecloud.http import hub as hub_module
from pytest_fakecloud.http.hub import Hub, Mount
from pytest_fakecloud.http.loop import SEND_BYTES
from pytest_fakecloud.http.messages import Answer
from pytest_fakecloud.http.server import Connection, HTTPHandler
from tests.budget import cases
from tests.demo import FunctionApp
from tests.harness import wait_until
from tests.interruptions import interrupted, places, with_handler

Handle = Callable[[Connection, bytes], None]
SELECTORS = [
    getattr(selectors, name)
    for name in ("EpollSelector", "KqueueSelector", "PollSelector", "SelectSelector")
    if hasattr(selectors, name)
]
tells_order = pytest.mark.skipif(
    selectors.DefaultSelector.__name__ not in ("EpollSelector", "KqueueSelector"),
    reason="poll and select list sockets by number, and not in the order of arrival",
)


class Recorder:
    """The handler of a connection that passes what it receives to a function."""

    is_unfinished = False

    def __init__(self, handle: Handle, connection: Connection) -> None:
        self.handle = handle
        self.connection = connection
        self.ended = threading.Event()
        self.closed = threading.Event()

    def receive(self, data: bytes) -> bool:
        if data.startswith(b"GET / HTTP"):
            return self.connection.switch(HTTPHandler, data)
        self.handle(self.connection, data)
        return data != b"quit"

    def renew(self) -> bool:
        return True

    def end(self) -> None:
        self.ended.set()

    def close(self) -> None:
        self.closed.set()


class Served:
    """Mounts whose connections a hub's thread serves with a function, and their clients."""

    def __init__(self, hub: Hub, stack: contextlib.ExitStack) -> None:
        self.hub = hub
        self._stack = stack
        self.handlers: list[Recorder] = []

    def mount(self, handle: Handle, **options: Any) -> Mount:
        def protocol(connection: Connection) -> Recorder:
            self.handlers.append(Recorder(handle, connection))
            return self.handlers[-1]

        app = FunctionApp(lambda request: Answer(b"hello"))
        mount = self.hub.mount(app, protocol=protocol, is_in_loop=True, **options)
        self._stack.callback(mount.close)
        return mount

    def clients(self, count: int, handle: Handle) -> list[socket.socket]:
        """Return connected sockets, the bytes of which a function receives."""
        mount = self.mount(handle)
        sockets = [self.client(mount) for _ in range(count)]
        wait_until(lambda: sum(c.handler is not None for c in mount.live.copy()) == count)
        return sockets

    def client(self, mount: Mount) -> socket.socket:
        return self._stack.enter_context(socket.create_connection(mount.address, timeout=10))


@pytest.fixture(params=SELECTORS)
def any_selector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with each selector of this system."""
    monkeypatch.setattr(selectors, "DefaultSelector", request.param)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    # Keep the order on a busy machine, too.
    monkeypatch.setattr(hub_module, "PATIENCE_SECONDS", 60.0)
    hub = Hub()
    with contextlib.ExitStack() as stack:
        stack.callback(hub.stop)
        yield Served(hub, stack)


@tells_order
def test_bytes_are_handled_in_the_order_of_arrival(served: Served) -> None:
    handled: list[bytes] = []
    sockets = served.clients(6, lambda connection, data: handled.append(data))
    choice = random.Random(1)
    for number in range(cases(300)):
        sent = [b"%d:%d" % (number, at) for at in range(choice.randint(2, 6))]
        for sock, data in zip(choice.sample(sockets, len(sent)), sent, strict=True):
            sock.sendall(data)
        served.hub.catch_up()
        assert handled == sent
        handled.clear()


@tells_order
def test_bytes_that_are_read_together_have_the_place_of_the_first(served: Served) -> None:
    started, go_on = threading.Event(), threading.Event()
    handled: list[bytes] = []

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"wait":
            started.set()
            assert go_on.wait(10)
        handled.append(data)

    busy, first, second = served.clients(3, handle)
    busy.sendall(b"wait")
    assert started.wait(10)
    for sock, data in ((first, b"a"), (second, b"b"), (first, b"c")):
        sock.sendall(data)
    go_on.set()
    served.hub.catch_up()
    assert handled == [b"wait", b"ac", b"b"]


@pytest.mark.usefixtures("any_selector")
def test_other_connections_overtake_a_handler_that_steps_aside(served: Served) -> None:
    woken = threading.Event()
    handled: list[bytes] = []

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"wait":
            step_aside()
            assert woken.wait(10)
        elif data == b"wake":
            woken.set()
        handled.append(data)

    waiting, other = served.clients(2, handle)
    for _ in range(20):
        handled.clear()
        woken.clear()
        waiting.sendall(b"wait")
        other.sendall(b"wake")
        wait_until(lambda: sorted(handled) == [b"wait", b"wake"])
        # Afterwards, the hub's thread serves both again.
        for sock in (waiting, other):
            sock.sendall(b"%d" % sock.fileno())
            wait_until(lambda: handled[-1] == b"%d" % sock.fileno())  # noqa: B023


def test_two_threads_serve_any_number_of_connections(served: Served) -> None:
    before = threading.active_count()
    sockets = served.clients(200, lambda connection, data: connection.write(data))
    for sock in sockets:
        sock.sendall(b"a")
        assert sock.recv(9) == b"a"
    assert threading.active_count() - before <= 2


def test_bytes_that_arrive_while_a_handler_is_aside_are_handled_after_it(served: Served) -> None:
    handled: list[bytes] = []

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"wait":
            step_aside()
            wait_until(lambda: connection.early == b"early")
        handled.append(data)

    (sock,) = served.clients(1, handle)
    sock.sendall(b"wait")
    (connection,) = (handler.connection for handler in served.handlers)
    wait_until(lambda: connection.is_aside)  # type: ignore[attr-defined]
    sock.sendall(b"early")
    wait_until(lambda: handled == [b"wait", b"early"])


def test_a_client_that_leaves_ends_the_wait_of_its_handler(served: Served) -> None:
    def handle(connection: Connection, data: bytes) -> None:
        step_aside()
        assert served.handlers[0].ended.wait(10)

    (sock,) = served.clients(1, handle)
    sock.sendall(b"wait")
    sock.close()
    assert served.handlers[0].closed.wait(10)


def test_a_client_that_leaves_a_hanging_connection_closes_it(served: Served) -> None:
    hanging, other = served.clients(
        2, lambda connection, data: connection.hang() if data == b"hang" else connection.write(data)
    )
    hanging.sendall(b"hang")
    other.sendall(b"a")
    assert other.recv(9) == b"a"
    hanging.close()
    wait_until(lambda: any(handler.closed.is_set() for handler in served.handlers))


@pytest.mark.usefixtures("any_selector")
@pytest.mark.parametrize("way", ["by the handler", "by a function", "by the client"])
def test_one_thread_leads_after_a_connection_waits_while_it_closes(
    served: Served, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    over, has_led = threading.Event(), []

    def close(handler: Recorder) -> None:
        step_aside()
        assert over.wait(10)
        handler.closed.set()

    def handle(connection: Connection, data: bytes) -> None:
        has_led.append(served.hub.leads())
        connection.write(data)

    closing, other = served.clients(2, handle)
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "close", close)
        if way == "by the handler":
            closing.sendall(b"quit")
        elif way == "by a function":
            served.hub.later(served.handlers[0].connection.close)  # type: ignore[attr-defined]
            served.hub.later(lambda: has_led.append(served.hub.leads()))
            wait_until(lambda: len(has_led) == 1)
        else:
            closing.close()
        for _ in range(2):
            for _ in range(20):
                other.sendall(b"a")
                assert other.recv(9) == b"a"
            over.set()
            assert served.handlers[0].closed.wait(10)
    assert all(has_led)


def test_a_handler_does_not_wait_for_its_own_bytes(served: Served) -> None:
    handled: list[bytes] = []

    def handle(connection: Connection, data: bytes) -> None:
        served.hub.catch_up()
        handled.append(data)

    for sock in served.clients(2, handle):
        sock.sendall(b"a")
    served.hub.catch_up()
    assert handled == [b"a", b"a"]


def test_a_handler_goes_on_in_the_hubs_thread_if_the_system_refuses_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(connection: Connection, data: bytes) -> None:
        step_aside()
        connection.write(data)

    sockets = served.clients(2, handle)
    monkeypatch.setattr(served.hub.workers, "submit", lambda job, abandon: abandon())
    for sock in sockets * 2:
        sock.sendall(b"a")
        assert sock.recv(9) == b"a"


def test_nothing_waits_for_a_call_that_a_signal_has_interrupted(served: Served) -> None:
    handled: list[bytes] = []
    (sock,) = served.clients(1, lambda connection, data: handled.append(data))
    reached = places(served.hub.catch_up)
    assert len(reached) > 3
    for place in reached:
        handled.clear()
        assert interrupted(served.hub.catch_up, place)
        sock.sendall(b"a")
        served.hub.catch_up()
        assert handled == [b"a"], place
    assert not served.hub._awaited


def test_a_handler_of_a_signal_can_call_the_fake(served: Served) -> None:
    served.clients(1, lambda connection, data: None)
    moments: list[int] = []

    def call() -> None:
        moments.append(with_handler(served.hub.catch_up, served.hub.catch_up))

    # The handler of a signal that waits for its own thread would wait forever.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(10)
    assert moments
    assert moments[0] > 3


class Authority:
    """The TLS context of a mount, and that of clients that trust it."""

    def __init__(self) -> None:
        trustme = pytest.importorskip("trustme")
        authority = trustme.CA()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self.server)
        self._client = ssl.create_default_context()
        authority.configure_trust(self._client)

    def secure(self, sock: socket.socket) -> ssl.SSLSocket:
        return self._client.wrap_socket(sock, server_hostname="127.0.0.1")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.usefixtures("any_selector")
@pytest.mark.parametrize("tls", [False, True])
def test_a_client_that_does_not_read_holds_nobody_up(
    served: Served, tls: bool, authority: Authority
) -> None:
    large = bytes(range(256)) * 100_000

    def handle(connection: Connection, data: bytes) -> None:
        connection.write(large if data == b"large" else data)

    mount = served.mount(handle, tls=authority.server if tls else None)
    slow, other = [served.client(mount) for _ in range(2)]
    if tls:
        slow, other = authority.secure(slow), authority.secure(other)
    slow.sendall(b"large")
    for _ in range(20):
        other.sendall(b"a")
        assert other.recv(9) == b"a"
    received = bytearray()
    while len(received) < len(large):
        received += slow.recv(1_000_000)
    assert received == large
    for sock in (slow, other):
        sock.close()


class Repeating(Recorder):
    """A handler that writes a large response in several turns."""

    left = 0

    def receive(self, data: bytes) -> bool:
        self.left += 300 * data.count(b"x")
        self.left -= 1
        self.connection.write(b"y" * 100_000)
        self.is_unfinished = self.left > 0
        return True


def test_requests_wait_until_the_client_has_taken_what_was_sent(served: Served) -> None:
    app = FunctionApp(lambda request: Answer(b""))
    mount = served.hub.mount(
        app, protocol=partial(Repeating, lambda connection, data: None), is_in_loop=True
    )
    sock = served.client(mount)
    sock.sendall(b"x")
    wait_until(lambda: any(connection.unsent_bytes > SEND_BYTES for connection in mount.live))
    (connection,) = mount.live
    assert connection.unsent_bytes < SEND_BYTES + 200_000
    received = 0
    while received < 300 * 100_000:
        received += len(sock.recv(1_000_000))
        assert connection.unsent_bytes < SEND_BYTES + 200_000
    # The connection is read again.
    sock.sendall(b"x")
    assert sock.recv(1) == b"y"
    mount.close()


@pytest.mark.usefixtures("any_selector")
@pytest.mark.parametrize("state", ["idle", "aside", "hanging", "not reading", "shaking hands"])
def test_a_mount_closes_in_each_state_of_its_connections(
    state: str, served: Served, authority: Authority
) -> None:
    over = threading.Event()

    def handle(connection: Connection, data: bytes) -> None:
        if state == "aside":
            step_aside()
            assert over.wait(10)
        elif state == "hanging":
            connection.hang()
        elif state == "not reading":
            connection.write(bytes(20_000_000))

    context = authority.server if state == "shaking hands" else None
    mount = served.mount(handle, tls=context)
    mount.on_stop.append(over.set)
    sock = served.client(mount)
    wait_until(lambda: len(served.handlers) == 1)
    if state != "idle":
        sock.sendall(b"\x16\x03" if context else b"a")
        (connection,) = mount.live
        states: dict[str, Callable[[], object]] = {
            "not reading": lambda: connection.unsent_bytes,
            "shaking hands": lambda: True,
        }
        wait_until(states.get(state, lambda: connection.is_aside))  # type: ignore[attr-defined]
    mount.close()
    with contextlib.suppress(ConnectionError):
        while sock.recv(1_000_000):
            pass
    assert served.handlers[0].closed.wait(10)
    wait_until(lambda: not mount.live)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(mount.address)


def test_a_client_that_shakes_no_hands_holds_nobody_up(
    served: Served, authority: Authority
) -> None:
    mount = served.mount(lambda connection, data: connection.write(data), tls=authority.server)
    silent, other = served.client(mount), served.client(mount)
    silent.sendall(b"\x16\x03\x01")
    with authority.secure(other) as secured:
        secured.sendall(b"a")
        assert secured.recv(9) == b"a"


def test_a_connection_can_switch_to_http(served: Served) -> None:
    mount = served.mount(lambda connection, data: connection.write(data))
    sock = served.client(mount)
    for _ in range(2):
        sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert sock.recv(1000).endswith(b"hello")
    mount.close()
    with contextlib.suppress(ConnectionError):
        assert sock.recv(9) == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("any_selector")
def test_a_forked_child_leaves_connections_in_each_state_to_its_parent(served: Served) -> None:
    over = threading.Event()

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"wait":
            step_aside()
            assert over.wait(10)
        connection.write(bytes(20_000_000) if data == b"fill" else data)

    idle, waiting, filled = served.clients(3, handle)
    waiting.sendall(b"wait")
    filled.sendall(b"fill")
    wait_until(lambda: sum(handler.connection.unsent_bytes > 0 for handler in served.handlers))
    waiting_connection = served.handlers[1].connection
    wait_until(lambda: waiting_connection.is_aside)  # type: ignore[attr-defined]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with contextlib.ExitStack() as stack:
                (sock,) = Served(served.hub, stack).clients(1, handle)
                sock.sendall(b"of the child")
                status = int(sock.recv(99) != b"of the child")
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    idle.sendall(b"of the parent")
    assert idle.recv(99) == b"of the parent"
    received = 0
    while received < 20_000_000:
        received += len(filled.recv(1_000_000))
    over.set()
    assert waiting.recv(99) == b"wait"


def test_an_exception_of_a_handler_ends_its_connection_only(served: Served) -> None:
    errors: list[BaseException] = []

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"fail":
            pytest.fail("on purpose")
        connection.write(data)

    mount = served.mount(handle)
    mount.on_error.append(errors.append)
    failing, other = served.client(mount), served.client(mount)
    failing.sendall(b"fail")
    assert failing.recv(9) == b""
    other.sendall(b"a")
    assert other.recv(9) == b"a"
    assert [str(error) for error in errors] == ["on purpose"]


def test_a_stopped_hub_closes_its_connections(served: Served) -> None:
    (sock,) = served.clients(1, lambda connection, data: connection.write(data))
    served.hub.stop()
    with contextlib.suppress(ConnectionError):
        assert sock.recv(9) == b""
    assert served.handlers[0].closed.wait(10)
    served.hub.catch_up()
