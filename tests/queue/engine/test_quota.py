"""Test the limits of a plan at their exact boundaries."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fakecloud.core.timekeeper import Timekeeper
from pytest_fakecloud.queue.engine.publishing import Quota
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.model import DAY, SECOND, PublishSettings
from pytest_fakecloud.queue.settings import PlanLimits, QueueConfig
from pytest_fakecloud.queue.wire.headers import check_public

NOW = "2026-01-01T23:59:58Z"
NOW_S = 1_767_311_998


class Present(Quota):
    """A ``Quota`` that uses the current time of its clock."""

    def count_request(self) -> None:  # type: ignore[override]
        super().count_request(self._clock.now_us())

    def count_message(self) -> None:  # type: ignore[override]
        super().count_message(self._clock.now_us())

    def check(self, settings: PublishSettings, body: bytes) -> int:  # type: ignore[override]
        return super().check(settings, body, self._clock.now_us())


def quota(limits: dict[str, Any] | None = None, **settings: Any) -> Quota:
    return Present(PlanLimits(**(limits or {})), QueueConfig(**settings), Timekeeper(now=NOW))


def move(counted: Quota, span: str) -> None:
    counted._clock.advance(span)


def refusal(call: Any) -> QueueError:
    with pytest.raises(QueueError) as caught:
        call()
    return caught.value


def test_a_burst_is_counted_by_the_second() -> None:
    counted = quota({"burst": 2})
    for _ in range(2):
        for _ in range(2):
            counted.count_request()
        refused = refusal(counted.count_request)
        assert (refused.status, refused.message) == (429, "Exceeded burst rate limit")
        now_s = counted._clock.now_us() // SECOND
        assert list(refused.headers) == [
            ("Burst-RateLimit-Limit", "2"),
            ("Burst-RateLimit-Remaining", "0"),
            ("Burst-RateLimit-Reset", str(now_s + 1)),
        ]
        assert refusal(counted.count_request).status == 429
        move(counted, "1s")


def test_a_burst_is_counted_through_its_whole_second() -> None:
    counted = quota({"burst": 2})
    counted.count_request()
    move(counted, "0.4s")
    counted.count_request()
    move(counted, "0.5s")
    assert refusal(counted.count_request).status == 429
    move(counted, "0.1s")
    counted.count_request()


def test_without_a_burst_limit_nothing_is_counted() -> None:
    counted = quota()
    for _ in range(1000):
        counted.count_request()
    assert counted.usage == {}


def test_no_burst_at_all() -> None:
    assert refusal(quota({"burst": 0}).count_request).status == 429


def test_a_day_is_counted_until_midnight() -> None:
    counted = quota({"daily_messages": 3})
    for _ in range(2):
        counted.check_room(3)
        for left in (2, 1):
            counted.count_message()
            assert dict(counted.daily_headers())["RateLimit-Remaining"] == str(left)
        counted.check_room(1)
        refused = refusal(lambda: counted.check_room(2))
        day = counted._clock.now_us() // DAY
        assert (refused.status, refused.message) == (429, "Exceeded daily rate limit")
        assert list(refused.headers) == [
            ("RateLimit-Limit", "3"),
            ("RateLimit-Remaining", "1"),
            ("RateLimit-Reset", str((day + 1) * 86_400)),
        ]
        counted.count_message()
        counted.check_room(0)
        # The day ends in two seconds.
        for _ in range(2):
            refused = refusal(lambda: counted.check_room(1))
            assert refused.headers[1] == ("RateLimit-Remaining", "0")
            move(counted, "1s")


def test_callbacks_beyond_the_day_leave_nothing_and_owe_nothing() -> None:
    counted = quota({"daily_messages": 1})
    for _ in range(3):
        counted.count_message()
    assert [count for _, count in counted.usage.values()] == [3]
    assert dict(counted.daily_headers())["RateLimit-Remaining"] == "0"
    assert refusal(lambda: counted.check_room(1)).headers[1] == ("RateLimit-Remaining", "0")


def test_without_a_daily_limit_there_is_always_room() -> None:
    counted = quota()
    counted.count_message()
    counted.check_room(10**6)
    assert counted.daily_headers() == []


SIZE, DELAY = {"message_size": 4}, {"delay_us": 10 * SECOND}
LATE = "quota maxDelay exceeded, current limit: 10"
NEVER = "10 / (retried - 2)"
NO_VALUE = f"invalid retry delay expression {NEVER!r}: it divides by zero when retried is 2"


@pytest.mark.parametrize(
    ("limits", "given", "body"),
    [
        (SIZE, {}, b"1234"),
        ({"retries": 5}, {"retries": 5}, b""),
        (DELAY, {"delay_us": 10 * SECOND}, b""),
        (DELAY, {"not_before_us": (NOW_S + 10) * SECOND}, b""),
        (DELAY, {"delay_us": 99 * SECOND, "not_before_us": (NOW_S + 10) * SECOND}, b""),
        ({}, {"delay_us": 999 * DAY}, b""),
        ({}, {"timeout_us": 1}, b""),
        ({}, {"retries": 20}, b""),
    ],
)
def test_settings_at_the_limit(limits: Any, given: Any, body: bytes) -> None:
    quota(limits).check(PublishSettings(**given), body)


@pytest.mark.parametrize(
    ("limits", "given", "body", "status", "text"),
    [
        (SIZE, {}, b"12345", 413, "quota maxMessageSize exceeded, current limit: 4"),
        ({"retries": 5}, {"retries": 6}, b"", 412, "quota maxRetries exceeded"),
        (DELAY, {"delay_us": 10 * SECOND + 1}, b"", 412, LATE),
        (DELAY, {"not_before_us": (NOW_S + 10) * SECOND + 1}, b"", 412, LATE),
        ({}, {"timeout_us": 0}, b"", 400, "invalid timeout: it must be longer than 0s"),
        ({}, {"retry_delay": NEVER}, b"", 400, NO_VALUE),
    ],
)
def test_settings_beyond_the_limit(
    limits: Any, given: Any, body: bytes, status: int, text: str
) -> None:
    refused = refusal(lambda: quota(limits).check(PublishSettings(**given), body))
    assert (refused.status, refused.message) == (status, text)


def test_a_retry_delay_is_worked_out_for_every_retry_and_no_further() -> None:
    spoiled = PublishSettings(retry_delay=NEVER, retries=2)
    quota().check(spoiled, b"")
    assert refusal(lambda: quota().check(PublishSettings(retry_delay=NEVER, retries=3), b""))


@pytest.mark.parametrize("kind", ["callback_headers", "failure_callback_headers"])
def test_the_settings_of_callbacks_are_checked_too(kind: str) -> None:
    def given(*pairs: tuple[str, str]) -> PublishSettings:
        return PublishSettings(**{kind: list(pairs)})

    deep = "Callback-" * 4 + "Retries"
    limited = quota({"retries": 3})
    limited.check(given(("Upstash-Retries", "3")), b"")
    for name, value, status, text in (
        ("Retries", "4", 412, "quota maxRetries exceeded"),
        ("Callback-Retries", "4", 412, "quota maxRetries exceeded"),
        ("Failure-Callback-Retries", "4", 412, "quota maxRetries exceeded"),
        (deep, "4", 412, "quota maxRetries exceeded"),
        ("Callback-" + deep, "4", 400, "nested deeper than 5 levels"),
        ("Failure-Callback-" * 4 + "Retries", "4", 412, "quota maxRetries exceeded"),
        ("Failure-Callback-" * 5 + "Retries", "4", 400, "nested deeper than 5 levels"),
        ("Delay", "1s", 400, "a callback cannot be delayed"),
        ("Not-Before", str(NOW_S), 400, "a callback cannot be delayed"),
        ("Cron", "* * * * *", 400, "a callback cannot be scheduled"),
    ):
        refused = refusal(lambda n=name, v=value: limited.check(given((f"Upstash-{n}", v)), b""))
        whole = text if status == 412 else f"invalid callback headers: {text}"
        assert (name, refused.status, refused.message) == (name, status, whole)


def test_callbacks_may_be_delayed_where_that_is_set() -> None:
    allowed = quota(delayed_callbacks=True)
    for name, value in (("Delay", "1s"), ("Not-Before", str(NOW_S))):
        allowed.check(PublishSettings(callback_headers=[(f"Upstash-{name}", value)]), b"")


def test_a_callbacks_retry_delay_is_worked_out_for_the_retries_it_inherits() -> None:
    headers = [("Upstash-Retry-Delay", NEVER)]
    quota().check(PublishSettings(retries=2, callback_headers=headers), b"")
    refusal(lambda: quota().check(PublishSettings(retries=3, callback_headers=headers), b""))
    own = quota(callback_retries=2)
    own.check(PublishSettings(retries=3, callback_headers=headers), b"")


@pytest.mark.parametrize("kind", ["Callback", "Failure-Callback"])
def test_a_callback_of_a_callback_inherits_the_retries_of_that_callback(kind: str) -> None:
    def check(retries: str) -> None:
        headers = [("Upstash-Retries", retries), (f"Upstash-{kind}-Retry-Delay", NEVER)]
        quota().check(PublishSettings(callback_headers=headers), b"")

    check("2")
    assert refusal(lambda: check("3")).message == NO_VALUE


@pytest.mark.parametrize("kind", ["Callback", "Failure-Callback"])
def test_a_delay_of_a_callback_of_a_callback_counts_from_now(kind: str) -> None:
    def check(end_s: int) -> None:
        headers = [(f"Upstash-{kind}-Not-Before", str(end_s))]
        quota(DELAY, delayed_callbacks=True).check(PublishSettings(callback_headers=headers), b"")

    check(NOW_S + 10)
    assert refusal(lambda: check(NOW_S + 11)).message == LATE


@pytest.mark.parametrize(
    ("limits", "settings", "given", "retries"),
    [
        ({}, {}, None, 3),
        ({}, {}, 0, 0),
        ({}, {"retries": 7}, None, 7),
        ({"retries": 2}, {}, None, 2),
        ({"retries": 2}, {}, 1, 1),
    ],
)
def test_retries_of_a_message(limits: Any, settings: Any, given: int | None, retries: int) -> None:
    assert quota(limits, **settings).retries(PublishSettings(retries=given)) == retries


@pytest.mark.parametrize(
    ("setting", "given", "retries"),
    [
        ("inherit", None, 9),
        ("inherit", 0, 0),
        ("inherit", 4, 4),
        (1, None, 1),
        (0, None, 0),
        (1, 4, 4),
        (12, None, 10),
    ],
)
def test_retries_of_a_callback(setting: Any, given: int | None, retries: int) -> None:
    counted = quota({"retries": 10}, callback_retries=setting)
    assert counted.callback_retries(PublishSettings(retries=given), 9) == retries


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://localhost/", "endpoint resolves to a loopback address: 127.0.0.1"),
        ("http://a.localhost:80/", "endpoint resolves to a loopback address: 127.0.0.1"),
        ("http://LOCALHOST./", "endpoint resolves to a loopback address: 127.0.0.1"),
        ("http://127.0.0.7/", "endpoint resolves to a loopback address: 127.0.0.7"),
        ("http://[::1]/", "endpoint resolves to a loopback address: ::1"),
        ("http://intranet/", "unable to resolve host: intranet"),
        ("http://a.test/", "unable to resolve host: a.test"),
        ("http://a.invalid/", "unable to resolve host: a.invalid"),
        ("http://a.local./", "unable to resolve host: a.local"),
        ("http://a.internal/", "unable to resolve host: a.internal"),
    ],
)
def test_addresses_that_are_not_public(url: str, text: str) -> None:
    refused = refusal(lambda: check_public(url))
    assert (refused.status, refused.message) == (400, f"invalid destination url: {text}")


@pytest.mark.parametrize(
    "url",
    ["https://a.example.com/", "http://8.8.8.8/", "http://[2001:4860::1]/", "http://latest.com/",
     "http://test.example.com/", "http://mylocalhost.com/"],
)  # fmt: skip
def test_public_addresses(url: str) -> None:
    check_public(url)
