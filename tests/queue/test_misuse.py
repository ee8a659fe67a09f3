"""Test that invalid arguments to a queue's methods raise ``ContractError``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.handle import Queue

from .scene import DEST

SELF_CONTAINING: list[Any] = []
SELF_CONTAINING.append(SELF_CONTAINING)
DEEP: list[Any] = []
for _ in range(20_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"url": 5}, "url=5 is not a string"),
        ({"url": b"https://a.test"}, "is not a string; pass a str"),
        ({"headers": {"X-A": 1}}, "headers['X-A']=1 is not a string"),
        ({"headers": [("X-A", "1")]}, "headers=[('X-A', '1')] is invalid; pass a dict of strings"),
        ({"settings": {"Delay": "5s"}}, "is not a header of the service; pass 'Upstash-Delay'"),
        ({"settings": {"Upstash-Delay": 5}}, "settings['Upstash-Delay']=5 is not a string"),
        ({"body": 5}, "body=5 is invalid; pass bytes or a string, or json="),
        ({"body": "\ud800"}, "contains characters that UTF-8 cannot encode"),
        ({"json": {1, 2}}, "json={1, 2} is not JSON-serializable (Object of type set"),
        ({"json": {(1, 2): 3}}, "is not JSON-serializable"),
        ({"json": SELF_CONTAINING}, "is not JSON-serializable"),
        ({"json": DEEP}, "json= is nested too deeply for JSON"),
        ({"json": {}, "body": b"x"}, "pass json= or body=, not both"),
        ({"callback": 7}, "callback=7 is not a string"),
        ({"failure_callback": 7}, "failure_callback=7 is not a string"),
        ({"label": 5}, "label=5 is not a string"),
        ({"queue": 5}, "queue=5 is not a string"),
        ({"deduplication_id": 5}, "deduplication_id=5 is not a string"),
        (
            {"flow_control": "k"},
            "flow_control='k' is invalid; pass a dict of key, parallelism, rate, period",
        ),
        ({"flow_control": {"rate": 1}}, "of which key is required"),
        ({"flow_control": {"key": 5}}, "flow_control['key']=5 is not a string"),
        (
            {"flow_control": {"key": "k", "rat": 1}},
            "'rat' is not a key of flow_control; did you mean 'rate'? Known keys: key, para",
        ),
        ({"flow_control": {"key": "k", "rate": True}}, "flow_control['rate']=True is invalid"),
        ({"flow_control": {"key": "k", "period": 0.5}}, "period=0.5 is invalid; pass a whole"),
        ({"api": "v3"}, "api='v3' must be 'v1' or 'v2'"),
        ({"delay": 0.5}, "delay=0.5 is invalid; pass a whole number of seconds"),
        ({"delay": "200ms"}, "pass a whole number of seconds"),
    ],
)
def test_publishing(queue: Queue, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        queue.publish(**{"url": DEST, **arguments})
    assert queue.messages() == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"url": b"https://a/"}, "url=b'https://a/' can never match: pass an absolute URL"),
        ({"url": 5}, "url=5 can never match: pass an absolute URL"),
        ({"label": [5]}, "label=5 can never match: pass a label"),
        ({"headers": "X-A"}, "headers='X-A' can never match: pass a dict"),
        ({"headers": [("X-A", "1")]}, "headers=[('X-A', '1')] can never match: pass a dict"),
        ({"headers": {5: "1"}}, "headers: 5 is not the name of a header"),
        ({"headers": {"X-A": 1}}, "headers['X-A']=1 can never match: pass a string"),
        ({"body": 5}, "body=5 can never match: pass bytes, a string"),
        ({"body": {"a": 1}}, "body={'a': 1} can never match: pass bytes, a string"),
        ({"json": {1, 2}}, "json={1, 2} can never match: pass a JSON value"),
        ({"method": 5}, "method=5 can never match: pass a string"),
        ({"queue": b"q"}, "queue=b'q' can never match: pass a name"),
        ({"kind": 5}, "kind=5 can never match: pass one of message"),
        ({"kind": "calback"}, "kind='calback' is not a kind; did you mean 'callback'?"),
        *[
            ({field: None}, f"{field}=None can never match: leave out {field}= ")
            for field in ("label", "method", "headers", "body", "kind", "id")
        ],
    ],
)
def test_asking_for_messages(queue: Queue, fields: dict[str, Any], text: str) -> None:
    queue.publish(DEST)
    for ask in (
        queue.assert_not_published,
        lambda **where: queue.assert_published(times=0, **where),
        lambda **where: queue.assert_delivered(times=0, **where),
        lambda **where: queue.assert_dead_lettered(times=0, **where),
    ):
        with pytest.raises(ContractError, match=re.escape(text)):
            ask(**fields)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda queue: queue.messages(url=b"a"), "url=b'a' can never match: pass an absolute URL"),
        (lambda queue: queue.messages(label=5), "label=5 can never match: pass a label"),
        (lambda queue: queue.messages(queue=5), "queue=5 can never match: pass a name"),
        (lambda queue: queue.messages(kind=5), "kind=5 can never match: pass one of message"),
        (lambda queue: queue.messages(state=5), "state=5 can never match: pass one of pending"),
        (
            lambda queue: queue.messages("ERROR"),
            "state='ERROR' is not a state. Known states: pending",
        ),
        (lambda queue: queue.messages(state=["pending"]), "state=['pending'] can never match"),
        (lambda queue: queue.message("msg_x"), "has no message 'msg_x'. Its latest messages: msg_"),
        (lambda queue: queue.message(queue.publish(DEST).id[:-1]), "; did you mean 'msg_"),
        (lambda queue: queue.message([]), "message([]) is invalid; pass the id of a message"),
        (lambda queue: queue.message(None), "message(None) is invalid; pass the id of a message"),
        (lambda queue: queue.attempts(5), "attempts(5) is invalid; pass a message or its id"),
        (lambda queue: queue.attempts([]), "attempts([]) is invalid; pass a message or its id"),
        (lambda queue: queue.attempts(url=5), "url=5 can never match: pass an absolute URL"),
        (lambda queue: queue.dead_letters(url=5), "url=5 can never match: pass an absolute URL"),
        (
            lambda queue: queue.messages(urll=DEST),
            "'urll' is not a field of a message; did you mean 'url'",
        ),
        (
            lambda queue: queue.attempts(urll=DEST),
            "'urll' is not a field of an attempt; did you mean 'url'",
        ),
        (
            lambda queue: queue.dead_letters(urll=DEST),
            "'urll' is not a field of a dead letter; did you mean 'url'",
        ),
        (
            lambda queue: queue.assert_not_published(body=lambda body: {}[body]),
            "body=<lambda> raised KeyError",
        ),
        (lambda queue: queue.assert_published(times=-1), "times=-1 is not a count"),
        (lambda queue: queue.assert_delivered(times="1"), "times='1' is not a count"),
        (lambda queue: queue.assert_dead_lettered(times=True), "times=True is not a count"),
        (lambda queue: queue.schedule(DEST, 5), "cron=5 is not a string"),
        (lambda queue: queue.schedule(5, "* * * * *"), "url=5 is not a string"),
        (lambda queue: queue.schedule(DEST, "* * * * *", id=5), "id=5 is not a string"),
        (lambda queue: queue.restore("x"), "is not a snapshot of a queue"),
        (lambda queue: queue.explain_signature(b"x", body=b""), "signature=b'x' is not a string"),
        (lambda queue: queue.explain_signature("x", body={}), "body={} is invalid; pass bytes or"),
        (
            lambda queue: queue.explain_signature("x", body="\ud800"),
            "contains characters that UTF-8",
        ),
        (lambda queue: queue.explain_signature("x", body="", url=5), "url=5 is not a string"),
    ],
)
def test_other_methods(queue: Queue, use: Callable[[Queue], Any], text: str) -> None:
    queue.publish(DEST)
    with pytest.raises(ContractError, match=re.escape(text)):
        use(queue)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "count=None must be a whole number"),
        (True, "count=True must be a whole number"),
        (float("inf"), "count=inf must be a whole number"),
        (-1, "count=-1 must be a whole number"),
        (10**30, "from 0 to 10000"),
        (10_001, "from 0 to 10000"),
    ],
)
def test_next_runs_of_a_schedule(queue: Queue, count: Any, text: str) -> None:
    schedule = queue.schedule(DEST, "* * * * *")
    with pytest.raises(ContractError, match=re.escape(text)):
        schedule.next_runs(count)
    assert schedule.next_runs(0) == []
    assert len(schedule.next_runs(3)) == 3
