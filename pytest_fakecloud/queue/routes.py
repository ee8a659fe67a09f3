"""The queue's HTTP face, second era: `/v2/...`, and the first era's routes beside it.

Decided here: a batch is answered 200 even when some of its items were refused; an empty success is
an empty JSON object where clients parse it and an empty body where they do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import unquote

from ..kernel.app import Answer, App, Request
from ..kernel.auth import bearer_token, same
from ..kernel.errors import ServiceError
from ..kernel.reading import decode_segment, json_value
from ..kernel.routing import Route
from . import errors, filters, records
from .engine import Engine
from .errors import QueueError, bad_request
from .headers import as_text, as_wire, check_name, read_given, read_integer
from .logs import MOST
from .model import SECOND, Headers, Message
from .publishing import Accepted, Published, error_item
from .routes_v1 import FirstEra

#: Below this path anybody may call: it is what the sender of a workflow's webhook is given.
HOOKS = "/v2/workflows/hooks/"


class MoreRoutes(Protocol):
    """Endpoints that another part of the queue adds (the workflow runs)."""

    def routes(self) -> list[Route]: ...


def json_object(request: Request) -> dict[str, Any]:
    """Return the JSON object of a body; 400 for anything else, an empty body is an empty object."""
    if not request.body.strip():
        return {}
    try:
        value = json_value(request.body)
    except ValueError as error:
        raise bad_request(f"invalid body: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("invalid body: expected a JSON object")
    return value


def destination_of(
    request: Request, name: str = "destination"
) -> tuple[str, list[tuple[str, str]]]:
    """Return the published destination byte for byte, and the settings found in its query.

    The query belongs to the destination, except for `qstash_token` and `upstash-*` keys.
    """
    tail = request.params[name]
    mark, query = ("?", request.query_string) if "?" in request.target else ("", "")
    kept: list[str] = []
    settings: list[tuple[str, str]] = []
    for part in query.split("&"):
        key, _, value = part.partition("=")
        lower = unquote(key).lower()
        if lower.startswith("upstash-"):
            settings.append((lower, as_wire(unquote(value.replace("+", " ")))))
        elif lower != "qstash_token":
            kept.append(part)
    if settings or len(kept) != len(query.split("&")):
        mark = "?" if kept else ""
    return tail + mark + "&".join(kept), settings


class QueueApp(App):
    """Routes of a queue over its engine; `token` returns the one valid token."""

    service = "queue"

    def __init__(
        self, engine: Engine, token: Callable[[], str], more: Iterable[MoreRoutes] = ()
    ) -> None:
        self.engine = engine
        self._token = token
        self._more = [FirstEra(engine), *more]

    def routes(self) -> list[Route]:
        return [
            *(route for part in self._more for route in part.routes()),
            Route("POST", "/v2/publish/{destination*}", "publish", self.publish),
            Route("POST", "/v2/enqueue/{queue}/{destination*}", "enqueue", self.enqueue),
            Route("POST", "/v2/batch", "batch", self.batch),
            Route("DELETE", "/v2/messages", "cancel_messages", self.cancel_messages),
            Route("GET", "/v2/messages/{id}", "get_message", self.get_message),
            Route("DELETE", "/v2/messages/{id}", "cancel_message", self.cancel_message),
            Route("GET", "/v2/schedules", "list_schedules", self.list_schedules),
            Route("PATCH POST", "/v2/schedules/{id}/pause", "pause_schedule", self.pause_schedule),
            Route(
                "PATCH POST", "/v2/schedules/{id}/resume", "resume_schedule", self.resume_schedule
            ),
            Route("GET", "/v2/schedules/{id}", "get_schedule", self.get_schedule),
            Route("DELETE", "/v2/schedules/{id}", "delete_schedule", self.delete_schedule),
            Route("POST", "/v2/schedules/{destination*}", "create_schedule", self.create_schedule),
            Route("GET", "/v2/queues", "list_queues", self.list_queues),
            Route("POST", "/v2/queues", "upsert_queue", self.upsert_queue),
            Route("GET", "/v2/queues/{name}", "get_queue", self.get_queue),
            Route("DELETE", "/v2/queues/{name}", "delete_queue", self.delete_queue),
            Route("POST", "/v2/queues/{name}/pause", "pause_queue", self.pause_queue),
            Route("POST", "/v2/queues/{name}/resume", "resume_queue", self.resume_queue),
            Route("GET", "/v2/topics", "list_groups", self.list_groups),
            Route("GET", "/v2/topics/{name}", "get_group", self.get_group),
            Route("DELETE", "/v2/topics/{name}", "delete_group", self.delete_group),
            Route("PATCH", "/v2/topics/{name}", "change_group", self.change_group),
            Route("POST", "/v2/topics/{name}/endpoints", "add_endpoints", self.add_endpoints),
            Route(
                "DELETE", "/v2/topics/{name}/endpoints", "remove_endpoints", self.remove_endpoints
            ),
            Route("GET", "/v2/dlq", "list_dead_letters", self.list_dead_letters),
            Route("DELETE", "/v2/dlq", "delete_dead_letters", self.delete_dead_letters),
            Route("POST", "/v2/dlq/retry", "retry_dead_letters", self.retry_dead_letters),
            Route("POST", "/v2/dlq/retry/{id}", "retry_dead_letter", self.retry_dead_letter),
            Route("GET", "/v2/dlq/{id}", "get_dead_letter", self.get_dead_letter),
            Route("DELETE", "/v2/dlq/{id}", "delete_dead_letter", self.delete_dead_letter),
            Route("GET", "/v2/events", "list_events", self.list_events),
            Route("GET", "/v2/logs", "list_logs", self.list_logs),
            Route("GET", "/v2/keys", "get_keys", self.get_keys),
            Route("POST GET", "/v2/keys/rotate", "rotate_keys", self.rotate_keys),
            Route("GET", "/v2/flowControl", "list_flow_controls", self.list_flow_controls),
            Route("GET", "/v2/flowControl/{key}", "get_flow_control", self.get_flow_control),
            Route("POST", "/v2/flowControl/{key}/pause", "pause_flow", self.pause_flow),
            Route("POST", "/v2/flowControl/{key}/resume", "resume_flow", self.resume_flow),
            Route("POST", "/v2/flowControl/{key}/pin", "pin_flow", self.pin_flow),
            Route("POST", "/v2/flowControl/{key}/unpin", "unpin_flow", self.unpin_flow),
            Route("POST", "/v2/flowControl/{key}/resetRate", "reset_rate", self.reset_rate),
            Route("POST", "/v2/flowControl/{key}/reset", "reset_rate", self.reset_rate),
            Route("GET", "/v2/globalParallelism", "global_parallelism", self.global_parallelism),
        ]

    # -- the dialect -----------------------------------------------------------------------------

    def authenticate(self, request: Request) -> object:
        if request.path.startswith(HOOKS):
            return None
        given = bearer_token(request.header("Authorization"))
        if given is None:
            given = request.query("qstash_token")
        if not same(given, self._token()):
            raise errors.unauthorized()
        return given

    def wrong_method(self, request: Request, allowed: frozenset[str]) -> Answer:
        # Observed: plain text, unlike every other error.
        return Answer(
            b"Method Not Allowed",
            405,
            [("Allow", ", ".join(sorted(allowed)))],
            "text/plain; charset=utf-8",
        )

    def facts(self, request: Request) -> dict[str, Any]:
        facts: dict[str, Any] = dict(request.params)
        if "destination" in request.params:
            facts["url"] = facts["destination"] = as_text(destination_of(request)[0])
            facts["label"] = request.header("Upstash-Label")
        return facts

    def answer_published(self, result: Published, status: int = 201) -> Answer:
        """Return the answer to a publish request: an object, or an array for a URL group."""
        if result.schedule_id is not None:
            return Answer({"scheduleId": result.schedule_id}, status)
        body: Any = [_accepted(one) for one in result.accepted]
        if not result.group:
            body = body[0]
        return Answer(
            body, 202 if result.duplicate else status, self.engine.publisher.daily_headers()
        )

    # -- publishing ------------------------------------------------------------------------------

    def publish(self, request: Request) -> Answer:
        return self._publish(request)

    def enqueue(self, request: Request) -> Answer:
        name = check_name(decode_segment(request.params["queue"]), "queue name")
        return self._publish(request, queue_name=name)

    def create_schedule(self, request: Request) -> Answer:
        return self._publish(request, schedule_only=True)

    def _publish(self, request: Request, **options: Any) -> Answer:
        destination, settings = destination_of(request)
        result = self.engine.publisher.publish(
            destination,
            request.headers,
            request.body,
            query=settings,
            caller_ip=request.client_address,
            **options,
        )
        return self.answer_published(result)

    def batch(self, request: Request) -> Answer:
        limit = self.engine.limits.batch_size
        if len(request.body) > limit:
            raise QueueError(413, f"quota maxBatchSize exceeded, current limit: {limit}")
        try:
            items = json_value(request.body)
        except ValueError as error:
            raise bad_request(f"invalid batch: {error}") from None
        if not isinstance(items, list):
            raise bad_request("invalid batch: expected a JSON array")
        self.engine.publisher.count_request()
        answers = [self._batch_item(item, request) for item in items]
        return Answer(answers, 200, self.engine.publisher.daily_headers())

    def _batch_item(self, item: Any, request: Request) -> object:
        try:
            destination, headers, body, queue = read_batch_item(item)
            result = self.engine.publisher.publish(
                destination,
                headers,
                body,
                caller_ip=request.client_address,
                queue_name=queue,
                counted=False,
            )
        except QueueError as error:
            return error_item(error)
        return self.answer_published(result).body

    # -- messages --------------------------------------------------------------------------------

    def get_message(self, request: Request) -> object:
        return records.message_record(self.engine.message(_segment(request, "id")))

    def cancel_message(self, request: Request) -> object:
        return {"cancelled": self.engine.cancel(_segment(request, "id"))}

    def cancel_messages(self, request: Request) -> object:
        chosen = filters.read_filters(_pairs(request), filters.FOR_MESSAGES, most=2**62)
        if chosen.empty and _names_nothing(request, "messageIds", "messageId"):
            return {"cancelled": 0}
        with self.engine.lock:
            found = [
                message
                for message in self._candidates(chosen)
                if chosen.matches(message, message.created_us)
            ]
            if chosen.count is not None:
                found = found[: chosen.count]
            return {"cancelled": self.engine.cancel_all(found)}

    def _candidates(self, chosen: filters.Filters) -> list[Message]:
        ids = chosen.fields.get("messageIds") or chosen.fields.get("messageId")
        pending = self.engine.pending
        if ids is None:
            return list(pending.values())
        found: dict[str, Message] = {}
        for one in ids:
            for task in self.engine.groups_of_tasks.get(one, [one]):
                if task in pending:
                    found[task] = pending[task]
        return list(found.values())

    # -- schedules -------------------------------------------------------------------------------

    def _schedule(self, schedule_id: str) -> records.Record:
        engine = self.engine
        with engine.lock:
            schedule = engine.schedules.get(schedule_id)
            retries = min(engine.settings.default_retries, engine.limits.retries)
            return records.schedule_record(
                schedule, engine.schedules.states(schedule), retries, engine.limits.timeout_us
            )

    def list_schedules(self, request: Request) -> object:
        return [self._schedule(one) for one in list(self.engine.schedules.by_id)]

    def get_schedule(self, request: Request) -> object:
        return self._schedule(_segment(request, "id"))

    def delete_schedule(self, request: Request) -> Answer:
        self.engine.schedules.delete(_segment(request, "id"))
        return _empty()

    def pause_schedule(self, request: Request) -> Answer:
        self.engine.schedules.pause(_segment(request, "id"), True)
        return _empty()

    def resume_schedule(self, request: Request) -> Answer:
        self.engine.schedules.pause(_segment(request, "id"), False)
        return _empty()

    # -- queues ----------------------------------------------------------------------------------

    def _queue(self, name: str) -> records.Record:
        with self.engine.lock:
            queue = self.engine.queues.get(name)
            return records.queue_record(queue, self.engine.gates.lag(queue))

    def list_queues(self, request: Request) -> object:
        return [self._queue(name) for name in list(self.engine.queues.by_name)]

    def upsert_queue(self, request: Request) -> Answer:
        body = json_object(request)
        name = body.get("queueName")
        parallelism = body.get("parallelism")
        paused = body.get("paused")
        if not isinstance(name, str):
            raise bad_request("invalid queue: queueName must be a string")
        if parallelism is not None and (
            isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1
        ):
            raise bad_request("invalid queue: parallelism must be a number of at least 1")
        if paused is not None and not isinstance(paused, bool):
            raise bad_request("invalid queue: paused must be true or false")
        self.engine.gates.upsert_queue(name, parallelism=parallelism, paused=paused)
        return _empty()

    def get_queue(self, request: Request) -> object:
        return self._queue(_segment(request, "name"))

    def delete_queue(self, request: Request) -> Answer:
        self.engine.gates.delete_queue(_segment(request, "name"))
        return _empty()

    def pause_queue(self, request: Request) -> Answer:
        self.engine.gates.pause_queue(_segment(request, "name"))
        return _empty()

    def resume_queue(self, request: Request) -> Answer:
        self.engine.gates.resume_queue(_segment(request, "name"))
        return _empty()

    # -- URL groups ------------------------------------------------------------------------------

    def list_groups(self, request: Request) -> object:
        with self.engine.lock:
            return [records.group_record(one) for one in self.engine.groups.by_name.values()]

    def get_group(self, request: Request) -> object:
        with self.engine.lock:
            return records.group_record(self.engine.groups.get(_segment(request, "name")))

    def delete_group(self, request: Request) -> Answer:
        with self.engine.lock:
            group = self.engine.groups.find(_segment(request, "name"))
            if group is not None:
                self.engine.groups.remove(group)
        return _empty()

    def change_group(self, request: Request) -> Answer:
        headers = json_object(request).get("headers")
        if not isinstance(headers, dict):
            raise bad_request("invalid topic: headers must be an object")
        pairs = _header_pairs(headers)
        defaults: Headers = [
            (
                name
                if name.lower().startswith(("upstash-", "service-", "content-type"))
                else f"Upstash-Forward-{name}",
                value,
            )
            for name, value in pairs
        ]
        read_given(defaults)
        with self.engine.lock:
            group = self.engine.groups.get(_segment(request, "name"))
            group.headers = defaults
            group.updated_us = self.engine.clock.now_us()
        return _empty()

    def add_endpoints(self, request: Request) -> Answer:
        wanted = _endpoints(request)
        for item in wanted:
            if not isinstance(item.get("url"), str):
                raise bad_request("invalid endpoint: url must be a string")
        engine = self.engine
        with engine.lock:
            now = engine.clock.now_us()
            trial = engine.groups.copy()
            # Tried on a copy first: of a list with one bad endpoint none is added.
            for groups in (trial, engine.groups):
                group = groups.create(_segment(request, "name"), now)
                for item in wanted:
                    groups.add(group, as_wire(item["url"]), item.get("name") or None, now)
        return _empty()

    def remove_endpoints(self, request: Request) -> Answer:
        wanted = _endpoints(request)
        for item in wanted:
            if item.get("url") is None and item.get("name") is None:
                raise bad_request("invalid endpoint: give url or name")
        with self.engine.lock:
            group = self.engine.groups.get(_segment(request, "name"))
            self.engine.groups.remove_endpoints(group, wanted, self.engine.clock.now_us())
        return _empty()

    # -- dead letters ----------------------------------------------------------------------------

    def _letter(self, dlq_id: str) -> records.Record:
        engine = self.engine
        with engine.lock:
            row = engine.dead_letters.get(dlq_id)
            message = engine.dead_letters.message(row)
            return records.dead_letter_record(message, row.id, engine.settings.no_answer_status)

    def list_dead_letters(self, request: Request) -> object:
        chosen = filters.read_filters(_query(request), filters.FOR_DEAD_LETTERS)
        rows, cursor = self.engine.dead_letters.select(chosen)
        return {"messages": [self._letter(row.id) for row in rows]} | _cursor(cursor)

    def get_dead_letter(self, request: Request) -> object:
        return self._letter(_segment(request, "id"))

    def delete_dead_letter(self, request: Request) -> Answer:
        letters = self.engine.dead_letters
        letters.delete([letters.get(_segment(request, "id"))])
        return _empty()

    def delete_dead_letters(self, request: Request) -> object:
        with self.engine.lock:
            rows, cursor = self._chosen_letters(request)
            return {"deleted": self.engine.dead_letters.delete(rows)} | _cursor(cursor)

    def retry_dead_letter(self, request: Request) -> Answer:
        return Answer(_accepted(self._retry(_segment(request, "id"), request)), 201)

    def retry_dead_letters(self, request: Request) -> Answer:
        with self.engine.lock:
            rows, cursor = self._chosen_letters(request)
            responses = [_accepted(self._retry(row.id, request)) for row in rows]
        return Answer({"cursor": cursor or "", "responses": responses}, 201)

    def _chosen_letters(self, request: Request) -> tuple[list[Any], str | None]:
        chosen = filters.read_filters(_pairs(request), filters.FOR_DEAD_LETTERS)
        if chosen.empty and _names_nothing(request, "dlqIds", "dlqId"):
            return [], None
        return self.engine.dead_letters.select(chosen)

    def _retry(self, dlq_id: str, request: Request) -> Accepted:
        engine = self.engine
        with engine.lock:
            row = engine.dead_letters.get(dlq_id)
            plain = [
                (name, value) for name, value in request.headers if name.lower() != "content-type"
            ]
            accepted = engine.publisher.retry_dead_letter(engine.dead_letters.message(row), plain)
            engine.dead_letters.delete([row])
            return accepted

    # -- logs, keys ------------------------------------------------------------------------------

    def _log_page(self, request: Request) -> tuple[list[records.Record], dict[str, str]]:
        engine = self.engine
        chosen = filters.read_filters(_query(request), filters.FOR_LOGS, most=MOST)
        with engine.lock:
            no_answer = engine.settings.no_answer_status
            rows, cursor = engine.logs.page(chosen, engine.messages.__getitem__, no_answer)
            found = [
                records.log_record(row, engine.messages[row.message_id], no_answer) for row in rows
            ]
        return found, _cursor(cursor)

    def list_events(self, request: Request) -> object:
        rows, cursor = self._log_page(request)
        return {"events": rows} | cursor

    def list_logs(self, request: Request) -> object:
        rows, cursor = self._log_page(request)
        return {"logs": rows, "events": rows} | cursor

    def get_keys(self, request: Request) -> object:
        return {"current": self.engine.keys.current, "next": self.engine.keys.next}

    def rotate_keys(self, request: Request) -> object:
        self.engine.rotate_keys()
        return self.get_keys(request)

    # -- flow control ----------------------------------------------------------------------------

    def list_flow_controls(self, request: Request) -> object:
        with self.engine.lock:
            found = self.engine.flow.search(request.query("search"))
            return [self.engine.gates.flow_record(key) for key in found]

    def get_flow_control(self, request: Request) -> object:
        with self.engine.lock:
            return self.engine.gates.flow_record(self.engine.flow.get(_segment(request, "key")))

    def pause_flow(self, request: Request) -> Answer:
        return self._set_flow_paused(request, True)

    def resume_flow(self, request: Request) -> Answer:
        return self._set_flow_paused(request, False)

    def _set_flow_paused(self, request: Request, paused: bool) -> Answer:
        engine = self.engine
        with engine.lock:
            key = engine.flow.configure(_segment(request, "key"), engine.clock.now_us())
            key.paused = paused
            engine.gates.pump_flow(key)
        return _empty()

    def pin_flow(self, request: Request) -> Answer:
        engine = self.engine
        numbers: dict[str, int | None] = {"parallelism": None, "rate": None, "period": None}
        for name, value in _query(request):
            if name not in numbers:
                raise bad_request(f"unknown setting {name!r}, expected {', '.join(numbers)}")
            numbers[name] = read_integer(value, name, least=1)
        period = numbers["period"]
        if period is not None and period > 7 * 86_400:
            raise bad_request("invalid period: it must be from 1 to 604800 seconds")
        with engine.lock:
            key = engine.flow.pin(
                _segment(request, "key"),
                engine.clock.now_us(),
                parallelism=numbers["parallelism"],
                rate=numbers["rate"],
                period_us=None if period is None else period * SECOND,
            )
            engine.gates.pump_flow(key)
        return _empty()

    def unpin_flow(self, request: Request) -> Answer:
        flags = {"parallelism": False, "rate": False}
        for name, value in _query(request):
            if name not in flags or value.lower() not in ("true", "false"):
                raise bad_request(f"invalid setting {name}={value}, expected parallelism or rate")
            flags[name] = value.lower() == "true"
        with self.engine.lock:
            self.engine.flow.unpin(_segment(request, "key"), **flags)
        return _empty()

    def reset_rate(self, request: Request) -> Answer:
        engine = self.engine
        with engine.lock:
            key = engine.flow.get(_segment(request, "key"))
            key.restart_period(engine.clock.now_us())
            engine.gates.pump_flow(key)
        return _empty()

    def global_parallelism(self, request: Request) -> object:
        return {
            "parallelismMax": self.engine.limits.parallelism or 0,
            "parallelismCount": len(self.engine.active),
        }


def _empty() -> Answer:
    return Answer(b"", 200)


def _segment(request: Request, name: str) -> str:
    return decode_segment(request.params[name])


def _query(request: Request) -> list[tuple[str, str]]:
    return [
        pair
        for pair in request.query_items()
        if pair[0] != "qstash_token" and not pair[0].lower().startswith("upstash-")
    ]


def _pairs(request: Request) -> list[tuple[str, str]]:
    return _query(request) + filters.pairs_of(json_object(request))


def _names_nothing(request: Request, *names: str) -> bool:
    """Whether ids were asked for and none was given: that must never mean all."""
    body = json_object(request)
    return any(name in body or request.query(name) is not None for name in names)


def _cursor(cursor: str | None) -> dict[str, str]:
    return {} if cursor is None else {"cursor": cursor}


def _accepted(one: Accepted) -> dict[str, object]:
    answer: dict[str, object] = {"messageId": one.message_id, "url": as_text(one.url)}
    if one.deduplicated:
        answer["deduplicated"] = True
    return answer


def _endpoints(request: Request) -> list[dict[str, Any]]:
    found = json_object(request).get("endpoints")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise bad_request("invalid body: endpoints must be an array of objects")
    for item in found:
        for name in ("url", "name"):
            if item.get(name) is not None and not isinstance(item[name], str):
                raise bad_request(f"invalid endpoint: {name} must be a string")
    return found


def _header_pairs(headers: dict[str, Any]) -> Headers:
    pairs: Headers = []
    for name, value in headers.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict | list) or one is None:
                raise bad_request(f"invalid header {name}: expected text")
            text = one if isinstance(one, str) else json.dumps(one)
            pairs.append((as_wire(name), as_wire(text)))
    return pairs


def read_batch_item(item: Any) -> tuple[str, Headers, bytes, str | None]:
    """Return destination, headers, body and queue of a batch item; 400 for a malformed one."""
    if not isinstance(item, dict):
        raise bad_request("invalid batch item: expected an object")
    destination = item.get("destination")
    if not isinstance(destination, str) or not destination:
        raise bad_request("invalid batch item: destination must be a string")
    headers = item.get("headers")
    headers = {} if headers is None else headers
    if not isinstance(headers, dict):
        raise bad_request("invalid batch item: headers must be an object")
    body = item.get("body")
    if body is not None and not isinstance(body, str):
        raise bad_request("invalid batch item: body must be a string")
    queue = item.get("queue")
    if queue is not None and not isinstance(queue, str):
        raise bad_request("invalid batch item: queue must be a string")
    if queue:
        check_name(queue, "queue name")
    data = b"" if body is None else body.encode("utf-8", "surrogatepass")
    return as_wire(destination), _header_pairs(headers), data, queue or None


__all__ = ["MoreRoutes", "QueueApp", "ServiceError", "destination_of", "read_batch_item"]
