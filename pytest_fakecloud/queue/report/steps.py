"""The steps of workflow runs in messages, as the client of workflows sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from ...core.bodies import from_base64, items_of, parsed
from ...core.calls import Call, Entry
from ...reporting.calls import calls_in, events_in, has_full_answer
from ..rest.app import PUBLISHING

_WITH_STEPS = PUBLISHING | {"wait_for_event"}
"""Routes to which a client sends steps of workflow runs: results, and waits for events."""
_STEP_FIELDS = ("stepId", "stepName", "stepType")
_STEP_HEADER = "upstash-callback-forward-upstash-workflow-step"
"""Beginning of the headers with which a client publishes the request of a ``context.call()``."""


def steps_of_messages(
    entries: Iterable[Entry],
) -> tuple[dict[str, list[dict[str, Any]]], set[str], dict[str, dict[str, Any]]]:
    """Return the steps of workflow runs that the deliveries of each message execute, the messages that
    are the request of a step (`context.call()`), and the step whose result each message has, by the
    message's ID.

    A delivery executes the steps that it publishes, or the one whose request it is. Steps published
    during several deliveries are left out.
    """
    executed: dict[str, list[dict[str, Any]]] = {}
    requests: set[str] = set()
    results: dict[str, dict[str, Any]] = {}
    entries = list(entries)
    deliveries = [event for event in events_in(entries) if event.kind == "attempt"]
    for call in calls_in(entries):
        if call.route not in _WITH_STEPS:
            continue
        around = [
            str(event.data["message_id"]) for event in deliveries
            if isinstance(start := event.data.get("began"), int) and start < call.number < event.number
        ]  # fmt: skip
        for step, message_id in _published_steps(call):
            if len(around) == 1:
                executed.setdefault(around[0], []).append(step)
            if message_id is not None:
                if "out" not in step and step["stepType"] == "Call":
                    executed[message_id] = [step]
                    requests.add(message_id)
                else:
                    results[message_id] = step
    return executed, requests, results


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


def step_in(headers: Mapping[str, Any], body: object) -> dict[str, Any]:
    """Return the step of a workflow run that a message is about, as clients send it: the step whose
    result it has, or that it waits for. Empty if there is none.
    """
    content = parsed(body) if isinstance(body, str | bytes) else None
    for step in (content, content.get("step") if isinstance(content, dict) else None):
        if isinstance(step, dict) and step.keys() >= {*_STEP_FIELDS}:
            return step
    lower_headers = {name.lower(): value for name, value in headers.items()}
    fields = {
        field: lower_headers.get(f"{_STEP_HEADER}{field.lower()[4:]}") for field in _STEP_FIELDS
    }
    return fields if all(fields.values()) else {}


def sent_steps(body: str) -> Iterator[tuple[str, str]]:
    """Yield the ID of the message of each step in the body of a delivery, and the body of that message;
    nothing for any other body.
    """
    for record in items_of(body):
        if {"messageId", "callType"} <= record.keys():
            yield str(record["messageId"]), from_base64(str(record.get("body") or ""))
