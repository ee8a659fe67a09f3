"""The command table, with one row for each command and subcommand.

A row is ``name arity since | flags | keys | arguments | effects`` under its group; ``-`` is an empty
column. Commands of a group that differ only in their names share a row, which is listed at the first
of them. Indented lines continue a row.
*arity* includes the name; a negative arity is a minimum. *since* is the version of Redis or Valkey
that added the command or, if only the vendor has it, the version that the vendor announced then.
*flags* are the flags that ``COMMAND INFO`` reports, followed by ACL categories that cannot be
derived from them (``@x`` adds a category, ``-@x`` removes one). *keys* are key specs in the syntax
of ``registry.KeySpec``. Sources: the output of ``COMMAND`` in Redis 7.0 and Valkey 9.1, and the
vendor's documentation for its additional commands.

*arguments* are a synopsis in the notation of the manual of Redis, for COMMAND DOCS and the console.
Words in upper case are literal: the option words of the command. EX, PX, EXAT and PXAT set a TTL in
every command that has them. ``[…]`` is optional, ``(A|B)`` is a choice, and ``...`` repeats what is
before it in the brackets. ``$name`` is a part that several synopses share.

*effects* are what the other columns do not show. Effects after the name of a group apply to all of
its commands. The argument after the name is number 1.

- ``value@2``: argument 2 is the new value, which replaces the key's whole value.
- ``seconds@2``: argument 2 is the TTL of the key or, in the group ``hash``, of fields. Other units:
  ``milliseconds``, ``minutes``, ``unix-seconds``, ``unix-milliseconds``.
- ``ttl``: the command sets a TTL in another way, for example the TTL of another key.
- ``time``: the effect or the reply depends on the time, although the command sets no TTL and does
  not block.
- ``event=set``: the keyspace event of a change, if its name differs from the command's. With
  ``no-event``, a change has none.
- ``lookup``: the command writes, but counts as a hit or a miss like a read.
- ``no-rest``: the command is not available over REST. This is derived for commands that block;
  ``rest`` is the opposite.
- ``vendor``: no stock server has the command.

``*`` marks the commands that count as documented by the vendor: those on a page of its
documentation, and those that both official clients send. A command that no page mentions and that
only one client has a method for (SUBSTR) does not count, and neither do commands about a server's
process, logs or memory. By default a server runs all commands, because the specification names
whole groups of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Row(NamedTuple):
    """A row of the table. ``flags``, ``keys``, ``arguments`` and ``effects`` are unparsed."""

    name: str
    arity: int
    group: str
    since: str
    flags: str
    keys: str
    arguments: str
    effects: str


_PARTS = {
    "expiry": "EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds",
    "equal": "IFEQ value|IFNE value|IFDEQ digest|IFDNE digest",
    "fields": "FIELDS numfields field [field ...]",
    "ids": "IDS numids id [id ...]",
    "keys": "numkeys key [key ...]",
    "refs": "[KEEPREF|DELREF|ACKED]",
    "trim": "(MAXLEN|MINID) [=|~] threshold [LIMIT count]",
    "when": "[NX|XX|GT|LT]",
    "unit": "(M|KM|FT|MI)",
    "near": "[WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC]",
    "store": "[STORE storekey|STOREDIST storedistkey]",
    "around": "(FROMMEMBER member|FROMLONLAT longitude latitude)"
    " (BYRADIUS radius $unit|BYBOX width height $unit)",
    "combined": "[WEIGHTS weight [weight ...]] [AGGREGATE (SUM|MIN|MAX)]",
    "sorted": "[BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC|DESC] [ALPHA]",
    "scan": "[MATCH pattern] [COUNT count]",
    "restore": "[REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]",
}
_TABLE = """
[string]
*APPEND 3 2.0.0 | write denyoom fast | RW insert 1 | key value
*DECR *INCR 2 1.0.0 | write denyoom fast | RW access update 1 | key | event=incrby
*DECRBY 3 1.0.0 | write denyoom fast | RW access update 1 | key decrement | event=incrby
*DELEX -2 8.4.0 | write fast | RW access delete 1 | key [$equal]
DELIFEQ 3 9.0.0 | write fast | RM delete 1 | key value
*DIGEST 2 8.4.0 | readonly fast | RO access 1 | key
*GET 2 1.0.0 | readonly fast | RO access 1 | key
*GETDEL 2 6.2.0 | write fast | RW access delete 1 | key | lookup
*GETEX -2 6.2.0 | write fast | RW access update 1 | key [$expiry|PERSIST] | lookup
*GETRANGE 4 2.4.0 | readonly | RO access 1 | key start end
*GETSET 3 1.0.0 | write denyoom fast | RW access update 1 | key value | value@2 lookup event=set
*INCRBY 3 1.0.0 | write denyoom fast | RW access update 1 | key increment
*INCRBYFLOAT 3 2.6.0 | write denyoom fast | RW access update 1 | key increment
LCS -3 7.0.0 | readonly | RO access 1..1 | key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
*MGET -2 1.0.0 | readonly fast | RO access 1..-1 | key [key ...]
*MSET -3 1.0.1 | write denyoom | OW update 1..-1/2 | key value [key value ...] | event=set
MSETEX -4 8.4.0 | write denyoom | OW update numkeys@1/2 | numkeys key value [key value ...] [NX|XX]
  [$expiry|KEEPTTL] | event=set
*MSETNX -3 1.0.1 | write denyoom | OW insert 1..-1/2 | key value [key value ...] | event=set
*PSETEX 4 2.6.0 | write denyoom | OW update 1 | key milliseconds value | value@3 milliseconds@2
  event=set
*SET -3 1.0.0 | write denyoom | RW access update variable_flags 1 | key value [NX|XX|$equal] [GET]
  [$expiry|KEEPTTL] | value@2 lookup
*SETEX 4 2.0.0 | write denyoom | OW update 1 | key seconds value | value@3 seconds@2 event=set
*SETNX 3 1.0.0 | write denyoom fast | OW insert 1 | key value | value@2 event=set
*SETRANGE 4 2.2.0 | write denyoom | RW update 1 | key offset value
*STRLEN 2 2.2.0 | readonly fast | RO 1 | key
SUBSTR 4 1.0.0 | readonly | RO access 1 | key start end
[bitmap]
*BITCOUNT -2 2.6.0 | readonly | RO access 1 | key [start end [BYTE|BIT]]
*BITFIELD -2 3.2.0 | write denyoom | RW access update variable_flags 1 | key [(GET encoding
  offset|[OVERFLOW (WRAP|SAT|FAIL)] (SET encoding offset value|INCRBY encoding offset increment))
  ...] | event=setbit
*BITFIELD_RO -2 6.0.0 | readonly fast | RO access 1 | key [GET encoding offset ...]
*BITOP -4 2.6.0 | write denyoom | OW update 2; RO access 3..-1 |
  (AND|OR|XOR|NOT|DIFF|DIFF1|ANDOR|ONE) destkey key [key ...] | event=set
*BITPOS -3 2.8.7 | readonly | RO access 1 | key bit [start [end [BYTE|BIT]]]
*GETBIT 3 2.2.0 | readonly fast | RO access 1 | key offset
*SETBIT 4 2.2.0 | write denyoom | RW access update 1 | key offset value
[hash]
*HDEL -3 2.0.0 | write fast | RW delete 1 | key field [field ...]
*HEXISTS 3 2.0.0 | readonly fast | RO 1 | key field
*HEXPIRE -6 7.4.0 | write fast | RW update 1 | key seconds $when $fields | seconds@2
*HEXPIREAT -6 7.4.0 | write fast | RW update 1 | key unix-time-seconds $when $fields |
  unix-seconds@2
*HEXPIRETIME *HPEXPIRETIME -5 7.4.0 | readonly fast | RO access 1 | key $fields
*HGET 3 2.0.0 | readonly fast | RO access 1 | key field
*HGETALL *HKEYS *HVALS 2 2.0.0 | readonly | RO access 1 | key
*HGETDEL -5 8.0.0 | write fast | RW access delete 1 | key $fields
*HGETEX -5 8.0.0 | write fast | RW access update 1 | key [$expiry|PERSIST] $fields
*HINCRBY 4 2.0.0 | write denyoom fast | RW access update 1 | key field increment
*HINCRBYFLOAT 4 2.6.0 | write denyoom fast | RW access update 1 | key field increment
*HLEN 2 2.0.0 | readonly fast | RO 1 | key
*HMGET -3 2.0.0 | readonly fast | RO access 1 | key field [field ...]
*HMSET -4 2.0.0 | write denyoom fast | RW update 1 | key field value [field value ...] | event=hset
*HPERSIST -5 7.4.0 | write fast | RW update 1 | key $fields
*HPEXPIRE -6 7.4.0 | write fast | RW update 1 | key milliseconds $when $fields | milliseconds@2
*HPEXPIREAT -6 7.4.0 | write fast | RW update 1 | key unix-time-milliseconds $when $fields |
  unix-milliseconds@2
*HPTTL *HTTL -5 7.4.0 | readonly fast | RO access 1 | key $fields | time
*HRANDFIELD -2 6.2.0 | readonly | RO access 1 | key [count [WITHVALUES]]
*HSCAN -3 2.8.0 | readonly | RO access 1 | key cursor $scan [NOVALUES]
*HSET -4 2.0.0 | write denyoom fast | RW update 1 | key field value [field value ...]
*HSETEX -6 8.0.0 | write denyoom fast | RW insert 1 | key [NX|XX] [FNX|FXX] [$expiry|KEEPTTL] FIELDS
  numfields field value [field value ...]
*HSETNX 4 2.0.0 | write denyoom fast | RW insert 1 | key field value | event=hset
*HSTRLEN 3 3.2.0 | readonly fast | RO 1 | key field
[list]
*BLMOVE 6 6.2.0 | write denyoom noscript blocking | RW access delete 1; RW insert 2 | source
  destination (LEFT|RIGHT) (LEFT|RIGHT) timeout
*BLMPOP -5 7.0.0 | write blocking | RW access delete numkeys@2 | timeout $keys (LEFT|RIGHT) [COUNT
  count]
*BLPOP *BRPOP -3 2.0.0 | write noscript blocking | RW access delete 1..-2 | key [key ...] timeout
*BRPOPLPUSH 4 2.2.0 | write denyoom noscript blocking | RW access delete 1; RW insert 2 | source
  destination timeout
*LINDEX 3 1.0.0 | readonly | RO access 1 | key index
*LINSERT 5 2.2.0 | write denyoom | RW insert 1 | key (BEFORE|AFTER) pivot element
*LLEN 2 1.0.0 | readonly fast | RO 1 | key
*LMOVE 5 6.2.0 | write denyoom | RW access delete 1; RW insert 2 | source destination (LEFT|RIGHT)
  (LEFT|RIGHT)
*LMPOP -4 7.0.0 | write | RW access delete numkeys@1 | $keys (LEFT|RIGHT) [COUNT count]
*LPOP *RPOP -2 1.0.0 | write fast | RW access delete 1 | key [count]
*LPOS -3 6.0.6 | readonly | RO access 1 | key element [RANK rank] [COUNT num-matches] [MAXLEN len]
*LPUSH *RPUSH -3 1.0.0 | write denyoom fast | RW insert 1 | key element [element ...]
*LPUSHX -3 2.2.0 | write denyoom fast | RW insert 1 | key element [element ...] | event=lpush
*LRANGE 4 1.0.0 | readonly | RO access 1 | key start stop
*LREM 4 1.0.0 | write | RW delete 1 | key count element
*LSET 4 1.0.0 | write denyoom | RW update 1 | key index element
*LTRIM 4 1.0.0 | write | RW delete 1 | key start stop
*RPOPLPUSH 3 1.2.0 | write denyoom | RW access delete 1; RW insert 2 | source destination
*RPUSHX -3 2.2.0 | write denyoom fast | RW insert 1 | key element [element ...] | event=rpush
[set]
*SADD -3 1.0.0 | write denyoom fast | RW insert 1 | key member [member ...]
*SCARD 2 1.0.0 | readonly fast | RO 1 | key
*SDIFF *SINTER *SUNION -2 1.0.0 | readonly | RO access 1..-1 | key [key ...]
*SDIFFSTORE *SUNIONSTORE -3 1.0.0 | write denyoom | OW update 1; RO access 2..-1 | destination key
  [key ...]
*SINTERCARD -3 7.0.0 | readonly | RO access numkeys@1 | $keys [LIMIT limit]
*SINTERSTORE -3 1.0.0 | write denyoom | RW update 1; RO access 2..-1 | destination key [key ...]
*SISMEMBER 3 1.0.0 | readonly fast | RO 1 | key member
*SMEMBERS 2 1.0.0 | readonly | RO access 1 | key
*SMISMEMBER -3 6.2.0 | readonly fast | RO access 1 | key member [member ...]
*SMOVE 4 1.0.0 | write fast | RW access delete 1; RW insert 2 | source destination member
*SPOP -2 1.0.0 | write fast | RW access delete 1 | key [count]
*SRANDMEMBER -2 1.0.0 | readonly | RO access 1 | key [count]
*SREM -3 1.0.0 | write fast | RW delete 1 | key member [member ...]
*SSCAN -3 2.8.0 | readonly | RO access 1 | key cursor $scan
[sorted-set]
*BZMPOP -5 7.0.0 | write blocking | RW access delete numkeys@2 | timeout $keys (MIN|MAX) [COUNT
  count]
*BZPOPMAX *BZPOPMIN -3 5.0.0 | write noscript blocking fast | RW access delete 1..-2 | key [key ...]
  timeout
*ZADD -4 1.2.0 | write denyoom fast | RW update 1 | key [NX|XX] [GT|LT] [CH] [INCR] score member
  [score member ...]
*ZCARD 2 1.2.0 | readonly fast | RO 1 | key
*ZCOUNT 4 2.0.0 | readonly fast | RO access 1 | key min max
*ZDIFF -3 6.2.0 | readonly | RO access numkeys@1 | $keys [WITHSCORES]
*ZDIFFSTORE -4 6.2.0 | write denyoom | OW update 1; RO access numkeys@2 | destination $keys
*ZINCRBY 4 1.2.0 | write denyoom fast | RW access update 1 | key increment member
*ZINTER *ZUNION -3 6.2.0 | readonly | RO access numkeys@1 | $keys $combined [WITHSCORES]
*ZINTERCARD -3 7.0.0 | readonly | RO access numkeys@1 | $keys [LIMIT limit]
*ZINTERSTORE *ZUNIONSTORE -4 2.0.0 | write denyoom | OW update 1; RO access numkeys@2 | destination
  $keys $combined
*ZLEXCOUNT 4 2.8.9 | readonly fast | RO access 1 | key min max
*ZMPOP -4 7.0.0 | write | RW access delete numkeys@1 | $keys (MIN|MAX) [COUNT count]
*ZMSCORE -3 6.2.0 | readonly fast | RO access 1 | key member [member ...]
*ZPOPMAX *ZPOPMIN -2 5.0.0 | write fast | RW access delete 1 | key [count]
*ZRANDMEMBER -2 6.2.0 | readonly | RO access 1 | key [count [WITHSCORES]]
*ZRANGE -4 1.2.0 | readonly | RO access 1 | key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset
  count] [WITHSCORES]
*ZRANGEBYLEX -4 2.8.9 | readonly | RO access 1 | key min max [LIMIT offset count]
*ZRANGEBYSCORE -4 1.0.5 | readonly | RO access 1 | key min max [WITHSCORES] [LIMIT offset count]
*ZRANGESTORE -5 6.2.0 | write denyoom | OW update 1; RO access 2 | dst src min max [BYSCORE|BYLEX]
  [REV] [LIMIT offset count]
*ZRANK *ZREVRANK -3 2.0.0 | readonly fast | RO access 1 | key member [WITHSCORE]
*ZREM -3 1.2.0 | write fast | RW delete 1 | key member [member ...]
*ZREMRANGEBYLEX 4 2.8.9 | write | RW delete 1 | key min max
*ZREMRANGEBYRANK 4 2.0.0 | write | RW delete 1 | key start stop
*ZREMRANGEBYSCORE 4 1.2.0 | write | RW delete 1 | key min max
*ZREVRANGE -4 1.2.0 | readonly | RO access 1 | key start stop [WITHSCORES]
*ZREVRANGEBYLEX -4 2.8.9 | readonly | RO access 1 | key max min [LIMIT offset count]
*ZREVRANGEBYSCORE -4 2.2.0 | readonly | RO access 1 | key max min [WITHSCORES] [LIMIT offset count]
*ZSCAN -3 2.8.0 | readonly | RO access 1 | key cursor $scan
*ZSCORE 3 1.2.0 | readonly fast | RO access 1 | key member
[geo]
*GEOADD -5 3.2.0 | write denyoom | RW update 1 | key [NX|XX] [CH] longitude latitude member
  [longitude latitude member ...]
*GEODIST -4 3.2.0 | readonly | RO access 1 | key member1 member2 [M|KM|FT|MI]
*GEOHASH *GEOPOS -2 3.2.0 | readonly | RO access 1 | key [member [member ...]]
*GEORADIUS -6 3.2.0 | write denyoom | RO access 1; OW update STORE@6; OW update STOREDIST@6 | key
  longitude latitude radius $unit $near $store | event=georadiusstore
*GEORADIUSBYMEMBER -5 3.2.0 | write denyoom | RO access 1; OW update STORE@5; OW update STOREDIST@5
  | key member radius $unit $near $store | event=georadiusstore
*GEORADIUSBYMEMBER_RO -5 3.2.10 | readonly | RO access 1 | key member radius $unit $near
*GEORADIUS_RO -6 3.2.10 | readonly | RO access 1 | key longitude latitude radius $unit $near
*GEOSEARCH -7 6.2.0 | readonly | RO access 1 | key $around [ASC|DESC] [COUNT count [ANY]]
  [WITHCOORD] [WITHDIST] [WITHHASH]
*GEOSEARCHSTORE -8 6.2.0 | write denyoom | OW update 1; RO access 2 | destination source $around
  [ASC|DESC] [COUNT count [ANY]] [STOREDIST]
[hyperloglog]
*PFADD -2 2.8.9 | write denyoom fast | RW insert 1 | key [element [element ...]]
*PFCOUNT -2 2.8.9 | readonly | RW access 1..-1 | key [key ...] | no-event
PFDEBUG 3 2.8.9 | write denyoom admin | RW access 2 | subcommand key | no-event
*PFMERGE -2 2.8.9 | write denyoom | RW access insert 1; RO access 2..-1 | destkey [sourcekey
  [sourcekey ...]] | event=pfadd
PFSELFTEST 1 2.8.9 | admin
[stream]
*XACK -4 5.0.0 | write fast | RW update 1 | key group id [id ...] | lookup no-event
*XACKDEL -6 8.2.0 | write fast | RW update delete 1 | key group $refs $ids | event=xdel
*XADD -5 5.0.0 | write denyoom fast | RW update 1 | key [NOMKSTREAM] $refs [$trim] (*|id) field
  value [field value ...] | time
*XAUTOCLAIM -6 6.2.0 | write fast | RW delete 1 | key group consumer min-idle-time start [COUNT
  count] [JUSTID] | time no-event
*XCLAIM -6 5.0.0 | write fast | RW update 1 | key group consumer min-idle-time id [id ...] [IDLE ms]
  [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid] | time no-event
*XDEL -3 5.0.0 | write fast | RW delete 1 | key id [id ...]
*XDELEX -5 8.2.0 | write fast | RW update delete 1 | key $refs $ids | event=xdel
*XGROUP *XINFO -2 5.0.0
*XGROUP|CREATE -5 5.0.0 | write denyoom | RW insert 2 | key group (id|$) [MKSTREAM] [ENTRIESREAD
  entries-read]
*XGROUP|CREATECONSUMER 5 6.2.0 | write denyoom | RW insert 2 | key group consumer | time
*XGROUP|DELCONSUMER 5 5.0.0 | write | RW delete 2 | key group consumer
*XGROUP|DESTROY 4 5.0.0 | write | RW delete 2 | key group
XGROUP|HELP XINFO|HELP 2 5.0.0 | loading stale
*XGROUP|SETID -5 5.0.0 | write | RW update 2 | key group (id|$) [ENTRIESREAD entries-read]
*XINFO|CONSUMERS 4 5.0.0 | readonly | RO access 2 | key group | time
*XINFO|GROUPS 3 5.0.0 | readonly | RO access 2 | key
XINFO|STREAM -3 5.0.0 | readonly | RO access 2 | key [FULL [COUNT count]]
*XLEN 2 5.0.0 | readonly fast | RO 1 | key
*XPENDING -3 5.0.0 | readonly | RO access 1 | key group [[IDLE min-idle-time] start end count
  [consumer]] | time
*XRANGE -4 5.0.0 | readonly | RO access 1 | key start end [COUNT count]
*XREAD -4 5.0.0 | readonly blocking | RO access STREAMS@1..-1%2 | [COUNT count] [BLOCK milliseconds]
  STREAMS key [key ...] id [id ...]
*XREADGROUP -7 5.0.0 | write blocking | RO access STREAMS@4..-1%2 | GROUP group consumer [COUNT
  count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...] | time
*XREVRANGE -4 5.0.0 | readonly | RO access 1 | key end start [COUNT count]
XSETID -3 5.0.0 | write denyoom fast | RW update 1 | key last-id [ENTRIESADDED entries-added]
  [MAXDELETEDID max-deleted-id]
*XTRIM -4 5.0.0 | write | RW delete 1 | key $trim $refs
[json]
*JSON.ARRAPPEND -4 8.0.0 | write denyoom | RW access update 1 | key path value [value ...]
*JSON.ARRINDEX -4 8.0.0 | readonly | RO access 1 | key path value [start [stop]]
*JSON.ARRINSERT -5 8.0.0 | write denyoom | RW access update 1 | key path index value [value ...]
*JSON.ARRLEN *JSON.OBJKEYS *JSON.OBJLEN *JSON.RESP *JSON.STRLEN *JSON.TYPE -2 8.0.0 | readonly | RO
  access 1 | key [path]
*JSON.ARRPOP -2 8.0.0 | write denyoom | RW access update 1 | key [path [index]]
*JSON.ARRTRIM 5 8.0.0 | write denyoom | RW access update 1 | key path start stop
*JSON.CLEAR -2 8.0.0 | write denyoom | RW access update 1 | key [path]
JSON.DEBUG -2 8.0.0 | readonly
JSON.DEBUG|HELP 2 8.0.0
JSON.DEBUG|MEMORY -3 8.0.0 | readonly | RO access 2 | key [path]
*JSON.DEL -2 8.0.0 | write | RW access delete 1 | key [path]
*JSON.FORGET -2 8.0.0 | write | RW access delete 1 | key [path] | event=json.del
*JSON.GET -2 8.0.0 | readonly | RO access 1 | key [INDENT indent] [NEWLINE newline] [SPACE space]
  [path [path ...]]
*JSON.MERGE *JSON.NUMINCRBY *JSON.NUMMULTBY 4 8.0.0 | write denyoom | RW access update 1 | key path
  value
*JSON.MGET -3 8.0.0 | readonly | RO access 1..-2 | key [key ...] path
*JSON.MSET -4 8.0.0 | write denyoom | RW access update 1..-1/3 | key path value [key path value ...]
*JSON.SET -4 8.0.0 | write denyoom | RW access update 1 | key path value [NX|XX]
*JSON.STRAPPEND -3 8.0.0 | write denyoom | RW access update 1 | key [path] value
*JSON.TOGGLE 3 8.0.0 | write denyoom | RW access update 1 | key path
[search] vendor
*SEARCH.AGGREGATE 4 8.2.0 | readonly | RO access 1 | index filter aggregations | time
*SEARCH.ALIASADD 3 8.2.0 | write denyoom | - | alias name
*SEARCH.ALIASDEL 2 8.2.0 | write | - | alias
*SEARCH.COUNT 3 8.2.0 | readonly | RO access 1 | index filter | time
*SEARCH.CREATE -10 8.2.0 | write denyoom | OW insert 1 | index ON (JSON|HASH|STRING) PREFIX
  numprefixes prefix [prefix ...] [LANGUAGE language] [SKIPINITIALSCAN] [EXISTSOK] SCHEMA field
  (TEXT|U64|I64|F64|BOOL|DATE|KEYWORD|FACET) [FAST] [NOSTEM] [NOTOKENIZE] [FROM path] [field type
  [option ...] ...] | time
*SEARCH.DESCRIBE *SEARCH.WAITINDEXING 2 8.2.0 | readonly | RO access 1 | index | time
*SEARCH.DROP 2 8.2.0 | write | RM delete 1 | index
*SEARCH.LISTALIASES 1 8.2.0 | readonly
*SEARCH.LISTINDEXES -1 8.2.0 | readonly | - | [MATCH pattern] [LIMIT limit] [OFFSET offset]
*SEARCH.QUERY -3 8.2.0 | readonly | RO access 1 | index filter [LIMIT limit] [OFFSET offset]
  [ORDERBY field [ASC|DESC]] [SELECT numfields field [field ...]] [NOCONTENT] [HIGHLIGHT FIELDS
  numfields field [field ...] [TAGS open close]] [SCOREFUNC [SCOREMODE mode] [COMBINEMODE mode]
  FIELDVALUE field [MODIFIER modifier] [FACTOR factor] [MISSING value]] | time
*SEARCH.REINDEX 2 8.2.0 | write | RW update 1 | index | time
[generic]
*COPY -3 6.2.0 | write denyoom | RO access 1; OW update 2 | source destination [DB destination-db]
  [REPLACE] | ttl
*DEL -2 1.0.0 | write | RM delete 1..-1 | key [key ...]
*DUMP 2 2.6.0 | readonly | RO access 1 | key
*EXISTS -2 1.0.0 | readonly fast | RO 1..-1 | key [key ...]
*EXPIRE -3 1.0.0 | write fast | RW update 1 | key seconds $when | seconds@2
*EXPIREAT -3 1.2.0 | write fast | RW update 1 | key unix-time-seconds $when | unix-seconds@2
*EXPIRETIME *PEXPIRETIME 2 7.0.0 | readonly fast | RO access 1 | key
*KEYS 2 1.0.0 | readonly @dangerous | - | pattern
MIGRATE -6 2.6.0 | write @dangerous | RW access delete 3; RW access delete incomplete KEYS@-2..-1 |
  host port (key|"") destination-db timeout [COPY] [REPLACE] [AUTH password|AUTH2 username password]
  [KEYS key [key ...]]
MOVE 3 1.0.0 | write fast | RW access update 1 | key db | ttl
OBJECT -2 2.2.3
OBJECT|ENCODING OBJECT|REFCOUNT 3 2.2.3 | readonly | RO 2 | key
OBJECT|FREQ 3 4.0.0 | readonly | RO 2 | key | time
OBJECT|HELP 2 6.2.0 | loading stale
OBJECT|IDLETIME 3 2.2.3 | readonly | RO 2 | key | time
*PERSIST 2 2.2.0 | write fast | RW update 1 | key
*PEXPIRE -3 2.6.0 | write fast | RW update 1 | key milliseconds $when | milliseconds@2
*PEXPIREAT -3 2.6.0 | write fast | RW update 1 | key unix-time-milliseconds $when |
  unix-milliseconds@2
*PTTL 2 2.6.0 | readonly fast | RO access 1 | key | time
*RANDOMKEY 1 1.0.0 | readonly
*RENAME 3 1.0.0 | write | RW access delete 1; OW update 2 | key newkey | ttl
*RENAMENX 3 1.0.0 | write fast | RW access delete 1; OW insert 2 | key newkey | ttl
*RESTORE -4 2.6.0 | write denyoom @dangerous | OW update 1 | key ttl serialized-value $restore |
  value@3 ttl time
*SCAN -2 2.8.0 | readonly | - | cursor $scan [TYPE type] [WITHTYPE]
SORT -2 1.0.0 | write denyoom @set @sortedset @list @dangerous -@keyspace | RO access 1; RO access
  unknown; OW update unknown | key $sorted [STORE destination] | event=sortstore
SORT_RO -2 7.0.0 | readonly @set @sortedset @list @dangerous -@keyspace | RO access 1; RO access
  unknown | key $sorted
*TOUCH -2 3.2.1 | readonly fast | RO 1..-1 | key [key ...]
*TTL 2 1.0.0 | readonly fast | RO access 1 | key | time
*TYPE 2 1.0.0 | readonly fast | RO 1 | key
*UNLINK -2 4.0.0 | write fast | RM delete 1..-1 | key [key ...]
WAIT 3 3.0.0 | blocking @connection -@keyspace | - | numreplicas timeout | rest
WAITAOF 4 7.2.0 | blocking @connection -@keyspace | - | numlocal numreplicas timeout | rest
[scripting]
*EVAL -3 2.6.0 | noscript stale skip_monitor no_mandatory_keys | RW access update numkeys@2 | script
  numkeys [key [key ...]] [arg [arg ...]]
*EVALSHA -3 2.6.0 | noscript stale skip_monitor no_mandatory_keys | RW access update numkeys@2 |
  sha1 numkeys [key [key ...]] [arg [arg ...]]
*EVALSHA_RO -3 7.0.0 | readonly noscript stale skip_monitor no_mandatory_keys | RO access numkeys@2
  | sha1 numkeys [key [key ...]] [arg [arg ...]]
*EVAL_RO -3 7.0.0 | readonly noscript stale skip_monitor no_mandatory_keys | RO access numkeys@2 |
  script numkeys [key [key ...]] [arg [arg ...]]
*FCALL -3 7.0.0 | noscript stale skip_monitor no_mandatory_keys | RW access update numkeys@2 |
  function numkeys [key [key ...]] [arg [arg ...]]
*FCALL_RO -3 7.0.0 | readonly noscript stale skip_monitor no_mandatory_keys | RO access numkeys@2 |
  function numkeys [key [key ...]] [arg [arg ...]]
*FUNCTION -2 7.0.0
*FUNCTION|DELETE 3 7.0.0 | write noscript | - | library-name
FUNCTION|DUMP 2 7.0.0 | noscript
*FUNCTION|FLUSH -2 7.0.0 | write noscript | - | [ASYNC|SYNC]
FUNCTION|HELP 2 7.0.0 | loading stale
*FUNCTION|KILL *FUNCTION|STATS 2 7.0.0 | noscript allow_busy
*FUNCTION|LIST -2 7.0.0 | noscript | - | [LIBRARYNAME library-name-pattern] [WITHCODE]
*FUNCTION|LOAD -3 7.0.0 | write denyoom noscript | - | [REPLACE] function-code
FUNCTION|RESTORE -3 7.0.0 | write denyoom noscript | - | serialized-value [FLUSH|APPEND|REPLACE]
*SCRIPT -2 2.6.0
SCRIPT|DEBUG 3 3.2.0 | noscript | - | (YES|SYNC|NO)
*SCRIPT|EXISTS -3 2.6.0 | noscript | - | sha1 [sha1 ...]
*SCRIPT|FLUSH -2 2.6.0 | noscript | - | [ASYNC|SYNC]
SCRIPT|HELP 2 5.0.0 | loading stale
*SCRIPT|KILL 2 2.6.0 | noscript allow_busy
*SCRIPT|LOAD 3 2.6.0 | noscript stale | - | script
SCRIPT|SHOW 3 8.0.0 | noscript stale | - | sha1
[transactions]
*DISCARD 1 2.0.0 | noscript loading stale fast allow_busy | - | - | no-rest
*EXEC 1 1.2.0 | noscript loading stale skip_slowlog
*MULTI 1 1.2.0 | noscript loading stale fast allow_busy
*UNWATCH 1 2.2.0 | noscript loading stale fast allow_busy | - | - | no-rest
*WATCH -2 2.2.0 | noscript loading stale fast allow_busy | RO 1..-1 | key [key ...] | no-rest
[pubsub]
*PSUBSCRIBE -2 2.0.0 | pubsub noscript loading stale | - | pattern [pattern ...] | no-rest
*PUBLISH 3 2.0.0 | pubsub loading stale fast | - | channel message
*PUBSUB -2 2.8.0
*PUBSUB|CHANNELS -2 2.8.0 | pubsub loading stale | - | [pattern]
PUBSUB|HELP 2 6.2.0 | loading stale -@pubsub
*PUBSUB|NUMPAT 2 2.8.0 | pubsub loading stale
*PUBSUB|NUMSUB -2 2.8.0 | pubsub loading stale | - | [channel [channel ...]]
PUBSUB|SHARDCHANNELS -2 7.0.0 | pubsub loading stale | - | [pattern]
PUBSUB|SHARDNUMSUB -2 7.0.0 | pubsub loading stale | - | [shardchannel [shardchannel ...]]
*PUNSUBSCRIBE -1 2.0.0 | pubsub noscript loading stale | - | [pattern [pattern ...]] | no-rest
SPUBLISH 3 7.0.0 | pubsub loading stale fast | not_key 1 | shardchannel message | no-rest
SSUBSCRIBE -2 7.0.0 | pubsub noscript loading stale | not_key 1..-1 | shardchannel [shardchannel
  ...] | no-rest
*SUBSCRIBE -2 2.0.0 | pubsub noscript loading stale | - | channel [channel ...] | no-rest
SUNSUBSCRIBE -1 7.0.0 | pubsub noscript loading stale | not_key 1..-1 | [shardchannel [shardchannel
  ...]] | no-rest
*UNSUBSCRIBE -1 2.0.0 | pubsub noscript loading stale | - | [channel [channel ...]] | no-rest
[connection] no-rest
*AUTH -2 1.0.0 | noscript loading stale fast no_auth allow_busy | - | [username] password
*CLIENT -2 2.4.0
CLIENT|CACHING 3 6.0.0 | noscript loading stale | - | (YES|NO)
CLIENT|CAPA -3 8.0.0 | noscript loading stale allow_busy | - | capability [capability ...]
CLIENT|GETNAME 2 2.6.9 | noscript loading stale
CLIENT|GETREDIR 2 6.0.0 | noscript loading stale
CLIENT|HELP 2 5.0.0 | loading stale
CLIENT|ID 2 5.0.0 | noscript loading stale
CLIENT|IMPORT-SOURCE 3 8.1.0 | noscript loading stale | - | (ON|OFF)
CLIENT|INFO 2 6.2.0 | noscript loading stale | - | - | time
CLIENT|KILL -3 2.4.0 | admin noscript loading stale | - | (ip:port|ID id|TYPE
  (NORMAL|MASTER|SLAVE|REPLICA|PUBSUB)|USER username|ADDR ip:port|LADDR ip:port|SKIPME yes/no) ...
CLIENT|LIST -2 2.4.0 | admin noscript loading stale | - | [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID
  id [id ...]] | time
CLIENT|NO-EVICT 3 7.0.0 | admin noscript loading stale | - | (ON|OFF)
CLIENT|NO-TOUCH 3 7.2.0 | noscript loading stale allow_busy | - | (ON|OFF)
CLIENT|PAUSE -3 2.9.50 | admin noscript loading stale | - | timeout [WRITE|ALL] | time
CLIENT|REPLY 3 3.2.0 | noscript loading stale | - | (ON|OFF|SKIP)
*CLIENT|SETINFO 4 7.2.0 | noscript loading stale allow_busy | - | (LIB-NAME libname|LIB-VER libver)
  | rest
CLIENT|SETNAME 3 2.6.9 | noscript loading stale | - | connection-name
CLIENT|TRACKING -3 6.0.0 | noscript loading stale | - | (ON|OFF) [REDIRECT client-id] [PREFIX prefix
  [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]
CLIENT|TRACKINGINFO 2 6.2.0 | noscript loading stale
CLIENT|UNBLOCK -3 5.0.0 | admin noscript loading stale | - | client-id [TIMEOUT|ERROR]
CLIENT|UNPAUSE 2 6.2.0 | admin noscript loading stale
*ECHO 2 1.0.0 | loading stale fast | - | message | rest
*HELLO -1 6.0.0 | noscript loading stale fast no_auth allow_busy | - | [protover [AUTH username
  password] [SETNAME clientname]]
*PING -1 1.0.0 | fast | - | [message] | rest
*QUIT -1 1.0.0 | noscript loading stale fast no_auth allow_busy
*RESET 1 6.2.0 | noscript loading stale fast no_auth allow_busy
*SELECT 2 1.0.0 | loading stale fast | - | db
[server]
*ACL -2 6.0.0
*ACL|CAT -2 6.0.0 | noscript loading stale | - | [category]
*ACL|DELUSER -3 6.0.0 | admin noscript loading stale | - | username [username ...]
ACL|DRYRUN -4 7.0.0 | admin noscript loading stale | - | username command [arg [arg ...]]
*ACL|GENPASS -2 6.0.0 | noscript loading stale | - | [bits]
*ACL|GENTOKEN -3 6.0.0 | noscript loading stale | - | username [option ...] | vendor
*ACL|GETUSER 3 6.0.0 | admin noscript loading stale | - | username
ACL|HELP 2 6.0.0 | loading stale
*ACL|LIST *ACL|LOAD *ACL|SAVE *ACL|USERS 2 6.0.0 | admin noscript loading stale
*ACL|LOG -2 6.0.0 | admin noscript loading stale | - | [count|RESET] | time
*ACL|RESTTOKEN 4 6.0.0 | noscript loading stale | - | username password | vendor
*ACL|SETUSER -3 6.0.0 | admin noscript loading stale | - | username [rule [rule ...]]
*ACL|WHOAMI 2 6.0.0 | noscript loading stale
BGREWRITEAOF 1 1.0.0 | admin noscript no_async_loading
BGSAVE -1 1.0.0 | admin noscript no_async_loading | - | [SCHEDULE] | time
*COMMAND -1 2.8.13 | loading stale @connection
COMMAND|COUNT 2 2.8.13 | loading stale @connection
COMMAND|DOCS -2 7.0.0 | loading stale @connection | - | [command-name [command-name ...]]
COMMAND|GETKEYS -4 2.8.13 | loading stale @connection | - | command arg [arg ...]
COMMAND|GETKEYSANDFLAGS -4 7.0.0 | loading stale @connection | - | command arg [arg ...]
COMMAND|HELP 2 5.0.0 | loading stale @connection
COMMAND|INFO -2 2.8.13 | loading stale @connection | - | [command-name [command-name ...]]
COMMAND|LIST -2 7.0.0 | loading stale @connection | - | [FILTERBY (MODULE module-name|ACLCAT
  category|PATTERN pattern)]
CONFIG -2 2.0.0
CONFIG|GET -3 2.0.0 | admin noscript loading stale | - | parameter [parameter ...]
CONFIG|HELP MODULE|HELP 2 5.0.0 | loading stale
CONFIG|RESETSTAT 2 2.0.0 | admin noscript loading stale
CONFIG|REWRITE 2 2.8.0 | admin noscript loading stale
CONFIG|SET -4 2.0.0 | admin noscript loading stale | - | parameter value [parameter value ...]
*DBSIZE 1 1.0.0 | readonly fast @keyspace
DEBUG -2 1.0.0 | admin noscript loading stale | - | subcommand [arg [arg ...]] | time
FAILOVER -1 6.2.0 | admin noscript stale | - | [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]
*FLUSHALL *FLUSHDB -1 1.0.0 | write @keyspace @dangerous | - | [ASYNC|SYNC]
*INFO -1 1.0.0 | loading stale @dangerous | - | [section [section ...]] | time
LASTSAVE 1 1.0.0 | loading stale fast @admin @dangerous
LATENCY -2 2.8.13
LATENCY|DOCTOR LATENCY|LATEST 2 2.8.13 | admin noscript loading stale
LATENCY|GRAPH LATENCY|HISTORY 3 2.8.13 | admin noscript loading stale | - | event
LATENCY|HELP 2 2.8.13 | loading stale
LATENCY|HISTOGRAM -2 7.0.0 | admin noscript loading stale | - | [command [command ...]]
LATENCY|RESET -2 2.8.13 | admin noscript loading stale | - | [event [event ...]]
LOLWUT -1 5.0.0 | readonly fast | - | [VERSION version]
MEMORY MODULE -2 4.0.0
MEMORY|DOCTOR MEMORY|MALLOC-STATS MEMORY|PURGE MEMORY|STATS 2 4.0.0
MEMORY|HELP 2 4.0.0 | loading stale
MEMORY|USAGE -3 4.0.0 | readonly | RO 2 | key [SAMPLES count]
MODULE|LIST 2 4.0.0 | admin noscript
MODULE|LOAD -3 4.0.0 | admin noscript no_async_loading | - | path [arg [arg ...]]
MODULE|LOADEX -3 7.0.0 | admin noscript no_async_loading | - | path [CONFIG name value [CONFIG name
  value ...]] [ARGS arg [arg ...]]
MODULE|UNLOAD 3 4.0.0 | admin noscript no_async_loading | - | name
*MONITOR 1 1.0.0 | admin noscript loading stale | - | - | no-rest
PSYNC -3 2.8.0 | admin noscript no_async_loading no_multi | - | replicationid offset
REPLCONF -1 3.0.0 | admin noscript loading stale allow_busy | - | [option [option ...]]
REPLICAOF 3 5.0.0 | admin noscript stale no_async_loading | - | (host port|NO ONE)
RESTORE-ASKING -4 3.0.0 | write denyoom asking @keyspace @dangerous | OW update 1 | key ttl
  serialized-value $restore | value@3 ttl time
ROLE 1 2.8.12 | noscript loading stale fast @admin @dangerous
SAVE 1 1.0.0 | admin noscript no_async_loading no_multi | - | - | time
SHUTDOWN -1 1.0.0 | admin noscript loading stale no_multi allow_busy | - | [NOSAVE|SAVE] [NOW]
  [FORCE] [ABORT]
SLAVEOF 3 1.0.0 | admin noscript stale no_async_loading | - | (host port|NO ONE)
SLOWLOG -2 2.2.12
SLOWLOG|GET -2 2.2.12 | admin loading stale | - | [count]
SLOWLOG|HELP 2 6.2.0 | loading stale
SLOWLOG|LEN SLOWLOG|RESET 2 2.2.12 | admin loading stale
SWAPDB 3 4.0.0 | write fast @keyspace @dangerous | - | index1 index2
SYNC 1 1.0.0 | admin noscript no_async_loading no_multi
*TIME 1 2.6.0 | loading stale fast | - | - | time
[cluster] no-rest
ASKING 1 3.0.0 | fast @connection
CLUSTER -2 3.0.0
CLUSTER|ADDSLOTS CLUSTER|DELSLOTS -3 3.0.0 | admin stale no_async_loading | - | slot [slot ...]
CLUSTER|ADDSLOTSRANGE CLUSTER|DELSLOTSRANGE -4 7.0.0 | admin stale no_async_loading | - | start-slot
  end-slot [start-slot end-slot ...]
CLUSTER|BUMPEPOCH CLUSTER|FLUSHSLOTS CLUSTER|SAVECONFIG 2 3.0.0 | admin stale no_async_loading
CLUSTER|COUNT-FAILURE-REPORTS CLUSTER|SLAVES 3 3.0.0 | admin stale | - | node-id
CLUSTER|COUNTKEYSINSLOT 3 3.0.0 | stale | - | slot
CLUSTER|FAILOVER -2 3.0.0 | admin stale no_async_loading | - | [FORCE|TAKEOVER]
CLUSTER|FORGET CLUSTER|REPLICATE 3 3.0.0 | admin stale no_async_loading | - | node-id
CLUSTER|GETKEYSINSLOT 4 3.0.0 | stale | - | slot count
CLUSTER|HELP 2 5.0.0 | loading stale
CLUSTER|INFO CLUSTER|MYID CLUSTER|NODES CLUSTER|SLOTS 2 3.0.0 | stale
CLUSTER|KEYSLOT 3 3.0.0 | stale | - | key
CLUSTER|LINKS CLUSTER|SHARDS 2 7.0.0 | stale
CLUSTER|MEET -4 3.0.0 | admin stale no_async_loading | - | ip port [cluster-bus-port]
CLUSTER|REPLICAS 3 5.0.0 | admin stale | - | node-id
CLUSTER|RESET -2 3.0.0 | admin noscript stale | - | [HARD|SOFT]
CLUSTER|SET-CONFIG-EPOCH 3 3.0.0 | admin stale no_async_loading | - | config-epoch
CLUSTER|SETSLOT -4 3.0.0 | admin stale no_async_loading | - | slot (IMPORTING node-id|MIGRATING
  node-id|NODE node-id|STABLE)
READONLY READWRITE 1 3.0.0 | loading stale fast @connection
"""


def _rows(table: str) -> Iterator[tuple[Row, bool]]:
    """Yield each row, and whether the vendor documents its command; in a group in order of names."""
    for section in table.replace("\n  ", " ").split("\n[")[1:]:
        heading, *lines = section.strip().split("\n")
        group, _, of_group = heading.partition("]")
        found: list[tuple[Row, bool]] = []
        for line in lines:
            head, *columns = line.split(" | ")
            *names, arity, since = head.split()
            columns = ["" if column == "-" else column for column in columns]
            flags, keys, arguments, effects = [*columns, "", "", "", ""][:4]
            if of_group:
                effects = f"{of_group} {effects}"
            for marked in names:
                name = marked.removeprefix("*").replace("|", " ")
                row = Row(name, int(arity), group, since, flags, keys, arguments, effects)
                found.append((row, marked.startswith("*")))
        yield from sorted(found)


_MARKED = tuple(_rows(_TABLE))
ROWS = tuple(row for row, _ in _MARKED)
DOCUMENTED = frozenset(row.name for row, is_documented in _MARKED if is_documented)
"""Names of documented commands, container commands and subcommands (``"XGROUP CREATE"``)."""


def synopsis(arguments: str) -> str:
    """Return the column *arguments* with the shared parts written out."""
    while (
        "$" in (longer := re.sub(r"\$(\w+)", lambda part: _PARTS[part[1]], arguments)) != arguments
    ):
        arguments = longer
    return longer
