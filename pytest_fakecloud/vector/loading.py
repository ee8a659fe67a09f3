"""Reading what a tester loads: records in several shapes, JSON Lines and npz files.

One record is a mapping with the names of the wire (``id``, ``vector``, ``sparseVector``,
``metadata``, ``data``; ``sparse_vector`` is taken too) or a tuple ``(id, vector[, metadata[,
data]])``. Many are

- a list of records; - a mapping from id to a vector, to a text (with an embedding), or to a record
without its id; - the path of a ``.jsonl`` file (one record a line, which may name its
``namespace``), of a ``.json`` file
  with one of the two above, or of an ``.npz`` file: arrays ``vectors`` (n, dimension) and
  optionally ``ids``, ``metadata`` (JSON texts) and ``data`` of length n; or, without ``vectors``,
  one vector under each id.

Arrays are welcome wherever lists are. Anything else is a ``ContractError`` that says which record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import orjson

from pytest_fakecloud.kernel.errors import ContractError

from .embedding import Embedder, is_sequence
from .errors import VectorError
from .fields import FieldReader, from_array
from .model import Record

__all__ = ["read_records"]

Raw = dict[str, Any]
SHAPES = (
    "a list of records, a mapping from id to vector, text or record, "
    "or the path of a .jsonl, .json or .npz file"
)


def read_records(
    source: object, reader: FieldReader, embedder: Embedder | None
) -> list[tuple[str | None, Record]]:
    """Every record of a source with the namespace it names, None where it names none."""
    records = []
    for number, raw in enumerate(_raw_records(source)):
        try:
            records.append(_read(raw, reader, embedder))
        except VectorError as error:
            raise ContractError(f"record {number} cannot be loaded: {error.message}") from None
    return records


def _read(raw: Raw, reader: FieldReader, embedder: Embedder | None) -> tuple[str | None, Record]:
    vector = raw.get("vector")
    floats = None
    if isinstance(vector, np.ndarray):
        floats = from_array(vector)
        raw = {name: value for name, value in raw.items() if name != "vector"}
    fields = _plain(raw)
    record = reader.record(fields)
    if floats is not None:
        record = replace(record, vector=floats)
    if embedder and record.data is not None and record.vector is None and record.sparse is None:
        vector, sparse = embedder.embed(record.data)
        record = replace(record, vector=vector, sparse=sparse)
    return reader.text(fields, "namespace"), record


def _plain(raw: Raw) -> Raw:
    """The record as JSON would bring it: lists for tuples and arrays, nothing JSON cannot say."""
    if "sparse_vector" in raw:
        raw = {**raw, "sparseVector": raw["sparse_vector"]}
        del raw["sparse_vector"]
    sparse = raw.get("sparseVector")
    if isinstance(sparse, tuple) and len(sparse) == 2:
        raw = {**raw, "sparseVector": {"indices": sparse[0], "values": sparse[1]}}
    try:
        plain: Raw = orjson.loads(orjson.dumps(raw, option=orjson.OPT_SERIALIZE_NUMPY))
    except (TypeError, ValueError) as error:
        raise ContractError(f"record {raw.get('id')!r} has no JSON form: {error}") from None
    return plain


def _raw_records(source: object) -> Iterator[Raw]:
    if isinstance(source, str | PathLike):
        yield from _from_file(Path(source))
    elif isinstance(source, Mapping):
        for id, value in source.items():
            yield _named(id, value)
    elif is_sequence(source) and not isinstance(source, np.ndarray):
        yield from map(_one, source)  # type: ignore[call-overload]
    else:
        raise ContractError(f"cannot load {source!r:.80}: expected {SHAPES}")


def _named(id: object, value: object) -> Raw:
    if isinstance(value, Mapping):
        return {"id": id, **value}
    if isinstance(value, str):
        return {"id": id, "data": value}
    if is_sequence(value):
        return {"id": id, "vector": value}
    raise ContractError(
        f"cannot load {value!r:.80} under the id {id!r}: expected a vector, a text or a record"
    )


def _one(value: object) -> Raw:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple) and 2 <= len(value) <= 4:
        raw = _named(value[0], value[1])
        raw.update(zip(("metadata", "data"), value[2:], strict=False))
        return raw
    raise ContractError(
        f"cannot load {value!r:.80}: a record is a mapping or (id, vector[, metadata[, data]])"
    )


def _from_file(path: Path) -> Iterator[Raw]:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        yield from _from_npz(path)
    elif suffix == ".jsonl":
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if line.strip():
                yield _one(_json(line, f"{path.name} line {number}"))
    elif suffix == ".json":
        value = _json(path.read_bytes(), path.name)
        if isinstance(value, str):
            raise ContractError(f"cannot load {path.name}: it holds a text, expected {SHAPES}")
        yield from _raw_records(value)
    else:
        raise ContractError(f"cannot load {str(path)!r:.200}: expected {SHAPES}")


def _json(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ContractError(f"{where} is not JSON: {error}") from None


def _arrays(path: Path) -> dict[str, Any]:
    try:
        # Given a path, numpy leaves the file open where it is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, TypeError, AttributeError, EOFError, BadZipFile) as error:
        # An .npy under this name is an array, which is no context manager.
        raise ContractError(
            f"{path.name} is no .npz file of plain arrays (numpy.savez): {error}"
        ) from None


def _from_npz(path: Path) -> Iterator[Raw]:
    arrays = _arrays(path)
    if "vectors" not in arrays:
        for name, vector in arrays.items():
            yield {"id": name, "vector": vector}
        return
    vectors = arrays["vectors"]
    columns = {name: arrays[name] for name in ("ids", "metadata", "data") if name in arrays}
    if vectors.ndim != 2:
        raise ContractError(f"{path.name}: vectors has {vectors.ndim} dimension(s), expected 2")
    for name, column in columns.items():
        if column.ndim != 1:
            raise ContractError(f"{path.name}: {name} has {column.ndim} dimensions, expected 1")
        if len(column) != len(vectors):
            raise ContractError(
                f"{path.name}: {name} has {len(column)} items, vectors has {len(vectors)}"
            )
    for number, vector in enumerate(vectors):
        raw: Raw = {"id": str(number), "vector": vector}
        if "ids" in columns:
            raw["id"] = columns["ids"][number].item()
        if "metadata" in columns and (text := columns["metadata"][number].item()):
            where = f"{path.name} metadata {number}"
            if not isinstance(text, str | bytes):
                raise ContractError(f"{where} is no JSON text, got {text!r}")
            raw["metadata"] = _json(text.encode() if isinstance(text, str) else text, where)
        if "data" in columns:
            raw["data"] = columns["data"][number].item()
        yield raw
