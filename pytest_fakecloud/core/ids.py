"""Seeded ids and randomness: one independent stream for each service and purpose."""

from __future__ import annotations

import hashlib
import random as _random
import threading
import weakref
from collections.abc import Callable, MutableSequence, Sequence
from functools import cached_property, partial
from typing import TypeVar

from .errors import ContractError, shown

T = TypeVar("T")

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_changing_streams = threading.Lock()
_MOST_BITS = 4096  # of a seed: what nobody can print is no help in repeating a test


def check_seed(seed: object) -> None:
    """Raise ``ContractError`` for a seed that is not a whole number or a text."""
    if isinstance(seed, str):
        return
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ContractError(f"seed={shown(seed)} is not a seed: give a whole number or a text")
    if seed.bit_length() > _MOST_BITS:
        raise ContractError(
            f"a whole number of {seed.bit_length()} bits is not a seed: give one of at most {_MOST_BITS}"
        )


class RandomStream:
    """A repeatable source of random values for one purpose."""

    def __init__(self, seed: Callable[[], bytes]) -> None:
        self._seed = seed

    @cached_property
    def _random(self) -> _random.Random:
        # Most streams of most tests are never asked for anything. Of two threads that ask first,
        # both get one source: from two of the same seed they would get the same values.
        made: _random.Random = vars(self).setdefault("_random", _random.Random(self._seed()))
        return made

    def restart(self) -> None:
        """Start over, from what is the seed by now."""
        self._random.seed(self._seed())

    def random(self) -> float:
        """A number from 0 up to, and without, 1."""
        return self._random.random()

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """A number of the normal distribution."""
        return self._random.gauss(mu, sigma)

    def randrange(self, start: int, stop: int | None = None) -> int:
        """A number in ``range(start)`` or ``range(start, stop)``."""
        return self._random.randrange(start, stop)

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return self._random.choice(items)

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """``count`` different items in random order."""
        return self._random.sample(items, count)

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put the items into a random order, in place."""
        self._random.shuffle(items)

    def bytes(self, count: int) -> bytes:
        """``count`` random bytes."""
        return self._random.randbytes(count)

    def hex(self, digits: int) -> str:
        """Text of that many lower-case hexadecimal digits."""
        return self._random.randbytes((digits + 1) // 2).hex()[:digits]

    def text(self, length: int, alphabet: str = BASE62) -> str:
        """Text of that many characters of the alphabet."""
        return "".join(self._random.choices(alphabet, k=length))


class Ids:
    """The test's randomness: ``stream()`` hands out one source for each purpose.

    Streams are independent of each other and of the order in which they are asked for, so adding a
    fake to a test does not shift another fake's ids.
    """

    def __init__(self, seed: int | str) -> None:
        check_seed(seed)
        self.seed = seed
        self._streams: list[weakref.ref[RandomStream]] = []
        self._enough = 64

    def stream(self, *purpose: str) -> RandomStream:
        """A fresh stream for the purpose; the same words give the same values again."""
        stream = RandomStream(partial(self._digest, purpose))
        with _changing_streams:
            self._streams.append(weakref.ref(stream))
            if len(self._streams) > self._enough:
                self._forget_lost()
        return stream

    def _forget_lost(self) -> None:
        # Some are asked for a moment only, again and again.
        self._streams = [reference for reference in self._streams if reference() is not None]
        self._enough = 2 * len(self._streams) + 64

    def reseed(self, seed: int | str) -> None:
        """Start every stream over from another seed, those handed out before included.

        Raises ``ContractError`` for what is no seed.
        """
        check_seed(seed)
        self.seed = seed
        with _changing_streams:
            self._forget_lost()
            streams = self._streams[:]
        for reference in streams:
            stream = reference()
            if stream is not None:
                stream.restart()

    def _digest(self, purpose: tuple[str, ...]) -> bytes:
        return hashlib.sha256(
            "/".join((str(self.seed), *purpose)).encode("utf-8", "surrogatepass")
        ).digest()
