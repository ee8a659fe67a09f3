"""Test that background deliveries run in parallel, limited only by the requested settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.clock import Mode
from pytest_fakecloud.core.threads import Dispatcher
from pytest_fakecloud.queue.delivery.destinations import Sender
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.engine.flow_control import FlowKeys
from pytest_fakecloud.queue.engine.lifecycle import Lifecycle
from pytest_fakecloud.queue.engine.planning import Planning
from pytest_fakecloud.queue.engine.publishing import Publisher
from pytest_fakecloud.queue.engine.queues import Queues
from pytest_fakecloud.queue.model import Delivery, FlowKey, Message, OrderedQueue, Outcome

from ..edge import RawServer, silent
from .histories import AT_ONCE, History, Tried, World, check, loopback, wishes

APP = "https://app.example.com"
NEARLY, SOON = "2026-01-01T00:00:00.900Z", {"Upstash-Not-Before": "1767225601"}
"""Just before and shortly after a whole second, when something is due."""
RATED = 5
"""Four messages in a period of one second, the shortest possible, and one in the next."""
Patch = Callable[[pytest.MonkeyPatch], None]


def history_of(
    seed: int, count: int, *, rated: int = 0, sockets: bool = False, within: float = 30.0
) -> History:
    """Return the history of a random world with a queue in this process."""
    with Cloud(seed=seed) as cloud:
        queue = cloud.queue(limits={"parallelism": AT_ONCE})
        made = wishes(seed, count, rated=rated)

        def run(base: str, world: World) -> None:
            world.run(lambda: len(queue._engine.data.pending), within)
            world.history.tried = [
                Tried(attempt.message_id, attempt.url, attempt.at_us, attempt.status)
                for attempt in queue.attempts()
            ]

        if sockets:
            world = World(queue.url, queue.token, "", made, seed)
            with loopback(world.receive) as base:
                world.base = base
                run(base, world)
        else:
            world = World(queue.url, queue.token, APP, made, seed)
            queue.destinations.call(
                APP,
                lambda request: world.receive(request.path, request.retried, request.message_id),
            )
            run(APP, world)
    assert cloud.violations() == []
    return world.history


@pytest.mark.parametrize(
    ("seed", "sockets"),
    [
        pytest.param(1, False, marks=pytest.mark.slow),
        (2, True),
        pytest.param(3, False, marks=pytest.mark.slow),
    ],
)
def test_histories_keep_what_was_asked_for(seed: int, sockets: bool) -> None:
    history = history_of(seed, 90, rated=RATED, sockets=sockets)
    assert check(history) == []
    assert history.pauses
    assert any(wish.cancelled_us is not None for wish in history.wishes)


def one_at_a_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dispatcher, "_is_paused", lambda self: self.stopped or self._under_way >= 1)


def sent_twice(patch: pytest.MonkeyPatch) -> None:
    send = Sender.send

    def twice(self: Sender, delivery: Delivery) -> Outcome:
        if delivery.url.endswith("/m7"):
            send(self, delivery)
        return send(self, delivery)

    patch.setattr(Sender, "send", twice)


def lost(patch: pytest.MonkeyPatch) -> None:
    plan = Planning.plan

    def lossy(self: Planning, message: Message, due_us: int, reason: str) -> None:
        if not message.url.endswith("/m7"):
            plan(self, message, due_us, reason)

    patch.setattr(Planning, "plan", lossy)


def told_twice(patch: pytest.MonkeyPatch) -> None:
    tell = Publisher.publish_callback

    def twice(self: Publisher, *args: Any) -> None:
        tell(self, *args)
        tell(self, *args)

    patch.setattr(Publisher, "publish_callback", twice)


def newest_first(patch: pytest.MonkeyPatch) -> None:
    pump = Queues.start_waiting

    def backwards(self: Queues, queue: OrderedQueue) -> None:
        queue.waiting.rotate(1)
        pump(self, queue)

    patch.setattr(Queues, "start_waiting", backwards)


def wider_queues(patch: pytest.MonkeyPatch) -> None:
    pump = Queues.start_waiting

    def wider(self: Queues, queue: OrderedQueue) -> None:
        queue.parallelism = 6
        pump(self, queue)

    patch.setattr(Queues, "start_waiting", wider)


def unlimited_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlowKey, "open", lambda self, now_us: not self.paused)


def everybody_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlowKeys, "has_room", lambda self: True)


def deaf_to_pauses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queues, "set_paused", lambda self, name, paused: None)


def deaf_to_cancelling(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lifecycle, "cancel_all", lambda self, messages: len(messages))


def hasty(patch: pytest.MonkeyPatch) -> None:
    plan = Planning.plan

    def early(self: Planning, message: Message, due_us: int, reason: str) -> None:
        plan(self, message, due_us - 15_000 * bool(message.retried), reason)

    patch.setattr(Planning, "plan", early)


@pytest.mark.parametrize(
    ("fault", "rated", "words"),
    [
        (one_at_a_time, 0, "all: one at a time"),
        (sent_twice, 0, "m7 came with Retried"),
        (lost, 0, "never came to an end"),
        (told_twice, 0, "callback(s), wanted"),
        (newest_first, 0, "did not keep the order"),
        (wider_queues, 0, "queue single:"),
        (unlimited_keys, 0, "key narrow:"),
        (unlimited_keys, 9, "key rated: more than 4 in a period"),
        (everybody_at_once, 0, "all:"),
        (deaf_to_pauses, 0, "was paused"),
        (deaf_to_cancelling, 0, "after it had been cancelled"),
        (hasty, 0, "retried too early"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.slow
def test_the_checker_catches(
    fault: Patch, rated: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    within = 1.0 if fault in (lost, one_at_a_time) else 3.0
    problems: list[str] = []
    # One seed may not trigger a fault of order or number.
    for seed in (1, 2, 3):
        problems += check(history_of(seed, 90, rated=rated, within=within))
        if any(words in text for text in problems):
            return
    pytest.fail(f"the checker found only {problems}")


def test_a_delivery_does_not_wait_for_destinations_that_are_slow(
    serve: Callable[..., RawServer],
) -> None:
    hung = serve(silent).url
    with Cloud() as cloud:
        queue = cloud.queue(attempt_cap=20)
        busy, go_on = threading.Barrier(11, timeout=60), threading.Event()

        def slow(request: object) -> None:
            busy.wait()
            go_on.wait(60)

        queue.destinations.call(APP, slow)
        came = threading.Event()
        queue.destinations.call("https://other.example.com", lambda request: came.set())
        queue.publish(hung, retries=0)
        for _ in range(10):
            queue.publish(APP)
        busy.wait()
        queue.publish("https://other.example.com")
        assert came.wait(60)
        assert not go_on.is_set()
        go_on.set()
        # Closing the queue ends the hanging connection without waiting for its cap.
        queue.close()
    assert [thread.name for thread in threading.enumerate() if "fakecloud-d" in thread.name] == []
    assert cloud.violations() == []


def test_time_passes_by_itself_for_what_the_queue_does_by_itself() -> None:
    """A slow response, a cancelled delay and a schedule need no call of the test."""
    with Cloud(now=NEARLY, clock="frozen") as cloud:
        queue = cloud.queue()
        queue.destinations.respond(APP, 200, after=0.05)
        slow = queue.publish(APP)._record
        late = queue.publish(APP, settings=SOON)
        record = late._record
        late.cancel()
        schedule = queue._engine.schedules
        lanes = {timer.lane for timer in queue._engine.planning.timers.values()}
        assert lanes == {"background"}
        cloud.clock.resume()
        assert until(lambda: slow.state == "DELIVERED")
        assert until(lambda: record.state == "CANCELED")
        queue.schedule(APP, "* * * * *")
        assert {timer.lane for timer in schedule.timers.values()} == {"background"}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_handler_that_publishes_without_end_is_told(asynchronous: bool) -> None:
    with Cloud() as cloud:
        queue = cloud.queue(loop_limit=3)

        def again(request: object) -> None:
            queue.publish(APP)

        async def later(request: object) -> None:
            queue.publish(APP)

        queue.destinations.call(APP, later if asynchronous else again)
        queue.publish(APP)
        assert until(lambda: cloud.violations())
        assert "endless loop: 30 deliveries caused each other" in cloud.violations().only().text


@pytest.mark.parametrize("clock", ["frozen", "running"])
@pytest.mark.parametrize("count", [1, 2])
def test_handlers_that_publish_to_each_other_over_http_are_stopped(clock: Mode, count: int) -> None:
    with Cloud(clock=clock) as cloud:
        queue = cloud.queue(loop_limit=3)
        deliveries: list[str] = []

        def handler(request: DeliveredRequest) -> None:
            deliveries.append(request.url)
            other = APP + "/b" if request.url == APP + "/a" else APP + "/a"
            for _ in range(count if len(deliveries) < 500 else 0):
                requests.post(f"{queue.url}/v2/publish/{other}", headers=queue.headers, timeout=5)

        queue.destinations.call(APP, handler)
        queue.publish(APP + "/a")
        assert until(lambda: cloud.violations())
        assert until(
            lambda: not queue._engine.data.under_way and queue._engine.next_due_us() is None
        )
        assert "endless loop" in cloud.violations().only().text
        # 30 returned in a span of time without a pause, and some were being delivered.
        assert len(deliveries) < 60 * count


def test_a_delayed_loop_over_http_is_stopped_within_one_call() -> None:
    with Cloud(clock="frozen") as cloud:
        queue = cloud.queue(loop_limit=3)
        deliveries = 0

        def handler(request: DeliveredRequest) -> None:
            nonlocal deliveries
            deliveries += 1
            headers = queue.headers | {"Upstash-Delay": "1s"}
            requests.post(f"{queue.url}/v2/publish/{APP}", headers=headers, timeout=5)

        queue.destinations.call(APP, handler)
        queue.publish(APP)
        cloud.clock.advance("10m")
        assert "30 deliveries caused each other in one call" in cloud.violations().only().text
        assert deliveries < 40


def test_faults_take_deliveries_in_their_order() -> None:
    """The order of threads does not decide which delivery a fault applies to."""
    with Cloud(now=NEARLY, clock="frozen") as cloud:
        queue = cloud.queue()
        queue.destinations.accept()
        queue.faults.unsigned(times=20)
        messages = [queue.publish(APP, settings=SOON, retries=0) for _ in range(40)]
        cloud.clock.resume()
        assert until(lambda: not queue.pending())
        struck = ["unsigned" in message.attempts.only().faults for message in messages]
        assert struck == [True] * 20 + [False] * 20


def test_a_fault_that_cannot_be_judged_fails_the_attempt() -> None:
    with Cloud() as cloud:
        queue = cloud.queue()
        queue.destinations.accept()
        queue.faults.unsigned(url=lambda url: 1 // 0)
        message = queue.publish(APP, retries=0)
        assert until(lambda: message.state == "dead_lettered")
        assert "a predicate of" in str(message.attempts.only().exception)
        texts = [violation.text for violation in cloud.violations() if violation.kind == "unmet"]
        assert len(texts) == 1
        assert f"a background delivery to {APP}: ContractError" in texts[0]


def test_deliveries_in_flight_at_the_end_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Dispatcher.stop
    monkeypatch.setattr(Dispatcher, "stop", lambda self: stop(self, 0.01))
    begun, go_on = threading.Event(), threading.Event()
    cloud = Cloud()
    queue = cloud.queue()

    def handler(request: object) -> None:
        begun.set()
        go_on.wait(60)

    queue.destinations.call(APP, handler)
    queue.publish(APP)
    assert begun.wait(10)
    with pytest.warns(RuntimeWarning, match=r"(?s)has not ended.*go_on\.wait"):
        cloud.close()
    go_on.set()


def test_a_closed_queue_sends_nothing(serve: Callable[..., RawServer]) -> None:
    """If the queue is closed during the first request of a duplicate, the second is not sent."""
    with Cloud() as cloud:
        queue = cloud.queue()
        queue.faults.duplicate()
        route = queue.destinations.call(APP, lambda request: queue.close())
        message = queue.publish(APP, retries=0)
        assert until(lambda: message.attempts and message.attempts[0].state != "in flight")
        assert len(route.deliveries) == 1
        assert "the queue is closed, and nothing was sent" in str(message.attempts[0].exception)


def until(holds: Callable[[], object], within: float = 10.0) -> bool:
    give_up = time.monotonic() + within
    patience = threading.Event()
    while not holds():
        if time.monotonic() > give_up:
            return False
        patience.wait(0.005)
    return True
