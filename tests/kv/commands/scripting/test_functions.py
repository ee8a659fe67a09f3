"""Function libraries, and calls of their functions."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import OK, Status
from pytest_fakecloud.kv.scripting.limits import ScriptLimits
from tests.kv.conftest import Run

LIBRARY = """#!lua name=mylib
local calls = 0
local function get(keys, args) return redis.call('GET', keys[1]) end
redis.register_function('set', function(keys, args)
  return redis.call('SET', keys[1], args[1])
end)
redis.register_function{
  function_name='get', callback=get, description='reads', flags={'no-writes'}
}
redis.register_function('count', function() calls = calls + 1 return calls end)
"""
stock = pytest.mark.dialect("redis")
NAME_RULE = (
    "names can only contain letters, numbers, or underscores(_) and must be at least one character"
    " long"
)


@pytest.fixture
def loaded(run: Run) -> Run:
    run("FUNCTION", "LOAD", LIBRARY)
    return run


def library(name: str, body: str = "") -> str:
    body = body or f"redis.register_function('{name}_f', function() return '{name}' end)"
    return f"#!lua name={name}\n{body}"


@pytest.mark.parametrize(
    "line", ['#!lua name="quo\\x74ed"', "#!lua  name='quoted' ", "#!LUA\tNAME=quoted"]
)
def test_the_first_line_is_quoted_as_a_shell_would(run: Run, line: str) -> None:
    source = f"{line}\nredis.register_function('f', function() return 1 end)"
    assert run("FUNCTION", "LOAD", source) == b"quoted"


class TestCalls:
    def test_keys_and_arguments(self, loaded: Run) -> None:
        assert loaded("FCALL set 1 k v") == OK
        assert loaded("FCALL get 1 k") == b"v"
        assert loaded("FCALL_RO get 1 k") == b"v"

    def test_variables_of_a_library_stay(self, loaded: Run) -> None:
        assert [loaded("FCALL count 0") for _ in range(3)] == [1, 2, 3]

    @pytest.mark.parametrize("command", ["FCALL", "FCALL_RO"])
    @pytest.mark.parametrize(
        ("words", "text"),
        [
            ("nosuch 0", "ERR Function not found"),
            ("nosuch x", "ERR Function not found"),
            ("get x", "ERR Bad number of keys provided"),
            ("get -1", "ERR Number of keys can't be negative"),
            ("get 2 k", "ERR Number of keys can't be greater than number of args"),
        ],
    )
    def test_bad_calls(self, loaded: Run, command: str, words: str, text: str) -> None:
        assert loaded.error(f"{command} {words}") == text

    @stock
    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ("error('x')", "ERR user_function:3: x"),
            ("return redis.call('LPUSH', 'string', 1)",
             "WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("return redis.call('GET')",
             "ERR Wrong number of args calling Redis command from script"),
            ("return KEYS",
             "ERR user_function:3: Script attempted to access nonexistent global variable 'KEYS'"),
            ("return redis.register_function('g', function() end)",
             "ERR user_function:3: attempt to call field 'register_function' (a nil value)"),
            ("return redis.breakpoint()",
             "ERR user_function:3: attempt to call field 'breakpoint' (a nil value)"),
        ],
    )  # fmt: skip
    def test_errors_name_function_and_line(self, run: Run, body: str, text: str) -> None:
        run("SET string x")
        run(
            "FUNCTION",
            "LOAD",
            library("l", f"redis.register_function('f2', function()\n{body} end)"),
        )
        assert run.error("FCALL f2 0") == f"{text} script: f2, on @user_function:3."

    @stock
    def test_stock_refuses_unflagged_functions_to_readers(self, loaded: Run) -> None:
        text = "ERR Can not execute a script with write flag using *_ro command."
        assert loaded.error("FCALL_RO count 0") == text

    def test_the_vendor_runs_them_while_they_read(self, loaded: Run) -> None:
        assert loaded("FCALL_RO count 0") == 1
        assert "commands are not allowed from read-only" in loaded.error("FCALL_RO set 1 k v")
        assert loaded("EXISTS k") == 0


class TestLoad:
    def test_the_name_is_the_reply(self, run: Run) -> None:
        assert run("FUNCTION", "LOAD", LIBRARY) == b"mylib"
        assert run("FUNCTION", "LOAD", "REPLACE", LIBRARY) == b"mylib"
        assert run("FUNCTION", "LOAD", "replace", library("other")) == b"other"

    def test_a_library_in_the_way(self, loaded: Run) -> None:
        text = "ERR Library 'mylib' already exists"
        assert loaded.error("FUNCTION", "LOAD", library("mylib")) == text
        text = "ERR Function get already exists"
        other = library("other", "redis.register_function('get', function() end)")
        assert loaded.error("FUNCTION", "LOAD", other) == text
        assert loaded.error("FUNCTION", "LOAD", "REPLACE", other) == text

    def test_replacing_takes_the_old_functions_away(self, loaded: Run) -> None:
        loaded("FUNCTION", "LOAD", "REPLACE", library("mylib"))
        assert loaded("FCALL mylib_f 0") == b"mylib"
        assert loaded.error("FCALL get 1 k") == "ERR Function not found"

    @pytest.mark.parametrize(
        ("code", "text"),
        [
            ("", "Missing library metadata"),
            ("return 1", "Missing library metadata"),
            ("lua name=x\nreturn 1", "Missing library metadata"),
            ("#!lua", "Invalid library metadata"),
            ("#!", "Invalid library metadata"),
            ("#!lua\nreturn 1", "Library name was not given"),
            ("#!lua name=a-b\nx", f"Library {NAME_RULE}"),
            ("#!lua name=\nx", f"Library {NAME_RULE}"),
            ('#!lua name="q\nreturn 1', "Invalid library metadata"),
            ("#!lua x=y\nreturn 1", "Invalid metadata value given: x=y"),
            ("#!lua name=q name=r\nx",
             "Invalid metadata value, name argument was given multiple times"),
            ("#!js name=a\nx", "Engine 'js' not found"),
            ("#! name=a\nx", "Engine '' not found"),
            ("#!lua name=q\nxx(",
             "Error compiling function: user_function:2: unexpected symbol near '<eof>'"),
            ("#!lua name=q\nreturn 1", "No functions registered"),
        ],
    )  # fmt: skip
    def test_bad_libraries(self, run: Run, code: str, text: str) -> None:
        assert run.error("FUNCTION", "LOAD", code) == f"ERR {text}"
        assert run("FUNCTION LIST") == []

    def test_names_that_differ_in_case_are_the_same(self, run: Run) -> None:
        register = "redis.register_function('{0}', function() return '{0}' end)\n"
        both = library("l", register.format("f") + register.format("F"))
        text = "ERR Error registering functions: ERR Function already exists in the library"
        assert run.error("FUNCTION", "LOAD", both) == text
        assert run("FUNCTION LIST") == []

    def test_unknown_options(self, run: Run) -> None:
        assert run.error("FUNCTION", "LOAD", "junk", LIBRARY) == "ERR Unknown option given: junk"

    def test_loading_without_an_end_is_stopped(self, run: Run, engine: Engine) -> None:
        engine.scripting.limits = ScriptLimits(instructions=100_000)
        error = run.error("FUNCTION", "LOAD", library("zz", "while true do end"))
        assert error == "ERR Error registering functions: ERR FUNCTION LOAD timeout"
        assert run("FUNCTION", "LOAD", library("zz")) == b"zz"


def entry(name: str, functions: list[Any], *more: Any) -> list[Any]:
    return [b"library_name", name.encode(), b"engine", b"LUA", b"functions", functions, *more]


class TestList:
    def test_everything(self, loaded: Run) -> None:
        loaded("FUNCTION", "LOAD", library("other"))
        functions = [
            [b"name", b"set", b"description", None, b"flags", []],
            [b"name", b"get", b"description", b"reads", b"flags", [Status(b"no-writes")]],
            [b"name", b"count", b"description", None, b"flags", []],
        ]
        other: list[Any] = [[b"name", b"other_f", b"description", None, b"flags", []]]
        assert loaded("FUNCTION LIST") == [entry("mylib", functions), entry("other", other)]

    def test_by_name_with_code(self, loaded: Run) -> None:
        code = library("other")
        loaded("FUNCTION", "LOAD", code)
        (found,) = loaded("FUNCTION LIST LIBRARYNAME o*r WITHCODE")
        assert found[1] == b"other"
        assert found[-2:] == [b"library_code", code.encode()]
        assert loaded("FUNCTION LIST LIBRARYNAME nothing") == []

    def test_stats(self, loaded: Run) -> None:
        assert loaded("FUNCTION STATS") == [
            b"running_script", None,
            b"engines", [b"LUA", [b"libraries_count", 1, b"functions_count", 3]],
        ]  # fmt: skip


class TestRemoving:
    def test_delete(self, loaded: Run) -> None:
        assert loaded("FUNCTION DELETE mylib") == OK
        assert loaded.error("FUNCTION DELETE mylib") == "ERR Library not found"
        assert loaded.error("FCALL get 1 k") == "ERR Function not found"

    @pytest.mark.parametrize("mode", ["", "SYNC", "ASYNC"])
    def test_flush(self, loaded: Run, mode: str) -> None:
        assert loaded(f"FUNCTION FLUSH {mode}") == OK
        assert loaded("FUNCTION LIST") == []

    def test_help(self, run: Run) -> None:
        assert run("FUNCTION HELP")[0].text.startswith(b"FUNCTION <subcommand>")


class TestPayloads:
    def test_there_and_back(self, loaded: Run) -> None:
        loaded("SET k v")
        listed = loaded("FUNCTION LIST WITHCODE")
        payload = loaded("FUNCTION DUMP")
        loaded("FUNCTION FLUSH")
        assert loaded(b"FUNCTION", b"RESTORE", payload) == OK
        loaded("FUNCTION FLUSH")
        assert loaded(b"FUNCTION", b"RESTORE", payload, b"APPEND") == OK
        assert loaded("FUNCTION LIST WITHCODE") == listed
        assert loaded("FCALL get 1 k") == b"v"

    def test_policies(self, loaded: Run) -> None:
        payload = loaded("FUNCTION DUMP")
        loaded("FUNCTION", "LOAD", library("other"))
        text = "ERR Library mylib already exists"
        assert loaded.error(b"FUNCTION", b"RESTORE", payload) == text
        assert loaded.error(b"FUNCTION", b"RESTORE", payload, b"APPEND") == text
        assert loaded(b"FUNCTION", b"RESTORE", payload, b"REPLACE") == OK
        assert len(loaded("FUNCTION LIST")) == 2
        assert loaded(b"FUNCTION", b"RESTORE", payload, b"FLUSH") == OK
        assert [found[1] for found in loaded("FUNCTION LIST")] == [b"mylib"]

    def test_bad_policies(self, loaded: Run) -> None:
        payload = loaded("FUNCTION DUMP")
        assert loaded.error(b"FUNCTION", b"RESTORE", payload, b"junk") == (
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
        )
        assert loaded.error(b"FUNCTION", b"RESTORE", payload, b"FLUSH", b"x") == (
            "ERR unknown subcommand or wrong number of arguments for 'RESTORE'. Try FUNCTION HELP."
        )

    @pytest.mark.parametrize(
        "payload",
        [
            b"", b"x", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
            b"cos\nsystem\n(S'true'\ntR.", b"\xf5" + b"\x00" * 30,
        ],
    )  # fmt: skip
    def test_payloads_without_a_valid_checksum(self, loaded: Run, payload: bytes) -> None:
        text = "ERR DUMP payload version or checksum are wrong"
        before = loaded("FUNCTION LIST")
        assert loaded.error(b"FUNCTION", b"RESTORE", payload, b"FLUSH") == text
        assert loaded("FUNCTION LIST") == before

    def test_a_damaged_payload_is_rejected(self, loaded: Run) -> None:
        text = "ERR DUMP payload version or checksum are wrong"
        payload = loaded("FUNCTION DUMP")
        for place in range(0, len(payload), 7):
            touched = bytearray(payload)
            touched[place] ^= 1
            assert loaded.error(b"FUNCTION", b"RESTORE", bytes(touched), b"FLUSH") == text
        loaded("SET k v")
        text = "ERR given type is not a function"
        assert loaded.error(b"FUNCTION", b"RESTORE", loaded("DUMP k"), b"FLUSH") == text

    def test_a_snapshot_holds_the_libraries(self, loaded: Run, engine: Engine) -> None:
        assert loaded("FCALL count 0") == 1
        saved = engine.snapshot()
        loaded("FUNCTION FLUSH")
        engine.restore(saved)
        assert loaded("FCALL count 0") == 1  # loading again resets the library's variables

    def test_a_snapshot_that_cannot_be_loaded_changes_nothing(
        self, loaded: Run, engine: Engine
    ) -> None:
        saved = engine.scripting.snapshot()
        bad = saved._replace(libraries=(library("new").encode(), b"#!lua name=bad\nx("))
        with pytest.raises(CommandError, match="compiling"):
            engine.scripting.restore(bad)
        assert [found[1] for found in loaded("FUNCTION LIST")] == [b"mylib"]
