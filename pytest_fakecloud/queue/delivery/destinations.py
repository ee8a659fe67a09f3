"""Where deliveries go without a network: applications, callables and prepared answers.

A ``Destinations`` is a table from URL prefixes to routes; the longest prefix wins, and a prefix
ends at a path segment (``https://app/hook`` takes ``/hook`` and ``/hook/1``, never ``/hooks``).
After the prefixes come the routes for a URL with ``*``, a pattern or a function, the newest first;
then ``"*"``. Applications and callables run in the caller's thread, coroutines in the running loop
when the awaitable form drives, else in a loop of their own. Source: decided here, except that an
exception in a handler is a 500, as in any server.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from ...core.aio import in_thread
from ...core.errors import ContractError, shown
from ...core.found import Found, found_of
from ...core.problems import broken_promise
from ...core.timeparse import Duration
from ...core.wording import brief
from ..model import Delivery, Outcome
from ..wire.named import named_url
from .app_answer import AppAnswer, failed
from .deadlines import Deadlines
from .places import Place, place_of, split_text, split_wire
from .replies import (
    DELIVERIES,
    Answer,
    DeliveredRequest,
    Handler,
    Reply,
    as_reply,
    outcome_of,
    timed_out,
)
from .wsgi import WsgiApp, call_wsgi

if TYPE_CHECKING:
    from ...core.journal import Recorder
    from .asgi import AsgiRunner
    from .lifespans import AsgiApp, Elsewhere, Elsewheres
    from .loopback import LoopbackSender

LifespanMode: TypeAlias = Literal["auto"] | bool
Url: TypeAlias = str | re.Pattern[str] | Callable[[str], object]
"""Which URLs a route takes: those under a prefix, or those that agree (``core.matching``)."""


class DestinationRoute:
    """One entry of the table: a URL prefix and what answers there.

    ``deliveries`` are the requests that came here, oldest first; a server that runs for long keeps
    as many of the last as its journal keeps entries. ``raise_exceptions`` says whether a handler's
    exception leaves the driving call instead of being only a 500.
    """

    def __init__(
        self,
        table: Destinations,
        prefix: Url,
        where: str,
        raise_exceptions: bool | None,
    ) -> None:
        self.prefix = prefix
        self.where = where
        self.deliveries: Found[DeliveredRequest] = found_of((), DELIVERIES, "delivery")
        self._table = table
        self._raise_exceptions = raise_exceptions

    @property
    def _is_prefix(self) -> bool:
        return isinstance(self.prefix, str) and "*" not in self.prefix

    @property
    def raise_exceptions(self) -> bool:
        """Whether an exception of this handler is raised again by the driving call."""
        if self._raise_exceptions is None:
            return self._table.raise_exceptions
        return self._raise_exceptions

    def remove(self) -> None:
        """Take this route out of the table; deliveries fall to the next shorter prefix."""
        self._table.remove(self)

    def _saved(self) -> Any:
        """Return what came so far and how many answers were given, for ``_restore``."""
        return list(self.deliveries), 0

    def _restore(self, saved: Any) -> None:
        """Return to a ``_saved()``: prepared answers go on from where they were then."""
        self.deliveries[:] = saved[0]

    def _take(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        """Record a delivery and answer it in the caller's thread."""
        self._record(delivery)
        return self._perform(delivery, deadlines)

    async def _atake(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        """Record a delivery and answer it in the running loop."""
        self._record(delivery)
        return await self._aperform(delivery, deadlines)

    def _record(self, delivery: Delivery) -> None:
        self.deliveries.append(DeliveredRequest(delivery))
        recorder = self._table._recorder
        keep = None if recorder is None else recorder.keep
        # Some beyond, so that it costs next to nothing for each.
        if keep is not None and len(self.deliveries) > keep + keep // 4:
            del self.deliveries[: -keep or None]

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        """Answer one delivery in the caller's thread."""
        raise NotImplementedError

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        """Answer one delivery in the running loop."""
        return self._perform(delivery, deadlines)

    def __repr__(self) -> str:
        shown_prefix = self.prefix if isinstance(self.prefix, str) else brief(self.prefix)
        return f"<DestinationRoute {self.where} {shown_prefix} deliveries={len(self.deliveries)}>"


class _Wsgi(DestinationRoute):
    _app: WsgiApp

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return _outcome(call_wsgi(self._app, delivery), self.where)


class _Asgi(DestinationRoute):
    _app: AsgiApp
    _lifespan: LifespanMode

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return self._perform_in(self._elsewhere(), delivery, deadlines)

    def _elsewhere(self) -> Elsewhere | None:
        return None if self._lifespan is True else self._table._elsewhere(self._app)

    def _perform_in(
        self, elsewhere: Elsewhere | None, delivery: Delivery, deadlines: Deadlines
    ) -> Outcome:
        from .asgi import call_asgi

        runner = self._table._loop_runner()

        async def whole() -> AppAnswer:
            state: Mapping[str, Any] = {}
            try:
                if elsewhere is not None:
                    state = elsewhere.state
                elif self._lifespan:
                    state = await runner.lifespan(self._app)
            except RuntimeError as error:
                return failed(broken_promise(error.__cause__) or error)
            return await call_asgi(self._app, delivery, state)

        handled = runner.run(whole(), deadlines, elsewhere.host if elsewhere else None)
        return _outcome(handled, self.where) if handled else _own_loop_late(delivery, deadlines)

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        from .asgi import call_asgi

        elsewhere = self._elsewhere()
        if elsewhere is not None and elsewhere.host.runs and not elsewhere.host.is_here:
            # What the application has made at its start belongs to the loop it was started in.
            return await in_thread(self._perform_in, elsewhere, delivery, deadlines)
        state = elsewhere.state if elsewhere is not None else {}
        handled = await deadlines.within_cap(call_asgi(self._app, delivery, state))
        return _outcome(handled, self.where) if handled else _late(delivery, deadlines, self.where)


class _Call(DestinationRoute):
    _handler: Handler

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        try:
            value = self._handler(DeliveredRequest(delivery))
            if inspect.iscoroutine(value):
                handled = self._table._loop_runner().run(_boxed(value), deadlines)
                if handled is None:
                    return _own_loop_late(delivery, deadlines, self.where)
                value = handled[0]
        except Exception as error:
            return _raised(error, self.where)
        return outcome_of(as_reply(value), delivery, self.where)

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        try:
            value = self._handler(DeliveredRequest(delivery))
            if inspect.isawaitable(value):
                handled = await deadlines.within_cap(_boxed(value))
                if handled is None:
                    return _late(delivery, deadlines, self.where)
                value = handled[0]
        except Exception as error:
            return _raised(error, self.where)
        return outcome_of(as_reply(value), delivery, self.where)


class _Forward(DestinationRoute):
    _target: str
    _sender: LoopbackSender | None

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        if self._sender is None:
            from .loopback import LoopbackSender

            self._sender = LoopbackSender(deadlines, keeps=False)
        outcome = self._sender.send(self._forwarded(delivery))
        return replace(outcome, where=self.where)

    def _forwarded(self, delivery: Delivery) -> Delivery:
        published = urlsplit(delivery.url)
        rest = split_wire(delivery.url).rest
        if self._is_prefix:
            prefix = split_text(named_url(str(self.prefix)) or str(self.prefix)).rest
            rest = rest[len(prefix.rstrip("/")) :]
        elif urlsplit(self._target).path:
            # A pattern has no part that the target's path could stand for.
            rest = ""
        headers = [
            pair for pair in delivery.headers if not pair[0].lower().startswith("x-forwarded-")
        ]
        headers += [
            ("X-Forwarded-Host", published.netloc.rpartition("@")[2]),
            ("X-Forwarded-Proto", published.scheme.lower()),
        ]
        return replace(delivery, url=self._target + rest, headers=headers)

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return await in_thread(self._perform, delivery, deadlines)


class _Answers(DestinationRoute):
    def __init__(self, *args: Any, replies: Sequence[Reply | BaseException]) -> None:
        super().__init__(*args)
        self._replies = replies
        self.given = 0
        self._lock = threading.Lock()

    def _saved(self) -> Any:
        with self._lock:
            return list(self.deliveries), self.given

    def _restore(self, saved: Any) -> None:
        super()._restore(saved)
        with self._lock:
            self.given = saved[1]

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        with self._lock:
            reply = self._replies[min(self.given, len(self._replies) - 1)]
            self.given += 1
        if isinstance(reply, BaseException):
            return _raised(reply, self.where)
        return outcome_of(reply, delivery, self.where)


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
        self._recorder = recorder
        self._routes: dict[Place, DestinationRoute] = {}
        self._runner: AsgiRunner | None = None
        self._elsewheres: Elsewheres | None = None
        self._lock = threading.Lock()

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
        route = _Wsgi(self, origin, "wsgi", raise_exceptions)
        route._app = app
        return self._add(route)

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
        route = _Asgi(self, origin, "asgi", raise_exceptions)
        route._app, route._lifespan = app, lifespan
        return self._add(route)

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
        route = _Call(self, url, "call", raise_exceptions)
        route._handler = fn
        return self._add(route)

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
        replies: list[Reply | BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                replies.append(answer)
                continue
            _check_is_no_status(answer)
            reply = as_reply(answer)
            if after and not reply.after and reply.ending == "answer":
                reply = Reply(reply.status, reply.body, reply.headers, after)
            replies.append(reply)
        return self._add(_Answers(self, url, "answers", raise_exceptions, replies=replies))

    def accept(self, url: Url = "*") -> DestinationRoute:
        """Answer 200 to everything under a prefix, or to every destination not named otherwise.

        ``"*"``, as any pattern, leaves the other fakes of the cloud alone, such as a capture.
        """
        __tracebackhide__ = True
        return self._add(_Answers(self, url, "accept", None, replies=[Reply()]))

    def hang(self, url: Url) -> DestinationRoute:
        """Never answer: each attempt uses up its whole timeout on the queue's clock."""
        __tracebackhide__ = True
        return self._add(_Answers(self, url, "hang", None, replies=[Reply.hang()]))

    def refuse(self, url: Url) -> DestinationRoute:
        """Refuse the connection, as a host where nothing listens."""
        __tracebackhide__ = True
        return self._add(_Answers(self, url, "refuse", None, replies=[Reply.refuse()]))

    def forward(self, url: Url, target: str) -> DestinationRoute:
        """Send what goes to a URL to a server that stands in for it, at another address.

        The path and the query below the prefix stay as they are; ``Host`` is the target's, and the
        published one is in ``X-Forwarded-Host`` and ``X-Forwarded-Proto``. Certificates are not
        checked. The one way by which a delivery leaves this machine: the target need not be a
        loopback address. Raises ``ContractError`` where it is no absolute HTTP URL.
        """
        __tracebackhide__ = True
        place = split_text(target) if isinstance(target, str) else None
        if place is None or not place.origin or "?" in place.rest or "*" in target:
            raise ContractError(
                f"{shown(target)} is not a target: give an absolute URL without a query, such as "
                "'http://127.0.0.1:3000'"
            )
        route = _Forward(self, url, "forward", None)
        route._target, route._sender = target.rstrip("/"), None
        return self._add(route)

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
            for prefix, known in list(self._routes.items()):
                if known is route:
                    del self._routes[prefix]

    def clear(self) -> None:
        """Take all routes out of the table."""
        with self._lock:
            self._routes.clear()

    def _saved(self) -> object:
        """Return the present routes and how far each of them is, for ``_restore``."""
        with self._lock:
            return [(prefix, route, route._saved()) for prefix, route in self._routes.items()]

    def _restore(self, saved: Any) -> None:
        """Return to the routes of a ``_saved()``, and to how far each of them was."""
        with self._lock:
            self._routes = {prefix: route for prefix, route, _ in saved}
            for _, route, state in saved:
                route._restore(state)

    def _close(self) -> None:
        """End the lifespans and the loop of ASGI applications that were called outside of one."""
        with self._lock:
            runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _loop_runner(self) -> AsgiRunner:
        """The loop for coroutines that are not driven from a running loop; started on first use."""
        with self._lock:
            if self._runner is None:
                # It imports asyncio, which nobody else of a queue needs.
                from .asgi import AsgiRunner

                self._runner = AsgiRunner()
            return self._runner

    def _elsewhere(self, app: AsgiApp) -> Elsewhere | None:
        """The application's lifespan, where somebody else runs it."""
        runner = self._runner
        if runner is not None and runner.has(app):
            return None
        if self._elsewheres is None:
            from .lifespans import Elsewheres

            self._elsewheres = Elsewheres()
        return self._elsewheres.find(app)

    def _add(self, route: DestinationRoute) -> DestinationRoute:
        place = place_of(route.prefix)
        with self._lock:
            self._routes.pop(place, None)
            self._routes[place] = route
        return route


def route_to(table: Destinations, url: str) -> DestinationRoute | None:
    """Return the route that takes a URL, or None."""
    target = split_wire(url if "://" in url else named_url(url) or url)
    with table._lock:
        best: tuple[int, DestinationRoute] | None = None
        for place, route in table._routes.items():
            if (best is None or place.length >= best[0]) and place.takes(target):
                best = (place.length, route)
    return best[1] if best else None


# -- slips ---------------------------------------------------------------------------------------


def _takes(app: Callable[..., object], count: int) -> bool:
    """Whether an application can be called with so many arguments; True where nobody knows."""
    try:
        inspect.signature(app).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


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


# -- outcomes ------------------------------------------------------------------------------------


def _outcome(handled: AppAnswer, where: str) -> Outcome:
    return Outcome(
        handled.status, handled.headers, handled.body, exception=handled.exception, where=where
    )


def _raised(error: BaseException, where: str) -> Outcome:
    return _outcome(failed(error), where)


async def _boxed(value: Any) -> tuple[Any]:
    return (await value,)


def _late(delivery: Delivery, deadlines: Deadlines, where: str) -> Outcome:
    return timed_out(delivery, where, f"no answer within {deadlines.cap:g} s of real time")


def _own_loop_late(delivery: Delivery, deadlines: Deadlines, where: str = "asgi") -> Outcome:
    return timed_out(
        delivery, where, deadlines.late_text("the destination ran in a loop of its own")
    )
