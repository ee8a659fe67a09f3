"""Additions after Redis 7.0 with their versions, and what COMMAND reports besides the rows.

The versions of commands are in the column *since* of ``commands.txt``. This module has the versions of
option words, arities, flags and behaviours. A stock server has everything up to the version that it
announces, and the vendor's service has everything. Versions are those of Redis. Additions that only
Valkey has are listed with Valkey's versions, which continue after 7.2.

The tips, notes on key positions and deprecations are from the output of Redis 7.0 (``COMMAND INFO``
and ``COMMAND DOCS``). Tips help a proxy or a cluster client decide to which nodes it sends a
command, and how it combines the replies. Commands that are not listed have no tips.
"""

from __future__ import annotations

import re

VENDOR = "vendor"
"""Used instead of a version for option words that no stock server has."""

EARLY_CONSUMERS = "consumers are created before they receive an entry"
ESTIMATED_COUNTERS = "the counter of groups before the first entry is estimated"
SHORTEST_DOUBLES = "doubles are printed with the fewest digits"

_ADDITIONS = {
    "7.2.0": (
        "CLIENT LIST lib-name", "CONFIG set-max-listpack-entries", "CONFIG set-max-listpack-value",
        "LPOS rejects the lowest rank", "XINFO CONSUMERS inactive",
        "XSETID checks the highest deleted id", "ZRANK WITHSCORE", "ZREVRANK WITHSCORE",
        "`os.clock` in scripts", "deleted groups are reported with the usual error",
        "lists and sets are listpacks", "timeouts that overflow are out of range",
        EARLY_CONSUMERS, ESTIMATED_COUNTERS, SHORTEST_DOUBLES,
    ),
    "7.2.5": ("the API of scripts as `server`",),
    "7.4.0": ("HSCAN NOVALUES", "XREAD +"),
    "8.2.0": (
        "BITOP ANDOR", "BITOP DIFF", "BITOP DIFF1", "BITOP ONE", "XADD ACKED", "XADD DELREF",
        "XADD KEEPREF", "XTRIM ACKED", "XTRIM DELREF", "XTRIM KEEPREF",
    ),
    "8.4.0": ("SET IFDEQ", "SET IFDNE", "SET IFEQ", "SET IFNE"),
    VENDOR: ("SCAN WITHTYPE",),
}  # fmt: skip
LATER = {addition: version for version, added in _ADDITIONS.items() for addition in added}
"""The first version that has each option, field, parameter or behaviour."""

ARITIES: dict[str, int] = {"ZRANK": 3, "ZREVRANK": 3}
"""Arities of commands in older versions, which lack some option words."""

EARLIER = {"WAIT": ("7.2.0", "noscript @connection -@keyspace", "time")}
"""For some commands, the version that has their rows, and the flags and effects in earlier ones."""

MODULES: dict[str, str] = {"ReJSON": "json"}
"""Maps modules to the group of commands that a stock server has only if the module is loaded."""
MODULE_VERSIONS = {"ReJSON": 20000}
"""The versions that modules report: for ReJSON, the first with the current path syntax."""

_RDB_VERSIONS = (("7.4", 12), ("7.2", 11), ("0", 10))


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a version as a tuple that can be compared, such as ``(7, 0, 15)``."""
    return tuple(map(int, version.split(".")))


def rdb_version(version: str) -> int:
    """Return the highest RDB format version that a server of this version reads and writes."""
    return next(
        number for since, number in _RDB_VERSIONS if as_numbers(version) >= as_numbers(since)
    )


def is_later(since: str, version: str) -> bool:
    """Return whether a server lacks what version ``since`` added; both versions have three parts."""
    return since == VENDOR or as_numbers(since) > as_numbers(version)


# -- tips, notes and deprecations ------------------------------------------------------------------

# The tips, a colon, and the commands that have them.
_TIPS = """
nondeterministic_output: CLIENT|INFO CLIENT|LIST CLUSTER|BUMPEPOCH CLUSTER|COUNT-FAILURE-REPORTS
  CLUSTER|GETKEYSINSLOT CLUSTER|INFO CLUSTER|LINKS CLUSTER|NODES CLUSTER|REPLICAS CLUSTER|SHARDS
  CLUSTER|SLAVES CLUSTER|SLOTS DUMP HRANDFIELD HSCAN LASTSAVE MIGRATE
  OBJECT|ENCODING OBJECT|FREQ OBJECT|IDLETIME OBJECT|REFCOUNT PTTL SPOP SRANDMEMBER SSCAN TIME TTL
  XADD XAUTOCLAIM XCLAIM XINFO|CONSUMERS XPENDING XTRIM ZRANDMEMBER ZSCAN
request_policy:all_nodes nondeterministic_output: SLOWLOG|GET
request_policy:all_nodes response_policy:agg_sum nondeterministic_output: SLOWLOG|LEN
nondeterministic_output request_policy:all_nodes response_policy:special: LATENCY|DOCTOR
  LATENCY|GRAPH LATENCY|HISTOGRAM LATENCY|HISTORY LATENCY|LATEST
request_policy:all_shards nondeterministic_output: RANDOMKEY
nondeterministic_output request_policy:all_shards response_policy:special: FUNCTION|STATS INFO
  MEMORY|DOCTOR MEMORY|MALLOC-STATS MEMORY|STATS
nondeterministic_output request_policy:special: SCAN
nondeterministic_output_order: COMMAND COMMAND|DOCS COMMAND|INFO COMMAND|LIST FUNCTION|LIST HGETALL
  HKEYS HVALS MODULE|LIST SDIFF SINTER SMEMBERS SUNION
request_policy:all_shards nondeterministic_output_order: KEYS
request_policy:all_nodes response_policy:all_succeeded: CONFIG|SET LATENCY|RESET SCRIPT|FLUSH
  SCRIPT|LOAD SLOWLOG|RESET
request_policy:all_shards response_policy:agg_logical_and: SCRIPT|EXISTS
request_policy:all_shards response_policy:agg_min: WAIT
request_policy:all_shards response_policy:agg_sum: DBSIZE
request_policy:all_shards response_policy:all_succeeded: FLUSHALL FLUSHDB FUNCTION|DELETE
  FUNCTION|FLUSH FUNCTION|LOAD FUNCTION|RESTORE MEMORY|PURGE PING
request_policy:all_shards response_policy:one_succeeded: FUNCTION|KILL SCRIPT|KILL
request_policy:multi_shard: MGET
request_policy:multi_shard response_policy:agg_min: MSETNX
request_policy:multi_shard response_policy:agg_sum: DEL EXISTS TOUCH UNLINK
request_policy:multi_shard response_policy:all_succeeded: MSET
"""
# The commands, the index of the key spec, and the note on it.
_NOTES = """
BITFIELD 0 This command allows both access and modification of the key
EVAL FCALL 0 We cannot tell how the keys will be used so we assume the worst, RW and UPDATE
EVAL_RO FCALL_RO 0 We cannot tell how the keys will be used so we assume the worst, RO and ACCESS
GETEX 0 RW and UPDATE because it changes the TTL
PFCOUNT 0 RW because it may change the internal representation of the key, and propagate to replicas
SET 0 RW and ACCESS due to the optional `GET` argument
SORT SORT_RO 1 For the optional BY/GET keyword. It is marked 'unknown' because the key names derive
  from the content of the key we sort
SORT 2 For the optional STORE keyword. It is marked 'unknown' because the keyword can appear
  anywhere in the argument array
XADD 0 UPDATE instead of INSERT because of the optional trimming feature
"""
# The command, the version that deprecated it, and the replacement.
_DEPRECATED = """
BRPOPLPUSH 6.2.0 `BLMOVE` with the `RIGHT` and `LEFT` arguments
CLUSTER|SLAVES 5.0.0 `CLUSTER REPLICAS`
CLUSTER|SLOTS 7.0.0 `CLUSTER SHARDS`
GEORADIUS 6.2.0 `GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument
GEORADIUSBYMEMBER 6.2.0 `GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER`
  arguments
GEORADIUSBYMEMBER_RO 6.2.0 `GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments
GEORADIUS_RO 6.2.0 `GEOSEARCH` with the `BYRADIUS` argument
GETSET 6.2.0 `SET` with the `!GET` argument
HMSET 4.0.0 `HSET` with multiple field-value pairs
RPOPLPUSH 6.2.0 `LMOVE` with the `RIGHT` and `LEFT` arguments
SLAVEOF 5.0.0 `REPLICAOF`
SUBSTR 2.0.0 `GETRANGE`
ZRANGEBYLEX 6.2.0 `ZRANGE` with the `BYLEX` argument
ZRANGEBYSCORE 6.2.0 `ZRANGE` with the `BYSCORE` argument
ZREVRANGE 6.2.0 `ZRANGE` with the `REV` argument
ZREVRANGEBYLEX 6.2.0 `ZRANGE` with the `REV` and `BYLEX` arguments
ZREVRANGEBYSCORE 6.2.0 `ZRANGE` with the `REV` and `BYSCORE` arguments
"""


def _lines(text: str) -> list[str]:
    """Split a text into lines, joining indented lines with the ones before them."""
    return text.strip().replace("\n  ", " ").split("\n")


TIPS = {
    name.replace("|", " "): tuple(tips.encode().split())
    for tips, _, names in (line.partition(": ") for line in _lines(_TIPS))
    for name in names.split()
}
"""The tips of commands and subcommands, by name."""

NOTES = {
    (name, int(index)): note.encode()
    for names, index, note in (re.split(r" (\d) ", line, maxsplit=1) for line in _lines(_NOTES))
    for name in names.split()
}
"""Notes on the keys of commands, by command name and by the index of the key spec."""

DEPRECATED: dict[str, tuple[bytes, bytes]] = {
    name.replace("|", " "): (version.encode(), replacement.encode())
    for name, version, replacement in (line.split(" ", 2) for line in _lines(_DEPRECATED))
}
"""Maps each deprecated command to the version that deprecated it and to its replacement."""

INTERNAL = frozenset({"DEBUG", "PFDEBUG", "PFSELFTEST", "REPLCONF", "RESTORE-ASKING"})
"""Commands that are not meant for users."""
