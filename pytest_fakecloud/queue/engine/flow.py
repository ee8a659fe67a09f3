"""Flow control, which limits parallel deliveries and deliveries per period for each key.

Vendor's documentation: parallelism limits requests in flight, rate limits requests started in a
fixed period, and further messages wait in order. The settings of the last published message apply,
unless the key is pinned. Pinning and ``resetRate`` start a new period; a pause does not.

Decided here: periods follow each other without gaps, beginning when the key is first used. Every
attempt counts, including retries. A key is kept as long as a message that used it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from ..errors import bad_request, existing
from ..model import SECOND, FlowSettings


@dataclass(eq=False, slots=True)
class FlowKey:
    """A flow-control key with its limits (None: unlimited), its active and its waiting messages.

    ``active`` maps the id of each active message to the number of the period in which it started.
    """

    key: str
    period_start_us: int
    period: int = 0
    parallelism: int | None = None
    rate: int | None = None
    period_us: int = SECOND
    started: int = 0
    paused: bool = False
    pinned_parallelism: bool = False
    pinned_rate: bool = False
    active: dict[str, int] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)

    def roll(self, now_us: int) -> None:
        """Start the period that contains the given time, unless it has already started."""
        passed = (now_us - self.period_start_us) // self.period_us
        if passed > 0:
            self.restart_period(self.period_start_us + passed * self.period_us)

    def open(self, now_us: int) -> bool:
        """Return whether another request may start now."""
        self.roll(now_us)
        if self.paused:
            return False
        if self.parallelism is not None and len(self.active) >= self.parallelism:
            return False
        return self.rate is None or self.started < self.rate

    def start(self, message_id: str) -> None:
        self.active[message_id] = self.period
        self.started += 1

    def end(self, message_id: str) -> None:
        self.active.pop(message_id, None)

    def give_back(self, message_id: str) -> None:
        """Undo ``start()`` for a request that did not start after all."""
        if self.active.pop(message_id) == self.period:
            self.started -= 1

    def reopens_us(self, now_us: int) -> int | None:
        """Return when the next period will admit a message, or None if the rate delays no message."""
        self.roll(now_us)
        if self.paused or not self.waiting or self.rate is None or self.started < self.rate:
            return None
        return self.period_start_us + self.period_us

    def restart_period(self, start_us: int) -> None:
        self.period_start_us = start_us
        self.period += 1
        self.started = 0

    def record(self, now_us: int) -> dict[str, object]:
        """Return the key as the API represents it, with times and periods in seconds."""
        self.roll(now_us)
        return {
            "flowControlKey": self.key,
            "waitListSize": len(self.waiting),
            "parallelismMax": self.parallelism or 0,
            "parallelismCount": len(self.active),
            "rateMax": self.rate or 0,
            "rateCount": self.started,
            "ratePeriod": self.period_us // SECOND,
            "ratePeriodStart": self.period_start_us // SECOND,
            "isPaused": self.paused,
            "isPinnedParallelism": self.pinned_parallelism,
            "isPinnedRate": self.pinned_rate,
        }

    def copy(self) -> FlowKey:
        return replace(self, active=dict(self.active), waiting=deque(self.waiting))


class FlowControl:
    """The flow-control keys of a queue."""

    def __init__(self) -> None:
        self.keys: dict[str, FlowKey] = {}

    def observe(self, settings: FlowSettings, now_us: int) -> FlowKey:
        """Apply the flow-control settings of a message that is being published, and return its key."""
        found = self.get_or_create(settings.key, now_us)
        if settings.parallelism is None and settings.rate is None:
            return found
        if not found.pinned_parallelism:
            found.parallelism = settings.parallelism
        if not found.pinned_rate:
            # Count in the old period before its length changes.
            found.roll(now_us)
            found.rate = settings.rate
            if found.period_us != settings.period_us:
                found.period_us = settings.period_us
                found.roll(now_us)
        return found

    def get(self, key: str) -> FlowKey:
        """Return a key; raise a 404 error if no message has used it and it was never configured."""
        return existing(self.keys.get(key), "flow control key", key)

    def search(self, text: str | None) -> list[FlowKey]:
        """Return the keys that contain a string, in the order in which they were first used."""
        return [found for key, found in self.keys.items() if not text or text in key]

    def get_or_create(self, key: str, now_us: int) -> FlowKey:
        if key not in self.keys:
            self.keys[key] = FlowKey(key, now_us)
        return self.keys[key]

    def pin(
        self,
        key: str,
        now_us: int,
        *,
        parallelism: int | None,
        rate: int | None,
        period_us: int | None,
    ) -> FlowKey:
        """Pin limits of a key, so that messages cannot change them, and start a new period."""
        if parallelism is None and rate is None:
            raise bad_request("invalid pin: pass parallelism, rate, or both")
        if period_us is not None and rate is None:
            raise bad_request("invalid pin: a period needs a rate")
        found = self.get_or_create(key, now_us)
        if parallelism is not None:
            found.parallelism = parallelism
            found.pinned_parallelism = True
        if rate is not None:
            found.rate = rate
            found.period_us = period_us or SECOND
            found.pinned_rate = True
        found.restart_period(now_us)
        return found

    def unpin(self, key: str, *, parallelism: bool, rate: bool) -> FlowKey:
        """Allow messages to change the given limits of a key again."""
        found = self.get(key)
        if parallelism:
            found.pinned_parallelism = False
        if rate:
            found.pinned_rate = False
        return found
