"""Test consumer groups over REST, with a clock that only the test moves.

The number in a test's name is the number of a rule of group behaviour. The docstring states the
rule's detail.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pytest_fakecloud.broker.handle import Broker
from tests.harness import wait_until

from ..conftest import Parked, Rest, park_consume, until_parked

Make = Callable[..., Broker]


def test_rule_01_the_first_consume_creates_the_instance(rest: Rest) -> None:
    """The instance is listed from its first consume on, and has partitions once they are assigned."""
    assert rest("GET", "/consumers") == []
    assert rest.consume("g", "i", "orders") == []
    assert rest("GET", "/consumers") == [
        {
            "name": "g",
            "instances": [{"name": "i", "topics": [{"topic": "orders", "partitions": [0, 1, 2]}]}],
        }
    ]


def test_rule_01_an_instance_that_is_joining_is_listed_without_partitions(
    make_broker: Make,
) -> None:
    """Until the assignment is complete, consume returns ``[]``."""
    broker = make_broker(join_delay="3s")
    rest = Rest(broker)
    rest.produce("orders", "a", partition=0)
    broker.clock.wait_cap = 0.02
    assert rest.consume("g", "i", "orders", timeout=500, Auto_Offset_Reset="earliest") == []
    assert rest.assignments("g") == {"i": {}}
    broker.clock.advance("2999ms")
    assert rest.consume("g", "i", "orders") == []
    broker.clock.advance("1ms")
    assert rest.assignments("g") == {"i": {"orders": [0, 1, 2]}}
    assert rest.values("g", "i", "orders") == ["a"]


def test_rule_01_a_consume_that_waits_while_joining_gets_the_records(make_broker: Make) -> None:
    """A long poll continues after the end of the instance's own join."""
    broker = make_broker(join_delay="1s")
    rest = Rest(broker)
    rest.produce("orders", "a", partition=0)
    broker.clock.wait_cap = 10
    poll = Parked(
        lambda: rest.values("g", "i", "orders", timeout=5000, Auto_Offset_Reset="earliest")
    )
    until_parked(broker)
    broker.clock.advance("1s")
    assert poll.result() == ["a"]


def test_rule_02_partitions_are_assigned_in_ranges_by_instance_name(make_broker: Make) -> None:
    """The members of a topic are sorted by name. If the partitions do not divide evenly, the first
    members get one more.
    """
    rest = Rest(make_broker(topics={"a": 4, "b": 2, "three": 3}))
    rest.consume("g", "zoe", "three")
    rest.consume("g", "adam", "three")
    assert rest.assignments("g") == {"adam": {"three": [0, 1]}, "zoe": {"three": [2]}}
    rest.consume("h", "1", "a", "b")
    rest.consume("h", "2", "a", "b")
    assert rest.assignments("h") == {"1": {"a": [0, 1], "b": [0]}, "2": {"a": [2, 3], "b": [1]}}


def test_rule_03_a_rebalance_redelivers_what_was_not_committed(rest: Rest) -> None:
    """Positions restart at the committed offset, possibly in another instance."""
    for partition in range(3):
        rest.produce("orders", f"p{partition}", partition=partition)
    options = {"Auto_Offset_Reset": "earliest", "Enable_Auto_Commit": "false"}
    assert rest.values("g", "a", "orders", **options) == ["p0", "p1", "p2"]
    rest.commit("g", "a", ("orders", 0, 1))
    assert rest.values("g", "b", "orders", **options) == ["p2"]
    assert rest.values("g", "a", "orders") == ["p1"]


@pytest.mark.parametrize("change", ["join", "leave", "subscription", "partitions", "expiry"])
def test_rule_03_every_change_of_membership_bumps_the_generation(
    make_broker: Make, change: str
) -> None:
    broker = make_broker(topics={"orders": 3, "other": 1})
    rest = Rest(broker)
    rest.consume("g", "a", "orders")
    rest.consume("g", "b", "orders")
    before = broker.group("g").generation
    assert before == 2
    if change == "join":
        rest.consume("g", "c", "orders")
    elif change == "leave":
        rest("POST", "/delete-consumer/g/b")
    elif change == "subscription":
        rest.consume("g", "b", "other")
    elif change == "partitions":
        broker.add_partitions("orders", 2)
        assert rest.assignments("g") == {"a": {"orders": [0, 1, 2]}, "b": {"orders": [3, 4]}}
    else:
        broker.crash("g", "b")
        assert broker.group("g").generation == before
        broker.clock.advance("120s")
    assert broker.group("g").generation == before + 1


def test_rule_04_an_instance_that_returns_within_its_session_keeps_its_partitions(
    broker: Broker, rest: Rest
) -> None:
    """The group does not rebalance, and the new consumer starts at the committed offset."""
    rest.produce("orders", "a", "b", partition=2)
    options = {"Auto_Offset_Reset": "earliest", "Enable_Auto_Commit": "false"}
    rest.consume("g", "one", "orders", **options)
    assert rest.values("g", "two", "orders", **options) == ["a", "b"]
    broker.crash("g", "two")
    broker.clock.advance("119s")
    generation = broker.group("g").generation
    assert rest.values("g", "two", "orders", **options) == ["a", "b"]
    assert broker.group("g").generation == generation
    assert rest.assignments("g")["two"] == {"orders": [2]}


def test_rule_04_partitions_of_a_crashed_instance_wait_for_its_session_timeout(
    broker: Broker, rest: Rest
) -> None:
    """Until then, no member receives their records."""
    options = {"Auto_Offset_Reset": "earliest", "Session_Timeout_Ms": "10000"}
    rest.consume("g", "one", "orders", **options)
    rest.consume("g", "two", "orders", **options)
    broker.crash("g", "two")
    rest.produce("orders", "late", partition=2)
    broker.clock.advance("9999ms")
    assert rest.consume("g", "one", "orders") == []
    assert rest.assignments("g") == {"one": {"orders": [0, 1]}}
    broker.clock.advance("1ms")
    assert rest.values("g", "one", "orders") == ["late"]
    assert rest.assignments("g") == {"one": {"orders": [0, 1, 2]}}


def test_rule_04_an_idle_close_does_not_leave_the_group(broker: Broker, rest: Rest) -> None:
    """A client that closes gracefully is still a static member and keeps its partitions until the
    session ends.
    """
    rest.consume("g", "one", "orders")
    broker.clock.advance("1s")
    rest.consume("g", "two", "orders")
    broker.clock.advance("299s")
    assert rest.assignments("g") == {"two": {"orders": [2]}}
    for _ in range(2):
        rest.consume("g", "two", "orders")
        broker.clock.advance("59s")
    rest.consume("g", "two", "orders")
    assert rest.assignments("g") == {"two": {"orders": [2]}}
    broker.clock.advance("2s")
    assert rest.assignments("g") == {"two": {"orders": [0, 1, 2]}}


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_rule_04_delete_consumer_leaves_at_once(rest: Rest, method: str) -> None:
    rest.consume("g", "one", "orders")
    rest.consume("g", "two", "orders")
    assert rest(method, "/delete-consumer/g/one") == {"result": "Success", "status": 200}
    assert rest.assignments("g") == {"two": {"orders": [0, 1, 2]}}
    rest(method, "/delete-consumer/g/one", status=404)


def test_rule_05_an_explicit_commit_stores_the_number_verbatim(rest: Rest) -> None:
    """The committed number is stored unchanged, even beyond the end of the log."""
    rest.consume("g", "i", "orders")
    rest.commit("g", "i", ("orders", 1, 41))
    assert rest.committed("g", "orders", 1) == [41]
    rest("POST", "/commit/g/i", {"topic": "orders", "partition": 1, "offset": 0})
    assert rest.committed("g", "orders", 1) == [0]


@pytest.mark.parametrize("body", [None, [], b"", b"[]", b"null"])
def test_rule_05_an_empty_commit_stores_what_was_last_delivered(rest: Rest, body: Any) -> None:
    """For each partition with deliveries, the committed offset is the last delivered one plus one."""
    rest.produce("orders", "a", "b", partition=0)
    rest.produce("orders", "c", partition=2)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest", Enable_Auto_Commit="false")
    rest.produce("orders", "not yet delivered", partition=0)
    assert rest("POST", "/commit/g/i", body) == {"result": "Success", "status": 200}
    assert rest.committed("g", "orders", 0, 1, 2) == [2, -1, 1]


def test_rule_06_auto_commit_happens_on_ticks_of_the_interval(broker: Broker, rest: Rest) -> None:
    rest.produce("orders", "a", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    broker.clock.advance("4999ms")
    assert rest.committed("g", "orders", 0) == [-1]
    broker.clock.advance("1ms")
    assert rest.committed("g", "orders", 0) == [1]
    broker.clock.advance("2s")
    rest.produce("orders", "b", partition=0)
    assert rest.values("g", "i", "orders") == ["b"]
    broker.clock.advance("2999ms")
    assert rest.committed("g", "orders", 0) == [1]
    broker.clock.advance("1ms")
    assert rest.committed("g", "orders", 0) == [2]


def test_rule_06_the_tick_after_another_commit_returns_to_what_was_delivered(
    broker: Broker, rest: Rest
) -> None:
    rest.produce("orders", "a", "b", "c", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    broker.clock.advance("5s")
    assert rest.committed("g", "orders", 0) == [3]
    rest.commit("g", "i", ("orders", 0, 1))
    broker.clock.advance("4999ms")
    assert rest.committed("g", "orders", 0) == [1]
    broker.clock.advance("1ms")
    assert rest.committed("g", "orders", 0) == [3]
    rest.commit("g", "i", ("orders", 0, 3))
    assert broker.clock.next_due() == broker.clock.now() + timedelta(seconds=290)


def test_rule_06_an_interval_of_nothing_commits_as_soon_as_time_passes(
    broker: Broker, rest: Rest
) -> None:
    """The Java client accepts 0 and commits at each poll. A crash before the next poll loses
    nothing.
    """
    rest.produce("orders", "a", partition=0)
    options = {"Auto_Commit_Interval": "0", "Auto_Offset_Reset": "earliest"}
    assert rest.values("g", "i", "orders", **options) == ["a"]
    broker.crash("g", "i")
    assert rest.values("g", "i", "orders", **options) == ["a"]
    broker.clock.advance("1ms")
    assert rest.committed("g", "orders", 0) == [1]
    assert broker.clock.next_due() == broker.clock.now() + timedelta(milliseconds=299_999)


@pytest.mark.parametrize("close", ["idle", "delete"])
def test_rule_06_a_clean_close_commits(make_broker: Make, close: str) -> None:
    broker = make_broker(idle_close="2s")
    rest = Rest(broker)
    rest.produce("orders", "a", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    if close == "idle":
        broker.clock.advance("2s")
        assert rest("GET", "/consumers") == []
    else:
        rest("DELETE", "/delete-consumer/g/i")
    assert rest.committed("g", "orders", 0) == [1]


def _shared(make_broker: Make, auto_commit: bool) -> tuple[Broker, Rest]:
    """Return a broker and two consumers that each received a record of their own partition and
    committed nothing.
    """
    broker = make_broker(topics={"orders": 2, "other": 2})
    rest = Rest(broker)
    options = {"Auto_Offset_Reset": "earliest", "Enable_Auto_Commit": str(auto_commit).lower()}
    rest.consume("g", "a", "orders", **options)
    rest.consume("g", "b", "orders", **options)
    for partition, instance in enumerate("ab"):
        rest.produce("orders", f"of {instance}", partition=partition)
        assert rest.values("g", instance, "orders") == [f"of {instance}"]
    assert rest.committed("g", "orders", 0, 1) == [-1, -1]
    return broker, rest


REBALANCES: dict[str, tuple[Callable[[Broker, Rest], object], list[int]]] = {
    "join": (lambda _, rest: rest.consume("g", "c", "orders"), [1, 1]),
    "subscription": (lambda _, rest: rest.consume("g", "b", "orders", "other"), [1, 1]),
    "partitions": (lambda broker, _: broker.add_partitions("orders"), [1, 1]),
    "command": (lambda broker, _: broker.rebalance("g"), [1, 1]),
    "delete": (lambda _, rest: rest("DELETE", "/delete-consumer/g/b"), [1, 1]),
    "leave": (lambda broker, _: broker.leave("g", "b"), [1, 1]),
    "session lost": (lambda broker, _: broker.expire("g", "b"), [1, -1]),
    "crash": (lambda broker, _: (broker.crash("g", "b"), broker.expire("g", "b")), [1, -1]),
}


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("change", REBALANCES)
def test_rule_06_a_rebalance_commits_first_where_auto_commit_is_on(
    make_broker: Make, change: str, auto_commit: bool
) -> None:
    """Live members commit. The records of a crashed or expired member are delivered again."""
    broker, rest = _shared(make_broker, auto_commit)
    act, committed = REBALANCES[change]
    act(broker, rest)
    expected = committed if auto_commit else [-1, -1]
    assert rest.committed("g", "orders", 0, 1) == expected
    kinds = [event.kind for event in broker.journal.events(group="g")]
    assert kinds.count("auto commit") == sum(offset > 0 for offset in expected)
    again = {
        value
        for instance in ("a", "b", "c", "a", "b", "c")
        for value in rest.values("g", instance, "orders", Auto_Offset_Reset="earliest")
    }
    assert again == {f"of {name}" for name, at in zip("ab", expected, strict=True) if at < 0}


def test_rule_06_a_rebalance_that_takes_time_commits_at_its_start(make_broker: Make) -> None:
    """A member commits before its partitions are revoked, not when it gets the next ones."""
    broker = make_broker(join_delay="3s")
    rest = Rest(broker)
    rest.consume("g", "a", "orders", Auto_Offset_Reset="earliest")
    broker.clock.advance("3s")
    rest.produce("orders", "one", partition=0)
    assert rest.values("g", "a", "orders") == ["one"]
    rest.consume("g", "b", "orders", Auto_Offset_Reset="earliest")
    assert broker.group("g").state == "PreparingRebalance"
    assert rest.committed("g", "orders", 0) == [1]


def test_rule_06_what_a_test_commits_stands_until_more_is_delivered(
    broker: Broker, rest: Rest
) -> None:
    """Neither the next automatic commit nor a rebalance restores what was delivered before."""
    rest.produce("orders", "one", "two", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    broker.commit("g", "orders", 0, 1)
    broker.clock.advance("10s")
    assert rest.committed("g", "orders", 0) == [1]
    broker.rebalance("g")
    assert rest.values("g", "i", "orders") == ["two"]
    broker.clock.advance("5s")
    assert rest.committed("g", "orders", 0) == [2]


def test_rule_06_a_crash_before_the_tick_redelivers(broker: Broker, rest: Rest) -> None:
    """A crash commits nothing, so delivery is at least once."""
    rest.produce("orders", "a", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    broker.clock.advance("4s")
    broker.crash("g", "i")
    broker.clock.advance("10s")
    assert rest.committed("g", "orders", 0) == [-1]
    assert rest.values("g", "i", "orders", Auto_Offset_Reset="earliest") == ["a"]


def test_rule_06_a_crash_after_the_tick_loses_what_was_still_in_work(
    broker: Broker, rest: Rest
) -> None:
    """The automatic commit included records that the application had not processed, so delivery is
    at most once.
    """
    rest.produce("orders", "a", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    broker.clock.advance("5s")
    broker.crash("g", "i")
    assert rest.values("g", "i", "orders", Auto_Offset_Reset="earliest") == []


def test_rule_07_a_joining_instance_may_commit(make_broker: Make) -> None:
    """After its first, empty consume, an instance may commit given offsets or none."""
    broker = make_broker(join_delay="3s")
    rest = Rest(broker)
    rest.consume("g", "i", "orders")
    rest.commit("g", "i", ("orders", 1, 5))
    assert rest.committed("g", "orders", 1) == [5]
    rest("POST", "/commit/g/i")


def test_rule_07_an_unknown_instance_may_not_commit(rest: Rest) -> None:
    rest.consume("g", "i", "orders")
    error = rest.commit("g", "stranger", ("orders", 1, 5), status=404)
    assert error["status"] == 404
    assert "'stranger'" in error["error"]


def test_rule_07_committed_answers_from_the_group(rest: Rest) -> None:
    """The instance's name does not matter; an unknown group is rejected."""
    rest.consume("g", "i", "orders")
    rest.commit("g", "i", ("orders", 1, 5))
    assert rest.committed("g", "orders", 1, instance="stranger") == [5]
    rest("POST", "/committed/nobody/i", {"topic": "orders", "partition": 1}, status=404)


def test_rule_08_a_never_committed_partition_is_minus_one(make_broker: Make) -> None:
    rest = Rest(make_broker())
    rest.consume("g", "i", "orders")
    assert rest("POST", "/committed/g/i", {"topic": "orders", "partition": 2}) == [
        {"topic": "orders", "partition": 2, "offset": -1}
    ]
    rest = Rest(make_broker(never_committed=0))
    rest.consume("g", "i", "orders")
    assert rest.committed("g", "orders", 2) == [0]


def test_rule_09_earliest_starts_at_the_start_of_the_log(broker: Broker, rest: Rest) -> None:
    rest.produce("orders", "a", "b", "c", partition=0)
    broker.delete_records("orders", before=1, partition=0)
    assert rest.values("g", "i", "orders", Auto_Offset_Reset="earliest") == ["b", "c"]


def test_rule_09_latest_is_resolved_when_the_assignment_arrives(make_broker: Make) -> None:
    """Records produced before the assignment are never delivered, even if they were produced after
    the first consume.
    """
    broker = make_broker(join_delay="1s")
    rest = Rest(broker)
    rest.produce("orders", "before", partition=0)
    rest.consume("g", "i", "orders")
    rest.produce("orders", "while joining", partition=0)
    broker.clock.advance("1s")
    rest.produce("orders", "after", partition=0)
    assert rest.values("g", "i", "orders") == ["after"]


def test_rule_09_none_is_an_error_without_a_committed_offset(rest: Rest) -> None:
    rest.produce("orders", "a", partition=0)
    error = rest.consume("g", "i", "orders", Auto_Offset_Reset="none", status=400)
    assert "no reset policy" in error["error"]
    rest.commit("g", "i", ("orders", 0, 0), ("orders", 1, 0), ("orders", 2, 0))
    assert rest.values("g", "i", "orders") == ["a"]


@pytest.mark.parametrize(
    ("reset", "expected"), [("earliest", ["c", "d"]), ("latest", []), ("none", None)]
)
def test_rule_09_a_committed_offset_out_of_range_is_reset(
    broker: Broker, rest: Rest, reset: str, expected: list[str] | None
) -> None:
    rest.produce("orders", "a", "b", "c", "d", partition=0)
    for partition in range(3):
        broker.commit("g", "orders", partition, 0)
    broker.delete_records("orders", before=2, partition=0)
    if expected is None:
        error = rest.consume("g", "i", "orders", Auto_Offset_Reset=reset, status=400)
        assert "out of range" in error["error"]
    else:
        assert rest.values("g", "i", "orders", Auto_Offset_Reset=reset) == expected


@pytest.mark.parametrize(
    ("reset", "expected"), [("earliest", ["c", "d"]), ("latest", []), ("none", None)]
)
def test_rule_09_a_position_overtaken_by_retention_is_reset(
    broker: Broker, rest: Rest, reset: str, expected: list[str] | None
) -> None:
    for partition in range(3):
        broker.commit("g", "orders", partition, 0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset=reset)
    rest.produce("orders", "a", "b", "c", "d", partition=0)
    broker.delete_records("orders", before=2, partition=0)
    if expected is None:
        error = rest.consume("g", "i", "orders", status=400)
        assert "out of range" in error["error"]
    else:
        assert rest.values("g", "i", "orders") == expected
        rest.produce("orders", "e", partition=0)
        assert rest.values("g", "i", "orders") == ["e"]


def test_rule_10_two_consumes_on_one_instance_take_turns(broker: Broker, rest: Rest) -> None:
    """The second call waits until its own deadline; no record goes to both."""
    rest.consume("g", "i", "orders")
    broker.clock.wait_cap = 10
    polls = [Parked(lambda: rest.values("g", "i", "orders", timeout=60_000)) for _ in range(2)]
    until_parked(broker, 2)
    rest.produce("orders", "a", partition=0)
    wait_until(lambda: sum(poll.waiting for poll in polls) == 1)
    rest.produce("orders", "b", partition=0)
    assert sorted(poll.result() for poll in polls) == [["a"], ["b"]]


def test_rule_10_the_second_consume_ends_at_its_own_deadline(broker: Broker, rest: Rest) -> None:
    rest.consume("g", "i", "orders")
    broker.clock.wait_cap = 10
    first = Parked(lambda: rest.values("g", "i", "orders", timeout=60_000))
    until_parked(broker, 1)
    second = Parked(lambda: rest.values("g", "i", "orders", timeout=1000))
    until_parked(broker, 2)
    broker.clock.advance("1s")
    assert second.result() == []
    assert first.waiting
    rest.produce("orders", "a", partition=0)
    assert first.result() == ["a"]


def test_rule_11_another_topic_list_changes_the_subscription(make_broker: Make) -> None:
    broker = make_broker(topics={"orders": 1, "bills": 1})
    rest = Rest(broker)
    rest.consume("g", "i", "orders")
    assert rest.assignments("g") == {"i": {"orders": [0]}}
    rest.consume("g", "i", "bills", "orders")
    assert rest.assignments("g") == {"i": {"bills": [0], "orders": [0]}}
    generation = broker.group("g").generation
    rest.consume("g", "i", "orders", "bills")
    assert broker.group("g").generation == generation


def test_rule_11_later_configuration_headers_are_ignored(broker: Broker, rest: Rest) -> None:
    """They have no effect even if they are invalid."""
    rest.produce("orders", "a", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="latest", Auto_Commit_Interval="1000")
    assert rest.consume("g", "i", "orders", Auto_Offset_Reset="nonsense") == []
    rest.produce("orders", "b", partition=0)
    assert rest.values("g", "i", "orders", Auto_Commit_Interval="60000") == ["b"]
    broker.clock.advance("1s")
    assert rest.committed("g", "orders", 0) == [2]


def test_rule_12_at_most_as_many_instances_as_partitions(make_broker: Make) -> None:
    """The limit covers all groups and topics, and applies only when an instance is created."""
    broker = make_broker(topics={"orders": 1, "bills": 1})
    rest = Rest(broker)
    rest.consume("g", "a", "orders")
    rest.consume("h", "b", "orders")
    error = rest.consume("k", "c", "bills", status=400)
    assert "2" in error["error"]
    assert "k" not in [group["name"] for group in rest("GET", "/consumers")]
    rest.consume("g", "a", "orders")
    rest("POST", "/delete-consumer/h/b")
    rest.consume("k", "c", "bills")


def test_rule_13_order_is_kept_in_each_partition_and_none_starves(make_broker: Make) -> None:
    """An answer has at most ``max_poll_records`` records, and each answer begins with the next
    partition.
    """
    broker = make_broker(max_poll_records=4)
    rest = Rest(broker)
    for partition in range(3):
        rest.produce("orders", *(f"{partition}:{n}" for n in range(8)), partition=partition)
    answers = [rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest") for _ in range(6)]
    assert [len(answer) for answer in answers] == [4] * 6
    assert {answer[0]["partition"] for answer in answers[:3]} == {0, 1, 2}
    for partition in range(3):
        offsets = [r["offset"] for a in answers for r in a if r["partition"] == partition]
        assert offsets == list(range(8))


def test_rule_13_one_record_is_given_even_above_the_bytes_of_an_answer(make_broker: Make) -> None:
    rest = Rest(make_broker(max_partition_bytes=10))
    rest.produce("orders", "x" * 30, "y" * 4, "z" * 4, "w" * 4, partition=0)
    sizes = []
    while values := rest.values("g", "i", "orders", Auto_Offset_Reset="earliest"):
        sizes.append([len(value) for value in values])
    assert sizes == [[30], [4, 4], [4]]


def test_rule_13_the_defaults_are_500_records_and_a_mebibyte_of_each_partition(rest: Rest) -> None:
    rest.produce("orders", *("x" for _ in range(501)), partition=0)
    assert len(rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")) == 500
    rest.produce("orders", *("y" * 400_000 for _ in range(4)), partition=1)
    assert len(rest.consume("h", "j", "orders", Auto_Offset_Reset="earliest")) == 500
    records = rest.consume("h", "j", "orders")
    assert [r["partition"] for r in records].count(1) == 2


@pytest.mark.parametrize(
    ("event", "values"),
    [
        pytest.param(lambda rest: rest.produce("orders", "a"), ["a"], id="data"),
        pytest.param(lambda rest: rest.broker.clock.advance("1s"), [], id="deadline"),
        pytest.param(lambda rest: rest.consume("g", "j", "orders"), [], id="rebalance"),
        pytest.param(lambda rest: rest("POST", "/delete-consumer/g/i"), [], id="delete"),
        pytest.param(lambda rest: rest.broker.crash("g", "i"), [], id="crash"),
    ],
)
def test_rule_14_a_long_poll_ends(
    rest: Rest, event: Callable[[Rest], object], values: list[str]
) -> None:
    poll = park_consume(rest)
    rest.broker.clock.advance("59s")
    assert poll.waiting
    event(rest)
    assert poll.result() == values


def test_rule_14_due_events_fire_in_time_order(broker: Broker, rest: Rest) -> None:
    """One move of the clock includes automatic commits, idle closes, session ends and the end of
    offset retention.
    """
    rest.produce("orders", "a", partition=0)
    rest.consume("g", "i", "orders", Auto_Offset_Reset="earliest")
    began = broker.clock.now_us()
    broker.clock.advance("8d")
    events = broker.journal.events(group="g")
    assert [(event.kind, (event.at_us - began) // 1_000_000) for event in events] == [
        ("join", 0),
        ("rebalance", 0),
        ("auto commit", 5),
        ("close", 300),
        ("expire", 420),
        ("rebalance", 420),
        ("dead", 420 + 7 * 24 * 3600),
    ]
    rest("POST", "/committed/g/i", {"topic": "orders", "partition": 0}, status=404)
