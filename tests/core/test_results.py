"""Lists of results, and the failures of assertions about them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import pytest

from pytest_fakecloud.core.errors import CannotTell, ContractError
from pytest_fakecloud.core.field_types import NUMBER, TEXT, FieldType
from pytest_fakecloud.core.journal import Results, check_predicate, expect, results_of
from pytest_fakecloud.core.matching import Field, Query

from ..harness import error_of

failure_of = partial(error_of, kind=AssertionError)

FIELDS = {"name": Field(TEXT), "size": Field(NUMBER)}


@dataclass
class Item:
    name: str
    size: int = 1

    def __repr__(self) -> str:
        return f"<{self.name} {self.size}>"


@dataclass
class Other:
    name: str
    color: str = "red"


class Loose:
    def __init__(self, **fields: Any) -> None:
        self._hidden = 1
        vars(self).update(fields)


A, B, C = Item("a"), Item("b", 2), Item("c", 3)


def listed(*items: Any) -> Results[Any]:
    return results_of(items, FIELDS, "thing")


def test_the_only_and_the_last() -> None:
    assert listed(A).only() is A
    assert listed(A, B, C).last is C
    assert (
        failure_of(lambda: listed(A, B).only())
        == "expected exactly one thing, found 2\n  <a 1>\n  <b 2>"
    )
    with pytest.raises(AssertionError, match=r"^expected exactly one item, found 0$"):
        Results[Item]().only()
    with pytest.raises(AssertionError, match=r"^expected at least one thing, found none$"):
        _ = listed().last


def test_a_list_of_nothing_says_what_is_known_of_it() -> None:
    def noted(*items: Item) -> Results[Item]:
        results = listed(*items)
        results._notes = lambda: ["one is under way", "one was refused"]
        return results

    notes = "\n  one is under way\n  one was refused"
    for empty in (noted(), noted(A)[1:], noted(A).where(name="b")):
        assert failure_of(empty.only) == f"expected exactly one thing, found 0{notes}"
        assert (
            failure_of(getattr, empty, "last") == f"expected at least one thing, found none{notes}"
        )
    assert (
        failure_of(lambda: noted(A, B).only())
        == "expected exactly one thing, found 2\n  <a 1>\n  <b 2>"
    )


def test_a_long_list_is_not_told_whole() -> None:
    assert failure_of(lambda: listed(*[A] * 50).only()).count("<a 1>") == 10


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [A, B, C]), ({"name": "b"}, [B]), ({"name": "*"}, [A, B, C]),
        ({"name": re.compile("[ab]")}, [A, B]), ({"size": lambda size: size > 1}, [B, C]),
        ({"size": mock.ANY, "name": "c"}, [C]), ({"size": 9}, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "things", [listed(A, B, C), Results([A, B, C])], ids=["known fields", "fields of the class"]
)
def test_where(things: Results[Item], asked: dict[str, Any], expected: list[Item]) -> None:
    results = things.where(**asked)
    assert results == expected
    assert isinstance(results, Results)
    assert things.where(lambda item: item is not C, **asked) == [e for e in expected if e is not C]


@pytest.mark.parametrize(
    ("predicate", "asked", "text"),
    [
        (
            None,
            {"nam": "a"},
            r"'nam' is not a field of a thing; did you mean 'name'\? Known fields: name",
        ),
        (None, {"size": "1"}, "size='1' can never match: pass a number"),
        (None, {"name": 5}, "name=5 can never match: pass a string"),
        (lambda item: item.nope, {}, "predicate=<lambda> raised AttributeError"),
        (lambda item: (element for element in [item]), {}, "must be awaited or iterated"),
    ],
)
def test_where_refuses_what_says_nothing(predicate: Any, asked: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        listed(A).where(predicate, **asked)


async def awaited(item: object) -> bool:
    return True


def test_what_can_be_asked_is_checked_though_nothing_is_there() -> None:
    with pytest.raises(ContractError, match="'nam' is not a field"):
        listed().where(nam="a")
    with pytest.raises(ContractError, match="must be awaited"):
        listed().where(awaited)
    with pytest.raises(ContractError, match=r"^predicate=awaited must be awaited"):
        check_predicate(awaited)
    # Any field is accepted, because an empty list has no items to derive the fields from.
    assert Results[Item]().where(anything=5) == []


def test_what_is_no_predicate_is_told_what_to_give() -> None:
    check_predicate(None)
    check_predicate(callable)
    assert error_of(check_predicate, "SET") == (
        "'SET' is not a function: pass a predicate, or fields as keyword arguments such as "
        "command='SET', path='/get/k' or status=200"
    )


def test_a_part_of_a_list_knows_what_the_list_knows() -> None:
    for part in (listed(A, B)[1:], listed(A, B).where(name="b"), listed(A, B)[:0]):
        assert isinstance(part, Results)
        with pytest.raises(ContractError, match="'nam' is not a field of a thing"):
            part.where(nam="a")
    assert listed(A, B)[1] is B


def test_items_show_their_own_fields() -> None:
    mixed = Results[Any]([A, Other("x"), {"name": "y", 5: "five"}, Loose(name="z", extra=1)])
    assert len(mixed.where(name="*")) == 4
    assert mixed.where(color="red") == mixed[1:2]
    assert mixed.where(extra=1) == mixed[3:]
    assert mixed.where(size=1) == [A]
    with pytest.raises(
        ContractError,
        match=r"'_hidden' is not a field of .* Known fields: color, extra, name, size$",
    ):
        mixed.where(_hidden=1)


class Slotted:
    __slots__ = ("_inner", "one")

    def __init__(self, value: int) -> None:
        self.one = self._inner = value

    @property
    def twice(self) -> int:
        return 2 * self.one


@dataclass(slots=True)
class Slim:
    color: str


def test_items_of_several_classes_are_asked_for_the_fields_of_each() -> None:
    mixed = Results[Any]([Slim("red"), A])
    assert mixed.where(color="red") == mixed[:1]
    assert mixed.where(size=1) == [A]


def test_slots_and_properties_are_fields_and_what_a_mapping_inherits_is_none() -> None:
    things = Results([Slotted(1), Slotted(2)])
    assert things.where(twice=4) == things.where(one=2) == things[1:]
    with pytest.raises(ContractError, match=r"twice='4' can never match: pass a number"):
        things.where(twice="4")
    with pytest.raises(
        ContractError, match=r"'_inner' is not a field of .* Known fields: one, twice$"
    ):
        things.where(_inner=1)

    class Odd(dict[str, int]):
        size: int

    with pytest.raises(ContractError, match=r"'size' is not a field of .* Known fields: a$"):
        Results([Odd(a=1)]).where(size=1)


# -- asserting -------------------------------------------------------------------------------------


def check(items: Iterable[Item], *, times: Any = None, **rest: Any) -> Results[Item]:
    options = {
        key: rest.pop(key) for key in ("show", "not_counted", "if_empty", "notes") if key in rest
    }
    return expect("a thing", items, Query(rest, FIELDS, "thing"), times=times, **options)


@pytest.mark.parametrize(
    ("asked", "times", "expected"),
    [
        ({"name": "a"}, None, [A]), ({"name": "a"}, 1, [A]), ({}, 3, [A, B, C]),
        ({}, None, [A, B, C]), ({"name": "z"}, 0, []),
    ],
)  # fmt: skip
def test_what_is_expected_is_returned(
    asked: dict[str, Any], times: int | None, expected: list[Item]
) -> None:
    results = check([A, B, C], times=times, **asked)
    assert results == expected
    with pytest.raises(ContractError, match="'nam' is not a field of a thing"):
        results.where(nam=1)


@pytest.mark.parametrize(
    ("items", "options", "text"),
    [
        ([], {}, "expected a thing at least once, found 0\n  there are none"),
        ([], {"if_empty": "nobody came"}, "expected a thing at least once, found 0\n  nobody came"),
        (
            [A],
            {"name": "a", "times": 0},
            "expected a thing name='a' never, found 1\n  matched: <a 1>",
        ),
        (
            [A],
            {"name": "a", "times": 2},
            "expected a thing name='a' 2 times, found 1\n  matched: <a 1>",
        ),
        (
            [C, B, A],
            {"name": "b", "size": 1},
            "expected a thing name='b' size=1 at least once, found 0\n"
            "  not <b 2>: size is 2, not 1\n"
            "  not <a 1>: name is 'a', not 'b'\n"
            "  not <c 3>: name is 'c', not 'b'; size is 3, not 1",
        ),
        (
            [A],
            {"name": "b", "show": lambda item: "one\ntwo\nthree"},
            "expected a thing name='b' at least once, found 0\n"
            "  not one: name is 'a', not 'b'\n    two\n    three",
        ),
        (
            [A],
            {"name": "b", "show": lambda item: ""},
            "expected a thing name='b' at least once, found 0\n  not : name is 'a', not 'b'",
        ),
        (
            [A],
            {"times": 2, "notes": lambda count: [f"  {count} of 2", "  late"]},
            "expected a thing 2 times, found 1\n  matched: <a 1>\n  1 of 2\n  late",
        ),
        (
            [],
            {"name": "a", "not_counted": [(A, "it was taken before")]},
            "expected a thing name='a' at least once, found 0\n  not <a 1>: it was taken before",
        ),
    ],
)
def test_a_failure_says_all(items: list[Item], options: dict[str, Any], text: str) -> None:
    assert failure_of(lambda: check(items, **options)) == text


def test_a_failure_is_bounded_and_quick() -> None:
    many = [Item(f"n{number}") for number in range(5_000)]
    lines = failure_of(lambda: check(many, name="n4242x")).splitlines()
    assert len(lines) == 7
    assert lines[-1] == "  ... and 4995 more that differ"
    lines = failure_of(lambda: check(many, times=1)).splitlines()
    assert (len(lines), lines[-1]) == (12, "  ... and 4990 more that match")


def test_what_fits_is_shown_whole() -> None:
    text = failure_of(lambda: check([A] * 10 + [B] * 5, name="a", times=1))
    assert (text.count("matched: <a 1>"), text.count("not <b 2>")) == (10, 5)
    assert "more that" not in text


@pytest.mark.parametrize("times", [-1, True, "1", 1.0])
def test_what_is_no_count_is_refused_before_anything_else(times: Any) -> None:
    with pytest.raises(ContractError, match="must be a whole number"):
        check([A], times=times, name="a")


class Cut(FieldType):
    def check_not_cut(self, value: Any, wanted: Any) -> None:
        if value == "cut":
            raise CannotTell("too little is left")


@pytest.mark.parametrize(
    ("names", "times", "tells"),
    [
        (["a", "cut"], None, True), (["cut"], None, False), (["cut"], 0, False),
        (["a", "cut"], 1, False), (["a", "cut"], 2, False), (["a", "a", "cut"], 1, True),
        (["a", "cut"], 0, True),
    ],
)  # fmt: skip
def test_what_depends_on_items_that_were_cut_cannot_be_told(
    names: list[str], times: int | None, tells: bool
) -> None:
    query = Query({"name": "a"}, {"name": Field(Cut())})
    try:
        expect("a thing", map(Item, names), query, times=times)
    except CannotTell:
        assert not tells
    except AssertionError:
        assert tells
        assert times is not None
    else:
        assert tells
