"""The random numbers of explored code, which its seed and the schedule determine."""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ...process.replace import Patch
from ..simulation.strand import Strand


class Randomness:
    """Seeds the generators of this process before each trial, and notices whether code draws
    numbers.

    The random numbers of explored code depend on the seed and the schedule alone. Each series of
    numbers has a number, which a schedule contains as ``@random.7 numbers``. A series covers
    ``random``, ``random.Random()``, ``random.SystemRandom``, ``secrets``, ``uuid4()``,
    ``os.urandom()``, and numpy's default and global generators.
    """

    def __init__(self, seed: object, drawing: Callable[[], Strand | None]) -> None:
        self._seed = seed
        self._series = 0
        self._drawing = drawing
        self._state_before = random.getstate()
        variables = vars(uuid).items()
        self._uuid_times = dict(item for item in variables if item[0].startswith("_last_timestamp"))
        self._numpy: Any = None
        if "numpy" in sys.modules:
            import numpy.random  # numpy itself imports it only when it is first used

            self._numpy = numpy.random
        self._numpy_state_before = None if self._numpy is None else self._numpy.get_state()
        self._began: object = None
        self._has_drawn = False
        self._modules = 0
        """The number of imported modules at the beginning."""

    def begin(self, series: int) -> None:
        source = f"{self._seed} {series}"
        random.seed(source)
        # uuid1() never goes back behind the time that it has used last, in whatever trial.
        vars(uuid).update(dict.fromkeys(self._uuid_times))
        if self._numpy is not None:
            self._numpy.seed(random.Random(source).randrange(2**32))
        self._has_drawn, self._modules = False, len(sys.modules)
        if self._began is None or series != self._series:
            # Other trials of the series begin with the same state, which is slow to read.
            self._series, self._began = series, self._state()

    def mark(self) -> None:
        """Begin after a setup, which may have drawn numbers."""
        self._has_drawn = False
        self._began = self._state()

    def has_drawn(self) -> bool:
        """Return whether code has drawn numbers since the beginning; random bytes do not count.

        A module can draw numbers when it is imported, which happens in one trial only.
        """
        if len(sys.modules) != self._modules:
            return False
        return self._has_drawn or self._state() != self._began

    def restore(self) -> None:
        random.setstate(self._state_before)
        vars(uuid).update(self._uuid_times)
        if self._numpy is not None:
            self._numpy.set_state(self._numpy_state_before)

    def _state(self) -> object:
        """Return the parts of the generators' states that change with each number drawn."""
        _, words, *others = random.getstate()
        # The position and some words suffice, because new numbers replace all words together.
        state = words[-9:], *others
        if self._numpy is None:
            return state
        _, key, position, *gauss = self._numpy.get_state()
        return state, int(key[0]), position, *gauss

    def patches(self) -> Iterator[Patch]:
        """Yield the functions that explored code calls instead, as owner, name and value."""
        real_urandom, real_seed = os.urandom, random.Random.seed

        def urandom(size: int, /) -> bytes:
            strand = self._drawing()
            return real_urandom(size) if strand is None else self._bytes(strand, size)

        def urandom_of_numbers(size: int, /) -> bytes:
            """The source of ``SystemRandom``, which makes numbers and, in ``randbytes()``, bytes."""
            if self._drawing() is not None:
                self._has_drawn |= sys._getframe(1).f_code.co_name != "randbytes"
            return urandom(size)

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            strand = None if a is not None else self._drawing()
            if strand is not None:
                self._has_drawn = True
                a = self._bytes(strand, 16)
            real_seed(generator, a, version)

        yield os, "urandom", urandom
        yield random, "_urandom", urandom_of_numbers
        yield random.Random, "seed", seed
        yield random, "seed", partial(seed, getattr(random, "_inst"))  # noqa: B009

    def _bytes(self, strand: Strand, size: int) -> bytes:
        if strand.random is None:
            strand.random = random.Random(f"{self._seed} {self._series} {strand.name}")
        return strand.random.randbytes(size)
