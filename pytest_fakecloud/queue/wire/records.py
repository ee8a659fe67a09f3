"""JSON records of the API for messages, dead letters, schedules and other objects.

Header names are canonical and have lists of values. A body is in ``body`` if it is UTF-8, in
``bodyBase64`` if it is not, and absent if it is empty. Times are Unix milliseconds. If clients and
documentation disagree about a name, the record contains both names.
"""

from __future__ import annotations

import re
from typing import Any

from ..engine.flow import OrderedQueue
from ..engine.schedules import Schedule
from ..engine.url_groups import Endpoint, UrlGroup
from ..model import (
    SECOND,
    HeaderPairs,
    LogEntry,
    Message,
    Outcome,
    PublishSettings,
    Redaction,
    first,
)
from .delivery import destination_headers, encoded, failure_text, source_headers, without_none
from .redaction import hidden, read_redaction, shown_headers, shown_settings
from .text import as_text, header_map

Record = dict[str, Any]
_FORWARD = re.compile(r"\Aforward-", re.IGNORECASE)


def ms(instant_us: int) -> int:
    return instant_us // 1000


def _body(name: str, body: bytes, redaction: Redaction) -> Record:
    if not body:
        return {}
    if redaction.body:
        return {name: hidden(body)}
    try:
        return {name: body.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}Base64": encoded(body)}


def _nested_headers(headers: HeaderPairs, redaction: Redaction) -> dict[str, list[str]]:
    """Return the nested settings of a callback as the API represents them, without prefixes."""
    own_redaction = read_redaction(first(headers, "Upstash-Redact-Fields") or "")
    shown = shown_settings(headers, redaction.with_other(own_redaction))
    own = ((name.removeprefix("Upstash-"), value) for name, value in shown)
    return header_map((_FORWARD.sub("", name), value) for name, value in own)


def _caller(ip: str) -> Record:
    return {"callerIP": ip, "callerIp": ip}


def labels_record(settings: PublishSettings) -> Record:
    labels = list(settings.labels)
    return {"label": labels[0], "labels": labels} if labels else {}


def _settings_record(settings: PublishSettings, retry_delay: str | None) -> Record:
    record: Record = {}
    for name, url, headers in (
        ("callback", settings.callback, settings.callback_headers),
        ("failureCallback", settings.failure_callback, settings.failure_callback_headers),
    ):
        if url is not None:
            record[name] = as_text(url)
        if headers:
            record[f"{name}Header"] = _nested_headers(headers, settings.redaction)
    record |= labels_record(settings)
    if settings.flow is not None:
        record["flowControlKey"] = settings.flow.key
        record |= without_none(parallelism=settings.flow.parallelism, rate=settings.flow.rate)
        record["period"] = settings.flow.period_us // SECOND
    if settings.timeout_us is not None:
        record["timeout"] = ms(settings.timeout_us)
    return record | without_none(retryDelayExpression=retry_delay)


def _origin_record(message: Message) -> Record:
    return without_none(
        topicName=message.topic_name,
        endpointName=message.endpoint_name,
        queueName=message.queue_name,
        scheduleId=message.schedule_id,
    )


def message_record(message: Message) -> Record:
    settings = message.settings
    part = message.workflow
    record: Record = {
        "messageId": message.public_id,
        "url": as_text(message.url),
        "method": settings.method,
        "header": shown_headers(source_headers(settings), settings.redaction),
        **_body("body", message.body, settings.redaction),
        "maxRetries": message.max_retries,
        "notBefore": ms(message.not_before_us),
        "createdAt": ms(message.created_us),
        **_caller(message.caller_ip),
        **_settings_record(settings, message.retry_delay),
        **_origin_record(message),
    }
    if part is not None:
        record |= {"workflowRunId": part.run_id, "workflowUrl": part.url}
        record |= without_none(workflowCreatedAt=part.created_ms)
    return record


def dead_letter_record(message: Message, dlq_id: str, no_answer_status: int) -> Record:
    outcome = message.last_outcome or Outcome()
    record = message_record(message)
    record["dlqId"] = dlq_id
    record["state"] = "failed"
    record["responseStatus"] = outcome.status_or(no_answer_status)
    record["responseHeader"] = shown_headers(outcome.headers, message.response_redaction)
    record |= _body("responseBody", outcome.body, message.response_redaction)
    if outcome.status is None:
        record["error"] = failure_text(outcome)
    return record


def log_record(entry: LogEntry, message: Message, no_answer_status: int) -> Record:
    settings = message.settings
    record: Record = {
        "time": ms(entry.time_us),
        "messageId": message.public_id,
        "state": entry.state,
        "url": as_text(message.url),
        "method": settings.method,
        "header": shown_headers(source_headers(settings), settings.redaction),
        "body": hidden(message.body) if settings.redaction.body else encoded(message.body),
        "maxRetries": message.max_retries,
        **_settings_record(settings, message.retry_delay),
    }
    record |= without_none(error=entry.error) | _origin_record(message)
    if entry.next_us is not None:
        record["nextDeliveryTime"] = ms(entry.next_us)
    outcome = entry.outcome
    if outcome is not None:
        record["responseStatus"] = outcome.status_or(no_answer_status)
        redaction = message.response_redaction
        headers = shown_headers(outcome.headers, redaction)
        record["responseHeader"] = record["responseHeaders"] = headers
        if entry.state == "ERROR":
            body = outcome.body
            record["responseBody"] = hidden(body) if body and redaction.body else encoded(body)
    for name, other_name in (
        ("retryDelayExpression", "retryDelayExpr"),
        ("callbackHeader", "callbackHeaders"),
        ("failureCallbackHeader", "failureCallbackHeaders"),
    ):
        if name in record:
            record[other_name] = record[name]
    return record


def schedule_record(
    schedule: Schedule,
    *,
    due_us: int | None,
    states: dict[str, str],
    retries: int,
    max_timeout_us: int,
) -> Record:
    """Return the record of a schedule. ``states`` are the states of the last run's messages."""
    settings = schedule.settings
    record: Record = {
        "scheduleId": schedule.id,
        "cron": schedule.cron,
        "destination": as_text(schedule.destination),
        "createdAt": ms(schedule.created_us),
        "method": settings.method,
        "header": shown_headers(destination_headers(settings), settings.redaction),
        **_body("body", schedule.body, settings.redaction),
        "retries": retries,
        **_caller(schedule.caller_ip),
        "isPaused": schedule.paused,
        **_settings_record(settings, settings.retry_delay),
    }
    if settings.delay_us:
        record["delay"] = settings.delay_us // SECOND
    if settings.timeout_us is not None:
        # Replace the milliseconds: the API reports the timeout of a schedule in seconds.
        record["timeout"] = min(settings.timeout_us, max_timeout_us) // SECOND
    record |= without_none(queueName=settings.queue_name, error=schedule.error)
    if schedule.last_us is not None:
        record["lastScheduleTime"] = ms(schedule.last_us)
        record["lastScheduleStates"] = states
    if due_us is not None:
        record["nextScheduleTime"] = ms(due_us)
    return record


def queue_record(queue: OrderedQueue, lag: int) -> Record:
    """Return the record of a queue. The official client reads all six fields."""
    return {
        "name": queue.name,
        "parallelism": queue.parallelism,
        "createdAt": ms(queue.created_us),
        "updatedAt": ms(queue.updated_us),
        "lag": lag,
        "paused": queue.paused,
    }


def group_record(group: UrlGroup) -> Record:
    return {
        "name": group.name,
        "createdAt": ms(group.created_us),
        "updatedAt": ms(group.updated_us),
        "endpoints": [
            {"url": as_text(one.url)} | ({"name": one.name} if one.name is not None else {})
            for one in group.endpoints
        ],
    } | ({"headers": header_map(group.headers)} if group.headers else {})


def endpoint_record(group: UrlGroup, endpoint: Endpoint) -> Record:
    """Return the record of an endpoint in ``/v1``, with either ``topicId`` or ``topicName``."""
    topic = {"topicId": group.id} if endpoint.by_id else {"topicName": group.name}
    return {"endpointId": endpoint.id, "url": as_text(endpoint.url), **topic}


def topic_record(group: UrlGroup) -> Record:
    return {
        "topicId": group.id,
        "name": group.name,
        "endpoints": [endpoint_record(group, one) for one in group.endpoints],
    }


_TASK_STATES = {
    "ACTIVE": "active",
    "RETRY": "retry",
    "DELIVERED": "completed",
    "FAILED": "archived",
    "CANCELED": "archived",
}


def task_record(message: Message, now_us: int) -> Record:
    """Return the record of a message's delivery to one endpoint, which is a task in ``/v1``.

    Decided here: states have the names of the task library used at the time of ``/v1``. Times are
    Unix milliseconds.
    """
    state = _TASK_STATES.get(message.state)
    if state is None:
        state = "scheduled" if (message.due_us or 0) > now_us else "pending"
    record: Record = {
        "taskId": "task_" + message.id.removeprefix("msg_"),
        "messageId": message.public_id,
        "url": as_text(message.url),
        "state": state,
        "retried": message.retried,
        "maxRetry": message.max_retries,
    }
    if message.due_us is not None:
        record["nextProcessAt"] = ms(message.due_us)
    if message.last_error_us is not None:
        record["lastErrorAt"] = ms(message.last_error_us)
    if message.state == "DELIVERED" and message.finished_us is not None:
        record["completedAt"] = ms(message.finished_us)
    if message.last_outcome is not None and not message.last_outcome.delivered:
        record["error"] = failure_text(message.last_outcome)
    return record
