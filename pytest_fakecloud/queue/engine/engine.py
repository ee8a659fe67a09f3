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
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from ...core.timers import Lane
from ..errors import not_found
from ..model import Attempt, Delivery, HeaderPairs, Message, Outcome, Perform, SigningKeys
from ..settings import PlanLimits, QueueConfig
from ..wire.signing import Signer
from ..workflow.runs import WorkflowRuns
from .admission import Admission
from .attempts import AttemptRunner
from .history import DeadLetter, DeadLetters, History
from .lifecycle import Lifecycle
from .ordered_queues import OrderedQueues
from .publishing import Accepted, Publisher
from .quota import Quota
from .state import State, copies


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
        signer: Signer,
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
        self.keys = signer.keys
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
            signer=signer,
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
            signer=runner.signer,
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
            self.keys.rotate(self.runner.signer.new_key())
            return self.keys

    def message(self, message_id: str) -> Message:
        """Return a message that clients may still read; raise a 404 error otherwise."""
        with self.lock:
            found = self.messages.get(self.task_ids(message_id)[0])
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
            ids = self.task_ids(message_id)
            return self.lifecycle.cancel_all(
                [self.pending[one] for one in ids if one in self.pending]
            )

    def retry_dead_letters(
        self, letters: Collection[DeadLetter], headers: HeaderPairs = ()
    ) -> list[Accepted]:
        """Publish the messages of dead letters again, as the publisher does, and delete the letters."""
        with self.lock:
            messages = map(self.dead_letters.message, letters)
            accepted = self.publisher.retry_dead_letters(messages, headers)
            self.dead_letters.delete(letters)
            return accepted

    def next_due_us(self) -> int | None:
        """Return the time of the next change of a message, or None. Runs of schedules do not count."""
        with self.lock:
            due = [self.next_planned_us()]
            due += [end for end, _ in self.in_flight.values()]
            due += [timer.due_us for timer in self.admission.flow_timers.values()]
            delayed = self.runner.overtaking.delayed
            due += [self.pending[one].due_us for one in delayed if one in self.pending]
        return min((one for one in due if one is not None), default=None)

    def close(self) -> None:
        """Stop all attempts and schedules. The data can still be read."""
        with self.lock:
            self.closed = True
            self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer in [*self.timers.values(), *self.admission.flow_timers.values()]:
            timer.cancel()
        self.timers.clear()
        self.admission.flow_timers.clear()
        for schedule in self.schedules.by_id.values():
            self.schedules.unplan(schedule)

    def _data(self) -> list[tuple[object, str, Callable[[Any], Any]]]:
        """Return the attributes that contain data: the object, the name, and the copying function.

        Ids, signing keys and the clock are not part of the data.
        """
        return [
            (self, "messages", copies),
            (self, "groups_of_tasks", copies),
            (self, "logs", list),
            (self, "in_flight", dict),
            (self, "waiting_for_slot", deque),
            (self.flow, "keys", copies),
            (self.url_groups, "by_name", copies),
            (self.queues, "by_name", copies),
            (self.schedules, "by_id", copies),
            (self.dead_letters, "by_id", dict),
            (self.publisher.deduplication, "seen", dict),
            (self.quota, "usage", replace),
            (self.workflow, "runs", copies),
            (self.workflow.events, "waiters", list),
            (self.workflow.events, "notified", dict),
        ]

    def snapshot(self) -> list[Any]:
        """Return copies of all data, which can be restored any number of times."""
        with self.lock:
            return [copy(getattr(owner, name)) for owner, name, copy in self._data()]

    def restore(self, saved: list[Any]) -> None:
        """Restore a copy, and start the timers of its messages and schedules.

        A message whose attempt was in progress when the copy was made becomes pending again.
        """
        with self.lock:
            self._cancel_timers()
            for (owner, name, copy), value in zip(self._data(), saved, strict=True):
                setattr(owner, name, copy(value))
            self.active = set(self.in_flight)
            self.runner.overtaking.delayed.clear()
            self.pending = {
                message.id: message for message in self.messages.values() if message.pending
            }
            for message in self.pending.values():
                if message.state == "ACTIVE" and message.id not in self.in_flight:
                    message.state = "RETRY"
                    message.due_us = self.clock.now_us()
            self.history.restored()
            self.lifecycle.causes.under_way.clear()
            for schedule in self.schedules.by_id.values():
                self.schedules.replan(schedule)
            for message_id, (end_us, _) in self.in_flight.items():
                self.runner.await_end(message_id, end_us)
            for message in self.messages.values():
                if message.due_us is None:
                    continue
                if message.pending:
                    self.plan_attempt(message, message.due_us)
                elif message.state == "CANCEL_REQUESTED":
                    self.lifecycle.plan_end_of_cancelled(message, message.due_us)
            for key in self.flow.keys.values():
                self.admission.start_waiting_for_flow(key)
            self.admission.start_waiting()
