"""Test the matching of records: the forms of ``core.matching``, with a broker."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import ANY

import pytest

from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.core.errors import ContractError
from tests.ids import steady

from .conftest import Rest

PAID = '{"id": 1, "paid": true, "items": [1, {"a": []}]}'
HAPPENED: list[dict[str, Any]] = [
    {"value": "hello*"}, {"value": "h*o\\*"}, {"value": "*"}, {"value": re.compile("hel")},
    {"value": str.isprintable}, {"value": {"id": 1, "paid": ANY, "items": (1, {"a": ()})}},
    {"value": ANY}, {"value": re.compile("paid")}, {"key": "k"}, {"key": "k*"}, {"key": ""},
    {"key": re.compile("^$")}, {"key": lambda key: key.startswith("k")}, {"partition": 2},
    {"partition": ANY}, {"partition": lambda number: number > 1}, {"headers": {"h": "1"}},
    {"headers": {"h": "2"}}, {"headers": {"h": re.compile("[12]")}}, {"headers": {"h": "*"}},
    {"headers": {"h": str.isdigit}}, {"headers": [("h", "1")]},
    {"headers": [{"key": "h", "value": "1"}]}, {},
]  # fmt: skip
DID_NOT: list[dict[str, Any]] = [
    {"value": "hello"}, {"value": "h\\*o"}, {"value": re.compile("^el")}, {"value": {"id": 2}},
    {"value": [1]}, {"value": str.isdigit}, {"key": "K"}, {"key": "a*"}, {"partition": 1},
    {"headers": {"H": "1"}}, {"headers": {"h": "3"}}, {"headers": {"h": re.compile("3")}},
    {"value": {"id": 1, "paid": ANY, "items": ANY}, "key": "other"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def _produced(rest: Rest) -> None:
    rest("POST", "/produce/orders", [
        {"value": "hello*", "key": "k", "partition": 0, "headers": [{"key": "other", "value": ""}]},
        {"value": PAID, "partition": 2,
         "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": "2"}]},
    ])  # fmt: skip


@pytest.mark.parametrize("asked", HAPPENED, ids=steady)
def test_what_happened(broker: Broker, asked: dict[str, Any]) -> None:
    records = broker.assert_produced("orders", **asked)
    assert records
    assert broker.assert_produced("orders", times=len(records), **asked) == records
    for never in (
        lambda: broker.assert_produced("orders", times=0, **asked),
        lambda: broker.assert_not_produced("orders", **asked),
    ):
        with pytest.raises(AssertionError, match="never, found"):
            never()


@pytest.mark.parametrize("asked", DID_NOT, ids=steady)
def test_what_did_not_happen(broker: Broker, asked: dict[str, Any]) -> None:
    broker.assert_not_produced("orders", **asked)
    with pytest.raises(AssertionError, match="at least once, found 0"):
        broker.assert_produced("orders", **asked)


def test_records_and_waiting_ask_the_same(broker: Broker) -> None:
    asked: dict[str, Any] = {"value": {"id": 1, "paid": True, "items": ANY}, "key": ""}
    assert broker.records("orders", **asked) == broker.assert_produced("orders", **asked)
    assert broker.topic("orders").records.where(**asked) == broker.records("orders", **asked)
    assert broker.wait_for_record("orders", **asked) == broker.records("orders", **asked).only()
    with pytest.raises(AssertionError, match="within 0 s partition=1 value='x' at least once"):
        broker.wait_for_record("orders", partition=1, value="x", timeout=0)
    for ask in (
        lambda: broker.records("orders", vaule="x"),
        lambda: broker.wait_for_record("orders", vaule="x"),
        lambda: broker.topic("orders").records.where(vaule="x"),
    ):
        with pytest.raises(
            ContractError, match=r"'vaule' is not a field of .*; did you mean 'value'"
        ):
            ask()
    for ask in (
        lambda: broker.records("orders", partition=3),
        lambda: broker.wait_for_record("orders", partition=3),
        lambda: broker.topic("orders").records.where(partition=3),
    ):
        with pytest.raises(ContractError, match=r"partition=3 can never match: .* from 0 to 2"):
            ask()
    assert broker.records("orders").where(lambda record: record.partition == 2).only().json()
    with pytest.raises(ContractError, match="key=None can never match"):
        broker.records("orders", key=None)


def test_commits(broker: Broker, rest: Rest) -> None:
    rest.consume("g", "i", "orders", auto_offset_reset="none", status=400)
    rest.commit("g", "i", ("orders", 2, 1))
    for asked in (
        {},
        {"topic": "ord*"},
        {"topic": re.compile("^o")},
        {"offset": 1},
        {"partition": 2},
    ):
        assert broker.assert_committed("g", **asked)
        with pytest.raises(AssertionError, match="never, found"):
            broker.assert_not_committed("g", **asked)
    broker.assert_not_committed("g", partition=1)
    with pytest.raises(ContractError, match="'gg' is not a group; did you mean 'g'"):
        broker.assert_not_committed("gg")
    for never in ({"topic": "oders"}, {"topic": 5}, {"offset": "1"}, {"partition": -1}):
        with pytest.raises(ContractError):
            broker.assert_not_committed("g", **never)
    with pytest.raises(AssertionError) as failed:
        broker.assert_committed("g", "orders", offset=7)
    assert str(failed.value).splitlines() == [
        "expected a committed offset of group 'g' topic='orders' offset=7 at least once, found 0",
        "  not orders-2=1: offset is 1, not 7",
    ]
