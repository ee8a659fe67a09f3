"""The bodies of callbacks and failure callbacks.

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

from ..model import HeaderList, Message, Outcome
from .text import as_text, header_map

SOURCE_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "both": ("sourceMessageId", "sourceMessasgeId"),
    "service": ("sourceMessageId",),
    "specification": ("sourceMessasgeId",),
}
"""Names of the fields with the message's id, by value of the ``source_id`` setting."""


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def given(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def source_headers(message: Message) -> HeaderList:
    """Return the headers that the publisher of a message set, except those addressed to the queue."""
    settings = message.settings
    headers = list(settings.forward)
    if settings.content_type is not None:
        headers.append(("Content-Type", settings.content_type))
    headers += settings.workflow
    return headers


def callback_body(
    message: Message,
    outcome: Outcome,
    *,
    retried: int,
    dlq_id: str | None = None,
    no_answer_status: int = 0,
    size: int,
    spelling: str = "both",
    more: Mapping[str, object] | None = None,
) -> bytes:
    """Return the JSON body of a callback about an attempt.

    ``dlq_id`` is for failure callbacks only. ``size`` limits the destination's body, in bytes
    before Base64. ``more`` are additional fields.
    """
    body: dict[str, Any] = {
        "status": no_answer_status if outcome.status is None else outcome.status,
        "header": header_map(outcome.headers),
        "body": encoded(_answer_body(outcome)[:size]),
        "retried": retried,
        "maxRetries": message.max_retries,
    }
    body |= given(dlqId=dlq_id) | dict.fromkeys(SOURCE_SPELLINGS[spelling], message.public_id)
    body |= given(
        topicName=message.topic_name,
        endpointName=message.endpoint_name,
        scheduleId=message.schedule_id,
    )
    body |= {
        "url": as_text(message.url),
        "method": message.settings.method,
        "sourceHeader": header_map(source_headers(message)),
        "sourceBody": encoded(message.body),
        "notBefore": str(message.not_before_us // 1000),
        "createdAt": str(message.created_us // 1000),
        "callerIP": message.caller_ip,
    }
    body.update(more or {})
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _answer_body(outcome: Outcome) -> bytes:
    if outcome.status is None and outcome.exception is not None:
        return failure_text(outcome).encode("utf-8", "replace")
    return outcome.body


def failure_text(outcome: Outcome) -> str:
    """Return why an attempt did not deliver its message."""
    if outcome.unstubbed:
        return outcome.unstubbed
    if outcome.status is not None:
        return f"destination answered {outcome.status}"
    error = outcome.exception
    if error is None:
        return "destination did not answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
