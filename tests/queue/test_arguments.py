"""A tester's slips are told in the tester's words, before anything happens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.handle import Context
from pytest_fakecloud.queue.arguments import FlowControl
from pytest_fakecloud.queue.capture.handle import CallbackCapture
from pytest_fakecloud.queue.handle import Queue

from .scene import DEST


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue(Context.alone(now="2026-03-01T00:00:00Z")) as one:
        yield one


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"url": 5}, "url=5 is not text"),
        ({"url": b"https://a.test"}, "is not text: give a str"),
        ({"headers": {"X-A": 1}}, "headers['X-A']=1 is not text"),
        ({"headers": [("X-A", "1")]}, "give a dict of names and texts"),
        ({"settings": {"Delay": "5s"}}, "not a header of the service: give 'Upstash-Delay'"),
        ({"settings": {"Upstash-Delay": 5}}, "settings['Upstash-Delay']=5 is not text"),
        ({"body": 5}, "body=5: give bytes or text, or json="),
        ({"body": "\ud800"}, "is not text that UTF-8 can write"),
        ({"json": {1, 2}}, "json={1, 2} is nothing that JSON can hold (Object of type set"),
        ({"json": {(1, 2): 3}}, "is nothing that JSON can hold"),
        ({"json": {}, "body": b"x"}, "give json= or body=, not both"),
        ({"callback": 7}, "callback=7 is not text"),
        ({"failure_callback": 7}, "failure_callback=7 is not text"),
        ({"label": 5}, "label=5 is not text"),
        ({"queue": 5}, "queue=5 is not text"),
        ({"deduplication_id": 5}, "deduplication_id=5 is not text"),
        ({"flow_control": "k"}, "flow_control='k': give a dict of key, parallelism, rate, period"),
        ({"flow_control": {"rate": 1}}, "of which key is needed"),
        ({"flow_control": {"key": 5}}, "flow_control['key']=5 is not text"),
        ({"flow_control": {"key": "k", "rat": 1}}, "no 'rat': give key, parallelism, rate, period"),
        ({"flow_control": {"key": "k", "rate": True}}, "flow_control['rate']=True: give a whole"),
        ({"flow_control": {"key": "k", "period": 0.5}}, "period=0.5: the service counts in whole"),
        ({"api": "v3"}, "api='v3' is unknown: give one of 'v1', 'v2'"),
        ({"delay": 0.5}, "delay=0.5: the service counts in whole seconds"),
    ],
)
def test_publishing_what_no_request_could_carry(
    queue: Queue, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        queue.publish(**{"url": DEST, **arguments})
    assert queue.messages() == []


def test_what_is_fine(queue: Queue) -> None:
    message = queue.publish(DEST, body=bytearray(b"x"), label=["a", "b"])
    assert (message.body, message.labels) == (b"x", ("a", "b"))
    assert queue.publish(DEST, deduplication_id="a") == queue.publish(DEST, deduplication_id="a")
    assert queue.publish(DEST, json=None).body == b"null"
    assert queue.publish(DEST, settings={"Content-Type": "text/x", "service-delay": "5s"}).due


def test_flow_control_as_a_keyword(queue: Queue) -> None:
    queue.destinations.accept(DEST)
    limited = FlowControl(key="k", parallelism=2, rate=1, period="1m")
    for flow_control in (limited, limited, FlowControl(key="k")):
        queue.publish(DEST, flow_control=flow_control)
    first, *later = queue.run_until_idle()
    assert [(one.at - first.at).total_seconds() for one in later] == [60, 120]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (5, "load(): the data is a dict, got 5"),
        (
            {"topics": {}},
            "does not know 'topics'; it takes url_groups, queues, schedules, messages",
        ),
        ({"messages": {"url": DEST}}, "messages is a list"),
        ({"messages": [DEST]}, "a message is a dict"),
        ({"messages": [{"uri": DEST}]}, "a message does not know 'uri'; it takes url, json"),
        ({"messages": [{"label": "a"}]}, "a message needs url"),
        ({"schedules": [{"destination": DEST}]}, "a schedule needs cron"),
        ({"queues": ["q"]}, "queues is a dict"),
        ({"queues": {"q": {"par": 2}}}, "queue q does not know 'par'; it takes parallelism"),
        ({"queues": {"q": {"parallelism": 0}}}, "parallelism=0: give a whole number of at least 1"),
        ({"url_groups": {"g": DEST}}, "g is a list"),
        ({"url_groups": {"g": [{"name": "one"}]}}, "url=None is not text"),
    ],
)
def test_loading_what_has_no_meaning(queue: Queue, data: Any, text: str) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        queue.load(data)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda queue: queue.schedule(DEST, 5), "cron=5 is not text"),
        (lambda queue: queue.schedule(5, "* * * * *"), "destination=5 is not text"),
        (lambda queue: queue.schedule(DEST, "* * * * *", id=5), "id=5 is not text"),
        (lambda queue: queue.messages(state=5), "state=5 can never be: give one of pending"),
        (lambda queue: queue.messages("ERROR"), "state='ERROR' is not a state; there are: pending"),
        (lambda queue: queue.assert_published(times=-1), "times=-1 is not a count"),
        (lambda queue: queue.assert_delivered(times="1"), "times='1' is not a count"),
        (lambda queue: queue.assert_dead_lettered(times=True), "times=True is not a count"),
    ],
)
def test_uses_without_meaning(queue: Queue, use: Callable[[Queue], Any], text: str) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        use(queue)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda one: one.callbacks.wait_for(1, statuss=200), "callback has no field 'statuss'"),
        (lambda one: one.callbacks.assert_received(statuss=200), "callback has no field 'statuss'"),
        (lambda one: one.callbacks.assert_received(times=-1), "times=-1 is not a count"),
        (lambda one: one.callbacks.wait_for(1, timeout="5s"), "timeout='5s': give a number"),
        (lambda one: one.wait_for_failure(timeout=-1), "timeout=-1: give a number"),
    ],
)
def test_waits_without_meaning(use: Callable[[CallbackCapture], Any], text: str) -> None:
    with (
        CallbackCapture(Context.alone()) as capture,
        pytest.raises(ContractError, match=re.escape(text)),
    ):
        use(capture)


def test_json_that_never_ends(queue: Queue) -> None:
    round_and_round: list[Any] = []
    round_and_round.append(round_and_round)
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    for value, text in ((round_and_round, "nothing that JSON can hold"), (deep, "too deeply")):
        with pytest.raises(ContractError, match=text):
            queue.publish(DEST, json=value)
