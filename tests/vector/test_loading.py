"""Every shape of data a tester may load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from pytest_fakecloud.kernel.errors import ContractError
from pytest_fakecloud.vector.embedding import Embedder
from pytest_fakecloud.vector.fields import FieldReader
from pytest_fakecloud.vector.loading import read_records
from pytest_fakecloud.vector.model import Kind, Record
from pytest_fakecloud.vector.settings import Limits

READER = FieldReader(Limits())


def read(source: object, embedder: Embedder | None = None) -> list[tuple[str | None, Record]]:
    return read_records(source, READER, embedder)


def plain(source: object) -> list[tuple[str, Any, Any, str | None]]:
    return [
        (r.id, r.vector is not None and r.vector.tolist(), r.metadata, r.data)
        for _, r in read(source)
    ]


@pytest.mark.parametrize(
    "source",
    [
        [{"id": "a", "vector": [1, 2], "metadata": {"x": 1}}, {"id": "b", "vector": [3, 4]}],
        [("a", [1, 2], {"x": 1}), ("b", [3, 4])],
        [("a", np.array([1, 2]), {"x": 1}), ("b", (3, 4), None, None)],
        iter([("a", [1, 2], {"x": 1}), {"id": "b", "vector": np.array([3, 4], np.float32)}]),
        {"a": {"vector": [1, 2], "metadata": {"x": 1}}, "b": [3, 4]},
        {"a": {"vector": (1, 2), "metadata": {"x": 1}}, "b": np.array([3, 4])},
    ],
)
def test_lists_and_mappings(source: object) -> None:
    assert plain(source) == [("a", [1, 2], {"x": 1}, None), ("b", [3, 4], None, None)]


@pytest.mark.parametrize("name", ["sparseVector", "sparse_vector"])
@pytest.mark.parametrize("value", [{"indices": [1], "values": [2]}, ([1], [2])])
def test_sparse_vectors(name: str, value: object) -> None:
    ((_, record),) = read([{"id": "a", name: value}])
    assert record.sparse is not None
    assert record.sparse.indices.tolist() == [1]
    assert record.sparse.values.tolist() == [2]


def test_texts_are_embedded_where_there_is_an_embedding() -> None:
    embedder = Embedder(True, Kind.DENSE, 4)
    whole = {"data": "x", "vector": [1, 2, 3, 4]}
    loaded = read({"a": "hello", "b": {"data": "hello"}, "c": whole}, embedder)
    a, b, c = (record.vector.tolist() for _, record in loaded if record.vector is not None)
    assert a == b
    assert c == [1, 2, 3, 4]
    assert [record.data for _, record in loaded] == ["hello", "hello", "x"]


def test_json_lines_may_name_their_namespace(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"id": 1, "vector": [1]}\n\n{"id": "b", "vector": [2], "namespace": "ns"}\n')
    assert [(ns, r.id) for ns, r in read(path)] == [(None, "1"), ("ns", "b")]
    assert [(ns, r.id) for ns, r in read(str(path))] == [(None, "1"), ("ns", "b")]


def test_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(orjson.dumps({"a": [1, 2]}))
    assert plain(path) == [("a", [1, 2], None, None)]


def test_npz_with_columns(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    vectors = np.array([[0.1, 0.2], [3, 4]], np.float32)
    np.savez(path, vectors=vectors)
    assert [(id, v) for id, v, _, _ in plain(path)] == [
        ("0", vectors[0].tolist()),
        ("1", [3, 4]),
    ]
    np.savez(path, vectors=vectors, ids=["a", "b"], metadata=['{"x": 1}', ""], data=["one", "two"])
    assert plain(path) == [
        ("a", vectors[0].tolist(), {"x": 1}, "one"),
        ("b", [3, 4], None, "two"),
    ]
    np.savez(path, vectors=vectors, ids=np.array([7, 8]))
    assert [id for id, *_ in plain(path)] == ["7", "8"]


def test_npz_with_one_array_for_each_id(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, a=np.array([1, 2]), b=np.array([3.5, 4]))
    assert plain(path) == [("a", [1, 2], None, None), ("b", [3.5, 4], None, None)]


def test_npz_columns_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, vectors=np.zeros((2, 2)), ids=["a"])
    with pytest.raises(ContractError, match=r"data\.npz: ids has 1 items, vectors has 2"):
        read(path)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (5, "cannot load 5: expected a list of records, a mapping"),
        (np.zeros((2, 2)), "expected a list of records"),
        ("data.csv", "cannot load 'data.csv': expected .* a .jsonl, .json or .npz file"),
        ([5], "cannot load 5: a record is a mapping or"),
        ([("a",)], "a record is a mapping or"),
        ({"a": 5}, "cannot load 5 under the id 'a': expected a vector, a text or a record"),
        (
            [{"id": "a", "vector": [1]}, {"id": "b", "vector": ["x"]}],
            "record 1 cannot be loaded: .*",
        ),
        (
            [{"id": "a", "vector": [1], "meta": 1}],
            "record 0 cannot be loaded: .*unknown field 'meta'",
        ),
        ([{"vector": [1]}], "Invalid field id"),
        ([{"id": "a", "vector": [float("nan")]}], "record 0 cannot be loaded: .*got null"),
        ([{"id": "a", "metadata": {"x": {1, 2}}}], "record 'a' has no JSON form"),
        ([{"id": "\ud800", "vector": [1]}], "has no JSON form"),
        ([("a", np.zeros((2, 3)))], "expected an array of numbers, got 'array of 2x3 float64'"),
        ([("a", np.array(["x"]))], "expected an array of numbers, got 'array of 1 <U1'"),
        ([("a", np.array([1e39]))], "range of a 32-bit float"),
        ([("a", np.array([np.nan]))], "must be finite"),
    ],
)
def test_what_cannot_be_loaded(source: object, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        read(source)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.jsonl", b'{"id": 1, "vector": [1]}\n{', "x.jsonl line 2 is not JSON"),
        ("x.json", b"{", "x.json is not JSON"),
        ("x.json", b'"text"', "x.json: it holds a text"),
    ],
)
def test_files_that_cannot_be_loaded(tmp_path: Path, name: str, text: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ContractError, match=reason):
        read(tmp_path / name)


def test_what_is_no_plain_npz_is_said(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    for content in (b"", b"PK\x03\x04 no archive", b"text"):
        path.write_bytes(content)
        with pytest.raises(ContractError, match=r"data\.npz is no \.npz file of plain arrays"):
            read(path)
    with path.open("wb") as file:
        np.save(file, np.zeros((2, 2)))
    with pytest.raises(ContractError, match=r"data\.npz is no \.npz file of plain arrays"):
        read(path)
    np.savez(path, vectors=np.zeros((1, 2)), ids=np.array(["a"], dtype=object))
    with pytest.raises(ContractError, match=r"data\.npz is no \.npz file of plain arrays"):
        read(path)


def test_npz_columns_have_one_dimension_and_vectors_two(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, vectors=np.zeros(2))
    with pytest.raises(ContractError, match=r"vectors has 1 dimension\(s\), expected 2"):
        read(path)
    np.savez(path, vectors=np.zeros((1, 2)), ids=np.array("a"))
    with pytest.raises(ContractError, match="ids has 0 dimensions, expected 1"):
        read(path)
    np.savez(path, vectors=np.zeros((1, 2)), metadata=np.array([5]))
    with pytest.raises(ContractError, match="metadata 0 is no JSON text, got 5"):
        read(path)
