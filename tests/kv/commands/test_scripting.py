"""Scripts and function libraries, apart from the scenarios."""

from __future__ import annotations

from hashlib import sha1

import pytest

from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import BigNumber, Bool, Map, SetReply, Status, Verbatim
from pytest_fakecloud.kv.scripting.runs import ScriptLimits
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
stock = pytest.mark.dialect("redis")


def digest(script: str) -> str:
    return sha1(script.encode()).hexdigest()


def tail(script: str, line: int = 1) -> str:
    return f" script: {digest(script)}, on @user_script:{line}."


class TestReplies:
    @pytest.mark.parametrize(
        ("value", "reply"),
        [
            ("1", 1), ("3.99", 3), ("-3.99", -3), ("'a'", b"a"), ("true", 1), ("false", None),
            ("nil", None), ("{}", []), ("{1, 'a', true, false, {2}}", [1, b"a", 1, None, [2]]),
            ("{1, nil, 3}", [1]), ("{ok='FINE'}", Status(b"FINE")),
            ("redis.status_reply('FINE')", Status(b"FINE")), ("{double=3.5}", 3.5),
            ("{{double=2}}", [2.0]), ("{map={a=1}}", Map([b"a", 1])),
            ("{set={a=true}}", SetReply([b"a"])),
            ("{verbatim_string={format='txt', string='x'}}", Verbatim(b"x")),
            ("redis.call('GET', 'missing')", None), ("{redis.call('GET', 'missing')}", [None]),
            ("redis.call('GET', 'missing') == false", 1), ("redis.call('PING')", Status(b"PONG")),
            ("redis.call('TIME')[2]", b"0"),
        ],
    )  # fmt: skip
    def test_values(self, run: Run, value: str, reply: object) -> None:
        found = run("EVAL", f"return {value}", 0)
        assert (type(found), found) == (type(reply), reply)

    def test_a_big_number(self, run: Run) -> None:
        found = run("EVAL", "return {big_number='123'}", 0)
        assert isinstance(found, BigNumber)
        assert found.text == b"123"

    def test_the_other_protocol(self, run: Run) -> None:
        assert run("EVAL", "redis.setresp(3) return true", 0) == Bool(True)
        assert run("EVAL", "redis.setresp(3) return {false}", 0) == [Bool(False)]
        run("HSET h f v")
        run("SADD s m")
        run("ZADD z 1.5 m")
        script = (
            "redis.setresp(3) return {redis.call('HGETALL', 'h').map.f, "
            "redis.call('SMEMBERS', 's').set.m, redis.call('ZSCORE', 'z', 'm'), "
            "redis.call('GET', 'missing') == nil}"
        )
        assert run("EVAL", script, 0) == [b"v", Bool(True), 1.5, Bool(True)]
        assert run("EVAL", "return redis.call('HGETALL', 'h')", 0) == [b"f", b"v"]
        assert run("EVAL", "return redis.call('ZSCORE', 'z', 'm')", 0) == b"1.5"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("{err='MY err'}", "MY err"), ("{err='boom'}", "boom"),
            (r"{err='two\r\nlines'}", "two  lines"), ("redis.error_reply('My Err')", "My Err"),
            ("redis.error_reply('-My Err')", "My Err"), ("redis.error_reply('plain')", "ERR plain"),
            ("redis.error_reply('custom')", "ERR custom"),
            ("redis.error_reply(1)", "ERR wrong number or type of arguments"),
            ("redis.status_reply()", "ERR wrong number or type of arguments"),
            ("redis.pcall('LPUSH', 'string', 1)", WRONGTYPE),
            ("redis.pcall('GET', {})",
             "ERR Lua redis lib command arguments must be strings or integers"),
        ],
    )  # fmt: skip
    def test_errors(self, run: Run, value: str, text: str) -> None:
        run("SET string x")
        assert run.error("EVAL", f"return {value}", 0) == text
        nested = run("EVAL", f"return {{1, {value}}}", 0)
        assert nested[0] == 1
        assert str(nested[1]) == text


class TestVendorErrors:
    def test_the_vendor_says_where_first(self, run: Run) -> None:
        text = run.error("EVAL", "\nerror('boom')", 0)
        assert text.startswith("ERR Error running script: @user_script:2: boom\n")
        assert "stack traceback:" in text


class TestReadOnly:
    @stock
    @pytest.mark.parametrize("command", ["SET k v", "PUBLISH c m", "PFCOUNT k", "DEL k"])
    def test_writes_are_refused(self, run: Run, command: str) -> None:
        words = ", ".join(f"'{word}'" for word in command.split())
        script = f"return redis.call({words})"
        text = "ERR Write commands are not allowed from read-only scripts."
        assert run.error("EVAL_RO", script, 0) == text + tail(script)
        run("SCRIPT", "LOAD", script)
        assert run.error("EVALSHA_RO", digest(script), 0) == text + tail(script)
        assert run.error("EVAL_RO", script.replace("call", "pcall"), 0) == text
        flagged = f"#!lua flags=no-writes\n{script}"
        assert run.error("EVAL", flagged, 0) == text + tail(flagged, 2)


def test_an_unknown_digest_is_not_the_name_of_a_function(run: Run, engine: Engine) -> None:
    digest = "f" * 40
    register = f"{{function_name='{digest}', flags={{'no-writes'}}, callback=function() end}}"
    run("FUNCTION", "LOAD", f"#!lua name=l\nredis.register_function{register}")

    def may_write(command: str) -> bool:
        line = [command.encode(), digest.encode(), b"0"]
        return engine.scripting.may_write(engine.table.resolve(line), line)

    assert (may_write("FCALL"), may_write("EVALSHA")) == (False, True)


def library(name: str, body: str = "") -> str:
    body = body or f"redis.register_function('{name}_f', function() return '{name}' end)"
    return f"#!lua name={name}\n{body}"


@pytest.mark.parametrize(
    "line", ['#!lua name="quo\\x74ed"', "#!lua  name='quoted' ", "#!LUA\tNAME=quoted"]
)
def test_the_first_line_is_quoted_as_a_shell_would(run: Run, line: str) -> None:
    source = f"{line}\nredis.register_function('f', function() return 1 end)"
    assert run("FUNCTION", "LOAD", source) == b"quoted"


def test_loading_without_an_end_is_stopped(run: Run, engine: Engine) -> None:
    engine.scripting.limits = ScriptLimits(instructions=100_000)
    error = run.error("FUNCTION", "LOAD", library("zz", "while true do end"))
    assert error == "ERR Error registering functions: ERR FUNCTION LOAD timeout"
    assert run("FUNCTION", "LOAD", library("zz")) == b"zz"


def test_a_damaged_payload_is_rejected(run: Run) -> None:
    run("FUNCTION", "LOAD", library("l"))
    payload = run("FUNCTION DUMP")
    for place in range(0, len(payload), 7):
        touched = bytearray(payload)
        touched[place] ^= 1
        error = run.error(b"FUNCTION", b"RESTORE", bytes(touched), b"FLUSH")
        assert error == "ERR DUMP payload version or checksum are wrong"


def test_a_snapshot_holds_scripts_and_libraries(run: Run, engine: Engine) -> None:
    count = "local n = 0 redis.register_function('count', function() n = n + 1 return n end)"
    run("FUNCTION", "LOAD", library("l", count))
    assert run("FCALL count 0") == 1
    run("SCRIPT", "LOAD", "return 1")
    saved = engine.snapshot()
    run("FUNCTION FLUSH")
    run("SCRIPT FLUSH")
    run("SCRIPT", "LOAD", "return 2")
    engine.restore(saved)
    assert run("FCALL count 0") == 1  # loading again resets the library's variables
    assert run("SCRIPT", "EXISTS", digest("return 1"), digest("return 2")) == [1, 0]
    assert run("EVALSHA", digest("return 1"), 0) == 1


def test_a_snapshot_that_cannot_be_loaded_changes_nothing(run: Run, engine: Engine) -> None:
    run("FUNCTION", "LOAD", library("l"))
    saved = engine.scripting.snapshot()
    bad = saved._replace(libraries=(library("new").encode(), b"#!lua name=bad\nx("))
    with pytest.raises(CommandError, match="compiling"):
        engine.scripting.restore(bad)
    assert [found[1] for found in run("FUNCTION LIST")] == [b"l"]
