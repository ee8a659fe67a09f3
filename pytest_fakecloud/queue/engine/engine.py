"""The queue's state machine: what is due, what goes out, what an answer means.

No HTTP and no threads: time comes from the clock's timers, deliveries are performed by a callable
that the engine is given, with no lock held, because a handler may call back into the queue.

A message is `CREATED`, `ACTIVE` during an attempt, then `DELIVERED` (2xx only), or `ERROR` followed
by `RETRY` or by `FAILED` with a dead letter; a cancelled one is `CANCEL_REQUESTED` at once and
`CANCELED` when it would have been due.

Decided here: an attempt starts at the clock's instant at which its timer fires; an answer that
takes virtual time is applied when that time has passed; a cancelled message gives up its place in a
queue or wait list at once and, without an instant of its own, is `CANCELED` at once; an attempt
that is under way when its message is cancelled still counts when it delivers.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from ...core.clock import Clock
from ...core.ids import BASE58, Ids
from ...core.timers import Lane, Timer
from ..errors import not_found
from ..model import (
    Attempt,
    Delivery,
    LogEntry,
    Message,
    NoWorkflow,
    Outcome,
    Perform,
    Sign,
    SigningKeys,
    WorkflowHooks,
)
from ..settings import Mishaps, Settings
from .admission import Gates
from .attempts import Attempting
from .dead_letters import DeadLetters
from .fifo import Queues
from .flow import FlowControl
from .history import History
from .limits import Limits
from .logs import Logs
from .publishing import Publisher
from .quota import Allowance
from .schedules import Schedules
from .snapshot import Saved, put_back, save
from .url_groups import UrlGroups

#: Planned attempts below which those that are out of date are left alone.
_COMPACT = 64


class Engine:
    """All data and rules of one queue.  Every public method takes the lock by itself."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        perform: Perform,
        sign: Sign,
        keys: SigningKeys,
        new_key: Callable[[], str],
        perform_async: Callable[[Delivery], Awaitable[Outcome]] | None = None,
        name: str = "queue",
        limits: Limits | None = None,
        settings: Settings | None = None,
        lane: Lane = "driven",
        workflow: WorkflowHooks | None = None,
    ) -> None:
        self.clock = clock
        self.perform = perform
        self.perform_async = perform_async
        self.sign = sign
        self.keys = keys
        self.limits = limits or Limits()
        self.settings = settings or Settings()
        self.lane: Lane = lane
        self.workflow: WorkflowHooks = workflow or NoWorkflow()
        self.mishaps = Mishaps()
        self.lock = threading.RLock()
        self.changed = clock.signal()
        self.on_attempt: Callable[[Message, Attempt, Delivery, Outcome], None] | None = None
        self.on_loop: Callable[[str], None] | None = None
        self.new_key = new_key
        self._message_ids = ids.stream(name, "message ids")
        self._other_ids = ids.stream(name, "other ids")
        self.messages: dict[str, Message] = {}
        self.pending: dict[str, Message] = {}
        self.groups_of_tasks: dict[str, list[str]] = {}
        self.queues = Queues()
        self.flow = FlowControl()
        self.groups = UrlGroups(self.new_id, self.limits.groups, self.limits.endpoints_per_group)
        self.logs = Logs()
        self.history = History(self, self.settings.history_us)
        self.gates = Gates(self)
        self.attempting = Attempting(self)
        self.dead_letters = DeadLetters(self)
        self.schedules = Schedules(self)
        self.allowance = Allowance(self)
        self.publisher = Publisher(self)
        self.timers: dict[str, Timer] = {}
        self._planned: list[tuple[Timer, str]] = []
        self.in_flight: dict[str, tuple[int, Outcome]] = {}
        self._sequence = 0
        self.active: set[str] = set()
        self.crowd: deque[str] = deque()
        self.drive = 0
        self.overtaken: list[str] = []
        self.closed = False

    @property
    def own_lane(self) -> Lane:
        """The lane of what happens in the queue itself, with no request going out.

        In the background the dispatcher must see to it: nobody else looks as time passes.
        """
        return "background" if self.lane == "background" else "state"

    @property
    def attempts(self) -> list[Attempt]:
        """Every attempt at a message that is still known, oldest first."""
        with self.lock:
            return sorted(
                (attempt for message in self.messages.values() for attempt in message.attempts),
                key=lambda attempt: attempt.sequence,
            )

    # -- ids, keys -------------------------------------------------------------------------------
    def new_id(self, prefix: str) -> str:
        """Return a new id such as `ept_...`, from the test's seed."""
        return prefix + self._other_ids.text(28, BASE58)

    def new_message_id(self) -> str:
        """Return a new message id."""
        return "msg_" + self._message_ids.hex(32)

    def rotate_keys(self) -> SigningKeys:
        """Make the next signing key the current one, and a new one the next."""
        with self.lock:
            self.keys.current = self.keys.next
            self.keys.next = self.new_key()
            return self.keys

    def next_sequence(self) -> int:
        """Return a number that grows with everything the queue records."""
        self._sequence += 1
        return self._sequence

    # -- messages --------------------------------------------------------------------------------
    def message(self, message_id: str) -> Message:
        """Return a message that a client may still read; 404 otherwise."""
        with self.lock:
            found = self.messages.get(message_id) or self._task_group(message_id)
            if found is None or found.state == "CANCELED" or self._past_grace(found):
                raise not_found("message", message_id)
            return found

    def _past_grace(self, message: Message) -> bool:
        end = message.finished_us
        return end is not None and self.clock.now_us() > end + self.settings.grace_us

    def _task_group(self, message_id: str) -> Message | None:
        ids = self.groups_of_tasks.get(message_id)
        return self.messages[ids[0]] if ids else None

    def tasks(self, message_id: str) -> list[Message]:
        """Return the deliveries of a message: one, or one per endpoint of a v1 topic; 404."""
        with self.lock:
            ids = self.groups_of_tasks.get(message_id)
            if ids is None:
                return [self.message(message_id)]
            return [self.messages[one] for one in ids]

    def accept(self, message: Message) -> None:
        """Store a new message and plan its first attempt; the caller holds the lock."""
        self.history.sweep()
        self.history.began(message)
        now = self.clock.now_us()
        message.number = self.next_sequence()
        message.public_id = message.public_id or message.id
        message.waiting_since_us = message.created_us
        self.trace_back(message, *self.attempting.cause(), now)
        self.messages[message.id] = message
        self.pending[message.id] = message
        self.log(message, "CREATED", message.created_us, next_us=message.not_before_us)
        if message.settings.flow is not None:
            key = self.flow.observe(message.settings.flow, now)
            if key.waiting:
                # The configuration may be another one now, for those that wait as well.
                self.gates.pump_flow(key)
        if message.queue_name is not None:
            queue = self.queues.by_name[message.queue_name]
            queue.waiting.append(message.id)
            self.gates.pump_queue(queue)
        else:
            reason = "delay" if message.not_before_us > message.created_us else "at once"
            self.plan(message, max(now, message.not_before_us), reason)
        self.changed.notify()

    def trace_back(self, message: Message, source: Message | None, certain: bool, now: int) -> None:
        """Note which message caused this one, so that an endless loop is seen."""
        message.drive = self.drive
        if source is None or not source.attempts:
            return
        if source.attempts[-1].at_us == now:
            message.depth = max(message.depth, source.depth + 1)
        # In the background a client that publishes for hours would look like a chain without end.
        if source.drive == self.drive and (certain or self.lane != "background"):
            message.chain = max(message.chain, source.chain + 1)

    def plan(self, message: Message, due_us: int, reason: str) -> None:
        """Set the instant of the next attempt."""
        message.due_us = due_us
        message.wait_reason = reason
        self._replan(message, due_us, message.id)

    def _replan(self, message: Message, due_us: int, message_id: str) -> None:
        timer = self.timers.get(message_id)
        if timer is not None:
            timer.cancel()
        if self.closed:
            return
        timer = self.timers[message_id] = self.clock.call_at(
            due_us,
            partial(self.attempting.run, message_id),
            lane=self.lane,
            label=message.url,
            async_callback=partial(self.attempting.run_async, message_id),
            begin=partial(self.attempting.start, message_id),
        )
        heapq.heappush(self._planned, (timer, message_id))
        if len(self._planned) > 2 * len(self.timers) + _COMPACT:
            self._planned = [(one, id) for one, id in self._planned if self.timers.get(id) is one]
            heapq.heapify(self._planned)

    def cancel(self, message_id: str) -> int:
        """Cancel a message (every delivery of a v1 topic message); 404 when nothing is pending."""
        with self.lock:
            ids = self.groups_of_tasks.get(message_id, [message_id])
            found = [self.pending[one] for one in ids if one in self.pending]
            if not found:
                raise not_found("message", message_id)
            return self.cancel_all(found)

    def cancel_all(self, messages: list[Message]) -> int:
        """Cancel messages that are pending; returns how many."""
        with self.lock:
            now = self.clock.now_us()
            count = 0
            for message in messages:
                if self.pending.pop(message.id, None) is None:
                    continue
                count += 1
                in_flight = message.state == "ACTIVE"
                message.state = "CANCEL_REQUESTED"
                self.log(message, "CANCEL_REQUESTED", now)
                if in_flight:
                    continue
                self.gates.leave(message)
                due = message.due_us
                timer = self.timers.pop(message.id, None)
                if timer is not None:
                    timer.cancel()
                if due is None or due <= now:
                    self._canceled(message.id, now)
                else:
                    self.timers[message.id] = self.clock.call_at(
                        due,
                        partial(self._canceled, message.id),
                        lane=self.own_lane,
                        label="cancel",
                    )
                    self.settle(message)
            self.changed.notify()
            return count

    def _canceled(self, message_id: str, at_us: int) -> None:
        with self.lock:
            message = self.messages[message_id]
            if message.state == "CANCEL_REQUESTED":
                self.timers.pop(message_id, None)
                self.finish(message, "CANCELED", at_us)

    # -- ends ------------------------------------------------------------------------------------
    def finish(
        self,
        message: Message,
        state: str,
        at_us: int,
        *,
        error: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        message.state = state
        message.finished_us = at_us
        message.due_us = None
        self.pending.pop(message.id, None)
        self.log(message, state, at_us, error=error, outcome=outcome)
        self.workflow.finished(message, at_us)
        self.settle(message)
        self.history.ended(message)

    def settle(self, message: Message) -> None:
        """Free what waits for a message, once it and all callbacks about it have ended."""
        if message.open_children or not (message.finished or message.state == "CANCEL_REQUESTED"):
            return
        if message.extra.get("settled"):
            return
        message.extra["settled"] = True
        if message.queue_name is not None:
            queue = self.queues.by_name.get(message.queue_name)
            if queue is not None and message.id in queue.active:
                queue.active.discard(message.id)
                self.gates.pump_queue(queue)
        if message.source_id is not None and message.queue_name is None:
            source = self.messages.get(message.source_id)
            if source is not None:
                source.open_children -= 1
                self.settle(source)

    # -- queues and flow control -----------------------------------------------------------------
    def next_due_us(self) -> int | None:
        """Return the next instant at which something happens to a message, or None.

        Schedules do not count.
        """
        due: list[int | None] = []
        with self.lock:
            # The clock knows the attempts of other queues as well.
            while self._planned and self.timers.get(self._planned[0][1]) is not self._planned[0][0]:
                heapq.heappop(self._planned)
            due += [timer.due_us for timer, _ in self._planned[:1]]
            due += [end for end, _ in self.in_flight.values()]
            due += [
                timer.due_us for timer in self.gates.flow_timers.values() if not timer.cancelled
            ]
            due += [self.pending[one].due_us for one in self.overtaken if one in self.pending]
        return min((one for one in due if one is not None), default=None)

    # -- logs ------------------------------------------------------------------------------------
    def log(
        self,
        message: Message,
        state: str,
        at_us: int,
        *,
        error: str | None = None,
        next_us: int | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        """Record one step in the life of a message."""
        entry = LogEntry(self.next_sequence(), at_us, message.id, state, error, next_us, outcome)
        message.log.append(entry)
        self.logs.entries.append(entry)

    def close(self) -> None:
        """Begin no attempt and no run of a schedule any more; the data can still be looked at."""
        with self.lock:
            self.closed = True
            self._cancel_timers()
        self.changed.close()

    def _cancel_timers(self) -> None:
        for timer in [*self.timers.values(), *self.gates.flow_timers.values()]:
            timer.cancel()
        self.timers.clear()
        self.gates.flow_timers.clear()
        for schedule in self.schedules.by_id.values():
            self.schedules.unplan(schedule)

    # -- copies ----------------------------------------------------------------------------------
    def snapshot(self) -> Saved:
        """Return a copy of all data; further attempts do not change it."""
        with self.lock:
            return save(self)

    def restore(self, saved: Saved) -> None:
        """Return to a copy: its data, and timers for what was waiting, in flight or scheduled."""
        with self.lock:
            self._cancel_timers()
            put_back(self, saved)
            self.history.restored()
            self.attempting.forget()
            for schedule in self.schedules.by_id.values():
                self.schedules.plan_on(schedule)
            for message_id, (end_us, _) in self.in_flight.items():
                self.attempting.await_end(message_id, end_us)
            for message in self.messages.values():
                if message.due_us is None:
                    continue
                if message.id in self.pending:
                    self._replan(message, message.due_us, message.id)
                elif message.state == "CANCEL_REQUESTED":
                    self.timers[message.id] = self.clock.call_at(
                        message.due_us,
                        partial(self._canceled, message.id),
                        lane=self.own_lane,
                        label="cancel",
                    )
            for key in self.flow.keys.values():
                self.gates.pump_flow(key)
            self.gates.pump_crowd()
        self.changed.notify()
