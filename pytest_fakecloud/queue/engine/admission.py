"""Admission of attempts, which depends on ordered queues, flow control and global parallelism.

A message that may not start loses its due time and waits in exactly one list. When there is room,
it is scheduled again. Flow control and global parallelism are granted together. Otherwise, two
messages that each held one of them would pass them back and forth endlessly.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from ...core.timers import Timer
from ..model import Message
from .flow import FlowKey
from .state import State


class Admission:
    """Determines which due messages may start. The methods require the lock unless stated otherwise.

    Messages of ordered queues have been admitted by their queue before they are due. ``flow_timers``
    are the timers for the next periods of flow-control keys. Each method that releases a slot starts
    the messages that wait for it.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.flow_timers: dict[str, Timer] = {}

    def admit_or_wait(self, message: Message, now: int) -> bool:
        """Return whether an attempt may start now; if not, add the message to a wait list."""
        if self._park_if_paused(message) or self._give_way(message, now):
            return False
        key = self.flow_key(message)
        has_room = message.id in self._state.active or self._has_room()
        if key is None:
            if not has_room:
                self._wait(message, self._state.waiting_for_slot, self._global_limit())
            return has_room
        if message.id in key.active:
            # The message was admitted earlier and has counted globally since then.
            return True
        if has_room and not key.waiting and key.open(now):
            key.start(message.id)
            return True
        only_global = key.open(now) and not has_room
        reason = self._global_limit() if only_global else f"flow control {key.key}"
        self._wait(message, key.waiting, reason)
        self.release_global_slot(message)
        self.start_waiting_for_flow(key)
        return False

    def _park_if_paused(self, message: Message) -> bool:
        """Hold a message in its queue if the queue is paused; return whether it is."""
        queue = self._state.queues.queue_of(message)
        if queue is None or not queue.paused:
            return False
        message.due_us = None
        self.release_flow_slot(message)
        self.release_global_slot(message)
        if message.id not in queue.parked:
            queue.parked.append(message.id)
        return True

    def _give_way(self, message: Message, now: int) -> bool:
        """Let an earlier message of the same queue and flow-control key start first, if one can.

        Pauses and limits may make messages due in another order than the order of their queue. Return
        whether there is an earlier message, after which this one will start.
        """
        if message.queue_name is None or message.attempts:
            return False
        state = self._state
        key = self.flow_key(message)
        has_slot = message.id in (state.active if key is None else key.active)
        wait_list = state.waiting_for_slot if key is None else key.waiting
        for earlier in state.queues.not_started_before(message):
            if self.flow_key(earlier) is not key:
                continue
            if earlier.due_us is not None:
                if earlier.due_us <= now and earlier.id in state.timers:
                    state.plan(message, now, message.wait_reason)
                    return True
            elif has_slot and earlier.id in wait_list:
                self._exchange_slot(message, earlier, wait_list, now)
                return True
        return False

    def _exchange_slot(
        self, message: Message, earlier: Message, wait_list: deque[str], now: int
    ) -> None:
        """Give the slots of a message to an earlier one, and its place in the wait list in return."""
        state = self._state
        key = self.flow_key(message)
        wait_list[wait_list.index(earlier.id)] = message.id
        message.due_us = None
        message.wait_reason = earlier.wait_reason
        if key is not None:
            key.active[earlier.id] = key.active.pop(message.id)
        if message.id in state.active:
            state.active.remove(message.id)
            state.active.add(earlier.id)
        state.plan(earlier, now, earlier.wait_reason)

    def _wait(self, message: Message, wait_list: deque[str], reason: str) -> None:
        message.due_us = None
        message.wait_reason = reason
        wait_list.append(message.id)

    def _global_limit(self) -> str:
        return f"global parallelism {self._state.limits.parallelism}"

    def release(self, message: Message) -> None:
        """Release all slots of a message that has not started or has finished."""
        self.release_global_slot(message)
        self._state.queues.release(message)
        self.release_flow_slot(message)

    def release_flow_slot(self, message: Message) -> None:
        key = self.flow_key(message)
        if key is not None and message.id in key.active:
            key.give_back(message.id)
            self.start_waiting_for_flow(key)

    def release_global_slot(self, message: Message) -> None:
        if message.id in self._state.active:
            self._state.active.discard(message.id)
            self.start_waiting()

    def recall_admitted(self, key: FlowKey) -> None:
        """Return the messages of a key that have not started to its wait list."""
        state = self._state
        recalled = [
            state.pending[one]
            for one in key.active
            if one in state.pending and state.pending[one].state != "ACTIVE"
        ]
        for message in sorted(recalled, key=lambda one: one.number, reverse=True):
            key.give_back(message.id)
            state.active.discard(message.id)
            message.due_us = None
            state.unplan(message.id)
            key.waiting.appendleft(message.id)
        self.start_waiting()

    def start_waiting(self) -> None:
        """Start the messages that wait for global parallelism while there is room."""
        state = self._state
        if state.limits.parallelism is None:
            return
        now = state.clock.now_us()
        while self._has_room() and (message := self._take_oldest_waiting(now)) is not None:
            self._schedule_admitted(message, self.flow_key(message), now)

    def _take_oldest_waiting(self, now: int) -> Message | None:
        """Remove the oldest message that could start from its wait list and return it, or None."""
        state = self._state
        wait_lists = [state.waiting_for_slot]
        wait_lists += [
            key.waiting for key in state.flow.keys.values() if key.waiting and key.open(now)
        ]
        for wait_list in wait_lists:
            # Skip cancelled messages, which are not removed from their wait lists.
            while wait_list and wait_list[0] not in state.pending:
                wait_list.popleft()
        heads = [(state.messages[one[0]], one) for one in wait_lists if one]
        if not heads:
            return None
        message, wait_list = min(heads, key=lambda head: head[0].number)
        wait_list.popleft()
        return message

    def _has_room(self) -> bool:
        most = self._state.limits.parallelism
        return most is None or len(self._state.active) < most

    def _schedule_admitted(self, message: Message, key: FlowKey | None, now: int) -> None:
        state = self._state
        if key is not None:
            key.start(message.id)
        if state.limits.parallelism is not None:
            # Count the message now, so that no other message takes the slot before this one starts.
            state.active.add(message.id)
        state.plan(message, now, message.wait_reason)

    def flow_record(self, key: FlowKey) -> dict[str, object]:
        """Return the key's record, which counts only the waiting messages that are not cancelled."""
        state = self._state
        waiting = sum(one in state.pending for one in key.waiting)
        return key.record(state.clock.now_us()) | {"waitListSize": waiting}

    def flow_key(self, message: Message) -> FlowKey | None:
        flow = message.settings.flow
        return None if flow is None else self._state.flow.keys.get(flow.key)

    def start_waiting_for_flow(self, key: FlowKey) -> None:
        """Start the waiting messages of a flow-control key while there is room."""
        state = self._state
        now = state.clock.now_us()
        while key.waiting and key.open(now) and self._has_room():
            message = state.pending.get(key.waiting.popleft())
            if message is not None:
                self._schedule_admitted(message, key, now)
        self._plan_opening(key, key.reopens_us(now))

    def _plan_opening(self, key: FlowKey, opens_us: int | None) -> None:
        timer = self.flow_timers.get(key.key)
        if timer is not None and timer.due_us != opens_us:
            timer.cancel()
            del self.flow_timers[key.key]
            timer = None
        if opens_us is not None and timer is None and not self._state.closed:
            self.flow_timers[key.key] = self._state.clock.call_at(
                opens_us,
                partial(self._flow_opens, key.key),
                lane=self._state.own_lane,
                label=f"flow control {key.key}",
            )

    def _flow_opens(self, name: str, at_us: int) -> None:
        with self._state.lock:
            self.flow_timers.pop(name, None)
            key = self._state.flow.keys.get(name)
            if key is not None:
                self.start_waiting_for_flow(key)
