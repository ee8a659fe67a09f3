"""The base class of the families of endpoints, of which each module here has one."""

from __future__ import annotations

from typing import ClassVar

from ...http.routing import Route
from ..engine.engine import Engine


class RouteFamily:
    """The routes of one family of endpoints.

    An endpoint that returns None responds with an empty body. Each request has its own instance.

    Routes that are not ``limited`` are those to which the burst limit does not apply (vendor's page on
    rate limits). Decided here: webhooks count as notifications, and chat requests have a limit of their
    own.
    """

    holds_lock: ClassVar[bool] = True
    """Whether the endpoints are called with the engine's lock held."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runs = engine.workflow

    @classmethod
    def routes(cls) -> list[Route]:
        raise NotImplementedError
