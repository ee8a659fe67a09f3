"""Test embeddings: deterministic, similar for related texts, and replaceable."""

from __future__ import annotations

import array
import copy
import functools
import itertools
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.similarity.hashing import hash_dense
from pytest_fakecloud.vector.embedding import Embedder, hash_sparse, stemmer
from pytest_fakecloud.vector.engine.sparse import merged
from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.model import IndexKind, SparseVector

from .building import floats, rejects, sparse


def near(first: str, second: str) -> float:
    return float(hash_dense(first, 384) @ hash_dense(second, 384))


def shared(query: str, text: str) -> float:
    asked, stored = merged(hash_sparse(query, query=True)), merged(hash_sparse(text))
    return sum(weight * stored.get(dimension, 0.0) for dimension, weight in asked.items())


def dense_of(setting: Any, text: str = "x") -> list[float]:
    dense, _ = Embedder(setting, IndexKind.DENSE, 2).embed(text)
    assert dense is not None
    return dense.tolist()


def test_related_texts_are_nearer() -> None:
    assert near("Hello", "Hello world") > near("Hello", "Vector databases")
    assert near("running shoes", "shoe for runners") > near("running shoes", "green tea")
    assert near("same text", "same text") == pytest.approx(1)
    assert near("Case", "case") == pytest.approx(1)


def test_dense_embeddings_are_unit_vectors_of_the_dimension() -> None:
    assert hash_dense("some words", 7).shape == (7,)
    assert np.linalg.norm(hash_dense("some words", 7)) == pytest.approx(1)
    for dimension in (1, 2, 7):
        for text in ("...", "", " ", "a b", "the"):
            assert np.linalg.norm(hash_dense(text, dimension)) == pytest.approx(1)


@pytest.mark.parametrize("text", ["", " ", "!!!", "\N{SLIGHTLY SMILING FACE}", "the", "the of"])
def test_a_text_without_words_is_nearest_to_itself(text: str) -> None:
    others = [other for other in ("?", "a word", "\N{SNOWMAN}", "of") if other != text]
    assert near(text, text) == pytest.approx(1)
    assert all(near(text, other) < 0.9 for other in others)
    assert shared(text, text) > 0


def test_the_same_in_every_process() -> None:
    code = (
        "from pytest_fakecloud.similarity.hashing import hash_dense;"
        "from pytest_fakecloud.vector.embedding import hash_sparse;"
        "print(hash_dense('the quick brown fox', 16).tobytes().hex(),"
        "hash_sparse('the quick brown fox').indices.tolist())"
    )
    # Run in a new process, where the hashes of strings differ unless the hash seed is fixed.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )  # fmt: skip
    dense, sparse = hash_dense("the quick brown fox", 16), hash_sparse("the quick brown fox")
    assert done.stdout == f"{dense.tobytes().hex()} {sparse.indices.tolist()}\n"


def test_sparse_embeddings_share_words_but_not_stop_words() -> None:
    assert shared("hello", "Hello, world!") > 0
    assert shared("the", "the world of the hello") == 0
    assert shared("databases", "a database") > 0
    assert shared("quick fox", "quick quick fox") > shared("quick fox", "quick brown dog")


def test_longer_texts_weigh_their_words_less() -> None:
    assert shared("fox", "fox") > shared("fox", "fox " + " ".join(f"w{n}" for n in range(50)))


def test_bm25_weight_of_one_word() -> None:
    length = 1.2 * (1 - 0.75 + 0.75 * 1 / 32)
    assert hash_sparse("fox").values.tolist() == [np.float32(2.2 / (1 + length))]


@pytest.mark.parametrize(
    "forms",
    [
        ("databases", "database"), ("running", "runs", "run"), ("cities", "city"),
        ("quickly", "quick"), ("jumped", "jump", "jumping"), ("used", "use", "uses", "using"),
    ],
)  # fmt: skip
def test_related_forms_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len(set(map(stemmer(), forms))) == 1


def test_short_and_odd_words_are_left_alone() -> None:
    assert [*map(stemmer(), ("bus", "glass", "is", "sing", "red", "x"))] == [
        "bus", "glass", "is", "sing", "red", "x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spelling", "model"),
    [
        ("BAAI/bge-m3", "bge-m3"),
        ("BAAI/bge-small-en-v1.5", "bge-small-en"),
        ("baai/bge-base-en", "bge-base-en"),
        ("BGE_LARGE_EN_V1_5", "bge-large-en"),
        ("BGE_M3", "bge-m3"),
    ],
)
def test_a_model_is_known_in_every_documented_spelling(spelling: str, model: str) -> None:
    actual, expected = (properties(name, IndexKind.HYBRID) for name in (spelling, model))
    assert actual == expected
    assert Embedder("bm25", IndexKind.SPARSE, None).sparse_model == "BM25"


def properties(setting: object, kind: IndexKind) -> tuple[int | None, str, str]:
    embedder = Embedder(setting, kind, None)
    return embedder.dimension, embedder.dense_model, embedder.sparse_model


def test_a_model_name_sets_the_dimension_and_is_reported() -> None:
    assert properties("bge-m3", IndexKind.HYBRID) == (1024, "BGE_M3", "BGE_M3")
    assert properties("bge-small-en", IndexKind.DENSE)[1] == "BGE_SMALL_EN_V1_5"
    assert properties("bge-base-en", IndexKind.HYBRID)[1:] == ("BGE_BASE_EN_V1_5", "BM25")
    assert properties("bge-large-en", IndexKind.DENSE)[1] == "BGE_LARGE_EN_V1_5"
    assert properties("bm25", IndexKind.SPARSE)[2] == "BM25"
    assert properties(True, IndexKind.DENSE)[0] == 384
    assert Embedder(True, IndexKind.DENSE, 12).dimension == 12
    assert properties(True, IndexKind.SPARSE)[1] == ""


def unpacked(vector: SparseVector | None) -> tuple[list[int], list[float]] | None:
    return vector and (vector.indices.tolist(), vector.values.tolist())


@pytest.mark.parametrize(
    "value",
    [
        [1, 2], (1.0, 2.0), np.array([1, 2]), np.array([1, 2], np.float16), floats(1, 2),
        array.array("f", [1, 2]), iter([1, 2]), [Decimal(1), Fraction(2)], [True, np.float32(2)],
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [IndexKind.DENSE, IndexKind.HYBRID])
def test_a_function_gives_a_dense_vector(value: Any, kind: IndexKind) -> None:
    dense, other = Embedder(lambda text: copy.copy(value), kind, 2).embed("x")
    assert dense is not None
    assert dense.tolist() == [1, 2]
    assert (other is None) is (kind is IndexKind.DENSE)


@pytest.mark.parametrize(
    "value",
    [
        {3: 0.5, 1: 2}, {"indices": [3, 1], "values": [0.5, 2]}, ([3, 1], [0.5, 2]),
        (np.array([3, 1]), np.array([0.5, 2])), sparse({3: 0.5, 1: 2}), {"3": 0.5, "1": 2},
        {3.0: 0.5, np.int64(1): np.float32(2)}, SimpleNamespace(indices=[3, 1], values=(0.5, 2)),
        (iter([3, 1]), iter([0.5, 2])),
    ],
)  # fmt: skip
def test_a_function_gives_a_sparse_vector(value: Any) -> None:
    none, vector = Embedder(lambda text: value, IndexKind.SPARSE, None).embed("x")
    assert unpacked(vector) == ([3, 1], [0.5, 2.0])
    assert none is None


def test_a_function_for_a_hybrid_index_may_give_one_or_both() -> None:
    def embed(value: Any) -> tuple[Any, Any]:
        dense, vector = Embedder(lambda text: value, IndexKind.HYBRID, 2).embed("fox")
        assert dense is not None
        return dense.tolist(), unpacked(vector)

    fox = unpacked(hash_sparse("fox"))
    hashed = hash_dense("fox", 2).tolist()
    assert embed(([1, 2], {5: 1.0})) == ([1, 2], ([5], [1.0]))
    assert embed([1, 2]) == ([1, 2], fox)
    assert embed({5: 1.0}) == (hashed, ([5], [1.0]))
    assert embed((None, {5: 1.0})) == (hashed, ([5], [1.0]))
    assert embed(([1, 2], None)) == ([1, 2], fox)
    assert embed([[1, 2], {"5": 1.0}]) == ([1, 2], ([5], [1.0]))
    assert embed((1, 2)) == ([1, 2], fox)
    assert embed(SimpleNamespace(indices=[5], values=[1.0])) == (hashed, ([5], [1.0]))


def test_the_hashes_take_the_dimension_that_the_index_has() -> None:
    embedder = Embedder(lambda text: {5: 1.0}, IndexKind.HYBRID, None)
    for dimension, size in ((3, 3), (None, 384)):
        dense, _ = embedder.embed("fox", dimension=dimension)
        assert dense is not None
        assert len(dense) == size


def test_a_mapping_names_the_nearest_text_it_has() -> None:
    embedder = Embedder({"hello": [1, 2], "goodbye": [3, 4]}, IndexKind.DENSE, 2)
    assert embedder.dense_model == "mapping"
    assert dense_of({"hello": [1, 2], "goodbye": [3, 4]}, "goodbye") == [3, 4]
    with rejects(422, r"no vector for the text 'helo'.*'hello'"):
        embedder.embed("helo")


def broken(text: str) -> object:
    raise ValueError(f"no idea about {text}")


def breaking() -> Iterator[float]:
    yield 1.0
    raise RuntimeError("later")


async def asynchronous(text: str) -> list[float]:
    return [1]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (broken, "failed for the text 'x': ValueError.'no idea about x'."),
        (lambda text: "text", "'x' is not usable: .*expected an array of numbers, got 'text'"),
        (lambda text: 5, "'x' is not usable: .*got 5"),
        (lambda text: ["1"], r"'x' is not usable: .*vector\[0\]: expected a number, got '1'"),
        (lambda text: [None], r"'x' is not usable: .*vector\[0\]: expected a number, got null"),
        (lambda text: [10**400], "'x' is not usable: .*finite"),
        (lambda text: np.zeros((1, 1)), "'x' is not usable: .*got 'array of 1x1 float64'"),
        (lambda text: np.array([1j]), "'x' is not usable: .*got 'array of 1 complex128'"),
        (lambda text: None, "expected a list of numbers, got None: does the function return it?"),
        ({"x": None}, "expected a list of numbers, got None"),
        (lambda text: [1, 2], "Invalid vector dimension: 2, expected: 1 .the embedding of .* 'x'"),
        (lambda text: [], "Invalid vector dimension: 0, expected: 1 .the embedding of .* 'x'"),
        (lambda text: breaking(), "'x' is not usable: RuntimeError.'later'."),
        (lambda text: itertools.repeat(1), "'x' is not usable: it has more than 1048576 numbers"),
        (lambda text: asynchronous(text), "got coroutine: .* cannot be awaited"),
    ],
)
def test_a_function_that_gives_no_vector_is_told(function: Any, reason: str) -> None:
    with rejects(422, reason):
        Embedder(function, IndexKind.DENSE, 1).embed("x")


@pytest.mark.parametrize("error", [SystemExit(1), pytest.fail.Exception("not these words")])
def test_what_ends_a_test_passes_through(error: BaseException) -> None:
    def stopping(text: str) -> object:
        raise error

    with pytest.raises(type(error)) as caught:
        Embedder(stopping, IndexKind.DENSE, 1).embed("x")
    assert caught.value is error


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({0.5: 1}, "expected a signed 32-bit integer, got 0.5"),
        ({"word": 1}, "expected a signed 32-bit integer, got 'word'"),
        ({2**31: 1}, "expected a signed 32-bit integer, got 2147483648"),
        ({"indices": [1]}, "values: expected an array of numbers, got null"),
        ([1, 2], "indices: expected an array of integers, got 1"),
        ([1, 2, 3], "expected an object with indices and values, got an array"),
        (None, "expected a mapping from index to weight, got None"),
    ],
)
def test_what_is_no_sparse_vector_is_told(value: Any, reason: str) -> None:
    with rejects(422, f"'x' is not usable: .*{reason}"):
        Embedder(lambda text: value, IndexKind.SPARSE, None).embed("x")


@pytest.mark.parametrize("value", [None, (None, None)])
def test_a_hybrid_embedding_gives_at_least_one(value: Any) -> None:
    with pytest.raises(VectorError, match=r"expected \(dense, sparse\) or either of the two, got"):
        Embedder(lambda text: value, IndexKind.HYBRID, 2).embed("x")


def test_a_mapping_may_make_up_what_it_lacks() -> None:
    assert dense_of(defaultdict(lambda: [1, 2])) == [1, 2]


def test_functions_of_any_making_embed() -> None:
    class Model:
        def encode(self, text: str, *, normalize: bool = True) -> list[float]:
            return [1, 2]

    for function in (
        Model().encode,
        functools.partial(lambda scale, text: [scale, 2], 1),
        Mock(return_value=[1, 2]),
        MagicMock(return_value=[1, 2]),
    ):
        assert dense_of(function) == [1, 2]


@pytest.mark.parametrize(
    ("setting", "kind", "what"),
    [
        ("bge-base-en", IndexKind.SPARSE, "sparse"),
        ("bm25", IndexKind.DENSE, "dense"),
        ("bm25", IndexKind.HYBRID, "dense"),
    ],
)
def test_a_model_must_make_the_vectors_of_the_kind(
    setting: str, kind: IndexKind, what: str
) -> None:
    with pytest.raises(ContractError, match=f"embedding='{setting}' has no {what} vectors"):
        Embedder(setting, kind, None)


@pytest.mark.parametrize("kind", [IndexKind.SPARSE, IndexKind.HYBRID])
def test_the_words_of_a_query_weigh_the_same(kind: IndexKind) -> None:
    embedder = Embedder(True, kind, None)
    _, asked = embedder.embed("green green tea", query=True)
    _, stored = embedder.embed("green green tea")
    assert asked is not None
    assert stored is not None
    assert asked.values.tolist() == [1.0, 1.0]
    assert stored.indices.tolist() == asked.indices.tolist()
    assert stored.values[0] > stored.values[1] > 0
