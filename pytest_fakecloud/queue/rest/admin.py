"""Endpoints for schedules, queues, URL groups and flow control, and of API version 1.

Version 1, ``/v1/...``, uses the same data as version 2. Specification: ``PUT /v1/endpoints/<id>``
changes the URL of later messages only. Version 1 has no failure callbacks. Its other endpoints are
taken from the vendor's documentation of version 1 and from its Terraform client.
"""

from __future__ import annotations

from typing import Any

from ...http.app import Route
from ...http.messages import Answer, Request
from ..engine.admission import FlowKey
from ..errors import bad_request, not_found
from ..model import SECOND, HeaderList
from ..wire import records
from ..wire.headers import check_url, read_given
from ..wire.values import (
    LONGEST_PERIOD_US,
    as_text,
    as_wire,
    check_name,
    json_headers,
    read_flag,
    read_integer,
    without_none,
)
from .routes import (
    SCHEDULES,
    RouteFamily,
    destination_of,
    endpoints_of,
    field_of,
    json_object,
    published,
    query_of,
)


class AdministrationRoutes(RouteFamily):
    """Endpoints for schedules (except their creation), queues, URL groups and flow control."""

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            *(route for base in SCHEDULES for route in cls._of_schedules(base)),
            Route("GET", "/v1/schedules", "list_schedules_v1", cls.list_schedules),
            Route("GET", "/v1/schedules/{id}", "get_schedule_v1", cls.get_schedule),
            Route("GET", "/v2/queues", "list_queues", cls.list_queues),
            Route("POST", "/v2/queues", "upsert_queue", cls.upsert_queue),
            Route("GET", "/v2/queues/{name}", "get_queue", cls.get_queue),
            Route("DELETE", "/v2/queues/{name}", "delete_queue", cls.delete_queue),
            Route("POST", "/v2/queues/{name}/pause", "pause_queue", cls.set_queue_paused),
            Route("POST", "/v2/queues/{name}/resume", "resume_queue", cls.set_queue_paused),
            Route("GET", "/v2/topics", "list_groups", cls.list_groups),
            Route("GET", "/v2/topics/{name}", "get_group", cls.get_group),
            Route("DELETE", "/v2/topics/{name}", "delete_group", cls.delete_group),
            Route("PATCH", "/v2/topics/{name}", "change_group", cls.change_group),
            Route("POST", "/v2/topics/{name}/endpoints", "add_endpoints", cls.add_endpoints),
            Route(
                "DELETE", "/v2/topics/{name}/endpoints", "remove_endpoints", cls.remove_endpoints
            ),
            Route("GET", "/v2/flowControl", "list_flow_controls", cls.list_flow_controls),
            Route("GET", "/v2/flowControl/{key}", "get_flow_control", cls.get_flow_control),
            Route("POST", "/v2/flowControl/{key}/pause", "pause_flow", cls.set_flow_paused),
            Route("POST", "/v2/flowControl/{key}/resume", "resume_flow", cls.set_flow_paused),
            Route("POST", "/v2/flowControl/{key}/pin", "pin_flow", cls.pin_flow),
            Route("POST", "/v2/flowControl/{key}/unpin", "unpin_flow", cls.unpin_flow),
            Route("POST", "/v2/flowControl/{key}/resetRate", "reset_rate", cls.reset_rate),
            Route("POST", "/v2/flowControl/{key}/reset", "reset_flow", cls.reset_flow),
            Route("GET", "/v2/globalParallelism", "global_parallelism", cls.global_parallelism),
        ]

    @classmethod
    def _of_schedules(cls, base: str) -> list[Route]:
        return [
            Route("GET", base, "list_schedules", cls.list_schedules),
            Route("PATCH POST", f"{base}/{{id}}/pause", "pause_schedule", cls.set_paused),
            Route("PATCH POST", f"{base}/{{id}}/resume", "resume_schedule", cls.set_paused),
            Route("GET", f"{base}/{{id}}", "get_schedule", cls.get_schedule),
            Route("DELETE", f"{base}/{{id}}", "delete_schedule", cls.delete_schedule),
        ]

    def list_schedules(self, request: Request) -> object:
        engine = self.engine
        return [
            records.schedule_record(engine, schedule_id) for schedule_id in engine.schedules.by_id
        ]

    def get_schedule(self, request: Request) -> object:
        return records.schedule_record(self.engine, request.segment("id"))

    def delete_schedule(self, request: Request) -> None:
        self.engine.schedules.delete(request.segment("id"))

    def set_paused(self, request: Request) -> None:
        paused = request.route == "pause_schedule"
        self.engine.schedules.set_paused(request.segment("id"), paused)

    def list_queues(self, request: Request) -> object:
        return [records.queue_record(self.engine, name) for name in self.engine.queues]

    def upsert_queue(self, request: Request) -> None:
        body = json_object(request)
        name = field_of(body, "queue", "queueName", str, required=True)
        parallelism = body.get("parallelism")
        if parallelism is not None and (
            isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1
        ):
            raise bad_request("invalid queue: parallelism must be a number of at least 1")
        paused = field_of(body, "queue", "paused", bool)
        self.engine.upsert_queue(name, parallelism=parallelism, paused=paused)

    def get_queue(self, request: Request) -> object:
        return records.queue_record(self.engine, _queue_name(request))

    def delete_queue(self, request: Request) -> None:
        self.engine.delete_queue(request.segment("name"))

    def set_queue_paused(self, request: Request) -> None:
        self.engine.set_queue_paused(_queue_name(request), request.route == "pause_queue")

    def list_groups(self, request: Request) -> object:
        return [records.group_record(group) for group in self.engine.url_groups.by_name.values()]

    def get_group(self, request: Request) -> object:
        return records.group_record(self.engine.url_groups.get(request.segment("name")))

    def delete_group(self, request: Request) -> None:
        group = self.engine.url_groups.find(request.segment("name"))
        if group is not None:
            self.engine.url_groups.remove(group)

    def change_group(self, request: Request) -> None:
        headers = field_of(json_object(request), "topic", "headers", dict, required=True)
        defaults: HeaderList = []
        for name, value in json_headers(headers):
            is_own = name.lower().startswith(("upstash-", "service-", "content-type"))
            defaults.append((name if is_own else f"Upstash-Forward-{name}", value))
        read_given(defaults)  # Raises an error for an invalid setting.
        group = self.engine.url_groups.get(request.segment("name"))
        group.headers = defaults
        group.updated_us = self.engine.clock.now_us()

    def add_endpoints(self, request: Request) -> None:
        endpoints = [
            (
                as_wire(field_of(endpoint, "endpoint", "url", str, required=True)),
                endpoint.get("name") or None,
            )
            for endpoint in endpoints_of(request)
        ]
        now = self.engine.clock.now_us()
        self.engine.url_groups.add_all(request.segment("name"), endpoints, now)

    def remove_endpoints(self, request: Request) -> None:
        endpoints = endpoints_of(request)
        for item in endpoints:
            if item.get("url") is None and item.get("name") is None:
                raise bad_request("invalid endpoint: pass url or name")
            if item.get("url") is not None:
                item["url"] = as_wire(item["url"])
        group = self.engine.url_groups.get(request.segment("name"))
        self.engine.url_groups.remove_endpoints(group, endpoints, self.engine.clock.now_us())

    # -- flow control ------------------------------------------------------------------------------

    def list_flow_controls(self, request: Request) -> object:
        text = request.query("search") or ""
        keys = self.engine.flow_keys
        return [self.engine.flow_record(key) for name, key in keys.items() if text in name]

    def get_flow_control(self, request: Request) -> object:
        return self.engine.flow_record(self.engine.existing_flow_key(request.segment("key")))

    def set_flow_paused(self, request: Request) -> None:
        engine = self.engine
        key = engine.get_or_create_flow_key(request.segment("key"), engine.clock.now_us())
        key.paused = request.route == "pause_flow"
        if key.paused:
            engine.recall_admitted(key)
        # This also plans or cancels the timer that opens the key.
        engine.start_waiting_for_flow(key)

    def pin_flow(self, request: Request) -> None:
        numbers: dict[str, int | None] = {"parallelism": None, "rate": None, "period": None}
        for name, value in query_of(request):
            if name not in numbers:
                raise bad_request(f"unknown setting {name!r}, expected {', '.join(numbers)}")
            numbers[name] = read_integer(value, name, least=1)
        parallelism, rate, period = numbers.values()
        if period is not None and period * SECOND > LONGEST_PERIOD_US:
            raise bad_request("invalid period: it must be from 1 to 604800 seconds")
        if parallelism is None and rate is None:
            raise bad_request("invalid pin: pass parallelism, rate, or both")
        if period is not None and rate is None:
            raise bad_request("invalid pin: a period needs a rate")
        now = self.engine.clock.now_us()
        key = self.engine.get_or_create_flow_key(request.segment("key"), now)
        key.pin(now, parallelism, rate, (period or 1) * SECOND)
        self._begin_period(key)

    def _begin_period(self, key: FlowKey) -> None:
        # Recall messages that have not started, because they count in the new period.
        self.engine.recall_admitted(key)
        self.engine.start_waiting_for_flow(key)

    def unpin_flow(self, request: Request) -> None:
        flags = {"parallelism": False, "rate": False}
        for name, value in query_of(request):
            if name not in flags:
                raise bad_request(f"unknown setting {name!r}, expected {', '.join(flags)}")
            flags[name] = read_flag(value, name)
        key = self.engine.existing_flow_key(request.segment("key"))
        key.pinned_parallelism &= not flags["parallelism"]
        key.pinned_rate &= not flags["rate"]

    def reset_flow(self, request: Request) -> None:
        key = self.engine.existing_flow_key(request.segment("key"))
        self.engine.recall_admitted(key)
        # From now on, the deliveries in flight do not count (vendor's changelog).
        key.active.clear()
        self.reset_rate(request)

    def reset_rate(self, request: Request) -> None:
        engine = self.engine
        key = engine.existing_flow_key(request.segment("key"))
        key.restart_period(engine.clock.now_us())
        self._begin_period(key)

    def global_parallelism(self, request: Request) -> object:
        return {
            "parallelismMax": self.engine.limits.parallelism or 0,
            "parallelismCount": len(self.engine.active),
        }


def _queue_name(request: Request) -> str:
    return check_name(request.segment("name"), "queue name")


OK = {"status": "ok"}
_DOCUMENTED = {
    "maxTopics": 20,
    "maxEndpointsPerTopic": 100,
    "maxSchedules": 100,
    "maxRequestsPerDay": 500_000,
    "maxDelay": 30 * 86_400,
}
"""The limits in the documentation of version 1, which are shown if the plan has none."""


class V1Routes(RouteFamily):
    """Endpoints of ``/v1``."""

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            Route("POST", "/v1/publish/{destination*}", "publish_v1", cls.publish),
            Route("GET", "/v1/endpoints", "list_endpoints_v1", cls.list_endpoints),
            Route("POST", "/v1/endpoints", "create_endpoint_v1", cls.create_endpoint),
            Route("GET", "/v1/endpoints/{id}", "get_endpoint_v1", cls.get_endpoint),
            Route("PUT", "/v1/endpoints/{id}", "change_endpoint_v1", cls.change_endpoint),
            Route("DELETE", "/v1/endpoints/{id}", "delete_endpoint_v1", cls.delete_endpoint),
            Route("GET", "/v1/topics", "list_topics_v1", cls.list_topics),
            Route("POST", "/v1/topics", "create_topic_v1", cls.create_topic),
            Route("GET", "/v1/topics/{name}", "get_topic_v1", cls.get_topic),
            Route("PUT", "/v1/topics/{name}", "rename_topic_v1", cls.rename_topic),
            Route("DELETE", "/v1/topics/{name}", "delete_topic_v1", cls.delete_topic),
            Route("DELETE", "/v1/messages/{id}", "cancel_message_v1", cls.cancel_message),
            Route("GET", "/v1/messages/{id}/tasks", "list_tasks_v1", cls.list_tasks),
            Route("GET", "/v1/tasks/{id}", "get_task_v1", cls.get_task),
            Route("GET", "/v1/quota", "quota_v1", cls.quota),
        ]

    def publish(self, request: Request) -> Answer:
        result = published(self.engine, request, api="v1")
        if result.schedule_id is not None:
            return Answer({"scheduleId": result.schedule_id}, 201)
        if not result.accepted:
            topic = as_text(destination_of(request)[0])
            raise bad_request(f"invalid destination: topic {topic} has no endpoints")
        message_id = result.accepted[0].message_id
        message = self.engine.messages.get(message_id)
        body: dict[str, object] = {"messageId": message.public_id if message else message_id}
        if result.duplicate:
            return Answer(body | {"deduplicated": True}, 202)
        return Answer(body, 201)

    def list_endpoints(self, request: Request) -> object:
        groups = self.engine.url_groups.by_name.values()
        return [
            records.endpoint_record(group, endpoint)
            for group in groups
            for endpoint in group.endpoints
        ]

    def create_endpoint(self, request: Request) -> object:
        body = json_object(request, required=True)
        url = as_wire(_text(body, "url"))
        by_id = body.get("topicId") is not None
        if by_id == (body.get("topicName") is not None):
            raise bad_request("invalid endpoint: pass one of topicId and topicName")
        check_url(url, "endpoint")
        groups, now = self.engine.url_groups, self.engine.clock.now_us()
        if by_id:
            group = groups.get(_text(body, "topicId"))
        else:
            group = groups.create(_text(body, "topicName"), now)
        return records.endpoint_record(group, groups.add(group, url, None, now, by_id=by_id))

    def get_endpoint(self, request: Request) -> object:
        return records.endpoint_record(*self.engine.url_groups.endpoint(request.segment("id")))

    def change_endpoint(self, request: Request) -> object:
        group, endpoint = self.engine.url_groups.endpoint(request.segment("id"))
        url = as_wire(_text(json_object(request, required=True), "url"))
        group.change(endpoint, check_url(url, "endpoint"), endpoint.name)
        group.updated_us = self.engine.clock.now_us()
        return records.endpoint_record(group, endpoint)

    def delete_endpoint(self, request: Request) -> object:
        group, endpoint = self.engine.url_groups.endpoint(request.segment("id"))
        group.remove(endpoint)
        group.updated_us = self.engine.clock.now_us()
        return OK

    def list_topics(self, request: Request) -> object:
        return [records.topic_record(group) for group in self.engine.url_groups.by_name.values()]

    def create_topic(self, request: Request) -> object:
        name = check_name(_text(json_object(request, required=True), "name"), "topic name")
        if name in self.engine.url_groups.by_name:
            raise bad_request(f"invalid topic name: {name!r} is already in use")
        return records.topic_record(self.engine.url_groups.create(name, self.engine.clock.now_us()))

    def get_topic(self, request: Request) -> object:
        return records.topic_record(self.engine.url_groups.get(request.segment("name")))

    def rename_topic(self, request: Request) -> object:
        group = self.engine.url_groups.get(request.segment("name"))
        name = _text(json_object(request, required=True), "name")
        self.engine.url_groups.rename(group, name, self.engine.clock.now_us())
        return records.topic_record(group)

    def delete_topic(self, request: Request) -> object:
        self.engine.url_groups.remove(self.engine.url_groups.get(request.segment("name")))
        return OK

    def cancel_message(self, request: Request) -> Answer:
        self.engine.cancel(request.segment("id"))
        return Answer({"status": "accepted"}, 202)

    def list_tasks(self, request: Request) -> object:
        now = self.engine.clock.now_us()
        tasks = self.engine.tasks(request.segment("id"))
        return [records.task_record(message, now) for message in tasks]

    def get_task(self, request: Request) -> object:
        task_id = request.segment("id")
        message = self.engine.messages.get("msg_" + task_id.removeprefix("task_"))
        if message is None or not task_id.startswith("task_"):
            raise not_found("task", task_id)
        return records.task_record(message, self.engine.clock.now_us())

    def quota(self, request: Request) -> object:
        limits = self.engine.limits
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
