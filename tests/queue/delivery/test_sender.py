"""Test how a destination is chosen, unstubbed destinations, and the clock of signatures."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.timers import finished
from pytest_fakecloud.queue.delivery.destinations import (
    Destinations,
    Sender,
    UnstubbedDestinationError,
)
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest
from pytest_fakecloud.queue.model import Delivery
from pytest_fakecloud.queue.signatures import real_time, signature_clock

from ...harness import QUIET
from ..edge import delivery, frozen


def test_unstubbed_destinations_are_refused_and_reported() -> None:
    reports: list[tuple[str, str, Delivery]] = []
    sender = Sender(report=lambda *report: reports.append(report))
    sent = delivery("https://app.example.com/hook")
    outcome = finished(sender.send(sent))
    assert outcome.where == "unstubbed"
    assert outcome.status is None
    assert isinstance(outcome.exception, UnstubbedDestinationError)
    text = outcome.unstubbed or ""
    assert "no handler for POST https://app.example.com/hook (message msg_1)" in text
    # Clients in any language read that text; the exception of a test also has the advice in Python.
    advice = 'queue.destinations.respond("https://app.example.com/hook", 200)'
    assert advice not in text
    assert advice in str(outcome.exception)
    [(what, given, reported)] = reports
    assert advice in given
    assert (what, reported) == (text, sent)


def test_an_attempt_to_nowhere_fails_a_passing_test(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        """
        import pytest

        def test_left(queue):
            queue.publish("https://nowhere.example.com/hook")
            queue.deliver_due()

        def test_published_only(fakecloud, queue):
            fakecloud.allow("undelivered")
            queue.publish("https://nowhere.example.com/hook")

        def test_allowed(fakecloud, queue):
            fakecloud.allow("unstubbed", url="https://nowhere.example.com/hook")
            queue.publish("https://nowhere.example.com/hook")
            queue.deliver_due()

        @pytest.mark.fakecloud(queue={"unstubbed": "accept"})
        def test_accepted(queue):
            queue.publish("https://nowhere.example.com/hook")
            assert queue.deliver_due().only().status == 200
        """
    )
    result = pytester.runpytest_inprocess(*QUIET, "-Wdefault")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        ["*no handler for POST https://nowhere.example.com/hook*", "FAILED *::test_left*"]
    )


def test_unstubbed_accept_answers_200() -> None:
    reports: list[str] = []
    sender = Sender(unstubbed="accept", report=lambda text, delivery: reports.append(text))
    outcome = finished(sender.send(delivery("https://app.example.com/hook")))
    assert (outcome.status, outcome.where) == (200, "accepted")
    assert reports == []


def test_exceptions_raised_by_the_driving_call() -> None:
    destinations = Destinations(raise_exceptions=True)
    sender = Sender(destinations)
    error = ValueError("boom")
    destinations.respond("https://a.example.com", error)
    destinations.respond("https://b.example.com", error, raise_exceptions=False)
    destinations.refuse("https://c.example.com")

    def replace_route(request: DeliveredRequest) -> None:
        destinations.accept(request.url).remove()
        raise error

    destinations.call("https://e.example.com", replace_route)
    outcomes = [finished(sender.send(delivery(f"https://{host}.example.com"))) for host in "abcde"]
    assert [outcome.raises for outcome in outcomes] == [True, False, False, False, True]


@pytest.mark.parametrize("tool", ["freezegun", "time_machine"])
def test_a_receiver_in_this_process_sees_frozen_time(tool: str) -> None:
    clock = signature_clock("receiver", lambda: 7_000_000)
    with frozen(tool):
        assert clock() == 1893456000.0


@pytest.mark.parametrize("tool", ["freezegun", "time_machine"])
def test_real_time_is_not_moved(tool: str) -> None:
    before = real_time()
    with frozen(tool):
        assert 0 <= signature_clock("real", lambda: 7_000_000)() - before < 60


def test_the_virtual_clock_is_the_queues() -> None:
    assert signature_clock("virtual", lambda: 7_500_000)() == 7.5
