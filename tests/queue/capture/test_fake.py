"""Test ``callback_capture``: decoding, signature checks, faults, waits and assertions."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import requests
import trio
from werkzeug import Request

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.queue.capture.fake import CallbackCapture
from pytest_fakecloud.queue.fake import DEV_KEYS, Queue
from pytest_fakecloud.queue.model import SigningKeys
from pytest_fakecloud.queue.signatures import Signer, real_time

from ...harness import QUIET
from .conftest import APP

KEYS = SigningKeys(*DEV_KEYS, lambda: "new")


@pytest.fixture
def queue(cloud: Cloud) -> Queue:
    return cloud.queue(dev_credentials=True)


def plan(queue: Queue, seconds: float, send: Callable[[], object]) -> None:
    """Publish a message whose delivery sends a callback."""

    def handle(request: object) -> None:
        send()

    url = f"{APP}/{len(queue.messages())}"
    queue.destinations.call(url, handle)
    queue.publish(url, delay=seconds)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def callback_body(**changes: object) -> dict[str, object]:
    return {
        "status": 200,
        "header": {"X": ["1"]},
        "body": b64(b'{"answer": 1}'),
        "retried": 1,
        "maxRetries": 3,
        "sourceMessageId": "msg_1",
        "sourceMessasgeId": "msg_1",
        "url": "https://app.example.com/",
        "method": "POST",
        "sourceHeader": {"x-tenant": ["a", "b"]},
        "sourceBody": b64(b'{"asked": 1}'),
        "notBefore": "1",
        "createdAt": "1",
        "callerIP": "127.0.0.1",
        **changes,
    }


def signer(now: Callable[[], float] = time.time) -> Signer:
    return Signer(KEYS, now, Ids(1).stream("x"))


def send(url: str, body: dict[str, object] | bytes | None = None, **sign: Any) -> requests.Response:
    data = body if isinstance(body, bytes) else json.dumps(body or callback_body()).encode()
    headers = {"Content-Type": "application/json", "X-Odd-cASE": "1"}
    if sign.pop("signed", True):
        headers["Upstash-Signature"] = signer().sign(sign.pop("sub", url), data, **sign)
    return requests.post(url, data=data, headers=headers)


def test_a_callback_is_decoded(capture: CallbackCapture) -> None:
    assert send(capture.callback_url).status_code == 200
    item = capture.callbacks().only()
    assert (item.status, item.response_body) == (200, b'{"answer": 1}')
    assert (item.response_json(), item.response_headers) == ({"answer": 1}, {"x": "1"})
    assert item.request_headers.getlist("X-Tenant") == ["a", "b"]
    assert (item.request_body, item.request_json()) == (b'{"asked": 1}', {"asked": 1})
    assert (item.source_message_id, item.retried, item.max_retries) == ("msg_1", 1, 3)
    assert (item.dlq_id, item.url) == (None, "https://app.example.com/")
    assert item.payload == callback_body()
    assert item.at == capture.clock.now()
    assert item.verified
    assert item.problem is None
    assert item.headers.get("x-odd-case") == "1"
    assert ("X-Odd-cASE", "1") in item.headers.pairs
    assert isinstance(item.http_request, Request)
    assert capture.failures() == []


def test_a_failure_callback(capture: CallbackCapture) -> None:
    send(capture.failure_url, callback_body(status=500, dlqId="1-0", retried=3))
    item = capture.failures().only()
    assert (item.dlq_id, item.is_final, item.failure) == ("1-0", True, True)
    assert capture.callbacks() == []


@pytest.mark.parametrize(
    ("changes", "final"),
    [
        ({"status": 500, "retried": 1}, False),
        ({"status": 500, "retried": 3}, True),
        ({"status": 204, "retried": 0}, True),
        ({"status": 300, "retried": 0}, False),
        ({"status": 0, "retried": 3}, True),
        ({"status": None, "retried": None, "maxRetries": None}, False),
        ({"status": 489, "header": {"Upstash-Nonretryable-Error": ["true"]}}, True),
        ({"status": 489, "header": {"Upstash-Nonretryable-Error": ["no"]}}, False),
        ({"status": 489, "header": None}, False),
    ],
)
def test_is_final(capture: CallbackCapture, changes: dict[str, object], final: bool) -> None:
    send(capture.callback_url, callback_body(**changes))
    assert capture.callbacks().only().is_final is final


def test_the_seeds_spelling_of_the_source_id(capture: CallbackCapture) -> None:
    body = callback_body()
    del body["sourceMessageId"]
    send(capture.callback_url, body)
    assert capture.callbacks().only().source_message_id == "msg_1"


@pytest.mark.parametrize("body", [b"", b"text", b"[1]", b"\xff", b'"x"', b"[" * 200_000])
def test_other_requests_are_kept_without_fields(capture: CallbackCapture, body: bytes) -> None:
    send(capture.callback_url, body)
    item = capture.callbacks().only()
    assert item.payload == {}
    fields = (item.status, item.retried, item.max_retries, item.source_message_id, item.dlq_id)
    assert fields == (None,) * 5
    assert item.response_body == item.request_body == b""
    assert item.http_request.get_data() == body


@pytest.mark.slow
def test_a_callback_about_the_largest_message_is_taken(capture: CallbackCapture) -> None:
    body = callback_body(body="A" * 70_000_000)
    send(capture.callback_url, body)
    assert len(capture.callbacks().only().response_body) == 52_500_000


@pytest.mark.parametrize("value", ["!", 7, None, "ab"])
def test_bodies_that_are_not_base64(capture: CallbackCapture, value: object) -> None:
    send(capture.callback_url, callback_body(body=value, status="200", retried=True))
    item = capture.callbacks().only()
    assert (item.response_body, item.status, item.retried) == (b"", None, None)


def test_paths_below_the_two_urls_belong_to_them(capture: CallbackCapture) -> None:
    send(capture.callback_url + "/order/7?x=1")
    send(capture.failure_url + "/order/7")
    assert capture.callbacks().only().verified
    assert capture.failures().only().verified
    assert capture._unmet() == []


def test_the_lists_speak_the_language_of_the_inspections(capture: CallbackCapture) -> None:
    for status in (500, 503, 200):
        send(capture.callback_url, callback_body(status=status))
    assert capture.callbacks().last.status == 200
    assert len(capture.callbacks().where(status=500)) == 1
    assert [item.status for item in capture.callbacks()[:2]] == [500, 503]
    with pytest.raises(AssertionError, match="exactly one callback, found 3"):
        capture.callbacks().only()


@pytest.mark.parametrize(
    ("sign", "problem"),
    [
        ({"signed": False}, "has no Upstash-Signature header"),
        ({"key": "sig_" + "x" * 28}, "neither the current key nor the next key"),
        ({"age": 400.0}, "the token has expired"),
        ({"sub": "https://other.example.com/callback"}, "they differ in the scheme and host"),
    ],
)
def test_the_true_reason_of_a_bad_signature(
    capture: CallbackCapture, sign: dict[str, Any], problem: str
) -> None:
    send(capture.callback_url, **sign)
    item = capture.callbacks().only()
    assert not item.verified
    assert problem in (item.problem or "")
    assert f"not verified: {item.problem}" in repr(item)


def test_the_next_key_is_good(capture: CallbackCapture) -> None:
    send(capture.callback_url, key=KEYS.next)
    assert capture.callbacks().only().verified


def test_a_tampered_body(capture: CallbackCapture) -> None:
    token = signer().sign(capture.callback_url, b"{}")
    requests.post(capture.callback_url, data=b'{"x":1}', headers={"Upstash-Signature": token})
    assert "another body" in (capture.callbacks().only().problem or "")


def test_without_a_queue_nothing_is_verified() -> None:
    with CallbackCapture(Context.alone()) as capture:
        send(capture.callback_url)
        assert "this cloud has no queue" in (capture.callbacks().only().problem or "")


def test_keys_of_a_queue_elsewhere() -> None:
    with CallbackCapture(Context.alone(), keys={"current": KEYS.current}) as capture:
        send(capture.callback_url)
        assert capture.callbacks().only().verified


def test_two_queues_and_the_header_of_the_seed(cloud: Cloud, capture: CallbackCapture) -> None:
    other = cloud.queue()
    for key in (KEYS.current, other.current_signing_key, "sig_" + "q" * 28):
        signature = signer().sign(capture.callback_url, b"{}", key=key)
        requests.post(capture.callback_url, data=b"{}", headers={"Service-Signature": signature})
    assert [item.verified for item in capture.callbacks()] == [True, True, False]
    assert "neither the queue current key nor the queue next key nor the queue_2 current" in (
        capture.callbacks().last.problem or ""
    )


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_the_receiver_reads_the_clock_the_queue_signs_on(cloud: Cloud, clock: Any) -> None:
    cloud.queue(dev_credentials=True, signature_clock=clock)
    capture = cloud.callback_capture()
    # The queue's reading of real time may lag behind time.time() by a few milliseconds.
    now = capture.clock.now_us() / 1e6 if clock == "virtual" else real_time()
    token = signer(lambda: now).sign(capture.callback_url, b"{}")
    requests.post(capture.callback_url, data=b"{}", headers={"Upstash-Signature": token})
    assert capture.callbacks().only().problem is None


def test_faults_of_one_url_leave_the_other_alone(capture: CallbackCapture) -> None:
    fault = capture.faults.respond(503, times=1, route="callbacks")
    capture.faults.respond(500, route="failures")
    got = [
        send(url).status_code
        for url in (capture.callback_url, capture.callback_url + "/x", capture.failure_url)
    ]
    assert got == [503, 200, 500]
    assert fault.hits == 1
    assert len(capture.callbacks()) == 1


def test_a_fault_after_the_receiver_took_it(capture: CallbackCapture) -> None:
    capture.faults.lose_response(route="callbacks")
    with pytest.raises(requests.ConnectionError):
        send(capture.callback_url)
    assert len(capture.callbacks()) == 1


def test_the_receiver_is_down_and_up(capture: CallbackCapture) -> None:
    capture.faults.down()
    with pytest.raises(requests.ConnectionError):
        send(capture.callback_url)
    capture.faults.respond(503, times=1, route="callbacks")
    capture.faults.up()
    assert [send(capture.callback_url).status_code for _ in range(2)] == [503, 200]


def test_an_expectation_may_answer_a_callback(capture: CallbackCapture) -> None:
    capture.server.expect_oneshot_request("/callback").respond_with_data("no", status=503)
    assert [send(capture.callback_url).status_code for _ in range(2)] == [503, 200]
    assert len(capture.callbacks()) == 2
    assert capture._unmet() == []


def test_a_wait_drives_the_queue_to_what_falls_due(capture: CallbackCapture, queue: Queue) -> None:
    for hours in (1, 2, 3):
        plan(queue, 3600 * hours, lambda: send(capture.callback_url))
    before = capture.clock.now_us()
    assert [capture.wait_for_callback().verified for _ in range(2)] == [True] * 2
    assert capture.clock.now_us() - before == 7200 * 1_000_000
    assert len(queue.pending()) == 1


def test_a_wait_for_what_is_there_drives_nothing(capture: CallbackCapture, queue: Queue) -> None:
    send(capture.callback_url)
    plan(queue, 0, lambda: send(capture.callback_url))
    assert capture.wait_for_callback().verified
    assert len(queue.pending()) == 1


def test_a_wait_for_a_predicate(capture: CallbackCapture, queue: Queue) -> None:
    for status in (500, 200, 500):
        plan(
            queue, 1, lambda status=status: send(capture.callback_url, callback_body(status=status))
        )
    callback = capture.wait_for_callback(lambda item: item.status == 200)
    assert callback.is_final
    assert len(queue.pending()) == 1


def test_the_next_one_each_time(capture: CallbackCapture, queue: Queue) -> None:
    for number in range(2):
        plan(queue, 1, lambda n=number: send(capture.callback_url, callback_body(retried=n)))
        plan(queue, 2, lambda n=number: send(capture.failure_url, callback_body(retried=n)))
    assert [capture.wait_for_callback().retried for _ in range(2)] == [0, 1]
    assert [capture.wait_for_failure().retried for _ in range(2)] == [0, 1]
    with pytest.raises(AssertionError, match=r"/callback 3 times, found 2"):
        capture.wait_for_callback()


def test_a_wait_in_vain_says_what_came_and_how_far_the_messages_are(
    capture: CallbackCapture, queue: Queue
) -> None:
    queue.destinations.accept(APP)
    message = queue.publish(APP)
    queue.deliver_due()
    send(capture.callback_url, callback_body(status=500))
    send(capture.failure_url)
    with pytest.raises(AssertionError) as failure:
        capture.wait_for_callback(lambda item: item.status == 200)
    text = str(failure.value)
    assert f"expected a callback at {capture.callback_url} <lambda> at least once, found 0" in text
    assert "status 500, retried 1 of 3, verified>" in text
    assert '"maxRetries": 3' in text
    assert f"1 failure callback arrived at {capture.failure_url} instead" in text
    assert all(f"  {line}" in text for line in message.timeline.splitlines())
    assert "nothing is left to deliver" in text


def test_a_wait_without_a_message_says_so(capture: CallbackCapture) -> None:
    with pytest.raises(AssertionError, match="no message was published to a queue of this cloud"):
        capture.wait_for_callback(timeout=0.05)


def test_a_background_wait_ends_with_the_callback(cloud: Cloud) -> None:
    cloud.queue(dev_credentials=True, delivery="background")
    capture = cloud.callback_capture()
    timer = threading.Timer(0.05, send, (capture.callback_url,))
    timer.start()
    assert capture.wait_for_callback(timeout=5).verified
    timer.join()


def test_a_driven_and_a_background_queue_side_by_side(
    cloud: Cloud, queue: Queue, capture: CallbackCapture
) -> None:
    cloud.queue(delivery="background")
    plan(queue, 60, lambda: send(capture.callback_url))
    timer = threading.Timer(0.05, send, (capture.callback_url,))
    timer.start()
    assert [capture.wait_for_callback().verified for _ in range(2)] == [True] * 2
    timer.join()


@pytest.mark.parametrize("clock", ["running", "frozen"])
@pytest.mark.parametrize("awaited", [False, True])
def test_a_wait_moves_the_clock_of_a_queue_in_the_background(clock: Any, awaited: bool) -> None:
    with Cloud(clock=clock) as cloud:
        queue, capture = cloud.queue(retries=5), cloud.callback_capture()
        began = cloud.clock.now()
        queue.destinations.respond("https://app.test/", 503)
        queue.publish("https://app.test/", failure_callback=capture.failure_url)
        failure = (
            asyncio.run(capture.aio.wait_for_failure(timeout=30))
            if awaited
            else capture.wait_for_failure(timeout=30)
        )
        assert (failure.status, failure.retried) == (503, 5)
        assert cloud.clock.now() - began > timedelta(hours=1)


def test_a_wait_leaves_deliveries_in_the_background_side_by_side() -> None:
    with Cloud() as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        met = threading.Barrier(2, timeout=30)

        def meet(request: object) -> None:
            met.wait()

        queue.destinations.call("https://app.test/", meet)
        for _ in range(2):
            queue.publish("https://app.test/", delay="1h", callback=capture.callback_url)
        statuses = [capture.wait_for_callback(timeout=30).status for _ in range(2)]
        assert statuses == [200, 200]


def test_a_wait_that_cannot_move_the_clock_says_so_at_once() -> None:
    with Cloud() as cloud:
        queue, capture = cloud.queue(), cloud.callback_capture()
        queue.destinations.accept()
        untie = cloud._timekeeper.tie_to_real_time("a real server lives in real time")
        queue.publish("https://app.test/", delay="1h", callback=capture.callback_url)
        with pytest.raises(ContractError, match="cannot be stopped or moved: a real server"):
            capture.wait_for_callback(timeout=30)
        untie()
        assert capture.wait_for_callback(timeout=30).status == 200


@pytest.mark.parametrize("delivery", ["driven", "background"])
def test_the_awaitable_forms(cloud: Cloud, delivery: Any) -> None:
    queue = cloud.queue(dev_credentials=True, delivery=delivery)
    capture = cloud.callback_capture()
    for url, retried in (
        (capture.callback_url, 2),
        (capture.callback_url, 1),
        (capture.failure_url, 1),
    ):
        body = callback_body(retried=retried)
        seconds = 60 if delivery == "driven" else 0
        plan(queue, seconds, lambda url=url, body=body: send(url, body))

    async def main() -> tuple[Any, Any, Any]:
        return (
            await capture.aio.wait_for_callback(retried=1),
            await capture.aio.wait_for_failure(),
            await capture.aio.wait_for_callback(lambda item: item.verified, retried=2),
        )

    callback, failure, matching = asyncio.run(main())
    assert callback.verified
    assert failure.failure
    assert (callback.retried, matching.retried) == (1, 2)


def test_reset_forgets_callbacks_and_restore_brings_them_back(capture: CallbackCapture) -> None:
    send(capture.callback_url)
    send(capture.failure_url)
    capture.wait_for_callback()
    saved = capture.snapshot()
    capture.reset()
    assert capture.callbacks() == []
    assert capture.failures() == []
    capture.restore(saved)
    assert len(capture.callbacks()) == len(capture.failures()) == 1
    assert capture.wait_for_failure().verified
    with pytest.raises(AssertionError):
        capture.wait_for_callback(timeout=0.05)


def test_snapshots_of_other_services(cloud: Cloud) -> None:
    capture, destination = cloud.callback_capture(), cloud.destination()
    others: Any = (cloud.queue(), cloud.kv_server(), cloud.broker(), destination)
    for snapshot in (*(other.snapshot() for other in others), "x"):
        with pytest.raises(ContractError, match="is not a snapshot of a callback_capture"):
            capture.restore(snapshot)
    with pytest.raises(ContractError, match="is not a snapshot of a destination"):
        destination.restore(capture.snapshot())


def test_the_journal_has_what_came(capture: CallbackCapture) -> None:
    send(capture.callback_url)
    capture.assert_called("callbacks", times=1, status=200)
    capture.assert_not_called("failures")


def test_assertions_return_what_matched(capture: CallbackCapture) -> None:
    for status, retried in ((500, 0), (500, 1), (200, 2)):
        send(capture.callback_url, callback_body(status=status, retried=retried))
    received = capture.assert_callback
    assert [item.retried for item in received(status=500)] == [0, 1]
    assert received(status=200, response_json={"answer": 1}, times=1).only().is_final
    assert received(status=lambda status: status < 300, verified=True).only().retried == 2
    assert received(status=404, times=0) == []
    assert capture.failures() == capture.assert_failure(times=0) == []
    capture.assert_no_failure(status=500)
    capture.assert_no_callback(status=404)
    send(capture.failure_url, callback_body(status=500))
    assert capture.assert_failure(status=500, times=1) == capture.failures()
    with pytest.raises(AssertionError, match=r"a failure callback at .*/failure never"):
        capture.assert_no_failure()
    with pytest.raises(AssertionError, match=r"a callback at .*/callback status=500 never"):
        capture.assert_no_callback(status=500)


def test_the_failure_shows_the_nearest_with_a_diff(capture: CallbackCapture) -> None:
    send(capture.callback_url, callback_body(status=500, retried=0))
    send(capture.callback_url)
    with pytest.raises(AssertionError) as failure:
        capture.assert_callback(status=200, response_json={"answer": 2}, retried=1)
    text = str(failure.value)
    head, nearest, *_ = text.splitlines()
    asked = "status=200 response_json={'answer': 2} retried=1"
    assert head == f"expected a callback at {capture.callback_url} {asked} at least once, found 0"
    assert "status 200, retried 1 of 3" in nearest
    assert "response_json.answer is 1, not 2" in nearest
    assert "status is 500, not 200" in text
    assert "retried is 0, not 1" in text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"response_json": {}}, "response_json is not JSON (b'no'), not {}"),
        ({"request_json": {}}, "request_json is not JSON (b'no'), not {}"),
        ({"status": lambda status: False}, "status is 200, which does not satisfy <lambda>"),
        ({"verified": False}, "verified is True, not False"),
    ],
)
def test_differences_of_the_nearest_callback(
    capture: CallbackCapture, fields: dict[str, Any], text: str
) -> None:
    send(capture.callback_url, callback_body(body=b64(b"no"), sourceBody=b64(b"no")))
    with pytest.raises(AssertionError) as failure:
        capture.assert_callback(**fields)
    assert text in str(failure.value)


def test_a_field_that_no_callback_has(capture: CallbackCapture) -> None:
    send(capture.callback_url)
    with pytest.raises(
        ContractError, match=r"'code' is not a field of a callback. Known fields: at, at_us, dlq_id"
    ):
        capture.assert_callback(code=200)


def publish(cloud: Cloud, *statuses: int, **options: Any) -> tuple[Any, CallbackCapture]:
    queue: Any = cloud.queue()
    capture = cloud.callback_capture()
    queue.destinations.respond(APP, *((status, {"status": status}) for status in statuses))
    queue.publish(
        APP,
        json={"order": 7},
        callback=capture.callback_url,
        failure_callback=capture.failure_url,
        **options,
    )
    return queue, capture


def test_a_callback_after_every_attempt_and_a_failure_callback_at_the_end(cloud: Cloud) -> None:
    queue, capture = publish(cloud, 500, 503, 500, retries=2)
    before = cloud.clock.now()
    failure = capture.wait_for_failure()
    assert (cloud.clock.now() - before).total_seconds() == pytest.approx(160.596, abs=0.01)
    assert [item.status for item in capture.callbacks()] == [500, 503, 500]
    assert [item.is_final for item in capture.callbacks()] == [False, False, True]
    assert [item.retried for item in capture.callbacks()] == [0, 1, 2]
    assert all(item.verified for item in [*capture.callbacks(), failure])
    assert failure.response_json() == {"status": 500}
    assert failure.request_json() == {"order": 7}
    assert failure.dlq_id == queue.dead_letters().only().id
    message = queue.messages(kind="message").only()
    assert {item.source_message_id for item in capture.callbacks()} == {message.id}


def test_a_receiver_that_is_down_gets_its_callback_later(cloud: Cloud) -> None:
    queue, capture = publish(cloud, 200)
    capture.faults.respond(503, times=2, route="callbacks")
    assert capture.wait_for_callback().status == 200
    (callback,) = queue.messages(kind="callback")
    assert [attempt.status for attempt in callback.attempts] == [503, 503, 200]


def test_a_callback_signed_before_a_rotation_is_explained(cloud: Cloud) -> None:
    queue, capture = publish(cloud, 200)
    capture.faults.call(lambda request: queue.rotate_keys(), "before", times=1, route="callbacks")
    assert "neither the current key nor" in (capture.wait_for_callback().problem or "")


def test_a_dropped_callback_is_a_wait_in_vain(cloud: Cloud) -> None:
    queue, capture = publish(cloud, 200)
    queue.faults.drop_callback()
    with pytest.raises(AssertionError, match="none was received") as failure:
        capture.wait_for_callback()
    message = f"the fault drop_callback lost it on its way to {capture.callback_url}"
    assert str(failure.value).count(message) == 1


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_the_awaitable_wait_drives_in_the_running_loop(cloud: Cloud, library: str) -> None:
    queue: Any = cloud.queue()
    capture = cloud.callback_capture()
    loops: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        loops.append(scope["type"])
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"{}"})

    queue.destinations.asgi(APP, app)
    queue.publish(APP, callback=capture.callback_url, delay="1h")

    async def main() -> Any:
        return await capture.aio.wait_for_callback()

    item = asyncio.run(main()) if library == "asyncio" else trio.run(main)
    assert item.verified
    assert loops == ["http"]


def test_unmet_expectations_fail_the_test_in_its_call_phase(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import requests

        def test_met(destination):
            destination.server.expect_oneshot_request("/x").respond_with_data("ok")
            assert requests.get(destination.url + "/x").text == "ok"

        def test_unmet(destination):
            destination.server.expect_oneshot_request("/x").respond_with_data("ok")

        def test_unexpected(destination):
            assert requests.get(destination.url + "/x").status_code == 500

        def test_allowed(fakecloud, destination):
            fakecloud.allow("unmet")
            destination.server.expect_oneshot_request("/x").respond_with_data("ok")

        def test_callback(queue, callback_capture):
            queue.destinations.accept()
            queue.publish("https://app.example.com", callback=callback_capture.callback_url)
            assert callback_capture.wait_for_callback().verified
        """
    )
    result = pytester.runpytest_inprocess(*QUIET)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*destination: the oneshot request was never received*",
            "*destination: No handler found for request*",
            "FAILED *::test_unmet*",
        ]
    )
