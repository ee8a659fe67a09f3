"""Parses CONFIG values that are amounts of memory or several words, like Redis 7.0."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress

from .. import errors

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 10**6, "mb": 2**20, "g": 10**9, "gb": 2**30}
_HIGHEST = 2**64 - 1
_CLASSES = {"normal": 0, "slave": 1, "replica": 1, "pubsub": 2}


def memory_bytes(text: str) -> int | None:
    """Return the bytes of an amount such as ``64mb``, modulo 2**64, or None if it is invalid."""
    found = re.fullmatch(r"(\d{0,127})([a-z]*)", text.lower(), re.ASCII)
    if found is None or found[2] not in _UNITS:
        return None
    return min(int(found[1] or "0"), _HIGHEST) * _UNITS[found[2]] & _HIGHEST


def _integer(word: str) -> int | None:
    """Parse an integer like ``strtoll``, clamping it to 64 bits; return None if it is invalid."""
    if re.fullmatch(r"[+-]?\d{1,100}", word, re.ASCII) is None:
        return None
    return min(max(int(word), -(2**63)), 2**63 - 1)


def _save(words: list[str], before: str) -> str:
    numbers = [_integer(word) for word in words]
    seconds, changes = numbers[::2], numbers[1::2]
    if (
        len(seconds) != len(changes)
        or any(number is None or number < 1 for number in seconds)
        or any(number is None or number < 0 for number in changes)
    ):
        raise ValueError(errors.CONFIG_SAVE)
    return " ".join(map(str, numbers))


def _limits(words: list[str], before: str) -> str:
    """Replace the limits (hard, soft, seconds) of the named client classes, and keep the others."""
    if len(words) % 4:
        raise ValueError(errors.CONFIG_LIMIT_COUNT)
    limits = before.split(" ")
    for at in range(0, len(words), 4):
        place = _CLASSES.get(words[at].lower())
        if place is None:
            raise ValueError(errors.CONFIG_LIMIT_CLASS)
        hard, soft = memory_bytes(words[at + 1]), memory_bytes(words[at + 2])
        seconds = _integer(words[at + 3])
        if hard is None or soft is None or seconds is None or not 0 <= seconds < 2**63 - 1:
            raise ValueError(errors.CONFIG_LIMIT_NUMBER)
        limits[4 * place + 1 : 4 * place + 4] = map(str, (hard, soft, seconds))
    return " ".join(limits)


def _percentiles(words: list[str], before: str) -> str:
    return " ".join(map(_percentile, words))


def _percentile(word: str) -> str:
    number = math.nan
    if word.isascii() and "_" not in word and word == word.strip():
        with suppress(ValueError):
            number = float(word)
    if math.isnan(number):
        raise ValueError(errors.CONFIG_PERCENTILE)
    if not 0 <= number <= 100:
        raise ValueError(errors.CONFIG_PERCENTILE_RANGE)
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _scores(words: list[str], before: str) -> str:
    """Parse ``oom-score-adj-values``: three numbers for the kernel's out-of-memory killer."""
    if len(words) != 3:
        raise ValueError(errors.CONFIG_OOM_COUNT)
    numbers = [_integer(word) for word in words]
    if any(number is None or not -2000 <= number <= 2000 for number in numbers):
        raise ValueError(errors.CONFIG_OOM_NUMBER)
    return " ".join(map(str, numbers))


SEVERAL_WORDS: dict[str, Callable[[list[str], str], str]] = {
    "save": _save,
    "limits": _limits,
    "percentiles": _percentiles,
    "scores": _scores,
}
"""Parsers of parameters with several words, given the words and the current value."""
