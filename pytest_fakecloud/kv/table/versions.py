"""Additions after Redis 7.0, with their versions.

The versions of commands are in the column *since* of ``commands.txt``. This module has the versions of
option words, flags and behaviours. A stock server has everything up to the version that it
announces, and the vendor's service has everything but what only stock servers have. Versions are those
of Redis. Additions that only Valkey has are listed with Valkey's versions, which continue after 7.2.
"""

from __future__ import annotations

VENDOR = "vendor"
"""Used instead of a version for option words that no stock server has."""

ANY_OF_SEVERAL = "JSON filters match if one of several values does"
EARLY_CONSUMERS = "consumers are created before they receive an entry"
ALL_KEYS_AGAIN = "blocked commands are retried with all their keys, not with the ready one"
ESTIMATED_COUNTERS = "the counter of groups before the first entry is estimated"
MESSAGES_FOLLOW = "messages that a transaction sends to its own client follow its reply"
NO_EMPTY_DOCUMENTS = "JSON.DEL and JSON.FORGET remove keys with their last member"
SHORTEST_DOUBLES = "doubles are printed with the fewest digits"

LATER_OPTIONS = {
    "ZRANK WITHSCORE": "7.2.0", "ZREVRANK WITHSCORE": "7.2.0",
    "CLIENT KILL MAXAGE": "7.4.0", "HSCAN NOVALUES": "7.4.0",
    "BITOP ANDOR": "8.2.0", "BITOP DIFF": "8.2.0", "BITOP DIFF1": "8.2.0", "BITOP ONE": "8.2.0",
    "XADD ACKED": "8.2.0", "XADD DELREF": "8.2.0", "XADD KEEPREF": "8.2.0",
    "XTRIM ACKED": "8.2.0", "XTRIM DELREF": "8.2.0", "XTRIM KEEPREF": "8.2.0",
    "SET IFDEQ": "8.4.0", "SET IFDNE": "8.4.0", "SET IFEQ": "8.4.0", "SET IFNE": "8.4.0",
    "VSIM WITHATTRIBS": "8.0.3", "VSIM EPSILON": "8.0.4",
    "XREADGROUP CLAIM": "8.4.0",
    "XADD IDMP": "8.6.0", "XADD IDMPAUTO": "8.6.0",
    "ZINTER COUNT": "8.8.0", "ZINTERSTORE COUNT": "8.8.0",
    "ZUNION COUNT": "8.8.0", "ZUNIONSTORE COUNT": "8.8.0", "JSON.SET FPHA": "8.8.0",
    "SCAN WITHTYPE": VENDOR,
}  # fmt: skip
"""The first version that has an option word, which came later than its command."""

IDEMPOTENT_PRODUCERS = "XINFO STREAM reports idempotent producers"
FILTERS_WITH_IN = "FILTER of VSIM has the operator `in`"
FIELD_EVENTS = "notifications name the changed fields of hashes"
LEAST_RECENTLY_MODIFIED = "eviction policies for the least recently modified keys"
RELEASED_ENTRIES = "XINFO STREAM FULL counts entries that consumers have released"
ENTRIES_READ_BELOW_ADDED = "the entries read by a group are limited to those added"

ONLY_STOCK = frozenset({
    ENTRIES_READ_BELOW_ADDED, FIELD_EVENTS, FILTERS_WITH_IN, IDEMPOTENT_PRODUCERS,
    LEAST_RECENTLY_MODIFIED, RELEASED_ENTRIES,
    "VSIM WITHATTRIBS", "VSIM EPSILON",
    "XREADGROUP CLAIM", "XADD IDMP", "XADD IDMPAUTO", "ZINTER COUNT", "ZINTERSTORE COUNT",
    "ZUNION COUNT", "ZUNIONSTORE COUNT", "JSON.SET FPHA",
})  # fmt: skip
"""The option words and behaviours that stock servers of a version have, and the vendor does not."""

LATER_PARAMETERS = {
    "set-max-listpack-entries": "7.2.0", "set-max-listpack-value": "7.2.0",
}  # fmt: skip
"""The first version that has a parameter of CONFIG."""

LATER_BEHAVIOURS = {
    "CLIENT LIST lib-name": "7.2.0",
    "LPOS rejects the lowest rank": "7.2.0",
    "SCAN TYPE reads no keys": "7.2.0",
    "TIME is constant in scripts and transactions": "7.2.0",
    "XINFO CONSUMERS inactive": "7.2.0",
    "XSETID checks the highest deleted id": "7.2.0",
    "`os.clock` in scripts": "7.2.0",
    "deleted groups are reported with the usual error": "7.2.0",
    "lists and sets are listpacks": "7.2.0",
    "timeouts that overflow are out of range": "7.2.0",
    ALL_KEYS_AGAIN: "7.2.0",
    ANY_OF_SEVERAL: "8.8.0",
    EARLY_CONSUMERS: "7.2.0",
    ENTRIES_READ_BELOW_ADDED: "8.2.2",
    ESTIMATED_COUNTERS: "7.2.0",
    FIELD_EVENTS: "8.8.0",
    FILTERS_WITH_IN: "8.2.0",
    IDEMPOTENT_PRODUCERS: "8.6.0",
    LEAST_RECENTLY_MODIFIED: "8.6.0",
    MESSAGES_FOLLOW: "7.2.0",
    NO_EMPTY_DOCUMENTS: "8.0.0",
    RELEASED_ENTRIES: "8.8.0",
    SHORTEST_DOUBLES: "7.2.0",
    "the API of scripts as `server`": "7.2.5",
    "XREAD +": "7.4.0",
}
"""The first version that has a behaviour, for which functions ask with ``Table.knows``."""

EARLIER = {"WAIT": ("7.2.0", "noscript @connection -@keyspace", "time")}
"""For some commands, the version that has their rows, and the flags and effects in earlier ones."""

MODULES: dict[str, str] = {"ReJSON": "json"}
"""Maps modules to the group of commands that a stock server has only if the module is loaded."""
BUILT_IN_MODULE = "vectorset"
"""The module that stock servers have loaded from 8.0 on, with the commands of vector sets."""
MODULE_VERSIONS = {"ReJSON": 20000, BUILT_IN_MODULE: 1}
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
