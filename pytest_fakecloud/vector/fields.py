"""Conversion of JSON values into records, changes and queries, with their size limits.

An invalid value raises ``VectorError``, whose message names the field, the value and what was
expected. The status is 422 for a field whose value is missing, of a wrong JSON type or not a finite
float32. It is 400 for a body that is not a JSON object, for an unknown field, and for a value of
the right type that is invalid or above a limit. This module does not know the index's kind or
dimension.

Decided here: values are not converted (a string is not a list of one string), except ids and
cursors, which may be numbers (the service accepts both). A field of another endpoint is ignored,
because clients pass whole option objects. A field name that no endpoint has is an error, because it
is probably misspelled. An empty sparse vector is an error, as an empty dense one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from ..core.wording import did_you_mean
from . import errors
from .engine.checks import check_metadata
from .model import (
    EVERYTHING,
    Floats,
    Fusion,
    Include,
    Metadata,
    QueryMode,
    SparseVector,
    UpdateMode,
    VectorQuery,
    VectorRecord,
    Weighting,
)
from .settings import VectorLimits

Choice = TypeVar("Choice", bound=StrEnum)

KNOWN = frozenset((
    "id", "vector", "sparseVector", "metadata", "data", "ids", "prefix", "filter", "topK",
    "includeVectors", "includeMetadata", "includeData", "weightingStrategy", "fusionAlgorithm",
    "queryMode", "maxIdle", "uuid", "additionalK", "cursor", "limit", "metadataUpdateMode",
    "namespace", "newNamespace", "deleteExisting", "all",
))  # fmt: skip
"""The names of all fields of all endpoints."""
SPARSE_PARTS = frozenset(("indices", "values"))
LARGEST_INTEGER = 2**31 - 1
DEFAULT_TOP_K = 10
DEFAULT_MAX_IDLE = 3600


def shown(value: Any) -> str:
    """Return a value in a short form for error messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    names: dict[type, str] = {list: "an array", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def wrong_type(field: str, expected: str, value: Any) -> errors.VectorError:
    return errors.unprocessable(f"Invalid field {field}: expected {expected}, got {shown(value)}")


def invalid_value(field: str, expected: str, value: Any) -> errors.VectorError:
    return errors.bad_request(f"Invalid field {field}: expected {expected}, got {shown(value)}")


def missing(field: str, expected: str) -> errors.VectorError:
    return errors.unprocessable(f"Missing field {field}: expected {expected}")


def as_floats(value: Any, field: str = "vector") -> Floats:
    """Convert a list of numbers to float32; raise ``VectorError`` for values beyond its range."""
    if not isinstance(value, list):
        raise wrong_type(field, "an array of numbers", value)
    kinds = list(map(type, value))
    # This fast check suffices for a list of floats, by far the most common case.
    if kinds.count(float) != len(value):
        for place, kind in enumerate(kinds):
            if kind is not float and kind is not int:
                raise wrong_type(f"{field}[{place}]", "a number", value[place])
    try:
        with np.errstate(over="ignore"):
            floats = np.fromiter(value, np.float32, len(value))
    except OverflowError:
        floats = np.array([np.inf], np.float32)
    return _checked(floats, field)


def from_array(value: NDArray[Any]) -> Floats:
    """Convert a one-dimensional array to float32 without converting its elements to Python numbers."""
    if value.ndim != 1 or value.dtype.kind not in "fiu":
        shape = "x".join(map(str, value.shape))
        raise wrong_type("vector", "an array of numbers", f"array of {shape} {value.dtype}")
    with np.errstate(over="ignore"):
        return _checked(value.astype(np.float32), "vector")


def _checked(floats: Floats, field: str) -> Floats:
    if not np.isfinite(floats).all():
        raise errors.unprocessable(
            f"Invalid field {field}: "
            "every number must be finite and within the range of a 32-bit float"
        )
    return floats


def as_sparse(value: Any) -> SparseVector:
    """Convert an object with ``indices`` and ``values`` of equal length to a sparse vector."""
    if not isinstance(value, Mapping):
        raise wrong_type("sparseVector", "an object with indices and values", value)
    if not value.keys() <= SPARSE_PARTS:
        name = min(map(str, value.keys() - SPARSE_PARTS))
        raise errors.bad_request(
            f"Invalid field sparseVector: unknown field {name[:80]!r}, expected indices and values"
        )
    indices = value.get("indices")
    if not isinstance(indices, list):
        raise wrong_type("sparseVector.indices", "an array of integers", indices)
    for place, index in enumerate(indices):
        if type(index) is not int or not -(2**31) <= index < 2**31:
            raise wrong_type(f"sparseVector.indices[{place}]", "a signed 32-bit integer", index)
    values = as_floats(value.get("values"), "sparseVector.values")
    if len(indices) != len(values):
        raise errors.unprocessable(
            f"Invalid field sparseVector: {len(indices)} indices, but {len(values)} values"
        )
    return SparseVector(np.array(indices, np.int32), values)


class FieldReader:
    """Converts the values of a request body, and checks them against the limits of an index."""

    def __init__(self, limits: VectorLimits) -> None:
        self.limits = limits

    def json(self, body: bytes) -> Any:
        if not body.strip():
            raise errors.bad_request("The request body is empty, expected JSON")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise errors.bad_request(f"The request body is not valid JSON: {error}") from None

    def fields(self, value: Any, what: str = "The request body") -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise errors.bad_request(f"{what} must be a JSON object, got {shown(value)}")
        if not value.keys() <= KNOWN:
            name = min(value.keys() - KNOWN)
            hint = did_you_mean(_camel(name), KNOWN)
            raise errors.bad_request(f"{what} has an unknown field {name[:80]!r}{hint}")
        return value

    def text(self, fields: Mapping[str, Any], name: str) -> str | None:
        value = fields.get(name)
        if value is None or isinstance(value, str):
            return value
        raise wrong_type(name, "a string", value)

    def required_text(self, fields: Mapping[str, Any], name: str) -> str:
        value = self.text(fields, name)
        if value is None:
            raise missing(name, "a string")
        return value

    def number(self, fields: Mapping[str, Any], name: str, default: int, minimum: int = 1) -> int:
        """Return an integer from ``minimum`` to 2^31 - 1, or ``default`` if it is absent or null."""
        value = fields.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise wrong_type(name, f"a whole number of at least {minimum}", value)
        if value < minimum:
            raise invalid_value(name, f"a whole number of at least {minimum}", value)
        if value > LARGEST_INTEGER:
            raise invalid_value(name, f"a whole number of at most {LARGEST_INTEGER}", value)
        return value

    def flag(self, fields: Mapping[str, Any], name: str) -> bool:
        value = fields.get(name)
        if not isinstance(value, bool | None):
            raise wrong_type(name, "true or false", value)
        return bool(value)

    def choice(self, fields: Mapping[str, Any], name: str, choices: type[Choice]) -> Choice | None:
        """Return the member with this name, ignoring case, or None if it is absent or null."""
        value = fields.get(name)
        if value is None:
            return None
        expected = " or ".join(choices.__members__)
        if not isinstance(value, str):
            raise wrong_type(name, expected, value)
        if value.upper() not in choices.__members__:
            raise invalid_value(name, expected, value)
        return choices[value.upper()]

    def id(self, value: Any, field: str = "id") -> str:
        """Return an id: a string, or an integer converted to one."""
        if type(value) is int:
            value = str(value)
        if not isinstance(value, str):
            raise wrong_type(field, "a string or an integer", value)
        if self.limits.id_bytes is not None:
            errors.check_limit("Id size", len(value.encode()), self.limits.id_bytes, "bytes")
        return value

    def ids(self, value: Any) -> list[str]:
        if not isinstance(value, list):
            raise wrong_type("ids", "an array of strings", value)
        errors.check_limit("Id count", len(value), self.limits.ids_per_call)
        return [self.id(item, f"ids[{place}]") for place, item in enumerate(value)]

    def cursor(self, fields: Mapping[str, Any]) -> int:
        """Return the cursor of a scan, a number or a decimal string; 0 if absent or empty."""
        value = fields.get("cursor")
        if value is None or value == "":
            return 0
        expected = "'0' to start, or the nextCursor of the previous page"
        if type(value) is not int and not isinstance(value, str):
            raise wrong_type("cursor", expected, value)
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise errors.bad_request(
                f"Invalid cursor {shown(value)}: "
                "pass '0' to start, then the nextCursor of the previous page"
            )
        return int(text)

    def include(self, fields: Mapping[str, Any]) -> Include:
        return Include(
            self.flag(fields, "includeVectors"),
            self.flag(fields, "includeMetadata"),
            self.flag(fields, "includeData"),
        )

    def metadata(self, fields: Mapping[str, Any]) -> Metadata | None:
        """Return a metadata object within the size limit, or None if it is absent or null."""
        value = fields.get("metadata")
        if value is None:
            return None
        if not isinstance(value, dict):
            raise wrong_type("metadata", "an object", value)
        check_metadata(value, self.limits)
        return value

    def data(self, fields: Mapping[str, Any]) -> str | None:
        """Return a record's text within the size limit, or None if it is absent or null."""
        value = self.text(fields, "data")
        if value is not None:
            errors.check_limit("Data size", len(value.encode()), self.limits.data_bytes, "bytes")
        return value

    def required_data(self, fields: Mapping[str, Any]) -> str:
        value = self.data(fields)
        if value is None:
            raise missing("data", "a string")
        return value

    def vector(self, fields: Mapping[str, Any]) -> Floats | None:
        value = fields.get("vector")
        return None if value is None else as_floats(value)

    def sparse(self, fields: Mapping[str, Any]) -> SparseVector | None:
        """Return a non-empty sparse vector, or None if it is absent or null."""
        value = fields.get("sparseVector")
        if value is None:
            return None
        sparse = as_sparse(value)
        if not len(sparse.indices):
            raise errors.unprocessable(
                "Invalid field sparseVector: expected at least one index and its value"
            )
        errors.check_limit("Sparse vector size", len(sparse.indices), self.limits.sparse_entries)
        return sparse

    def record(self, value: Any) -> VectorRecord:
        """Return a record with its vectors, from an item of an ``upsert`` request."""
        return self._record(self.fields(value, "A vector"))

    def _record(self, fields: Mapping[str, Any]) -> VectorRecord:
        return VectorRecord(
            self.id(fields.get("id")),
            self.vector(fields),
            self.sparse(fields),
            self.metadata(fields),
            self.data(fields),
        )

    def change(self, value: Any) -> tuple[VectorRecord, UpdateMode]:
        """Return the parts of a record to update, and the effect on its metadata."""
        fields = self.fields(value)
        change = self._record(fields)
        mode = self.choice(fields, "metadataUpdateMode", UpdateMode) or UpdateMode.OVERWRITE
        if all(part is None for part in change[1:]):
            raise errors.bad_request(
                "The update changes nothing: "
                "pass at least one of vector, sparseVector, data and metadata"
            )
        return change, mode

    def query(self, fields: Mapping[str, Any]) -> VectorQuery:
        return VectorQuery(
            vector=self.vector(fields),
            sparse=self.sparse(fields),
            top_k=self.top_k(fields, "topK", DEFAULT_TOP_K),
            filter=self.text(fields, "filter") or EVERYTHING,
            weighting=self.choice(fields, "weightingStrategy", Weighting),
            fusion=self.choice(fields, "fusionAlgorithm", Fusion) or Fusion.RRF,
            include=self.include(fields),
        )

    def top_k(self, fields: Mapping[str, Any], name: str, default: int) -> int:
        """Return the number of hits to return, which must be within the limit."""
        value = self.number(fields, name, default)
        errors.check_limit(name, value, self.limits.top_k)
        return value

    def query_mode(self, fields: Mapping[str, Any]) -> QueryMode:
        return self.choice(fields, "queryMode", QueryMode) or QueryMode.HYBRID

    def max_idle_us(self, fields: Mapping[str, Any]) -> int:
        """Return the maximum time for which a resumable query may be idle, in microseconds."""
        return self.number(fields, "maxIdle", DEFAULT_MAX_IDLE) * 1_000_000


def _camel(name: str) -> str:
    first, *rest = name[:80].split("_")
    return first + "".join(word.capitalize() for word in rest)
