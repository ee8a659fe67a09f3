"""Fingerprints of states, and the schedules that extend trials in new states."""

from __future__ import annotations

import secrets
import time
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.core.touches import ALL, Touch
from pytest_fakecloud.explore.fakes.fakes import Fakes
from pytest_fakecloud.explore.fakes.fingerprint import Fingerprints
from pytest_fakecloud.explore.search.extend import Frontier
from pytest_fakecloud.explore.search.tally import Tally
from pytest_fakecloud.explore.values.schedule import Schedule
from pytest_fakecloud.explore.values.trial import Outline, ReachedPoint

from .conftest import holds, outline

KEYS = "key of db0"


def fingerprint(cloud: Cloud, *commands: tuple[Any, ...], after: str = "0s") -> int:
    """Return the fingerprint after commands, from an empty server on."""
    [kv] = cloud.fakes()
    assert isinstance(kv, KVServer)
    kv.reset()
    fingerprints = Fingerprints(Fakes(cloud))
    for command in commands:
        fingerprints.note([Touch(kv.name, KEYS, str(command[1]), True)])
        kv.execute(*command)
    cloud.clock.advance(after)
    return fingerprints.take("client")


@pytest.mark.parametrize(
    ("commands", "others", "are_equal"),
    [
        ([("SET", "a", "1")], [("SET", "a", "1")], True),
        ([("SET", "a", "1")], [("SET", "a", "2")], False),
        ([("SET", "a", "1")], [("SET", "b", "1")], False),
        ([("SET", "a", "1"), ("DEL", "a")], [("GET", "a")], True),
        ([("SET", "a", "1", "EX", "10")], [("SET", "a", "1", "EX", "20")], True),
        ([("SET", "a", "1", "EX", "10")], [("SET", "a", "1")], False),
        ([("HSET", "a", "x", "1", "y", "2")], [("HSET", "a", "y", "2", "x", "1")], True),
        ([("SADD", "a", "x", "y")], [("SADD", "a", "y", "x")], True),
        ([("RPUSH", "a", "x", "y")], [("RPUSH", "a", "y", "x")], False),
    ],
)
def test_equal_data_has_equal_fingerprints(
    cloud: Cloud,
    kv: KVServer,
    commands: list[tuple[Any, ...]],
    others: list[tuple[Any, ...]],
    are_equal: bool,
) -> None:
    assert (fingerprint(cloud, *commands) == fingerprint(cloud, *others)) == are_equal


def test_names_drawn_at_random_are_equal_in_the_order_of_their_appearance(
    cloud: Cloud, kv: KVServer
) -> None:
    token_a, token_b, token_c = (secrets.token_hex(8) for _ in range(3))
    first = fingerprint(cloud, ("SET", "a", token_a), ("SET", "b", token_b))
    assert fingerprint(cloud, ("SET", "a", token_c), ("SET", "b", token_a)) == first
    assert fingerprint(cloud, ("SET", "a", token_a), ("SET", "b", token_a)) != first


def test_only_whether_a_time_has_passed_counts(cloud: Cloud, kv: KVServer) -> None:
    now = cloud.clock.now().timestamp()
    due = fingerprint(cloud, ("ZADD", "due", now + 10, "a"))
    assert fingerprint(cloud, ("ZADD", "due", now + 20, "a")) == due
    assert fingerprint(cloud, ("ZADD", "due", now + 10, "a"), after="11s") != due
    held = fingerprint(cloud, ("SET", "lease", "ann", "EX", "10"))
    assert fingerprint(cloud, ("SET", "lease", "ann", "EX", "10"), after="11s") != held


def test_a_write_of_all_keys_is_part_of_the_fingerprint(cloud: Cloud, kv: KVServer) -> None:
    kv.load({"a": "1"})
    fingerprints = Fingerprints(Fakes(cloud))
    before = fingerprints.take("client", "wake")
    fingerprints.note([Touch(kv.name, KEYS, ALL, True)])
    kv.execute("FLUSHALL")
    assert fingerprints.take("client", "wake") != before


def test_data_that_is_too_large_to_read_after_each_step_is_read_once(
    cloud: Cloud, kv: KVServer
) -> None:
    kv.execute("SET", "a", "x" * 200_000)
    fingerprints = Fingerprints(Fakes(cloud))
    before = fingerprints.take("client", "wake")
    fingerprints.note([Touch(kv.name, KEYS, "a", True)])
    kv.execute("SET", "a", "y")
    assert fingerprints.take("client", "wake") == before


def test_who_holds_an_entry_of_a_stream_is_part_of_the_fingerprint(
    cloud: Cloud, kv: KVServer
) -> None:
    fingerprints = []
    for consumer in ("one", "one", "two"):
        kv.reset()
        current = Fingerprints(Fakes(cloud))
        current.note([Touch(kv.name, KEYS, "jobs", True)])
        kv.execute("XGROUP", "CREATE", "jobs", "group", "0", "MKSTREAM")
        kv.execute("XADD", "jobs", "1-1", "name", "a")
        kv.execute("XREADGROUP", "GROUP", "group", consumer, "STREAMS", "jobs", ">")
        fingerprints.append(current.take("client"))
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_the_restart_of_a_worker_that_changed_nothing_is_no_new_state(
    cloud: Cloud, kv: KVServer
) -> None:
    fingerprints = Fingerprints(Fakes(cloud))
    assert fingerprints.take("worker") == fingerprints.take("worker/2")
    assert fingerprints.take("worker") != fingerprints.take("other")
    assert fingerprints.take("worker/3") == fingerprints.take("worker/4")


def trial(schedule: str, *states: int) -> Outline:
    points = (
        ReachedPoint("run", number, (("crash", ""),), state)
        for number, state in enumerate(states, 1)
    )
    return outline(Schedule.parse(schedule), points=tuple(points))


def test_a_run_is_extended_where_it_was_the_first_to_reach_a_state() -> None:
    tally = Tally()
    frontier = Frontier(tally)
    frontier.learn(trial("", 1, 2, 3))
    assert frontier.next() is None
    tally.counts["singles"] += 1
    frontier.learn(trial("run.1 drop", 1, 2, 4))
    tally.counts["singles"] += 1
    frontier.learn(trial("run.2 drop", 1, 2, 4))
    assert str(frontier.next()) == "run.1 drop, run.3 crash"
    assert frontier.next() is None
    assert (tally.states, tally.last_new_state) == (4, 1)


def test_the_last_new_state_is_one_of_the_trials_that_count() -> None:
    """Interleavings that a later search contains do not count any longer."""
    tally = Tally()
    tally.counts.update(orders=40, singles=3)
    Frontier(tally).learn(trial("", 1))
    assert tally.last_new_state == 43
    tally.count_orders_once(20)
    assert (tally.tried, tally.last_new_state) == (23, 23)


def test_the_verdict_says_how_many_states_were_reached(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        redis.set("a", "1")
        time.sleep(1)
        redis.set("a", "2")

    result = cloud.explore(run, holds, kinds=("crash", "drop"), budget=20)
    assert f"states of the fakes: {result.states}, the last new one in schedule " in str(result)
    assert result.states >= 2
    assert result.last_new_state <= result.tried
