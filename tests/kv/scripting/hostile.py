"""Thousands of hostile scripts: every function that scripts can reach, with harmful arguments.

``python -m tests.kv.scripting.hostile SEED COUNT`` runs that many in one process and prints the
slowest, in processor seconds, and the peak memory of the process.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.scripting.errors import ScriptLimits
from pytest_fakecloud.kv.settings import KVConfig

LIMITS = ScriptLimits(instructions=5_000_000, seconds=0.05, memory=16 * 2**20)

_SETTING = """
local big, digits, zeros = ('x'):rep(4e6), ('1'):rep(3e5), ('\\0'):rep(4e6)
local sparse, full, strings, cycle, deep = {1}, {}, {}, {}, {}
for power = 1, 30 do sparse[2 ^ power] = 1 end
for index = 1, 3e4 do full[index] = index end
for index = 1, 300 do strings[index] = big end
cycle[1], cycle.x = cycle, cycle
for _ = 1, 300 do deep = {deep, deep} end
local for_ever = function() while true do end end
local inverse = function(a, b) return not (a and b and tostring(a) < tostring(b)) end
local odd = setmetatable({}, {__index = for_ever, __tostring = for_ever, __call = for_ever,
  __lt = for_ever, __concat = for_ever, __len = for_ever, __newindex = for_ever})
"""
_VALUES = """
0|1|-1|2|0.5|1/0|-1/0|0/0|2^31|2^31-1|-2^31|2^31+1|2^32|2^32+1|-2^32|2^53|2^63|2^64|1e308|1e9|1e8
nil|true|''|'x'|'%'|'%s'|'%q'|'%99.99f'|'%d'|'a-a-a-a-b'|'x*x*x*x*y'|('x?'):rep(150)..'y'|'%b()'
('x-'):rep(40)..'y'|('(x)'):rep(31)|'[^%z'|'.-.-.-.-y'|big|digits|zeros|sparse|full|strings|cycle
deep|odd|for_ever|inverse|rawequal|math.max|next|tostring|string.rep|pcall|redis.call|cjson.encode
('['):rep(1e5)|'"'..big|('{"a":'):rep(1e4)|('\\145'):rep(1e5)|'\\221\\255\\255\\255\\255'|'!1073741824ib'
'c0'|'c999999999'|('i32'):rep(1e4)|('x'):rep(1e6)|'b'|'PING'|'RPUSH'|'ECHO'|'return 1'|'1e309'|'collect'
'local a '..('if a then '):rep(190)|'if a then '..('elseif a then '):rep(6e4)..' end'
'return '..('a and '):rep(1e5)..'a'|('while a do break end '):rep(5e4)|'return '..('{'):rep(190)
unpack(full, 1, 5000)|unpack(strings)|cjson.null|{err=big}|{ok=big}|{map=deep}|{double=0/0}
"""
_FUNCTIONS = """
assert error ipairs rawequal select tonumber tostring type loadstring load rawget rawset next pairs
getmetatable setmetatable pcall xpcall collectgarbage unpack gcinfo
string.byte string.char string.format string.len string.sub string.lower string.reverse string.upper
string.find string.match string.gmatch string.gsub string.rep string.gfind
table.getn table.maxn table.setn table.concat table.insert table.remove table.sort table.foreach
table.foreachi math.floor math.random math.randomseed math.max math.fmod math.pow math.ldexp
coroutine.create coroutine.wrap coroutine.resume coroutine.status coroutine.yield os.clock
cjson.encode cjson.decode cjson.encode_sparse_array cjson.encode_max_depth cjson.decode_max_depth
cjson.encode_number_precision cjson.new cmsgpack.pack cmsgpack.unpack cmsgpack.unpack_one
cmsgpack.unpack_limit struct.pack struct.unpack struct.size bit.band bit.bnot bit.tohex bit.lshift
redis.call redis.pcall redis.sha1hex redis.error_reply redis.status_reply redis.setresp redis.log
redis.acl_check_cmd
"""
_SHAPES = (
    "return {call}",
    "while true do {call} end",
    "while true do pcall(function() return {call} end) end",
    "local kept = {{}} while true do kept[#kept + 1] = {{pcall(function() return {call} end)}} end",
    "while true do pcall(coroutine.wrap(function() return {call} end)) end",
    "for _ = 1, 50 do pcall(function() return {call} .. {other}, {call} < {other} end) end",
)


def scripts(seed: int) -> Iterator[str]:
    """Yield scripts without end, the same for the same seed."""
    chance = random.Random(seed)
    functions = _FUNCTIONS.split()
    values = [value for line in _VALUES.strip().split("\n") for value in line.split("|")]

    def call() -> str:
        arguments = chance.choices(values, k=chance.choice((1, 1, 2, 2, 2, 3, 3, 4)))
        return f"{chance.choice(functions)}({', '.join(arguments)})"

    while True:
        shape = chance.choice(_SHAPES)
        yield _SETTING + shape.format(call=call(), other=call())


def main(seed: int, count: int) -> None:
    engine = KVEngine(Timekeeper(), Ids(seed), KVConfig(dialect="redis"))
    engine.scripting.limits = LIMITS
    session = engine.session()
    times = []
    stopped = 0
    for _, script in zip(range(count), scripts(seed), strict=False):
        print("running:", script[len(_SETTING) :], file=sys.stderr, flush=True)
        start = time.thread_time()
        try:
            engine.execute(session, [b"EVAL", script.encode(), b"0"])
        except CommandError as error:
            stopped += b"Script stopped" in error.text
        times.append((time.thread_time() - start, script[len(_SETTING) :]))
        engine.databases[0].clear()
        assert engine.execute(session, [b"EVAL", b"return 1", b"0"]) == 1
    times.sort(reverse=True)
    print(f"{count} scripts, {stopped} stopped, {_peak_kb() // 1024} MB at most")
    for seconds, script in times[:10]:
        print(f"{seconds:.3f} {script}")


def _peak_kb() -> int:
    try:
        # getrusage() starts with the memory of the process this one was forked from.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[0])
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
