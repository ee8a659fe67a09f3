"""Endpoints of API version 1.

Version 1, ``/v1/...``, uses the same data as version 2. Specification: ``PUT /v1/endpoints/<id>``
changes the URL of later messages only. Version 1 has no failure callbacks. Its other endpoints are
taken from the vendor's documentation of version 1 and from its Terraform client.
"""

from __future__ import annotations

from typing import Any

from ...http.messages import Json, Request
from ..engine.engine import Engine
from ..errors import bad_request, not_found
from ..model import SECOND
from ..wire import records
from ..wire.headers import check_url
from ..wire.values import as_text, as_wire, check_name, without_none
from .keys import get_keys, rotate_keys
from .messages import get_message, publish_request
from .requests import destination_of, json_object
from .routing import QueueRoute
from .schedules import get_schedule, list_schedules

OK = {"status": "ok"}
_DOCUMENTED = {
    "maxTopics": 20,
    "maxEndpointsPerTopic": 100,
    "maxSchedules": 100,
    "maxRequestsPerDay": 500_000,
    "maxDelay": 30 * 86_400,
}
"""The limits in the documentation of version 1, which are shown if the plan has none."""


def publish(engine: Engine, request: Request) -> Json:
    result = publish_request(engine, request, api="v1")
    if result.schedule_id is not None:
        return Json({"scheduleId": result.schedule_id}, 201)
    if not result.accepted:
        topic = as_text(destination_of(request)[0])
        raise bad_request(f"invalid destination: topic {topic} has no endpoints")
    message_id = result.accepted[0].message_id
    message = engine.data.messages.get(message_id)
    body: dict[str, object] = {"messageId": message.public_id if message else message_id}
    if result.duplicate:
        return Json(body | {"deduplicated": True}, 202)
    return Json(body, 201)


def list_endpoints(engine: Engine, request: Request) -> object:
    groups = engine.url_groups.by_name.values()
    return [
        records.endpoint_record(group, endpoint) for group in groups for endpoint in group.endpoints
    ]


def create_endpoint(engine: Engine, request: Request) -> object:
    body = json_object(request, required=True)
    url = as_wire(_text(body, "url"))
    by_id = body.get("topicId") is not None
    if by_id == (body.get("topicName") is not None):
        raise bad_request("invalid endpoint: pass one of topicId and topicName")
    check_url(url, "endpoint")
    groups = engine.url_groups
    group = groups.get(_text(body, "topicId")) if by_id else groups.create(_text(body, "topicName"))
    return records.endpoint_record(group, groups.add(group, url, None, by_id=by_id))


def get_endpoint(engine: Engine, request: Request) -> object:
    return records.endpoint_record(*engine.url_groups.endpoint(request.segment("id")))


def change_endpoint(engine: Engine, request: Request) -> object:
    groups = engine.url_groups
    group, endpoint = groups.endpoint(request.segment("id"))
    url = as_wire(_text(json_object(request, required=True), "url"))
    groups.change_endpoint(group, endpoint, url)
    return records.endpoint_record(group, endpoint)


def delete_endpoint(engine: Engine, request: Request) -> object:
    groups = engine.url_groups
    group, endpoint = groups.endpoint(request.segment("id"))
    groups.remove_endpoint(group, endpoint)
    return OK


def list_topics(engine: Engine, request: Request) -> object:
    return [records.topic_record(group) for group in engine.url_groups.by_name.values()]


def create_topic(engine: Engine, request: Request) -> object:
    name = check_name(_text(json_object(request, required=True), "name"), "topic name")
    if name in engine.url_groups.by_name:
        raise bad_request(f"invalid topic name: {name!r} is already in use")
    return records.topic_record(engine.url_groups.create(name))


def get_topic(engine: Engine, request: Request) -> object:
    return records.topic_record(engine.url_groups.get(request.segment("name")))


def rename_topic(engine: Engine, request: Request) -> object:
    group = engine.url_groups.get(request.segment("name"))
    name = _text(json_object(request, required=True), "name")
    engine.url_groups.rename(group, name)
    return records.topic_record(group)


def delete_topic(engine: Engine, request: Request) -> object:
    engine.url_groups.remove(engine.url_groups.get(request.segment("name")))
    return OK


def cancel_message(engine: Engine, request: Request) -> Json:
    engine.lifecycle.cancel(request.segment("id"))
    return Json({"status": "accepted"}, 202)


def list_tasks(engine: Engine, request: Request) -> object:
    now = engine.clock.now_us()
    tasks = engine.data.tasks(request.segment("id"))
    return [records.task_record(message, now) for message in tasks]


def get_task(engine: Engine, request: Request) -> object:
    task_id = request.segment("id")
    message = engine.data.messages.get("msg_" + task_id.removeprefix("task_"))
    if message is None or not task_id.startswith("task_"):
        raise not_found("task", task_id)
    return records.task_record(message, engine.clock.now_us())


def quota(engine: Engine, request: Request) -> object:
    limits = engine.data.limits
    return _DOCUMENTED | without_none(
        maxTopics=limits.groups,
        maxEndpointsPerTopic=limits.endpoints_per_group,
        maxMessageSize=limits.message_size,
        maxRetries=limits.retries,
        maxSchedules=limits.schedules,
        maxRequestsPerDay=limits.daily_messages,
        retention=limits.retention_us // SECOND,
        timeout=limits.timeout_us // SECOND,
        maxDelay=None if limits.delay_us is None else limits.delay_us // SECOND,
    )


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise bad_request(f"invalid body: {name} must be a non-empty string")
    return value


ROUTES = [
    QueueRoute("POST", "/v1/publish/{destination*}", "publish_v1", publish, publishes=True),
    QueueRoute("GET", "/v1/endpoints", "list_endpoints_v1", list_endpoints),
    QueueRoute("POST", "/v1/endpoints", "create_endpoint_v1", create_endpoint),
    QueueRoute("GET", "/v1/endpoints/{id}", "get_endpoint_v1", get_endpoint),
    QueueRoute("PUT", "/v1/endpoints/{id}", "change_endpoint_v1", change_endpoint),
    QueueRoute("DELETE", "/v1/endpoints/{id}", "delete_endpoint_v1", delete_endpoint),
    QueueRoute("GET", "/v1/topics", "list_topics_v1", list_topics),
    QueueRoute("POST", "/v1/topics", "create_topic_v1", create_topic),
    QueueRoute("GET", "/v1/topics/{name}", "get_topic_v1", get_topic),
    QueueRoute("PUT", "/v1/topics/{name}", "rename_topic_v1", rename_topic),
    QueueRoute("DELETE", "/v1/topics/{name}", "delete_topic_v1", delete_topic),
    QueueRoute("GET", "/v1/messages/{id}", "get_message_v1", get_message),
    QueueRoute("DELETE", "/v1/messages/{id}", "cancel_message_v1", cancel_message),
    QueueRoute("GET", "/v1/messages/{id}/tasks", "list_tasks_v1", list_tasks),
    QueueRoute("GET", "/v1/tasks/{id}", "get_task_v1", get_task),
    QueueRoute("GET", "/v1/schedules", "list_schedules_v1", list_schedules),
    QueueRoute("GET", "/v1/schedules/{id}", "get_schedule_v1", get_schedule),
    QueueRoute("GET", "/v1/keys", "get_keys_v1", get_keys),
    QueueRoute("POST GET", "/v1/keys/rotate", "rotate_keys_v1", rotate_keys, changes=True),
    QueueRoute("GET", "/v1/quota", "quota_v1", quota),
]
