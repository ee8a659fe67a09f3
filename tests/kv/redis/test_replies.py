"""Replies of a real server, read from bytes."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

pytest.importorskip("redis")

from redis.exceptions import ConnectionError as LostConnection

from pytest_fakecloud.kv.redis.connection import RawParser
from tests.harness import check_each


class Buffer(BytesIO):
    """The interface of redis-py's buffer: lines and strings without their line ends."""

    def readline(self, size: int | None = None) -> bytes:
        return super().readline().removesuffix(b"\r\n")

    def read(self, size: int | None = None) -> bytes:
        assert size is not None
        data = super().read(size)
        assert super().read(2) == b"\r\n"
        return data


def parsed(data: bytes) -> Any:
    parser = RawParser(socket_read_size=65536)  # type: ignore[no-untyped-call]
    parser._buffer = Buffer(data)
    return parser._read_response()


def test_types_are_kept() -> None:
    assert parsed(b"*4\r\n$2\r\nOK\r\n+OK\r\n:-5\r\n$-1\r\n") == [b"OK", b"OK", -5, None]


def test_what_is_not_resp2_ends_the_connection() -> None:
    def check(data: bytes) -> None:
        with pytest.raises(LostConnection):
            parsed(data)

    check_each(
        check,
        [
            (b"$-5\r\n",), (b"$536870913\r\n",), (b"$x\r\n",), (b"*-5\r\n",), (b":\r\n",),
            (b"%1\r\n",), (b"",), (b"*1\r\n" * 102 + b"*-2\r\n",), (b"*1\r\n" * 102 + b"$-2\r\n",),
        ],
    )  # fmt: skip


def test_a_deeply_nested_reply_is_an_error() -> None:
    found = parsed(b"*1\r\n" * 101 + b"*2\r\n$-1\r\n*-1\r\n")
    while isinstance(found, list):
        (found,) = found
    assert found.line == b"ERR reached lua stack limit"
