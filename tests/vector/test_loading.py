"""Test every form of data that load() accepts."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.vector.embedding import Embedder
from pytest_fakecloud.vector.loading import read_records
from pytest_fakecloud.vector.model import IndexKind, VectorRecord
from pytest_fakecloud.vector.settings import VectorLimits
from tests.budget import cases


def read(source: object, embedder: Embedder | None = None) -> list[tuple[str | None, VectorRecord]]:
    return read_records(source, VectorLimits(), embedder)


def is_no_archive(path: Path) -> None:
    with pytest.raises(ContractError, match=rf"{path.name} is not an \.npz file of plain arrays"):
        read(path)


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


def test_what_the_official_client_takes_and_gives_is_loaded() -> None:
    client = pytest.importorskip("upstash_vector.types")
    sparse = client.SparseVector([1], np.array([2.0]))
    loaded = read(
        [
            client.Vector("a", np.array([1, 2]), {"x": 1}, "text", sparse),
            client.FetchResult("a", [1, 2], {"x": 1}, "text", sparse),
            ("a", [1, 2], sparse, {"x": 1}, "text"),
            ("a", [1, 2], ([1], [2]), {"x": 1}, "text"),
        ]
    ) + read({"a": client.Vector("a", [1, 2], {"x": 1}, "text", sparse)})
    for _, record in loaded:
        assert record.vector is not None
        assert record.sparse is not None
        assert (record.id, record.vector.tolist()) == ("a", [1, 2])
        assert (record.sparse.indices.tolist(), record.sparse.values.tolist()) == ([1], [2])
        assert (record.metadata, record.data) == ({"x": 1}, "text")
    for item in (("a", sparse, {"x": 1}), ("a", ([1], [2]), {"x": 1})):
        ((_, record),) = read([item])
        assert (record.vector, record.metadata) == (None, {"x": 1})
        assert record.sparse is not None
        assert record.sparse.indices.tolist() == [1]
    embedder = Embedder(True, IndexKind.DENSE, 4)
    ((_, record),) = read([client.Data("a", "text", {"x": 1})], embedder)
    assert (record.data, record.metadata) == ("text", {"x": 1})


def test_texts_are_embedded_where_there_is_an_embedding() -> None:
    embedder = Embedder(True, IndexKind.DENSE, 4)
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
    assert [(id, v) for id, v, _, _ in plain(path)] == [("0", vectors[0].tolist()), ("1", [3, 4])]
    np.savez(path, vectors=vectors, ids=["a", "b"], metadata=['{"x": 1}', ""], data=["one", "two"])
    assert plain(path) == [("a", vectors[0].tolist(), {"x": 1}, "one"), ("b", [3, 4], None, "two")]
    np.savez(path, vectors=vectors, ids=np.array([7, 8]))
    assert [id for id, *_ in plain(path)] == ["7", "8"]


def test_npz_with_one_array_for_each_id(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, a=np.array([1, 2]), b=np.array([3.5, 4]))
    assert plain(path) == [("a", [1, 2], None, None), ("b", [3.5, 4], None, None)]


def test_whatever_json_says_as_a_list_is_loaded() -> None:
    column = np.arange(8.0).reshape(2, 4)[:, 1]
    metadata = {"column": column, "half": np.float16(0.5), "range": range(2), "no": None}
    ((_, record),) = read([("a", (n for n in (1, 2)), metadata)])
    assert record.vector is not None
    assert record.vector.tolist() == [1, 2]
    assert record.metadata == {"column": [1, 5], "half": 0.5, "range": [0, 1], "no": None}
    ((_, record),) = read([{"id": "a", "sparseVector": (column.astype(int), column)}])
    assert record.sparse is not None
    assert record.sparse.indices.tolist() == [1, 5]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for name, text in (("x.jsonl", b'{"id": "a", "vector": [1, 2]}'), ("x.json", b'{"a": [1, 2]}')):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text)
        assert plain(tmp_path / name) == [("a", [1, 2], None, None)]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.jsonl", b'{"id": 1, "vector": [1]}\n{', "x.jsonl line 2 is not JSON"),
        ("x.json", b"{", "x.json is not JSON"),
        ("x.json", b'"text"', "x.json: it contains a string"),
        ("x.json", b"5", "cannot load x.json: expected a list of records"),
        ("x.json", b'[{"id": 1, "vector": [1]}, 7]', "x.json record 1: cannot load 7"),
        ("x.jsonl", b'\n{"id": 1, "vector": ["x"]}', "x.jsonl line 2 cannot be loaded: .*vector"),
        ("x.jsonl", b'{"id": 1, "vector": [1]}\n[1, 2]', r"x.jsonl line 2: cannot load \[1, 2\]"),
        (
            "x.jsonl",
            b'{"id": 1, "vector": [1]}\n\n{"id": 1, "vector": [1, 2]}',
            "x.jsonl line 3 does not fit this index: Invalid vector dimension: 2, expected: 1",
        ),
    ],
)
def test_files_that_cannot_be_loaded(tmp_path: Path, name: str, text: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ContractError, match=reason):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["no.jsonl", "no.json", "no.npz", "folder.json", "folder.npz"])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ContractError, match=f"cannot read '.*{name}' .in '.*'.: "):
        read(tmp_path / name)
    with pytest.raises(ContractError, match=r"cannot read .*null"):
        read("a\0.jsonl")


def test_an_npz_broken_anywhere_is_said(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez_compressed(path, vectors=np.arange(400.0).reshape(100, 4), ids=np.arange(100))
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // cases(45))):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        # A changed byte that no checksum covers is not detected.
        with contextlib.suppress(ContractError):
            read(path)
        path.write_bytes(whole[:place])
        is_no_archive(path)


def test_what_is_no_plain_npz_is_said(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    for content in (b"", b"PK\x03\x04 no archive", b"text"):
        path.write_bytes(content)
        is_no_archive(path)
    with path.open("wb") as file:
        np.save(file, np.zeros((2, 2)))
    is_no_archive(path)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"vectors": np.zeros((2, 2)), "ids": ["a"]}, ": ids has 1 items, vectors has 2"),
        ({"vectors": [[1, 2], [1, np.inf]]}, " row 1 cannot be loaded: .* finite"),
        ({"vectors": np.zeros((1, 2)), "metadatas": ["{}"]}, " has the array 'metadatas', but only "
         "ids, metadata, data are allowed beside vectors"),
        ({"vectors": np.zeros(2)}, ": vectors has 1 dimension, expected 2"),
        ({"vectors": np.zeros((1, 2)), "ids": np.array("a")}, ": ids has 0 dimensions, expected 1"),
        ({"vectors": np.zeros((1, 2)), "metadata": [5]}, " metadata 0 is not a JSON string, got 5"),
        ({"vectors": np.zeros((1, 2)), "ids": np.array(["a"], dtype=object)},
         " is not an .npz file of plain arrays"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, **arrays)
    with pytest.raises(ContractError, match=rf"data\.npz{reason}"):
        read(path)
