"""``Headers`` finds values by name in any case, keeps repeated headers and compares as a mapping."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.calls import Headers
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.matching import HEADERS, Question

SENT = Headers([("X-A", "1"), ("Accept", "text/html"), ("x-a", "2")])


def test_a_header_is_found_in_any_case_and_the_first_value_counts() -> None:
    assert (SENT["x-A"], SENT.get("ACCEPT"), SENT.get("X-B")) == ("1", "text/html", None)
    assert "accept" in SENT
    assert "x-b" not in SENT
    with pytest.raises(KeyError, match="X-B"):
        SENT["X-B"]


def test_getlist_returns_each_value_of_a_repeated_header() -> None:
    assert (SENT.getlist("X-a"), SENT.getlist("X-B")) == (["1", "2"], [])
    assert list(SENT.pairs) == [("X-A", "1"), ("Accept", "text/html"), ("x-a", "2")]


def test_headers_become_a_dict_with_each_name_once() -> None:
    assert len(SENT) == 2
    assert dict(SENT) == {"X-A": "1", "Accept": "text/html"}


def test_headers_compare_with_mappings_and_ignore_case_and_order() -> None:
    assert Headers([("A", "1"), ("B", "2")]) == {"b": "2", "a": "1"}
    assert Headers([("A", "1")]) != {"A": "2"}
    assert Headers([("A", "1"), ("a", "2")]) != Headers([("A", "1")])
    assert Headers([("A", "1")]) != [("A", "1")]


@pytest.mark.parametrize("name", [1, None, b"X-A"])
def test_a_name_that_is_not_a_string_is_the_tests_mistake(name: object) -> None:
    with pytest.raises(ContractError, match="is not the name of a header: pass a string"):
        SENT.get(name)  # type: ignore[arg-type]


def test_an_assertion_sees_each_value_of_a_repeated_header() -> None:
    assert Question("headers", {"x-a": "2"}, HEADERS).agrees(SENT)
