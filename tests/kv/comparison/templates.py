"""Templates for random command lines, at least one for every command of the data groups.

A template consists of words: literals, `<name>` for a value of `values.Values.name`, `<name>+` for
one to four of them, `[...]` for an optional part, `(a|b|c)` for one of several words. `2*[...]`
makes an optional part likely.
"""

from __future__ import annotations

from pathlib import Path

from ...harness import sections

TEMPLATES = sections(Path(__file__).with_name("templates.txt"))

NOT_COMPARED = {
    "they may wait": "BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN",
    "neither Redis 7.0 nor Valkey has them": "DELEX DIGEST XACKDEL XDELEX",
    "`tests/kv/rdb` compares them": "DUMP RESTORE",
    "`test_self_description.py` compares their help": "OBJECT|HELP XGROUP|HELP XINFO|HELP",
    "the reply depends on real time": "OBJECT|IDLETIME",
    "they are about servers, not about data": "MIGRATE WAIT WAITAOF PFSELFTEST",
}
"""Reasons why commands of these groups have no template, with the commands."""

RANDOM = frozenset({"SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"})
"""Commands with random replies, compared by invariants."""

UNORDERED = frozenset(
    {"SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS", "SCAN", "SSCAN", "HSCAN",
     "ZSCAN", "HGETALL"}
)  # fmt: skip
"""Commands whose reply is a multiset (of pairs, for those with fields or scores)."""
