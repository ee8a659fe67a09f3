"""The queue's state machine, without HTTP and threads.

Timers of the clock trigger all changes, and a function passed to the engine performs the
deliveries. It is called without holding the lock, because a handler may call the queue.

A message is ``CREATED``, ``ACTIVE`` during an attempt, then ``DELIVERED`` (2xx only), or ``ERROR``
followed by ``RETRY`` or by ``FAILED`` with a dead letter. A cancelled message is
``CANCEL_REQUESTED`` immediately and ``CANCELED`` at the time at which it would have been due.

Decided here: an attempt starts when its timer fires. A response that takes virtual time is applied
when that time has passed. A cancelled message leaves its queue or wait list immediately, and is
``CANCELED`` immediately if it has no due time. An attempt in flight still delivers its message if
the message is cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ...core.timers import Lane
from ..errors import not_found
from ..model import Attempt, Delivery, LogEntry, Message, Outcome, Perform, Sign, SigningKeys
from ..settings import PlanLimits, QueueConfig
from ..workflow.runs import WorkflowRuns
from .admission import Admission
from .attempts import AttemptRunner
from .flow import FlowControl
from .history import DeadLetter, DeadLetters, History
from .lifecycle import Lifecycle
from .ordered_queues import OrderedQueue, OrderedQueues
from .publishing import Publisher
from .quota import Quota, QuotaUsage
from .schedules import Schedule
from .state import State
from .url_groups import UrlGroups


class Saved(NamedTuple):
    """A copy of an engine's data, which can be restored any number of times.

    Ids, signing keys and the clock are not part of the data. Copies share immutable records.
    """

    messages: dict[str, Message]
    pending: tuple[str, ...]
    groups_of_tasks: dict[str, list[str]]
    queues: dict[str, OrderedQueue]
    flow: FlowControl
    url_groups: UrlGroups
    schedules: dict[str, Schedule]
    dead_letters: dict[str, DeadLetter]
    seen: dict[str, tuple[int, str]]
    usage: QuotaUsage
    logs: list[LogEntry]
    in_flight: dict[str, tuple[int, Outcome]]
    workflow: object
    waiting_for_slot: tuple[str, ...]


class Engine(State):
    """The data and rules of one queue. Its methods may be called without holding the lock.

    ``publisher`` accepts messages, ``runner`` makes the attempts, ``lifecycle`` creates and
    finishes messages, and ``admission`` determines which attempts may start.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        *,
        perform: Perform,
        sign: Sign,
        keys: SigningKeys,
        new_key: Callable[[], str],
        perform_async: Callable[[Delivery], Awaitable[Outcome]] | None = None,
        name: str = "queue",
        limits: PlanLimits | None = None,
        settings: QueueConfig | None = None,
        lane: Lane = "driven",
    ) -> None:
        super().__init__(
            clock,
            ids,
            name=name,
            limits=limits or PlanLimits(),
            settings=settings or QueueConfig(),
            lane=lane,
        )
        self.keys = keys
        self._new_key = new_key
        self.dead_letters = DeadLetters(self)
        self.history = History(self, self.dead_letters)
        self.queues = OrderedQueues(self)
        self.admission = Admission(self)
        self.lifecycle = Lifecycle(self, self.admission, self.history)
        self.quota = Quota(self)
        self.publisher = Publisher(self, self.lifecycle, self.quota)
        self.schedules = self.publisher.schedules
        self.workflow = WorkflowRuns(self)
        self.runner = AttemptRunner(
            self,
            self.lifecycle,
            self.admission,
            self.dead_letters,
            self.publisher,
            perform=perform,
            perform_async=perform_async,
            sign=sign,
            keys=keys,
            new_key=new_key,
        )

    def twin(self, clock: Timekeeper, ids: Ids) -> Engine:
        """Return an engine with the same rules, signing keys and destinations, and no data.

        The name is the default one. Deliveries are driven and synchronous.
        """
        runner = self.runner
        return Engine(
            clock,
            ids,
            perform=runner.perform,
            sign=runner.signer.sign,
            keys=self.keys,
            new_key=self._new_key,
            limits=self.limits,
            settings=self.settings,
        )

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts of the messages that still exist, oldest first."""
        with self.lock:
            return sorted(
                (attempt for message in self.messages.values() for attempt in message.attempts),
                key=lambda attempt: attempt.sequence,
            )

    def rotate_keys(self) -> SigningKeys:
        with self.lock:
            self.keys.rotate(self._new_key())
            return self.keys

    # -- messages --------------------------------------------------------------------------------
    def message(self, message_id: str) -> Message:
        """Return a message that clients may still read; raise a 404 error otherwise."""
        with self.lock:
            found = self.messages.get(self.groups_of_tasks.get(message_id, [message_id])[0])
            if found is None or found.state == "CANCELED":
                raise not_found("message", message_id)
            end = found.finished_us
            if end is not None and self.clock.now_us() > end + self.settings.message_grace_us:
                raise not_found("message", message_id)
            return found

    def tasks(self, message_id: str) -> list[Message]:
        """Return a message's deliveries (v1 topics have several); raise a 404 error if unknown."""
        with self.lock:
            ids = self.groups_of_tasks.get(message_id)
            if ids is None:
                return [self.message(message_id)]
            return [self.messages[one] for one in ids]

    def cancel(self, message_id: str) -> int:
        """Cancel a message's deliveries and return their number; raise a 404 error at zero."""
        count = self.cancel_pending(message_id)
        if not count:
            raise not_found("message", message_id)
        return count

    def cancel_pending(self, message_id: str) -> int:
        with self.lock:
            ids = self.groups_of_tasks.get(message_id, [message_id])
            return self.lifecycle.cancel_all(
                [self.pending[one] for one in ids if one in self.pending]
            )

    def next_due_us(self) -> int | None:
        """Return the time of the next change of a message, or None. Runs of schedules do not count."""
        with self.lock:
            due = [self.next_planned_us()]
            due += [end for end, _ in self.in_flight.values()]
            due += [
                timer.due_us for timer in self.admission.flow_timers.values() if not timer.cancelled
            ]
            due += [self.pending[one].due_us for one in self.overtaken if one in self.pending]
        return min((one for one in due if one is not None), default=None)

    def close(self) -> None:
        """Stop all attempts and schedules. The data can still be read."""
        with self.lock:
            self.closed = True
            self._cancel_timers()
        self.changed.close()

    def _cancel_timers(self) -> None:
        for timer in [*self.timers.values(), *self.admission.flow_timers.values()]:
            timer.cancel()
        self.timers.clear()
        self.admission.flow_timers.clear()
        for schedule in self.schedules.by_id.values():
            self.schedules.unplan(schedule)

    # -- snapshots -------------------------------------------------------------------------------
    def snapshot(self) -> Saved:
        """Return a copy of all data that later attempts do not change."""
        with self.lock:
            return Saved(
                messages=_copies(self.messages),
                pending=tuple(self.pending),
                groups_of_tasks={name: list(ids) for name, ids in self.groups_of_tasks.items()},
                queues={name: one.copy() for name, one in self.queues.by_name.items()},
                flow=self.flow.copy(),
                url_groups=self.url_groups.copy(),
                schedules={name: one.copy() for name, one in self.schedules.by_id.items()},
                dead_letters=dict(self.dead_letters.rows),
                seen=dict(self.publisher.deduplication.seen),
                usage=replace(self.quota.usage),
                logs=list(self.logs),
                in_flight=dict(self.in_flight),
                workflow=self.workflow.snapshot(),
                waiting_for_slot=tuple(self.waiting_for_slot),
            )

    def restore(self, saved: Saved) -> None:
        """Restore a copy, and start the timers of its messages and schedules.

        A message whose attempt was in progress when the copy was made becomes pending again.
        """
        with self.lock:
            self._cancel_timers()
            self._put_back(saved)
            self.history.restored()
            self.lifecycle.causes.under_way.clear()
            for schedule in self.schedules.by_id.values():
                self.schedules.replan(schedule)
            for message_id, (end_us, _) in self.in_flight.items():
                self.runner.await_end(message_id, end_us)
            for message in self.messages.values():
                if message.due_us is None:
                    continue
                if message.id in self.pending:
                    self.plan_attempt(message, message.due_us)
                elif message.state == "CANCEL_REQUESTED":
                    self.lifecycle.plan_end_of_cancelled(message, message.due_us)
            for key in self.flow.keys.values():
                self.admission.start_waiting_for_flow(key)
            self.admission.start_waiting()
        self.changed.notify()

    def _put_back(self, saved: Saved) -> None:
        self.messages = _copies(saved.messages)
        self.pending = {one: self.messages[one] for one in saved.pending}
        self.groups_of_tasks = {name: list(ids) for name, ids in saved.groups_of_tasks.items()}
        self.queues.by_name = {name: one.copy() for name, one in saved.queues.items()}
        self.flow = saved.flow.copy()
        self.url_groups = saved.url_groups.copy()
        self.schedules.by_id = {name: one.copy() for name, one in saved.schedules.items()}
        self.dead_letters.rows = dict(saved.dead_letters)
        self.publisher.deduplication.seen = dict(saved.seen)
        self.quota.usage = replace(saved.usage)
        self.logs = list(saved.logs)
        self.in_flight = dict(saved.in_flight)
        self.workflow.restore(saved.workflow)
        self.waiting_for_slot = deque(saved.waiting_for_slot)
        self.active = set(self.in_flight)
        self.overtaken = []
        now = self.clock.now_us()
        for message in self.pending.values():
            if message.state == "ACTIVE" and message.id not in self.in_flight:
                message.state = "RETRY"
                message.due_us = now


def _copies(messages: dict[str, Message]) -> dict[str, Message]:
    return {message_id: message.copy() for message_id, message in messages.items()}
