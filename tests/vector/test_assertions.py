"""What was seen, what was expected, and why the nearest was not it."""

from __future__ import annotations

from typing import Any

import pytest

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
        "  not id='a' metadata={'x': 1} vector=<3 numbers> namespace='': id is 'a', not 'b'",
        "  not id='b' metadata={'x': 2} sparseVector=<1 numbers>: "
        "metadata is {'x': 2}, not {'x': 1}",
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


def test_nothing_at_all_is_said() -> None:
    with pytest.raises(AssertionError, match="no client has made a query at all"):
        expect("a query with", [], {"topK": 1}, None)
