"""Endpoints of clouds: clock, seed, snapshots and data of a cloud, and isolated clouds."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...cloud.base import context_of, show_same
from ...cloud.cloud import Cloud
from ...cloud.fake import Fake, Snapshot
from ...cloud.services import data_module
from ...core.calls import Event
from ...core.clock import Mode
from ...core.errors import unknown_name
from ...core.timers import duration_us, to_datetime
from ...http.messages import Answer, Request
from ...http.routing import Route
from ...inspect.data import (
    PlannedEvent,
    State,
    StateChange,
    changes_of,
    compared,
    state_of,
    whole_number,
)
from ..failed_tests import FailedTests
from ..saving import encoded_state, saved_state
from ..state_file import checked_state, load_state
from . import shapes
from .due import Due, events_of_move, kinds_of, lines_of, moments_of, next_event, planned_events
from .endpoints import PREFIX, Part, Refused, compressed, contract, fake_named, fields

if TYPE_CHECKING:
    from ..api import ControlApp

_MOVES: Mapping[str, tuple[str, ...]] = {
    "freeze": (), "resume": (), "stop": (),
    "advance": ("by",), "move_to": ("to",), "advance_to_next": (),
}  # fmt: skip
"""Actions of the clock, each with the fields that it requires."""
_MOST_DUE = 200
_MOST_MOVES = 5
_MOST_OF_MOVE = 100
"""Maximum number of events of a past move that are kept."""
_SPAN = ("since", "until")
"""The parameters that limit which events are returned in full."""
States: TypeAlias = Mapping[str, State | None]
"""The data of each fake, by name; None if there is too much to compare."""
MOST_ITEMS = 20_000
"""Maximum number of items of a fake whose data is kept for comparisons."""
_MOST_CHANGES = 500
MOST_CLOUDS = 1000
MOST_FAILED = 20
"""Maximum number of clouds of failed tests that are kept."""
_LONGEST_NAME = 500
"""Maximum number of characters of a test's name that are kept."""


class Ended(NamedTuple):
    """An isolated cloud that was closed; ``test`` is the name of the test that failed with it."""

    id: str
    cloud: Cloud
    test: str


class _Running(NamedTuple):
    """The control API of a served cloud, what closes both, and the options that it was started with.

    ``test`` is the name of the failed test whose end it shows, or empty.
    """

    app: ControlApp
    closing: ExitStack
    options: Mapping[str, Any]
    test: str


Opener: TypeAlias = "Callable[[Mapping[str, Any]], AbstractContextManager[ControlApp]]"
"""Serves a cloud with its control API for a with-block; raises ``ContractError`` for bad options."""


def clock_view(cloud: Cloud) -> shapes.ClockData:
    """Return the time and the mode of a cloud's clock, what is due next, and its move."""
    clock, due, move = cloud.clock, cloud.clock.next_due(), context_of(cloud).timekeeper.move
    following = next_event(cloud)
    return {
        "now": clock.now().isoformat(),
        "mode": clock.mode,
        "next_due": None if due is None else due.isoformat(),
        "next": None
        if following is None
        else {
            "at": to_datetime(following.due_us).isoformat(),
            "kind": following.event.kind,
            "what": following.event.what,
        },
        "move": None
        if move is None
        else {
            "since": to_datetime(move.since_us).isoformat(),
            "until": to_datetime(move.until_us).isoformat(),
            "events": move.events,
        },
    }


class _Kept(NamedTuple):
    """A snapshot, the data to compare it with others, and when it was taken."""

    saved: Snapshot
    states: States
    at: str


class _BeforeMove(NamedTuple):
    """The clock and the data just before a move."""

    mode: Mode
    kept: _Kept


class CloudRoutes(Part):
    """Endpoints of the clock, the seed, the snapshots that the server keeps, and loading."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._snapshots: dict[str, _Kept] = {}
        self._before_move: _BeforeMove | None = None
        """What the last move that can be undone goes back to."""
        self._moves: list[shapes.MoveResult] = []
        """What the last moves caused, newest first."""
        self._numbers = itertools.count(1)

    @classmethod
    def routes(cls) -> list[Route]:
        snapshots = f"{PREFIX}/snapshots"
        return [
            cls.route("GET", f"{PREFIX}/clock", "clock", cls.get_clock),
            cls.route("POST", f"{PREFIX}/clock", "move_clock", cls.move_clock),
            cls.route("GET", f"{PREFIX}/clock/undo", "move_changes", cls.get_move_changes),
            cls.route("POST", f"{PREFIX}/clock/undo", "undo_move", cls.undo_move),
            cls.route("GET", f"{PREFIX}/due", "due", cls.get_due),
            cls.route("GET", f"{PREFIX}/seed", "seed", cls.get_seed),
            cls.route("PUT", f"{PREFIX}/seed", "set_seed", cls.set_seed),
            cls.route("GET", snapshots, "snapshots", cls.get_snapshots),
            cls.route("POST", snapshots, "take_snapshot", cls.take_snapshot),
            cls.route("POST", f"{snapshots}/{{id}}", "restore_snapshot", cls.restore_snapshot),
            cls.route("DELETE", f"{snapshots}/{{id}}", "drop_snapshot", cls.drop_snapshot),
            cls.route("GET", f"{snapshots}/{{id}}/changes", "changes", cls.get_changes),
            cls.route("POST", f"{PREFIX}/load", "load", cls.load, lingers=True),
            cls.route("GET", f"{PREFIX}/saved", "saved", cls.get_saved),
            cls.route("POST", f"{PREFIX}/replay", "replay", cls.replay, lingers=True),
        ]

    def forget_moves(self) -> None:
        """Forget the moves of the clock, none of which can be undone any more."""
        self._before_move = None
        self._moves = []

    def get_clock(self, request: Request) -> shapes.ClockData:
        """Return the clock's time and mode, what is due next, and the move in progress."""
        return clock_view(self._cloud)

    def move_clock(self, request: Request) -> shapes.Moved:
        """Freeze, resume or move the clock.

        ``{"action": "freeze"|"resume"|"advance"|"move_to"|"advance_to_next"|"stop"}``, with ``"by"``
        (a duration) for ``advance`` or ``"to"`` (a time) for ``move_to``. ``stop`` ends the move of
        another request after the event in progress; that request returns the time that was reached.
        With ``"undoable": true``, the clock and all data before the move are kept for
        ``POST /clock/undo``, unless a fake has more than 20,000 items.
        """
        body = fields(request)
        action = body.get("action")
        if not isinstance(action, str) or action not in _MOVES:
            raise Refused(422, unknown_name("action", action, _MOVES))
        required = _MOVES[action]
        if body.keys() - {"undoable"} != {"action", *required}:
            form = {"action": action, **dict.fromkeys(required, "…")}
            raise Refused(422, f"pass {json.dumps(form, ensure_ascii=False)}, got {body!r}")
        if action == "stop":
            if (move := context_of(self._cloud).timekeeper.move) is not None:
                move.stopped = True
            clock = clock_view(self._cloud)
            return {
                **clock, "fired": [], "expired": [], "events": [], "undoable": False,
                "result": None,
            }  # fmt: skip
        keeps = body.get("undoable") is True and action not in ("freeze", "resume")
        before = self._kept_before_move() if keeps else None
        planned = _expiries(self._cloud)
        entries = self._cloud.journal.entries
        latest = entries[-1].number if entries else 0
        since = self._cloud.clock.now().isoformat()
        with contract(400):
            timers = getattr(self._cloud.clock, action)(*(body[name] for name in required)) or []
        self._before_move = before or self._before_move
        fired = [f"{timer.at.isoformat()} {timer.label}" for timer in timers]
        ended = _expired(self._cloud, planned)
        ended_keys = _record_expired(self._cloud, ended)
        removed = [due for due in ended if due.event.kind == "removal"]
        expired = [
            f"{to_datetime(event.at_us).isoformat()} key {event.text} expires"
            for event in ended_keys
        ]
        removals = [
            f"{to_datetime(due_us).isoformat()} {event.what}" for due_us, _, event in removed
        ]
        clock, is_undoable = clock_view(self._cloud), before is not None
        events = events_of_move(self._cloud, timers, ended_keys, removed, latest)
        others = [event for event in events if event["kind"] != "expiry"]
        result: shapes.MoveResult = {
            "since": since,
            "now": clock["now"],
            "count": len(others),
            "events": others[:_MOST_OF_MOVE],
            "expired": len(expired),
            "undoable": is_undoable,
        }
        self._keep_move(result)
        return {
            **clock,
            "fired": sorted([*fired, *expired, *removals], key=lambda line: line.split()[0]),
            "expired": expired,
            "events": events,
            "undoable": is_undoable,
            "result": result,
        }

    def _keep_move(self, result: shapes.MoveResult) -> None:
        """Keep what a move caused, among those that caused something. Only the last can be undone."""
        if result["undoable"]:
            for move in self._moves:
                move["undoable"] = False
        self._moves = [
            move
            for move in [result, *self._moves]
            if move["count"] or move["expired"] or move["undoable"]
        ][:_MOST_MOVES]

    def _kept_before_move(self) -> _BeforeMove | None:
        """Return the clock and the data; None if there is too much data to keep it for each move."""
        states = states_of(self._cloud)
        if None in states.values():
            return None
        return _BeforeMove(self._cloud.clock.mode, self._kept_now(states))

    def _kept_now(self, states: States) -> _Kept:
        """Return the data of now, whose ``states`` were read to compare them."""
        return _Kept(self._cloud.snapshot(), states, self._cloud.clock.now().isoformat())

    def _move_to_undo(self) -> _BeforeMove:
        if self._before_move is None:
            raise Refused(
                409, 'no move of the clock can be undone: pass "undoable": true to a move'
            )
        return self._before_move

    def get_move_changes(self, request: Request) -> shapes.ChangesSinceMove:
        """Return what has changed since the last move of the clock that can be undone.

        ``clock`` is the time before it.
        """
        kept = self._move_to_undo().kept
        return {**described_changes(kept.states, states_of(self._cloud)), "clock": kept.at}

    def undo_move(self, request: Request) -> shapes.UndoneMove:
        """Put the clock and all data back to just before the last move that was ``undoable``.

        Later changes of the data are lost, too. The journal keeps its entries. ``row`` is the number of
        the first row that records it, of which each fake that changed has one; 0 if no data differed.
        """
        before = self._move_to_undo()
        changed = changed_by_restore(states_of(self._cloud), before.kept.states)
        # First the clock: what the data plans is due after its time.
        with contract(409):
            context_of(self._cloud).timekeeper.rewind(before.kept.at, before.mode)
        moment = f"just before the clock moved from {before.kept.at}"
        row = record_restore(self._cloud.fakes(), "", moment, changed)
        self._cloud.restore(before.kept.saved)
        self._before_move = None
        self._moves = [move for move in self._moves if not move["undoable"]]
        return {**clock_view(self._cloud), "row": row}

    def get_due(self, request: Request) -> shapes.DueData:
        """Return all planned events and expiries of keys by time, and the next 200 of them in full.

        ``?within=`` (a duration from now) limits all of them, ``?since=`` and ``?until=`` (microseconds
        since the Unix epoch), ``?kind=`` and ``?without=`` (kinds, separated by commas) limit those in
        full. With ``?fold=yes``, expiries of keys next to each other are one line with their number;
        ``?open=`` has the times of the last events of those that are listed one by one, too.
        """
        kind = request.query("kind") or ""
        without = (request.query("without") or "").split(",")
        since_us, until_us = (whole_number(name, request.query(name)) for name in _SPAN)
        events = planned_events(self._cloud)
        if within := request.query("within"):
            with contract(400):
                within_us = context_of(self._cloud).timekeeper.now_us() + duration_us(within)
            events = [planned for planned in events if planned.due_us <= within_us]
        matching = [
            planned
            for planned in events
            if (since_us or 0) <= planned.due_us
            and (until_us is None or planned.due_us <= until_us)
            and kind in ("", planned.event.kind)
            and planned.event.kind not in without
        ]
        opened_us = {
            whole_number("open", time) for time in (request.query("open") or "").split(",")
        }
        lines = [*lines_of(matching, folds=request.query("fold") == "yes", opened_us=opened_us)]
        return {
            "now": self._cloud.clock.now().isoformat(),
            "count": len(events),
            "kinds": kinds_of(events),
            "matching": len(lines),
            "moments": moments_of(events),
            "due": lines[:_MOST_DUE],
            "moves": self._moves,
        }

    def get_seed(self, request: Request) -> shapes.Seed:
        """Return the random seed."""
        return {"seed": self._cloud.seed}

    def set_seed(self, request: Request) -> shapes.Seed:
        """Restart all random number generators from another seed."""
        seed = fields(request)["seed"]
        if isinstance(seed, str) and re.search("[\ud800-\udfff]", seed):
            raise Refused(422, f"seed must be a string without lone surrogates, got {seed!r:.100}")
        context_of(self._cloud).ids.reseed(seed)
        return {"seed": self._cloud.seed}

    def get_snapshots(self, request: Request) -> list[shapes.SnapshotData]:
        """Return the snapshots that the server keeps."""
        return [self._described(name) for name in self._snapshots]

    def _described(self, name: str) -> shapes.SnapshotData:
        return {"id": name, "at": self._snapshots[name].at}

    def take_snapshot(self, request: Request) -> shapes.SnapshotData:
        """Take a snapshot of all fakes. ``{"id": name}`` names it; the default name is a number."""
        snapshot_id = fields(request).get("id")
        if snapshot_id == "":
            raise Refused(422, "the id of a snapshot must not be empty")
        if snapshot_id is None:
            snapshot_id = next(
                number for number in self._numbers if str(number) not in self._snapshots
            )
        name = str(snapshot_id)
        self._snapshots[name] = self._kept_now(states_of(self._cloud))
        return self._described(name)

    def _known(self, name: str) -> str:
        if name not in self._snapshots:
            raise Refused(404, unknown_name("snapshot", name, self._snapshots))
        return name

    def restore_snapshot(self, request: Request) -> shapes.RestoredSnapshot:
        """Restore a snapshot.

        ``row`` is the number of the first row that records the restore, of which each fake that changed
        has one. It is 0 if no data differed.
        """
        name = self._known(request.segment("id"))
        kept = self._snapshots[name]
        changed = changed_by_restore(states_of(self._cloud), kept.states)
        row = record_restore(
            self._cloud.fakes(), "", f"the snapshot {name}", changed, snapshot=name
        )
        self._cloud.restore(kept.saved)
        return {**self._described(name), "row": row}

    def drop_snapshot(self, request: Request) -> shapes.SnapshotData:
        """Delete a snapshot."""
        name = self._known(request.segment("id"))
        dropped = self._described(name)
        del self._snapshots[name]
        return dropped

    def get_changes(self, request: Request) -> shapes.Changes:
        """Return what changed since a snapshot, up to now or up to the snapshot ``?until=``.

        ``?as_restored=yes`` leaves out keys that expire at once when the snapshot is restored, and dead
        letters that are too old by now: ``not_restored`` has their number.
        """
        before = self._snapshots[self._known(request.segment("id"))].states
        until = request.query("until")
        if until:
            return described_changes(before, self._snapshots[self._known(until)].states)
        now = states_of(self._cloud)
        restored = as_restored(self._cloud, before) if is_restore(request) else before
        changes = described_changes(restored, now, now=self._cloud.fakes())
        return {**changes, "not_restored": not_restored(before, restored, now)}

    def get_saved(self, request: Request) -> Answer:
        """Return the whole state as the content of a state file: data, destinations, faults, clock.

        The response is compressed if the client accepts gzip.
        """
        body = encoded_state(saved_state(self._cloud))
        return compressed(request, body, lambda: gzip.compress(body, 1), "application/json")

    def load(self, request: Request) -> shapes.Loaded:
        """Load a state file, all of it or nothing: ``{"state": {…}, "folder": "/path"}``.

        Relative paths in it need ``folder``, an absolute path on the server.
        """
        body = fields(request)
        content, folder = body["state"], body.get("folder", "/")
        if "\0" in folder or not Path(folder).is_absolute():
            raise Refused(422, f"folder must be an absolute path, got {folder!r:.200}")
        loaded: dict[str, int] = {}

        def progress(name: str, done: int, whole: int) -> None:
            loaded[name] = max(done, loaded.get(name, 0))

        with contract():
            load_state(self._cloud, checked_state(content, "state"), Path(folder), progress)
        return {"loaded": loaded}

    def replay(self, request: Request) -> shapes.Replayed:
        """Send a recorded session to the fakes, and return the differences of the responses.

        ``{"archive": a HAR file's JSON, "into": name of a fake, "move_clock": true}``.
        """
        body = fields(request)
        into, moves = body.get("into"), body.get("move_clock", True)
        fake = None if into is None else fake_named(self._cloud, into)
        with contract():
            differences = self._cloud.replay(body["archive"], into=fake, move_clock=moves)
        return {"differences": [str(difference) for difference in differences]}


def states_of(cloud: Cloud) -> States:
    """Return the data of all fakes that have data, None for those with more than ``MOST_ITEMS``."""
    states = {fake.name: state_of(fake) for fake in cloud.fakes() if data_module(fake.fixture)}
    return {
        name: state if sum(map(len, state.values())) <= MOST_ITEMS else None
        for name, state in states.items()
    }


def is_restore(request: Request) -> bool:
    return request.query("as_restored") == "yes"


def as_restored(cloud: Cloud, states: States) -> States:
    """Return the data that a restore of these states leaves: what is due by now happens at once."""
    restored = dict(states)
    for fake in cloud.fakes():
        without_expired = getattr(data_module(fake.fixture), "without_expired", None)
        if without_expired and (state := states.get(fake.name)) is not None:
            restored[fake.name] = without_expired(fake, state)
    return restored


def described_changes(
    before: States,
    after: States,
    is_wanted: Callable[[StateChange], bool] = lambda change: True,
    now: Iterable[Fake] = (),
) -> shapes.Changes:
    """Return the differences of the data of fakes at two times.

    ``now`` are the fakes, if ``after`` is their data of now.
    """
    fakes = {fake.name: fake for fake in now}
    changes: list[StateChange] = []
    not_compared = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            not_compared.append(name)
        else:
            changes += filter(is_wanted, changes_of(name, old, new))
    sums: dict[str, dict[str, int]] = {}
    for change in changes:
        kind = "removed" if change.after is None else "changed"
        kind = "added" if change.before is None else kind
        kind = "expired" if _has_expired(fakes.get(change.fake), change) else kind
        counts = sums.setdefault(change.fake, {"added": 0, "changed": 0, "removed": 0})
        counts[kind] = counts.get(kind, 0) + 1
    # Most removed items have expired.
    changes.sort(key=lambda change: change.after is None)
    return {
        "count": len(changes),
        "sums": sums,
        "changes": [
            _with_added(fakes.get(change.fake), change) for change in changes[:_MOST_CHANGES]
        ],
        "not_compared": not_compared,
        "not_restored": {},
    }


def not_restored(before: States, restored: States, after: States) -> dict[str, int]:
    """Return how many items of each section a restore of ``before`` does not bring back, because their
    time has ended. ``restored`` is what the restore leaves, ``after`` the data of now.
    """
    counts: dict[str, int] = {}
    for name, state in before.items():
        for section, items in (state or {}).items():
            left, now = ((data.get(name) or {}).get(section, {}) for data in (restored, after))
            if lost := sum(item not in left and item not in now for item in items):
                counts[section] = counts.get(section, 0) + lost
    return counts


Changed: TypeAlias = "Mapping[str, Mapping[str, Sequence[str]]]"
"""The names of changed items, by fake and by section."""


def changed_by_restore(before: States, after: States) -> Changed:
    """Return what a restore of the data ``after`` changes in the data ``before``, at most 100 items.

    Every fake that it changes is in the result, and those with too much data to compare.
    """
    differences = described_changes(before, after)
    changed: dict[str, dict[str, list[str]]] = {
        name: {} for name in sorted({*differences["sums"], *differences["not_compared"]})
    }
    for change in differences["changes"][:_MOST_IN_EVENT]:
        changed[change["fake"]].setdefault(change["section"], []).append(change["item"])
    return changed


def record_restore(
    fakes: Iterable[Fake], what: str, since: str, changed: Changed, **data: Any
) -> int:
    """Record a restore, just before it, as an event of each fake that it changes, because it does so
    without a call. What another client calls meanwhile then comes after the event.

    Without ``what``, all data of each is restored. Returns the number of the first event, 0 if nothing
    has changed.
    """
    return number_of_first(
        fake._recorder.add_event(
            "restored",
            f"{what or f'all data of {fake.name}'} to {since}",
            **data,
            changed=changed[fake.name] or None,
        )
        for fake in fakes
        if fake.name in changed
    )


def number_of_first(events: Iterable[Event]) -> int:
    """Return the number of the first event that is recorded; 0 without one. Takes all of them."""
    numbers = [event.number for event in events]
    return numbers[0] if numbers else 0


_MOST_IN_EVENT = 100


def _expiries(cloud: Cloud) -> dict[tuple[Fake, PlannedEvent], int]:
    """Return when each key with a TTL expires, and when each dead letter is removed by its age."""
    return {
        (fake, event): due_us
        for fake in cloud.fakes()
        if (expiries := getattr(data_module(fake.fixture), "expiries", None)) is not None
        for due_us, event in expiries(fake)
    }


def _expired(cloud: Cloud, planned: Mapping[tuple[Fake, PlannedEvent], int]) -> list[Due]:
    """Return the events of ``planned`` that have happened since, in the order of their times.

    An item that a call deleted meanwhile, before its time, is one of them.
    """
    now_us, left = context_of(cloud).timekeeper.now_us(), _expiries(cloud)
    return [
        Due(due_us, fake.name, event)
        for (fake, event), due_us in sorted(planned.items(), key=itemgetter(1))
        if due_us <= now_us and (fake, event) not in left
    ]


def _record_expired(cloud: Cloud, expired: Iterable[Due]) -> list[Event]:
    """Record an event for each key that has expired."""
    return [
        fake_named(cloud, str(name))._recorder.add_event(
            "expired", str(key), at_us=due_us, changed={"keys": [key]}
        )
        for due_us, name, (kind, _, key, _) in expired
        if kind == "expiry"
    ]


def _has_expired(fake: Fake | None, change: StateChange) -> bool:
    """Return whether an item is gone from the data of now because its TTL has ended."""
    if fake is None or change.before is None or change.after is not None:
        return False
    without_expired = getattr(data_module(fake.fixture), "without_expired", None)
    if without_expired is None:
        return False
    before = {change.section: {change.item: change.before}}
    return not without_expired(fake, before)[change.section]


def _with_added(fake: Fake | None, change: StateChange) -> shapes.ItemChange:
    """Return a change with what was added to the data of a fake, whose data of now is after it."""
    shown = shown_change(change)
    if _has_expired(fake, change):
        shown["expired"] = True
    added = getattr(data_module(fake.fixture), "added", None) if fake else None
    if added is not None and change.after is not None:
        shown["added"] = added(fake, change.section, change.before, change.after, change.item)
    return shown


def shown_change(change: StateChange) -> shapes.ItemChange:
    before, after = compared(change.before, change.after)
    return {
        "fake": change.fake,
        "section": change.section,
        "item": change.item,
        "before": before,
        "after": after,
    }


class IsolatedClouds(Part):
    """Endpoints that start, list and close clouds that share nothing with each other.

    ``ended`` is called with each cloud that was closed. ``failed_tests`` has the reports of the tests
    that failed with a cloud.
    """

    def __init__(
        self,
        opener: Opener,
        ended: Callable[[Ended], object] = lambda cloud: None,
        failed_tests: FailedTests | None = None,
    ) -> None:
        self._open = opener
        self._failed_tests = failed_tests or FailedTests()
        self._report_ended = ended
        self._served: dict[str, _Running] = {}
        self._numbers = itertools.count(1)
        # Start one cloud at a time: loading a state file records the warnings of the whole process.
        self._starting = threading.Lock()
        self._lock = threading.Lock()

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            cls.route("GET", f"{PREFIX}/clouds", "clouds", cls.get_clouds),
            cls.route("POST", f"{PREFIX}/clouds", "new_cloud", cls.new_cloud),
            cls.route("DELETE", f"{PREFIX}/clouds/{{id}}", "end_cloud", cls.end_cloud),
            cls.route("POST", f"{PREFIX}/clouds/{{id}}/failed", "keep_cloud", cls.keep_cloud),
            cls.route("POST", f"{PREFIX}/clouds/{{id}}/codes", "cloud_code", cls.make_code),
        ]

    def get_clouds(self, request: Request) -> list[shapes.CloudData]:
        """Return the isolated clouds, oldest first."""
        with self._lock:
            served = list(self._served.items())
        return [
            {
                "id": id,
                "url": app.url,
                "fakes": [fake.name for fake in app.cloud.fakes()],
                "test": test,
            }
            for id, (app, _, _, test) in served
        ]

    def new_cloud(self, request: Request) -> shapes.NewCloud:
        """Start a cloud with its own clock, fakes, ports, credentials and journal.

        ``{"services": {"kv": {…}, "kv:NAME": {…}}, "seed", "now", "clock"}``; an omitted option has
        the value that the server was started with. ``PYTEST_FAKECLOUD_URL`` and
        ``PYTEST_FAKECLOUD_TOKEN`` in ``env`` belong to the new cloud's own control API.
        """
        return self._start(fields(request))

    def _start(
        self, options: Mapping[str, Any], shown: Cloud | None = None, test: str = ""
    ) -> shapes.NewCloud:
        """Start a cloud, and let it show what another one has seen when a test failed."""
        with ExitStack() as stack, contract(), self._starting:
            if len(self._served) >= MOST_CLOUDS:
                raise Refused(
                    422,
                    f"there are {MOST_CLOUDS} clouds, the maximum: close unused ones with DELETE",
                )
            app = stack.enter_context(self._open(options))
            if shown is not None:
                show_same(app.cloud, shown)
            id = str(next(self._numbers))
            new_cloud: shapes.NewCloud = {
                "id": id,
                "seed": app.cloud.seed,
                "env": app.environment(),
            }
            with self._lock:
                self._served[id] = _Running(app, stack.pop_all(), options, test)
        return new_cloud

    def keep_cloud(self, request: Request) -> shapes.KeptCloud:
        """Report a failed test, and keep a copy of its isolated cloud: ``{"test": name}``.

        ``"failure"``, the error as text, is on the page, and the report marks the data that the failing
        statement compared, given by its names or values in ``"read"``.

        The copy has the data, the journal, the violations and the time of now, and a console and
        addresses of its own. Its clock is frozen, and it delivers nothing until the clock is moved.
        It remains until it is closed, or until 20 newer ones exist.
        """
        original, body = self._known(request.segment("id")), fields(request)
        test: str = body["test"][:_LONGEST_NAME]
        if not test:
            raise Refused(422, "test must be the name of a test, got ''")
        cloud = original.app.cloud
        failed = self._failed_tests.add(cloud, test, body.get("failure", ""), body.get("read", ()))
        new_cloud = self._start(original.options, cloud, test)
        for oldest in self._kept()[:-MOST_FAILED]:
            self._end(oldest)
        return {
            **new_cloud,
            "report": failed.text,
            "statement": failed.statement,
            "page": None if failed.page is None else str(failed.page),
        }

    def end_cloud(self, request: Request) -> shapes.Closed:
        """Close an isolated cloud, with its fakes and its control API."""
        id = request.segment("id")
        self._known(id)
        self._end(id)
        return {"closed": True}

    def _kept(self) -> list[str]:
        with self._lock:
            return [id for id, running in self._served.items() if running.test]

    def numbers(self) -> tuple[int, int]:
        """Return the numbers of isolated clouds, and of those of failed tests."""
        return len(self._served), len(self._kept())

    def make_code(self, request: Request) -> shapes.ConsoleAddress:
        """Return a URL that signs one browser in to the console of an isolated cloud."""
        return {"url": self._known(request.segment("id")).app.console_url()}

    def _known(self, id: str) -> _Running:
        with self._lock:
            running = self._served.get(id)
        if running is None:
            raise Refused(404, f"there is no cloud {id!r:.100}: GET {PREFIX}/clouds lists them")
        return running

    def _end(self, id: str) -> None:
        with self._lock:
            running = self._served.pop(id, None)
        if running is not None:  # Another request may have closed it meanwhile.
            running.closing.close()
            self._report_ended(Ended(id, running.app.cloud, running.test))

    def close(self) -> None:
        """Close all isolated clouds. Called before the server closes."""
        with self._starting, self._lock:
            ids = list(self._served)
        for id in ids:
            self._end(id)
