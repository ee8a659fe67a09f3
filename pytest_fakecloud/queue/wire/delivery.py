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
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ..model import SECOND, Delivery, HeaderList, Message, Outcome, Sign, SigningKeys, first
from .text import as_text, header_map

SOURCE_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "both": ("sourceMessageId", "sourceMessasgeId"),
    "service": ("sourceMessageId",),
    "specification": ("sourceMessasgeId",),
}
"""Names of the fields with the message's id, by value of the ``source_id`` setting."""


def delivery_of(message: Message, body: bytes, now: int, *, prefix: str, region: str) -> Delivery:
    """Return the unsigned delivery of a message. ``prefix`` begins the queue's own headers."""
    settings = message.settings
    own: HeaderList = list(settings.workflow)
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
        sub=message.url,
    )


class DeliverySigner(NamedTuple):
    """Signs deliveries as faults demand. ``new_key`` returns a key that no receiver knows."""

    sign: Sign
    keys: SigningKeys
    new_key: Callable[[], str]

    def signed(self, delivery: Delivery, faults: Collection[str]) -> Delivery:
        if not faults:
            return delivery._replace(headers=delivery.headers + self.sign(delivery, None, 0))
        signature: HeaderList = []
        if "unsigned" not in faults:
            key: str | None = None
            if "wrong_key" in faults:
                key = self.new_key()
            elif "next_key" in faults:
                key = self.keys.next
            age = 3600 * SECOND if "expired" in faults else 0
            signature = self.sign(delivery, key, age)
        return delivery._replace(
            headers=delivery.headers + signature,
            body=delivery.body + b"tampered" if "tamper" in faults else delivery.body,
            signed="unsigned" not in faults,
        )


def encoded(data: bytes) -> str:
    """Return bytes in Base64."""
    return base64.b64encode(data).decode("ascii")


def without_none(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def source_headers(message: Message) -> HeaderList:
    """Return the headers that the message was published with."""
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
    body: dict[str, Any] = {
        "status": outcome.status_or(no_answer_status),
        "header": header_map(outcome.headers),
        "body": encoded(_answer_body(outcome)[:size]),
        "retried": retried,
        "maxRetries": message.max_retries,
    }
    body |= without_none(dlqId=dlq_id) | dict.fromkeys(
        SOURCE_SPELLINGS[spelling], message.public_id
    )
    body |= without_none(
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
    body |= more
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _answer_body(outcome: Outcome) -> bytes:
    if outcome.status is None and outcome.exception is not None:
        return failure_text(outcome).encode("utf-8", "replace")
    return outcome.body


def failure_text(outcome: Outcome) -> str:
    """Return why an attempt failed, as the API reports it."""
    if outcome.unstubbed:
        return outcome.unstubbed
    if outcome.status is not None:
        return f"destination answered {outcome.status}"
    error = outcome.exception
    if error is None:
        return "destination did not answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
