"""The command tips, notes on key positions and deprecations that COMMAND reports.

The data are from the output of Redis 7.0 (``COMMAND INFO`` and ``COMMAND DOCS``). Tips help a proxy
or a cluster client decide to which nodes it sends a command, and how it combines the replies.
Commands that are not listed have no tips.
"""

from __future__ import annotations

import re

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
