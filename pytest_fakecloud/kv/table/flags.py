"""The column *flags* of the table of commands."""

from __future__ import annotations

from functools import cache

from .groups import GROUPS

CATEGORIES = (
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap",
    "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous",
    "connection", "transaction", "scripting",
)  # fmt: skip
"""The ACL categories of commands in the order of ACL CAT, without the ``@`` sign."""
COMMAND_FLAGS = (
    "write", "readonly", "denyoom", "fast", "blocking", "admin", "pubsub", "noscript", "loading",
    "stale", "no_auth", "no_multi", "no_async_loading", "no_mandatory_keys", "allow_busy", "asking",
    "skip_monitor", "skip_slowlog", "module",
)  # fmt: skip
"""The flags of commands in ``COMMAND INFO``."""


@cache  # Many rows have the same flags.
def parse(text: str, group: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the flags in a column, and the ACL categories that follow from it and from the group; raise
    ``ValueError`` for a wrong word.
    """
    words = text.split()
    for word in words:
        _, at, category = word.removeprefix("-").partition("@")
        if at and category not in CATEGORIES:
            raise ValueError(
                f"{word!r} is not an ACL category; use one of @{', @'.join(CATEGORIES)}"
            )
        if not at and word not in COMMAND_FLAGS:
            raise ValueError(f"{word!r} is not a flag; use one of {', '.join(COMMAND_FLAGS)}")
    flags = frozenset(word for word in words if "@" not in word)
    categories = {"@fast" if "fast" in flags else "@slow"}
    categories.update("@" + flag for flag in flags & {"write", "admin", "pubsub", "blocking"})
    if "admin" in flags:
        categories.add("@dangerous")
    if "readonly" in flags:
        categories.add("@read")
    categories.update(filter(None, [GROUPS[group].category]))
    categories.update(word for word in words if word.startswith("@"))
    categories.difference_update(word[1:] for word in words if word.startswith("-@"))
    return flags, frozenset(categories)
