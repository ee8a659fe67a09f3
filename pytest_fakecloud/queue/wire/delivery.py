"""The HTTP requests that the queue makes: deliveries, and the bodies of callbacks.

A callback is published after every attempt, a failure callback after the last one (not for v1
messages). Both are messages themselves. ``notBefore`` and ``createdAt`` are Unix milliseconds as
strings. The message's id is in ``sourceMessageId`` (the service's name) and in ``sourceMessasgeId``
(the specification's spelling).

Decided here: ``status`` is 0 if there was no HTTP response. The destination's body is truncated to
the plan's message size. Redacted parts are sent in clear, as in any delivery.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ..model import Delivery, HeaderList, Message, Outcome, PublishSettings, first
from .text import as_text, header_map

SOURCE_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "both": ("sourceMessageId", "sourceMessasgeId"),
    "service": ("sourceMessageId",),
    "specification": ("sourceMessasgeId",),
}
"""Names of the fields with the message's id, by value of the ``source_id`` setting."""
_CREATED_AT = "Upstash-Workflow-CreatedAt"


def delivery_of(message: Message, body: bytes, now: int, *, prefix: str, region: str) -> Delivery:
    """Return the unsigned delivery of a message. ``prefix`` begins the queue's own headers."""
    settings = message.settings
    own = _workflow_headers(message)
    if settings.content_type is not None:
        own.append(("Content-Type", settings.content_type))
    own += [
        (f"{prefix}-Message-Id", message.public_id),
        (f"{prefix}-Retried", str(message.retried)),
        (f"{prefix}-Caller-Ip", message.caller_ip),
        (f"{prefix}-Region", region),
    ]
    if message.topic_name is not None:
        own.append((f"{prefix}-Topic-Name", message.topic_name))
    if message.schedule_id is not None:
        own.append((f"{prefix}-Schedule-Id", message.schedule_id))
    headers = list(settings.forward)
    if headers:
        # Drop headers that a workflow has copied from its own delivery, such as the signature.
        taken = {name.lower() for name, _ in own} | {f"{prefix}-signature".lower()}
        headers = [pair for pair in headers if pair[0].lower() not in taken]
    if first(headers, "User-Agent") is None:
        headers.append(("User-Agent", "Upstash-QStash"))
    return Delivery(
        message_id=message.public_id,
        url=message.url,
        method=settings.method,
        headers=headers + own,
        body=body,
        attempt=message.retried,
        at_us=now,
        timeout_us=message.timeout_us,
        kind=message.kind,
    )


def _workflow_headers(message: Message) -> HeaderList:
    """Return a message's workflow headers with the start of its run in Unix milliseconds.

    Source: the JavaScript client, which reads the header from every delivery.
    """
    headers = list(message.settings.workflow)
    part = message.workflow
    if part is not None and part.created_ms is not None:
        # Replace a value that the client has copied from a delivery, perhaps of another run.
        headers = [pair for pair in headers if pair[0].lower() != _CREATED_AT.lower()]
        headers.append((_CREATED_AT, str(part.created_ms)))
    return headers


def encoded(data: bytes) -> str:
    """Return bytes in Base64."""
    return base64.b64encode(data).decode("ascii")


def without_none(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def destination_headers(settings: PublishSettings) -> HeaderList:
    """Return the published headers that the destination receives, without the headers of workflows."""
    if settings.content_type is None:
        return list(settings.forward)
    return [*settings.forward, ("Content-Type", settings.content_type)]


def source_headers(settings: PublishSettings) -> HeaderList:
    """Return all headers for the destination that a message was published with."""
    return [*destination_headers(settings), *settings.workflow]


def callback_body(
    message: Message,
    outcome: Outcome,
    *,
    retried: int,
    dlq_id: str | None,
    no_answer_status: int,
    size: int,
    spelling: str,
    more: Mapping[str, object],
) -> bytes:
    """Return the JSON body of a callback about an attempt.

    ``dlq_id`` is for failure callbacks only. ``size`` limits the destination's body, in bytes
    before Base64. ``spelling`` is a key of ``SOURCE_SPELLINGS``. ``more`` are additional fields.
    """
    answer = outcome.body
    if outcome.status is None and outcome.exception is not None:
        answer = failure_text(outcome).encode("utf-8", "replace")
    body: dict[str, Any] = {
        "status": outcome.status_or(no_answer_status),
        "header": header_map(outcome.headers),
        "body": encoded(answer[:size]),
        "retried": retried,
        "maxRetries": message.max_retries,
        **without_none(dlqId=dlq_id),
        **dict.fromkeys(SOURCE_SPELLINGS[spelling], message.public_id),
        **without_none(
            topicName=message.topic_name,
            endpointName=message.endpoint_name,
            scheduleId=message.schedule_id,
        ),
        "url": as_text(message.url),
        "method": message.settings.method,
        "sourceHeader": header_map(source_headers(message.settings)),
        "sourceBody": encoded(message.body),
        "notBefore": str(message.not_before_us // 1000),
        "createdAt": str(message.created_us // 1000),
        "callerIP": message.caller_ip,
        **more,
    }
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def failure_text(outcome: Outcome) -> str:
    """Return why an attempt failed, as the API reports it."""
    if outcome.unstubbed:
        return outcome.unstubbed
    if outcome.no_workflow:
        return f"destination answered {outcome.status}, but is not a workflow"
    if outcome.status is not None:
        return f"destination answered {outcome.status}"
    error = outcome.exception
    if error is None:
        return "destination did not answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
