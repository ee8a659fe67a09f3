"""Waits of workflow runs for events, and the notifications that end them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import bad_request
from ..model import DAY, SECOND, HeaderList
from ..wire.values import (
    as_wire,
    encoded,
    first_setting,
    header_map,
    read_duration,
    read_integer,
    unprefixed,
)
from .model import EventWait
from .runs import WorkflowRuns, check_step, identity_of, wire_pairs, with_run_id

if TYPE_CHECKING:
    from ..engine.data import QueueData
    from ..engine.planning import Planning
    from ..engine.publishing import Publisher

_DEFAULT_TIMEOUT_US = 7 * DAY
_DELAYS = ("delay", "not-before", "notbefore")


class EventWaits:
    """Lets workflow runs wait for events, and notifies them.

    A wait publishes a step, whose delay is the timeout. A notification makes it due. The waits are
    part of ``workflow``, because they end with their runs.
    """

    def __init__(
        self, data: QueueData, planning: Planning, workflow: WorkflowRuns, publisher: Publisher
    ) -> None:
        self._data = data
        self._planning = planning
        self._workflow = workflow
        self._publisher = publisher

    def waiters_for(self, event_id: str) -> list[EventWait]:
        return [waiter for waiter in self._workflow.waiters if waiter.event_id == event_id]

    def waiter_record(self, waiter: EventWait) -> dict[str, Any]:
        return waiter.record(self._workflow.get(waiter.run_id).settings.redaction)

    def wait_for_event(
        self, event_id: str, request: dict[str, Any], headers: HeaderList
    ) -> EventWait:
        """Make a run wait for an event; raise a 404 error for an unknown run."""
        run_id = first_setting(headers, "workflow-runid") or ""
        self._workflow.get_live(run_id)
        step = request.get("step")
        url = request.get("timeoutUrl") or request.get("url")
        if not isinstance(step, dict) or not isinstance(url, str):
            raise bad_request("invalid body: a wait needs a url and a step")
        timeout_us = _timeout_us(request.get("timeout"))
        timeout_headers = request.get("timeoutHeaders")
        pairs = wire_pairs(timeout_headers) if isinstance(timeout_headers, dict) else []
        # The timeout delays the wait's message instead of its own delay.
        pairs = [pair for pair in pairs if unprefixed(pair[0]) not in _DELAYS]
        pairs.append(("Upstash-Delay", f"{timeout_us}us"))
        pairs = with_run_id(pairs, run_id)
        check_step(as_wire(url), pairs)
        timed_out = {**step, "waitEventId": event_id, "waitTimeout": True}
        now = self._data.clock.now_us()
        body = json.dumps(timed_out).encode()
        message_id = self._publisher.publish(as_wire(url), pairs, body).accepted[0].message_id
        deadline = now + timeout_us
        # A duplicate by deduplication id may repeat a message that has finished.
        message = self._data.pending.get(message_id)
        if message is not None:
            message.wait_timeout_us, message.wait_deadline_us = timeout_us, deadline
        waiter = EventWait(event_id, run_id, message_id, deadline, request, header_map(headers))
        self._workflow.waiters.append(waiter)
        early = self._workflow.notified.pop((run_id, event_id), None)
        if early is not None:
            self._wake(waiter, early)
        return waiter

    def notify(self, event_id: str, data: bytes) -> list[dict[str, Any]]:
        """Notify the runs that wait for an event."""
        return [self._notify(waiter, data) for waiter in self.waiters_for(event_id)]

    def notify_run(self, run_id: str, event_id: str, data: bytes) -> dict[str, Any]:
        """Notify one run; raise a 404 error for an unknown run.

        If it does not wait for the event yet, its next wait for the event ends immediately.
        """
        run = self._workflow.get_live(run_id)
        waiters = [waiter for waiter in self.waiters_for(event_id) if waiter.run_id == run_id]
        responses = [self._notify(waiter, data) for waiter in waiters]
        if responses:
            return responses[0]
        if self._data.settings.event_lookback:
            self._workflow.notified[run_id, event_id] = data
        return {"messageId": "", "error": "", **identity_of(run)}

    def _notify(self, waiter: EventWait, data: bytes) -> dict[str, Any]:
        self._wake(waiter, data)
        return {
            "waiter": self.waiter_record(waiter),
            "messageId": waiter.message_id,
            "error": "",
            **identity_of(self._workflow.get(waiter.run_id)),
        }

    def _wake(self, waiter: EventWait, data: bytes) -> None:
        """Deliver the wait's message now, unless it has been cancelled."""
        self._workflow.drop_wait(waiter.message_id)
        message = self._data.pending.get(waiter.message_id)
        if message is None:
            return
        now = self._data.clock.now_us()
        step = {
            **waiter.request["step"],
            "waitEventId": waiter.event_id,
            "waitTimeout": False,
            "out": encoded(data),
        }
        message.body = json.dumps(step).encode()
        message.not_before_us = now
        if message.due_us is not None:
            self._planning.plan(message, now, f"notified of {waiter.event_id}")


def _timeout_us(value: object) -> int:
    if value is None or value == "":
        return _DEFAULT_TIMEOUT_US
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise bad_request(f"invalid timeout: {value!r}, expected seconds or a duration such as 1h")
    if isinstance(value, str) and not value.isdecimal():
        return read_duration(value, "timeout")
    # Round to seconds, the unit of the delay header.
    seconds = f"{value:.0f}" if isinstance(value, float) else str(value)
    return read_integer(seconds, "timeout") * SECOND
