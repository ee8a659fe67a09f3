"""Endpoints for publishing and for messages.

A batch whose only item is a message of a workflow run is rejected with 412 if the message exceeds a
limit of the plan (observed).

Decided here: publish requests, batches and new schedules return 200, as in the vendor's OpenAPI
file, although other pages say 201, and 202 for a duplicate. ``/v1`` returns 201. Any other batch
returns 200 even if some items are rejected, except that a step of a finished workflow run rejects
the whole batch (400). ``POST /v2/messages/{id}/retry`` returns ``{}``.
"""

from __future__ import annotations

from typing import Any

from ...http.messages import Json, Request
from .. import errors
from ..engine.engine import Engine
from ..engine.publishing import Published
from ..errors import QueueError, bad_request
from ..model import HeaderList, Message
from ..wire import records
from ..wire.values import as_text, as_wire, check_name, first_setting, json_headers
from ..workflow.runs import report_rejected_step
from .bulk_requests import (
    UNLIMITED,
    bulk_filters,
    cancelled_record,
    has_id_field,
    lists_ids,
    split_async,
)
from .requests import caller_of, destination_of, field_of, json_array
from .routing import QueueRoute


def publish(engine: Engine, request: Request, **options: Any) -> Json:
    return _published_answer(engine, publish_request(engine, request, **options))


def publish_request(engine: Engine, request: Request, **options: Any) -> Published:
    """Publish to the destination in a request's path, with the settings in its headers and its query."""
    destination, settings = destination_of(request)
    return engine.publisher.publish(
        destination,
        request.headers.pairs,
        request.body,
        query=settings,
        caller_ip=caller_of(request),
        **options,
    )


def enqueue(engine: Engine, request: Request) -> Json:
    name = check_name(request.segment("queue"), "queue name")
    return publish(engine, request, queue_name=name)


def batch(engine: Engine, request: Request) -> Json:
    limit = engine.data.limits.batch_size
    if len(request.body) > limit:
        raise errors.quota("maxBatchSize", limit, status=413)
    items = json_array(request)
    # No run can finish between two items, because the lock is held for the whole batch.
    engine.workflow.check_steps(map(_headers_of, items))
    is_only = len(items) == 1
    answers = [
        _batch_item(engine, item, number, request, is_only=is_only)
        for number, item in enumerate(items, 1)
    ]
    return Json(answers, 200, engine.quota.daily_headers())


def _batch_item(
    engine: Engine, item: Any, number: int, request: Request, *, is_only: bool
) -> object:
    try:
        destination, headers, body, queue = read_batch_item(item)
        result = engine.publisher.publish(
            destination, headers, body, caller_ip=caller_of(request), queue_name=queue
        )
    except QueueError as error:
        run_id = _run_id_of(item)
        if run_id is not None:
            if is_only and error.status == errors.OVER_QUOTA:
                raise
            url, what = _shown(item.get("destination")), f"item {number} of a batch"
            report_rejected_step(engine.data.report, what, run_id, url, error)
        return records.error_record(error)
    return _published_answer(engine, result).value


def _published_answer(engine: Engine, result: Published) -> Json:
    status = 202 if result.duplicate else 200
    if result.schedule_id is not None:
        again = {"deduplicated": True} if result.duplicate else {}
        return Json({"scheduleId": result.schedule_id, **again}, status)
    if result.group:
        body: object = [records.accepted_record(accepted) for accepted in result.accepted]
    else:
        body = records.accepted_record(result.accepted[0])
    limited = engine.data.limits.daily_messages is not None
    return Json(body, status, engine.quota.daily_headers() if limited else ())


def get_message(engine: Engine, request: Request) -> object:
    return records.message_record(engine.data.message(request.segment("id")))


def cancel_message(engine: Engine, request: Request) -> Json:
    return Json({"cancelled": engine.lifecycle.cancel(request.segment("id"))}, 202)


def retry_message(engine: Engine, request: Request) -> object:
    engine.deliveries.retry_now(request.segment("id"))
    return {}


def cancel_messages(engine: Engine, request: Request) -> Json:
    pairs, asynchronous = split_async(bulk_filters(request, "messageIds", keep_empty=True))
    chosen = records.read_filters(pairs, records.FOR_MESSAGES, most=UNLIMITED)
    if chosen.empty and has_id_field(request, "messageIds"):
        return Json({"cancelled": 0}, 202)
    messages = [
        message
        for message in _candidates(engine, chosen)
        if chosen.matches(message, message.created_us, {})
    ]
    filters = records.filters_by_name(pairs)
    if lists_ids(filters):
        return Json({"cancelled": engine.lifecycle.cancel_all(messages)}, 202)
    ids = [message.id for message in messages[: chosen.count]]
    action = engine.bulk_actions.cancel(
        "qstash", filters, ids, asynchronous=asynchronous, count=chosen.count
    )
    return Json(cancelled_record(action, asynchronous=asynchronous), 202)


def _candidates(engine: Engine, chosen: records.Filters) -> list[Message]:
    ids = chosen.fields.get("messageIds") or chosen.fields.get("messageId")
    pending = engine.data.pending
    if ids is None:
        return list(pending.values())
    tasks = dict.fromkeys(task for message_id in ids for task in engine.data.task_ids(message_id))
    return [pending[task] for task in tasks if task in pending]


def read_batch_item(item: Any) -> tuple[str, HeaderList, bytes, str | None]:
    """Return destination, headers, body and queue of a batch item; raise a 400 error if malformed."""
    if not isinstance(item, dict):
        raise bad_request("invalid batch item: expected an object")
    # An empty destination is rejected like that of any other request.
    destination = field_of(item, "batch item", "destination", str) or ""
    headers = field_of(item, "batch item", "headers", dict) or {}
    body = field_of(item, "batch item", "body", str) or ""
    queue = field_of(item, "batch item", "queue", str)
    if queue:
        check_name(queue, "queue name")
    data = body.encode("utf-8", "surrogatepass")
    return as_wire(destination), json_headers(headers), data, queue or None


def _run_id_of(item: Any) -> str | None:
    # Check the types of all parts, because a rejected item may contain anything.
    headers = item.get("headers") if isinstance(item, dict) else None
    if not isinstance(headers, dict):
        return None
    run_id = first_setting(headers.items(), "workflow-runid")
    if isinstance(run_id, list):
        run_id = run_id[0] if run_id else None
    return _shown(run_id) if run_id else None


def _shown(value: object) -> str:
    # Encode and decode the string, because reports cannot encode lone surrogates.
    return as_text(as_wire(str(value)))


def _headers_of(item: Any) -> HeaderList:
    # Ignore a malformed item here. It is rejected later, without the rest of the batch.
    try:
        return read_batch_item(item)[1]
    except QueueError:
        return []


ROUTES = [
    *(
        QueueRoute("POST", pattern, name, method, publishes=True)
        for pattern, name, method in (
            ("/v2/publish/{destination*}", "publish", publish),
            ("/v2/enqueue/{queue}/{destination*}", "enqueue", enqueue),
            ("/v2/batch", "batch", batch),
        )
    ),
    QueueRoute("DELETE", "/v2/messages", "cancel_messages", cancel_messages),
    QueueRoute("GET", "/v2/messages/{id}", "get_message", get_message),
    QueueRoute("DELETE", "/v2/messages/{id}", "cancel_message", cancel_message),
    QueueRoute("POST", "/v2/messages/{id}/retry", "retry_message", retry_message),
]
