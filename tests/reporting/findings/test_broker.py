"""Findings about consumer groups, and similar cases without a finding."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud

from .cases import Scene, judge

MANUAL = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}


class Shop:
    """A broker with topics ``t`` (one partition) and ``wide`` (two), and a client of it."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.broker = cloud.broker(topics={"t": 1, "wide": 2})

    def ask(self, path: str, body: Any = None, **headers: str) -> Any:
        sent = {f"Kafka-{name.replace('_', '-')}": value for name, value in headers.items()}
        return requests.post(
            f"{self.broker.url}/{path}",
            json=body,
            auth=(self.broker.username, self.broker.password),
            headers=sent or MANUAL,
            timeout=5,
        ).json()

    def produce(self, count: int, topic: str = "t", **more: Any) -> None:
        for number in range(count):
            self.broker.produce(topic, f"v{number}", **more)

    def reads(self, *instances: str, group: str = "g", topic: str = "t") -> None:
        """Each instance consumes all records, commits nothing, and leaves."""
        for instance in instances:
            self.ask(f"consume/{group}/{instance}", {"topic": topic})
            self.broker.leave(group, instance)


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as cloud:
        cloud.clock.wait_cap = 0.01
        yield Shop(cloud)


def commits_of_two(shop: Shop) -> None:
    for partition in (0, 1):
        shop.produce(1, "wide", partition=partition)
    shop.ask("consume/g/i", {"topic": "wide"})
    both = [{"topic": "wide", "partition": number, "offset": 9} for number in (0, 1)]
    shop.ask("commit/g/i", both)


def commits_the_offset_of_the_last(shop: Shop) -> None:
    shop.produce(2)
    shop.ask("consume/g/i", {"topic": "t"})
    shop.ask("commit/g/i", {"topic": "t", "partition": 0, "offset": 1})
    shop.broker.leave("g", "i")
    shop.ask("consume/g/i", {"topic": "t"})


def comes_back_after_retention(shop: Shop) -> None:
    shop.broker.set_retention("t", "1h")
    latest = {"enable_auto_commit": "false", "auto_offset_reset": "latest"}
    for name in ("first", "away", "kept", "last"):
        if name == "last":
            shop.ask("consume/g/i", {"topic": "t"}, **latest)
        shop.broker.produce("t", name)
        if name in ("first", "last"):
            shop.ask("consume/g/i", {"topic": "t"}, auto_offset_reset="earliest")
            shop.ask("commit/g/i", {"topic": "t", "partition": 0, "offset": 1})
        if name == "away":
            shop.broker.leave("g", "i")
            shop.cloud.clock.advance("2h")


def commit_of_nothing_read(shop: Shop) -> None:
    shop.produce(1)
    shop.ask("consume/g/i", {"topic": "t"}, auto_offset_reset="latest")
    shop.ask("commit/g/i", {"topic": "t", "partition": 0, "offset": 4})


def commit_after_a_rereading(shop: Shop) -> None:
    shop.produce(3)
    shop.ask("consume/g/i", {"topic": "t"})
    shop.ask("commit/g/i", {"topic": "t", "partition": 0, "offset": 2})
    shop.ask("commit/g/i", {"topic": "t", "partition": 0, "offset": 9})


def read_by(shop: Shop, *instances: str, count: int = 1) -> None:
    """Instances read the same one after the other; the group has a commit from before."""
    shop.produce(count)
    shop.broker.commit("g", "t", 0, 0)
    shop.reads(*instances)


def twice_in_two_groups(shop: Shop) -> None:
    shop.produce(1)
    shop.reads("a", "b", group="careless")
    shop.ask("consume/careless/c", {"topic": "t"})
    shop.broker.commit("g", "t", 0, 0)
    shop.reads("a", "b")


def begins_at_the_end(shop: Shop, earlier: int, *, later: int = 0, deleted: int = 0) -> None:
    latest = {"auto_offset_reset": "latest", "enable_auto_commit": "false"}
    shop.produce(earlier)
    if deleted:
        shop.broker.delete_records("t", before=deleted)
    shop.ask("consume/g/i", {"topic": "t"}, **latest)
    shop.produce(later)
    shop.ask("consume/g/i", {"topic": "t"}, **latest)


def begins_at_the_end_of_the_second(shop: Shop) -> None:
    shop.produce(1, "wide", partition=0)
    shop.produce(1, "wide", partition=1)
    shop.broker.commit("g", "wide", 0, 0)
    shop.ask("consume/g/i", {"topic": "wide"}, auto_offset_reset="latest")


def second_group_begins_at_the_end(shop: Shop) -> None:
    shop.ask("consume/g/i", {"topic": "t"}, auto_offset_reset="earliest")
    shop.produce(2)
    shop.ask("consume/late/i", {"topic": "t"}, auto_offset_reset="latest")


def reads_wide(shop: Shop, count: int, *, keyed: bool = False) -> None:
    for number in range(count):
        partition = number % 2
        shop.produce(1, "wide", partition=partition, key=f"k{partition}" if keyed else None)
    shop.ask("consume/g/i", {"topic": "wide"}, auto_offset_reset="earliest")


def reads_some_with_keys(shop: Shop, *unkeyed: int) -> None:
    for partition in (0, 1):
        shop.produce(1, "wide", partition=partition, key=f"k{partition}")
    for partition in unkeyed:
        shop.produce(1, "wide", partition=partition)
    shop.ask("consume/g/i", {"topic": "wide"}, auto_offset_reset="earliest")


def commit_after_one_of_three(shop: Shop) -> None:
    shop.produce(1)
    shop.ask("consume/g/i", {"topic": "t"})
    shop.produce(2)
    shop.ask("commit/g/i", {"topic": "t", "partition": 0, "offset": 3})


def adds_for_each_record(shop: Shop, *, fails: str = "", commits: bool = False) -> None:
    """A consumer that adds to a hash for each record; the command ``fails`` is answered 503."""
    server = shop.cloud.kv_server()
    shop.produce(2)
    shop.broker.commit("g", "t", 0, 0)
    if fails:
        server.faults.answer(503, command="HINCRBY")
    for instance in "ab" if not commits else "a":
        records = shop.ask(f"consume/g/{instance}", {"topic": "t"})
        if commits:
            shop.ask(f"commit/g/{instance}")
        for record in records:
            command = ["HINCRBY", "sums", record["value"], 1]
            httpx.post(server.url, json=command, headers=server.headers)
        shop.broker.leave("g", instance)


def read_in_one_group(shop: Shop, *instances: str) -> None:
    for instance in instances:
        shop.ask("consume/g/" + instance, {"topic": "wide"})
    shop.produce(4, "wide")
    for instance in instances:
        shop.ask("consume/g/" + instance, {"topic": "wide"})
        shop.ask(f"commit/g/{instance}")


def copies(shop: Shop, *versions: int, command: str = "HSET", field: str = "version") -> None:
    """A consumer that copies versions and compares them as strings."""
    server = shop.cloud.kv_server()

    def send(*words: Any) -> Any:
        return httpx.post(server.url, json=words, headers=server.headers).json().get("result")

    for version in versions:
        shop.broker.produce("t", json.dumps({field: version}))
        for record in shop.ask("consume/g/i", {"topic": "t"}, auto_offset_reset="earliest"):
            version, known = str(json.loads(record["value"])[field]), send("HGET", "p", "version")
            if known is None or version > known:
                send(command, "p", "version", version)


CASES: dict[str, Scene] = {
    "versions that are compared as strings": lambda shop: copies(shop, 8, 9, 10, 11),
    "versions of equal length": lambda shop: copies(shop, 11, 12, 11),
    "a version that was never written": lambda shop: copies(shop, 9, 10, command="HGET"),
    "a number under another name": lambda shop: copies(shop, 8, 9, 10, field="stock"),
    "records of one partition": lambda shop: (
        shop.produce(4),
        shop.ask("consume/g/i", {"topic": "t"}, auto_offset_reset="earliest"),
    ),
    "one group for two services": lambda shop: read_in_one_group(shop, "mail", "billing"),
    "one group for two services, one after the other": lambda shop: [
        (
            shop.produce(1),
            shop.ask(f"consume/g/{name}", {"topic": "t"}),
            shop.ask(f"commit/g/{name}"),
            shop.broker.leave("g", name),
        )
        for name in ("mail", "billing")
    ],
    "a new instance for each call": lambda shop: [
        (shop.produce(2, "wide"), shop.ask(f"consume/g/i{number}", {"topic": "wide"}))
        for number in range(3)
    ],
    "one group for two workers": lambda shop: read_in_one_group(shop, "worker-1", "worker-2"),
    "a batch that failed in part and was repeated": lambda shop: (
        shop.broker.partial_produce(1),
        [shop.ask("produce/t", [{"value": "a"}, {"value": "b"}]) for _ in range(2)],
    ),
    "a batch that failed and was repeated": lambda shop: (
        shop.broker.faults.answer(503, times=1),
        [shop.ask("produce/t", [{"value": "a"}, {"value": "b"}]) for _ in range(2)],
    ),
    "the offset of the last record was committed": commits_the_offset_of_the_last,
    "records that retention deleted": comes_back_after_retention,
    "a header that the broker does not read": lambda shop: shop.ask(
        "consume/g/i", {"topic": "t"}, auto_commit="false"
    ),
    "a commit of records that came later": commit_after_one_of_three,
    "records that are added twice": adds_for_each_record,
    "records that are committed before they are added": lambda shop: adds_for_each_record(
        shop, fails="HINCRBY", commits=True
    ),
    "records that are committed before they are added, all well": lambda shop: adds_for_each_record(
        shop, commits=True
    ),
    "each position of a commit": commits_of_two,
    "a commit of what was not read": commit_of_nothing_read,
    "the last that a reader got is the highest": commit_after_a_rereading,
    "twice": lambda shop: read_by(shop, "a", "b"),
    "three times": lambda shop: read_by(shop, "a", "b", "c"),
    "by too many to name": lambda shop: read_by(shop, "a", "b", "c", "d"),
    "by one": lambda shop: read_by(shop, "a", "a"),
    "by one of two again": lambda shop: read_by(shop, "a", "b", "a"),
    "more than four": lambda shop: read_by(shop, "a", "b", count=6),
    "two groups": twice_in_two_groups,
    "nothing committed of several": lambda shop: (
        shop.produce(2),
        shop.ask("consume/g/i", {"topic": "t"}),
    ),
    "one earlier": lambda shop: begins_at_the_end(shop, 1),
    "two earlier": lambda shop: begins_at_the_end(shop, 2),
    "what came later does not count": lambda shop: begins_at_the_end(shop, 2, later=1),
    "what was deleted does not count": lambda shop: begins_at_the_end(shop, 3, deleted=2),
    "one of two partitions": begins_at_the_end_of_the_second,
    "one of two groups": second_group_begins_at_the_end,
    "no order": lambda shop: reads_wide(shop, 3),
    "no order beside records with keys": lambda shop: reads_some_with_keys(shop, 0, 1),
    "all that was before is deleted": lambda shop: begins_at_the_end(shop, 3, deleted=3),
    "one record of each partition has no order to lose": lambda shop: reads_wide(shop, 2),
    "keys in both partitions, none in one": lambda shop: reads_some_with_keys(shop, 0, 0),
    "one record with a key in each": reads_some_with_keys,
    "records with keys": lambda shop: reads_wide(shop, 4, keyed=True),
}


@pytest.mark.parametrize("name", CASES)
def test_findings(shop: Shop, name: str) -> None:
    CASES[name](shop)
    judge("broker", name, shop.cloud)
