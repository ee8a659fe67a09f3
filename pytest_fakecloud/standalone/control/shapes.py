"""Types of the control API's requests and responses, their JSON Schema, and the OpenAPI document."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from ...core.clock import Mode
from ...http.routing import Route
from ...inspect.data import PAGING, EventKind


class Live(TypedDict):
    """The response of every server that runs."""

    live: bool


class Ready(TypedDict):
    """Readiness of the server, and the progress of a load."""

    ready: bool
    loading: NotRequired[str]


class MoveData(TypedDict):
    """A move of the clock in progress, and the number of events that became due so far."""

    since: str
    until: str
    events: int


class NextEvent(TypedDict):
    """The event that is due next."""

    at: str
    kind: EventKind
    what: str


class ClockData(TypedDict):
    """The time of a cloud, ISO 8601 with an offset; when the clock's next event is due; the next of all
    events, among which are expiries of keys; a move in progress.
    """

    now: str
    mode: Mode
    next_due: str | None
    next: NextEvent | None
    move: MoveData | None


class BecameDue(TypedDict):
    """An event that became due during a move of the clock, with the item of a list that it is about;
    ``row`` is the number of the row that records it, 0 without one.
    """

    at: str
    kind: EventKind
    what: str
    fake: str | None
    list: str | None
    item: str | None
    row: int


class MoveResult(TypedDict):
    """What a move of the clock caused between two times: ``events`` has the first 100 of ``count``
    events that became due, and ``expired`` is the number of keys that expired. ``undoable`` says
    whether ``POST /clock/undo`` undoes the move.
    """

    since: str
    now: str
    count: int
    events: list[BecameDue]
    expired: int
    undoable: bool


class Moved(ClockData):
    """The clock after a move, the events that became due, each as a time and a label, and those of them
    that are expiries of keys. ``events`` has each with what it is about. ``undoable`` says whether
    ``POST /clock/undo`` undoes the move. ``result`` is the summary that ``GET /due`` has later, null
    for ``stop``.
    """

    fired: list[str]
    expired: list[str]
    events: list[BecameDue]
    undoable: bool
    result: MoveResult | None


class UndoneMove(ClockData):
    """The clock after a move was undone, and the first row that records it."""

    row: int


class Moment(TypedDict):
    """The number of planned events of a kind that are due at a time."""

    at_us: int
    kind: EventKind
    count: int


class Planned(TypedDict):
    """A planned event, or ``count`` expiries of keys next to each other, the last at ``until``."""

    at: str
    until: str
    count: int
    kind: EventKind
    what: str
    fake: str | None
    list: str | None
    item: str | None


class DueData(TypedDict):
    """The number of planned events, those of each kind, how many are due at each time, and the first 200
    lines of those that match, with the item of a list that each is about; ``matching`` is the number of
    lines. With more than 500 different times, a moment stands for several that follow each other.
    ``moves`` are the last five moves of the clock that caused something or can be undone, newest first.
    """

    now: str
    count: int
    kinds: dict[EventKind, int]
    matching: int
    moments: list[Moment]
    due: list[Planned]
    moves: list[MoveResult]


class Seed(TypedDict):
    """The seed of all random values in a cloud."""

    seed: int | str


class FakeData(TypedDict):
    """A fake: its address, its environment variables, the headers with its credentials, and the numbers
    of its faults that may still fire and of its dead letters, without those whose message was delivered
    since. ``forgotten`` is the number of its oldest entries that the journal has dropped; those that
    remain begin at ``recorded_since``.
    """

    name: str
    fixture: str
    service: str
    url: str
    env: dict[str, str]
    headers: dict[str, str]
    faults: int
    dead_letters: int
    forgotten: int
    recorded_since: str | None


class KeptData(TypedDict):
    """The file that keeps the state of a server, the real time of its last save, and why a save that was
    tried after it failed.
    """

    file: str
    saved_at: str | None
    failure: str


class State(TypedDict):
    """A summary of a cloud, with the numbers of its isolated clouds and of those that are kept because
    a test failed. ``problems`` are the causes of violations, and the dead letters with other causes.
    ``kept`` is null without ``serve --state``.
    """

    seed: int | str
    clock: ClockData
    fakes: list[FakeData]
    violations: int
    problems: int
    latest: int
    clouds: int
    failed_clouds: int
    kept: KeptData | None


class View(TypedDict):
    """The data of a fake; the other fields depend on its service."""

    name: str
    service: str
    fixture: str
    fault_kinds: list[str]


class Closed(TypedDict):
    """Returned when a fake or a cloud is closed."""

    closed: bool


class RowText(TypedDict):
    """The text of a row."""

    what: str
    answer: str
    lines: list[str]
    note: str
    script: NotRequired[str]


class ExchangeData(TypedDict):
    """One direction of an HTTP exchange; ``cut`` is the full size of a body that was truncated."""

    line: str
    headers: list[list[str]]
    body: str
    decoded: NotRequired[Any]
    cut: NotRequired[int]


class RowSubject(TypedDict):
    """A key, a message or another thing that a row refers to."""

    kind: str
    name: str
    fake: str


class RowRules(TypedDict):
    """What the kind of a row decides: its ``bar`` in a waterfall, whether a fake received it, sent it or
    did it inside, and whether its receiver made the calls in it.
    """

    bar: str
    is_received: bool
    is_sent: bool
    is_inside: bool
    surrounds: bool


class RowFault(TypedDict):
    """An injected fault that affected a row."""

    kind: str
    description: str
    function: str
    moment: str


class AdvicePlace(TypedDict):
    """Where in the console advice is followed: a part of a ``fake``, or a page of all if it is null."""

    place: str
    fake: str | None


class RowData(TypedDict):
    """A call, a delivery or an event of the journal, as in the JSON of a test report.

    ``fake`` is the name of the fake that recorded it; ``done`` is false until a call is answered.
    ``took_us`` is the duration of a call or delivery on the cloud's clock. ``advice`` says what to do
    about a failure, if its answer does not say that itself; of an ``expected`` error, which is ordinary
    control flow of its client, why it is. ``advice_at`` is where the console helps. ``marks`` and
    ``writer`` are set only in the report of a failed test.
    """

    number: int
    began: int
    ended: int
    at: str
    at_us: int
    kind: str
    rules: RowRules
    fake: str
    actor: str
    peer: str
    service: str
    operation: str
    subjects: list[RowSubject]
    status: int | None
    outcome: str
    ok: bool
    done: bool
    faults: list[RowFault]
    parent: int
    depth: int
    attempt: int
    took_us: int | None
    findings: list[int]
    marks: list[str]
    writer: bool
    trace: str | None
    where: dict[str, Any] | None
    text: RowText
    request: ExchangeData | None
    response: ExchangeData | None
    data: dict[str, Any]
    advice: NotRequired[str]
    advice_at: NotRequired[AdvicePlace]
    expected: NotRequired[bool]


class ConsoleAddress(TypedDict):
    """A URL that signs one browser in to the console."""

    url: str


class SessionData(TypedDict):
    """The control token, returned in exchange for a sign-in code."""

    token: str


class ViolationData(TypedDict):
    """A strict-mode violation; ``what`` is the part of ``text`` that is no Python."""

    kind: str
    what: str
    text: str
    facts: dict[str, str]


class OpenLetterData(TypedDict):
    """A dead letter whose message was not delivered since; ``run_id`` is that of its workflow run."""

    fake: str
    id: str
    message_id: str
    run_id: str | None


class AdviceData(TypedDict):
    """A sentence of advice, the command or address that follows it, and where it is followed."""

    text: str
    code: str
    at: AdvicePlace | None


class CauseData(TypedDict):
    """Violations with the same cause, and the rows, by number, and the dead letters that it caused.

    ``advice`` says what to do. ``unanswered`` is the origin whose deliveries need an answer, null if
    that is not the cause, and ``is_answered`` whether a destination answers them by now.
    """

    violations: list[ViolationData]
    advice: list[AdviceData]
    unanswered: str | None
    is_answered: bool
    rows: list[int]
    dead_letters: list[OpenLetterData]


class Problems(TypedDict):
    """The causes of violations, the dead letters, and the numbers of the rows that count as failures no
    more: of attempts whose message was delivered, and those that were dismissed.
    """

    causes: list[CauseData]
    dead_letters: list[OpenLetterData]
    settled: list[int]
    dismissed: list[int]


class DestinationData(TypedDict):
    """The URLs of a destination, and its answer as in a state file, null if JSON cannot describe it."""

    url: str
    answer: Any


class Sent(TypedDict):
    """The response of a fake, and the number of the call's row in the journal, null if a fault kept the
    request from the fake. ``advice`` says what to do about an error.
    """

    status: int
    headers: list[list[str]]
    body: str
    row: int | None
    advice: NotRequired[str]


class Broken(TypedDict):
    """The effect of an injected fault that broke the connection."""

    broken: str
    row: int | None


class Replies(TypedDict):
    """The replies to commands over the Redis protocol; an error is ``{"error": text}``."""

    replies: list[Any]
    row: int | None


class Rerun(TypedDict):
    """The new run of a workflow."""

    id: str


class FaultData(TypedDict):
    """An injected fault. ``rows`` are the numbers of the last calls that it affected."""

    id: int
    kind: str
    text: str
    description: str
    where: dict[str, str]
    times: int | None
    skip: int
    hits: int
    rows: list[int]
    active: bool
    made: dict[str, Any] | None


class SnapshotData(TypedDict):
    """A snapshot kept by the server, and the time of the clock at which it was taken."""

    id: str
    at: str


class ItemChange(TypedDict):
    """An item of a fake before and after; null where it is absent. ``added`` are the records that a
    partition of a topic has got, at most 20, if ``after`` is its data of now. ``expired`` says that the
    TTL of a key has ended.
    """

    fake: str
    section: str
    item: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    added: NotRequired[list[dict[str, Any]]]
    expired: NotRequired[bool]


class RestoredSnapshot(SnapshotData):
    """A snapshot that was restored, and the first row that records it."""

    row: int


class Changes(TypedDict):
    """The number of items that differ, and 500 of them, removed ones last; an absent item is null.

    ``sums`` has how many of each fake were added, changed and removed, and if there are any, how many
    have expired. ``not_compared`` are fakes that are not in both, that have more than 20,000 items, or
    whose earlier data is not known. ``not_restored`` has how many items of each section a restore would
    not bring back, because their time has ended.
    """

    count: int
    sums: dict[str, dict[str, int]]
    changes: list[ItemChange]
    not_compared: list[str]
    not_restored: dict[str, int]
    why_not_own: NotRequired[str]
    why_unknown: NotRequired[str]


class ChangesSinceMove(Changes):
    """What has changed since just before a move of the clock, and the time before it; ``own`` is what an
    undo with ``"own": true`` takes back, ``later`` what was written since and stays then, ``lost`` what
    was written since and goes anyway.
    """

    clock: str
    own: Changes
    later: Changes
    lost: Changes


class Undo(TypedDict):
    """The items that a restore to just before a row puts back, and nothing else."""

    section: str
    items: list[str]


class RowChanges(TypedDict):
    """What a row changed; null with a note that says why that is not known.

    ``undo`` are the items whose restore undoes the row alone; null with a reason in ``why_no_undo``.
    """

    changes: list[ItemChange] | None
    note: str
    undo: Undo | None
    why_no_undo: str


class DataBefore(TypedDict):
    """Items as they were just before a row, by name."""

    items: dict[str, dict[str, Any]]


class FirstCallData(TypedDict):
    """What a first call does, its POST request, and programs that make it by language."""

    does: str
    target: str
    body: str
    texts: dict[str, str]


class RequestAgain(TypedDict):
    """A recorded request without its credentials; of a body that ``is_cut``, the beginning."""

    method: str
    target: str
    headers: dict[str, str]
    body: str
    is_cut: bool


class MadeAgain(TypedDict):
    """The request that makes a call or delivery again, and why no test does, as a sentence."""

    request: RequestAgain | None
    why_no_test: str


class CopiedTests(TypedDict):
    """The texts of tests by language; without a text, why, as a sentence."""

    tests: dict[str, str]
    why_not: str


class Restored(TypedDict):
    """The names of the fakes whose data was restored, and the first row that records it."""

    restored: list[str]
    row: int


class Recorded(TypedDict):
    """The number of the first row that records a change."""

    row: int


class ResetData(ClockData):
    """The clock after a reset, and the first row that records the reset; null if none does."""

    row: int | None


class _Version(TypedDict):
    """The fields of an item from a time on; ``expired`` is when the TTL of the one before had ended, if
    that is why there are none.
    """

    number: int
    at: str
    fields: dict[str, Any] | None
    expired: str | None


class _Repeat(TypedDict):
    """A run of equal increments of a number: the indexes of its first and last version."""

    first: int
    last: int
    by: str


class Versions(TypedDict):
    """An item over time, null while it did not exist, and the names of the parts of its value.

    ``repeats`` are runs of at least three equal increments by the same request. ``is_put_back`` says
    whether items of the section can be put back alone.
    """

    versions: list[_Version]
    is_put_back: bool
    parts: list[str]
    repeats: list[_Repeat]


class CloudData(TypedDict):
    """An isolated cloud and the address of its own control API.

    ``test`` is the name of the failed test whose end a kept copy shows; it is empty for other clouds.
    """

    id: str
    url: str
    fakes: list[str]
    test: str


class NewCloud(TypedDict):
    """A new isolated cloud; the environment variables contain its addresses and credentials."""

    id: str
    seed: int | str
    env: dict[str, str]


class KeptCloud(NewCloud):
    """The copy of the cloud of a failed test, and the test's report as text.

    ``statement`` is what the failing statement read, in one line, ``page`` the path of the HTML page,
    null unless the server has the option ``--report``.
    """

    report: str
    statement: str
    page: str | None


class Loaded(TypedDict):
    """The number of items that were loaded, by service."""

    loaded: dict[str, int]


class Replayed(TypedDict):
    """The differences between the recorded and the actual responses, as text."""

    differences: list[str]


class Returned(TypedDict):
    """The value that a method returned or a property has, as plain JSON."""

    value: Any


class FailureData(TypedDict):
    """An exception: its class and its text."""

    type: str
    text: str


Raised = TypedDict("Raised", {"raise": FailureData})
"""The exception that a method raised."""


# -- requests --------------------------------------------------------------------------------------


class _Move(TypedDict):
    action: Literal["freeze", "resume", "advance_to_next", "stop"]
    undoable: NotRequired[bool]


class _Advance(TypedDict):
    action: Literal["advance"]
    by: str | float
    undoable: NotRequired[bool]


class _MoveTo(TypedDict):
    action: Literal["move_to"]
    to: str
    undoable: NotRequired[bool]


ClockMove = _Move | _Advance | _MoveTo


class SignIn(TypedDict):
    """The sign-in code to exchange."""

    code: str


class Reset(TypedDict, total=False):
    """The name of the fake to reset; by default all fakes are reset. With ``record``, the cleared
    journal begins with rows of the reset, to just before which the data can be restored.
    """

    fake: str
    record: bool


class Change(TypedDict):
    """What is about to change, in words, and the fake whose data changes; by default all."""

    what: str
    fake: NotRequired[str]


class RequestMade(TypedDict):
    """A request of this API, whose path is the part behind ``/__control__``."""

    method: str
    path: str
    body: NotRequired[dict[str, Any]]


class Begin(TypedDict, total=False):
    """The start time and the clock mode; by default those that the cloud was started with."""

    now: str
    clock: Mode


class NewFake(TypedDict):
    """The fake to start."""

    fixture: str
    settings: NotRequired[dict[str, Any]]


class ToSend(TypedDict, total=False):
    """A request to a fake."""

    method: str
    target: str
    headers: dict[str, str]
    body: Any


class ToSendNew(ToSend, total=False):
    """A request to a fake, with the number of the row that it sends again."""

    again_of: int


class ToSendAgain(ToSend, total=False):
    """What to change in a recorded call."""

    commands: list[list[str]]


class UndoOptions(TypedDict, total=False):
    """Whether what was written since the move stays; by default not."""

    own: bool


class RestoreOptions(TypedDict, total=False):
    """The fake to restore, by default all, and the items of a section, by default all; or with ``own``
    what a restore has changed.
    """

    fake: str
    section: str
    items: list[str]
    skip_unknown: bool
    after: bool
    own: bool


class RerunOptions(TypedDict):
    """The message of the step from which a run goes on, and what replaces its result, the input of the
    run, and the results of steps before it by their messages. With ``again``, the step runs again.
    """

    message: str
    result: NotRequired[str]
    input: NotRequired[str]
    results: NotRequired[dict[str, str]]
    again: NotRequired[bool]


class FaultOptions(TypedDict):
    """A fault to inject. The other fields select the calls that it affects."""

    kind: str
    args: NotRequired[list[Any]]
    times: NotRequired[int]
    skip: NotRequired[int]
    route: NotRequired[str]


class NewDestination(TypedDict):
    """A URL, and the answer to deliveries as in a state file, such as 200 or ``{"forward": URL}``."""

    url: str
    answer: Any


class Dismissed(TypedDict, total=False):
    """The texts of the violations to remove, and the numbers of the rows to dismiss."""

    texts: list[str]
    rows: list[int]


class SnapshotOptions(TypedDict, total=False):
    """The name of a snapshot; by default a number."""

    id: str | int


class OfFake(TypedDict, total=False):
    """The fake whose data is restored; by default all."""

    fake: str


class FailedTest(TypedDict):
    """The name of a test that has failed, and its error as the test's runner shows it.

    ``read`` are names (of keys, messages, schedules, workflow runs, topics, consumer groups or vectors)
    or values that the failing statement compared. The report marks the data with these names, and the
    data whose value was returned, or else written, last. Without it, the last calls are marked.
    """

    test: str
    failure: NotRequired[str]
    read: NotRequired[list[Any]]


class CloudOptions(TypedDict, total=False):
    """Options of an isolated cloud; ``services`` maps names such as ``kv`` to settings."""

    services: dict[str, dict[str, Any]]
    seed: int | str
    now: str
    clock: Mode


class Use(TypedDict):
    """A method to call or a property to read, of the fake ``object`` or of the cloud (null)."""

    name: str
    object: NotRequired[str | None]
    args: NotRequired[list[Any]]
    kwargs: NotRequired[dict[str, Any]]


class StateFile(TypedDict):
    """The content of a state file; paths in it are relative to ``folder`` of the server."""

    state: dict[str, Any]
    folder: NotRequired[str]


class Recording(TypedDict):
    """A recorded session (HAR) to send to the fakes, or to the fake ``into``."""

    archive: dict[str, Any]
    into: NotRequired[str | None]
    move_clock: NotRequired[bool]


BODIES: Mapping[str, Any] = {
    "move_clock": ClockMove,
    "session": SignIn,
    "reset": Reset,
    "begin": Begin,
    "set_seed": Seed,
    "start_fake": NewFake,
    "send": ToSendNew,
    "send_again": ToSendAgain,
    "rerun": RerunOptions,
    "undo_move": UndoOptions,
    "restore_before": RestoreOptions,
    "record_change": Change,
    "copy_request": RequestMade,
    "add_fault": FaultOptions,
    "set_destination": NewDestination,
    "dismiss": Dismissed,
    "take_snapshot": SnapshotOptions,
    "restore_snapshot": OfFake,
    "new_cloud": CloudOptions,
    "keep_cloud": FailedTest,
    "call": Use,
    "load": StateFile,
    "replay": Recording,
}
"""The type of the request body of each endpoint, by route name."""
OPEN = frozenset({"FaultOptions"})
"""Names of the types that may have further fields."""


RESPONSES: Mapping[str, Any] = {
    "journal": list[RowData],
    "ready": Ready,
    "saved": dict[str, Any],
    "send": Sent | Broken,
    "send_again": Sent | Broken | Replies,
    "view": View,
}
"""Response types of endpoints whose annotation does not name the type."""


# -- as JSON Schema -------------------------------------------------------------------------------

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


class Schemas:
    """Generates JSON Schemas of types. Classes are references to the schemas in ``named``."""

    def __init__(self) -> None:
        self.named: dict[str, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the JSON Schema of a type; raise ``TypeError`` if JSON cannot represent it."""
        origin, inner = get_origin(kind), get_args(kind)
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if kind in (Any, object):
            return {"description": "any JSON value"}
        if is_typeddict(kind):
            return {"$ref": f"#/components/schemas/{self.name_of(kind)}"}
        if origin is NotRequired:
            return self.of(inner[0])
        if origin is Literal:
            return {"type": "string", "enum": list(inner)}
        if origin is list:
            return {"type": "array", "items": self.of(inner[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        if origin is UnionType:
            return {"anyOf": [self.of(member) for member in inner]}
        raise TypeError(f"{kind!r} has no schema")

    def name_of(self, kind: Any) -> str:
        name: str = kind.__name__.lstrip("_")
        if name not in self.named:
            schema: dict[str, Any] = {"type": "object"}
            self.named[name] = schema
            # Skip the docstring that typing generates, which does not describe the class.
            if kind.__doc__ and not kind.__doc__.startswith("dict("):
                schema["description"] = inspect.cleandoc(kind.__doc__)
            hints = get_type_hints(kind, include_extras=True)
            schema["properties"] = {key: self.of(value) for key, value in hints.items()}
            # With string annotations, ``__required_keys__`` wrongly includes NotRequired fields.
            optional = {key for key, value in hints.items() if get_origin(value) is NotRequired}
            if required := sorted(kind.__required_keys__ - optional):
                schema["required"] = required
            if name in OPEN:
                schema["additionalProperties"] = self.of(Any)
        return name


@cache
def body_schema(route: str) -> dict[str, Any]:
    """Return the JSON Schema of the body of a request, whose fields are all at its top level."""
    schemas = Schemas()
    kinds = get_args(BODIES[route]) or (BODIES[route],)
    bodies = [schemas.named[schemas.name_of(kind)] for kind in kinds]
    if len(bodies) == 1:
        return {"required": [], **bodies[0]}
    # The fields of a move of the clock depend on its action, which its endpoint checks.
    names = dict.fromkeys(name for body in bodies for name in body["properties"])
    return {"type": "object", "required": [], "properties": {name: {} for name in names}}


# -- the OpenAPI document --------------------------------------------------------------------------

_QUERIES = {
    "journal": {"after": "return only rows after this number", "limit": "maximum number of rows"},
    "journal_stream": {"after": "stream only entries after this number"},
    "list": PAGING,
    "item": {**PAGING, "absent": "ok: return the reason instead of a 404 for an unknown item"},
    "changes": {
        "until": "the later snapshot; by default the current data",
        "fake": "the name of the fake; by default all fakes",
        "as_restored": "yes: without the keys that expire at once",
    },
    "due": {
        "since": "the earliest time of the events in full, in microseconds since the Unix epoch",
        "until": "the latest time",
        "within": "a duration, such as 1h: only events that are due within it from now",
        "kind": "the kind of the events in full",
        "without": "kinds that are left out, separated by commas",
        "fold": "yes: expiries of keys next to each other are one line",
        "open": "the times of the last events of such lines whose events are listed too",
    },
    "remove_destination": {"url": "the URL of the destination"},
    "data_before": {
        "section": "the section of the items, as in the changes of a row",
        "items": "a JSON list of names; without it, all items",
    },
    "changes_since": {
        "fake": "the name of the fake; by default all fakes",
        "section": "the section of the items, as in the changes of a row",
        "items": "a JSON list of names; without it, all items",
        "as_restored": "yes: without the keys that expire at once",
        "own": "yes: only what a restore changed and nothing has changed since",
        "unknown": "ok: no error for data that is not known; why_unknown says why",
    },
    "versions": {
        "section": "the section of the item, as in the changes of a row",
        "item": "the name of the item; without it, the whole section is one item",
        "part": "a field of its value, or the first or last element of a list; by default all",
    },
    "attempts": {"id": "return only attempts of the message with this id"},
}
_TEXTS = {
    "console": "text/html",
    "console_file": "text/*",
    "icon": "image/svg+xml",
    "journal_stream": "text/event-stream",
}
"""Content types of the endpoints that do not return JSON."""
WITHOUT_TOKEN = frozenset(
    {"live", "ready", "console", "console_file", "icon", "openapi", "session"}
)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes. Descriptions are the endpoints' docstrings."""
    paths: dict[str, dict[str, Any]] = {}
    schemas = Schemas()
    for route in routes:
        for method in route.methods.split():
            paths.setdefault(route.pattern, {})[method.lower()] = _operation(route, method, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pytest-fakecloud control API",
            "version": "1",
            "description": "Moves the clock, injects faults, returns the journal and the data of fakes.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR, **dict(sorted(schemas.named.items()))},
        },
    }


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def _operation(route: Route, method: str, schemas: Schemas) -> dict[str, Any]:
    text = inspect.getdoc(route.endpoint) or ""
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)\*?}", route.pattern)
    ] + [
        {"name": name, "in": "query", "description": about, "schema": {"type": "string"}}
        for name, about in _QUERIES.get(route.name, {}).items()
    ]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": text.partition("\n")[0],
        "description": text,
        "responses": {
            **_done(route, schemas),
            "default": {
                "description": "the request is rejected",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if method in ("POST", "PUT"):
        body = schemas.of(BODIES[route.name]) if route.name in BODIES else {"type": "object"}
        operation["requestBody"] = {"content": {"application/json": {"schema": body}}}
    if route.name not in WITHOUT_TOKEN:
        operation["security"] = [{"token": []}]
    return operation


def _done(route: Route, schemas: Schemas) -> dict[str, Any]:
    returned = RESPONSES.get(route.name, get_type_hints(route.endpoint)["return"])
    schema = {"type": "string"} if route.name in _TEXTS else schemas.of(returned)
    kind = _TEXTS.get(route.name, "application/json")
    return {"200": {"description": "done", "content": {kind: {"schema": schema}}}}
