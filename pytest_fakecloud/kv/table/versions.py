"""What servers learned after Redis 7.0, and with which version: the only place that says so.

Commands tell it themselves, in the column *since* of ``rows.py``; here are option words, arities and
ways to answer. A stock server knows what came up to the version it announces, and the vendor's knows
all. Versions are those of Redis; what only Valkey has counts Valkey's, which go on where 7.2 ends.
"""

from __future__ import annotations

VENDOR = "vendor"
"""Instead of a version: what no stock server has."""
OWN = ("ACL GENTOKEN", "ACL RESTTOKEN", "SEARCH.")
"""How the names of commands begin that no stock server has."""

VALKEYS = (
    *("CLIENT CAPA", "CLIENT IMPORT-SOURCE", "DELIFEQ", "SCRIPT SHOW"),
    "the API of scripts as `server`",
)
"""What Redis of no version has."""

LATER: dict[str, str] = {
    # -- option words: the command and the word --------------------------------------------------
    "BITOP ANDOR": "8.2.0",
    "BITOP DIFF": "8.2.0",
    "BITOP DIFF1": "8.2.0",
    "BITOP ONE": "8.2.0",
    "HSCAN NOVALUES": "7.4.0",
    "SCAN WITHTYPE": VENDOR,
    "SET IFDEQ": "8.4.0",
    "SET IFDNE": "8.4.0",
    "SET IFEQ": "8.4.0",
    "SET IFNE": "8.4.0",
    "XADD ACKED": "8.2.0",
    "XADD DELREF": "8.2.0",
    "XADD KEEPREF": "8.2.0",
    "XTRIM ACKED": "8.2.0",
    "XTRIM DELREF": "8.2.0",
    "XREAD +": "7.4.0",
    "XTRIM KEEPREF": "8.2.0",
    "ZRANK WITHSCORE": "7.2.0",
    "ZREVRANK WITHSCORE": "7.2.0",
    # -- fields and parameters -------------------------------------------------------------------
    "CLIENT LIST lib-name": "7.2.0",
    "CONFIG set-max-listpack-entries": "7.2.0",
    "CONFIG set-max-listpack-value": "7.2.0",
    "XINFO CONSUMERS inactive": "7.2.0",
    # -- ways to answer --------------------------------------------------------------------------
    "consumers are there before they get anything": "7.2.0",
    "groups that went are missed in the usual words": "7.2.0",
    "groups before the first entry are counted anew": "7.2.0",
    "lists and sets are listpacks": "7.2.0",
    "doubles of as few digits as it takes": "7.2.0",
    "LPOS refuses the least rank": "7.2.0",
    "the API of scripts as `server`": "7.2.5",
    "`os.clock` in scripts": "7.2.0",
    "timeouts that overflow are out of range": "7.2.0",
    "XSETID looks at what was deleted": "7.2.0",
}
"""The first version of each."""

ARITIES: dict[str, int] = {"ZRANK": 3, "ZREVRANK": 3}
"""The arities commands had as long as they had none of their later words."""

MODULES: dict[str, str] = {"ReJSON": "json"}
"""The groups that a stock server has by loading a module, whatever its version, by module name."""

_RDB_VERSIONS = (("7.4", 12), ("7.2", 11), ("0", 10))


def as_numbers(version: str) -> tuple[int, ...]:
    """A version, to be compared: ``"7.0.15"`` is ``(7, 0, 15)``."""
    return tuple(map(int, version.split(".")))


def rdb_version(version: str) -> int:
    """Return the version of the RDB format that a server of some version writes and reads up to."""
    return next(
        number for since, number in _RDB_VERSIONS if as_numbers(version) >= as_numbers(since)
    )


def is_later(since: str, version: str) -> bool:
    """Whether something of a version is unknown to a stock server of another."""
    return since == VENDOR or as_numbers(since) > as_numbers(version)
