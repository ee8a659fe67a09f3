"""JSON records of the API for messages, dead letters, schedules and other objects, and their filters.

Header names are canonical and have lists of values. A body is in ``body`` if it is UTF-8, in
``bodyBase64`` if it is not, and absent if it is empty. Times are Unix milliseconds. If clients and
documentation disagree about a name, the record contains both names.

**Filters** and cursors are those of listings and bulk requests. A field with several values
(repeated, or separated by commas except in URLs) matches if one of them matches, and all fields must
match. If ids are given (``messageIds``, ``dlqIds``,
``workflowRunIds``, ``workflowRuns``), all other filters are parsed but ignored. ``fromDate`` and
``toDate`` are Unix milliseconds, both inclusive. ``host`` and ``path`` filter messages and logs, but
not dead letters. An unknown name is rejected with 400.

Decided here: ``order`` is ``earliestFirst`` or ``latestFirst``. A ``count`` above the maximum is
reduced to the maximum.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ...core.calls import HeaderPairs
from ..engine.url_groups import GroupEndpoint, UrlGroup
from ..errors import QueueError, bad_request
from ..model import (
    SECOND,
    SUCCESS,
    FlowKey,
    LogEntry,
    Message,
    OrderedQueue,
    Outcome,
    PublishSettings,
    Redaction,
    first,
)
from .values import (
    as_text,
    destination_headers,
    encoded,
    failure_text,
    header_map,
    hidden,
    read_integer,
    read_redaction,
    shown_headers,
    shown_settings,
    source_headers,
    without_none,
)

if TYPE_CHECKING:
    from ..engine.bulk_actions import BulkAction
    from ..engine.engine import Engine
    from ..engine.publishing import Accepted

Record = dict[str, Any]


def ms(us: int | None) -> int | None:
    return None if us is None else us // 1000


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
    pairs = shown_settings(headers, redaction.with_other(own_redaction))
    own = ((name.removeprefix("Upstash-"), value) for name, value in pairs)
    return header_map((re.sub(r"(?i)\Aforward-", "", name), value) for name, value in own)


def _caller(ip: str) -> Record:
    return {"callerIP": ip, "callerIp": ip}


def labels_record(settings: PublishSettings) -> Record:
    labels = list(settings.labels)
    return {"label": labels[0], "labels": labels} if labels else {}


def _settings_record(settings: PublishSettings) -> Record:
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
        # The API counts whole seconds, of which a shorter period is one.
        record["period"] = -(-settings.flow.period_us // SECOND)
    return record | without_none(
        timeout=ms(settings.timeout_us), retryDelayExpression=settings.retry_delay
    )


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
        **_settings_record(settings),
        **_origin_record(message),
    }
    if part is not None:
        record |= {"workflowRunId": part.run_id, "workflowUrl": part.url}
        record |= without_none(workflowCreatedAt=part.created_ms)
    return record


def accepted_record(accepted: Accepted) -> Record:
    record: Record = {"messageId": accepted.message_id, "url": as_text(accepted.url)}
    if accepted.deduplicated:
        record["deduplicated"] = True
    return record


def error_record(error: QueueError) -> Record:
    return {"error": error.message, "status": error.status}


def dead_letter_record(engine: Engine, message: Message) -> Record:
    outcome = message.last_outcome or Outcome()
    record = message_record(message)
    record["dlqId"] = message.dlq_id
    record["state"] = "failed"
    record["responseStatus"] = outcome.status_or(engine.data.settings.no_answer_status)
    record["responseHeader"] = shown_headers(outcome.headers, message.response_redaction)
    record |= _body("responseBody", outcome.body, message.response_redaction)
    if outcome.status is None or outcome.run_error is not None:
        record["error"] = failure_text(outcome)
    return record | engine.workflow.dead_letter_fields(message)


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
        **_settings_record(settings),
    }
    record |= without_none(error=entry.error) | _origin_record(message)
    record |= without_none(nextDeliveryTime=ms(entry.next_us))
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


def schedule_record(engine: Engine, schedule_id: str) -> Record:
    schedule = engine.schedules.get(schedule_id)
    settings, due_us = schedule.settings, engine.schedules.next_run_us(schedule)
    record: Record = {
        "scheduleId": schedule.id,
        "cron": schedule.cron,
        "destination": as_text(schedule.destination),
        "createdAt": ms(schedule.created_us),
        "method": settings.method,
        "header": shown_headers(destination_headers(settings), settings.redaction),
        **_body("body", schedule.body, settings.redaction),
        "retries": engine.quota.retries(settings.retries),
        **_caller(schedule.caller_ip),
        "isPaused": schedule.paused,
        **_settings_record(settings),
    }
    if settings.delay_us:
        record["delay"] = settings.delay_us // SECOND
    if settings.timeout_us is not None:
        # Replace the milliseconds: the API reports the timeout of a schedule in seconds.
        record["timeout"] = min(settings.timeout_us, engine.data.limits.timeout_us) // SECOND
    record |= without_none(queueName=settings.queue_name, error=schedule.error)
    if schedule.last_us is not None:
        record["lastScheduleTime"] = ms(schedule.last_us)
        record["lastScheduleStates"] = engine.schedules.states_of_run(schedule)
    return record | without_none(nextScheduleTime=ms(due_us))


def queue_record(engine: Engine, queue: OrderedQueue) -> Record:
    return {
        "name": queue.name,
        "parallelism": queue.parallelism,
        "createdAt": ms(queue.created_us),
        "updatedAt": ms(queue.updated_us),
        "lag": engine.queues.lag(queue),
        "paused": queue.paused,
    }


def flow_record(engine: Engine, key: FlowKey) -> Record:
    """Return the record of a flow-control key, with times and periods in seconds. Cancelled messages do
    not wait.
    """
    key.roll(engine.clock.now_us())
    return {
        "flowControlKey": key.key,
        "waitListSize": sum(message_id in engine.data.pending for message_id in key.waiting),
        "parallelismMax": key.parallelism or 0,
        "parallelismCount": len(key.active),
        "rateMax": key.rate or 0,
        "rateCount": key.started,
        "ratePeriod": key.period_us // SECOND,
        "ratePeriodStart": key.period_start_us // SECOND,
        "isPaused": key.paused,
        "isPinnedParallelism": key.pinned_parallelism,
        "isPinnedRate": key.pinned_rate,
    }


def bulk_action_record(action: BulkAction) -> Record:
    return {
        "actionId": action.id,
        "kind": "cancel",
        "state": action.state,
        "total": action.total,
        "processed": action.processed,
        "createdAt": ms(action.created_us),
        "filter": action.filters,
    } | without_none(completedAt=ms(action.completed_us))


def group_record(group: UrlGroup) -> Record:
    return {
        "name": group.name,
        "createdAt": ms(group.created_us),
        "updatedAt": ms(group.updated_us),
        "endpoints": [
            {"url": as_text(endpoint.url)}
            | ({"name": endpoint.name} if endpoint.name is not None else {})
            for endpoint in group.endpoints
        ],
    } | ({"headers": header_map(group.headers)} if group.headers else {})


def endpoint_record(group: UrlGroup, endpoint: GroupEndpoint) -> Record:
    """Return the record of an endpoint in ``/v1``, with either ``topicId`` or ``topicName``."""
    topic = {"topicId": group.id} if endpoint.by_id else {"topicName": group.name}
    return {"endpointId": endpoint.id, "url": as_text(endpoint.url), **topic}


def topic_record(group: UrlGroup) -> Record:
    return {
        "topicId": group.id,
        "name": group.name,
        "endpoints": [endpoint_record(group, endpoint) for endpoint in group.endpoints],
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
    completed_us = message.finished_us if message.state == "DELIVERED" else None
    record: Record = {
        "taskId": "task_" + message.id.removeprefix("msg_"),
        "messageId": message.public_id,
        "url": as_text(message.url),
        "state": state,
        "retried": message.retried,
        "maxRetry": message.max_retries,
        **without_none(nextProcessAt=ms(message.due_us), lastErrorAt=ms(message.last_error_us)),
        **without_none(completedAt=ms(completed_us)),
    }
    last = message.last_outcome
    if last is not None and (last.status not in SUCCESS or last.run_error):
        record["error"] = failure_text(last)
    return record


T = TypeVar("T")

_MESSAGE_FIELDS: dict[str, Callable[[Message], Sequence[str]]] = {
    "messageId": lambda message: (message.public_id, message.id),
    "messageIds": lambda message: (message.public_id, message.id),
    "url": lambda message: (as_text(message.url), message.url),
    "topicName": lambda message: _one(message.topic_name),
    "urlGroup": lambda message: _one(message.topic_name),
    "queueName": lambda message: _one(message.queue_name),
    "scheduleId": lambda message: _one(message.schedule_id),
    "label": lambda message: message.settings.labels,
    "labels": lambda message: message.settings.labels,
    "flowControlKey": lambda message: _one(message.settings.flow and message.settings.flow.key),
    "callerIp": lambda message: (message.caller_ip,),
    "callerIP": lambda message: (message.caller_ip,),
    "workflowRunId": lambda message: _one(message.workflow and message.workflow.run_id),
    "workflowUrl": lambda message: _one(message.workflow and message.workflow.url),
    "workflowCreatedAt": lambda message: _one(message.workflow and message.workflow.created_ms),
    "failureFunctionState": lambda message: _one(message.failure_function_state),
    "source": lambda message: ("workflow" if message.workflow else "qstash",),
    "host": lambda message: _one(urlsplit(message.url).netloc),
    "path": lambda message: _one(urlsplit(message.url).path),
}
"""For each filter, the values of a message that are compared with the wanted values."""
_DESTINATION = frozenset({"host", "path"})
_PAGING = frozenset({"cursor", "count", "order"})
_IDS = ("messageIds", "dlqIds", "workflowRunIds", "workflowRuns")
"""Filters by id. If one of them is given, all other filters are ignored."""
_WHOLE = ("url", "workflowUrl")
"""Filters whose value may contain a comma."""
COMMON = (frozenset(_MESSAGE_FIELDS) - _DESTINATION - {"messageIds"}) | {"fromDate", "toDate"}
FOR_MESSAGES = COMMON | _DESTINATION | {"messageIds", "count"}
FOR_LOGS = COMMON | _DESTINATION | _PAGING | {"messageIds", "state", "responseStatus"}
FOR_DEAD_LETTERS = COMMON | _PAGING | {"dlqIds", "dlqId", "responseStatus"}

_ORDERS = {"earliestFirst": False, "latestFirst": True}
_IN_PROGRESS = ("ACTIVE", "RETRY", "ERROR")
_STATES = (
    "CREATED", "ACTIVE", "RETRY", "ERROR", "DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELED",
    "IN_PROGRESS",
)  # fmt: skip


def _one(value: object) -> Sequence[str]:
    return () if value is None else (str(value),)


class Filters:
    """Parsed filters: the wanted values by field, the time span, the order and the page."""

    def __init__(self, fields: dict[str, list[str]] | None = None) -> None:
        self.fields = {} if fields is None else fields
        self.from_us: int | None = None
        self.to_us: int | None = None
        self.latest_first: bool | None = None
        self.count: int | None = None
        self.cursor: str | None = None

    @property
    def empty(self) -> bool:
        """Whether there are no filters. The page and the order do not count as filters."""
        return not self.fields and self.from_us is None and self.to_us is None

    def spans(self, at_us: int) -> bool:
        return (self.from_us is None or at_us >= self.from_us) and (
            self.to_us is None or at_us <= self.to_us
        )

    def matches(self, message: Message, at_us: int, own: Mapping[str, object]) -> bool:
        """Return whether a message matches. ``own`` are values of its log entry or dead letter."""
        return self.spans(at_us) and self.accept(
            lambda name: _one(own[name]) if name in own else _MESSAGE_FIELDS[name](message)
        )

    def accept(self, values: Callable[[str], Sequence[str]]) -> bool:
        """Return whether each field has one of its wanted values; ``values`` returns its values."""
        return all(
            any(value in expected for value in values(name))
            for name, expected in self.fields.items()
        )


def read_filters(
    pairs: Iterable[tuple[str, str]],
    names: frozenset[str],
    most: int = 100,
    *,
    states: Sequence[str] = _STATES,
) -> Filters:
    """Parse query pairs; raise a 400 error if malformed. ``states`` are those to filter by."""
    filters = Filters()
    for name, value in pairs:
        if name not in names:
            raise bad_request(
                f"unknown filter {name!r}, expected one of {', '.join(sorted(names))}"
            )
        if name == "cursor":
            filters.cursor = value or None
        elif name == "count":
            filters.count = min(read_integer(value, "count", least=1), most)
        elif name == "order":
            filters.latest_first = _ORDERS.get(value)
            if filters.latest_first is None:
                raise bad_request(f"invalid order: {value!r}, expected {' or '.join(_ORDERS)}")
        elif name == "fromDate":
            filters.from_us = read_integer(value, "fromDate") * 1000
        elif name == "toDate":
            # Include the whole millisecond, because times are in microseconds.
            filters.to_us = read_integer(value, "toDate") * 1000 + 999
        else:
            values = [value] if name in _WHOLE else [part.strip() for part in value.split(",")]
            if name == "state":
                values = _read_states(values, states)
            elif name == "responseStatus":
                values = [str(read_integer(status, "responseStatus")) for status in values]
            # An empty value matches nothing, so that a bulk request does not cancel everything.
            filters.fields.setdefault(name, []).extend(part for part in values if part)
    for name in _IDS:
        if ids := filters.fields.get(name):
            filters.fields = {name: ids}
            filters.from_us = filters.to_us = None
    return filters


def filters_by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the filters of a bulk request as the API represents them, without the page."""
    filters: dict[str, list[str]] = {}
    for name, value in pairs:
        if name not in _PAGING:
            values = [value] if name in _WHOLE else [part.strip() for part in value.split(",")]
            filters.setdefault(name, []).extend(values)
    return filters


def _read_states(values: list[str], states: Sequence[str]) -> list[str]:
    selected: list[str] = []
    for value in values:
        state = re.sub("CANCELLED$", "CANCELED", value)
        if state not in states:
            raise bad_request(f"invalid state: {value!r}, expected one of {', '.join(states)}")
        selected += _IN_PROGRESS if state == "IN_PROGRESS" and states is _STATES else [state]
    return selected


def pairs_of(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the filters in a JSON body as pairs; raise a 400 error for other types of values."""
    pairs: list[tuple[str, str]] = []
    for name, value in body.items():
        for item in value if isinstance(value, list) else [value]:
            if item is None:
                continue
            if name == "async" and isinstance(item, bool):
                item = "true" if item else "false"
            if isinstance(item, bool) or not isinstance(item, str | int):
                raise bad_request(f"invalid {name}: expected a string or a number, got {item!r}")
            pairs.append((name, str(item)))
    return pairs


def page(
    rows: Sequence[T],
    number: Callable[[T], int],
    filters: Filters,
    *,
    latest_first: bool,
    default: int = 100,
) -> tuple[list[T], str | None]:
    """Return a page of rows and the cursor of the next page. Rows must ascend by ``number``.

    A cursor identifies the last row returned, so rows that are added or removed between two calls
    cause neither repetitions nor omissions. Raises a 400 error for an invalid cursor.
    """
    backwards = latest_first if filters.latest_first is None else filters.latest_first
    after = None if filters.cursor is None else read_cursor(filters.cursor)
    ordered = reversed(rows) if backwards else iter(rows)
    count = filters.count or default
    page_rows: list[T] = []
    for row in ordered:
        at = number(row)
        if after is not None and (at >= after if backwards else at <= after):
            continue
        if len(page_rows) == count:
            plain = f"row-{number(page_rows[-1])}".encode()
            return page_rows, base64.urlsafe_b64encode(plain).decode("ascii").rstrip("=")
        page_rows.append(row)
    return page_rows, None


def read_cursor(text: str) -> int:
    """Return the row number in a cursor; raise a 400 error if it is invalid."""
    try:
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        if not plain.startswith("row-") or not plain[4:].isdigit() or len(plain) > 24:
            raise ValueError
        return int(plain[4:])
    except (ValueError, binascii.Error, UnicodeError):
        raise bad_request(f"invalid cursor: {text!r}") from None
