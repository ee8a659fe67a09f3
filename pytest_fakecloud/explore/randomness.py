"""The random numbers of explored code, which depend on the seed and the schedule alone.

Each series of numbers has a number, which a schedule contains as ``@random.7 numbers``. A series
covers ``random``, ``random.Random()``, ``random.SystemRandom``, ``secrets``, ``uuid4()``,
``os.urandom()``, and numpy's default and global generators.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from .simulation.strands import Strand


class Randomness:
    """Seeds the generators of this process before each run, and notices whether code draws numbers."""

    def __init__(self, seed: object, cooperating: Callable[[], Strand | None]) -> None:
        self._seed = seed
        self._series = 0
        self._cooperating = cooperating
        self._found = random.getstate()
        self._numpy = sys.modules.get("numpy.random")
        self._found_numpy = None if self._numpy is None else self._numpy.get_state()
        self._began: object = None
        self._has_drawn = False

    def begin(self, series: int) -> None:
        self._series = series
        source = f"{self._seed} {series}"
        random.seed(source)
        if self._numpy is not None:
            self._numpy.seed(random.Random(source).randrange(2**32))

    def mark(self) -> None:
        self._has_drawn = False
        self._began = self._state()

    def has_drawn(self) -> bool:
        """Return whether code has drawn numbers since ``mark()``; random bytes do not count."""
        return self._has_drawn or self._state() != self._began

    def restore(self) -> None:
        random.setstate(self._found)
        if self._numpy is not None:
            self._numpy.set_state(self._found_numpy)

    def _state(self) -> object:
        if self._numpy is None:
            return random.getstate()
        _, key, position, *rest = self._numpy.get_state()
        return random.getstate(), int(key[0]), position, *rest

    def patches(self) -> Iterator[tuple[object, str, object]]:
        """Yield the functions that explored code calls instead, as owner, name and value."""
        real_urandom, real_seed = os.urandom, random.Random.seed

        def urandom(size: int, /) -> bytes:
            strand = self._cooperating()
            return real_urandom(size) if strand is None else self._bytes(strand, size)

        def urandom_of_numbers(size: int, /) -> bytes:
            """The source of ``SystemRandom``, which makes numbers and, in ``randbytes()``, bytes."""
            if self._cooperating() is not None:
                self._has_drawn |= sys._getframe(1).f_code.co_name != "randbytes"
            return urandom(size)

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            strand = None if a is not None else self._cooperating()
            if strand is not None:
                self._has_drawn = True
                a = self._bytes(strand, 16)
            real_seed(generator, a, version)

        yield os, "urandom", urandom
        yield random, "_urandom", urandom_of_numbers
        yield random.Random, "seed", seed
        yield random, "seed", partial(seed, getattr(random, "_inst"))  # noqa: B009

    def _bytes(self, strand: Strand, size: int) -> bytes:
        strand.urandom_calls += 1
        source = f"{self._seed} {self._series} {strand.title} {strand.urandom_calls}"
        return random.Random(source).randbytes(size)
