"""Replay a journal on new fakes, and record what each entry changed.

Engines are deterministic, so the same requests, deliveries and actions at the same fake times
produce the same data. A fake is left out if its replayed data differs from its real data at the
end, for example because a call waited for another one or a callback ran between two commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from ..cloud.actions import action_method
from ..cloud.base import BaseCloud, context_of
from ..cloud.fake import Context, Fake, Snapshot, core_of
from ..cloud.services import data_module, imported, named
from ..core.calls import Action, Call, Entry, Event, began, executed_at
from ..core.clock import Timekeeper
from ..core.errors import report_hook_failure
from ..core.ids import Ids
from ..core.timers import Instant
from ..http.messages import Request
from ..inspect.data import Item, State, changes_of, short, short_item, state_of

MOST_ITEMS = 1_000
"""Maximum number of items in a fake; the data of larger fakes is not replayed."""
MOST_LOOKS = 300_000
"""Maximum number of items that are compared for one report, to limit the time to seconds."""
_WITHOUT_DATA = ("rotate_token", "rotate_keys", "rotate_password")
"""Actions that change only credentials. A replay has its own credentials."""
UNFINISHED = ("streamed", "open", "broken off")


_OF_SERVICES = ("broker", "kv", "queue", "vector")
"""The services, by their ``word``, for which this folder has a module."""


def _part(name: str) -> Any:
    """Import the module for a service, given by fixture or ``word``; None if it has none. ``REPLAYED``
    there is the class of replayed fakes; ``frames()`` returns the states after each event, if the
    events of the service change data.
    """
    service = named(name)
    if service is None or service.word not in _OF_SERVICES:
        return None
    return imported(f"{__package__}.{service.word}")


class Inexact(Exception):
    """Raised for an entry that cannot be replayed as it happened."""


class ReportedRows(NamedTuple):
    """The rows in which a report shows entries of the journal, by the numbers of these.

    ``received``: a delivery to a fake of the cloud is shown in the row of the received call.
    ``first_causes``: an event is shown after the row of its first cause.
    """

    received: Mapping[int, int]
    first_causes: Mapping[int, int]


def states(cloud: BaseCloud, reported: ReportedRows) -> dict[str, Any]:
    """Return the data of the fakes before the report's first row, and what each row changed.

    ``initial`` maps each fake to its sections, ``steps`` are the changes in order, each with the
    ``number`` of its row, and ``note`` says which fakes are missing and why. Changes that happened at
    another number than that of their row have this as ``order``, such as those at the start of a
    delivery, or of a call that a fault delayed. Credentials are not masked.
    """
    failures: list[str] = []
    with_data = [fake for fake in cloud.fakes() if data_module(fake.fixture) is not None]
    reasons = {fake.name: reason for fake in with_data if (reason := obstacle(fake))}
    followed = [fake for fake in with_data if fake.name not in reasons]
    replay: dict[str, Any] = {"steps": []}
    if followed:
        with report_hook_failure("the states could not be replayed", failures.append):
            replay = _replayed(cloud, reported, followed, reasons)
    notes = [f"The data of {name} is not shown: {reason}." for name, reason in reasons.items()]
    return {**replay, "note": "\n".join([*notes, *failures])}


def obstacle(fake: Fake) -> str:
    """Return why a fake cannot be replayed; empty if a replay can be tried."""
    if core_of(fake).settings.get("engine") is not None:
        return "it uses a real server, whose data cannot be replayed"
    # A request without valid credentials changes no data, and its body is not read.
    calls = (call for call in fake.journal.calls() if call.status != 401)
    is_cut = any({"request_body", "target"} & {*call.cut} for call in calls)
    return "the journal has cut its requests" if is_cut else ""


class Time(Timekeeper):
    """A frozen clock that returns the recorded times of one entry, one after the other.

    ``recorded`` are the times that the thread of each call and action read, by journal number. The
    thread reads some after the entry has ended, so a replay may leave times unread.
    """

    def __init__(self, cloud: BaseCloud, start: Instant) -> None:
        self._next = deque[int]()
        super().__init__(start, "frozen")
        self.recorded: dict[int, list[int]] = {}
        current: dict[int, list[int]] = {}
        for thread, value in tuple(context_of(cloud).recorder.shared.reads or ()):
            if value < 0:  # the negative number of the entry whose readings follow in this thread
                current[thread] = self.recorded[-value] = []
            elif thread in current:
                current[thread].append(value)

    def expect(self, *times: int, number: int = 0) -> None:
        """Return these times at the next readings, and then those of an entry."""
        self._next = deque([*times, *self.recorded.get(number, ())])

    def now_us(self) -> int:
        if self._next:
            at_us = self._next.popleft()
            self._frozen_us = max(self._frozen_us or 0, at_us)
            # Not the later time that another thread read before it: what follows is due by this one.
            return at_us
        return super().now_us()


class ReplayedFake:
    """A new fake with the settings of a real one, on which the entries of the real one are replayed."""

    def __init__(self, real: Fake, context: Context, time: Time) -> None:
        settings = {**core_of(real).settings, "name": real.name}
        for name in ("host", "port", "token", "database_port", "node_ports", "sentinel_port"):
            settings.pop(name, None)
        if "delivery" in settings:
            settings["delivery"] = "driven"
        self.real, self.time = real, time
        self.fake: Any = type(real)(context, **settings)

    def replay_call(self, call: Call) -> None:
        """Send the request of a call again, and compare its response."""
        is_rejected = not call.reached and (call.fault is not None or call.status == 401)
        if call.outcome in UNFINISHED or is_rejected:
            return
        path, _, query = call.target.partition("?")
        # The replay sends its own token, in a header.
        parameters = "&".join(part for part in query.split("&") if not part.startswith("_token="))
        target = f"{path}?{parameters}" if parameters else path
        headers = self._headers_of(call)
        request = Request(call.method, target, headers, call.request_body, call.client)
        # The server reads the clock once before it records the call.
        self.time.expect(call.at_us, number=call.number)
        answer = core_of(self.fake).app.respond(request, in_client=True)
        if call.fault is not None or not self._repeats_answer():
            return
        same = getattr(answer, "status", None) == call.status
        if same and "response_body" not in call.cut:
            same = getattr(answer, "body", None) == call.response_body
        if not same:
            raise Inexact(f"call {call.number} received a different answer in the replay")

    def _repeats_answer(self) -> bool:
        """Return whether data alone has decided the answer to the last call, and not, for example, the
        connections of clients.
        """
        return True

    def _headers_of(self, call: Call) -> list[tuple[str, str]]:
        """Return the headers of a call, with the token of this fake in place of the real one's."""
        own = self.fake.headers
        read_only = getattr(self.real, "read_only_token", None)
        if read_only and call.request_headers.get("Authorization") == f"Bearer {read_only}":
            own = {"Authorization": f"Bearer {self.fake.read_only_token}"}
        replaced = {name.lower() for name in own}
        pairs = call.request_headers.pairs
        return [*(pair for pair in pairs if pair[0].lower() not in replaced), *own.items()]

    def replay_action(self, action: Action) -> None:
        if action.kind not in _WITHOUT_DATA and action.call is not None:
            arguments, named = action.call
            self.time.expect(number=action.number)
            action_method(self.fake, action.kind, arguments)(*arguments, **named)

    def end_waits(self) -> None:
        """End the calls that wait for data or a time that has come; only some fakes have any."""

    fault_actions: frozenset[str] = frozenset()
    """The kinds of actions on faults that change the fake."""

    settled_us = 0
    """The time at which the latest attempt has its outcome; only some fakes have attempts."""
    delivers = False
    """Whether the fake makes delivery attempts, which begin and finish at different times."""

    @staticmethod
    def is_delivering(real: Fake) -> bool:
        """Return whether a delivery attempt of the real fake is under way."""
        return False

    def begin_attempt(self, event: Event) -> None:
        """Begin a delivery attempt."""

    def finish_attempt(self, event: Event) -> None:
        """Finish a delivery attempt with the outcome of the real one."""


def replayed_class(fake: Fake) -> type[ReplayedFake]:
    """Return the class that replays a fake."""
    part = _part(fake.fixture)
    replayed: type[ReplayedFake] = ReplayedFake if part is None else part.REPLAYED
    return replayed


class Work(NamedTuple):
    """A part of an entry to replay, and its position in the journal."""

    order: int
    at_us: int
    entry: Entry
    perform: Callable[[], object] | None = None
    """None for an event that only the clock causes."""


class Player:
    """Replays entries on copies of fakes, and drops each copy that it cannot replay."""

    def __init__(
        self, cloud: BaseCloud, start: Instant, reasons: dict[str, str], ids: Ids | None = None
    ) -> None:
        self.time = Time(cloud, start)
        self.copies: dict[str, ReplayedFake] = {}
        self._context = Context(self.time, ids or Ids(cloud.seed), "driven")
        # Do not let a replayed call wait: the call that it waited for may come later in the replay.
        self._context.timekeeper.wait_cap = 0.0
        self._reasons = reasons
        self.most_items = MOST_ITEMS
        self._looks = 0

    def open(self, fake: Fake, stack: ExitStack, snapshot: Snapshot | None = None) -> None:
        """Open a copy of a fake with the data of a snapshot, by default that of its baseline."""
        copy = replayed_class(fake)(fake, self._context, self.time)
        stack.callback(copy.fake.close)
        copy.fake.restore(snapshot or core_of(fake).baseline.snapshot)
        copy.fake.set_baseline()
        self.copies[fake.name] = copy

    def parts(self, entry: Entry, events: Mapping[int, Sequence[Event]]) -> Iterator[Work]:
        """Yield the parts of an entry, or only its time if it is one of the events."""
        work, copy = Work(entry.number, entry.at_us, entry), self.copies.get(entry.fake)
        if copy is None:
            return
        if isinstance(entry, Action) and (read := self.time.recorded.get(entry.number)):
            # Use the time of the first reading, because an action is recorded when it ends.
            work = work._replace(at_us=min(entry.at_us, read[0]))
        if isinstance(entry, Call):
            order = executed_at(entry)
            yield work._replace(order=order, perform=partial(copy.replay_call, entry))
        elif copy.delivers and isinstance(entry, Event) and entry.kind == "attempt":
            yield work._replace(order=began(entry), perform=partial(copy.begin_attempt, entry))
            yield work._replace(perform=partial(copy.finish_attempt, entry))
        elif isinstance(entry, Action) and (entry.call or entry.kind in copy.fault_actions):
            yield work._replace(perform=partial(copy.replay_action, entry))
        elif entry.number in events:
            yield work

    def works(self, entries: Iterable[Entry], events: Mapping[int, Sequence[Event]]) -> list[Work]:
        """Return the parts of entries in the order in which they happened."""
        works = [work for entry in entries for work in self.parts(entry, events)]
        return sorted(works, key=lambda work: work.order)

    def perform(self, work: Work) -> bool:
        """Do the work of an entry at its time; return whether there was any."""
        self.move_to(work.at_us)
        if work.perform is None or work.entry.fake not in self.copies:
            return False
        self.attempt(work.entry.fake, work.perform)
        for name, copy in list(self.copies.items()):
            self.attempt(name, copy.end_waits)
        return True

    def attempt(self, name: str, work: Callable[[], object]) -> None:
        """Do some work for a fake, which is left out of the replay if the work fails."""
        try:
            work()
        except Inexact as error:
            self._drop(name, str(error))
        except Exception as error:
            self._drop(name, f"replaying the journal raised {type(error).__name__}")
        finally:
            self.time.expect()

    def move_to(self, at_us: int) -> None:
        self.time.fire(lambda: max(at_us, self.time.now_us()), lanes=("state",))

    def states_of(self, names: Iterable[str]) -> dict[str, State]:
        """Return the data of the copies with these names; drop copies that are too large."""
        states_by_fake = {}
        for name in [name for name in names if name in self.copies]:
            states_by_fake[name] = state = state_of(self.copies[name].fake)
            items = sum(map(len, state.values()))
            self._looks += items
            if items > self.most_items or self._looks > MOST_LOOKS:
                self._drop(name, "it has too many items")
        return states_by_fake

    def drop_different(self) -> None:
        """Drop the copies whose data differs from the data of the real fakes."""
        for name, state in self.states_of(self.copies).items():
            if name in self.copies and state != state_of(self.copies[name].real):
                self._drop(name, "replaying the journal did not reproduce its data")

    def _drop(self, name: str, reason: str) -> None:
        self.copies.pop(name, None)
        self._reasons.setdefault(name, reason)


class _StepRecorder:
    """Records the changes of the fakes' data since the previous step, for the rows of a report."""

    def __init__(self, player: Player, reported: ReportedRows, entries: Sequence[Entry]) -> None:
        self._rows = reported.received
        self.events = _events(entries, reported.first_causes)
        self._states_of = player.states_of
        self.initial = player.states_of(player.copies)
        self._shown = dict(self.initial)
        self.steps: list[dict[str, Any]] = []

    def record_clock(self, order: int) -> None:
        """Record what the clock changed before an entry, for rows of broker events or for no row."""
        events = self.events.get(order, [])
        if events and events[0].number == order:
            self._record(order, order, [events[0].fake], events)
        between = order - 0.5  # a position between two entries, which is the number of no row
        self._record(between, between, self._shown, [])

    def record_work(self, work: Work) -> None:
        row = self._rows.get(work.entry.number, work.entry.number)
        self._record(row, work.order, [work.entry.fake], self.events.get(row, []))

    def _record(self, row: float, order: float, fakes: Iterable[str], events: list[Event]) -> None:
        for event, shown in _frames(self._shown, self._states_of(fakes), events):
            changes: list[tuple[str, str, str, Item | None]] = []
            for name, state in shown.items():
                changes += [
                    (name, section, item, None if fields is None else short_item(fields))
                    for _, section, item, _, fields in changes_of(name, self._shown[name], state)
                ]
                self._shown[name] = state
            step = {"number": row if event is None else event.number, "changes": changes}
            if event is None and order != row:
                step["order"] = order
            self.steps.append(step)


def _replayed(
    cloud: BaseCloud, reported: ReportedRows, followed: Sequence[Fake], reasons: dict[str, str]
) -> dict[str, Any]:
    """Replay a cloud's journal; return the initial data of its fakes and the steps that change it."""
    entries = _entries(cloud, {fake.name for fake in followed})
    player = Player(cloud, entries[0].at if entries else cloud.clock.now(), reasons)
    with ExitStack() as stack:
        for fake in followed:
            player.attempt(fake.name, partial(player.open, fake, stack))
        recorder = _StepRecorder(player, reported, entries)
        for work in player.works(entries, recorder.events):
            player.move_to(work.at_us)
            recorder.record_clock(work.order)
            if player.perform(work):
                recorder.record_work(work)
        player.move_to(cloud.clock.now_us())
        recorder.record_clock(entries[-1].number + 1 if entries else 1)
        player.drop_different()
    for step in recorder.steps:
        step["changes"] = [change for change in step["changes"] if change[0] in player.copies]
    replay: dict[str, Any] = {"steps": [step for step in recorder.steps if step["changes"]]}
    if player.copies:
        replay["initial"] = {name: short(recorder.initial[name]) for name in player.copies}
    return replay


def _entries(cloud: BaseCloud, fakes: Collection[str]) -> list[Entry]:
    """Return the entries and actions of fakes, in order."""
    every = (*cloud.journal.entries, *context_of(cloud).recorder.shared.actions)
    entries = (entry for entry in every if entry.fake in fakes)
    return sorted(entries, key=lambda entry: entry.number)


def _events(entries: Sequence[Entry], first_causes: Mapping[int, int]) -> dict[int, list[Event]]:
    """Return the events that change data, by the number of their call or of the first at their time."""
    events_after: dict[int, list[Event]] = {}
    alone: list[Event] = []
    for entry in entries:
        if not isinstance(entry, Event) or isinstance(entry, Action):
            continue
        if not hasattr(_part(entry.service), "frames"):
            continue
        if entry.number in first_causes:
            events_after.setdefault(first_causes[entry.number], []).append(entry)
            continue
        if not alone or (alone[0].fake, alone[0].at_us) != (entry.fake, entry.at_us):
            alone = events_after[entry.number] = []
        alone.append(entry)
    return events_after


def _frames(
    before: Mapping[str, State], now: dict[str, State], events: Sequence[Event]
) -> Iterator[tuple[Event | None, dict[str, State]]]:
    """Yield the states after a call, with None, and after each event that it caused.

    If the events do not explain the change, it belongs to the call alone.
    """
    name = events[0].fake if events else ""
    if name in now and before[name] != now[name]:
        part = _part(events[0].service)
        states: list[tuple[Event | None, State]] = part.frames(before[name], now[name], events)
        if states[-1][1] == now[name]:
            for cause, state in states:
                yield cause, {name: state}
    yield None, now
