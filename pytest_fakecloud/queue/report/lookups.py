"""What reports look up in the data of queues, and in several entries of their journal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...cloud.base import BaseCloud
from ...core.bodies import compact, items_of
from ...core.calls import Call, Entry, began
from ...core.errors import listed
from ...reporting.calls import calls_in, events_in, executed_without_its_answer, has_full_answer
from ...reporting.contract import ServiceLookups
from ...reporting.lookups import DeliveryExchange, Lookups
from ...reporting.mask import Mask
from ...reporting.model import MaskedEvent
from ..fake import Queue, finished_deliveries
from ..rest.app import PUBLISHING
from .steps import steps_of_messages

_SENT = 2_000
"""Maximum number of characters of a body that a delivery's event keeps."""
_WITH_BODY = PUBLISHING - {"batch"}
"""Routes of requests whose body is that of their message."""
_LONGEST_NAME = 16
"""Maximum length of the name of a workflow run that is shown in full."""
_ID = re.compile(r"(?:msg|scd)_\w{20,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLookups(ServiceLookups):
    """Lookups in the data of queues and in the calls to them."""

    bodies: Mapping[str, str] = field(default_factory=dict)
    """The beginning of the body of each message."""
    created_by_lost_call: Mapping[int, str] = field(default_factory=dict)
    """The message that a request created whose answer was lost, by the request's number."""
    steps: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The steps of a workflow run that the deliveries of a message execute, by the message's ID."""
    requests: Collection[str] = ()
    """The IDs of the messages that are the request of a step."""


def make(cloud: BaseCloud, entries: Sequence[Entry], mask: Mask) -> QueueLookups:
    """Return the names of messages, schedules and runs, what requests created, and the steps of runs."""
    queues = [fake for fake in cloud.fakes() if isinstance(fake, Queue)]
    calls = calls_in(entries, "queue")
    answered = [call for call in calls if has_full_answer(call)]
    items = [(call, item) for call in answered for item in items_of(call.response_body)]
    details = [event.data for event in events_in(entries)]
    names = [message.id for queue in queues for message in queue.messages()]
    names += [schedule.id for queue in queues for schedule in queue.schedules()]
    # Answers and events have the IDs of those that were deleted since.
    names += [str(item.get(name)) for _, item in items for name in ("messageId", "scheduleId")]
    names += [str(data.get(name)) for data in details for name in ("message_id", "about")]
    ids = filter(_ID.fullmatch, names)  # An application may name a schedule.
    runs = {str(data.get("run") or "") for data in details}
    steps, requests, results = steps_of_messages(entries)
    return QueueLookups(
        ids=_abbreviated(ids),
        names=_abbreviated(run for run in runs if len(run) > _LONGEST_NAME),
        bodies={
            str(item["messageId"]): call.request_body.decode("utf-8", "replace")[:_SENT]
            for call, item in items
            if call.route in _WITH_BODY and "messageId" in item and not item.get("deduplicated")
        },
        created_by_lost_call=_messages_of_lost_calls(queues, calls),
        steps={message_id: mask.value(sent) for message_id, sent in steps.items()},
        requests=requests,
        details={message_id: mask.value(step) for message_id, step in results.items()},
    )


def _abbreviated(ids: Iterable[str]) -> dict[str, str]:
    """Return the IDs shortened to a common length at which they still differ."""
    all_ids = set(ids)
    length = 8  # of a message ID, "msg_" and four characters
    while len({whole_id[:length] for whole_id in all_ids}) < len(all_ids):
        length += 2
    return {whole_id: whole_id[:length] for whole_id in all_ids}


def exchanges(queue: Queue) -> Iterator[tuple[int, DeliveryExchange]]:
    """Yield what recent deliveries sent and received, with the number at which each began."""
    for number, sent, outcome in finished_deliveries(queue):
        yield number, DeliveryExchange(sent.headers, sent.body, outcome.headers, outcome.body)


def message_name(message_id: object, lookups: Lookups) -> str:
    """Return the short form of a message's ID, with the step that its deliveries execute, if any."""
    steps = lookups.of(QueueLookups).steps.get(str(message_id), ())
    names = listed([f"step {compact(step['stepName'])}" for step in steps])
    return f"{lookups.short(message_id)} ({names})" if names else lookups.short(message_id)


def schedule_of(event: MaskedEvent, lookups: Lookups) -> str:
    """Return the ID of the schedule that created the message of a delivery; empty without one."""
    exchange = lookups.exchanges.get(began(event))
    headers = {name.lower(): value for name, value in (exchange.headers if exchange else ())}
    return headers.get("upstash-schedule-id", "")


def _messages_of_lost_calls(fakes: Iterable[Queue], calls: Sequence[Call]) -> dict[int, str]:
    """Return the messages that requests with a lost response created, by the requests' numbers.

    This is the only message with that URL and time that is not in any response. If there are
    several such messages, the request is left out.
    """
    lost = [call for call in calls if executed_without_its_answer(call)]
    if not lost:
        return {}
    answers = b"".join(call.response_body for call in calls if call not in lost)
    queues = {fake.name: fake for fake in fakes}
    message_ids = {}
    for call in lost:
        message_ids_of_call = [
            message.id
            for message in (queues[call.fake].messages() if call.fake in queues else ())
            if (message.url, message.created) == (call.facts.get("url"), call.at)
            and message.id.encode() not in answers
        ]
        if len(message_ids_of_call) == 1:
            message_ids[call.number] = message_ids_of_call[0]
    return message_ids
