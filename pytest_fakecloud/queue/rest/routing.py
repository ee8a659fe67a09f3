"""The routes of the queue, of which each module here has a table.

A function of a table gets the engine and the request. It reads the request, calls a method of the engine
that changes data, and returns the result: JSON, an `Answer`, or None for an empty response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...http.messages import Request
from ...http.routing import Route
from ..engine.engine import Engine


@dataclass(frozen=True)
class QueueRoute(Route):
    """A route of the queue, whose ``endpoint`` takes the engine and the request.

    `QueueApp.run_endpoint()` calls it with the engine's lock, unless it ``lingers``.

    ``publishes`` marks an endpoint by which a client sends messages, whose IDs are in the response:
    reports, faults and explorations treat its requests as messages. ``schedules`` marks an endpoint by
    which a client creates schedules: the fault ``daily_limit`` and findings about durations treat its
    requests like messages.

    ``unlimited`` marks an endpoint that does not publish, and to which the burst limit does not apply.
    """

    endpoint: Callable[[Engine, Request], object]
    publishes: bool = False
    schedules: bool = False
    unlimited: bool = False

    @property
    def counts_for_burst(self) -> bool:
        """Whether the burst limit counts its requests: not those that publish, trigger, notify or wait
        (vendor's page on rate limits). Decided here: webhooks count as notifications, and chat requests
        have a limit of their own.
        """
        return not (self.publishes or self.unlimited)
