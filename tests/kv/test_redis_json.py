"""JSON in the stock dialect, as the tests of redis-py expect it of RedisJSON."""

from __future__ import annotations

import json

import pytest

from pytest_fakecloud.kv.reply import OK, Status
from tests.kv.conftest import Run

pytestmark = pytest.mark.dialect("redis", modules=("ReJSON",))
DOC = {"a": ["foo"], "nested1": {"a": ["hello", None, "world"]}, "nested2": {"a": 31}}


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
def test_legacy_paths_return_the_last_change_or_first_match(
    doc: Run, line: str, reply: object
) -> None:
    assert doc(line) == reply


def test_commands_without_a_match_fail(doc: Run) -> None:
    text = "WRONGTYPE wrong type of path value - expected array but found object"
    assert doc.error("JSON.ARRAPPEND doc .nested1 1") == text


def test_a_dot_may_stand_before_a_bracket(doc: Run) -> None:
    assert doc("JSON.DEL", "doc", '$.["nested1"]..a') == 1
    assert json.loads(doc("JSON.GET doc")) == {**DOC, "nested1": {}}


@pytest.mark.dialect("vendor")
def test_the_vendor_has_another_order(doc: Run) -> None:
    assert doc("JSON.ARRLEN doc $..a") == [3, None, 1]
    assert "a name is missing" in doc.error("JSON.GET", "doc", "$.[0]")


def test_an_old_path_that_finds_no_object_to_count_is_no_error(doc: Run) -> None:
    assert doc("JSON.OBJLEN doc .nested1") == 1
    assert doc("JSON.OBJLEN doc .nowhere") is None
    assert doc("JSON.OBJLEN missing .a") is None
    assert doc("JSON.OBJLEN doc $.nowhere") == []
    text = "ERR Path '.nowhere' does not exist"
    assert doc.error("JSON.OBJKEYS doc .nowhere") == text


def test_a_type_is_in_one_more_array_in_resp3(doc: Run) -> None:
    client = doc.other(resp=3)
    assert client("JSON.TYPE doc $..a") == [[b"array", b"array", b"integer"]]
    assert client("JSON.TYPE doc .a") == [b"array"]
    assert client("JSON.TYPE missing .a") == [None]
    assert doc("JSON.TYPE doc .a") == b"array"


def test_numbers_are_numbers_in_resp3(doc: Run) -> None:
    client = doc.other(resp=3)
    assert client("JSON.NUMINCRBY doc $..a 2") == [None, None, 33]
    assert client("JSON.NUMMULTBY doc .nested2.a 0.5") == [16.5]
    assert client("JSON.RESP doc .nested2") == [Status(b"{"), b"a", 16.5]
    assert doc("JSON.RESP doc .nested2") == [Status(b"{"), b"a", b"16.5"]
    assert doc("JSON.NUMINCRBY doc .nested2.a 1") == b"17.5"


@pytest.mark.dialect("vendor")
def test_the_vendor_misses_the_path(doc: Run) -> None:
    assert doc.error("JSON.OBJLEN doc .nowhere") == "ERR Path '.nowhere' does not exist"
    assert doc.other(resp=3)("JSON.TYPE doc .a") == b"array"
