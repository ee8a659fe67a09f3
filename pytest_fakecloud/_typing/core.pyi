"""The fields that filters and faults accept, and what has them, for type checkers.

``python -m docs.generate`` writes this file from the tables that are used at run time.
"""

from collections.abc import Callable
from pytest_fakecloud._typing.broker import GroupWhere, MemberWhere, OffsetWhere, RecordWhere, TopicWhere
from pytest_fakecloud._typing.kv import SearchWhere
from pytest_fakecloud._typing.queue import AttemptFields, CallbackFields, DeadLetterWhere, DeliveryWhere, MessageWhere, RouteWhere, ScheduleWhere
from pytest_fakecloud.broker.model import MemberView, Record, TopicPartitionOffset
from pytest_fakecloud.broker.views import GroupView, TopicView
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.core.calls import Call, Event
from pytest_fakecloud.core.journal import Results
from pytest_fakecloud.core.violations import Violation
from pytest_fakecloud.explore.values.failures import Failure
from pytest_fakecloud.kv.search.index import Search
from pytest_fakecloud.queue.capture.callbacks import Callback
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest, DestinationRoute
from pytest_fakecloud.queue.model import Attempt
from pytest_fakecloud.queue.views import DeadLetterView, PublishedMessage, ScheduleView
from pytest_fakecloud.recordings.archives import Difference
from typing import Any, TypeVar, TypedDict, Unpack, overload

class CallFields(TypedDict, total=False):
    at: object
    at_us: object
    client: object
    fake: object
    fault: object
    method: object
    note: object
    number: object
    outcome: object
    path: object
    reached: object
    request_body: object
    request_headers: object
    request_json: object
    response_body: object
    response_headers: object
    response_json: object
    route: object
    service: object
    status: object
    target: object
    trace_id: object
    violation: object

class EventFields(TypedDict, total=False):
    alone: object
    began: object
    changed: object
    row: object

class CloudCallFields(CallFields, total=False):
    additionalK: object
    command: object
    cursor: object
    data: object
    deleteExisting: object
    destination: object
    encoding: object
    event: object
    filter: object
    fusionAlgorithm: object
    group: object
    id: object
    ids: object
    includeData: object
    includeMetadata: object
    includeVectors: object
    index: object
    instance: object
    key: object
    label: object
    limit: object
    maxIdle: object
    metadata: object
    metadataUpdateMode: object
    name: object
    namespace: object
    newNamespace: object
    prefix: object
    queryMode: object
    queue: object
    run: object
    topK: object
    topic: object
    url: object
    user: object
    uuid: object
    weightingStrategy: object
    words: object

class CloudEventFields(EventFields, total=False):
    about: object
    about_attempt: object
    answer: object
    answer_type: object
    assignment: object
    cause: object
    error: object
    exception: object
    fault: object
    faults: object
    generation: object
    group: object
    idle: object
    instance: object
    keeps: object
    location: object
    logged: object
    message_id: object
    message_kind: object
    method: object
    note: object
    number: object
    offsets: object
    partitions: object
    raised_outside_step: object
    reason: object
    run: object
    sent: object
    sent_headers: object
    sent_type: object
    signature: object
    status: object
    topics: object
    traceback: object
    until_us: object
    url: object
    where: object

class CloudEventWhere(CloudEventFields, total=False):
    kind: object

class FakeWhere(TypedDict, total=False):
    closed: object
    fixture: object
    name: object
    service: object
    token: object
    url: object

class ViolationWhere(TypedDict, total=False):
    exception: object
    facts: object
    kind: object
    text: object
    what: object

class FailureWhere(TypedDict, total=False):
    broken: object
    call: object
    exception: object
    fault: object
    held: object
    number: object
    schedule: object

class DifferenceWhere(TypedDict, total=False):
    answered: object
    number: object
    recorded: object
    request: object
    where: object

class ViolationFields(TypedDict, total=False):
    fake: object
    key: object
    message_id: object
    method: object
    path: object
    run_id: object
    url: object

T = TypeVar("T")

class Items(list[T]):
    @overload
    def where(self: Items[Call], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[CloudCallFields]) -> Results[T]: ...
    @overload
    def where(self: Items[Event], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[CloudEventWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Fake], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[FakeWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Violation], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[ViolationWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Failure], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[FailureWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Difference], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[DifferenceWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Search], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[SearchWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Record], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[RecordWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[TopicPartitionOffset], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[OffsetWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[MemberView], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[MemberWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[TopicView], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[TopicWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[GroupView], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[GroupWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Attempt], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[AttemptFields]) -> Results[T]: ...
    @overload
    def where(self: Items[PublishedMessage], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[MessageWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[DeadLetterView], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[DeadLetterWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[ScheduleView], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[ScheduleWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[DeliveredRequest], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[DeliveryWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[DestinationRoute], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[RouteWhere]) -> Results[T]: ...
    @overload
    def where(self: Items[Callback], predicate: Callable[[T], bool] | None = None, /, **fields: Unpack[CallbackFields]) -> Results[T]: ...
    @overload
    def where(self: Items[dict[str, Any]], predicate: Callable[[T], bool] | None = None, /, **fields: object) -> Results[T]: ...
    @overload
    def where(self, predicate: Callable[[T], bool] | None = None, /) -> Results[T]: ...
