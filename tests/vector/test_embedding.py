"""Texts become vectors: always the same, near when related, replaceable."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pytest_fakecloud.kernel.errors import ContractError
from pytest_fakecloud.vector.embedding import Embedder, hash_dense, hash_sparse, stem
from pytest_fakecloud.vector.errors import VectorError
from pytest_fakecloud.vector.model import Kind, SparseVector
from pytest_fakecloud.vector.sparse import merged

from .building import floats, sparse


def near(one: str, other: str) -> float:
    return float(hash_dense(one, 384) @ hash_dense(other, 384))


def shared(query: str, text: str) -> float:
    asked, stored = merged(hash_sparse(query, query=True)), merged(hash_sparse(text))
    return sum(weight * stored.get(dimension, 0.0) for dimension, weight in asked.items())


def test_related_texts_are_nearer() -> None:
    assert near("Hello", "Hello world") > near("Hello", "Vector databases")
    assert near("running shoes", "shoe for runners") > near("running shoes", "green tea")
    assert near("same text", "same text") == pytest.approx(1)
    assert near("Case", "case") == pytest.approx(1)


def test_dense_embeddings_are_unit_vectors_of_the_dimension() -> None:
    assert hash_dense("some words", 7).shape == (7,)
    assert np.linalg.norm(hash_dense("some words", 7)) == pytest.approx(1)
    assert not hash_dense("...", 7).any()


def test_the_same_in_every_process() -> None:
    code = (
        "from pytest_fakecloud.vector.embedding import hash_dense, hash_sparse;"
        "print(hash_dense('the quick brown fox', 16).tobytes().hex(),"
        "hash_sparse('the quick brown fox').indices.tolist())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True
        ).stdout
        for _ in range(2)
    }
    here = hash_dense("the quick brown fox", 16).tobytes().hex()
    assert len(outputs) == 1
    assert outputs.pop().startswith(here)


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
        ("databases", "database"),
        ("running", "runs", "run"),
        ("cities", "city"),
        ("quickly", "quick"),
        ("jumped", "jump", "jumping"),
    ],
)
def test_related_forms_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


def test_short_and_odd_words_are_left_alone() -> None:
    assert [stem(word) for word in ("bus", "glass", "is", "sing", "red", "x")] == [
        "bus", "glass", "is", "sing", "red", "x",
    ]  # fmt: skip


def test_a_model_name_sets_the_dimension_and_is_reported() -> None:
    embedder = Embedder("bge-m3", Kind.HYBRID, None)
    assert (embedder.dimension, embedder.dense_model, embedder.sparse_model) == (
        1024,
        "bge-m3",
        "bge-m3",
    )
    assert Embedder("bge-base-en", Kind.HYBRID, None).sparse_model == "bm25"
    assert Embedder("bm25", Kind.SPARSE, None).sparse_model == "bm25"
    assert Embedder(True, Kind.DENSE, None).dimension == 384
    assert Embedder(True, Kind.DENSE, 12).dimension == 12
    assert Embedder(True, Kind.SPARSE, None).dense_model == ""


def unpacked(vector: SparseVector | None) -> tuple[list[int], list[float]] | None:
    return vector and (vector.indices.tolist(), vector.values.tolist())


@pytest.mark.parametrize("value", [[1, 2], (1.0, 2.0), np.array([1, 2]), floats(1, 2)])
def test_a_function_gives_a_dense_vector(value: Any) -> None:
    dense, none = Embedder(lambda text: value, Kind.DENSE, 2).embed("x")
    assert dense is not None
    assert dense.tolist() == [1, 2]
    assert none is None


@pytest.mark.parametrize(
    "value",
    [
        {3: 0.5, 1: 2},
        {"indices": [3, 1], "values": [0.5, 2]},
        ([3, 1], [0.5, 2]),
        (np.array([3, 1]), np.array([0.5, 2])),
        sparse({3: 0.5, 1: 2}),
    ],
)
def test_a_function_gives_a_sparse_vector(value: Any) -> None:
    none, vector = Embedder(lambda text: value, Kind.SPARSE, None).embed("x")
    assert unpacked(vector) == ([3, 1], [0.5, 2.0])
    assert none is None


def test_a_function_for_a_hybrid_index_may_give_one_or_both() -> None:
    def embed(value: Any) -> tuple[Any, Any]:
        dense, vector = Embedder(lambda text: value, Kind.HYBRID, 2).embed("fox")
        assert dense is not None
        return dense.tolist(), unpacked(vector)

    fox = unpacked(hash_sparse("fox"))
    hashed = hash_dense("fox", 2).tolist()
    assert embed(([1, 2], {5: 1.0})) == ([1, 2], ([5], [1.0]))
    assert embed([1, 2]) == ([1, 2], fox)
    assert embed({5: 1.0}) == (hashed, ([5], [1.0]))
    assert embed((None, {5: 1.0})) == (hashed, ([5], [1.0]))
    assert embed(([1, 2], None)) == ([1, 2], fox)


def test_a_mapping_names_the_nearest_text_it_has() -> None:
    embedder = Embedder({"hello": [1, 2], "goodbye": [3, 4]}, Kind.DENSE, 2)
    assert embedder.dense_model == "mapping"
    dense, _ = embedder.embed("goodbye")
    assert dense is not None
    assert dense.tolist() == [3, 4]
    with pytest.raises(VectorError, match=r"no vector for the text 'helo'.*'hello'") as bad:
        embedder.embed("helo")
    assert bad.value.status == 422


def broken(text: str) -> object:
    raise ValueError(f"no idea about {text}")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (broken, "failed for the text 'x': ValueError.'no idea about x'."),
        (lambda text: "text", "'x' is not usable: .*expected an array of numbers, got 'text'"),
        (lambda text: [float("nan")], "'x' is not usable: .*finite"),
        (lambda text: 5, "'x' is not usable: .*got 5"),
        (lambda text: ["a"], "'x' is not usable: could not convert"),
        (lambda text: [None], "'x' is not usable: .*NoneType"),
    ],
)
def test_a_function_that_gives_no_vector_is_told(function: Any, reason: str) -> None:
    with pytest.raises(VectorError, match=reason) as caught:
        Embedder(function, Kind.DENSE, 1).embed("x")
    assert caught.value.status == 422


@pytest.mark.parametrize(
    ("setting", "kind", "what"),
    [
        ("bge-base-en", Kind.SPARSE, "sparse"),
        ("bm25", Kind.DENSE, "dense"),
        ("bm25", Kind.HYBRID, "dense"),
    ],
)
def test_a_model_must_make_the_vectors_of_the_kind(setting: str, kind: Kind, what: str) -> None:
    with pytest.raises(ContractError, match=f"embedding='{setting}' makes no {what} vectors"):
        Embedder(setting, kind, None)


@pytest.mark.parametrize("setting", ["bge-huge", 5, None])
def test_a_setting_without_meaning_is_a_contract_error(setting: Any) -> None:
    with pytest.raises(ContractError, match="embedding="):
        Embedder(setting, Kind.DENSE, None)


@pytest.mark.parametrize("kind", [Kind.SPARSE, Kind.HYBRID])
def test_the_words_of_a_query_weigh_the_same(kind: Kind) -> None:
    embedder = Embedder(True, kind, None)
    _, asked = embedder.embed("green green tea", query=True)
    _, stored = embedder.embed("green green tea")
    assert asked is not None
    assert stored is not None
    assert asked.values.tolist() == [1.0, 1.0]
    assert stored.indices.tolist() == asked.indices.tolist()
    assert stored.values[0] > stored.values[1] > 0
