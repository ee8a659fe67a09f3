"""Replay a journal on new fakes, and record what each entry changed.

Engines are deterministic, so the same requests, deliveries and actions at the same fake times
produce the same data. A fake is left out if its replayed data differs from its real data at the
end, for example because a call waited for another one or a callback ran between two commands.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.calls import Action, Call, Entry, Event, faults_ended
from ..core.errors import report_failure
from ..core.ids import Ids
from ..core.journal import Journal, recorder_of
from ..core.recorder import Recorder
from ..core.timekeeper import Timekeeper
from ..core.timeparse import Instant
from ..handle import Context, Handle
from ..http.messages import Request
from .model import Report
from .views import VIEWS, Change, State, changes_of, frames, shortened, state_of

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud

MOST_ITEMS = 1_000
"""Maximum number of items in a fake; the data of larger fakes is not replayed."""
MOST_LOOKS = 300_000
"""Maximum number of items that are compared for one report, to limit the time to seconds."""
_WITHOUT_DATA = ("rotate_token", "rotate_keys", "reset_password")
"""Actions that change only credentials. A replay has its own credentials."""
_ABOUT_CONNECTIONS = (
    b"AUTH", b"CLIENT", b"COMMAND", b"HELLO", b"INFO", b"MONITOR", b"PSUBSCRIBE", b"PUBLISH",
    b"PUNSUBSCRIBE", b"QUIT", b"SLOWLOG", b"SPUBLISH", b"SSUBSCRIBE", b"SUBSCRIBE", b"SUNSUBSCRIBE",
    b"UNSUBSCRIBE",
)  # fmt: skip
"""Commands whose replies depend on connections or the process instead of data."""
_MOST_READS = 500_000


def record_times(cloud: AnyCloud) -> None:
    """Record when each call and action reads the cloud's clock, for a later replay.

    Without these times, a test with a running clock can be replayed only if no result depends on
    fractions of a millisecond.
    """
    reads = deque[tuple[int, int]](maxlen=_MOST_READS)
    cloud.clock._reads = recorder_of(cloud.journal).shared.reads = reads


class Inexact(Exception):
    """Raised for an entry that cannot be replayed as it happened."""


def states(cloud: AnyCloud, report: Report) -> dict[str, Any]:
    """Return the data of the fakes before the report's first row, and what each row changed.

    ``initial`` maps each fake to its sections, ``steps`` are the changes in order, each with the
    ``number`` of its row, and ``note`` says which fakes are missing and why. A row has the number
    of its end, but some changes happen earlier, such as those at the start of a delivery; these
    have their own journal number as ``order``. Credentials are not masked.
    """
    failures: list[str] = []
    with_data = [handle for handle in cloud.handles if handle.fixture in VIEWS]
    reasons = {one.name: reason for one in with_data if (reason := _obstacle(one))}
    followed = [handle for handle in with_data if handle.name not in reasons]
    found: dict[str, Any] = {"initial": {}, "steps": []}
    if followed:
        with report_failure("the states could not be replayed", failures.append):
            found = _Replay(cloud, report, followed, reasons).run()
    notes = [f"The data of {name} is not shown: {reason}." for name, reason in reasons.items()]
    found["note"] = "\n".join([*notes, *failures])
    if not found["initial"]:
        del found["initial"]
    return found


def _obstacle(handle: Handle) -> str:
    """Return why a fake cannot be replayed; empty if a replay can be tried."""
    settings = handle._given_settings
    if settings is None:
        return "it runs in another process"
    if settings.get("engine") is not None:
        return "it uses a real server, whose data cannot be replayed"
    if any("body" in call.cut or "target" in call.cut for call in handle.journal.calls()):
        return "the journal has cut its requests"
    return ""


class _Time(Timekeeper):
    """A frozen clock that returns the recorded times of one call, one after the other."""

    def __init__(self, start: Instant) -> None:
        self.recorded = deque[int]()
        super().__init__(start, "frozen")

    def now_us(self) -> int:
        if self.recorded:
            at_us = self.recorded.popleft()
            self._frozen_us = max(self._frozen_us or 0, at_us)
        return super().now_us()


def _times(cloud: AnyCloud) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    current: dict[int, list[int]] = {}
    for thread, value in tuple(recorder_of(cloud.journal).shared.reads or ()):
        if value < 0:
            current[thread] = found[-value] = []
        elif thread in current:
            current[thread].append(value)
    return found


class _Work(NamedTuple):
    """A part of an entry to replay.

    ``order`` is its position in the journal, ``number`` the number of its row, ``name`` its fake.
    ``perform`` is None for events that only the clock causes.
    """

    order: int
    at_us: int
    number: int
    name: str
    perform: Callable[[], object] | None


@dataclass(slots=True, eq=False)
class _Connections:
    """The connections to the database ports of replayed servers, and their blocked commands."""

    fresh: dict[str, Handle]
    time: _Time
    times: dict[int, list[int]]
    sessions: dict[Any, Any] = field(default_factory=dict, init=False)
    waiting: list[tuple[Call, Any]] = field(default_factory=list, init=False)

    def execute(self, call: Call) -> None:
        """Run a command of the database port in its connection's session."""
        from ..kv.acl.users import tester
        from ..kv.errors import CommandError
        from ..kv.reply import Blocked

        fresh: Any = self.fresh[call.handle]
        if call.fault is not None and not call.reached:
            return
        key = call.handle, call.client
        session = self.sessions.get(key)
        if session is None:
            # Only sessions of the port may block.
            session = fresh._engine.session(tester(fresh.dialect), transport="port")
            self.sessions[key] = session
        words = [word.encode("utf-8", "surrogatepass") for word in json.loads(call.body)]
        name = words[0].upper()
        if name == b"HELLO":
            words = words[:2]
        self.time.recorded = deque(self.times.get(call.number, ()))
        self.time.settle()  # the database port does this between recording and running a command
        try:
            reply = fresh._engine.execute(session, words)
        except CommandError as error:
            reply = error
        if isinstance(reply, Blocked):
            self.waiting.append((call, fresh._engine.block(session, reply)))
        elif name not in _ABOUT_CONNECTIONS:
            self._compare(call, reply, session)

    def end_waits(self, name: str) -> None:
        """End the waits of a fake's commands that received an element or reached their deadline."""
        for call, waiter in [one for one in self.waiting if one[0].handle == name]:
            if waiter.done or waiter.deadline_us <= self.time.now_us():
                self.waiting.remove((call, waiter))
                if name in self.fresh:
                    reply = self.fresh[name]._engine.unblock(waiter)
                    self._compare(call, reply, waiter.session)

    def _compare(self, call: Call, reply: Any, session: Any) -> None:
        from ..kv.resp.outbox import written

        if call.fault is not None or "answer" in call.cut:
            return
        app: Any = self.fresh[call.handle]._app
        if written(app.with_int_text(reply), session.resp) != call.answer:
            raise Inexact(f"command {call.number} received a different answer in the replay")


@dataclass(slots=True, eq=False)
class _Deliveries:
    """The delivery attempts of replayed queues, which end with the outcomes of the real ones."""

    fresh: dict[str, Handle]
    real: dict[str, Handle]
    time: _Time
    begun: dict[int, Any] = field(default_factory=dict, init=False)

    def begin(self, event: Event) -> None:
        engine = self.fresh[event.handle]._engine
        self.time.recorded = deque([event.at_us])
        for message in list(engine.messages.values()):
            if _belongs_to(event, message) and message.id in engine.pending:
                found = engine.runner.begin(message.id)
                if found is not None:
                    self.begun[event.number] = found
                    return
        raise Inexact(f"attempt {event.number} did not start in the replay")

    def finish(self, event: Event) -> None:
        from ..queue.model import Outcome

        begun = self.begun.pop(event.number)
        messages = list(self.real[event.handle]._engine.messages.values())
        of_event = (message.attempts for message in messages if _belongs_to(event, message))
        number = event.data.get("number")
        attempt = next((one for one in chain.from_iterable(of_event) if one.number == number), None)
        if attempt is None:
            raise Inexact(f"the queue no longer has the details of attempt {event.number}")
        ended = attempt.ended_us or attempt.at_us
        begun.attempt.faults = attempt.faults
        self.time.recorded = deque([ended])
        outcome = Outcome(
            attempt.status, list(attempt.headers.pairs), attempt.body, attempt.exception,
            virtual_us=ended - attempt.at_us, where=attempt.where,
        )  # fmt: skip
        self.fresh[event.handle]._engine.runner.finish(begun, outcome)


class _Replay:
    """Replays a cloud's journal on new fakes with the same settings."""

    def __init__(
        self, cloud: AnyCloud, report: Report, followed: Sequence[Handle], reasons: dict[str, str]
    ) -> None:
        self.cloud = cloud
        self.real = {handle.name: handle for handle in followed}
        self.reasons = reasons
        self.entries = [
            entry
            for entry in (*cloud.journal.entries, *recorder_of(cloud.journal).shared.actions)
            if entry.handle in self.real
        ]
        first = min(self.entries, key=lambda entry: entry.number, default=None)
        start = cloud.clock.now() if first is None else first.at
        self.time = _Time(start)
        self.times = _times(cloud)
        recorder = Recorder(self.time.now_us)
        self.context = Context(self.time, Ids(cloud.seed), Journal(recorder))
        # Do not let a replayed call wait: the call that it waited for may come later in the replay.
        self.context.clock.wait_cap = 0.0
        self.fresh: dict[str, Handle] = {}
        self.connections = _Connections(self.fresh, self.time, self.times)
        self.deliveries = _Deliveries(self.fresh, self.real, self.time)
        self.moments = {row.number: fault.moment for row in report.rows for fault in row.faults
                        if fault.function}  # fmt: skip
        # If a delivery is sent to a fake of this cloud, one row shows the delivery and the received
        # call; it has the number of the call.
        self.numbers = {
            row.delivery.number: row.number for row in report.rows if row.delivery is not None
        }
        self.events = _events(self.entries, report)
        self.shown: dict[str, State] = {}
        self.looks = 0

    def run(self) -> dict[str, Any]:
        with ExitStack() as stack:
            for name, handle in self.real.items():
                self._try(name, partial(self._open, handle, stack))
            initial = {name: self._look(name) for name in list(self.fresh)}
            self.shown = dict(initial)
            steps: list[dict[str, Any]] = []
            for order, at_us, number, name, perform in self._work():
                steps += self._advance(at_us, order)
                if name not in self.fresh or perform is None:
                    continue
                self._try(name, perform)
                for fake in {call.handle for call, _ in self.connections.waiting}:
                    self._try(fake, partial(self.connections.end_waits, fake))
                for step in self._step(number, [name], self.events.get(number, ())):
                    if step["number"] == number != order:
                        step["order"] = order
                    steps.append(step)
            last = max((entry.number for entry in self.entries), default=0)
            steps += self._advance(self.cloud.clock.now_us(), last + 1)
            for name in list(self.fresh):
                if self._look(name) != state_of(self.real[name]):
                    self._drop(name, "replaying the journal did not reproduce its data")
            kept = set(self.fresh)
        for step in steps:
            step["changes"] = [change for change in step["changes"] if change[0] in kept]
        return {
            "initial": {name: shortened(state) for name, state in initial.items() if name in kept},
            "steps": [step for step in steps if step["changes"]],
        }

    # -- the fakes -------------------------------------------------------------------------------

    def _open(self, handle: Handle, stack: ExitStack) -> None:
        settings = {**(handle._given_settings or {}), "name": handle.name}
        for name in ("host", "port", "token", "database_port"):
            settings.pop(name, None)
        if "delivery" in settings:
            settings["delivery"] = "driven"
        fresh = type(handle)(self.context, **settings)
        stack.callback(fresh.close)
        if handle._baseline is not None:
            fresh.restore(handle._baseline)
            fresh._baseline = handle._baseline
        if fresh.fixture == "queue":
            from ..queue.model import AttemptHooks

            # Use the recorded outcomes of the deliveries, and send no requests.
            fresh._engine.attempt_hooks = AttemptHooks()
        self.fresh[handle.name] = fresh

    def _drop(self, name: str, reason: str) -> None:
        self.fresh.pop(name, None)
        self.reasons.setdefault(name, reason)

    def _try(self, name: str, work: Callable[[], object]) -> None:
        try:
            try:
                work()
            finally:
                self.time.recorded = deque()
        except Inexact as error:
            self._drop(name, str(error))
        except Exception as error:
            self._drop(name, f"replaying the journal raised {type(error).__name__}")

    def _look(self, name: str) -> State:
        state = state_of(self.fresh[name])
        items = sum(map(len, state.values()))
        self.looks += items
        if items > MOST_ITEMS or self.looks > MOST_LOOKS:
            self._drop(name, "it has too many items")
        return state

    # -- the entries -----------------------------------------------------------------------------

    def _work(self) -> list[_Work]:
        """Return the replay's work in the order in which it reached the engines."""
        found = [work for entry in self.entries for work in self._work_of(entry)]
        return sorted(found, key=lambda work: work.order)

    def _work_of(self, entry: Entry) -> Iterator[_Work]:
        number, at_us = entry.number, entry.at_us
        if isinstance(entry, Action) and (read := self.times.get(number)):
            # Use the time of the first reading, because an action is recorded when it ends.
            at_us = min(at_us, read[0])
        work = _Work(number, at_us, self.numbers.get(number, number), entry.handle, None)
        if isinstance(entry, Call):
            # The function of a fault made its calls before the engine executed the call with the
            # fault.
            after = self.moments.get(number) == "before" and faults_ended(entry)
            yield work._replace(order=after or number, perform=partial(self._call, entry))
        elif entry.kind == "attempt":
            began = entry.data.get("began") or number
            yield work._replace(order=began, perform=partial(self.deliveries.begin, entry))
            yield work._replace(perform=partial(self.deliveries.finish, entry))
        elif isinstance(entry, Action) and entry.call is not None:
            yield work._replace(perform=partial(self._act, entry))
        elif number in self.events:
            yield work

    def _advance(self, at_us: int, number: int) -> Iterator[dict[str, Any]]:
        """Move the clock, and yield the changes that this causes.

        The changes belong to the rows of the broker's events at this time, and others to no row.
        """
        self.time._fire(lambda: max(at_us, self.time.now_us()), lanes=("state",))
        for event in self.events.get(number, ())[:1]:
            if event.number == number:
                yield from self._step(number, [event.handle], self.events[number])
        # No row has this number, which precedes the row of the next entry.
        yield from self._step(number - 0.5, list(self.fresh))

    def _step(
        self, number: float, names: Sequence[str], events: Sequence[Event] = ()
    ) -> Iterator[dict[str, Any]]:
        """Yield the changes since the previous step; those of an event have the event's number."""
        now = {name: self._look(name) for name in names if name in self.fresh}
        for at, shown in frames(number, self.shown, now, events):
            changes: list[Change] = []
            for name, state in shown.items():
                changes += changes_of(name, self.shown[name], state)
                self.shown[name] = state
            if changes:
                yield {"number": at, "changes": changes}

    def _call(self, call: Call) -> None:
        if call.outcome in ("streamed", "open", "broken off"):
            return
        if call.method == "RESP":
            self.connections.execute(call)
            return
        if not call.reached and (call.fault is not None or call.status == 401):
            return
        fresh, real = self.fresh[call.handle], self.real[call.handle]
        read_only = getattr(real, "read_only_token", None)
        given = call.headers.get("Authorization") or ""
        allowed = (
            {"Authorization": f"Bearer {getattr(fresh, 'read_only_token', '')}"}
            if read_only and given == f"Bearer {read_only}"
            else fresh.headers
        )
        own = {name.lower() for name in allowed}
        headers = [(name, value) for name, value in call.headers.pairs if name.lower() not in own]
        headers += allowed.items()
        request = Request(call.method, _open_target(call.target), headers, call.body, call.client)
        # The server reads the clock once before it records the call.
        self.time.recorded = deque([call.at_us, *self.times.get(call.number, ())])
        answer = fresh._app.answer(request)
        if call.fault is not None:
            return
        same = getattr(answer, "status", None) == call.status
        if same and "answer" not in call.cut:
            same = getattr(answer, "body", None) == call.answer
        if not same:
            raise Inexact(f"call {call.number} received a different answer in the replay")

    def _act(self, action: Action) -> None:
        if action.kind in _WITHOUT_DATA or action.call is None:
            return
        given, named = action.call
        self.time.recorded = deque(self.times.get(action.number, ()))
        getattr(self.fresh[action.handle], action.kind)(*given, **named)


def _events(entries: Sequence[Entry], report: Report) -> dict[int, list[Event]]:
    """Return the broker's events by the number of the call that caused them.

    Events without such a call have the number of the first event at the same time.
    """
    follows = {row.number: row.follows for row in report.rows if row.follows}
    found: dict[int, list[Event]] = {}
    alone: list[Event] = []
    for one in sorted(entries, key=lambda entry: entry.number):
        if not isinstance(one, Event) or isinstance(one, Action) or one.service != "broker":
            continue
        if one.number in follows:
            found.setdefault(follows[one.number], []).append(one)
            continue
        if not alone or (alone[0].handle, alone[0].at_us) != (one.handle, one.at_us):
            alone = found[one.number] = []
        alone.append(one)
    return found


def _belongs_to(event: Event, message: Any) -> bool:
    from ..queue.wire.text import as_text

    same = as_text(message.url) == event.data.get("url")
    return same and bool(message.public_id == event.data.get("message_id"))


def _open_target(target: str) -> str:
    """Return a request target without its token; the replay sends its own token in a header."""
    path, mark, query = target.partition("?")
    kept = "&".join(part for part in query.split("&") if not part.startswith("_token="))
    return f"{path}?{kept}" if mark and kept else path
