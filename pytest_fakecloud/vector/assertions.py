"""The upserts and queries that clients sent, read from the journal, and their matching.

Decided here: an id can be given as an integer, because clients may send integers; two vectors match
if they are equal in float32, which is how the index stores them.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import orjson

from ..core.calls import Call, whole_body
from ..core.errors import ContractError
from ..core.field_types import ABSENT, FLAG, MAPPING, TEXT, FieldType, OneOf, WholeNumber
from ..core.journal import Journal
from ..core.matching import Condition, Field
from ..core.wording import SHOWN, brief
from ..http.readers import decode_segment
from .errors import VectorError
from .fields import DEFAULT_TOP_K, as_flag, as_floats, from_array
from .model import EVERYTHING, Floats, Fusion, QueryMode, Weighting

UPSERTS = ("upsert", "upsert-data")
QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
DEFAULTS = {"topK": DEFAULT_TOP_K, "filter": EVERYTHING}

Item = dict[str, Any]


def executed(journal: Journal, routes: Sequence[str]) -> Iterator[Item]:
    """Yield the records or queries of the calls of these routes that the index executed.

    Each has its ``namespace``. The id of a record is a string, and a query has default values.
    """
    for call in _calls(journal, routes, reached=True):
        yield from _items(call)


def rejected(journal: Journal, routes: Sequence[str]) -> Iterator[tuple[Item, str]]:
    """Yield the items that clients sent but the index did not store or execute, with the reason."""
    for call in _calls(journal, routes, reached=False):
        why = f"not carried out: {_why_rejected(call)}"
        try:
            items = list(_items(call))
        except ValueError:  # Without records or queries, only the namespace can be described.
            items = [{"namespace": _namespace(call)}]
        for item in items:
            yield item, why


def _calls(journal: Journal, routes: Sequence[str], *, reached: bool) -> Iterator[Call]:
    # The HTTP status does not show whether a call was executed: a fault can drop the response of an
    # executed call, or return 200 for a call that was not executed.
    return (call for call in journal.calls() if call.route in routes and call.reached is reached)


def _items(call: Call) -> Iterator[Item]:
    """Yield the objects in a call's body; raise ``ValueError`` if the body has anything else."""
    body = orjson.loads(whole_body(call))
    for item in body if isinstance(body, list) else [body]:
        if not isinstance(item, dict):
            raise ValueError("the body is neither an object nor an array of objects")
        given = {name: value for name, value in item.items() if value is not None}
        if call.route in QUERIES:
            given = {**DEFAULTS, **given}
        else:
            given["id"] = str(item.get("id"))
        yield {**given, "namespace": _namespace(call)}


def _why_rejected(call: Call) -> str:
    if call.fault:
        return f"the fault {call.fault} kept it from the index"
    try:
        return f"{call.status} {call.response_json()['error']}"
    except (ValueError, LookupError, TypeError):
        return f"{call.status or call.outcome}"


def _namespace(call: Call) -> str:
    return decode_segment(call.path.removeprefix("/").partition("/")[2])


def shown(item: Item) -> str:
    """Describe an item in one line; a vector is shown as its length."""
    parts = []
    for name, value in item.items():
        if name == "vector" and isinstance(value, list):
            parts.append(f"{name}=<{len(value)} numbers>")
        elif name == "sparseVector" and isinstance(value, dict):
            indices = value.get("indices")
            count = len(indices) if isinstance(indices, list) else 0
            parts.append(f"{name}=<{count} numbers>")
        else:
            parts.append(f"{name}={brief(value, 80)}")
    return " ".join(parts)


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


_INVALID_VECTOR = (VectorError, ValueError, TypeError, OverflowError)
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
            # Most vectors already differ in the first number, and comparing all costs far more.
            if found and np.float32(found[0]) != np.float32(wanted[0]):
                return False
            return bool(np.array_equal(_floats(found), _floats(wanted)))
        except _INVALID_VECTOR:
            return False

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        try:
            given, expected = _floats(found), _floats(wanted)
        except _INVALID_VECTOR:
            return super().differs(name, found, wanted)
        if len(given) != len(expected):
            return f"{name} is {_short(found)}, not {len(expected)} numbers"
        if len(given) * 10 <= SHOWN:
            return f"{name} is {_short(found)}, not {expected.tolist()}"
        index = int(np.argmax(given != expected))
        return (
            f"{name} is {_short(found)} that differs in {np.count_nonzero(given != expected)} "
            f"numbers, first in [{index}]: {given[index]}, not {expected[index]}"
        )


def _floats(given: Any) -> Floats:
    if isinstance(given, np.ndarray):
        return from_array(given)
    return as_floats([one.item() if isinstance(one, np.generic) else one for one in given])


def _short(vector: Any) -> str:
    return f"<{len(vector)} numbers>" if len(repr(vector)) > SHOWN else brief(vector)


def _flag(name: str) -> Field:
    return Field(FLAG, lambda query: as_flag(query.get(name, ABSENT)))


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
    "includeVectors": _flag("includeVectors"),
    "includeMetadata": _flag("includeMetadata"),
    "includeData": _flag("includeData"),
    "weightingStrategy": Field(OneOf("weighting strategy", Weighting, fold=True)),
    "fusionAlgorithm": Field(OneOf("fusion algorithm", Fusion, fold=True)),
    "queryMode": Field(OneOf("query mode", QueryMode, fold=True)),
    "maxIdle": Field(WholeNumber(0)),
}
"""Fields by which queries can be filtered: the names of the API, and ``top_k``."""
