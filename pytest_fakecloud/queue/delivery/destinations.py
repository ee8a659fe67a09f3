"""The delivery of messages to the destinations of a queue, and the table that maps URLs to handlers.

The longest prefix wins, and a prefix ends at a path segment (``https://app/hook`` matches ``/hook``
and ``/hook/1``, but not ``/hooks``). Routes with ``*``, a regular expression or a function are
tried after the prefixes, newest first. ``"*"`` is tried last. Source: decided here.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ...core.clock import in_thread
from ...core.errors import ContractError, FakecloudError, raised_by_test, runs_through_test, shown
from ...core.field_types import signature_of
from ...core.journal import Results, results_of
from ...core.recorder import Recorder
from ...core.timers import Duration
from ...faults.answers import Response
from ..model import Delivery, Outcome
from ..settings import DEFAULT_CAP, Unstubbed
from ..wire.headers import loopback_address, named_url
from ..wire.values import as_text
from .applications import AsgiApp, Deadlines, WsgiApp
from .route_context import RouteContext
from .routes import (
    ROUTES,
    AsgiRoute,
    DestinationRoute,
    ForwardRoute,
    FunctionRoute,
    Handler,
    PreparedRoute,
    ResponseLike,
    Url,
    UrlScope,
    WsgiRoute,
    as_reply,
    scope_of,
    split_text,
    split_wire,
)


class UnstubbedDestinationError(FakecloudError, ConnectionError):
    """Raised if a destination has no route or mock and is not a loopback address. Nothing was sent."""

    __module__ = "pytest_fakecloud"


class Sender:
    """Performs deliveries in the caller's thread or in the running event loop.

    ``unstubbed`` is ``"refuse"`` (send nothing and call ``report``) or ``"accept"`` (answer with
    200). ``report_raised`` receives each exception that a destination raised in the test's code,
    and the URL. ``cap`` is the maximum duration of an attempt over a socket or in a loop, in
    wall-clock seconds. ``is_fake`` recognises addresses of this cloud's fakes, which a route for
    ``"*"`` must not match, because it would intercept the callbacks of a capture. While
    ``time_passes()`` is true, a timeout below the cap applies in wall-clock seconds.
    ``side_by_side`` is True if several threads call ``send``.
    """

    def __init__(
        self,
        destinations: Destinations | None = None,
        *,
        unstubbed: Unstubbed = "refuse",
        report: Callable[[str, str, Delivery], object] | None = None,
        report_raised: Callable[[BaseException, str], object] | None = None,
        cap: float = DEFAULT_CAP,
        is_fake: Callable[[str], bool] = lambda url: False,
        time_passes: Callable[[], bool] = lambda: False,
        side_by_side: bool = False,
    ) -> None:
        self.destinations = destinations if destinations is not None else Destinations()
        self._context = route_context_of(self.destinations)
        self.unstubbed = unstubbed
        self._report = report
        self._report_raised = report_raised
        self._is_fake = is_fake
        self._deadlines = Deadlines(cap, time_passes)
        self._side_by_side = side_by_side
        self._closed = False

    async def send(self, delivery: Delivery, in_loop: bool = False) -> Outcome:
        """Perform one delivery and return its outcome.

        If ``in_loop``, ASGI applications and coroutine functions run in the running event loop
        (asyncio or trio), and everything else in the loop's thread. However, WSGI applications run in
        a worker thread, and connections are made in one, so that a server in this loop can respond.
        Otherwise, nothing is awaited.

        Exceptions of a destination are part of the outcome. Only exceptions that are not an
        ``Exception`` (``KeyboardInterrupt``, ``pytest.fail()`` in a handler) are raised, and a
        ``ContractError`` for a handler whose result is not a response.
        """
        target = self._destination(delivery)
        if isinstance(target, DestinationRoute):
            outcome = await target._take(delivery, self._deadlines, in_loop)
        elif target is not None:
            outcome = target
        else:
            sockets = self._context.loopback(self._deadlines)
            send = partial(sockets.send, delivery, not self._side_by_side)
            outcome = await in_thread(send) if in_loop else send()
        if outcome.exception is not None:
            self._report_if_raised_by_test(delivery, outcome)
        return outcome

    def _destination(self, delivery: Delivery) -> DestinationRoute | Outcome | None:
        """Return a route, None for a fake or a loopback address, or the outcome without any of them."""
        if self._closed:
            text = f"{as_text(delivery.url)}: the queue is closed, and nothing was sent"
            return Outcome(exception=ConnectionAbortedError(text), where="closed")
        route = route_to(self.destinations, delivery.url)
        if route is not None and (route._is_prefix or not self._is_fake(delivery.url)):
            return route
        mismatch = None
        if "responses" in sys.modules:
            from .responses_mock import through_responses

            mocked = through_responses(delivery)
            if isinstance(mocked, Outcome):
                return mocked
            mismatch = mocked
        if loopback_address(delivery.url) is not None or self._is_fake(delivery.url):
            return None
        return self._no_handler(delivery, mismatch)

    def _report_if_raised_by_test(self, delivery: Delivery, outcome: Outcome) -> None:
        """Report the exception of an outcome if the test's code raised it and no call will raise it.

        A test that waits for the outcome may end as soon as it is returned, so report first.
        Functions and callbacks of mocks belong to the test. An assertion raised by an application
        belongs to the test if it passed through a test file, otherwise to the application.
        """
        raised = raised_by_test(outcome.exception)
        will_raise = outcome.raises and not self._side_by_side
        if (
            self._report_raised is None
            or will_raise
            or raised is None
            or outcome.where == "respond"
        ):
            return
        by_application = isinstance(raised, AssertionError) and outcome.where in ("wsgi", "asgi")
        if not by_application or runs_through_test(raised):
            self._report_raised(raised, as_text(delivery.url))

    def release(self) -> None:
        """Close idle connections, which would block a single-threaded server."""
        self._context.release()

    def close(self) -> None:
        self._closed = True
        self._deadlines.close()
        self._context.close()

    def _no_handler(self, delivery: Delivery, mismatch: str | None) -> Outcome:
        """Return the outcome for an unstubbed URL. ``mismatch`` is why no active mock matches it."""
        if self.unstubbed == "accept":
            return Outcome(200, where="accepted")
        url = as_text(delivery.url)
        what = (
            f"no handler for {delivery.method} {url} (message {delivery.message_id}): the URL is "
            "neither a loopback address nor a destination of this queue, and nothing was sent."
        )
        advice = (
            f'Add a destination handler, such as queue.destinations.respond("{url}", 200), '
            ".call(url, function), .wsgi(origin, app) or .asgi(origin, app), or set "
            'queue={"unstubbed": "accept"}'
        )
        if mismatch is not None:
            advice += f". {mismatch}"
        if self._report is not None:
            self._report(what, advice, delivery)
        # The service's answers quote `unstubbed`, to clients in any language, so it has no Python.
        error = UnstubbedDestinationError(f"{what} {advice}")
        return Outcome(exception=error, unstubbed=what, where="unstubbed")


def route_to(table: Destinations, url: str) -> DestinationRoute | None:
    """Return the route that matches a URL, or None."""
    split = split_wire(url if "://" in url else named_url(url) or url)
    best: tuple[int, DestinationRoute] | None = None
    with table._lock:
        for scope, route in table._routes.items():
            if (best is None or scope.length >= best[0]) and scope.matches(split):
                best = (scope.length, route)
    return best[1] if best else None


def route_context_of(table: Destinations) -> RouteContext:
    """Return what the routes of a table share."""
    return table._context


class Destinations:
    """The destination handlers of a queue.

    The longest matching prefix wins, and ``"*"`` matches URLs without another route. Each method
    that adds a route returns it; a route with the same prefix is replaced. URLs are absolute
    ``http://`` or ``https://`` prefixes, patterns with ``*``, regular expressions, functions of the
    URL, or names of the service's own destinations such as ``"api/llm"``. Any other value raises
    ``ContractError``. Each route keeps as many deliveries as the ``recorder`` keeps entries. ``name`` is
    that of the queue.
    """

    def __init__(
        self, *, raise_exceptions: bool = False, recorder: Recorder | None = None, name: str = ""
    ) -> None:
        self.raise_exceptions = raise_exceptions
        self._context = RouteContext(recorder, name)
        self._lock = threading.Lock()
        self._routes: dict[UrlScope, DestinationRoute] = {}

    def __repr__(self) -> str:
        return (
            f"<Destinations {', '.join(repr(route.prefix) for route in self.routes()) or 'none'}>"
        )

    # -- adding routes ---------------------------------------------------------------------------

    def wsgi(
        self, origin: Url, app: WsgiApp, *, raise_exceptions: bool | None = None
    ) -> DestinationRoute:
        """Deliver to a WSGI application, which is called in the thread that delivers.

        The awaitable methods (``queue.aio``) call it in a worker thread.
        """
        __tracebackhide__ = True
        if not callable(app):
            raise ContractError(f"{app!r} is not a WSGI application; pass a callable")
        if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(type(app).__call__):
            raise ContractError(f"{app!r} is an ASGI application: use .asgi()")
        return self._add(WsgiRoute(self, self._context, origin, "wsgi", app, raise_exceptions))

    def asgi(
        self,
        origin: Url,
        app: AsgiApp,
        *,
        lifespan: bool = True,
        raise_exceptions: bool | None = None,
    ) -> DestinationRoute:
        """Deliver to an ASGI application.

        The awaitable methods (``queue.aio``) call the application in the running event loop, and
        the test is responsible for its lifespan. The other methods call it in the queue's own loop,
        which also runs the application's lifespan, from the first delivery until the queue is
        closed. Pass ``lifespan=False`` if other code runs the lifespan, such as a block of
        Starlette's ``TestClient``, or if the application needs none. The application then gets an
        empty lifespan state; if it needs an entry of it, the attempt's error says so.
        """
        __tracebackhide__ = True
        if not callable(app):
            raise ContractError(f"{app!r} is not an ASGI application; pass a callable")
        if _takes(app, 2) and not _takes(app, 3):
            raise ContractError(f"{app!r} is a WSGI application: use .wsgi()")
        if not isinstance(lifespan, bool):
            raise ContractError(f"lifespan={lifespan!r} is unknown; pass True or False")
        return self._add(
            AsgiRoute(self, self._context, origin, "asgi", app, raise_exceptions, lifespan=lifespan)
        )

    def call(
        self, url: Url, fn: Handler, *, raise_exceptions: bool | None = None
    ) -> DestinationRoute:
        """Deliver to a function or coroutine function that receives a ``DeliveredRequest``.

        It returns a status, ``(status, body)``, ``(status, body, headers)``, a ``Response``, a body,
        or None for 200. Any other result is a mistake in the test, for which the call that delivers
        raises ``ContractError``.
        """
        __tracebackhide__ = True
        if not callable(fn):
            raise ContractError(f"{fn!r} is not callable; pass a function of one request")
        return self._add(FunctionRoute(self, self._context, url, "call", fn, raise_exceptions))

    def respond(
        self,
        url: Url,
        *responses: ResponseLike,
        after: Duration = 0,
        raise_exceptions: bool | None = None,
    ) -> DestinationRoute:
        """Respond with each of these responses in turn, then repeat the last one.

        A response is a status, ``(status, body)``, ``(status, body, headers)``, a ``Response``, a
        body with status 200 (string, bytes, or a dict or list as JSON), or an exception. ``after``
        is the time that each response takes on the queue's clock, unless a ``Response`` sets its
        own.

        A strict test fails if there are several responses and not all of them were given (violation
        ``unmet``). Decided here: a single response need not be given, like the other routes.
        """
        __tracebackhide__ = True
        if not responses:
            raise ContractError("respond() needs at least one response, such as 500 or (200, 'ok')")
        replies = [_prepared(response, after) for response in responses]
        return self._add(
            PreparedRoute(self, self._context, url, "respond", replies, raise_exceptions)
        )

    def accept(self, url: Url = "*") -> DestinationRoute:
        """Answer deliveries to a prefix, or to all URLs without another route, with 200.

        Like any pattern, ``"*"`` does not match deliveries to the other fakes of the cloud.
        """
        __tracebackhide__ = True
        return self._add(PreparedRoute(self, self._context, url, "accept", [Response()]))

    def hang(self, url: Url) -> DestinationRoute:
        """Never answer, so that each attempt lasts until its timeout on the queue's clock."""
        __tracebackhide__ = True
        return self._add(PreparedRoute(self, self._context, url, "hang", [Response.hang()]))

    def refuse(self, url: Url) -> DestinationRoute:
        """Refuse the connection, as if no server listened at this address."""
        __tracebackhide__ = True
        return self._add(PreparedRoute(self, self._context, url, "refuse", [Response.refuse()]))

    def forward(self, url: Url, target: str) -> DestinationRoute:
        """Send the deliveries to a server at another address.

        The path and query below the prefix do not change. ``Host`` is the target's; the published
        host and scheme are in ``X-Forwarded-Host`` and ``X-Forwarded-Proto``. Certificates are not
        checked. This is the only way in which a delivery can leave this machine, because the target
        need not be a loopback address. Raises ``ContractError`` if the target is not an absolute
        HTTP URL.
        """
        __tracebackhide__ = True
        split = split_text(target) if isinstance(target, str) else None
        if split is None or not split.origin or "?" in split.rest or "*" in target:
            raise ContractError(
                f"{shown(target)} is not a target; pass an absolute URL without a query, such as "
                "'http://127.0.0.1:3000'"
            )
        return self._add(ForwardRoute(self, self._context, url, "forward", target.rstrip("/")))

    def routes(self) -> Results[DestinationRoute]:
        """Return all routes, in descending order of the lengths of their prefixes."""
        with self._lock:
            pairs = sorted(self._routes.items(), key=lambda pair: -pair[0].length)
        return results_of((route for _, route in pairs), ROUTES, "route")

    def remove(self, route: DestinationRoute) -> None:
        """Remove a route, unless it has already been removed."""
        with self._lock:
            for scope, registered in list(self._routes.items()):
                if registered is route:
                    del self._routes[scope]

    def clear(self) -> None:
        """Remove all routes."""
        with self._lock:
            self._routes.clear()

    def _saved(self) -> object:
        with self._lock:
            return [(scope, route, route._saved()) for scope, route in self._routes.items()]

    def _restore(self, saved: Any) -> None:
        with self._lock:
            self._routes = {scope: route for scope, route, _ in saved}
            for _, route, state in saved:
                route._restore(state)

    def _add(self, route: DestinationRoute) -> DestinationRoute:
        scope = scope_of(route.prefix)
        with self._lock:
            self._routes.pop(scope, None)
            self._routes[scope] = route
        if self._context.recorder is not None:
            self._context.recorder.note_change(self._context.name)
        return route


def _takes(app: Callable[..., object], count: int) -> bool:
    """Return whether an application accepts ``count`` arguments; True if that is unknown."""
    try:
        signature_of(app).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _prepared(response: ResponseLike, after: Duration) -> Response | BaseException:
    if isinstance(response, BaseException):
        return response
    # Reject a body that was probably meant as a status or as a list of statuses.
    if (
        isinstance(response, list)
        and response
        and all(type(status) is int and 100 <= status <= 599 for status in response)
    ):
        turns = ", ".join(map(str, response))
        raise ContractError(
            f"{response!r} would be the body of one response; pass respond(url, {turns}) for "
            f"these in turn, or (200, {response!r}) for the body"
        )
    if isinstance(response, str) and re.fullmatch("[1-5][0-9][0-9]", response):
        raise ContractError(
            f"{response!r} would be a body; pass the status {response}, or (200, {response!r}) for "
            "the body"
        )
    reply = as_reply(response)
    if after and not reply.after and reply.ending == "respond":
        return Response(reply.status, reply.body, reply.headers, after)
    return reply
