"""Steps that the queue publishes itself: waits for events, and results of invoked runs.

A run that is started with ``Upstash-Workflow-Invoke: true`` has an invoker, another run that waits
for its result. When the run ends, the result is published as a step of the invoker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import QueueError, bad_request
from ..model import DAY, SECOND, HeaderList, RejectedStep
from ..wire.delivery import encoded
from ..wire.headers import read_given
from ..wire.text import as_text, as_wire, first_setting, header_map, json_headers, unprefixed
from ..wire.values import check_url, read_duration, read_integer, read_json
from .model import Invoker, Waiter, WorkflowRun

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from .runs import WorkflowRuns


_DEFAULT_TIMEOUT_US = 7 * DAY
_DELAYS = ("delay", "not-before", "notbefore")


def with_run_id(pairs: HeaderList, run_id: str) -> HeaderList:
    """Return headers with the id of a run, unless they have one already."""
    if first_setting(pairs, "workflow-runid") is not None:
        return pairs
    return [*pairs, ("Upstash-Workflow-RunId", run_id)]


def wire_pairs(headers: dict[str, Any]) -> HeaderList:
    """Return the headers in a JSON body. Of names that differ in case, the first counts."""
    spellings: dict[str, Any] = {}
    for name in headers:
        spellings.setdefault(str(name).lower(), name)
    return json_headers({name: headers[name] for name in spellings.values()})


def check_step(url: str, pairs: HeaderList) -> None:
    """Raise a 400 error for a URL group and for a schedule, which cannot be a step of a run."""
    check_url(url, "workflow")
    if "cron" in read_given(pairs):
        raise bad_request("invalid headers: a step of a workflow run cannot be scheduled")


class RunEvents:
    """The waits of runs for events, and notifications for which no run has waited yet.

    The engine's lock must be held for every method.
    """

    def __init__(self, runs: WorkflowRuns) -> None:
        self._runs = runs
        self.waiters: list[Waiter] = []
        self.notified: dict[tuple[str, str], bytes] = {}

    def of(self, event_id: str) -> list[Waiter]:
        return [waiter for waiter in self.waiters if waiter.event_id == event_id]

    def record(self, waiter: Waiter) -> dict[str, Any]:
        """Return a waiter as the API represents it."""
        return waiter.record(self._runs.get(waiter.run_id).settings.redaction)

    def wait(self, event_id: str, request: dict[str, Any], headers: HeaderList) -> Waiter:
        """Make a run wait for an event; raise a 404 error for an unknown run."""
        run_id = first_setting(headers, "workflow-runid") or ""
        self._runs.get_live(run_id)
        step = request.get("step")
        url = request.get("timeoutUrl") or request.get("url")
        if not isinstance(step, dict) or not isinstance(url, str):
            raise bad_request("invalid body: a wait needs a url and a step")
        timeout_us = _timeout_us(request.get("timeout"))
        pairs = with_run_id(_timeout_headers(request.get("timeoutHeaders"), timeout_us), run_id)
        check_step(as_wire(url), pairs)
        timed_out = {**step, "waitEventId": event_id, "waitTimeout": True}
        now = self._runs.engine.clock.now_us()
        published = self._runs.engine.publisher.publish(
            as_wire(url), pairs, json.dumps(timed_out).encode(), counted=False
        )
        message_id, deadline = published.accepted[0].message_id, now + timeout_us
        # A duplicate by deduplication id may repeat a message that has finished.
        message = self._runs.engine.pending.get(message_id)
        if message is not None:
            message.wait_timeout_us, message.wait_deadline_us = timeout_us, deadline
        waiter = Waiter(event_id, run_id, message_id, deadline, request, header_map(headers))
        self.waiters.append(waiter)
        early = self.notified.pop((run_id, event_id), None)
        if early is not None:
            self._wake(waiter, early)
        return waiter

    def notify(self, event_id: str, data: bytes, run_id: str | None = None) -> list[dict[str, Any]]:
        """Notify the runs that wait for an event.

        With a run id, only that run is notified. If it does not wait yet, its next wait for the
        event ends immediately.
        """
        woken = [
            waiter for waiter in self.of(event_id) if run_id is None or waiter.run_id == run_id
        ]
        for waiter in woken:
            self._wake(waiter, data)
        if run_id is not None and not woken:
            self._runs.get_live(run_id)
            self.notified[run_id, event_id] = data
        return [
            {"waiter": self.record(waiter), "messageId": waiter.message_id, "error": ""}
            for waiter in woken
        ]

    def _wake(self, waiter: Waiter, data: bytes) -> None:
        """Deliver the wait's message now, unless it has been cancelled."""
        self.drop(waiter.message_id)
        message = self._runs.engine.pending.get(waiter.message_id)
        if message is None:
            return
        now = self._runs.engine.clock.now_us()
        step = {
            **waiter.request["step"],
            "waitEventId": waiter.event_id,
            "waitTimeout": False,
            "out": encoded(data),
        }
        message.body = json.dumps(step).encode()
        message.not_before_us = now
        if message.due_us is not None:
            self._runs.engine.plan(message, now, f"notified of {waiter.event_id}")

    def drop(self, message_id: str) -> None:
        self.waiters = [waiter for waiter in self.waiters if waiter.message_id != message_id]

    def release(self, run_id: str) -> None:
        """Forget the waits of a run, and the notifications that it has not waited for yet."""
        self.waiters = [waiter for waiter in self.waiters if waiter.run_id != run_id]
        self.notified = {key: data for key, data in self.notified.items() if key[0] != run_id}


def _timeout_headers(given: object, timeout_us: int) -> HeaderList:
    """Return the headers of a wait's message, which the timeout delays instead of their own delay."""
    pairs = wire_pairs(given) if isinstance(given, dict) else []
    kept = [pair for pair in pairs if unprefixed(pair[0]) not in _DELAYS]
    return [*kept, ("Upstash-Delay", f"{timeout_us // SECOND}s")]


def _timeout_us(value: object) -> int:
    if value is None or value == "":
        return _DEFAULT_TIMEOUT_US
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise bad_request(f"invalid timeout: {value!r}, expected seconds or a duration such as 1h")
    if isinstance(value, str) and not value.isdecimal():
        return read_duration(value, "timeout")
    # Round to seconds, the unit of the delay header.
    seconds = value if isinstance(value, str) else f"{value:.0f}"
    return read_integer(seconds, "timeout") * SECOND


def read_invocation(body: bytes) -> tuple[Invoker, bytes]:
    """Return the invoker and the first body of a run; raise a 400 error if the body has none."""
    try:
        invocation = read_json(body)
        inner = invocation.get("body")
        invoker = Invoker(
            str(invocation["workflowRunId"]),
            as_wire(str(invocation["workflowUrl"])),
            int(invocation.get("workflowRunCreatedAt") or 0),
            dict(invocation.get("headers") or {}),
            dict(invocation["step"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise bad_request("invalid body: expected the invocation of a workflow") from None
    # Check the headers now, because no request can be rejected when the run ends.
    check_step(invoker.url, wire_pairs(invoker.headers))
    text = inner if isinstance(inner, str) else ""
    return invoker, text.encode("utf-8", "surrogatepass")


def publish_result(engine: Engine, run: WorkflowRun, invoker: Invoker) -> None:
    """Publish the result of a finished run as a step of its invoker."""
    result = {
        "body": (run.response or b"").decode("utf-8", "replace"),
        "isFailed": run.state == "RUN_FAILED",
        "isCanceled": run.state == "RUN_CANCELED",
    }
    step = {**invoker.step, "out": json.dumps(result)}
    try:
        pairs = with_run_id(wire_pairs(invoker.headers), invoker.run_id)
        published = engine.publisher.publish(
            invoker.url, pairs, json.dumps(step).encode(), counted=False
        )
        # A duplicate by deduplication id may repeat a message that has finished.
        message = engine.pending.get(published.accepted[0].message_id)
        if message is not None:
            message.invoked_run_id = run.id
    except QueueError as error:
        # Record the error in the timeline of this run, which finishes regardless.
        started = engine.messages.get(run.first_message_id)
        if started is not None:
            started.lost_callbacks += (error.message,)
        rejected = RejectedStep(
            as_text(invoker.run_id), as_text(invoker.url), error.status, error.message
        )
        engine.attempt_hooks.rejected_step(rejected)
