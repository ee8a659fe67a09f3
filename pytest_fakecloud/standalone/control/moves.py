"""Endpoints of the clock: its moves, what they caused, their undo, and what is due next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from ...cloud.base import context_of
from ...cloud.cloud import Cloud
from ...cloud.fake import Fake
from ...cloud.services import data_module
from ...core.calls import Event
from ...core.clock import Mode
from ...core.errors import unknown_name
from ...core.timers import duration_us, instant_us, to_datetime
from ...http.messages import Request
from ...http.routing import Route
from ...inspect.data import PlannedEvent, StateChange, changes_of, whole_number
from . import shapes
from .clouds import (
    Changed,
    Kept,
    RecordOnce,
    States,
    changed_by_restore,
    clock_view,
    described_changes,
    has_expired,
    kept_now,
    record_restore,
    states_of,
)
from .due import Due, events_of_move, kinds_of, lines_of, moments_of, planned_events
from .endpoints import PREFIX, Part, Refused, contract, fake_named, fields
from .history import HistoryRoutes

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


class _UndoableMove(NamedTuple):
    """The clock and the data just before a move, and the data just after it."""

    mode: Mode
    before: Kept
    after: States


class _Own(NamedTuple):
    """What an undo of a move puts back so that what was written since stays as it is: all data of the
    ``whole`` fakes, and of others some items by section.
    """

    whole: frozenset[str]
    items: Changed

    def has(self, change: StateChange) -> bool:
        """Return whether a change is of what is put back."""
        return change.fake in self.whole or change.item in self.items[change.fake].get(
            change.section, ()
        )


class MoveRoutes(Part):
    """Endpoints of the clock, of the undo of its last move, and of the planned events."""

    def __init__(self, cloud: Cloud, history: HistoryRoutes) -> None:
        self._cloud = cloud
        self._history = history
        self._last: _UndoableMove | None = None
        """The last move that can be undone."""
        self._moves: list[shapes.MoveResult] = []
        """What the last moves caused, newest first."""

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            cls.route("GET", f"{PREFIX}/clock", "clock", cls.get_clock),
            cls.route("POST", f"{PREFIX}/clock", "move_clock", cls.move_clock),
            cls.route("GET", f"{PREFIX}/clock/undo", "move_changes", cls.get_move_changes),
            cls.route("POST", f"{PREFIX}/clock/undo", "undo_move", cls.undo_move),
            cls.route("GET", f"{PREFIX}/due", "due", cls.get_due),
        ]

    def forget_moves(self) -> None:
        """Forget the moves of the clock, none of which can be undone any more."""
        self._last = None
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
        mode = self._cloud.clock.mode
        before = self._kept_before_move() if keeps else None
        planned = _expiries(self._cloud)
        entries = self._cloud.journal.entries
        latest = entries[-1].number if entries else 0
        since = self._cloud.clock.now().isoformat()
        with contract(400):
            timers = getattr(self._cloud.clock, action)(*(body[name] for name in required)) or []
        if before is not None:
            self._last = _UndoableMove(mode, before, states_of(self._cloud))
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

    def _kept_before_move(self) -> Kept | None:
        """Return the data; None if there is too much of it to keep it for each move."""
        states = states_of(self._cloud)
        return None if None in states.values() else kept_now(self._cloud, states)

    def _move_to_undo(self) -> _UndoableMove:
        if self._last is None:
            raise Refused(
                409, 'no move of the clock can be undone: pass "undoable": true to a move'
            )
        return self._last

    def get_move_changes(self, request: Request) -> shapes.ChangesSinceMove:
        """Return what has changed since just before the last move of the clock that can be undone.

        ``clock`` is the time before it. ``own`` is what an undo with ``"own": true`` takes back,
        ``later`` what was written since the move and stays then, and ``lost`` what was written since
        and goes anyway, because only all data of its fake can be put back.
        """
        move, now = self._move_to_undo(), states_of(self._cloud)
        before, own = move.before.states, self._own(move, now)

        def written(stays: bool) -> shapes.Changes:
            return described_changes(
                move.after,
                now,
                lambda change: self._is_written(change) and own.has(change) is not stays,
            )

        return {
            **described_changes(before, now),
            "clock": move.before.at,
            "own": described_changes(before, now, own.has),
            "later": written(stays=True),
            "lost": written(stays=False),
        }

    def _is_written(self, change: StateChange) -> bool:
        """Return whether a change after the move was made by somebody: what has expired since is back
        when the clock is.
        """
        return not has_expired(fake_named(self._cloud, change.fake), change)

    def _own(self, move: _UndoableMove, now: States) -> _Own:
        """Return what the undo of a move puts back if what was written since stays.

        A fake that the move did not change stays whole.
        """
        whole, items = set[str](), dict[str, dict[str, list[str]]]()
        for fake in self._cloud.fakes():
            before, after, last = (
                states.get(fake.name) for states in (move.before.states, move.after, now)
            )
            if before is None or after is None or last is None:
                whole.add(fake.name)
                continue
            later = {
                (change.section, change.item)
                for change in changes_of(fake.name, after, last)
                if self._is_written(change)
            }
            own = [
                change
                for change in changes_of(fake.name, before, last)
                if (change.section, change.item) not in later
            ]
            if own and not (later and self._can_put_back(fake, {change.section for change in own})):
                whole.add(fake.name)
                continue
            sections = items.setdefault(fake.name, {})
            for change in own:
                sections.setdefault(change.section, []).append(change.item)
        return _Own(frozenset(whole), items)

    def _can_put_back(self, fake: Fake, sections: Iterable[str]) -> bool:
        return all(self._history.can_put_back(fake, section) for section in sections)

    def undo_move(self, request: Request) -> shapes.UndoneMove:
        """Put the clock and all data back to just before the last move that was ``undoable``.

        Later changes of the data are lost, too, except with ``"own": true``: items that were written
        since the move stay as they are, as far as items of their fake can be put back alone, and so do
        fakes that the move did not change. The journal keeps its entries. ``row`` is the number of the
        first row that records it, of which each fake that changed has one; 0 if no data differed.
        """
        is_own, move = fields(request).get("own") is True, self._move_to_undo()
        at, states, fakes = move.before.at, move.before.states, list(self._cloud.fakes())
        at_us, now = instant_us(at), states_of(self._cloud)
        own = self._own(move, now) if is_own else _Own(frozenset(states), {})
        # First the clock: what the data plans is due after its time.
        with contract(409):
            context_of(self._cloud).timekeeper.rewind(at, move.mode)
        moment = f"just before the clock moved from {to_datetime(at_us):%Y-%m-%d %H:%M:%S} UTC"
        changed = changed_by_restore(now, states, own.has)
        what = "what the move of the clock changed" if is_own else ""
        record = RecordOnce(partial(record_restore, fakes, what, moment, changed))
        for fake in fakes:
            for section, items in own.items.get(fake.name, {}).items():
                saved = move.before.saved.data[fake.name]
                with self._history.known() as rewinder, contract():
                    rewinder.put_back_saved(fake, saved, at_us, section, items, record)
        record()
        for fake in fakes:
            if fake.name in own.whole and fake.name in move.before.saved.data:
                fake.restore(move.before.saved.data[fake.name])
        self._last = None
        self._moves = [move for move in self._moves if not move["undoable"]]
        return {**clock_view(self._cloud), "row": record.row}

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
