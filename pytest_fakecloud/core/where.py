"""The fields that ``Results.where()`` accepts, by the class of the items, for type checkers.

``tests/test_shapes.py`` compares them with the tables used at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

if TYPE_CHECKING:
    from ..broker.model import MemberView, Record, TopicPartitionOffset
    from ..every_failure import Failure
    from ..handle import Handle
    from ..kv.search.index import Search
    from ..queue.capture.callbacks import Callback, CallbackFields
    from ..queue.delivery.replies import DeliveredRequest
    from ..queue.fields import (
        AttemptFields,
        DeadLetterWhere,
        DeliveryWhere,
        MessageWhere,
        ScheduleWhere,
    )
    from ..queue.model import Attempt
    from ..queue.views import DeadLetterView, PublishedMessage, ScheduleView
    from .call_fields import CallFields, EventFields
    from .calls import Call, Event
    from .problems import Problem
    from .results import Results

T = TypeVar("T")
Test = Callable[[T], bool] | None
"""A function that decides about an item; None accepts every item."""


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
