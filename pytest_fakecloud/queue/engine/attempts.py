"""The start of attempts, when the timers of messages fire."""

from __future__ import annotations

from ..errors import LoopError
from ..model import Attempt, Exchange, FaultDecisions, Message
from ..wire.values import as_text, delivery_of
from ..workflow.runs import WorkflowRuns
from .admission import Admission
from .causes import Causes, causing
from .data import QueueData
from .flow_control import FlowKeys
from .interceptors import Interceptors
from .overtaking import Overtaking
from .planning import Planning
from .queues import Queues


class AttemptStarter:
    """Starts the attempts of due messages."""

    def __init__(
        self,
        data: QueueData,
        planning: Planning,
        queues: Queues,
        flow_control: FlowKeys,
        admission: Admission,
        causes: Causes,
        workflow: WorkflowRuns,
        overtaking: Overtaking,
        interceptors: Interceptors,
    ) -> None:
        self._data = data
        self._planning = planning
        self._queues = queues
        self._flow_control = flow_control
        self._admission = admission
        self._causes = causes
        self._workflow = workflow
        self._overtaking = overtaking
        self._interceptors = interceptors
        self._reported_loop: int | None = None
        """The span of the last endless loop in the background that was reported."""

    def begin(self, message_id: str) -> Exchange | None:
        """Start the due attempt; return None if it may not start now.

        An attempt may not start while its queue or flow-control key is paused or full. It is
        scheduled again when there is room. Raises ``LoopError`` if messages publish each other
        endlessly; the message then stays pending.
        """
        faults = []
        for decisions in self._interceptors.faults.items:
            if decisions.active:
                if self._overtaking.delay_if_overtaken(decisions, message_id):
                    return None
                faults.append(decisions)
        with self._data.lock:
            message = self._data.pending.get(message_id)
            if message is None or message.state == "ACTIVE" or self._data.closed:
                return None
            now = self._data.clock.now_us()
            if message.due_us is not None and message.due_us > now:
                return None  # An interrupted attempt's timer was planned again.
            self._planning.timers.pop(message_id, None)
            settings = message.settings
            is_limited = (
                message.queue_name is not None
                or settings.flow is not None
                or self._data.limits.parallelism is not None
            )
            if is_limited and not self._admission.admit_or_wait(message, now):
                return None
            loop = self._causes.endless_loop(message, now)
            if loop is not None:
                self._cut_loop(message, now, loop)
                return None
            sequence = self._data.next_sequence()
            attempt = Attempt(
                message.id, as_text(message.url), message.kind, len(message.attempts) + 1, sequence,
                now, now - message.waiting_since_us, message.wait_reason,
            )  # fmt: skip
            entry = self._data.log_entry(message, "ACTIVE", now)
            # These statements call no function, so a signal's handler cannot raise between them.
            message.log += [entry]
            message.attempts += [attempt]
            message.state = "ACTIVE"
            message.due_us = None
            self._flow_control.slots.add(message.id)
            queue = self._queues.of(message)
            if queue is not None and message.id in queue.active:
                queue.active.move_to_end(message.id)
            self._data.under_way[message.id] = message
            body = message.body
            if message.workflow is not None:
                body = self._workflow.delivery_body(message, now)
            prefix, region = self._data.settings.header_prefix, self._data.settings.region
            delivery = delivery_of(message, body, prefix=prefix, region=region)
            exchange = Exchange(message, attempt, delivery)
        if faults:
            self._claim(faults, exchange)
        return exchange

    def _claim(self, faults: list[FaultDecisions], exchange: Exchange) -> None:
        """Claim the faults of an attempt now, in the order of due times. Attempts end in any order."""
        token = causing.set(exchange.message)
        try:
            for decisions in faults:
                exchange.attempt.faults += decisions.before(exchange.message, exchange.delivery)
        except BaseException as error:
            exchange.error = error
        finally:
            causing.reset(token)

    def _cut_loop(self, message: Message, now: int, loop: str) -> None:
        self._flow_control.release(message)
        message.depth = message.chain = 0
        message.causes = frozenset()
        if self._data.in_background:
            # Report instead of raising in the background, where no caller could catch it.
            message.due_us = None
            message.wait_reason = "stopped in an endless loop; cancel it or publish it again"
            if self._reported_loop != self._causes.span:
                # Report the first of the messages of a loop, which may be many.
                self._reported_loop = self._causes.span
                self._data.report("unmet", loop)
            return
        self._planning.plan(message, now, message.wait_reason)
        raise LoopError(loop)
