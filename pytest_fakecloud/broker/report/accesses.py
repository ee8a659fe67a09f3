"""The records and offsets that the entries of a journal read and wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...core.bodies import parsed
from ...core.calls import Arguments
from ...reporting.accesses import DataAccess, ReportSubject, Sought, SubjectKind
from ...reporting.calls import (
    changed_items,
    executed,
    executed_without_its_answer,
    has_full_answer,
    success_of,
)
from ...reporting.lookups import Lookups
from ...reporting.model import MaskedAction, MaskedCall, MaskedEvent
from ..fake import Broker
from .calls import RecordPosition, group_of, topics_of

TOPIC = SubjectKind("topic", parts_have_ids=True)
GROUP = SubjectKind("group")

_MEMBERS = ("leave", "rebalance", "expire", "crash", "lost")
"""Events that change which member receives records; that of a join is followed by a rebalance."""


def of_event(event: MaskedEvent, lookups: Lookups) -> Iterator[DataAccess]:
    # An event without a call, such as a restore, changes topics.
    changed = [item for section, item in changed_items(event) if section == "topics"]
    yield from _named(changed, event.data.get("group"), event.fake)
    if not event.data.get("group"):
        return
    subject = ReportSubject(GROUP, str(event.data["group"]), event.fake)
    for topic, partition, _ in event.data.get("offsets") or ():
        yield DataAccess(subject, True, f"{topic}-{partition}")
    if event.kind in _MEMBERS:
        yield DataAccess(subject, True)


def of_call(call: MaskedCall, lookups: Lookups) -> Iterator[DataAccess]:
    yield from _named(topics_of(call), call.facts.get("group"), call.fake)
    answer = parsed(call.response_body) if has_full_answer(call) else None
    body = parsed(call.request_body) if call.request_body else None
    group = ReportSubject(GROUP, group_of(call), call.fake)
    if call.route == "produce":
        yield from _produced(call, body, answer)
    elif call.route in ("consume", "fetch"):
        has_records = bool(answer) if isinstance(answer, list) else success_of(call)
        if call.facts.get("group"):
            yield DataAccess(group, False, "", has_records)
        for topic in topics_of(call):
            yield DataAccess(ReportSubject(TOPIC, topic, call.fake), False, "", has_records)
        for record in answer if isinstance(answer, list) else ():
            yield _access_to(call.fake, record, writes=False)
    elif call.route == "delete-consumer":
        yield DataAccess(group, True, "", success_of(call))
    # The event of a commit that was executed writes the partitions.
    elif call.route == "commit" and not (executed(call) or executed_without_its_answer(call)):
        for item in body if isinstance(body, list) else [body]:
            part = f"{item['topic']}-{item['partition']}" if isinstance(item, dict) else ""
            yield DataAccess(group, True, part, success_of(call))


def _produced(call: MaskedCall, body: Any, answer: Any) -> Iterator[DataAccess]:
    items = body if isinstance(body, list) else [body]
    positions = answer if isinstance(answer, list) else [answer]
    topics = topics_of(call) or [""]
    for at, item in enumerate(items):
        item = item if isinstance(item, dict) else {}
        position = positions[at] if at < len(positions) and isinstance(positions[at], dict) else {}
        topic = str(item.get("topic") or position.get("topic") or topics[0])
        if position:
            yield _access_to(call.fake, {"topic": topic, **position}, writes=True)
        else:
            yield DataAccess(ReportSubject(TOPIC, topic, call.fake), True, "", success_of(call))


def _access_to(fake: str, record: dict[str, Any], *, writes: bool) -> DataAccess:
    """Return the access to a record of which the answer has the partition and the offset."""
    position = RecordPosition.of(record)
    return DataAccess(ReportSubject(TOPIC, position.topic, fake), writes, str(position))


def of_action(action: MaskedAction, lookups: Lookups) -> Iterator[DataAccess]:
    arguments = _arguments(action)
    subjects = list(_named([arguments.get("topic")], arguments.get("group"), action.fake))
    yield from subjects
    if action.kind == "produce":
        yield DataAccess(ReportSubject(TOPIC, str(arguments.get("topic")), action.fake), True)
    elif action.kind == "commit":
        subject = ReportSubject(GROUP, str(arguments.get("group")), action.fake)
        yield DataAccess(subject, True, f"{arguments.get('topic')}-{arguments.get('partition')}")
    elif action.kind.startswith(("topic.", "group.")):
        yield from (DataAccess(access.subject, True) for access in subjects)


def _arguments(action: MaskedAction) -> dict[str, Any]:
    """Return the arguments of an action by their names."""
    positional, by_name = action.call or ((), {})
    names = ARGUMENTS.get(action.kind) or [action.kind.partition(".")[0]]
    return dict(zip(names, positional, strict=False)) | dict(by_name)


ARGUMENTS = {
    "create_topic": ["topic"], "produce": ["topic"], "commit": ["group", "topic", "partition"],
    "join": ["group"], "faults.crash": ["group"], "faults.redeliver": ["group"],
}  # fmt: skip
"""The names of the first positional arguments of actions on a broker. The first argument of those on a
topic or a group is its name.
"""


def _named(topics: Iterable[object], group: object, fake: str) -> Iterator[DataAccess]:
    yield from (DataAccess.named(TOPIC, topic, fake) for topic in topics if isinstance(topic, str))
    if isinstance(group, str):
        yield DataAccess.named(GROUP, group, fake)


def sought(fake: Broker, method: str, arguments: Arguments) -> list[Sought]:
    """Return the data that a method of the fake looked at."""
    positional, by_name = arguments
    is_of_group = method in ("group", "groups") or method.endswith(("committed", "caught_up"))
    kind = GROUP if is_of_group else TOPIC
    names = [*positional, *([by_name[kind.name]] if kind.name in by_name else [])][:1]
    subjects = [ReportSubject(kind, str(name), fake.name) for name in names]
    return list(map(Sought, subjects or [ReportSubject.all_of(kind, fake.name)]))
