"""Test the methods of the fixture: preparing data, causing events, reading and asserting."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.broker.model import ProducerRecord, Record, TopicPartition
from pytest_fakecloud.broker.settings import BrokerLimits
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.faults.answers import Response
from tests.harness import wait_until
from tests.misuse import Matcher

from .conftest import MANUAL, START, START_MS, Make, Parked, Rest, park_consume, until_parked


def partition_counts(broker: Broker) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in broker.topics()}


# -- arranging -----------------------------------------------------------------------------------


def test_topics_come_from_the_constructor_and_from_create_topic(broker: Broker) -> None:
    view = broker.create_topic("bills", partitions=2, first_offset=2**53)
    assert (view.partitions, view.start_offsets, view.records) == (2, [2**53] * 2, [])
    assert partition_counts(broker) == {"orders": 3, "bills": 2}
    assert broker.produce("bills", "x", partition=1).offset == 2**53


def test_produce_takes_values_batches_and_fields(broker: Broker) -> None:
    place = broker.produce("orders", {"id": 1}, key="city", headers={"h": "v"}, timestamp=START)
    assert place == ("orders", 1, 0, START_MS)
    record = broker.records("orders").only()
    assert (record.json(), record.key, record.headers) == ({"id": 1}, "city", (("h", "v"),))
    places = broker.produce(
        "orders", ["a", 7, ProducerRecord("orders", "m", partition=2)], partition=0
    )
    assert [(p.partition, p.offset) for p in places] == [(0, 0), (0, 1), (2, 0)]
    with pytest.raises(ContractError, match="nope"):
        broker.produce("nope", "x")


def test_load_takes_mappings_lists_lines_and_files(broker: Broker, tmp_path: Path) -> None:
    broker.load(
        {
            "orders": ["a", {"value": {"id": 1}, "key": "k", "partition": 2}],
            "new": [],
            "more": ["x"],
        }
    )
    assert partition_counts(broker) == {"orders": 3, "new": 1, "more": 1}
    broker.load(
        [{"topic": "wide", "value": "w", "partition": 4, "headers": [{"key": "h", "value": "v"}]}]
    )
    assert broker.topic("wide").partitions == 5
    line = json.dumps({"topic": "orders", "value": "line", "timestamp": 5, "headers": {"h": "v"}})
    file = tmp_path / "records.jsonl"
    file.write_text(line + "\n \n" + line)
    broker.load(file)
    file.write_text("\ufeff", encoding="utf-8")
    broker.load(file)
    broker.load(line)
    broker.load([ProducerRecord("orders", "made before", "k", 1)])
    assert broker.records("orders", value="made before").only().key == "k"
    records = broker.records("orders", value="line")
    assert [r.timestamp for r in records] == [5, 5, 5]
    assert records[0].header("h") == "v"
    for bad in ([{"value": "no topic"}], ["text"], {"orders": [{"value": "x", "colour": 1}]}):
        with pytest.raises(ContractError):
            broker.load(bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"new": ["a"], "orders": [{"value": "b", "partition": 3}]},
        {"new": ["a"], "more": [{"value": "b" * 11}]},
        {"new": ["a"], "more": [{"value": "b", "timestamp": -1}]},
        {"new": ["a"], "no/name": ["b"]},
        {"new": ["a"], "more": [{"value": "b", "partition": 200_000}]},
        {"new": ["a"], "much": [{"value": "b", "partition": 20}]},
        {"orders": ["a", {"value": 5, "key": 5}], "new": []},
    ],
)
def test_what_cannot_be_loaded_leaves_nothing_behind(
    make_broker: Make, bad: dict[str, Any]
) -> None:
    """Neither topics nor records are left, and the next keyless record's partition is the same."""
    limits = BrokerLimits(max_message_bytes=10, max_partitions=12)
    broker = make_broker(topics={"orders": 3}, limits=limits)
    with pytest.raises(ContractError):
        broker.load(bad)
    assert partition_counts(broker) == {"orders": 3}
    assert broker.records("orders") == []
    assert broker.produce("orders", "next").partition == 0


def test_add_partitions_delete_records_and_retention(broker: Broker, rest: Rest) -> None:
    assert broker.topic("orders").add_partitions(2) == 5
    broker.produce("orders", ["a", "b", "c"], partition=4)
    broker.produce("orders", ["d", "e"], partition=0)
    assert broker.topic("orders").delete_records(before=1, partition=4) == 1
    assert broker.topic("orders").delete_records(before=2) == 3
    assert broker.topic("orders").start_offsets == [2, 0, 0, 0, 2]
    broker.topic("orders").set_retention("1h")
    broker.clock.advance("59m")
    assert [r.value for r in broker.records("orders")] == ["c"]
    broker.clock.advance("2m")
    assert broker.records("orders") == []
    assert rest("POST", "/offsets/earliest", {"topic": "orders", "partition": 4})[0]["offset"] == 3
    broker.topic("orders").set_retention(retention_bytes=2)
    broker.produce("orders", ["f", "g", "h"], partition=1)
    assert [r.value for r in broker.records("orders")] == ["g", "h"]


def test_topics_can_be_given_with_their_options(make_broker: Make) -> None:
    broker = make_broker(
        retention="1h",
        retention_bytes=3,
        topics={"small": 1, "large": {"partitions": 2, "retention": "1d", "retention_bytes": 99}},
    )
    for topic in broker.topics():
        broker.produce(topic.name, ["a", "b", "c", "d"], partition=0)
    assert [r.value for r in broker.records("small")] == ["b", "c", "d"]
    assert len(broker.records("large")) == 4
    broker.clock.advance("2h")
    assert broker.records("small") == []
    assert len(broker.records("large")) == 4
    for bad in ({"t": "three"}, {"t": {"colour": 1}}, {"t": True}):
        with pytest.raises(ContractError):
            make_broker(topics=bad)


def test_plans_limit_partitions_and_messages(make_broker: Make) -> None:
    broker = make_broker(limits="free")
    with pytest.raises(ContractError, match="10 partitions"):
        broker.topic("orders").add_partitions(8)
    rest = Rest(broker)
    rest.produce("orders", *"x" * 1000)
    assert "1000 messages per second" in rest("GET", "/produce/orders/x", status=429)["error"]
    broker.clock.advance("1s")
    rest("GET", "/produce/orders/x")
    broker.clock.advance("8d")
    assert broker.records("orders") == []
    small = make_broker(limits=BrokerLimits(max_message_bytes=10, storage_bytes=15))
    Rest(small)("GET", "/produce/orders/0123456789")
    Rest(small)("GET", "/produce/orders/012345678901", status=413)
    Rest(small)("GET", "/produce/orders/012345", status=429)


# -- making it happen ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "reset", "position"),
    [
        pytest.param(lambda b: b.load({"orders": ["c"]}), "latest", 2, id="load"),
        pytest.param(
            lambda b: b.topic("orders").set_retention(retention_bytes=1),
            "earliest",
            0,
            id="retention",
        ),
        pytest.param(
            lambda b: b.topic("orders").delete_records(before=1), "earliest", 0, id="delete"
        ),
    ],
)
def test_what_was_due_before_an_action_happens_before_it(
    make_broker: Make, act: Callable[[Broker], object], reset: Literal["latest"], position: int
) -> None:
    """A rebalance that was due determines the first positions before the log changes."""
    broker = make_broker(clock="running", join_delay="1ms", topics={"orders": 1})
    broker.produce("orders", ["a", "b"])
    broker.join("g", "i", ["orders"], auto_offset_reset=reset)
    joined = broker.clock.now_us()
    wait_until(lambda: broker.clock.now_us() > joined + 1000)
    act(broker)
    assert broker.group("g").position == {("orders", 0): position}
    started, ended = (
        broker.journal.events(kind).last for kind in ("rebalance started", "rebalance")
    )
    assert ended.at_us == started.at_us + 1000


def test_a_rebalance_that_was_due_before_a_topic_was_created_happens_before_it(
    make_broker: Make,
) -> None:
    broker = make_broker(clock="running", join_delay="1ms", topics={"orders": 1, "other": 1})
    broker.join("g", "i", ["orders", "other"])
    wait_until(lambda: broker.group("g").state == "Stable")
    generation = broker.group("g").generation
    broker.topic("orders").delete()
    deleted = broker.clock.now_us()
    wait_until(lambda: broker.clock.now_us() > deleted + 1000)
    broker.create_topic("orders")
    wait_until(lambda: broker.group("g").state == "Stable")
    assert broker.group("g").generation == generation + 2


def test_a_joined_instance_starts_where_it_is_told_to(broker: Broker, rest: Rest) -> None:
    rest.produce("orders", "early", partition=0)
    for group, options, position in (
        ("default", {}, 1),
        ("latest", {"auto_offset_reset": "latest"}, 1),
        ("earliest", {"auto_offset_reset": "earliest"}, 0),
    ):
        view = broker.join(group, "i", ["orders"], **options)  # type: ignore[arg-type]
        assert view.position[TopicPartition("orders", 0)] == position


def test_reorder_mixes_partitions_by_the_seed_and_keeps_each_ones_order(make_broker: Make) -> None:
    def consumed(seed: int, mixed: bool, **settings: Any) -> list[tuple[int, int]]:
        broker = make_broker(seed=seed, **settings)
        rest = Rest(broker)
        for partition in range(3):
            rest.produce("orders", *"abcdefgh", partition=partition)
        if not mixed:
            records = rest.consume("g", "i", "orders", **MANUAL)
        else:
            with broker.faults.reorder():
                records = rest.consume("g", "i", "orders", **MANUAL)
        return [(r["partition"], r["offset"]) for r in records]

    plain = consumed(1, False)
    assert plain == sorted(plain)
    mixed = consumed(1, True)
    assert mixed != plain
    assert mixed == consumed(1, True)
    assert mixed != consumed(2, True)
    for partition in range(3):
        assert [o for p, o in mixed if p == partition] == list(range(8))
    at_random = consumed(1, False, interleave="random")
    assert at_random != plain
    assert sorted(at_random) == plain


def test_a_block_that_reorders_nothing_is_an_error(broker: Broker, rest: Rest) -> None:
    def consume_one_partition() -> None:
        rest.produce("orders", "a", "b", partition=0)
        with broker.faults.reorder():
            assert rest.values("g", "i", "orders", **MANUAL) == ["a", "b"]

    with pytest.raises(ContractError, match=r"reorder\(\) mixed nothing: no consumer received"):
        consume_one_partition()
    with pytest.raises(ZeroDivisionError), broker.faults.reorder():
        _ = 1 / 0


def test_partial_produce_half_writes_a_batch(broker: Broker, rest: Rest) -> None:
    broker.faults.partial_produce(keep=2)
    body = [{"value": v} for v in "abc"]
    assert "2 messages" in rest("POST", "/produce/orders", body, status=503)["error"]
    assert [r.value for r in broker.records("orders")] == ["a", "b"]
    rest("POST", "/produce/orders", body)
    with pytest.raises(ContractError):
        broker.faults.partial_produce(keep=-1)


def test_each_planned_failure_waits_for_a_batch_that_is_large_enough(
    broker: Broker, rest: Rest
) -> None:
    broker.faults.partial_produce(keep=5)
    broker.faults.partial_produce(keep=1)
    rest.produce("orders", "alone")
    rest("POST", "/produce/orders", [{"value": "a", "partition": 9}] * 3, status=400)
    rest("POST", "/produce/orders", [{"value": "a"}] * 3, status=503)
    rest("POST", "/produce/orders", [{"value": "b"}] * 6, status=503)
    rest("POST", "/produce/orders", [{"value": "c"}] * 6)
    counts = Counter(record.value for record in broker.records("orders"))
    assert counts == {"alone": 1, "a": 1, "b": 5, "c": 6}


def test_faults_of_batches_and_responses_are_in_the_plan(broker: Broker, rest: Rest) -> None:
    partial = broker.faults.partial_produce(1, topic="orders", skip=1)
    assert [(fault.kind, fault.description) for fault in broker.faults] == [
        ("partial_produce", "partial_produce keep=1")
    ]
    broker.create_topic("other")
    for topic, status in (("other", 200), ("orders", 200), ("orders", 503), ("orders", 200)):
        rest("POST", f"/produce/{topic}", [{"value": "a"}] * 2, status=status)
    assert (partial.hits, partial.active) == (1, False)
    call = broker.journal.calls(status=503).only()
    assert (call.fault, call.reached) == ("partial_produce keep=1", True)
    reorder = broker.faults.reorder(group="g")
    for partition in (0, 1):
        rest.produce("orders", "a", "b", partition=partition)
    rest.consume("other", "i", "orders", **MANUAL)
    assert not reorder.hits
    rest.consume("g", "i", "orders", **MANUAL)
    assert reorder.hits == 1
    never = broker.faults.partial_produce(7, times=2), broker.faults.reorder(instance="j")
    assert broker.faults.unused() == [*never]
    broker.faults.clear()
    assert not broker.faults
    rest.produce("orders", *"abcdefgh")


def test_a_predicate_of_a_fault_may_read_the_broker(broker: Broker, rest: Rest) -> None:
    broker.faults.partial_produce(0, when=lambda request: len(broker.records("orders")) == 1)
    rest.produce("orders", "a")
    rest("POST", "/produce/orders", {"value": "b"}, status=503)
    assert [record.value for record in broker.records("orders")] == ["a"]


# -- looking -------------------------------------------------------------------------------------


def test_topic_view(broker: Broker) -> None:
    broker.produce("orders", ["a", "b"], partition=0, key="k")
    broker.produce("orders", "c", partition=2)
    view = broker.topic("orders")
    assert (view.name, view.partitions) == ("orders", 3)
    assert (view.start_offsets, view.end_offsets) == ([0, 0, 0], [2, 0, 1])
    assert [r.value for r in view.records.where(key="k")] == ["a", "b"]
    assert view.records.where(partition=2).only().value == "c"
    assert broker.records("orders", partition=0, value=lambda v: v > "a").only().value == "b"
    assert view.records.last.value == "c"
    with pytest.raises(ContractError, match="Known topics: orders"):
        broker.topic("nope")


def test_group_view(broker: Broker, rest: Rest) -> None:
    rest.produce("orders", "a", "b", "c", partition=0)
    rest.consume("g", "i", "orders", **MANUAL)
    rest.commit("g", "i", ("orders", 0, 1))
    rest.produce("orders", "d", partition=2)
    broker.join("g", "j", ["orders"])
    view = broker.group("g")
    assert (view.name, view.state, view.generation) == ("g", "Stable", 2)
    assert view.assignment == {"i": [("orders", 0), ("orders", 1)], "j": [("orders", 2)]}
    assert view.committed == {("orders", 0): 1}
    assert view.position == {("orders", 0): 1, ("orders", 1): 0, ("orders", 2): 1}
    assert view.lag == {("orders", 0): 2, ("orders", 1): 0, ("orders", 2): 0}
    assert view.total_lag == 2
    member = view.members.where(name="i").only()
    assert (member.state, member.config.auto_commit, member.topics) == (
        "active",
        False,
        ("orders",),
    )
    assert [group.name for group in broker.groups()] == ["g"]


def test_lists_of_topics_and_groups_can_be_filtered(broker: Broker) -> None:
    broker.create_topic("bills")
    broker.join("g", "i", ["bills"])
    broker.commit("h", "orders", 0, 0)
    assert broker.topics().where(partitions=3).only() == broker.topic("orders")
    assert broker.groups().where(state="Stable").only() == broker.group("g")
    assert broker.groups().where(name="h", total_lag=0).only().members == []
    with pytest.raises(ContractError, match="Stabel"):
        broker.groups().where(state="Stabel")


def test_views_show_the_current_state_until_their_thing_is_gone(make_broker: Make) -> None:
    broker, other = make_broker(), make_broker()
    orders, group = broker.topic("orders"), broker.join("g", "i", ["orders"])
    broker.produce("orders", "a", partition=0)
    assert (orders.records.only().value, orders.end_offsets) == ("a", [1, 0, 0])
    group.rebalance()
    assert (group.generation, group.assignment) == (
        2,
        {"i": [("orders", number) for number in range(3)]},
    )
    assert (repr(orders), repr(group)) == (
        "<Topic orders, partitions: 3>", "<Group g Stable, members: 1>",
    )  # fmt: skip
    assert {orders, broker.topic("orders"), other.topic("orders")} == {
        orders,
        other.topic("orders"),
    }
    assert group == broker.group("g") != other.join("g", "i", ["orders"])
    group.leave("i")
    broker.clock.advance("8d")
    orders.delete()
    assert (broker.topics(), broker.groups()) == ([], [])
    for gone in (lambda: orders.records, orders.delete, lambda: group.lag, group.rebalance):
        with pytest.raises(ContractError, match=r"'(orders' is not a topic|g' is not a group)"):
            gone()
    assert repr(orders).startswith("<Topic orders: 'orders' is not a topic. Known topics: none. ")
    assert repr(group) == "<Group g: 'g' is not a group. Known groups: none>"


# -- asserting -----------------------------------------------------------------------------------


def test_assert_produced_returns_what_matched(broker: Broker, rest: Rest) -> None:
    rest("POST", "/produce/orders", [
        {"value": '{"id": 1, "total": 9}', "key": "k", "headers": [{"key": "h", "value": "v"}]},
        {"value": "text"},
    ])  # fmt: skip
    assert broker.assert_produced("orders", {"total": 9, "id": 1}).only().key == "k"
    broker.assert_produced("orders", value="text", key="", times=1)
    broker.assert_produced("orders", times=2)
    broker.assert_produced("orders", "nothing", times=0)
    broker.create_topic("empty")
    broker.assert_produced("empty", times=0)


def test_assert_produced_does_not_count_the_testers_own_records(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", "mine")
    with pytest.raises(AssertionError) as failed:
        broker.assert_produced("orders", "mine")
    assert str(failed.value).splitlines() == [
        "expected a record in topic 'orders' value='mine' at least once, found 0",
        "  not orders-0@0 'mine': the test itself produced it",
    ]
    rest.produce("orders", "mine")
    broker.assert_produced("orders", "mine", times=1)


def test_assert_produced_fails_with_the_nearest_records_and_why(broker: Broker, rest: Rest) -> None:
    rest("POST", "/produce/orders", [
        {"value": '{"id": 1, "total": 8, "more": []}', "key": "k", "partition": 0},
        {"value": "not json", "key": "z", "partition": 1},
    ])  # fmt: skip
    with pytest.raises(AssertionError) as failed:
        broker.assert_produced(
            "orders", {"id": 1, "total": 9}, key="k", headers={"h": "v"}, partition=1
        )
    lines = str(failed.value).splitlines()
    assert lines == [
        "expected a record in topic 'orders' value={'id': 1, 'total': 9} key='k' headers={'h': 'v'} "
        "partition=1 at least once, found 0",
        """  not orders-0@0 '{"id": 1, "total": 8, "more": []}': value.total is 8, not 9; """
        "value.more is [], not expected; header h is absent, not 'v' (there are: none); "
        "partition is 0, not 1",
        """  not orders-1@0 'not json': key is 'z', not 'k'; """
        "value 'not json' is not JSON, expected {'id': 1, 'total': 9}; "
        "header h is absent, not 'v' (there are: none)",
    ]


def test_assert_produced_names_the_calls_that_came_to_nothing(broker: Broker, rest: Rest) -> None:
    rest("POST", "/produce/order", {"value": "a"}, status=404)
    rest("POST", "/produce/orders", {"val": "a"}, status=400)
    broker.faults.respond(503, "busy", route="produce", times=1)
    assert rest.http.post("/produce/orders", json={"value": "a"}).status_code == 503
    broker.faults.drop(route="produce", times=1)
    with pytest.raises(httpx.HTTPError):
        rest.http.post("/produce/orders", json={"value": "a"})
    with pytest.raises(AssertionError) as caught:
        broker.assert_produced("orders", "a")
    lines = str(caught.value).splitlines()[1:]
    assert lines[0] == "  no client has produced to it"
    assert lines[1].startswith(
        "  not executed: POST /produce/order -> 404: This server does not host topic 'order'"
    )
    assert lines[2] == "  not executed: POST /produce/orders -> 400: value is missing"
    assert lines[3].startswith("  not executed: POST /produce/orders -> 503")
    assert lines[4].startswith("  not executed: POST /produce/orders -> dropped")
    rest.produce("orders", "b")
    with pytest.raises(AssertionError, match="found 1") as caught:
        broker.assert_produced("orders", times=0)
    assert "not executed:" not in str(caught.value)
    broker.faults.call(lambda: Response(503, {}), "after", route="produce", times=1)
    rest("POST", "/produce/orders", {"value": "executed"}, status=503)
    with pytest.raises(AssertionError, match="found 2") as caught:
        broker.assert_produced("orders", times=3)
    assert str(caught.value).count("not executed:") == 4


def test_assert_committed(broker: Broker, rest: Rest) -> None:
    rest.produce("orders", "a", "b", partition=0)
    rest.consume("g", "i", "orders", **MANUAL)
    with pytest.raises(AssertionError, match="the group has never committed"):
        broker.assert_committed("g")
    with pytest.raises(AssertionError, match="there is no such group"):
        broker.assert_committed("nobody", "orders")
    broker.commit("g", "orders", 2, 7)
    rest.commit("g", "i", ("orders", 0, 1))
    rest("POST", "/commit/g/i")
    assert broker.assert_committed("g", "orders", 0).only().offset == 2
    assert len(broker.assert_committed("g", "orders", 0, times=2)) == 2
    broker.assert_committed("g", "orders", 0, 1, times=1)
    broker.assert_committed("g", "orders", 2, 7)
    broker.assert_committed("g", "orders", 2, times=0)


def test_assert_caught_up(broker: Broker, rest: Rest) -> None:
    with pytest.raises(AssertionError, match="'g' is not a group"):
        broker.assert_caught_up("g")
    rest.produce("orders", "before")
    rest.consume("g", "latest", "orders")
    broker.assert_caught_up("g")
    rest.produce("orders", "a", "b", partition=1)
    rest.consume("g", "latest", "orders")
    with pytest.raises(AssertionError) as failed:
        broker.assert_caught_up("g")
    assert str(failed.value).splitlines() == [
        "expected group 'g' to be caught up, but it is 2 records behind",
        "  orders-1: committed nothing, position 2, 2 behind, owned by latest",
    ]
    broker.clock.advance("5s")
    assert broker.assert_caught_up("g").total_lag == 0


def test_assertions_do_not_move_time(broker: Broker, rest: Rest) -> None:
    rest.consume("g", "i", "orders")
    before = broker.clock.now_us()
    broker.assert_caught_up("g")
    broker.assert_produced("orders", times=0)
    assert broker.clock.now_us() == before


def test_wait_for_record(broker: Broker, rest: Rest) -> None:
    waiting = Parked(lambda: broker.wait_for_record("orders", lambda r: r.key == "k", timeout=10))
    rest.produce("orders", "other")
    rest("GET", "/produce/orders/x?key=k")
    assert waiting.result().value == "x"
    assert broker.wait_for_record("orders").value in {"other", "x"}
    assert broker.wait_for_record("orders", key="k", value="x").value == "x"
    with pytest.raises(AssertionError, match="<lambda> at least once, found 0") as it:
        broker.wait_for_record("orders", lambda r: False, timeout=0.01)
    assert len(str(it.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        (lambda record: record.missing, r"<lambda> raised .*: pass a function that works"),
        (lambda record: asyncio.sleep(0), "must be awaited"),
    ],
)
def test_wait_for_record_needs_a_predicate_that_answers(
    broker: Broker, predicate: Callable[[Record], object], reason: str
) -> None:
    broker.produce("orders", "a")
    with pytest.raises(ContractError, match=reason):
        broker.wait_for_record("orders", predicate, timeout=0)


def test_wait_for_record_has_an_awaitable_version(broker: Broker) -> None:
    async def scenario() -> str:
        waiting = asyncio.ensure_future(broker.aio.wait_for_record("orders", timeout=10))
        await asyncio.sleep(0)
        await asyncio.to_thread(broker.produce, "orders", "x")
        return (await waiting).value

    assert asyncio.run(scenario()) == "x"


# -- the fake itself ---------------------------------------------------------------------------


def test_identity(broker: Broker) -> None:
    assert broker.env == {
        "UPSTASH_KAFKA_REST_URL": broker.url,
        "UPSTASH_KAFKA_REST_USERNAME": broker.username,
        "UPSTASH_KAFKA_REST_PASSWORD": broker.password,
    }
    with broker.client() as client:
        assert client.get("/topics").json() == {"orders": 3}

    async def listed() -> Any:
        async with broker.aio.client(headers={"X-A": "1"}) as client:
            return (await client.get("/topics")).json()

    assert asyncio.run(listed()) == {"orders": 3}
    assert broker.client(headers={"X-A": "1"}).get("/topics").json() == {"orders": 3}
    assert [call.request_headers.get("X-A") for call in broker.journal.calls()] == [None, "1", "1"]


def test_a_changed_user_name_counts(broker: Broker) -> None:
    former = broker.headers
    broker.username = "another"
    with broker.client() as client:
        assert client.get("/topics").status_code == 200
        assert client.get("/topics", headers=former).status_code == 401


def test_settings_that_agree_are_taken(make_broker: Make) -> None:
    assert make_broker(token="a").password == "a"
    make_broker(limits="free", retention="7d", retention_bytes=6)


def test_a_client_needs_httpx(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for client in (broker.client, broker.aio.client):
        with pytest.raises(ContractError, match="httpx is not installed: pip install httpx"):
            client()


def test_reset_returns_to_the_baseline(broker: Broker, rest: Rest) -> None:
    rest.produce("orders", "a")
    rest.consume("g", "i", "orders", **MANUAL)
    broker.faults.respond(503)
    broker.reset()
    assert (broker.records("orders"), broker.groups(), broker.journal.calls()) == ([], [], [])
    assert rest("GET", "/topics") == {"orders": 3}
    rest.produce("orders", "kept")
    broker.set_baseline()
    rest.produce("orders", "gone")
    broker.reset()
    assert [r.value for r in broker.records("orders")] == ["kept"]


def test_restore_ends_the_polls_of_before(broker: Broker, rest: Rest) -> None:
    saved = broker.snapshot()
    rest.consume("g", "i", "orders")
    broker._timekeeper.wait_cap = 10
    polls = [
        Parked(lambda: rest.consume("g", "i", "orders", timeout=60_000)),
        Parked(lambda: rest("POST", "/fetch", {"topic": "orders", "partition": 0, "offset": 0})),
    ]
    until_parked(broker, 2)
    broker.restore(saved)
    assert [poll.result() for poll in polls] == [[], []]
    assert broker.groups() == []


def test_what_a_restore_replaced_has_no_afterlife(broker: Broker, rest: Rest) -> None:
    saved = broker.snapshot()
    poll = park_consume(rest)
    broker.restore(saved)
    assert poll.result() == []
    broker.journal.clear()
    broker.clock.advance("1h")
    assert broker.journal.events() == []


def test_closing_ends_waiting_calls_at_once(make_broker: Make) -> None:
    broker = make_broker()
    broker._timekeeper.wait_cap = 30
    fetches = [
        Parked(lambda: broker._engine.records.fetch([("orders", 0, 0)], 60_000))  # type: ignore[list-item]
        for _ in range(3)
    ]
    until_parked(broker, 3)
    broker.close()
    assert [fetch.result() for fetch in fetches] == [[], [], []]
    wait_until(lambda: not broker._engine._waits.waiting)


def test_the_journal_tells_the_story_of_a_group(broker: Broker, rest: Rest) -> None:
    rest.produce("orders", "a", partition=0)
    rest.consume("g", "i", "orders", **MANUAL)
    rest.consume("g", "j", "orders", **MANUAL)
    rest.commit("g", "i", ("orders", 0, 1))
    broker.faults.crash("g", "j")
    rest.consume("g", "j", "orders", **MANUAL)
    broker.faults.redeliver("g")
    broker.group("g").leave("i")
    texts = [event.text for event in broker.journal.events(group="g")]
    assert texts == [
        "i joined g, subscribed to orders",
        "g generation 1 (i joined): i: orders[0, 1, 2]",
        "j joined g, subscribed to orders",
        "g generation 2 (j joined): i: orders[0, 1]; j: orders[2]",
        "i of g committed orders-0=1",
        "j of g crashed; it keeps orders[2] for 120000 ms",
        "j returned to g within its session and keeps orders[2]",
        "g gets 1 record again, from orders-0=0",
        "i was deleted and left g",
        "g generation 3 (i left): j: orders[0, 1, 2]",
    ]


def test_two_brokers_share_nothing_but_the_clock(make_broker: Make) -> None:
    first, second = make_broker(), make_broker()
    Rest(first).produce("orders", "a")
    assert second.records("orders") == []
    assert first.token != second.token


def test_an_error_of_redeliver_shows_no_frame_of_the_standard_library(broker: Broker) -> None:
    """Such frames would stay in the report, unlike those of the package."""
    broker.join("orders", "one", ["orders"])
    with pytest.raises(
        ContractError, match="'oders' is not a topic; did you mean 'orders'"
    ) as failed:
        broker.faults.redeliver("orders", topic="oders")
    assert not [entry for entry in failed.traceback if entry.path.name == "contextlib.py"]


def test_a_matcher_inside_the_expected_json_compares_for_itself(broker: Broker, rest: Rest) -> None:
    rest("POST", "/produce/orders", {"value": '{"id": 7, "at": "now"}'})
    assert broker.assert_produced("orders", {"id": 7, "at": Matcher()}).only()


def test_headers_may_have_the_form_of_the_api(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", "a", headers=[{"key": "h", "value": "1"}])
    broker.produce("orders", [ProducerRecord("orders", "b", headers=[("h", "2")])])  # type: ignore[arg-type]
    assert sorted(r.header("h") or "" for r in broker.records("orders")) == ["1", "2"]
    rest.produce("orders", "c", headers=[{"key": "h", "value": "3"}])
    assert broker.assert_produced("orders", headers=[{"key": "h", "value": "3"}])


# -- what waits, and what is put back ------------------------------------------------------------


def test_on_a_running_clock_who_waits_wakes_for_a_timer_that_is_planned_meanwhile(
    make_broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer wakes the call immediately, not only at its own check once a second."""
    monkeypatch.setattr("pytest_fakecloud.core.clock._nap", lambda: 60.0)
    broker = make_broker(clock="running", session_timeout="50ms")
    rest = Rest(broker)
    rest.consume("g", "j", "orders")
    poll = park_consume(rest)
    broker.faults.crash("g", "j")
    assert poll.result() == []
    assert rest.assignments("g") == {"i": {"orders": [0, 1, 2]}}


def test_what_a_plan_allows_is_there_again_after_a_restore(make_broker: Make) -> None:
    broker = make_broker(limits=BrokerLimits(messages_per_day=1))
    rest = Rest(broker)
    before = broker.snapshot()
    rest.produce("orders", "a")
    assert rest("POST", "/produce/orders", {"value": "b"}, status=429)["status"] == 429
    broker.restore(before)
    rest.produce("orders", "b")


@pytest.mark.parametrize("meanwhile", ["add_partitions", "restore"])
def test_who_waits_for_a_record_wakes_for_one_in_a_partition_of_later(
    broker: Broker, rest: Rest, meanwhile: str
) -> None:
    """The call returns immediately, not only at its timeout."""
    before = broker.snapshot()
    wait = Parked(lambda: broker.wait_for_record("orders", lambda r: r.value == "late", timeout=60))
    wait_until(lambda: any(log.watchers for log in broker._engine.state.topics["orders"].logs))
    if meanwhile == "restore":
        broker.restore(before)
        wait_until(lambda: any(log.watchers for log in broker._engine.state.topics["orders"].logs))
        rest.produce("orders", "late", partition=0)
    else:
        assert broker.topic("orders").add_partitions() == 4
        rest.produce("orders", "late", partition=3)
    assert wait.result().value == "late"


def test_what_a_tester_puts_in_uses_up_no_plan(make_broker: Make) -> None:
    broker = make_broker(limits="free")
    broker.load({"orders": ["x"] * 10_001})
    rest = Rest(broker)
    rest.produce("orders", *"x" * 1000)
    broker.produce("orders", "y")
    rest("GET", "/produce/orders/x", status=429)
    small = make_broker(limits=BrokerLimits(storage_bytes=3))
    small.produce("orders", "abc")
    Rest(small)("GET", "/produce/orders/d", status=429)


@pytest.mark.parametrize(("committed", "again"), [(0, "abc"), (1, "bc"), (2, "c"), (3, "c")])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_redeliver_skips_nothing_that_was_not_committed(
    broker: Broker, rest: Rest, reset: str, committed: int, again: str
) -> None:
    settings = {**MANUAL, "Auto_Offset_Reset": reset}
    rest.consume("g", "i", "orders", **settings)
    rest.produce("orders", "a", "b", "c", partition=0)
    assert rest.values("g", "i", "orders") == ["a", "b", "c"]
    if committed:
        rest.commit("g", "i", ("orders", 0, committed))
    broker.group("g").expire("i")
    assert [record.value for record in broker.faults.redeliver("g")] == list(again)
    assert rest.values("g", "j", "orders", **settings) == list(again)


def test_a_group_that_reads_and_has_committed_nothing_is_not_caught_up(
    broker: Broker, rest: Rest
) -> None:
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    rest("POST", "/delete-consumer/g/i")
    rest.produce("orders", "a")
    with pytest.raises(AssertionError, match="has neither members nor committed offsets"):
        broker.assert_caught_up("g")
