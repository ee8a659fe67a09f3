"""Reads files of vectors: JSON, JSON Lines and npz."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from ..core.errors import ContractError
from ..core.wording import counted
from ..files import DATA_BYTES, open_file, read_file

Raw = dict[str, Any]
"""The fields of a record by name, not checked yet."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_MEMBERS = 1_000_000
COLUMNS = ("ids", "metadata", "data")
"""The arrays that an ``.npz`` file may contain besides ``vectors``."""


def read_bytes(path: Path) -> bytes:
    return read_file(path, DATA_BYTES).removeprefix(BYTE_ORDER_MARK)


def parse_json(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ContractError(f"{where} is not JSON: {error}") from None


def _arrays(path: Path) -> dict[str, Any]:
    try:
        # Open the file here: numpy leaves a file that it opened itself open if it is not an
        # archive.
        with open_file(path, DATA_BYTES) as file:
            _check_archive(file)
            with np.load(file, allow_pickle=False) as arrays:
                found = dict(arrays)
        for name, array in found.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"its member {name!r:.80} is not an array")
        return found
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


def npz_records(path: Path) -> Iterator[tuple[str, Raw]]:
    """Yield the position and the fields of each record in an ``.npz`` file."""
    arrays = _arrays(path)
    if "vectors" not in arrays:
        for name, vector in arrays.items():
            yield f"{path.name} {name}", {"id": name, "vector": vector}
        return
    vectors = arrays.pop("vectors")
    columns = arrays
    _check_columns(path.name, vectors, columns)
    for number, vector in enumerate(vectors):
        raw: Raw = {"id": str(number), "vector": vector}
        if "ids" in columns:
            raw["id"] = columns["ids"][number].item()
        if "metadata" in columns and (text := columns["metadata"][number].item()):
            where = f"{path.name} metadata {number}"
            if not isinstance(text, str | bytes):
                raise ContractError(f"{where} is not a JSON string, got {text!r}")
            raw["metadata"] = parse_json(text.encode() if isinstance(text, str) else text, where)
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
