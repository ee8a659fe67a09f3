"""The records and offsets that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.calls import Action, Arguments, Call, Event
from ...inspect.data import State
from ...reporting.calls import Lookups, error_of, executed, executed_but_lost, has_full_answer
from ...reporting.model import DataAccess, ReportRow, ReportSubject, Sought
from ...reporting.values import parsed, shortened, shortened_json
from .wording import event_text, summary

_MEMBERS = ("leave", "rebalance", "expire", "crash", "lost")
"""Events that change which member receives records; that of a join is followed by a rebalance."""


def accesses(row: ReportRow, lookups: Lookups) -> Iterator[DataAccess]:
    entry = row.entry
    if isinstance(entry, Action):
        yield from _of_action(row, entry)
    elif isinstance(entry, Call):
        yield from _of_call(entry, lookups)
    elif isinstance(entry, Event) and entry.data.get("group"):
        subject = ReportSubject("group", str(entry.data["group"]), entry.fake)
        what = event_text(entry, lookups)
        result, succeeded = ("", True) if row.call is None else _outcome(row.call)
        # The action of the test that set offsets has its own row.
        offsets = () if entry.kind == "offsets set" else entry.data.get("offsets") or ()
        for topic, partition, offset in offsets:
            part = f"{topic}-{partition}"
            yield DataAccess(subject, True, what, result, part, offset, succeeded)
        # The row of the request to delete a consumer already says that it left.
        if entry.kind in _MEMBERS and not (entry.kind == "leave" and row.call is not None):
            yield DataAccess(subject, True, what)


def _of_call(call: Call, lookups: Lookups) -> Iterator[DataAccess]:
    answer = parsed(call.response_body) if has_full_answer(call) else None
    body = parsed(call.request_body) if call.request_body else None
    if call.route == "produce":
        yield from _produced(call, body, answer)
    elif call.route in ("consume", "fetch"):
        group = call.facts.get("group")
        verb = f"{call.route} as {group}" if group else call.route
        if group:
            yield DataAccess(ReportSubject("group", str(group), call.fake), False, verb)
        for record in answer if isinstance(answer, list) else ():
            yield record_access(call.fake, verb, record, writes=False)
    # The event of a commit that was executed has the offsets.
    elif call.route == "commit" and not (executed(call) or executed_but_lost(call)):
        words = summary(call, lookups)
        subject = ReportSubject("group", str(call.facts.get("group")), call.fake)
        result, succeeded = _outcome(call)
        for item in body if isinstance(body, list) else [body]:
            part = f"{item['topic']}-{item['partition']}" if isinstance(item, dict) else ""
            value = item.get("offset") if isinstance(item, dict) else None
            what = "commit" if words is None else words.what
            yield DataAccess(subject, True, what, result, part, value, succeeded)
    elif call.route == "delete-consumer":
        words = summary(call, lookups)
        subject = ReportSubject("group", str(call.facts.get("group")), call.fake)
        result, succeeded = _outcome(call)
        what = "delete consumer" if words is None else words.what
        yield DataAccess(subject, True, what, result, succeeded=succeeded)


def _produced(call: Call, body: Any, answer: Any) -> Iterator[DataAccess]:
    items = body if isinstance(body, list) else [body]
    places = answer if isinstance(answer, list) else [answer]
    topics = [str(topic) for topic in call.facts.get("topic") or ("",)]
    result, succeeded = _outcome(call)
    for at, item in enumerate(items):
        item = item if isinstance(item, dict) else {}
        place = places[at] if at < len(places) and isinstance(places[at], dict) else {}
        topic = str(item.get("topic") or place.get("topic") or topics[0])
        record = {**item, "topic": topic, **place}
        if place:
            yield record_access(call.fake, "produce", record, writes=True)
        else:
            subject = ReportSubject("topic", topic, call.fake)
            what = f"produce {topic}{_content(record)}"
            yield DataAccess(subject, True, what, result, "", record, succeeded)


def record_access(fake: str, verb: str, record: dict[str, Any], *, writes: bool) -> DataAccess:
    """Return the access to a record of which the answer has the partition and the offset."""
    place = f"{record['topic']}-{record['partition']}@{record['offset']}"
    subject = ReportSubject("topic", str(record["topic"]), fake)
    value = {name: record.get(name) for name in ("key", "value", "headers") if record.get(name)}
    if writes:
        return DataAccess(
            subject, True, f"{verb} {record['topic']}{_content(record)}", place, place, value
        )
    return DataAccess(subject, False, verb, f"{place}{_content(record)}", place, value)


def _content(record: dict[str, Any]) -> str:
    key = f" key {shortened(str(record['key']))}" if record.get("key") else ""
    return f"{key} {shortened_json(str(record.get('value')), 120)}"


def _outcome(call: Call) -> tuple[str, bool | None]:
    if has_full_answer(call):
        return "OK", True
    status, text = error_of(call)
    if status and call.fault is None:
        return shortened(f"{status} {text}", 120), False
    return f"{status} {call.outcome}".strip(), None


def _of_action(row: ReportRow, action: Action) -> Iterator[DataAccess]:
    positional, named = action.call or ((), {})
    arguments = dict(zip(_ARGUMENTS.get(action.kind, ()), positional, strict=False)) | dict(named)
    if action.kind == "produce":
        subject = ReportSubject("topic", str(arguments.get("topic")), action.fake)
        values = positional[1:] if len(positional) > 2 else (arguments.get("value"),)
        for value in values:
            record = {"key": arguments.get("key"), "value": value}
            what = f"produce {arguments.get('topic')}{_content(record)}"
            yield DataAccess(subject, True, what, value=record)
    elif action.kind == "commit":
        subject = ReportSubject("group", str(arguments.get("group")), action.fake)
        part = f"{arguments.get('topic')}-{arguments.get('partition')}"
        yield DataAccess(subject, True, f"commit {part}={arguments.get('offset')}", "", part,
                     arguments.get("offset"))  # fmt: skip
    elif action.kind.startswith("topic."):
        subject = ReportSubject("topic", str(positional[0]), action.fake)
        yield DataAccess(subject, True, action.kind)
    elif action.kind.startswith("group."):
        subject = ReportSubject("group", str(positional[0]), action.fake)
        yield DataAccess(subject, True, action.kind)


_ARGUMENTS = {"produce": ("topic", "value"), "commit": ("group", "topic", "partition", "offset")}
"""The names of the positional arguments of the actions."""


def sought(fake: Any, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at."""
    positional, named = arguments
    is_of_group = method in ("group", "groups") or method.endswith(("committed", "caught_up"))
    kind = "group" if is_of_group else "topic"
    name = [*positional, named.get(kind, "*")][0]
    return [Sought(ReportSubject(kind, str(name), fake.name))]


def stored(state: State, fake: str) -> Iterator[Sought]:
    """Yield the topics of a state that have had records, and the groups."""
    for at, partition in state["partitions"].items():
        if partition["end"]:
            yield Sought(ReportSubject("topic", at.rpartition("-")[0], fake))
    for name in state["groups"]:
        yield Sought(ReportSubject("group", name, fake))
