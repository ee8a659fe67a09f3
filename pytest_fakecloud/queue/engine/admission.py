"""Who may start now: ordered queues, flow control, global parallelism, and being overtaken.

A message that may not start loses its instant and waits in one place; whatever opens that place
plans it again.  The leave of a flow-control key and a place in global parallelism are given
together: two messages that hold one each would hand them to and fro for ever.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...core.timers import Timer
from ..model import SECOND, Message
from .fifo import OrderedQueue
from .flow import FlowKey

if TYPE_CHECKING:
    from .engine import Engine


class Gates:
    """The gates of an engine; what must hold its lock says so, the rest takes it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.flow_timers: dict[str, Timer] = {}

    def leave(self, message: Message) -> None:
        """Give up the places of a cancelled message; the lock is held."""
        self.leave_crowd(message)
        if message.queue_name is not None:
            queue = self._engine.queues.by_name.get(message.queue_name)
            if queue is not None:
                queue.active.discard(message.id)
                if message.id in queue.parked:
                    queue.parked.remove(message.id)
                self.pump_queue(queue)
        self.leave_flow(message)

    def leave_flow(self, message: Message) -> None:
        """Give up the leave to start that flow control gave; the lock is held."""
        key = self.flow_key(message)
        if key is not None and message.id in key.active:
            key.give_back(message.id)
            self.pump_flow(key)

    def recall_flow(self, key: FlowKey) -> None:
        """Send those back to the wait list that may start and have not; the lock is held."""
        engine = self._engine
        recalled = [
            engine.pending[one]
            for one in key.active
            if one in engine.pending and engine.pending[one].state != "ACTIVE"
        ]
        for message in sorted(recalled, key=lambda one: one.number, reverse=True):
            key.give_back(message.id)
            engine.active.discard(message.id)
            message.due_us = None
            timer = engine.timers.pop(message.id, None)
            if timer is not None:
                timer.cancel()
            key.waiting.appendleft(message.id)
        self.pump_crowd()

    def step_aside(self, message_id: str) -> bool:
        """Let others overtake a message that is due, when a fault says so; whether it does."""
        engine = self._engine
        message = engine.pending.get(message_id)
        if message is None or message.extra.get("overtaken") == message.retried:
            return False
        if not engine.mishaps.overtaken(message):
            return False
        with engine.lock:
            message.extra["overtaken"] = message.retried
            message.due_us = None
            engine.timers.pop(message_id, None)
            self.leave_flow(message)
            queue = engine.queues.by_name.get(message.queue_name or "")
            if queue is not None and queue.waiting and message_id in queue.active:
                queue.active.discard(message_id)
                queue.waiting.insert(1, message_id)
                self.pump_queue(queue)
            else:
                # Whatever is delivered next lets it go; alone, it goes a second later.
                engine.overtaken.append(message_id)
                latest = engine.clock.now_us() + SECOND
                message.due_us = latest
                engine.timers[message_id] = engine.clock.call_at(
                    latest,
                    partial(self.let_go, message_id),
                    lane=engine.own_lane,
                    label="overtaken",
                )
        return True

    def let_go(self, message_id: str, at_us: int) -> None:
        """Make an overtaken message due again."""
        engine = self._engine
        with engine.lock:
            if message_id in engine.overtaken:
                engine.overtaken.remove(message_id)
                if message_id in engine.pending:
                    message = engine.messages[message_id]
                    engine.plan(message, engine.clock.now_us(), message.wait_reason)

    def may_start(self, message: Message, now: int) -> bool:
        """Whether an attempt may start now; where not, the message waits.  The lock is held."""
        engine = self._engine
        queue = engine.queues.by_name.get(message.queue_name or "")
        if queue is not None and queue.paused:
            message.due_us = None
            self.leave_flow(message)
            self.leave_crowd(message)
            if message.id not in queue.parked:
                queue.parked.append(message.id)
            return False
        key = self.flow_key(message)
        room = message.id in engine.active or self._room()
        if key is None:
            if not room:
                message.due_us = None
                message.wait_reason = f"global parallelism {engine.limits.parallelism}"
                engine.crowd.append(message.id)
            return room
        granted = message.id in key.active
        if room and (granted or (not key.waiting and key.open(now))):
            if not granted:
                key.start(message.id)
            return True
        message.due_us = None
        if key.open(now) and not room:
            message.wait_reason = f"global parallelism {engine.limits.parallelism}"
        else:
            message.wait_reason = f"flow control {key.key}"
        if granted:
            key.give_back(message.id)
            key.waiting.appendleft(message.id)
        else:
            key.waiting.append(message.id)
        self.leave_crowd(message)
        self.pump_flow(key)
        return False

    def leave_crowd(self, message: Message) -> None:
        """Give up the place in global parallelism; the lock is held."""
        if message.id in self._engine.active:
            self._engine.active.discard(message.id)
            self.pump_crowd()

    def pump_crowd(self) -> None:
        """Start who waits for global parallelism while there is room; the lock is held."""
        engine = self._engine
        if engine.limits.parallelism is None:
            return
        now = engine.clock.now_us()
        while self._room():
            lines = [engine.crowd]
            lines += [
                key.waiting for key in engine.flow.keys.values() if key.waiting and key.open(now)
            ]
            for line in lines:
                while line and line[0] not in engine.pending:
                    line.popleft()
            heads = [engine.messages[line[0]] for line in lines if line]
            if not heads:
                return
            message = min(heads, key=lambda one: one.number)
            key = self.flow_key(message)
            (engine.crowd if key is None else key.waiting).popleft()
            self._let_start(message, key, now)

    def _room(self) -> bool:
        most = self._engine.limits.parallelism
        return most is None or len(self._engine.active) < most

    def _let_start(self, message: Message, key: FlowKey | None, now: int) -> None:
        engine = self._engine
        if key is not None:
            key.start(message.id)
        if engine.limits.parallelism is not None:
            # Counted from now on, so that nobody takes the place before it starts.
            engine.active.add(message.id)
        engine.plan(message, now, message.wait_reason)

    def pump_queue(self, queue: OrderedQueue) -> None:
        """Start the next messages of a queue while it has free slots."""
        engine = self._engine
        now = engine.clock.now_us()
        while not queue.paused and queue.waiting and len(queue.active) < queue.parallelism:
            message = engine.pending.get(queue.waiting.popleft())
            if message is None:
                continue
            queue.active.add(message.id)
            due = max(now, message.not_before_us)
            engine.plan(message, due, "delay" if due > now else f"turn in queue {queue.name}")

    def upsert_queue(self, name: str, *, parallelism: int | None, paused: bool | None) -> None:
        """Create or change a queue.  Raises `QueueError`: 400 bad name, 412 beyond the plan."""
        engine = self._engine
        with engine.lock:
            limits = engine.limits
            queue = engine.queues.upsert(
                name,
                engine.clock.now_us(),
                parallelism=parallelism,
                paused=paused,
                most=limits.queues,
                most_parallelism=limits.queue_parallelism,
            )
            if not queue.paused:
                self.resume_queue(name)

    def resume_queue(self, name: str) -> None:
        """Let a queue deliver again; 404 when there is none."""
        engine = self._engine
        with engine.lock:
            queue = engine.queues.get(name)
            queue.paused = False
            now = engine.clock.now_us()
            queue.updated_us = now
            parked, queue.parked = queue.parked, []
            for message_id in parked:
                if message_id in engine.pending:
                    engine.plan(engine.messages[message_id], now, f"queue {name} resumed")
            self.pump_queue(queue)

    def pause_queue(self, name: str) -> None:
        """Stop a queue from delivering; 404 when there is none."""
        engine = self._engine
        with engine.lock:
            queue = engine.queues.get(name)
            queue.paused = True
            queue.updated_us = engine.clock.now_us()

    def delete_queue(self, name: str) -> None:
        """Remove a queue and cancel what waits in it; nothing happens when there is none."""
        engine = self._engine
        with engine.lock:
            queue = engine.queues.by_name.get(name)
            if queue is None:
                return
            queue.paused = True
            engine.cancel_all(
                [
                    engine.messages[one]
                    # Parked may be one that was in flight when a queue of that name was deleted.
                    for one in [*queue.active, *queue.waiting, *queue.parked]
                    if one in engine.pending and engine.messages[one].state != "ACTIVE"
                ]
            )
            engine.queues.by_name.pop(name, None)

    def lag(self, queue: OrderedQueue) -> int:
        """Return how many messages of a queue have not come to an end."""
        return sum(one in self._engine.pending for one in [*queue.active, *queue.waiting])

    def flow_record(self, key: FlowKey) -> dict[str, object]:
        """Return a flow-control key as the API shows it."""
        engine = self._engine
        waiting = sum(one in engine.pending for one in key.waiting)
        return key.record(engine.clock.now_us()) | {"waitListSize": waiting}

    def flow_key(self, message: Message) -> FlowKey | None:
        """Return the flow-control key of a message."""
        flow = message.settings.flow
        return None if flow is None else self._engine.flow.keys.get(flow.key)

    def pump_flow(self, key: FlowKey) -> None:
        """Start the waiting messages of a flow-control key while it lets them."""
        engine = self._engine
        with engine.lock:
            now = engine.clock.now_us()
            while key.waiting and key.open(now) and self._room():
                message = engine.pending.get(key.waiting.popleft())
                if message is not None:
                    self._let_start(message, key, now)
            opens = key.reopens_us(now)
            timer = self.flow_timers.get(key.key)
            if timer is not None and (timer.cancelled or timer.due_us != opens):
                timer.cancel()
                del self.flow_timers[key.key]
                timer = None
            if opens is not None and timer is None:
                self.flow_timers[key.key] = engine.clock.call_at(
                    opens,
                    partial(self._flow_opens, key.key),
                    lane=engine.own_lane,
                    label=f"flow control {key.key}",
                )

    def _flow_opens(self, name: str, at_us: int) -> None:
        engine = self._engine
        with engine.lock:
            self.flow_timers.pop(name, None)
            key = engine.flow.keys.get(name)
            if key is not None:
                self.pump_flow(key)
