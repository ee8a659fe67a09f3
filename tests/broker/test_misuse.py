"""Call every method of the broker with every kind of value; see ``tests/misuse.py``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_fakecloud.broker.faults import BrokerFaults
from pytest_fakecloud.broker.handle import Broker
from pytest_fakecloud.broker.views import GroupView, TopicView
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.handle import Context
from tests.misuse import (
    COMMON,
    Matcher,
    Table,
    cases,
    check_right_types,
    check_table,
    check_wrong_types,
)

VALUES: Mapping[str, Any] = {
    **COMMON,
    "text": "orders",
    "bytes": b"orders",
    "list": [1],
    "list of texts": ["orders"],
    "mapping": {"a": "b"},
    "mapping of numbers": {"a": 1},
    "set": {"orders"},
}
NUMBER = {"whole"}
TEXT = {"text"}
NONE = {"None"}
DURATION = {"whole", "fraction"}
PREDICATE = {"function"}
MATCHER = {"matcher"}
HEADERS = {"empty mapping", "mapping"}
JSON = {
    "None", "whole", "negative", "fraction", "boolean", "text", "empty list", "list",
    "list of texts", "empty mapping", "mapping", "mapping of numbers",
}  # fmt: skip
INSTANCE = {"group": TEXT, "instance": TEXT}
GOOD_INSTANCE = {"group": "orders", "instance": "orders"}
OPTIONS = {
    "retention": NONE | DURATION,
    "retention_bytes": NONE | NUMBER,
    "max_message_bytes": NONE | NUMBER,
    "first_offset": NUMBER,
}
LISTED = {
    "value": (JSON - NONE) | PREDICATE | MATCHER,
    "key": TEXT | PREDICATE | MATCHER,
    "partition": NUMBER | PREDICATE | MATCHER,
    "offset": NUMBER | PREDICATE | MATCHER,
    "timestamp": NUMBER | PREDICATE | MATCHER,
    "headers": HEADERS | PREDICATE | MATCHER,
}
PRODUCED = {
    **{name: NONE | kinds for name, kinds in LISTED.items()},
    "headers": NONE | HEADERS | {"empty list"} | PREDICATE | MATCHER,
}
COMMITTED = {
    "topic": NONE | TEXT | PREDICATE | MATCHER,
    "partition": NONE | NUMBER | PREDICATE | MATCHER,
    "offset": NONE | NUMBER | PREDICATE | MATCHER,
}
METHODS: Table = {
    # The only string among the values is the name of an existing topic.
    "create_topic": ({"topic": "new"}, {"topic": set(), "partitions": NUMBER, **OPTIONS}),
    "produce": (
        {"topic": "orders", "value": "v"},
        {
            "topic": TEXT, "value": JSON | {"mapping by numbers"}, "key": NONE | TEXT,
            "partition": NONE | NUMBER, "timestamp": NONE | NUMBER,
            "headers": NONE | HEADERS | {"empty list"},
        },
    ),
    "load": ({"data": {}}, {"data": {"empty list", "empty mapping"}}),
    "commit": (
        {"group": "g", "topic": "orders", "partition": 0, "offset": 0},
        {"group": TEXT, "topic": TEXT, "partition": NUMBER, "offset": NUMBER},
    ),
    "join": (
        {**GOOD_INSTANCE, "topics": ["orders"]},
        {**INSTANCE, "topics": {"list of texts", "set"}, "auto_offset_reset": set()},
    ),
    "topic": ({"name": "orders"}, {"name": TEXT}),
    "records": ({"topic": "orders"}, {"topic": TEXT, **LISTED, "vaule": set()}),
    "group": ({"name": "orders"}, {"name": TEXT}),
    "assert_produced": (
        {"topic": "orders", "times": 0},
        {"topic": TEXT, **PRODUCED, "times": NONE | NUMBER},
    ),
    "assert_not_produced": ({"topic": "orders"}, {"topic": TEXT, **PRODUCED}),
    "assert_committed": (
        {"group": "orders", "times": 0},
        {"group": TEXT, **COMMITTED, "times": NONE | NUMBER},
    ),
    "assert_not_committed": ({"group": "orders"}, {"group": TEXT, **COMMITTED}),
    "assert_caught_up": ({"group": "orders"}, {"group": TEXT}),
    "wait_for_record": (
        {"topic": "orders", "timeout": 0},
        {"topic": TEXT, "predicate": NONE | PREDICATE, "timeout": {"whole", "fraction"}, **LISTED},
    ),
    "restore": ({}, {"snapshot": set()}),
}  # fmt: skip
NOTHING_TO_GIVE = {"topics", "groups"}
PARTS: Mapping[str, tuple[type, Callable[[Broker], Any], Table, set[str]]] = {
    "topic": (
        TopicView,
        lambda broker: broker.topic("orders"),
        {
            "add_partitions": ({}, {"count": NUMBER}),
            "set_retention": (
                {}, {name: OPTIONS[name] for name in ("retention", "retention_bytes")},
            ),
            "delete_records": ({"before": 0}, {"before": NUMBER, "partition": NONE | NUMBER}),
        },
        {"delete"},
    ),
    "group": (
        GroupView,
        lambda broker: broker.group("orders"),
        {
            "leave": ({"instance": "orders"}, {"instance": TEXT}),
            "expire": ({"instance": "orders"}, {"instance": TEXT}),
        },
        {"rebalance"},
    ),
    "faults": (
        BrokerFaults,
        lambda broker: broker.faults,
        {
            "crash": (GOOD_INSTANCE, INSTANCE),
            "redeliver": (
                {"group": "orders"},
                {"group": TEXT, "last": NUMBER, "topic": NONE | TEXT, "partition": NONE | NUMBER},
            ),
            "partial_produce": ({"keep": 1}, {"keep": NUMBER, "times": NONE | NUMBER}),
            "reorder": ({}, {"times": NONE | NUMBER}),
        },
        set(),
    ),
}  # fmt: skip
"""By part of a broker: its class, how to reach it, its methods, and those without parameters."""
PART_CASES = [
    pytest.param(part, method, name, id=f"{part}.{method}-{name}")
    for part, (_, _, table, _) in PARTS.items()
    for method, (_, parameters) in table.items()
    for name in parameters
]


def prepared() -> Broker:
    made = Broker(Context.alone(now="2026-01-01T00:00:00Z"), topics={"orders": 3})
    made.produce("orders", "v", partition=0)
    made.join("orders", "orders", ["orders"])
    return made


def state_of(broker: Broker) -> object:
    groups = [group._described() for group in broker.groups()]
    return [(topic.name, topic.records) for topic in broker.topics()], groups


@pytest.fixture
def broker() -> Iterator[Broker]:
    with prepared() as made:
        yield made


def test_the_table_has_every_method_and_parameter() -> None:
    check_table(Broker, METHODS, NOTHING_TO_GIVE)


@pytest.mark.parametrize(("method", "name"), cases(METHODS))
def test_a_wrong_type_is_refused_and_changes_nothing(
    broker: Broker, method: str, name: str
) -> None:
    check_wrong_types(broker, (method, name), METHODS, VALUES, lambda: state_of(broker))


@pytest.mark.parametrize(("method", "name"), cases(METHODS))
def test_a_right_type_is_taken(method: str, name: str) -> None:
    check_right_types(prepared, (method, name), METHODS, VALUES)


@pytest.mark.parametrize("part", PARTS)
def test_the_table_has_every_method_of_a_part(part: str) -> None:
    kind, _, table, without = PARTS[part]
    own = {name for name, one in vars(kind).items() if inspect.isfunction(one) and name[0] != "_"}
    assert own == {*table, *without}


@pytest.mark.parametrize(("part", "method", "name"), PART_CASES)
def test_a_part_refuses_a_wrong_type(broker: Broker, part: str, method: str, name: str) -> None:
    _, reach, table, _ = PARTS[part]
    check_wrong_types(
        reach(broker), (method, name), table, VALUES, lambda: (state_of(broker), [*broker.faults])
    )


@pytest.mark.parametrize(("part", "method", "name"), PART_CASES)
def test_a_part_takes_a_right_type(part: str, method: str, name: str) -> None:
    _, reach, table, _ = PARTS[part]

    @contextmanager
    def reached() -> Iterator[Any]:
        with prepared() as made:
            yield reach(made)

    check_right_types(reached, (method, name), table, VALUES)


@pytest.mark.parametrize("name", ["username", "password"])
def test_credentials_that_no_client_can_send(name: str) -> None:
    with pytest.raises(ContractError, match="lone surrogates"):
        Broker(Context.alone(), **{name: "\ud800"})


def test_a_topic_that_is_not_there_is_not_redelivered_in_silence(broker: Broker) -> None:
    with pytest.raises(
        ContractError, match="'oders' is not a topic; did you mean 'orders'"
    ) as failed:
        broker.faults.redeliver("orders", topic="oders")
    # Frames of the standard library would stay in the report, unlike those of the package.
    assert not [entry for entry in failed.traceback if entry.path.name == "contextlib.py"]
    with pytest.raises(ContractError, match="Invalid partition 3"):
        broker.faults.redeliver("orders", topic="orders", partition=3)


def test_the_headers_of_a_batch_are_checked_though_it_is_empty(broker: Broker) -> None:
    with pytest.raises(ContractError, match="topic must be a string, got 5"):
        broker.produce(5, [])  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="key must be a string"):
        broker.produce("orders", [], key=5)  # type: ignore[arg-type]


def test_a_matcher_inside_the_expected_json_compares_for_itself(broker: Broker) -> None:
    with broker.client() as client:
        client.post("/produce/orders", json={"value": '{"id": 7, "at": "now"}'}).raise_for_status()
    assert broker.assert_produced("orders", {"id": 7, "at": Matcher()}).only()
    for never in ({"id": b"7"}, {"id": {7}}, [float("inf")], {7: 7}):
        with pytest.raises(ContractError):
            broker.assert_produced("orders", never, times=0)
