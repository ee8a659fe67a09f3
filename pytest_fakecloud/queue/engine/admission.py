"""The data of one queue with its timers, and the admission of attempts.

Admission depends on ordered queues, flow control and global parallelism.

A message that may not start loses its due time and waits in exactly one list. When there is room,
it is scheduled again. Flow control and global parallelism are granted together. Otherwise, two
messages that each held one of them would pass them back and forth endlessly.

**Flow control** limits parallel deliveries and deliveries per period for each key. Vendor's
documentation: parallelism limits requests in flight, rate limits requests started in a fixed period,
and further messages wait in order. The settings of the last published message apply, unless the key
is pinned. Pinning and ``resetRate`` start a new period; a pause does not. Decided here: periods
follow each other without gaps, beginning when the key is first used. Every attempt counts, including
retries. A key is kept as long as a message that used it.

**Ordered queues** deliver a message only after the messages before it have finished. Vendor's
documentation: parallelism is 1 by default. A failing message blocks its queue through all its
retries and until its callbacks have finished. A paused queue accepts messages and delivers none.
Decided here: a delayed message keeps its position, so its queue waits for it. A message does not
wait for a callback that is in an ordered queue itself, because two queues could then wait for each
other forever. In a queue with a parallelism above 1, a message that waits for flow control holds
back later messages with the same key, but not others. Deleting a queue cancels its waiting
messages, while those in flight finish.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...core.clock import Timekeeper
from ...core.ids import Ids
from ...core.timers import Lane, Timer
from ..errors import existing, quota
from ..model import SECOND, FlowSettings, Message, Outcome, Report, copy_of
from ..settings import QueueConfig
from ..wire.values import check_name

_COMPACT = 64
"""Outdated entries are not removed while there are fewer planned attempts than this."""


def copies(items: dict[str, Any]) -> dict[str, Any]:
    return {key: item.copy() for key, item in items.items()}


@dataclass(eq=False)
class FlowKey:
    """A flow-control key with its limits (None: unlimited), its active and its waiting messages.

    ``active`` maps the id of each active message to the number of the period in which it started.
    ``messages`` is the number of messages that use the key and have not been forgotten.
    """

    key: str
    period_start_us: int
    rate: int | None = None
    period: int = 0
    parallelism: int | None = None
    period_us: int = SECOND
    messages: int = 0
    started: int = 0
    paused: bool = False
    pinned_parallelism: bool = False
    pinned_rate: bool = False
    active: dict[str, int] = field(default_factory=dict)
    waiting: deque[str] = field(default_factory=deque)

    def observe(self, settings: FlowSettings, now_us: int) -> None:
        """Apply the flow-control settings of a message that is being published."""
        if settings.parallelism is None and settings.rate is None:
            return
        if not self.pinned_parallelism:
            self.parallelism = settings.parallelism
        if not self.pinned_rate:
            # Count in the old period before its length changes.
            self.roll(now_us)
            self.rate = settings.rate
            if self.period_us != settings.period_us:
                self.period_us = settings.period_us
                self.roll(now_us)

    def pin(self, now_us: int, parallelism: int | None, rate: int | None, period_us: int) -> None:
        """Pin limits, so that messages cannot change them, and start a new period."""
        if parallelism is not None:
            self.parallelism = parallelism
            self.pinned_parallelism = True
        if rate is not None:
            self.rate = rate
            self.period_us = period_us
            self.pinned_rate = True
        self.restart_period(now_us)

    def roll(self, now_us: int) -> None:
        """Start the period that contains the given time, unless it has already started."""
        passed = (now_us - self.period_start_us) // self.period_us
        if passed > 0:
            self.restart_period(self.period_start_us + passed * self.period_us)

    def open(self, now_us: int) -> bool:
        self.roll(now_us)
        if self.paused:
            return False
        if self.parallelism is not None and len(self.active) >= self.parallelism:
            return False
        return self.rate is None or self.started < self.rate

    def start(self, message_id: str) -> None:
        self.active[message_id] = self.period
        self.started += 1

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
        return copy_of(self)


@dataclass(eq=False)
class OrderedQueue:
    """An ordered queue.

    ``active`` messages have a slot. Those that have not started come first, in the order in which
    they got it. ``parked`` messages are due, but the queue is paused.
    """

    name: str
    created_us: int
    updated_us: int
    parallelism: int = 1
    paused: bool = False
    active: OrderedDict[str, None] = field(default_factory=OrderedDict)
    parked: list[str] = field(default_factory=list)
    waiting: deque[str] = field(default_factory=deque)

    def copy(self) -> OrderedQueue:
        return copy_of(self)


class Admission:
    """The first layer of an engine: its data, the planned attempts, and which due messages may start.

    The methods require the lock unless stated otherwise. ``pending`` are the unfinished messages.
    ``groups_of_tasks`` maps the public id of a v1 message to the ids of its deliveries. ``active``
    are the ids of messages that count towards the global parallelism limit, and
    ``waiting_for_slot`` the ids of messages that wait for it. ``in_flight`` maps an id to the
    outcome of the attempt and the time at which it will be applied. ``inspected`` is set when a test
    inspects messages. Messages of ordered ``queues`` have been admitted by their queue before they
    are due. ``flow_timers`` are the timers for the next periods of flow-control keys. Each method
    that releases a slot starts the messages that wait for it.
    """

    # The methods of the engine that timers call.
    _run: Callable[[str, int], object]
    _run_async: Callable[[str, int], Awaitable[object]]
    _start: Callable[[str, int], Callable[[], object] | None]

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        *,
        settings: QueueConfig,
        name: str = "queue",
        lane: Lane = "driven",
        report: Report = lambda kind, text, **fields: None,
    ) -> None:
        self.clock = clock
        self.limits = settings.plan
        self.settings = settings
        self.lane: Lane = lane
        self.report = report
        self.lock = threading.RLock()
        self._message_ids = ids.stream(name, "message ids")
        self._other_ids = ids.stream(name, "other ids")
        self.messages: dict[str, Message] = {}
        self.pending: dict[str, Message] = {}
        self.groups_of_tasks: dict[str, list[str]] = {}
        self.in_flight: dict[str, tuple[int, Outcome]] = {}
        self.active: set[str] = set()
        self.waiting_for_slot: deque[str] = deque()
        self.timers: dict[str, Timer] = {}
        self._planned: list[tuple[int, int, str, Timer]] = []
        self._sequence = 0
        self.inspected = False
        self.owner: Any = None
        """The fake whose data this is, for the actions of views; None for an engine alone."""
        self.closed = False
        self.flow_keys: dict[str, FlowKey] = {}
        self.flow_timers: dict[str, Timer] = {}
        self.queues: dict[str, OrderedQueue] = {}

    @property
    def own_lane(self) -> Lane:
        """The group of the clock's timers to use for state changes that involve no delivery."""
        # With background delivery, no call of the test fires timers.
        return "background" if self.lane == "background" else "state"

    def new_id(self, prefix: str) -> str:
        return prefix + self._other_ids.base58(28)

    def new_message_id(self) -> str:
        message_id = "msg_" + self._message_ids.hex(32)
        # A message that a file kept may have an id that the same seed gives again.
        return self.new_message_id() if message_id in self.messages else message_id

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def plan(self, message: Message, due_us: int, reason: str) -> None:
        """Start the timer for a message's next attempt, in place of the message's current timer."""
        message.due_us = due_us
        message.wait_reason = reason
        message_id = message.id
        if message_id in self.timers:
            self.unplan(message_id)
        if self.closed:
            return
        timer = self.timers[message_id] = self.clock.call_at(
            due_us,
            partial(self._run, message_id),
            lane=self.lane,
            label=message.url,
            async_callback=partial(self._run_async, message_id),
            begin=partial(self._start, message_id),
        )
        # The number precedes the timer, so that timers are never compared.
        heapq.heappush(self._planned, (due_us, timer.sequence, message_id, timer))
        if len(self._planned) > 2 * len(self.timers) + _COMPACT:
            self._planned = list(filter(self._is_current, self._planned))
            heapq.heapify(self._planned)

    def _is_current(self, planned: tuple[int, int, str, Timer]) -> bool:
        """Return whether a planned attempt has neither started nor been planned again."""
        _, _, message_id, timer = planned
        return self.timers.get(message_id) is timer

    def plan_own(
        self, message_id: str, due_us: int, callback: Callable[[int], object], label: str
    ) -> None:
        """Start the timer for a change of a message's state that involves no delivery."""
        self.unplan(message_id)
        if not self.closed:
            self.timers[message_id] = self.clock.call_at(
                due_us, callback, lane=self.own_lane, label=label
            )

    def unplan(self, message_id: str) -> None:
        timer = self.timers.pop(message_id, None)
        if timer is not None:
            timer.cancel()

    def next_planned_us(self) -> int | None:
        """Return the time of the next planned attempt of this queue, or None."""
        # Do not ask the clock for its next timer, because its timers include those of other queues.
        while self._planned and not self._is_current(self._planned[0]):
            heapq.heappop(self._planned)
        return self._planned[0][0] if self._planned else None

    # -- admission ---------------------------------------------------------------------------------

    def admit_or_wait(self, message: Message, now: int) -> bool:
        """Return whether an attempt may start now; if not, add the message to a wait list."""
        if self._park_if_paused(message) or self._give_way(message, now):
            return False
        key = self.flow_key(message)
        has_room = message.id in self.active or self._has_room()
        if key is None:
            if not has_room:
                self._wait(message, self.waiting_for_slot, self._global_limit())
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
        queue = self.queue_of(message)
        if queue is None or not queue.paused:
            return False
        message.due_us = None
        self.release_flow_slot(message)
        self.release_global_slot(message)
        if message.id not in queue.parked:
            queue.parked.append(message.id)
        return True

    def _give_way(self, message: Message, now: int) -> bool:
        """Let an earlier message of the same queue and flow-control key start first; return if one can.

        Pauses and limits may make messages due in another order than the order of their queue.
        """
        if message.queue_name is None or message.attempts:
            return False
        key = self.flow_key(message)
        has_slot = message.id in (self.active if key is None else key.active)
        wait_list = self.waiting_for_slot if key is None else key.waiting
        for earlier in self.not_started_before(message):
            if self.flow_key(earlier) is not key:
                continue
            if earlier.due_us is not None:
                if earlier.due_us <= now and earlier.id in self.timers:
                    self.plan(message, now, message.wait_reason)
                    return True
            elif has_slot and earlier.id in wait_list:
                self._exchange_slot(message, earlier, wait_list, now)
                return True
        return False

    def _exchange_slot(
        self, message: Message, earlier: Message, wait_list: deque[str], now: int
    ) -> None:
        """Give the slots of a message to an earlier one, and its place in the wait list in return."""
        key = self.flow_key(message)
        wait_list[wait_list.index(earlier.id)] = message.id
        message.due_us = None
        message.wait_reason = earlier.wait_reason
        if key is not None:
            key.active[earlier.id] = key.active.pop(message.id)
        if message.id in self.active:
            self.active.remove(message.id)
            self.active.add(earlier.id)
        self.plan(earlier, now, earlier.wait_reason)

    def _wait(self, message: Message, wait_list: deque[str], reason: str) -> None:
        message.due_us = None
        message.wait_reason = reason
        wait_list.append(message.id)

    def _global_limit(self) -> str:
        return f"global parallelism {self.limits.parallelism}"

    def release_flow_slot(self, message: Message) -> None:
        key = self.flow_key(message)
        if key is not None and message.id in key.active:
            key.give_back(message.id)
            self.start_waiting_for_flow(key)

    def release_global_slot(self, message: Message) -> None:
        if message.id in self.active:
            self.active.discard(message.id)
            self.start_waiting()

    def recall_admitted(self, key: FlowKey) -> None:
        """Return the messages of a key that have not started to its wait list."""
        recalled = [
            self.pending[message_id]
            for message_id in key.active
            if message_id in self.pending and self.pending[message_id].state != "ACTIVE"
        ]
        for message in sorted(recalled, key=lambda message: message.number, reverse=True):
            key.give_back(message.id)
            self.active.discard(message.id)
            message.due_us = None
            self.unplan(message.id)
            key.waiting.appendleft(message.id)
        self.start_waiting()

    def start_waiting(self) -> None:
        """Start the messages that wait for global parallelism while there is room."""
        if self.limits.parallelism is None:
            return
        now = self.clock.now_us()
        while self._has_room() and (message := self._take_oldest_waiting(now)) is not None:
            self._schedule_admitted(message, self.flow_key(message), now)

    def _take_oldest_waiting(self, now: int) -> Message | None:
        """Remove the oldest message that could start from its wait list and return it, or None."""
        wait_lists = [self.waiting_for_slot]
        wait_lists += [
            key.waiting for key in self.flow_keys.values() if key.waiting and key.open(now)
        ]
        for wait_list in wait_lists:
            # Skip cancelled messages, which are not removed from their wait lists.
            while wait_list and wait_list[0] not in self.pending:
                wait_list.popleft()
        heads = [(self.messages[wait_list[0]], wait_list) for wait_list in wait_lists if wait_list]
        if not heads:
            return None
        message, wait_list = min(heads, key=lambda head: head[0].number)
        wait_list.popleft()
        return message

    def _has_room(self) -> bool:
        most = self.limits.parallelism
        return most is None or len(self.active) < most

    def _schedule_admitted(self, message: Message, key: FlowKey | None, now: int) -> None:
        if key is not None:
            key.start(message.id)
        if self.limits.parallelism is not None:
            # Count the message now, so that no other message takes the slot before this one starts.
            self.active.add(message.id)
        self.plan(message, now, message.wait_reason)

    def flow_record(self, key: FlowKey) -> dict[str, object]:
        """Return the key's record, which counts only the waiting messages that are not cancelled."""
        waiting = sum(message_id in self.pending for message_id in key.waiting)
        return key.record(self.clock.now_us()) | {"waitListSize": waiting}

    def flow_key(self, message: Message) -> FlowKey | None:
        flow = message.settings.flow
        return None if flow is None else self.flow_keys.get(flow.key)

    def existing_flow_key(self, name: str) -> FlowKey:
        """Return a key; raise a 404 error if no message has used it and it was never configured."""
        return existing(self.flow_keys.get(name), "flow control key", name)

    def get_or_create_flow_key(self, name: str, now_us: int) -> FlowKey:
        if name not in self.flow_keys:
            self.flow_keys[name] = FlowKey(name, now_us)
        return self.flow_keys[name]

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

    def start_waiting_for_flow(self, key: FlowKey) -> None:
        now = self.clock.now_us()
        while key.waiting and key.open(now) and self._has_room():
            message = self.pending.get(key.waiting.popleft())
            if message is not None:
                self._schedule_admitted(message, key, now)
        opens_us, timer = key.reopens_us(now), self.flow_timers.get(key.key)
        if timer is not None and timer.due_us != opens_us:
            timer.cancel()
            del self.flow_timers[key.key]
            timer = None
        if opens_us is not None and timer is None and not self.closed:
            self.flow_timers[key.key] = self.clock.call_at(
                opens_us,
                partial(self._flow_opens, key.key),
                lane=self.own_lane,
                label=f"flow control {key.key}",
            )

    def _flow_opens(self, name: str, at_us: int) -> None:
        with self.lock:
            self.flow_timers.pop(name, None)
            key = self.flow_keys.get(name)
            if key is not None:
                self.start_waiting_for_flow(key)

    # -- ordered queues --------------------------------------------------------------------------

    def queue(self, name: str) -> OrderedQueue:
        return existing(self.queues.get(name), "queue", name)

    def check_queues(self, names: Iterable[str]) -> None:
        """Raise ``QueueError`` (400 or 412) unless queues with these names may be created."""
        unique_names = set(names)
        for name in unique_names:
            check_name(name, "queue name")
        new = unique_names - self.queues.keys()
        most = self.limits.queues
        if most is not None and new and len(self.queues) + len(new) > most:
            raise quota("maxQueues", most)

    def queue_of(self, message: Message) -> OrderedQueue | None:
        return self.queues.get(message.queue_name or "")

    def start_waiting_in(self, queue: OrderedQueue) -> None:
        """Make the next messages of a queue due while it has free slots."""
        now = self.clock.now_us()
        while not queue.paused and queue.waiting and len(queue.active) < queue.parallelism:
            message = self.pending.get(queue.waiting.popleft())
            if message is None:
                continue
            queue.active[message.id] = None
            due = max(now, message.not_before_us)
            self.plan(message, due, "delay" if due > now else f"turn in queue {queue.name}")

    def release_queue_slot(self, message: Message) -> None:
        queue = self.queue_of(message)
        if queue is None:
            return
        if message.id in queue.parked:
            queue.parked.remove(message.id)
        queue.active.pop(message.id, None)
        self.start_waiting_in(queue)

    def not_started_before(self, message: Message) -> Iterator[Message]:
        """Yield the messages that got a slot before this one and have not been attempted yet."""
        queue = self.queue_of(message)
        for message_id in () if queue is None else queue.active:
            if message_id == message.id:
                return
            earlier = self.pending.get(message_id)
            if earlier is not None and not earlier.attempts:
                yield earlier

    def let_next_overtake(self, message: Message) -> bool:
        """Exchange a message in a slot with the next of its queue; return whether there is one."""
        queue = self.queue_of(message)
        if queue is None or not queue.waiting or message.id not in queue.active:
            return False
        del queue.active[message.id]
        # Insert it behind the next message, which gets the slot now.
        queue.waiting.insert(1, message.id)
        self.start_waiting_in(queue)
        return True

    def upsert_queue(
        self, name: str, *, parallelism: int | None = None, paused: bool | None = None
    ) -> None:
        """Create or change a queue. None leaves a setting unchanged.

        Raises ``QueueError``: 400 for an invalid name, 412 if a plan limit is exceeded.
        """
        with self.lock:
            self.check_queues([name])
            most = self.limits.queue_parallelism
            if most is not None and (parallelism or 0) > most:
                raise quota("maxParallelism", most)
            now = self.clock.now_us()
            queue = self.queues.setdefault(name, OrderedQueue(name, now, now))
            queue.updated_us = now
            if parallelism is not None:
                queue.parallelism = parallelism
            if paused is not None:
                queue.paused = paused
            if not queue.paused:
                parked, queue.parked = queue.parked, []
                for message_id in parked:
                    if message_id in self.pending:
                        self.plan(self.messages[message_id], now, f"queue {name} resumed")
                self.start_waiting_in(queue)

    def set_queue_paused(self, name: str, paused: bool) -> None:
        """Pause or resume a queue; raise a 404 error if it does not exist."""
        with self.lock:
            self.queue(name)
            self.upsert_queue(name, paused=paused)

    def queue_lag(self, queue: OrderedQueue) -> int:
        """Return the number of unfinished messages in a queue. Parked messages are also active."""
        return sum(message_id in self.pending for message_id in [*queue.active, *queue.waiting])
