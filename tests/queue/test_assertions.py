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
    (
        {"url": b"https://a/"},
        "url=b'https://a/' can never be: give an absolute URL",
    ),
    ({"url": 5}, "url=5 can never be: give an absolute URL"),
    ({"label": [5]}, "label=5 can never be: give a label"),
    ({"headers": "X-A"}, "headers='X-A' can never be: give a dict"),
    ({"headers": [("X-A", "1")]}, "headers=[('X-A', '1')] can never be: give a dict"),
    ({"headers": {5: "1"}}, "headers: 5 is not a name of a header"),
    ({"headers": {"X-A": 1}}, "headers['X-A']=1 can never be: give a text"),
    ({"body": 5}, "body=5 can never be: give bytes, a text"),
    ({"body": {"a": 1}}, "body={'a': 1} can never be: give bytes, a text"),
    ({"json": {1, 2}}, "json={1, 2} can never be: give what JSON can hold"),
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
        (lambda queue: queue.assert_published(method=5), "method=5 can never be: give a text"),
        (lambda queue: queue.assert_published(queue=b"q"), "queue=b'q' can never be: give a name"),
        (lambda queue: queue.messages(url=b"a"), "url=b'a' can never be: give an absolute URL"),
        (lambda queue: queue.messages(label=5), "label=5 can never be: give a label"),
        (lambda queue: queue.messages(queue=5), "queue=5 can never be: give a name"),
        (lambda queue: queue.messages(kind=5), "kind=5 can never be: give one of message"),
        (
            lambda queue: queue.messages(kind="calback"),
            "kind='calback' is not a kind, did you mean 'callback'?",
        ),
        (
            lambda queue: queue.messages(state=["pending"]),
            "state=['pending'] can never be",
        ),
        (lambda queue: queue.message([]), "message([]): give the id of a message"),
        (lambda queue: queue.message(None), "message(None): give the id of a message"),
        (lambda queue: queue.attempts(5), "attempts(5): give a message or its id"),
        (lambda queue: queue.attempts([]), "attempts([]): give a message or its id"),
        (lambda queue: queue.attempts(url=5), "url=5 can never be: give an absolute URL"),
        (lambda queue: queue.dead_letters(url=5), "url=5 can never be: give an absolute URL"),
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
    assert queue.assert_published(method="PUT", queue="ord*", times=1) == [message]
    assert queue.messages(queue="orders") == queue.messages(queue=re.compile("rd")) == [message]
    assert len(queue.messages(kind="mess*")) == 2
    with pytest.raises(AssertionError, match="to be published body='grüße' never, found 1"):
        queue.assert_not_published(body="grüße")
    with pytest.raises(AssertionError, match=r"url is .*hook', which does not satisfy"):
        queue.assert_published(url=lambda url: False)


def test_urls_of_attempts_are_as_they_were_published(queue: Queue) -> None:
    url = "https://app.example.com/grüße"
    queue.destinations.accept()
    message = queue.publish(url)
    attempt = queue.deliver_due().only()
    assert attempt.url == url
    assert f"<Attempt 1 {url} at" in repr(attempt)
    assert queue.attempts(url=url) == queue.attempts(url="*üße") == message.attempts == [attempt]


def test_a_star_may_be_meant(queue: Queue) -> None:
    message = queue.publish(DEST, settings={"Upstash-Label": "a*b"})
    queue.publish(DEST, settings={"Upstash-Label": "axb"})
    assert len(queue.messages(label="a*b")) == 2
    assert queue.messages(label=r"a\*b") == [message]


def test_what_did_not_come_to_that_end(queue: Queue) -> None:
    queue.destinations.answers(DEST, 200, 500)
    queue.publish(DEST, body="good", retries=0)
    queue.publish(DEST, body="bad", retries=0)
    queue.deliver_due()
    queue.assert_not_delivered(body="bad")
    queue.assert_not_dead_lettered(body="good")
    with pytest.raises(AssertionError, match="to be delivered body='good' state='delivered' never"):
        queue.assert_not_delivered(body="good")
    with pytest.raises(AssertionError, match="state='dead_lettered' never, found 1"):
        queue.assert_not_dead_lettered()


def test_callbacks_are_not_counted_and_it_is_said(queue: Queue) -> None:
    queue.destinations.accept()
    queue.publish(DEST, callback=CALLBACK)
    queue.run_until_idle()
    queue.assert_not_published(CALLBACK)
    with pytest.raises(AssertionError, match="a callback, which the queue published itself"):
        queue.assert_published(CALLBACK)


def test_listings_can_be_asked_further(queue: Queue) -> None:
    queue.destinations.answers(DEST, 500)
    message = queue.publish(DEST, json={"n": 1}, headers={"X-A": "1"}, retries=0)
    queue.run_until_idle()
    assert queue.messages().where(json={"n": 1}, headers={"x-a": "1"}, label=[]) == [message]
    assert queue.messages(service_state="failed", id=message.id) == [message]
    assert queue.attempts(message, status=500).where(kind="mess*").only().number == 1
    assert queue.dead_letters(status=lambda status: status > 499).only().message == message
    for use in (queue.messages, queue.attempts, queue.dead_letters):
        with pytest.raises(ContractError, match="has no field 'urll', did you mean 'url'"):
            use(urll=DEST)


@pytest.mark.parametrize("field", ["label", "method", "headers", "body", "kind", "id"])
def test_what_is_never_none_is_not_asked_for(queue: Queue, field: str) -> None:
    queue.publish(DEST)
    with pytest.raises(ContractError, match=f"{field}=None can never be: leave {field}= out"):
        queue.assert_not_published(**{field: None})


def test_what_may_be_none_is_asked_for(queue: Queue) -> None:
    plain = queue.publish(DEST, json=None)
    queue.publish(DEST, body="x", queue="orders")
    assert queue.assert_published(queue=None, times=1) == [plain]
    assert queue.assert_published(json=None, times=1) == [plain]


def test_a_predicate_that_raises_is_the_tests_mistake(queue: Queue) -> None:
    queue.publish(DEST)
    with pytest.raises(ContractError, match=r"body=<lambda> raised KeyError"):
        queue.assert_not_published(body=lambda body: {}[body])
