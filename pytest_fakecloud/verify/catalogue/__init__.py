"""The scenarios, one module per service: their steps, and the ways to compare the replies."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

COMPARISONS: Mapping[str, str] = {
    "exact": "value by value",
    "sorted": "in any order",
    "pairs": "as pairs in any order",
    "scan": "the page of a scan, in any order",
    "scan-pairs": "the page of a scan, as pairs in any order",
    "near": "numbers that differ by at most a minute, because time passes between the two requests",
    "idle": "idle times by type",
    "shape": "by type, because the value is random or depends on the clock",
    "rest": "value by value, and only over REST",
}
"""The ways to compare two replies. Each value describes the way in a report."""

_KEY = re.compile(r"@(\w+)")


@dataclass(frozen=True)
class Step:
    """A request, and the way to compare the replies to it.

    In ``path``, ``body``, ``json`` and ``headers``, ``{p}`` is replaced by the prefix of the run
    and ``{name}`` by a value that an earlier step stored.
    """

    method: str
    path: str
    json: Any = None
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    token: str | None = "right"
    """The credentials to send: ``"right"``, ``"wrong"``, or None for no credentials."""
    compare: str = "exact"
    """The way to compare the replies: a key of ``COMPARISONS``."""
    loose: frozenset[str] = frozenset()
    """Names of JSON members, at any depth of a reply, that are compared only by type."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Paths of values in the reply to store for later steps, by name (``"0.messageId"``)."""
    settle: bool = False
    """Whether to wait until a vector index has processed the write."""

    @property
    def subject(self) -> str:
        """The command, or the method and path, of the step."""
        if isinstance(self.json, list) and self.json and isinstance(self.json[0], str):
            return self.json[0].upper()
        return f"{self.method} {self.path.partition('?')[0]}"

    def __str__(self) -> str:
        if self.path == "/" and isinstance(self.json, list):
            return shlex.join(str(word) for word in self.json)
        sent = self.body if self.body is not None else ("" if self.json is None else self.json)
        settings = "".join(f" {name}: {value}" for name, value in self.headers.items())
        return " ".join(f"{self.method} {self.path}{settings} {sent}".split())


@dataclass(frozen=True)
class Scenario:
    """A sequence of steps that needs no data before it and leaves none behind."""

    service: str
    title: str
    steps: tuple[Step, ...]
    cleanup: tuple[Step, ...] = ()
    """Steps that delete the data of the other steps; their replies are not compared."""


def scenario(
    service: str, title: str, *steps: Step, cleanup: Iterable[Step] = (), keys: Iterable[str] = ()
) -> Scenario:
    """Return a scenario that also deletes ``keys`` afterwards (only of the key-value service)."""
    names = [f"{{p}}{key}" for key in keys]
    away = [Step("POST", "/", json=["DEL", *names])] if names else []
    return Scenario(service, title, steps, (*cleanup, *away))


def read_lines(text: str) -> Iterator[Scenario]:
    """Parse scenarios of the key-value service: ``## title``, then one command per line."""
    for block in text.split("## ")[1:]:
        title, *lines = block.strip().splitlines()
        keys = dict.fromkeys(_KEY.findall("\n".join(lines)))
        yield scenario("kv", title, *map(_step, lines), keys=keys)


def _step(line: str) -> Step:
    text, _, comparison = line.partition(" ~")
    words = [_KEY.sub(r"{p}\1", word) for word in shlex.split(text)]
    return Step("POST", "/", json=words, compare=comparison or "exact")
