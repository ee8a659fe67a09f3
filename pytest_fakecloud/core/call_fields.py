"""The fields by which calls and events can be filtered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, get_args

from .calls import Call, Outcome, field_of
from .field_types import (
    ABSENT,
    ANYTHING,
    BYTES,
    FLAG,
    INSTANT,
    JSON,
    MESSAGE_ID,
    METHOD,
    NUMBER,
    PATH,
    TARGET,
    TEXT,
    URL,
    FieldType,
    one_of,
)
from .matching import HEADERS, Field


class CallFields(TypedDict, total=False):
    """The fields that a call can be filtered by.

    The first group are attributes of ``Call``, with ``json`` and ``answer_json`` for the parsed
    bodies. The other groups are facts, which only calls to the named service have.
    """

    number: object
    at: object
    at_us: object
    service: object
    handle: object
    method: object
    target: object
    path: object
    headers: object
    body: object
    json: object
    client: object
    status: object
    answer_headers: object
    answer: object
    answer_json: object
    route: object
    fault: object
    outcome: object
    reached: object
    problem: object
    note: object
    # Facts of calls to key-value servers. Calls to vector indexes also have a command.
    command: object
    words: object
    index: object
    encoding: object
    # Facts of calls to vector indexes: the namespace, and fields of the body except vectors.
    namespace: object
    additionalK: object
    cursor: object
    data: object
    deleteExisting: object
    filter: object
    fusionAlgorithm: object
    id: object
    ids: object
    includeData: object
    includeMetadata: object
    includeVectors: object
    limit: object
    maxIdle: object
    metadata: object
    metadataUpdateMode: object
    newNamespace: object
    prefix: object
    queryMode: object
    topK: object
    uuid: object
    weightingStrategy: object
    # Facts of calls to brokers.
    topic: object
    group: object
    instance: object
    # Facts of calls to queues.
    url: object
    label: object
    destination: object
    dlq: object
    event: object
    key: object
    name: object
    queue: object
    run: object


class EventFields(TypedDict, total=False):
    """Fields of an event's data that tests can filter by. Each kind of event has some of them."""

    # Fields that describe a queue's delivery attempts.
    message_id: object
    url: object
    number: object
    method: object
    status: object
    error: object
    faults: object
    message_kind: object
    about: object
    fault: object
    note: object
    exception: object
    traceback: object
    where: object
    sent: object
    sent_type: object
    sent_headers: object
    answer: object
    answer_type: object
    location: object
    logged: object
    signature: object
    # Fields of events in a broker's consumer groups.
    group: object
    instance: object
    topics: object
    partitions: object
    generation: object
    assignment: object
    offsets: object
    reason: object
    cause: object
    # Data of the runs of ``every_failure``.
    began: object
    alone: object
    held: object


def _json_or_absent(read: Callable[[Call], Any]) -> Callable[[Call], Any]:
    def value(call: Call) -> Any:
        try:
            return read(call)
        except (ValueError, RecursionError):
            return ABSENT

    return value


def field_reader(name: str) -> Callable[[Call], Any]:
    """Return a function that reads a field or fact of a call."""
    return lambda call: field_of(call, name)


CALL_FIELDS: Mapping[str, Field] = {
    **{
        name: Field(field_type, field_reader(name))
        for name, field_type in {
            "number": NUMBER,
            "at": INSTANT,
            "at_us": NUMBER,
            "service": TEXT,
            "handle": TEXT,
            "method": METHOD,
            "target": TARGET,
            "path": PATH,
            "headers": HEADERS,
            "body": BYTES,
            "client": ANYTHING,
            "status": NUMBER,
            "answer_headers": HEADERS,
            "answer": BYTES,
            "route": TEXT,
            "fault": TEXT,
            "outcome": one_of("outcome", get_args(Outcome)),
            "reached": FLAG,
            "problem": TEXT,
            "note": TEXT,
        }.items()
    },
    "json": Field(JSON, _json_or_absent(Call.json)),
    "answer_json": Field(JSON, _json_or_absent(Call.answer_json)),
}
"""The fields that calls to every service can be filtered by. Services add their own facts."""
EVENT_FIELD_TYPES: Mapping[str, FieldType] = {
    **dict.fromkeys(EventFields.__annotations__, ANYTHING),
    "message_id": MESSAGE_ID,
    "about": MESSAGE_ID,
    "url": URL,
    "method": METHOD,
}
"""The data that events can be filtered by."""
EVENT_KINDS = frozenset(("refused", "run"))
"""Kinds of events that every service can record: received bytes that are not a request, and runs of
``every_failure``.
"""
