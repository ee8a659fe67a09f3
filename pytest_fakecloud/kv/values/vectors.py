"""The value of a vector command's key: vectors by id."""

from __future__ import annotations

from typing import Any, ClassVar

from ...similarity.dense import Floats, Similarity
from ...similarity.table import VectorTable, shortest

METRICS = {
    "COSINE": Similarity.COSINE,
    "EUCLIDEAN": Similarity.EUCLIDEAN,
    "DOT": Similarity.DOT_PRODUCT,
}
"""The names of the metrics in commands."""


class VectorValue(VectorTable[bytes]):
    """Vectors by id, of the dimension and metric with which the key was created.

    ``size`` is the length in bytes of all ids and vectors.
    """

    type_name: ClassVar[str] = "vector"

    def __init__(self, dimension: int, metric: str) -> None:
        super().__init__(dimension, METRICS[metric])
        self.metric = metric
        self.size = 0

    def __bool__(self) -> bool:
        return True  # An index without vectors still exists.

    def encoding(self, config: object) -> str:
        return "raw"

    def put(self, id: bytes, vector: Floats) -> bool:
        is_new = super().put(id, vector)
        if is_new:
            self.size += self._size_of(id)
        return is_new

    def remove(self, id: bytes) -> bool:
        existed = super().remove(id)
        if existed:
            self.size -= self._size_of(id)
        return existed

    def _size_of(self, id: bytes) -> int:
        return len(id) + 4 * self.dimension

    def mend(self) -> None:
        super().mend()
        self.size = sum(map(self._size_of, self))

    def numbers(self, id: bytes) -> list[float] | None:
        """Return a vector's numbers in the shortest form that denotes the same float32, or None."""
        vector = self.get(id)
        return None if vector is None else list(map(shortest, vector))

    def to_python(self) -> dict[str, Any]:
        vectors = {id.decode("utf-8", "replace"): self.numbers(id) for id in self}
        return {"dimension": self.dimension, "metric": self.metric, "vectors": vectors}
