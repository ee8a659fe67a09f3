"""The subjects of rows: keys, channels, namespaces, topics, groups, queues, messages, schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import signature
from typing import TYPE_CHECKING, Any

from ..core.calls import Action, Call, Entry, Event
from ..kv.command_fields import keys_of
from .bodies import items_of
from .calls import has_full_answer, lines_of
from .lookups import Lookups
from .masking import Mask
from .model import Subject

if TYPE_CHECKING:
    from ..base_cloud import BaseCloud

_SUBSCRIBING = {
    "SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE", "PUNSUBSCRIBE",
}  # fmt: skip
"""Commands whose arguments are channels or patterns of channels."""


def subjects_of(call: Call) -> Iterator[Subject]:
    """Yield the subjects of a call, which must be masked."""
    facts, fake = call.facts, call.handle
    if call.service == "kv":
        for line in lines_of(call):
            name, *arguments = line
            if name.upper() in ("PUBLISH", "SPUBLISH"):
                yield from (Subject("channel", one, fake) for one in arguments[:1])
            elif name.upper() in _SUBSCRIBING:
                yield from (Subject("channel", one, fake) for one in arguments)
            else:
                yield from (Subject("key", one, fake) for one in keys_of(line))
    elif call.service == "vector":
        yield Subject("namespace", str(facts.get("namespace") or ""), fake)
    elif call.service == "broker":
        for topic in facts.get("topic") or ():
            yield Subject("topic", str(topic), fake)
        if facts.get("group"):
            yield Subject("group", str(facts["group"]), fake)
    elif call.service == "queue":
        yield from _messages(call, fake)
    message = call.request_headers.get("Upstash-Message-Id")
    if message:
        yield Subject("message", message, fake)


def further_subjects(entry: Entry, began: int, lookups: Lookups) -> Iterator[Subject]:
    """Yield the subjects of the calls that an entry's row includes, and the schedule of a delivery."""
    for step in lookups.grouped_calls.get(entry.number, ()):
        yield from subjects_of(step)
    if schedule := lookups.header(began, "upstash-schedule-id"):
        yield Subject("schedule", schedule, entry.handle)


def subjects_of_action(action: Action, cloud: BaseCloud, mask: Mask) -> Iterator[Subject]:
    """Yield the topics, groups and keys in the arguments of the method that the test called."""
    handle = next((one for one in cloud.fakes() if one.name == action.handle), None)
    if action.call is None or handle is None:
        return
    given, named = action.call
    owner, _, name = action.kind.rpartition(".")
    if owner in ("topic", "group"):
        yield Subject(owner, mask.text(given[0]), action.handle)
        return
    method = getattr(getattr(handle, owner) if owner else handle, name, None)
    if method is None:
        return
    with suppress(TypeError, ValueError):
        arguments = signature(method).bind(*given, **named).arguments
        for kind in ("topic", "group", "key"):
            value = arguments.get(kind)
            if isinstance(value, str):
                yield Subject(kind, mask.text(value), action.handle)


def _messages(call: Call, fake: str) -> Iterator[Subject]:
    if call.facts.get("queue"):
        yield Subject("queue", str(call.facts["queue"]), fake)
    for one in items_of(call.response_body) if has_full_answer(call) else ():
        for name, kind in (("messageId", "message"), ("scheduleId", "schedule")):
            if isinstance(one.get(name), str):
                yield Subject(kind, one[name], fake)


def subjects_of_event(event: Event) -> Iterator[Subject]:
    data: Mapping[str, Any] = event.data
    for name, kind in (("message_id", "message"), ("about", "message"), ("group", "group")):
        if isinstance(data.get(name), str):
            yield Subject(kind, data[name], event.handle)
