"""The routes of the queue, of which each module here has a table, and how they call its functions.

A function of a table gets the engine and the request. It reads the request, calls a method of the engine
that changes data, and returns the result: JSON, an `Answer`, or None for an empty response.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...http.messages import Answer, Request
from ...http.routing import Route
from ..engine.engine import Engine

if TYPE_CHECKING:
    from .app import QueueApp


@dataclass(frozen=True)
class QueueRoute(Route):
    """A route of the queue.

    ``publishes`` marks an endpoint by which a client sends messages, whose IDs are in the response:
    reports, faults and explorations treat its requests as messages. ``limited`` says whether the burst
    limit applies to the endpoint. It does not apply to endpoints that publish, nor to some others
    (vendor's page on rate limits). Decided here: webhooks count as notifications, and chat requests have
    a limit of their own.
    """

    publishes: bool = False
    limited: bool = True


def route(
    methods: str,
    pattern: str,
    name: str,
    function: Callable[[Engine, Request], object],
    *,
    lingers: bool = False,
    changes: bool = False,
    publishes: bool = False,
    limited: bool = True,
) -> QueueRoute:
    """Return a route that counts a request if the burst limit applies to it, and calls the function:
    with the engine's lock held, unless it may linger.
    """
    limited = limited and not publishes

    def endpoint(app: QueueApp, request: Request) -> object:
        engine = app.engine
        with nullcontext() if lingers else engine.lock:
            if limited and engine.limits.burst is not None:
                engine.quota.count_request(engine.clock.now_us())
            result = function(engine, request)
        return Answer() if result is None else result

    return QueueRoute(methods, pattern, name, endpoint, lingers, changes, publishes, limited)
