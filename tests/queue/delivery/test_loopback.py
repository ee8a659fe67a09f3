"""Test deliveries over real HTTP: exact bytes, reused connections and the real-time cap."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.timers import finished
from pytest_fakecloud.queue.delivery import loopback
from pytest_fakecloud.queue.delivery.applications import DestinationTimeoutError
from pytest_fakecloud.queue.delivery.destinations import Sender
from pytest_fakecloud.queue.model import Outcome
from pytest_fakecloud.queue.wire.headers import loopback_address

from ..edge import OK, RawServer, Script, delivery, dribble, endless, frozen, silent


def test_the_request_is_the_delivery_and_nothing_else(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    server = serve()
    outcome = finished(
        sender.send(
            delivery(
                server.url + "/a%2fb%20c?x=%2f&y=1",
                b"\x00\xff",
                [("User-Agent", "Upstash-QStash"), ("X-Twice", "1"), ("X-Twice", "2")],
                "PATCH",
            )
        )
    )
    assert (outcome.status, outcome.body, outcome.where) == (200, b"ok", "loopback")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"PATCH /a%2fb%20c?x=%2f&y=1 HTTP/1.1"
    assert sorted(lines[1:]) == [
        b"Content-Length: 2",
        b"Host: 127.0.0.1:%d" % server.port,
        b"User-Agent: Upstash-QStash",
        b"X-Twice: 1",
        b"X-Twice: 2",
    ]
    assert body == b"\x00\xff"


def test_a_client_librarys_own_headers_stay_out(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    server = serve()
    finished(sender.send(delivery(server.url, b"", method="GET")))
    lines = server.requests[0].split(b"\r\n")
    assert lines == [b"GET / HTTP/1.1", b"Host: 127.0.0.1:%d" % server.port, b"", b""]


@pytest.mark.parametrize("name", [
    "Host", "Content-Length", "Connection", "Transfer-Encoding", "Accept-Encoding", "TE", "Expect",
])  # fmt: skip
def test_hop_by_hop_headers_are_dropped(
    sender: Sender, serve: Callable[..., RawServer], name: str
) -> None:
    server = serve()
    outcome = finished(sender.send(delivery(server.url, headers=[(name, "99"), ("X-Kept", "1")])))
    assert outcome.status == 200
    assert b": 99" not in server.requests[0]
    assert b"X-Kept: 1" in server.requests[0]


def test_raw_bytes_in_the_target_and_in_header_values(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    server = serve()
    path = "/ä".encode().decode("latin-1")
    finished(sender.send(delivery(server.url + path, headers=[("X-A", "\xe9"), ("X-B", "\u2603")])))
    assert server.requests[0].startswith("POST /ä HTTP/1.1\r\n".encode())
    assert b"X-A: \xe9\r\n" in server.requests[0]
    assert "X-B: \u2603\r\n".encode() in server.requests[0]


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_proxies_of_the_environment_are_not_asked(
    sender: Sender, serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert finished(sender.send(delivery(serve().url))).status == 200


def test_redirects_are_answers(sender: Sender, serve: Callable[..., RawServer]) -> None:
    target = serve()
    moved = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % target.url.encode()
    outcome = finished(sender.send(delivery(serve(RawServer.answer(moved)).url)))
    assert outcome.status == 302
    assert target.requests == []


def test_the_answer_comes_back_raw(sender: Sender, serve: Callable[..., RawServer]) -> None:
    answer = (
        b"HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Retry-After: 7\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x00"
    )
    outcome = finished(sender.send(delivery(serve(RawServer.answer(answer)).url)))
    assert outcome.status == 503
    assert outcome.body == b"\x1f\x8b\x00"
    assert [v for k, v in outcome.headers if k == "Set-Cookie"] == ["a=1", "b=2"]


def test_a_chunked_answer(sender: Sender, serve: Callable[..., RawServer]) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert finished(sender.send(delivery(serve(RawServer.answer(answer)).url))).body == b"abcde"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body(
    sender: Sender, serve: Callable[..., RawServer], status: int
) -> None:
    server = serve(RawServer.answer(b"HTTP/1.1 %d X\r\n\r\n" % status))
    assert finished(sender.send(delivery(server.url))).status == status
    assert finished(sender.send(delivery(server.url))).body == b""


def test_a_burst_uses_one_connection(
    sender: Sender, serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "IDLE_SECONDS", 30.0)
    server = serve()
    for _ in range(20):
        finished(sender.send(delivery(server.url)))
    assert server.connections == 1


def test_release_closes_what_is_idle(sender: Sender, serve: Callable[..., RawServer]) -> None:
    server = serve()
    finished(sender.send(delivery(server.url)))
    sender.release()
    finished(sender.send(delivery(server.url)))
    assert server.connections == 2


def test_an_idle_connection_is_let_go_by_itself(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    gone = threading.Event()

    def script(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(OK)
        if sock.recv(1) == b"":
            gone.set()
        return False

    finished(sender.send(delivery(serve(script).url)))
    assert gone.wait(5)


def test_a_connection_the_server_has_closed_is_not_used_again(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    server = serve(RawServer.answer(closing, stay=False))
    assert [finished(sender.send(delivery(server.url))).status for _ in range(5)] == [200] * 5


def test_a_server_that_dies_while_it_has_the_request_gets_it_once(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    def script(sock: socket.socket, request: bytes) -> bool:
        if b"die" in request:
            return False
        sock.sendall(OK)
        return True

    server = serve(script)
    assert finished(sender.send(delivery(server.url))).status == 200
    assert finished(sender.send(delivery(server.url, b"die"))).status is None
    assert len(server.requests) == 2


def test_many_at_once(sender: Sender, serve: Callable[..., RawServer]) -> None:
    server = serve()
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: finished(sender.send(delivery(server.url))), range(200)))
    assert {outcome.status for outcome in outcomes} == {200}
    assert len(server.requests) == 200


def test_a_server_on_ipv6(sender: Sender) -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    seen: list[bytes] = []

    def serve_once() -> None:
        sock = listener.accept()[0]
        with sock:
            while not b"".join(seen).endswith(b"body"):
                seen.append(sock.recv(65536))
            sock.sendall(OK)

    threading.Thread(target=serve_once, daemon=True).start()
    with listener:
        port = listener.getsockname()[1]
        assert finished(sender.send(delivery(f"http://[::1]:{port}/x"))).status == 200
    assert b"Host: [::1]:%d\r\n" % port in b"".join(seen)


def test_a_port_without_a_server(sender: Sender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    outcome = finished(sender.send(delivery(f"http://127.0.0.1:{port}/")))
    assert outcome.status is None
    assert isinstance(outcome.exception, ConnectionRefusedError)


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"],
    ids=["closed", "no HTTP", "cut off"],
)
def test_an_answer_that_is_none(
    sender: Sender, serve: Callable[..., RawServer], answer: bytes
) -> None:
    outcome = finished(sender.send(delivery(serve(RawServer.answer(answer, stay=False)).url)))
    assert outcome.status is None
    assert outcome.exception is not None


def test_an_answer_that_is_too_large_is_a_failed_attempt(
    sender: Sender, serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "LARGEST_ANSWER", 3)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlong"
    outcome = finished(sender.send(delivery(serve(RawServer.answer(answer)).url)))
    assert outcome.status is None
    assert "larger than 3 bytes" in str(outcome.exception)


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "http://127.0.0.1:99999/"},
        {"url": "http://127.0.0.1:x/"},
        {"headers": [("X", "a\r\nb: c")]},
        {"headers": [("X\r\nY", "a")]},
        {"method": "BAD METHOD"},
    ],
)
def test_an_unsendable_request_is_a_failed_attempt(
    sender: Sender, serve: Callable[..., RawServer], changes: dict[str, Any]
) -> None:
    server = serve()
    outcome = finished(sender.send(delivery(**{"url": server.url, **changes})))
    assert outcome.status is None
    assert outcome.exception is not None
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://[::1]:80/", "::1"),
        ("http://LOCALHOST/", "::1"),
        ("http://user:pass@127.0.0.2/", "127.0.0.2"),
        ("http://127.0.0.1.example.com/", None),
        ("http://localhost@example.com/", None),
        ("http://10.0.0.1/", None),
        ("http://[::1", None),
        ("http:///", None),
    ],
)
def test_loopback_addresses(url: str, address: str | None) -> None:
    assert loopback_address(url) == address


def test_a_server_with_a_certificate_of_its_own(sender: Sender) -> None:
    trustme = pytest.importorskip("trustme")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as sock:
            received = b""
            while not received.endswith(b"body"):
                received += sock.recv(65536)
            sock.sendall(OK)

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        outcome = finished(sender.send(delivery(f"https://127.0.0.1:{listener.getsockname()[1]}/")))
    assert outcome.status == 200


@pytest.mark.parametrize("script", [silent, dribble, endless])
def test_an_attempt_ends_at_the_cap_whatever_its_virtual_timeout(
    serve: Callable[..., RawServer], script: Script
) -> None:
    sender = Sender(cap=0.2)
    outcome = finished(sender.send(delivery(serve(script).url, timeout_us=900_000_000)))
    sender.close()
    assert outcome.status is None
    assert isinstance(outcome.exception, DestinationTimeoutError)
    assert "no answer within 0.2 s of real time" in str(outcome.exception)
    assert outcome.virtual_us == 0


FORWARDED = "https://app.example.com/"


@pytest.mark.parametrize("forwarded", [False, True])
def test_while_time_passes_a_timeout_is_kept_in_real_seconds(
    serve: Callable[..., RawServer], forwarded: bool
) -> None:
    passes = True
    sender = Sender(cap=0.4, time_passes=lambda: passes)
    url = serve(silent).url
    if forwarded:
        sender.destinations.forward(FORWARDED, url)
        url = FORWARDED
    outcome = finished(sender.send(delivery(url, timeout_us=50_000)))
    assert "no answer within 0.05 s, its timeout" in str(outcome.exception)
    outcome = asyncio.run(sender.send(delivery(url, timeout_us=50_000), in_loop=True))
    assert "no answer within 0.05 s, its timeout" in str(outcome.exception)
    passes = False
    outcome = finished(sender.send(delivery(url, timeout_us=50_000)))
    assert "no answer within 0.4 s of real time" in str(outcome.exception)
    sender.close()


@pytest.mark.parametrize("forwarded", [False, True])
def test_closing_interrupts_deliveries(serve: Callable[..., RawServer], forwarded: bool) -> None:
    sender = Sender(cap=30)

    def script(sock: socket.socket, request: bytes) -> bool:
        threading.Thread(target=sender.close).start()
        return silent(sock, request)

    url = serve(script).url
    if forwarded:
        sender.destinations.forward(FORWARDED, url)
        url = FORWARDED
    outcome = finished(sender.send(delivery(url)))
    assert outcome.status is None
    assert not isinstance(outcome.exception, DestinationTimeoutError)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse the connection")
def test_a_timeout_is_kept_while_connecting() -> None:
    sender = Sender(cap=30, time_passes=lambda: True)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        # One accepted connection fills the backlog, so that the next one waits.
        with socket.create_connection(address):
            started = time.monotonic()
            outcome = finished(
                sender.send(delivery(f"http://127.0.0.1:{address[1]}/", timeout_us=50_000))
            )
            assert time.monotonic() - started < 15
    sender.close()
    assert "no answer within 0.05 s, its timeout" in str(outcome.exception)


@pytest.mark.slow
def test_a_slow_destination_meets_its_timeout_in_the_background(
    serve: Callable[..., RawServer],
) -> None:
    with Cloud(seed=1) as cloud:
        queue: Any = cloud.queue()
        capture = cloud.callback_capture()
        queue.publish(serve(silent).url, timeout="1s", retries=0, callback=capture.callback_url)
        assert b"no answer within 1 s" in capture.wait_for_callback().response_body


@pytest.mark.parametrize("tool", ["freezegun", "time_machine"])
def test_the_cap_holds_while_time_is_frozen(serve: Callable[..., RawServer], tool: str) -> None:
    sender = Sender(cap=0.2)
    server = serve(silent)
    with frozen(tool):
        outcome = finished(sender.send(delivery(server.url)))
    sender.close()
    assert isinstance(outcome.exception, DestinationTimeoutError)


def test_in_a_running_loop_the_words_name_the_awaitable_form(
    serve: Callable[..., RawServer],
) -> None:
    sender = Sender(cap=0.2)
    server = serve(silent)

    async def blocking() -> Outcome:
        return finished(sender.send(delivery(server.url)))

    outcome = asyncio.run(blocking())
    sender.close()
    assert "await queue.aio.run_until_idle()" in str(outcome.exception)


async def answer_on_this_loop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"body")
    writer.write(OK)
    await writer.drain()
    writer.close()


def test_a_server_on_the_running_loop_can_answer(sender: Sender) -> None:
    async def main() -> Outcome:
        server = await asyncio.start_server(answer_on_this_loop, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await sender.send(delivery(f"http://127.0.0.1:{port}/"), in_loop=True)

    assert asyncio.run(main()).status == 200


def test_trio_too(sender: Sender, serve: Callable[..., RawServer]) -> None:
    assert trio.run(sender.send, delivery(serve().url), True).status == 200


@pytest.mark.parametrize(
    "host", ["localhost", "app.localhost", "app.localhost.", "127.0.0.1.", "LOCALHOST."]
)
def test_loopback_names(sender: Sender, serve: Callable[..., RawServer], host: str) -> None:
    server = serve()
    outcome = finished(sender.send(delivery(f"http://{host}:{server.port}/hook")))
    assert outcome.status == 200, outcome.exception
    # The Host header is the published one.
    assert b"Host: %s:%d\r\n" % (host.encode(), server.port) in server.requests[0]
