"""EVAL, EVALSHA, their read-only forms, and the script cache."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.kv.acl.users import Denied
from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import OK, BigNumber, Bool, Map, SetReply, Status, Verbatim
from pytest_fakecloud.kv.table.registry import CommandSpec
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NOSCRIPT = "NOSCRIPT No matching script. Please use EVAL."
stock = pytest.mark.dialect("redis")


def digest(script: str) -> str:
    return sha1(script.encode()).hexdigest()


def tail(script: str, line: int = 1) -> str:
    return f" script: {digest(script)}, on @user_script:{line}."


class TestEval:
    def test_keys_and_arguments(self, run: Run) -> None:
        assert run("EVAL", "return {KEYS[1], KEYS[2], ARGV[1], #ARGV}", 2, "a", "b", "c", "d") == [
            b"a", b"b", b"c", 2,
        ]  # fmt: skip

    def test_commands_work_on_the_same_keys(self, run: Run) -> None:
        assert run("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", 1, "k", "v") == OK
        assert run("GET k") == b"v"

    def test_any_bytes_go_through(self, run: Run) -> None:
        run(b"EVAL", b"redis.call('SET', KEYS[1], ARGV[1])", b"1", b"\xff\x00", b"\x00\xfe")
        assert run(b"EVAL", b"return redis.call('GET', KEYS[1])", b"1", b"\xff\x00") == b"\x00\xfe"

    @pytest.mark.parametrize(
        ("numkeys", "text"),
        [
            ("-1", "ERR Number of keys can't be negative"),
            ("2", "ERR Number of keys can't be greater than number of args"),
            ("x", "ERR value is not an integer or out of range"),
            ("1.0", "ERR value is not an integer or out of range"),
        ],
    )
    def test_the_count_of_keys(self, run: Run, numkeys: str, text: str) -> None:
        assert run.error("EVAL", "return 1", numkeys, "k") == text
        assert run.error("EVAL_RO", "return 1", numkeys, "k") == text
        assert run("SCRIPT", "EXISTS", digest("return 1")) == [0]

    def test_time_is_constant(self, run: Run, clock: Timekeeper) -> None:
        script = "redis.call('SET', 'k', 1, 'PX', 5) return redis.call('PTTL', 'k')"
        clock.resume()
        assert run("EVAL", script, 0) == 5

    def test_it_queues_in_a_transaction(self, run: Run) -> None:
        run("MULTI")
        run("EVAL", "return redis.call('INCR', 'n')", 0)
        run("EVAL", "return redis.call('LPUSH', 'n', 1)", 0)
        first, second = run("EXEC")
        assert first == 1
        assert isinstance(second, CommandError)

    def test_what_was_written_before_an_error_stays(self, run: Run) -> None:
        run.error("EVAL", "redis.call('SET', 'k', 'v') error('x')", 0)
        assert run("GET k") == b"v"

    @stock
    def test_select_ends_with_the_script(self, run: Run) -> None:
        run("EVAL", "redis.call('SELECT', 3) redis.call('SET', 'k', 'three')", 0)
        assert run("GET k") is None
        run("SELECT 3")
        assert run("GET k") == b"three"


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
    @pytest.mark.parametrize(
        ("script", "text"),
        [
            ("error('boom')", "ERR user_script:1: boom"),
            ("error('boom', 0)", "ERR boom"),
            ("error({err='My Err'})", "My Err"),
            ("error({})", "ERR unknown error"),
            ("return redis.call('LPUSH', 'string', 1)", WRONGTYPE),
            ("return redis.call('INCR', 'string')", "ERR value is not an integer or out of range"),
            ("return redis.call('NOSUCH')", "ERR Unknown Redis command called from script"),
            ("return redis.call('OBJECT', 'NOSUCH')",
             "ERR Unknown Redis command called from script"),
            ("return redis.call('GET')", "ERR Wrong number of args calling Redis command from script"),
            ("return redis.call()", "ERR Please specify at least one argument for this redis lib call"),
            ("return redis.call('GET', {})",
             "ERR Lua redis lib command arguments must be strings or integers"),
            ("return redis.call('EVAL', 'return 1', 0)",
             "ERR This Redis command is not allowed from script"),
            ("return redis.call('SUBSCRIBE', 'c')",
             "ERR This Redis command is not allowed from script"),
            ("x = 1", "ERR user_script:1: Attempt to modify a readonly table"),
            ("return x",
             "ERR user_script:1: Script attempted to access nonexistent global variable 'x'"),
            ("local r = 1 return r.x",
             "ERR user_script:1: attempt to index local 'r' (a number value)"),
            ("return redis.setresp(4)", "ERR RESP version must be 2 or 3."),
            ("return redis.setresp()", "ERR redis.setresp() requires one argument."),
            ("return redis.sha1hex()", "ERR wrong number of arguments"),
            ("return redis.log(1)", "ERR redis.log() requires two arguments or more."),
            ("return redis.log('a', 'b')", "ERR First argument must be a number (log level)."),
            ("return redis.log(9, 'b')", "ERR Invalid debug level."),
            ("return redis.set_repl(9)",
             "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."),
            ("return redis.acl_check_cmd('nosuch')",
             "ERR Invalid command passed to redis.acl_check_cmd()"),
            ("return cjson.decode('x')",
             "ERR user_script:1: Expected value but found invalid token at character 1"),
            ("return cjson.decode('')",
             "ERR user_script:1: Expected value but found T_END at character 1"),
            ("return cjson.decode(nil)",
             "ERR user_script:1: bad argument #1 to 'decode' (string expected, got nil)"),
        ],
    )  # fmt: skip
    def test_texts_name_the_script_and_the_line(self, run: Run, script: str, text: str) -> None:
        run("SET string x")
        assert run.error("EVAL", script, 0) == text + tail(script)

    def test_the_line_is_the_one_of_the_call(self, run: Run) -> None:
        script = "local function f()\n  return redis.call('GET')\nend\n\nreturn f()"
        assert run.error("EVAL", script, 0).endswith(tail(script, 2))

    def test_pcall_catches_texts_and_redis_pcall_tables(self, run: Run) -> None:
        run("SET string x")
        caught = "local ok, e = pcall(redis.call, 'LPUSH', 'string', 1) return e"
        assert run("EVAL", caught, 0) == WRONGTYPE.encode()
        assert run("EVAL", "return redis.pcall('LPUSH', 'string', 1).err", 0) == WRONGTYPE.encode()

    @pytest.mark.parametrize(
        ("script", "complaint"),
        [("return (", "unexpected symbol near '<eof>'"), ("x y", "'=' expected near 'y'")],
    )
    def test_syntax_errors(self, run: Run, script: str, complaint: str) -> None:
        text = f"ERR Error compiling script (new function): user_script:1: {complaint}"
        assert run.error("EVAL", script, 0) == text
        assert run.error("EVAL_RO", script, 0) == text
        assert run.error("SCRIPT", "LOAD", script) == text
        assert run("SCRIPT", "EXISTS", digest(script)) == [0]


class TestVendorErrors:
    def test_the_vendor_says_where_first(self, run: Run) -> None:
        text = run.error("EVAL", "\nerror('boom')", 0)
        assert text.startswith("ERR Error running script: @user_script:2: boom\n")
        assert "stack traceback:" in text

    def test_errors_of_commands_keep_their_words(self, run: Run) -> None:
        run("SET string x")
        text = run.error("EVAL", "return redis.call('LPUSH', 'string', 1)", 0)
        assert text.startswith(f"ERR Error running script: @user_script:1: {WRONGTYPE}\n")

    def test_errors_that_are_returned_stay_what_they_are(self, run: Run) -> None:
        run("SET string x")
        assert run.error("EVAL", "return redis.pcall('LPUSH', 'string', 1)", 0) == WRONGTYPE

    def test_writes_of_read_only_scripts(self, run: Run) -> None:
        text = run.error("EVAL_RO", "return redis.call('SET', 'k', 'v')", 0)
        assert "READONLY Write commands are not allowed from read-only scripts" in text


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

    def test_reads_are_not(self, run: Run) -> None:
        run("SET k v")
        script = "return redis.call('GET', KEYS[1])"
        assert run("EVAL_RO", script, 1, "k") == b"v"
        assert run("EVALSHA_RO", digest(script), 1, "k") == b"v"

    @stock
    def test_a_script_that_may_write_is_refused_at_once(self, run: Run) -> None:
        text = "ERR Can not execute a script with write flag using *_ro command."
        assert run.error("EVAL_RO", "#!lua\nreturn 1", 0) == text
        assert run("EVAL_RO", "#!lua flags=no-writes\nreturn 1", 0) == 1


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

    @stock
    def test_lines_count_with_the_first(self, run: Run) -> None:
        script = "#!lua\n\nerror('x')"
        assert run.error("EVAL", script, 0) == "ERR user_script:3: x" + tail(script, 3)

    @stock
    def test_key_locking_is_the_vendors(self, run: Run) -> None:
        text = "ERR Unexpected flag in script shebang: allow-key-locking"
        assert run.error("EVAL", "#!lua flags=allow-key-locking\nreturn 1", 0) == text


class TestKeyLocking:
    LINE = "#!lua flags=allow-key-locking\n"

    def test_declared_keys_may_be_used(self, run: Run) -> None:
        script = self.LINE + "redis.call('SET', KEYS[1], 1) return redis.call('INCR', KEYS[1])"
        assert run("EVAL", script, 1, "k") == 2

    @pytest.mark.parametrize(
        "call", ["'GET', 'other'", "'MGET', 'k', 'other'", "'ZUNIONSTORE', 'k', 1, 'other'"]
    )
    def test_others_may_not(self, run: Run, call: str) -> None:
        text = run.error("EVAL", f"{self.LINE}return redis.call({call})", 1, "k")
        assert (
            "ERR Dynamic keys are not allowed in Lua scripts when 'allow-key-locking' flag is set. "
            "Key was: other"
        ) in text

    @pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB"])
    def test_nothing_is_flushed(self, run: Run, command: str) -> None:
        run("SET k v")
        assert "allow-key-locking" in run.error(
            "EVAL", f"{self.LINE}return redis.call('{command}')", 0
        )
        assert run("EXISTS k") == 1

    def test_it_combines_with_no_writes(self, run: Run) -> None:
        line = "#!lua flags=no-writes,allow-key-locking\n"
        assert run("EVAL", f"{line}return redis.call('GET', KEYS[1])", 1, "k") is None


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


class Reader:
    """A user who may run EVAL, GET and PUBLISH on keys and channels that begin with ``a``."""

    name = "reader"
    unrestricted = False

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        if spec.name not in ("EVAL", "GET", "PUBLISH"):
            raise Denied(b"NOPERM the command", "command", spec.full_name.encode())
        if spec.name != "EVAL" and not argv[1].startswith(b"a"):
            reason: Any = "channel" if spec.name == "PUBLISH" else "key"
            raise Denied(b"NOPERM the argument", reason, argv[1])

    def copy(self) -> Reader:
        return self


class TestPermissions:
    @pytest.mark.parametrize(
        ("call", "text"),
        [
            ("'SET', 'a', 1", "can't run this command or subcommand"),
            (
                "'GET', 'b'",
                "can't access at least one of the keys mentioned in the command arguments",
            ),
            (
                "'PUBLISH', 'b', 1",
                "can't access at least one of the channels mentioned in the command arguments",
            ),
        ],
    )
    def test_a_script_has_the_permissions_of_its_user(self, run: Run, call: str, text: str) -> None:
        other = run.other(user=Reader())
        assert other("EVAL", "return redis.call('GET', 'a')", 0) is None
        found = other.error("EVAL", f"return redis.call({call})", 0)
        assert f"ERR The user executing the script {text}" in found

    def test_a_script_may_ask(self, run: Run) -> None:
        script = (
            "return {redis.acl_check_cmd('set', 'a', 1), redis.acl_check_cmd('get', 'a'), "
            "redis.acl_check_cmd('get', 'b')}"
        )
        assert run.other(user=Reader())("EVAL", script, 0) == [None, 1, None]


class TestCache:
    def test_load_and_run(self, run: Run) -> None:
        script = "return ARGV[1]"
        assert run("SCRIPT", "LOAD", script) == digest(script).encode()
        assert run("EVALSHA", digest(script), 0, "x") == b"x"
        assert run("EVALSHA", digest(script).upper(), 0, "x") == b"x"
        assert run("SCRIPT", "EXISTS", digest(script), "x", digest(script).upper()) == [1, 0, 1]
        assert run("SCRIPT", "SHOW", digest(script)) == script.encode()

    def test_eval_keeps_the_script_even_when_it_fails(self, run: Run) -> None:
        run.error("EVAL", "error('x')", 0)
        assert run("SCRIPT", "EXISTS", digest("error('x')")) == [1]

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

    @pytest.mark.parametrize("words", ["x", "SYNC x"])
    def test_flush_modes(self, run: Run, words: str) -> None:
        assert run.error(f"SCRIPT FLUSH {words}") == (
            "ERR SCRIPT FLUSH only support SYNC|ASYNC option"
        )

    @pytest.mark.parametrize("mode", ["YES", "SYNC", "NO"])
    def test_debug(self, run: Run, mode: str) -> None:
        assert run(f"SCRIPT DEBUG {mode}") == OK
        assert run("EVAL", "return 1", 0) == 1

    def test_debug_modes(self, run: Run) -> None:
        assert run.error("SCRIPT DEBUG x") == "ERR Use SCRIPT DEBUG YES/SYNC/NO"

    def test_nothing_to_kill(self, run: Run) -> None:
        assert run.error("SCRIPT KILL") == "NOTBUSY No scripts in execution right now."

    def test_help(self, run: Run) -> None:
        assert run("SCRIPT HELP")[0].text.startswith(b"SCRIPT <subcommand>")

    @pytest.mark.parametrize("word", ["FOO", "JUNK"])
    def test_unknown_subcommands(self, run: Run, word: str) -> None:
        assert run.error(f"SCRIPT {word}") == f"ERR unknown subcommand '{word}'. Try SCRIPT HELP."

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
    run("APPEND text ab")
    run("APPEND text cd")
    assert eval("return redis.call('GET', KEYS[1])", "text") == b"abcd"
    assert eval("return redis.call('MGET', KEYS[1])[1]", "text") == b"abcd"
