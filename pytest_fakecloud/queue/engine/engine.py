"""The queue's state machine, without HTTP and threads. Timers of the clock trigger all changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.clock import Timekeeper
from ...core.ids import Ids
from ...core.timers import weakly
from ..model import FlowKey, Message, OrderedQueue, Outcome, Perform, SigningKeys
from ..workflow.continuations import Continuations
from ..workflow.event_waits import EventWaits
from ..workflow.model import EventWait, WorkflowRun
from ..workflow.runs import WorkflowRuns
from .admission import Admission
from .attempts import AttemptStarter
from .bulk_actions import BulkAction, BulkActions
from .causes import Causes
from .data import QueueData, copies
from .dead_letters import DeadLetters
from .deduplication import Deduplication
from .deliveries import Deliveries
from .flow_control import FlowKeys
from .history import History
from .interceptors import Interceptors
from .lifecycle import Lifecycle
from .outcomes import Outcomes
from .overtaking import Overtaking
from .planning import Planning
from .publishing import Publisher
from .queues import Queues
from .quota import Quota
from .schedules import MessageSchedule, Schedules
from .url_groups import UrlGroup, UrlGroups


class QueueCopy(NamedTuple):
    """A copy of all data of an engine."""

    messages: dict[str, Message]
    groups_of_tasks: dict[str, list[str]]
    answered: dict[str, tuple[int, Outcome]]
    waiting_for_slot: deque[str]
    flow_keys: dict[str, FlowKey]
    url_groups: dict[str, UrlGroup]
    queues: dict[str, OrderedQueue]
    schedules: dict[str, MessageSchedule]
    dead_letters: dict[str, str]
    deduplicated: dict[str, tuple[int, str]]
    usage: dict[int, tuple[int, int]]
    bulk_actions: dict[str, BulkAction]
    runs: dict[str, WorkflowRun]
    waiters: list[EventWait]
    notified: dict[tuple[str, str], bytes]
    sequence: int
    dead_letter_count: int


class Engine:
    """The data and rules of one queue: its parts, each of which is given the parts that it calls.

    A part calls only those above it in ``__init__()``, with three exceptions, which are connected there:
    timers make attempts, and schedules and the results of workflow runs are published.

    Each part has the name of its module. What endpoints change is in the part with the name of their
    module in ``queue/rest``, so that one finds it from the endpoint: ``queues``, ``flow_control``,
    ``url_groups``, ``schedules``, ``dead_letters``, ``bulk_actions``, ``keys`` (``queue/model.py``), and
    for workflows ``workflow``, ``event_waits`` and ``continuations`` (``queue/workflow``). Endpoints
    about messages call ``publisher``, ``lifecycle`` to cancel messages, ``deliveries`` to retry them,
    ``history`` for logs, and ``data`` to read them.

    An endpoint has the lock, unless it lingers (`QueueApp.run_endpoint()`); timers and the actions and
    views of tests take it. It is re-entrant: methods that other threads may call without it take it
    themselves, and all others require it.

    ``perform`` makes the request of a delivery. ``inspected`` is set when a test inspects messages.
    ``options`` are those of ``QueueData``.
    """

    def __init__(
        self, clock: Timekeeper, ids: Ids, *, perform: Perform, keys: SigningKeys, **options: Any
    ) -> None:
        self.perform = perform
        self.keys = keys
        self.inspected = False
        self.owner: Any = None
        """The fake whose data this is, for the actions of views; None for an engine alone."""
        self.data = data = QueueData(clock, ids, **options)
        self.clock, self.lock = data.clock, data.lock
        # What limits deliveries, and lets messages wait:
        self.planning = planning = Planning(data)
        self.queues = queues = Queues(data, planning)
        self.flow_control = flow_control = FlowKeys(data, planning)
        self.admission = admission = Admission(data, planning, queues, flow_control)
        # What messages belong to:
        self.causes = causes = Causes(data)
        self.url_groups = url_groups = UrlGroups(data)
        self.schedules = schedules = Schedules(data)
        self.dead_letters = dead_letters = DeadLetters(data)
        self.workflow = workflow = WorkflowRuns(data)
        # The life of messages:
        self.history = history = History(data, flow_control, dead_letters, workflow)
        self.lifecycle = lifecycle = Lifecycle(
            data, planning, queues, flow_control, causes, workflow, history
        )
        self.bulk_actions = BulkActions(data, lifecycle, workflow)
        self.quota = quota = Quota(data.settings, clock)
        self.deduplication = deduplication = Deduplication(data)
        self.publisher = publisher = Publisher(
            data, lifecycle, queues, url_groups, schedules, dead_letters, workflow, quota, deduplication
        )  # fmt: skip
        self.event_waits = EventWaits(data, planning, workflow, publisher)
        self.continuations = Continuations(data, dead_letters, workflow, lifecycle, publisher)
        # Deliveries:
        self.interceptors = interceptors = Interceptors(perform)
        self.overtaking = overtaking = Overtaking(data, planning, queues, flow_control)
        self.attempts = attempts = AttemptStarter(
            data, planning, queues, flow_control, admission, causes, workflow,
            overtaking, interceptors,
        )  # fmt: skip
        self.outcomes = outcomes = Outcomes(
            data, planning, flow_control, dead_letters, workflow, lifecycle, publisher,
            interceptors,
        )  # fmt: skip
        self.deliveries = deliveries = Deliveries(
            data, planning, workflow, lifecycle, overtaking, attempts, outcomes, interceptors
        )
        planning.connect(deliveries.run, deliveries.run_async, deliveries.start)
        schedules.connect(weakly(publisher.publish_run))
        workflow.connect(weakly(publisher.publish))

    def twin(self, clock: Timekeeper, ids: Ids) -> Engine:
        """Return a driven engine with the same rules, signing keys and destinations, and no data."""
        return Engine(clock, ids, perform=self.perform, keys=self.keys, settings=self.data.settings)

    def next_due_us(self) -> int | None:
        """Return the time of the next change of a message, or None. Runs of schedules do not count."""
        with self.data.lock:
            due = [self.planning.next_planned_us()]
            due += [end for end, _ in self.data.answered.values()]
            due += [timer.due_us for timer in self.flow_control.timers.values()]
            due += self.overtaking.due_times()
        return min((due_us for due_us in due if due_us is not None), default=None)

    def close(self) -> None:
        with self.data.lock:
            self.data.closed = True
            self._cancel_timers()
            self.planning.close()
            self.deliveries.close()

    def _cancel_timers(self) -> None:
        self.planning.unplan_all()
        self.flow_control.unplan()
        for schedule in self.schedules.by_id.values():
            self.schedules.unplan(schedule)
        self.bulk_actions.unplan()

    def _containers(self) -> dict[str, tuple[object, str, Callable[[Any], Any]]]:
        """Return the place of each field of a ``QueueCopy``: the object, its attribute, and the
        function that copies it.
        """
        return {
            "messages": (self.data, "messages", copies),
            "groups_of_tasks": (self.data, "groups_of_tasks", copies),
            "answered": (self.data, "answered", dict),
            "waiting_for_slot": (self.flow_control, "waiting_for_slot", deque),
            "flow_keys": (self.flow_control, "by_name", copies),
            "url_groups": (self.url_groups, "by_name", copies),
            "queues": (self.queues, "by_name", copies),
            "schedules": (self.schedules, "by_id", copies),
            "dead_letters": (self.dead_letters, "by_id", dict),
            "deduplicated": (self.deduplication, "keys", dict),
            "usage": (self.quota, "usage", dict),
            "bulk_actions": (self.bulk_actions, "by_id", dict),
            "runs": (self.workflow, "runs", copies),
            "waiters": (self.workflow, "waiters", list),
            "notified": (self.workflow, "notified", dict),
        }

    def snapshot(self) -> QueueCopy:
        """Return a copy of all data, which can be restored any number of times."""
        with self.data.lock:
            return QueueCopy(
                sequence=self.data.sequence,
                dead_letter_count=self.dead_letters.count,
                **{
                    field: copy(getattr(owner, attribute))
                    for field, (owner, attribute, copy) in self._containers().items()
                },
            )

    def restore(self, saved: QueueCopy) -> None:
        """Restore a copy, and start the timers of its messages and schedules.

        A message whose attempt was in progress when the copy was made becomes pending again.
        """
        with self.data.lock:
            try:
                self._restore(saved)
            except BaseException:
                # A signal's handler may have interrupted it, and messages would have no timers.
                self._restore(saved)
                raise

    def restore_numbers(self, saved: QueueCopy) -> None:
        """Give numbers again that were given since a copy was made, and that nothing has any more."""
        with self.data.lock:
            self.data.sequence, self.dead_letters.count = saved.sequence, saved.dead_letter_count

    def _restore(self, saved: QueueCopy) -> None:
        with self.data.lock:
            self._cancel_timers()
            for field, (owner, attribute, copy) in self._containers().items():
                setattr(owner, attribute, copy(getattr(saved, field)))
            # Numbers are never given twice, also after an earlier state is restored.
            self.data.sequence = max(self.data.sequence, saved.sequence)
            self.dead_letters.count = max(self.dead_letters.count, saved.dead_letter_count)
            self.flow_control.slots = set(self.data.answered)
            self.overtaking.delayed.clear()
            self.data.pending = {
                message.id: message for message in self.data.messages.values() if message.pending
            }
            for message in self.data.pending.values():
                if message.state == "ACTIVE" and message.id not in self.data.answered:
                    message.state = "RETRY"
                    message.due_us = self.data.clock.now_us()
            self.history.note_all()
            self.data.under_way.clear()
            for schedule in self.schedules.by_id.values():
                self.schedules.replan(schedule)
            self.bulk_actions.replan()
            for message_id, (end_us, _) in self.data.answered.items():
                self.outcomes.await_end(message_id, end_us)
            for message in self.data.messages.values():
                if message.due_us is None:
                    continue
                if message.pending:
                    self.planning.plan(message, message.due_us, message.wait_reason)
                elif message.state == "CANCEL_REQUESTED":
                    self.lifecycle.plan_end_of_cancelled(message, message.due_us)
            self.flow_control.replan()
            self.flow_control.start_all_waiting()
