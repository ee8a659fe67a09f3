"""Parsing requests, for any split into packets and any earlier requests, without exceptions."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.http import parsing
from pytest_fakecloud.http.parsing import HEAD_LIMIT, RequestReader


def read_all(*parts: bytes) -> RequestReader:
    reader = RequestReader()
    for part in parts:
        if reader.malformed is None:
            reader.feed(part)
    return reader


PIPELINE = (
    b"POST /1?x=%2F HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    b"POST /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;a\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n"
    b"GET /3 HTTP/1.1\r\nhost: h\r\nX: 1\r\nx: 2\r\n\r\n"
)


WHOLE = [(m.method, m.target, m.headers, m.body, m.keep_alive) for m in read_all(PIPELINE).requests]


@given(st.lists(st.integers(0, len(PIPELINE)), max_size=12))
def test_where_packets_end_does_not_matter(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(PIPELINE)]
    parts = [PIPELINE[a:b] for a, b in pairwise(edges) if a < b]
    reader = read_all(*parts)
    assert reader.malformed is None
    assert reader.pending is None
    assert [(m.method, m.target, m.headers, m.body, m.keep_alive) for m in reader.requests] == WHOLE
    assert [m.body for m in reader.requests] == [b"hello", b"hello", b""]


class ReportedHeaders(list[tuple[str, str]]):
    """The headers that the parser reports."""

    def on_header(self, name: bytes, value: bytes) -> None:
        self.append((name.decode("latin-1"), value.rstrip(b" \t").decode("latin-1")))


HEADER_PARTS = [
    "",
    "X",
    "x-a",
    "v",
    " ",
    "\t",
    ":",
    ",",
    '"',
    "\x0b",
    "\x0c",
    "\x7f",
    "\x85",
    "é",
    "\r",
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["X", "x-a", "Cookie", " X", "X ", "", "Expect2"]),
            st.lists(st.sampled_from(HEADER_PARTS), max_size=6).map("".join),
            st.sampled_from(["\r\n", "\r\n", "\n", " \r\n"]),
        ),
        max_size=4,
    )
)
def test_headers_are_those_that_the_parser_reports(lines: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{name}:{value}{end}" for name, value, end in lines)
    head = f"GET / HTTP/1.1\r\nHost: h\r\n{text}\r\n".encode("latin-1")
    reported = ReportedHeaders()
    try:
        httptools.HttpRequestParser(reported).feed_data(head)
    except httptools.HttpParserError:
        assert read_all(head).malformed is not None
    else:
        (request,) = read_all(head).requests
        assert list(request.headers.pairs) == reported


@given(st.binary(max_size=300), st.integers(0, 300))
def test_no_bytes_break_the_reader(data: bytes, cut: int) -> None:
    reader = read_all(data[:cut], data[cut:])
    if reader.malformed is not None:
        assert 400 <= reader.malformed.status <= 505


@given(st.integers(0, len(PIPELINE) - 1), st.binary(min_size=1, max_size=4))
def test_no_damage_breaks_the_reader(position: int, damage: bytes) -> None:
    reader = read_all(PIPELINE[:position] + damage + PIPELINE[position + len(damage) :])
    if reader.malformed is not None:
        assert 400 <= reader.malformed.status <= 505


@pytest.mark.parametrize("cut", range(40))
def test_each_request_has_its_own_version(cut: int) -> None:
    old = b"POST /HTTP/1.1 HTTP/1.0\r\nContent-Length: 11\r\n\r\n HTTP/1.1\r\n"
    new = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
    older = b"GET /b HTTP/1.0\r\nX: GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n"
    keep_alive = old.replace(b"\r\nContent", b"\r\nConnection: keep-alive\r\nContent")
    data = keep_alive + new + older + new + b"\r\n" + older + keep_alive
    parts = [data[:cut], data[cut : 2 * cut + 60], data[2 * cut + 60 :]]
    reader = read_all(*(part for part in parts if part))
    assert reader.malformed is None
    assert [m.version for m in reader.requests] == ["1.0", "1.1", "1.0", "1.1", "1.0", "1.0"]


ONE_HOST = b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n"


@pytest.mark.parametrize("before", [[], [b"a"], [b"b"], [b"a", b"b"], [b"b", b"a"], [b"a"] * 3])
@pytest.mark.parametrize("lines", ["Host: a|Host: b", "Host: a|Host: a", "host: b|HOST: a", ""])
def test_a_request_has_one_host(before: list[bytes], lines: str) -> None:
    reader = read_all(*(ONE_HOST % host for host in before))
    assert (len(reader.requests), reader.malformed) == (len(before), None)
    head = "".join(f"{line}\r\n" for line in lines.split("|") if line)
    reader.feed(f"GET / HTTP/1.1\r\n{head}\r\n".encode())
    assert len(reader.requests) == len(before)
    assert reader.malformed is not None
    assert reader.malformed.status == 400
    assert "Host" in reader.malformed.reason


def test_the_body_limit_is_64_mib() -> None:
    assert parsing.BODY_LIMIT == 64 * 1024 * 1024
    reader = RequestReader()
    head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    reader.feed((head % parsing.BODY_LIMIT).encode())
    assert reader.malformed is None
    reader = RequestReader()
    reader.feed((head % (parsing.BODY_LIMIT + 1)).encode())
    assert reader.malformed is not None
    assert reader.malformed.status == 413


def described(reader: RequestReader) -> list[tuple[object, ...]]:
    return [
        (m.method, m.target, m.headers.pairs, m.fields, m.body, m.version, m.keep_alive, m.expects)
        for m in reader.requests
    ]


def reasons(reader: RequestReader) -> tuple[object, ...]:
    rejection = reader.malformed
    return reader.pending is None, rejection and rejection.status, rejection and rejection.reason


REQUESTS = [
    b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n\r\n\r\nG",
    b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    b"\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET /c HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: h\r\nUpstash-Sync-Token: \r\nContent-Length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nHost: h\r\nUpstash-Sync-Token: 1\r\nContent-Length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nHost: h\r\nUpstash-Sync-Token: 23\r\nContent-Length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nHost: h\r\nUpstash-Sync-Token: 4 \r\nContent-Length: 2\r\n\r\nhi",
    b"GET /a HTTP/1.1\r\nHost: h\r\nservice-sync-token: 5\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: h\r\nservice-sync-token: 6\r\nUpstash-Sync-Token: 7\r\n\r\n",
]


@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=12),
    st.lists(st.integers(0, 700), max_size=20),
)
def test_requests_are_read_alike_however_their_bytes_arrive(
    requests: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(requests)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    whole, parts = read_all(data), RequestReader()
    for start, end in pairwise(edges):
        if start < end and parts.malformed is None:
            parts.feed(data[start:end])
    assert described(whole) == described(parts)
    assert reasons(whole) == reasons(parts)


def test_an_expectation_may_be_said_twice() -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n"
    reader = read_all(head + b"expect: 100-Continue\r\n\r\n")
    assert reader.malformed is None
    assert reader.pending is not None
    assert reader.pending.expects


# -- what strangers can make it keep -------------------------------------------------------------

CHUNKED = b"POST /1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"


def peak_of(feed: Callable[[RequestReader], None]) -> int:
    """Return the peak memory while a reader is fed."""
    reader = RequestReader()
    tracemalloc.start()
    try:
        feed(reader)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_body_in_tiny_chunks_costs_its_size() -> None:
    packet = b"2\r\nab\r\n" * 2000

    def feed(reader: RequestReader) -> None:
        reader.feed(CHUNKED)
        for _ in range(100):
            reader.feed(packet)
        reader.feed(b"0\r\n\r\n")
        assert reader.requests.pop().body == b"ab" * 200_000

    assert peak_of(feed) < 1_500_000


@pytest.mark.parametrize("has_length", [False, True])
def test_a_body_in_tiny_packets_costs_its_size(has_length: bool) -> None:
    def feed(reader: RequestReader) -> None:
        if has_length:
            reader.feed(SIZED + b"ab" * 50_000)
            assert reader.requests.pop().body == b"ab" * 50_000
        reader.feed(SIZED)
        for _ in range(50_000):
            reader.feed(bytes((97, 98)))
        assert reader.requests.pop().body == b"ab" * 50_000

    assert peak_of(feed) < 750_000


@pytest.mark.parametrize(
    "part", [b"T: " + b"x" * 1000 + b"\r\n", b"x" * 1000], ids=["many", "one without an end"]
)
@pytest.mark.parametrize("begun", [b"0\r\nT: ", b"1;e="], ids=["trailers", "chunk extension"])
def test_what_surrounds_a_body_is_bounded(begun: bytes, part: bytes) -> None:
    reader = read_all(CHUNKED, b"3\r\nabc\r\n", begun)
    fed = 0
    while reader.malformed is None and fed < 1_000_000:
        reader.feed(part)
        fed += len(part)
    assert reader.malformed is not None
    if begun.startswith(b"0"):
        assert reader.malformed.status == 431
    assert fed < 2 * HEAD_LIMIT


def test_trailers_in_one_packet_are_bounded() -> None:
    reader = read_all(CHUNKED + b"0\r\n" + b"T: 1\r\n" * 20_000 + b"\r\n")
    assert reader.malformed is not None
    assert reader.malformed.status == 431
    assert not reader.requests


def test_a_few_trailers_are_let_by() -> None:
    (message,) = read_all(CHUNKED + b"1\r\na\r\n0\r\n" + b"T: 1\r\n" * 100 + b"\r\n").requests
    assert message.body == b"a"
    assert [name for name, _ in message.headers.pairs] == ["Host", "Transfer-Encoding"]


def test_thousands_of_headers_are_refused() -> None:
    reader = read_all(b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a:\r\n" * 2000 + b"\r\n")
    assert reader.malformed is not None
    assert (reader.malformed.status, "1000 headers" in str(reader.malformed)) == (431, True)


def test_a_long_head_in_one_packet_is_refused_like_one_in_many() -> None:
    reader = read_all(b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * HEAD_LIMIT + b"\r\n\r\n")
    assert reader.malformed is not None
    assert reader.malformed.status == 431


@pytest.mark.parametrize("lines", ["keep-alive\r\nConnection: close", "close, keep-alive", "Close"])
def test_a_client_that_says_close_is_not_waited_for(lines: str) -> None:
    head = f"GET / HTTP/1.0\r\nHost: h\r\nConnection: {lines}\r\n\r\n".encode()
    assert [message.keep_alive for message in read_all(head).requests] == [False]
    result = read_all(b"GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n")
    assert [message.keep_alive for message in result.requests] == [True]


def test_an_unknown_method_behind_another_request() -> None:
    reader = read_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nBREW / HTTP/1.1\r\nHost: h\r\n\r\n")
    assert [message.method for message in reader.requests] == ["GET"]
    assert reader.malformed is not None
    assert (reader.malformed.status, reader.malformed.method) == (501, "BREW")


CUT = {
    "raw UTF-8 in the target": "GET /é?ü HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "raw UTF-8 behind other requests": PIPELINE
    + "GET /é HTTP/1.1\r\nHost: h\r\n\r\nGET /ü HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "raw UTF-8 in the method": "GÉT / HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "an unknown method": b"BREW /a HTTP/1.1\r\nHost: h\r\n\r\n",
    "an unknown method behind other requests": PIPELINE + b"BREW /a HTTP/1.1\r\nHost: h\r\n\r\n",
    "a line of the Redis protocol": b"*1\r\n$4\r\nPING\r\n",
    "TLS": b"\x16\x03\x01\x01\x00\x01",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a command of the Redis protocol": b"SET a 1\r\n",
    "no version": b"GET /a\r\n",
    "an upgrade": b"POST /a HTTP/1.1\r\nHost: h\r\nUPGRADE: h2c\r\nConnection: upgrade\r\n"
    b"Content-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
    "no request": b"\xff\xfe\r\n\r\n",
}


@pytest.mark.parametrize("name", CUT)
def test_the_response_does_not_depend_on_where_packets_end(name: str) -> None:
    data = CUT[name]

    def result(*parts: bytes) -> object:
        reader = read_all(*parts)
        rejection = reader.malformed and (reader.malformed.status, *vars(reader.malformed).values())
        return [(m.method, m.target, m.body) for m in reader.requests], rejection

    whole = result(data)
    assert result(*(data[at : at + 1] for at in range(len(data)))) == whole
    for cut in range(1, len(data)):
        assert result(data[:cut], data[cut:]) == whole, cut
    targets = [target for _, target, _ in whole[0]]  # type: ignore[index]
    assert not targets or targets[-1].isascii()


def test_a_request_that_does_not_fit_into_memory_is_an_error_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted(self: RequestReader, part: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(RequestReader, "on_body", exhausted)
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
    reader = RequestReader()
    reader.feed(head + b"x")
    assert reader.malformed is not None
    assert reader.malformed.status == 500
    assert "MemoryError" in reader.malformed.reason
