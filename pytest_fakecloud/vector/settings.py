"""What can be set about an index: limits of the service, and how approximate it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from os import PathLike
from typing import Any, Literal, TypedDict

from ..core.errors import ContractError
from ..core.timeparse import Duration

Loadable = Iterable[object] | Mapping[Any, object] | str | PathLike[str]
"""A list of records, a mapping from id to vector, text or record, or the path of a file."""


class VectorSettings(TypedDict, total=False):
    """The keywords that make a ``VectorIndex``, which explains them."""

    name: str | None
    """What reports and the control API call it; the fixture's name unless given."""
    dimension: int | None
    """Numbers of a dense vector; None: as many as the first upsert has."""
    similarity: str
    """``"COSINE"``, ``"EUCLIDEAN"`` or ``"DOT_PRODUCT"``."""
    kind: Literal["dense", "sparse", "hybrid"]
    """Which vectors a record has; a hybrid one has both."""
    embedding: bool | str | Callable[[str], object] | Mapping[str, object]
    """True: hashes of words. Or a model's name, a function, a mapping from text to vector."""
    namespaces: Iterable[str] | Mapping[str, Loadable]
    """Names to create, or a mapping from name to what ``load()`` takes."""
    limits: Mapping[str, int | None] | VectorLimits | None
    """Single limits, by the names below."""
    range_limit: int
    """Page size of a range that names none."""
    ready_after: Duration | None
    """How long a change takes on the clock until queries and counts see it."""
    ready_after_reads: int | None
    """How many queries and infos do not see a change yet."""
    recall: float
    """Probability that a true neighbour is found; one that is lost leaves its place to the next."""
    lose_first: bool
    """Whether the best hit can be lost too."""
    filter_budget: int | None
    """How many of the best candidates a filtered query looks at; None: all."""
    shuffle_ties: bool
    """Whether equal scores come in any order."""


@dataclass(frozen=True, slots=True)
class VectorLimits:
    """Upper bounds; None means there is none.

    ``metadata_bytes`` (48 KB), ``data_bytes`` (1 MB), ``sparse_entries`` (1000 a vector) and
    ``prefix_fetch`` (1000 records, not an error but a cut) are the vendor's documented limits.
    ``filter_bytes`` is decided here: the service is known to refuse a filter of 11 kB. All others
    are off: ``dimension`` (the vendor's plans: 1536, 3072, 5376), ``top_k``, ``ids_per_call``,
    ``vectors_per_call``, ``id_bytes``, ``namespaces``, ``resumable_queries`` (alive at once),
    ``daily_queries`` and ``daily_updates`` (a day is the clock's UTC day; the free plan has 10 000
    of each).
    """

    metadata_bytes: int | None = 48 * 1024
    data_bytes: int | None = 1024 * 1024
    sparse_entries: int | None = 1000
    prefix_fetch: int | None = 1000
    filter_bytes: int | None = 10 * 1024
    dimension: int | None = None
    top_k: int | None = None
    ids_per_call: int | None = None
    vectors_per_call: int | None = None
    id_bytes: int | None = None
    namespaces: int | None = None
    resumable_queries: int | None = None
    daily_queries: int | None = None
    daily_updates: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (type(value) is not int or value < 0):
                raise ContractError(
                    f"limits[{field.name!r}] must be a whole number or None, not {value!r}"
                )


DEFAULT_LIMITS = VectorLimits()


def limits_of(given: Mapping[str, int | None] | VectorLimits | None) -> VectorLimits:
    """The default limits with the given ones in their place; ``ContractError`` for unknown names."""
    if given is None:
        return DEFAULT_LIMITS
    if isinstance(given, VectorLimits):
        return given
    if not isinstance(given, Mapping):
        raise ContractError(
            f"limits={given!r} is not understood: give a mapping such as {{'top_k': 1000}}"
        )
    known = [field.name for field in fields(VectorLimits)]
    for name in given:
        if name not in known:
            raise ContractError(f"limits has no {name!r}; the limits are {', '.join(known)}")
    return replace(DEFAULT_LIMITS, **given)


@dataclass(frozen=True, slots=True)
class Approximation:
    """Ways in which the real service is allowed to be worse than exact; all off by default.

    ``recall`` is the probability that a true neighbour is found at all: one that is lost leaves its
    place to the next; the best one is never lost unless ``lose_first``. ``filter_budget`` is how
    many of the best candidates a filtered query looks at, so that it may answer fewer than top_k.
    ``shuffle_ties`` puts equal scores into a random order. Dense components only for ``recall``:
    the service's sparse search is exact. All randomness comes from the test's seed.
    """

    recall: float = 1.0
    lose_first: bool = False
    filter_budget: int | None = None
    shuffle_ties: bool = False

    def __post_init__(self) -> None:
        if not (_is_number(self.recall) and 0 <= self.recall <= 1):
            raise ContractError(f"recall must be a number between 0 and 1, not {self.recall!r}")
        for name in ("lose_first", "shuffle_ties"):
            if not isinstance(getattr(self, name), bool):
                raise ContractError(f"{name} must be True or False, not {getattr(self, name)!r}")
        budget = self.filter_budget
        if budget is not None and (type(budget) is not int or budget < 1):
            raise ContractError(
                f"filter_budget must be a whole number of at least 1, or None, not {budget!r}"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
