"""The keywords that select messages and other objects of a queue.

They are for type checkers: only these import the module, because creating the types takes time.
``tests/test_shapes.py`` compares them with the tables used at run time.
"""

from __future__ import annotations

from typing import TypedDict


class MessageFields(TypedDict, total=False):
    """Fields of a message that assertions and listings can filter by.

    ``queue``, ``topic``, ``schedule_id``, ``id`` and ``dlq_id`` are strings. ``kind`` is
    ``message``, ``callback`` or ``failure_callback``. ``service_state`` is the service's name for
    the state. ``label`` matches any of the message's labels. ``body`` can be bytes or a string, and
    ``json`` is the parsed body. ``headers`` matches if the forwarded headers include them.
    """

    method: object
    queue: object
    topic: object
    schedule_id: object
    kind: object
    service_state: object
    label: object
    body: object
    json: object
    headers: object
    id: object
    dlq_id: object
    retried: object
    max_retries: object
    created: object
    due: object


class ListedFields(MessageFields, total=False):
    """Fields of a message that ``Queue.messages()`` can filter by."""

    url: object


class MessageWhere(ListedFields, total=False):
    """Fields of a message that ``Results.where()`` can filter by."""

    state: object
    labels: object
    attempts: object
    source: object
    callbacks: object
    timeline: object
    is_gone: object


class AttemptFields(TypedDict, total=False):
    """Fields of an attempt that ``Queue.attempts()`` can filter by: the attributes of ``Attempt``."""

    message_id: object
    url: object
    kind: object
    number: object
    sequence: object
    at: object
    at_us: object
    waited: object
    waited_us: object
    wait_reason: object
    state: object
    status: object
    headers: object
    body: object
    exception: object
    where: object
    is_final: object
    ended_us: object
    faults: object


class DeadLetterFields(TypedDict, total=False):
    """Fields of a dead letter that ``Queue.dead_letters()`` can filter by, besides its URL."""

    id: object
    at: object
    message: object
    json: object
    status: object
    response_body: object
    timeline: object


class DeadLetterWhere(DeadLetterFields, total=False):
    """Fields of a dead letter that ``Results.where()`` can filter by."""

    url: object


class ScheduleWhere(TypedDict, total=False):
    """Fields of a schedule that ``Results.where()`` can filter by."""

    cron: object
    destination: object
    paused: object
    last_run: object
    error: object
    id: object


class DeliveryWhere(TypedDict, total=False):
    """Fields of a delivery that ``Results.where()`` can filter by."""

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
