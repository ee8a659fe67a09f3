"""Data classes of workflow runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from ..model import NOTHING_REDACTED, Message, PublishSettings, Redaction, first
from ..wire.values import (
    encoded,
    header_map,
    json_headers,
    read_json,
    shown_headers,
    shown_json,
    shown_settings,
    shown_text,
)

_RAW_CALLS = frozenset({"tocallback", "fromcallback", "failurecall"})
"""Call types of messages that are delivered as published, without the list of steps."""
_CALLBACK_STATES = {
    "DELIVERED": "CALLBACK_SUCCESS",
    "FAILED": "CALLBACK_FAIL",
    "CANCEL_REQUESTED": "CALLBACK_CANCELED",
    "CANCELED": "CALLBACK_CANCELED",
}
RunState = Literal["RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"]

SDK_VERSION = "Upstash-Workflow-Sdk-Version"
"""Name of the forwarded header by which clients recognize a request of a workflow."""


class RunStep(NamedTuple):
    """A step in a run's list of steps, with its message and its body."""

    message_id: str
    body: bytes
    at_us: int

    def raw(self) -> dict[str, str]:
        """Return the step as clients receive it in a delivery."""
        return {"messageId": self.message_id, "body": encoded(self.body), "callType": "step"}


def read_step(body: bytes) -> dict[str, Any]:
    """Return the step in a message's body as a dict, which is empty if the body is not a step."""
    try:
        found = read_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "stepType" in found else {}


class Invoker(NamedTuple):
    """A run that waits for the result of another run, and the step at which it waits."""

    run_id: str
    url: str
    created_ms: int
    headers: dict[str, list[str]]
    step: dict[str, Any]


@dataclass(eq=False, slots=True)
class WorkflowRun:
    """A workflow run. ``settings`` are the settings of the message that started it."""

    id: str
    url: str
    created_us: int
    first_message_id: str
    settings: PublishSettings
    caller_ip: str = "127.0.0.1"
    state: RunState = "RUN_STARTED"
    steps: list[RunStep] = field(default_factory=list)
    """The first body and the steps that have been delivered, in this order."""
    message_ids: list[str] = field(default_factory=list)
    """All messages of the run, including undelivered ones and those that are not steps."""
    completed_us: int | None = None
    response: bytes | None = None
    invoker: Invoker | None = None
    dlq_id: str | None = None
    failed_message_id: str | None = None
    """The message of the step that failed."""
    failure_message_id: str | None = None
    """The failure callback that reports it."""
    number: int = 0
    """Position in the order in which runs were created."""

    @property
    def live(self) -> bool:
        """Whether the run accepts further steps."""
        return self.state == "RUN_STARTED"

    @property
    def created_ms(self) -> int:
        return self.created_us // 1000

    def position(self, message_id: str) -> int | None:
        return next((i for i, one in enumerate(self.steps) if one.message_id == message_id), None)

    def reopen(self, failed: str, retry: str) -> None:
        """Accept steps again, with a retry in place of the failed message and its dead letter."""
        self.state = "RUN_STARTED"
        self.completed_us = None
        self.response = None
        self.dlq_id = None
        self.failed_message_id = None
        self.steps = [
            step._replace(message_id=retry) if step.message_id == failed else step
            for step in self.steps
        ]

    def copy(self) -> WorkflowRun:
        return replace(self, steps=list(self.steps), message_ids=list(self.message_ids))


class Waiter(NamedTuple):
    """A workflow run's wait for an event. If it times out, the queue delivers the wait's message."""

    event_id: str
    run_id: str
    message_id: str
    deadline_us: int
    request: dict[str, Any]
    headers: dict[str, list[str]]

    def record(self, redaction: Redaction) -> dict[str, Any]:
        """Return the waiter as the API represents it. The deadline is in Unix seconds."""
        headers, timeout_headers = self.headers, self.request.get("timeoutHeaders") or {}
        if redaction != NOTHING_REDACTED:
            headers = _shown_settings(headers, redaction)
            timeout_headers = _shown_settings(timeout_headers, redaction)
        return {
            "url": self.request.get("url", ""),
            "deadline": self.deadline_us // 1_000_000,
            "headers": headers,
            "timeoutUrl": self.request.get("timeoutUrl", ""),
            "timeoutBody": shown_json(self.request.get("timeoutBody"), redaction),
            "timeoutHeaders": timeout_headers,
        }


def _shown_settings(headers: object, redaction: Redaction) -> dict[str, list[str]]:
    pairs = json_headers(headers) if isinstance(headers, dict) else []
    return header_map(shown_settings(pairs, redaction))


def call_type_of(message: Message) -> str | None:
    return None if message.workflow is None else message.workflow.call_type


def is_step(message: Message) -> bool:
    """Return whether a message of a run is delivered with the list of steps."""
    return call_type_of(message) not in _RAW_CALLS


def features_of(settings: PublishSettings) -> set[str]:
    """Return the names in the ``Upstash-Feature-Set`` header, in lower case."""
    names = (first(settings.workflow, "Upstash-Feature-Set") or "").lower().split(",")
    return {name.strip() for name in names} - {""}


def response_fields(message: Message) -> dict[str, object]:
    """Return the fields about the last response to a failure callback, if there was one."""
    outcome = message.last_outcome
    if outcome is None or outcome.status is None:
        return {}
    return {
        "responseStatus": outcome.status,
        "responseBody": shown_text(outcome.body, message.response_redaction),
        "responseHeaders": shown_headers(outcome.headers, message.response_redaction),
    }


def callback_state(message: Message) -> str:
    return _CALLBACK_STATES.get(message.state, "CALLBACK_INPROGRESS")
