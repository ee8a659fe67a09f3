from datetime import timedelta

import pytest
import responses
from qstash import Receiver
from reminders import Reminders

from pytest_fakecloud import Callback, CallbackCapture, Queue

MAILER = "https://mailer.example.com/send"


@pytest.fixture
def reminders(queue: Queue, callback_capture: CallbackCapture) -> Reminders:
    return Reminders(
        queue=queue.client(),
        receiver=Receiver(queue.current_signing_key, queue.next_signing_key),
        mailer_url=MAILER,
        callback_url=callback_capture.callback_url,
        failure_url=callback_capture.failure_url,
    )


def received(capture: Callback) -> tuple[str, str]:
    """The body and the signature, as a web framework would hand them to the application."""
    return capture.http_request.get_data(as_text=True), capture.headers.get(
        "Upstash-Signature"
    ) or ""


@responses.activate
def test_a_reminder_goes_out_after_a_day(reminders: Reminders, queue: Queue) -> None:
    responses.post(MAILER, status=202)
    reminders.remind("ada", "renew your passport")
    queue.clock.advance("23h59m")
    assert queue.attempts() == []
    queue.clock.advance("1m")
    assert queue.attempts(url=MAILER).only().status == 202
    queue.assert_delivered(MAILER, json={"to": "ada", "text": "renew your passport"}, times=1)


def test_a_mailer_that_is_down_for_an_hour_delays_the_reminder(
    reminders: Reminders, queue: Queue, callback_capture: CallbackCapture
) -> None:
    queue.destinations.respond(MAILER, 503, 503, 503, 503, 202)
    message_id = reminders.remind("ada", "renew your passport")
    attempts = [attempt for attempt in queue.run_until_idle() if attempt.message_id == message_id]
    assert [attempt.status for attempt in attempts] == [503, 503, 503, 503, 202]
    waited = attempts[-1].at - attempts[0].at
    assert timedelta(hours=6) < waited < timedelta(hours=7)

    for capture in callback_capture.callbacks():
        reminders.on_callback(*received(capture), callback_capture.callback_url)
    assert reminders.sent == {message_id}
    assert callback_capture.failures() == []


def test_after_six_attempts_the_queue_gives_up(
    reminders: Reminders, queue: Queue, callback_capture: CallbackCapture
) -> None:
    queue.destinations.respond(MAILER, 500)
    message_id = reminders.remind("ada", "renew your passport")
    failure = callback_capture.wait_for_failure()
    reminders.on_failure(*received(failure), callback_capture.failure_url)
    assert reminders.given_up == {message_id}
    assert reminders.sent == set()
    assert (failure.retried, failure.max_retries, failure.status) == (5, 5, 500)
    queue.assert_dead_lettered(times=1)


def test_a_forged_callback_is_refused(
    reminders: Reminders, callback_capture: CallbackCapture
) -> None:
    with pytest.raises(Exception, match=r"[Ss]ignature|segments"):
        reminders.on_callback('{"status": 200}', "not-a-signature", callback_capture.callback_url)
    assert reminders.sent == set()
