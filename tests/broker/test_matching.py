from __future__ import annotations

from pytest_fakecloud.broker.matching import Expectation, failure
from pytest_fakecloud.broker.model import Header, Record


def record(value: str, offset: int = 0, headers: tuple[Header, ...] = ()) -> Record:
    return Record("t", 0, offset, 0, None, value, headers)


def test_no_expectation_is_met_by_anything() -> None:
    assert Expectation().why_not(record("x")) == []
    assert str(Expectation()) == ""


def test_nested_differences_are_named_by_path() -> None:
    reasons = Expectation({"a": {"b": 1, "c": 2}}).why_not(record('{"a": {"b": 3}}'))
    assert reasons == ["value.a.b is 3, not 1", "value.a.c is absent"]
    assert Expectation([1]).why_not(record("[2]")) == ["value is [2], not [1]"]


def test_one_of_several_headers_of_a_name_is_enough() -> None:
    headers = (Header("h", "1"), Header("h", "2"))
    assert Expectation(headers={"h": "2"}).why_not(record("x", headers=headers)) == []
    assert Expectation(headers={"h": "3"}).why_not(record("x", headers=headers)) == [
        "header 'h' is '1' and '2', not '3'"
    ]


def test_predicates_are_named() -> None:
    def is_paid(value: str) -> bool:
        return False

    assert Expectation(is_paid).why_not(record("x")) == ["value 'x' does not satisfy is_paid"]


def test_long_values_are_cut() -> None:
    [reason] = Expectation("y").why_not(record("x" * 1000))
    assert len(reason) < 300
    assert "(1002 characters)" in reason


def test_only_the_nearest_are_listed() -> None:
    candidates = [(record(str(n), n), ["why"] * (n + 1)) for n in range(9)]
    text = failure("expected", candidates, [], "a note")
    assert text.splitlines()[:2] == ["expected", "  not t-0@0 '0': why"]
    assert "4 more records" in text
    assert text.endswith("a note")
