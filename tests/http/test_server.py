"""The HTTP server, byte by byte over raw sockets."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from typing import Any

import httpx
import pytest
import time_machine

from pytest_fakecloud.core.errors import ServiceError
from pytest_fakecloud.http.hub import Hub, Mount
from pytest_fakecloud.http.parsing import HEAD_LIMIT
from pytest_fakecloud.http.server import RESET_ON_CLOSE

from ..demo import Demo, Raw, Response, handled_by
from ..harness import wait_until
from .conftest import Unhindered

# -- one request after the other -----------------------------------------------------------------


def test_a_connection_serves_many_requests(raw: Raw) -> None:
    ports = set()
    for number in range(5):
        reply = raw.get(f"/echo/{number}")
        assert reply.status == 200
        assert json.loads(reply.body)["target"] == f"/echo/{number}"
        ports.add(raw.sock.getsockname()[1])
    assert len(ports) == 1


def test_an_answer_is_framed_and_dated(raw: Raw) -> None:
    reply = raw.get("/echo/x")
    assert reply.header("Content-Length") == str(len(reply.body))
    assert reply.header("Content-Type") == "application/json"
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", reply.header("Date") or "")
    assert reply.header("Connection") is None
    assert len({name.lower() for name, _ in reply.headers}) == len(reply.headers)


def test_the_date_follows_the_process_clock(raw: Raw) -> None:
    with time_machine.travel("2031-02-03T04:05:06Z", tick=False) as traveller:
        assert raw.get("/echo/x").header("Date") == "Mon, 03 Feb 2031 04:05:06 GMT"
        assert raw.get("/nowhere").header("Date") == "Mon, 03 Feb 2031 04:05:06 GMT"
        traveller.shift(3600)
        assert raw.get("/echo/x").header("Date") == "Mon, 03 Feb 2031 05:05:06 GMT"
        assert raw.get("/nowhere").header("Date") == "Mon, 03 Feb 2031 05:05:06 GMT"


def test_an_answer_is_one_packet(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    real = socket.socket.sendall

    def sendall(self: socket.socket, data: bytes) -> None:
        if self.getsockname()[1] == demo.mount.port:
            sent.append(data)
        real(self, data)

    monkeypatch.setattr(socket.socket, "sendall", sendall)
    with Raw(demo.mount.address) as raw:
        raw.get("/echo/x")
    assert len(sent) == 1


def test_the_servers_side_sends_without_delay(hub: Hub) -> None:
    options = []

    def protocol(connection: Any, data: bytes) -> bool:
        options.append(connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return False

    mount = hub.mount(None, protocol=handled_by(protocol))
    with Raw(mount.address) as raw:
        raw.send("x")
        assert raw.is_closed()
    assert options[0]


def test_a_clients_default_timeout_is_not_taken_over(demo: Demo) -> None:
    socket.setdefaulttimeout(0.05)
    try:
        with Raw(demo.mount.address) as raw:
            raw.get("/echo/x")
            time.sleep(0.15)  # longer than the default: the server must not time out
            assert raw.get("/echo/x").status == 200
    finally:
        socket.setdefaulttimeout(None)


def test_a_good_request_before_a_bad_one_is_answered(raw: Raw) -> None:
    raw.send("GET /echo/1 HTTP/1.1\r\nHost: h\r\n\r\nGET /echo/2 HTTP/1.1\r\nBad Header: x\r\n\r\n")
    assert raw.reply().status == 200
    assert raw.reply().status == 400
    assert raw.is_closed()


def test_connection_close_is_obeyed(raw: Raw) -> None:
    assert raw.get("/echo/x", "Connection: close").header("Connection") == "close"
    assert raw.is_closed()


def test_requests_after_connection_close_are_not_served(demo: Demo, raw: Raw) -> None:
    raw.send("GET /echo/1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    raw.send("GET /echo/2 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert raw.reply().status == 200
    assert raw.is_closed()
    assert [request.target for request in demo.app.seen] == ["/echo/1"]


def test_http_1_0_closes_unless_asked(demo: Demo) -> None:
    with Raw(demo.mount.address) as raw:
        reply = raw.ask("GET /echo/x HTTP/1.0\r\n\r\n")
        assert reply.status == 200
        assert reply.header("Connection") == "close"
        assert raw.is_closed()
    with Raw(demo.mount.address) as raw:
        reply = raw.ask("GET /echo/x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert reply.header("Connection") == "keep-alive"
        assert raw.ask("GET /echo/x HTTP/1.0\r\n\r\n").status == 200


def test_a_client_that_closes_its_side_still_gets_its_answer(raw: Raw) -> None:
    raw.send("GET /echo/x HTTP/1.1\r\nHost: h\r\n\r\n")
    raw.sock.shutdown(socket.SHUT_WR)
    assert raw.reply().status == 200
    assert raw.is_closed()


# -- what the engine sees ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/echo/a%2Fb", "/echo/a//b", "/echo/%00", "/echo/%FF%zz", "/echo/a?b=%20&c=%2B&&d",
        "/echo/a?b?c=/d", "/echo/..%2f../x", "/echo/a;b=c,d", "/echo/" + "x" * 60_000,
    ],
)  # fmt: skip
def test_the_target_is_kept_as_it_came(raw: Raw, target: str) -> None:
    assert json.loads(raw.get(target).body)["target"] == target


def test_a_target_that_starts_with_two_slashes_is_kept(demo: Demo, raw: Raw) -> None:
    raw.get("//echo//x")
    assert demo.journal.calls().last.target == "//echo//x"


def test_an_absolute_target_is_served(raw: Raw) -> None:
    assert raw.ask("GET http://somewhere:80/echo/x?y HTTP/1.1\r\nHost: h\r\n\r\n").status == 200


def test_raw_non_ascii_bytes_of_a_target_arrive_percent_encoded(demo: Demo, raw: Raw) -> None:
    reply = raw.ask(b"GET /echo/\xc3\xa9?q=\xe2\x98\x83 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert json.loads(reply.body)["target"] == "/echo/%C3%A9?q=%E2%98%83"
    assert raw.get("/echo/x").status == 200


def test_header_spelling_order_and_duplicates_are_kept(raw: Raw) -> None:
    reply = raw.get(
        "/echo/x", "x-Mixed-cASE: 1", "Under_Score: 2", "X-Twice: a", "x-twice: b",
        "X-Twice:   c \t",
    )  # fmt: skip
    assert json.loads(reply.body)["headers"] == [
        ["Host", "h"], ["x-Mixed-cASE", "1"], ["Under_Score", "2"], ["X-Twice", "a"],
        ["x-twice", "b"], ["X-Twice", "c"],
    ]  # fmt: skip


def test_header_values_are_latin_1(raw: Raw) -> None:
    reply = raw.ask(b"GET /echo/x HTTP/1.1\r\nHost: h\r\nX-Name: \xe9\xff\r\nX-Empty:\r\n\r\n")
    sent = json.loads(reply.body)["headers"]
    assert ["X-Name", "\xe9\xff"] in sent
    assert ["X-Empty", ""] in sent


# -- bodies --------------------------------------------------------------------------------------


def test_a_chunked_body_with_extensions_and_trailers(demo: Demo, raw: Raw) -> None:
    reply = raw.ask(
        "POST /echo/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\n\r\n"
        '3;name="v;alue"\r\nabc\r\n4;x\r\ndefg\r\n0\r\nX-Late: 1\r\nHost: x\r\nHost: y\r\n\r\n'
    )
    sent = json.loads(reply.body)
    assert sent["body"] == "abcdefg"
    assert [name for name, _ in sent["headers"]] == ["Host", "Transfer-Encoding", "Trailer"]
    assert json.loads(raw.get("/echo/y").body)["headers"] == [["Host", "h"]]


def test_a_body_of_a_megabyte_comes_whole(raw: Raw) -> None:
    body = bytes(range(256)) * 4096
    reply = raw.get("/echo/x", method="POST", body=body)
    assert json.loads(reply.body)["body"].encode("latin-1") == body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_get_may_have_a_body(raw: Raw, method: str) -> None:
    assert raw.get("/echo/x", method=method, body=b"abc").status == 200
    assert raw.get("/echo/x").status == 200


def test_expect_100_continue_is_answered_exactly_once(raw: Raw) -> None:
    head = "POST /echo/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    raw.send(head)
    assert raw._line() == b"HTTP/1.1 100 Continue"
    assert raw._line() == b""
    assert raw.is_silent()
    reply = raw.ask("abc")
    assert reply.interim == 0
    assert json.loads(reply.body)["body"] == "abc"
    reply = raw.ask(head + "abc")
    assert (reply.status, reply.interim) == (200, 1)
    assert raw.get("/echo/x").interim == 0


def test_expect_100_continue_with_a_chunked_body(raw: Raw) -> None:
    raw.send(
        "POST /echo/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-Continue\r\n\r\n"
    )
    assert raw._line() == b"HTTP/1.1 100 Continue"
    raw._line()
    assert json.loads(raw.ask("1\r\na\r\n0\r\n\r\n").body)["body"] == "a"


def test_a_request_rejected_by_its_head_stays_rejected_if_its_token_becomes_valid(
    demo: Demo, raw: Raw
) -> None:
    rotations = iter([ServiceError(401, "wrong token")])

    def guard(request: object) -> None:
        for error in rotations:
            raise error

    demo.app.guards.add(guard)
    reply = raw.ask(
        "POST /echo/x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    )
    assert reply.status == 401
    assert not demo.app.seen
    [call] = demo.journal.calls()
    assert not call.reached


def test_expect_without_a_body_or_from_http_1_0_is_not_answered(demo: Demo, raw: Raw) -> None:
    assert raw.get("/echo/x", "Expect: 100-continue").interim == 0
    head = "POST /echo/x HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    assert raw.ask(head + "a").interim == 0


def test_expect_in_the_middle_of_a_pipeline_keeps_the_order(raw: Raw) -> None:
    raw.send(
        "GET /echo/1 HTTP/1.1\r\nHost: h\r\n\r\n"
        "POST /echo/2 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
    )
    assert json.loads(raw.reply().body)["target"] == "/echo/1"
    assert raw._line() == b"HTTP/1.1 100 Continue"
    raw._line()
    assert json.loads(raw.ask("a").body)["target"] == "/echo/2"


def test_no_continue_for_a_body_that_is_too_large(demo: Demo, raw: Raw) -> None:
    length = demo.mount.body_limit + 1
    reply = raw.ask(
        f"POST /echo/x HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (reply.status, reply.interim) == (413, 0)


def test_a_client_that_leaves_mid_body_does_not_reach_the_engine(demo: Demo) -> None:
    for head in ("Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nab"):
        with Raw(demo.mount.address) as raw:
            raw.send(f"POST /echo/x HTTP/1.1\r\nHost: h\r\n{head}")
            raw.sock.shutdown(socket.SHUT_WR)
            assert raw.is_closed()
    assert demo.app.seen == []
    assert demo.journal.calls() == []


# -- what is refused -----------------------------------------------------------------------------


def posted(*headers: str, body: str = "") -> bytes:
    return "\r\n".join(["POST / HTTP/1.1", "Host: h", *headers, "", body]).encode()


CHUNKED = "Transfer-Encoding: chunked"
REFUSED = {
    "length and chunked": (400, posted("Content-Length: 3", CHUNKED, body="abc")),
    "chunked and length": (400, posted(CHUNKED, "Content-Length: 3", body="abc")),
    "length with an underscore": (400, posted("Content-Length: 1_0")),
    "length below zero": (400, posted("Content-Length: -1")),
    "length with a sign": (400, posted("Content-Length: +3", body="abc")),
    "length in hexadecimal": (400, posted("Content-Length: 0x3", body="abc")),
    "empty length": (400, posted("Content-Length: ")),
    "two lengths": (400, posted("Content-Length: 3", "Content-Length: 4", body="abc")),
    "a list of lengths": (400, posted("Content-Length: 3, 3", body="abc")),
    "an endless length": (400, posted("Content-Length: " + "9" * 30)),
    "no host": (400, b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "bad chunk size": (400, posted(CHUNKED, body="xyz\r\nabc\r\n0\r\n\r\n")),
    "chunk without its end": (400, posted(CHUNKED, body="3\r\nabcdef\r\n0\r\n\r\n")),
    "another transfer coding": (
        501, posted("Transfer-Encoding: gzip, chunked", body="0\r\n\r\n"),
    ),
    "another transfer coding in a line of its own": (
        501, posted("Transfer-Encoding: gzip", CHUNKED, body="0\r\n\r\n"),
    ),
    "an unknown expectation before a known one": (
        417, posted("Content-Length: 1", "Expect: tea", "Expect: 100-continue"),
    ),
    "chunked not last": (400, posted("Transfer-Encoding: chunked, gzip", body="0\r\n\r\n")),
    "folded header": (400, b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n"),
    "space before the colon": (400, b"GET / HTTP/1.1\r\nHost: h\r\nX : a\r\n\r\n"),
    "control character in a header": (400, b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"),
    "bare line feeds": (400, b"GET / HTTP/1.1\nHost: h\n\n"),
    "no version": (505, b"GET /\r\n\r\n"),
    "an unknown version": (400, b"GET / HTTP/1.7\r\nHost: h\r\n\r\n"),
    "http/2 by prior knowledge": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "http/2 in the line": (505, b"GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
    "a space in the target": (400, b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n"),
    "a TLS hello": (400, bytes.fromhex("16030100c8010000c40303")),
    "an expectation nobody knows": (417, posted("Content-Length: 1", "Expect: tea")),
    "nonsense": (400, b"\x00\x01\x02\x03\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_acceptable_request_is_refused_readably(demo: Demo, raw: Raw, name: str) -> None:
    status, request = REFUSED[name]
    reply = raw.ask(request)
    assert reply.status == status, reply
    assert reply.header("Connection") == "close"
    assert reply.body.startswith(b"%d " % status)
    assert raw.is_closed()
    assert demo.app.seen == []


def test_what_the_server_refuses_is_in_the_journal(demo: Demo, raw: Raw) -> None:
    reply = raw.ask("GET / HTTP/1.1\r\n\r\n")
    assert reply.body == b"400 Bad Request: an HTTP/1.1 request needs a Host header\n"
    event = demo.journal.events("refused").only()
    assert (
        event.text
        == "400 for bytes that are not a valid request: an HTTP/1.1 request needs a Host header"
    )
    assert demo.journal.calls() == []
    assert demo.context.violations == []


def test_tls_to_a_plain_port_is_called_by_its_name(demo: Demo, raw: Raw) -> None:
    raw.ask(REFUSED["a TLS hello"][1])
    assert (
        "received TLS, but this server uses plain HTTP"
        in demo.journal.events("refused").only().text
    )


@pytest.mark.parametrize(
    ("method", "target", "allowed", "reason"),
    [
        ("BREW", "/echo/x?y", "GET, HEAD, POST, PUT", "the path accepts GET, HEAD, POST, PUT"),
        ("BREW", "/nowhere", "GET, HEAD, POST, PUT", "no route for it"),
        ("BREW", "", "GET, HEAD, POST, PUT", "no route for it"),
        ("get", "/echo/x", "GET, HEAD, POST, PUT", "the path accepts GET, HEAD, POST, PUT"),
        ("CONNECT", "h:1", "GET, HEAD, POST, PUT", "no route for it"),
    ],
)
def test_a_method_nobody_knows_is_unrouted_like_any_other(
    demo: Demo, raw: Raw, method: str, target: str, allowed: str, reason: str
) -> None:
    reply = raw.ask(f"{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (reply.status, reply.header("Allow")) == (405, allowed)
    assert reply.body == b'{"error":"Method Not Allowed"}'
    assert reply.header("Connection") == "close"
    assert raw.is_closed()
    call = demo.journal.calls().only()
    assert (call.method, call.target, call.status) == (method, target, 405)
    assert call.response_json() == {"error": "Method Not Allowed"}
    assert call.violation == "unrouted"
    violation = demo.context.violations[0]
    assert violation.kind == "unrouted"
    assert reason in violation.text


def test_a_head_up_to_the_limit_is_served_and_one_above_is_not(demo: Demo) -> None:
    start, end = b"GET /echo/x HTTP/1.1\r\nHost: h\r\nX: ", b"\r\n\r\n"
    room = HEAD_LIMIT - len(start) - len(end)
    with Raw(demo.mount.address) as raw:
        assert raw.ask(start + b"x" * room + end).status == 200
        assert raw.ask(start + b"x" * (room + HEAD_LIMIT) + end).status == 431
        assert raw.is_closed()


@pytest.mark.parametrize("part", [b"X: " + b"x" * 1000 + b"\r\n", b"x" * 1000])
def test_an_endless_head_is_refused_while_it_comes(demo: Demo, raw: Raw, part: bytes) -> None:
    raw.send("GET /echo/x HTTP/1.1\r\nHost: h\r\nX: ")
    try:
        for _ in range(5 * HEAD_LIMIT // len(part)):
            raw.send(part)
    except OSError:
        pass
    assert raw.reply().status == 431


def test_an_endless_target_is_refused(raw: Raw) -> None:
    raw.send(b"GET /" + b"x" * 3 * HEAD_LIMIT)
    assert raw.reply().status == 431


def test_a_refusal_stays_readable_while_the_client_still_sends(demo: Demo, raw: Raw) -> None:
    # Eight megabytes exceed the buffers: a close would reset the connection.
    raw.send(b"POST / HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n")
    raw.sock.settimeout(5)
    for _ in range(8):
        raw.send(b"x" * 1_000_000)
    assert raw.reply().status == 400


def test_a_refused_client_that_stays_is_closed_after_a_moment(demo: Demo, raw: Raw) -> None:
    assert raw.ask("nonsense\r\n\r\n").status == 400
    wait_until(lambda: not demo.mount.live)


def test_bodies_are_limited(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    demo.mount.body_limit = 1000
    with Raw(demo.mount.address) as raw:
        assert raw.get("/echo/x", method="POST", body=b"x" * 1000).status == 200
        reply = raw.get("/echo/x", method="POST", body=b"x" * 1001)
        assert reply.status == 413
        assert b"1000 bytes" in reply.body
        assert raw.is_closed()
    with Raw(demo.mount.address) as raw:
        raw.send("POST /echo/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        raw.send("200\r\n" + "x" * 512 + "\r\n" + "200\r\n" + "x" * 512 + "\r\n")
        assert raw.reply().status == 413
        assert raw.is_closed()
    assert len(demo.app.seen) == 1


# -- upgrades ------------------------------------------------------------------------------------

H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"


def test_an_upgrade_is_ignored_and_the_request_served(raw: Raw) -> None:
    reply = raw.ask(f"POST /echo/x HTTP/1.1\r\nHost: h\r\n{H2C}Content-Length: 3\r\n\r\nabc")
    sent = json.loads(reply.body)
    assert sent["body"] == "abc"
    assert ["Upgrade", "h2c"] in sent["headers"]
    assert raw.get("/echo/y").status == 200


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_an_upgrade_with_its_body_in_other_packets(raw: Raw, cut: int) -> None:
    raw.send(f"POST /echo/x HTTP/1.1\r\nHost: h\r\n{H2C}Content-Length: 3\r\n\r\nabc"[: -3 + cut])
    assert raw.is_silent()
    assert json.loads(raw.ask("abc"[cut:]).body)["body"] == "abc"


def test_an_upgrade_with_a_chunked_body_in_a_pipeline(raw: Raw) -> None:
    raw.send(
        "GET /echo/1 HTTP/1.1\r\nHost: h\r\n\r\n"
        f"POST /echo/2 HTTP/1.1\r\nHost: h\r\n{H2C}Transfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n0\r\n\r\n"
        "GET /echo/3 HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    )
    replies = [json.loads(raw.reply().body) for _ in range(3)]
    assert [(r["target"], r["body"]) for r in replies] == [
        ("/echo/1", ""),
        ("/echo/2", "abc"),
        ("/echo/3", ""),
    ]


# -- answers without a body ----------------------------------------------------------------------


def test_head_is_answered_without_a_body(raw: Raw) -> None:
    get = raw.get("/status/200")
    head = raw.get("/status/200", method="HEAD")
    assert get.body == b"the body"
    assert head.header("Content-Length") == get.header("Content-Length") == "8"
    assert raw.is_silent()
    assert raw.get("/echo/x").status == 200


@pytest.mark.parametrize("status", [204, 304])
def test_204_and_304_have_no_body(raw: Raw, status: int) -> None:
    reply = raw.get(f"/status/{status}")
    assert reply.status == status
    assert reply.header("Content-Length") is None
    assert raw.is_silent()
    assert raw.get("/echo/x").status == 200


def test_a_status_without_a_name(raw: Raw) -> None:
    reply = raw.get("/status/599")
    assert (reply.status, reply.reason) == (599, "Status 599")


def test_an_echoed_header_cannot_make_another(raw: Raw) -> None:
    reply = raw.get("/headers")
    assert reply.header("X-Injected") is None
    assert reply.header("X-Echo") == "a  X-Injected: 1"
    assert reply.header("X-Bell") == "a b"
    assert (reply.header("X-Snow") or "").encode("latin-1").decode() == "☃"
    framing = [name for name, _ in reply.headers if not name.startswith(("X-", "Content-Type"))]
    assert (framing, reply.header("Content-Length")) == (["Date", "Content-Length"], "0")


# -- streams -------------------------------------------------------------------------------------


def test_a_stream_comes_in_chunks(raw: Raw) -> None:
    reply = raw.get("/stream")
    assert reply.header("Content-Type") == "text/event-stream"
    assert reply.chunks == [b"data: 1\n\n", b"data: 2\n\n"]
    assert reply.complete
    assert raw.get("/echo/x").status == 200


def test_a_stream_to_http_1_0_ends_with_the_connection(raw: Raw) -> None:
    reply = raw.ask("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert reply.header("Transfer-Encoding") is None
    assert reply.body == b"data: 1\n\ndata: 2\n\n"


def test_the_head_of_a_stream_to_http_1_0_ends_the_connection(raw: Raw) -> None:
    raw.send("HEAD /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert raw.reply(head_only=True).header("Connection") == "close"
    assert raw.is_closed()


def test_a_failure_in_a_stream_ends_it_without_a_last_chunk(demo: Demo, raw: Raw) -> None:
    reply = raw.get("/break")
    assert reply.status == 200
    assert reply.chunks == [b"data: 1\n\n"]
    assert not reply.complete
    violation = demo.context.violations[-1]
    assert violation.kind == "bug"
    assert isinstance(violation.exception, ZeroDivisionError)
    assert "half way" in violation.text


def test_the_first_event_comes_at_once(demo: Demo, raw: Raw) -> None:
    raw.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
    while b"data: first" not in raw.buffer:
        assert raw._more()


@pytest.mark.parametrize("farewell", ["close", "shutdown", "reset"])
def test_a_client_that_leaves_a_stream_is_noticed(demo: Demo, farewell: str) -> None:
    with Raw(demo.mount.address) as raw:
        demo.park(raw)
        if farewell == "shutdown":
            raw.sock.shutdown(socket.SHUT_WR)
        elif farewell == "reset":
            raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        if farewell != "shutdown":
            raw.sock.close()
        assert demo.app.closed_streams.acquire(timeout=10)
    wait_until(lambda: not demo.mount.live)


def test_closing_the_fake_ends_a_stream(demo: Demo, unhindered: Unhindered) -> None:
    with Raw(demo.mount.address) as raw:
        demo.park(raw)
        with unhindered():
            demo.close()
        assert demo.app.closed_streams.acquire(timeout=10)


# -- plain WSGI applications ---------------------------------------------------------------------


def ask(mount: Mount, request: str, head_only: bool = False) -> Response:
    with Raw(mount.address) as raw:
        raw.send(request)
        return raw.reply(head_only)


# -- TLS -----------------------------------------------------------------------------------------


def test_https(hub: Hub, unhindered: Unhindered) -> None:
    import ssl

    import trustme

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with Demo() as demo:
        mount = hub.mount(demo.app, tls=context)
        assert mount.url == f"https://127.0.0.1:{mount.port}"
        with httpx.Client(verify=trust, base_url=mount.url) as client:
            assert client.get("/echo/x").json()["target"] == "/echo/x"
            assert client.post("/echo/x", content=b"a" * 300_000).json()["body"] == "a" * 300_000
            with client.stream("GET", "/endless") as stream:
                assert next(stream.iter_lines()) == "data: first"
                assert demo._engine.parked.acquire(timeout=10)
            assert demo.app.closed_streams.acquire(timeout=10)
        with Raw(mount.address) as raw:
            raw.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")  # not TLS: closed
            raw.is_closed()
        with Raw(mount.address) as silent, httpx.Client(verify=trust) as client:
            assert client.get(f"{mount.url}/echo/x").status_code == 200
            with unhindered():
                mount.close()
            assert silent.is_closed()


def test_a_client_that_sends_ahead_and_leaves_ends_its_stream(demo: Demo) -> None:
    with Raw(demo.mount.address) as raw:
        demo.park(raw)
        raw.send("GET /echo/x HTTP/1.1\r\n")
        assert not demo.app.closed_streams.acquire(timeout=0.1)
    assert demo.app.closed_streams.acquire(timeout=10)


def test_what_is_sent_ahead_of_the_end_of_a_stream_is_answered_after_it(demo: Demo) -> None:
    with Raw(demo.mount.address) as raw:
        demo.park(raw)
        raw.send("GET /echo/first HTTP/1.1\r\nHost: h\r\n\r\nGET /echo/")
        wait_until(lambda: any(held.early for held in demo.mount.live))
        demo.clock.advance("2h")
        assert raw.reply().status == 200
        assert b"/echo/first" in raw.reply().body
        assert b"/echo/second" in raw.ask("second HTTP/1.1\r\nHost: h\r\n\r\n").body


def test_who_sends_too_much_ahead_is_sent_away(demo: Demo, raw: Raw) -> None:
    demo.park(raw)
    with contextlib.suppress(OSError):
        for _ in range(40):
            raw.send(b"x" * 65_536)
    assert demo.app.closed_streams.acquire(timeout=10)
