"""The data and the parts of one queue with their timers, and the admission of attempts.

Admission depends on ordered queues (``queues``), flow control (``flow_control``) and global parallelism.

A message that may not start loses its due time and waits in exactly one list. When there is room,
it is scheduled again. Flow control and global parallelism are granted together. Otherwise, two
messages that each held one of them would pass them back and forth endlessly.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

from ...core.clock import Timekeeper
from ...core.ids import Ids
from ..model import FlowKey, Message
from ..workflow.runs import WorkflowRuns
from .bulk_actions import BulkActions
from .data import QueueData
from .dead_letters import DeadLetters
from .flow_control import FlowKeys
from .planning import Planning
from .queues import Queues
from .quota import Quota
from .schedules import Schedules
from .url_groups import UrlGroups


class Admission:
    """The first layer of an engine: its data and its parts, and which due messages
    may start.

    ``active`` are the ids of messages that count towards the global parallelism limit, and
    ``waiting_for_slot`` the ids of messages that wait for it. ``inspected`` is set when a test
    inspects messages. Messages of ordered queues have been admitted by their queue before they
    are due. Each method that releases a slot starts the messages that wait for it.
    """

    def __init__(self, clock: Timekeeper, ids: Ids, **options: Any) -> None:
        self.data = QueueData(clock, ids, **options)
        self.clock, self.lock = self.data.clock, self.data.lock
        self.settings, self.limits = self.data.settings, self.data.limits
        self.active: set[str] = set()
        self.waiting_for_slot: deque[str] = deque()
        self.planning = Planning(self.data)
        self.inspected = False
        self.owner: Any = None
        """The fake whose data this is, for the actions of views; None for an engine alone."""
        # The parts refer to the engine weakly, without a circle of references (see ``cloud.base``).
        engine = weakref.proxy(self)
        self.queues = Queues(engine)
        self.flow_control = FlowKeys(engine)
        self.url_groups = UrlGroups(self.data)
        self.schedules = Schedules(engine)
        self.dead_letters = DeadLetters(engine)
        self.bulk_actions = BulkActions(engine)
        self.workflow = WorkflowRuns(engine)
        self.quota = Quota(self.settings, clock)

    # -- admission ---------------------------------------------------------------------------------

    def admit_or_wait(self, message: Message, now: int) -> bool:
        """Return whether an attempt may start now; if not, add the message to a wait list."""
        if self._park_if_paused(message) or self._give_way(message, now):
            return False
        key = self.flow_control.of(message)
        has_room = message.id in self.active or self.has_room()
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
        self.flow_control.start_waiting(key)
        return False

    def _park_if_paused(self, message: Message) -> bool:
        """Hold a message in its queue if the queue is paused; return whether it is."""
        queue = self.queues.of(message)
        if queue is None or not queue.paused:
            return False
        message.due_us = None
        self.flow_control.release(message)
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
        key = self.flow_control.of(message)
        has_slot = message.id in (self.active if key is None else key.active)
        wait_list = self.waiting_for_slot if key is None else key.waiting
        for earlier in self.queues.not_started_before(message):
            if self.flow_control.of(earlier) is not key:
                continue
            if earlier.due_us is not None:
                if earlier.due_us <= now and earlier.id in self.planning.timers:
                    self.planning.plan(message, now, message.wait_reason)
                    return True
            elif has_slot and earlier.id in wait_list:
                self._exchange_slot(message, earlier, wait_list, now)
                return True
        return False

    def _exchange_slot(
        self, message: Message, earlier: Message, wait_list: deque[str], now: int
    ) -> None:
        """Give the slots of a message to an earlier one, and its place in the wait list in return."""
        key = self.flow_control.of(message)
        wait_list[wait_list.index(earlier.id)] = message.id
        message.due_us = None
        message.wait_reason = earlier.wait_reason
        if key is not None:
            key.active[earlier.id] = key.active.pop(message.id)
        if message.id in self.active:
            self.active.remove(message.id)
            self.active.add(earlier.id)
        self.planning.plan(earlier, now, earlier.wait_reason)

    def _wait(self, message: Message, wait_list: deque[str], reason: str) -> None:
        message.due_us = None
        message.wait_reason = reason
        wait_list.append(message.id)

    def _global_limit(self) -> str:
        return f"global parallelism {self.data.limits.parallelism}"

    def release_global_slot(self, message: Message) -> None:
        if message.id in self.active:
            self.active.discard(message.id)
            self.start_waiting()

    def start_waiting(self) -> None:
        """Start the messages that wait for global parallelism while there is room."""
        if self.data.limits.parallelism is None:
            return
        now = self.data.clock.now_us()
        while self.has_room() and (message := self._take_oldest_waiting(now)) is not None:
            self.start_admitted(message, self.flow_control.of(message), now)

    def _take_oldest_waiting(self, now: int) -> Message | None:
        """Remove the oldest message that could start from its wait list and return it, or None."""
        wait_lists = [self.waiting_for_slot]
        wait_lists += [
            key.waiting
            for key in self.flow_control.by_name.values()
            if key.waiting and key.open(now)
        ]
        for wait_list in wait_lists:
            # Skip cancelled messages, which are not removed from their wait lists.
            while wait_list and wait_list[0] not in self.data.pending:
                wait_list.popleft()
        heads = [
            (self.data.messages[wait_list[0]], wait_list) for wait_list in wait_lists if wait_list
        ]
        if not heads:
            return None
        message, wait_list = min(heads, key=lambda head: head[0].number)
        wait_list.popleft()
        return message

    def has_room(self) -> bool:
        most = self.data.limits.parallelism
        return most is None or len(self.active) < most

    def start_admitted(self, message: Message, key: FlowKey | None, now: int) -> None:
        """Make a message due that has waited, and count it towards its limits."""
        if key is not None:
            key.start(message.id)
        if self.data.limits.parallelism is not None:
            # Count the message now, so that no other message takes the slot before this one starts.
            self.active.add(message.id)
        self.planning.plan(message, now, message.wait_reason)
