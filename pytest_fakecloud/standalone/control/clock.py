"""Endpoints of the clock and the seed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...core.wording import unknown_name
from ...http.messages import Request
from ...http.routing import Route
from ..views import iso_time
from .requests import PREFIX, Refused, contract, fields, is_unicode
from .shapes import Clock, Due, Moved, Seed

if TYPE_CHECKING:
    from ...cloud import Cloud


MOVES = {
    "freeze": None,
    "resume": None,
    "advance": "by",
    "move_to": "to",
    "advance_to_next": None,
}
"""Actions of the clock, each with the field that it requires."""
_MOST_DUE = 200


def clock_view(cloud: Cloud) -> Clock:
    """Return the time and the mode of a cloud's clock, and when the next event is due."""
    clock = cloud.clock
    due = clock._timers.next_due_us()
    return {
        "now": iso_time(clock.now_us()),
        "mode": clock.mode,
        "next_due": None if due is None else iso_time(due),
    }


class ClockRoutes:
    """Endpoints that read, move, freeze and resume the clock, and read and set the seed."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def routes(self) -> list[Route]:
        return [
            Route("GET", f"{PREFIX}/clock", "clock", self.get_clock),
            Route("POST", f"{PREFIX}/clock", "move_clock", self.move_clock),
            Route("GET", f"{PREFIX}/due", "due", self.get_due),
            Route("GET", f"{PREFIX}/seed", "seed", self.get_seed),
            Route("PUT", f"{PREFIX}/seed", "set_seed", self.set_seed),
        ]

    def get_clock(self, request: Request) -> Clock:
        """Return the clock's time and mode, and when the next event is due."""
        return clock_view(self._cloud)

    def move_clock(self, request: Request) -> Moved:
        """Freeze, resume or move the clock.

        ``{"action": "freeze"|"resume"|"advance"|"move_to"|"advance_to_next"}``, with ``"by"`` (a
        duration) for ``advance`` or ``"to"`` (a time) for ``move_to``.
        """
        body = fields(request, "action", "by", "to")
        clock = self._cloud.clock
        action = body.get("action")
        if not isinstance(action, str) or action not in MOVES:
            raise Refused(422, unknown_name("action", action, MOVES))
        wanted = MOVES[action]
        if body.keys() - {"action"} != ({wanted} if wanted else set()):
            form = {"action": action, **({wanted: "…"} if wanted else {})}
            raise Refused(422, f"pass {json.dumps(form, ensure_ascii=False)}, got {body!r}")
        with contract(400):
            fired = getattr(clock, action)(*([body[wanted]] if wanted else []))
        fired = fired or []
        return {
            **clock_view(self._cloud),
            "fired": [f"{one.at.isoformat()} {one.label}" for one in fired],
        }

    def get_due(self, request: Request) -> Due:
        """Return the number of planned events, and the next 200 of them."""
        count, soonest = self._cloud.clock._timers.planned(_MOST_DUE)
        return {
            "now": iso_time(self._cloud.clock.now_us()),
            "count": count,
            "due": [{"at": iso_time(one.due_us), "what": one.label} for one in soonest],
        }

    def get_seed(self, request: Request) -> Seed:
        """Return the random seed."""
        return {"seed": self._cloud.seed}

    def set_seed(self, request: Request) -> Seed:
        """Restart all random number generators from another seed."""
        seed = fields(request, "seed").get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int | str) or not is_unicode(seed):
            raise Refused(422, f"seed must be an integer or a string, got {seed!r}")
        self._cloud.reseed(seed)
        return {"seed": self._cloud.seed}
