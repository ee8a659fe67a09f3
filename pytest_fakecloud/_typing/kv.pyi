"""The fields that filters and faults accept, and what has them, for type checkers.

``python -m docs.generate`` writes this file from the tables that are used at run time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pytest_fakecloud._typing.core import CallFields, EventFields
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.core.calls import Call, Event, HeaderPairs
from pytest_fakecloud.core.journal import Journal, Results
from pytest_fakecloud.core.timers import Duration
from pytest_fakecloud.faults.answers import Step
from pytest_fakecloud.faults.fault import Fault
from pytest_fakecloud.faults.plan import FaultPlan, Matchers
from typing import Literal, SupportsIndex, TypedDict, Unpack, overload
import re

class KVSettings(TypedDict, total=False):
    name: str | None
    host: str | None
    port: int | None
    token: str | None
    dialect: Literal['vendor', 'redis']
    version: str | None
    modules: Sequence[str]
    search_ready_after: Duration | None
    search_ready_after_reads: int | None
    documented_only: bool
    debug_command: bool
    database_port: int | None
    database_password: str | None
    int_text: Literal['integer', 'int']
    cluster: bool | int
    node_ports: Sequence[int]
    sentinel: bool | str
    sentinel_port: int | None
    engine: str | None
    isolation: Literal['prefix', 'database', 'none']
    max_request_size: int | Literal['dialect'] | None
    max_matching_keys: int | Literal['dialect'] | None
    daily_limit: int | None
    max_pipeline_length: int | None
    max_requests_per_second: int | None
    max_key_size: int | Literal['dialect'] | None
    max_record_size: int | None
    max_data_size: int | None
    max_connections: int | None
    max_pending_entries: int | None
    max_search_indexes: int | None

class KVCallFields(CallFields, total=False):
    command: object
    encoding: object
    index: object
    key: object
    words: object

class KVEventFields(EventFields, total=False): ...

class KVEventWhere(KVEventFields, total=False):
    kind: object

class KVMatchers(Matchers, total=False):
    command: object
    encoding: object
    index: object
    key: object
    words: object

class SearchWhere(TypedDict, total=False):
    command: object
    filter: object
    index: object
    keys: object
    pending: object
    total: object

class CommandFields(TypedDict, total=False):
    command: object
    index: object
    key: object
    words: object

class SearchFields(TypedDict, total=False):
    command: object
    filter: object
    keys: object
    pending: object
    total: object

class KVCalls(Results[Call]):
    def where(self, predicate: Callable[[Call], bool] | None = None, /, **fields: Unpack[KVCallFields]) -> KVCalls: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Call: ...
    @overload
    def __getitem__(self, index: slice, /) -> KVCalls: ...

class KVEvents(Results[Event]):
    def where(self, predicate: Callable[[Event], bool] | None = None, /, **fields: Unpack[KVEventWhere]) -> KVEvents: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Event: ...
    @overload
    def __getitem__(self, index: slice, /) -> KVEvents: ...

class KVJournal(Journal):
    def calls(self, predicate: Callable[[Call], bool] | None=None, /, **where: Unpack[KVCallFields]) -> KVCalls: ...  # type: ignore[override]
    def events(self, kind: str | None=None, **where: Unpack[KVEventFields]) -> KVEvents: ...  # type: ignore[override]
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[KVCallFields]) -> KVCalls: ...  # type: ignore[override]
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[KVCallFields]) -> None: ...  # type: ignore[override]

class KVFaultPlan(FaultPlan):
    def respond(self, status: int, body: object=None, *, headers: HeaderPairs | Mapping[str, str]=(), content_type: str | None=None, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def drop(self, *, reset: bool=False, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def lose_response(self, *, reset: bool=False, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def delay(self, duration: Duration, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def hang(self, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def truncate(self, keep: int | None=None, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def down(self, status: int | None=None, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def rate_limit(self, requests: int, per: Duration=60, *, status: int=429, body: object=None, headers: HeaderPairs | Mapping[str, str] | None=None, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def sequence(self, steps: Iterable[Step], **matchers: Unpack[KVMatchers]) -> Fault: ...
    def random(self, rate: float, step: Step=503, **matchers: Unpack[KVMatchers]) -> Fault: ...
    def call(self, function: Callable[..., object], moment: Literal['before', 'after']='before', **matchers: Unpack[KVMatchers]) -> Fault: ...

class KVFake(Fake):
    journal: KVJournal
    faults: KVFaultPlan
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[KVCallFields]) -> KVCalls: ...
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[KVCallFields]) -> None: ...
