"""Parsers for values of CONFIG parameters, which accept what Redis 7.0 accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from .. import errors
from .syntax import I64_MAX, I64_MIN, encoded, try_int

Parser: TypeAlias = Callable[[str, str], str]
"""Returns the value to store, given the value that a client sent and the current value.

Raises ``ValueError`` with the reason if the value is invalid. Only ``output_buffer_limits`` needs
the current value.
"""
I32_MIN, I32_MAX = -(2**31), 2**31 - 1
U64_MAX = 2**64 - 1


def text(value: str, before: str) -> str:
    return value


def yes_or_no(value: str, before: str) -> str:
    if value.lower() not in ("yes", "no"):
        raise ValueError(errors.CONFIG_NOT_BOOLEAN)
    return value.lower()


def choice(*words: str) -> Parser:
    """Return a parser of one of several words."""

    def parse(value: str, before: str) -> str:
        if value.lower() not in words:
            raise ValueError(f"argument(s) must be one of the following: {', '.join(words)}")
        return value.lower()

    return parse


# -- numbers -------------------------------------------------------------------------------------


def integer(low: int, high: int) -> Parser:
    """Return a parser of integers in a range."""

    def parse(value: str, before: str) -> str:
        number = try_int(encoded(value))
        if number is None:
            raise ValueError(errors.CONFIG_NOT_INTEGER)
        return str(_within(number, low, high))

    return parse


_any_frequency = integer(0, I32_MAX)


def frequency(value: str, before: str) -> str:
    """Parse ``hz``, which Redis changes to the nearest number from 1 to 500."""
    return str(min(max(int(_any_frequency(value, before)), 1), 500))


def memory(low: int, high: int) -> Parser:
    """Return a parser of amounts of memory in a range of bytes."""

    def parse(value: str, before: str) -> str:
        number = _memory_bytes(value)
        if number is None:
            raise ValueError(errors.CONFIG_NOT_MEMORY)
        return str(_within(number, low, high))

    return parse


def memory_share(value: str, before: str) -> str:
    """Parse an amount of memory, given in bytes or as a percentage of ``maxmemory``."""
    if value.endswith("%"):
        percent = try_int(encoded(value[:-1]))
        if percent is not None and percent > 100:
            raise ValueError(errors.CONFIG_PERCENT)
        if percent is not None and percent >= 0:
            return f"{percent}%" if percent else "0"
    number = _memory_bytes(value)
    if number is None:
        raise ValueError(errors.CONFIG_NOT_SHARE)
    return str(number)


_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 10**6, "mb": 2**20, "g": 10**9, "gb": 2**30}


def _memory_bytes(word: str) -> int | None:
    """Return the bytes of an amount such as ``64mb``, modulo 2**64, or None if it is invalid."""
    found = re.fullmatch(r"(\d{0,127})([a-z]*)", word.lower(), re.ASCII)
    if found is None or found[2] not in _UNITS:
        return None
    return min(int(found[1] or "0"), U64_MAX) * _UNITS[found[2]] & U64_MAX


def _within(number: int, low: int, high: int) -> int:
    if not low <= number <= high:
        raise ValueError(f"argument must be between {low} and {high} inclusive")
    return number


# -- lists of words ------------------------------------------------------------------------------


def _words(value: str) -> list[str]:
    return value.split(" ") if value else []


def _clamped_integer(word: str) -> int | None:
    """Parse an integer like ``strtoll``, clamping it to 64 bits; return None if it is invalid."""
    if re.fullmatch(r"[+-]?\d{1,100}", word, re.ASCII) is None:
        return None
    return min(max(int(word), I64_MIN), I64_MAX)


def save_points(value: str, before: str) -> str:
    """Parse ``save``: pairs of a number of seconds and a number of changes."""
    numbers = [_clamped_integer(word) for word in _words(value)]
    seconds, changes = numbers[::2], numbers[1::2]
    if (
        len(seconds) != len(changes)
        or any(number is None or number < 1 for number in seconds)
        or any(number is None or number < 0 for number in changes)
    ):
        raise ValueError(errors.CONFIG_SAVE)
    return " ".join(map(str, numbers))


_CLIENT_CLASSES = {"normal": 0, "slave": 1, "replica": 1, "pubsub": 2}
"""The positions of client classes in the value of ``client-output-buffer-limit``."""


def output_buffer_limits(value: str, before: str) -> str:
    """Replace the limits of the named client classes, and keep the others.

    A class has four words: its name, the hard limit, the soft limit, and a number of seconds.
    """
    words = _words(value)
    if len(words) % 4:
        raise ValueError(errors.CONFIG_LIMIT_COUNT)
    limits = before.split(" ")
    for at in range(0, len(words), 4):
        position = _CLIENT_CLASSES.get(words[at].lower())
        if position is None:
            raise ValueError(errors.CONFIG_LIMIT_CLASS)
        hard, soft = _memory_bytes(words[at + 1]), _memory_bytes(words[at + 2])
        seconds = _clamped_integer(words[at + 3])
        if hard is None or soft is None or seconds is None or not 0 <= seconds < I64_MAX:
            raise ValueError(errors.CONFIG_LIMIT_NUMBER)
        limits[4 * position + 1 : 4 * position + 4] = map(str, (hard, soft, seconds))
    return " ".join(limits)


def percentiles(value: str, before: str) -> str:
    """Parse ``latency-tracking-info-percentiles``: numbers from 0 to 100."""
    return " ".join(map(_percentile, _words(value)))


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


def oom_scores(value: str, before: str) -> str:
    """Parse ``oom-score-adj-values``: three numbers for the kernel's out-of-memory killer."""
    words = _words(value)
    if len(words) != 3:
        raise ValueError(errors.CONFIG_OOM_COUNT)
    numbers = [_clamped_integer(word) for word in words]
    if any(number is None or not -2000 <= number <= 2000 for number in numbers):
        raise ValueError(errors.CONFIG_OOM_NUMBER)
    return " ".join(map(str, numbers))


# -- event classes -------------------------------------------------------------------------------

_ALL_EVENTS = "g$lshzxetd"


def event_classes(value: str, before: str) -> str:
    """Return the letters of event classes in the order of Redis, with ``A`` for all of them."""
    if not set(value) <= set("A" + _ALL_EVENTS + "KEmn"):
        raise ValueError(errors.CONFIG_EVENTS)
    chosen = set(value.replace("A", _ALL_EVENTS))
    first = "A" if chosen >= set(_ALL_EVENTS) else _ALL_EVENTS
    return "".join(letter for letter in first + "nKEm" if letter == "A" or letter in chosen)
