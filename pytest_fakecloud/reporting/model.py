"""The data of a report: rows, marks, findings and words.

The steps of a report, which ``docs/contributing/map.md`` has in their order, pass these values to each
other; other values are in the module of the step that makes them. Words are made from data when a
report is rendered. Violations, hints, errors, the descriptions of faults and looks, a queue's pending
work, and reasons among the values of findings are words already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NewType, TypeAlias, get_args

from ..core.calls import Action, Call, Event, began
from ..core.traces import TraceParent
from ..process.applications import ServedRequest
from .accesses import DataAccess, JournalNumber, ReportSubject

if TYPE_CHECKING:
    from .contract import ExchangedValues
    from .lookups import Lookups

APPLICATION = "application"
CLIENT = "client"
CONSOLE = "console"
TEST = "test"
MaskedCall = NewType("MaskedCall", Call)
MaskedEvent = NewType("MaskedEvent", Event)
MaskedAction = NewType("MaskedAction", Action)
MaskedRequest = NewType("MaskedRequest", ServedRequest)
"""With credentials masked by a `Mask`, as the types before it."""
VERSION = 4
"""The version of the JSON form. It increases when a field is removed, renamed or redefined."""

Kind: TypeAlias = Literal["call", "delivery", "request", "event", "action"]
"""The kind of a row.

``call``: a request to a fake. ``delivery``: one by a fake, of which a message can have several; the
``attempt`` of the row is its number. ``request``: a request to the application. ``event``: an event
inside a fake, or an entry that cannot be shown. ``action``: an action of the test on a fake.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """How rows of a kind are drawn, nested and folded. What a row shows, its `RowSource` says."""

    bar: str
    """Its bar in a waterfall, a name in ``SPAN_KINDS`` of ``spans.js``; callbacks have another one."""
    surrounds: bool = False
    """Its receiver makes the calls in it."""
    folds_from: int = 3
    """Minimum number of equal ones in succession that become one row."""


KINDS: Mapping[Kind, KindRules] = {
    "call": KindRules(bar="call"),
    # Those of one message are a row, whatever their number.
    "delivery": KindRules(bar="delivery", surrounds=True, folds_from=1),
    "request": KindRules(bar="request", surrounds=True),
    "event": KindRules(bar="event"),
    "action": KindRules(bar="event"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code; ``callers`` are the places that called its function, the nearest first."""

    file: str
    line: int
    function: str
    callers: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedFault:
    """An injected fault that was applied; ``call`` faults have a ``function`` and a ``moment``."""

    kind: str
    description: str
    function: str = ""
    moment: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery, read from an event of the kind ``attempt`` with these details, all optional:
    ``message_id``, ``about``, ``run``, ``url``, ``status`` and ``faults``; ``message_kind`` (`kind`),
    ``number`` (`attempt`), ``began``, and ``alone``, if nothing else was delivered at the time. Its
    ``trace`` and messages come from ``exchanges()``, or else from ``method``, ``sent``,
    ``sent_headers`` and ``answer``. What is unknown is empty, 0 or None.
    """

    event: MaskedEvent
    kind: str
    """``message``, or the kind of a callback."""
    message_id: str
    about: str
    """The message that a callback is about."""
    run: str
    """The workflow run that the message belongs to."""
    url: str
    status: int | None
    attempt: int | None
    """How many deliveries of the message there were, with this one."""
    began: JournalNumber
    ended: JournalNumber
    """The number by which all its consequences had ended; 0 if others could be among them."""
    faults: tuple[AppliedFault, ...]

    @classmethod
    def of(cls, event: MaskedEvent) -> Delivery:
        data = event.data
        message_id, about, run, url = (
            str(data.get(name) or "") for name in ("message_id", "about", "run", "url")
        )
        return cls(
            event, str(data.get("message_kind", "message")), message_id, about, run, url,
            data.get("status"), data.get("number"), began(event),
            event.number if data.get("alone") is True else 0,
            tuple(AppliedFault(str(kind), str(kind)) for kind in data.get("faults") or ()),
        )  # fmt: skip


Messages: TypeAlias = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""The request and the response of a row, as JSON."""
Accesses: TypeAlias = Sequence[DataAccess]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """What a row was made from, and what it shows. Each kind of row has a class of its own in `sources`,
    with the member that it is made from; a delivery that a fake of the cloud received has ``delivery``
    and ``call``. A row whose entry cannot be shown has none.
    """

    call: MaskedCall | None = None
    delivery: Delivery | None = None
    request: MaskedRequest | None = None
    event: MaskedEvent | None = None
    action: MaskedAction | None = None

    def words(self, row: ReportRow, last: ReportRow, lookups: Lookups) -> Summary:
        """Return the description of a row; ``last`` is the last of equal ones."""
        return Summary(row.operation)

    def messages(self, row: ReportRow, lookups: Lookups) -> Messages:
        """Return the JSON of the request and the response."""
        return None, None

    def data(self) -> Mapping[str, Any]:
        """Return further facts, which the detail pane of a page shows."""
        return {}

    def values(
        self, row: ReportRow, accesses: Accesses, lookups: Lookups
    ) -> Iterable[ExchangedValues]:
        """Yield what it sent and got back, given what the row accessed."""
        return ()


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A call, delivery, request, event or action. `nested()` sets ``parent``, ``depth`` and
    ``first_cause``, adds accesses of events to those of their first cause, and replaces the ``actor``.
    """

    number: JournalNumber
    """Identifies the row, which is ordered by ``began`` (see `JournalNumber`)."""
    at_us: int
    kind: Kind
    actor: str
    """The sender."""
    peer: str
    """The receiver; for an event the fake, which is also its ``actor`` unless the console caused it."""
    operation: str
    """The command or route of a call, also of one that is a delivery; method and path of a request; the
    kind of an event or action; of a delivery to no fake, ``attempt``.
    """
    service: str = ""
    source: RowSource = RowSource()
    address: str = ""
    """The URL of the application to which a delivery was sent, or that a call is about."""
    trace: TraceParent | None = None
    """The trace of its request, and the span that sent it; None without a valid ``traceparent``."""
    accesses: tuple[DataAccess, ...] = ()
    """What its entry read, wrote and named, and what the events did that it caused. A delivery to a fake
    has those of both services.
    """

    # The answer to a call, a delivery or a request. In stories of explorations, events have faults, too.
    status: int | None = None
    outcome: str = ""
    """How a call ended, as in `Call`; ``answered`` also of a request that has a response."""
    ok: bool = True
    """Whether the answer is complete and no error."""
    expects_error: bool = False
    """Whether its client expects this error, as that for a script which it sends only then."""
    faults: tuple[AppliedFault, ...] = ()
    took_us: int | None = None
    """The duration on the cloud's clock; None until it has ended."""

    # The position in the timeline, and the row in which this one is nested.
    began: JournalNumber = 0
    """Its consequences have higher numbers."""
    ended: JournalNumber = 0
    """Its consequences have lower numbers; 0 if unknown, or if only its events can be nested in it."""
    parent: JournalNumber = 0
    """The row in which it is nested: the request or delivery during which it happened, the call during
    which its fault's function, a part of the test, made this one, or its ``first_cause``. 0 without one.
    """
    depth: int = 0
    """How deep it is nested."""
    first_cause: JournalNumber = 0
    """Of an event, the row of the call or event that began the chain of causes; 0 without one."""

    # What tells it from similar rows.
    attempt: int = 0
    """How many deliveries of its message there were, with this one; 0 if unknown, or no delivery."""
    where: Place | None = None
    """The line that made a call or an action, if it is known."""
    library: str = ""
    """The package that made a call of its own, such as a task queue."""
    same: object = None
    """What `folded()` compares beside the other fields in ``_SAME``."""

    @property
    def subjects(self) -> tuple[ReportSubject, ...]:
        """What the row is about: that of its accesses, each once."""
        subjects = dict.fromkeys(access.subject for access in self.accesses)
        return tuple(
            subject for subject in subjects
            if not subject.is_all and (subject.name or not subject.kind.has_id)
        )  # fmt: skip

    @property
    def rules(self) -> KindRules:
        return KINDS[self.kind]

    @property
    def bar(self) -> str:
        """The kind of its bar in a waterfall."""
        delivery = self.source.delivery
        is_callback = delivery is not None and delivery.kind.endswith("callback")
        return "callback" if is_callback else self.rules.bar


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact with its rows and values: a finding, pending work, or a violation.

    ``kind`` determines its sentence, ``row_numbers`` are those of the rows it is about, the decisive one
    first, ``values`` are the JSON values in its sentence.
    """

    kind: str
    fake: str = ""
    row_numbers: tuple[JournalNumber, ...] = ()
    subjects: tuple[ReportSubject, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    no_answer_shows_it: bool = False
    """So nobody looks for it. It comes before others, but after those that a touched row decided."""
    failed: bool = False
    """Whether unfinished work has failed; otherwise, it still waits."""


class Comparison(NamedTuple):
    """The first difference from another run of the same test, None without one, and that run."""

    finding: Finding | None
    beside: Mapping[str, Any]
    """The ``title`` of the other run, and its ``report`` as JSON."""


ReplacedValue: TypeAlias = tuple[DataAccess, object]  # a write, and the value before


class OrderedAccess(NamedTuple):
    """An access to data, with its row: one of several in the order in which they happened."""

    row: ReportRow
    access: DataAccess

    @property
    def order(self) -> JournalNumber:
        return self.access.order


Mark: TypeAlias = Literal["touched", "linked", "refused"]
"""What a row has to do with a failure.

``touched``: it accessed what the failing statement read. ``linked``: it is connected with such a row, by
an id, such as that of a message, by the request, delivery or line of the test that made both, or by data
that both accessed (`SubjectKind`). ``refused``: it failed, a fault was applied to it, or each of its
commands was answered with an error, or should have changed something and did not. That nothing was found
is a plain answer, as is an error that its client expects.
"""


@dataclass(frozen=True, slots=True)
class Marks:
    """The numbers of the rows with each mark."""

    touched: frozenset[int] = frozenset()
    linked: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    partly_refused: frozenset[int] = frozenset()
    """The rows of which some commands were refused, and not all."""
    writers: frozenset[int] = frozenset()
    """The rows whose writes led to the values which the failing statement read."""
    last_writer: JournalNumber = 0
    """The row that last wrote all that was read; 0 if none or several did, any of which may be wrong."""
    refused_write: JournalNumber = 0
    """The last write of what it read that did nothing, if no effective one followed; 0 without one."""

    def of(self, number: int) -> tuple[Mark, ...]:
        return tuple(mark for mark in get_args(Mark) if number in getattr(self, mark))


# -- words -----------------------------------------------------------------------------------------

Values: TypeAlias = Mapping[str, Any]
"""The values of a finding, and the name of its ``fake``."""
Sentences: TypeAlias = Mapping[str, str | Callable[[Values], str]]
"""The sentence of each kind of finding: a template with the names of its values, whose strings are
shortened, or a function.
"""


class ScriptSource(NamedTuple):
    """A Lua script; ``sha`` is the beginning of the hash of its source."""

    sha: str
    source: str


class Repeated(NamedTuple):
    """A ``text`` in a description. A report as text has ``short`` in its place if the rows above, each a
    line ``WHAT ANSWER``, contain all of ``shown_by``.
    """

    text: str
    short: str
    shown_by: Sequence[str]


@dataclass(frozen=True, slots=True)
class Summary:
    """The description of a row. ``what`` describes the request or event."""

    what: str
    answer: str = ""
    """A response without error: a call shows its error instead, and its body if this is empty."""
    below: Sequence[str] = ()
    """Lines of explanation."""
    script: ScriptSource | None = None
    remarks: Sequence[str] = ()
    """Short explanations, which may share a line."""
    note: str = ""
    """Its last line. Services set it for deliveries only; calls and events have that of their entry."""
    repeated: Sequence[Repeated] = ()
    """Parts of ``what`` and ``answer`` that a text shortens where rows above have shown them."""
    refused: Sequence[str] = ()
    """The lines of ``below`` and ``remarks`` with commands that failed or did nothing."""

    def lines(self, *, with_marks: bool) -> list[str]:
        """Return the lines below the row, those of refused commands with their mark."""
        return [f"! {line}" if with_marks and line in self.refused else line
                for line in (*self.below, *self.remarks)]  # fmt: skip

    def with_short(self, parts: Iterable[Repeated]) -> Summary:
        what, answer = self.what, self.answer
        for text, short, _ in parts:
            what, answer = what.replace(text, short), answer.replace(text, short)
        return replace(self, what=what, answer=answer)
