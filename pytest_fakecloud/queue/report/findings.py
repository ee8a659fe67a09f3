"""Findings about messages that were deduplicated, repeated, rejected or answered misleadingly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple
from urllib.parse import unquote

from ...cloud.services import report_part
from ...core.calls import Call, Entry, Event
from ...reporting.calls import Lookups, has_full_answer
from ...reporting.model import Finding, ReportSubject, Severity
from ...reporting.report import ObservedTest, Write, about_entry, about_message
from ...reporting.values import decoded, items_of, parsed
from ..accesses import PUBLISHING
from ..attempt_reports import dead_letter_lines, schedule_lines, unfinished_lines


def deduplicated(test: ObservedTest) -> Iterator[Finding]:
    """Find publish requests that were answered with the ID of an earlier message."""
    bodies: dict[str, str | None] = {}
    for call in test.calls_to("queue"):
        if call.route not in PUBLISHING or not has_full_answer(call):
            continue
        answers = items_of(call.response_body)
        several = len(answers) > 1
        headers, body = _only_message(call)
        by_content = "upstash-content-based-deduplication" in map(str.lower, headers)
        for answer in answers:
            message = answer.get("messageId")
            if message is None:
                continue
            if not answer.get("deduplicated"):
                bodies[message] = None if several or call.cut else body
                continue
            first = bodies.get(message)
            differs = not several and not call.cut and first is not None and first != body
            yield about_message(
                "deduplicated", call, message,
                several=several, by_content=by_content, body_differs=differs,
            )  # fmt: skip


def _only_message(call: Call) -> tuple[Mapping[str, Any], str]:
    """Return the headers and the body of the message in a request; empty if there are several."""
    if call.route != "batch":
        return call.request_headers, call.request_body.decode("utf-8", "backslashreplace")
    items = items_of(call.request_body)
    item = items[0] if len(items) == 1 else {}
    return item.get("headers") or {}, str(item.get("body") or "")


def _about(kind: str, event: Event, evidence: Iterable[int] = (), /, **values: Any) -> Finding:
    """Return a finding about the message of a delivery attempt."""
    return about_message(kind, event, event.data.get("message_id"), evidence, **values)


def wrong_signature(test: ObservedTest) -> Iterator[Finding]:
    """Find deliveries rejected with 401 or 403, with the reasons in their signature."""
    for event in test.events("attempt"):
        signature = event.data.get("signature")
        # The row of the attempt already shows a fault that changed the signature.
        if not isinstance(signature, dict) or event.data.get("faults"):
            continue
        kind, severity = "wrong_signature", "cause"
        values: dict[str, Any] = {"reasons": _reasons(signature)}
        if not values["reasons"]:
            if event.data.get("where") == "respond":
                continue  # a stubbed destination checks nothing
            kind, severity = "signature_valid", "hint"
            values = {name: signature[name] for name in ("url", "size", "hash", "called")}
            values["elsewhere"] = values["called"] != values["url"]
        yield _about(kind, event, status=event.data.get("status"), severity=severity, **values)


def _reasons(signature: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the reasons why a signature check failed; an empty list if they are unknown."""
    if signature["missing"]:
        return [{"reason": "unsigned"}]
    if signature["invalid"]:
        return [{"reason": "invalid", "got": signature["invalid"]}]
    reasons: list[dict[str, Any]] = []
    if signature["verified_url"] is not None:
        url = {"got": signature["verified_url"], "signed": signature["url"]}
        reasons.append({"reason": "url", **url})
    if signature["verified_body"] is not None:
        same = signature["verified_body_same_json"]
        reasons.append({"reason": "json" if same else "body", "size": signature["verified_size"]})
    if signature["verified_key"] is False:
        former = "former_key" if signature["former_key"] else "key"
        reasons.append({"reason": "next_key" if signature["next_key_missing"] else former})
    if signature["claim"]:
        reasons.append({"reason": "claim", "got": signature["claim"]})
    if not reasons and signature["environment"] == "other":
        reasons.append({"reason": "environment"})
    return reasons


def scheduled_twice(test: ObservedTest) -> Iterator[Finding]:
    """Find schedules that were created twice because the requests had no schedule ID."""
    first: dict[tuple[str, ...], tuple[str, int]] = {}
    for call in test.calls_to("queue"):
        headers, answers = call.request_headers, items_of(call.response_body)
        cron, has_id = headers.get("Upstash-Cron"), "Upstash-Schedule-Id" in headers
        created = next((answer["scheduleId"] for answer in answers if "scheduleId" in answer), None)
        if call.method == "DELETE":
            first = {
                alike: schedule
                for alike, schedule in first.items()
                if schedule[0] not in call.target
            }
        if cron is None or has_id or call.cut or created is None or not has_full_answer(call):
            continue
        alike = call.fake, call.target, cron, call.request_body.decode("utf-8", "replace")
        earlier, number = first.setdefault(alike, (created, call.number))
        if earlier != created:
            ids = {"first": earlier, "second": created}
            yield about_entry("scheduled_twice", call, [number], cron=cron, **ids)


def base64_not_decoded(test: ObservedTest) -> Iterator[Finding]:
    """Find callbacks whose handler stored or published a Base64 field, or parsed it as JSON."""
    for event, callback in _callbacks(test):
        _, writes, calls = _made_during(test, event)
        used = [call.request_body.decode("latin-1") for call in calls]
        used += event.data.get("not_json") or ()
        used += [word for write in writes for word in write.words[1:]]
        # An application may keep the whole callback.
        parts = [body for body in used if "sourceMessageId" not in body]
        for name in ("body", "sourceBody"):
            value = str(callback.get(name) or "")
            if value and any(value in part for part in parts):
                yield _about("base64_not_decoded", event, field=name, value=value)


def misleading_answers(test: ObservedTest) -> Iterator[Finding]:
    """Find deliveries that were answered with a 3xx, and exceptions that handlers raised or logged,
    although they answered with a 2xx, or in deliveries that failed.

    The framework may have turned the exception into a response. It is a hint only if a later
    attempt succeeded.
    """
    accepted = {event.data.get("message_id") for event in _accepted(test)}
    failed: dict[tuple[object, str], list[Event]] = {}
    for event in test.events("attempt"):
        data, status = event.data, event.data.get("status")
        logged = next(iter(data.get("logged") or ()), "")
        raised = (data.get("note") if data.get("exception") else "") or logged
        if isinstance(status, int) and status < 400:
            facts = {"redirected": status >= 300, "error_logged": logged}
            facts["raised_after_answer"] = data.get("error")
            for kind in [name for name in facts if facts[name]][:1]:
                yield _about(kind, event, status=status)
        elif raised and not data.get("signature") and not data.get("faults"):
            failed.setdefault((data.get("message_id"), raised), []).append(event)
    for (message, raised), (event, *others) in failed.items():
        values = {"url": event.data.get("url"), "status": event.data.get("status")}
        values |= {"raised": raised, "severity": "hint" if message in accepted else "cause"}
        yield _about("failed_with_exception", event, [other.number for other in others], **values)


def error_accepted(test: ObservedTest) -> Iterator[Finding]:
    """Find callbacks that report an error answer and whose handler wrote or published something."""
    for event, callback in _callbacks(test):
        status = callback.get("status")
        is_error = isinstance(status, int) and not 200 <= status < 300
        _, writes, calls = _made_during(test, event)
        named = {write.number: " ".join(write.words[:2]) for write in writes}
        named |= {call.number: call.route for call in calls}
        effects = [named[number] for number in sorted(named)]
        if is_error and event.data["message_kind"] == "callback" and effects:
            about, run = callback["sourceMessageId"], str(event.data.get("run") or "")
            values = {"about": about, "url": callback.get("url"), "run": run, "severity": "hint"}
            yield _about("error_accepted", event, made=effects, status=status, **values)


def error_in_body(test: ObservedTest) -> Iterator[Finding]:
    """Find deliveries that were answered with a 2xx and a body that contains an error."""
    for event in _accepted(test):
        exchanged = test.lookups.attempts.get(event.data["began"])
        if exchanged is None or event.data["message_kind"] != "message":
            continue
        answer: Any = parsed(exchanged.response_body)
        is_list = isinstance(answer, list) and isinstance(next(iter(answer), 0), str | dict)
        is_tuple = is_list and any(map(_is_error_status, answer[1:3]))
        if is_tuple or (isinstance(answer, dict) and _tells_error(answer)):
            values = {"status": event.data["status"], "body": answer, "is_tuple": is_tuple}
            yield _about("error_in_body", event, **values)


def repetition_rejected(test: ObservedTest) -> Iterator[Finding]:
    """Find deliveries answered 4xx after one of the same message had succeeded without its answer."""
    handled: dict[object, Event] = {}
    for event in test.events("attempt"):
        message, status = event.data.get("message_id"), event.data.get("status")
        first = handled.get(message)
        if first is not None and isinstance(status, int) and 400 <= status < 500:
            values = {"status": status, "first": first.data.get("number")}
            yield _about("repetition_rejected", event, [first.number], **values)
        elif "crash_after_response" in (event.data.get("faults") or ()) and _succeeded(event):
            handled[message] = event


def _is_error_status(value: object) -> bool:
    return type(value) is int and 400 <= value < 600


def _tells_error(answer: dict[str, Any]) -> bool:
    if any(answer.get(name) for name in ("error", "errors")) or answer.get("status") == "error":
        return True
    if any(answer.get(name) is False for name in ("ok", "success")):
        return True
    return any(
        _is_error_status(answer.get(name)) for name in ("statusCode", "status_code", "status")
    )


def _made_during(test: ObservedTest, event: Event) -> tuple[range, list[Write], list[Call]]:
    """Return the journal numbers of what was recorded during a delivery attempt, the writes among it
    and the publish requests.
    """
    inside = range(event.data.get("began") or event.number, event.number)
    calls = [call for call in test.published if call.number in inside]
    return inside, [write for write in test.writes if write.number in inside], calls


def _callbacks(test: ObservedTest) -> Iterator[tuple[Event, dict[str, Any]]]:
    for event in test.attempts:
        callback = parsed(str(event.data.get("sent") or ""))
        if isinstance(callback, dict) and "sourceMessageId" in callback:
            yield event, callback


class _Delivery(NamedTuple):
    """A successful delivery of a workflow run, what it wrote, and the steps that it published, each
    with its request. ``inside`` contains the journal numbers of what was recorded during it.
    """

    event: Event
    run: str
    inside: range
    writes: list[Write]
    steps: list[tuple[Call, dict[str, Any]]]


def _deliveries_of_runs(test: ObservedTest) -> Iterator[_Delivery]:
    for event in _accepted(test):
        inside, writes, sent = _made_during(test, event)
        # The delivery that starts a run is the message of a client, which belongs to no run yet.
        started = (
            subject.name for call in sent for subject in subjects(call) if subject.kind == "run"
        )
        run = event.data.get("run") or test.lookups.header(inside.start, "upstash-workflow-runid")
        if run := run or next(started, ""):
            bodies = [
                (call, item.get("body")) for call in sent for item in items_of(call.request_body)
            ]
            steps = [
                (call, step) for call, body in bodies for step in items_of(str(body))
                if "stepType" in step
            ]  # fmt: skip
            yield _Delivery(event, run, inside, writes, steps)


def _ran_step(delivery: _Delivery) -> bool:
    """Return whether a delivery may have run a function of a step, whose result it then sent."""
    steps = [step for _, step in delivery.steps]
    return any(step["stepType"] == "Run" and not step.get("targetStep") for step in steps)


def effect_outside_steps(test: ObservedTest) -> Iterator[Finding]:
    """Find writes that several deliveries of a workflow run made, one of them in no step."""
    additions: dict[tuple[str, str], list[tuple[_Delivery, Write]]] = {}
    for delivery in _deliveries_of_runs(test):
        for write in delivery.writes:
            if write.adds:
                additions.setdefault((delivery.run, repr(write.words)), []).append(
                    (delivery, write)
                )
    for (run, _), same_additions in additions.items():
        times = len({delivery.event.number for delivery, _ in same_additions})
        outside = [write for delivery, write in same_additions if not _ran_step(delivery)]
        if times > 1 and outside:
            write = outside[-1]
            values = {"write": " ".join(write.words[:2]), "times": times, "run": run}
            numbers = [other.number for _, other in same_additions]
            yield _about_write("effect_outside_steps", test, write, numbers, **values)


def differs_in_replay(test: ObservedTest) -> Iterator[Finding]:
    """Find reads outside of steps that were answered differently in two deliveries of a workflow run,
    and deliveries that went on after a step.
    """
    read: dict[tuple[object, ...], tuple[int, bytes]] = {}
    for delivery in _deliveries_of_runs(test):
        written = {write.number for write in delivery.writes}
        for call in (test_call for test_call in test.calls if test_call.number in delivery.inside):
            if call.service != "queue" and call.number not in written and has_full_answer(call):
                request = delivery.run, call.fake, call.target, call.request_body
                number, before = read.setdefault(request, (call.number, call.response_body))
                if before != call.response_body and number not in delivery.inside:
                    yield about_entry("read_again", call, [number], run=delivery.run)
        if len({call.number for call, _ in delivery.steps}) > 1:
            names = [str(step.get("stepName")) for _, step in delivery.steps]
            yield about_entry("went_on_after_step", delivery.steps[-1][0], steps=names)


_MADE = re.compile(r"([A-Za-z][\w.]*[-_:./])((?=[a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\d{6,})")
"""A random or current value, such as a UUID or a time, after a prefix that says what it identifies."""


def made_again(test: ObservedTest) -> Iterator[Finding]:
    """Find keys and values of a workflow run that differ in a random or current part between two
    deliveries, of which the later one received neither: no step had returned them.
    """
    used: dict[tuple[str, str], tuple[str, int]] = {}
    for delivery in _deliveries_of_runs(test):
        sent = test.lookups.attempts.get(delivery.inside.start)
        body = b"" if sent is None else sent.body
        received = f"{decoded(parsed(body))} {body.decode('latin-1')}"
        for write in delivery.writes:
            for prefix, part in dict.fromkeys(_MADE.findall(" ".join(write.words))):
                first, number = used.setdefault((delivery.run, prefix), (part, write.number))
                is_known = sent is None or first in received or part in received
                if first != part and not is_known and number < delivery.inside.start:
                    values = {"now": prefix + part, "before": prefix + first, "run": delivery.run}
                    finding = _about_write("made_again", test, write, [number], **values)
                    yield replace(finding, severity="hint")


def _about_write(
    kind: str, test: ObservedTest, write: Write, evidence: Iterable[int], /, **values: Any
) -> Finding:
    call = next(test_call for test_call in test.calls if test_call.number == write.number)
    of_service = report_part(call.service, "findings").subjects
    return replace(about_entry(kind, call, evidence, **values), subjects=tuple(of_service(call)))


def no_waiter(test: ObservedTest) -> Iterator[Finding]:
    """Find notified events that woke no run, while runs wait for an event that nothing notified."""
    calls = [call for call in test.calls_to("queue") if has_full_answer(call)]
    waits = {_event_of(call): call for call in calls if call.route == "wait_for_event"}
    notified = {_event_of(call): call for call in calls if call.route == "notify_event"}
    others = [event_id for event_id in waits if event_id not in notified]
    for name, call in notified.items():
        if parsed(call.response_body) == [] and (name in waits or others):
            number = waits[name if name in waits else others[-1]].number
            if name not in waits or call.number < number:
                waited = [] if name in waits else others
                yield about_entry("no_waiter", call, [number], event=name, others=waited)


def _event_of(call: Call) -> str:
    return unquote(call.path.rpartition("/")[2])


def unlikely_duration(test: ObservedTest) -> Iterator[Finding]:
    """Find delays that are likely in another unit."""
    for call in test.calls_to("queue"):
        if call.route not in (*PUBLISHING, "create_schedule") or not has_full_answer(call):
            continue
        headers = {name.lower(): value for name, value in _only_message(call)[0].items()}
        for setting in ("retry-delay", "delay", "timeout"):
            duration, is_ms = str(headers.get(f"upstash-{setting}") or ""), setting == "retry-delay"
            digits = duration.removesuffix("s")
            number = int(digits) if digits.isascii() and digits.isdigit() else 0
            if 0 < number < 1000 if is_ms else number >= 10_000 and number % 1000 == 0:
                means = f"{number} ms" if is_ms else f"{number / 3600:.3g} h"
                values = {"setting": setting.replace("-", " "), "given": duration, "means": means}
                yield about_entry("unlikely_duration", call, severity="hint", **values)


def header_not_forwarded(test: ObservedTest) -> Iterator[Finding]:
    """Find headers of publish requests that destinations do not receive, such as ``X-Tenant``."""
    for call in test.calls_to("queue"):
        if call.route in (*PUBLISHING, "create_schedule") and has_full_answer(call):
            names = [name for name in _only_message(call)[0] if name.lower().startswith("x-")]
            if names:
                yield about_entry("header_not_forwarded", call, severity="hint", headers=names)


def _accepted(test: ObservedTest) -> Iterator[Event]:
    return filter(_succeeded, test.events("attempt"))


def _succeeded(event: Event) -> bool:
    """Return whether a delivery attempt was answered with a 2xx."""
    status = event.data.get("status")
    return isinstance(status, int) and 200 <= status < 300


FINDINGS = ()
OF_TEST = (
    deduplicated, wrong_signature, scheduled_twice,
    base64_not_decoded, misleading_answers, unlikely_duration,
    header_not_forwarded, error_accepted, error_in_body, repetition_rejected, effect_outside_steps,
    differs_in_replay, made_again, no_waiter,
)  # fmt: skip


def unfinished(queue: Any, lookups: Lookups) -> Iterator[Finding]:
    """Yield findings about messages and schedules that wait, and dead letters."""
    queue._time.settle()
    of_kinds: tuple[tuple[str, Severity, Iterator[str]], ...] = (
        ("message_waits", "hint", unfinished_lines(queue._engine, lookups.named)),
        ("dead_letter", "context", dead_letter_lines(queue._engine, lookups.named)),
        ("schedule_waits", "context", schedule_lines(queue._engine, lookups.short)),
    )
    for kind, severity, lines in of_kinds:
        for line in lines:
            yield Finding(kind, severity=severity, values={"line": line})


def addition(call: Call) -> tuple[object, set[str]] | None:
    """Return the message that a request creates unless it is deduplicated (see
    `repeated_after_lost_answer`).
    """
    if call.route not in ("publish", "enqueue"):
        return None
    settings = {name.lower() for name in call.request_headers}
    return (call.target, call.request_body), settings & _DEDUPLICATING


_DEDUPLICATING = {"upstash-deduplication-id", "upstash-content-based-deduplication"}


def subjects(call: Call) -> Iterator[ReportSubject]:
    """Yield the queue and the workflow runs of a request, and what it created."""
    if call.facts.get("queue"):
        yield ReportSubject("queue", str(call.facts["queue"]), call.fake)
    headers_of_items: list[Any] = [item.get("headers") for item in items_of(call.request_body)]
    for headers in (dict(call.request_headers.pairs), *headers_of_items):
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if name.lower() == "upstash-workflow-runid" and isinstance(value, str):
                yield ReportSubject("run", value, call.fake)
    for item in items_of(call.response_body) if has_full_answer(call) else ():
        for name, kind in _CREATED.items():
            if isinstance(item.get(name), str):
                yield ReportSubject(kind, item[name], call.fake)


def steps_of_messages(
    entries: Iterable[Entry],
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, Any]]]:
    """Return the steps of workflow runs that the deliveries of each message execute, and the step
    whose result each message has, by the message's ID.

    A delivery executes the steps that it publishes, or whose request it is (`context.call()`). Those
    published while several deliveries were in progress are left out.
    """
    executed: dict[str, list[dict[str, Any]]] = {}
    results: dict[str, dict[str, Any]] = {}
    entries = list(entries)
    deliveries = [
        entry for entry in entries if isinstance(entry, Event) and entry.kind == "attempt"
    ]
    for call in entries:
        if not isinstance(call, Call) or call.route not in (*PUBLISHING, "wait_for_event"):
            continue
        around = [
            str(event.data["message_id"]) for event in deliveries
            if isinstance(start := event.data.get("began"), int) and start < call.number < event.number
        ]  # fmt: skip
        for step, message_id in _published_steps(call):
            if len(around) == 1:
                executed.setdefault(around[0], []).append(step)
            if message_id is not None:
                is_request = "out" not in step and step["stepType"] == "Call"
                if is_request:
                    executed[message_id] = [step]
                else:
                    results[message_id] = step
    return executed, results


def _published_steps(call: Call) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield the steps of workflow runs in a request, each with the ID of its message, if it has one."""
    if call.route == "batch":
        answers = parsed(call.response_body) if has_full_answer(call) else None
        items = items_of(call.request_body)
        ids = [item.get("messageId") if isinstance(item, dict) else None
               for item in (answers if isinstance(answers, list) else ())]  # fmt: skip
        for item, message_id in zip_longest(items, ids[: len(items)]):
            headers = item.get("headers")
            if step := step_in(headers if isinstance(headers, dict) else {}, item.get("body")):
                yield step, message_id
    elif step := step_in(dict(call.request_headers.pairs), call.request_body):
        answer = parsed(call.response_body) if has_full_answer(call) else None
        yield step, answer.get("messageId") if isinstance(answer, dict) else None


_STEP_HEADER = "upstash-callback-forward-upstash-workflow-step"
"""Beginning of the headers with which a client publishes the request of a ``context.call()``."""


def step_in(headers: Mapping[str, Any], body: object) -> dict[str, Any]:
    """Return the step of a workflow run that a message is about, as clients send it: the step whose
    result it has, or that it waits for. Empty if there is none.
    """
    content = parsed(body) if isinstance(body, str | bytes) else None
    for step in (content, content.get("step") if isinstance(content, dict) else None):
        if isinstance(step, dict) and step.keys() >= {*_STEP_FIELDS}:
            return step
    named = {name.lower(): value for name, value in headers.items()}
    fields = {field: named.get(f"{_STEP_HEADER}{field.lower()[4:]}") for field in _STEP_FIELDS}
    return fields if all(fields.values()) else {}


_STEP_FIELDS = ("stepId", "stepName", "stepType")
_CREATED = {"messageId": "message", "scheduleId": "schedule", "workflowRunId": "run"}
"""The IDs in an answer, with what they name."""
