"""Test the listings and assertions of a queue: filters, counts and error messages."""

from __future__ import annotations

import re

import pytest

from pytest_fakecloud.queue.fake import Queue

from .scene import CALLBACK, DEST


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


def test_attempts_of_one_delivery_of_a_v1_message_to_a_topic(queue: Queue) -> None:
    queue.load({"url_groups": {"news": [DEST, CALLBACK]}})
    queue.destinations.accept()
    message = queue.publish("news", api="v1")
    queue.run_until_idle()
    assert queue.attempts(message) == message.attempts == queue.attempts(url=DEST)
    assert queue.attempts(message.id) == queue.attempts()
    assert len(queue.attempts()) == 2


def test_a_star_may_be_meant(queue: Queue) -> None:
    message = queue.publish(DEST, settings={"Upstash-Label": "a*b"})
    queue.publish(DEST, settings={"Upstash-Label": "axb"})
    assert len(queue.messages(label="a*b")) == 2
    assert queue.messages(label=r"a\*b") == [message]


def test_assert_not_delivered_and_not_dead_lettered(queue: Queue) -> None:
    queue.destinations.respond(DEST, 200, 500)
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
    queue.destinations.respond(DEST, 500)
    message = queue.publish(DEST, json={"n": 1}, headers={"X-A": "1"}, retries=0)
    queue.run_until_idle()
    assert queue.messages().where(json={"n": 1}, headers={"x-a": "1"}, label=[]) == [message]
    assert queue.messages(service_state="failed", id=message.id) == [message]
    assert queue.attempts(message, status=500).where(kind="mess*").only().number == 1
    assert queue.dead_letters(status=lambda status: status > 499).only().message == message


def test_filters_for_none(queue: Queue) -> None:
    plain = queue.publish(DEST, json=None)
    queue.publish(DEST, body="x", queue="orders")
    assert queue.assert_published(queue=None, times=1) == [plain]
    assert queue.assert_published(json=None, times=1) == [plain]
