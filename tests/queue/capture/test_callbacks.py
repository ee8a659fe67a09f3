"""Test received callbacks: filters, faults of one URL, waits and their error messages."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest
import requests
import trio

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.capture import callbacks as waiting
from pytest_fakecloud.queue.capture.fake import CallbackCapture
from pytest_fakecloud.queue.fake import Queue

from .conftest import APP, NOW


@pytest.fixture
def queue(cloud: Cloud) -> Queue:
    queue = cloud.queue()
    queue.destinations.accept(APP)
    return queue


def ask(queue: Queue, capture: CallbackCapture, count: int = 1, **more: Any) -> None:
    for number in range(count):
        queue.publish(APP, json=number, callback=capture.callback_url, **more)


def test_where_knows_the_fields_that_assertions_know(
    queue: Queue, capture: CallbackCapture
) -> None:
    queue.destinations.respond(APP, (500, {"n": 1}), (200, {"n": 2}))
    ask(queue, capture)
    queue.run_until_idle()
    callbacks = capture.callbacks()
    second = {"response_json": {"n": 2}}
    assert callbacks.where(**second).only().status == 200
    first = callbacks.where(response_json=lambda value: value["n"] < 2, request_json=0).only()
    assert first.status == 500
    assert callbacks.where(lambda item: item.is_final).where(response_json={"n": 1}) == []
    assert callbacks[:1].where(response_json={"n": 1}).where(status=500).only() is callbacks[0]
    assert capture.assert_callback(verified=True).where(**second).only() is callbacks.last
    assert capture.wait_for_callback(**second) is callbacks.last
    assert callbacks.where(problem=None) == callbacks
    for where in (callbacks.where, callbacks[:0].where, capture.wait_for_callback):
        with pytest.raises(ContractError, match="5 is not a function: pass a predicate"):
            where(5)  # type: ignore[arg-type]
    for use in (
        *(
            callbacks.where,
            callbacks[:0].where,
            capture.wait_for_callback,
            capture.wait_for_failure,
        ),
        *(capture.assert_callback, capture.assert_no_callback),
        *(capture.assert_failure, capture.assert_no_failure),
    ):
        with pytest.raises(ContractError, match="'statuss' is not a field of a callback"):
            use(statuss=200)


@pytest.mark.parametrize("delivery", ["driven", "background"])
def test_a_wait_returns_the_next_one_that_matches(delivery: Any) -> None:
    with Cloud(seed=1, now=NOW, delivery=delivery) as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.respond(APP, 500, 503, 500, 200)
        ask(queue, capture)
        assert capture.wait_for_callback(lambda item: item.is_final).status == 200
        assert capture.wait_for_callback(status=500).retried == 0
        assert capture.wait_for_callback(status=500).retried == 2
        assert capture.wait_for_callback().status == 503
        with pytest.raises(AssertionError, match=r"status=500 3 times, found 2"):
            capture.wait_for_callback(status=500, timeout=0.05)
        assert len(capture.callbacks()) == 4


def test_a_body_that_is_not_json_is_shown(queue: Queue, capture: CallbackCapture) -> None:
    route = queue.destinations.respond(APP, (200, "done"))
    message = queue.publish(APP, body="hi", callback=capture.callback_url)
    callback = capture.wait_for_callback()
    call = capture.journal.calls().only()
    call.response_body = b"no"
    for read, body in (
        (callback.response_json, b"done"),
        (callback.request_json, b"hi"),
        (message.json, b"hi"),
        (route.deliveries.only().json, b"hi"),
        (call.response_json, b"no"),
    ):
        with pytest.raises(ValueError, match="Expecting value") as failed:
            read()
        assert failed.value.__notes__ == [f"the body is {body!r}"]


def test_headers_are_asked_for_by_name(queue: Queue, capture: CallbackCapture) -> None:
    ask(queue, capture, settings={"Upstash-Callback-Forward-X-Tenant": "a"})
    queue.run_until_idle()
    received = capture.assert_callback
    assert received(headers={"x-tenant": "a", "Content-Type": lambda value: "json" in value})
    with pytest.raises(AssertionError, match="header x-tenant is 'a', not 'b'"):
        received(headers={"x-tenant": "b"})
    with pytest.raises(AssertionError, match="header X-Absent is absent, not 'b'"):
        received(headers={"X-Absent": "b"})
    with pytest.raises(ContractError, match="headers: 5 is not the name of a header"):
        received(headers={5: "b"})


def test_fields_are_asked_for_as_messages_are(queue: Queue, capture: CallbackCapture) -> None:
    queue.destinations.respond(APP, (200, "done"))
    message = queue.publish(APP, json=1, callback=capture.callback_url)
    queue.run_until_idle()
    received = capture.assert_callback
    assert received(
        url="https://app.*/job", source_message_id=message, response_body="done", times=1
    )
    assert received(url=re.compile("job$"), request_body=b"1", at=NOW, verified=True, dlq_id=None)
    assert received(headers={"user-agent": "Upstash*", "content-type": re.compile("json")})
    assert received(at=message.created, times=1)
    everything = {
        "status": ANY,
        "url": ANY,
        "response_body": ANY,
        "at": ANY,
        "verified": ANY,
        "payload": ANY,
    }
    assert received(**everything, times=1)
    assert received(at="2026-01-01T00:00:01Z", times=0) == []


@pytest.mark.parametrize(("route", "other"), [("callbacks", "failures"), ("failures", "callbacks")])
def test_faults_select_one_url_by_its_route(
    queue: Queue, capture: CallbackCapture, route: str, other: str
) -> None:
    urls = {"callbacks": capture.callback_url, "failures": capture.failure_url}
    with capture.faults.respond(503, route=route):
        statuses = {
            name: requests.post(f"{url}/x", data=b"{}").status_code for name, url in urls.items()
        }
    assert statuses == {route: 503, other: 200}
    assert {name: len(getattr(capture, name)()) for name in urls} == {route: 0, other: 1}
    capture.assert_called(route=route, status=503, times=1)
    with pytest.raises(ContractError, match="did you mean 'callbacks'"):
        capture.faults.respond(503, route="callback")


def test_the_next_one_after_all_were_forgotten(queue: Queue, capture: CallbackCapture) -> None:
    ask(queue, capture)
    capture.wait_for_callback()
    capture.reset()
    ask(queue, capture)
    assert capture.wait_for_callback() is capture.callbacks().only()


def test_lists_of_callbacks_take_fields(queue: Queue, capture: CallbackCapture) -> None:
    queue.destinations.respond(APP, 200, 500)
    urls = {"callback": capture.callback_url, "failure_callback": capture.failure_url}
    first, second = (queue.publish(APP, json=1, retries=0, **urls) for _ in range(2))
    queue.run_until_idle()
    assert [item.status for item in capture.callbacks()] == [200, 500]
    assert capture.callbacks(status=500).only().source_message_id == second.id
    assert capture.callbacks(source_message_id=first, status=500) == []
    assert capture.failures(source_message_id=second) == capture.failures()
    assert capture.failures(status=200) == []
    with pytest.raises(ContractError, match="did you mean 'status'"):
        capture.callbacks(statu=200)  # type: ignore[call-arg]


def test_lists_of_callbacks_are_copies(queue: Queue, capture: CallbackCapture) -> None:
    ask(queue, capture, 3)
    first = capture.wait_for_callback()
    capture.callbacks().clear()
    assert capture.callbacks() == [first]
    assert [capture.wait_for_callback().request_json() for _ in range(2)] == [1, 2]


def test_each_of_several_threads_gets_one_of_its_own() -> None:
    with Cloud(seed=1, delivery="background") as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.accept(APP)
        got: list[Any] = []
        threads = [
            threading.Thread(target=lambda: got.append(capture.wait_for_callback().request_json()))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        ask(queue, capture, 4)
        for thread in threads:
            thread.join()
        assert sorted(got) == [0, 1, 2, 3]


def test_each_of_several_tasks_gets_one_of_its_own() -> None:
    async def main(cloud: Cloud) -> list[Any]:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.accept(APP)
        ask(queue, capture, 3)
        got = await asyncio.gather(*(capture.aio.wait_for_callback() for _ in range(3)))
        return sorted(item.request_json() for item in got)

    with Cloud(seed=1, delivery="background") as cloud:
        assert asyncio.run(main(cloud)) == [0, 1, 2]


def test_the_awaitable_wait_goes_no_further_than_the_plain_one(
    queue: Queue, capture: CallbackCapture
) -> None:
    ask(queue, capture, 3)
    assert capture.wait_for_callback().request_json() == 0
    plain = len(queue.attempts())
    queue.reset()
    capture.reset()
    queue.destinations.accept(APP)
    ask(queue, capture, 3)
    assert trio.run(capture.aio.wait_for_callback).request_json() == 0
    assert len(queue.attempts()) == plain
    assert len(capture.callbacks()) == 1


@pytest.mark.parametrize("awaitable", [False, True])
def test_time_can_be_moved_on_after_a_wait_that_raised(
    queue: Queue, capture: CallbackCapture, awaitable: bool
) -> None:
    class Mine(Exception):
        pass

    def fail(request: object) -> None:
        raise Mine

    def judge(item: object) -> None:
        raise Mine

    def wait(predicate: Any) -> None:
        if awaitable:
            asyncio.run(capture.aio.wait_for_callback(predicate))
        else:
            capture.wait_for_callback(predicate)

    queue.destinations.call(APP, fail, raise_exceptions=True)
    ask(queue, capture, retries=0)
    for wanted in (None, judge):
        # ``caught`` holds the exception, and through its traceback every frame of the wait.
        with pytest.raises(Mine if wanted is None else ContractError) as caught:
            wait(wanted)
        assert not queue._timekeeper.is_moving
        assert isinstance(caught.value if wanted is None else caught.value.__cause__, Mine)
    assert queue.run_until_idle().waiting == "nothing"


@pytest.mark.parametrize("clock", ["running", "frozen"])
def test_a_wait_inside_a_handler_is_misuse_that_the_outer_call_tells(clock: Any) -> None:
    with Cloud(clock=clock, seed=1, delivery="driven") as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        inside: list[str] = []

        def handler(request: object) -> None:
            try:
                capture.wait_for_callback()
            except ContractError as error:
                inside.append(str(error))

        queue.destinations.call(APP, handler)
        ask(queue, capture)
        with pytest.raises(ContractError, match="from inside a handler") as outside:
            queue.run_until_idle()
        assert inside == [str(outside.value)]
        queue.run_until_idle()
        assert capture.wait_for_callback().status == 200


@pytest.mark.parametrize("timeout", [float("inf"), 1e10, 10**400])
def test_a_patience_without_end(timeout: Any) -> None:
    with Cloud(seed=1, delivery="background") as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.accept(APP)
        threading.Timer(0.05, ask, [queue, capture]).start()
        assert capture.wait_for_callback(timeout=timeout).status == 200


def test_two_queues_may_sign_on_two_clocks() -> None:
    with Cloud(now="2030-01-01T00:00:00Z", seed=1, delivery="driven") as cloud:
        capture = cloud.callback_capture()
        for clock in ("receiver", "virtual", "real"):
            queue = cloud.queue(signature_clock=clock)
            queue.destinations.accept(APP)
            ask(queue, capture)
            queue.run_until_idle()
        assert [item.problem for item in capture.callbacks()] == [None, None, None]
        queue.faults.expired_token()
        queue.faults.tamper()
        ask(queue, capture)
        queue.run_until_idle()
        problem = capture.callbacks().last.problem
        assert problem is not None
        assert "the token has expired" in problem
        assert "another body" in problem
        unsigned = requests.post(capture.callback_url, data=b"{}")
        assert unsigned.status_code == 200
        assert "no Upstash-Signature header" in str(capture.callbacks().last.problem)


def told(wait: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as failure:
        wait()
    return str(failure.value)


def test_the_message_that_asked_for_it_is_told_of_first(
    queue: Queue, capture: CallbackCapture
) -> None:
    asked = queue.publish(APP, callback=capture.callback_url)
    for number in range(9):
        queue.publish(APP, json=number)
    queue.faults.drop_callback()
    text = told(capture.wait_for_callback)
    assert text.splitlines()[2].strip() == f"{asked.id} POST {APP}"
    assert "and 5 more messages" in text
    assert text.count("CREATED") == 5


def test_a_schedule_is_not_waited_for_and_that_is_said(
    queue: Queue, capture: CallbackCapture
) -> None:
    queue.schedule(APP, "0 * * * *", callback=capture.callback_url)
    queue.schedule(APP, "30 * * * *", id="paused")
    requests.post(f"{queue.url}/v2/schedules/paused/pause", headers=queue.headers, timeout=10)
    text = told(capture.wait_for_callback)
    assert "the schedule" in text
    assert "paused" not in text
    assert "is due at 2026-01-01T01:00:00+00:00" in text
    assert "waiting does not run schedules: move the clock with clock.advance()" in text
    queue.clock.advance("1h")
    assert capture.wait_for_callback().status == 200


def test_the_nearest_of_many_messages_are_listed(queue: Queue, capture: CallbackCapture) -> None:
    ask(queue, capture, 9)
    queue.run_until_idle()
    text = told(lambda: capture.assert_callback(request_json=99))
    assert "and 4 more that differ" in text
    assert text.count("request_json is") == 5


def test_too_many_callbacks_are_not_explained_as_missing(
    queue: Queue, capture: CallbackCapture
) -> None:
    ask(queue, capture, 2)
    queue.run_until_idle()
    text = told(lambda: capture.assert_callback(times=0))
    assert text.startswith(f"expected a callback at {capture.callback_url} never")
    assert "found 2" in text
    assert "nothing is left to deliver" not in text


def test_pending_messages_are_reported(queue: Queue, capture: CallbackCapture) -> None:
    ask(queue, capture, 2, delay="1m")
    text = "2 messages still to be delivered, the next at 2026-01-01T00:01:00+00:00: run the queue"
    assert text in told(capture.assert_callback)


def test_what_a_wait_for_the_background_did_not_wait_for_is_reported() -> None:
    with Cloud(now=NOW, seed=1, delivery="background") as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        ask(queue, capture, delay="1m")
        text = told(lambda: capture.wait_for_callback(timeout=0))
        assert "1 message still to be delivered, the next at 2026-01-01T00:01:00+00:00" in text
        assert "pass a longer timeout=" in text


@pytest.mark.parametrize("awaitable", [False, True])
@pytest.mark.parametrize("failing", [False, True])
def test_a_driven_wait_does_not_look_at_real_time(
    monkeypatch: pytest.MonkeyPatch, awaitable: bool, failing: bool
) -> None:
    """Each handler takes a second of real time, and ``timeout`` is for background delivery only."""
    seconds = 0.0
    monkeypatch.setattr(waiting, "monotonic", lambda: seconds)

    def slow(request: object) -> int:
        nonlocal seconds
        seconds += 1
        return 500

    with Cloud(now=NOW, seed=1, delivery="driven") as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.call(APP, slow)
        queue.publish(APP, retries=5, failure_callback=None if failing else capture.failure_url)

        def wait(timeout: float) -> Any:
            if awaitable:
                return asyncio.run(capture.aio.wait_for_failure(timeout=timeout))
            return capture.wait_for_failure(timeout=timeout)

        if failing:
            # The wait ends when nothing is left that can produce a callback.
            assert "nothing is left to deliver" in told(lambda: wait(timeout=0))
        else:
            assert wait(timeout=0).retried == 5
        assert seconds == 6


def test_a_closed_capture_is_reported(queue: Queue, capture: CallbackCapture) -> None:
    ask(queue, capture)
    capture.close()
    text = told(capture.wait_for_callback)
    assert "callback_capture is closed and cannot receive callbacks" in text


def test_a_message_due_in_over_a_month_is_reported(queue: Queue, capture: CallbackCapture) -> None:
    ask(queue, capture, delay="31d")
    before = queue.clock.now()
    text = told(capture.wait_for_callback)
    assert queue.clock.now() == before
    assert "the next message is due at 2026-02-01T00:00:00+00:00, more than 30 days ahead" in text


def test_a_waiter_that_left_takes_nothing() -> None:
    async def main(cloud: Cloud) -> Any:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.accept(APP)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(capture.aio.wait_for_callback(timeout=60), 0.05)
        ask(queue, capture)
        return (await capture.aio.wait_for_callback()).request_json()

    started = time.monotonic()
    with Cloud(seed=1, delivery="background") as cloud:
        assert asyncio.run(main(cloud)) == 0
    # ``asyncio.run()`` joins the worker threads, so this also shows that no thread is still
    # waiting.
    assert time.monotonic() - started < 30
