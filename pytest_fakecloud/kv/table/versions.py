"""Additions after Redis 7.0, with their versions.

The versions of commands are in the column *since* of ``commands.txt``. This module has the versions of
option words, arities, flags and behaviours. A stock server has everything up to the version that it
announces, and the vendor's service has everything. Versions are those of Redis. Additions that only
Valkey has are listed with Valkey's versions, which continue after 7.2.
"""

from __future__ import annotations

VENDOR = "vendor"
"""Used instead of a version for option words that no stock server has."""

EARLY_CONSUMERS = "consumers are created before they receive an entry"
ALL_KEYS_AGAIN = "blocked commands are retried with all their keys, not with the ready one"
ESTIMATED_COUNTERS = "the counter of groups before the first entry is estimated"
MESSAGES_FOLLOW = "messages that a transaction sends to its own client follow its reply"
SHORTEST_DOUBLES = "doubles are printed with the fewest digits"

_ADDITIONS = {
    "7.2.0": (
        "CLIENT LIST lib-name", "TIME is constant in scripts and transactions",
        "CONFIG set-max-listpack-entries", "CONFIG set-max-listpack-value",
        "LPOS rejects the lowest rank", "XINFO CONSUMERS inactive",
        "XSETID checks the highest deleted id", "ZRANK WITHSCORE", "ZREVRANK WITHSCORE",
        "`os.clock` in scripts", ALL_KEYS_AGAIN, "deleted groups are reported with the usual error",
        "lists and sets are listpacks", "timeouts that overflow are out of range",
        "SCAN TYPE reads no keys",
        EARLY_CONSUMERS, ESTIMATED_COUNTERS, MESSAGES_FOLLOW, SHORTEST_DOUBLES,
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
