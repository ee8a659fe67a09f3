"""The turns of connections, in the order in which bytes arrive."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from pytest_fakecloud.http import arrivals as arrivals_module
from pytest_fakecloud.http.arrivals import Arrivals
from pytest_fakecloud.http.hub import Hub
from pytest_fakecloud.http.messages import Answer
from pytest_fakecloud.http.server import Connection
from tests.budget import cases
from tests.demo import FunctionApp
from tests.harness import wait_until
from tests.interruptions import interrupted, places, with_handler

Handle = Callable[[Connection, bytes], None]

needs_epoll = pytest.mark.skipif(
    arrivals_module._epoll is None, reason="only epoll tells the order of arrival"
)


class Recorder:
    """The handler of a connection that passes what it receives to a function."""

    def __init__(self, handle: Handle, connection: Connection) -> None:
        self.handle = handle
        self.connection = connection

    def receive(self, data: bytes) -> bool:
        self.handle(self.connection, data)
        return data != b"quit"

    def renew(self) -> bool:
        return True

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass


class HeldHandler:
    """Notes the bytes that it handles. At ``held``, it waits until it may go on."""

    def __init__(self, held: bytes) -> None:
        self.held = held
        self.started, self.go_on = threading.Event(), threading.Event()
        self.handled: list[bytes] = []

    def __call__(self, connection: Connection, data: bytes) -> None:
        if data == self.held:
            self.started.set()
            self.go_on.wait(10)
        self.handled.append(data)


Clients = Callable[[int, Handle], list[socket.socket]]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the order on a busy machine, too."""
    monkeypatch.setattr(arrivals_module, "PATIENCE_SECONDS", 60.0)


@pytest.fixture
def arrivals() -> Arrivals:
    return Arrivals()


@pytest.fixture
def clients(arrivals: Arrivals) -> Iterator[Clients]:
    """Return connected sockets, the bytes of which a function receives."""
    hub = Hub()
    with contextlib.ExitStack() as stack:
        stack.callback(hub.stop)

        def connect(count: int, handle: Handle) -> list[socket.socket]:
            mount = hub.mount(
                FunctionApp(lambda request: Answer(b"")),
                protocol=partial(Recorder, handle),
                arrivals=arrivals,
            )
            stack.callback(mount.close)
            sockets = [
                stack.enter_context(socket.create_connection(mount.address)) for _ in range(count)
            ]
            wait_until(lambda: sum(c.handler is not None for c in mount.live.copy()) == count)
            return sockets

        yield connect


@needs_epoll
def test_connections_handle_bytes_in_the_order_of_arrival(
    clients: Clients, arrivals: Arrivals
) -> None:
    handled: list[bytes] = []
    sockets = clients(6, lambda connection, data: handled.append(data))
    choice = random.Random(1)
    for number in range(cases(300)):
        sent = [b"%d:%d" % (number, at) for at in range(choice.randint(2, 6))]
        for sock, data in zip(choice.sample(sockets, len(sent)), sent, strict=True):
            sock.sendall(data)
        arrivals.catch_up()
        assert handled == sent
        handled.clear()


@needs_epoll
def test_bytes_that_are_read_together_have_the_place_of_the_first(
    clients: Clients, arrivals: Arrivals
) -> None:
    handler = HeldHandler(b"wait")
    waiting, first, second = clients(3, handler)
    for sock, data in ((waiting, b"wait"), (first, b"a"), (second, b"b"), (first, b"c")):
        sock.sendall(data)
    handler.go_on.set()
    arrivals.catch_up()
    assert handler.handled == [b"wait", b"ac", b"b"]


@needs_epoll
def test_bytes_that_arrive_during_a_turn_of_their_connection_keep_their_place(
    clients: Clients, arrivals: Arrivals
) -> None:
    handler = HeldHandler(b"wait")
    first, second = clients(2, handler)
    first.sendall(b"wait")
    assert handler.started.wait(10)
    first.sendall(b"a")
    second.sendall(b"b")
    handler.go_on.set()
    arrivals.catch_up()
    assert handler.handled == [b"wait", b"a", b"b"]


@needs_epoll
@pytest.mark.parametrize("way", ["watched", "aside", "unknown"])
def test_other_connections_overtake_a_handler_that_waits(
    way: str, clients: Clients, arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "unknown":
        monkeypatch.setattr(arrivals_module, "PATIENCE_SECONDS", 0.01)
    woken = threading.Event()
    handled: list[bytes] = []

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"wait":
            if way == "aside":
                arrivals.step_aside()
            with connection.watched(woken.set) if way == "watched" else contextlib.nullcontext():
                assert woken.wait(10)
        elif data == b"wake":
            woken.set()
        handled.append(data)

    waiting, other = clients(2, handle)
    waiting.sendall(b"wait")
    other.sendall(b"wake")
    wait_until(lambda: len(handled) == 2)
    monkeypatch.setattr(arrivals_module, "PATIENCE_SECONDS", 60.0)
    # Afterwards, the order is kept again.
    for number in range(50):
        handled.clear()
        waiting.sendall(b"%d" % number)
        other.sendall(b"later")
        arrivals.catch_up()
        assert handled == [b"%d" % number, b"later"]


@needs_epoll
def test_a_handler_does_not_wait_for_its_own_bytes(clients: Clients, arrivals: Arrivals) -> None:
    handled: list[bytes] = []

    def handle(connection: Connection, data: bytes) -> None:
        arrivals.catch_up()
        handled.append(data)

    for sock in clients(2, handle):
        sock.sendall(b"a")
    arrivals.catch_up()
    assert handled == [b"a", b"a"]


@needs_epoll
def test_bytes_that_arrive_early_are_handled_in_a_turn(
    clients: Clients, arrivals: Arrivals
) -> None:
    handler = HeldHandler(b"early")

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"wait":
            with connection.watched(lambda: None):
                wait_until(lambda: connection.early)
        handler(connection, data)

    first, second = clients(2, handle)
    first.sendall(b"wait")
    wait_until(lambda: arrivals._aside)
    first.sendall(b"early")
    assert handler.started.wait(10)
    second.sendall(b"a")
    handler.go_on.set()
    arrivals.catch_up()
    assert handler.handled == [b"wait", b"early", b"a"]


@needs_epoll
def test_nothing_waits_for_a_call_that_a_signal_has_interrupted(
    clients: Clients, arrivals: Arrivals
) -> None:
    started, go_on = threading.Event(), threading.Event()
    handled: list[bytes] = []

    def handle(connection: Connection, data: bytes) -> None:
        if data == b"wait":
            started.set()
            wait_until(lambda: arrivals._sleepers or go_on.is_set())
        handled.append(data)

    first, second = clients(2, handle)

    def begin() -> None:
        handled.clear()
        started.clear()
        go_on.clear()
        first.sendall(b"wait")
        assert started.wait(10)

    begin()
    reached = places(arrivals.catch_up)
    assert len(reached) > 10
    for place in reached:
        begin()
        assert interrupted(arrivals.catch_up, place)
        go_on.set()
        second.sendall(b"a")
        arrivals.catch_up()
        assert handled == [b"wait", b"a"], place
        assert not arrivals._order, place
        assert not arrivals._sleepers, place


@needs_epoll
def test_a_handler_of_a_signal_can_call_the_fake(clients: Clients, arrivals: Arrivals) -> None:
    clients(1, lambda connection, data: None)
    moments: list[int] = []

    def call() -> None:
        moments.append(with_handler(arrivals.catch_up, arrivals.catch_up))

    # The handler of a signal that waits for its own thread would wait forever.
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(10)
    assert moments
    assert moments[0] > 10
    assert not arrivals._order


@needs_epoll
def test_nothing_waits_for_a_connection_that_has_ended(
    clients: Clients, arrivals: Arrivals
) -> None:
    handled: list[bytes] = []
    sockets = clients(12, lambda connection, data: handled.append(data))
    for sock in sockets[:5]:
        sock.sendall(b"quit")
    for sock in sockets[5:10]:
        sock.close()
    for sock in sockets[10:]:
        sock.sendall(b"a")
    arrivals.catch_up()
    assert handled.count(b"a") == 2
    for sock in sockets[10:]:
        sock.sendall(b"quit")
    arrivals.catch_up()
    wait_until(lambda: arrivals._poll is None)
    assert not arrivals._order
    assert not arrivals._aside
    assert not arrivals._sleepers


def no_file_descriptors() -> None:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("epoll", [None, no_file_descriptors])
def test_connections_are_served_where_no_order_is_known(
    epoll: object, clients: Clients, arrivals: Arrivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals_module, "_epoll", epoll)
    handled: list[bytes] = []
    for sock in clients(3, lambda connection, data: handled.append(data)):
        sock.sendall(b"a")
    arrivals.catch_up()
    wait_until(lambda: handled == [b"a"] * 3)
