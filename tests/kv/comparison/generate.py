"""Random command lines from templates, some of them deliberately invalid."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from .templates import TEMPLATES
from .values import JUNK, Values

BROKEN = 0.15
"""The share of lines with a wrong, an additional or a missing argument."""

_TOKEN = re.compile(r"\[|\]|<[a-z]+>\+?|\([^)]*\)|[^\s\[\]]+")


class Generator:
    """An endless supply of (group, command line) pairs from one seed."""

    def __init__(
        self, seed: int, groups: tuple[str, ...] = tuple(TEMPLATES), broken: float = BROKEN
    ) -> None:
        self.rng = random.Random(seed)
        self.broken = broken
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
