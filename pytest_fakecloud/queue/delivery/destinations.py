"""The table of a queue's destinations: which handler answers which URL.

The longest prefix wins, and a prefix ends at a path segment (``https://app/hook`` takes ``/hook``
and ``/hook/1``, never ``/hooks``). After the prefixes come the routes with ``*``, a regular
expression or a function, the newest first; then ``"*"``. Source: decided here.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError, shown
from ...core.found import Found
from ...core.timeparse import Duration
from ..wire.named import named_url
from .destination_routes import (
    AsgiRoute,
    DestinationRoute,
    EventLoops,
    ForwardRoute,
    FunctionRoute,
    LifespanMode,
    PreparedRoute,
    Url,
    WsgiRoute,
)
from .replies import Answer, Handler, Reply, as_reply
from .url_scopes import UrlScope, scope_of, split_text, split_wire
from .wsgi import WsgiApp

if TYPE_CHECKING:
    from ...core.journal import Recorder
    from .lifespans import AsgiApp


class Destinations:
    """The table of a queue's destinations; the longest prefix wins, ``"*"`` takes what is left.

    Each registering method returns the ``DestinationRoute``; the same prefix again replaces it.
    URLs are absolute ``http://`` or ``https://`` (or ``"*"``), with ``*`` for anything, a pattern,
    a function of the URL, or a name of the service's own destinations such as ``"api/llm"``;
    anything else is a ``ContractError``. Each route remembers as many of its last deliveries as the
    ``recorder`` keeps entries.
    """

    def __init__(self, *, raise_exceptions: bool = False, recorder: Recorder | None = None) -> None:
        self.raise_exceptions = raise_exceptions
        self.loops = EventLoops()
        self._recorder = recorder
        self._routes: dict[UrlScope, DestinationRoute] = {}
        self._lock = threading.Lock()

    @property
    def keep(self) -> int | None:
        """The number of deliveries that each route keeps; None: all."""
        return None if self._recorder is None else self._recorder.keep

    def __repr__(self) -> str:
        return f"<Destinations {', '.join(repr(one.prefix) for one in self.routes) or 'none'}>"

    # -- registering -----------------------------------------------------------------------------

    def wsgi(
        self, origin: Url, app: WsgiApp, *, raise_exceptions: bool | None = None
    ) -> DestinationRoute:
        """Deliver what goes to an origin to a WSGI application, in the driving thread."""
        __tracebackhide__ = True
        if not callable(app):
            raise ContractError(f"a WSGI application is a callable, got {app!r}")
        if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(type(app).__call__):
            raise ContractError(f"{app!r} is an ASGI application: use .asgi()")
        return self._add(WsgiRoute(self, origin, "wsgi", raise_exceptions, app=app))

    def asgi(
        self,
        origin: Url,
        app: AsgiApp,
        *,
        lifespan: LifespanMode = "auto",
        raise_exceptions: bool | None = None,
    ) -> DestinationRoute:
        """Deliver what goes to an origin to an ASGI application.

        The awaitable drivers (``.aio``) call it in the running loop, whose test owns its lifespan.
        The plain ones call it in a loop of their own, which with ``lifespan=True`` also runs the
        application's lifespan, from the first delivery to the end of the queue, and with ``False``
        never does. ``"auto"`` runs it unless it runs already, as in a block of Starlette's
        ``TestClient`` (asyncio or trio) or of a lifespan manager in the test's own loop: then
        deliveries go to the loop it runs in, with the state it has made. That is seen of the very
        object given here, not of one that wraps it: give the same to both, or say
        ``lifespan=False``.
        """
        __tracebackhide__ = True
        if not callable(app):
            raise ContractError(f"an ASGI application is a callable, got {app!r}")
        if _takes(app, 2) and not _takes(app, 3):
            raise ContractError(f"{app!r} is a WSGI application: use .wsgi()")
        if lifespan != "auto" and not isinstance(lifespan, bool):
            raise ContractError(f"lifespan={lifespan!r} is unknown: give 'auto', True or False")
        return self._add(
            AsgiRoute(self, origin, "asgi", raise_exceptions, app=app, lifespan=lifespan)
        )

    def call(
        self, url: Url, fn: Handler, *, raise_exceptions: bool | None = None
    ) -> DestinationRoute:
        """Deliver to a function (or coroutine function) of a ``DeliveredRequest``.

        It returns a status, ``(status, body)``, ``(status, body, headers)``, a ``Reply``, a body,
        or None for 200. Anything else is a slip of the test and not an answer: the driving call
        raises ``ContractError``.
        """
        __tracebackhide__ = True
        if not callable(fn):
            raise ContractError(f"expected a function of one request, got {fn!r}")
        return self._add(FunctionRoute(self, url, "call", raise_exceptions, handler=fn))

    def answers(
        self,
        url: Url,
        *answers: Answer,
        after: Duration = 0,
        raise_exceptions: bool | None = None,
    ) -> DestinationRoute:
        """Answer with each of these in turn; the last one repeats.

        An answer is a status, ``(status, body)``, ``(status, body, headers)``, a ``Reply``, a body
        (text, bytes, a dict or a list as JSON) with status 200, or an exception. ``after`` is how
        long each of them takes on the queue's clock, unless a ``Reply`` says otherwise.
        """
        __tracebackhide__ = True
        if not answers:
            raise ContractError("answers() needs at least one answer, such as 500 or (200, 'ok')")
        replies = [_prepared(answer, after) for answer in answers]
        return self._add(PreparedRoute(self, url, "answers", raise_exceptions, replies=replies))

    def accept(self, url: Url = "*") -> DestinationRoute:
        """Answer 200 to everything under a prefix, or to every destination not named otherwise.

        ``"*"``, as any pattern, leaves the other fakes of the cloud alone, such as a capture.
        """
        __tracebackhide__ = True
        return self._add(PreparedRoute(self, url, "accept", replies=[Reply()]))

    def hang(self, url: Url) -> DestinationRoute:
        """Never answer: each attempt uses up its whole timeout on the queue's clock."""
        __tracebackhide__ = True
        return self._add(PreparedRoute(self, url, "hang", replies=[Reply.hang()]))

    def refuse(self, url: Url) -> DestinationRoute:
        """Refuse the connection, as a host where nothing listens."""
        __tracebackhide__ = True
        return self._add(PreparedRoute(self, url, "refuse", replies=[Reply.refuse()]))

    def forward(self, url: Url, target: str) -> DestinationRoute:
        """Send what goes to a URL to a server that stands in for it, at another address.

        The path and the query below the prefix stay as they are; ``Host`` is the target's, and the
        published one is in ``X-Forwarded-Host`` and ``X-Forwarded-Proto``. Certificates are not
        checked. The one way by which a delivery leaves this machine: the target need not be a
        loopback address. Raises ``ContractError`` where it is no absolute HTTP URL.
        """
        __tracebackhide__ = True
        split = split_text(target) if isinstance(target, str) else None
        if split is None or not split.origin or "?" in split.rest or "*" in target:
            raise ContractError(
                f"{shown(target)} is not a target: give an absolute URL without a query, such as "
                "'http://127.0.0.1:3000'"
            )
        return self._add(ForwardRoute(self, url, "forward", target=target))

    # -- looking ---------------------------------------------------------------------------------

    @property
    def routes(self) -> Found[DestinationRoute]:
        """All routes, the longest prefix first."""
        with self._lock:
            pairs = sorted(self._routes.items(), key=lambda pair: -pair[0].length)
        return Found(route for _, route in pairs)

    def remove(self, route: DestinationRoute) -> None:
        """Take a route out of the table; removing it twice does nothing."""
        with self._lock:
            for scope, known in list(self._routes.items()):
                if known is route:
                    del self._routes[scope]

    def clear(self) -> None:
        """Take all routes out of the table."""
        with self._lock:
            self._routes.clear()

    def _saved(self) -> object:
        """Return the present routes and how far each of them is, for ``_restore``."""
        with self._lock:
            return [(scope, route, route._saved()) for scope, route in self._routes.items()]

    def _restore(self, saved: Any) -> None:
        """Return to the routes of a ``_saved()``, and to how far each of them was."""
        with self._lock:
            self._routes = {scope: route for scope, route, _ in saved}
            for _, route, state in saved:
                route._restore(state)

    def _add(self, route: DestinationRoute) -> DestinationRoute:
        scope = scope_of(route.prefix)
        with self._lock:
            self._routes.pop(scope, None)
            self._routes[scope] = route
        return route


def route_to(table: Destinations, url: str) -> DestinationRoute | None:
    """Return the route that takes a URL, or None."""
    target = split_wire(url if "://" in url else named_url(url) or url)
    with table._lock:
        best: tuple[int, DestinationRoute] | None = None
        for scope, route in table._routes.items():
            if (best is None or scope.length >= best[0]) and scope.takes(target):
                best = (scope.length, route)
    return best[1] if best else None


def _takes(app: Callable[..., object], count: int) -> bool:
    """Whether an application can be called with so many arguments; True where nobody knows."""
    try:
        inspect.signature(app).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _prepared(answer: Answer, after: Duration) -> Reply | BaseException:
    if isinstance(answer, BaseException):
        return answer
    _check_is_no_status(answer)
    reply = as_reply(answer)
    if after and not reply.after and reply.ending == "answer":
        return Reply(reply.status, reply.body, reply.headers, after)
    return reply


def _check_is_no_status(answer: object) -> None:
    """Raise ``ContractError`` for a body that is surely meant as one status, or as several."""
    if isinstance(answer, list) and answer and all(map(_is_status, answer)):
        turns = ", ".join(map(str, answer))
        raise ContractError(
            f"{answer!r} would be one answer, a body: give answers(url, {turns}) for these in turn, "
            f"or (200, {answer!r}) for the body"
        )
    if isinstance(answer, str) and re.fullmatch("[1-5][0-9][0-9]", answer):
        raise ContractError(
            f"{answer!r} would be a body: give the status {answer}, or (200, {answer!r}) for the body"
        )


def _is_status(value: object) -> bool:
    return type(value) is int and 100 <= value <= 599
