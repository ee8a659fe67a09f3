"""Endpoints for the events that workflow runs wait for, and for their webhooks.

Source: the official clients' code and the vendor's documentation. The vendor documents a 400 for an
event id with other characters than those of names. Decided here: the sources disagree about the response
of ``POST /v2/notify/{run}/{event}``: it is one object, as in the vendor's OpenAPI file and a comment in
the JavaScript client, whose types say that it is a list. If the run does not wait yet, the object has no
waiter and an empty id. A run that waits for an event in several branches is notified in all of them, and
the object is about the first.
"""

from __future__ import annotations

import json

from ...http.messages import Json, Request
from ..engine.engine import Engine
from ..wire.values import check_name, encoded, header_map
from .requests import json_object
from .routing import QueueRoute

HOOKS = "/v2/workflows/hooks/"
"""Prefix of paths that need no token, because the sender of a workflow's webhook has only the URL."""
_METHODS = "GET POST PUT PATCH DELETE HEAD OPTIONS"


def wait_for_event(engine: Engine, request: Request) -> object:
    wait = json_object(request, required=True)
    waiter = engine.event_waits.wait_for_event(
        _event_id(request), wait, list(request.headers.pairs)
    )
    return {"messageId": waiter.message_id}


def notify_event(engine: Engine, request: Request) -> Json:
    return Json(engine.event_waits.notify(_event_id(request), request.body), 201)


def notify_run(engine: Engine, request: Request) -> Json:
    notified = engine.event_waits.notify_run(
        request.segment("run"), _event_id(request), request.body
    )
    return Json(notified, 201)


def list_waiters(engine: Engine, request: Request) -> object:
    waiters = engine.event_waits.waiters_for(_event_id(request))
    return [engine.event_waits.waiter_record(waiter) for waiter in waiters]


def workflow_webhook(engine: Engine, request: Request) -> object:
    event = {
        "method": request.method,
        "header": header_map(request.headers.pairs),
        "body": encoded(request.body),
        "proto": "http",
        "host": request.headers.get("Host") or "127.0.0.1",
        "url": request.target,
    }
    run_id = request.segment("run")
    engine.event_waits.notify_run(run_id, request.segment("event"), json.dumps(event).encode())
    return {}


def _event_id(request: Request) -> str:
    return check_name(request.segment("event"), "event id")


ROUTES = [
    QueueRoute("POST", "/v2/wait/{event}", "wait_for_event", wait_for_event, unlimited=True),
    QueueRoute("POST", "/v2/notify/{event}", "notify_event", notify_event, unlimited=True),
    QueueRoute("POST", "/v2/notify/{run}/{event}", "notify_event", notify_run, unlimited=True),
    QueueRoute("GET", "/v2/waiters/{event}", "list_waiters", list_waiters),
    QueueRoute(
        _METHODS,
        HOOKS + "{user}/{run}/{event}",
        "workflow_webhook",
        workflow_webhook,
        changes=True,
        unlimited=True,
    ),
]
