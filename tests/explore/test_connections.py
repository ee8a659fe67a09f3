"""Connections in memory behave like those of the system: the same code, outside and inside."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import select
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.explore.fakes.gate import Aside

from .conftest import holds

Script = Callable[[KVServer, socket.socket], list[object]]


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def _address(kv: KVServer) -> tuple[str, int]:
    return _place(kv.url)


def _port(kv: KVServer) -> tuple[str, int]:
    """Return the address of the Redis protocol, which answers NOAUTH to a command before AUTH."""
    return _place(kv.database_url)


def _outcome(call: Callable[..., Any], *args: Any) -> object:
    """Return what a call returns, or the kind of its error."""
    try:
        return call(*args)
    except OSError as error:
        return type(error).__name__


def _request(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST / HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _signed(kv: KVServer, body: bytes, *headers: bytes) -> bytes:
    return _request(body, b"Authorization: Bearer " + kv.token.encode(), *headers)


def _read_all(sock: socket.socket, until: bytes) -> bytes:
    received = b""
    while not received.endswith(until):
        data = sock.recv(65_536)
        if not data:
            break
        received += data
    return received


def reads(kv: KVServer, sock: socket.socket) -> list[object]:
    sock.sendall(_ECHO)
    buffer = bytearray(8)
    return [
        sock.recv(0),
        _read_all(sock, b"\r\n").startswith(b"-NOAUTH"),
        sock.sendall(b"PING\r\n"),
        sock.recv(4, socket.MSG_PEEK),
        sock.recv_into(buffer, 3),
        sock.recv_into(memoryview(buffer)[3:]),
        bytes(buffer),
        _read_all(sock, b"\r\n") != b"",
        sock.setblocking(False),
        _outcome(sock.recv, 1),
        sock.settimeout(0.01),
        _outcome(sock.recv, 1),
    ]


def addresses(kv: KVServer, sock: socket.socket) -> list[object]:
    host, port = sock.getsockname()
    return [
        sock.getpeername() == _address(kv),
        host,
        port > 1024,
        _outcome(sock.connect, _address(kv)),
        socket.socket().connect_ex(_address(kv)),
    ]


def parts(kv: KVServer, sock: socket.socket) -> list[object]:
    request = _signed(kv, b'["SET","k","v"]')
    sent = [sock.send(request[:10]), sock.sendmsg([request[10:50], request[50:]]), sock.send(b"")]
    return [sent, _read_all(sock, b"}")[:15]]


def large(kv: KVServer, sock: socket.socket) -> list[object]:
    value = b"x" * 900_000
    sock.sendall(_signed(kv, b'["SET","k","%b"]' % value))
    assert _read_all(sock, b"}").endswith(b'{"result":"OK"}')
    sock.sendall(_signed(kv, b'["GET","k"]'))
    return [len(_read_all(sock, b"}")) > len(value)]


def end(kv: KVServer, sock: socket.socket) -> list[object]:
    sock.sendall(_signed(kv, b'["PING"]', b"Connection: close"))
    return [_read_all(sock, b"never").endswith(b"}"), sock.recv(1)]


def half(kv: KVServer, sock: socket.socket) -> list[object]:
    sock.sendall(_signed(kv, b'["PING"]'))
    sock.shutdown(socket.SHUT_WR)
    return [_read_all(sock, b"never").endswith(b"}"), sock.recv(1)]


def bad(kv: KVServer, sock: socket.socket) -> list[object]:
    sock.sendall(b"GET /\x00 HTTP/1.1\r\n\r\n")
    return [_read_all(sock, b"never")[:12], sock.recv(1)]


def continues(kv: KVServer, sock: socket.socket) -> list[object]:
    whole = _signed(kv, b'["PING"]', b"Expect: 100-continue")
    sock.sendall(whole[: -len(b'["PING"]')])
    first = sock.recv(1024)
    sock.sendall(b'["PING"]')
    return [first, _read_all(sock, b"}")[:15]]


def reset(kv: KVServer, sock: socket.socket) -> list[object]:
    kv.faults.drop()
    sock.sendall(_signed(kv, b'["PING"]'))
    return [_outcome(sock.recv, 1), _outcome(sock.recv, 1), _outcome(sock.send, b"x")]


def lost(kv: KVServer, sock: socket.socket) -> list[object]:
    kv.faults.truncate(keep=3)
    sock.sendall(_signed(kv, b'["PING"]'))
    return [_read_all(sock, b"never")[:9]]


def hangs(kv: KVServer, sock: socket.socket) -> list[object]:
    kv.faults.hang()
    sock.sendall(_signed(kv, b'["PING"]'))
    sock.settimeout(0.05)
    return [_outcome(sock.recv, 1), sock.send(b"x"), _outcome(sock.recv, 1)]


def hangs_the_port(kv: KVServer, sock: socket.socket) -> list[object]:
    password = str(urlsplit(kv.database_url).password).encode()
    sock.sendall(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%b\r\n" % (len(password), password))
    assert _read_all(sock, b"\r\n") == b"+OK\r\n"
    kv.faults.hang()
    sock.sendall(_PING)
    sock.settimeout(0.05)
    return [_outcome(sock.recv, 1), _outcome(sock.recv, 1)]


def refused(kv: KVServer, sock: socket.socket) -> list[object]:
    sock.sendall(_PING)
    assert _read_all(sock, b"\r\n").startswith(b"-NOAUTH ")
    with kv.faults.down():
        # The system ends the old connection with or without an error.
        assert _outcome(sock.recv, 1) in (b"", "ConnectionResetError")
        return [_outcome(socket.socket().connect, _port(kv))]


def polls(kv: KVServer, sock: socket.socket) -> list[object]:
    """Ask as redis-py with hiredis, urllib3 and httpcore do before they use a connection."""
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT)

    def events(timeout: float) -> list[int]:
        return [event for _, event in poll.poll(timeout)]

    def ready(timeout: float) -> list[int]:
        return [*map(len, select.select([sock], [sock.fileno()], [sock], timeout))]

    outcomes: list[object] = [events(5000), ready(60), poll.modify(sock, select.POLLIN)]
    outcomes += [events(0), events(10), sock.sendall(_ECHO), events(5000), ready(60)]
    outcomes += [_read_all(sock, b"\r\n")[:7], events(0), select.select([sock], [], [], 0.01)]
    poll.register(sock.fileno(), select.POLLIN | select.POLLRDHUP)
    outcomes += [sock.shutdown(socket.SHUT_WR), events(5000), ready(60), sock.recv(1)]
    outcomes += [poll.unregister(sock), events(0), _outcome(lambda: poll.poll(1) == [])]
    with pytest.raises(KeyError):
        poll.unregister(sock)
    return outcomes


def loop_sockets(kv: KVServer, sock: socket.socket) -> list[object]:
    async def talk() -> list[object]:
        loop, buffer = asyncio.get_running_loop(), bytearray(100)
        with socket.socket() as own:
            own.setblocking(False)
            await loop.sock_connect(own, ("localhost", _port(kv)[1]))
            await loop.sock_sendall(own, _ECHO)
            first = await loop.sock_recv(own, 2)
            count = await loop.sock_recv_into(own, buffer)
            answer = loop.create_future()
            loop.add_reader(own, lambda: answer.done() or answer.set_result(own.recv(100)))
            loop.add_writer(own, lambda: (loop.remove_writer(own), own.send(_ECHO)))
            replies = [first, bytes(buffer[:count]), await answer]
            loop.remove_reader(own)
            return replies

    return asyncio.run(talk())


def loop_transports(kv: KVServer, sock: socket.socket) -> list[object]:
    async def ask(**options: Any) -> list[object]:
        reader, writer = await asyncio.open_connection(**options)
        peer = writer.get_extra_info("peername")
        writer.write(_ECHO)
        await writer.drain()
        first = await reader.readuntil(b"\r\n")
        writer.write_eof()
        rest = await reader.read()
        writer.close()
        await writer.wait_closed()
        return [peer == _port(kv), first, rest]

    async def talk() -> list[object]:
        host, port = _port(kv)
        return [
            await ask(sock=sock),
            await ask(host="localhost", port=port, happy_eyeballs_delay=0.1),
            await ask(host="localhost", port=port, family=socket.AF_INET),
            await ask(host=host, port=port, local_addr=(host, 0)),
        ]

    return asyncio.run(talk())


def files(kv: KVServer, sock: socket.socket) -> list[object]:
    async def talk(file: Any) -> list[object]:
        reader, writer = await asyncio.open_connection(*_port(kv))
        count = await asyncio.get_running_loop().sendfile(writer.transport, file)
        answers = [count, await reader.readuntil(b"\r\n")]
        writer.close()
        await writer.wait_closed()
        return answers

    with tempfile.TemporaryFile() as file, sock.makefile("rwb") as lines:
        file.write(_ECHO)
        file.seek(0)
        lines.write(_ECHO)
        lines.flush()
        replies = [lines.readline(), asyncio.run(talk(file))]
        file.seek(0)
        return [*replies, sock.sendfile(file), lines.readline()]


_poll_only = pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="Linux has it")
_selector_only = pytest.mark.skipif(sys.platform == "win32", reason="loops there lack add_reader()")
_ECHO = b"*2\r\n$4\r\nECHO\r\n$6\r\nabcdef\r\n"
_PING = b"*1\r\n$4\r\nPING\r\n"
OVER_HTTP: list[Any] = [
    reads, addresses, parts, large, end, half, bad, continues, reset, lost, hangs,
]  # fmt: skip
OVER_REDIS: list[Any] = [
    hangs_the_port, refused, loop_transports, files,
    pytest.param(loop_sockets, marks=_selector_only),
    pytest.param(polls, marks=_poll_only),
]  # fmt: skip


@pytest.mark.parametrize("script", OVER_HTTP)
def test_a_socket_behaves_as_outside(script: Script) -> None:
    _compare(script, _address)


@pytest.mark.parametrize("script", OVER_REDIS)
def test_a_socket_behaves_as_outside_over_the_redis_protocol(script: Script) -> None:
    _compare(script, _port)


def _compare(script: Script, address: Callable[[KVServer], tuple[str, int]]) -> None:
    results: list[list[object]] = []
    for explores in (False, True):
        with Cloud(seed=1, delivery="driven") as cloud:
            kv = cloud.kv_server()

            def run(kv: KVServer = kv) -> None:
                with socket.create_connection(address(kv)) as sock:
                    results.append(script(kv, sock))

            if explores:
                cloud.explore(run, holds, schedule="")
            else:
                run()
    assert len(results) == 2
    assert results[1] == results[0]


def test_two_threads_may_wait_for_one_step_of_a_thread_aside() -> None:
    aside, both_wait = Aside(), threading.Barrier(3)
    threads = [
        threading.Thread(target=aside.resume, args=(both_wait.wait,), daemon=True) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    both_wait.wait(5)
    aside.step_back()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


def test_no_subscription_outlives_its_run(cloud: Cloud, kv: KVServer) -> None:
    counts: list[int] = []
    client = redis.Redis.from_url(kv.database_url)

    def listen() -> None:
        listener = client.pubsub()
        listener.subscribe("news")
        listener.get_message(timeout=1)
        listener.close()

    def talk() -> None:
        counts.append(client.publish("news", "hello"))

    gc.disable()  # The collector might free a listener whose client has crashed.
    try:
        cloud.explore([listen, talk], holds, budget=60, trust=False)
    finally:
        gc.enable()
    client.close()
    assert {*counts} == {0, 1}


def test_a_stream_lets_others_run(cloud: Cloud, kv: KVServer) -> None:
    chunks: list[bytes] = []

    def listen() -> None:
        connection = http.client.HTTPConnection(*_address(kv), timeout=30)
        with contextlib.closing(connection):
            headers = {"Authorization": f"Bearer {kv.token}", "Accept": "text/event-stream"}
            connection.request("POST", "/subscribe/news", headers=headers)
            lines = iter(connection.getresponse().readline, b"")
            chunks.append(next(line for line in lines if b"message" in line))

    def talk() -> None:
        time.sleep(1)
        kv.client().publish("news", "hello")

    cloud.explore([listen, talk], holds, schedule="")
    assert chunks == [b"data: message,news,hello\n"]
