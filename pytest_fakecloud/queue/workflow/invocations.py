"""Invocations of workflow runs by other runs.

A run that is started with ``Upstash-Workflow-Invoke: true`` has an invoker, another run that waits
for its result. When the run ends, the result is published as a step of the invoker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..errors import QueueError, bad_request
from ..model import RejectedStep
from ..wire.text import as_text, as_wire
from .model import Invoker, WorkflowRun
from .steps import check_step, wire_pairs, with_run_id

if TYPE_CHECKING:
    from ..engine.engine import Engine


def read_invocation(body: bytes) -> tuple[Invoker, bytes]:
    """Return the invoker and the first body of a run; raise a 400 error if the body has none."""
    try:
        invocation = json.loads(body)
        inner = invocation.get("body")
        invoker = Invoker(
            str(invocation["workflowRunId"]),
            as_wire(str(invocation["workflowUrl"])),
            int(invocation.get("workflowRunCreatedAt") or 0),
            dict(invocation.get("headers") or {}),
            dict(invocation["step"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
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
        engine.publisher.publish(invoker.url, pairs, json.dumps(step).encode(), counted=False)
    except QueueError as error:
        # Record the error in the timeline of this run, which finishes regardless.
        started = engine.messages.get(run.first_message_id)
        if started is not None:
            started.lost_callbacks += (error.message,)
        rejected = RejectedStep(
            as_text(invoker.run_id), as_text(invoker.url), error.status, error.message
        )
        engine.attempt_hooks.rejected_step(rejected)
