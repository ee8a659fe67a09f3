"""Encodes responses as HTTP/1.1."""

from __future__ import annotations

import functools
import time

from .messages import Answer, Stream, asks_to_close
from .parsing import Message

LAST_CHUNK = b"0\r\n\r\n"
BODILESS = frozenset({204, 304})
SET_BY_SERVER = frozenset({"content-length", "transfer-encoding", "date"})
_LINE_BREAKS_TO_SPACES = str.maketrans({"\r": " ", "\n": " ", "\0": " "})
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def encode(message: Message, answer: Answer) -> bytes:
    head, body = encode_parts(message, answer)
    return head + body


def encode_parts(message: Message, answer: Answer) -> tuple[bytes, bytes]:
    """Return a response's head and body (empty if none may be sent); update ``keep_alive``."""
    body = answer.body
    assert isinstance(body, bytes)
    status = answer.status
    head = _opening(status, int(time.time()))
    for name, value in answer.headers:
        lower = name.lower()
        if lower == "connection":
            message.keep_alive = message.keep_alive and not asks_to_close(value)
        elif lower not in SET_BY_SERVER:
            head += header(name, value)
    if answer.content_type is not None:
        head += f"Content-Type: {answer.content_type}\r\n"
    if status not in BODILESS:
        head += f"Content-Length: {len(body)}\r\n"
    if status in BODILESS or message.method == "HEAD":
        body = b""
    if not message.keep_alive or message.version != "1.1":
        head += connection_header(message)
    return head_bytes(head + "\r\n"), body


def stream_head(message: Message, stream: Stream) -> bytes:
    """Return the head of a streamed response; with HTTP/1.0, it ends when the connection closes."""
    head = _opening(stream.status, int(time.time()))
    head += f"Content-Type: {stream.content_type}\r\nCache-Control: no-cache\r\n"
    chunked = message.version == "1.1"
    head += "Transfer-Encoding: chunked\r\n" if chunked else "Connection: close\r\n"
    return head_bytes(f"{head}{''.join(header(*pair) for pair in stream.headers)}\r\n")


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


def connection_header(message: Message) -> str:
    if not message.keep_alive:
        return "Connection: close\r\n"
    return "" if message.version == "1.1" else "Connection: keep-alive\r\n"


def header(name: str, value: str) -> str:
    # Replace line breaks, because a value that a service echoes must not start a new header.
    return f"{name}: {value.translate(_LINE_BREAKS_TO_SPACES)}\r\n"


@functools.lru_cache
def phrase(status: int) -> str:
    """Return the reason phrase that the server sends with a status."""
    if status == 200:
        return "OK"
    # Imported here, because it takes a millisecond and most fakes send no other status.
    import http

    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def head_bytes(head: str) -> bytes:
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError:
        return head.encode("utf-8", "surrogateescape")


def http_date() -> str:
    """Return the current second of the process's clock in the format of a Date header."""
    return _date_of(int(time.time()))


@functools.lru_cache(maxsize=64)
def _opening(status: int, second: int) -> str:
    return f"HTTP/1.1 {status} {phrase(status)}\r\nDate: {_date_of(second)}\r\n"


@functools.lru_cache(maxsize=8)
def _date_of(second: int) -> str:
    # Format the date here: email.utils fails at the end of the year 9999 in frozen process time.
    t = time.gmtime(second)
    return (
        f"{_DAYS[t.tm_wday]}, {t.tm_mday:02} {_MONTHS[t.tm_mon - 1]} {t.tm_year} "
        f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} GMT"
    )
