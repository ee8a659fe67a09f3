"""Scripts that never end, or use too much memory, are stopped, and the engine keeps working."""

from __future__ import annotations

import time

import pytest

from pytest_fakecloud.core.timers import TimeLimit
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.scripting import scripts
from pytest_fakecloud.kv.scripting.errors import ScriptLimits
from tests.kv.conftest import Run
from tests.kv.scripting.conftest import Lua

FOR_EVER = "while true do end"
STOPPED = "Script stopped: it "


class Checks(TimeLimit):
    """A time limit that counts how often it is checked, instead of seconds."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def is_over(self, now: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture
def engine(engine: KVEngine, monkeypatch: pytest.MonkeyPatch) -> KVEngine:
    """An engine whose scripts may check the time 2,000 times, however long that takes."""
    monkeypatch.setattr(scripts, "TimeLimit", Checks)
    engine.scripting.limits = ScriptLimits(1_000_000, 2_000, 8 * 2**20, seconds_to_load=50)
    return engine


@pytest.mark.parametrize(
    "script",
    [
        FOR_EVER,
        "repeat until false",
        "for _ in function() return 1 end do end",
        f"while true do pcall(function() {FOR_EVER} end) end",
        f"while true do pcall(pcall, function() {FOR_EVER} end) end",
        f"while true do xpcall(function() {FOR_EVER} end, function() {FOR_EVER} end) end",
        f"while true do coroutine.wrap(function() {FOR_EVER} end)() end",
        f"while true do pcall(coroutine.wrap(function() while true do "
        f"pcall(function() {FOR_EVER} end) end end)) end",
        "while true do coroutine.resume(coroutine.create(function() for _ = 1, 900 do end end)) end",
        "while true do coroutine.create(function() end) end",
        f"return setmetatable({{}}, {{__index = function() {FOR_EVER} end}}).x",
        f"return tostring(setmetatable({{}}, {{__tostring = function() {FOR_EVER} end}}))",
        f"return 1 .. setmetatable({{}}, {{__concat = function() {FOR_EVER} end}})",
        f"string.gsub('aaa', 'a', function() {FOR_EVER} end)",
        f"table.sort({{3, 2, 1}}, function() {FOR_EVER} end)",
        f"load(function() {FOR_EVER} end)",
        "load(function() return 'x' end)",
        "local function f() return pcall(f) end while true do f() end",
        "while true do redis.call('PING') end",
        "while true do redis.pcall('NOSUCH') end",
        "while true do pcall(redis.call, 'NOSUCH') end",
        "while true do collectgarbage() end",
        "while true do cjson.decode(cjson.encode({1, {2}})) end",
        "while true do cmsgpack.unpack(cmsgpack.pack({1, {2}})) end",
        "while true do struct.unpack('i', struct.pack('i', 1)) end",
        "while true do bit.band(1, 2) end",
        "while true do loadstring('return 1') end",
        "while true do math.random() end",
        "while true do redis.sha1hex('x') end",
        "local t = {} for i = 1, 1e4 do t[i] = i end while true do table.concat(t) end",
        "local t = {} for i = 1, 1e4 do t[i] = i end while true do table.sort(t) end",
        "local t = {} for i = 1, 1e4 do t[i] = i end while true do table.insert(t, 1, 1) end",
        "local s = ('a'):rep(1e6) while true do s:upper() end",
        "local s = ('a'):rep(1e6) while true do s:find('b', 1, true) end",
        "local s = ('a'):rep(1e6) local t = {} for i = 1, 99 do t[i] = s end table.sort(t)",
        # patterns that would take centuries
        "return string.find(string.rep('a', 1e4), string.rep('a-', 50) .. 'b')",
        "return string.match(string.rep('a', 1e5), '.-.-.-.-b')",
        "return string.gsub(string.rep('a', 1e5), 'a*a*a*a*b', '')",
        "for _ in string.gmatch(string.rep('a', 1e5), 'a*a*a*b') do end",
        "return string.find(string.rep('(', 1e5), '%b()')",
        # replies that grow exponentially
        "local t = {} for _ = 1, 60 do t = {t, t} end return t",
        "local t = {1} for _ = 1, 60 do t = {t, t} end return cjson.encode(t)",
        "local t = {1} for _ = 1, 15 do t = {t, t, t, t} end return cmsgpack.pack(t)",
    ],
)
def test_a_script_without_an_end_is_stopped(lua: Lua, script: str) -> None:
    assert STOPPED in lua.error(script)
    assert lua("return 1") == 1


# A single call or instruction that takes long must not delay the next check of the clock.
@pytest.mark.parametrize(
    "script",
    [
        "local s = ('x'):rep(4e6) while true do string.format('%q', s) end",
        "local s = ('x'):rep(4e6) while true do string.format('%5q', s) end",
        "local a, b = ('a'):rep(1e6), ('a'):rep(1e6) .. 'b' while true do local _ = a < b end",
        "while true do string.rep('x', 4e6) end",
        "local s = ('x'):rep(4e6) while true do redis.sha1hex(s) end",
        "local s = ('x'):rep(4e6) while true do cjson.encode(s) end",
        "local s = '\"' .. ('x'):rep(3e6) .. '\"' while true do cjson.decode(s) end",
        "local s = ('1'):rep(1e6) while true do local _ = s + 1 end",
        "local s = ('1'):rep(1e6) while true do tonumber(s) end",
        "local s = 'x' for i = 1, 21 do s = s .. s end while true do local _ = s .. 'y' end",
        "local t = {} for i = 1, 2e5 do t[i] = i end while true do table.maxn(t) end",
        "local t = {} for i = 1, 2e5 do t[i] = i end while true do table.getn(t) end",
        "local t = {} for i = 1, 900 do t[i] = i % 7 end while true do table.sort(t) end",
        "local t = {} for i = 1, 2e5 do t[i] = 'x' .. i end while true do table.sort(t, rawequal) end",
        # sources for which Lua's compiler takes quadratic time
        "loadstring('if a then ' .. ('elseif a then '):rep(1e5) .. ' end')",
        "loadstring('while a do ' .. ('if a then break end '):rep(1e5) .. ' end')",
        "load((function() local n = 0 return function() n = n + 1 "
        "return n == 1 and 'if a then ' or n < 1e5 and 'elseif a then ' or nil end end)())",
    ],
)
def test_no_call_passes_by_the_clock(
    engine: KVEngine, lua: Lua, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(scripts, "TimeLimit", TimeLimit)
    engine.scripting.limits = ScriptLimits(1_000_000, seconds=0.05, memory=8 * 2**20)
    start = time.thread_time()
    text = lua.error(script)
    assert STOPPED in text or "memory" in text
    assert time.thread_time() - start < 1.5
    assert lua("return 1") == 1


def test_a_source_that_takes_long_to_compile_is_refused(
    engine: KVEngine, run: Run, lua: Lua
) -> None:
    engine.scripting.limits = ScriptLimits(seconds=10**6, seconds_to_load=50)
    source = "if a then " + "elseif a then " * 100_000 + " end"
    for line in (("EVAL", source, 0), ("SCRIPT", "LOAD", source)):
        assert "took too long to compile" in run.error(*line)
    assert "took too long to compile" in run.error("FUNCTION", "LOAD", f"#!lua name=l\n{source}")
    assert lua("return 1") == 1


def test_a_library_has_less_time_to_load_than_a_script_to_run(engine: KVEngine, run: Run) -> None:
    engine.scripting.limits = ScriptLimits(instructions=10**12, seconds=10**6, seconds_to_load=50)
    text = "ERR Error registering functions: ERR FUNCTION LOAD timeout"
    assert run.error("FUNCTION", "LOAD", f"#!lua name=l\n{FOR_EVER}") == text
    assert run("FUNCTION", "LIST") == []


def test_a_long_source_compiles(run: Run) -> None:
    lines = "".join(f"t[{number}] = 'é{number}'\n" for number in range(5000))
    assert run("EVAL", f"local t = {{}}\n{lines}return #t", 0) == 4999
    assert "user_script:5002: " in run.error("EVAL", f"local t = {{}}\n{lines[:-1]} +\n", 0)


@pytest.mark.parametrize(
    "script",
    [
        "return t", "return {map = {x = t}}", "return redis.call('RPUSH', 'l', unpack(t))",
        "return redis.pcall('RPUSH', 'l', unpack(t))",
        "return redis.acl_check_cmd('RPUSH', 'l', unpack(t))",
        "for i = 1, 1000 do redis.call('APPEND', 'l', t[i]) end",
    ],
)  # fmt: skip
def test_one_string_handed_over_often_counts_as_often(run: Run, lua: Lua, script: str) -> None:
    setting = "local s, t = ('x'):rep(1e6), {} for i = 1, 1000 do t[i] = s end "
    assert "bytes of memory" in lua.error(setting + script)
    assert run("STRLEN" if "APPEND" in script else "LLEN", "l") < 20_000_000


@pytest.mark.parametrize(
    "script",
    [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local t = {} for i = 1, 1e8 do t[i] = i end", "return ('x'):rep(1e9)",
        "return ('x'):rep(2 ^ 53)", "return string.gsub(('a'):rep(400), '.', ('b'):rep(1e5))",
        "local s, t = ('a'):rep(1e6), {} for i = 1, 1000 do t[i] = s end return table.concat(t)",
        "return string.find(('a'):rep(1e5), ('a?'):rep(1e5))",
        "local t = {} for i = 1, 2e5 do t[i] = i .. 'x' end return t",
    ],
)  # fmt: skip
def test_a_script_that_wants_all_memory_does_not_get_it(lua: Lua, script: str) -> None:
    text = lua.error(script)
    assert "memory" in text or STOPPED in text
    assert lua("return 1") == 1


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("local function f() f() end f()", "stack overflow"),
        ("local function f() return f() end return f()", "stack overflow"),
        ("return unpack({}, 1, 1e8)", "too many results to unpack"),
        ("return unpack({}, -2^31, 2^31 - 1)", "too many results to unpack"),
        ("table.insert({}, -2^31, 1)", "table too large to shift"),
        ("table.insert({}, 2^31, 1)", "table too large to shift"),
        ("return struct.unpack(('b'):rep(5e3), ('a'):rep(5e3))", "too many results to unpack"),
        ("return struct.pack('c1000000000', 'a')", "integral size overflow"),
        ("return string.format('%' .. ('9'):rep(100) .. 'd', 1)", "invalid format"),
        ("local t = {} t[1] = t return cjson.encode(t)", "excessive nesting (1001)"),
        ("return cjson.decode(('['):rep(1e5))", "too many nested data structures (1001)"),
        ("cjson.decode_max_depth(1e9) return cjson.decode(('['):rep(1e5))", "stack overflow"),
        ("return cmsgpack.unpack(('\\145'):rep(1e5))", "stack overflow"),
        ("return loadstring(('('):rep(1e5))()", "attempt to call a nil value"),
        ("coroutine.yield()", "attempt to yield across metamethod/C-call boundary"),
    ],
)
def test_overflows_are_errors(lua: Lua, script: str, text: str) -> None:
    assert text in lua.error(script)
    assert lua("return 1") == 1


@pytest.mark.parametrize(
    ("script", "reply"),
    [
        ("return ('').rep('', 1e12)", ""),
        ("local t = {1} for k = 1, 29 do t[2 ^ k] = 1 end table.remove(t, 1) return 1", 1),
        ("return string.find(('a'):rep(2000), ('a?'):rep(300))", 1),
        ("return setmetatable({}, {__gc = function() while true do end end})", []),
        ("return setmetatable({}, {__index = function(_, key) return key end})", []),
        ("return ('x'):rep(-2 ^ 53)", ""),
    ],
)
def test_harmless_code_works(lua: Lua, script: str, reply: object) -> None:
    assert lua(script) == reply


def test_a_reply_is_only_so_deep(lua: Lua) -> None:
    reply = lua("local t = {} t[1] = t return t")
    depth = 0
    while isinstance(reply, list):
        reply, depth = reply[0], depth + 1
    assert (depth, reply) == (100, "ERR reached lua stack limit")


def test_arguments_larger_than_the_memory_are_refused(run: Run, lua: Lua) -> None:
    assert "not enough memory" in run.error(b"EVAL", b"return 1", b"0", b"x" * 20_000_000)
    assert "not enough memory" in run.error(b"EVAL", b"a=1;" * 1_000_000, b"0")
    assert lua("return 1") == 1


def test_a_reply_larger_than_the_memory_is_an_error_of_the_call(run: Run, lua: Lua) -> None:
    run(b"SET", b"large", b"x" * 20_000_000)
    assert lua.error("return redis.call('GET', 'large')") == "not enough memory for the reply"
    assert lua("return redis.pcall('GET', 'large').err").startswith("ERR not enough memory")


def test_a_stopped_script_keeps_what_it_wrote(run: Run, lua: Lua) -> None:
    lua.error(f"redis.call('SET', 'k', 'v') {FOR_EVER}")
    assert run("GET k") == b"v"


def test_thousands_of_arguments_arrive(run: Run) -> None:
    words = [str(number) for number in range(20_000)]
    assert run("EVAL", "return {#KEYS, KEYS[7000], ARGV[10000], #ARGV}", 10_000, *words) == [
        10_000, b"6999", b"19999", 10_000,
    ]  # fmt: skip


def test_long_replies_arrive_whole(run: Run) -> None:
    code = "local t = {} for i = 1, 9999 do t[i] = i end return t"
    assert run("EVAL", code, 0) == [*range(1, 10_000)]
    for start in range(0, 9000, 1000):
        run("RPUSH", "list", *range(start, start + 1000))
    assert run("EVAL", "return #redis.call('LRANGE', 'list', 0, -1)", 0) == 9000


def test_cmsgpack_packs_much_within_the_limits(engine: KVEngine) -> None:
    """Packing takes instructions in proportion to the values, of which real scripts have many."""
    engine.scripting.limits = ScriptLimits(instructions=10**7, seconds=10**5)
    source = """
        local all = {}
        for i = 1, 10000 do all[i] = i all['k' .. i] = i end
        local back = cmsgpack.unpack(cmsgpack.pack(all))
        return {back[10000], back['k10000']}
    """
    reply = engine.execute(engine.session(), [b"EVAL", source.encode(), b"0"])
    assert reply == [10000, 10000]


def test_packing_one_long_text_again_and_again_ends_within_the_memory(engine: KVEngine) -> None:
    source = b"""
        local long, all = string.rep('x', 2^20), {}
        for i = 1, 500 do all[i] = long end
        return #cmsgpack.pack(all)
    """
    with pytest.raises(CommandError, match="memory"):
        engine.execute(engine.session(), [b"EVAL", source, b"0"])
    assert engine.execute(engine.session(), [b"EVAL", b"return 1", b"0"]) == 1
