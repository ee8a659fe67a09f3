"""Flow control, as clients configure it.

It limits parallel deliveries and deliveries per period for each key. Vendor's
documentation: parallelism limits requests in flight, rate limits requests started in a fixed period,
and further messages wait in order. The settings of the last published message apply, unless the key
is pinned. Pinning and ``resetRate`` start a new period; a pause does not. Decided here: periods
follow each other without gaps, beginning when the key is first used. Every attempt counts, including
retries. A key is kept as long as a message that used it.
"""

from __future__ import annotations

from ..errors import existing
from ..model import FlowKey
from .messages import Messages


class FlowControl(Messages):
    """The third layer of an engine: what clients change of flow-control keys."""

    def existing_flow_key(self, name: str) -> FlowKey:
        """Return a key; raise a 404 error if no message has used it and it was never configured."""
        return existing(self.flow_keys.get(name), "flow control key", name)

    def set_flow_paused(self, name: str, paused: bool) -> None:
        """Pause or resume a flow-control key, which need not exist. Acquires the lock."""
        with self.lock:
            key = self.get_or_create_flow_key(name, self.clock.now_us())
            key.paused = paused
            if paused:
                self.recall_admitted(key)
            # This also plans or cancels the timer that opens the key.
            self.start_waiting_for_flow(key)

    def pin_flow(
        self, name: str, *, parallelism: int | None, rate: int | None, period_us: int
    ) -> None:
        """Pin limits of a flow-control key, which need not exist. Acquires the lock."""
        with self.lock:
            now = self.clock.now_us()
            key = self.get_or_create_flow_key(name, now)
            key.pin(now, parallelism, rate, period_us)
            self._start_in_new_period(key)

    def unpin_flow(self, name: str, *, parallelism: bool, rate: bool) -> None:
        """Let messages change limits of a key again. Acquires the lock.

        Raises ``QueueError``: 404 if the key does not exist.
        """
        with self.lock:
            key = self.existing_flow_key(name)
            key.pinned_parallelism &= not parallelism
            key.pinned_rate &= not rate

    def reset_flow_rate(self, name: str) -> None:
        """Start a new period of a key. Acquires the lock.

        Raises ``QueueError``: 404 if the key does not exist.
        """
        with self.lock:
            key = self.existing_flow_key(name)
            key.restart_period(self.clock.now_us())
            self._start_in_new_period(key)

    def reset_flow(self, name: str) -> None:
        """Start a new period of a key, in which deliveries in flight do not count. Acquires the lock.

        Raises ``QueueError``: 404 if the key does not exist.
        """
        with self.lock:
            key = self.existing_flow_key(name)
            self.recall_admitted(key)
            key.active.clear()  # vendor's changelog
            self.reset_flow_rate(name)

    def _start_in_new_period(self, key: FlowKey) -> None:
        # Recall messages that have not started, because they count in the new period.
        self.recall_admitted(key)
        self.start_waiting_for_flow(key)
