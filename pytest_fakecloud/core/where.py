"""The keywords that select calls, events, items of ``Results``, violations, or calls for a fault.

They are for type checkers. Creating the types takes time, so the fakes do not import this module,
except for the names in ``EventFields`` when a test reads events.
``tests/test_shapes.py`` compares them with the tables used at run time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

if TYPE_CHECKING:
    from ..broker.model import MemberView, Record, TopicPartitionOffset
    from ..every_failure import Failure
    from ..handle import Handle
    from ..kv.search.index import Search
    from ..queue.capture.callbacks import Callback, CallbackFields
    from ..queue.delivery.replies import DeliveredRequest
    from ..queue.model import Attempt
    from ..queue.views import DeadLetterView, PublishedMessage, ScheduleView
    from ..queue.where import (
        AttemptFields,
        DeadLetterWhere,
        DeliveryWhere,
        MessageWhere,
        ScheduleWhere,
    )
    from .calls import Call, Event
    from .problems import Problem
    from .results import Results

T = TypeVar("T")
Test = Callable[[T], bool] | None
"""A function that decides about an item; None accepts every item."""


# -- calls, events, violations, faults -------------------------------------------------------------


class SharedFacts(TypedDict, total=False):
    """The facts by which both calls can be filtered and faults can be limited, by service."""

    # Key-value servers. Calls to vector indexes also have a command.
    command: object
    key: object
    words: object
    index: object
    encoding: object
    # Vector indexes.
    namespace: object
    # Brokers.
    topic: object
    group: object
    instance: object
    # Queues.
    url: object
    label: object
    queue: object


class CallFields(SharedFacts, total=False):
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
    # Facts of calls to vector indexes: fields of the body except vectors.
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
    # Facts of calls to queues.
    destination: object
    dlq: object
    event: object
    name: object
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


class ProblemFields(TypedDict, total=False):
    """Facts of a violation that ``allow()`` can match. Each kind of violation has some of them."""

    handle: object
    key: object
    method: object
    path: object
    url: object
    message_id: object
    run_id: object


class Matchers(SharedFacts, total=False):
    """The keywords that every fault accepts.

    ``times`` is the number of hits after which the fault ends (a strict test fails if there were
    fewer), ``skip`` the number of matching requests that are let through first, ``route`` an
    endpoint's name, path or ``"POST /path"``, ``when`` a predicate on the ``Request`` (its ``call``
    has the facts). The others are facts of services: ``command``, ``key``, ``words``, ``index`` and
    ``encoding``, ``namespace``, ``topic`` with ``group`` and ``instance``, ``url`` with ``label``,
    ``kind``, ``queue`` and ``message_id``. See ``core.matching``.
    """

    times: int | None
    skip: int
    route: str | re.Pattern[str] | None
    kind: object
    message_id: object
    when: Callable[[Any], object] | None


# -- items of results ------------------------------------------------------------------------------


class OffsetWhere(TypedDict, total=False):
    """The fields of a committed offset."""

    topic: object
    partition: object
    offset: object


class RecordWhere(OffsetWhere, total=False):
    """The fields of a broker's record."""

    timestamp: object
    key: object
    value: object
    headers: object


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


class Items(list[T]):
    """The base class of ``Results`` for type checkers, which report a misspelled field."""

    @overload
    def where(
        self: Items[Call], predicate: Test[T] = None, /, **fields: Unpack[CallFields]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Event], predicate: Test[T] = None, /, **fields: Unpack[EventFields]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Attempt], predicate: Test[T] = None, /, **fields: Unpack[AttemptFields]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[PublishedMessage], predicate: Test[T] = None, /, **fields: Unpack[MessageWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[DeadLetterView], predicate: Test[T] = None, /, **fields: Unpack[DeadLetterWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[ScheduleView], predicate: Test[T] = None, /, **fields: Unpack[ScheduleWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[DeliveredRequest], predicate: Test[T] = None, /, **fields: Unpack[DeliveryWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Callback], predicate: Test[T] = None, /, **fields: Unpack[CallbackFields]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Record], predicate: Test[T] = None, /, **fields: Unpack[RecordWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[TopicPartitionOffset],
        predicate: Test[T] = None,
        /,
        **fields: Unpack[OffsetWhere],
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[MemberView], predicate: Test[T] = None, /, **fields: Unpack[MemberWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Search], predicate: Test[T] = None, /, **fields: Unpack[SearchWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Handle], predicate: Test[T] = None, /, **fields: Unpack[HandleWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Problem], predicate: Test[T] = None, /, **fields: Unpack[ProblemWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[Failure], predicate: Test[T] = None, /, **fields: Unpack[FailureWhere]
    ) -> Results[T]: ...
    @overload
    def where(
        self: Items[dict[str, Any]], predicate: Test[T] = None, /, **fields: object
    ) -> Results[T]: ...
    @overload
    def where(self, predicate: Test[T] = None, /) -> Results[T]: ...
    def where(self, predicate: Any = None, /, **fields: Any) -> Any: ...
