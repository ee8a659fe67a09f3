"""Settings of an index: limits of the service, and how approximate queries are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from os import PathLike
from typing import Any, Literal, TypeVar

from ..core.settings import (
    SWITCH,
    HandleConfig,
    HandleSettings,
    Kind,
    check,
    duration,
    number,
    optional,
    read,
    setting,
    whole,
)
from ..core.timeparse import Duration
from .model import MOST_DIMENSIONS, Similarity
from .model import Kind as VectorKind

E = TypeVar("E", bound=StrEnum)
Loadable = Iterable[object] | Mapping[Any, object] | str | PathLike[str]
"""A list of records, a mapping from id to vector, text or record, or the path of a file."""


class VectorSettings(HandleSettings, total=False):
    """The keywords of ``Cloud.vector_index()`` and of the marker; ``VectorConfig`` describes them."""

    dimension: int | None
    similarity: str
    kind: Literal["dense", "sparse", "hybrid"]
    embedding: bool | str | Callable[[str], object] | Mapping[str, object]
    namespaces: Iterable[str] | Mapping[str, Loadable]
    limits: Mapping[str, int | None] | VectorLimits | None
    range_limit: int
    ready_after: Duration | None
    ready_after_reads: int | None
    recall: float
    lose_first: bool
    filter_budget: int | None
    shuffle_ties: bool


_LIMIT = optional(whole(0))


@dataclass(frozen=True, slots=True)
class VectorLimits:
    """Upper limits; None disables a limit.

    ``metadata_bytes`` (48 KB), ``data_bytes`` (1 MB), ``sparse_entries`` (1000 per vector) and
    ``prefix_fetch`` (1000 records; more are cut off, without an error) are the vendor's documented
    limits. ``filter_bytes`` is decided here: the service is known to reject a filter of 11 kB. All
    others are off by default: ``dimension`` (the vendor's plans: 1536, 3072, 5376), ``top_k``,
    ``ids_per_call``, ``vectors_per_call``, ``id_bytes``, ``namespaces``, ``resumable_queries``
    (open at the same time), ``daily_queries`` and ``daily_updates`` (per UTC day of the clock; the
    free plan has 10,000 of each).
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


def _limits_of(given: Mapping[str, int | None] | VectorLimits | None) -> VectorLimits:
    return given if isinstance(given, VectorLimits) else read(VectorLimits, given or {}, "limits")


def _is_names(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(name, str) for name in value)
    # An iterator is not checked, because its names can be read only once.
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


_LIMITS: Kind[VectorLimits] = Kind(
    Mapping[str, int | None] | VectorLimits | None,
    "a mapping such as {'top_k': 1000}, a VectorLimits, or None",
    lambda value: value is None or isinstance(value, Mapping | VectorLimits),
    _limits_of,
)
_EMBEDDING: Kind[Any] = Kind(
    bool | str | Callable[[str], object] | Mapping[str, object], "", lambda value: True
)
_NAMESPACES: Kind[Iterable[str] | Mapping[str, Loadable]] = Kind(
    Iterable[str] | Mapping[str, Loadable],
    "a list of names, or a mapping from name to data",
    _is_names,
)


def _word(accepts: Any, words: type[E]) -> Kind[E]:
    """Accept a member of an enumeration by its name, in any case."""

    def name(value: str) -> str:
        # The documentation writes "Dot Product" for DOT_PRODUCT.
        return value.upper().replace(" ", "_").replace("-", "_")

    return Kind(
        accepts,
        " or ".join(repr(str(word)) for word in words),
        lambda value: isinstance(value, str) and name(value) in words.__members__,
        lambda value: words[name(value)],
    )


@dataclass(frozen=True, kw_only=True)
class Approximation:
    """Ways in which the service may be less than exact; all off by default.

    All randomness is derived from the test's seed.
    """

    recall: float = setting(1.0, number(0, 1))
    """Probability that a true dense neighbour is found; the next one replaces a lost one."""
    lose_first: bool = setting(False, SWITCH)
    """Whether the best hit can be lost, too."""
    filter_budget: int | None = setting(None, optional(whole(1)))
    """Number of best candidates that a filtered query examines; None: all."""
    shuffle_ties: bool = setting(False, SWITCH)
    """Whether hits with equal scores are in random order."""


@dataclass(frozen=True, kw_only=True)
class VectorConfig(Approximation, HandleConfig):
    """Settings of a ``VectorIndex``."""

    dimension: int | None = setting(None, optional(whole(1, MOST_DIMENSIONS)))
    """Length of a dense vector; None: the first upsert determines it."""
    similarity: Similarity = setting("COSINE", _word(str, Similarity))
    """``"COSINE"``, ``"EUCLIDEAN"`` or ``"DOT_PRODUCT"``."""
    kind: VectorKind = setting("dense", _word(Literal["dense", "sparse", "hybrid"], VectorKind))
    """The kind of vectors; a record of a hybrid index has a dense and a sparse one."""
    embedding: Any = setting(False, _EMBEDDING)
    """True hashes words; or the name of a model, a function, or a mapping from text to vector."""
    namespaces: Iterable[str] | Mapping[str, Loadable] = setting((), _NAMESPACES)
    """Names of namespaces to create, or a mapping from name to data as for ``load()``."""
    limits: VectorLimits = setting(None, _LIMITS)
    """Single limits, by the names below."""
    range_limit: int = setting(100, whole(1))
    """Page size of a range without a limit."""
    ready_after_us: int | None = setting(None, optional(duration("us")))
    """Fake time until queries and counts see a change."""
    ready_after_reads: int | None = setting(None, optional(whole(1)))
    """Number of queries and infos that do not see a change yet."""
