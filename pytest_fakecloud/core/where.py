"""The fields that ``Found.where()`` takes, by the class of the list's items, for type checkers.

``tests/test_shapes.py`` compares each with the table of fields that is asked at run time.
"""

from __future__ import annotations

from typing import TypedDict


class MessageWhere(TypedDict, total=False):
    """The fields of a queue's message."""

    is_gone: object
    id: object
    url: object
    method: object
    headers: object
    body: object
    state: object
    service_state: object
    kind: object
    attempts: object
    retried: object
    max_retries: object
    labels: object
    label: object
    queue: object
    topic: object
    schedule_id: object
    dlq_id: object
    created: object
    due: object
    source: object
    callbacks: object
    timeline: object
    json: object


class DeadLetterWhere(TypedDict, total=False):
    """The fields of a dead letter."""

    url: object
    status: object
    response_body: object
    timeline: object
    at: object
    id: object
    message: object
    json: object


class ScheduleWhere(TypedDict, total=False):
    """The fields of a schedule."""

    cron: object
    destination: object
    paused: object
    last_run: object
    error: object
    id: object


class DeliveryWhere(TypedDict, total=False):
    """The fields of a request that the queue delivered."""

    method: object
    url: object
    path: object
    query: object
    headers: object
    body: object
    text: object
    message_id: object
    retried: object
    delivery: object
    json: object


class CallbackWhere(TypedDict, total=False):
    """The fields of a recorded callback."""

    status: object
    body: object
    source_body: object
    source_message_id: object
    retried: object
    max_retries: object
    dlq_id: object
    url: object
    is_final: object
    verified: object
    at: object
    raw: object
    headers: object
    problem: object
    at_us: object
    failure: object
    request: object
    json: object
    source_json: object


class RecordWhere(TypedDict, total=False):
    """The fields of a broker's record."""

    topic: object
    partition: object
    offset: object
    timestamp: object
    key: object
    value: object
    headers: object


class OffsetWhere(TypedDict, total=False):
    """The fields of a committed offset."""

    topic: object
    partition: object
    offset: object


class MemberWhere(TypedDict, total=False):
    """The fields of a member of a consumer group."""

    name: object
    state: object
    topics: object
    assignment: object
    position: object
    delivered: object
    config: object


class SearchWhere(TypedDict, total=False):
    """The fields of a search."""

    command: object
    index: object
    filter: object
    keys: object
    total: object
    pending: object


class HandleWhere(TypedDict, total=False):
    """The fields of a fake."""

    name: object
    fixture: object
    service: object
    token: object
    url: object
    closed: object


class ProblemWhere(TypedDict, total=False):
    """The fields of a strict-mode violation."""

    kind: object
    text: object
    facts: object
    exception: object


class FailureWhere(TypedDict, total=False):
    """The fields of a run of ``every_failure``."""

    held: object
    number: object
    fault: object
    call: object
    exception: object
    broken: object
