"""The fields that filters and faults accept, and what has them, for type checkers.

``python -m docs.generate`` writes this file from the tables that are used at run time.
"""

from collections.abc import Callable, Iterable, Mapping
from pytest_fakecloud._typing.core import CallFields, EventFields
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.core.calls import Call, Event, HeaderPairs
from pytest_fakecloud.core.journal import Journal, Results
from pytest_fakecloud.core.timers import Duration
from pytest_fakecloud.faults.answers import Step
from pytest_fakecloud.faults.fault import Fault
from pytest_fakecloud.faults.plan import FaultPlan, Matchers, ServiceMatchers
from typing import Literal, SupportsIndex, TypedDict, Unpack, overload
import re

class QueueSettings(TypedDict, total=False):
    name: str | None
    host: str | None
    port: int | None
    token: str | None
    delivery: Literal['driven', 'background'] | None
    unstubbed: Literal['refuse', 'accept']
    raise_exceptions: bool
    dev_credentials: bool
    profile: Literal['free', 'payg'] | None
    limits: Mapping[str, int | None] | None
    header_prefix: Literal['Upstash', 'Service']
    signature_clock: Literal['receiver', 'real', 'virtual']
    region: str
    retries: int
    callback_retries: Literal['inherit'] | int
    delayed_callbacks: bool
    dedup_window: Duration
    dlq_retention: Duration | None
    message_grace: Duration
    history: Duration | None
    no_answer_status: int
    source_id: Literal['both', 'service', 'specification']
    bulk_action_time: Duration
    event_lookback: bool
    production_checks: bool
    loop_limit: int
    attempt_cap: float

class CallbackCaptureSettings(TypedDict, total=False):
    name: str | None
    host: str | None
    port: int | None
    token: str | None
    keys: Mapping[str, str] | None

class QueueCallFields(CallFields, total=False):
    destination: object
    event: object
    id: object
    key: object
    label: object
    name: object
    queue: object
    run: object
    url: object
    user: object

class QueueEventFields(EventFields, total=False):
    about: object
    about_attempt: object
    answer: object
    answer_type: object
    error: object
    exception: object
    fault: object
    faults: object
    location: object
    logged: object
    message_id: object
    message_kind: object
    method: object
    note: object
    number: object
    raised_outside_step: object
    run: object
    sent: object
    sent_headers: object
    sent_type: object
    signature: object
    status: object
    traceback: object
    url: object
    where: object

class QueueEventWhere(QueueEventFields, total=False):
    kind: object

class QueueMatchers(Matchers, total=False):
    destination: object
    event: object
    id: object
    key: object
    label: object
    name: object
    queue: object
    run: object
    url: object
    user: object

class AttemptFields(TypedDict, total=False):
    at: object
    at_us: object
    body: object
    ended_us: object
    exception: object
    faults: object
    headers: object
    is_final: object
    kind: object
    message_id: object
    number: object
    run_error: object
    sequence: object
    state: object
    status: object
    url: object
    wait_reason: object
    waited: object
    waited_us: object
    where: object

class MessageWhere(TypedDict, total=False):
    attempts: object
    body: object
    callbacks: object
    created: object
    dlq_id: object
    due: object
    headers: object
    id: object
    is_gone: object
    json: object
    kind: object
    label: object
    labels: object
    max_retries: object
    method: object
    queue: object
    retried: object
    schedule_id: object
    service_state: object
    source: object
    state: object
    timeline: object
    topic: object
    url: object

class DeadLetterWhere(TypedDict, total=False):
    at: object
    id: object
    json: object
    message: object
    response_body: object
    status: object
    timeline: object
    url: object

class ScheduleWhere(TypedDict, total=False):
    cron: object
    error: object
    id: object
    last_run: object
    paused: object
    url: object

class DeliveryWhere(TypedDict, total=False):
    body: object
    delivery: object
    headers: object
    json: object
    message_id: object
    method: object
    path: object
    query: object
    retried: object
    text: object
    url: object

class RouteWhere(TypedDict, total=False):
    deliveries: object
    prefix: object
    raise_exceptions: object
    where: object

class CallbackFields(TypedDict, total=False):
    at: object
    at_us: object
    dlq_id: object
    failure: object
    headers: object
    http_request: object
    is_final: object
    max_retries: object
    payload: object
    problem: object
    request_body: object
    request_headers: object
    request_json: object
    response_body: object
    response_headers: object
    response_json: object
    retried: object
    source_message_id: object
    status: object
    url: object
    verified: object

class ListedFields(TypedDict, total=False):
    attempts: object
    body: object
    callbacks: object
    created: object
    dlq_id: object
    due: object
    headers: object
    id: object
    is_gone: object
    json: object
    kind: object
    label: object
    labels: object
    max_retries: object
    method: object
    queue: object
    retried: object
    schedule_id: object
    service_state: object
    source: object
    timeline: object
    topic: object
    url: object

class MessageFields(TypedDict, total=False):
    attempts: object
    body: object
    callbacks: object
    created: object
    dlq_id: object
    due: object
    headers: object
    id: object
    is_gone: object
    json: object
    kind: object
    label: object
    labels: object
    max_retries: object
    method: object
    queue: object
    retried: object
    schedule_id: object
    service_state: object
    source: object
    timeline: object
    topic: object

class DeadLetterFields(TypedDict, total=False):
    at: object
    id: object
    json: object
    message: object
    response_body: object
    status: object
    timeline: object

class QueueCalls(Results[Call]):
    def where(self, predicate: Callable[[Call], bool] | None = None, /, **fields: Unpack[QueueCallFields]) -> QueueCalls: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Call: ...
    @overload
    def __getitem__(self, index: slice, /) -> QueueCalls: ...

class QueueEvents(Results[Event]):
    def where(self, predicate: Callable[[Event], bool] | None = None, /, **fields: Unpack[QueueEventWhere]) -> QueueEvents: ...  # type: ignore[override]
    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Event: ...
    @overload
    def __getitem__(self, index: slice, /) -> QueueEvents: ...

class QueueJournal(Journal):
    def calls(self, predicate: Callable[[Call], bool] | None=None, /, **where: Unpack[QueueCallFields]) -> QueueCalls: ...  # type: ignore[override]
    def events(self, kind: str | None=None, **where: Unpack[QueueEventFields]) -> QueueEvents: ...  # type: ignore[override]
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[QueueCallFields]) -> QueueCalls: ...  # type: ignore[override]
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[QueueCallFields]) -> None: ...  # type: ignore[override]

class QueueFaultPlan(FaultPlan):
    def respond(self, status: int, body: object=None, *, headers: HeaderPairs | Mapping[str, str]=(), content_type: str | None=None, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def drop(self, *, reset: bool=False, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def lose_response(self, *, reset: bool=False, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def delay(self, duration: Duration, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def hang(self, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def truncate(self, keep: int | None=None, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def down(self, status: int | None=None, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def rate_limit(self, requests: int, per: Duration=60, *, status: int=429, body: object=None, headers: HeaderPairs | Mapping[str, str] | None=None, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def sequence(self, steps: Iterable[Step], **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def random(self, rate: float, step: Step=503, **matchers: Unpack[QueueMatchers]) -> Fault: ...
    def call(self, function: Callable[..., object], moment: Literal['before', 'after']='before', **matchers: Unpack[QueueMatchers]) -> Fault: ...

class QueueFake(Fake):
    journal: QueueJournal
    faults: QueueFaultPlan
    def assert_called(self, what: str | re.Pattern[str] | None=None, *, times: int | None=None, **where: Unpack[QueueCallFields]) -> QueueCalls: ...
    def assert_not_called(self, what: str | re.Pattern[str] | None=None, **where: Unpack[QueueCallFields]) -> None: ...

class QueueServiceMatchers(ServiceMatchers, total=False):
    kind: object
    label: object
    message_id: object
    queue: object
    topic: object
    url: object
