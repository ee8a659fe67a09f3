"""What was seen, what was expected, and why the nearest was not it."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.vector.assertions import expect

SEEN = [
    {"id": "a", "metadata": {"x": 1}, "vector": [0.5] * 3, "namespace": ""},
    {"id": "b", "metadata": {"x": 2}, "sparseVector": {"indices": [1], "values": [1]}},
    {"id": "a", "metadata": {"x": 2}},
]


def expected(times: int | None = None, **wanted: Any) -> list[dict[str, Any]]:
    return expect("an upsert of", SEEN, wanted, times)


def test_what_matched_is_returned() -> None:
    assert expected(id="a") == [SEEN[0], SEEN[2]]
    assert expected(id="a", metadata={"x": 2}) == [SEEN[2]]
    assert expected(metadata=lambda m: m["x"] > 1, times=2) == SEEN[1:]
    assert expected(id="z", times=0) == []
    assert expected(id=None) == SEEN


def test_failures_name_the_nearest_first_and_what_differed() -> None:
    with pytest.raises(AssertionError) as caught:
        expected(id="b", metadata={"x": 1})
    lines = str(caught.value).splitlines()
    assert lines[0] == "expected an upsert of id='b' metadata={'x': 1} at least once, found 0"
    assert lines[1:] == [
        "  not id='b' metadata={'x': 2} sparseVector=<1 numbers>: "
        "metadata is {'x': 2}, not {'x': 1}",
        "  not id='a' metadata={'x': 1} vector=<3 numbers> namespace='': id is 'a', not 'b'",
        "  not id='a' metadata={'x': 2}: id is 'a', not 'b'; metadata is {'x': 2}, not {'x': 1}",
    ]


def test_a_wrong_count_lists_what_matched() -> None:
    with pytest.raises(AssertionError) as caught:
        expected(id="a", times=1)
    text = str(caught.value)
    assert text.startswith("expected an upsert of id='a' 1 time(s), found 2\n  matched: id='a'")
    assert "not id='b'" in text
    with pytest.raises(AssertionError, match=r"\(any\) 0 time\(s\), found 3"):
        expected(times=0)


def test_an_absent_field_is_called_absent() -> None:
    with pytest.raises(AssertionError, match="data is absent, not 'x'"):
        expected(data="x")
    with pytest.raises(AssertionError, match="data is absent"):
        expected(data=lambda data: True)


def test_of_many_the_likest_is_named() -> None:
    seen = [{"id": f"user-{n}"} for n in range(500)] + [{"id": "article-77"}]
    with pytest.raises(AssertionError) as caught:
        expect("an upsert of", seen, {"id": "artikle-77"}, None)
    lines = str(caught.value).splitlines()
    assert lines[1] == "  not id='article-77': id is 'article-77', not 'artikle-77'"
    assert len(lines) == 6


@pytest.mark.parametrize("kind", [list, tuple, np.array, np.float32, iter])
def test_vectors_agree_as_the_index_keeps_them(kind: Any) -> None:
    sent = [{"id": "a", "vector": [0.1, 2]}, {"id": "b", "vector": np.float32([0.1, 2]).tolist()}]
    assert len(expect("", sent, {"vector": kind([0.1, 2])}, 2)) == 2
    with pytest.raises(AssertionError, match=r"vector is \[0.1, 2\], not 3 numbers"):
        expect("", sent, {"vector": kind([0.1, 2, 3])}, None)
    with pytest.raises(AssertionError, match=r"vector is \[0.1, 2\], not \[0.1.*, 3.0\]"):
        expect("", sent, {"vector": kind([0.1, 3])}, None)


def test_matchers_of_other_libraries_compare_for_themselves() -> None:
    seen = [{"id": "a", "vector": [0.5, 1], "metadata": {"x": 1.0, "y": ["z"]}}]
    for wanted in (
        {"vector": pytest.approx([0.5, 1.0000001])},
        {"id": ANY, "metadata": {"x": ANY, "y": ("z",)}},
        {"metadata": {"x": np.float64(1), "y": np.array(["z"])}},
    ):
        assert expect("", seen, wanted, None) == seen


def test_long_values_are_cut_to_what_differs() -> None:
    text = "t" * 5000
    seen = [{"vector": [0.0] * 500, "metadata": {"text": text, "x": 1, "old": 1}}]
    with pytest.raises(AssertionError) as caught:
        expect("", seen, {"vector": [0.0] * 400 + [1.0] * 100}, None)
    assert (
        "vector is <500 numbers> that differs in 100 numbers, first in [400]: 0.0, not 1.0"
        in str(caught.value)
    )
    with pytest.raises(AssertionError) as other:
        expect("", seen, {"metadata": {"text": text, "x": 2, "new": 1}}, None)
    assert str(other.value).endswith(
        "metadata.x is 1, not 2, metadata.new is absent, not 1, metadata.old is 1, not asked for"
    )
    deep = [{"metadata": {"pages": [{"text": text}, {"text": text + "end"}]}, "data": text}]
    wanted = {"metadata": {"pages": [{"text": text}, {"text": text}]}, "data": text[:-1] + "x"}
    with pytest.raises(AssertionError) as third:
        expect("", deep, wanted, None)
    assert str(third.value).endswith(
        "metadata.pages[1].text from its character 5000 on is 'end', not ''; "
        "data from its character 4999 on is 't', not 'x'"
    )
    many = [{"metadata": {str(n): n for n in range(100)}}]
    with pytest.raises(AssertionError, match=r"metadata\.4 is 4, not 5 and 95 more$"):
        expect("", many, {"metadata": {str(n): n + 1 for n in range(100)}}, None)
    assert max(len(str(caught.value)), len(str(other.value))) < 1500


def test_a_predicate_that_raises_does_not_hold() -> None:
    assert expected(id="a", metadata=lambda m: m["x"] == 1 or m["y"]) == [SEEN[0]]
    assert expected(id="b", metadata=lambda m: 1 / (m["x"] - 1)) == [SEEN[1]]
    assert expected(id="z", metadata=lambda m: m["y"], times=0) == []
    with pytest.raises(AssertionError) as caught:
        expected(metadata=lambda m: m["y"], times=0)
    text = str(caught.value)
    assert "a predicate raised for every one it was asked about, so it decides nothing" in text
    assert "metadata is {'x': 1}, for which <lambda> raised" in text
    assert "raised KeyError('y')" in text


@pytest.mark.parametrize(
    ("wanted", "times", "reason"),
    [
        (
            {"id": ["a"]},
            0,
            r"id=\['a'\] can never be sent: give a text, or a predicate on the field",
        ),
        ({"id": True}, 0, "id=True can never be sent"),
        ({"id": b"a"}, 0, "id=b'a' can never be sent"),
        ({"id": np.array([1, 2])}, 0, "id=array.* can never be sent"),
        ({"metadata": "x"}, 0, "metadata='x' can never be sent: give a mapping"),
        ({"data": 5}, 0, "data=5 can never be sent"),
        ({"topK": "3"}, 0, "top_k='3' can never be sent: give a whole number"),
        ({"vector": 5}, 0, "vector=5 can never be sent: give a list of numbers"),
        ({"vector": ["x"]}, 0, r"no vector can be \['x'\]: .*expected a number, got 'x'"),
        ({"vector": np.zeros((1, 2))}, 0, "no vector can be .*array of 1x2"),
        ({}, -1, "times=-1 is no count: give a whole number from 0 up"),
        ({}, "2", "times='2' is no count"),
        ({}, True, "times=True is no count"),
    ],
)
def test_what_could_never_agree_is_refused(wanted: Any, times: Any, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        expect("", SEEN, wanted, times)


def test_nothing_at_all_is_said() -> None:
    with pytest.raises(AssertionError, match="no client has made a query at all"):
        expect("a query with", [], {"topK": 1}, None)
