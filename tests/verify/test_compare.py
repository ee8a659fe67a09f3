"""Test which differences between two replies count."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.verify.catalogue.scenarios import ScenarioStep
from pytest_fakecloud.verify.run import difference
from pytest_fakecloud.verify.sides import Reply


def told(real: Any, fake: Any, **options: Any) -> str | None:
    step = ScenarioStep("GET", "/", **options)
    return difference(
        step, Reply(200, "application/json", real), Reply(200, "application/json", fake)
    )


def test_status_and_type_come_first() -> None:
    step = ScenarioStep("GET", "/")
    plain = Reply(200, "text/plain", "a")
    assert difference(step, plain, Reply(404, "", "a")) == "status 200, the fake 404"
    assert difference(step, Reply(200, "application/json", 1), plain) == (
        "content type application/json, the fake text/plain"
    )
    # The message tells which kind of difference it is.
    assert difference(step, plain, Reply(200, "", "a")) is None


@pytest.mark.parametrize(
    ("real", "fake", "why"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1, "b": 2}, {"a": 1}, "b is missing in the fake"),
        ({"a": 1}, {"a": 1, "b": 2}, "b is in the fake only"),
        ({"a": {"b": 1}}, {"a": {}}, "a.b is missing in the fake"),
        ("msg_1a2B and 1700000000000-0", "msg_9 and 1800000000000-7", None),
        ([{"id": "scd_1"}], [{"id": "scd_2"}], None),
    ],
)
def test_the_first_place_that_differs(real: Any, fake: Any, why: str | None) -> None:
    assert told(real, fake) == why


@pytest.mark.parametrize(
    ("rule", "real", "fake", "same"),
    [
        ("sorted", ["a", "b"], ["b", "a"], True),
        ("sorted", "text", "text", True),
        ("sorted", ["a"], "text", False),
        ("pairs", ["a", 1, "b", 2], ["b", 2, "a", 1], True),
        ("pairs", ["a", 1, "b", 2], ["b", 1, "a", 2], False),
        ("pairs", ["a", 1, "b"], ["b", 1, "a"], False),
        ("scan", ["0", ["a", "b"]], ["0", ["b", "a"]], True),
        ("scan", ["0"], ["0"], True),
        ("idle", [["1-0", "c", 7, 1]], [["1-0", "c", 900, 1]], True),
        ("idle", [["1-0", "c", 7, 1]], [["1-0", "d", 7, 1]], False),
        ("near", 100, 160, True),
        ("near", 100, 161, False),
        ("near", 20_000, 80_000, True),
        ("idle", None, None, True),
        ("idle", [None], [None], True),
    ],
)
def test_rules_of_results(rule: str, real: Any, fake: Any, same: bool) -> None:
    complaint = told({"result": real}, {"result": fake}, compare=rule)
    assert (complaint is None) is same
    # An error has no result, so it is compared as a whole.
    assert told({"error": "a"}, {"error": "b"}, compare=rule) is not None
