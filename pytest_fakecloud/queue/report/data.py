"""Messages, dead letters, schedules, queues, URL groups, flow control and workflow runs of a queue.

Lists and their items show redacted parts as the API does. The control API returns to a test what the
test published, so its views of messages show them in clear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...core.errors import ContractError
from ...core.timers import Timer, to_datetime
from ...reporting.data import (
    MOST_IN_VIEW,
    PAGE,
    Attempt,
    DeadLetter,
    Item,
    Listing,
    NotFound,
    State,
    View,
    Wanted,
    cut,
    page_of,
    page_of_names,
    plain,
    shown_time,
)
from ...reporting.data import Message as MessageView
from ...reporting.values import items_of, readable
from ..engine.admission import FlowKey, OrderedQueue
from ..engine.url_groups import UrlGroup
from ..handle import Queue
from ..model import NOTHING_REDACTED, Message, Redaction
from ..views import STATE_NAMES, DeadLetterView, PublishedMessage, ScheduleView
from ..wire.values import as_text, shown_headers, shown_text
from ..workflow.model import read_step, run_record

LONGEST_BODY = 100_000
"""Maximum number of characters of a body that is shown."""
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
    def locked(handle: Queue, /, *args: P.args, **named: P.kwargs) -> T:
        handle._time.settle()
        with handle._engine.lock:
            return show(handle._engine, *args, **named)

    return locked


def _body(data: bytes, redaction: Redaction) -> View:
    return cut("body", shown_text(data, redaction), LONGEST_BODY)


def _beginning(one: Message, most: int) -> str:
    """Return the first bytes of a body as text, or the replacement of the whole redacted body."""
    redaction = one.settings.redaction
    return shown_text(one.body if redaction.body else one.body[:most], redaction)


def _at(at_us: int | None) -> str | None:
    return None if at_us is None else to_datetime(at_us).isoformat()


@_locked
def state(engine: Any) -> State:
    return {
        "messages": {one.id: _message_item(one) for one in engine.messages.values()},
        "dead letters": {
            one.id: {"url": one.url, "status": one.status, "message": one.message.id}
            for one in _dead_letters(engine)
        },
        "schedules": {one.id: _schedule_item(one) for one in _schedules(engine)},
        "queues": {name: _queue_item(one) for name, one in engine.queues.items()},
        "URL groups": {
            one.name: {
                "endpoints": _endpoints(one),
                "headers": shown_headers(one.headers, NOTHING_REDACTED),
            }
            for one in engine.url_groups.by_name.values()
        },
        "flow control": {
            name: {**_flow_item(one), "period (s)": one.period_us / 1e6, "active": list(one.active)}
            for name, one in engine.flow_keys.items()
        },
        "deduplication": {
            key: {"first": first, "until": shown_time(until_us)}
            for key, (until_us, first) in engine.deduplicated.items()
        },
        "workflow runs": {
            one.id: {
                "url": as_text(one.url),
                "state": _run_state(one),
                "steps": len(one.steps),
                "messages": len(one.message_ids),
            }
            for one in engine.workflow.runs.values()
        },
        "waits for events": {
            one.message_id: {
                "event": one.event_id,
                "run": one.run_id,
                "until": shown_time(one.deadline_us),
            }
            for one in engine.workflow.waiters
        },
        "early notifications": {
            f"{event} of {run}": {"bytes": len(data)}
            for (run, event), data in engine.workflow.notified.items()
        },
    }


def _message_item(one: Message) -> Item:
    return {
        **_message(one),
        "body": readable(shown_text(one.body, one.settings.redaction)) or None,
        "attempts": [attempt.status for attempt in one.attempts],
        "next attempt": one.due_us and shown_time(one.due_us),
        "waits for": _waits_for(one) or None,
        **_settings(one),
    }


def _schedule_item(one: ScheduleView) -> Item:
    record = one._record
    return {
        **_schedule(one),
        "body": readable(shown_text(record.body, record.settings.redaction)) or None,
        "next run": record.planned_us and shown_time(record.planned_us),
        "last run": record.last_us and shown_time(record.last_us),
        "error": record.error,
    }


def _queue_item(one: OrderedQueue) -> Item:
    waiting = [*one.parked, *one.waiting][:PAGE]
    return {"parallelism": one.parallelism, "paused": one.paused, "waiting": waiting}


def _flow_item(one: FlowKey) -> Item:
    return {
        "parallelism": one.parallelism,
        "rate": one.rate,
        "paused": one.paused,
        "pinned": one.pinned_parallelism or one.pinned_rate,
        "waiting": list(one.waiting)[:PAGE],
    }


def _endpoints(group: UrlGroup) -> list[View]:
    return [{"name": one.name, "url": as_text(one.url)} for one in group.endpoints]


def _waits_for(one: Message) -> str:
    """Return what a message without a due time waits for; empty if it does not wait."""
    return "" if one.finished or one.due_us is not None else one.wait_reason


def _settings(one: Message) -> Item:
    settings = one.settings
    found = {
        "queue": one.queue_name,
        "URL group": one.topic_name,
        "schedule": one.schedule_id,
        "flow control": settings.flow and settings.flow.key,
        "callback": settings.callback,
        "failure callback": settings.failure_callback,
        "timeout": one.timeout_us and f"{one.timeout_us / 1e6:g} s",
        "retry delay": settings.retry_delay and f"{settings.retry_delay} ms",
        "labels": ", ".join(settings.labels),
    }
    return {name: value for name, value in found.items() if value}


def _message(one: Message) -> View:
    return {"url": as_text(one.url), "kind": one.kind, "state": STATE_NAMES[one.state]}


def _schedule(schedule: ScheduleView) -> View:
    return {"cron": schedule.cron, "destination": schedule.url, "paused": schedule.paused}


# -- messages --------------------------------------------------------------------------------------


def _text_of(one: Message) -> str:
    labels = " ".join(one.settings.labels)
    return f"{one.public_id} {as_text(one.url)} {labels} {_beginning(one, 10_000)}"


def _message_row(one: Message) -> View:
    outcome = one.last_outcome
    return {
        "id": one.id,
        "public_id": one.public_id,
        **_message(one),
        "method": one.settings.method,
        "created": _at(one.created_us),
        "next": _at(one.due_us) if one.state in _DELIVERABLE else None,
        "waits_for": _waits_for(one),
        "attempts": len(one.attempts),
        "retried": one.retried,
        "max_retries": one.max_retries,
        "status": None if outcome is None else outcome.status,
        "label": " ".join(one.settings.labels),
        "about": one.source_id,
        "preview": _beginning(one, 200),
    }


def _filter(wanted: Wanted) -> Callable[[Message], bool]:
    """Return a predicate that applies all filters except ``state``."""
    since, until = wanted.time_us("since"), wanted.time_us("until")
    label, status, url = (wanted.filters.get(name, "") for name in ("label", "status", "url"))

    def fits(one: Message) -> bool:
        outcome = one.last_outcome
        last = "" if outcome is None or outcome.status is None else str(outcome.status)
        return (
            (since is None or one.created_us >= since)
            and (until is None or one.created_us < until)
            and (not label or label in one.settings.labels)
            # "5xx" is every status from 500 to 599.
            and status in ("", last, f"{last[:1]}xx" if last else "")
            and url in as_text(one.url)
        )

    return fits


_FILTERS = ("state", "since", "until", "label", "status", "url")


def _messages(handle: Queue, wanted: Wanted, *, kinds: Iterable[str]) -> View:
    """Return a page of messages, newest first.

    Filters are ``state``, ``label``, ``url`` (a substring), ``status`` of the last response
    (``503`` or ``5xx``), and ``since`` and ``until`` for the time of publishing.
    """
    engine = handle._engine
    with engine.lock:
        every = [one for one in engine.messages.values() if one.kind in kinds]
    # Release the lock: a search in all bodies may take long, and a row needs only its own message.
    page = page_of(
        filter(_filter(wanted), every),
        wanted,
        sort_key=lambda one: (-one.number,),
        show=_message_row,
        text=_text_of,
        facet=("state", lambda one: STATE_NAMES[one.state]),
    )
    return page | {"total": len(every)}


@_locked
def message(engine: Any, id: str, wanted: Wanted) -> View:
    """Return one message in full: body, headers, settings, and attempts with their responses."""
    record = engine.messages.get(id)
    if record is None:
        raise NotFound(
            f"there is no message {id!r:.200}: it is no longer kept, or the queue was reset"
        )
    view = PublishedMessage(engine, id)
    settings = record.settings
    return {
        **_message_row(record),
        **_body(record.body, settings.redaction),
        "timeline": view.timeline,
        "headers": shown_headers(settings.forward, settings.redaction),
        "attempts": [
            attempt_view(one)
            | {
                "headers": shown_headers(one.headers.pairs, record.response_redaction),
                **_body(one.body, record.response_redaction),
                "faults": list(one.faults),
            }
            for one in record.attempts
        ],
        "settings": _settings(record),
        "dlq_id": _kept(engine, record.dlq_id if record.state == "FAILED" else None),
        "callbacks": [_message_row(engine.messages[one._id]) for one in view.callbacks],
        "run": None if record.workflow is None else record.workflow.run_id,
    }


def _kept(engine: Any, dlq_id: str | None) -> str | None:
    """Return the id of a dead letter, or None if it has ended."""
    return dlq_id if dlq_id and engine.find_dead_letter(dlq_id) else None


@_locked
def deliver_now(engine: Any, id: str) -> View:
    """Make a pending message due now. Raises ``ContractError`` for any other message."""
    record = engine.messages.get(id)
    if record is None:
        raise NotFound(f"there is no message {id!r:.200}")
    if record.state not in _DELIVERABLE:
        state = STATE_NAMES[record.state].replace("_", " ")
        raise ContractError(f"the message is {state}; only a pending message can be delivered now")
    if record.due_us is None:
        raise ContractError(
            f"the message is waiting for {record.wait_reason}, which must end first"
        )
    engine.plan(record, engine.clock.now_us(), "delivered now, on request")
    return _message_row(record)


@_locked
def planned(engine: Any) -> dict[Timer, tuple[str, str, str]]:
    """Return the list and the item that each timer is for, and what happens then."""
    found = {}
    for id, timer in engine.timers.items():
        one = engine.messages[id]
        event = f"{_doing(one) or 'delivery'}: {one.settings.method} {as_text(one.url)}"
        found[timer] = "messages", id, event
    for id, timer in engine.schedules.timers.items():
        event = f"schedule: {as_text(engine.schedules.by_id[id].destination)}"
        found[timer] = "schedules", id, event
    return found | {
        timer: ("flow-control", key, timer.label) for key, timer in engine.flow_timers.items()
    }


# -- dead letters ----------------------------------------------------------------------------------


def _dead_letters(engine: Any) -> list[DeadLetterView]:
    return [DeadLetterView(engine, letter) for letter in engine.all_dead_letters()]


@_locked
def dead_letters(engine: Any, wanted: Wanted) -> View:
    """Return a page of dead letters, the one that failed last first."""

    def show(letter: DeadLetterView) -> View:
        row = _message_row(letter.message._record)
        return row | {"id": letter.id, "message": letter.message._id, "at": letter.at.isoformat()}

    return page_of(
        _dead_letters(engine),
        wanted,
        sort_key=lambda one: (
            -round(one.at.timestamp() * 1e6),
            -one.message._record.number,
            one.id,
        ),
        show=show,
        text=lambda letter: f"{letter.id} {_text_of(letter.message._record)}",
    )


def retry_dead_letter(handle: Queue, id: str) -> MessageView:
    for letter in handle.dead_letters():
        if letter.id == id:
            return message_view(letter.retry())
    raise NotFound(f"there is no dead letter {id!r:.200}")


# -- schedules, queues, URL groups and flow control -------------------------------------------------


def _schedules(engine: Any) -> list[ScheduleView]:
    return [ScheduleView(engine, id) for id in engine.schedules.by_id]


@_locked
def schedules(engine: Any, wanted: Wanted) -> View:
    def show(schedule: ScheduleView) -> View:
        record = schedule._record
        return {
            **_schedule_view(schedule),
            "method": record.settings.method,
            "error": schedule.error,
            "last_run": _at(record.last_us),
            **_body(record.body, record.settings.redaction),
        }

    return page_of(
        _schedules(engine),
        wanted,
        sort_key=lambda schedule: (schedule._record.created_us, schedule.id),
        show=show,
        text=lambda schedule: f"{schedule.id} {schedule.cron} {schedule.url}",
    )


def _schedule_view(schedule: ScheduleView) -> View:
    runs = [run.isoformat() for run in schedule.next_runs(_RUNS)]
    return {"id": schedule.id, **_schedule(schedule), "next": runs}


def run_schedule(handle: Queue, id: str) -> View:
    """Run a schedule now; its next planned run does not change."""
    for schedule in handle.schedules():
        if schedule.id == id:
            return {"messages": [one.id for one in schedule.fire()], "error": schedule.error}
    raise NotFound(f"there is no schedule {id!r:.200}")


@_locked
def queues(engine: Any, wanted: Wanted) -> View:
    def show(name: str) -> View:
        queue = engine.queues[name]
        return {"name": name, **_queue_item(queue), "lag": engine.queue_lag(queue)}

    return page_of_names(engine.queues, wanted, show)


@_locked
def url_groups(engine: Any, wanted: Wanted) -> View:

    def show(group: Any) -> View:
        updated = _at(group.updated_us)
        return {"name": group.name, "updated": updated, "endpoints": _endpoints(group)}

    return page_of(
        engine.url_groups.by_name.values(),
        wanted,
        sort_key=lambda group: (group.name,),
        show=show,
        text=lambda group: f"{group.name} {' '.join(one.url for one in group.endpoints)}",
    )


@_locked
def flow_keys(engine: Any, wanted: Wanted) -> View:
    """Return the flow-control keys with their limits and the messages that wait for each key."""

    def show(name: str) -> View:
        key = engine.flow_keys[name]
        record = key.record(engine.clock.now_us())
        return {
            "key": name,
            **_flow_item(key),
            "waits": record["waitListSize"],
            "active": len(key.active),
            "started": record["rateCount"],
            "period": record["ratePeriod"],
        }

    return page_of_names(engine.flow_keys, wanted, show)


# -- workflow runs ---------------------------------------------------------------------------------


@_locked
def runs(engine: Any, wanted: Wanted) -> View:
    """Return a page of workflow runs, newest first; ``state`` filters them."""

    def show(run: Any) -> View:
        labels = " ".join(run.settings.labels)
        return {**_run_row(engine, run), "steps": len(run.steps), "label": labels}

    return page_of(
        engine.workflow.runs.values(),
        wanted,
        sort_key=lambda run: (-run.number, run.id),
        show=show,
        text=lambda run: f"{run.id} {as_text(run.url)} {' '.join(run.settings.labels)}",
        facet=("state", _run_state),
    )


def _run_row(engine: Any, run: Any) -> View:
    return {
        "id": run.id,
        "url": as_text(run.url),
        "state": _run_state(run),
        "created": _at(run.created_us),
        "completed": _at(run.completed_us),
        **_progress(engine, run),
    }


def _progress(engine: Any, run: Any) -> View:
    """Return what an unfinished run does, and until when: it sleeps, waits, or retries a step.

    A failed run has its error in place of that.
    """
    pending = (engine.messages.get(id) for id in reversed(run.message_ids))
    one = next((each for each in pending if each is not None and each.state in _DELIVERABLE), None)
    if run.state == "RUN_FAILED":
        response = shown_text(run.response or b"", run.settings.redaction)
        errors = [each.get("message") for each in items_of(response)] or [response]
        return {"now": str(errors[0] or "").split("\n")[0][:_LONGEST_ERROR], "until": None}
    if run.completed_us is not None or one is None:
        return {"now": "", "until": None}
    return {"now": _doing(one), "until": _at(one.due_us)}


def _doing(one: Message) -> str:
    """Return what a pending message does until it is due; empty if it only waits for its time."""
    if one.attempts:
        return f"retry {len(one.attempts)}"
    step = _step(one)
    if event := step.get("waitEventId"):
        return f"waits for {event}"
    return "sleeps" if "sleepFor" in step or step.get("stepType") == "SleepUntil" else ""


def _run_state(run: Any) -> str:
    return str(run.state).removeprefix("RUN_").lower()


@_locked
def run(engine: Any, id: str, wanted: Wanted) -> View:
    """Return one workflow run: input, steps with outputs, attempts and errors, and result."""
    found = engine.workflow.runs.get(id)
    if found is None:
        raise NotFound(f"there is no workflow run {id!r:.200}")
    first = engine.messages.get(found.first_message_id)
    tried = [engine.messages[one] for one in found.message_ids if one in engine.messages]
    return {
        **_run_row(engine, found),
        "input": None if first is None else _body(first.body, first.settings.redaction)["body"],
        "record": run_record(engine, found),
        "messages": [
            _message_row(one)
            | {
                "errors": [
                    _failure(each, one.response_redaction)
                    for each in one.attempts
                    if each.state == "failed"
                ],
                "step": _step(one),
                "tries": [{"at": _at(each.at_us), "status": each.status} for each in one.attempts],
            }
            for one in tried
        ],
        "dlq_id": _kept(engine, found.dlq_id),
    }


_LONGEST_ERROR = 200
"""Maximum number of characters of an error in the list of runs."""
_STEP_FIELDS = (
    "stepId",
    "stepName",
    "stepType",
    "targetStep",
    "sleepFor",
    "waitEventId",
    "waitTimeout",
)


def _step(message: Message) -> View:
    """Return the step in a message of a run, without its result; empty unless the body is a step.

    A redacted body has no step, because the name of an event may be part of what is redacted.
    """
    step = {} if message.settings.redaction.body else read_step(message.body)
    return {name: plain(step[name]) for name in _STEP_FIELDS if step.get(name) is not None}


def _failure(attempt: Any, redaction: Redaction) -> View:
    if attempt.exception is not None:
        reason = repr(attempt.exception)
    else:
        reason = shown_text(attempt.body, redaction)[:2000]
    return {
        "number": attempt.number,
        "at": _at(attempt.at_us),
        "status": attempt.status,
        "reason": reason,
    }


# -- shapes of the control API, with fields besides those of a list's rows -------------------------


@_locked
def content(engine: Any) -> View:
    engine.sweep()
    messages = [PublishedMessage(engine, id) for id in engine.messages]
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


def attempt_view(attempt: Any) -> Attempt:
    return {
        "message": attempt.message_id,
        "url": attempt.url,
        "number": attempt.number,
        "at": to_datetime(attempt.at_us).isoformat(),
        "waited": attempt.waited.total_seconds(),
        "why": attempt.wait_reason,
        "status": attempt.status,
        "state": attempt.state,
        "exception": None if attempt.exception is None else repr(attempt.exception),
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
    kinds = Counter(one.kind for one in engine.messages.values())
    return {
        "messages": kinds["message"],
        "dead-letters": len(engine.all_dead_letters()),
        "schedules": len(engine.schedules.by_id),
        "runs": len(engine.workflow.runs),
        "callbacks": kinds["callback"] + kinds["failure_callback"],
        "queues": len(engine.queues),
        "url-groups": len(engine.url_groups.by_name),
        "flow-control": len(engine.flow_keys),
        "pending": len(engine.pending),
    }


LISTS = {
    "messages": Listing(partial(_messages, kinds=("message",)), message, _FILTERS),
    "dead-letters": Listing(dead_letters),
    "schedules": Listing(schedules),
    "runs": Listing(runs, run, ("state",)),
    "callbacks": Listing(
        partial(_messages, kinds=("callback", "failure_callback")), message, _FILTERS
    ),
    "queues": Listing(queues),
    "url-groups": Listing(url_groups),
    "flow-control": Listing(flow_keys),
}
