"""Commands on a database connection are worded like requests; connection setups and transactions
are one row each.
"""

from __future__ import annotations

from typing import Any

import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import Call
from pytest_fakecloud.kv.reply import (
    NIL_ARRAY,
    Bool,
    Map,
    Push,
    SetReply,
    Status,
    Verbatim,
    to_resp,
)
from pytest_fakecloud.kv.report.accesses import of_call
from pytest_fakecloud.kv.resp.replies import reply
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.report import report_of

from .findings.cases import commands
from .shown import shown as rows


def client(cloud: Cloud, **options: Any) -> redis.Redis:
    url = cloud.kv_server().database_url if not cloud.fakes() else cloud.fakes()[0].database_url  # type: ignore[attr-defined]
    return redis.Redis.from_url(url, decode_responses=True, **options)


def lines(cloud: Cloud) -> list[str]:
    """Return each row's request, answer and nested rows."""
    return [
        " | ".join([f"{row.what} <-- {row.answer}", *row.below])
        for row in rows(cloud)
        if not row.what.startswith("connect")
    ]


def called(answer: bytes) -> Call:
    call = Call(1, 0, "kv", "kv_server", "RESP", "/")
    call.response_body = answer
    return call


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Status(b"OK"), "OK"), (b"two\r\nlines", "two\r\nlines"), (b"", ""), (7, 7), (None, None),
        (NIL_ARRAY, None), ([b"a", [1, None], []], ["a", [1, None], []]), (b"\xff", "�"),
    ],
)  # fmt: skip
def test_a_reply_is_read_as_a_value(value: Any, read: Any, version: int) -> None:
    assert reply(called(to_resp(value, version))) == {"result": read}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Map([b"a", 1]), {"a": 1}), (SetReply([b"a"]), ["a"]),
        (Push("message", [b"message", b"c"]), ["message", "c"]), (Bool(True), True),
        (Verbatim(b"text"), "text"), (1.5, 1.5),
    ],
)  # fmt: skip
def test_a_reply_of_the_third_protocol_is_read_as_a_value(value: Any, read: Any) -> None:
    assert reply(called(to_resp(value, 3))) == {"result": read}


def test_an_error_is_one_alone_and_among_others() -> None:
    assert reply(called(b"-ERR no\r\n")) == {"error": "ERR no"}
    assert reply(called(b"!6\r\nERR no\r\n")) == {"error": "ERR no"}
    assert reply(called(b"*2\r\n+OK\r\n-ERR no\r\n")) == {"result": ["OK", {"error": "ERR no"}]}
    assert reply(called(b"|1\r\n+key\r\n:1\r\n+OK\r\n")) == {"result": "OK"}


@pytest.mark.parametrize("answer", [b"", b"$5\r\nab", b"*2\r\n:1\r\n", b":x\r\n"])
def test_half_a_reply_is_none(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        reply(called(answer))


@pytest.mark.parametrize("protocol", [2, 3])
def test_commands_read_as_they_do_over_rest(cloud: Cloud, protocol: int) -> None:
    with client(cloud, protocol=protocol) as kv:
        kv.set("k", "1")
        kv.get("k")
        kv.lrange("list", 0, -1)
        kv.hset("h", mapping={"f": "v w"})
        with pytest.raises(redis.ResponseError):
            kv.llen("h")
    assert lines(cloud) == [
        "SET k 1 <-- OK",
        'GET k <-- "1"',
        "LRANGE list 0 -1 <-- []",
        'HSET h f "v w" <-- 1',
        "LLEN h <-- WRONGTYPE Operation against a key holding the wrong kind of value",
    ]


def test_one_connection_is_not_told_and_of_two_each_is(cloud: Cloud) -> None:
    with client(cloud) as kv, client(cloud) as other:
        kv.ping()
        assert [row.what for row in rows(cloud)] == ["PING"]
        other.ping()
        version = redis.__version__
        connect = f"connect with redis-py {version}"
        assert [row.what for row in rows(cloud)] == [connect, "PING", connect, "PING"]


def test_a_connection_that_asked_nothing_is_told(cloud: Cloud) -> None:
    with client(cloud) as kv:
        connection = kv.connection_pool.make_connection()
        connection.connect()
        connection.disconnect()
    assert [row.what.partition(" with")[0] for row in rows(cloud)] == ["connect"]


def test_a_greeting_that_was_refused_is_told(cloud: Cloud) -> None:
    server = cloud.kv_server()
    host = server.database_url.rpartition("@")[2]
    wrong = f"redis://default:wrong-password@{host}"
    with redis.Redis.from_url(wrong) as kv, pytest.raises(redis.AuthenticationError):
        kv.ping()
    text = section(cloud)
    assert "WRONGPASS" in text or "NOAUTH" in text
    assert "wrong-password" not in text


def test_a_transaction_stands_in_the_row_of_its_end(cloud: Cloud) -> None:
    commands(
        "~a: MULTI | ~a: SET a 1 | ~a: LPUSH a x | ~a: EXEC | ~a: MULTI | ~a: INCR n | ~a: DISCARD"
    )(cloud)
    assert lines(cloud) == [
        "EXEC of 2 <-- 2 answers, 1 error | SET a 1 <-- OK | "
        "LPUSH a x <-- WRONGTYPE Operation against a key holding the wrong kind of value",
        "DISCARD of 1 <-- OK | INCR n",
    ]


def test_a_transaction_that_a_watched_key_ended_says_so(cloud: Cloud) -> None:
    commands("~a: WATCH a | ~b: SET a 2 | ~a: MULTI | ~a: SET a 1 | ~a: EXEC")(cloud)
    assert lines(cloud)[-1] == (
        "EXEC of 1 <-- null: a watched key was changed, so nothing was executed | SET a 1"
    )


def test_steps_belong_to_the_transaction_of_their_connection(cloud: Cloud) -> None:
    commands("PING | ~a: MULTI | ~b: MULTI | ~a: INCR a | ~b: INCR b | ~b: EXEC | ~a: EXEC")(cloud)
    assert lines(cloud) == ["PING <-- PONG", "EXEC of 1 <-- 1 answer | INCR b <-- 1",
                            "EXEC of 1 <-- 1 answer | INCR a <-- 1"]  # fmt: skip


def test_a_second_greeting_is_one_of_its_own(cloud: Cloud) -> None:
    commands("~a: PING | ~b: HELLO 2 | ~b: PING")(cloud)
    assert [row.what.partition(" with")[0] for row in rows(cloud)] == [
        "connect", "PING", "connect", "connect", "PING",
    ]  # fmt: skip


def test_a_step_that_was_refused_keeps_its_row(cloud: Cloud) -> None:
    commands("~a: MULTI | ~a: NOSUCH | ~a: SET a 1 | ~a: EXEC")(cloud)
    first, second = lines(cloud)
    assert first.startswith("NOSUCH <-- ERR Command is not available")
    assert second.startswith("EXEC of 1 <-- EXECABORT")
    assert second.endswith(" | SET a 1")


def test_what_a_fault_does_meanwhile_stands_below(cloud: Cloud) -> None:
    with client(cloud) as kv, client(cloud) as other:
        other.ping()
        kv.ping()
        cloud.fakes()[0].faults.call(lambda *_: other.set("a", "2"), command="GET")
        kv.get("a")
    got, put = rows(cloud)[-2:]
    assert (got.what, put.what, put.depth) == ("GET a", "SET a 2", got.depth + 1)


def test_a_large_reply_is_told_by_its_size(cloud: Cloud) -> None:
    with client(cloud) as kv:
        kv.set("a", "x" * 2_000_000)
        kv.get("a")
    assert lines(cloud)[-1] == "GET a <-- 2000012 bytes"


def test_a_command_without_a_reply_says_so(cloud: Cloud) -> None:
    with client(cloud) as kv:
        connection = kv.connection_pool.make_connection()
        connection.connect()
        connection.send_command("CLIENT", "REPLY", "SKIP")
        connection.send_command("SET", "a", "1")
        connection.send_command("PING")
        assert connection.read_response() == "PONG"
        connection.disconnect()
    assert "SET a 1 <-- no reply" in lines(cloud)


def test_no_secret_is_told(cloud: Cloud) -> None:
    with client(cloud) as kv:
        kv.execute_command("MULTI")
        kv.execute_command("ACL", "SETUSER", "ada", "on", ">her-secret-word")
        kv.execute_command("SET", "a", cloud.fakes()[0].token)  # type: ignore[attr-defined]
        kv.execute_command("EXEC")
    text = section(cloud, width=140) + str(rows(cloud))
    assert "her-secret-word" not in text
    assert cloud.fakes()[0].token not in text  # type: ignore[attr-defined]


def test_a_hidden_command_of_a_transaction_shifts_no_answers(cloud: Cloud) -> None:
    with client(cloud) as kv:
        kv.execute_command("MULTI")
        kv.execute_command("GET", "a")
        kv.execute_command("ACL", "SETUSER", "ada", "on", ">her-secret-word")
        kv.execute_command("GET", "b")
        kv.execute_command("EXEC")
    report = report_of(cloud)
    (executed,) = [row.source.call for row in report.rows if row.operation == "EXEC"]
    assert executed is not None
    accesses = [(access.subject.name, access.succeeded)
                for access in of_call(executed, report.lookups) if not access.is_named]  # fmt: skip
    assert accesses == [("a", None), ("b", None)]
