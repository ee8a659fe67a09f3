"""Scripts and function libraries, apart from the scenarios."""

from __future__ import annotations

from hashlib import sha1

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import BigNumber, Map, SetReply, Status, Verbatim
from pytest_fakecloud.kv.scripting.scripts import ScriptLimits
from pytest_fakecloud.kv.settings import KVConfig
from tests.kv.conftest import Run

stock = pytest.mark.dialect("redis")


def digest(script: str) -> str:
    return sha1(script.encode()).hexdigest()


def tail(script: str, line: int = 1) -> str:
    return f" script: {digest(script)}, on @user_script:{line}."


@pytest.mark.parametrize(
    ("value", "reply"),
    [
        ("true", 1), ("redis.setresp(3) or true", 1), ("{ok='FINE'}", Status(b"FINE")),
        ("{double=3.5}", 3.5), ("{{double=2}}", [2.0]), ("{map={a=1}}", Map([b"a", 1])),
        ("{set={a=true}}", SetReply([b"a"])), ("{big_number='123'}", BigNumber(b"123")),
        ("{verbatim_string={format='txt', string='x'}}", Verbatim(b"x")),
        ("redis.call('GET', 'missing') == false", 1), ("redis.call('PING')", Status(b"PONG")),
        ("redis.call('ZSCORE', 'z', 'm')", b"1.5"),
    ],
)  # fmt: skip
def test_replies_have_types(run: Run, value: str, reply: object) -> None:
    """Their contents are compared with real servers in `tests/kv/scripting`."""
    run("ZADD z 1.5 m")
    actual = run("EVAL", f"return {value}", 0)
    assert (type(actual), actual) == (type(reply), reply)


def test_an_error_in_a_list_has_its_text(run: Run) -> None:
    number, error = run("EVAL", r"return {1, {err='two\r\nlines'}}", 0)
    assert (number, str(error)) == (1, "two  lines")


def test_the_vendor_says_where_first(run: Run) -> None:
    text = run.error("EVAL", "\nerror('boom')", 0)
    assert text.startswith("ERR Error running script: @user_script:2: boom\n")
    assert "stack traceback:" in text


@stock
@pytest.mark.parametrize("command", ["SET k v", "PUBLISH c m", "PFCOUNT k", "DEL k"])
def test_writes_are_refused(run: Run, command: str) -> None:
    words = ", ".join(f"'{word}'" for word in command.split())
    script = f"return redis.call({words})"
    text = "ERR Write commands are not allowed from read-only scripts."
    assert run.error("EVAL_RO", script, 0) == text + tail(script)
    run("SCRIPT", "LOAD", script)
    assert run.error("EVALSHA_RO", digest(script), 0) == text + tail(script)
    assert run.error("EVAL_RO", script.replace("call", "pcall"), 0) == text
    flagged = f"#!lua flags=no-writes\n{script}"
    assert run.error("EVAL", flagged, 0) == text + tail(flagged, 2)


def test_an_unknown_digest_is_not_the_name_of_a_function(run: Run, engine: KVEngine) -> None:
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


def test_loading_without_an_end_is_stopped(run: Run, engine: KVEngine) -> None:
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


def test_a_snapshot_holds_scripts_and_libraries(run: Run, engine: KVEngine) -> None:
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


def test_a_snapshot_holds_the_settings_of_cjson(run: Run, engine: KVEngine) -> None:
    def precisions() -> list[object]:
        code = "return cjson.encode_number_precision()"
        functions = f"redis.register_function('read', function() {code} end)"
        run("FUNCTION", "LOAD", "REPLACE", library("l", functions))
        return [run("EVAL", code, 0), run("FCALL read 0")]

    initial = engine.snapshot()
    code = "redis.register_function('change', function() cjson.encode_number_precision(3) end)"
    run("FUNCTION", "LOAD", library("l", code))
    run("FCALL change 0")
    run("EVAL", "cjson.encode_number_precision(4)", 0)
    changed = engine.snapshot()
    engine.restore(initial)
    assert precisions() == [14, 14]
    engine.restore(changed)
    assert precisions() == [4, 3]


def test_a_snapshot_that_cannot_be_loaded_changes_nothing(run: Run, engine: KVEngine) -> None:
    run("FUNCTION", "LOAD", library("l"))
    run("SCRIPT", "LOAD", "return 1")
    before = engine.scripting.snapshot()
    libraries = library("new").encode(), b"#!lua name=bad\nx("
    with pytest.raises(CommandError, match="compiling"):
        engine.scripting.restore(before._replace(scripts={}, libraries=libraries))
    assert engine.scripting.snapshot() == before
    assert [listed_library[1] for listed_library in run("FUNCTION LIST")] == [b"l"]


@pytest.mark.parametrize(("version", "advances"), [("7.0.15", 1), ("7.2.0", None)])
def test_time_advances_in_scripts_before_7_2(version: str, advances: int | None) -> None:
    engine = KVEngine(Timekeeper(), Ids(1), KVConfig(dialect="redis", version=version))
    script = """
        local start = redis.call('TIME')[2]
        for _ = 1, 5000 do if redis.call('TIME')[2] ~= start then return true end end
        return false
    """
    assert engine.execute(engine.session(), [b"EVAL", script.encode(), b"0"]) == advances
