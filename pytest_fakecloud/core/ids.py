"""Seeded ids and random values: one independent stream per service and purpose. Random tokens."""

from __future__ import annotations

import threading
from collections.abc import Mapping, MutableSequence, Sequence
from os import urandom
from random import Random
from types import MappingProxyType
from typing import Any, TypeVar
from weakref import WeakSet

from .errors import ContractError, shown

T = TypeVar("T")

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_MOST_BITS = 4096  # of a seed; a longer one cannot be copied by hand to repeat a test


def check_seed(seed: object) -> None:
    """Raise ``ContractError`` for a seed that is not an integer or a string."""
    if isinstance(seed, str):
        return
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ContractError(f"seed={shown(seed)} is not a seed: pass an integer or a string")
    if seed.bit_length() > _MOST_BITS:
        raise ContractError(
            f"an integer of {seed.bit_length()} bits is too large for a seed: "
            f"pass one of at most {_MOST_BITS} bits"
        )


_making_generators = threading.Lock()


class RandomStream:
    """A repeatable source of random values for one purpose. ``Ids.reseed()`` restarts it."""

    def __init__(self, ids: Ids, purpose: tuple[str, ...]) -> None:
        self._ids = ids
        self._purpose = purpose
        self._made: tuple[int, Random] | None = None
        """The number of the seed, and the generator made from it."""

    @property
    def _random(self) -> Random:
        seeded = self._made
        if seeded is None or seeded[0] != self._ids.reseeds:
            # Created on first use, because most tests never use most streams. Threads that arrive
            # together get the same generator, so that they draw different values.
            with _making_generators:
                seeded = self._made
                if seeded is None or seeded[0] != self._ids.reseeds:
                    seeded = self._made = self._ids.reseeds, self._generator()
        return seeded[1]

    def _generator(self) -> Random:
        words = "/".join((str(self._ids.seed), *self._purpose))
        generator = Random(words.encode("utf-8", "surrogatepass"))
        if (state := self._ids.begun.get(self._purpose)) is not None:
            generator.setstate(state)
        self._ids._drawn.add(self)
        return generator

    @property
    def state(self) -> Any:
        """The state of the generator, for an `Ids` that continues; None if nothing was drawn yet."""
        seeded = self._made
        return seeded[1].getstate() if seeded and seeded[0] == self._ids.reseeds else None

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        return self._random.sample(items, count)

    def shuffle(self, items: MutableSequence[T]) -> None:
        self._random.shuffle(items)

    def hex(self, digits: int) -> str:
        return self._random.randbytes((digits + 1) // 2).hex()[:digits]

    def base58(self, length: int) -> str:
        return "".join(self._random.choices(BASE58, k=length))


class Ids:
    """The randomness of a test: ``stream()`` returns one source per purpose.

    Streams are independent of each other and of their order: a new fake changes no other's ids.
    """

    def __init__(
        self, seed: int | str, begun: Mapping[tuple[str, ...], Any] = MappingProxyType({})
    ) -> None:
        check_seed(seed)
        self.seed = seed
        self.reseeds = 0
        """The number of calls of ``reseed()``."""
        self.begun = begun
        """The states with which streams begin, by purpose: those of another `Ids` that they continue."""
        self._drawn = WeakSet[RandomStream]()
        """The streams from which values were drawn."""

    def stream(self, *purpose: str) -> RandomStream:
        """Return a new stream for the purpose; the same purpose yields the same values again."""
        return RandomStream(self, purpose)

    def states(self) -> dict[tuple[str, ...], Any]:
        """Return the states of all streams from which values were drawn, by purpose."""
        return {stream._purpose: state for stream in list(self._drawn) if (state := stream.state)}

    def reseed(self, seed: int | str) -> None:
        """Restart all streams from another seed; raise ``ContractError`` for an invalid one."""
        check_seed(seed)
        self.seed, self.begun = seed, {}
        self.reseeds += 1


def new_token(length: int = 48) -> str:
    """Return a random token of ``length`` hexadecimal digits. It never depends on the seed."""
    return urandom((length + 1) // 2).hex()[:length]
