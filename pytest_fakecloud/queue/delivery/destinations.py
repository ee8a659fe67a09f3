"""The table of a queue's destinations, which maps URLs to handlers.

The longest prefix wins, and a prefix ends at a path segment (``https://app/hook`` matches ``/hook``
and ``/hook/1``, but not ``/hooks``). Routes with ``*``, a regular expression or a function are
tried after the prefixes, newest first. ``"*"`` is tried last. Source: decided here.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ...core.clock import in_thread
from ...core.errors import ContractError, brief, broken_promise, shortfall, shown
from ...core.journal import Results, results_of
from ...core.matching import Field
from ...core.timers import Duration
from ...faults.answers import Response
from ..model import Delivery, Outcome
from ..wire.headers import named_url
from .applications import (
    AsgiApp,
    CapReached,
    Deadlines,
    MissingState,
    WsgiApp,
    call_asgi,
    call_wsgi,
    failed,
)
from .replies import (
    DELIVERIES,
    DeliveredRequest,
    Handler,
    ResponseLike,
    as_reply,
    outcome_of,
    timed_out,
)
from .url_scopes import Url, UrlScope, scope_of, split_text, split_wire

if TYPE_CHECKING:
    from ...core.recorder import Recorder
    from .event_loops import AsgiRunner
    from .loopback import LoopbackSender


class RouteTable:
    """What the routes of one table share: an event loop, a sender to other addresses, and settings."""

    def __init__(self, *, raise_exceptions: bool = False, recorder: Recorder | None = None) -> None:
        self.raise_exceptions = raise_exceptions
        self._recorder = recorder
        self._lock = threading.Lock()
        self._own_runner: AsgiRunner | None = None
        self._forwarding: LoopbackSender | None = None

    @property
    def _runner(self) -> AsgiRunner:
        """The event loop for applications and coroutine functions."""
        with self._lock:
            if self._own_runner is None:
                # Imported here, because no other part of a queue needs asyncio.
                from .event_loops import AsgiRunner

                self._own_runner = AsgiRunner()
            return self._own_runner

    def _forwarder(self, deadlines: Deadlines) -> LoopbackSender:
        with self._lock:
            if self._forwarding is None:
                # Imported here, because only tests that deliver over sockets need the HTTP client.
                from .loopback import LoopbackSender

                self._forwarding = LoopbackSender(deadlines, keeps=False)
            return self._forwarding

    def _close(self) -> None:
        if self._forwarding is not None:
            self._forwarding.close()
        with self._lock:
            runner, self._own_runner = self._own_runner, None
        if runner is not None:
            runner.close()

    def remove(self, route: DestinationRoute) -> None:
        """Remove a route, unless it has already been removed."""
        raise NotImplementedError


class RouteSpec(NamedTuple):
    """The arguments that the routes of all kinds have.

    ``where`` is the kind of destination that outcomes and reports name. If ``raise_exceptions`` is
    None, the table's setting applies.
    """

    table: RouteTable
    prefix: Url
    where: str
    raise_exceptions: bool | None = None


class DestinationRoute:
    """A route of the destinations table, with the URLs it matches and the handler that answers
    them.

    ``deliveries`` are the requests that this route received, oldest first. In a long-running
    server, it keeps only as many of them as the journal keeps entries. ``raise_exceptions`` is
    whether the call that made a delivery raises the handler's exception.
    """

    def __init__(self, spec: RouteSpec) -> None:
        self._prefix = spec.prefix
        self._is_prefix = isinstance(spec.prefix, str) and "*" not in spec.prefix
        self._where = spec.where
        self.deliveries: Results[DeliveredRequest] = results_of((), DELIVERIES, "delivery")
        self._table = spec.table
        self._raise_exceptions = spec.raise_exceptions

    @property
    def prefix(self) -> Url:
        """The URLs that the route matches: a prefix, a pattern with ``*``, a regular expression or a
        function.
        """
        return self._prefix

    @property
    def raise_exceptions(self) -> bool:
        """Whether the call that made a delivery raises the handler's exception."""
        if self._raise_exceptions is None:
            return self._table.raise_exceptions
        return self._raise_exceptions

    def remove(self) -> None:
        """Remove this route. The route with the next shorter prefix then receives its deliveries."""
        self._table.remove(self)

    def _forget_plan(self) -> None:
        """Stop requiring that all prepared responses are used."""

    def _unmet(self) -> str | None:
        """Describe prepared responses that were not used, or return None."""
        return None

    def _saved(self) -> Any:
        return (list(self.deliveries),)

    def _restore(self, saved: Any) -> None:
        self.deliveries[:] = saved[0]

    def _take(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        self._record(delivery)
        try:
            outcome = self._perform(delivery, deadlines)
        except CapReached as error:
            outcome = timed_out(delivery, str(error))
        return self._completed(outcome)

    async def _atake(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        self._record(delivery)
        try:
            outcome = await self._aperform(delivery, deadlines)
        except CapReached as error:
            outcome = timed_out(delivery, str(error))
        return self._completed(outcome)

    def _completed(self, outcome: Outcome) -> Outcome:
        # Without a status, the exception is not from the handler, but a timeout, for example.
        of_handler = outcome.exception is not None and outcome.status is not None
        return outcome._replace(where=self._where, raises=of_handler and self.raise_exceptions)

    def _record(self, delivery: Delivery) -> None:
        self.deliveries.append(DeliveredRequest(delivery))
        recorder = self._table._recorder
        keep = None if recorder is None else recorder.keep
        # Remove old deliveries only when the list is a quarter too long, because removal is slow.
        if keep is not None and len(self.deliveries) > keep + keep // 4:
            del self.deliveries[: -keep or None]

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        raise NotImplementedError

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return self._perform(delivery, deadlines)

    def __repr__(self) -> str:
        prefix = self.prefix if isinstance(self.prefix, str) else brief(self.prefix)
        return f"<DestinationRoute {self._where} {prefix} deliveries={len(self.deliveries)}>"


ROUTES: Mapping[str, Field] = dict.fromkeys(
    ("prefix", "where", "deliveries", "raise_exceptions"), Field()
)
"""Fields by which routes can be filtered."""


class WsgiRoute(DestinationRoute):
    """Answers deliveries with a WSGI application."""

    def __init__(self, spec: RouteSpec, *, app: WsgiApp) -> None:
        super().__init__(spec)
        self._app = app

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return call_wsgi(self._app, delivery)


_NOT_STARTED = "the queue does not run the lifespan with lifespan=False: pass lifespan=True"
_STARTED_BY_TEST = (
    "awaitable methods call the application in the test's event loop, in which the queue does not "
    "run its lifespan: use the other methods (queue.run_until_idle()) with lifespan=True, or pass "
    "asgi() an application that adds the state itself, such as the one of asgi-lifespan's manager"
)


class AsgiRoute(DestinationRoute):
    """Answers deliveries with an ASGI application."""

    def __init__(self, spec: RouteSpec, *, app: AsgiApp, lifespan: bool) -> None:
        super().__init__(spec)
        self._app = app
        self._lifespan = lifespan

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        from .event_loops import LoopEnded

        runner = self._table._runner
        try:
            return runner.run(self._start_and_call(runner, delivery), deadlines)
        except LoopEnded as error:
            return failed(error)

    async def _start_and_call(self, runner: AsgiRunner, delivery: Delivery) -> Outcome:
        if not self._lifespan:
            return await call_asgi(self._app, delivery, MissingState(_NOT_STARTED))
        try:
            state = await runner.lifespan(self._app)
        except RuntimeError as error:
            return failed(broken_promise(error.__cause__) or error)
        return await call_asgi(self._app, delivery, state)

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        state = MissingState(_STARTED_BY_TEST)
        return await deadlines.within_cap(call_asgi(self._app, delivery, state))


class FunctionRoute(DestinationRoute):
    """Answers deliveries with a function or coroutine function of one ``DeliveredRequest``."""

    def __init__(self, spec: RouteSpec, *, handler: Handler) -> None:
        super().__init__(spec)
        self._handler = handler

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        try:
            value = self._handler(DeliveredRequest(delivery))
            if inspect.isawaitable(value):
                value = self._table._runner.run(value, deadlines)
        except CapReached:
            raise
        except Exception as error:
            return failed(error)
        return outcome_of(as_reply(value), delivery)

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        try:
            value = self._handler(DeliveredRequest(delivery))
            if inspect.isawaitable(value):
                value = await deadlines.within_cap(value)
        except CapReached:
            raise
        except Exception as error:
            return failed(error)
        return outcome_of(as_reply(value), delivery)


class ForwardRoute(DestinationRoute):
    """Sends each delivery to a server at another address."""

    def __init__(self, spec: RouteSpec, *, target: str) -> None:
        super().__init__(spec)
        self._target = target.rstrip("/")

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return self._table._forwarder(deadlines).send(self._forwarded(delivery))

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return await in_thread(self._perform, delivery, deadlines)

    def _forwarded(self, delivery: Delivery) -> Delivery:
        published = urlsplit(delivery.url)
        rest = split_wire(delivery.url).rest
        if self._is_prefix:
            prefix = split_text(named_url(str(self.prefix)) or str(self.prefix)).rest
            rest = rest[len(prefix.rstrip("/")) :]
        elif urlsplit(self._target).path:
            # Drop the published path, because a pattern has no prefix to replace.
            rest = ""
        headers = [
            pair for pair in delivery.headers if not pair[0].lower().startswith("x-forwarded-")
        ]
        headers += [
            ("X-Forwarded-Host", published.netloc.rpartition("@")[2]),
            ("X-Forwarded-Proto", published.scheme.lower()),
        ]
        return delivery._replace(url=self._target + rest, headers=headers)


class PreparedRoute(DestinationRoute):
    """Answers deliveries with prepared responses in turn, and repeats the last one."""

    def __init__(self, spec: RouteSpec, *, replies: Sequence[Response | BaseException]) -> None:
        super().__init__(spec)
        self._replies = replies
        self._given = 0
        self._most_given = 0
        """The largest value of ``_given``, which a restored snapshot does not reduce."""
        self._required = len(replies) if len(replies) > 1 else 0
        """Number of responses that a strict test must use; a single response need not be used."""
        self._lock = threading.Lock()

    def _forget_plan(self) -> None:
        self._required = 0

    def _unmet(self) -> str | None:
        if self._most_given >= self._required:
            return None
        used = shortfall("given", self._most_given, self._required)
        return f"the prepared responses of {brief(self.prefix)} were {used}"

    def _saved(self) -> Any:
        with self._lock:
            return *super()._saved(), self._given

    def _restore(self, saved: Any) -> None:
        super()._restore(saved)
        with self._lock:
            self._given = saved[1]

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        with self._lock:
            reply = self._replies[min(self._given, len(self._replies) - 1)]
            self._given += 1
            self._most_given = max(self._most_given, self._given)
        if isinstance(reply, BaseException):
            return failed(reply)
        return outcome_of(reply, delivery)


class Destinations(RouteTable):
    """The destination handlers of a queue.

    The longest matching prefix wins, and ``"*"`` matches URLs without another route. Each method
    that adds a route returns it; a route with the same prefix is replaced. URLs are absolute
    ``http://`` or ``https://`` prefixes, patterns with ``*``, regular expressions, functions of the
    URL, or names of the service's own destinations such as ``"api/llm"``. Any other value raises
    ``ContractError``. Each route keeps as many deliveries as the ``recorder`` keeps entries.
    """

    def __init__(self, *, raise_exceptions: bool = False, recorder: Recorder | None = None) -> None:
        super().__init__(raise_exceptions=raise_exceptions, recorder=recorder)
        self._routes: dict[UrlScope, DestinationRoute] = {}

    def __repr__(self) -> str:
        return f"<Destinations {', '.join(repr(one.prefix) for one in self.routes()) or 'none'}>"

    # -- adding routes ---------------------------------------------------------------------------

    def wsgi(
        self, origin: Url, app: WsgiApp, *, raise_exceptions: bool | None = None
    ) -> DestinationRoute:
        """Deliver to a WSGI application, which is called in the thread that delivers."""
        __tracebackhide__ = True
        if not callable(app):
            raise ContractError(f"{app!r} is not a WSGI application; pass a callable")
        if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(type(app).__call__):
            raise ContractError(f"{app!r} is an ASGI application: use .asgi()")
        return self._add(WsgiRoute(RouteSpec(self, origin, "wsgi", raise_exceptions), app=app))

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
            AsgiRoute(RouteSpec(self, origin, "asgi", raise_exceptions), app=app, lifespan=lifespan)
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
        return self._add(FunctionRoute(RouteSpec(self, url, "call", raise_exceptions), handler=fn))

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
            PreparedRoute(RouteSpec(self, url, "respond", raise_exceptions), replies=replies)
        )

    def accept(self, url: Url = "*") -> DestinationRoute:
        """Answer deliveries to a prefix, or to all URLs without another route, with 200.

        Like any pattern, ``"*"`` does not match deliveries to the other fakes of the cloud.
        """
        __tracebackhide__ = True
        return self._add(PreparedRoute(RouteSpec(self, url, "accept"), replies=[Response()]))

    def hang(self, url: Url) -> DestinationRoute:
        """Never answer, so that each attempt lasts until its timeout on the queue's clock."""
        __tracebackhide__ = True
        return self._add(PreparedRoute(RouteSpec(self, url, "hang"), replies=[Response.hang()]))

    def refuse(self, url: Url) -> DestinationRoute:
        """Refuse the connection, as if no server listened at this address."""
        __tracebackhide__ = True
        return self._add(PreparedRoute(RouteSpec(self, url, "refuse"), replies=[Response.refuse()]))

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
        return self._add(ForwardRoute(RouteSpec(self, url, "forward"), target=target))

    # -- listings --------------------------------------------------------------------------------

    def routes(self) -> Results[DestinationRoute]:
        """Return all routes, in descending order of the lengths of their prefixes."""
        with self._lock:
            pairs = sorted(self._routes.items(), key=lambda pair: -pair[0].length)
        return results_of((route for _, route in pairs), ROUTES, "route")

    def remove(self, route: DestinationRoute) -> None:
        """Remove a route, unless it has already been removed."""
        with self._lock:
            for scope, known in list(self._routes.items()):
                if known is route:
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
        scope = scope_of(route._prefix)
        with self._lock:
            self._routes.pop(scope, None)
            self._routes[scope] = route
        return route


def route_to(table: Destinations, url: str) -> DestinationRoute | None:
    """Return the route that matches a URL, or None."""
    split = split_wire(url if "://" in url else named_url(url) or url)
    best: tuple[int, DestinationRoute] | None = None
    with table._lock:
        for scope, route in table._routes.items():
            if (best is None or scope.length >= best[0]) and scope.matches(split):
                best = (scope.length, route)
    return best[1] if best else None


def _takes(app: Callable[..., object], count: int) -> bool:
    """Return whether an application accepts ``count`` arguments; True if that is unknown."""
    try:
        inspect.signature(app).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _prepared(given: ResponseLike, after: Duration) -> Response | BaseException:
    if isinstance(given, BaseException):
        return given
    # Reject a body that was probably meant as a status or as a list of statuses.
    if (
        isinstance(given, list)
        and given
        and all(type(one) is int and 100 <= one <= 599 for one in given)
    ):
        turns = ", ".join(map(str, given))
        raise ContractError(
            f"{given!r} would be the body of one response; pass respond(url, {turns}) for "
            f"these in turn, or (200, {given!r}) for the body"
        )
    if isinstance(given, str) and re.fullmatch("[1-5][0-9][0-9]", given):
        raise ContractError(
            f"{given!r} would be a body; pass the status {given}, or (200, {given!r}) for the body"
        )
    reply = as_reply(given)
    if after and not reply.after and reply.ending == "respond":
        return Response(reply.status, reply.body, reply.headers, after)
    return reply
