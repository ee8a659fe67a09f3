"""Scripts whose replies are compared with real servers: one expression or script per line."""

from __future__ import annotations

from itertools import product

_DOCUMENTS = r"""
[]|{}|[1,2,3]|{"a":1}|[1|{"a"|{"a":|{"a":1|{"a":1,|{1:2}|[1,]|[,1]|nul|tru|true|false|null|"a
"\u12"|"\ud800"|"\ud800\udc00"|"\udc00"|"\q"|"a\nb\t\/"|1e5|-|+1|1.5.5|0x10|0x1p4|0x1p99999|-0x1p99999|01|-01|inf|-inf
Infinity|.5|5.|1e|1e+|[1] x| [1] |  |x|"\u00e9\u20ac"|[[[[]]]]|[1,[2,{"b":[3]}]]|{"a":1,"a":2}
[1e400]|[-1e400]|123456789012345678|0.1|1e100|[true,false,null]|{'a':1}|[1 2]|{"a" 1}|{"a":1 "b":2}
[}|{]|}|]|:|,|nan|NaN
"""
_VALUES = r"""
1|1.5|1e20|123456789012345|1234567890123456|0.1|1/3|-0|1/0|0/0|"a\"b/c\1\127e"|{}|{1,2}
{[1]=1,[3]=3}|{[1]=1,[30]=3}|{a=1}|{[1.5]=1}|{[0]=1}|{[-1]=1}|nil|cjson.null|true
{true,false,cjson.null}|function() end|{function() end}|{[true]=1}|{[{}]=1}|{{}}|{a={}}|"\255"|""
{[10]=1}|{[11]=1}|{1,nil,3}|{n=nil}|coroutine.create(function() end)
"""


def _split(text: str) -> list[str]:
    return [item for line in text.strip("\n").split("\n") for item in line.split("|")]


CJSON: list[tuple[str, ...]] = [
    *[
        ("local v = cjson.decode(ARGV[1]) return {type(v), cjson.encode(v)}", document)
        for document in _split(_DOCUMENTS)
    ],
    *[
        ("local ok, e = pcall(cjson.decode, ARGV[1]) return ok or e", document)
        for document in _split(_DOCUMENTS)
    ],
    *[(f"return cjson.encode({value})",) for value in _split(_VALUES)],
    *[
        (f"return {expression}",)
        for expression in (
            "cjson.encode()", "cjson.encode(1, 2)", "cjson.decode()", "cjson.decode(nil)",
            "cjson.decode({})", "cjson.decode(1)", "cjson.decode('1', '2')",
            "cjson.encode_max_depth(0)", "cjson.encode_max_depth('x')",
            "cjson.encode_number_precision(20)", "cjson.encode_invalid_numbers('x')",
            "cjson.new().encode({1})", "cjson._NAME .. cjson._VERSION", "tostring(cjson.null)",
        )
    ],
    ("local t = {} for i = 1, 30 do t['k' .. i] = i end return cjson.encode(t)",),
    *[
        (f"return cjson.encode({{{keys}}})",)
        for keys in (
            "[1700000000000] = 1", "[2147483648] = 'x', [5] = 'y'", "[2147483647] = 'x'",
            "[1700000000000] = 1, [1700000000001] = 2", "'a', 'b', [4294967297] = 'c'",
        )
    ],
    ("local t = {} for i = 1, 12 do t['x' .. i * 7] = i end t.x7 = nil return cjson.encode(t)",),
]  # fmt: skip

_PACKED = r"""
1|127|128|255|256|65535|65536|4294967295|4294967296|2^53|2^63|-1|-32|-33|-128|-129|-32768|-32769
-2147483648|-2147483649|-2^63|1.5|0.1|1e300|1/0|"a"|""|string.rep("x",31)|string.rep("x",32)
string.rep("x",300)|string.rep("x",70000)|true|false|nil|{}|{1,2,3}|{a=1}|{[1]=1,[3]=2}|{["1"]=5}
{[1.5]=1}|{1,nil,3}|function() end|cjson.null|{{{{}}}}|{a={b={c=1}}}|{1,a=2}|{[0]=1}
"""
_BYTES = r"""
\193|\145|\129\1|\217|\217\5a|\203\1|\202\63\192\0\0|\207\255\255\255\255\255\255\255\255
\211\255\255\255\255\255\255\255\255|\196\1a|\199\1\1a|\220\0\1\1|\221\255\255\255\255|\222\0\1\1\2
\129\192\1|\223\255\255\255\255|\212\1\1|\224|\255|\219\255\255\255\255a
"""
CMSGPACK: list[tuple[str, ...]] = [
    *[(f"return cmsgpack.pack({value})",) for value in _split(_PACKED)],
    *[
        (f"return cjson.encode({{cmsgpack.unpack(cmsgpack.pack({value}))}})",)
        for value in _split(_PACKED)
    ],
    *[(f"return cjson.encode({{cmsgpack.unpack('{data}')}})",) for data in _split(_BYTES)],
    *[
        (f"return {{{expression}}}",)
        for expression in (
            "cmsgpack.pack()", "cmsgpack.pack(1, 2, 'a')", "cmsgpack.unpack()",
            "cmsgpack.unpack({})", "cmsgpack.unpack('')", "cmsgpack.unpack_one('')",
            "cmsgpack.unpack(cmsgpack.pack(1, 2, 'a'))",
            "cmsgpack.unpack_one(cmsgpack.pack(1, 2, 'a'))",
            "cmsgpack.unpack_one(cmsgpack.pack(1, 2, 'a'), 1)",
            "cmsgpack.unpack_one(cmsgpack.pack(1, 2, 'a'), 2)",
            "cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 'a'), 2)",
            "cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 'a'), 2, 1)",
            "cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 'a'), 0, 0)",
            "cmsgpack.unpack_one(cmsgpack.pack(1), 5)", "cmsgpack.unpack_one('a', -1)",
            "cmsgpack.unpack_limit('a', -1, 0)", "cmsgpack.unpack_limit('a')",
        )
    ],
    ("local t = {} local x = t for _ = 1, 20 do x[1] = {} x = x[1] end return cmsgpack.pack(t)",),
]  # fmt: skip

_STRUCTS = r"""
'>I',5|'<I',5|'I2',65537|'b',-1|'B',255|'B',256|'h',-2|'H',65535|'l',-3|'L',3|'T',7|'i1',-1
'i3',-5|'I8',2^40|'i16',-1|'i32',1|'i33',1|'f',1.5|'d',-2.5|'f',1e300|'f',-1e300|'I',0/0|'i',0/0|'>d',1e300|'s',"abc"|'c3',"abcd"
'c0',"abc"|'c5',"ab"|'c',"ab"|'x'|'xx'|'!4bi',1,2|'!8 b d',1,2|'!3',1|'!bl',1,2|'bh',1,2|'!2bi',1,2
'z',1|'i'|'s',1|'i',"x"|'i',"5"|'s'|' > I2 < I2',1,1|'i0',1|'I',-1|'I',1.7|'I',-1.7|'L',2^64
'L',2^63|'l',-2^63|'Bc0',3,"abc"|'i99999999999',1|''
"""
_UNPACKS = r"""
'I','abc'|'I','abcde',2|'I','abcde',3|'I','abcde',0|'I','abcde',-1|'s','abc'|'s','ab\0c'
'bc0','\2abc'|'c0','abc'|'bc0','\5abc'|'c2c2','abcd'||'b'|1,2|'b','a',100|'sc0','5\0abcdefgh'
'>i2<i2','\0\1\1\0'|'!4 b i','\1\0\0\0\2\0\0\0'
"""
STRUCT: list[tuple[str, ...]] = [
    *[(f"return struct.pack({item})",) for item in _split(_STRUCTS)],
    *[(f"return struct.size({item})",) for item in _split(_STRUCTS)],
    *[
        (f"return cjson.encode({{struct.unpack(({item}), struct.pack({item}))}})",)
        for item in _split(_STRUCTS)
        if "," not in item
    ],
    *[(f"return cjson.encode({{struct.unpack({item})}})",) for item in _split(_UNPACKS)],
    ("return struct.pack()",),
    ("return struct.size()",),
]

_BIT = """
band(0xff,0x0f)|band(-1,5)|band()|band('a')|band('7',3)|bor(1,2,4)|bxor(5,1)|bnot(0)|bnot(2^31)
lshift(1,31)|lshift(1,32)|lshift(1,-1)|rshift(-1,28)|arshift(-256,4)|rol(0x12345678,12)
ror(0x12345678,12)|bswap(0x12345678)|tobit(2^32+5)|tobit(-2^31-1)|tobit(1.5)|tobit(2.5)|tobit(-1.5)
tobit(1e300)|tobit(0/0)|tohex(255)|tohex(255,4)|tohex(255,-4)|tohex(-1)|tohex(255,0)|tohex(255,20)
tohex(0x1234,2)|tohex()|lshift(1)|tobit(2^52)|tobit(2^53+1)|band(1.7,3)|tobit(1/0)
"""
BIT: list[tuple[str, ...]] = [(f"return bit.{call}",) for call in _split(_BIT)]

_SUBJECTS = [
    "'hello world'", "'aaa'", "''", "'key = value'", "'a,b,,c'", "string.rep('ab', 300)",
    "'  trim me  '", "'THE (quick) fox'", r"'\0a\0'", "'x^y$z'", "'f(a(b)c)d'",
]  # fmt: skip
_PATTERNS = [
    "l+", "(l)(o)", "^h", "d$", "%s", ".-", "()", "(.)%1", "%b()", "[^,]*", "[%w]+",
    "^%s*(.-)%s*$", "(%w+) = (%w+)", "%f[%w]%w+", "[a-f]", "[]]", "[^]]+", "%", "[", "[a", "%b",
    "%bx", "%f", "(", ")", "(()", "a?", "a*", "a-b", ".", "", "^", "$", "%d", "[%a_][%w_]*",
    "(a*(.)%w(%s*))", "%1", "x*$", "ab", "%z", "[%z]", "%%", "^^", "a-", "(%1)",
    "Q[", "Q)", "^Q%", "Q*[a", "l[", "l-)", "Q%b", "Q%f", "(Q)%2", "h?)", "l*%", "(l-)[",
    "Q" + "()" * 33,
]  # fmt: skip
_REPLACEMENTS = [
    "'hello', 'l', 'L'", "'hello', '(l)', '%1%1'", "'hello', 'l', {l='x'}",
    "'hello', 'l', function(x) return x:upper() end", "'hello', 'l', function() return nil end",
    "'hello', 'l', function() return {} end", "'hello', 'l', true", "'hello', 'l'",
    "'hello', 'l', 'x', 1", "'hello', 'l', 'x', 0", "'hello', 'l', 'x', -1", "'hello', 'l', '%'",
    "'hello', 'l', '%a'", "'hello', 'l', function() error('boom') end",
    "'hello', 'l', function() error({err='E x'}) end", "'hello', 'l', 5", "'hello', 'l', {l=false}",
    "'hello', 'l', {l=true}", "5, '5', 'x'", "nil, 'a', 'b'", "'a', nil, 'b'", "'hello', '', '-'",
    "'abc', '%w', '%0%0'", "'hello world', '%w+', '%0 %0', 1", "'abc', '(a)(b)(c)', '%3%2%1'",
    "'abc', '()', '%1'", "'hello', 'h', string.upper",
]  # fmt: skip
PATTERNS: list[tuple[str, ...]] = [
    *[
        (
            f"local s, p = {subject}, ARGV[1] "
            "local o = {string.find(s, p)} local m = {string.match(s, p)} local g = {} "
            "for a, b in string.gmatch(s, p) do g[#g + 1] = {a, b} end "
            "return cjson.encode({o, m, g, {string.gsub(s, p, '<%0>')}})",
            pattern,
        )
        for subject, pattern in product(_SUBJECTS, _PATTERNS)
    ],
    *[(f"return {{string.gsub({arguments})}}",) for arguments in _REPLACEMENTS],
]

FUNCTIONS: list[tuple[str, ...]] = [
    (f"return {expression}",)
    for expression in (
        "string.rep()", "string.rep('x')", "string.rep('x', -1)", "string.rep('x', '3')",
        "string.rep(nil, 1)", "('x'):rep()", "('x'):rep({})", "string.rep('x', 2.7)",
        "string.find('a')", "string.find()", "('a'):find()", "string.find('hello', 'l', 3)",
        "string.find('hello', 'l', -2)", "string.find('hello', 'l', 10)",
        "string.find('hello', '', 10)", "string.find('a.b', '.', 1, true)",
        "string.find('hello', 'l', 'x')", "string.match('hello', '.', -100)", "string.gmatch('a')",
        "string.format('%5.2f', 3.14159)", r"string.format('%q', 'a\nb\"')",
        "string.format('%d', 'x')", "string.format('%y', 1)", "string.upper()", "string.char(256)",
        "string.len(5)", "table.concat({1, 2, 'x'}, ',')", "table.concat({1, {}, 3})",
        "table.concat()", "table.insert({}, 1)", "table.insert({})", "table.insert({}, 1, 2, 3)",
        "table.insert(nil, 1)", "table.insert({}, 'x', 1)", "table.remove({})",
        "table.remove({1, 2, 3})", "table.remove({1, 2, 3}, 1)", "table.remove(nil)",
        "table.sort({3, 'a', 2})", "table.sort({}, 1)", "table.sort()", "table.getn({1, 2})",
        "table.maxn({1, 2, [10]=1})", "table.setn({}, 1)", "table.foreach()",
        "table.foreach({a=1}, function(k, v) return k .. v end)",
        "table.foreachi({5, 6}, function(k, v) return v end)", "next({})", "next({a=1})",
        "next({}, 'x')", "next()", "pairs()", "pairs(1)", "ipairs()", "rawget({a=1}, 'a')",
        "rawget()", "rawget({})", "rawset({}, 1, 2)[1]", "rawset({}, nil, 1)", "rawset()",
        "rawset({}, 1)", "setmetatable({}, {__index={z=5}}).z", "setmetatable()",
        "setmetatable({})", "setmetatable({}, 1)", "getmetatable({})", "getmetatable()",
        "tostring(getmetatable(setmetatable({}, {__metatable='x'})))",
        "setmetatable(setmetatable({}, {__metatable='x'}), {})", "pcall()", "pcall(error)",
        "{pcall(error, 'x')}", "{pcall(error, {err='x'})}",
        "{xpcall(function() error('x') end, function(e) return 'h' .. e end)}", "xpcall()",
        "select('#', 1, 2)", "select(2, 'a', 'b')", "select(0)", "select()", "unpack({1, 2, 3})",
        "tonumber('0x10')", "tonumber('z', 36)", "tonumber('8', 8)", "tonumber()", "tostring()",
        "tostring(1e15)", "tostring(1e14)", "tostring(0.1)", "tostring(-0)", "type()",
        "assert(false)", "assert(nil, 'msg')", "assert(1, 2)", "assert(false, {err='X y'})",
        "assert()", "loadstring('return 5')()", "loadstring('x x')", "{loadstring('x x', '@n')}",
        "loadstring('error(1)', '@n')()", "loadstring()", "load(function() return nil end)()",
        "load('x')", "load()", "coroutine.create(1)", "coroutine.create()", "coroutine.wrap(1)",
        "{coroutine.resume(coroutine.create(function(a) return a + 1 end), 2)}",
        "{coroutine.resume(coroutine.create(function() error('x') end))}",
        "coroutine.wrap(function() error('x') end)()", "coroutine.resume(1)",
        "coroutine.wrap(function() coroutine.yield(7) end)()", "coroutine.yield(1)",
        "tostring(coroutine.running())", "math.random(0)", "math.random(5, 1)",
        "math.random(1, 2, 3)", "math.random('x')", "math.floor('x')", "collectgarbage('step')",
        "collectgarbage('stop')", "collectgarbage('xx')", "rawequal('a', 'a')", "_VERSION",
        "1 < 'x'", "{} < {}", "nil .. 'x'", "#5", "nil()", "KEYS.x.y", "1 + nil", "'a' + 1",
    )
]  # fmt: skip

CONVERSION: list[tuple[str, ...]] = [
    (script,)
    for script in (
        "return {1, 2, nil, 4}", "return 3.99", "return -3.99", "return 1e300", "return 0/0",
        "return 2^53", "return {double=3.5}", "return {map={a=1}}", "return {set={a=true}}",
        "return {big_number='123'}", r"return {big_number='1\r\n2'}",
        r"return {verbatim_string={format='t\nt', string='a\r\nb'}}",
        "return {verbatim_string={format='txt', string='hi'}}",
        "return function() end", "return cjson.null", "return {1, {2, {3}}, 'a', true, false}",
        "return {err='MY err'}", "return {err='boom'}", r"return {err='A\nB'}",
        r"return {ok='A\nB'}", "return {ok=1}", "return {err=1}", "return {err={}}",
        "return {1, 2, a=3}", "return {double='x'}", "return {map=1}", "return '1.5'", "return -0",
        "return 1e18", "return 9007199254740993", "return {nil, 1}", "return nil", "return {}",
        "return redis.error_reply('My Err')", "return redis.error_reply('-My Err')",
        "return redis.error_reply('boom')", "return redis.error_reply('')",
        "return redis.error_reply(1)", "return redis.error_reply()", "return redis.error_reply({})",
        "return redis.status_reply()", "return redis.status_reply('a b')",
        "error({err='My Err'})", "error('boom')", "error('boom', 0)", "error()", "error(1)",
        "error({err=1})", "local function f() error('in f') end f()",
        "local function f() error('lvl2', 2) end\n\nf()",
        "local function f() return redis.call('get') end\nreturn f()",
        "local ok, e = pcall(redis.call, 'get') return e", "return redis.pcall('get').err",
        "local r = redis.pcall('get') r.err = 'CUSTOM x' return r",
        "local t = redis.pcall('lpush', 's', 'y') local o = {} "
        "for k, v in pairs(t) do o[#o + 1] = k .. '=' .. tostring(v) end table.sort(o) return o",
        "return redis.log(1)", "return redis.log('a', 'b')", "return redis.log(9, 'b')",
        "return redis.log(1, 'b')", "return redis.setresp(1)", "return redis.setresp()",
        "return redis.setresp(2)", "return redis.sha1hex()", "return redis.sha1hex('')",
        "return redis.sha1hex(1)", "return redis.sha1hex({})",
        "return redis.set_repl(redis.REPL_ALL)", "return redis.set_repl(9)",
        "return redis.set_repl()", "return redis.replicate_commands()", "return redis.breakpoint()",
        "return redis.debug('a')", "return redis.acl_check_cmd('get', 'x')",
        "return redis.acl_check_cmd('nosuch', 'x')", "return redis.acl_check_cmd()",
        "return redis.acl_check_cmd({})", "return redis.call()", "return redis.call('nosuch')",
        "return redis.call('get', 'a', 'b')", "return redis.call({})",
        "return redis.call('eval', 'return 1', 0)", "return redis.call('multi')",
        "return redis.call('set', 'n', 1.5)", "return redis.call('set', 'n', -0.0)",
        "redis.call('set', 'n', 1e20) return redis.call('get', 'n')",
        "redis.call('set', 'n', 0.1) return redis.call('get', 'n')",
        "redis.call('set', 'n', 3.0) return redis.call('get', 'n')",
        "redis.call('set', 'n', 123456789012345678) return redis.call('get', 'n')",
        "redis.call('set', 'n', 1/0) return redis.call('get', 'n')",
        "return redis.call('set', 'a', 'b').ok", "return {redis.call('get', 'nokey')}",
        "return tostring(redis.call('get', 'nokey'))", "return redis.call('type', 's')",
        "return redis.call('incr', 's')", "return redis.call('lrange', 'nolist', 0, -1)",
        "redis.setresp(3) return true", "redis.setresp(3) return false", "return true",
        "redis.setresp(3) redis.call('hset', 'h', 'a', '1') return redis.call('hgetall', 'h').map.a",
        "redis.setresp(3) return type(redis.call('get', 'nokey'))",
        "redis.setresp(3) redis.call('zadd', 'z', 1.5, 'm') "
        "return tostring(redis.call('zscore', 'z', 'm').double)",
        "redis.setresp(3) redis.call('sadd', 'set', 'm') "
        "return redis.call('smembers', 'set').set.m == true",
        *(
            f"return redis.{name}({value}{rest})"
            for name, rest in (("setresp", ""), ("set_repl", ""), ("log", ", 'b'"))
            for value in ("'2'", "' 3 '", "'x'", "{}", "nil", "true", "2.5", "3.9", "-0.5", "-1", "4")
        ),
        *(
            script.replace("N", number)
            for number in ("0/0", "-(0/0)", "1/0", "-1/0", "-0", "0 * -1", "'-0'")
            for script in (
                "return redis.call('echo', N)", "return redis.call('lpush', 'numbers', 'a', N, N)",
                "return redis.acl_check_cmd('get', N)", "return {double=N}", "return {N}",
                "redis.setresp(3) return {double=N}", "return redis.sha1hex(N)", "return tostring(N)",
                "redis.call('set', 'n', N) return redis.call('get', 'n')",
                "redis.call('zadd', 'z', N, 'm') return redis.call('zscore', 'z', 'm')",
            )
        ),
        "return redis.call('lrange', 'numbers', 0, -1)",
        "return math.random(1000000)", "math.randomseed(5) return {math.random(), math.random(9)}",
        *(
            f"local t = {{}} for i = 1, {count} do t[i] = i end return {expression}"
            for count in (7997, 7998, 7999, 8000)
            for expression in (
                "redis.call('lpush', 'l', unpack(t))", "select('#', unpack(t))",
                "select('#', unpack(t, 1))", "select('#', unpack(t, 1, #t))",
                "redis.pcall('lpush', 'l', t, unpack(t))",
                "select(2, pcall(redis.call, 'lpush', 'l', unpack(t)))",
                "#{unpack(t)}", "redis.acl_check_cmd('lpush', 'l', unpack(t))",
            )
        ),
        "return string.dump()", "return string.dump(1)", "return string.dump(print)",
        "return string.dump(string.dump)", "return string.dump(pcall)",
        "return string.byte(string.dump(function() end))",
        "return loadstring(string.dump(function() return 1 end))()",
        "return type(getmetatable(_G))", "getmetatable(_G).__index = {}",
        "return type(getmetatable(_G).__index)", "return getmetatable(_G).__newindex",
        "return getmetatable(getmetatable(_G))", "getmetatable(_G).x = 1",
        "return getmetatable(redis)", "return getmetatable(string)", "return getmetatable(cjson)",
        "setmetatable(getmetatable(_G), {})", "rawset(getmetatable(_G), 'x', 1)",
        "local n = 0 for _ in pairs(getmetatable(_G)) do n = n + 1 end return n",
        "x = 1", "return x", "string.rep = 1", "if", "x = ", "return 'abc", "return [[abc",
        "local 1", "return 1 2", "", "  ", "return", "KEYS[1] = 'x' return KEYS[1]", "KEYS = {}",
    )
]  # fmt: skip

_RAISED = ["error('boom', LEVEL)", "error(1, LEVEL)", "error('boom', 'LEVEL')"]
_CALLERS = [
    "RAISE", "local function f() RAISE end f()",
    "local function g() RAISE end local function f() g() end f()",
    "return {pcall(function() RAISE end)}", "return {pcall(pcall, function() RAISE end)}",
    "return {xpcall(function() RAISE end, function(e) return e end)}",
    "return {coroutine.resume(coroutine.create(function() RAISE end))}",
    "return coroutine.wrap(function() RAISE end)()",
    "return {pcall(coroutine.wrap(function() RAISE end))}",
    "local f = loadstring(ARGV[1]) f()", "local f = loadstring(ARGV[1], '@name') f()",
    "local f = loadstring(ARGV[1], '=name') f()", "return {pcall(loadstring(ARGV[1]))}",
    "table.foreach({1}, function() RAISE end)", "table.foreachi({1}, function() RAISE end)",
    "table.sort({2, 1}, function() RAISE end)",
    "return string.gsub('abc', 'b', function() RAISE end)",
    "return {load(function() RAISE end)}", "for x in function() RAISE end do end",
    *(
        f"local t = setmetatable({{}}, {{{name} = function() RAISE end}}) return {use}"
        for name, use in (
            ("__index", "t.x"), ("__tostring", "tostring(t)"), ("__call", "{t()}"),
            ("__add", "t + 1"), ("__concat", "t .. 1"), ("__eq", "t ~= t"), ("__lt", "t < t"),
        )
    ),
]  # fmt: skip
ERRORS: list[tuple[str, ...]] = [
    *(
        (caller.replace("RAISE", raised), raised)
        for caller in _CALLERS
        for raised in (script.replace("LEVEL", str(level)) for script in _RAISED for level in range(7))
    ),
    *(
        (script,)
        for script in (
            *(
                f"{start}error({arguments}){end}"
                for start, end in (("", ""), ("return {pcall(function() ", " end)}"))
                for arguments in (
                    "", "nil, 2", "'x', -1", "'x', 1.9", "'x', nil", "'x', {}", "'x', 'y'", "true",
                    "false", "{err='x y'}, 2", "{err=1}", "{err=12.5}", "redis.error_reply('x y')",
                    "redis.pcall('get')", "redis.pcall('nosuch'), 2", "''", "{err=''}",
                    "{err='noprefix'}", "{err='-x y'}", r"'a\nb'", r"'a\0b'", r"{err='a\0b c'}",
                    "{err='x y', source='s', line=1}", "'x', 1e300", "'x', -1e300", "'x', 0/0",
                )
            ),
            *(f"return {{pcall(error, 'x', {level})}}" for level in range(6)),
            *(f"return {{pcall(pcall, error, 'x', {level})}}" for level in range(6)),
            *(
                f"local ok, e = pcall({called}) {raised}"
                for called in ("redis.call, 'get'", "string.rep", "error, {err='x y'}")
                for raised in (
                    "error(e)", "error(e, 0)", "error(e, 2)", "error({err=e})", "return {err=e}",
                )
            ),
            "return {pcall(error, {1, 2})}", "return {pcall(table.foreach, {1}, error)}",
            *(
                f"return {{pcall({user}, {called})}}"
                for user in (
                    "table.foreach, {'a'}", "table.foreachi, {'a'}", "string.gsub, 'ab', '(.)(.)'",
                    "load", "xpcall", "pcall", "coroutine.wrap", "coroutine.create",
                )
                for called in (
                    "string.rep", "string.gsub", "string.find", "table.insert", "table.concat",
                    "setmetatable", "unpack", "cjson.decode", "cmsgpack.unpack_one", "struct.pack",
                    "bit.tobit", "redis.call", "math.random", "string.format",
                )
                if user not in ("xpcall", "load") or called == "string.rep"
            ),
            r"return {err='a\0b'}", r"return {ok='a\0b'}", r"return redis.error_reply('a\0b c')",
            r"return redis.status_reply('a\0b c')", r"return redis.error_reply('a\0b c').err",
            r"return redis.status_reply('a\0b c').ok",
        )
    ),
]  # fmt: skip
"""Errors that scripts raise, with the positions that these show."""
