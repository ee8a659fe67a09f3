"""The limits of a plan on the content of publish requests and on the number of messages.

Decided here: a callback counts towards the daily messages and is never rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import errors
from ..errors import bad_request, quota
from ..model import DAY, SECOND, HeaderPairs, PublishSettings
from ..wire.headers import read_settings
from ..wire.retry import RetryDelay
from .state import State

_MAX_NESTING = 5
"""Maximum depth of callbacks of callbacks, which are nested in the headers of a message."""


@dataclass(eq=False, slots=True)
class QuotaUsage:
    day: int = 0
    messages: int = 0
    second: int = 0
    requests: int = 0


class Quota:
    """Enforces the plan of an engine. The engine's lock must be held."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.usage = QuotaUsage()

    def count_request(self, now: int) -> None:
        """Count a publish request; raise a 429 error if the burst limit is exceeded."""
        limit = self._state.limits.burst
        if limit is None:
            return
        second = now // SECOND
        if self.usage.second != second:
            self.usage.second, self.usage.requests = second, 0
        if self.usage.requests >= limit:
            raise errors.burst_limited(limit, now)
        self.usage.requests += 1

    def daily_headers(self) -> HeaderPairs:
        """Return the headers that report the daily limit; empty if there is no limit."""
        limit = self._state.limits.daily_messages
        if limit is None:
            return []
        now = self._state.clock.now_us()
        self._begin_day(now)
        return errors.daily_headers(limit, max(0, limit - self.usage.messages), now)

    def _begin_day(self, now: int) -> None:
        if self.usage.day != now // DAY:
            self.usage.day, self.usage.messages = now // DAY, 0

    def count_message(self, now: int) -> None:
        self._begin_day(now)
        self.usage.messages += 1

    def check_room(self, count: int) -> None:
        """Raise a 429 error unless ``count`` more messages fit into the daily limit."""
        limit = self._state.limits.daily_messages
        if limit is not None:
            now = self._state.clock.now_us()
            self._begin_day(now)
            if self.usage.messages + count > limit:
                raise errors.daily_limited(limit, now, max(0, limit - self.usage.messages))

    def check(self, settings: PublishSettings, body: bytes, now: int) -> int:
        """Check a message's body and settings, including those of its callbacks, against the plan.

        Returns the number of retries of the message. Raises ``QueueError`` (400, 412 or 413).
        """
        limits = self._state.limits
        if len(body) > limits.message_size:
            raise quota("maxMessageSize", limits.message_size, status=413)
        retries = self.retries(settings)
        self._check_settings(settings, retries, now)
        self._check_nested(settings.callback_headers, retries, 1, now)
        self._check_nested(settings.failure_callback_headers, retries, 1, now)
        return retries

    def _check_settings(self, settings: PublishSettings, retries: int, now: int) -> None:
        limits = self._state.limits
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
        settings = read_settings(nested)
        retries = self.callback_retries(settings, source_retries)
        self._check_settings(settings, retries, now)
        delayed = settings.delay_us or settings.not_before_us is not None
        if delayed and not self._state.settings.delayed_callbacks:
            raise bad_request("invalid callback headers: a callback cannot be delayed")
        if settings.cron is not None:
            raise bad_request("invalid callback headers: a callback cannot be scheduled")
        self._check_nested(settings.callback_headers, retries, depth + 1, now)
        self._check_nested(settings.failure_callback_headers, retries, depth + 1, now)

    def callback_retries(self, settings: PublishSettings, source_retries: int) -> int:
        """Return the number of retries of a callback about a message with ``source_retries``."""
        default = self._state.settings.callback_retries
        return self.retries(settings, source_retries if default == "inherit" else default)

    def retries(self, settings: PublishSettings, default: int | None = None) -> int:
        """Return the given number of retries, or the default within the plan's limit."""
        if settings.retries is not None:
            return settings.retries
        default = self._state.settings.retries if default is None else default
        return min(default, self._state.limits.retries)
