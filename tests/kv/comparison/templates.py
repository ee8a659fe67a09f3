"""Random command lines from templates, some of them deliberately invalid.

A template consists of words: literals, `<name>` for a value of `values.Values.name`, `<name>+` for
one to four of them, `[...]` for an optional part, `(a|b|c)` for one of several words. `2*[...]`
makes an optional part likely.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

from tests.kv.comparison.values import JUNK, Values
from tests.notations import sections

TEMPLATES_FILE = Path(__file__).with_name("templates.txt")
TEMPLATES = sections(TEMPLATES_FILE)
"""Templates by the group of commands among whose lines they are."""

NOT_COMPARED = {
    "they may wait": "BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN",
    "`tests/kv/rdb` compares them": "DUMP RESTORE",
    "`test_self_description.py` compares their help": "OBJECT|HELP XGROUP|HELP XINFO|HELP",
    "the reply depends on real time": "OBJECT|IDLETIME",
    "they are about servers, not about data": "MIGRATE WAIT WAITAOF PFSELFTEST",
}
"""Reasons why commands of these groups have no template, with the commands.

Commands that no real server here has (`WITHOUT_SERVER`) also have none.
"""

RANDOM = frozenset({"SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"})
"""Commands with random replies, compared by invariants."""

UNORDERED = frozenset(
    {"SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS", "SCAN", "SSCAN", "HSCAN",
     "ZSCAN", "HGETALL"}
)  # fmt: skip
"""Commands whose reply is a multiset (of pairs, for those with fields or scores)."""


BROKEN = 0.15
"""The share of lines with a wrong, an additional or a missing argument."""

_TOKEN = re.compile(r"\[|\]|<[a-z]+>\+?|\([^)]*\)|[^\s\[\]]+")


class Generator:
    """An endless supply of (group, command line) pairs from one seed.

    ``broken`` is the share of lines that contain mistakes, and ``mistakes`` their number per line.
    """

    def __init__(
        self,
        seed: int,
        groups: tuple[str, ...] = tuple(TEMPLATES),
        broken: float = BROKEN,
        mistakes: int = 1,
    ) -> None:
        self.rng = random.Random(seed)
        self.broken = broken
        self.mistakes = mistakes
        self.values = Values(self.rng)
        self.groups = groups

    def lines(self, group: str, count: int) -> Iterator[list[bytes]]:
        """Yield a number of command lines of a group."""
        self.values.last_ms = 0
        for _ in range(count):
            yield self.line(self.rng.choice(TEMPLATES[group]))

    def line(self, template: str) -> list[bytes]:
        """Return one command line for a template."""
        tokens = _TOKEN.findall(template)
        words, _ = self._expand(tokens, 0, True)
        if self.rng.random() < self.broken:
            for _ in range(self.mistakes):
                words = self._break(words)
        if self.rng.random() < 0.1:
            words[0] = words[0].lower()
        return words

    def _expand(self, tokens: list[str], at: int, wanted: bool) -> tuple[list[bytes], int]:
        words: list[bytes] = []
        while at < len(tokens):
            token = tokens[at]
            at += 1
            if token == "]":
                break
            if token == "[":
                inner, at = self._expand(tokens, at, self.rng.random() < 0.4)
                words += inner
            elif token.startswith("<"):
                times = self.rng.choice((1, 1, 2, 3, 4)) if token.endswith("+") else 1
                for _ in range(times):
                    words += self.values.make(token.rstrip("+")[1:-1])
            elif token.startswith("(") and token.endswith(")"):
                words.append(self.rng.choice(token[1:-1].split("|")).encode())
            else:
                words.append(token.encode())
        return (words if wanted else []), at

    def _break(self, words: list[bytes]) -> list[bytes]:
        how = self.rng.randrange(4)
        if how == 0 and len(words) > 1:
            return words[: self.rng.randrange(1, len(words))]
        if how == 1:
            return [*words, self.rng.choice(JUNK)]
        if len(words) > 1:
            at = self.rng.randrange(1, len(words))
            if how == 2:
                return [*words[:at], self.rng.choice(JUNK), *words[at + 1 :]]
            return [*words[:at], words[at], *words[at:]]
        return words
