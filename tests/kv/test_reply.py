"""Replies as JSON and in the Redis protocol."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import (
    NIL_ARRAY,
    NO_REPLY,
    OK,
    BigNumber,
    Bool,
    Map,
    Push,
    SetReply,
    Status,
    Verbatim,
    size_of,
    to_json,
    to_resp,
)
from tests.harness import check_each

CASES: list[tuple[Any, Any, bytes, bytes]] = [
    (1, 1, b":1\r\n", b":1\r\n"),
    (b"a\r\n", "a\r\n", b"$3\r\na\r\n\r\n", b"$3\r\na\r\n\r\n"),
    (bytearray(b"a"), "a", b"$1\r\na\r\n", b"$1\r\na\r\n"),
    (None, None, b"$-1\r\n", b"_\r\n"),
    (NIL_ARRAY, None, b"*-1\r\n", b"_\r\n"),
    (OK, "OK", b"+OK\r\n", b"+OK\r\n"),
    (1.5, "1.5", b"$3\r\n1.5\r\n", b",1.5\r\n"),
    (Bool(True), 1, b":1\r\n", b"#t\r\n"),
    (Bool(False), 0, b":0\r\n", b"#f\r\n"),
    (Verbatim(b"hi"), "hi", b"$2\r\nhi\r\n", b"=6\r\ntxt:hi\r\n"),
    (Verbatim(b"hi", b"long"), "hi", b"$2\r\nhi\r\n", b"=6\r\nlon:hi\r\n"),
    (Verbatim(b"hi", b"m\0d"), "hi", b"$2\r\nhi\r\n", b"=6\r\nm  :hi\r\n"),
    (BigNumber(b"123"), "123", b"$3\r\n123\r\n", b"(123\r\n"),
    ([1, [b"a"]], [1, ["a"]], b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n"),
    (Map([b"a", 1]), ["a", 1], b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
    (SetReply([1]), [1], b"*1\r\n:1\r\n", b"~1\r\n:1\r\n"),
    (Push("message", [1]), [1], b"*1\r\n:1\r\n", b">1\r\n:1\r\n"),
    ([CommandError(b"ERR a\nb")], ["ERR a\nb"], b"*1\r\n-ERR a b\r\n", b"*1\r\n-ERR a b\r\n"),
    (NO_REPLY, None, b"", b""),
]


def test_every_kind() -> None:
    def check(reply: Any, json: Any, resp2: bytes, resp3: bytes) -> None:
        assert to_json(reply) == json
        assert to_resp(reply, 2) == resp2
        assert to_resp(reply, 3) == resp3

    check_each(check, CASES)


def test_base64_spares_only_the_literal_ok() -> None:
    reply = [OK, Status(b"none"), b"OK", 5, None, CommandError(b"ERR x")]
    assert to_json(reply, base64=True) == ["OK", "bm9uZQ==", "T0s=", 5, None, "ERR x"]


def test_equality_and_text() -> None:
    assert Status(b"OK") == OK
    assert {Status(b"OK"), OK, Bool(True), Bool(True)} == {OK, Bool(True)}
    assert repr(Map([1])) == "[1]"
    assert repr(OK) == "Status(b'OK')"


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="is not a reply"):
        to_json(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a reply"):
        to_resp(object())  # type: ignore[arg-type]


def test_a_reply_may_be_nested_deeper_than_python_calls() -> None:
    reply: Any = b"deep"
    for _ in range(8000):
        reply = [reply]
    assert size_of(reply) == 4
    assert to_resp(reply) == b"*1\r\n" * 8000 + b"$4\r\ndeep\r\n"
