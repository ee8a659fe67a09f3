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
    assert reasons == ["value.a.b is 3, not 1", "value.a.c is absent, not 2"]
    assert Expectation([1]).why_not(record("[2]")) == ["value[0] is 2, not 1"]


def test_one_of_several_headers_of_a_name_is_enough() -> None:
    headers = (Header("h", "1"), Header("h", "2"))
    assert Expectation(headers={"h": "2"}).why_not(record("x", headers=headers)) == []
    assert Expectation(headers={"h": "3"}).why_not(record("x", headers=headers)) == [
        "header 'h' is '1' and '2', not '3'"
    ]


def test_predicates_are_named() -> None:
    def is_paid(value: str) -> bool:
        return False

    assert Expectation(is_paid).why_not(record("x")) == [
        "value is 'x', which does not satisfy is_paid"
    ]


def test_long_values_are_cut() -> None:
    [reason] = Expectation("y").why_not(record("x" * 1000))
    assert len(reason) < 300
    assert "'xxx" in reason
    assert "…" in reason


def test_only_the_nearest_are_listed() -> None:
    candidates = [(record(str(n), n), ["why"] * (n + 1)) for n in range(9)]
    text = failure("expected", candidates, [], "a note")
    assert text.splitlines()[:2] == ["expected", "  not t-0@0 '0': why"]
    assert "4 more records" in text
    assert text.endswith("a note")


def test_the_nearest_record_is_named_first() -> None:
    wanted = Expectation({"id": 1, "name": "ann", "of": "x"}, key="k")
    records = [
        record("no JSON", 0),
        record('{"id": 7}', 1),
        record('{"id": 1, "name": "bob", "of": "y"}', 2),
        record("[]", 3),
    ]
    text = failure("expected", [(r, wanted.why_not(r)) for r in records], [], "", wanted.distance)
    assert [line.split()[1] for line in text.splitlines()[1:]] == [
        "t-0@2",
        "t-0@1",
        "t-0@0",
        "t-0@3",
    ]
    wanted = Expectation("order paid")
    records = [record("zzz", 0), record("order paid twice", 1)]
    text = failure("expected", [(r, wanted.why_not(r)) for r in records], [], "", wanted.distance)
    assert text.splitlines()[1].startswith("  not t-0@1")


def test_what_matches_in_more_parts_is_nearer_than_a_likely_value() -> None:
    wanted = Expectation("order 1", key="k", partition=0)
    keyed = Record("t", 0, 1, 0, "k", "zzz")
    records = [record("order 2", 0), keyed]
    assert min(records, key=wanted.distance) is keyed


def test_tuples_are_lists_as_in_json() -> None:
    assert Expectation({"items": (1, {"a": ()})}).why_not(record('{"items": [1, {"a": []}]}')) == []
    assert Expectation((1, 2)).why_not(record("[1, 2]")) == []
