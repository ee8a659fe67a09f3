"""Test which messages may start: released slots, held messages, and order of delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud

HOOK = "https://app.test/hook"
SLOW = "https://slow.test/hook"
BROKEN = "https://broken.test/hook"


class QueueBench:
    """A queue whose destination records the bodies of its deliveries."""

    def __init__(self, cloud: Cloud, **settings: Any) -> None:
        self.queue = cloud.queue(**settings)
        self.came: list[str] = []
        self.queue.destinations.call(HOOK, self._note)
        self.queue.destinations.answers(SLOW, 200, after=10)

    def _note(self, request: Any) -> int:
        self.came.append(request.text)
        return 200

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send one request to the queue; header names are given without ``Upstash-``."""
        named = {f"Upstash-{name.replace('_', '-')}": value for name, value in headers.items()}
        json = body if isinstance(body, dict) else None
        answer = httpx.request(
            method,
            self.queue.url + path,
            headers={**self.queue.headers, **named},
            json=json,
            content=None if json is not None else body,
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def enqueue(self, name: str, **headers: str) -> str:
        """Publish a message to the ordered queue ``line`` and return its id."""
        return str(self.ask("POST", f"/v2/enqueue/line/{HOOK}", name, **headers)["messageId"])

    def publish(self, name: str, flow: str | None = None, *, to: str = HOOK, **headers: str) -> str:
        """Publish a message with the flow-control key ``tenant`` and these limits; return its id."""
        if flow is not None:
            headers |= {"Flow_Control_Key": "tenant", "Flow_Control_Value": flow}
        return str(self.ask("POST", f"/v2/publish/{to}", name, **headers)["messageId"])

    def cancel(self, message_id: str) -> None:
        self.ask("DELETE", f"/v2/messages/{message_id}")

    def waits_for(self, *ids: str) -> list[str]:
        """Return the wait reasons of messages that have no due time."""
        found = [self.queue.message(each)._record for each in ids]
        assert [one.due_us for one in found] == [None] * len(ids)
        return [one.wait_reason for one in found]

    def delivered(self) -> list[str]:
        """Deliver what is due and return the bodies of all deliveries so far."""
        self.queue.deliver_due()
        return self.came


@pytest.fixture
def make() -> Iterator[Callable[..., QueueBench]]:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z", clock="frozen", delivery="driven") as cloud:
        yield lambda **settings: QueueBench(cloud, **settings)


def test_a_cancelled_message_gives_up_its_slot_of_the_queue(
    make: Callable[..., QueueBench],
) -> None:
    bench = make()
    first = bench.enqueue("first", Delay="1h")
    bench.enqueue("second")
    assert bench.delivered() == []
    bench.cancel(first)
    assert bench.delivered() == ["second"]


def test_a_cancelled_message_gives_up_its_slot_whatever_is_told_about_it(
    make: Callable[..., QueueBench],
) -> None:
    bench = make()
    bench.queue.destinations.answers(BROKEN, 500)
    path = f"/v2/enqueue/line/{BROKEN}"
    first = bench.ask("POST", path, "first", Callback=BROKEN, Callback_Retry_Delay="60000")
    bench.enqueue("second")
    assert bench.delivered() == []
    bench.cancel(first["messageId"])
    assert bench.delivered() == ["second"]


def test_a_cancelled_message_that_waits_takes_nobodys_slot(make: Callable[..., QueueBench]) -> None:
    bench = make()
    bench.enqueue("first", Delay="1h")
    second = bench.enqueue("second")
    bench.enqueue("third")
    bench.cancel(second)
    assert bench.delivered() == []
    bench.queue.advance("1h")
    assert bench.delivered() == ["first", "third"]


def test_a_paused_queue_keeps_its_order_and_forgets_the_cancelled(
    make: Callable[..., QueueBench],
) -> None:
    bench = make()
    bench.ask("POST", "/v2/queues/", {"queueName": "line", "parallelism": 2})
    first = bench.enqueue("first")
    bench.ask("POST", "/v2/queues/line/pause")
    second = bench.enqueue("second")
    bench.enqueue("third")
    last = bench.enqueue("fourth")
    assert bench.delivered() == []
    bench.cancel(second)
    assert bench.delivered() == []
    assert bench.ask("GET", "/v2/queues/line")["paused"] is True
    bench.ask("POST", "/v2/queues/line/resume")
    assert bench.ask("GET", "/v2/queues/line")["paused"] is False
    assert bench.delivered() == ["first", "third", "fourth"]
    resumed = "(queue line resumed)"
    assert [resumed in bench.queue.message(one).timeline for one in (first, last)] == [True, False]


def test_a_queue_that_is_not_paused_any_more_by_its_settings_goes_on(
    make: Callable[..., QueueBench],
) -> None:
    bench = make()
    bench.ask("POST", "/v2/queues/", {"queueName": "line", "parallelism": 1})
    bench.ask("POST", "/v2/queues/line/pause")
    bench.enqueue("first")
    assert bench.delivered() == []
    bench.ask("POST", "/v2/queues/", {"queueName": "line", "parallelism": 3})
    assert bench.delivered() == []
    bench.ask("POST", "/v2/queues/line/resume")
    assert bench.delivered() == ["first"]


def test_a_deleted_queue_takes_its_messages_with_it(make: Callable[..., QueueBench]) -> None:
    bench = make()
    ids = [bench.enqueue("slot", Delay="1h"), bench.enqueue("waiting")]
    alone = bench.publish("alone")
    bench.ask("DELETE", "/v2/queues/line")
    assert bench.delivered() == ["alone"]
    bench.queue.advance("2h")
    assert bench.delivered() == ["alone"]
    states = {message.id: message.state for message in bench.queue.messages()}
    assert states == {**dict.fromkeys(ids, "cancelled"), alone: "delivered"}
    # A new queue of the same name starts with free slots.
    bench.enqueue("again")
    assert bench.delivered() == ["alone", "again"]


def test_a_message_that_flow_control_let_through_gives_its_place_back(
    make: Callable[..., QueueBench],
) -> None:
    bench = make()
    first = bench.publish("first", "parallelism=1")
    bench.publish("second", "parallelism=1")
    bench.cancel(first)
    assert bench.delivered() == ["second"]


def test_a_rate_opens_again_and_leaves_out_the_cancelled(make: Callable[..., QueueBench]) -> None:
    bench = make()
    bench.publish("first", "rate=1,period=1h")
    second = bench.publish("second", "rate=1,period=1h")
    bench.publish("third", "rate=1,period=1h")
    assert bench.delivered() == ["first"]
    bench.cancel(second)
    bench.queue.advance("59m")
    assert bench.came == ["first"]
    bench.queue.advance("1m")
    assert bench.came == ["first", "third"]


def test_a_paused_key_calls_back_who_has_not_started_and_keeps_the_order(
    make: Callable[..., QueueBench],
) -> None:
    bench = make()
    for name in ("first", "second", "third", "fourth"):
        bench.publish(name, "parallelism=3")
    bench.ask("POST", "/v2/flowControl/tenant/pause")
    bench.publish("fifth", "parallelism=3")
    assert bench.delivered() == []
    assert bench.ask("GET", "/v2/flowControl/tenant")["waitListSize"] == 5
    bench.queue.advance("1h")
    assert bench.came == []
    bench.ask("POST", "/v2/flowControl/tenant/resume")
    bench.queue.advance("1s")
    assert bench.came == ["first", "second", "third", "fourth", "fifth"]
    assert bench.ask("GET", "/v2/flowControl/tenant")["waitListSize"] == 0


@pytest.fixture
def let_through(make: Callable[..., QueueBench]) -> QueueBench:
    """Three messages that a paused key held; the key was resumed, and they have not started yet."""
    bench = make()
    bench.ask("POST", "/v2/flowControl/tenant/pause")
    for name in ("first", "second", "third"):
        bench.publish(name, "parallelism=2")
    assert bench.delivered() == []
    bench.ask("POST", "/v2/flowControl/tenant/resume")
    assert bench.ask("GET", "/v2/flowControl/tenant")["waitListSize"] == 1
    return bench


def test_recalled_messages_return_to_their_old_position(let_through: QueueBench) -> None:
    let_through.ask("POST", "/v2/flowControl/tenant/pause")
    assert let_through.ask("GET", "/v2/flowControl/tenant")["waitListSize"] == 3
    let_through.queue.advance("1h")
    assert let_through.came == []
    assert let_through.ask("GET", "/v2/flowControl/tenant")["waitListSize"] == 3
    let_through.queue.restore(let_through.queue.snapshot())
    let_through.ask("POST", "/v2/flowControl/tenant/resume")
    assert let_through.delivered() == ["first", "second", "third"]


def test_recalled_messages_make_room_for_others(make: Callable[..., QueueBench]) -> None:
    bench = make(limits={"parallelism": 1})
    bench.ask("POST", "/v2/flowControl/tenant/pause")
    bench.publish("keyed", "parallelism=1")
    assert bench.delivered() == []
    bench.ask("POST", "/v2/flowControl/tenant/resume")
    bench.ask("POST", "/v2/flowControl/tenant/pause")
    bench.publish("plain")
    assert bench.delivered() == ["plain"]


def test_a_message_at_the_start_of_a_period_waits_behind_earlier_ones(
    make: Callable[..., QueueBench],
) -> None:
    bench = make()
    bench.publish("third", "rate=1,period=1h", Delay="1h")
    bench.publish("first", "rate=1,period=1h")
    bench.publish("second", "rate=1,period=1h")
    assert bench.delivered() == ["first"]
    bench.queue.advance("1h")
    assert bench.came == ["first", "second"]
    bench.queue.advance("1h")
    assert bench.came == ["first", "second", "third"]


def test_a_cancelled_message_gives_its_slot_to_the_next(let_through: QueueBench) -> None:
    first = next(one.id for one in let_through.queue.messages() if one.body == b"first")
    let_through.cancel(first)
    assert let_through.ask("GET", "/v2/flowControl/tenant")["waitListSize"] == 0
    assert let_through.delivered() == ["second", "third"]


def test_global_parallelism_starts_the_oldest_first_and_forgets_the_cancelled(
    make: Callable[..., QueueBench],
) -> None:
    bench = make(limits={"parallelism": 1})
    bench.publish("first")
    second = bench.publish("second")
    bench.publish("third", "parallelism=1")
    bench.publish("fourth")
    bench.cancel(second)
    bench.queue.advance("1s")
    assert bench.came == ["first", "third", "fourth"]


def test_the_wait_reason_for_global_parallelism(make: Callable[..., QueueBench]) -> None:
    bench = make(limits={"parallelism": 1})
    bench.publish("slow", to=SLOW)
    ids = [bench.publish("plain"), bench.publish("keyed", "parallelism=1")]
    assert bench.delivered() == []
    assert bench.waits_for(*ids) == ["global parallelism 1", "global parallelism 1"]
    bench.queue.advance("9s")
    assert bench.came == []
    bench.queue.advance("1s")
    assert bench.came == ["plain", "keyed"]
    for each in ids:
        assert "after 10 s (global parallelism 1)" in bench.queue.message(each).timeline


def test_a_key_that_lets_nobody_in_is_what_its_messages_wait_for(
    make: Callable[..., QueueBench],
) -> None:
    bench = make(limits={"parallelism": 2})
    bench.publish("slow", "parallelism=1", to=SLOW)
    keyed = bench.publish("keyed", "parallelism=1")
    assert bench.delivered() == []
    assert bench.waits_for(keyed) == ["flow control tenant"]
    # The wait reason stays the same when global parallelism is exhausted as well.
    bench.publish("slow too", to=SLOW)
    late = bench.publish("late", "parallelism=1")
    assert bench.delivered() == []
    assert bench.waits_for(keyed, late) == ["flow control tenant", "flow control tenant"]
    bench.queue.advance("10s")
    assert bench.came == ["keyed", "late"]


@pytest.mark.parametrize("keyed", range(4))
def test_room_goes_to_the_oldest_of_all_lines(make: Callable[..., QueueBench], keyed: int) -> None:
    bench = make(limits={"parallelism": 1})
    bench.publish("slow", to=SLOW)
    names = ["first", "second", "third", "fourth"]
    for number, name in enumerate(names):
        bench.publish(name, "parallelism=1" if number == keyed else None)
    gone = [bench.publish("gone"), bench.publish("gone", "parallelism=1")]
    bench.publish("last")
    assert bench.delivered() == []
    for each in gone:
        bench.cancel(each)
    bench.queue.advance("10s")
    assert bench.came == [*names, "last"]


def test_room_is_not_for_a_key_whose_rate_is_used_up(make: Callable[..., QueueBench]) -> None:
    bench = make(limits={"parallelism": 1})
    bench.publish("within", "rate=1,period=1h")
    bench.publish("beyond", "rate=1,period=1h")
    assert bench.delivered() == ["within"]
    bench.publish("slow", to=SLOW)
    bench.publish("plain")
    bench.queue.advance("10s")
    assert bench.came == ["within", "plain"]
    bench.queue.advance("1h")
    assert bench.came == ["within", "plain", "beyond"]
