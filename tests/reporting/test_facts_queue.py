"""Facts about messages, case by case: what is one, and what looks like one and is none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud

from .test_facts import HOOK, Scene, told

FIRST = "msg_0bf3"
MADE = "this publish made no message: "


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened


Request = tuple[str, Any, dict[str, str]]


def publishes(*requests: Request, lost: int = 0) -> Scene:
    """Requests that publish: path, body and headers; the answers of the first ``lost`` are lost."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        if lost:
            queue.faults.lose_answer(times=lost)
        for path, body, headers in requests:
            with suppress(httpx.TransportError):
                sent = {**queue.headers, **headers}
                httpx.post(f"{queue.url}/v2/{path}", json=body, headers=sent)

    return run


def to(path: str, body: Any = "x", **headers: str) -> Request:
    return (
        f"{path}/{HOOK}",
        body,
        {f"Upstash-{name.replace('_', '-')}": value for name, value in headers.items()},
    )


def batch(*ids: str) -> Request:
    one = {"destination": HOOK, "body": "x"}
    return "batch", [{**one, "headers": {"Upstash-Deduplication-Id": id}} for id in ids], {}


def answered(*answers: int) -> Scene:
    """A message for each answer, delivered once."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.destinations.answers(HOOK, *answers)
        for _ in answers:
            queue.publish(HOOK, retries=0)
        queue.run_until_idle()

    return run


def writes(*of_delivery: list[list[Any]], duplicate: bool = True, delay: bool = False) -> Scene:
    """A receiver that writes, with each delivery of a message that comes twice, what is given."""

    def run(cloud: Cloud) -> None:
        server, queue = cloud.kv_server(), cloud.queue()
        queue.destinations.accept("https://app.example.com/other")
        queue.publish("https://app.example.com/other", retries=0)
        queue.run_until_idle()
        if duplicate:
            queue.faults.duplicate(times=1)
        if delay:
            queue.faults.delay("1s", url=HOOK, times=1)
        left = iter(of_delivery)

        def take(request: Any) -> int:
            for command in next(left):
                httpx.post(server.url, json=command, headers=server.headers)
            return 200

        queue.destinations.call(HOOK, take)
        queue.publish(HOOK, retries=0)
        queue.run_until_idle()

    return run


def logs(*statuses: int) -> Scene:
    """A receiver that logs an exception and answers all the same, once for each status."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        left = iter(statuses)

        def take(request: Any) -> int:
            try:
                raise KeyError("total")
            except KeyError:
                logging.getLogger("shop").exception("no total")
            return next(left)

        queue.destinations.call(HOOK, take)
        for _ in statuses:
            queue.publish(HOOK, retries=0)
        queue.run_until_idle()

    return run


AGAIN = (
    f"this publish came again, without a deduplication id, after the answer that named {FIRST} was "
    "lost: both are sent"
)
TWICE = "{} came twice (fault: duplicate) and led to the same {} twice"
SAID: dict[str, tuple[Scene, list[str]]] = {
    "an earlier message of a queue": (
        publishes(*[to("enqueue/mails", Deduplication_Id="a")] * 2),
        [f"{MADE}it was deduplicated, the same as {FIRST}"],
    ),
    "another body of the same id": (
        publishes(
            to("publish", "one", Deduplication_Id="a"), to("publish", "two", Deduplication_Id="a")
        ),
        [f"{MADE}deduplicated as {FIRST}, whose body differs"],
    ),
    "the same content": (
        publishes(*[to("publish", content_based_deduplication="true")] * 2),
        [f"{MADE}its content is that of {FIRST}"],
    ),
    "one of a batch": (
        publishes(to("publish", Deduplication_Id="a"), batch("a", "b")),
        [f"one of these was deduplicated, the same as {FIRST}"],
    ),
    "a publish after other calls": (
        publishes(("batch", "no list", {}), *[to("publish", Deduplication_Id="a")] * 2),
        [f"{MADE}it was deduplicated, the same as {FIRST}"],
    ),
    "a request that came again": (publishes(*[to("publish")] * 2, lost=1), [AGAIN]),
    "a request to a queue that came again": (
        publishes(*[to("enqueue/mails")] * 2, lost=1),
        [AGAIN],
    ),
    "a request that came again after one with an id": (
        publishes(to("publish"), to("publish", Deduplication_Id="a"), to("publish"), lost=1),
        [AGAIN],
    ),
    "the second of two answers": (
        answered(200, 300),
        [
            "msg_15c9 was answered 300; the queue follows no redirect and takes only 200 to 299 for "
            "delivered"
        ],
    ),
    "one write twice": (writes([["INCR", "n"]], [["INCR", "n"]]), [TWICE.format("msg_15c9", "call")]),
    "two writes twice": (
        writes(*[[["INCR", "n"], ["INCR", "m"]]] * 2),
        [TWICE.format("msg_15c9", "2 calls")],
    ),
    "twice and late": (
        writes(*[[["INCR", "n"]]] * 2, delay=True),
        [TWICE.format("msg_15c9", "call")],
    ),
    "an exception that was logged": (
        logs(299),
        [f"{FIRST} was answered 299 though its receiver logged an exception: no retry"],
    ),
}  # fmt: skip
SILENT: dict[str, Scene] = {
    "two bodies without an id": publishes(to("publish", "one"), to("publish", "two")),
    "a request with another body": publishes(to("publish", "one"), to("publish", "two"), lost=1),
    "a request with an id that came again": publishes(
        *[to("publish", Deduplication_Id="a")] * 2, lost=2
    ),
    "other writes of the second delivery": writes([["INCR", "n"]], [["INCR", "m"]]),
    "no write of the second delivery": writes([["INCR", "n"]], []),
    "no write at all": writes([], []),
    "two writes of one delivery": writes([["INCR", "n"]] * 2, duplicate=False),
}


@pytest.mark.parametrize(("scene", "expected"), SAID.values(), ids=SAID)
def test_what_happened_is_said(cloud: Cloud, scene: Scene, expected: list[str]) -> None:
    scene(cloud)
    assert [one.removeprefix("queue: ") for one in told(cloud)] == expected


@pytest.mark.parametrize("scene", SILENT.values(), ids=SILENT)
def test_what_did_not_happen_is_not(cloud: Cloud, scene: Scene) -> None:
    scene(cloud)
    assert told(cloud) == []
