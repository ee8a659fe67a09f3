"""Lookups of a report: what depends on several entries of the journal, or on the fakes' data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import core_of
from ..core.calls import Call, Entry, Event
from ..core.errors import listed, report_hook_failure
from ..core.recorder import ScriptCommand, SharedRecords
from .calls import executed_but_lost, has_full_answer, lines_of
from .connections import gathered
from .contract import functions_of
from .values import Mask, compact, items_of

_SENT = 2_000
"""Maximum number of characters of a body that an attempt's event keeps."""
_DETAILS = attrgetter("_reports.finished")
"""Returns the number, request and outcome of each recent attempt of a queue."""
_ID = re.compile(r"\b(?:msg|scd)_\w{20,}")
_LONG = 16
"""Maximum length of the name of a consumer or a workflow run that is shown in full."""


class Exchanged(NamedTuple):
    """The request and the response of a delivery attempt."""

    headers: Iterable[tuple[str, str]]
    body: bytes
    response_headers: Iterable[tuple[str, str]]
    response_body: bytes


@dataclass(frozen=True, slots=True)
class Lookups:
    """Lookups of one cloud and its journal."""

    ids: Mapping[str, str] = field(default_factory=dict)
    """The short forms of ids: messages, schedules, runs, and long names of consumers."""
    bodies: Mapping[str, str] = field(default_factory=dict)
    """The beginning of the body of each message."""
    end_offsets: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)
    """The end offsets of the partitions, by fake and topic."""
    attempts: Mapping[int, Exchanged] = field(default_factory=dict)
    """The request and the outcome of each delivery attempt, by the number at which it began."""
    created_by_lost_call: Mapping[int, str] = field(default_factory=dict)
    """The message that a request created whose answer was lost, by the request's number."""
    grouped_calls: Mapping[int, Sequence[Call]] = field(default_factory=dict)
    """The calls in the row of another one (see `gathered()`), by that one's number."""
    without_row: Set[int] = frozenset()
    """The numbers of these calls."""
    steps: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The steps of a workflow run that the deliveries of a message execute, by the message's ID."""
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The step whose result a message has, by the message's ID."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """The sources of Lua scripts, by the first eight characters of their hash."""
    executed: Mapping[int, Sequence[ScriptCommand]] = field(default_factory=dict)
    """The commands that the scripts of a call executed, by its number; missing if not recorded."""
    background: Mapping[int, Mapping[Any, Any]] = field(default_factory=dict)
    """What fakes know about calls beside their answers, by the call's number; only in reports."""
    mask: Mask = field(default_factory=Mask)
    """Masks credentials that become visible when values are decoded."""

    def short(self, name: object) -> str:
        """Return the short form of an id or name; the name itself if it has none."""
        return self.ids.get(str(name), str(name))

    def with_short_ids(self, text: str) -> str:
        """Return a text with ids of messages and schedules in their short form, as an application may
        store them.
        """
        return _ID.sub(lambda match: self.short(match[0]), text)

    def named(self, message_id: object) -> str:
        """Return the short form of a message's ID, with the step that its deliveries execute, if any."""
        steps = self.steps.get(str(message_id), ())
        names = listed([f"step {compact(step['stepName'])}" for step in steps])
        return f"{self.short(message_id)} ({names})" if names else self.short(message_id)

    def header(self, began: int | None, name: str) -> str:
        """Return a header of the delivery that began at a journal number; empty if it is unknown."""
        sent = self.attempts.get(began or 0)
        headers = sent.headers if sent is not None else ()
        return next((value for other, value in headers if other.lower() == name), "")


def lookups_of(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask | None = None) -> Lookups:
    """Return the lookups of a cloud and its journal, with credentials in grouped calls masked.

    A fake that raises an exception contributes nothing.
    """
    mask = mask or Mask(cloud)
    fakes: list[Any] = list(cloud.fakes())
    queues = [fake for fake in fakes if fake.service == "queue"]
    brokers = [fake for fake in fakes if fake.service == "broker"]
    messages = [message for queue in queues for message in _tried(queue.messages)]
    schedules = [schedule.id for queue in queues for schedule in _tried(queue.schedules)]
    calls = [entry for entry in entries if isinstance(entry, Call)]
    instances = {str(call.facts.get("instance")) for call in calls if call.service == "broker"}
    runs = {str(run) for entry in entries if isinstance(entry, Event)
            and len(run := entry.data.get("run") or "") > _LONG}  # fmt: skip
    named = [*_named_by_events(entries), *(message.id for message in messages), *schedules,
             *_named_by_answers(calls)]  # fmt: skip
    ids = [name for name in named if _ID.fullmatch(name)]  # An application may name a schedule.
    groups, without_row = gathered(entries)
    steps: dict[str, Sequence[Mapping[str, Any]]] = {}
    results: dict[str, Mapping[str, Any]] = {}
    for service in {entry.service for entry in entries}:
        executed, published = functions_of(service).steps_of_messages(entries)
        steps.update(executed)
        results.update(published)
    return Lookups(
        ids=_abbreviated(ids) | _abbreviated(runs) | _abbreviated_names(instances),
        bodies={message_id: _beginning(call) for message_id, call in _created(queues, calls)
                if call.route != "batch"},
        end_offsets={(broker.name, topic.name): topic.end_offsets
                     for broker in brokers for topic in _tried(broker.topics)},
        attempts=exchanges_of(cloud),
        created_by_lost_call=_messages_of_lost_calls(queues, calls),
        grouped_calls={
            number: [mask.call(call) for call in grouped] for number, grouped in groups.items()
        },
        without_row=without_row,
        steps={message_id: mask.value(sent) for message_id, sent in steps.items()},
        results={message_id: mask.value(step) for message_id, step in results.items()},
        scripts={hash_of(source)[:8]: source for call in calls if call.service == "kv"
                 for source in _scripts_of(call)},
        executed={number: [_masked(command, mask) for command in commands]
                  for number, commands in records_of(cloud).scripts.items()},
        mask=mask,
    )  # fmt: skip


def _masked(command: ScriptCommand, mask: Mask) -> ScriptCommand:
    return command._replace(words=mask.value(command.words), answer=mask.value(command.answer))


def exchanges_of(cloud: BaseCloud) -> dict[int, Exchanged]:
    """Return what recent delivery attempts sent and received, by the number at which each began."""
    return {
        number: Exchanged(sent.headers, sent.body, outcome.headers, outcome.body)
        for queue in cloud.fakes()
        if queue.service == "queue"
        for number, sent, outcome in _tried(_DETAILS, queue)
    }


def records_of(cloud: BaseCloud) -> SharedRecords:
    """Return the actions and call sites of a cloud."""
    return context_of(cloud).recorder.shared


def _tried(read: Callable[..., Iterable[Any]], *arguments: Any) -> list[Any]:
    """Return the values that a function of a fake returns; none if it raises an exception."""
    with report_hook_failure("", lambda line: None):
        return list(read(*arguments))
    return []


def _created(queues: Iterable[Any], calls: Iterable[Call]) -> Iterator[tuple[str, Call]]:
    """Yield the ID of each message that a publish request created, with the request."""
    routes = [route for queue in queues for route in core_of(queue).app.table.routes]
    publishing = {route.name for route in routes if route.publishes}
    for call in calls:
        if call.route in publishing and has_full_answer(call):
            for item in items_of(call.response_body):
                if "messageId" in item and not item.get("deduplicated"):
                    yield str(item["messageId"]), call


def _beginning(call: Call) -> str:
    """Return as much of a call's body as the event of a delivery attempt keeps."""
    return call.request_body[: 4 * _SENT].decode("utf-8", "replace")[:_SENT]


def _named_by_events(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the IDs of the messages of the events, and of those that callbacks are about."""
    for event in entries:
        if isinstance(event, Event) and "message_id" in event.data:
            for name in ("message_id", "about"):
                if event.data.get(name):
                    yield str(event.data[name])


def _named_by_answers(calls: Iterable[Call]) -> Iterator[str]:
    """Yield the IDs of the messages and schedules that requests created, also of those deleted since."""
    for call in calls:
        if call.service == "queue" and has_full_answer(call):
            for item in items_of(call.response_body):
                yield from (str(item[name]) for name in ("messageId", "scheduleId") if name in item)


def _scripts_of(call: Call) -> Iterator[str]:
    for name, *arguments in lines_of(call):
        yield from {"EVAL": arguments[:1], "SCRIPT": arguments[1:2]}.get(name.upper(), ())


def hash_of(script: str) -> str:
    """Return the hash that EVALSHA uses to refer to a script."""
    text = script.encode("utf-8", "surrogatepass")
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _messages_of_lost_calls(fakes: Iterable[Any], every: Iterable[Call]) -> dict[int, str]:
    """Return the messages that requests with a lost response created, by the requests' numbers.

    This is the only message with that URL and time that is not in any response. If there are
    several such messages, the request is left out.
    """
    calls = [call for call in every if call.service == "queue"]
    lost = [call for call in calls if executed_but_lost(call)]
    if not lost:
        return {}
    named = b"".join(call.response_body for call in calls if call not in lost)
    queues = {fake.name: fake for fake in fakes}
    message_ids = {}
    for call in lost:
        alike = [
            message.id
            for message in (queues[call.fake].messages() if call.fake in queues else ())
            if (message.url, message.created) == (call.facts.get("url"), call.at)
            and message.id.encode() not in named
        ]
        if len(alike) == 1:
            message_ids[call.number] = alike[0]
    return message_ids


def _abbreviated(ids: Iterable[str]) -> dict[str, str]:
    """Return the IDs shortened to a common length at which they still differ."""
    whole = set(ids)
    length = 8  # of a message ID, "msg_" and four characters
    while len({whole_id[:length] for whole_id in whole}) < len(whole):
        length += 2
    return {whole_id: whole_id[:length] for whole_id in whole}


def _abbreviated_names(names: Iterable[str]) -> dict[str, str]:
    """Return long names shortened to their two ends, with a length at which they still differ."""
    whole = {name for name in names if len(name) > _LONG}
    length = 6  # the ends of generated names differ, such as "worker-7f9c5d-x2kqp"
    while len({name[-length:] for name in whole}) < len(whole):
        length += 2
    return {name: f"{name[:3]}…{name[-length:]}" for name in whole if length + 4 < len(name)}
