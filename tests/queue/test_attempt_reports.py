"""Test that log records and exceptions are captured during a delivery, and only then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from types import coroutine
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest, Response
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.model import Delivery, Outcome

URL = "https://app.example.com/hook"
INNER = "https://inner.example.com/hook"
START = "2026-01-01T00:00:00Z"


def log_error(text: str) -> None:
    try:
        raise KeyError(text)
    except KeyError:
        logging.getLogger("shop").exception("failed")


def logged(queue: Queue) -> list[list[str]]:
    """Return the exceptions logged in each attempt, by their arguments."""
    logs = [event.data.get("logged", []) for event in queue.journal.events("attempt")]
    return [[text.partition("KeyError: ")[2].split("'")[1] for text in texts] for texts in logs]


def test_each_delivery_has_what_was_logged_in_it() -> None:
    with Cloud(clock="frozen", now=START, delivery="driven") as cloud:
        queue = cloud.queue()

        def handler(request: DeliveredRequest) -> None:
            if request.body != b"quiet":
                log_error(request.body.decode())

        queue.destinations.call(URL, handler)
        for body in ("one", "quiet", "two"):
            queue.publish(URL, body=body)
        queue.deliver_due()
        assert logged(queue) == [["one"], [], ["two"]]


def test_a_queue_in_the_background_delivers_alone_while_a_call_moves_the_clock() -> None:
    with Cloud(clock="frozen", now=START) as cloud:
        queue, redis = cloud.queue(), cloud.kv_server().client()
        ended = threading.Event()

        def handler(request: DeliveredRequest) -> None:
            redis.incr("deliveries")
            log_error(request.body.decode())

        queue.destinations.call(URL, handler)
        queue.destinations.call(INNER, lambda request: ended.set())
        for body in ("one", "two"):
            queue.publish(URL, body=body, delay="10m", retries=0)
        cloud.clock.advance("10m")
        assert logged(queue) == [["one"], ["two"]]
        # Each attempt's calls are between its beginning and its end.
        first, second = queue.journal.events("attempt")
        calls = [call.number for call in cloud.journal.calls(command="INCR")]
        assert first.data["began"] < calls[0] < first.number
        assert first.number < second.data["began"] < calls[1] < second.number
        assert (first.data["alone"], second.data["alone"]) == (True, True)
        # The thread in the background delivers what is due, and the test goes on meanwhile.
        queue.publish(INNER)
        assert ended.wait(30)
        queue.run_until_idle()
        assert queue.journal.events("attempt")[-1].data["alone"] is False


def test_deliveries_kept_for_reports_are_limited_in_number_and_bytes() -> None:
    with Cloud(clock="frozen", now=START, delivery="driven") as cloud:
        cloud.journal.keep_bytes = 5_000
        queue = cloud.queue(limits={"burst": None, "daily_messages": None})
        made = queue._reports.finished

        def publish(times: int, size: int) -> list[int]:
            queue.destinations.respond(URL, Response(200, b"y" * size))
            for _ in range(times):
                queue.publish(URL, body=b"x" * size)
            queue.run_until_idle()
            return [len(sent.body) + len(outcome.body) for _, sent, outcome in made]

        assert publish(7, 500) == [1000] * 5
        assert publish(1, 0) == [*[1000] * 5, 0]
        assert publish(1, 3_000) == []
        assert publish(1_001, 0) == [0] * 1000
        queue.reset()
        assert publish(1, 2_500) == [5_000]


@pytest.mark.parametrize("raised", [None, ValueError("slip"), KeyboardInterrupt()])
def test_the_log_handler_is_removed_after_a_delivery(raised: Any) -> None:
    before = list(logging.getLogger().handlers)
    during: list[int] = []
    with Cloud(clock="frozen", now=START, delivery="driven") as cloud:
        queue = cloud.queue()

        def handler(request: DeliveredRequest) -> None:
            during.append(len(logging.getLogger().handlers) - len(before))
            if raised is not None:
                raise raised

        queue.destinations.call(URL, handler)
        queue.publish(URL, retries=0)
        try:
            queue.deliver_due()
        except KeyboardInterrupt:
            assert isinstance(raised, KeyboardInterrupt)
        log_error("afterwards")
        assert [lines for lines in logged(queue) if lines] == []
    assert during == [1]
    assert logging.getLogger().handlers == before


def test_a_delivery_of_another_cloud_within_one_is_heard_by_both() -> None:
    with (
        Cloud(clock="frozen", now=START, delivery="driven") as cloud,
        Cloud(clock="frozen", now=START, delivery="driven") as other,
    ):
        outer, inner = cloud.queue(), other.queue()
        inner.destinations.call(INNER, lambda request: log_error("within"))

        def handler(request: DeliveredRequest) -> None:
            inner.publish(INNER)
            inner.deliver_due()
            log_error("without")

        outer.destinations.call(URL, handler)
        outer.publish(URL)
        outer.deliver_due()
        assert logged(outer) == [["within", "without"]]
        assert logged(inner) == [["within"]]


@coroutine
def _answer_sent(delivery: Delivery, in_loop: bool) -> Iterator[Any]:
    """Wait for the outcome that the test sends to the delivery."""
    return (yield)


@pytest.mark.parametrize("first_out", [0, 1])
def test_deliveries_of_one_queue_may_overlap(
    monkeypatch: pytest.MonkeyPatch, first_out: int
) -> None:
    """Overlapping deliveries may end in either order."""
    before = list(logging.getLogger().handlers)
    with Cloud(clock="frozen", now=START, delivery="driven") as cloud:
        queue = cloud.queue()
        engine = queue._engine
        begun = [engine.attempts.begin(queue.publish(URL).id) for _ in range(2)]
        monkeypatch.setattr(engine.interceptors, "_perform", _answer_sent)
        sending = [engine.deliveries._chain(exchange) for exchange in begun]
        for number, text in ((0, "a"), (1, "b")):
            sending[number].send(None)
            log_error(text)
        for number, text in ((first_out, "c"), (1 - first_out, "d")):
            with pytest.raises(StopIteration):
                sending[number].send(Outcome(200))
            log_error(text)
        ended = [["a", "b"], ["b", "c"]] if first_out == 0 else [["b"], ["a", "b", "c"]]
        assert logged(queue) == ended
    assert logging.getLogger().handlers == before
