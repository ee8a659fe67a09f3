"""The commands that a server offers: those that the vendor documents, and those available over REST.

The specification names whole groups of commands, so by default a server runs every command that
Redis has in these groups. The vendor's documentation lists commands individually and omits some of
them. ``DOCUMENTED`` contains the documented commands, and the commands that both official clients
send. It does not contain commands that no page mentions and only one client has a method for
(SUBSTR), nor commands about a server's process, logs or memory.

Over REST, commands that block or belong to a connection are rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CommandError, not_available

if TYPE_CHECKING:
    from .registry import CommandSpec

_COMMANDS = """
APPEND DECR DECRBY DELEX DIGEST GET GETDEL GETEX GETRANGE GETSET INCR INCRBY INCRBYFLOAT MGET MSET
MSETNX PSETEX SET SETEX SETNX SETRANGE STRLEN
BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS GETBIT SETBIT
HDEL HEXISTS HEXPIRE HEXPIREAT HEXPIRETIME HGET HGETALL HGETDEL HGETEX HINCRBY HINCRBYFLOAT HKEYS
HLEN HMGET HMSET HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HRANDFIELD HSCAN HSET HSETEX HSETNX
HSTRLEN HTTL HVALS
BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH LINDEX LINSERT LLEN LMOVE LMPOP LPOP LPOS LPUSH LPUSHX LRANGE
LREM LSET LTRIM RPOP RPOPLPUSH RPUSH RPUSHX
SADD SCARD SDIFF SDIFFSTORE SINTER SINTERCARD SINTERSTORE SISMEMBER SMEMBERS SMISMEMBER SMOVE SPOP
SRANDMEMBER SREM SSCAN SUNION SUNIONSTORE
BZMPOP BZPOPMAX BZPOPMIN ZADD ZCARD ZCOUNT ZDIFF ZDIFFSTORE ZINCRBY ZINTER ZINTERCARD ZINTERSTORE
ZLEXCOUNT ZMPOP ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANGESTORE
ZRANK ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE
ZREVRANK ZSCAN ZSCORE ZUNION ZUNIONSTORE
GEOADD GEODIST GEOHASH GEOPOS GEORADIUS GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO GEORADIUS_RO
GEOSEARCH GEOSEARCHSTORE
PFADD PFCOUNT PFMERGE
XACK XACKDEL XADD XAUTOCLAIM XCLAIM XDEL XDELEX XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE
XTRIM XGROUP:CREATE,CREATECONSUMER,DELCONSUMER,DESTROY,SETID XINFO:CONSUMERS,GROUPS
JSON.ARRAPPEND JSON.ARRINDEX JSON.ARRINSERT JSON.ARRLEN JSON.ARRPOP JSON.ARRTRIM JSON.CLEAR JSON.DEL
JSON.FORGET JSON.GET JSON.MERGE JSON.MGET JSON.MSET JSON.NUMINCRBY JSON.NUMMULTBY JSON.OBJKEYS
JSON.OBJLEN JSON.RESP JSON.SET JSON.STRAPPEND JSON.STRLEN JSON.TOGGLE JSON.TYPE
COPY DEL DUMP EXISTS EXPIRE EXPIREAT EXPIRETIME KEYS PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PTTL
RANDOMKEY RENAME RENAMENX RESTORE SCAN TOUCH TTL TYPE UNLINK
SEARCH.AGGREGATE SEARCH.ALIASADD SEARCH.ALIASDEL SEARCH.COUNT SEARCH.CREATE SEARCH.DESCRIBE SEARCH.DROP
SEARCH.LISTALIASES SEARCH.LISTINDEXES SEARCH.QUERY SEARCH.REINDEX SEARCH.WAITINDEXING
EVAL EVALSHA EVALSHA_RO EVAL_RO FCALL FCALL_RO FUNCTION:DELETE,FLUSH,KILL,LIST,LOAD,STATS
SCRIPT:EXISTS,FLUSH,KILL,LOAD
DISCARD EXEC MULTI UNWATCH WATCH
PSUBSCRIBE PUBLISH PUNSUBSCRIBE SUBSCRIBE UNSUBSCRIBE PUBSUB:CHANNELS,NUMPAT,NUMSUB
AUTH CLIENT:SETINFO ECHO HELLO PING QUIT RESET SELECT
ACL:CAT,DELUSER,GENPASS,GENTOKEN,GETUSER,LIST,LOAD,LOG,RESTTOKEN,SAVE,SETUSER,USERS,WHOAMI
COMMAND DBSIZE FLUSHALL FLUSHDB INFO MONITOR TIME
"""


def _names(text: str) -> frozenset[str]:
    names: set[str] = set()
    for word in text.split():
        name, _, children = word.partition(":")
        names.add(name)
        names.update(f"{name} {child}" for child in children.split(",") if child)
    return frozenset(names)


DOCUMENTED = _names(_COMMANDS)
"""Names of commands, container commands and subcommands (``"XGROUP CREATE"``) in upper case."""


_WORDS_OF_READS = {b"GROUP": 3, b"COUNT": 2}
"""Options of XREAD and XREADGROUP with arguments, and their numbers of words with the name."""


def check_over_rest(spec: CommandSpec, argv: list[bytes]) -> None:
    """Raise the vendor's error if a command is not available over REST.

    XREAD and XREADGROUP are available without BLOCK. With BLOCK they would keep the request open,
    like BLPOP, and the vendor's own queue library relies on the error. This function checks single
    commands and each command of a pipeline or transaction; the transaction is then discarded.
    """
    if not spec.over_rest:
        raise CommandError(not_available(spec.name.split()[0]))
    if spec.may_wait and asks_to_wait(argv):
        raise CommandError(not_available(spec.name) + b" with BLOCK, which waits")


def check_family_over_rest(spec: CommandSpec) -> None:
    """Raise the vendor's error if no subcommand of a container command is available over REST."""
    if not any(each.over_rest for each in (spec.subcommands or {}).values()):
        raise CommandError(not_available(spec.name))


def asks_to_wait(argv: list[bytes]) -> bool:
    """Return whether an XREAD or XREADGROUP command has the BLOCK option."""
    at = 1
    while at < len(argv):
        word = argv[at].upper()
        if word == b"BLOCK":
            return True
        if word == b"STREAMS":
            return False
        at += _WORDS_OF_READS.get(word, 1)
    return False
