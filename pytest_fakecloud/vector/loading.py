"""Reads the data that ``load()`` accepts: records in several shapes, JSON Lines and npz files.

A record is a mapping with the field names of the API (``id``, ``vector``, ``sparseVector``,
``metadata``, ``data``; also ``sparse_vector``), a dataclass with these attributes (such as those of
the official client), or a tuple ``(id, vector[, sparse vector][, metadata[, data]])``. The data is

- a list of records;
- a mapping from id to a vector, to a text (with an embedding), or to a record without its id;
- the path of a ``.jsonl`` file (one record per line, optionally with its ``namespace``), of a
  ``.json`` file that contains such a list or mapping, or of an ``.npz`` file: arrays ``vectors`` (n,
  dimension) and optionally ``ids``, ``metadata`` (JSON strings) and ``data`` of length n; or,
  without ``vectors``, one vector under each id.

Arrays are accepted wherever lists are. Anything else raises ``ContractError``, which names the
record, and for a file the line or row.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from ..cloud.files import DATA_BYTES, open_file, read_file
from ..core.errors import ContractError, counted
from .embedding import Embedder, is_sequence, is_sparse
from .errors import VectorError, invalid_dimension
from .fields import VectorFields, from_array
from .model import VectorRecord
from .settings import VectorLimits

Raw = dict[str, Any]
"""The fields of a record by name, not checked yet."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_MEMBERS = 1_000_000
COLUMNS = ("ids", "metadata", "data")
"""The arrays that an ``.npz`` file may contain besides ``vectors``."""
_RECORD_NAMES = frozenset(
    ("id", "vector", "sparseVector", "sparse_vector", "metadata", "data", "namespace")
)
SHAPES = (
    "a list of records, a mapping from id to vector, text or record, "
    "or the path of a .jsonl, .json or .npz file"
)


def read_records(
    source: object, limits: VectorLimits, embedder: Embedder | None, *, dimension: int | None = None
) -> list[tuple[str | None, VectorRecord]]:
    """Return every record of a source with its namespace, or None if it has no namespace."""
    records = []
    for where, value in _items(source):
        try:
            namespace, record = _read(_record_fields(value), limits, embedder, dimension)
        except ContractError as error:
            raise ContractError(f"{where}: {error}") from None
        except VectorError as error:
            raise ContractError(f"{where} cannot be loaded: {error.message}") from None
        if record.vector is not None:
            dimension = dimension or len(record.vector)
            if len(record.vector) != dimension:
                message = invalid_dimension(len(record.vector), dimension).message
                raise ContractError(f"{where} does not fit this index: {message}")
        records.append((namespace, record))
    return records


def _read(
    raw: Raw, limits: VectorLimits, embedder: Embedder | None, dimension: int | None
) -> tuple[str | None, VectorRecord]:
    # An array is converted directly, because JSON would make a list of its numbers.
    floats = from_array(raw.pop("vector")) if isinstance(raw.get("vector"), np.ndarray) else None
    vector_fields = VectorFields(_with_json_types(raw), limits, "A vector")
    record = vector_fields.record()
    if floats is not None:
        record = record._replace(vector=floats)
    if record.data is not None and record.vector is None and record.sparse is None:
        if embedder is None:
            raise ContractError(
                f"the text {record.data!r:.80} has no vector, and the index has no embedding: pass "
                "vectors, or make the index with embedding=True, a function or a mapping"
            )
        vector, sparse = embedder.embed(record.data, dimension=dimension)
        record = record._replace(vector=vector, sparse=sparse)
    return vector_fields.text("namespace"), record


def _with_json_types(raw: Raw) -> Raw:
    """Return the record with only JSON types, and its sparse vector as ``sparseVector``."""
    if "sparse_vector" in raw:
        if "sparseVector" in raw:
            raise ContractError(
                "a record has both sparseVector and sparse_vector: remove one of them"
            )
        raw["sparseVector"] = raw.pop("sparse_vector")
    sparse: Any = raw.get("sparseVector")
    if _is_sparse_vector(sparse):
        indices, values = sparse if isinstance(sparse, tuple) else (sparse.indices, sparse.values)
        raw["sparseVector"] = {"indices": indices, "values": values}
    plain: Raw = as_json(raw, f"record {raw.get('id')!r}")
    return plain


def as_json(value: object, what: str) -> Any:
    """Return a value with only JSON types; raise ``ContractError`` if it cannot be written as JSON."""
    try:
        text = orjson.dumps(_listed(value), _array_as_list, orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = error.__cause__ or error
        raise ContractError(f"{what} cannot be written as JSON: {reason}") from None
    return orjson.loads(text)


def _listed(value: Any, path: str = "") -> object:
    """Return a value with dicts for mappings and dataclasses, and lists for other collections.

    Raises ``ValueError`` for NaN and infinity, which orjson would write as null. ``path`` is the
    path of the value in the record.
    """
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise ValueError(f"{path.lstrip('.') or 'it'} is not a finite number")
    if is_dataclass(value) and not isinstance(value, type):
        value = _dataclass_fields(value)
    if isinstance(value, Mapping):
        return {name: _listed(item, f"{path}.{name}") for name, item in value.items()}
    if not is_sequence(value) or isinstance(value, set | frozenset):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "O" and (value.dtype.kind != "f" or np.isfinite(value).all()):
            return value
        value = value.tolist()
    items = list(value)
    # Most lists are vectors, so do not call this function for each of their numbers.
    if set(map(type, items)) <= {int, float} and all(map(math.isfinite, items)):
        return items
    return [_listed(item, f"{path}[{number}]") for number, item in enumerate(items)]


def _array_as_list(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r:.80} is a {type(value).__name__}, which JSON cannot represent")


def _items(source: Any, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield each record with its number, or its line or row in the file ``name``, for errors.

    The records of a mapping are yielded as tuples ``(id, record)``.
    """
    if isinstance(source, str | PathLike):
        yield from _from_file(Path(source))
        return
    if isinstance(source, Mapping):
        if "id" in source and source.keys() <= _RECORD_NAMES:
            raise ContractError(
                f"cannot load {name}{source!r:.80}: it is a single record; pass a list of records"
            )
        source = source.items()
    elif not is_sequence(source) or isinstance(source, np.ndarray):
        raise ContractError(f"cannot load {name.strip() or repr(source)[:80]}: expected {SHAPES}")
    for number, value in enumerate(source):
        yield f"{name}record {number}", value


def _fields_under_id(id: object, value: object) -> Raw:
    if (record := _given_fields(value)) is not None:
        if record.get("id", id) != id:
            raise ContractError(f"the record under the id {id!r} has the id {record['id']!r:.80}")
        return {**record, "id": id}
    if isinstance(value, str):
        return {"id": id, "data": value}
    if _is_sparse_vector(value):
        return {"id": id, "sparseVector": value}
    if is_sequence(value):
        return {"id": id, "vector": value}
    raise ContractError(
        f"cannot load {value!r:.80} under the id {id!r}: expected a vector, a string or a record"
    )


def _record_fields(value: object) -> Raw:
    if (record := _given_fields(value)) is not None:
        return record
    if isinstance(value, tuple) and len(value) >= 2:
        id, vector, *extras = value
        raw = _fields_under_id(id, vector)
        if extras and _is_sparse_vector(extras[0]):
            raw["sparseVector"] = extras.pop(0)
        if len(extras) <= 2:
            return raw | dict(zip(("metadata", "data"), extras, strict=False))
    raise ContractError(
        f"cannot load {value!r:.80}: a record is a mapping or "
        "(id, vector[, sparse vector][, metadata[, data]])"
    )


def _given_fields(value: object) -> Raw | None:
    """Return the fields of a record, or None if the value is not a record."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type) and not _is_sparse_vector(value):
        return _dataclass_fields(value)
    return None


def _dataclass_fields(instance: Any) -> Raw:
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def _is_sparse_vector(value: object) -> bool:
    """Return whether a value is a sparse vector: a pair of lists, or indices and values."""
    if isinstance(value, tuple):
        return len(value) == 2 and all(map(is_sequence, value))
    return not isinstance(value, Mapping) and is_sparse(value)


def _from_file(path: Path) -> Iterator[tuple[str, object]]:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        yield from _npz_records(path)
    elif suffix == ".jsonl":
        for number, line in enumerate(_read_bytes(path).splitlines(), 1):
            if line.strip():
                where = f"{path.name} line {number}"
                yield where, _parse_json(line, where)
    elif suffix == ".json":
        value = _parse_json(_read_bytes(path), path.name)
        if isinstance(value, str):
            raise ContractError(f"cannot load {path.name}: it contains a string, expected {SHAPES}")
        yield from _items(value, f"{path.name} ")
    else:
        raise ContractError(f"cannot load {str(path)!r:.200}: expected {SHAPES}")


def _read_bytes(path: Path) -> bytes:
    return read_file(path, DATA_BYTES).removeprefix(BYTE_ORDER_MARK)


def _parse_json(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ContractError(f"{where} is not JSON: {error}") from None


def _arrays(path: Path) -> dict[str, Any]:
    try:
        # numpy leaves a file that it opened itself open if it is not an archive.
        with open_file(path, DATA_BYTES) as file:
            _check_archive(file)
            with np.load(file, allow_pickle=False) as arrays:
                arrays_by_name = dict(arrays)
        for name, array in arrays_by_name.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"its member {name!r:.80} is not an array")
        return arrays_by_name
    except ContractError:
        raise
    except Exception as error:
        # A damaged archive can raise errors of any library layer. A ``TypeError`` can also mean an
        # .npy file: it loads as an array, which is not a context manager.
        raise ContractError(
            f"{path.name!s:.200} is not an .npz file of plain arrays (numpy.savez): {error!s:.300}"
        ) from None


def _check_archive(file: BinaryIO) -> None:
    """Raise ``ValueError`` for an archive whose members would need too much memory."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    file.seek(0)
    size = sum(member.file_size for member in members)
    if size > DATA_BYTES or len(members) > MOST_MEMBERS:
        raise ValueError(
            f"{len(members)} members of {size} bytes; at most {MOST_MEMBERS} of {DATA_BYTES} are read"
        )


def _npz_records(path: Path) -> Iterator[tuple[str, Raw]]:
    """Yield the position and the fields of each record in an ``.npz`` file."""
    columns = _arrays(path)
    if "vectors" not in columns:
        for name, vector in columns.items():
            yield f"{path.name} {name}", {"id": name, "vector": vector}
        return
    vectors = columns.pop("vectors")
    _check_columns(path.name, vectors, columns)
    for number, vector in enumerate(vectors):
        raw: Raw = {"id": str(number), "vector": vector}
        if "ids" in columns:
            raw["id"] = columns["ids"][number].item()
        if "metadata" in columns and (text := columns["metadata"][number].item()):
            where = f"{path.name} metadata {number}"
            if not isinstance(text, str | bytes):
                raise ContractError(f"{where} is not a JSON string, got {text!r}")
            raw["metadata"] = _parse_json(text.encode() if isinstance(text, str) else text, where)
        if "data" in columns:
            raw["data"] = columns["data"][number].item()
        yield f"{path.name} row {number}", raw


def _check_columns(name: str, vectors: Any, columns: Mapping[str, Any]) -> None:
    """Raise ``ContractError`` unless the arrays of a file have one item for each vector."""
    if unknown := sorted(columns.keys() - set(COLUMNS)):
        raise ContractError(
            f"{name} has the array {unknown[0]!r:.80}, "
            f"but only {', '.join(COLUMNS)} are allowed beside vectors"
        )
    if vectors.ndim != 2:
        raise ContractError(f"{name}: vectors has {counted(vectors.ndim, 'dimension')}, expected 2")
    for column_name, column in columns.items():
        if column.ndim != 1:
            raise ContractError(f"{name}: {column_name} has {column.ndim} dimensions, expected 1")
        if len(column) != len(vectors):
            raise ContractError(
                f"{name}: {column_name} has {len(column)} items, vectors has {len(vectors)}"
            )
