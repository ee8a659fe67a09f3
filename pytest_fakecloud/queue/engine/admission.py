"""Admission of attempts, which depends on ordered queues, flow control and global parallelism.

A message that may not start loses its due time and waits in exactly one list. When there is room,
it is scheduled again. Flow control and global parallelism are granted together. Otherwise, two
messages that each held one of them would pass them back and forth endlessly.
"""

from __future__ import annotations

from functools import partial

from ...core.timers import Timer
from ..model import SECOND, Message
from .fifo import OrderedQueue
from .flow import FlowKey
from .state import State


class Admission:
    """Determines which attempts may start.

    Methods whose docstring says that the lock must be held do not acquire it.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.flow_timers: dict[str, Timer] = {}

    def leave(self, message: Message) -> None:
        """Release the slots of a cancelled message. The lock must be held."""
        self.leave_global(message)
        if message.queue_name is not None:
            queue = self._state.queues.by_name.get(message.queue_name)
            if queue is not None:
                queue.active.discard(message.id)
                if message.id in queue.parked:
                    queue.parked.remove(message.id)
                self.pump_queue(queue)
        self.leave_flow(message)

    def leave_flow(self, message: Message) -> None:
        """Release the flow-control slot of a message that has not started. The lock must be held."""
        key = self.flow_key(message)
        if key is not None and message.id in key.active:
            key.give_back(message.id)
            self.pump_flow(key)

    def recall_flow(self, key: FlowKey) -> None:
        """Return admitted messages that have not started to the wait list. The lock must be held."""
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
        self.pump_global()

    def step_aside(self, message_id: str) -> bool:
        """Return whether a fault lets other messages overtake a due message; if so, apply it."""
        state = self._state
        message = state.pending.get(message_id)
        if message is None or message.overtaken_at == message.retried:
            return False
        if not state.delivery_hooks.overtaken(message):
            return False
        with state.lock:
            message.overtaken_at = message.retried
            message.due_us = None
            state.timers.pop(message_id, None)
            self.leave_flow(message)
            queue = state.queues.by_name.get(message.queue_name or "")
            if queue is not None and queue.waiting and message_id in queue.active:
                queue.active.discard(message_id)
                queue.waiting.insert(1, message_id)
                self.pump_queue(queue)
            else:
                # Make the message due in a second. The next delivery makes it due earlier.
                state.overtaken.append(message_id)
                latest = state.clock.now_us() + SECOND
                message.due_us = latest
                state.plan_own(message_id, latest, partial(self.let_go, message_id), "overtaken")
        return True

    def let_go(self, message_id: str, at_us: int) -> None:
        """Make an overtaken message due again."""
        state = self._state
        with state.lock:
            if message_id in state.overtaken:
                state.overtaken.remove(message_id)
                if message_id in state.pending:
                    message = state.messages[message_id]
                    state.plan(message, state.clock.now_us(), message.wait_reason)

    def may_start(self, message: Message, now: int) -> bool:
        """Return whether an attempt may start now; if not, add it to a wait list.

        The lock must be held.
        """
        state = self._state
        queue = state.queues.by_name.get(message.queue_name or "")
        if queue is not None and queue.paused:
            message.due_us = None
            self.leave_flow(message)
            self.leave_global(message)
            if message.id not in queue.parked:
                queue.parked.append(message.id)
            return False
        key = self.flow_key(message)
        room = message.id in state.active or self._room()
        if key is None:
            if not room:
                message.due_us = None
                message.wait_reason = f"global parallelism {state.limits.parallelism}"
                state.crowd.append(message.id)
            return room
        if message.id in key.active:
            # The message was admitted earlier, and has counted towards global parallelism since
            # then.
            return True
        if room and not key.waiting and key.open(now):
            key.start(message.id)
            return True
        message.due_us = None
        if key.open(now) and not room:
            message.wait_reason = f"global parallelism {state.limits.parallelism}"
        else:
            message.wait_reason = f"flow control {key.key}"
        key.waiting.append(message.id)
        self.leave_global(message)
        self.pump_flow(key)
        return False

    def leave_global(self, message: Message) -> None:
        """Release the message's slot in global parallelism. The lock must be held."""
        if message.id in self._state.active:
            self._state.active.discard(message.id)
            self.pump_global()

    def pump_global(self) -> None:
        """Start messages that wait for global parallelism while there is room. The lock must be
        held.
        """
        state = self._state
        if state.limits.parallelism is None:
            return
        now = state.clock.now_us()
        while self._room():
            lines = [state.crowd]
            lines += [
                key.waiting for key in state.flow.keys.values() if key.waiting and key.open(now)
            ]
            for line in lines:
                while line and line[0] not in state.pending:
                    line.popleft()
            heads = [state.messages[line[0]] for line in lines if line]
            if not heads:
                return
            message = min(heads, key=lambda one: one.number)
            key = self.flow_key(message)
            (state.crowd if key is None else key.waiting).popleft()
            self._let_start(message, key, now)

    def _room(self) -> bool:
        most = self._state.limits.parallelism
        return most is None or len(self._state.active) < most

    def _let_start(self, message: Message, key: FlowKey | None, now: int) -> None:
        state = self._state
        if key is not None:
            key.start(message.id)
        if state.limits.parallelism is not None:
            # Count the message now, so that no other message takes the slot before this one starts.
            state.active.add(message.id)
        state.plan(message, now, message.wait_reason)

    def pump_queue(self, queue: OrderedQueue) -> None:
        """Start the next messages of a queue while it has free slots. The lock must be held."""
        state = self._state
        now = state.clock.now_us()
        while not queue.paused and queue.waiting and len(queue.active) < queue.parallelism:
            message = state.pending.get(queue.waiting.popleft())
            if message is None:
                continue
            queue.active.add(message.id)
            due = max(now, message.not_before_us)
            state.plan(message, due, "delay" if due > now else f"turn in queue {queue.name}")

    def upsert_queue(self, name: str, *, parallelism: int | None, paused: bool | None) -> None:
        """Create or change a queue.

        Raises ``QueueError``: 400 for an invalid name, 412 if a plan limit is exceeded.
        """
        state = self._state
        with state.lock:
            limits = state.limits
            queue = state.queues.upsert(
                name,
                state.clock.now_us(),
                parallelism=parallelism,
                paused=paused,
                most=limits.queues,
                most_parallelism=limits.queue_parallelism,
            )
            if not queue.paused:
                self.resume_queue(name)

    def resume_queue(self, name: str) -> None:
        """Resume a queue; raise a 404 error if it does not exist."""
        state = self._state
        with state.lock:
            queue = state.queues.get(name)
            queue.paused = False
            now = state.clock.now_us()
            queue.updated_us = now
            parked, queue.parked = queue.parked, []
            for message_id in parked:
                if message_id in state.pending:
                    state.plan(state.messages[message_id], now, f"queue {name} resumed")
            self.pump_queue(queue)

    def pause_queue(self, name: str) -> None:
        """Pause a queue; raise a 404 error if it does not exist."""
        state = self._state
        with state.lock:
            queue = state.queues.get(name)
            queue.paused = True
            queue.updated_us = state.clock.now_us()

    def lag(self, queue: OrderedQueue) -> int:
        return sum(one in self._state.pending for one in [*queue.active, *queue.waiting])

    def flow_record(self, key: FlowKey) -> dict[str, object]:
        """Return a flow-control key as the API represents it."""
        state = self._state
        waiting = sum(one in state.pending for one in key.waiting)
        return key.record(state.clock.now_us()) | {"waitListSize": waiting}

    def flow_key(self, message: Message) -> FlowKey | None:
        flow = message.settings.flow
        return None if flow is None else self._state.flow.keys.get(flow.key)

    def pump_flow(self, key: FlowKey) -> None:
        """Start the waiting messages of a flow-control key while there is room."""
        state = self._state
        with state.lock:
            now = state.clock.now_us()
            while key.waiting and key.open(now) and self._room():
                message = state.pending.get(key.waiting.popleft())
                if message is not None:
                    self._let_start(message, key, now)
            opens = key.reopens_us(now)
            timer = self.flow_timers.get(key.key)
            if timer is not None and (timer.cancelled or timer.due_us != opens):
                timer.cancel()
                del self.flow_timers[key.key]
                timer = None
            if opens is not None and timer is None:
                self.flow_timers[key.key] = state.clock.call_at(
                    opens,
                    partial(self._flow_opens, key.key),
                    lane=state.own_lane,
                    label=f"flow control {key.key}",
                )

    def _flow_opens(self, name: str, at_us: int) -> None:
        state = self._state
        with state.lock:
            self.flow_timers.pop(name, None)
            key = state.flow.keys.get(name)
            if key is not None:
                self.pump_flow(key)
