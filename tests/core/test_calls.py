"""Calls that the journal has cut, questions about them that raise an error, and the names of calls."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from pytest_fakecloud.core.calls import (
    ITEMS_OF_CUT,
    KEPT_OF_CUT,
    NO_HEADERS,
    Call,
    CallNames,
    CutBytes,
    Headers,
    NamesOf,
    faults_end,
    field_of,
    interruptions_end,
    parts_of,
    record_cut,
    set_facts,
    set_faults_end,
    set_interruptions_end,
    shorten,
    weight_of,
)
from pytest_fakecloud.core.errors import CannotTell, ContractError
from pytest_fakecloud.core.matching import HEADERS, Question


def call(facts: dict[str, Any] | None = None, **fields: Any) -> Call:
    made = Call(7, 0, "demo", "demo_1", "POST", "/x?y=1", Headers([("X", "1")]), b"body")
    set_facts(made, facts or {})
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# -- cutting ---------------------------------------------------------------------------------------


class Name(str):
    """A subclass of str, like a command's name."""


@pytest.mark.parametrize(
    ("whole", "left"),
    [
        ("x" * KEPT_OF_CUT, None),
        ("x" * (KEPT_OF_CUT + 1), "x" * KEPT_OF_CUT + "…"),
        (b"x" * (KEPT_OF_CUT + 1), b"x" * KEPT_OF_CUT),
        (["ab"] * 100, None),
        (["ab"] * 200, ["ab"] * ITEMS_OF_CUT),
        (("ab",) * 200, ["ab"] * ITEMS_OF_CUT),
        (["y" * 64, "y" * 65, "y" * 2000], ["y" * 64, "y" * 64 + "…", "y" * 64 + "…"]),
        ([[["z" * 2000]]], [[["z" * 64 + "…"]]]),
        ({"k" * 65: "v" * 2000, "n": 1, "none": None},
         {"k" * 64 + "…": "v" * 64 + "…", "n": 1, "none": None}),
        ({f"{n:04}": n for n in range(200)}, {f"{n:04}": n for n in range(ITEMS_OF_CUT)}),
    ],
)  # fmt: skip
def test_a_long_fact_keeps_its_beginning(whole: Any, left: Any) -> None:
    entry = call({"fact": whole, "other": "short"})
    shorten(entry)
    assert entry.facts == {"fact": whole if left is None else left, "other": "short"}
    assert ("fact" in entry.cut) is (left is not None)
    assert ("cut by the journal: fact (" in entry.note) is (left is not None)
    again = entry.facts
    shorten(entry)
    assert entry.facts == again


def test_a_short_text_of_its_own_class_stays_one() -> None:
    entry = call({"fact": [Name("SET"), "x" * 2000]})
    shorten(entry)
    assert type(entry.facts["fact"][0]) is Name


@pytest.mark.parametrize(
    ("items", "cut"), [(["a" * 112] * 8, False), (["a" * 119] * 8, False), (["a" * 120] * 8, True)]
)
def test_what_items_take_counts(items: list[str], cut: bool) -> None:
    # A list takes 8 bytes, and 8 more for each item.
    entry = call({"fact": items})
    shorten(entry)
    assert ("fact" in entry.cut) is cut


def test_numbers_and_pairs_count_too() -> None:
    few, many = call({"fact": [1] * 63}), call({"fact": [1] * 64})
    pairs = call({"fact": {str(n).zfill(8): 0 for n in range(32)}})
    for entry in (few, many, pairs):
        shorten(entry)
    assert [dict(shortened_entry.cut) for shortened_entry in (few, many, pairs)] == [
        {},
        {"fact": 1032},
        {"fact": 1032},
    ]


def test_counting_ends_where_nothing_hangs_on_it() -> None:
    entry = call({"fact": [["x" * 100_000] * 5] * 1000})
    shorten(entry)
    assert 1 << 20 < entry.cut["fact"] < 2 << 20


def test_body_answer_and_target_keep_their_beginnings() -> None:
    entry = call(request_body=b"b" * 5000, response_body=b"a" * 3000, target="/" + "t" * 2000)
    assert weight_of(entry) == 5000 + 3000 + 2001 + len("X1") + 160
    shorten(entry)
    assert entry.cut == {"target": 2001, "request_body": 5000, "response_body": 3000}
    assert entry.note == (
        "cut by the journal: target (2,001 bytes), request_body (5,000 bytes), "
        "response_body (3,000 bytes)"
    )
    assert entry.target == "/" + "t" * 1023 + "…"
    assert entry.request_body.startswith(
        b"b" * 1024 + b"... (cut by the journal: 5000 bytes in all)"
    )
    record_cut(entry, {"request_body": 9})
    record_cut(entry, {"more": 12})
    assert entry.cut["more"] == 12
    assert entry.note.splitlines()[1:] == ["cut by the journal: more (12 bytes)"]


@pytest.mark.parametrize(
    ("headers", "cut"),
    [
        ([("n" * 10, "v" * 4086)], False), ([("n" * 10, "v" * 4087)], True),
        ([("a", "b")] * 64, False), ([("a", "b")] * 65, True), ([("n" * 300, "v" * 4000)], True),
    ],
)  # fmt: skip
def test_headers_keep_their_beginnings(headers: list[tuple[str, str]], cut: bool) -> None:
    entry = call(request_headers=Headers(headers))
    shorten(entry)
    assert ("request_headers" in entry.cut) is cut
    if cut:
        assert len(entry.request_headers.pairs) == min(len(headers), 64)
        assert max(len(part) for pair in entry.request_headers.pairs for part in pair) <= 257
        before = entry.request_headers
        shorten(entry)
        assert entry.request_headers is before
    else:
        assert list(entry.request_headers.pairs) == headers


def test_what_is_just_short_enough_stays() -> None:
    entry = call(request_body=b"x" * KEPT_OF_CUT, target="/" * KEPT_OF_CUT)
    shorten(entry)
    assert dict(entry.cut) == {}


def test_who_sent_without_credentials_is_not_read() -> None:
    class Reader:
        def facts_of(self, call: Call) -> dict[str, Any]:
            pytest.fail("the facts were read")

    unauthorized = Call(1, 0, "demo", "demo_1", "POST", "/", NO_HEADERS, b"x" * 10, reader=Reader())
    shorten(unauthorized, read_facts=False)
    assert (unauthorized.facts, dict(unauthorized.cut)) == ({}, {"facts": 10})
    # Facts that were already read are kept.
    authorized = call({"command": "SET"})
    shorten(authorized, read_facts=False)
    assert (authorized.facts, dict(authorized.cut)) == ({"command": "SET"}, {})


# -- what is lost ----------------------------------------------------------------------------------


def test_what_is_cut_cannot_be_told_and_all_else_can() -> None:
    entry = call(
        {"words": ["x" * 2000], "n": 1}, target="/" + "t" * 2000, request_body=b"[1]" * 1000
    )
    shorten(entry)
    assert field_of(entry, "n") == 1
    assert field_of(entry, "method") == "POST"
    for name in ("target", "path", "request_body", "words"):
        assert len(entry.target) - 1 if name in ("target", "path") else entry.cut[name]
        with pytest.raises(
            CannotTell, match=rf"cannot tell the {name} \([\d,]+ bytes\) of <Call 7"
        ):
            field_of(entry, name)
    with pytest.raises(CannotTell, match=r"the request_body \(3,000 bytes\)"):
        entry.request_json()


def test_a_fact_may_be_among_those_that_were_given_up() -> None:
    entry = Call(1, 0, "demo", "demo_1", "POST", "/", Headers(), b"x" * 10)
    shorten(entry, read_facts=False)
    with pytest.raises(CannotTell, match=r"the command \(10 bytes\)"):
        field_of(entry, "command")
    assert field_of(entry, "request_body") == b"x" * 10
    set_facts(entry, {"known": 1})
    assert field_of(entry, "known") == 1


def test_bytes_that_were_cut_tell_what_their_beginning_tells() -> None:
    whole = b"ab" * 1000
    cut = CutBytes.of(whole)
    assert cut.size == 2000
    assert cut != b"ab"
    assert cut != b"x" + whole[1:]
    assert cut != 3
    assert cut in [cut]
    assert b"ba" in cut
    for ask in (lambda: cut == whole, lambda: b"none" in cut, lambda: 97 in cut):
        with pytest.raises(CannotTell, match="2,000 bytes"):
            ask()
    short = CutBytes.of(b"abc", 5000)
    assert short.size == 5000
    assert short != b"x" * 5000
    for ask in (lambda: short == b"abc" + b"x" * 4997, lambda: b"journal" in short):
        with pytest.raises(CannotTell, match="5,000 bytes"):
            ask()


def test_the_parts_of_a_call_are_what_was_set() -> None:
    asked = {"number", "at_us", "service", "fake", "method", "target", "client"}
    asked |= {"request_headers", "request_body"}
    entry = Call(1, 0, "demo", "demo_1", "GET", "/", client=("127.0.0.1", 9))
    assert parts_of(entry).keys() == asked
    set_faults_end(entry, 12)
    set_interruptions_end(entry, 11)
    entry.status, entry.outcome = 200, "answered"
    assert parts_of(entry).keys() - asked == {"outcome", "status"}
    again = copy.copy(entry)
    assert (faults_end(again), interruptions_end(again)) == (12, 11)
    assert (again.facts, parts_of(again)) == ({}, parts_of(entry))
    assert repr(again) == "<Call 1 demo_1 GET / -> 200>"


# -- names -----------------------------------------------------------------------------------------

NAMES = CallNames(lambda: ["get", "SET", "XGROUP CREATE", "set"])


@pytest.mark.parametrize(
    "wanted",
    ["GET /x", "POST *", "GET http://a/b", "/x", "*/b", "get", "GET", "xgroup create", "S*",
     re.compile("nothing like it")],
)  # fmt: skip
def test_a_name_that_may_be_one(wanted: Any) -> None:
    NAMES.check("what", wanted)


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        *(
            ("what", wanted, f"{named}=.* can never match: a request target begins with '/'")
            for wanted, named in (("a/b", "what"), ("POST a/b", "target"), ("a/*", "what"))
        ),
        (
            "what",
            "POST /a b",
            "target='/a b' can never match: a request target does not contain ' '",
        ),
        (
            "what",
            "sett",
            r"^'sett' is neither a route nor a command; did you mean 'set'\? Pass 'POST /path', ",
        ),
        ("call", "sett", r"^call='sett' is neither"),
        ("what", "get me", r"^'get me' is neither"),
        (
            "what",
            3,
            r"^3 does not name a call: pass 'POST /path', .*, or fields as keyword arguments$",
        ),
        ("what", print, r"does not name a call"),
        ("what", re.compile(b"x"), r"does not name a call"),
        ("what", "get /x", r"^method='get' is not an HTTP method: .*, pass 'GET'$"),
        ("what", "post http://a/b", r"pass 'POST'$"),
        ("what", "post /a b", r"pass 'POST'$"),
    ],
)
def test_a_name_that_is_none(name: str, wanted: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        NAMES.check(name, wanted)


def test_without_known_words_any_may_be_one() -> None:
    CallNames(list).check("what", "anything")


def test_commands_are_written_in_any_case_and_paths_are_not() -> None:
    assert NAMES.equals("SET", "set")
    assert NAMES.equals("xgroup create", "XGROUP *")
    assert NAMES.equals("/a/B", "/a/B")
    assert not NAMES.equals("/a/B", "/a/b")
    assert not NAMES.equals(3, "set")
    assert not NAMES.equals("SET", "GET")


@pytest.mark.parametrize(
    ("facts", "shown", "some"),
    [
        ({"command": ["XGROUP CREATE", "SET"]}, "XGROUP CREATE, SET", ["XGROUP", "SET"]),
        ({"command": "SET"}, "SET", ["SET"]),
        ({"command": None}, "route", ["route"]),
        ({}, "route", ["/x", "/x?y=1", "POST /x", "POST /x?y=1"]),
    ],
)
def test_the_names_of_a_call(facts: dict[str, Any], shown: Any, some: list[str]) -> None:
    names = NamesOf(call(facts, route="route"))
    assert names.shown == shown
    assert set(some) <= set(names)
    assert None not in names
    assert NamesOf(call(facts | {"command": None})).shown == "/x"


def test_a_name_is_not_denied_where_what_tells_it_was_cut() -> None:
    entry = call({"command": ["SET"] * 200})
    shorten(entry)
    names = NamesOf(entry)
    with pytest.raises(CannotTell, match=r"whether <Call 7 .* is 'GET'"):
        NAMES.check_not_cut(names, "GET")
    NAMES.check_not_cut(names, "GET /x")  # a cut command does not matter for a path
    long = call(target="/" + "t" * 2000)
    shorten(long)
    with pytest.raises(CannotTell):
        NAMES.check_not_cut(NamesOf(long), "/x")
    assert NAMES.differs("what", names, "GET") == f"is {names.shown}, not GET"


# -- headers -----------------------------------------------------------------------------------------

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


def test_the_lines_of_a_request_are_headers() -> None:
    lines = "X-A:1\r\nAccept: \ttext/html \r\nx-a: 2\nEmpty: \r\nTime: 1:2\r\n\r\n"
    assert Headers(lines).pairs == [*SENT.pairs, ("Empty", ""), ("Time", "1:2")]
    assert Headers(lines).size == len(lines)


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
