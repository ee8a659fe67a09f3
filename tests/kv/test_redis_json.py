"""JSON in the stock dialect, as the tests of redis-py expect it of RedisJSON."""

from __future__ import annotations

import json

import pytest

from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run

pytestmark = pytest.mark.dialect("redis")
DOC = {
    "a": ["foo"],
    "nested1": {"a": ["hello", None, "world"]},
    "nested2": {"a": 31},
}


@pytest.fixture
def doc(run: Run) -> Run:
    assert run("JSON.SET", "doc", "$", json.dumps(DOC)) == OK
    return run


def test_a_node_comes_before_what_is_below_it(doc: Run) -> None:
    assert doc("JSON.ARRLEN doc $..a") == [1, 3, None]
    assert doc("JSON.TYPE doc $..a") == [b"array", b"array", b"integer"]
    assert doc("JSON.ARRAPPEND doc $..a 1") == [2, 4, None]


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("JSON.ARRAPPEND doc ..a 1 2", 5),
        ("JSON.ARRINSERT doc ..a 0 1", 4),
        ("JSON.ARRPOP doc ..a 1", b"null"),
        ("JSON.ARRTRIM doc ..a 1 -1", 2),
        ("JSON.ARRLEN doc ..a", 1),
    ],
)
def test_of_an_old_path_the_last_change_is_told_and_the_first_that_is_read(
    doc: Run, line: str, reply: object
) -> None:
    assert doc(line) == reply


def test_what_works_on_no_match_is_an_error(doc: Run) -> None:
    text = "WRONGTYPE wrong type of path value - expected array but found object"
    assert doc.error("JSON.ARRAPPEND doc .nested1 1") == text


def test_a_dot_may_stand_before_a_bracket(doc: Run) -> None:
    assert doc("JSON.DEL", "doc", '$.["nested1"]..a') == 1
    assert json.loads(doc("JSON.GET doc")) == {**DOC, "nested1": {}}


@pytest.mark.dialect("vendor")
def test_the_vendor_has_another_order(doc: Run) -> None:
    assert doc("JSON.ARRLEN doc $..a") == [3, None, 1]
    assert "a name is missing" in doc.error("JSON.GET", "doc", "$.[0]")
