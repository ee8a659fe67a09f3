"""The command table, with one row for each command and subcommand.

A row is ``name arity since | flags | keys | options | effects`` under its group; ``-`` is an empty
column. Commands that differ only in their names share a row, and indented lines continue a row.
*arity* includes the name; a negative arity is a minimum. *since* is the version of Redis or Valkey
that added the command or, if only the vendor has it, the version that the vendor announced then.
*flags* are the flags that ``COMMAND INFO`` reports, followed by ACL categories that cannot be
derived from them (``@x`` adds a category, ``-@x`` removes one). *keys* are key specs in the syntax
of ``columns.KeySpec``. *options* are the literal option words; EX, PX, EXAT and PXAT set a TTL in
every command that has them. Sources: the output of ``COMMAND`` in Redis 7.0 and Valkey 9.1, and the
vendor's documentation for its additional commands.

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

from collections.abc import Iterator
from typing import NamedTuple


class Row(NamedTuple):
    """A row of the table. ``flags``, ``keys``, ``options`` and ``effects`` are unparsed."""

    name: str
    arity: int
    group: str
    since: str
    flags: str
    keys: str
    options: str
    effects: str


_TABLE = """
[string]
*APPEND 3 2.0.0 | write denyoom fast | RW insert 1
*DECR 2 1.0.0 | write denyoom fast | RW access update 1 | - | event=incrby
*DECRBY 3 1.0.0 | write denyoom fast | RW access update 1 | - | event=incrby
*DELEX -2 8.4.0 | write fast | RW access delete 1 | IFEQ IFNE IFDEQ IFDNE
DELIFEQ 3 9.0.0 | write fast | RM delete 1
*DIGEST 2 8.4.0 | readonly fast | RO access 1
*GET 2 1.0.0 | readonly fast | RO access 1
*GETDEL 2 6.2.0 | write fast | RW access delete 1 | - | lookup
*GETEX -2 6.2.0 | write fast | RW access update 1 | EX PX EXAT PXAT PERSIST | lookup
*GETRANGE 4 2.4.0 | readonly | RO access 1
*GETSET 3 1.0.0 | write denyoom fast | RW access update 1 | - | value@2 lookup event=set
*INCR 2 1.0.0 | write denyoom fast | RW access update 1 | - | event=incrby
*INCRBY 3 1.0.0 | write denyoom fast | RW access update 1
*INCRBYFLOAT 3 2.6.0 | write denyoom fast | RW access update 1
LCS -3 7.0.0 | readonly | RO access 1..1 | LEN IDX MINMATCHLEN WITHMATCHLEN
*MGET -2 1.0.0 | readonly fast | RO access 1..-1
*MSET -3 1.0.1 | write denyoom | OW update 1..-1/2 | - | event=set
MSETEX -4 8.4.0 | write denyoom | OW update numkeys@1/2 | NX XX EX PX EXAT PXAT KEEPTTL | event=set
*MSETNX -3 1.0.1 | write denyoom | OW insert 1..-1/2 | - | event=set
*PSETEX 4 2.6.0 | write denyoom | OW update 1 | - | value@3 milliseconds@2 event=set
*SET -3 1.0.0 | write denyoom | RW access update variable_flags 1 | NX XX GET EX PX EXAT PXAT
  KEEPTTL IFEQ IFNE IFDEQ IFDNE | value@2 lookup
*SETEX 4 2.0.0 | write denyoom | OW update 1 | - | value@3 seconds@2 event=set
*SETNX 3 1.0.0 | write denyoom fast | OW insert 1 | - | value@2 event=set
*SETRANGE 4 2.2.0 | write denyoom | RW update 1
*STRLEN 2 2.2.0 | readonly fast | RO 1
SUBSTR 4 1.0.0 | readonly | RO access 1
[bitmap]
*BITCOUNT -2 2.6.0 | readonly | RO access 1 | BYTE BIT
*BITFIELD -2 3.2.0 | write denyoom | RW access update variable_flags 1 | GET OVERFLOW WRAP SAT FAIL
  SET INCRBY | event=setbit
*BITFIELD_RO -2 6.0.0 | readonly fast | RO access 1 | GET
*BITOP -4 2.6.0 | write denyoom | OW update 2; RO access 3..-1 | AND OR XOR NOT DIFF DIFF1 ANDOR ONE
  | event=set
*BITPOS -3 2.8.7 | readonly | RO access 1 | BYTE BIT
*GETBIT 3 2.2.0 | readonly fast | RO access 1
*SETBIT 4 2.2.0 | write denyoom | RW access update 1
[hash]
*HDEL -3 2.0.0 | write fast | RW delete 1
*HEXISTS 3 2.0.0 | readonly fast | RO 1
*HEXPIRE -6 7.4.0 | write fast | RW update 1 | NX XX GT LT FIELDS | seconds@2
*HEXPIREAT -6 7.4.0 | write fast | RW update 1 | NX XX GT LT FIELDS | unix-seconds@2
*HEXPIRETIME -5 7.4.0 | readonly fast | RO access 1 | FIELDS
*HGET 3 2.0.0 | readonly fast | RO access 1
*HGETALL 2 2.0.0 | readonly | RO access 1
*HGETDEL -5 8.0.0 | write fast | RW access delete 1 | FIELDS
*HGETEX -5 8.0.0 | write fast | RW access update 1 | EX PX EXAT PXAT PERSIST FIELDS
*HINCRBY 4 2.0.0 | write denyoom fast | RW access update 1
*HINCRBYFLOAT 4 2.6.0 | write denyoom fast | RW access update 1
*HKEYS 2 2.0.0 | readonly | RO access 1
*HLEN 2 2.0.0 | readonly fast | RO 1
*HMGET -3 2.0.0 | readonly fast | RO access 1
*HMSET -4 2.0.0 | write denyoom fast | RW update 1 | - | event=hset
*HPERSIST -5 7.4.0 | write fast | RW update 1 | FIELDS
*HPEXPIRE -6 7.4.0 | write fast | RW update 1 | NX XX GT LT FIELDS | milliseconds@2
*HPEXPIREAT -6 7.4.0 | write fast | RW update 1 | NX XX GT LT FIELDS | unix-milliseconds@2
*HPEXPIRETIME -5 7.4.0 | readonly fast | RO access 1 | FIELDS
*HPTTL -5 7.4.0 | readonly fast | RO access 1 | FIELDS | time
*HRANDFIELD -2 6.2.0 | readonly | RO access 1 | WITHVALUES
*HSCAN -3 2.8.0 | readonly | RO access 1 | MATCH COUNT NOVALUES
*HSET -4 2.0.0 | write denyoom fast | RW update 1
*HSETEX -6 8.0.0 | write denyoom fast | RW insert 1 | NX XX FNX FXX EX PX EXAT PXAT KEEPTTL FIELDS
*HSETNX 4 2.0.0 | write denyoom fast | RW insert 1 | - | event=hset
*HSTRLEN 3 3.2.0 | readonly fast | RO 1
*HTTL -5 7.4.0 | readonly fast | RO access 1 | FIELDS | time
*HVALS 2 2.0.0 | readonly | RO access 1
[list]
*BLMOVE 6 6.2.0 | write denyoom noscript blocking | RW access delete 1; RW insert 2 | LEFT RIGHT
*BLMPOP -5 7.0.0 | write blocking | RW access delete numkeys@2 | LEFT RIGHT COUNT
*BLPOP *BRPOP -3 2.0.0 | write noscript blocking | RW access delete 1..-2
*BRPOPLPUSH 4 2.2.0 | write denyoom noscript blocking | RW access delete 1; RW insert 2
*LINDEX 3 1.0.0 | readonly | RO access 1
*LINSERT 5 2.2.0 | write denyoom | RW insert 1 | BEFORE AFTER
*LLEN 2 1.0.0 | readonly fast | RO 1
*LMOVE 5 6.2.0 | write denyoom | RW access delete 1; RW insert 2 | LEFT RIGHT
*LMPOP -4 7.0.0 | write | RW access delete numkeys@1 | LEFT RIGHT COUNT
*LPOP -2 1.0.0 | write fast | RW access delete 1
*LPOS -3 6.0.6 | readonly | RO access 1 | RANK COUNT MAXLEN
*LPUSH -3 1.0.0 | write denyoom fast | RW insert 1
*LPUSHX -3 2.2.0 | write denyoom fast | RW insert 1 | - | event=lpush
*LRANGE 4 1.0.0 | readonly | RO access 1
*LREM 4 1.0.0 | write | RW delete 1
*LSET 4 1.0.0 | write denyoom | RW update 1
*LTRIM 4 1.0.0 | write | RW delete 1
*RPOP -2 1.0.0 | write fast | RW access delete 1
*RPOPLPUSH 3 1.2.0 | write denyoom | RW access delete 1; RW insert 2
*RPUSH -3 1.0.0 | write denyoom fast | RW insert 1
*RPUSHX -3 2.2.0 | write denyoom fast | RW insert 1 | - | event=rpush
[set]
*SADD -3 1.0.0 | write denyoom fast | RW insert 1
*SCARD 2 1.0.0 | readonly fast | RO 1
*SDIFF -2 1.0.0 | readonly | RO access 1..-1
*SDIFFSTORE -3 1.0.0 | write denyoom | OW update 1; RO access 2..-1
*SINTER -2 1.0.0 | readonly | RO access 1..-1
*SINTERCARD -3 7.0.0 | readonly | RO access numkeys@1 | LIMIT
*SINTERSTORE -3 1.0.0 | write denyoom | RW update 1; RO access 2..-1
*SISMEMBER 3 1.0.0 | readonly fast | RO 1
*SMEMBERS 2 1.0.0 | readonly | RO access 1
*SMISMEMBER -3 6.2.0 | readonly fast | RO access 1
*SMOVE 4 1.0.0 | write fast | RW access delete 1; RW insert 2
*SPOP -2 1.0.0 | write fast | RW access delete 1
*SRANDMEMBER -2 1.0.0 | readonly | RO access 1
*SREM -3 1.0.0 | write fast | RW delete 1
*SSCAN -3 2.8.0 | readonly | RO access 1 | MATCH COUNT
*SUNION -2 1.0.0 | readonly | RO access 1..-1
*SUNIONSTORE -3 1.0.0 | write denyoom | OW update 1; RO access 2..-1
[sorted-set]
*BZMPOP -5 7.0.0 | write blocking | RW access delete numkeys@2 | MIN MAX COUNT
*BZPOPMAX *BZPOPMIN -3 5.0.0 | write noscript blocking fast | RW access delete 1..-2
*ZADD -4 1.2.0 | write denyoom fast | RW update 1 | NX XX GT LT CH INCR
*ZCARD 2 1.2.0 | readonly fast | RO 1
*ZCOUNT 4 2.0.0 | readonly fast | RO access 1
*ZDIFF -3 6.2.0 | readonly | RO access numkeys@1 | WITHSCORES
*ZDIFFSTORE -4 6.2.0 | write denyoom | OW update 1; RO access numkeys@2
*ZINCRBY 4 1.2.0 | write denyoom fast | RW access update 1
*ZINTER -3 6.2.0 | readonly | RO access numkeys@1 | WEIGHTS AGGREGATE SUM MIN MAX WITHSCORES
*ZINTERCARD -3 7.0.0 | readonly | RO access numkeys@1 | LIMIT
*ZINTERSTORE -4 2.0.0 | write denyoom | OW update 1; RO access numkeys@2 | WEIGHTS AGGREGATE SUM MIN
  MAX
*ZLEXCOUNT 4 2.8.9 | readonly fast | RO access 1
*ZMPOP -4 7.0.0 | write | RW access delete numkeys@1 | MIN MAX COUNT
*ZMSCORE -3 6.2.0 | readonly fast | RO access 1
*ZPOPMAX *ZPOPMIN -2 5.0.0 | write fast | RW access delete 1
*ZRANDMEMBER -2 6.2.0 | readonly | RO access 1 | WITHSCORES
*ZRANGE -4 1.2.0 | readonly | RO access 1 | BYSCORE BYLEX REV LIMIT WITHSCORES
*ZRANGEBYLEX -4 2.8.9 | readonly | RO access 1 | LIMIT
*ZRANGEBYSCORE -4 1.0.5 | readonly | RO access 1 | WITHSCORES LIMIT
*ZRANGESTORE -5 6.2.0 | write denyoom | OW update 1; RO access 2 | BYSCORE BYLEX REV LIMIT
*ZRANK -3 2.0.0 | readonly fast | RO access 1 | WITHSCORE
*ZREM -3 1.2.0 | write fast | RW delete 1
*ZREMRANGEBYLEX 4 2.8.9 | write | RW delete 1
*ZREMRANGEBYRANK 4 2.0.0 | write | RW delete 1
*ZREMRANGEBYSCORE 4 1.2.0 | write | RW delete 1
*ZREVRANGE -4 1.2.0 | readonly | RO access 1 | WITHSCORES
*ZREVRANGEBYLEX -4 2.8.9 | readonly | RO access 1 | LIMIT
*ZREVRANGEBYSCORE -4 2.2.0 | readonly | RO access 1 | WITHSCORES LIMIT
*ZREVRANK -3 2.0.0 | readonly fast | RO access 1 | WITHSCORE
*ZSCAN -3 2.8.0 | readonly | RO access 1 | MATCH COUNT
*ZSCORE 3 1.2.0 | readonly fast | RO access 1
*ZUNION -3 6.2.0 | readonly | RO access numkeys@1 | WEIGHTS AGGREGATE SUM MIN MAX WITHSCORES
*ZUNIONSTORE -4 2.0.0 | write denyoom | OW update 1; RO access numkeys@2 | WEIGHTS AGGREGATE SUM MIN
  MAX
[geo]
*GEOADD -5 3.2.0 | write denyoom | RW update 1 | NX XX CH
*GEODIST -4 3.2.0 | readonly | RO access 1 | M KM FT MI
*GEOHASH *GEOPOS -2 3.2.0 | readonly | RO access 1
*GEORADIUS -6 3.2.0 | write denyoom | RO access 1; OW update STORE@6; OW update STOREDIST@6 | M KM
  FT MI WITHCOORD WITHDIST WITHHASH COUNT ANY ASC DESC STORE STOREDIST | event=georadiusstore
*GEORADIUSBYMEMBER -5 3.2.0 | write denyoom | RO access 1; OW update STORE@5; OW update STOREDIST@5
  | M KM FT MI WITHCOORD WITHDIST WITHHASH COUNT ANY ASC DESC STORE STOREDIST | event=georadiusstore
*GEORADIUSBYMEMBER_RO -5 3.2.10 | readonly | RO access 1 | M KM FT MI WITHCOORD WITHDIST WITHHASH
  COUNT ANY ASC DESC
*GEORADIUS_RO -6 3.2.10 | readonly | RO access 1 | M KM FT MI WITHCOORD WITHDIST WITHHASH COUNT ANY
  ASC DESC
*GEOSEARCH -7 6.2.0 | readonly | RO access 1 | FROMMEMBER FROMLONLAT BYRADIUS M KM FT MI BYBOX ASC
  DESC COUNT ANY WITHCOORD WITHDIST WITHHASH
*GEOSEARCHSTORE -8 6.2.0 | write denyoom | OW update 1; RO access 2 | FROMMEMBER FROMLONLAT BYRADIUS
  M KM FT MI BYBOX ASC DESC COUNT ANY STOREDIST
[hyperloglog]
*PFADD -2 2.8.9 | write denyoom fast | RW insert 1
*PFCOUNT -2 2.8.9 | readonly | RW access 1..-1 | - | no-event
PFDEBUG 3 2.8.9 | write denyoom admin | RW access 2 | - | no-event
*PFMERGE -2 2.8.9 | write denyoom | RW access insert 1; RO access 2..-1 | - | event=pfadd
PFSELFTEST 1 2.8.9 | admin
[stream]
*XACK -4 5.0.0 | write fast | RW update 1 | - | lookup no-event
*XACKDEL -6 8.2.0 | write fast | RW update delete 1 | KEEPREF DELREF ACKED IDS | event=xdel
*XADD -5 5.0.0 | write denyoom fast | RW update 1 | NOMKSTREAM KEEPREF DELREF ACKED MAXLEN MINID = ~
  LIMIT * | time
*XAUTOCLAIM -6 6.2.0 | write fast | RW delete 1 | COUNT JUSTID | time no-event
*XCLAIM -6 5.0.0 | write fast | RW update 1 | IDLE TIME RETRYCOUNT FORCE JUSTID LASTID | time
  no-event
*XDEL -3 5.0.0 | write fast | RW delete 1
*XDELEX -5 8.2.0 | write fast | RW update delete 1 | KEEPREF DELREF ACKED IDS | event=xdel
*XGROUP -2 5.0.0
*XGROUP|CREATE -5 5.0.0 | write denyoom | RW insert 2 | $ MKSTREAM ENTRIESREAD
*XGROUP|CREATECONSUMER 5 6.2.0 | write denyoom | RW insert 2 | - | time
*XGROUP|DELCONSUMER 5 5.0.0 | write | RW delete 2
*XGROUP|DESTROY 4 5.0.0 | write | RW delete 2
XGROUP|HELP 2 5.0.0 | loading stale
*XGROUP|SETID -5 5.0.0 | write | RW update 2 | $ ENTRIESREAD
*XINFO -2 5.0.0
*XINFO|CONSUMERS 4 5.0.0 | readonly | RO access 2 | - | time
*XINFO|GROUPS 3 5.0.0 | readonly | RO access 2
XINFO|HELP 2 5.0.0 | loading stale
XINFO|STREAM -3 5.0.0 | readonly | RO access 2 | FULL COUNT
*XLEN 2 5.0.0 | readonly fast | RO 1
*XPENDING -3 5.0.0 | readonly | RO access 1 | IDLE | time
*XRANGE -4 5.0.0 | readonly | RO access 1 | COUNT
*XREAD -4 5.0.0 | readonly blocking | RO access STREAMS@1..-1%2 | COUNT BLOCK STREAMS
*XREADGROUP -7 5.0.0 | write blocking | RO access STREAMS@4..-1%2 | GROUP COUNT BLOCK NOACK STREAMS
  | time
*XREVRANGE -4 5.0.0 | readonly | RO access 1 | COUNT
XSETID -3 5.0.0 | write denyoom fast | RW update 1 | ENTRIESADDED MAXDELETEDID
*XTRIM -4 5.0.0 | write | RW delete 1 | MAXLEN MINID = ~ LIMIT KEEPREF DELREF ACKED
[json]
*JSON.ARRAPPEND -4 8.0.0 | write denyoom | RW access update 1
*JSON.ARRINDEX -4 8.0.0 | readonly | RO access 1
*JSON.ARRINSERT -5 8.0.0 | write denyoom | RW access update 1
*JSON.ARRLEN -2 8.0.0 | readonly | RO access 1
*JSON.ARRPOP -2 8.0.0 | write denyoom | RW access update 1
*JSON.ARRTRIM 5 8.0.0 | write denyoom | RW access update 1
*JSON.CLEAR -2 8.0.0 | write denyoom | RW access update 1
JSON.DEBUG -2 8.0.0 | readonly
JSON.DEBUG|HELP 2 8.0.0
JSON.DEBUG|MEMORY -3 8.0.0 | readonly | RO access 2
*JSON.DEL -2 8.0.0 | write | RW access delete 1
*JSON.FORGET -2 8.0.0 | write | RW access delete 1 | - | event=json.del
*JSON.GET -2 8.0.0 | readonly | RO access 1 | INDENT NEWLINE SPACE
*JSON.MERGE 4 8.0.0 | write denyoom | RW access update 1
*JSON.MGET -3 8.0.0 | readonly | RO access 1..-2
*JSON.MSET -4 8.0.0 | write denyoom | RW access update 1..-1/3
*JSON.NUMINCRBY *JSON.NUMMULTBY 4 8.0.0 | write denyoom | RW access update 1
*JSON.OBJKEYS *JSON.OBJLEN *JSON.RESP -2 8.0.0 | readonly | RO access 1
*JSON.SET -4 8.0.0 | write denyoom | RW access update 1 | NX XX
*JSON.STRAPPEND -3 8.0.0 | write denyoom | RW access update 1
*JSON.STRLEN -2 8.0.0 | readonly | RO access 1
*JSON.TOGGLE 3 8.0.0 | write denyoom | RW access update 1
*JSON.TYPE -2 8.0.0 | readonly | RO access 1
[search] vendor
*SEARCH.AGGREGATE 4 8.2.0 | readonly | RO access 1 | - | time
*SEARCH.ALIASADD 3 8.2.0 | write denyoom
*SEARCH.ALIASDEL 2 8.2.0 | write
*SEARCH.COUNT 3 8.2.0 | readonly | RO access 1 | - | time
*SEARCH.CREATE -10 8.2.0 | write denyoom | OW insert 1 | ON JSON HASH STRING PREFIX LANGUAGE
  SKIPINITIALSCAN EXISTSOK SCHEMA TEXT U64 I64 F64 BOOL DATE KEYWORD FACET FAST NOSTEM NOTOKENIZE
  FROM | time
*SEARCH.DESCRIBE 2 8.2.0 | readonly | RO access 1 | - | time
*SEARCH.DROP 2 8.2.0 | write | RM delete 1
*SEARCH.LISTALIASES 1 8.2.0 | readonly
*SEARCH.LISTINDEXES -1 8.2.0 | readonly | - | MATCH LIMIT OFFSET
*SEARCH.QUERY -3 8.2.0 | readonly | RO access 1 | LIMIT OFFSET ORDERBY ASC DESC SELECT NOCONTENT
  HIGHLIGHT FIELDS TAGS SCOREFUNC FIELDVALUE MODIFIER FACTOR MISSING SCOREMODE COMBINEMODE | time
*SEARCH.REINDEX 2 8.2.0 | write | RW update 1 | - | time
*SEARCH.WAITINDEXING 2 8.2.0 | readonly | RO access 1 | - | time
[generic]
*COPY -3 6.2.0 | write denyoom | RO access 1; OW update 2 | DB REPLACE | ttl
*DEL -2 1.0.0 | write | RM delete 1..-1
*DUMP 2 2.6.0 | readonly | RO access 1
*EXISTS -2 1.0.0 | readonly fast | RO 1..-1
*EXPIRE -3 1.0.0 | write fast | RW update 1 | NX XX GT LT | seconds@2
*EXPIREAT -3 1.2.0 | write fast | RW update 1 | NX XX GT LT | unix-seconds@2
*EXPIRETIME 2 7.0.0 | readonly fast | RO access 1
*KEYS 2 1.0.0 | readonly @dangerous
MIGRATE -6 2.6.0 | write @dangerous | RW access delete 3; RW access delete incomplete KEYS@-2..-1 |
  COPY REPLACE AUTH AUTH2 KEYS
MOVE 3 1.0.0 | write fast | RW access update 1 | - | ttl
OBJECT -2 2.2.3
OBJECT|ENCODING 3 2.2.3 | readonly | RO 2
OBJECT|FREQ 3 4.0.0 | readonly | RO 2 | - | time
OBJECT|HELP 2 6.2.0 | loading stale
OBJECT|IDLETIME 3 2.2.3 | readonly | RO 2 | - | time
OBJECT|REFCOUNT 3 2.2.3 | readonly | RO 2
*PERSIST 2 2.2.0 | write fast | RW update 1
*PEXPIRE -3 2.6.0 | write fast | RW update 1 | NX XX GT LT | milliseconds@2
*PEXPIREAT -3 2.6.0 | write fast | RW update 1 | NX XX GT LT | unix-milliseconds@2
*PEXPIRETIME 2 7.0.0 | readonly fast | RO access 1
*PTTL 2 2.6.0 | readonly fast | RO access 1 | - | time
*RANDOMKEY 1 1.0.0 | readonly
*RENAME 3 1.0.0 | write | RW access delete 1; OW update 2 | - | ttl
*RENAMENX 3 1.0.0 | write fast | RW access delete 1; OW insert 2 | - | ttl
*RESTORE -4 2.6.0 | write denyoom @dangerous | OW update 1 | REPLACE ABSTTL IDLETIME FREQ | value@3
  ttl time
*SCAN -2 2.8.0 | readonly | - | MATCH COUNT TYPE WITHTYPE
SORT -2 1.0.0 | write denyoom @set @sortedset @list @dangerous -@keyspace | RO access 1; RO access
  unknown; OW update unknown | BY LIMIT GET ASC DESC ALPHA STORE | event=sortstore
SORT_RO -2 7.0.0 | readonly @set @sortedset @list @dangerous -@keyspace | RO access 1; RO access
  unknown | BY LIMIT GET ASC DESC ALPHA
*TOUCH -2 3.2.1 | readonly fast | RO 1..-1
*TTL 2 1.0.0 | readonly fast | RO access 1 | - | time
*TYPE 2 1.0.0 | readonly fast | RO 1
*UNLINK -2 4.0.0 | write fast | RM delete 1..-1
WAIT 3 3.0.0 | blocking @connection -@keyspace | - | - | rest
WAITAOF 4 7.2.0 | blocking @connection -@keyspace | - | - | rest
[scripting]
*EVAL *EVALSHA -3 2.6.0 | noscript stale skip_monitor no_mandatory_keys | RW access update numkeys@2
*EVALSHA_RO *EVAL_RO -3 7.0.0 | readonly noscript stale skip_monitor no_mandatory_keys | RO access
  numkeys@2
*FCALL -3 7.0.0 | noscript stale skip_monitor no_mandatory_keys | RW access update numkeys@2
*FCALL_RO -3 7.0.0 | readonly noscript stale skip_monitor no_mandatory_keys | RO access numkeys@2
*FUNCTION -2 7.0.0
*FUNCTION|DELETE 3 7.0.0 | write noscript
FUNCTION|DUMP 2 7.0.0 | noscript
*FUNCTION|FLUSH -2 7.0.0 | write noscript | - | ASYNC SYNC
FUNCTION|HELP 2 7.0.0 | loading stale
*FUNCTION|KILL 2 7.0.0 | noscript allow_busy
*FUNCTION|LIST -2 7.0.0 | noscript | - | LIBRARYNAME WITHCODE
*FUNCTION|LOAD -3 7.0.0 | write denyoom noscript | - | REPLACE
FUNCTION|RESTORE -3 7.0.0 | write denyoom noscript | - | FLUSH APPEND REPLACE
*FUNCTION|STATS 2 7.0.0 | noscript allow_busy
*SCRIPT -2 2.6.0
SCRIPT|DEBUG 3 3.2.0 | noscript | - | YES SYNC NO
*SCRIPT|EXISTS -3 2.6.0 | noscript
*SCRIPT|FLUSH -2 2.6.0 | noscript | - | ASYNC SYNC
SCRIPT|HELP 2 5.0.0 | loading stale
*SCRIPT|KILL 2 2.6.0 | noscript allow_busy
*SCRIPT|LOAD 3 2.6.0 | noscript stale
SCRIPT|SHOW 3 8.0.0 | noscript stale
[transactions]
*DISCARD 1 2.0.0 | noscript loading stale fast allow_busy | - | - | no-rest
*EXEC 1 1.2.0 | noscript loading stale skip_slowlog
*MULTI 1 1.2.0 | noscript loading stale fast allow_busy
*UNWATCH 1 2.2.0 | noscript loading stale fast allow_busy | - | - | no-rest
*WATCH -2 2.2.0 | noscript loading stale fast allow_busy | RO 1..-1 | - | no-rest
[pubsub]
*PSUBSCRIBE -2 2.0.0 | pubsub noscript loading stale | - | - | no-rest
*PUBLISH 3 2.0.0 | pubsub loading stale fast
*PUBSUB -2 2.8.0
*PUBSUB|CHANNELS -2 2.8.0 | pubsub loading stale
PUBSUB|HELP 2 6.2.0 | loading stale -@pubsub
*PUBSUB|NUMPAT 2 2.8.0 | pubsub loading stale
*PUBSUB|NUMSUB -2 2.8.0 | pubsub loading stale
PUBSUB|SHARDCHANNELS PUBSUB|SHARDNUMSUB -2 7.0.0 | pubsub loading stale
*PUNSUBSCRIBE -1 2.0.0 | pubsub noscript loading stale | - | - | no-rest
SPUBLISH 3 7.0.0 | pubsub loading stale fast | not_key 1 | - | no-rest
SSUBSCRIBE -2 7.0.0 | pubsub noscript loading stale | not_key 1..-1 | - | no-rest
*SUBSCRIBE -2 2.0.0 | pubsub noscript loading stale | - | - | no-rest
SUNSUBSCRIBE -1 7.0.0 | pubsub noscript loading stale | not_key 1..-1 | - | no-rest
*UNSUBSCRIBE -1 2.0.0 | pubsub noscript loading stale | - | - | no-rest
[connection] no-rest
*AUTH -2 1.0.0 | noscript loading stale fast no_auth allow_busy
*CLIENT -2 2.4.0
CLIENT|CACHING 3 6.0.0 | noscript loading stale | - | YES NO
CLIENT|CAPA -3 8.0.0 | noscript loading stale allow_busy
CLIENT|GETNAME 2 2.6.9 | noscript loading stale
CLIENT|GETREDIR 2 6.0.0 | noscript loading stale
CLIENT|HELP 2 5.0.0 | loading stale
CLIENT|ID 2 5.0.0 | noscript loading stale
CLIENT|IMPORT-SOURCE 3 8.1.0 | noscript loading stale | - | ON OFF
CLIENT|INFO 2 6.2.0 | noscript loading stale | - | - | time
CLIENT|KILL -3 2.4.0 | admin noscript loading stale | - | ID TYPE NORMAL MASTER SLAVE REPLICA PUBSUB
  USER ADDR LADDR SKIPME
CLIENT|LIST -2 2.4.0 | admin noscript loading stale | - | TYPE NORMAL MASTER REPLICA PUBSUB ID |
  time
CLIENT|NO-EVICT 3 7.0.0 | admin noscript loading stale | - | ON OFF
CLIENT|NO-TOUCH 3 7.2.0 | noscript loading stale allow_busy | - | ON OFF
CLIENT|PAUSE -3 2.9.50 | admin noscript loading stale | - | WRITE ALL | time
CLIENT|REPLY 3 3.2.0 | noscript loading stale | - | ON OFF SKIP
*CLIENT|SETINFO 4 7.2.0 | noscript loading stale allow_busy | - | LIB-NAME LIB-VER | rest
CLIENT|SETNAME 3 2.6.9 | noscript loading stale
CLIENT|TRACKING -3 6.0.0 | noscript loading stale | - | ON OFF REDIRECT PREFIX BCAST OPTIN OPTOUT
  NOLOOP
CLIENT|TRACKINGINFO 2 6.2.0 | noscript loading stale
CLIENT|UNBLOCK -3 5.0.0 | admin noscript loading stale | - | TIMEOUT ERROR
CLIENT|UNPAUSE 2 6.2.0 | admin noscript loading stale
*ECHO 2 1.0.0 | loading stale fast | - | - | rest
*HELLO -1 6.0.0 | noscript loading stale fast no_auth allow_busy | - | AUTH SETNAME
*PING -1 1.0.0 | fast | - | - | rest
*QUIT -1 1.0.0 | noscript loading stale fast no_auth allow_busy
*RESET 1 6.2.0 | noscript loading stale fast no_auth allow_busy
*SELECT 2 1.0.0 | loading stale fast
[server]
*ACL -2 6.0.0
*ACL|CAT -2 6.0.0 | noscript loading stale
*ACL|DELUSER -3 6.0.0 | admin noscript loading stale
ACL|DRYRUN -4 7.0.0 | admin noscript loading stale
*ACL|GENPASS -2 6.0.0 | noscript loading stale
*ACL|GENTOKEN -3 6.0.0 | noscript loading stale | - | - | vendor
*ACL|GETUSER 3 6.0.0 | admin noscript loading stale
ACL|HELP 2 6.0.0 | loading stale
*ACL|LIST *ACL|LOAD 2 6.0.0 | admin noscript loading stale
*ACL|LOG -2 6.0.0 | admin noscript loading stale | - | RESET | time
*ACL|RESTTOKEN 4 6.0.0 | noscript loading stale | - | - | vendor
*ACL|SAVE 2 6.0.0 | admin noscript loading stale
*ACL|SETUSER -3 6.0.0 | admin noscript loading stale
*ACL|USERS 2 6.0.0 | admin noscript loading stale
*ACL|WHOAMI 2 6.0.0 | noscript loading stale
BGREWRITEAOF 1 1.0.0 | admin noscript no_async_loading
BGSAVE -1 1.0.0 | admin noscript no_async_loading | - | SCHEDULE | time
*COMMAND -1 2.8.13 | loading stale @connection
COMMAND|COUNT 2 2.8.13 | loading stale @connection
COMMAND|DOCS -2 7.0.0 | loading stale @connection
COMMAND|GETKEYS -4 2.8.13 | loading stale @connection
COMMAND|GETKEYSANDFLAGS -4 7.0.0 | loading stale @connection
COMMAND|HELP 2 5.0.0 | loading stale @connection
COMMAND|INFO -2 2.8.13 | loading stale @connection
COMMAND|LIST -2 7.0.0 | loading stale @connection | - | FILTERBY MODULE ACLCAT PATTERN
CONFIG -2 2.0.0
CONFIG|GET -3 2.0.0 | admin noscript loading stale
CONFIG|HELP 2 5.0.0 | loading stale
CONFIG|RESETSTAT 2 2.0.0 | admin noscript loading stale
CONFIG|REWRITE 2 2.8.0 | admin noscript loading stale
CONFIG|SET -4 2.0.0 | admin noscript loading stale
*DBSIZE 1 1.0.0 | readonly fast @keyspace
DEBUG -2 1.0.0 | admin noscript loading stale | - | - | time
FAILOVER -1 6.2.0 | admin noscript stale | - | TO FORCE ABORT TIMEOUT
*FLUSHALL *FLUSHDB -1 1.0.0 | write @keyspace @dangerous | - | ASYNC SYNC
*INFO -1 1.0.0 | loading stale @dangerous | - | - | time
LASTSAVE 1 1.0.0 | loading stale fast @admin @dangerous
LATENCY -2 2.8.13
LATENCY|DOCTOR 2 2.8.13 | admin noscript loading stale
LATENCY|GRAPH 3 2.8.13 | admin noscript loading stale
LATENCY|HELP 2 2.8.13 | loading stale
LATENCY|HISTOGRAM -2 7.0.0 | admin noscript loading stale
LATENCY|HISTORY 3 2.8.13 | admin noscript loading stale
LATENCY|LATEST 2 2.8.13 | admin noscript loading stale
LATENCY|RESET -2 2.8.13 | admin noscript loading stale
LOLWUT -1 5.0.0 | readonly fast | - | VERSION
MEMORY -2 4.0.0
MEMORY|DOCTOR 2 4.0.0
MEMORY|HELP 2 4.0.0 | loading stale
MEMORY|MALLOC-STATS MEMORY|PURGE MEMORY|STATS 2 4.0.0
MEMORY|USAGE -3 4.0.0 | readonly | RO 2 | SAMPLES
MODULE -2 4.0.0
MODULE|HELP 2 5.0.0 | loading stale
MODULE|LIST 2 4.0.0 | admin noscript
MODULE|LOAD -3 4.0.0 | admin noscript no_async_loading
MODULE|LOADEX -3 7.0.0 | admin noscript no_async_loading | - | CONFIG ARGS
MODULE|UNLOAD 3 4.0.0 | admin noscript no_async_loading
*MONITOR 1 1.0.0 | admin noscript loading stale | - | - | no-rest
PSYNC -3 2.8.0 | admin noscript no_async_loading no_multi
REPLCONF -1 3.0.0 | admin noscript loading stale allow_busy
REPLICAOF 3 5.0.0 | admin noscript stale no_async_loading | - | NO ONE
RESTORE-ASKING -4 3.0.0 | write denyoom asking @keyspace @dangerous | OW update 1 | REPLACE ABSTTL
  IDLETIME FREQ | value@3 ttl time
ROLE 1 2.8.12 | noscript loading stale fast @admin @dangerous
SAVE 1 1.0.0 | admin noscript no_async_loading no_multi | - | - | time
SHUTDOWN -1 1.0.0 | admin noscript loading stale no_multi allow_busy | - | NOSAVE SAVE NOW FORCE
  ABORT
SLAVEOF 3 1.0.0 | admin noscript stale no_async_loading | - | NO ONE
SLOWLOG -2 2.2.12
SLOWLOG|GET -2 2.2.12 | admin loading stale
SLOWLOG|HELP 2 6.2.0 | loading stale
SLOWLOG|LEN SLOWLOG|RESET 2 2.2.12 | admin loading stale
SWAPDB 3 4.0.0 | write fast @keyspace @dangerous
SYNC 1 1.0.0 | admin noscript no_async_loading no_multi
*TIME 1 2.6.0 | loading stale fast | - | - | time
[cluster] no-rest
ASKING 1 3.0.0 | fast @connection
CLUSTER -2 3.0.0
CLUSTER|ADDSLOTS -3 3.0.0 | admin stale no_async_loading
CLUSTER|ADDSLOTSRANGE -4 7.0.0 | admin stale no_async_loading
CLUSTER|BUMPEPOCH 2 3.0.0 | admin stale no_async_loading
CLUSTER|COUNT-FAILURE-REPORTS 3 3.0.0 | admin stale
CLUSTER|COUNTKEYSINSLOT 3 3.0.0 | stale
CLUSTER|DELSLOTS -3 3.0.0 | admin stale no_async_loading
CLUSTER|DELSLOTSRANGE -4 7.0.0 | admin stale no_async_loading
CLUSTER|FAILOVER -2 3.0.0 | admin stale no_async_loading
CLUSTER|FLUSHSLOTS 2 3.0.0 | admin stale no_async_loading
CLUSTER|FORGET 3 3.0.0 | admin stale no_async_loading
CLUSTER|GETKEYSINSLOT 4 3.0.0 | stale
CLUSTER|HELP 2 5.0.0 | loading stale
CLUSTER|INFO 2 3.0.0 | stale
CLUSTER|KEYSLOT 3 3.0.0 | stale
CLUSTER|LINKS 2 7.0.0 | stale
CLUSTER|MEET -4 3.0.0 | admin stale no_async_loading
CLUSTER|MYID CLUSTER|NODES 2 3.0.0 | stale
CLUSTER|REPLICAS 3 5.0.0 | admin stale
CLUSTER|REPLICATE 3 3.0.0 | admin stale no_async_loading
CLUSTER|RESET -2 3.0.0 | admin noscript stale
CLUSTER|SAVECONFIG 2 3.0.0 | admin stale no_async_loading
CLUSTER|SET-CONFIG-EPOCH 3 3.0.0 | admin stale no_async_loading
CLUSTER|SETSLOT -4 3.0.0 | admin stale no_async_loading
CLUSTER|SHARDS 2 7.0.0 | stale
CLUSTER|SLAVES 3 3.0.0 | admin stale
CLUSTER|SLOTS 2 3.0.0 | stale
READONLY READWRITE 1 3.0.0 | loading stale fast @connection
"""


def _rows(table: str) -> Iterator[tuple[Row, bool]]:
    """Yield each row, and whether the vendor documents its command."""
    group = of_group = ""
    for line in table.strip().replace("\n  ", " ").split("\n"):
        if line.startswith("["):
            group, _, of_group = line[1:].partition("]")
            continue
        head, *columns = line.split(" | ")
        *names, arity, since = head.split()
        if "-" in columns:
            columns = ["" if column == "-" else column for column in columns]
        flags, keys, options, effects = [*columns, "", "", "", ""][:4]
        if of_group:
            effects = f"{of_group} {effects}"
        for marked in names:
            name = marked.removeprefix("*").replace("|", " ")
            row = Row(name, int(arity), group, since, flags, keys, options, effects)
            yield row, marked.startswith("*")


_MARKED = tuple(_rows(_TABLE))
ROWS = tuple(row for row, _ in _MARKED)
DOCUMENTED = frozenset(row.name for row, is_documented in _MARKED if is_documented)
"""Names of documented commands, container commands and subcommands (``"XGROUP CREATE"``)."""
