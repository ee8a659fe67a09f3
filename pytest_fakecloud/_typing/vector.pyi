"""The fields that filters and faults accept, and what has them, for type checkers.

``python -m docs.generate`` writes this file from the tables that are used at run time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pytest_fakecloud._typing.core import CallFields, EventFields
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.core.calls import Call, Event, HeaderPairs
from pytest_fakecloud.core.journal import Journal, Results
from pytest_fakecloud.core.matching import Condition
from pytest_fakecloud.core.timers import Duration
from pytest_fakecloud.faults.answers import Step
from pytest_fakecloud.faults.fault import Fault
from pytest_fakecloud.faults.plan import FaultPlan, Matchers
from pytest_fakecloud.similarity.dense import Floats
from pytest_fakecloud.vector.settings import VectorLimits
from typing import Any, Literal, SupportsIndex, TypedDict, Unpack, overload
import re

class VectorSettings(TypedDict, total=False):
    name: str | None
    host: str | None
    port: int | None
    token: str | None
    dimension: int | None
    similarity: str
    kind: Literal['dense', 'sparse', 'hybrid']
    embedding: bool | str | Callable[[str], object] | Mapping[str, object]
    namespaces: Iterable[str] | Mapping[str, Iterable[object] | Mapping[Any, object] | str | PathLike[str]]
    limits: Mapping[str, int | None] | VectorLimits | None
    range_limit: int
    ready_after: Duration | None
    ready_after_reads: int | None
    recall: float
    lose_first: bool
    filter_budget: int | None
    shuffle_ties: bool

class VectorCallFields(CallFields, total=False):
    additionalK: object
    command: object
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
    namespace: object
    newNamespace: object
    prefix: object
    queryMode: object
    topK: object
    uuid: object
    weightingStrategy: object

class VectorEventFields(EventFields, total=False): ...

class VectorEventWhere(VectorEventFields, total=False):
    kind: object

class VectorMatchers(Matchers, total=False):
    additionalK: object
    command: object
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
    namespace: object
    newNamespace: object
    prefix: object
    queryMode: object
    topK: object
    uuid: object
    weightingStrategy: object

class UpsertFields(TypedDict, total=False):
    data: Condition[str]
    metadata: Condition[Mapping[str, Any]]
    namespace: Condition[str]
    sparseVector: Condition[Mapping[str, Any]]
    vector: Condition[Sequence[float] | Floats]

class QueryFields(TypedDict, total=False):
    data: Condition[str]
    filter: Condition[str]
    fusionAlgorithm: Condition[str]
    includeData: Condition[bool]
    includeMetadata: Condition[bool]
    includeVectors: Condition[bool]
    maxIdle: Condition[int]
    namespace: Condition[str]
    queryMode: Condition[str]
    sparseVector: Condition[Mapping[str, Any]]
    top_k: Condition[int]
    vector: Condition[Sequence[float] | Floats]
    weightingStrategy: Condition[str]

class VectorCalls(Results[Call]):
    def where(self, predicate: Callable[[Call], bool] | None = None, /, **fields: Unpack[VectorCallFields]) -> VectorCalls: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Call: ...
    @overload
    def __getitem__(self, index: slice, /) -> VectorCalls: ...

class VectorEvents(Results[Event]):
    def where(self, predicate: Callable[[Event], bool] | None = None, /, **fields: Unpack[VectorEventWhere]) -> VectorEvents: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Event: ...
    @overload
    def __getitem__(self, index: slice, /) -> VectorEvents: ...

class VectorJournal(Journal):
    def calls(self, predicate: Callable[[Call], bool] | None=None, /, **where: Unpack[VectorCallFields]) -> VectorCalls: ...  # type: ignore[override]
    def events(self, kind: str | None=None, **where: Unpack[VectorEventFields]) -> VectorEvents: ...  # type: ignore[override]
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[VectorCallFields]) -> VectorCalls: ...  # type: ignore[override]
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[VectorCallFields]) -> None: ...  # type: ignore[override]

class VectorFaultPlan(FaultPlan):
    def respond(self, status: int, body: object=None, *, headers: HeaderPairs | Mapping[str, str]=(), content_type: str | None=None, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def drop(self, *, reset: bool=False, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def lose_response(self, *, reset: bool=False, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def delay(self, duration: Duration, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def hang(self, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def truncate(self, keep: int | None=None, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def down(self, status: int | None=None, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def rate_limit(self, requests: int, per: Duration=60, *, status: int=429, body: object=None, headers: HeaderPairs | Mapping[str, str] | None=None, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def sequence(self, steps: Iterable[Step], **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def random(self, rate: float, step: Step=503, **matchers: Unpack[VectorMatchers]) -> Fault: ...
    def call(self, function: Callable[..., object], moment: Literal['before', 'after']='before', **matchers: Unpack[VectorMatchers]) -> Fault: ...

class VectorFake(Fake):
    journal: VectorJournal
    faults: VectorFaultPlan
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[VectorCallFields]) -> VectorCalls: ...
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[VectorCallFields]) -> None: ...
