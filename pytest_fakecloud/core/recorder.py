"""Records the calls and events of fakes, and forgets the oldest."""

from __future__ import annotations

import itertools
import threading
import weakref
from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from .arguments import arguments_shown
from .calls import (
    CALL_FIELDS,
    CREATED,
    EVENT_FIELDS,
    EVENT_KINDS,
    KEEP_BYTES,
    LIGHT,
    Action,
    Arguments,
    Call,
    Entry,
    Event,
    Listed,
    data_field,
    field_of,
    shorten,
    weight_of,
)
from .field_types import either
from .frames import ELSEWHERE, CodePlace, place_at
from .matching import Field
from .registry import Registry

if TYPE_CHECKING:
    from .clock import Reads

_names_of_data: dict[tuple[str, ...], tuple[str, ...]] = {}
"""The names of the details of events, each combination once."""
_ACTIONS = 1_000
"""Maximum number of a test's actions that are kept; beyond it the oldest are dropped."""
SCRIPT_COMMANDS = 1_000
"""Maximum number of commands that are kept of the scripts of a call: the first ones."""
_CUT_NUMBERS = 3
"""Maximum number of different numbers that are kept of those which the scripts of a call returned and
the server cut.
"""
_REMOVED = 1_000
"""Maximum number of records that a deletion may have removed for their ids to be kept."""
_LOOKS = 1_000
"""Maximum number of a test's looks at the data of fakes that are kept."""


class CallSite(NamedTuple):
    """The places of the application that made a call: the caller, then the callers of its function;
    empty if they are unknown.
    """

    places: tuple[CodePlace, ...] = ()


class CallStack(NamedTuple):
    """Places of code that may be the application's on the stack of a call, the innermost first, and the
    file of the library that the first of them called.
    """

    places: tuple[CodePlace, ...]
    library: str = ""


class ScriptCommand(NamedTuple):
    """A command that a script executed: the number of its database, its words, and the answer,
    ``{"result": …}`` or ``{"error": …}``, or None if it is too large.
    """

    database: int
    words: list[str]
    answer: dict[str, Any] | None


class Look(NamedTuple):
    """A look of the test at the data of a fake: the method that it called, from which place, with
    which arguments, and its number on the axis of the journal.
    """

    fake: str
    method: str
    place: CodePlace
    arguments: Arguments
    number: int


NoteCaller: TypeAlias = "Callable[[SharedRecords, Call], None]"
"""A function that notes in ``stacks`` or ``sites`` who makes a call, while it is recorded."""


class SharedRecords:
    """The state that the recorders of one cloud and of its fakes share."""

    note_caller: NoteCaller | None = None
    """Notes the stack that may make a call, or the exact places that do; None if no report needs it."""
    records_scripts = False
    """Whether the commands that scripts execute are recorded."""
    reads: Reads | None = None
    """Readings of the clock and numbers of calls, interleaved; None if not recorded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Protects the entries of all recorders, and the large calls."""
        self.listeners: Registry[Callable[[Entry], None]] = Registry()
        """Functions that are called with new entries and closed calls."""
        self.forget_listeners: Registry[Callable[[int], None]] = Registry()
        """Functions that are called when a trial run is undone, with the number at which it began."""
        self.numbers = itertools.count(1)
        self.recorded: deque[tuple[Any, ...]] = deque(maxlen=_ACTIONS)
        """What ``record_action()`` has recorded of each action of the test, the fake's name first."""
        self.changed: dict[str, int] = {}
        """The number of the test's latest action on each fake, or of a later ``note_change()``, by the
        name of the fake.
        """
        self.keep_bytes = KEEP_BYTES
        """Maximum bytes of all large calls; beyond it the oldest are cut."""
        self.large: OrderedDict[Call, int] = OrderedDict()
        """The calls above 4 KiB that are kept in full, oldest first, with their approximate bytes."""
        self.large_bytes = 0
        """The sum of the bytes in ``large``."""
        self.sites: dict[int, CallSite] = {}
        """The places that made each call, by the call's number."""
        self.stacks: dict[int, CallStack] = {}
        """The stack that may have made each call, by the call's number."""
        self.scripts: dict[int, list[ScriptCommand]] = {}
        """The commands that the scripts of each call executed, by the call's number."""
        self.cut_numbers: dict[int, dict[float, int]] = {}
        """The numbers that the scripts of each call returned and the server cut to integers, each with
        its integer, by the call's number.
        """
        self.removed: dict[int, list[str]] = {}
        """The ids of the records that each deletion removed, by the call's number; missing if there were
        too many.
        """
        self.from_console: dict[int, int] = {}
        """The calls that the console sent, by their numbers, each with the number of the call that it
        sent again, or 0.
        """
        self.looks: deque[Look] = deque(maxlen=_LOOKS)
        """The test's looks at the data of fakes."""
        self.failures: list[str] = []
        """Descriptions of the exceptions of ``note_caller``, for the report of a failing test."""

    @property
    def of_calls(self) -> tuple[dict[int, Any], ...]:
        """What is recorded of calls beside them, by their numbers."""
        of_scripts = self.scripts, self.cut_numbers
        return self.sites, self.stacks, *of_scripts, self.removed, self.from_console

    @property
    def actions(self) -> list[Action]:
        # Iterate over a copy, because other threads may record actions.
        return [_action(record) for record in self.recorded.copy()]

    def update_size(self, call: Call) -> list[Call]:
        """Add a large call, or update its size; remove and return the calls that must be cut."""
        size = weight_of(call)
        self.large_bytes += size - self.large.get(call, 0)
        self.large[call] = size
        excess = self.large_bytes - self.keep_bytes
        cut: list[Call] = []
        for large_call, its_size in self.large.items():
            if excess <= 0:
                break
            # The server still holds an open call in full, so cutting it would free nothing.
            if large_call.outcome != "open":
                excess -= its_size
                cut.append(large_call)
        self.forget_large(cut)
        return cut

    def forget_large(self, calls: Iterable[object]) -> None:
        """Remove the large calls among the given entries."""
        if self.large:
            for call in calls:
                if isinstance(call, Call):
                    self.large_bytes -= self.large.pop(call, 0)

    def forget_sites(self, is_gone: Callable[[int], bool]) -> None:
        """Forget the source lines, and the commands of the scripts, of the calls for whose numbers
        ``is_gone`` returns true.
        """
        # Iterate over copies, because calls in other threads add theirs without the lock.
        for of_calls in self.of_calls:
            for number in filter(is_gone, tuple(of_calls)):
                of_calls.pop(number, None)


class Filterable(Protocol):
    """An app that declares the fields of its calls and events, and handles the requests."""

    fact_fields: ClassVar[Mapping[str, Field]]
    event_kinds: ClassVar[frozenset[str]]
    event_fields: ClassVar[Mapping[str, Field]]

    def words(self) -> Iterable[str]: ...

    def catch_up(self) -> None: ...

    def is_handshake(self, call: Call) -> bool: ...

    def names_handshake(self, conditions: Mapping[str, object]) -> bool: ...


class Recorder:
    """Records the calls and events of one fake, or of a whole cloud, in order.

    A fake's recorder also adds each entry to its cloud's recorder (``parent``), which therefore has
    the entries of all fakes. Recording is thread-safe. The cloud's recorder limits the ``entries``
    that it and the fakes' recorders keep, by number (``keep``) and by size (``shared.keep_bytes``).
    """

    keep: int | None = None
    """Number of entries to keep; older ones may be forgotten. None keeps all."""
    was_read = False
    """Whether a test has read the journal or asserted on it."""

    def __init__(
        self,
        now_us: Callable[[], int],
        service: str = "",
        fake: str = "",
        parent: Recorder | None = None,
    ) -> None:
        self.now_us = now_us
        self.service = service
        self.fake = fake
        self._parent = parent
        self.entries: list[Entry] = []
        self.forgotten = Counter[str]()
        """The number of entries of each fake that the limit has dropped; only the cloud's has any."""
        self.apps: dict[str, tuple[type[Filterable], weakref.ref[Filterable]]] = {}
        self.names = {fake} if fake else set()
        """Names of all fakes whose calls this recorder records, including closed ones."""
        self.below: set[weakref.ref[Recorder]] = set()
        """References to the recorders of a cloud's fakes. A fake's recorder has none."""
        self.shared: SharedRecords = SharedRecords() if parent is None else parent.shared
        self.shared.changed[fake] = 0  # also if an earlier fake had this name
        if parent is not None:
            self.keep = parent.keep
            parent.names |= self.names
            parent.below.add(weakref.ref(self, parent.below.discard))

    @property
    def children(self) -> list[Recorder]:
        return [child for reference in self.below.copy() if (child := reference()) is not None]

    def register_app(self, service: str, app: Filterable) -> None:
        """Register the facts, routes and commands that a service's calls can be filtered by."""
        registered = self.apps[service] = type(app), weakref.ref(app)
        if self._parent is not None:
            self._parent.apps[service] = registered

    def words(self) -> Iterator[str]:
        for _, reference in self.apps.values():
            app = reference()
            if app is not None:
                yield from app.words()

    def catch_up(self) -> None:
        """Wait for requests that have arrived, because the test reads the journal, or looks at a fake or
        changes it.
        """
        for recorder in self.children or [self]:
            for _, reference in recorder.apps.values():
                app = reference()
                if app is not None:
                    app.catch_up()

    def other_handshakes(self, conditions: Mapping[str, object]) -> Callable[[Call], bool]:
        """Return a function that returns true for the calls that client libraries make by themselves, to
        set up or end a connection. If the conditions name such calls, it returns false for all.
        """
        apps = {service: app for service, (_, reference) in self.apps.items()
                if (app := reference()) is not None and not app.names_handshake(conditions)}  # fmt: skip
        return lambda call: call.service in apps and apps[call.service].is_handshake(call)

    @property
    def call_fields(self) -> Mapping[str, Field]:
        """The fields that calls can be filtered by: their own and their services' facts."""
        return {
            **_call_fields(self._app_types),
            "route": Field(Listed("name of a route", self.words)),
            "service": Field(Listed("service of a fake here", lambda: self.apps)),
            "fake": Field(Listed("name of a fake here", lambda: self.names)),
        }

    @property
    def event_fields(self) -> Mapping[str, Field]:
        """The fields that events can be filtered by: their own and the data of their services."""
        return _event_fields(self._app_types)

    def event_kinds(self) -> frozenset[str]:
        kinds = (app.event_kinds for app in self._app_types)
        return EVENT_KINDS.union(*kinds) if self.apps else frozenset()

    @property
    def _app_types(self) -> tuple[type[Filterable], ...]:
        return tuple(app for app, _ in self.apps.values())

    @property
    def is_known(self) -> bool:
        """Whether a test has read this journal or its cloud's."""
        return self.was_read or (self._parent is not None and self._parent.was_read)

    # -- recording -------------------------------------------------------------------------------

    def begin_call(self, call: Call, weight: int) -> None:
        """Record a received request as its new call, of about ``weight`` bytes."""
        self._append(call)
        shared = self.shared
        if shared.reads is not None:
            shared.reads.append((threading.get_ident(), -call.number))
        if shared.note_caller is not None:
            shared.note_caller(shared, call)
        if weight > LIGHT:
            self._update_size(call)

    def close_call(self, call: Call) -> None:
        """Record the end of a call, whose outcome is set: its time and size; call the listeners."""
        call.ended_us = self.now_us()
        large = self.shared.large
        if len(call.response_body) > LIGHT or (large and call in large):
            self._update_size(call)
        for listener in self.shared.listeners.items:
            listener(call)

    def record_script(self, call: Call, command: ScriptCommand | None = None) -> None:
        """Record that a script of a call began, or a command that it executed, for the report of a
        failing test.
        """
        commands = self.shared.scripts.setdefault(call.number, [])
        if command is not None and len(commands) < SCRIPT_COMMANDS:
            commands.append(command)

    def record_cut(self, call: Call, number: float, integer: int) -> None:
        """Record a number that a script of a call returned and the server cut to an integer, for the
        report of a failing test.
        """
        numbers = self.shared.cut_numbers.setdefault(call.number, {})
        if len(numbers) < _CUT_NUMBERS:
            numbers[number] = integer

    def record_removed(self, call: Call, record_ids: list[str]) -> None:
        """Record the ids of the records that a deletion removed, unless there are too many, for the
        report of a failing test.
        """
        if len(record_ids) <= _REMOVED:
            self.shared.removed[call.number] = record_ids

    def _update_size(self, call: Call) -> None:
        with self.shared.lock:
            over_limit = self.shared.update_size(call)
        # Shorten the calls without the lock, because that may parse a large body for its facts.
        for large_call in over_limit:
            shorten(large_call)

    def shorten(self, call: Call) -> None:
        """Cut a large call to its beginning, and drop its facts if these would be read from a large
        body, or from one that the server has not read.
        """
        with self.shared.lock:
            if call not in self.shared.large:
                return
            self.shared.forget_large((call,))
        # Many headers also make a call large.
        shorten(call, read_facts="facts" not in call.cut and len(call.request_body) <= LIGHT)

    def add_event(
        self,
        kind: str,
        text: str,
        /,
        *,
        at_us: int | None = None,
        ended_us: int | None = None,
        caused_by: Entry | None = None,
        **data: object,
    ) -> Event:
        """Add an event to the journal, with what ``caused_by`` it."""
        at_us = self.now_us() if at_us is None else at_us
        names, values = tuple(data), [*data.values()]
        names = _names_of_data.setdefault(names, names)
        while values and values[-1] is None:
            values.pop()
        event = Event(
            0, at_us, self.service, self.fake, kind, text, names, tuple(values), ended_us, caused_by
        )
        self._append(event)
        return event

    def record_action(
        self, kind: str, place: CodePlace, number: int, call: Arguments | None, *details: Any
    ) -> None:
        """Record an action of the test on the fake, with a number from ``reserve()``, for reports.
        ``call`` are the arguments of the method ``kind``, and ``details`` those of ``details_of()``
        that follow it. Without a call, the only one of ``details`` is the action's data.
        """
        self.shared.changed[self.fake] = number
        # Create the Action only for a report, because most tests need none.
        at_us = self.now_us()
        self.shared.recorded.append(
            (self.fake, self.service, number, at_us, kind, place, call, details)
        )

    def note_look(
        self, method: str, place: CodePlace, arguments: Arguments, fake: str = ""
    ) -> None:
        """Record a look of the test at a fake's data, for the report of a failing test."""
        self.shared.looks.append(self.look(method, place, arguments, fake))

    def look(self, method: str, place: CodePlace, arguments: Arguments, fake: str = "") -> Look:
        """Return a look at a fake's data that happens now."""
        # A number of its own, because a call can be executed long after the number of its entry.
        number = next(self.shared.numbers)
        return Look(fake or self.fake, method, place, arguments, number)

    def note_change(self, fake: str) -> None:
        """Note a change of a fake by the test that is no action, such as a new destination."""
        self.shared.changed[fake] = self.reserve()

    @property
    def latest(self) -> int:
        """The number of the latest entry of the journal, or of a later action or change by the test."""
        return max(self.shared.changed[self.fake], self.entries[-1].number if self.entries else 0)

    def reserve(self) -> int:
        """Reserve the next number for something that begins now but is recorded when it ends."""
        number = next(self.shared.numbers)
        if self.shared.reads is not None:
            self.shared.reads.append((threading.get_ident(), -number))
        return number

    def renumber(self, call: Call, at_us: int) -> None:
        """Make a call that waited before it reached the engine the newest entry."""
        newest = self._parent or self
        with self.shared.lock:
            if newest.entries and newest.entries[-1] is call and call.at_us == at_us:
                return
            former, shared = call.number, self.shared
            call.number, call.at_us = next(shared.numbers), at_us
            for of_calls in shared.of_calls:
                if former in of_calls:
                    of_calls[call.number] = of_calls.pop(former)
            for recorder in {self, newest}:
                entries = recorder.entries
                for index in range(len(entries) - 1, -1, -1):
                    if entries[index] is call:
                        del entries[index]
                        entries.append(call)
                        break

    def _append(self, entry: Entry) -> None:
        """Add an entry, and give it the next number."""
        parent, shared = self._parent, self.shared
        forgotten: Iterable[Call] = ()
        # Number the entry inside the lock, so that numbers increase in every list.
        with shared.lock:
            entry.number = next(shared.numbers)
            self.entries.append(entry)
            if self.keep is not None:
                forgotten = self.forget_oldest()
            if parent is not None:  # then the fake's recorder has returned no calls
                parent.entries.append(entry)
                if parent.keep is not None:
                    forgotten = parent.forget_oldest()
        for call in forgotten:
            shorten(call)
        for listener in shared.listeners.items:
            listener(entry)

    # -- forgetting ------------------------------------------------------------------------------

    def forget_oldest(self) -> Iterable[Call]:
        """Drop the oldest entries. The cloud's recorder also drops them from the fakes' journals,
        because the limit applies to all fakes together, and returns the large calls among them.

        A fake with many entries does not push out those of the others: each keeps its latest ones,
        up to an equal share of the limit and what the others do not need of theirs.
        """
        # Drop entries in batches, so that a full journal is as fast as an empty one. Create new
        # lists, because other threads may be reading the old ones.
        keep = self.keep or 0
        if len(self.entries) <= keep + keep // 4:
            return ()
        if self._parent is not None:
            self.entries = self.entries[-keep:] if keep else []
            return ()
        newest = self.entries[-1].number
        excess = _excess(Counter(entry.fake for entry in self.entries), keep)
        self.forgotten += excess
        gone: set[int] = set()
        kept: list[Entry] = []
        for entry in self.entries:
            if excess[entry.fake] > 0:
                excess[entry.fake] -= 1
                gone.add(entry.number)
            else:
                kept.append(entry)
        self.entries = kept
        large = [
            call for call in self.shared.large if call.number in gone and call.outcome != "open"
        ]
        self.shared.forget_large(large)
        # The site of a call can be noted after the call was dropped.
        numbers = {entry.number for entry in kept}
        self.shared.forget_sites(lambda number: number <= newest and number not in numbers)
        for child in self.children:
            if any(entry.number in gone for entry in child.entries[:1]):
                child.entries = [entry for entry in child.entries if entry.number not in gone]
        return large

    def clear(self) -> None:
        """Forget all entries, also in the cloud's recorder or in those of the cloud's fakes."""
        parent, shared = self._parent, self.shared
        with shared.lock:
            entries, self.entries = self.entries, []
            gone = {entry.number for entry in entries}
            (parent or self).forgotten.pop(self.fake, None)
            if parent is None:
                self.forgotten.clear()
                shared.recorded.clear()
                for child in self.children:
                    child.entries = []
            else:
                others = [record for record in shared.recorded if record[0] != self.fake]
                shared.recorded = deque(others, _ACTIONS)
                parent.entries = [entry for entry in parent.entries if entry.number not in gone]
            shared.forget_sites(gone.__contains__)
            shared.forget_large(entries)

    def adopt(self, other: Recorder) -> None:
        """Replace all entries by those of another cloud's recorder, and continue its numbers."""
        with self.shared.lock:
            self.entries = list(other.entries)
            for child in self.children:
                child.entries = [entry for entry in self.entries if entry.fake == child.fake]
            for own, adopted in zip(self.shared.of_calls, other.shared.of_calls, strict=True):
                own.update(adopted)
            last = self.entries[-1].number if self.entries else 0
            self.shared.numbers = itertools.count(last + 1)

    def forget_since(self, number: int) -> None:
        """Undo a trial run: forget the entries after a number from ``reserve()`` in all journals, and
        the actions of the test.
        """
        with self.shared.lock:
            self.shared.forget_sites(lambda site_number: site_number > number)
            for recorder in (self, *self.children):
                at = bisect_right(recorder.entries, number, key=_number_of)
                gone, recorder.entries = recorder.entries[at:], recorder.entries[:at]
                self.shared.forget_large(gone)
        recorded = self.shared.recorded
        while recorded and recorded[-1][_NUMBER] > number:
            recorded.pop()
        for listener in self.shared.forget_listeners:
            listener(number)


def _excess(counts: Mapping[str, int], keep: int) -> Counter[str]:
    """Return how many entries of each fake to drop, so that ``keep`` are left in equal shares. A fake
    with fewer leaves the rest of its share to the others.
    """
    excess = Counter[str]()
    for done, (fake, count) in enumerate(sorted(counts.items(), key=lambda item: item[1])):
        share = keep // (len(counts) - done)
        excess[fake] = max(0, count - share)
        keep -= min(count, share)
    return excess


@lru_cache(maxsize=64)  # because tests filter the calls of the same services many times
def _call_fields(apps: tuple[Any, ...]) -> Mapping[str, Field]:
    """Return the fields of all calls, and the facts of the services of these classes."""
    declared: dict[str, list[Field]] = {}
    for app in apps:
        for name, field in app.fact_fields.items():
            declared.setdefault(name, []).append(field)
    facts = {
        name: Field(
            either(field.type for field in fields),
            fields[0].read or partial(field_of, name=name),
            any(field.several for field in fields),
            optional=any(field.optional for field in fields),
            parts=next((field.parts for field in fields if field.parts is not None), None),
        )
        for name, fields in declared.items()
    }
    return {**facts, **CALL_FIELDS}


@lru_cache(maxsize=64)
def _event_fields(apps: tuple[Any, ...]) -> Mapping[str, Field]:
    fields = {**EVENT_FIELDS}
    for app in apps:
        fields.update(app.event_fields)
    return {name: data_field(name, field) for name, field in fields.items()}


def _action(recorded: tuple[Any, ...]) -> Action:
    """Return the action that ``record_action()`` has recorded."""
    fake, service, number, at_us, kind, place, call, details = recorded
    data = details[0] if call is None else details_of(call, *details)
    action = Action(number, at_us, service, fake, kind, "")
    where = None if place is ELSEWHERE else place_at(place)
    action.data, action.call = {**data, "where": where}, call
    return action


def details_of(call: Arguments, texts: list[str] | None, message: object) -> dict[str, object]:
    """Return the data of an action. ``texts`` are its arguments if some could have changed since."""
    ids = {CREATED: message} if isinstance(message, str) else {}
    return {"arguments": arguments_shown(*call) if texts is None else texts, **ids}


_number_of = attrgetter("number")
_NUMBER = 2  # the position of an action's number among what ``record_action()`` has recorded
