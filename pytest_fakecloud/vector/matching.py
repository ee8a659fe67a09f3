"""The fields of records, upserts and queries that assertions can match.

Decided here: an id can be given as an integer, because clients may send integers; two vectors match
if they are equal in float32, which is how the index stores them.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from ..core.errors import ContractError
from ..core.field_types import ABSENT, FLAG, MAPPING, TEXT, FieldType, OneOf, WholeNumber
from ..core.matching import Condition, Field
from ..core.wording import SHOWN, brief
from .errors import VectorError
from .fields import as_floats, from_array
from .model import Floats, Fusion, QueryMode, Weighting


class UpsertFields(TypedDict, total=False):
    """Fields of an upserted record that assertions can match, besides its id."""

    vector: Condition[Sequence[float] | Floats]
    sparseVector: Condition[Mapping[str, Any]]
    metadata: Condition[Mapping[str, Any]]
    data: Condition[str]
    namespace: Condition[str]


class QueryFields(TypedDict, total=False):
    """Fields of a query that assertions can match: the names of the API, and ``top_k``."""

    top_k: Condition[int]
    filter: Condition[str]
    data: Condition[str]
    vector: Condition[Sequence[float] | Floats]
    sparseVector: Condition[Mapping[str, Any]]
    namespace: Condition[str]
    includeVectors: Condition[bool]
    includeMetadata: Condition[bool]
    includeData: Condition[bool]
    weightingStrategy: Condition[str]
    fusionAlgorithm: Condition[str]
    queryMode: Condition[str]
    maxIdle: Condition[int]


class _Id(FieldType):
    expected = "a string (* matches any characters), an integer, a pattern"

    def accepts(self, wanted: Any) -> bool:
        return TEXT.accepts(wanted) or _is_whole(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        return super().equals(found, str(wanted) if _is_whole(wanted) else wanted)


def _is_whole(wanted: object) -> bool:
    return isinstance(wanted, numbers.Integral) and not isinstance(wanted, bool)


_NO_VECTOR = (VectorError, ValueError, TypeError, OverflowError)
"""Errors for a value that a client sent and the index rejected."""


class _Vector(FieldType):
    expected = "a list of numbers"

    def accepts(self, wanted: Any) -> bool:
        if not isinstance(wanted, list | tuple | np.ndarray):
            return False
        try:
            _floats(wanted)
        except VectorError as error:
            raise ContractError(f"{brief(wanted, 80)} is not a vector: {error.message}") from None
        return True

    def equals(self, found: Any, wanted: Any) -> bool:
        if not isinstance(found, list) or len(found) != len(wanted):
            return False
        try:
            # Compare the first numbers first: most vectors already differ there, and comparing all
            # numbers costs far more.
            if found and np.float32(found[0]) != np.float32(wanted[0]):
                return False
            return bool(np.array_equal(_floats(found), _floats(wanted)))
        except _NO_VECTOR:
            return False

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        try:
            given, expected = _floats(found), _floats(wanted)
        except _NO_VECTOR:
            return super().differs(name, found, wanted)
        if len(given) != len(expected):
            return f"{name} is {_short(found)}, not {len(expected)} numbers"
        if len(given) * 10 <= SHOWN:
            return f"{name} is {_short(found)}, not {expected.tolist()}"
        place = int(np.argmax(given != expected))
        return (
            f"{name} is {_short(found)} that differs in {np.count_nonzero(given != expected)} "
            f"numbers, first in [{place}]: {given[place]}, not {expected[place]}"
        )


def _floats(given: Any) -> Floats:
    if isinstance(given, np.ndarray):
        return from_array(given)
    return as_floats([one.item() if isinstance(one, np.generic) else one for one in given])


def _short(vector: Any) -> str:
    return f"<{len(vector)} numbers>" if len(repr(vector)) > SHOWN else brief(vector)


_VECTOR = _Vector()
_PARTS = {
    "vector": Field(_VECTOR),
    "sparseVector": Field(MAPPING),
    "metadata": Field(MAPPING),
    "data": Field(TEXT),
}
RECORD_FIELDS: Mapping[str, Field] = {"id": Field(_Id(), optional=False), **_PARTS}
"""Fields by which ``vectors()`` can be filtered."""

UPSERT_FIELDS: Mapping[str, Field] = {**RECORD_FIELDS, "namespace": Field(TEXT, optional=False)}
"""Fields by which upserted and pending records can be filtered."""

QUERY_FIELDS: Mapping[str, Field] = {
    "top_k": Field(WholeNumber(1), lambda query: query.get("topK", ABSENT), optional=False),
    "topK": Field(WholeNumber(1), optional=False),
    "filter": Field(TEXT, optional=False),
    "namespace": Field(TEXT, optional=False),
    "vector": Field(_VECTOR),
    "sparseVector": Field(MAPPING),
    "data": Field(TEXT),
    "includeVectors": Field(FLAG),
    "includeMetadata": Field(FLAG),
    "includeData": Field(FLAG),
    "weightingStrategy": Field(OneOf("weighting strategy", Weighting, fold=True)),
    "fusionAlgorithm": Field(OneOf("fusion algorithm", Fusion, fold=True)),
    "queryMode": Field(OneOf("query mode", QueryMode, fold=True)),
    "maxIdle": Field(WholeNumber(0)),
}
"""Fields by which queries can be filtered: the names of the API, and ``top_k``."""
