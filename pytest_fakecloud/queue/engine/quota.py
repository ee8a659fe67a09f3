"""The limits of a plan on the content of publish requests, and on the rates of requests and messages."""

from __future__ import annotations

from ...core.calls import HeaderPairs
from ...core.clock import Timekeeper
from .. import errors
from ..errors import bad_request, quota
from ..model import DAY, SECOND, PublishSettings
from ..settings import QueueConfig
from ..wire.headers import read_given
from ..wire.waits import RetryDelay

_MAX_NESTING = 5
"""Maximum depth of callbacks of callbacks, which are nested in the headers of a message."""


class Quota:
    """The limits of a plan on the content of publish requests and on the number of messages."""

    def __init__(self, settings: QueueConfig, clock: Timekeeper) -> None:
        self._limits = settings.plan
        self._settings = settings
        self._clock = clock
        self.usage: dict[int, tuple[int, int]] = {}
        """For each length of a period, the number of the latest one and the count in it."""

    def _used(self, length_us: int, now: int) -> int:
        period, used = self.usage.get(length_us, (0, 0))
        return used if period == now // length_us else 0

    def _count(self, length_us: int, now: int) -> None:
        self.usage[length_us] = now // length_us, self._used(length_us, now) + 1

    def count_request(self, now: int) -> None:
        """Count a request to which the burst limit applies; raise a 429 error if it is exceeded."""
        limit = self._limits.burst
        if limit is not None:
            if self._used(SECOND, now) >= limit:
                raise errors.rate_limited("burst", limit, now)
            self._count(SECOND, now)

    def daily_headers(self) -> HeaderPairs:
        """Return the headers that report the daily limit; empty if there is no limit."""
        limit = self._limits.daily_messages
        if limit is None:
            return []
        now = self._clock.now_us()
        return errors.limit_headers("daily", limit, now, max(0, limit - self._used(DAY, now)))

    def count_message(self, now: int) -> None:
        if self._limits.daily_messages is not None:
            self._count(DAY, now)

    def check_room(self, count: int) -> None:
        """Raise a 429 error unless ``count`` more messages fit into the daily limit."""
        limit = self._limits.daily_messages
        if limit is not None:
            now = self._clock.now_us()
            used = self._used(DAY, now)
            if used + count > limit:
                raise errors.rate_limited("daily", limit, now, max(0, limit - used))

    def check(self, settings: PublishSettings, body: bytes, now: int) -> int:
        """Check a message's body and settings, including those of its callbacks, against the plan.

        Returns the number of retries of the message. Raises ``QueueError`` (400, 412 or 413).
        """
        limits = self._limits
        if len(body) > limits.message_size:
            raise quota("maxMessageSize", limits.message_size, status=413)
        retries = self.retries(settings.retries)
        self._check_settings(settings, retries, now)
        if settings.callback_headers or settings.failure_callback_headers:
            self._check_nested(settings.callback_headers, retries, 1, now)
            self._check_nested(settings.failure_callback_headers, retries, 1, now)
        return retries

    def _check_settings(self, settings: PublishSettings, retries: int, now: int) -> None:
        limits = self._limits
        if settings.retries is not None and settings.retries > limits.retries:
            raise quota("maxRetries")
        delay = settings.delay_us
        if settings.not_before_us is not None:
            delay = settings.not_before_us - now
        if limits.delay_us is not None and delay > limits.delay_us:
            raise quota("maxDelay", limits.delay_us // SECOND)
        if settings.timeout_us == 0:
            raise bad_request("invalid timeout: it must be longer than 0s")
        if settings.retry_delay is not None:
            # Reject an expression that has no value for one of the retries.
            expression = RetryDelay(settings.retry_delay)
            for retried in range(retries):
                expression.milliseconds(retried)

    def _check_nested(self, nested: HeaderPairs, source_retries: int, depth: int, now: int) -> None:
        if not nested:
            return
        if depth > _MAX_NESTING:
            raise bad_request(f"invalid callback headers: nested deeper than {_MAX_NESTING} levels")
        settings = PublishSettings(**read_given(nested))
        retries = self.callback_retries(settings.retries, source_retries)
        self._check_settings(settings, retries, now)
        delayed = settings.delay_us or settings.not_before_us is not None
        if delayed and not self._settings.delayed_callbacks:
            raise bad_request("invalid callback headers: a callback cannot be delayed")
        if settings.cron is not None:
            raise bad_request("invalid callback headers: a callback cannot be scheduled")
        self._check_nested(settings.callback_headers, retries, depth + 1, now)
        self._check_nested(settings.failure_callback_headers, retries, depth + 1, now)

    def callback_retries(self, given: int | None, source_retries: int) -> int:
        """Return the number of retries of a callback about a message with ``source_retries``."""
        default = self._settings.callback_retries
        return self.retries(given, source_retries if default == "inherit" else default)

    def retries(self, given: int | None, default: int | None = None) -> int:
        """Return the given number of retries, or the default within the plan's limit."""
        if given is not None:
            return given
        default = self._settings.retries if default is None else default
        return min(default, self._limits.retries)
