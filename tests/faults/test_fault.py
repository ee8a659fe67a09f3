"""Test matching, repr and subjects, which all faults share."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pytest_fakecloud
from pytest_fakecloud.core.calls import Call, set_facts
from pytest_fakecloud.faults.fault import setting_over
from pytest_fakecloud.faults.plan import FaultPlan

from ..harness import error_of


def is_mine(value: object) -> bool:
    return True


class Mine:
    def __call__(self, value: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "<mine>"


@pytest.mark.parametrize(
    ("matchers", "shown"),
    [
        ({}, "<respond 503, 0 hits"),
        ({"times": 2}, "<respond 503 [times=2], 0 hits"),
        ({"skip": 0}, "<respond 503, 0 hits"),
        ({"skip": 3, "route": "/x"}, "<respond 503 [skip=3, route='/x'], 0 hits"),
        ({"url": "http://a/", "label": None}, "<respond 503 [url='http://a/'], 0 hits"),
        ({"url": is_mine, "when": is_mine}, "<respond 503 [url=is_mine, when=is_mine], 0 hits"),
        ({"when": Mine()}, "<respond 503 [when=<mine>], 0 hits"),
    ],
)
def test_a_fault_shows_what_it_does_and_what_it_was_limited_to(
    plan: FaultPlan, matchers: dict[str, Any], shown: str
) -> None:
    assert repr(plan.respond(503, **matchers)).partition(", set at ")[0] == shown


def test_a_fault_shows_the_line_that_set_it_or_the_way_it_came(plan: FaultPlan) -> None:
    assert re.fullmatch(r"<drop, 0 hits, set at test_fault\.py:\d+>", repr(plan.drop()))
    token = setting_over.set("the control API")
    try:
        assert repr(plan.drop()) == "<drop, 0 hits, set over the control API>"
    finally:
        setting_over.reset(token)


def test_a_folder_beside_the_package_is_not_the_package(plan: FaultPlan) -> None:
    beside = f"{Path(pytest_fakecloud.__file__).parent}_demo{os.sep}test_x.py"
    namespace: dict[str, Any] = {"plan": plan}
    exec(compile("fault = plan.drop()", beside, "exec"), namespace)
    assert repr(namespace["fault"]) == "<drop, 0 hits, set at test_x.py:1>"


def test_a_fault_of_nobodys_line_shows_none(plan: FaultPlan) -> None:
    fault = plan.drop()
    fault._origin = ""
    assert repr(fault) == "<drop, 0 hits>"


@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, "2"])
def test_what_is_no_count(plan: FaultPlan, value: Any) -> None:
    message = f"times={value!r} must be a whole number of at least 1, or None"
    assert error_of(lambda: plan.drop(times=value)) == message


@pytest.mark.parametrize(
    ("wanted", "facts", "agrees"),
    [
        ("http://a/", {"url": "http://a/"}, True), ("http://a/", {"url": "http://b/"}, False),
        ("http://a/", {}, False), (is_mine, {"url": "http://b/"}, True), (is_mine, {}, False),
    ],
)  # fmt: skip
def test_a_fault_is_meant_for_subjects_that_have_the_fact_it_asks_for(
    plan: FaultPlan, wanted: Any, facts: dict[str, Any], agrees: bool
) -> None:
    fault = plan.drop(url=wanted)
    call = Call(1, 0, "queue", "queue", "POST", "/")
    set_facts(call, facts)
    assert fault._matches(SimpleNamespace(call=call)) is agrees
