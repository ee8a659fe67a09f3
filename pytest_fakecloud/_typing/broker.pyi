"""The fields that filters and faults accept, and what has them, for type checkers.

``python -m docs.generate`` writes this file from the tables that are used at run time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pytest_fakecloud._typing.core import CallFields, EventFields
from pytest_fakecloud.broker.model import Headers
from pytest_fakecloud.broker.settings import BrokerLimits
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.core.calls import Call, Event, HeaderPairs
from pytest_fakecloud.core.journal import Journal, Results
from pytest_fakecloud.core.matching import Condition
from pytest_fakecloud.core.timers import Duration
from pytest_fakecloud.faults.answers import Step
from pytest_fakecloud.faults.fault import Fault
from pytest_fakecloud.faults.plan import FaultPlan, Matchers
from typing import Any, Literal, SupportsIndex, TypedDict, Unpack, overload
import re

class BrokerSettings(TypedDict, total=False):
    name: str | None
    host: str | None
    port: int | None
    token: str | None
    topics: Mapping[str, int | Mapping[str, Any]] | None
    retention: Duration | None
    retention_bytes: int | None
    username: str
    password: str | None
    limits: str | BrokerLimits | None
    header_prefixes: Sequence[str]
    idle_close: Duration | None
    session_timeout: Duration
    join_delay: Duration
    offset_retention: Duration | None
    max_poll_records: int
    max_partition_bytes: int
    interleave: Literal['rotate', 'random']
    fetch_single_topic: bool
    instance_limit: Literal['cluster', 'group'] | None
    errors: Mapping[str, int | tuple[int, str]] | None
    engine: str | None
    isolation: Literal['prefix', 'none']

class BrokerCallFields(CallFields, total=False):
    group: object
    instance: object
    topic: object

class BrokerEventFields(EventFields, total=False):
    assignment: object
    cause: object
    generation: object
    group: object
    idle: object
    instance: object
    keeps: object
    offsets: object
    partitions: object
    reason: object
    topics: object
    until_us: object

class BrokerEventWhere(BrokerEventFields, total=False):
    kind: object

class BrokerMatchers(Matchers, total=False):
    group: object
    instance: object
    topic: object

class RecordWhere(TypedDict, total=False):
    headers: object
    key: object
    offset: object
    partition: object
    timestamp: object
    topic: object
    value: object

class OffsetWhere(TypedDict, total=False):
    offset: object
    partition: object
    topic: object

class MemberWhere(TypedDict, total=False):
    assignment: object
    config: object
    delivered: object
    name: object
    position: object
    state: object
    topics: object

class TopicWhere(TypedDict, total=False):
    end_offsets: object
    name: object
    partitions: object
    records: object
    start_offsets: object

class GroupWhere(TypedDict, total=False):
    assignment: object
    committed: object
    generation: object
    lag: object
    members: object
    name: object
    position: object
    state: object
    total_lag: object

class ListedFields(TypedDict, total=False):
    headers: Condition[Headers | Mapping[str, Condition[str]]]
    key: Condition[str]
    offset: Condition[int]
    partition: Condition[int]
    timestamp: Condition[int]
    value: object

class RecordFields(TypedDict, total=False):
    headers: Condition[Headers | Mapping[str, Condition[str]]]
    key: Condition[str]
    offset: Condition[int]
    partition: Condition[int]
    timestamp: Condition[int]

class BrokerCalls(Results[Call]):
    def where(self, predicate: Callable[[Call], bool] | None = None, /, **fields: Unpack[BrokerCallFields]) -> BrokerCalls: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Call: ...
    @overload
    def __getitem__(self, index: slice, /) -> BrokerCalls: ...

class BrokerEvents(Results[Event]):
    def where(self, predicate: Callable[[Event], bool] | None = None, /, **fields: Unpack[BrokerEventWhere]) -> BrokerEvents: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Event: ...
    @overload
    def __getitem__(self, index: slice, /) -> BrokerEvents: ...

class BrokerJournal(Journal):
    def calls(self, predicate: Callable[[Call], bool] | None=None, /, **where: Unpack[BrokerCallFields]) -> BrokerCalls: ...  # type: ignore[override]
    def events(self, kind: str | None=None, **where: Unpack[BrokerEventFields]) -> BrokerEvents: ...  # type: ignore[override]
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[BrokerCallFields]) -> BrokerCalls: ...  # type: ignore[override]
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[BrokerCallFields]) -> None: ...  # type: ignore[override]

class BrokerFaultPlan(FaultPlan):
    def respond(self, status: int, body: object=None, *, headers: HeaderPairs | Mapping[str, str]=(), content_type: str | None=None, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def drop(self, *, reset: bool=False, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def lose_response(self, *, reset: bool=False, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def delay(self, duration: Duration, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def hang(self, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def truncate(self, keep: int | None=None, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def down(self, status: int | None=None, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def rate_limit(self, requests: int, per: Duration=60, *, status: int=429, body: object=None, headers: HeaderPairs | Mapping[str, str] | None=None, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def sequence(self, steps: Iterable[Step], **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def random(self, rate: float, step: Step=503, **matchers: Unpack[BrokerMatchers]) -> Fault: ...
    def call(self, function: Callable[..., object], moment: Literal['before', 'after']='before', **matchers: Unpack[BrokerMatchers]) -> Fault: ...

class BrokerFake(Fake):
    journal: BrokerJournal
    faults: BrokerFaultPlan
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[BrokerCallFields]) -> BrokerCalls: ...
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[BrokerCallFields]) -> None: ...
