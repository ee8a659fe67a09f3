"""Messages, dead letters, schedules, queues, URL groups, flow control and workflow runs of a queue.

Lists and their items show redacted parts as the API does. The control API returns to a test what the
test published, so its views of messages show them in clear.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...cloud.fake import core_of
from ...core.errors import ContractError
from ...core.timers import Timer, to_datetime
from ...inspect.data import (
    MOST_IN_VIEW,
    PAGE,
    AttemptView,
    DeadLetter,
    EventKind,
    Item,
    Listing,
    MessageView,
    NotFound,
    OpenLetter,
    PageQuery,
    PlannedEvent,
    State,
    View,
    cut,
    natural,
    page_of,
    page_of_names,
    plain,
    shown_time,
)
from ...reporting.readable import readable
from ..delivery.destinations import route_to
from ..engine.url_groups import UrlGroup
from ..errors import QueueError
from ..fake import Queue
from ..model import NOTHING_REDACTED, FlowKey, Message, OrderedQueue, PublishSettings, Redaction
from ..views import STATE_NAMES, DeadLetterView, PublishedMessage, ScheduleView, record_of
from ..wire import records
from ..wire.values import as_text, flow_text, header_map, shown_headers, shown_text
from ..workflow.model import read_step, run_record
from .cron_words import cron_words
from .failures import failure_of
from .failures import failure_words as failure_words
from .steps import (
    ComparedPart,
    as_stack,
    cause_of,
    compared,
    recorded_steps,
    result_in_row,
    step_count,
    step_of,
    step_sent,
    steps_of,
)

LONGEST_BODY = 100_000
"""Maximum number of characters of a body that is shown."""
_LONGEST_KEPT = 20_000
"""Maximum length of a body whose readable form is kept for the next time."""
_DELIVERABLE = ("CREATED", "RETRY")
"""The states of messages that wait for their next attempt."""
_RUNS = 3
"""Number of upcoming runs shown for a schedule."""
_RUNS_IN_VIEW = 20
"""Maximum number of workflow runs in a view."""


P = ParamSpec("P")
T = TypeVar("T")


def _locked(show: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Queue, P], T]:
    """Call a function with a queue's engine, and hold its lock so that no other thread changes it.

    The call itself must not settle the clock. Another thread may be settling it and waiting for
    this lock to run a due timer; the two threads would wait for each other for ever.
    """

    @wraps(show)
    def locked(fake: Queue, /, *args: P.args, **named: P.kwargs) -> T:
        core = core_of(fake)
        core.timekeeper.settle()
        with core.engine.lock:
            return show(core.engine, *args, **named)

    return locked


def _readable(body: str) -> str:
    # A page has the messages at each row of a report, with the same bodies.
    return (_readable_once if len(body) <= _LONGEST_KEPT else readable)(body)


_readable_once = lru_cache(maxsize=1_000)(readable)


def _body(data: bytes, redaction: Redaction) -> View:
    return cut("body", shown_text(data, redaction), LONGEST_BODY)


def _is_whole(data: bytes, redaction: Redaction) -> bool:
    """Return whether a body is shown as it was sent: not redacted, not cut, and text."""
    shown: str = _body(data, redaction)["body"]
    return not redaction.body and shown.encode("utf-8", "surrogatepass") == data


def _beginning(data: bytes, redaction: Redaction, most: int) -> str:
    """Return the first bytes of a body as text, or the replacement of the whole redacted body."""
    return shown_text(data if redaction.body else data[:most], redaction)


def _at(at_us: int | None) -> str | None:
    return None if at_us is None else to_datetime(at_us).isoformat()


@_locked
def state(engine: Any) -> State:
    return {
        "messages": {
            message.id: _message_item(message) for message in engine.data.messages.values()
        },
        "dead letters": {
            letter.id: {"url": letter.url, "status": letter.status, "message": letter.message.id}
            for letter in _dead_letters(engine)
        },
        "schedules": {schedule.id: _schedule_item(schedule) for schedule in _schedules(engine)},
        "queues": {name: _queue_item(queue) for name, queue in engine.queues.by_name.items()},
        "URL groups": {
            group.name: {
                "endpoints": _endpoints(group),
                "headers": shown_headers(group.headers, NOTHING_REDACTED),
            }
            for group in engine.url_groups.by_name.values()
        },
        "flow control": {
            name: {
                **_flow_item(flow_key),
                "period (s)": flow_key.period_us / 1e6,
                "active": list(flow_key.active),
            }
            for name, flow_key in engine.flow_control.by_name.items()
        },
        "deduplication": {
            key: {"first": first, "until": shown_time(until_us)}
            for key, (until_us, first) in engine.deduplication.keys.items()
        },
        "workflow runs": {
            workflow_run.id: {
                "url": as_text(workflow_run.url),
                "state": _run_state(workflow_run),
                "steps": step_count(engine, workflow_run),
                "messages": len(workflow_run.message_ids),
            }
            for workflow_run in engine.workflow.runs.values()
        },
        "waits for events": {
            waiter.message_id: {
                "event": waiter.event_id,
                "run": waiter.run_id,
                "until": shown_time(waiter.deadline_us),
            }
            for waiter in engine.workflow.waiters
        },
        "early notifications": {
            f"{event} of {run}": {"bytes": len(data)}
            for (run, event), data in engine.workflow.notified.items()
        },
    }


def item_reader(fake: Queue, section: str, item: str) -> Callable[[], Item | None] | None:
    """Return a function that reads one message; None for other items."""

    @_locked
    def read(engine: Any) -> Item | None:
        message = engine.data.messages.get(item)
        return None if message is None else _message_item(message)

    return partial(read, fake) if section == "messages" else None


def _message_item(message: Message) -> Item:
    return {
        **_message(message),
        "body": _readable(shown_text(message.body, message.settings.redaction)) or None,
        "attempts": [attempt.status for attempt in message.attempts],
        "next attempt": message.due_us and shown_time(message.due_us),
        "waits for": _waits_for(message) or None,
        **_settings(message),
    }


def _schedule_item(schedule: ScheduleView) -> Item:
    record = record_of(schedule)
    return {
        **_schedule(schedule),
        "body": _readable(shown_text(record.body, record.settings.redaction)) or None,
        "next run": record.planned_us and shown_time(record.planned_us),
        "last run": record.last_us and shown_time(record.last_us),
        "error": record.error,
    }


def _queue_item(queue: OrderedQueue) -> Item:
    waiting = [*queue.parked, *queue.waiting][:PAGE]
    return {"parallelism": queue.parallelism, "paused": queue.paused, "waiting": waiting}


def _flow_item(flow_key: FlowKey) -> Item:
    return {
        "parallelism": flow_key.parallelism,
        "rate": flow_key.rate,
        "paused": flow_key.paused,
        "pinned": flow_key.pinned_parallelism or flow_key.pinned_rate,
        "waiting": list(flow_key.waiting)[:PAGE],
    }


def _endpoints(group: UrlGroup) -> list[View]:
    return [{"name": endpoint.name, "url": as_text(endpoint.url)} for endpoint in group.endpoints]


def _waits_for(message: Message) -> str:
    """Return what a message without a due time waits for; empty if it does not wait."""
    return "" if message.finished or message.due_us is not None else message.wait_reason


def _settings(message: Message) -> Item:
    settings = message.settings
    fields = {
        "queue": message.queue_name,
        "URL group": message.topic_name,
        "schedule": message.schedule_id,
        "flow control": settings.flow and settings.flow.key,
        "callback": settings.callback,
        "failure callback": settings.failure_callback,
        "timeout": message.timeout_us and f"{message.timeout_us / 1e6:g} s",
        "retry delay": settings.retry_delay and f"{settings.retry_delay} ms",
        "labels": ", ".join(settings.labels),
    }
    return {name: value for name, value in fields.items() if value}


def _message(message: Message) -> View:
    return {"url": as_text(message.url), "kind": message.kind, "state": STATE_NAMES[message.state]}


def _schedule(schedule: ScheduleView) -> View:
    return {"cron": schedule.cron, "destination": schedule.url, "paused": schedule.paused}


# -- messages --------------------------------------------------------------------------------------


def _text_of(message: Message) -> str:
    """Return what a search looks at: id, URL, labels, and the beginnings of the body and the answers."""
    labels, redaction = " ".join(message.settings.labels), message.response_redaction
    answers = [
        f"{failure_of(attempt) or ''} {shown_text(attempt.body[:_SEARCHED], redaction)}"
        for attempt in message.attempts
    ]
    body = _beginning(message.body, message.settings.redaction, _SEARCHED)
    parts = [message.public_id, as_text(message.url), labels, body]
    return "\n".join([*parts, *answers])


_SEARCHED = 10_000
"""Maximum number of bytes of a body that a search looks at."""


def _message_row(message: Message) -> View:
    outcome = message.last_outcome
    return {
        "id": message.id,
        "public_id": message.public_id,
        **_message(message),
        "method": message.settings.method,
        "created": _at(message.created_us),
        "next": _at(message.due_us) if message.state in _DELIVERABLE else None,
        "waits_for": _waits_for(message),
        "attempts": len(message.attempts),
        "most_attempts": message.most_attempts,
        "retried": message.retried,
        "max_retries": message.max_retries,
        "status": None if outcome is None else outcome.status,
        "label": " ".join(message.settings.labels),
        "about": message.source_id,
        "preview": _beginning(message.body, message.settings.redaction, 200),
        "run": None if message.workflow is None else message.workflow.run_id,
        "step": str(step_of(message).get("stepName") or ""),
        "result": result_in_row(step_of(message), _IN_EVENT),
    }


def _input_in_row(engine: Any, message: Message) -> str:
    """Return the beginning of the input of a message's run, which tells runs of one workflow apart."""
    run = None if message.workflow is None else engine.workflow.runs.get(message.workflow.run_id)
    started_with = b"" if run is None else _input_of_run(engine, run) or b""
    return _beginning(started_with, message.settings.redaction, _IN_EVENT)


def _filter(page_query: PageQuery) -> Callable[[Message], bool]:
    """Return a predicate that applies the filters ``_FILTERS``."""
    since, until = page_query.time_us("since"), page_query.time_us("until")
    label, status, url = (page_query.filters.get(name, "") for name in ("label", "status", "url"))
    origin = [page_query.filters.get(name, "") for name in _ORIGIN]

    def fits(message: Message) -> bool:
        outcome = message.last_outcome
        last = "" if outcome is None or outcome.status is None else str(outcome.status)
        return (
            (since is None or message.created_us >= since)
            and (until is None or message.created_us < until)
            and (not label or label in message.settings.labels)
            # "5xx" is every status from 500 to 599.
            and status in ("", last, f"{last[:1]}xx" if last else "")
            and url in as_text(message.url)
            and all(
                expected in ("", name)
                for expected, name in zip(origin, _origin(message), strict=True)
            )
        )

    return fits


_ORIGIN = ("queue", "group", "schedule", "flow")
"""The filters for the names that `_origin()` returns."""


def _origin(message: Message) -> tuple[str | None, ...]:
    """Return the queue, the URL group, the schedule and the flow-control key of a message."""
    flow = message.settings.flow
    group, key = message.topic_name, None if flow is None else flow.key
    return message.queue_name, group, message.schedule_id, key


_FILTERS = ("since", "until", "label", "status", "url", *_ORIGIN)


def _messages(fake: Queue, page_query: PageQuery, *, kinds: Iterable[str]) -> View:
    """Return a page of messages, newest first.

    Filters are ``state``, ``label``, ``url`` (a substring), ``status`` of the last response
    (``503`` or ``5xx``), ``since`` and ``until`` for the time of publishing, and the names of a
    ``queue``, a URL ``group``, a ``schedule`` and a ``flow``-control key.
    """
    engine = core_of(fake).engine
    with engine.lock:
        messages = [message for message in engine.data.messages.values() if message.kind in kinds]
        letter_ids = {letter.id for letter in _dead_letters(engine)}
    retries: dict[str, list[str]] = {}
    for message in messages:
        if message.retry_of:
            retries.setdefault(message.retry_of, []).append(message.id)
    # Release the lock: a search in all bodies may take long, and a row needs only its own message.
    page = page_of(
        filter(_filter(page_query), messages),
        page_query,
        sort_key=lambda message: (-message.number,),
        show=lambda message: (
            _message_row(message)
            | {
                "state": _state_with(message, message.dlq_id in letter_ids),
                "retries": retries.get(message.id, []),
                "input": _input_in_row(engine, message),
            }
        ),
        text=_text_of,
        facet=("state", lambda message: _state_with(message, message.dlq_id in letter_ids)),
    )
    return page | {"total": len(messages)}


def _state_with(message: Message, has_letter: bool) -> str:
    """Return the state of a message; ``failed`` if it has no dead letter any more."""
    state = STATE_NAMES[message.state]
    return "failed" if state == "dead_lettered" and not has_letter else state


@_locked
def message(engine: Any, id: str, page_query: PageQuery) -> View:
    """Return one message in full: body, headers, settings, and attempts with their responses."""
    record = engine.data.messages.get(id)
    if record is None:
        raise NotFound(
            f"there is no message {id!r:.200}: it is no longer kept, or the queue was reset"
        )
    view = PublishedMessage(engine, id)
    settings = record.settings
    dlq_id = _kept(engine, record.dlq_id if record.state == "FAILED" else None)
    return {
        **_message_row(record),
        "state": _state_with(record, dlq_id is not None),
        **_body(record.body, settings.redaction),
        "timeline": view.timeline,
        "headers": shown_headers(settings.forward, settings.redaction),
        "attempts": [
            attempt_view(attempt)
            | {
                "headers": shown_headers(attempt.headers.pairs, record.response_redaction),
                **_body(attempt.body, record.response_redaction),
                "faults": list(attempt.faults),
            }
            for attempt in record.attempts
        ],
        "settings": _settings(record),
        **_sent_again(record),
        "dlq_id": dlq_id,
        "letter_expired_at": _expired_at(engine, record, dlq_id is not None),
        "callbacks": [_message_row(record_of(callback)) for callback in view.callbacks],
        "retry_of": record.retry_of,
        "retries": [other.id for other in engine.data.messages.values() if other.retry_of == id],
    }


def _expired_at(engine: Any, message: Message, has_letter: bool) -> str | None:
    """Return when the dead letter of a message was removed by its age, or None if it was not."""
    if message.dlq_id is None or has_letter or message.has_left_dlq:
        return None
    return to_datetime(engine.dead_letters.expires_us(message)).isoformat()


def _sent_again(message: Message) -> View:
    """Return the headers that publish a message again, and the names of those with a redacted value."""
    return {
        "publish_headers": _publish_headers(message),
        "redacted_headers": _redacted(message.settings),
    }


def _created_again(settings: PublishSettings) -> View:
    """Return the headers, besides cron and id, that create a schedule again with its settings."""
    own = {
        "Upstash-Delay": settings.delay_us and f"{settings.delay_us // 1_000_000}s",
        "Upstash-Queue-Name": settings.queue_name,
    }
    headers = {name: value for name, value in own.items() if value}
    return {
        "publish_headers": _headers_of(settings, settings.retries) | headers,
        "redacted_headers": _redacted(settings),
    }


def _redacted(settings: PublishSettings) -> list[str]:
    """Return the names of forwarded headers whose values are redacted."""
    return [name for name, _ in settings.forward if settings.redaction.hides_header(name)]


def _publish_headers(message: Message) -> dict[str, str]:
    """Return the headers that publish a message again with its settings.

    Its delay, its deduplication, its queue and its workflow run are those of this message only. A run
    that is started again gets its failure callback anew. Headers whose values are redacted are left out.
    """
    settings = message.settings
    if message.workflow is not None:
        forward = [pair for pair in settings.forward if not _is_of_run(pair[0])]
        settings = settings._replace(forward=forward, failure_callback_headers=())
        if settings.failure_callback == message.url:
            settings = settings._replace(failure_callback=None)
    return _headers_of(settings, message.max_retries)


def _headers_of(settings: PublishSettings, retries: int | None) -> dict[str, str]:
    """Return the headers of a request with these settings and so many retries, None for the default."""
    own = {
        "Content-Type": settings.content_type,
        "Upstash-Method": None if settings.method == "POST" else settings.method,
        "Upstash-Retries": None if retries is None else str(retries),
        "Upstash-Retry-Delay": settings.retry_delay,
        "Upstash-Timeout": settings.timeout_us and f"{settings.timeout_us / 1e6:g}s",
        "Upstash-Callback": settings.callback,
        "Upstash-Failure-Callback": settings.failure_callback,
        "Upstash-Label": ",".join(settings.labels),
    }
    if (flow := settings.flow) is not None:
        own["Upstash-Flow-Control-Key"] = flow.key
        if flow.parallelism is not None or flow.rate is not None:
            own["Upstash-Flow-Control-Value"] = flow_text(flow)
    nested = {
        "Upstash-Callback-": settings.callback_headers,
        "Upstash-Failure-Callback-": settings.failure_callback_headers,
        "Upstash-Forward-": [
            (name, values)
            for name, values in header_map(settings.forward).items()
            if not settings.redaction.hides_header(name)
        ],
    }
    for prefix, pairs in nested.items():
        for name, value in pairs:
            text = value if isinstance(value, str) else ", ".join(value)
            start = "" if prefix == "Upstash-Forward-" else "Upstash-"
            own[prefix + name.removeprefix(start)] = as_text(text)
    return {name: value for name, value in own.items() if value}


def results_of_messages(fake: Queue, sent: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return the step of a workflow run whose result each message has, by the message's ID.

    ``sent`` has the body of a delivery of each message: of a message that is gone, such as after a
    restore, the step is read from it.
    """
    messages = core_of(fake).engine.data.messages
    steps = (
        (id, step_of(messages[id]) if id in messages else step_sent(id, body))
        for id, body in sent.items()
    )
    return {id: step for id, step in steps if step.keys() >= {"stepId", "stepName", "stepType"}}


def _is_of_run(name: str) -> bool:
    return name.lower().startswith("upstash-workflow-")


def _kept(engine: Any, dlq_id: str | None) -> str | None:
    """Return the id of a dead letter, or None if it has ended."""
    return dlq_id if dlq_id and engine.dead_letters.find(dlq_id) else None


@_locked
def deliver_now(engine: Any, id: str) -> View:
    """Make a pending message due now. Raises ``ContractError`` for any other message."""
    record = engine.data.messages.get(id)
    if record is None:
        raise NotFound(f"there is no message {id!r:.200}")
    if record.state not in _DELIVERABLE:
        state = STATE_NAMES[record.state].replace("_", " ")
        raise ContractError(f"the message is {state}; only a pending message can be delivered now")
    if record.due_us is None:
        raise ContractError(
            f"the message is waiting for {record.wait_reason}, which must end first"
        )
    engine.planning.plan(record, engine.clock.now_us(), "delivered now, on request")
    return _message_row(record)


@_locked
def planned(engine: Any) -> dict[Timer, PlannedEvent]:
    """Return what happens when each timer is due."""
    events: dict[Timer, PlannedEvent] = {}
    for id, timer in engine.planning.timers.items():
        message = engine.data.messages[id]
        events[timer] = _event_of(engine, message, len(message.attempts))
    for id, timer in engine.schedules.timers.items():
        events[timer] = _run_of(engine.schedules.by_id[id])
    return events | {
        timer: PlannedEvent("other", "flow-control", key, timer.label)
        for key, timer in engine.flow_control.timers.items()
    }


@_locked
def without_expired(engine: Any, state: State) -> State:
    """Return a state without the dead letters that are too old now: a restore does not keep them."""
    oldest_ms = (engine.data.clock.now_us() - engine.data.limits.retention_us) // 1000
    if (letters := state.get("dead letters")) is None:
        return state
    recent = {id: letter for id, letter in letters.items() if int(id.split("-")[0]) > oldest_ms}
    return {**state, "dead letters": recent}


def is_answered(fake: Queue, url: str) -> bool:
    """Return whether a destination answers the deliveries to a URL."""
    return route_to(fake.destinations, url) is not None


def has_dead_letters(fake: Queue) -> bool:
    """Return whether a queue has dead letters, without waiting for deliveries in progress."""
    return bool(core_of(fake).engine.dead_letters.by_id)


@_locked
def open_letters(engine: Any, name: str, resends: Mapping[str, Iterable[str]]) -> list[OpenLetter]:
    """Return the dead letters of a queue called ``name`` that no delivered message repeats."""
    delivered_ids = _delivered(engine, resends)
    return [
        OpenLetter(
            name,
            str(letter.dlq_id),
            letter.public_id,
            None if letter.workflow is None else letter.workflow.run_id,
        )
        for letter in engine.dead_letters.all()
        if letter.public_id not in delivered_ids
    ]


@_locked
def delivered(engine: Any, resends: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the ids of the messages that were delivered, or that a delivered message repeats.

    ``resends`` has the messages that were published to repeat others, by the ids of these.
    """
    return _delivered(engine, resends)


def _delivered(engine: Any, resends: Mapping[str, Iterable[str]]) -> set[str]:
    messages = {message.public_id: message for message in engine.data.messages.values()}
    repeated = {repeat: original for original, repeats in resends.items() for repeat in repeats} | {
        message.public_id: message.retry_of for message in messages.values() if message.retry_of
    }
    delivered_ids = set()
    for id, message in messages.items():
        while message.state == "DELIVERED" and id and id not in delivered_ids:
            delivered_ids.add(id)
            id = repeated.get(id, "")
    return delivered_ids


@_locked
def expiries(engine: Any) -> list[tuple[int, PlannedEvent]]:
    """Return when dead letters are removed by their age, in microseconds."""
    return [_removal(engine, letter) for letter in engine.dead_letters.all()]


@_locked
def next_expiry(engine: Any) -> tuple[int, PlannedEvent] | None:
    """Return the first of ``expiries()``, or None without one."""
    return next((_removal(engine, letter) for letter in engine.dead_letters.all()), None)


def _removal(engine: Any, letter: Message) -> tuple[int, PlannedEvent]:
    to = f"{letter.settings.method} {as_text(letter.url)}"
    what = f"removal of a dead letter by its age: {to}"
    return engine.dead_letters.expires_us(letter), PlannedEvent(
        "removal", "dead-letters", letter.dlq_id, what
    )


@_locked
def became_due(
    engine: Any, subject: str, at_us: int
) -> tuple[PlannedEvent, tuple[str, int]] | None:
    """Return what a timer that fired for a message or a schedule has done, and the attempt that it made,
    as the id of its message and its number; None if the queue has no such message or schedule.
    """
    if (message := engine.data.messages.get(subject)) is not None:
        tried = sum(attempt.at_us < at_us for attempt in message.attempts)
        return _event_of(engine, message, tried), (message.public_id, tried + 1)
    schedule = engine.schedules.by_id.get(subject)
    return None if schedule is None else (_run_of(schedule), ("", 0))


def _event_of(engine: Any, message: Message, tried: int) -> PlannedEvent:
    """Return what happens when a message is due that was tried so many times: with the run and the step
    of a workflow, otherwise with the beginning of its body.
    """
    kind, doing = _kind_of(message, tried), _doing(message, tried)
    to = f"{message.settings.method} {as_text(message.url)}"
    if message.workflow is None:
        body = " ".join(_beginning(message.body, message.settings.redaction, _IN_EVENT).split())
        what = f"{doing or 'delivery'}: {to} {body}".rstrip()
    else:
        name = str(step_of(message).get("stepName") or "")
        if kind == "sleep":
            after = f"end of {name}"
        else:
            after = " ".join(filter(None, [doing, f"after {name}" if name else "first step"]))
        started_with = " ".join(_input_in_row(engine, message).split())
        of = f"{_end_of(message.workflow.run_id)} {started_with}".rstrip()
        what = f"{after}, run {of}: {to}"
    return PlannedEvent(kind, "messages", message.id, what)


def _run_of(schedule: Any) -> PlannedEvent:
    when, to = cron_words(schedule.cron) or schedule.cron, as_text(schedule.destination)
    what = f"schedule {_end_of(schedule.id)}, {when}: {to}"
    return PlannedEvent("schedule", "schedules", schedule.id, what)


_IN_EVENT = 48
"""Number of bytes of a body that name an event."""
_IN_LIST = 48
"""Maximum number of characters of all results of a run in the list of runs."""
_LEAST_OF_RESULT = 6
"""Number of characters of a result that are shown in any case."""


def _end_of(id: str) -> str:
    """Return a short id, or the end of a long one, by which the generated ones differ."""
    return id if len(id) <= _SHORT_ID else f"…{id[-6:]}"


_SHORT_ID = 12


def _kind_of(message: Message, tried: int) -> EventKind:
    """Return the kind of a message's event: a retry, the end of a sleep, or a delivery."""
    if tried:
        return "wait"
    if _doing(message, tried):
        return "sleep"
    return "delivery" if message.kind == "message" else "callback"


# -- dead letters ----------------------------------------------------------------------------------


def _dead_letters(engine: Any) -> list[DeadLetterView]:
    return [DeadLetterView(engine, letter) for letter in engine.dead_letters.all()]


@_locked
def dead_letters(engine: Any, page_query: PageQuery) -> View:
    """Return a page of dead letters, the one that failed last first.

    The filters are those of messages, except for ``state``.
    """
    letters, fits = _dead_letters(engine), _filter(page_query)

    def show(letter: DeadLetterView) -> View:
        message = record_of(letter.message)
        return _message_row(message) | {
            "id": letter.id,
            "message": message.id,
            "at": letter.at.isoformat(),
            "reason": _reason(message),
        }

    page = page_of(
        (letter for letter in letters if fits(record_of(letter.message))),
        page_query,
        sort_key=lambda letter: (
            -round(letter.at.timestamp() * 1e6),
            -record_of(letter.message).number,
            letter.id,
        ),
        show=show,
        text=lambda letter: f"{letter.id} {_text_of(record_of(letter.message))}",
    )
    return page | {"total": len(letters)}


def _reason(message: Message) -> str:
    """Return why the last attempt got no response, or the beginning of its response."""
    if not message.attempts:
        return ""
    attempt = message.attempts[-1]
    return failure_of(attempt) or shown_text(attempt.body[:200], message.response_redaction)


def retry_dead_letter(fake: Queue, id: str) -> MessageView:
    for letter in fake.dead_letters():
        if letter.id == id:
            return message_view(letter.retry())
    raise NotFound(f"there is no dead letter {id!r:.200}")


# -- schedules, queues, URL groups and flow control -------------------------------------------------


def _schedules(engine: Any) -> list[ScheduleView]:
    return [ScheduleView(engine, id) for id in engine.schedules.by_id]


@_locked
def schedules(engine: Any, page_query: PageQuery) -> View:
    def show(schedule: ScheduleView) -> View:
        record = record_of(schedule)
        return {
            **_schedule_view(schedule),
            "method": record.settings.method,
            "error": schedule.error,
            "last_run": _at(record.last_us),
            **_body(record.body, record.settings.redaction),
            **_created_again(record.settings),
        }

    return page_of(
        _schedules(engine),
        page_query,
        sort_key=lambda schedule: (record_of(schedule).created_us, schedule.id),
        show=show,
        text=lambda schedule: f"{schedule.id} {schedule.cron} {schedule.url}",
    )


def _schedule_view(schedule: ScheduleView) -> View:
    runs = [run.isoformat() for run in schedule.next_runs(_RUNS)]
    words = cron_words(schedule.cron)
    return {"id": schedule.id, **_schedule(schedule), "cron_words": words, "next": runs}


def run_schedule(fake: Queue, id: str) -> View:
    """Run a schedule now; its next planned run does not change."""
    for schedule in fake.schedules():
        if schedule.id == id:
            return {
                "messages": [message.id for message in schedule.fire()],
                "error": schedule.error,
            }
    raise NotFound(f"there is no schedule {id!r:.200}")


@_locked
def rerun(
    engine: Any,
    id: str,
    *,
    message: str,
    result: str | None = None,
    input: str | None = None,
    results: Mapping[str, str] | None = None,
    again: bool = False,
) -> str:
    """Start a run that goes on at a step of a run; return its id. See the control API's ``rerun``."""
    workflow_run = engine.workflow.runs.get(id)
    if workflow_run is None:
        raise NotFound(f"there is no workflow run {id!r:.200}")
    place = workflow_run.position(message)
    if place is None:
        raise ContractError(f"the run has no result of the message {message!r:.200}")
    if again:
        if place == 0 or result is not None:
            raise ContractError("again runs a step, which needs no result")
        place -= 1
    record = engine.data.messages.get(workflow_run.steps[place].message_id)
    if record is None:
        raise ContractError("the queue has forgotten the message of the step before")
    replaced = dict[str, bytes]()
    if result is not None:
        replaced[record.id] = _with_result(record.body, result)
    if input is not None:
        replaced[workflow_run.steps[0].message_id] = input.encode("utf-8", "surrogatepass")
    for of, other_result in (results or {}).items():
        position = workflow_run.position(of)
        # The last result that counts is that of the step before the one that runs now.
        if position is None or not 0 < position < place + again:
            raise ContractError(
                f"the run has no result of the message {of!r:.200} before this step"
            )
        replaced[of] = _with_result(workflow_run.steps[position].body, other_result)
    try:
        return str(engine.continuations.rerun(record, replaced).id)
    except QueueError as error:
        raise ContractError(error.message) from error


def _with_result(body: bytes, result: str) -> bytes:
    """Return the body of a step with another result: text where it was text, otherwise JSON."""
    step = read_step(body)
    if "out" not in step:
        raise ContractError("the step has no result that could be replaced")
    if not isinstance(step["out"], str):
        try:
            return json.dumps({**step, "out": json.loads(result)}).encode()
        except ValueError as error:
            raise ContractError(f"the result must be JSON, as before: {error}") from None
    return json.dumps({**step, "out": result}).encode()


@_locked
def queues(engine: Any, page_query: PageQuery) -> View:
    def show(name: str) -> View:
        queue = engine.queues.by_name[name]
        return {"name": name, **_queue_item(queue), "lag": engine.queues.lag(queue)}

    return page_of_names(engine.queues.by_name, page_query, show)


@_locked
def url_groups(engine: Any, page_query: PageQuery) -> View:

    def show(group: Any) -> View:
        updated = _at(group.updated_us)
        return {"name": group.name, "updated": updated, "endpoints": _endpoints(group)}

    return page_of(
        engine.url_groups.by_name.values(),
        page_query,
        sort_key=lambda group: (natural(group.name),),
        show=show,
        text=lambda group: f"{group.name} {' '.join(endpoint.url for endpoint in group.endpoints)}",
    )


@_locked
def flow_keys(engine: Any, page_query: PageQuery) -> View:
    """Return the flow-control keys with their limits and the messages that wait for each key."""

    def show(name: str) -> View:
        key = engine.flow_control.by_name[name]
        record = records.flow_record(engine, key)
        return {
            "key": name,
            **_flow_item(key),
            "waits": record["waitListSize"],
            "active": len(key.active),
            "started": record["rateCount"],
            "period": record["ratePeriod"],
        }

    return page_of_names(engine.flow_control.by_name, page_query, show)


# -- workflow runs ---------------------------------------------------------------------------------


@_locked
def runs(engine: Any, page_query: PageQuery) -> View:
    """Return a page of workflow runs, newest first; ``state`` filters them."""
    children = _children(engine)

    def show(run: Any) -> View:
        labels = " ".join(run.settings.labels)
        return {
            **_run_row(engine, run, children),
            "steps": step_count(engine, run),
            "label": labels,
            "results": _results(engine, run),
            "preview": _beginning(_input_of_run(engine, run) or b"", run.settings.redaction, 200),
        }

    return page_of(
        engine.workflow.runs.values(),
        page_query,
        sort_key=lambda run: (-run.number, run.id),
        show=show,
        text=partial(_text_of_run, engine),
        facet=("state", _run_state),
    )


def _text_of_run(engine: Any, run: Any) -> str:
    """Return what a search looks at: id, URL, labels, result, and the messages with their answers."""
    result = shown_text((run.response or b"")[:_SEARCHED], run.settings.redaction)
    messages = [engine.data.messages[id] for id in run.message_ids if id in engine.data.messages]
    labels = " ".join(run.settings.labels)
    body = _input_of_run(engine, run) or b""
    started_with = _beginning(body, run.settings.redaction, _SEARCHED)
    texts = [run.id, as_text(run.url), labels, result, started_with, *map(_text_of, messages)]
    return "\n".join(texts)


def _input_of_run(engine: Any, run: Any) -> bytes | None:
    """Return what a run was started with, or since a rerun goes on with; None if it is gone."""
    if run.steps:
        return bytes(run.steps[0].body)
    first = engine.data.messages.get(run.first_message_id)
    return None if first is None else bytes(first.body)


def _children(engine: Any) -> dict[str, list[str]]:
    """Return the runs that resume, restart or rerun each run."""
    children: dict[str, list[str]] = {}
    for run in engine.workflow.runs.values():
        if run.parent_id:
            children.setdefault(run.parent_id, []).append(run.id)
    return children


def _run_row(engine: Any, run: Any, children: Mapping[str, list[str]]) -> View:
    return {
        "id": run.id,
        "url": as_text(run.url),
        "state": _run_state(run),
        "created": _at(run.created_us),
        "completed": _at(run.completed_us),
        "result": shown_text((run.response or b"")[:200], run.settings.redaction),
        "parent": run.parent_id,
        "children": children.get(run.id, []),
        **_progress(engine, run),
    }


def _progress(engine: Any, run: Any) -> View:
    """Return what an unfinished run does, and until when: it sleeps, waits, or retries a step.

    A failed run has its error in place of that.
    """
    pending = (engine.data.messages.get(id) for id in reversed(run.message_ids))
    next_message = next(
        (
            step_message
            for step_message in pending
            if step_message is not None and step_message.state in _DELIVERABLE
        ),
        None,
    )
    if run.state == "RUN_FAILED":
        response = shown_text(run.response or b"", run.settings.redaction)
        return {"now": cause_of(response) or _last_error(engine, run), "until": None}
    if run.completed_us is not None or next_message is None:
        return {"now": "", "until": None}
    return {
        "now": _doing(next_message, len(next_message.attempts)),
        "until": _at(next_message.due_us),
    }


def _last_error(engine: Any, run: Any) -> str:
    """Return the error of the last try of a run's steps, for a run whose failure says nothing."""
    errors = [error for step in steps_of(engine, run) for error in step["errors"]]
    last = max(errors, key=lambda error: error["at"], default=None)
    return "" if last is None else last["cause"] or f"the answer was {last['status']}"


def _doing(message: Message, tried: int) -> str:
    """Return what a pending message that was tried so many times does until it is due; empty if it only
    waits for its time.
    """
    if tried:
        return f"retry {tried}"
    step = step_of(message)
    if event := step.get("waitEventId"):
        return f"waits for {event}"
    # Clients send null for what a step does not have.
    is_asleep = step.get("sleepFor") is not None or step.get("stepType") == "SleepUntil"
    return "sleeps" if is_asleep else ""


def _results(engine: Any, run: Any) -> str:
    """Return the steps of a run that have a result, the last first, each with its beginning; empty
    without one.

    Long results are cut, so that the short ones after them are in sight.
    """
    messages = (engine.data.messages.get(step.message_id) for step in run.steps)
    steps = (step_of(message) for message in messages if message is not None)
    results = [(step.get("stepName"), result_in_row(step, _IN_LIST + 1)) for step in steps]
    named = [(name, result) for name, result in results if name and result]
    most = _fair_share([len(result) for _, result in named], _IN_LIST)
    return ", ".join(f"{name} → {_beginning_of(result, most)}" for name, result in reversed(named))


def _beginning_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _fair_share(lengths: Sequence[int], room: int) -> int:
    """Return the length to which texts are cut so that all together take the room, at least
    ``_LEAST_OF_RESULT``; those that are shorter leave theirs to the others.
    """
    for left, length in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        if length * left > room:
            return max(_LEAST_OF_RESULT, room // left)
        room -= length
    return max(lengths, default=0)


def _run_state(run: Any) -> str:
    return str(run.state).removeprefix("RUN_").lower()


@_locked
def run(engine: Any, id: str, page_query: PageQuery) -> View:
    """Return one workflow run: its input, its steps over time, its messages, and its record.

    ``response`` is its result or its error. The record is that of the service's API. It contains the
    outputs of the steps and the result, and ``recorded`` has these steps with their results as text.
    ``parent`` is the run that this one resumes, restarts or reruns, and ``children`` are the runs that
    do so with this one. ``compared`` are its input, steps and result beside those of ``compared_with``:
    the parent, otherwise the last child, or without both the run of the same workflow before it.
    """
    workflow_run = engine.workflow.runs.get(id)
    if workflow_run is None:
        raise NotFound(f"there is no workflow run {id!r:.200}")
    first = engine.data.messages.get(workflow_run.first_message_id)
    given, redaction = _input_of_run(engine, workflow_run), workflow_run.settings.redaction
    record = run_record(engine, workflow_run)
    parent = engine.workflow.runs.get(workflow_run.parent_id or "")
    children = _children(engine)
    other = parent or _run_beside(engine, workflow_run, children)
    tried = [
        engine.data.messages[message_id]
        for message_id in workflow_run.message_ids
        if message_id in engine.data.messages
    ]
    return {
        **_run_row(engine, workflow_run, children),
        "input": None if given is None else _body(given, redaction)["body"],
        "record": record,
        "response": as_stack(str(record.get("workflowRunResponse") or "")),
        "recorded": list(recorded_steps(record, parent and run_record(engine, parent))),
        "compared_with": other and other.id,
        "compared": [] if other is None else _compared(engine, workflow_run, other),
        "input_is_whole": given is not None and _is_whole(given, redaction),
        **({} if first is None else _sent_again(first)),
        "steps": steps_of(engine, workflow_run),
        "messages": [_message_row(message) for message in tried],
        "dlq_id": _kept(engine, workflow_run.dlq_id),
    }


def _run_beside(engine: Any, run: Any, children: Mapping[str, list[str]]) -> Any:
    """Return the run beside which one without a parent is shown: its last child, otherwise the last run
    of the same workflow that was started before it; None without either.
    """
    if run.id in children:
        return engine.workflow.runs[children[run.id][-1]]
    earlier = (
        other
        for other in engine.workflow.runs.values()
        if other.url == run.url and other.number < run.number
    )
    return max(earlier, key=lambda other: other.number, default=None)


def _compared(engine: Any, run: Any, other: Any) -> list[ComparedPart]:
    """Return the parts of two runs, of which the one that was started later is the one of now."""
    then, now = sorted((run, other), key=lambda either: either.number)
    records = run_record(engine, then), run_record(engine, now)
    inputs = _shown_input(engine, then), _shown_input(engine, now)
    return list(compared(*records, inputs, list(now.message_ids), is_over=not now.live))


def _shown_input(engine: Any, run: Any) -> str:
    return shown_text((_input_of_run(engine, run) or b"")[:LONGEST_BODY], run.settings.redaction)


# -- shapes of the control API, with fields besides those of a list's rows -------------------------


@_locked
def content(engine: Any) -> View:
    engine.history.sweep()
    messages = [PublishedMessage(engine, id) for id in engine.data.messages]
    runs = list(engine.workflow.runs.values())[-_RUNS_IN_VIEW:]
    return {
        "count": len(messages),
        "messages": [message_view(message) for message in messages[-MOST_IN_VIEW:]],
        "dead_letters": [dead_letter_view(letter) for letter in _dead_letters(engine)],
        "schedules": [_schedule_view(schedule) for schedule in _schedules(engine)],
        "workflows": [plain(run_record(engine, run)) for run in runs],
    }


def message_view(message: PublishedMessage) -> MessageView:
    return {
        "id": message.id,
        "kind": message.kind,
        "state": message.state,
        "method": message.method,
        "url": message.url,
        "retried": message.retried,
        "next": None if message.due is None else message.due.isoformat(),
        "max_retries": message.max_retries,
        "body": plain(message.body[:2000]),
        "timeline": message.timeline,
        "attempts": [attempt_view(attempt) for attempt in message.attempts],
    }


def attempt_view(attempt: Any) -> AttemptView:
    return {
        "message": attempt.message_id,
        "url": attempt.url,
        "number": attempt.number,
        "at": to_datetime(attempt.at_us).isoformat(),
        "waited": attempt.waited.total_seconds(),
        "why": attempt.wait_reason,
        "status": attempt.status,
        "took": None if attempt.ended_us is None else (attempt.ended_us - attempt.at_us) / 1e6,
        "state": attempt.state,
        "exception": failure_of(attempt),
        "final": attempt.is_final,
    }


def dead_letter_view(letter: DeadLetterView) -> DeadLetter:
    return {
        "id": letter.id,
        "at": letter.at.isoformat(),
        "url": letter.url,
        "status": letter.status,
        "message": letter.message.id,
    }


@_locked
def counts(engine: Any) -> dict[str, Any]:
    """Return the size of each list, and the number of messages in each state."""
    kinds = Counter(message.kind for message in engine.data.messages.values())
    return {
        "messages": kinds["message"],
        "dead-letters": len(engine.dead_letters.all()),
        "schedules": len(engine.schedules.by_id),
        "runs": len(engine.workflow.runs),
        "callbacks": kinds["callback"] + kinds["failure_callback"],
        "queues": len(engine.queues.by_name),
        "url-groups": len(engine.url_groups.by_name),
        "flow-control": len(engine.flow_control.by_name),
        "pending": len(engine.data.pending),
    }


LISTS = {
    "messages": Listing(partial(_messages, kinds=("message",)), message, ("state", *_FILTERS)),
    "dead-letters": Listing(dead_letters, filters=_FILTERS),
    "schedules": Listing(schedules),
    "runs": Listing(runs, run, ("state",)),
    "callbacks": Listing(
        partial(_messages, kinds=("callback", "failure_callback")), message, ("state", *_FILTERS)
    ),
    "queues": Listing(queues),
    "url-groups": Listing(url_groups),
    "flow-control": Listing(flow_keys),
}
