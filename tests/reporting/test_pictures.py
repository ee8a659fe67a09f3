"""Pictures of retries and of consumer groups: what stands where, and in which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_fakecloud.core.calls import Event
from pytest_fakecloud.reporting.pictures import groups, ladders
from pytest_fakecloud.reporting.scene import Scene

A, B, LONG = ("orders", 0), ("orders", 1), ("a-topic-of-a-long-name", 12)


def attempt(at_us: int, status: int | None, message: str = "msg_1") -> Event:
    data = {"message_id": message, "status": status, "url": "https://a/?b&c"}
    return Event(1, at_us, "queue", "queue", "attempt", "", data)


def rebalance(at_us: int, group: str = "shop", **owned: list[Any]) -> Event:
    data = {"group": group, "assignment": owned}
    return Event(1, at_us, "broker", "broker", "rebalance", "<who> joined", data)


def drawn(events: list[Event]) -> list[str]:
    return ladders(events, Scene())


def title(picture: str) -> str:
    return re.findall("<figcaption>(.*)</figcaption>", picture)[0]


@pytest.mark.parametrize(
    ("attempts", "circles", "words"),
    [
        ([(0, 500), (60_000_000, 200)], ["bad 16.0", "good 396.0"], ["1: 500", "2: 200 after 1 m"]),
        ([(7, 299), (8, 300)], ["good 16.0", "bad 396.0"], ["1: 299", "2: 300 after 0 s"]),
        ([(5, None), (5, 199)], ["bad 16.0", "bad 16.0"], ["1: no answer", "2: 199 after 0 s"]),
    ],
)
def test_attempts_stand_to_scale(attempts: Any, circles: list[str], words: list[str]) -> None:
    (picture,) = drawn([attempt(*one) for one in attempts])
    found = re.findall(r'<circle class="(\w+)" cx="([\d.]+)"', picture)
    assert [" ".join(one) for one in found] == circles
    assert re.findall("<text .*?>(.*?)</text>", picture) == words
    assert title(picture).partition(" https")[2].startswith("://a/?b&amp;c: 2 attempts in ")


def test_a_ladder_takes_two_attempts_and_a_page_twelve_ladders() -> None:
    ids = [f"msg_{number}" for number in range(20)]
    events = [attempt(at, 500, one) for one in ids for at in range(1 + (one != "msg_0"))]
    events.append(rebalance(0, m=[A]))
    found = drawn(events)
    assert len(found) == 12
    assert "msg_1 " in title(found[0])


@pytest.mark.parametrize(
    ("rebalances", "told"),
    [
        ([{"m": [A]}], "group &lt;g&gt;: 1 generation, 1 member"),
        ([{"m": [A]}, {"m": [A], "n": [B]}], "group &lt;g&gt;: 2 generations, 2 members"),
        ([{}], "group &lt;g&gt;: 1 generation, 0 members"),
    ],
)
def test_a_picture_of_a_group_counts_in_right_english(rebalances: Any, told: str) -> None:
    (picture,) = groups([rebalance(0, "<g>", **owned) for owned in rebalances])
    assert title(picture) == told


@pytest.mark.parametrize(
    ("rebalances", "boxes", "words"),
    [
        (
            [{"a-member-of-a-name": [A, LONG]}],
            ["m0 150.0 488.0", "m0 150.0 488.0"],
            ["a-topic-of-a-long-name", "a-member-of-a-name", "orders-0", "a-member-of-a-name"],
        ),
        # Nobody has the second partition for a while.
        (
            [{"a": [A], "b": [B]}, {"a": [A]}, {"c": [A, B]}],
            [
                "m0 150.0 161.3",
                "m0 313.3 161.3",
                "m2 476.7 161.3",
                "m1 150.0 161.3",
                "m2 476.7 161.3",
            ],
            ["orders-0", "a", "a", "c", "orders-1", "b", "c"],
        ),
        ([{"m" * 71: [A]}], ["m0 150.0 488.0"], ["orders-0", "m" * 70]),
        ([{"abcd": [A]}] * 40, None, ["orders-0", *["ab"] * 40]),
    ],
    ids=["long topic", "gap", "long member", "narrow"],
)
def test_partitions_are_lanes(rebalances: Any, boxes: list[str] | None, words: list[str]) -> None:
    (picture,) = groups([rebalance(at, **owned) for at, owned in enumerate(rebalances)])
    found = re.findall(r'class="member (m\d)" x="([\d.]+)" y="\d+" width="([\d.]+)"', picture)
    assert boxes is None or [" ".join(one) for one in found] == boxes
    shown = re.findall('<text (?:class="on" )?x=.*?>(.*?)</text>', picture)
    assert shown == words
    assert picture.count("<title>&lt;who&gt; joined</title>") == len(rebalances)


def test_each_group_of_each_broker_has_a_picture_of_its_own() -> None:
    other = Event(1, 0, "broker", "other", "rebalance", "", {"group": "shop", "assignment": None})
    events = [rebalance(0, m=[A]), rebalance(1, "stock", m=[A]), rebalance(2, n=[A]), other]
    assert [title(one).partition(",")[0] for one in groups(events)] == [
        "group shop: 2 generations", "group stock: 1 generation", "group shop: 1 generation",
    ]  # fmt: skip
