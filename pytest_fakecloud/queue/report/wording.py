"""Wording of the queue: publish requests, deliveries, callbacks, and its findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from http.client import responses
from operator import itemgetter
from typing import Any

from ...core.bodies import compact, items_of, parsed
from ...core.characters import shortened
from ...core.errors import listed, plural
from ...core.timers import clock_time
from ...reporting.calls import has_full_answer
from ...reporting.lookups import Lookups
from ...reporting.model import Delivery, MaskedCall, Repeated, ReportRow, Sentences, Summary, Values
from ...reporting.readable import EXCERPT, decoded, readable
from ..signatures import SignatureDetails
from .lookups import QueueLookups, schedule_of
from .steps import sent_steps, step_in

_SETTINGS = {
    "delay": "delay", "not-before": "not before", "retries": "retries",
    "retry-delay": "retry delay", "timeout": "timeout", "deduplication-id": "dedup",
    "content-based-deduplication": "content-based dedup", "callback": "callback",
    "failure-callback": "failure callback", "cron": "cron", "schedule-id": "schedule",
    "flow-control-key": "flow key", "flow-control-value": "flow", "label": "label",
    "queue-name": "queue",
}  # fmt: skip
"""Headers of a publish request that are shown, without their prefix, each with its label."""


def summary(call: MaskedCall, lookups: Lookups) -> Summary | None:
    """Describe a publish request or a batch; None for any other request."""
    if call.route == "batch":
        items = parsed(call.request_body)
        answers = items_of(call.response_body) if has_full_answer(call) else []
        # The response names the items that were rejected.
        is_rejected = any("error" in item for item in answers)
        if is_rejected or not all(isinstance(item, dict) for item in items):
            return None
        of_runs = [_run_message(item.get("headers") or {}, item, lookups) for item in items]
        if len(of_runs) == 1 and of_runs[0]:
            return Summary(of_runs[0], _accepted(call, lookups))
        messages = [own or _batch_message(item) for own, item in zip(of_runs, items, strict=True)]
        return Summary(f"batch of {len(messages)}", _accepted(call, lookups), messages)
    if call.route == "wait_for_event" and (step := step_in({}, call.request_body)):
        event = call.path.rpartition("/")[2]
        return Summary(f"{step_text(step)} waits for event {event}")
    destination = call.facts.get("url")
    if not isinstance(destination, str):
        return None
    item = {"destination": destination, "body": call.request_body.decode("utf-8", "replace")}
    if what := _run_message(dict(call.request_headers.pairs), item, lookups):
        return Summary(what, _accepted(call, lookups))
    verb = call.path.strip("/").split("/")[1]
    if verb == "enqueue":
        verb = f"enqueue on {call.facts.get('queue')}:"
    settings = ", ".join(_settings(call.request_headers.pairs, forwarded=True))
    # Shorten the body rather than the settings, which determine what happens.
    body = readable(call.request_body, call.request_headers.get("Content-Type") or "")
    body = shortened(body, max(40, 160 - len(settings)))
    method = _method(call.request_headers)
    parts = [verb, method, shortened(destination, 160), body, f"({settings})" if settings else ""]
    return Summary(" ".join(filter(None, parts)), _accepted(call, lookups))


def _batch_message(item: Mapping[str, Any]) -> str:
    headers, body = item.get("headers") or {}, item.get("body") or ""
    content = shortened(readable(body), 60)
    parts = [_method(headers), str(item["destination"]), content, *_settings(headers.items())]
    return " ".join(filter(None, parts))


def _run_message(headers: Mapping[str, Any], item: Mapping[str, Any], lookups: Lookups) -> str:
    """Describe a message with which a client starts a workflow run, or continues it with a step;
    return an empty string for any other message.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    body = item.get("body") or ""
    if step := step_in(headers, body):
        # The URL of a run's steps is always that of the run.
        is_request = lower.get("upstash-workflow-url") not in (None, item["destination"])
        target = [_method(headers), str(item["destination"])] if is_request else []
        text = [_whole_step(step), *target, shortened(readable(body), 80) if is_request else ""]
    elif str(lower.get("upstash-workflow-init")).lower() == "true":
        run = lookups.short(lower.get("upstash-workflow-runid", "a run"))
        text = [f"start of {run}:", str(item["destination"]), shortened(readable(body), 80)]
    else:
        return ""
    settings = ", ".join(_settings(headers.items()))
    return " ".join(filter(None, [*text, f"({settings})" if settings else ""]))


def step_text(step: Mapping[str, Any]) -> str:
    """Return the number, the name and the kind of a step of a workflow run."""
    # A step that only plans a parallel one has the number of that one.
    number = step.get("targetStep") or step["stepId"]
    plan = "plan of " if step.get("targetStep") else ""
    return f"{plan}step {number} {compact(step['stepName'])} ({step['stepType']})"


def _whole_step(step: Mapping[str, Any]) -> str:
    """Return a step of a workflow run with its result."""
    parts = [step_text(step)]
    parts += [f"{word} {step[name]}" for word, name in (("until", "sleepUntil"), ("call", "callUrl"))
              if step.get(name)]  # fmt: skip
    # The other kinds of steps have no result of the application.
    result, kind = str(step.get("out") or "null"), step["stepType"]
    if result != "null" or (kind == "Run" and "out" in step):
        answer = parsed(result) if kind == "Call" else None
        shown, most = readable(result), 80
        if isinstance(answer, dict) and answer.keys() >= {"status", "body"}:
            shown, most = f"{answer['status']} {readable(str(answer['body']))}", EXCERPT
        parts.append(f"result {shortened(shown.rstrip(), most)}")
    return " ".join(parts)


def _method(headers: Mapping[str, Any]) -> str:
    lower = {name.lower(): value for name, value in headers.items()}
    method = str(lower.get("upstash-method", "POST"))
    return "" if method == "POST" else method


def _settings(headers: Iterable[tuple[str, Any]], forwarded: bool = False) -> Iterable[str]:
    """Yield the settings of a publish request.

    With ``forwarded``, also the headers that are forwarded; their secrets must already be masked.
    """
    for name, value in headers:
        setting = name.lower().removeprefix("upstash-")
        if name.lower().startswith("upstash-") and setting in _SETTINGS:
            text = _SETTINGS[setting]
            # A number of 9 or 10 digits looks like Unix time in seconds, from 1973 to 2286.
            if setting == "not-before" and re.fullmatch("[0-9]{9,10}", str(value)):
                text += f" {clock_time(int(value) * 1_000_000)}"
            elif str(value).lower() != "true":
                text += f" {value}"
            # The time zone of a schedule is part of its cron expression, and UTC by default.
            yield f"{text} in UTC" if setting == "cron" and "TZ=" not in str(value) else text
        elif forwarded and setting.startswith("forward-"):
            yield f"{name}: {shortened(str(value), 80)}"


def _accepted(call: MaskedCall, lookups: Lookups) -> str:
    if message_id := lookups.of(QueueLookups).created_by_lost_call.get(call.number):
        return lookups.short(message_id)
    if not has_full_answer(call):
        return ""
    return listed([_created(item, call, lookups) for item in items_of(call.response_body)])


def _created(result: Mapping[str, Any], call: MaskedCall, lookups: Lookups) -> str:
    if "scheduleId" in result:
        return f"schedule {lookups.short(result['scheduleId'])}"
    message = result["messageId"]
    if not result.get("deduplicated"):
        return lookups.short(message)
    return f"{call.status} deduplicated, taken for {lookups.short(message)}"


def callback_summary(call: MaskedCall, lookups: Lookups) -> Summary | None:
    """Describe a received callback; None for any other request."""
    report = callback_report(call.request_body)
    if report is None:
        return None
    what = (
        f"{call.method} {call.path}: status {report.get('status')}, "
        f"retried {report.get('retried')} of {report.get('maxRetries')}"
    )
    labels = {"body": "answered", "sourceBody": "published"}
    fields = {name: report[name] for name in labels if report.get(name) not in (None, "")}
    below = [f"{labels[name]} {shortened(_text(value), 120)}" for name, value in fields.items()]
    return Summary(what, "", below)


def callback_report(body: bytes | str) -> dict[str, Any] | None:
    """Return the decoded body of a callback; None if it is not the body of one."""
    report = parsed(body)
    if not isinstance(report, dict) or "sourceMessageId" not in report:
        return None
    fields: dict[str, Any] = decoded(report)
    for name, value in fields.items():
        if isinstance(value, dict) and isinstance(report[name], str):
            fields[name] = value.get("Base64", value)
    return fields


def _text(value: Any) -> str:
    return value if isinstance(value, str) else compact(value)


def delivery_summary(
    row: ReportRow, last: ReportRow, lookups: Lookups, received: Summary | None
) -> Summary:
    delivery = row.source.delivery
    assert delivery is not None
    data, url, message_id = delivery.event.data, delivery.url, delivery.message_id
    name = _delivery_name(delivery, row, last, lookups)
    if received is not None:
        # The row shows the body that the fake received.
        remarks = _exchange_lines(delivery, lookups) if "answer" in data else ()
        what = f"{name} {received.what}"
        return replace(received, what=what, remarks=[*received.remarks, *remarks])
    end = " ".join(["", *f"{data.get('method', '')} {url}".split()])
    repeated = [Repeated(end, "", (url, lookups.short(message_id)))] if url and message_id else []
    status, note, answer = delivery.status, str(data.get("note") or ""), ""
    if note and status is None:
        answer, note = note, ""
    elif url:
        outcome = status if status is not None else data.get("error") or "no answer"
        answer = f"{outcome} {_answered(delivery)}".strip()
    lines = tuple(_exchange_lines(delivery, lookups))
    return Summary(f"{name}{end}", answer, remarks=lines, note=note, repeated=repeated)


def _delivery_name(delivery: Delivery, row: ReportRow, last: ReportRow, lookups: Lookups) -> str:
    """Return the name of a delivery, such as ``attempt 1 to 3 of msg_1234``."""
    kind, message = delivery.kind.replace("_", " "), lookups.short(delivery.message_id)
    name = "attempt" if kind == "message" else kind
    if row.attempt == last.attempt == 1 and name != "attempt":
        # Here, an attempt number would be mistaken for a number of callbacks.
        name = f"{name} {message}"
    else:
        number = str(row.attempt or "")
        if row.attempt != last.attempt:
            number = f"{row.attempt} to {last.attempt}"
        name = f"{name} {number}" + (f" of {message}" if message else "")
        if schedule := schedule_of(delivery.event, lookups):
            name += f" (schedule {lookups.short(schedule)})"
    if delivery.about:
        name += f" about {lookups.short(delivery.about)}"
    return " ".join(f"{_step_of_delivery(delivery, lookups)}{name}".split())


def _step_of_delivery(delivery: Delivery, lookups: Lookups) -> str:
    """Return the step of a workflow run that a delivery executes, before the delivery's name; empty for
    a message of no run. If the step is unknown, return the one before it. A callback after which the
    run did not continue has the step of the message that it reports on.
    """
    message_id, run = delivery.message_id, delivery.run
    if not run:
        return ""
    own = lookups.of(QueueLookups)
    if message_id not in own.steps:
        message_id = delivery.about or message_id
    if steps := own.steps.get(message_id):
        # A row of a delivery publishes its steps, unless it failed, or is itself the request of one.
        is_row = 200 <= (delivery.status or 0) < 300 and message_id not in own.requests
        text = "" if is_row else listed([*dict.fromkeys(map(step_text, steps))], 3)
        return f"{text} of {lookups.short(run)}, " if text else f"{lookups.short(run)}, "
    before = lookups.details.get(message_id)
    text = f"after {step_text(before)}" if before else "first step"
    return f"{text} of {lookups.short(run)}, "


def _exchange_lines(delivery: Delivery, lookups: Lookups) -> Iterator[str]:
    """Yield the body and headers of a failed delivery, and the exceptions logged during it."""
    headers = [f"{name}: {value}" for name, value in delivery.event.data.get("sent_headers", ())]
    with_headers = f"with {plural('header', len(headers))} {', '.join(headers)}" if headers else ""
    sent = _sent_body(delivery, lookups)
    if sent or headers:
        yield " ".join(filter(None, ["sent", sent, with_headers]))
    yield from delivery.event.data.get("logged") or ()
    if signature := delivery.event.data.get("signature"):
        yield from _signature_lines(signature)


def _sent_body(delivery: Delivery, lookups: Lookups) -> str:
    """Return the body of a failed delivery; empty if the row of the publish request shows it."""
    data = delivery.event.data
    body = str(data.get("sent") or "")
    if data.get("signature"):
        # Show the body unchanged, because every character of it is signed.
        return body if "\n" in body else shortened(body, EXCERPT)
    if body == lookups.of(QueueLookups).bodies.get(delivery.message_id):
        return ""
    nothing = "no body" if data.get("sent_headers") else ""
    # A client does not execute steps again that it gets with their results.
    if delivery.run and (bodies := [content for _, content in sent_steps(body)]):
        return "; ".join(map(_sent_step, bodies))
    return _sent_callback(data) or _body(data, "sent") or nothing


def _sent_step(body: str) -> str:
    """Return the words of a step of a workflow run: its result, or the input of the run."""
    step = step_in({}, body)
    return _whole_step(step) if step else f"input {shortened(readable(body), 80)}"


def _answered(delivery: Delivery) -> str:
    """Describe the response to a failed delivery; empty if it only repeats the status."""
    data, status = delivery.event.data, delivery.status or 0
    if data.get("location"):
        return f"to {data['location']}"
    body = _body(data, "answer") if "answer" in data else ""
    phrase = responses.get(status, "")
    # Error pages of applications often repeat only the status.
    return "" if body in (phrase, f"{status} {phrase}") else body.removeprefix(f"{status} ")


def _sent_callback(data: Mapping[str, Any]) -> str:
    """Describe the body of a callback; ``Base64 of`` marks fields that are encoded."""
    report = callback_report(str(data.get("sent") or ""))
    if report is None:
        return ""
    fields = [f"status {report.get('status')}"]
    went_well = "answer" not in data
    if went_well and report.get("maxRetries"):
        fields.append(f"retried {report.get('retried')} of {report['maxRetries']}")
    for name in ("body",) if went_well else ("body", "sourceBody"):
        if value := report.get(name):
            fields.append(f"{name} Base64 of {shortened(_text(value), EXCERPT // 3)}")
    return ", ".join(fields)


def _body(data: Mapping[str, Any], name: str) -> str:
    kind = str(data.get(f"{name}_type") or "")
    return shortened(readable(str(data.get(name) or ""), kind), EXCERPT)


def _signature_lines(signature: SignatureDetails) -> Iterator[str]:
    """Yield what was signed; a finding says what the application compared the signature with."""
    if signature["missing"]:
        yield "the delivery was sent without a signature"
        return
    size, sent, signed = signature["size"], signature["hash"], signature["signed_hash"]
    if signature["url"]:
        yield f"signed for {signature['url']}"
    if signed.rstrip("=") == sent.rstrip("="):
        yield f"signed body: {size} bytes, hash {sent[:12]}…"
    else:
        if signed:
            yield f"signed body: hash {signed[:12]}…"
        yield f"sent body: {size} bytes, hash {sent[:12]}…"
    if signature["url"] and signature["called"] != signature["url"]:
        yield f"the application was called at {signature['called']}, which is not the signed URL"
    if signature["invalid"]:
        yield f"differs: {signature['invalid']}"
    elif not signature["compared"]:
        yield from _unseen_check(signature)


def _unseen_check(signature: SignatureDetails) -> Iterator[str]:
    """Yield possible reasons why a check that was not seen rejected a valid signature."""
    yield "the signature is valid with this queue's keys; the application's check was not seen"
    if abs(signature["ahead_s"]) > 1:
        yield (
            f"time.time() of this process is {signature['ahead_s']:+.0f} s from the time of the "
            "signature"
        )
    key = {
        "unset": " is not set in this process (fakecloud_env sets it)",
        "next": " of this process is the queue's next key",
        "other": " of this process is not a key of this queue",
    }.get(signature["environment"])
    if key:
        yield f"QSTASH_CURRENT_SIGNING_KEY{key}"
    if signature["rewritten_differs"]:
        yield "json.dumps() of the parsed body has another hash: verify the raw body"
    elif signature["environment"] in ("current", "unset"):
        yield "the URL must be the signed one in every character: scheme, host, path and query"


def _wrong_signature(values: Values) -> str:
    reasons = [_WRONG_SIGNATURE[reason["reason"]].format(**reason) for reason in values["reasons"]]
    text = "; ".join(reasons)
    return f"{values['message']} was rejected with {values['status']}: {text}"


_WRONG_SIGNATURE = {
    "url": "verify() got another URL: {got}, signed was {signed}",
    "json": "verify() got the same JSON, serialized otherwise (whitespace, escapes): pass the raw body",
    "body": "verify() got another body, of {size} bytes: pass the raw body",
    "key": "the application's check was not made with the queue's current signing key",
    "environment": "QSTASH_CURRENT_SIGNING_KEY of this process is not this queue's current key",
    "unsigned": "the delivery was sent without a signature",
    "former_key": "the application's check was made with a key from before the rotation of the "
    "queue's keys, not with the current one",
    "next_key": "it was signed with the key that was the next key before the keys were rotated; the "
    "application's check has only the old current key (a Receiver needs both keys: "
    "current_signing_key and next_signing_key)",
    "claim": "the application's check rejected the claim {got}",
    "invalid": "{got}",
}


SENTENCES: Sentences = {
    "raised_outside_step": "the delivery of {message} failed because workflow code raised {error} "
    "outside of a step, at {file}:{line} in {function}",
    "rejected_read_only": "the credentials are the read-only token",
    "unlikely_duration": "the {setting} {given} is {means}",
    "wrong_signature": _wrong_signature,
    **dict.fromkeys(("message_waits", "dead_letter", "schedule_waits"), itemgetter("line")),
}
