"""Messages as they are sent over HTTP: strings, headers, values, redaction, deliveries, callbacks.

A string has one Latin-1 character per byte. Headers are pairs, or JSON objects that map names to lists
of values. Each function that checks or reads a value raises a 400 error if the value is malformed,
unless stated otherwise.

**Redaction** replaces parts of messages by ``REDACTED:<sha256>`` in everything the API shows.
Deliveries are not redacted. Source: the vendor's page on redacted fields. The redaction of a workflow
run applies to all its messages, also to later steps and the failure function, and to the responses to
them. Decided here: an invoked run has its own redaction, as it has its own retries. A callback has the
redaction of the message on which it reports. Headers that a body repeats, such as those in the body
of a callback, are hidden only with the body.

**Callbacks** are published after every attempt, failure callbacks after the last one (not for v1
messages). The callback of a workflow's call step is the result of the step, so it is published after
the last attempt only (*observed* in live tests of the JavaScript workflow client). Both are messages
themselves. ``notBefore`` and ``createdAt`` are Unix milliseconds as
strings. The message's id is in ``sourceMessageId`` (the service's name) and in ``sourceMessasgeId``
(the specification's spelling).

Decided here: ``status`` is 0 if there was no HTTP response. The destination's body is truncated to
the plan's message size. Redacted parts are sent in clear, as in any delivery.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from ...core.field_types import TOKEN
from ...core.json_schema import check_nesting
from .. import errors
from ..errors import QueueError, bad_request
from ..model import (
    DAY,
    SECOND,
    Delivery,
    FlowSettings,
    HeaderList,
    Message,
    Outcome,
    PublishSettings,
    Redaction,
    first,
)
from ..settings import QueueConfig
from .waits import read_go_duration

HOP_BY_HOP = frozenset({
    "host", "content-length", "connection", "transfer-encoding", "accept-encoding", "keep-alive",
    "te", "upgrade", "trailer", "proxy-connection", "proxy-authorization", "proxy-authenticate",
    "expect",
})  # fmt: skip
"""Headers about a message's framing or about a single connection, which are not forwarded."""
CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
"""Characters that a header value must not contain."""
_MAX_BODY = 2_000
"""Maximum number of characters of a shortened body."""


def as_text(wire: str) -> str:
    """Decode Latin-1 wire characters as UTF-8. Return them unchanged if they are not UTF-8."""
    if wire.isascii():
        return wire
    try:
        return wire.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return wire


def as_wire(text: str) -> str:
    """Encode a string as UTF-8 and return it with one Latin-1 character per byte."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def shortened_body(body: bytes) -> str:
    return body[: _MAX_BODY * 4].decode("utf-8", "replace")[:_MAX_BODY]


def quoted(wire: str) -> str:
    return repr(as_text(wire))


def canonical(name: str) -> str:
    """Return a header name in canonical case (``X-My-Id`` for ``x-my-id``)."""
    return "-".join(part[:1].upper() + part[1:].lower() for part in name.split("-"))


def unprefixed(name: str) -> str | None:
    """Return a header name after ``Upstash-`` or ``Service-`` in lower case, or None."""
    lower = name.lower()
    return lower.partition("-")[2] if lower.startswith(("upstash-", "service-")) else None


def first_setting(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the first value of a header, whose name is given in lower case without its prefix."""
    return next((value for key, value in headers if unprefixed(key) == name), None)


def overridden(base: HeaderList, by: HeaderList) -> HeaderList:
    """Return headers combined with those in ``by``, which replace headers of the same name."""
    replaced = {name.lower() for name, _ in by}
    return [pair for pair in base if pair[0].lower() not in replaced] + by


def check_header(name: str, value: str) -> None:
    """Raise a 400 error if a header's name or value is malformed."""
    if not re.fullmatch(TOKEN, name):
        raise bad_request(f"invalid header name: {quoted(name)}")
    if re.search(CONTROL, value):
        raise bad_request(f"invalid header value for {name}: it contains a control character")


def json_headers(headers: Mapping[str, Any]) -> HeaderList:
    """Return JSON headers (a value or list of values by name) as pairs; raise a 400 error otherwise."""
    pairs: HeaderList = []
    for name, values in headers.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, dict | list) or value is None:
                raise bad_request(f"invalid header {name}: expected a string")
            # JSON writes true and 1.5 as the service does.
            text = value if isinstance(value, str) else json.dumps(value)
            pairs.append((as_wire(str(name)), as_wire(text)))
    return pairs


def header_map(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return headers as the API represents them, with lists of values by canonical name."""
    values_by_name: dict[str, list[str]] = {}
    for name, value in headers:
        values_by_name.setdefault(canonical(name), []).append(as_text(value))
    return values_by_name


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
LONGEST_US = 36_525 * DAY
"""Maximum delay in microseconds. No plan allows more, and longer delays exceed the range of dates."""
LATEST_US = 253_402_300_799 * SECOND
"""The last second of the year 9999, the latest that a ``datetime`` can hold."""
LONGEST_PERIOD_US = 7 * DAY
"""Maximum period of a flow-control rate."""
MAX_NESTING = 500
"""Maximum depth of JSON. Deeper JSON may be readable, but too deep to be written again in a response."""


def read_json(text: str | bytes) -> Any:
    try:
        return check_nesting(json.loads(text), MAX_NESTING)
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None


def read_duration(text: str, what: str) -> int:
    """Parse a duration such as ``1d10h30m``, ``1.5h`` or ``500ms`` into microseconds.

    The service parses durations with Go's library (*observed*), and accepts days in addition.
    """
    try:
        total = read_go_duration(as_text(text.strip()), days=True)
    except ValueError as error:
        raise bad_request(f"invalid {what}: {error}") from None
    if total < 0:
        raise bad_request(f"invalid {what}: {text!r} is negative")
    if total > LONGEST_US:
        raise bad_request(f"invalid {what}: {text!r} is longer than 100 years")
    return total


def read_integer(text: str, what: str, *, least: int = 0) -> int:
    stripped = text.strip()
    if not re.fullmatch(r"[0-9]{1,18}", stripped) or int(stripped) < least:
        raise bad_request(f"invalid {what}: {quoted(text)} is not an integer of at least {least}")
    return int(stripped)


def read_flag(text: str, what: str) -> bool:
    """Parse ``true`` or ``false``, ignoring case because the Python client sends ``True``."""
    lower = text.strip().lower()
    if lower not in ("true", "false"):
        raise bad_request(f"invalid {what}: {quoted(text)}, expected true or false")
    return lower == "true"


def read_method(value: str) -> str:
    method = value.strip().upper()
    if method not in METHODS:
        raise bad_request(f"invalid method: {quoted(value)}, expected one of {', '.join(METHODS)}")
    return method


def read_timeout(value: str) -> int:
    # Accept a number of seconds without a unit, which workflow clients send.
    return read_duration(f"{value.strip()}s" if value.strip().isdecimal() else value, "timeout")


def read_not_before(value: str) -> int:
    instant = read_integer(value, "not before") * SECOND
    if instant > LATEST_US:
        raise bad_request(f"invalid not before: {value!r} is not Unix time in seconds")
    return instant


def read_labels(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in as_text(value).split(",") if part.strip())


def is_name(text: str) -> bool:
    """Return whether a string could be a name: letters, digits, ``-``, ``.`` and ``_``."""
    return re.fullmatch(r"[A-Za-z0-9._-]+", text) is not None


def check_name(name: str, what: str) -> str:
    """Return a name; raise a 400 error for any other string."""
    if not is_name(name):
        raise bad_request(
            f"invalid {what}: {quoted(name)} may only contain letters, digits, hyphen, underscore"
            " and dot"
        )
    return name


def read_flow(key: str, value: str | None) -> FlowSettings:
    """Parse ``parallelism=<n>, rate=<n>, period=<duration>``, in any order.

    A key may have no value, because it may be pinned; a value without a limit is rejected.
    """
    if not key.strip():
        raise bad_request("invalid flow control key: it is empty")
    numbers: dict[str, int] = {}
    for part in (value or "").split(","):
        if not part.strip():
            continue
        name, equals, limit = (piece.strip() for piece in part.partition("="))
        lower = name.lower()
        if not equals or lower not in ("parallelism", "rate", "period"):
            raise _without_limit(part)
        if lower == "period":
            seconds = f"{limit}s" if limit.isdecimal() else limit
            numbers[lower] = read_duration(seconds, "flow control period")
            if not 0 < numbers[lower] <= LONGEST_PERIOD_US:
                raise bad_request(
                    f"invalid flow control period: {limit!r}, it must be longer than 0s and at"
                    " most 7d"
                )
        else:
            numbers[lower] = read_integer(limit, f"flow control {lower}", least=1)
    if value is not None and not numbers.keys() & {"parallelism", "rate"}:
        raise _without_limit(value)
    return FlowSettings(
        key=as_text(key.strip()),
        parallelism=numbers.get("parallelism"),
        rate=numbers.get("rate"),
        period_us=numbers.get("period", SECOND),
    )


def _without_limit(value: str) -> QueueError:
    text = errors.FLOW_WITHOUT_LIMIT
    return bad_request(f"invalid flow control value: {quoted(value.strip())}, {text}")


def read_deduplication_id(text: str) -> str:
    """Return a deduplication id; raise a 400 error if it is empty or has a colon or white space."""
    if ":" in text:
        raise bad_request(errors.DEDUPLICATION_COLON)
    if not text or re.search(r"\s", text):
        raise bad_request("DeduplicationId cannot be empty or contain white space")
    return text


_ONE_HEADER = r"(?i)headers?\[([^\[\]]+)\]\Z"
_FORWARDED = r"(?:(?:failure-)?callback-)*forward-(.+)"
"""Matches settings that forward a header, also nested ones of callbacks."""


def read_redaction(text: str) -> Redaction:
    """Parse a comma-separated list of ``body``, ``header`` and ``header[Name]``."""
    body = False
    all_headers = False
    names: set[str] = set()
    for part in (piece.strip() for piece in text.split(",")):
        if part.lower() == "body":
            body = True
        elif part.lower() in ("header", "headers"):
            all_headers = True
        elif match := re.match(_ONE_HEADER, part):
            names.add(match.group(1).strip().lower())
        elif part:
            raise bad_request(
                f"invalid redact field: {quoted(part)}, expected body, header or header[<name>]"
            )
    return Redaction(body=body, all_headers=all_headers, headers=frozenset(names))


def hidden(value: object) -> str:
    """Return the replacement of bytes, of a string, or of another JSON value."""
    if not isinstance(value, bytes):
        text = value if isinstance(value, str) else json.dumps(value)
        value = text.encode("utf-8", "surrogatepass")
    return f"REDACTED:{sha256(value).hexdigest()}"


def shown_text(body: bytes, redaction: Redaction) -> str:
    """Return a body as text. An empty body is never replaced."""
    return hidden(body) if body and redaction.body else body.decode("utf-8", "replace")


def shown_json(value: object, redaction: Redaction) -> object:
    """Return a JSON value that is a body or a part of one. A missing value is never replaced."""
    return value if value is None or not redaction.body else hidden(value)


def shown_headers(headers: Iterable[tuple[str, str]], redaction: Redaction) -> dict[str, list[str]]:
    """Return headers of a delivery or of its response as the API represents them."""
    return {
        name: [hidden(value) for value in values] if redaction.hides_header(name) else values
        for name, values in header_map(headers).items()
    }


def shown_json_headers(headers: object, redaction: Redaction) -> object:
    """Return headers that a client sent as JSON, which can be any value."""
    if not isinstance(headers, dict):
        return hidden(headers) if redaction.all_headers and headers is not None else headers
    shown: dict[str, object] = {}
    for name, values in headers.items():
        if not redaction.hides_header(name):
            shown[name] = values
        else:
            shown[name] = (
                [hidden(value) for value in values] if isinstance(values, list) else hidden(values)
            )
    return shown


def shown_settings(headers: Iterable[tuple[str, str]], redaction: Redaction) -> HeaderList:
    """Return headers of a request to the queue, of which only forwarded headers are redacted."""
    shown: HeaderList = []
    for name, value in headers:
        own = unprefixed(name)
        setting = None if own is None else re.fullmatch(_FORWARDED, own)
        forwarded = name if own is None else setting and setting[1]
        is_hidden = forwarded and redaction.hides_header(forwarded)
        shown.append((name, hidden(value) if is_hidden else value))
    return shown


SOURCE_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "both": ("sourceMessageId", "sourceMessasgeId"),
    "service": ("sourceMessageId",),
    "specification": ("sourceMessasgeId",),
}
"""Names of the fields with the message's id, by value of the ``source_id`` setting."""
_CREATED_AT = "Upstash-Workflow-CreatedAt"
_STEP_CONFIG = "Upstash-Workflow-Step-Config"
_REPEATED = ("Retry-Delay", "Flow-Control-Key", "Flow-Control-Value", "Signature")
"""Headers of the queue that a client may have copied from a delivery, without their prefix. They are
never forwarded, because the next delivery may have none of its own.
"""


def flow_text(flow: FlowSettings) -> str:
    """Return flow-control limits as the service writes them, with the period in whole seconds."""
    limits = without_none(parallelism=flow.parallelism, rate=flow.rate)
    # A shorter period is shown as one second.
    limits["period"] = -(-flow.period_us // SECOND)
    return ",".join(f"{name}={limit}" for name, limit in limits.items())


def delivery_of(message: Message, body: bytes, *, prefix: str, region: str) -> Delivery:
    """Return the unsigned delivery of a message. ``prefix`` begins the queue's own headers.

    ``Retries`` is the number of retries so far, as ``Retried``. The limit is ``Max-Retries`` (source:
    the JavaScript workflow client, whose earlier versions read the limit from ``Retries``).
    """
    settings = message.settings
    own = _workflow_headers(message) if settings.workflow else []
    if settings.content_type is not None:
        own.append(("Content-Type", settings.content_type))
    own += [
        (f"{prefix}-Message-Id", message.public_id),
        (f"{prefix}-Retried", str(message.retried)),
        (f"{prefix}-Retries", str(message.retried)),
        (f"{prefix}-Max-Retries", str(message.max_retries)),
        (f"{prefix}-Caller-Ip", message.caller_ip),
        (f"{prefix}-Region", region),
    ]
    if message.topic_name is not None:
        own.append((f"{prefix}-Topic-Name", message.topic_name))
    if message.schedule_id is not None:
        own.append((f"{prefix}-Schedule-Id", message.schedule_id))
    if settings.retry_delay is not None:
        own.append((f"{prefix}-Retry-Delay", as_wire(settings.retry_delay)))
    if settings.flow is not None:
        own.append((f"{prefix}-Flow-Control-Key", as_wire(settings.flow.key)))
        own.append((f"{prefix}-Flow-Control-Value", flow_text(settings.flow)))
    headers = list(settings.forward)
    if headers:
        # Drop headers that a workflow has copied from its own delivery, such as the signature.
        taken = {name.lower() for name, _ in own}
        taken |= {f"{prefix}-{name}".lower() for name in _REPEATED}
        headers = [pair for pair in headers if pair[0].lower() not in taken]
    if not headers or first(headers, "User-Agent") is None:
        headers.append(("User-Agent", "Upstash-QStash"))
    return Delivery(
        message_id=message.public_id,
        url=message.url,
        method=settings.method,
        headers=headers + own,
        body=body,
        attempt=message.retried,
        timeout_us=message.timeout_us,
    )


def features_of(settings: PublishSettings) -> set[str]:
    """Return the names in the ``Upstash-Feature-Set`` header, in lower case."""
    names = (first(settings.workflow, "Upstash-Feature-Set") or "").lower().split(",")
    return {name.strip() for name in names} - {""}


def _workflow_headers(message: Message) -> HeaderList:
    """Return a message's workflow headers with the start of its run in Unix milliseconds.

    A message with the feature ``WF_StepConfig`` has the settings of a single step, which a header
    marks. Source: the JavaScript client, which reads both headers from every delivery.

    The request of a call step has none of these headers. Source: the same client, which forwards
    ``Upstash-Workflow-Sdk-Version`` with every step except a call, so that a called workflow starts a
    run. Decided here: the other headers are not delivered either.
    """
    headers, part = list(message.settings.workflow), message.workflow
    if part is not None and part.is_call:
        return []
    headers = [pair for pair in headers if pair[0].lower() != _STEP_CONFIG.lower()]
    if "wf_stepconfig" in features_of(message.settings):
        headers.append((_STEP_CONFIG, "true"))
    if part is not None and part.created_ms is not None:
        # Replace a value that the client has copied from a delivery, perhaps of another run.
        headers = [pair for pair in headers if pair[0].lower() != _CREATED_AT.lower()]
        headers.append((_CREATED_AT, str(part.created_ms)))
    return headers


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def without_none(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def destination_headers(settings: PublishSettings) -> HeaderList:
    """Return the published headers that the destination receives, without the headers of workflows."""
    if settings.content_type is None:
        return list(settings.forward)
    return [*settings.forward, ("Content-Type", settings.content_type)]


def source_headers(settings: PublishSettings) -> HeaderList:
    return [*destination_headers(settings), *settings.workflow]


def callback_body(
    message: Message, outcome: Outcome, settings: QueueConfig, size: int, more: Mapping[str, object]
) -> bytes:
    """Return the JSON body of a callback about an attempt.

    ``size`` limits the destination's body, in bytes before Base64. ``more`` are additional fields.
    """
    answer = outcome.body
    if outcome.status is None and (outcome.exception or outcome.run_error):
        answer = failure_text(outcome).encode("utf-8", "replace")
    body: dict[str, Any] = {
        "status": settings.no_answer_status if outcome.status is None else outcome.status,
        "header": header_map(outcome.headers),
        "body": encoded(answer[:size]),
        "retried": message.retried,
        "maxRetries": message.max_retries,
    }
    if message.dlq_id is not None:
        body["dlqId"] = message.dlq_id
    body |= dict.fromkeys(SOURCE_SPELLINGS[settings.source_id], message.public_id)
    body |= without_none(
        topicName=message.topic_name,
        endpointName=message.endpoint_name,
        scheduleId=message.schedule_id,
    )
    body |= {
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
    if outcome.run_error is not None:
        return outcome.run_error
    if outcome.status is not None:
        return f"destination answered {outcome.status}"
    error = outcome.exception
    if error is None:
        return "destination did not answer"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
