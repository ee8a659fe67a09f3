"""What random command lines look like: one or more templates for every command of the data groups.

A template is words: literals, `<name>` a value made by `values.Values.name`, `<name>+` one to four of
them, `[...]` something optional, `(a|b|c)` one of several literal words. `2*[...]` makes an optional
part likely.
"""

from __future__ import annotations

TEMPLATES: dict[str, tuple[str, ...]] = {
    "string": (
        "GET <str>", "SET <str> <val> [(NX|XX)] [GET] [(EX|PX) <ttl>]", "SET <str> <val> KEEPTTL",
        "SET <str> <num>", "SETNX <str> <val>", "SETEX <str> <ttl> <val>", "PSETEX <str> <ttl> <val>",
        "GETSET <str> <val>", "GETDEL <str>", "GETEX <str> [(EX|PX) <ttl>]", "GETEX <str> PERSIST",
        "APPEND <str> <val>", "STRLEN <str>", "GETRANGE <str> <index> <index>",
        "SUBSTR <str> <index> <index>", "SETRANGE <str> <small> <val>", "MGET <str>+",
        "MSET <strval>+", "MSETNX <strval>+", "INCR <str>", "DECR <str>", "INCRBY <str> <int>",
        "DECRBY <str> <int>", "INCRBYFLOAT <str> <float>",
        "LCS <str> <str> [LEN] [IDX] [MINMATCHLEN <index>] [WITHMATCHLEN]",
    ),
    "bitmap": (
        "SETBIT <bit> <small> (0|1)", "GETBIT <bit> <small>", "BITCOUNT <bit>",
        "BITCOUNT <bit> <index> <index> [(BYTE|BIT)]", "BITPOS <bit> (0|1)",
        "BITPOS <bit> (0|1) <index> [<index>] ", "BITPOS <bit> (0|1) <index> <index> (BYTE|BIT)",
        "BITOP (AND|OR|XOR) <bit> <bit>+", "BITOP NOT <bit> <bit>", "SET <bit> <val>",
        "BITFIELD <bit> GET <bittype> <bitoffset>",
        "BITFIELD <bit> [OVERFLOW (WRAP|SAT|FAIL)] SET <bittype> <bitoffset> <int>",
        "BITFIELD <bit> [OVERFLOW (WRAP|SAT|FAIL)] INCRBY <bittype> <bitoffset> <int>",
        "BITFIELD <bit> OVERFLOW SAT INCRBY <bittype> <bitoffset> <int> GET <bittype> <bitoffset>",
        "BITFIELD_RO <bit> GET <bittype> <bitoffset>",
    ),
    "hash": (
        "HSET <hash> <fieldval>+", "HSET <hash> <fieldval>+", "HMSET <hash> <fieldval>+",
        "HSETNX <hash> <field> <val>", "HGET <hash> <field>", "HMGET <hash> <field>+",
        "HGETALL <hash>", "HKEYS <hash>", "HVALS <hash>", "HLEN <hash>", "HEXISTS <hash> <field>",
        "HSTRLEN <hash> <field>", "HDEL <hash> <field>+", "HINCRBY <hash> <field> <int>",
        "HINCRBYFLOAT <hash> <field> <float>", "HRANDFIELD <hash> [<count> [WITHVALUES]]",
        "HSCAN <hash> 0 COUNT 100000 [MATCH <pattern>]",
        "HEXPIRE <hash> <ttl> [(NX|XX|GT|LT)] FIELDS <fields>",
        "HPEXPIRE <hash> <ttl> [(NX|XX|GT|LT)] FIELDS <fields>",
        "HTTL <hash> FIELDS <fields>", "HPTTL <hash> FIELDS <fields>",
        "HPERSIST <hash> FIELDS <fields>", "HGETDEL <hash> FIELDS <fields>",
        "HGETEX <hash> [(EX|PX) <ttl>] FIELDS <fields>",
        "HSETEX <hash> [(FNX|FXX)] [(EX|PX) <ttl>] FIELDS <fieldvals>",
    ),
    "list": (
        "LPUSH <list> <val>+", "RPUSH <list> <val>+", "RPUSH <list> <bulk>", "LPUSHX <list> <val>+",
        "RPUSHX <list> <val>+",
        "LPOP <list> [<count>]", "RPOP <list> [<count>]", "LLEN <list>",
        "LINDEX <list> <index>", "LSET <list> <index> <val>", "LRANGE <list> <index> <index>",
        "LTRIM <list> <index> <index>", "LREM <list> <index> <val>",
        "LINSERT <list> (BEFORE|AFTER) <val> <val>",
        "LPOS <list> <val> [RANK <index>] [COUNT <count>] [MAXLEN <count>]",
        "LMOVE <list> <list> (LEFT|RIGHT) (LEFT|RIGHT)", "RPOPLPUSH <list> <list>",
        "LMPOP <lists> (LEFT|RIGHT) [COUNT <count>]",
    ),
    "set": (
        "SADD <set> <member>+", "SADD <set> <member>+", "SADD <set> <num>+", "SADD <set> <bulk>",
        "SREM <set> <member>+",
        "SCARD <set>", "SISMEMBER <set> <member>", "SMISMEMBER <set> <member>+", "SMEMBERS <set>",
        "SMOVE <set> <set> <member>", "SPOP <set> [<count>]", "SRANDMEMBER <set> [<index>]",
        "SINTER <set>+", "SUNION <set>+", "SDIFF <set>+", "SINTERSTORE <set> <set>+",
        "SUNIONSTORE <set> <set>+", "SDIFFSTORE <set> <set>+", "SINTERCARD <sets> [LIMIT <count>]",
        "SSCAN <set> 0 COUNT 100000 [MATCH <pattern>]",
    ),
    "sorted-set": (
        "ZADD <zset> <scored>+", "ZADD <zset> <scored>+", "ZADD <zset> <bulkscored>",
        "ZADD <lex> <bulklexed>",
        "ZADD <zset> [(NX|XX)] [(GT|LT)] [CH] <scored>+", "ZADD <zset> [XX] INCR <scored>",
        "ZINCRBY <zset> <score> <member>", "ZREM <zset> <member>+", "ZCARD <zset>",
        "ZSCORE <zset> <member>", "ZMSCORE <zset> <member>+",
        "ZRANK <zset> <member> [WITHSCORE]", "ZREVRANK <zset> <member> [WITHSCORE]",
        "ZCOUNT <zset> <min> <max>", "ZLEXCOUNT <lex> <lexmin> <lexmax>",
        "ZRANGE <zset> <index> <index> [REV] [WITHSCORES]",
        "ZRANGE <zset> <min> <max> BYSCORE [REV] [LIMIT <index> <index>] [WITHSCORES]",
        "ZRANGE <lex> <lexmin> <lexmax> BYLEX [REV] [LIMIT <index> <index>]",
        "ZREVRANGE <zset> <index> <index> [WITHSCORES]",
        "ZRANGEBYSCORE <zset> <min> <max> [WITHSCORES] [LIMIT <index> <index>]",
        "ZREVRANGEBYSCORE <zset> <max> <min> [WITHSCORES] [LIMIT <index> <index>]",
        "ZRANGEBYLEX <lex> <lexmin> <lexmax> [LIMIT <index> <index>]",
        "ZREVRANGEBYLEX <lex> <lexmax> <lexmin> [LIMIT <index> <index>]",
        "ZRANGESTORE <zset> <zset> <index> <index> [REV]",
        "ZRANGESTORE <zset> <zset> <min> <max> BYSCORE [REV] [LIMIT <index> <index>]",
        "ZREMRANGEBYRANK <zset> <index> <index>", "ZREMRANGEBYSCORE <zset> <min> <max>",
        "ZREMRANGEBYLEX <lex> <lexmin> <lexmax>", "ZADD <lex> <lexed>+",
        "ZPOPMIN <zset> [<count>]", "ZPOPMAX <zset> [<count>]",
        "ZMPOP <zsets> (MIN|MAX) [COUNT <count>]",
        "ZRANDMEMBER <zset> [<index> [WITHSCORES]]",
        "ZUNION <zsets> [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]",
        "ZINTER <zsets> [AGGREGATE (SUM|MIN|MAX)] [WITHSCORES]", "ZDIFF <zsets> [WITHSCORES]",
        "ZUNION 2 <zset> <zset> WEIGHTS <score> <score> [WITHSCORES]",
        "ZINTER 2 <zset> <set> WEIGHTS <score> <score> [WITHSCORES]",
        "ZUNIONSTORE <zset> <zsets> [AGGREGATE (SUM|MIN|MAX)]",
        "ZINTERSTORE <zset> 2 <zset> <zset> [WEIGHTS <score> <score>] [AGGREGATE (SUM|MIN|MAX)]",
        "ZDIFFSTORE <zset> <zsets>", "ZINTERCARD <zsets> [LIMIT <count>]",
        "ZSCAN <zset> 0 COUNT 100000 [MATCH <pattern>]",
    ),
    "geo": (
        "GEOADD <geo> <place>+", "GEOADD <geo> <place>+", "GEOADD <geo> [(NX|XX)] [CH] <place>+",
        "GEOPOS <geo> <town>+", "GEOHASH <geo> <town>+", "GEODIST <geo> <town> <town> [<unit>]",
        "GEORADIUS <geo> <lonlat> <radius> <unit> [WITHCOORD] [WITHDIST] [WITHHASH] "
        "[COUNT <count> [ANY]] [(ASC|DESC)]",
        "GEORADIUS <geo> <lonlat> <radius> <unit> [COUNT <count>] [(STORE|STOREDIST) <geo>]",
        "GEORADIUS_RO <geo> <lonlat> <radius> <unit> [WITHCOORD] [WITHDIST] [COUNT <count>]",
        "GEORADIUSBYMEMBER <geo> <town> <radius> <unit> [WITHCOORD] [WITHDIST] [(ASC|DESC)]",
        "GEORADIUSBYMEMBER <geo> <town> <radius> <unit> [(STORE|STOREDIST) <geo>]",
        "GEORADIUSBYMEMBER_RO <geo> <town> <radius> <unit> [WITHHASH] [COUNT <count>]",
        "GEOSEARCH <geo> FROMLONLAT <lonlat> BYRADIUS <radius> <unit> [(ASC|DESC)] "
        "[COUNT <count> [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        "GEOSEARCH <geo> FROMLONLAT <lonlat> BYBOX <radius> <radius> <unit> [(ASC|DESC)] "
        "[COUNT <count> [ANY]] [WITHDIST]",
        "GEOSEARCH <geo> FROMMEMBER <town> BYRADIUS <radius> <unit> [WITHCOORD] [WITHHASH]",
        "GEOSEARCH <geo> FROMMEMBER <town> BYBOX <radius> <radius> <unit> [(ASC|DESC)]",
        "GEOSEARCHSTORE <geo> <geo> FROMLONLAT <lonlat> BYRADIUS <radius> <unit> [STOREDIST]",
        "GEOSEARCHSTORE <geo> <geo> FROMMEMBER <town> BYBOX <radius> <radius> <unit> "
        "[COUNT <count>] [STOREDIST]",
        "ZRANGE <geo> 0 -1 WITHSCORES", "ZREM <geo> <town>",
    ),
    "hyperloglog": (
        "PFADD <hll> <val>+", "PFADD <hll> <many>", "PFADD <hll>", "PFCOUNT <hll>", "PFCOUNT <hll>+",
        "PFMERGE <hll> <hll>+", "GET <hll>", "PFDEBUG (ENCODING|DECODE|GETREG|TODENSE) <hll>",
        "SET <hll> <val>", "STRLEN <hll>",
    ),
    "stream": (
        "XADD <stream> <newid> <fieldval>+", "XADD <stream> <newid> <fieldval>+",
        "XADD <stream> <newid> <fieldval>+", "XADD <stream> <newid> <fieldval>",
        "XADD <stream> [NOMKSTREAM] [MAXLEN [(=|~)] <count>] <newid> <fieldval>",
        "XADD <stream> MINID [(=|~)] <id> [LIMIT <count>] <newid> <fieldval>",
        "XADD <stream> *  <fieldval>", "XLEN <stream>",
        "XRANGE <stream> <idstart> <idend> [COUNT <index>]",
        "XREVRANGE <stream> <idend> <idstart> [COUNT <index>]", "XDEL <stream> <id>+",
        "XTRIM <stream> MAXLEN [(=|~)] <count> [LIMIT <count>]",
        "XTRIM <stream> MINID [(=|~)] <id> [LIMIT <count>]",
        "XSETID <stream> <id> [ENTRIESADDED <count>] [MAXDELETEDID <id>]",
        "XREAD [COUNT <count>] STREAMS <stream> <readid>",
        "XREAD [COUNT <count>] STREAMS <stream> <stream> <readid> <readid>",
        "XGROUP CREATE <stream> <group> <groupid> [MKSTREAM] [ENTRIESREAD <index>]",
        "XGROUP CREATE <stream> <group> <groupid> [MKSTREAM]",
        "XGROUP SETID <stream> <group> <groupid> [ENTRIESREAD <index>]",
        "XGROUP DESTROY <stream> <group>", "XGROUP CREATECONSUMER <stream> <group> <consumer>",
        "XGROUP DELCONSUMER <stream> <group> <consumer>",
        "XREADGROUP GROUP <group> <consumer> [COUNT <count>] [NOACK] STREAMS <stream> >",
        "XREADGROUP GROUP <group> <consumer> [COUNT <count>] STREAMS <stream> >",
        "XREADGROUP GROUP <group> <consumer> STREAMS <stream> <stream> > <id>",
        "XREADGROUP GROUP <group> <consumer> [COUNT <count>] STREAMS <stream> <id>",
        "XACK <stream> <group> <id>+", "XPENDING <stream> <group>",
        "XPENDING <stream> <group> [IDLE <idle>] <idstart> <idend> <count> [<consumer>]",
        "XCLAIM <stream> <group> <consumer> <idle> <id>+ [IDLE 0] [RETRYCOUNT <count>] [FORCE] "
        "[JUSTID] [LASTID <id>]",
        "XAUTOCLAIM <stream> <group> <consumer> <idle> <idstart> [COUNT <count>] [JUSTID]",
        "XINFO STREAM <stream> [FULL [COUNT <index>]]", "XINFO GROUPS <stream>",
        "XINFO CONSUMERS <stream> <group>",
    ),
    "generic": (
        "DEL <key>+", "UNLINK <key>+", "EXISTS <key>+", "TYPE <key>", "TOUCH <key>+",
        "EXPIRE <key> <ttl> [(NX|XX|GT|LT)]", "PEXPIRE <key> <ttl> [(NX|XX|GT|LT)]",
        "EXPIREAT <key> <at> [(NX|XX|GT|LT)]", "PEXPIREAT <key> <atms> [(NX|XX|GT|LT)]", "TTL <key>",
        "PTTL <key>", "EXPIRETIME <key>", "PEXPIRETIME <key>", "PERSIST <key>", "RENAME <key> <key>",
        "RENAMENX <key> <key>", "COPY <key> <key> [REPLACE]", "OBJECT ENCODING <key>",
        "OBJECT REFCOUNT <key>", "OBJECT FREQ <key>", "KEYS <pattern>",
        "SCAN 0 COUNT 100000 [MATCH <pattern>] [TYPE (string|list|set|zset|hash|stream)]", "DBSIZE",
        "RANDOMKEY", "SORT <list> [LIMIT <index> <index>] [(ASC|DESC)] ALPHA",
        "SORT <set> ALPHA [(ASC|DESC)]", "SORT <list> [BY w_*] [GET #] [GET <getpattern>] [ALPHA]",
        "SORT <list> ALPHA STORE <list>", "SORT_RO <zset> ALPHA [(ASC|DESC)]",
        "SORT <numlist> [LIMIT <index> <index>] [(ASC|DESC)]", "RPUSH <numlist> <num>+",
        "SET <str> <val>", "RPUSH <list> <val>+", "SADD <set> <member>+", "HSET <hash> <fieldval>",
        "ZADD <zset> <scored>+", "XADD <stream> * <fieldval>", "MOVE <key> 0",
    ),
}  # fmt: skip

RANDOM = frozenset(
    {"SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"}
)
"""Commands whose answer is chance: compared by invariant."""

UNORDERED = frozenset(
    {"SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS", "SCAN", "SSCAN", "HSCAN",
     "ZSCAN", "HGETALL"}
)  # fmt: skip
"""Commands whose answer is a multiset (of pairs, for the ones with fields or scores)."""
