"""Scenarios of the key-value service: command lines by group, then scenarios that need HTTP.

In a line, ``@name`` is a key that belongs to the run. If two correct replies can differ, a word
after ``~`` names the way to compare them (see ``scenario.COMPARISONS``).
"""

from __future__ import annotations

from ..scenario import Scenario, Step, read_lines

_COMMANDS = r"""
## string: set and get
SET @a one
GET @a
SET @a two NX
SET @a two XX GET
GET @missing
SET @a three EX 100
TTL @a ~near
SET @a four KEEPTTL
TTL @a ~near
SET @a five EX 0
SET @a five EX 10 PX 10
SET @a five BAD
SET @a
PSETEX @a 100000 x
PTTL @a ~near
SETEX @a 100 y
SETEX @a -1 y
SETNX @a z
SETNX @b z
GETSET @b w
GETDEL @b
GETDEL @b
GETEX @a PERSIST
TTL @a
GETEX @a EX 50
GETEX @missing EX 50
## string: numbers
SET @n 10
INCR @n
INCRBY @n 5
DECR @n
DECRBY @n 20
INCRBY @n x
SET @n 9223372036854775807
INCR @n
SET @f 10.50
INCRBYFLOAT @f 0.1
INCRBYFLOAT @f -5e3
INCRBYFLOAT @f abc
SET @t text
INCR @t
GET @n
## string: parts
SET @s hello
APPEND @s " world"
STRLEN @s
GETRANGE @s 0 4
GETRANGE @s -5 -1
GETRANGE @s 5 1
SETRANGE @s 6 earth
SETRANGE @s -1 x
GET @s
SUBSTR @s 0 1
SET @u "grüße ✓"
STRLEN @u
GET @u
LCS @s @u LEN
## string: several keys
MSET @a 1 @b 2
MSET @a 1 @b
MGET @a @b @missing
MSETNX @b 3 @c 4
MSETNX @c 4 @d 5
MGET @c @d
RPUSH @l x
MGET @a @l
GET @l
## string: conditions
SET @c 1
SET @c 2 IFEQ 1
SET @c 3 IFEQ 1
GET @c
DELIFEQ @c 9
DELIFEQ @c 2
DIGEST @c
DELEX @missing IFEQ 1
MSETEX 1 @m v EX 100
TTL @m ~near
## bitmap
SETBIT @b 7 1
SETBIT @b 100 1
GETBIT @b 7
GETBIT @b 8
BITCOUNT @b
BITCOUNT @b 0 0
BITCOUNT @b 0 7 BIT
BITPOS @b 1
BITPOS @b 0
BITPOS @b 1 2
BITOP NOT @c @b
BITOP AND @d @b @c
BITOP XOR @d @b
BITFIELD @f SET u8 0 255 GET u4 0 INCRBY i5 100 1
BITFIELD @f OVERFLOW FAIL INCRBY u2 102 5
BITFIELD_RO @f GET u8 0
SETBIT @b -1 1
SETBIT @b 1 2
## hash
HSET @h a 1 b 2
HSET @h a 3
HSET @h a
HGET @h a
HGET @h missing
HMSET @h c 4
HMGET @h a b missing
HGETALL @h ~pairs
HKEYS @h ~sorted
HVALS @h ~sorted
HLEN @h
HEXISTS @h a
HSTRLEN @h a
HSETNX @h a 9
HDEL @h c missing
HINCRBY @h a 5
HINCRBYFLOAT @h a 0.5
HINCRBY @h a x
HSET @h t text
HINCRBY @h t 1
HRANDFIELD @h ~shape
HRANDFIELD @missing
HSCAN @h 0 ~scan-pairs
HGETALL @missing
SET @s x
HGET @s a
## hash: fields that expire
HSET @h a 1 b 2
HEXPIRE @h 100 FIELDS 2 a missing
HTTL @h FIELDS 2 a b ~near
HPTTL @h FIELDS 1 a ~near
HEXPIRETIME @h FIELDS 1 b
HPEXPIRE @h 100000 NX FIELDS 1 a
HPEXPIREAT @h 4102444800000 FIELDS 1 b
HPEXPIRETIME @h FIELDS 1 b
HEXPIREAT @h 4102444800 FIELDS 1 a
HEXPIRETIME @h FIELDS 1 a
HPERSIST @h FIELDS 3 a b missing
HTTL @h FIELDS 1 a
HEXPIRE @h 100 FIELDS 2 a
HGETEX @h EX 100 FIELDS 1 a
HGETDEL @h FIELDS 1 a
HSETEX @h EX 100 FIELDS 1 c 3
HGETALL @h ~pairs
## list
RPUSH @l a b c
LPUSH @l z
LPUSHX @missing x
RPUSHX @l d
LRANGE @l 0 -1
LLEN @l
LINDEX @l 0
LINDEX @l 99
LSET @l 0 y
LSET @l 99 y
LSET @missing 0 y
LINSERT @l BEFORE b x
LINSERT @l AFTER missing x
LREM @l 1 x
LPOS @l b
LPOS @l b COUNT 0
LPOS @l b RANK 0
LMOVE @l @m LEFT RIGHT
LMOVE @l @m UP RIGHT
RPOPLPUSH @l @m
LRANGE @m 0 -1
LMPOP 2 @missing @m LEFT COUNT 2
LPOP @l
LPOP @l 2
RPOP @l
RPOP @l
LPOP @l 2
LPOP @l -1
RPUSH @t a b c d
LTRIM @t 1 2
LRANGE @t 0 -1
LTRIM @t 5 1
EXISTS @t
SET @s x
RPUSH @s x
## list: blocking commands are rejected over REST
BLPOP @l 1 ~rest
BRPOP @l 1 ~rest
BLMOVE @l @m LEFT RIGHT 1 ~rest
BLMPOP 1 1 @l LEFT ~rest
BRPOPLPUSH @l @m 1 ~rest
BZPOPMIN @z 1 ~rest
BZPOPMAX @z 1 ~rest
BZMPOP 1 1 @z MIN ~rest
XREAD BLOCK 1 STREAMS @x 0 ~rest
## set
SADD @s a b c
SADD @s a d
SADD @s
SCARD @s
SISMEMBER @s a
SMISMEMBER @s a missing
SMEMBERS @s ~sorted
SMEMBERS @missing
SREM @s d missing
SADD @t b c e
SINTER @s @t ~sorted
SUNION @s @t ~sorted
SDIFF @s @t ~sorted
SINTERSTORE @u @s @t
SUNIONSTORE @u @s @t
SDIFFSTORE @u @s @t
SMEMBERS @u ~sorted
SINTERCARD 2 @s @t LIMIT 1
SINTERCARD 0 @s
SMOVE @s @t a
SMOVE @s @t missing
SRANDMEMBER @s ~shape
SRANDMEMBER @s 0
SPOP @missing
SPOP @u ~shape
SSCAN @t 0 ~scan
SADD @n 1 2 3
SMEMBERS @n ~sorted
## sorted set: members
ZADD @z 1 a 2 b 3 c
ZADD @z NX 9 a 4 d
ZADD @z XX CH 5 d
ZADD @z GT 1 d
ZADD @z INCR 0.5 a
ZADD @z NX XX 1 a
ZADD @z x a
ZADD @z 1
ZCARD @z
ZSCORE @z a
ZSCORE @z missing
ZMSCORE @z a missing
ZINCRBY @z 2 a
ZRANK @z a
ZRANK @z missing
ZREVRANK @z a
ZCOUNT @z 2 (5
ZCOUNT @z -inf +inf
ZREM @z d missing
ZRANDMEMBER @z ~shape
ZSCAN @z 0 ~scan-pairs
ZPOPMIN @z
ZPOPMAX @z 2
ZPOPMIN @missing
ZADD @inf inf a -inf b
ZRANGE @inf 0 -1 WITHSCORES
## sorted set: ranges
ZADD @z 1 a 2 b 3 c 4 d 5 e
ZRANGE @z 0 -1
ZRANGE @z 0 1 WITHSCORES
ZRANGE @z 0 1 REV
ZRANGE @z (1 3 BYSCORE
ZRANGE @z -inf +inf BYSCORE LIMIT 1 2
ZRANGE @z 0 1 LIMIT 1 2
ZRANGE @z [b [d BYLEX
ZREVRANGE @z 0 1 WITHSCORES
ZRANGEBYSCORE @z 2 4 WITHSCORES LIMIT 0 1
ZREVRANGEBYSCORE @z 4 2
ZRANGEBYSCORE @z x 4
ZADD @x 0 a 0 b 0 c
ZRANGEBYLEX @x - +
ZRANGEBYLEX @x [b +
ZREVRANGEBYLEX @x + -
ZLEXCOUNT @x [a (c
ZREMRANGEBYLEX @x [a [a
ZRANGESTORE @y @z 0 1
ZREMRANGEBYRANK @z 0 0
ZREMRANGEBYSCORE @z 5 5
ZRANGE @z 0 -1
## sorted set: several
ZADD @a 1 x 2 y
ZADD @b 10 y 20 z
ZUNION 2 @a @b WITHSCORES
ZINTER 2 @a @b WITHSCORES
ZDIFF 2 @a @b WITHSCORES
ZUNIONSTORE @u 2 @a @b WEIGHTS 2 1 AGGREGATE MAX
ZRANGE @u 0 -1 WITHSCORES
ZINTERSTORE @i 2 @a @b AGGREGATE MIN
ZDIFFSTORE @d 2 @a @b
ZINTERCARD 2 @a @b
ZMPOP 2 @missing @u MAX COUNT 1
ZUNIONSTORE @u 0 @a
ZUNIONSTORE @u 2 @a @b WEIGHTS 1
## geo
GEOADD @g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
GEOADD @g 200 100 Nowhere
GEODIST @g Palermo Catania
GEODIST @g Palermo Catania km
GEODIST @g Palermo Missing
GEOHASH @g Palermo Missing
GEOPOS @g Palermo Missing
GEOSEARCH @g FROMLONLAT 15 37 BYRADIUS 200 km ASC
GEOSEARCH @g FROMMEMBER Palermo BYBOX 400 400 km DESC COUNT 1
GEOSEARCH @g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST
GEOSEARCHSTORE @h @g FROMLONLAT 15 37 BYRADIUS 200 km
GEORADIUS @g 15 37 200 km ASC
GEORADIUS_RO @g 15 37 100 km
GEORADIUSBYMEMBER @g Palermo 100 km
GEORADIUSBYMEMBER_RO @g Palermo 200 km ASC
GEOSEARCH @g FROMLONLAT 15 37
## hyperloglog
PFADD @p a b c
PFADD @p a
PFCOUNT @p
PFADD @q c d
PFCOUNT @p @q
PFMERGE @r @p @q
PFCOUNT @r
SET @s x
PFADD @s a
## stream: entries
XADD @x 1-1 a 1
XADD @x 1-2 a 2 b 3
XADD @x 1-1 a 1
XADD @x 0-0 a 1
XADD @x 2-* c 4
XADD @x * now 1 ~shape
XADD @missing NOMKSTREAM * a 1
XADD @x 9-1 a
XLEN @x
XRANGE @x - 2
XRANGE @x (1-1 2 COUNT 1
XREVRANGE @x 2 -
XREAD COUNT 2 STREAMS @x 0
XREAD STREAMS @x 9999999999999
XDEL @x 1-1 7-7
XTRIM @x MAXLEN 2
XTRIM @x MINID 0
XLEN @x
XADD @y MAXLEN 1 5-1 a 1
XADD @y MAXLEN = 1 5-2 a 1
XLEN @y
XSETID @y 6-0
XRANGE @x bad +
XDELEX @y KEEPREF IDS 1 5-2
## stream: groups
XADD @x 1-1 a 1
XADD @x 1-2 a 2
XGROUP CREATE @x g 0
XGROUP CREATE @x g 0
XGROUP CREATE @missing g 0
XGROUP CREATE @new g $ MKSTREAM
XGROUP CREATECONSUMER @x g bob
XREADGROUP GROUP g ann COUNT 1 STREAMS @x >
XREADGROUP GROUP g ann STREAMS @x 0
XREADGROUP GROUP none ann STREAMS @x >
XPENDING @x g
XPENDING @x g - + 10 ann ~idle
XCLAIM @x g bob 0 1-1 JUSTID
XAUTOCLAIM @x g ann 0 0
XACK @x g 1-1 7-7
XACKDEL @x g KEEPREF IDS 1 1-1
XINFO STREAM @x ~shape
XINFO GROUPS @x ~shape
XINFO CONSUMERS @x g ~shape
XGROUP SETID @x g 0
XGROUP DELCONSUMER @x g bob
XGROUP DESTROY @x g
XGROUP DESTROY @x g
## json: documents
JSON.SET @j $ '{"a":1,"b":{"c":[1,2,3]},"s":"x","t":true,"n":null}'
JSON.GET @j
JSON.GET @j $.b.c
JSON.GET @j .a
JSON.GET @j $.missing
JSON.GET @j $.a $.s
JSON.GET @missing $
JSON.SET @j $.a 2 NX
JSON.SET @j $.z 2 XX
JSON.SET @j $.a nope
JSON.SET @new $.a 1
JSON.TYPE @j $.*
JSON.OBJKEYS @j $
JSON.OBJLEN @j $
JSON.MGET @j @missing $.a
JSON.MSET @k $ 1 @m $ '[1]'
JSON.MERGE @j $ '{"a":null,"d":4}'
JSON.GET @j $
JSON.DEL @j $.d
JSON.FORGET @j $.missing
JSON.CLEAR @j $.b.c
JSON.TOGGLE @j $.t
JSON.RESP @j $.s
JSON.DEBUG MEMORY @j ~shape
## json: parts
JSON.SET @j $ '{"l":[1,2,3],"n":5,"s":"ab"}'
JSON.ARRAPPEND @j $.l 4 '"x"'
JSON.ARRINDEX @j $.l 3
JSON.ARRINSERT @j $.l 0 0
JSON.ARRLEN @j $.l
JSON.ARRLEN @j $.n
JSON.ARRPOP @j $.l
JSON.ARRPOP @j $.l 0
JSON.ARRTRIM @j $.l 0 1
JSON.NUMINCRBY @j $.n 2.5
JSON.NUMMULTBY @j $.n 2
JSON.NUMINCRBY @j $.s 1
JSON.STRAPPEND @j $.s '"cd"'
JSON.STRLEN @j $.s
JSON.GET @j $
SET @t text
JSON.GET @t $
## keys
SET @a 1
EXISTS @a @a @missing
TYPE @a
TYPE @missing
EXPIRE @a 100
EXPIRE @a 50 GT
EXPIRE @a 500 NX
EXPIRE @a x
TTL @a ~near
PEXPIRE @a 100000
PTTL @a ~near
EXPIREAT @a 4102444800
EXPIRETIME @a
PEXPIREAT @a 4102444800000
PEXPIRETIME @a
PERSIST @a
PERSIST @a
TTL @a
TTL @missing
RENAME @a @b
RENAME @missing @b
SET @c 1
RENAMENX @b @c
COPY @b @d
COPY @b @c
COPY @b @c REPLACE
TOUCH @b @missing
UNLINK @b @missing
DEL @c @missing
DEL
OBJECT ENCODING @d
OBJECT REFCOUNT @missing
KEYS @none*
SCAN 0 MATCH @none* COUNT 1 ~shape
RPUSH @l 3 1 2
SORT @l
SORT @l DESC LIMIT 0 2
SORT_RO @l ALPHA
EXPIRE @l -1
EXISTS @l
## keys: dump and restore
SET @a payload
DUMP @missing
RESTORE @b 0 bad
## scripting
EVAL "return ARGV[1]" 0 hello
EVAL "return {1,2,{3,'x'}}" 0
EVAL "return redis.call('SET', KEYS[1], ARGV[1])" 1 @k v
EVAL "return redis.call('GET', KEYS[1])" 1 @k
EVAL "return redis.call('INCR', KEYS[1])" 1 @k
EVAL "return redis.pcall('INCR', KEYS[1])" 1 @k
EVAL "return redis.error_reply('MY error')" 0
EVAL "return redis.status_reply('FINE')" 0
EVAL "return cjson.encode({a=1})" 0
EVAL "return 3.99" 0
EVAL "return nil" 0
EVAL "syntax error" 0
EVAL "return 1" 1
EVAL_RO "return redis.call('GET', KEYS[1])" 1 @k
EVAL_RO "return redis.call('SET', KEYS[1], 1)" 1 @k
EVALSHA 0000000000000000000000000000000000000000 0
FCALL none_such_function 0
FCALL_RO none_such_function 0
## publish
PUBLISH @channel hello
PUBSUB NUMSUB @channel
## connection and server
PING
PING hello
ECHO hello
TIME ~shape
DBSIZE ~shape
NOSUCHCOMMAND @a
GET
GET @a @b
MEMORY USAGE @missing
"""

_NO_SCRIPT = "0" * 40
_BY_HASH = Scenario(
    "kv",
    "scripting: by hash",
    (
        # The server keeps a script, and a flush would also remove other scripts. So load a
        # different script in each run.
        Step("POST", "/", json=["SCRIPT", "LOAD", "return '{p}'"], keep={"sha": "result"}),
        Step("POST", "/", json=["EVALSHA", "{sha}", "0"]),
        Step("POST", "/", json=["EVALSHA_RO", "{sha}", "0"]),
        Step("POST", "/", json=["SCRIPT", "EXISTS", "{sha}", _NO_SCRIPT]),
    ),
)

_JSON = {"Content-Type": "application/json"}

_HTTP = (
    Scenario(
        "kv",
        "REST: commands in paths",
        (
            Step("GET", "/set/{p}a/value%20one"),
            Step("GET", "/get/{p}a"),
            Step("POST", "/set/{p}b", body="from the body"),
            Step("GET", "/get/{p}b"),
            Step("POST", "/set/{p}b?EX=100", body="with a query"),
            Step("GET", "/mget/{p}a/{p}b/{p}missing"),
            Step("GET", "/nosuchcommand/{p}a"),
            Step("GET", "/set/{p}a"),
            Step("GET", "/"),
        ),
        keys=("a", "b"),
    ),
    Scenario(
        "kv",
        "REST: bodies",
        (
            Step("POST", "/", json=["SET", "{p}a", "ü"]),
            Step("POST", "/", json=["GET", "{p}a"]),
            Step("POST", "/", json=["SET", "{p}n", 1.5]),
            Step("POST", "/", json=["GET", "{p}n"]),
            Step("POST", "/", json=[]),
            Step("POST", "/", json={"a": 1}),
            Step("POST", "/", body="not json", headers=_JSON),
            Step("POST", "/", json=["GET", "{p}a"], headers={"Upstash-Encoding": "base64"}),
            Step("POST", "/", json=["GET", "{p}missing"], headers={"Upstash-Encoding": "base64"}),
        ),
        keys=("a", "n"),
    ),
    Scenario(
        "kv",
        "REST: pipelines and transactions",
        (
            Step("POST", "/pipeline", json=[["SET", "{p}a", "1"], ["INCR", "{p}a"], ["BAD"]]),
            Step("POST", "/pipeline", json=[["LPUSH", "{p}a", "x"], ["GET", "{p}a"]]),
            Step("POST", "/pipeline", json=[]),
            Step("POST", "/pipeline", json=["GET", "{p}a"]),
            Step("POST", "/multi-exec", json=[["SET", "{p}a", "5"], ["INCR", "{p}a"]]),
            Step("POST", "/multi-exec", json=[["LPUSH", "{p}a", "x"], ["GET", "{p}a"]]),
            Step("POST", "/multi-exec", json=[["SET", "{p}a"], ["GET", "{p}a"]]),
            Step("POST", "/", json=["GET", "{p}a"]),
        ),
        keys=("a",),
    ),
    Scenario(
        "kv",
        "REST: credentials",
        (
            Step("POST", "/", json=["GET", "{p}a"], token=None),
            Step("POST", "/", json=["GET", "{p}a"], token="wrong"),
        ),
    ),
)

SCENARIOS = (*read_lines(_COMMANDS), _BY_HASH, *_HTTP)
