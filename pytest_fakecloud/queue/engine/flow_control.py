"""Flow control, which limits parallel deliveries and deliveries per period for each key.

Vendor's documentation: parallelism limits requests in flight, rate limits requests started in a fixed
period, and further messages wait in order. The settings of the last published message apply, unless the
key is pinned. Pinning and ``resetRate`` start a new period; a pause does not. Decided here: periods
follow each other without gaps, beginning when the key is first used. Every attempt counts, including
retries. A key is kept as long as a message that used it.

Flow control and global parallelism are granted together (see ``admission``), so the messages that wait
for one of them are started here.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ...core.timers import Timer
from ..errors import existing
from ..model import FlowKey, Message

if TYPE_CHECKING:
    from .data import QueueData
    from .planning import Planning


class FlowKeys:
    """The flow-control keys of a queue by name, and the global parallelism, which is the plan's limit on
    the messages that are delivered at the same time. A message that counts towards it has a *slot*.

    ``timers`` are those for the next periods of keys. ``slots`` are the ids of the messages that have a
    slot, ``waiting_for_slot`` those of the messages without a key that wait for one.

    Each method that releases a slot starts the messages that wait for it.
    """

    def __init__(self, data: QueueData, planning: Planning) -> None:
        self._data = data
        self._planning = planning
        self.by_name: dict[str, FlowKey] = {}
        self.timers: dict[str, Timer] = {}
        self.slots: set[str] = set()
        self.waiting_for_slot: deque[str] = deque()

    # -- what clients change -----------------------------------------------------------------------

    def get(self, name: str) -> FlowKey:
        """Return a key; raise a 404 error if no message has used it and it was never configured."""
        return existing(self.by_name.get(name), "flow control key", name)

    def get_or_create(self, name: str, now_us: int) -> FlowKey:
        if name not in self.by_name:
            self.by_name[name] = FlowKey(name, now_us)
        return self.by_name[name]

    def set_paused(self, name: str, paused: bool) -> None:
        """Pause or resume a key, which need not exist."""
        key = self.get_or_create(name, self._data.clock.now_us())
        key.paused = paused
        if paused:
            self._recall_admitted(key)
        # This also plans or cancels the timer that opens the key.
        self.start_waiting(key)

    def pin(self, name: str, *, parallelism: int | None, rate: int | None, period_us: int) -> None:
        """Pin limits of a key, which need not exist."""
        now = self._data.clock.now_us()
        key = self.get_or_create(name, now)
        key.pin(now, parallelism, rate, period_us)
        self._start_in_new_period(key)

    def unpin(self, name: str, *, parallelism: bool, rate: bool) -> None:
        """Let messages change limits of a key again; raise a 404 error if it does not exist."""
        key = self.get(name)
        key.pinned_parallelism &= not parallelism
        key.pinned_rate &= not rate

    def reset_rate(self, name: str) -> None:
        """Start a new period of a key; raise a 404 error if it does not exist."""
        key = self.get(name)
        key.restart_period(self._data.clock.now_us())
        self._start_in_new_period(key)

    def reset(self, name: str) -> None:
        """Start a new period of a key, in which deliveries in flight do not count; raise a 404 error if
        it does not exist.
        """
        key = self.get(name)
        self._recall_admitted(key)
        key.active.clear()  # vendor's changelog
        self.reset_rate(name)

    def _start_in_new_period(self, key: FlowKey) -> None:
        # Recall messages that have not started, because they count in the new period.
        self._recall_admitted(key)
        self.start_waiting(key)

    def _recall_admitted(self, key: FlowKey) -> None:
        """Return the messages of a key that have not started to its wait list."""
        pending = self._data.pending
        recalled = [
            pending[message_id]
            for message_id in key.active
            if message_id in pending and pending[message_id].state != "ACTIVE"
        ]
        for message in sorted(recalled, key=lambda message: message.number, reverse=True):
            key.give_back(message.id)
            self.slots.discard(message.id)
            message.due_us = None
            self._planning.unplan(message.id)
            key.waiting.appendleft(message.id)
        self.start_all_waiting()

    # -- messages ----------------------------------------------------------------------------------

    def of(self, message: Message) -> FlowKey | None:
        """Return the key of a message, or None."""
        flow = message.settings.flow
        return None if flow is None else self.by_name.get(flow.key)

    def add(self, message: Message, now_us: int) -> None:
        """Apply the settings of a new message to its key, if it has one."""
        flow = message.settings.flow
        if flow is None:
            return
        key = self.get_or_create(flow.key, now_us)
        key.observe(flow, now_us)
        key.messages += 1
        if key.waiting:
            # The settings of the new message may admit waiting messages, too.
            self.start_waiting(key)

    def forget(self, message: Message) -> None:
        """Forget that a message uses its key, and the key if no message uses it any more."""
        key = self.of(message)
        if key is not None:
            key.messages -= 1
            is_kept = key.paused or key.pinned_parallelism or key.pinned_rate
            if not key.messages and not is_kept:
                del self.by_name[key.key]

    def release(self, message: Message) -> None:
        """Give back what a message has of its limits, because it does not start after all, and start
        others in its place.
        """
        key = self.of(message)
        if key is not None and message.id in key.active:
            key.give_back(message.id)
            self.start_waiting(key)
        self.release_slot(message)

    def take_out(self, message: Message) -> None:
        """Give back what a message has of its limits without starting another one."""
        key = self.of(message)
        if key is not None:
            if message.id in key.waiting:
                key.waiting.remove(message.id)
            key.active.pop(message.id, None)
        self.slots.discard(message.id)

    def start_waiting(self, key: FlowKey) -> None:
        """Start the messages that wait for a key while it has slots, and plan its next period."""
        data = self._data
        now = data.clock.now_us()
        while key.waiting and key.open(now) and self.has_room():
            message = data.pending.get(key.waiting.popleft())
            if message is not None:
                self._start(message, key, now)
        opens_us, timer = key.reopens_us(now), self.timers.get(key.key)
        if timer is not None and timer.due_us != opens_us:
            timer.cancel()
            del self.timers[key.key]
            timer = None
        if opens_us is not None and timer is None and not data.closed:
            self.timers[key.key] = data.clock.call_at(
                opens_us,
                partial(self._key_opens, key.key),
                lane=data.changes_lane,
                label=f"flow control {key.key}",
            )

    def _start(self, message: Message, key: FlowKey | None, now: int) -> None:
        """Make a message due that has waited, and count it towards its limits."""
        if key is not None:
            key.start(message.id)
        if self._data.limits.parallelism is not None:
            # Count the message now, so that no other message takes the slot before this one starts.
            self.slots.add(message.id)
        self._planning.plan(message, now, message.wait_reason)

    def _key_opens(self, name: str, at_us: int) -> None:
        with self._data.lock:
            self.timers.pop(name, None)
            key = self.by_name.get(name)
            if key is not None:
                self.start_waiting(key)

    # -- global parallelism --------------------------------------------------------------------------

    @property
    def slot_reason(self) -> str:
        """Why a message waits that waits for a slot."""
        return f"global parallelism {self._data.limits.parallelism}"

    def has_room(self) -> bool:
        """Return whether a slot is free."""
        limit = self._data.limits.parallelism
        return limit is None or len(self.slots) < limit

    def release_slot(self, message: Message) -> None:
        """Give back the slot of a message in the global parallelism."""
        if message.id in self.slots:
            self.slots.discard(message.id)
            self.start_all_waiting()

    def start_all_waiting(self) -> None:
        """Start the messages that wait for global parallelism while there is room."""
        if self._data.limits.parallelism is None:
            return
        now = self._data.clock.now_us()
        while self.has_room() and (message := self._take_oldest_waiting(now)) is not None:
            self._start(message, self.of(message), now)

    def _take_oldest_waiting(self, now: int) -> Message | None:
        """Remove the oldest message that could start from its wait list and return it, or None."""
        wait_lists = [self.waiting_for_slot]
        wait_lists += [
            key.waiting for key in self.by_name.values() if key.waiting and key.open(now)
        ]
        for wait_list in wait_lists:
            # Skip cancelled messages, which are not removed from their wait lists.
            while wait_list and wait_list[0] not in self._data.pending:
                wait_list.popleft()
        heads = [
            (self._data.messages[wait_list[0]], wait_list) for wait_list in wait_lists if wait_list
        ]
        if not heads:
            return None
        message, wait_list = min(heads, key=lambda head: head[0].number)
        wait_list.popleft()
        return message

    # -- timers ----------------------------------------------------------------------------------

    def unplan(self) -> None:
        """Cancel the timers of all keys."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def replan(self) -> None:
        """Start the messages that wait, and the timers, after the timers were stopped."""
        for key in self.by_name.values():
            self.start_waiting(key)
