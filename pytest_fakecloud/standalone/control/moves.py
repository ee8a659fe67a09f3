"""Endpoints of the clock: its moves, what they caused, their undo, and what is due next."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from ...cloud.base import context_of
from ...cloud.cloud import Cloud
from ...cloud.fake import Fake
from ...cloud.services import data_module
from ...core.calls import Event
from ...core.clock import Mode
from ...core.errors import unknown_name
from ...core.timers import duration_us, to_datetime
from ...http.messages import Request
from ...http.routing import Route
from ...inspect.data import PlannedEvent, whole_number
from . import shapes
from .clouds import (
    Kept,
    changed_by_restore,
    clock_view,
    described_changes,
    kept_now,
    record_restore,
    states_of,
)
from .due import Due, events_of_move, kinds_of, lines_of, moments_of, planned_events
from .endpoints import PREFIX, Part, Refused, contract, fake_named, fields

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


class _BeforeMove(NamedTuple):
    """The clock and the data just before a move."""

    mode: Mode
    kept: Kept


class MoveRoutes(Part):
    """Endpoints of the clock, of the undo of its last move, and of the planned events."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._before_move: _BeforeMove | None = None
        """What the last move that can be undone goes back to."""
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
        return _BeforeMove(self._cloud.clock.mode, kept_now(self._cloud, states))

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
