"""Conversion of JSON values into records, changes and queries, with their size limits.

An invalid value raises ``VectorError``, whose message names the field, the value and what was
expected. The status is 422 for a field whose value is missing, of a wrong JSON type or not a finite
float32. It is 400 for a body that is not a JSON object, for an unknown field, and for a value of
the right type that is invalid or above a limit. This module does not know the index's kind or
dimension.

Decided here: values are not converted (a string is not a list of one string), except ids and
cursors, which may be numbers, and flags, which may be ``"true"`` or ``"false"`` as in the vendor's
quick start (the service accepts both). A field of another endpoint is ignored,
because clients pass whole option objects. A field name that no endpoint has is an error, because it
is probably misspelled. An empty sparse vector is an error, as an empty dense one is.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from ..core.errors import did_you_mean
from ..similarity.dense import Floats
from . import errors
from .engine.engine import check_metadata
from .model import (
    EVERYTHING,
    Fusion,
    Include,
    Metadata,
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
_FLAGS = {"true": True, "false": False}
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


def as_flag(value: Any) -> Any:
    """Return the boolean that a string spells; return any other value unchanged."""
    return _FLAGS.get(value, value) if isinstance(value, str) else value


def as_floats(value: Any, field: str = "vector") -> Floats:
    """Convert a list of numbers to float32; raise ``VectorError`` for values beyond its range."""
    if not isinstance(value, list):
        raise wrong_type(field, "an array of numbers", value)
    kinds = list(map(type, value))
    # This fast check suffices for a list of floats, by far the most common case.
    if kinds.count(float) != len(value):
        for index, kind in enumerate(kinds):
            if kind is not float and kind is not int:
                raise wrong_type(f"{field}[{index}]", "a number", value[index])
    try:
        # Three times as fast as numpy's conversions of a list. A number beyond the range becomes
        # infinite or, if it is an integer or since Python 3.14, raises one of these exceptions.
        packed = struct.pack(f"{len(value)}f", *value)
    except (OverflowError, struct.error):
        packed = struct.pack("f", math.inf)
    return _checked(np.frombuffer(packed, np.float32), field)


def from_array(value: np.ndarray[Any, Any]) -> Floats:
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
    for position, index in enumerate(indices):
        if type(index) is not int or not -(2**31) <= index < 2**31:
            raise wrong_type(f"sparseVector.indices[{position}]", "a signed 32-bit integer", index)
    values = as_floats(value.get("values"), "sparseVector.values")
    if len(indices) != len(values):
        raise errors.unprocessable(
            f"Invalid field sparseVector: {len(indices)} indices, but {len(values)} values"
        )
    return SparseVector(np.array(indices, np.int32), values)


class VectorFields:
    """The fields of a JSON object, whose values are checked against the limits of an index.

    A field that is absent or null has the value None or a default. ``what`` is the object's name in
    errors.
    """

    def __init__(self, value: Any, limits: VectorLimits, what: str = "The request body") -> None:
        if not isinstance(value, dict):
            raise errors.bad_request(f"{what} must be a JSON object, got {shown(value)}")
        if not value.keys() <= KNOWN:
            name = min(value.keys() - KNOWN)
            hint = did_you_mean(_camel(name), KNOWN)
            if name == "content":
                # A field of the documents of Upstash Search, which share the path of texts.
                hint = f"; {errors.NO_SEARCH}"
            raise errors.bad_request(f"{what} has an unknown field {name[:80]!r}{hint}")
        self.limits = limits
        self.get: Callable[[str], Any] = value.get

    # -- single values ---------------------------------------------------------------------------

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is None or isinstance(value, str):
            return value
        raise wrong_type(name, "a string", value)

    def required_text(self, name: str) -> str:
        value = self.data() if name == "data" else self.text(name)
        if value is None:
            raise missing(name, "a string")
        return value

    def number(self, name: str, default: int) -> int:
        """Return an integer from 1 to 2^31 - 1."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise wrong_type(name, "a whole number of at least 1", value)
        if not 1 <= value <= LARGEST_INTEGER:
            bound = "least 1" if value < 1 else f"most {LARGEST_INTEGER}"
            raise invalid_value(name, f"a whole number of at {bound}", value)
        return value

    def flag(self, name: str) -> bool:
        value = as_flag(self.get(name))
        if value is None or isinstance(value, bool):
            return bool(value)
        raise wrong_type(name, "true or false", value)

    def choice(self, name: str, choices: type[Choice]) -> Choice | None:
        """Return the member with this name, ignoring case."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, str) and value.upper() in choices.__members__:
            return choices[value.upper()]
        error = invalid_value if isinstance(value, str) else wrong_type
        raise error(name, " or ".join(choices.__members__), value)

    def id(self) -> str:
        return self._id(self.get("id"), "id")

    def ids(self) -> list[str]:
        value = self.get("ids")
        if not isinstance(value, list):
            raise wrong_type("ids", "an array of strings", value)
        errors.check_limit("Id count", len(value), self.limits.ids_per_call)
        return [self._id(item, f"ids[{index}]") for index, item in enumerate(value)]

    def _id(self, value: Any, field: str) -> str:
        """Return an id: a string, or an integer converted to one."""
        if type(value) is int:
            value = str(value)
        if not isinstance(value, str):
            raise wrong_type(field, "a string or an integer", value)
        if self.limits.id_bytes is not None:
            errors.check_limit("Id size", len(value.encode()), self.limits.id_bytes, "bytes")
        return value

    def cursor(self) -> int:
        """Return the cursor of a scan, a number or a decimal string; 0 if it is empty."""
        value = self.get("cursor")
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

    def top_k(self, name: str, default: int) -> int:
        """Return the number of hits to return, which must be within the limit."""
        value = self.number(name, default)
        errors.check_limit(name, value, self.limits.top_k)
        return value

    def max_idle_us(self) -> int:
        """Return the maximum time for which a resumable query may be idle, in microseconds."""
        return self.number("maxIdle", DEFAULT_MAX_IDLE) * 1_000_000

    # -- parts of a record -----------------------------------------------------------------------

    def vector(self) -> Floats | None:
        value = self.get("vector")
        return None if value is None else as_floats(value)

    def sparse(self) -> SparseVector | None:
        value = self.get("sparseVector")
        if value is None:
            return None
        sparse = as_sparse(value)
        if not len(sparse.indices):
            raise errors.unprocessable(
                "Invalid field sparseVector: expected at least one index and its value"
            )
        errors.check_limit("Sparse vector size", len(sparse.indices), self.limits.sparse_entries)
        return sparse

    def metadata(self) -> Metadata | None:
        value = self.get("metadata")
        if value is None:
            return None
        if not isinstance(value, dict):
            raise wrong_type("metadata", "an object", value)
        check_metadata(value, self.limits)
        return value

    def data(self) -> str | None:
        value = self.text("data")
        if value is not None:
            errors.check_limit("Data size", len(value.encode()), self.limits.data_bytes, "bytes")
        return value

    def include(self) -> Include:
        return Include(*map(self.flag, ("includeVectors", "includeMetadata", "includeData")))

    def record(self) -> VectorRecord:
        return VectorRecord(self.id(), self.vector(), self.sparse(), self.metadata(), self.data())

    def change(self) -> tuple[VectorRecord, UpdateMode]:
        """Return the parts of a record to update, and the effect on its metadata."""
        change = self.record()
        mode = self.choice("metadataUpdateMode", UpdateMode) or UpdateMode.OVERWRITE
        if all(part is None for part in change[1:]):
            raise errors.bad_request(
                "The update changes nothing: "
                "pass at least one of vector, sparseVector, data and metadata"
            )
        return change, mode

    def query(self) -> VectorQuery:
        return VectorQuery(
            vector=self.vector(),
            sparse=self.sparse(),
            top_k=self.top_k("topK", DEFAULT_TOP_K),
            filter=self.text("filter") or EVERYTHING,
            weighting=self.choice("weightingStrategy", Weighting),
            fusion=self.choice("fusionAlgorithm", Fusion) or Fusion.RRF,
            include=self.include(),
        )


def _camel(name: str) -> str:
    first, *others = name[:80].split("_")
    return first + "".join(word.capitalize() for word in others)
