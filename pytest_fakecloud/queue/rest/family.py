"""The base class of the families of endpoints, of which each module here has one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ...http.messages import Answer, Request
from ...http.routing import Route
from ..engine.engine import Engine

if TYPE_CHECKING:
    from .app import QueueApp


@dataclass(frozen=True)
class QueueRoute(Route):
    """An endpoint of the queue.

    ``publishes`` marks an endpoint by which a client sends messages, whose IDs are in the response:
    reports, faults and explorations treat its requests as messages. ``limited`` says whether the burst
    limit applies to the endpoint. It does not apply to endpoints that publish, nor to some others
    (vendor's page on rate limits). Decided here: webhooks count as notifications, and chat requests have
    a limit of their own.
    """

    publishes: bool = False
    limited: bool = True


class RouteFamily:
    """The routes of one family of endpoints. Each request has its own instance.

    A method reads the request, lets a method of the engine change data, and makes the response.
    """

    holds_lock: ClassVar[bool] = True
    """Whether the methods of routes are called with the engine's lock held."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runs = engine.workflow

    @classmethod
    def routes(cls) -> list[QueueRoute]:
        raise NotImplementedError

    @classmethod
    def route(
        cls,
        methods: str,
        pattern: str,
        name: str,
        method: Callable[[Self, Request], object],
        *,
        lingers: bool = False,
        changes: bool = False,
        limited: bool = True,
        publishes: bool = False,
    ) -> QueueRoute:
        """Return a route that calls a method of this family, and counts the request if the burst limit
        applies to it. A method that returns None responds with an empty body.
        """

        limited = limited and not publishes

        def endpoint(app: QueueApp, request: Request) -> object:
            engine = app.engine
            with engine.lock if cls.holds_lock else nullcontext():
                if engine.limits.burst is not None and limited:
                    engine.quota.count_request(engine.clock.now_us())
                result = method(cls(engine), request)
            return Answer() if result is None else result

        return QueueRoute(
            methods,
            pattern,
            name,
            endpoint,
            lingers=lingers,
            changes=changes,
            publishes=publishes,
            limited=limited,
        )
