"""EVAL, EVALSHA, their read-only forms, and the script cache."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import OK, BigNumber, Bool, Map, SetReply, Status, Verbatim
from pytest_fakecloud.kv.scripting.runs import ScriptLimits
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOSCRIPT = "NOSCRIPT No matching script. Please use EVAL."
stock = pytest.mark.dialect("redis")


def digest(script: str) -> str:
    return sha1(script.encode()).hexdigest()


def tail(script: str, line: int = 1) -> str:
    return f" script: {digest(script)}, on @user_script:{line}."


class TestEval:
    def test_it_queues_in_a_transaction(self, run: Run) -> None:
        run("MULTI")
        run("EVAL", "return redis.call('INCR', 'n')", 0)
        run("EVAL", "return redis.call('LPUSH', 'n', 1)", 0)
        first, second = run("EXEC")
        assert first == 1
        assert isinstance(second, CommandError)


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
            ("{err='MY err'}", "MY err"),
            ("{err='boom'}", "boom"),
            (r"{err='two\r\nlines'}", "two  lines"),
            ("redis.error_reply('My Err')", "My Err"),
            ("redis.error_reply('-My Err')", "My Err"),
            ("redis.error_reply('plain')", "ERR plain"),
            ("redis.error_reply('custom')", "ERR custom"),
            ("redis.error_reply(1)", "ERR wrong number or type of arguments"),
            ("redis.status_reply()", "ERR wrong number or type of arguments"),
            ("redis.pcall('LPUSH', 'string', 1)", WRONGTYPE),
            (
                "redis.pcall('GET', {})",
                "ERR Lua redis lib command arguments must be strings or integers",
            ),
        ],
    )
    def test_errors(self, run: Run, value: str, text: str) -> None:
        run("SET string x")
        assert run.error("EVAL", f"return {value}", 0) == text
        nested = run("EVAL", f"return {{1, {value}}}", 0)
        assert nested[0] == 1
        assert str(nested[1]) == text


class TestArguments:
    @pytest.mark.parametrize(
        ("number", "text"),
        [("1", b"1"), ("1.5", b"1.5"), ("0.1", b"0.1"), ("3.0", b"3"), ("1e20", b"1e+20")],
    )
    def test_numbers(self, run: Run, number: str, text: bytes) -> None:
        run("EVAL", f"redis.call('SET', 'n', {number})", 0)
        assert run("GET n") == text


@stock
class TestStockErrors:
    def test_the_line_is_the_one_of_the_call(self, run: Run) -> None:
        script = "local function f()\n  return redis.call('GET')\nend\n\nreturn f()"
        assert run.error("EVAL", script, 0).endswith(tail(script, 2))


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


class TestShebang:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("#!lua flags=foo\n", "ERR Unexpected flag in script shebang: foo"),
            ("#!lua flags=no-writes,\n", "ERR Unexpected flag in script shebang: "),
            ("#!lua bar=1\n", "ERR Unknown lua shebang option: bar=1"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#!lua 'flags=\n", "ERR Invalid engine in script shebang"),
            ("#!luax\n", "ERR Unexpected engine in script shebang: #!luax"),
            ("#!lua", "ERR Invalid script shebang"),
        ],
    )
    def test_bad_lines(self, run: Run, line: str, text: str) -> None:
        for command in (("EVAL",), ("EVAL_RO",)):
            assert run.error(*command, f"{line}return 1", 0) == (
                text if "\n" in line else "ERR Invalid script shebang"
            )
        assert run.error("SCRIPT", "LOAD", f"{line}return 1").startswith(text[:20])

    @pytest.mark.parametrize(
        "flags",
        ["", "no-writes", "no-writes,allow-stale,allow-oom,no-cluster,allow-cross-slot-keys"],
    )
    def test_known_flags(self, run: Run, flags: str) -> None:
        assert run("EVAL", f"#!lua flags={flags}\nreturn 1", 0) == 1


class TestOtherFunctions:
    @pytest.mark.parametrize(
        ("call", "reply"),
        [
            ("redis.sha1hex('')", b"da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("redis.log(redis.LOG_WARNING, 'x')", None),
            ("redis.replicate_commands()", 1),
            ("redis.set_repl(redis.REPL_ALL)", None),
            ("redis.breakpoint()", None),
            ("redis.debug('x')", None),
            ("redis.acl_check_cmd('SET', 'k', 'v')", 1),
            ("redis.REDIS_VERSION", b"8.2.0"),
            ("redis.REDIS_VERSION_NUM", 0x80200),
            ("server.call('PING')", Status(b"PONG")),
            ("redis.LOG_DEBUG + redis.LOG_VERBOSE + redis.LOG_NOTICE", 3),
            ("redis.REPL_NONE + redis.REPL_AOF + redis.REPL_SLAVE + redis.REPL_REPLICA", 5),
        ],
    )
    def test_answers(self, run: Run, call: str, reply: object) -> None:
        assert run("EVAL", f"return {call}", 0) == reply

    def test_random_numbers_are_those_of_the_server(self, run: Run) -> None:
        script = "return {math.random(1000000), math.random(1000000), math.random(1000000)}"
        assert run("EVAL", script, 0) == [396465, 840486, 353337]
        assert run("EVAL", "math.randomseed(5) return math.random(1000000)", 0) == 524840


class TestCache:
    @pytest.mark.parametrize("command", ["EVALSHA", "EVALSHA_RO"])
    @pytest.mark.parametrize("sha", ["x", "f" * 40])
    def test_unknown_scripts(self, run: Run, command: str, sha: str) -> None:
        assert run.error(command, sha, 0) == NOSCRIPT
        assert run.error("SCRIPT", "SHOW", sha) == NOSCRIPT

    @pytest.mark.parametrize("mode", ["", "SYNC", "ASYNC"])
    def test_flush(self, run: Run, mode: str) -> None:
        run("SCRIPT", "LOAD", "return 1")
        assert run(f"SCRIPT FLUSH {mode}") == OK
        assert run.error("EVALSHA", digest("return 1"), 0) == NOSCRIPT

    @pytest.mark.parametrize("mode", ["YES", "SYNC", "NO"])
    def test_debug(self, run: Run, mode: str) -> None:
        assert run(f"SCRIPT DEBUG {mode}") == OK
        assert run("EVAL", "return 1", 0) == 1

    def test_help(self, run: Run) -> None:
        assert run("SCRIPT HELP")[0].text.startswith(b"SCRIPT <subcommand>")

    def test_a_snapshot_holds_the_scripts(self, run: Run, engine: Engine) -> None:
        run("SCRIPT", "LOAD", "return 1")
        saved = engine.snapshot()
        run("SCRIPT FLUSH")
        run("SCRIPT", "LOAD", "return 2")
        engine.restore(saved)
        assert run("SCRIPT", "EXISTS", digest("return 1"), digest("return 2")) == [1, 0]
        assert run("EVALSHA", digest("return 1"), 0) == 1


@pytest.mark.parametrize("resp", [2, 3])
def test_replies_of_every_kind_come_to_a_script(run: Run, resp: int) -> None:
    def eval(script: str, *keys: str) -> Any:
        return run("EVAL", f"redis.setresp({resp}); {script}", len(keys), *keys)

    run("JSON.SET", "doc", "$", '{"a":[true,null,1.5]}')
    flat = eval("return redis.call('JSON.RESP', KEYS[1], '.a')", "doc")
    assert [getattr(one, "text", one) for one in flat[:2]] == [b"[", b"true"]
    told = "local t = redis.call('INFO', 'server'); "
    if resp == 2:
        assert eval(told + "return type(t)") == b"string"
    else:
        assert eval(told + "return t.verbatim_string.format") == b"txt"
        assert b"redis_version" in eval(told + "return t.verbatim_string.string")
    run("ZADD z 1.5 a")
    score = "local t = redis.call('ZSCORE', KEYS[1], 'a'); "
    asked = "return type(t) == 'string' and t or tostring(t.double)"
    assert eval(score + asked, "z") == b"1.5"
    members = "local t = redis.call('SMEMBERS', KEYS[1]); "
    run("SADD s a")
    assert eval(members + "return t[1] or (t.set.a and 'set')", "s") == (
        b"a" if resp == 2 else b"set"
    )
    run("HSET h a b")
    assert eval("local t = redis.call('HGETALL', KEYS[1]); return t[2] or t.map.a", "h") == b"b"
    assert eval("local t = redis.call('GET', 'none'); return tostring(t)") == (
        b"false" if resp == 2 else b"nil"
    )
    found = eval("local t = redis.call('HMGET', KEYS[1], 'a', 'none'); return tostring(t[2])", "h")
    assert found == (b"false" if resp == 2 else b"nil")
    run("GEOADD g 1 2 a")
    found = eval("return tostring(redis.call('GEOPOS', KEYS[1], 'none')[1])", "g")
    assert found == (b"false" if resp == 2 else b"nil")
    run("APPEND text ab")
    run("APPEND text cd")
    assert eval("return redis.call('GET', KEYS[1])", "text") == b"abcd"
    assert eval("return redis.call('MGET', KEYS[1])[1]", "text") == b"abcd"


def test_an_unknown_digest_is_not_the_name_of_a_function(run: Run, engine: Engine) -> None:
    digest = "f" * 40
    register = f"{{function_name='{digest}', flags={{'no-writes'}}, callback=function() end}}"
    run("FUNCTION", "LOAD", f"#!lua name=l\nredis.register_function{register}")

    def may_write(command: str) -> bool:
        line = [command.encode(), digest.encode(), b"0"]
        return engine.scripting.may_write(engine.table.resolve(line), line)

    assert (may_write("FCALL"), may_write("EVALSHA")) == (False, True)


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
