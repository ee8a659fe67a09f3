"""The value of a vector set: vectors by the names of its elements, with attributes.

Vectors are stored in one of three forms: ``f32`` keeps the numbers of 32 bits, ``int8`` the direction as
integers from -127 to 127 times a number, and ``bin`` only the signs of the numbers. The vector of a
search gets the same form. What `REDUCE` does is decided here: it adds up the numbers of a vector, each
with a sign, in groups that depend on the two numbers of dimensions alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...similarity.dense import UNIT, Floats, Similarity
from ...similarity.table import VectorTable
from .vector_form import Form

_STEPS = np.float32(127)


class RawVector(NamedTuple):
    """A vector as it is stored: the bytes of its numbers, its length, and for ``int8`` the number that
    127 stands for, else None. The bytes of ``bin`` have one bit for each number, in words of 64 bits.
    """

    blob: bytes
    norm: float
    range: float | None


class VectorSet:
    """Vectors by the names of elements, of the dimension and form with which the key was created.

    ``input_dimension`` is that of the vectors before they are reduced, and 0 if they are not. ``links``
    is the highest number of links of an element. ``added`` counts the vectors ever added.
    ``size`` is the length in bytes of all names, vectors and attributes.
    """

    type_name: ClassVar[str] = "vectorset"

    def __init__(
        self, form: Form, links: int, dimension: int, input_dimension: int = 0, uid: int = 0
    ) -> None:
        self.form = form
        self.links = links
        self.input_dimension = input_dimension
        self.uid = uid
        self.added = 0
        self.size = 0
        self.attributes: dict[bytes, bytes] = {}
        self._vectors = VectorTable[bytes](dimension, Similarity.COSINE)
        """The vectors in their form as floats: for ``f32`` as given, for ``int8`` of length 1."""
        self._norms: dict[bytes, float] = {}
        self._projection = _Projection(input_dimension, dimension) if input_dimension else None

    @property
    def dimension(self) -> int:
        return self._vectors.dimension

    @property
    def expected_dimension(self) -> int:
        """The number of dimensions of vectors that are added or searched for."""
        return self.input_dimension or self.dimension

    def __len__(self) -> int:
        return len(self._vectors)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._vectors)

    def __contains__(self, name: object) -> bool:
        return name in self._vectors

    def encoding(self, config: object) -> str:
        return "raw"

    @property
    def levels(self) -> int:
        """The number of layers above the lowest one that a graph of so many links and elements has."""
        return int(math.log(len(self), max(self.links, 2)))

    # -- writing -----------------------------------------------------------------------------------

    def add(self, name: bytes, vector: Floats) -> bool:
        """Add or replace the vector of an element; return whether the element is new."""
        reduced = vector if self._projection is None else self._projection.of(vector)
        self.added += 1
        return self.put_stored(name, self._formed(reduced), _norm(reduced))

    def put_stored(self, name: bytes, stored: Floats, norm: float) -> bool:
        """Add or replace a vector that has the form of the set already."""
        self._norms[name] = norm
        is_new = self._vectors.put(name, stored)
        if is_new:
            self.size += self._size_of(name)
        return is_new

    def remove(self, name: bytes) -> bool:
        self.set_attributes(name, b"")
        existed = self._vectors.remove(name)
        if existed:
            self.size -= self._size_of(name)
            del self._norms[name]
        return existed

    def set_attributes(self, name: bytes, attributes: bytes) -> None:
        """Set the attributes of an element, or remove them if they are empty."""
        self.size += len(attributes) - len(self.attributes.get(name, b""))
        if attributes:
            self.attributes[name] = attributes
        else:
            self.attributes.pop(name, None)

    def _size_of(self, name: bytes) -> int:
        return (
            len(name)
            + {
                "f32": 4 * self.dimension,
                "int8": self.dimension,
                "bin": 8 * -(-self.dimension // 64),
            }[self.form]
        )

    # -- reading -----------------------------------------------------------------------------------

    def stored(self, name: bytes) -> Floats | None:
        """Return the vector of an element in its form, as floats."""
        return self._vectors.get(name)

    def norm(self, name: bytes) -> float:
        return self._norms[name]

    def numbers(self, name: bytes) -> list[float] | None:
        """Return the vector of an element, as exactly as its form has it, or None."""
        stored = self.stored(name)
        if stored is None:
            return None
        factor = np.float32(self._norms[name] if self.form == "int8" else 1)
        numbers: list[float] = (stored * factor).tolist()
        return numbers

    def raw(self, name: bytes) -> RawVector | None:
        """Return the vector of an element as it is stored, or None."""
        stored, norm = self.stored(name), self._norms.get(name, 0.0)
        if stored is None:
            return None
        if self.form == "f32":
            return RawVector(_unit(stored).astype("<f4").tobytes(), norm, None)
        if self.form == "bin":
            bits = np.packbits(stored > 0, bitorder="little").tobytes()
            return RawVector(bits.ljust(8 * -(-self.dimension // 64), b"\0"), norm, None)
        most = float(np.abs(stored).max())
        numbers = np.rint(stored * (_STEPS / np.float32(most or 1))).astype(np.int8)
        return RawVector(numbers.tobytes(), norm, most)

    def searched(self, vector: Floats) -> Floats:
        """Return the vector of a search in the form of the set."""
        return self._formed(vector if self._projection is None else self._projection.of(vector))

    def nearest(
        self,
        searched: Floats,
        count: int,
        accept: Callable[[bytes], bool] | None = None,
        budget: int | None = None,
    ) -> list[tuple[bytes, float]]:
        """Return the nearest elements with their scores, best first; the vector has the set's form.

        ``budget`` is the maximum number of elements, the nearest ones, that ``accept`` is called for.
        Scores are 32-bit floats. The opposite vector has the score 0, and not what rounding leaves.
        """
        nearest = self._vectors.nearest(searched, count, accept, budget)
        return [
            (name, float(np.float32(score)) if score > UNIT else 0.0) for name, score in nearest
        ]

    def linked(self, name: bytes) -> list[tuple[bytes, float]] | None:
        """Return the elements nearest to an element, with their scores; None if it is unknown."""
        stored = self.stored(name)
        if stored is None:
            return None
        return self.nearest(stored, self.links, lambda other: other != name)

    def _formed(self, vector: Floats) -> Floats:
        if self.form == "f32":
            return vector
        if self.form == "bin":
            return np.where(vector > 0, np.float32(1), np.float32(-1))
        unit = _unit(vector)
        most = np.abs(unit).max() or np.float32(1)
        formed: Floats = np.rint(unit * (_STEPS / most)) * (most / _STEPS)
        # The greatest number is exact, and its step might not be.
        return np.clip(formed, -most, most)

    # -- the whole ---------------------------------------------------------------------------------

    def copy(self) -> VectorSet:
        twin = copy(self)
        twin._vectors = self._vectors.copy()
        twin._norms, twin.attributes = self._norms.copy(), self.attributes.copy()
        return twin

    def mend(self) -> None:
        """Make all parts agree with the vectors, after an exception between two changes."""
        self._vectors.mend()
        self._norms = {name: self._norms[name] for name in self._vectors}
        self.attributes = {
            name: text for name, text in self.attributes.items() if name in self._vectors
        }
        self.size = sum(map(self._size_of, self._vectors)) + sum(map(len, self.attributes.values()))

    def to_python(self) -> dict[str, Any]:
        """Return the vectors by element, and the attributes of the elements that have some."""
        return {
            "vectors": {_text(name): self.numbers(name) for name in self},
            "attributes": {_text(name): _text(text) for name, text in self.attributes.items()},
        }


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _norm(vector: Floats) -> float:
    exact = vector.astype(np.float64)
    return float(np.float32(float(exact @ exact) ** 0.5))


def _unit(vector: Floats) -> Floats:
    """Return a vector with the same direction and the length 1; the zero vector remains as it is."""
    exact = vector.astype(np.float64)
    norm = float(exact @ exact) ** 0.5
    unit: Floats = (exact / (norm or 1)).astype(np.float32)
    return unit


class _Projection:
    """Reduces vectors: each number is added to one of fewer sums, or subtracted, by a fixed lot."""

    def __init__(self, input_dimension: int, dimension: int) -> None:
        # The numbers of this generator are the same in all versions of NumPy.
        random = np.random.RandomState(input_dimension)
        self._sums = random.permutation(np.arange(input_dimension) % dimension)
        self._signs = random.choice((-1.0, 1.0), input_dimension)
        self._dimension = dimension

    def of(self, vector: Floats) -> Floats:
        sums = np.bincount(self._sums, self._signs * vector, self._dimension)
        return sums.astype(np.float32)
