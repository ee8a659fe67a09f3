"""The messages, schedules, runs and callbacks that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ...core.bodies import items_of, parsed
from ...core.calls import CREATED, Arguments, Call
from ...core.errors import ContractError
from ...http.routing import RouteTable
from ...reporting.accesses import DataAccess, ReportSubject, Sought, SubjectKind
from ...reporting.calls import changed_items, has_full_answer, success_of
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedAction, MaskedCall, MaskedEvent
from ..rest.app import PUBLISHING, QueueApp
from .lookups import QueueLookups, schedule_of

MESSAGE = SubjectKind("message", has_id=True, is_delivered=True)
SCHEDULE = SubjectKind("schedule", has_id=True)
RUN = SubjectKind("run", has_id=True)
QUEUE = SubjectKind("queue")
CALLBACK = SubjectKind("callback")

_CREATED = {"messageId": MESSAGE, "scheduleId": SCHEDULE, "workflowRunId": RUN}
_SECTIONS = {"messages": MESSAGE, "schedules": SCHEDULE, "workflow runs": RUN}
"""What the items of sections of the state are."""
_PATHS = {"messages": MESSAGE, "queues": QUEUE, "schedules": SCHEDULE, "runs": RUN}
"""What the parts of paths are that come before an ID or a name, such as ``/v2/schedules/{id}/pause``."""
_ROUTES = RouteTable(QueueApp.routes())


def of_action(action: MaskedAction, lookups: Lookups) -> Iterator[DataAccess]:
    message_id = action.data.get(CREATED)
    if action.kind.startswith("message."):
        positional, _ = action.call or ((), {})
        message_id = str(positional[0])
    if message_id:
        yield DataAccess(ReportSubject(MESSAGE, str(message_id), action.fake), True)


def of_call(call: Call, lookups: Lookups) -> Iterator[DataAccess]:
    writes = _ROUTES.writes(call.method, call.path)
    items = items_of(call.response_body) if has_full_answer(call) else []
    created = [
        DataAccess(ReportSubject(kind, item[name], call.fake), writes, "", not item.get("deduplicated"))
        for item in items for name, kind in _CREATED.items() if isinstance(item.get(name), str)
    ]  # fmt: skip
    yield from (*_named_by(call), *created)
    if created:
        return
    if message_id := lookups.of(QueueLookups).created_by_lost_call.get(call.number):
        yield DataAccess(ReportSubject(MESSAGE, message_id, call.fake), True, "", None)
    elif call.route in PUBLISHING:
        is_known = call.fault is None or not call.reached
        succeeded = False if is_known else None
        yield DataAccess(ReportSubject(MESSAGE, "", call.fake), True, "", succeeded)
    elif call.path.startswith(("/v2/messages", "/v2/dlq")):
        body = parsed(call.request_body) if call.request_body else None
        ids = body.get("messageIds") if isinstance(body, dict) else None
        if "id" in call.facts:
            ids = [call.facts["id"]]
        did_something = all(item.get("cancelled") != 0 for item in items)
        subjects = [ReportSubject.all_of(MESSAGE, call.fake)] if writes else []
        if isinstance(ids, list):
            subjects = [ReportSubject(MESSAGE, str(message_id), call.fake) for message_id in ids]
        for subject in subjects:
            yield DataAccess(subject, writes, "", success_of(call, did_something))


def address(call: MaskedCall) -> str:
    """Return the URL of the destination of a request; empty without one."""
    return str(call.facts.get("url") or "")


def _named_by(call: Call) -> Iterator[DataAccess]:
    """Yield the queue and the workflow runs of a request, and what its path names."""
    if call.facts.get("queue"):
        yield DataAccess.named(QUEUE, str(call.facts["queue"]), call.fake)
    if name_in_path := str(call.facts.get("id") or call.facts.get("name") or ""):
        kinds = [_PATHS[part] for part in call.path.split("/") if part in _PATHS]
        for kind in kinds[:1]:
            yield DataAccess.named(kind, name_in_path, call.fake)
    headers_of_items: list[Any] = [item.get("headers") for item in items_of(call.request_body)]
    for headers in (dict(call.request_headers.pairs), *headers_of_items):
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if name.lower() == "upstash-workflow-runid" and isinstance(value, str):
                yield DataAccess.named(RUN, value, call.fake)


def of_event(event: MaskedEvent, lookups: Lookups) -> Iterator[DataAccess]:
    """Yield the messages, the run and the schedule of a delivery, and what another event changed."""
    for name, kind in (("message_id", MESSAGE), ("about", MESSAGE), ("run", RUN)):
        if isinstance(event.data.get(name), str):
            yield DataAccess.named(kind, event.data[name], event.fake)
    if schedule := schedule_of(event, lookups):
        yield DataAccess.named(SCHEDULE, schedule, event.fake)
    for section, item in changed_items(event):
        if kind_of_items := _SECTIONS.get(section):
            yield DataAccess.named(kind_of_items, item, event.fake)


def sought(fake: Any, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of a queue, or of a receiver of its deliveries, looked at: the
    messages that it returns now, all messages if it returns none.
    """
    if method.endswith(("callback", "callbacks", "failure", "failures")):
        return [Sought(ReportSubject(CALLBACK, fake.name, fake.name))]
    positional, by_name = arguments
    ids: list[str] = []
    kind = SCHEDULE if method == "schedules" else MESSAGE
    with suppress(ContractError):  # such as a message that does not exist
        if method.startswith("assert_"):
            url = {"url": positional[0]} if positional and positional[0] is not None else {}
            fields = {name: by_name[name] for name in by_name if name not in ("times", "within")}
            views = [*fake.messages(**url, **fields)]
        elif method == "deliveries":
            routes = fake.destinations.routes()
            views = [delivery for route in routes if route.prefix == positional[0]
                     for delivery in route.deliveries]  # fmt: skip
        elif method == "message":
            views = [fake.message(*positional, **by_name)]
        else:
            views = [*getattr(fake, method)(*positional, **by_name)]
        views = [getattr(view, "message", view) for view in views]  # that of a dead letter
        ids = [getattr(view, "message_id", None) or view.id for view in views]
    subjects = [ReportSubject(kind, name, fake.name) for name in dict.fromkeys(ids)]
    return list(map(Sought, subjects or [ReportSubject.all_of(kind, fake.name)]))
