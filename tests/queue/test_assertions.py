"""Listings and assertions of a queue, asked in ways that could never hold; and what is gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.handle import Context
from pytest_fakecloud.queue.handle import Queue

from .scene import CALLBACK, DEST, NOW


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue(Context.alone(now=NOW, seed=1)) as one:
        yield one


ASKED: list[tuple[dict[str, Any], str]] = [
    ({"url": b"https://a/"}, "url=b'https://a/': give a text, a pattern, None or a predicate"),
    ({"url": 5}, "url=5: give a text"),
    ({"label": ["red"]}, "label=['red']: give a text"),
    ({"headers": "X-A"}, "headers='X-A': give a dict or a predicate"),
    ({"headers": [("X-A", "1")]}, "headers=[('X-A', '1')]: give a dict"),
    ({"headers": {5: "1"}}, "headers name=5 is not text"),
    ({"headers": {"X-A": 1}}, "headers['X-A']=1: give a text"),
    ({"body": 5}, "body=5: give bytes, a text or a predicate"),
    ({"body": {"a": 1}}, "body={'a': 1}: give bytes, a text"),
    ({"json": {1, 2}}, "json={1, 2}: give what JSON can hold"),
]


@pytest.mark.parametrize(("asked", "text"), ASKED)
def test_what_no_message_could_have_proves_nothing(
    queue: Queue, asked: dict[str, Any], text: str
) -> None:
    queue.publish(DEST)
    for use in (
        queue.assert_not_published,
        lambda **where: queue.assert_published(times=0, **where),
        lambda **where: queue.assert_delivered(times=0, **where),
        lambda **where: queue.assert_dead_lettered(times=0, **where),
    ):
        with pytest.raises(ContractError, match=re.escape(text)):
            use(**asked)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda queue: queue.assert_published(method=5), "method=5: give a text"),
        (lambda queue: queue.assert_published(queue=b"q"), "queue=b'q': give a text"),
        (lambda queue: queue.messages(url=b"a"), "url=b'a': give a text"),
        (lambda queue: queue.messages(label=5), "label=5: give a text"),
        (lambda queue: queue.messages(queue=5), "queue=5: give a text"),
        (lambda queue: queue.messages(kind=5), "kind=5: give a text"),
        (
            lambda queue: queue.messages(kind="calback"),
            "kind='calback' is unknown: give one of 'message', 'callback', 'failure_callback'",
        ),
        (lambda queue: queue.messages(state=["pending"]), "unknown state ['pending']"),
        (lambda queue: queue.message([]), "message([]): give the id of a message"),
        (lambda queue: queue.message(None), "message(None): give the id of a message"),
        (lambda queue: queue.attempts(5), "attempts(5): give a message or its id"),
        (lambda queue: queue.attempts([]), "attempts([]): give a message or its id"),
        (lambda queue: queue.attempts(url=5), "url=5: give a text"),
        (lambda queue: queue.dead_letters(url=5), "url=5: give a text"),
    ],
)
def test_looking_for_what_cannot_be(queue: Queue, use: Callable[[Queue], Any], text: str) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        use(queue)


def test_messages_are_asked_for_as_callbacks_are(queue: Queue) -> None:
    message = queue.publish(DEST, body="grüße", method="PUT", queue="orders")
    queue.publish(CALLBACK, body="other")
    assert queue.assert_published(body="grüße", times=1) == [message]
    assert queue.assert_published(body=re.compile("ü"), times=1) == [message]
    assert queue.assert_published(method="put", queue="ord*", times=1) == [message]
    assert queue.messages(queue="orders") == queue.messages(queue=re.compile("rd")) == [message]
    assert len(queue.messages(kind="mess*")) == 2
    with pytest.raises(AssertionError, match="to be published never, found 1: body='grüße'"):
        queue.assert_not_published(body="grüße")
    with pytest.raises(AssertionError, match=r"url is .*hook', which the predicate refuses"):
        queue.assert_published(url=lambda url: False)


def test_urls_of_attempts_are_as_they_were_published(queue: Queue) -> None:
    url = "https://app.example.com/grüße"
    queue.destinations.accept()
    message = queue.publish(url)
    attempt = queue.deliver_due().only()
    assert attempt.url == url
    assert f"<Attempt 1 {url} at" in repr(attempt)
    assert queue.attempts(url=url) == queue.attempts(url="*üße") == message.attempts == [attempt]
