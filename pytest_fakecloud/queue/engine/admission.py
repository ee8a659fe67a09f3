"""The admission of attempts, which depends on ordered queues (``queues``), flow control
and global parallelism (``flow_control``).

A message that may not start loses its due time and waits in exactly one list. When there is room,
it is scheduled again. Flow control and global parallelism are granted together. Otherwise, two
messages that each held one of them would pass them back and forth endlessly.
"""

from __future__ import annotations

from collections import deque

from ..model import Message
from .data import QueueData
from .flow_control import FlowKeys
from .planning import Planning
from .queues import Queues


class Admission:
    """Decides which due messages may start. Messages of ordered queues have been admitted by their queue
    before they are due.
    """

    def __init__(
        self, data: QueueData, planning: Planning, queues: Queues, flow_control: FlowKeys
    ) -> None:
        self._data = data
        self._planning = planning
        self._queues = queues
        self._flow_control = flow_control

    def admit_or_wait(self, message: Message, now: int) -> bool:
        """Return whether an attempt may start now; if not, add the message to a wait list."""
        if self._park_if_paused(message) or self._give_way(message, now):
            return False
        key = self._flow_control.of(message)
        has_room = message.id in self._flow_control.slots or self._flow_control.has_room()
        if key is None:
            if not has_room:
                self._wait(
                    message, self._flow_control.waiting_for_slot, self._flow_control.slot_reason
                )
            return has_room
        if message.id in key.active:
            # The message was admitted earlier and has counted globally since then.
            return True
        if has_room and not key.waiting and key.open(now):
            key.start(message.id)
            return True
        only_global = key.open(now) and not has_room
        reason = self._flow_control.slot_reason if only_global else f"flow control {key.key}"
        self._wait(message, key.waiting, reason)
        self._flow_control.release_slot(message)
        self._flow_control.start_waiting(key)
        return False

    def _park_if_paused(self, message: Message) -> bool:
        """Hold a message in its queue if the queue is paused; return whether it is."""
        queue = self._queues.of(message)
        if queue is None or not queue.paused:
            return False
        message.due_us = None
        self._flow_control.release(message)
        if message.id not in queue.parked:
            queue.parked.append(message.id)
        return True

    def _give_way(self, message: Message, now: int) -> bool:
        """Let an earlier message of the same queue and flow-control key start first; return if one can.

        Pauses and limits may make messages due in another order than the order of their queue.
        """
        if message.queue_name is None or message.attempts:
            return False
        key = self._flow_control.of(message)
        has_slot = message.id in (self._flow_control.slots if key is None else key.active)
        wait_list = self._flow_control.waiting_for_slot if key is None else key.waiting
        for earlier in self._queues.not_started_before(message):
            if self._flow_control.of(earlier) is not key:
                continue
            if earlier.due_us is not None:
                if earlier.due_us <= now and earlier.id in self._planning.timers:
                    self._planning.plan(message, now, message.wait_reason)
                    return True
            elif has_slot and earlier.id in wait_list:
                self._exchange_slot(message, earlier, wait_list, now)
                return True
        return False

    def _exchange_slot(
        self, message: Message, earlier: Message, wait_list: deque[str], now: int
    ) -> None:
        """Give the slots of a message to an earlier one, and its place in the wait list in return."""
        key = self._flow_control.of(message)
        wait_list[wait_list.index(earlier.id)] = message.id
        message.due_us = None
        message.wait_reason = earlier.wait_reason
        if key is not None:
            key.active[earlier.id] = key.active.pop(message.id)
        if message.id in self._flow_control.slots:
            self._flow_control.slots.remove(message.id)
            self._flow_control.slots.add(earlier.id)
        self._planning.plan(earlier, now, earlier.wait_reason)

    def _wait(self, message: Message, wait_list: deque[str], reason: str) -> None:
        message.due_us = None
        message.wait_reason = reason
        wait_list.append(message.id)
