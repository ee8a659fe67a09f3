"""Values of CONFIG: amounts of memory, and parameters of several words as a server shows them.

All as Redis 7.0 answers; words are parted by one space each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from ..errors import (
    CONFIG_LIMIT_CLASS,
    CONFIG_LIMIT_COUNT,
    CONFIG_LIMIT_NUMBER,
    CONFIG_OOM_COUNT,
    CONFIG_OOM_NUMBER,
    CONFIG_PERCENTILE,
    CONFIG_PERCENTILE_RANGE,
    CONFIG_SAVE,
)

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 10**6, "mb": 2**20, "g": 10**9, "gb": 2**30}
_HIGHEST = 2**64 - 1
_CLASSES = {"normal": 0, "slave": 1, "replica": 1, "pubsub": 2}


def memory_bytes(text: str) -> int | None:
    """The bytes that ``64mb`` and the like stand for, or None; as servers count, with 64 bits."""
    found = re.fullmatch(r"(\d{0,127})([a-z]*)", text.lower(), re.ASCII)
    if found is None or found[2] not in _UNITS:
        return None
    return min(int(found[1] or "0"), _HIGHEST) * _UNITS[found[2]] & _HIGHEST


def _integer(word: str) -> int | None:
    """A number as ``strtoll`` reads it, or None: beyond 64 bits it is the last one."""
    if re.fullmatch(r"[+-]?\d{1,100}", word, re.ASCII) is None:
        return None
    return min(max(int(word), -(2**63)), 2**63 - 1)


def _save(words: list[str], before: str) -> str:
    """Seconds and changes, in pairs."""
    numbers = [_integer(word) for word in words]
    seconds, changes = numbers[::2], numbers[1::2]
    if (
        len(seconds) != len(changes)
        or any(number is None or number < 1 for number in seconds)
        or any(number is None or number < 0 for number in changes)
    ):
        raise ValueError(CONFIG_SAVE)
    return " ".join(map(str, numbers))


def _limits(words: list[str], before: str) -> str:
    """Hard limit, soft limit and seconds of the classes of clients that are named; others stay."""
    if len(words) % 4:
        raise ValueError(CONFIG_LIMIT_COUNT)
    limits = before.split(" ")
    for at in range(0, len(words), 4):
        place = _CLASSES.get(words[at].lower())
        if place is None:
            raise ValueError(CONFIG_LIMIT_CLASS)
        hard, soft = memory_bytes(words[at + 1]), memory_bytes(words[at + 2])
        seconds = _integer(words[at + 3])
        if hard is None or soft is None or seconds is None or not 0 <= seconds < 2**63 - 1:
            raise ValueError(CONFIG_LIMIT_NUMBER)
        limits[4 * place + 1 : 4 * place + 4] = map(str, (hard, soft, seconds))
    return " ".join(limits)


def _percentiles(words: list[str], before: str) -> str:
    """Shares of a hundred, shown with six places at most."""
    return " ".join(map(_percentile, words))


def _percentile(word: str) -> str:
    try:
        number = float("x" if "_" in word or word != word.strip() else word)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError(CONFIG_PERCENTILE)
    if not 0 <= number <= 100:
        raise ValueError(CONFIG_PERCENTILE_RANGE)
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _scores(words: list[str], before: str) -> str:
    """Three scores for the system that looks for processes to end."""
    if len(words) != 3:
        raise ValueError(CONFIG_OOM_COUNT)
    numbers = [_integer(word) for word in words]
    if any(number is None or not -2000 <= number <= 2000 for number in numbers):
        raise ValueError(CONFIG_OOM_NUMBER)
    return " ".join(map(str, numbers))


SEVERAL_WORDS: dict[str, Callable[[list[str], str], str]] = {
    "save": _save,
    "limits": _limits,
    "percentiles": _percentiles,
    "scores": _scores,
}
"""By the kind of a parameter: makes its words and its text so far its text, or raises ValueError."""
