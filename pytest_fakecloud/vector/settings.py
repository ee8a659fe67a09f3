"""Settings of a vector index: its properties, its limits, and how approximate its results are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from os import PathLike
from typing import Any, Literal, TypeVar

from ..core.errors import ContractError
from ..core.settings import (
    SWITCH,
    FakeConfig,
    Kind,
    Settings,
    changed_settings,
    check,
    duration,
    number,
    optional,
    read,
    setting,
    whole,
)
from ..similarity.dense import Similarity
from .model import MOST_DIMENSIONS, IndexKind

E = TypeVar("E", bound=StrEnum)
Loadable = Iterable[object] | Mapping[Any, object] | str | PathLike[str]
"""The data to load: records, a mapping from id to vector, text or record, or a file's path."""


_LIMIT = optional(whole(0))


class VectorLimits(Settings):
    """Upper limits of an index; None disables a limit.

    ``metadata_bytes`` (48 KB), ``data_bytes`` (1 MB), ``sparse_entries`` (1000 per vector) and
    ``prefix_fetch`` (1000 records; further records are omitted without an error) are the vendor's
    documented limits. ``filter_bytes`` is decided here: the service is known to reject a filter of
    11 kB. All others are off by default: ``dimension`` (in the vendor's plans: 1536, 3072 or 5376),
    ``top_k``, ``ids_per_call``, ``vectors_per_call``, ``id_bytes``, ``namespaces``,
    ``resumable_queries`` (open at the same time), ``daily_queries`` and ``daily_updates`` (per UTC
    day of the fake clock; the free plan has 10,000 of each).
    """

    metadata_bytes: int | None = setting(48 * 1024, _LIMIT)
    data_bytes: int | None = setting(1024 * 1024, _LIMIT)
    sparse_entries: int | None = setting(1000, _LIMIT)
    prefix_fetch: int | None = setting(1000, _LIMIT)
    filter_bytes: int | None = setting(10 * 1024, _LIMIT)
    dimension: int | None = setting(None, _LIMIT)
    top_k: int | None = setting(None, _LIMIT)
    ids_per_call: int | None = setting(None, _LIMIT)
    vectors_per_call: int | None = setting(None, _LIMIT)
    id_bytes: int | None = setting(None, _LIMIT)
    namespaces: int | None = setting(None, _LIMIT)
    resumable_queries: int | None = setting(None, _LIMIT)
    daily_queries: int | None = setting(None, _LIMIT)
    daily_updates: int | None = setting(None, _LIMIT)

    def __post_init__(self) -> None:
        check(self, "VectorLimits")


def _can_be_namespaces(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(name, str) for name in value)
    # The names of an iterator are not checked, because they can be read only once.
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


_LIMITS = Kind(
    accepts=Mapping[str, int | None] | VectorLimits | None,
    expected="a mapping such as {'top_k': 1000}, a VectorLimits, or None",
    fits=lambda value: value is None or isinstance(value, Mapping | VectorLimits),
    convert=lambda value: (
        value if isinstance(value, VectorLimits) else read(VectorLimits, value or {}, "limits")
    ),
)
# The class Embedder checks the values of this setting.
_EMBEDDING: Kind[Any] = Kind(
    accepts=bool | str | Callable[[str], object] | Mapping[str, object],
    expected="",
    fits=lambda value: True,
)
_NAMESPACES: Kind[Iterable[str] | Mapping[str, Loadable]] = Kind(
    accepts=Iterable[str] | Mapping[str, Loadable],
    expected="a list of names, or a mapping from name to data",
    fits=_can_be_namespaces,
)


def _word(accepts: Any, words: type[E]) -> Kind[E]:
    """Return the kind of a setting that accepts the name of an enumeration member, ignoring case."""

    def name(value: str) -> str:
        # Accept spaces, because the vendor's documentation writes "Dot Product" for DOT_PRODUCT.
        return value.upper().replace(" ", "_").replace("-", "_")

    return Kind(
        accepts,
        expected=" or ".join(repr(str(word)) for word in words),
        fits=lambda value: isinstance(value, str) and name(value) in words.__members__,
        convert=lambda value: words[name(value)],
    )


class VectorConfig(FakeConfig):
    """The settings of a ``VectorIndex``.

    The last four make results as inexact as the service's may be; all are off by default. All
    randomness is derived from the test's seed.
    """

    dimension: int | None = setting(None, optional(whole(1, MOST_DIMENSIONS)))
    """Length of the dense vectors; None: the first upsert determines it."""
    similarity: Similarity = setting("COSINE", _word(str, Similarity))
    """``"COSINE"``, ``"EUCLIDEAN"`` or ``"DOT_PRODUCT"``."""
    kind: IndexKind = setting("dense", _word(Literal["dense", "sparse", "hybrid"], IndexKind))
    """The kind of vectors: dense, sparse, or both in each record (hybrid)."""
    embedding: Any = setting(False, _EMBEDDING)
    """The embedding of text: True for the built-in hashing of words, the name of a model, a
    function, or a mapping from text to vector.
    """
    namespaces: Iterable[str] | Mapping[str, Loadable] = setting((), _NAMESPACES)
    """Namespaces to create: their names, or a mapping from name to data for ``load()``."""
    limits: VectorLimits = setting(None, _LIMITS)
    """Limits to change, by the names listed below."""
    range_limit: int = setting(100, whole(1))
    """Page size of a range request without a limit."""
    ready_after_us: int | None = setting(None, optional(duration("us")))
    """Fake time after which queries and counts see a change."""
    ready_after_reads: int | None = setting(None, optional(whole(1)))
    """Number of query and info calls that do not see a new change."""
    recall: float = setting(1.0, number(0, 1))
    """Probability that a search finds each true dense neighbour, rather than the next best one."""
    lose_first: bool = setting(False, SWITCH)
    """Whether the best hit can also be missed."""
    filter_budget: int | None = setting(None, optional(whole(1)))
    """Number of best candidates that a filtered query examines; None: all of them."""
    shuffle_ties: bool = setting(False, SWITCH)
    """Whether hits with equal scores are returned in random order."""

    def __post_init__(self) -> None:
        if self.kind is IndexKind.SPARSE:
            changed = changed_settings(self)
            for name in ("dimension", "similarity", "recall", "lose_first"):
                if name in changed:
                    raise ContractError(
                        f"{name} applies only to dense vectors: leave it out, or pass kind='hybrid'"
                    )
        if self.lose_first and self.recall == 1:
            raise ContractError(
                "lose_first has no effect without recall: pass e.g. recall=0.9 as well"
            )
