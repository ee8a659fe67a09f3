"""Test the reading of JSON values: errors name the wrong value, and nothing is guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.fields import Fields, as_floats, as_sparse
from pytest_fakecloud.vector.model import Fusion, UpdateMode, VectorRecord
from pytest_fakecloud.vector.settings import VectorLimits

from .building import rejects


def fields(value: Any, **limits: int) -> Fields:
    return Fields(value, VectorLimits(**limits))


@given(st.lists(st.integers(-(2**70), 2**70) | st.floats(-3e38, 3e38), max_size=20))
def test_numbers_become_float32(values: list[float]) -> None:
    floats = as_floats(values)
    assert floats.dtype == np.float32
    assert floats.tolist() == [float(np.float32(value)) for value in values]


@pytest.mark.parametrize(
    ("value", "status", "text"),
    [
        ("text", 422, "Invalid field vector: expected an array of numbers, got 'text'"),
        ({"a": 1}, 422, "expected an array of numbers, got an object"),
        ([1, "2"], 422, r"Invalid field vector\[1\]: expected a number, got '2'"),
        ([1, 2.5, None], 422, r"Invalid field vector\[2\]: expected a number, got null"),
        ([True], 422, r"vector\[0\]: expected a number, got true"),
        ([[1]], 422, r"vector\[0\]: expected a number, got an array"),
        ([1e39], 422, "every number must be finite and within the range of a 32-bit float"),
        ([10**400], 422, "32-bit float"),
        ([float("nan")], 422, "finite"),
        ([float("-inf")], 422, "finite"),
    ],
)
def test_what_is_no_vector(value: Any, status: int, text: str) -> None:
    with rejects(status, text):
        as_floats(value)


def test_sparse_vectors_keep_order_and_duplicates() -> None:
    vector = as_sparse({"indices": [5, -(2**31), 5, 2**31 - 1], "values": [1, 2, 3, 0]})
    assert vector.indices.tolist() == [5, -(2**31), 5, 2**31 - 1]
    assert vector.values.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1], "Invalid field sparseVector: expected an object with indices and values"),
        ({"values": [1]}, "sparseVector.indices: expected an array of integers, got null"),
        ({"indices": [1]}, "sparseVector.values: expected an array of numbers, got null"),
        ({"indices": [1.5], "values": [1]}, r"indices\[0\]: expected a signed 32-bit integer"),
        ({"indices": [True], "values": [1]}, r"indices\[0\]: .* got true"),
        ({"indices": [2**31], "values": [1]}, r"indices\[0\]: expected a signed 32-bit"),
        ({"indices": [1, 2], "values": [1]}, "2 indices, but 1 values"),
        ({"indices": [], "values": [1]}, "0 indices, but 1 values"),
        ({"indices": [1], "values": [1], "weights": []}, "sparseVector: unknown field 'weights'"),
        ({"indices": [1], "values": [float("inf")]}, "finite"),
    ],
)
def test_what_is_no_sparse_vector(value: Any, text: str) -> None:
    with pytest.raises(VectorError, match=text):
        as_sparse(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "The request body must be a JSON object, got an array"),
        (None, "must be a JSON object, got null"),
        ({"top_k": 1}, "unknown field 'top_k'; did you mean 'topK'"),
        ({"includeVector": True}, "did you mean 'includeVectors'"),
        ({"zzz": 1}, "unknown field 'zzz'$"),
        ({"x" * 200: 1}, "unknown field 'x{80}'$"),
    ],
)
def test_unknown_fields_are_named(value: Any, text: str) -> None:
    with pytest.raises(VectorError, match=text):
        fields(value)


def test_fields_of_other_commands_are_ignored() -> None:
    assert fields({"id": "a", "namespace": "x", "topK": 5}).get("id") == "a"


def test_ids_are_text() -> None:
    assert [fields({"id": value}).id() for value in ("", "a", 33, -1)] == ["", "a", "33", "-1"]
    assert fields({"ids": [1, "b"]}).ids() == ["1", "b"]
    with pytest.raises(VectorError, match=r"Invalid field ids\[1\]"):
        fields({"ids": ["a", None]}).ids()


@pytest.mark.parametrize(
    ("value", "slot"), [(None, 0), ("", 0), ("0", 0), (0, 0), ("17", 17), (17, 17)]
)
def test_cursors(value: Any, slot: int) -> None:
    assert fields({"cursor": value}).cursor() == slot
    assert fields({}).cursor() == 0


@pytest.mark.parametrize("value", ["abc", "-1", -1, "1.5", "٣", "9" * 30])
def test_cursors_that_are_not_positions(value: Any) -> None:
    with rejects(400, r"Invalid cursor .*: pass '0' to start"):
        fields({"cursor": value}).cursor()


def test_numbers_flags_and_words() -> None:
    assert fields({"limit": 5.0}).number("limit", 1) == 5
    assert fields({"limit": None}).number("limit", 7) == 7
    assert fields({"includeData": True}).flag("includeData") is True
    assert fields({"includeData": None}).flag("includeData") is False
    assert fields({"fusionAlgorithm": "rrf"}).choice("fusionAlgorithm", Fusion) is Fusion.RRF
    assert fields({}).choice("fusionAlgorithm", Fusion) is None
    for bad in (0, -1, 1.5, "5", True, 2**31):
        with pytest.raises(VectorError, match="Invalid field limit: expected a whole number"):
            fields({"limit": bad}).number("limit", 1)
    for choice in ("BM25", 1):
        with pytest.raises(
            VectorError, match="Invalid field fusionAlgorithm: expected RRF or DBSF"
        ):
            fields({"fusionAlgorithm": choice}).choice("fusionAlgorithm", Fusion)


def test_metadata_is_an_object_of_limited_size() -> None:
    assert fields({"metadata": {"a": None}}).metadata() == {"a": None}
    assert fields({"metadata": None}).metadata() is None
    fits = {"a": "x" * (48 * 1024 - len('{"a":""}'))}
    assert fields({"metadata": fits}).metadata() == fits
    with pytest.raises(
        VectorError, match="Metadata size limit exceeded: 49153 bytes, maximum: 49152 bytes"
    ):
        fields({"metadata": {"a": fits["a"] + "x"}}).metadata()


def test_metadata_that_could_never_be_answered_is_refused() -> None:
    deep: Any = {}
    for _ in range(260):
        deep = {"a": deep}
    with rejects(400, "Invalid field metadata"):
        fields({"metadata": deep}).metadata()


def test_sizes_under_limits() -> None:
    with pytest.raises(VectorError, match="Data size limit exceeded: 3 bytes, maximum: 2 bytes"):
        fields({"data": "é1"}, data_bytes=2).data()
    with pytest.raises(VectorError, match="Id size limit exceeded: 3 bytes"):
        fields({"id": "é1"}, id_bytes=2).id()
    with pytest.raises(VectorError, match="Id size limit exceeded: 3 bytes"):
        fields({"id": 100}, id_bytes=2).id()
    with pytest.raises(VectorError, match="Id count limit exceeded: 3, maximum: 2"):
        fields({"ids": ["a", "b", "c"]}, ids_per_call=2).ids()
    with pytest.raises(VectorError, match="topK limit exceeded: 3, maximum: 2"):
        fields({"vector": [1], "topK": 3}, top_k=2).query()
    with pytest.raises(VectorError, match="Sparse vector size limit exceeded: 1001, maximum: 1000"):
        fields({"sparseVector": {"indices": [1] * 1001, "values": [1] * 1001}}).sparse()


def test_a_sparse_vector_has_at_least_one_entry() -> None:
    empty = fields({"id": "a", "sparseVector": {"indices": [], "values": []}})
    for read in (empty.record, empty.change, empty.query):
        with rejects(422, "at least one index and its value"):
            read()


def test_a_record_with_explicit_nulls() -> None:
    nulls = dict.fromkeys(("sparseVector", "metadata", "data"))
    record = fields({"id": 1, "vector": [1], **nulls}).record()
    assert (record.id, record.sparse, record.metadata, record.data) == ("1", None, None, None)


def test_a_query_with_defaults() -> None:
    query = fields({"vector": [1]}).query()
    assert (query.top_k, query.filter, query.weighting, query.fusion) == (10, "", None, Fusion.RRF)
    assert query.include == (False, False, False)
    assert fields({}).max_idle_us() == 3600 * 1_000_000


def test_a_change_changes_something() -> None:
    assert fields({"id": "a", "data": ""}).change()[1] is UpdateMode.OVERWRITE
    patch = {"id": "a", "metadata": {}, "metadataUpdateMode": "PATCH"}
    assert fields(patch).change() == (VectorRecord("a", metadata={}), UpdateMode.PATCH)
    with pytest.raises(VectorError, match="The update changes nothing: pass at least one of"):
        fields({"id": "a", "metadata": None}).change()


@pytest.mark.parametrize("value", [2**31, 2**40, 1e15])
def test_a_number_that_is_too_large_is_called_that(value: float) -> None:
    with pytest.raises(VectorError, match="topK: expected a whole number of at most 2147483647"):
        fields({"topK": value}).top_k("topK", 10)
    assert fields({"topK": 2**31 - 1}).top_k("topK", 10) == 2**31 - 1
