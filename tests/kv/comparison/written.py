"""Command lines that are not random: scenarios, scripts, and every wrong type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from tests.kv.comparison.templates import Generator
from tests.kv.scenarios import FOLDER, scenarios
from tests.kv.scripting import cases

from .templates import RANDOM, TEMPLATES
from .values import KINDS

_FILLED = """\
SET string text
RPUSH list a b
SADD set a b
ZADD zset 1 a 2 b
HSET hash f1 a f2 b
XADD stream 1-1 a b
PFADD hyperloglog a
GEOADD geo 1 1 Rome
SET number 5"""
_KEY = re.compile(rf"(?:{'|'.join(KINDS)})[0-2]".encode())


def _split(lines: str) -> list[list[bytes]]:
    return [[word.encode() for word in shlex.split(line)] for line in lines.splitlines()]


def hand_written() -> Iterator[tuple[str, list[list[bytes]]]]:
    """Yield the lines of each scenario with the name of its group."""
    for file in sorted(FOLDER.glob("*.txt")):
        for _, scenario in scenarios(file.stem).values():
            yield file.stem.partition("-")[0], _split("\n".join(line for line, _ in scenario))


SCRIPTS = ("bit", "cjson", "cmsgpack", "conversion", "errors", "functions", "patterns", "struct")


def scripts() -> Iterator[tuple[str, list[list[bytes]]]]:
    """Yield the scripts of each library of Lua with their arguments."""
    for name in SCRIPTS:
        written = [[script, "0", *words] for script, *words in getattr(cases, name.upper())]
        lines = [[b"EVAL", *(word.encode() for word in line)] for line in written]
        yield f"scripts: {name}", [[b"SET", b"s", b"abc"], *lines]


def systematic() -> Iterator[tuple[str, list[list[bytes]]]]:
    """Yield templates on keys of every type, and commands with too few and too many words.

    A line uses one of the keys only, so no line changes what the next one finds.
    """
    filling = _split(_FILLED)
    generator = Generator(0, broken=0)
    for group, templates in TEMPLATES.items():
        for template in templates:
            lines = []
            for key in [line[1] for line in filling] + [b"missing"]:
                line = generator.line(template)
                if line[0].upper().decode() not in RANDOM:
                    lines.append([key if _KEY.fullmatch(word) else word for word in line])
            yield group, [*filling, *lines]
        for name in sorted({template.split()[0] for template in templates}):
            # Servers report too many words before anything else.
            lines = [[name.encode(), *[b"x"] * count] for count in (0, 1, 2, 3, 4, 9)]
            if name not in RANDOM:
                yield group, lines
