"""The arguments of commands by name, which COMMAND DOCS reports and the console shows.

A line is a synopsis in the notation of Redis and the commands that have it. Words in upper case are
literal, ``[…]`` is optional, ``(A|B)`` is a choice, and ``...`` repeats what is before it in the
brackets. ``$name`` is a part that several synopses share. A command that is not listed takes no
arguments, or is a container. `tests/kv` checks every synopsis against the command
table: the number of words, the positions of keys, and the option words. Sources: the manual of
Redis, and the vendor's documentation of its own commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from .registry import CommandSpec

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
_SYNOPSES = """
key: DECR DIGEST GET GETDEL INCR STRLEN HGETALL HKEYS HLEN HVALS LLEN SCARD SMEMBERS ZCARD XLEN DUMP
  EXPIRETIME PERSIST PEXPIRETIME PTTL TTL TYPE XINFO|GROUPS OBJECT|ENCODING OBJECT|FREQ
  OBJECT|IDLETIME OBJECT|REFCOUNT
key [key ...]: MGET SDIFF SINTER SUNION PFCOUNT DEL EXISTS TOUCH UNLINK WATCH
key value: APPEND DELIFEQ GETSET SETNX
key decrement: DECRBY
key increment: INCRBY INCRBYFLOAT
key [$equal]: DELEX
key [$expiry|PERSIST]: GETEX
key start end: GETRANGE SUBSTR
key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]: LCS
key value [key value ...]: MSET MSETNX
numkeys key value [key value ...] [NX|XX] [$expiry|KEEPTTL]: MSETEX
key milliseconds value: PSETEX
key value [NX|XX|$equal] [GET] [$expiry|KEEPTTL]: SET
key seconds value: SETEX
key offset value: SETRANGE SETBIT
key [start end [BYTE|BIT]]: BITCOUNT
key [(GET encoding offset|[OVERFLOW (WRAP|SAT|FAIL)] (SET encoding offset value|INCRBY encoding
  offset increment)) ...]: BITFIELD
key [GET encoding offset ...]: BITFIELD_RO
(AND|OR|XOR|NOT|DIFF|DIFF1|ANDOR|ONE) destkey key [key ...]: BITOP
key bit [start [end [BYTE|BIT]]]: BITPOS
key offset: GETBIT
key field [field ...]: HDEL HMGET
key field: HEXISTS HGET HSTRLEN
key seconds $when $fields: HEXPIRE
key unix-time-seconds $when $fields: HEXPIREAT
key $fields: HEXPIRETIME HGETDEL HPERSIST HPEXPIRETIME HPTTL HTTL
key [$expiry|PERSIST] $fields: HGETEX
key field increment: HINCRBY HINCRBYFLOAT
key field value [field value ...]: HMSET HSET
key milliseconds $when $fields: HPEXPIRE
key unix-time-milliseconds $when $fields: HPEXPIREAT
key [count [WITHVALUES]]: HRANDFIELD
key cursor $scan [NOVALUES]: HSCAN
key [NX|XX] [FNX|FXX] [$expiry|KEEPTTL] FIELDS numfields field value [field value ...]: HSETEX
key field value: HSETNX
source destination (LEFT|RIGHT) (LEFT|RIGHT) timeout: BLMOVE
timeout $keys (LEFT|RIGHT) [COUNT count]: BLMPOP
key [key ...] timeout: BLPOP BRPOP BZPOPMAX BZPOPMIN
source destination timeout: BRPOPLPUSH
key index: LINDEX
key (BEFORE|AFTER) pivot element: LINSERT
source destination (LEFT|RIGHT) (LEFT|RIGHT): LMOVE
$keys (LEFT|RIGHT) [COUNT count]: LMPOP
key [count]: LPOP RPOP SPOP SRANDMEMBER ZPOPMAX ZPOPMIN
key element [RANK rank] [COUNT num-matches] [MAXLEN len]: LPOS
key element [element ...]: LPUSH LPUSHX RPUSH RPUSHX
key start stop: LRANGE LTRIM ZREMRANGEBYRANK
key count element: LREM
key index element: LSET
source destination: RPOPLPUSH
key member [member ...]: SADD SMISMEMBER SREM ZMSCORE ZREM
destination key [key ...]: SDIFFSTORE SINTERSTORE SUNIONSTORE
$keys [LIMIT limit]: SINTERCARD ZINTERCARD
key member: SISMEMBER ZSCORE
source destination member: SMOVE
key cursor $scan: SSCAN ZSCAN
timeout $keys (MIN|MAX) [COUNT count]: BZMPOP
key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]: ZADD
key min max: ZCOUNT ZLEXCOUNT ZREMRANGEBYLEX ZREMRANGEBYSCORE
$keys [WITHSCORES]: ZDIFF
destination $keys: ZDIFFSTORE
key increment member: ZINCRBY
$keys $combined [WITHSCORES]: ZINTER ZUNION
destination $keys $combined: ZINTERSTORE ZUNIONSTORE
$keys (MIN|MAX) [COUNT count]: ZMPOP
key [count [WITHSCORES]]: ZRANDMEMBER
key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]: ZRANGE
key min max [LIMIT offset count]: ZRANGEBYLEX
key min max [WITHSCORES] [LIMIT offset count]: ZRANGEBYSCORE
dst src min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]: ZRANGESTORE
key member [WITHSCORE]: ZRANK ZREVRANK
key start stop [WITHSCORES]: ZREVRANGE
key max min [LIMIT offset count]: ZREVRANGEBYLEX
key max min [WITHSCORES] [LIMIT offset count]: ZREVRANGEBYSCORE
key [NX|XX] [CH] longitude latitude member [longitude latitude member ...]: GEOADD
key member1 member2 [M|KM|FT|MI]: GEODIST
key [member [member ...]]: GEOHASH GEOPOS
key longitude latitude radius $unit $near $store: GEORADIUS
key member radius $unit $near $store: GEORADIUSBYMEMBER
key longitude latitude radius $unit $near: GEORADIUS_RO
key member radius $unit $near: GEORADIUSBYMEMBER_RO
key $around [ASC|DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]: GEOSEARCH
destination source $around [ASC|DESC] [COUNT count [ANY]] [STOREDIST]: GEOSEARCHSTORE
key [element [element ...]]: PFADD
subcommand key: PFDEBUG
destkey [sourcekey [sourcekey ...]]: PFMERGE
key group id [id ...]: XACK
key group $refs $ids: XACKDEL
key [NOMKSTREAM] $refs [$trim] (*|id) field value [field value ...]: XADD
key group consumer min-idle-time start [COUNT count] [JUSTID]: XAUTOCLAIM
key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT
  count]
  [FORCE] [JUSTID] [LASTID lastid]: XCLAIM
key id [id ...]: XDEL
key $refs $ids: XDELEX
key group (id|$) [MKSTREAM] [ENTRIESREAD entries-read]: XGROUP|CREATE
key group consumer: XGROUP|CREATECONSUMER XGROUP|DELCONSUMER
key group: XGROUP|DESTROY XINFO|CONSUMERS
key group (id|$) [ENTRIESREAD entries-read]: XGROUP|SETID
key [FULL [COUNT count]]: XINFO|STREAM
key group [[IDLE min-idle-time] start end count [consumer]]: XPENDING
key start end [COUNT count]: XRANGE
[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]: XREAD
GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]:
  XREADGROUP
key end start [COUNT count]: XREVRANGE
key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]: XSETID
key $trim $refs: XTRIM
key path value [value ...]: JSON.ARRAPPEND
key path value [start [stop]]: JSON.ARRINDEX
key path index value [value ...]: JSON.ARRINSERT
key [path]: JSON.ARRLEN JSON.CLEAR JSON.DEL JSON.FORGET JSON.OBJKEYS JSON.OBJLEN JSON.RESP
  JSON.STRLEN
  JSON.TYPE JSON.DEBUG|MEMORY
key [path [index]]: JSON.ARRPOP
key path start stop: JSON.ARRTRIM
key [INDENT indent] [NEWLINE newline] [SPACE space] [path [path ...]]: JSON.GET
key path value: JSON.MERGE JSON.NUMINCRBY JSON.NUMMULTBY
key [key ...] path: JSON.MGET
key path value [key path value ...]: JSON.MSET
key path value [NX|XX]: JSON.SET
key [path] value: JSON.STRAPPEND
key path: JSON.TOGGLE
index filter aggregations: SEARCH.AGGREGATE
alias name: SEARCH.ALIASADD
alias: SEARCH.ALIASDEL
index filter: SEARCH.COUNT
index ON (JSON|HASH|STRING) PREFIX numprefixes prefix [prefix ...] [LANGUAGE language]
  [SKIPINITIALSCAN]
  [EXISTSOK] SCHEMA field (TEXT|U64|I64|F64|BOOL|DATE|KEYWORD|FACET) [FAST] [NOSTEM] [NOTOKENIZE]
  [FROM path] [field type [option ...] ...]: SEARCH.CREATE
index: SEARCH.DESCRIBE SEARCH.DROP SEARCH.REINDEX SEARCH.WAITINDEXING
[MATCH pattern] [LIMIT limit] [OFFSET offset]: SEARCH.LISTINDEXES
index filter [LIMIT limit] [OFFSET offset] [ORDERBY field [ASC|DESC]] [SELECT numfields field [field
  ...]]
   [NOCONTENT] [HIGHLIGHT FIELDS numfields field [field ...] [TAGS open close]] [SCOREFUNC
  [SCOREMODE mode]
   [COMBINEMODE mode] FIELDVALUE field [MODIFIER modifier] [FACTOR factor] [MISSING value]]:
  SEARCH.QUERY
source destination [DB destination-db] [REPLACE]: COPY
key seconds $when: EXPIRE
key unix-time-seconds $when: EXPIREAT
pattern: KEYS
host port (key|"") destination-db timeout [COPY] [REPLACE] [AUTH password|AUTH2 username password]
  [KEYS key [key ...]]: MIGRATE
key db: MOVE
key milliseconds $when: PEXPIRE
key unix-time-milliseconds $when: PEXPIREAT
key newkey: RENAME RENAMENX
key ttl serialized-value $restore: RESTORE RESTORE-ASKING
cursor $scan [TYPE type] [WITHTYPE]: SCAN
key $sorted [STORE destination]: SORT
key $sorted: SORT_RO
numreplicas timeout: WAIT
numlocal numreplicas timeout: WAITAOF
script numkeys [key [key ...]] [arg [arg ...]]: EVAL EVAL_RO
sha1 numkeys [key [key ...]] [arg [arg ...]]: EVALSHA EVALSHA_RO
function numkeys [key [key ...]] [arg [arg ...]]: FCALL FCALL_RO
library-name: FUNCTION|DELETE
[ASYNC|SYNC]: FUNCTION|FLUSH SCRIPT|FLUSH FLUSHALL FLUSHDB
[LIBRARYNAME library-name-pattern] [WITHCODE]: FUNCTION|LIST
[REPLACE] function-code: FUNCTION|LOAD
serialized-value [FLUSH|APPEND|REPLACE]: FUNCTION|RESTORE
(YES|SYNC|NO): SCRIPT|DEBUG
sha1 [sha1 ...]: SCRIPT|EXISTS
script: SCRIPT|LOAD
sha1: SCRIPT|SHOW
pattern [pattern ...]: PSUBSCRIBE
channel message: PUBLISH
[pattern]: PUBSUB|CHANNELS PUBSUB|SHARDCHANNELS
[channel [channel ...]]: PUBSUB|NUMSUB UNSUBSCRIBE
[shardchannel [shardchannel ...]]: SUNSUBSCRIBE PUBSUB|SHARDNUMSUB
[pattern [pattern ...]]: PUNSUBSCRIBE
shardchannel message: SPUBLISH
shardchannel [shardchannel ...]: SSUBSCRIBE
channel [channel ...]: SUBSCRIBE
[username] password: AUTH
(YES|NO): CLIENT|CACHING
capability [capability ...]: CLIENT|CAPA
(ON|OFF): CLIENT|IMPORT-SOURCE CLIENT|NO-EVICT CLIENT|NO-TOUCH
(ip:port|ID id|TYPE (NORMAL|MASTER|SLAVE|REPLICA|PUBSUB)|USER username|ADDR ip:port|LADDR ip:port
  |SKIPME yes/no) ...: CLIENT|KILL
[TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID id [id ...]]: CLIENT|LIST
timeout [WRITE|ALL]: CLIENT|PAUSE
(ON|OFF|SKIP): CLIENT|REPLY
(LIB-NAME libname|LIB-VER libver): CLIENT|SETINFO
connection-name: CLIENT|SETNAME
(ON|OFF) [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]:
  CLIENT|TRACKING
client-id [TIMEOUT|ERROR]: CLIENT|UNBLOCK
message: ECHO
[protover [AUTH username password] [SETNAME clientname]]: HELLO
[message]: PING
db: SELECT
[category]: ACL|CAT
username [username ...]: ACL|DELUSER
username command [arg [arg ...]]: ACL|DRYRUN
[bits]: ACL|GENPASS
username [option ...]: ACL|GENTOKEN
username: ACL|GETUSER
[count|RESET]: ACL|LOG
username password: ACL|RESTTOKEN
username [rule [rule ...]]: ACL|SETUSER
[SCHEDULE]: BGSAVE
[command-name [command-name ...]]: COMMAND|DOCS COMMAND|INFO
command arg [arg ...]: COMMAND|GETKEYS COMMAND|GETKEYSANDFLAGS
[FILTERBY (MODULE module-name|ACLCAT category|PATTERN pattern)]: COMMAND|LIST
parameter [parameter ...]: CONFIG|GET
parameter value [parameter value ...]: CONFIG|SET
subcommand [arg [arg ...]]: DEBUG
[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]: FAILOVER
[section [section ...]]: INFO
event: LATENCY|GRAPH LATENCY|HISTORY
[command [command ...]]: LATENCY|HISTOGRAM
[event [event ...]]: LATENCY|RESET
[VERSION version]: LOLWUT
key [SAMPLES count]: MEMORY|USAGE
path [arg [arg ...]]: MODULE|LOAD
path [CONFIG name value [CONFIG name value ...]] [ARGS arg [arg ...]]: MODULE|LOADEX
name: MODULE|UNLOAD
replicationid offset: PSYNC
[option [option ...]]: REPLCONF
(host port|NO ONE): REPLICAOF SLAVEOF
[NOSAVE|SAVE] [NOW] [FORCE] [ABORT]: SHUTDOWN
[count]: SLOWLOG|GET
index1 index2: SWAPDB
slot [slot ...]: CLUSTER|ADDSLOTS CLUSTER|DELSLOTS
start-slot end-slot [start-slot end-slot ...]: CLUSTER|ADDSLOTSRANGE CLUSTER|DELSLOTSRANGE
node-id: CLUSTER|COUNT-FAILURE-REPORTS CLUSTER|FORGET CLUSTER|REPLICAS CLUSTER|REPLICATE
  CLUSTER|SLAVES
slot: CLUSTER|COUNTKEYSINSLOT
[FORCE|TAKEOVER]: CLUSTER|FAILOVER
slot count: CLUSTER|GETKEYSINSLOT
key: CLUSTER|KEYSLOT
ip port [cluster-bus-port]: CLUSTER|MEET
[HARD|SOFT]: CLUSTER|RESET
config-epoch: CLUSTER|SET-CONFIG-EPOCH
slot (IMPORTING node-id|MIGRATING node-id|NODE node-id|STABLE): CLUSTER|SETSLOT
"""
KEYS = frozenset({
    "destination", "destkey", "dst", "index", "key", "newkey", "shardchannel", "source",
    "sourcekey", "src", "storedistkey", "storekey",
})  # fmt: skip
"""The names of arguments that are keys, if the command table has a position for them.

A name may end in 1 or 2 (``key1 key2``).
"""
INTEGERS = frozenset({
    "count", "milliseconds", "numfields", "numids", "numkeys", "seconds",
    "unix-time-milliseconds", "unix-time-seconds",
})  # fmt: skip


class Argument(NamedTuple):
    """An argument of a command, as ``COMMAND DOCS`` describes it.

    ``kind`` is ``string``, ``pure-token`` for a literal word, ``oneof`` for a choice or ``block``
    for a sequence. ``token`` is the word before the argument. ``inner`` are the alternatives of a
    choice, or the arguments of a sequence.
    """

    name: str
    kind: str
    token: str = ""
    inner: Sequence[Argument] = ()
    optional: bool = False
    multiple: bool = False


_TOKEN = re.compile(r"\[|\]|\(|\)|\||\.\.\.|[^\s\[\]()|]+")
_Tokens: TypeAlias = list[str]


def _sequence(tokens: _Tokens) -> list[Argument]:
    """Parse arguments up to the end of the synopsis, of the brackets or of the alternative."""
    found: list[Argument] = []
    while tokens and tokens[0] not in ("|", "]", ")"):
        token = tokens.pop(0)
        if token == "...":
            found = [_one(found)._replace(multiple=True)]
        elif token in "[(":
            found.append(_group(tokens)._replace(optional=token == "["))
        else:
            is_literal = token.upper() == token and not token.isdigit()
            kind, literal = ("pure-token", token) if is_literal else ("string", "")
            found.append(Argument(token.lower(), kind, literal))
    return found


def _group(tokens: _Tokens) -> Argument:
    """Parse the content of brackets, and the closing bracket."""
    alternatives = [_one(_sequence(tokens))]
    while tokens.pop(0) == "|":
        alternatives.append(_one(_sequence(tokens)))
    if len(alternatives) == 1:
        return alternatives[0]
    return Argument("|".join(one.name for one in alternatives), "oneof", inner=alternatives)


def _one(sequence: list[Argument]) -> Argument:
    """Return a sequence as one argument. A literal word becomes the token of what follows it."""
    first, *rest = sequence
    if not rest:
        return first
    if first.kind != "pure-token" or first.optional:
        return Argument(first.name, "block", inner=sequence)
    if (
        len(rest) == 1
        and rest[0].kind == "string"
        and not rest[0].optional
        and not rest[0].multiple
    ):
        return rest[0]._replace(token=first.token)
    return Argument(first.name, "block", first.token, rest)


def _synopses() -> Iterator[tuple[str, str]]:
    """Yield the name and the synopsis of each command that takes arguments."""
    for line in _SYNOPSES.strip().replace("\n  ", " ").split("\n"):
        text, _, names = line.rpartition(": ")
        while "$" in (shorter := re.sub(r"\$(\w+)", lambda part: _PARTS[part[1]], text)) != text:
            text = shorter
        for name in names.split():
            yield name.replace("|", " "), shorter


SYNOPSES = dict(_synopses())
"""The synopsis of each command that takes arguments; containers and their HELP are not listed."""


def arguments(spec: CommandSpec) -> list[Argument]:
    """Return the arguments of a command. A container has none, because its subcommands have them."""
    return _sequence(_TOKEN.findall(SYNOPSES.get(spec.name, "")))
