"""Routes of the destinations table: applications, functions, prepared answers and other servers.

Applications and functions run in the caller's thread. Coroutines run in the running event loop if
the test awaits the delivery, otherwise in the queue's own event loop. Source: decided here, except
that an exception in a handler is a 500, as in any server.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ...core.concurrency.aio import in_thread
from ...core.errors import ContractError, broken_promise, shown
from ...core.field_types import TEXT
from ...core.found import Found, found_of
from ...core.matching import Question
from ...core.wording import brief
from ..model import Delivery, Outcome
from ..wire.targets import named_url
from ..wire.text import as_text
from .applications import AppAnswer, AsgiApp, WsgiApp, call_asgi, call_wsgi, failed
from .deadlines import CapReached, Deadlines
from .replies import DELIVERIES, DeliveredRequest, Handler, Reply, as_reply, outcome_of, timed_out

if TYPE_CHECKING:
    from .destinations import Destinations
    from .event_loops import AsgiRunner, RunningLifespan


_DEFAULT_PORTS = {"http": 80, "https": 443}
LifespanMode: TypeAlias = Literal["auto"] | bool
Url: TypeAlias = str | re.Pattern[str] | Callable[[str], object]
"""The URLs of a route: a prefix, a pattern with ``*``, a regular expression or a function."""


class Target(NamedTuple):
    """A URL split for comparison. ``origin`` is empty if the URL is malformed."""

    url: str
    origin: str
    rest: str


@dataclass(frozen=True)
class Everything:
    """Matches every URL that no other route matches."""

    length: int = -1

    def takes(self, target: Target) -> bool:
        return True


@dataclass(frozen=True)
class Pattern:
    """Matches URLs by a wildcard, a regular expression or a function."""

    wanted: object
    asked: Question = field(compare=False)
    length: int = 0

    def takes(self, target: Target) -> bool:
        return self.asked.why_not(target.url) is None


@dataclass(frozen=True)
class Prefix:
    """Matches the URLs of an origin at or below a path. Only whole path segments match."""

    origin: str
    rest: str

    @property
    def length(self) -> int:
        """The rank of the scope among all scopes that match a URL."""
        return len(self.origin) + len(self.rest)

    def takes(self, target: Target) -> bool:
        if self.origin != target.origin or not target.rest.startswith(self.rest):
            return False
        following = target.rest[len(self.rest) : len(self.rest) + 1]
        return self.rest[-1:] in ("", "/") or following in ("", "/", "?", "&")


UrlScope: TypeAlias = Everything | Pattern | Prefix
"""The URLs that a route matches. If several scopes match a URL, the longest one wins."""


def scope_of(url: object) -> UrlScope:
    """Return the scope for a URL argument; raise ``ContractError`` if it is not a destination."""
    __tracebackhide__ = True
    if url == "*":
        return Everything()
    target = split_text(named_url(url) or url) if isinstance(url, str) else None
    if callable(url) or hasattr(url, "pattern") or (target and target.origin and "*" in target.url):
        return Pattern(url, Question("url", url, TEXT))
    if target is None or not target.origin:
        raise ContractError(
            f"{shown(url)} is not a destination; pass an absolute URL such as "
            "'https://app.example.com/hook', one with * for anything, a pattern, a function of the "
            "URL, or '*' for all other destinations"
        )
    return Prefix(target.origin, "" if target.rest == "/" else target.rest)


def split_wire(url: str) -> Target:
    """Split a URL that has one character per byte, as messages store it."""
    return split_text(url if url.isascii() else as_text(url))


@lru_cache(maxsize=1024)  # A test delivers to few URLs, but often.
def split_text(url: str) -> Target:
    """Split a URL into a comparable origin, empty if the URL is malformed, and the rest."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return Target(url, "", url)
    scheme, host = parts.scheme.lower(), (parts.hostname or "").rstrip(".")
    if scheme not in _DEFAULT_PORTS or not host:
        return Target(url, "", url)
    origin = f"{scheme}://{host}:{port or _DEFAULT_PORTS[scheme]}"
    return Target(url, origin, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


class RouteSpec(NamedTuple):
    """The arguments that the routes of all kinds have.

    ``where`` is the kind of destination that outcomes and reports name. If ``raise_exceptions`` is
    None, the table's setting applies.
    """

    table: Destinations
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
        self.prefix = spec.prefix
        self.where = spec.where
        self.deliveries: Found[DeliveredRequest] = found_of((), DELIVERIES, "delivery")
        self._table = spec.table
        self._raise_exceptions = spec.raise_exceptions

    @property
    def _is_prefix(self) -> bool:
        return isinstance(self.prefix, str) and "*" not in self.prefix

    @property
    def raise_exceptions(self) -> bool:
        """Whether the call that made a delivery raises the handler's exception."""
        if self._raise_exceptions is None:
            return self._table.raise_exceptions
        return self._raise_exceptions

    def remove(self) -> None:
        """Remove this route. The route with the next shorter prefix then receives its deliveries."""
        self._table.remove(self)

    def _saved(self) -> Any:
        return (list(self.deliveries),)

    def _restore(self, saved: Any) -> None:
        self.deliveries[:] = saved[0]

    def _take(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        self._record(delivery)
        try:
            outcome = self._perform(delivery, deadlines)
        except CapReached as error:
            return timed_out(delivery, self.where, str(error))
        return self._mark_raising(outcome)

    async def _atake(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        self._record(delivery)
        try:
            outcome = await self._aperform(delivery, deadlines)
        except CapReached as error:
            return timed_out(delivery, self.where, str(error))
        return self._mark_raising(outcome)

    def _mark_raising(self, outcome: Outcome) -> Outcome:
        # Without a status, the exception is not from the handler, but a timeout, for example.
        if outcome.exception is None or outcome.status is None or not self.raise_exceptions:
            return outcome
        return replace(outcome, raises=True)

    def _record(self, delivery: Delivery) -> None:
        self.deliveries.append(DeliveredRequest(delivery))
        keep = self._table.keep
        # Remove old deliveries only when the list is a quarter too long, because removal is slow.
        if keep is not None and len(self.deliveries) > keep + keep // 4:
            del self.deliveries[: -keep or None]

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        raise NotImplementedError

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return self._perform(delivery, deadlines)

    def __repr__(self) -> str:
        prefix = self.prefix if isinstance(self.prefix, str) else brief(self.prefix)
        return f"<DestinationRoute {self.where} {prefix} deliveries={len(self.deliveries)}>"


class WsgiRoute(DestinationRoute):
    """Answers deliveries with a WSGI application."""

    def __init__(self, spec: RouteSpec, *, app: WsgiApp) -> None:
        super().__init__(spec)
        self._app = app

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return _outcome(call_wsgi(self._app, delivery), self.where)


class AsgiRoute(DestinationRoute):
    """Answers deliveries with an ASGI application."""

    def __init__(self, spec: RouteSpec, *, app: AsgiApp, lifespan: LifespanMode) -> None:
        super().__init__(spec)
        self._app = app
        self._lifespan = lifespan

    def _running_lifespan(self) -> RunningLifespan | None:
        return None if self._lifespan is True else self._table.loops.running_lifespan(self._app)

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return self._perform_in(self._running_lifespan(), delivery, deadlines)

    def _perform_in(
        self, running: RunningLifespan | None, delivery: Delivery, deadlines: Deadlines
    ) -> Outcome:
        """Call the application in the loop of its running lifespan or in the queue's own loop."""
        from .event_loops import LoopEnded

        runner = self._table.loops.runner()
        work = self._start_and_call(runner, running, delivery)
        try:
            answer = runner.run(work, deadlines, running.host if running else None)
        except LoopEnded as error:
            answer = failed(error)
        return _outcome(answer, self.where)

    async def _start_and_call(
        self, runner: AsgiRunner, running: RunningLifespan | None, delivery: Delivery
    ) -> AppAnswer:
        state: Mapping[str, Any] = {}
        try:
            if running is not None:
                state = running.state
            elif self._lifespan:
                state = await runner.lifespan(self._app)
        except RuntimeError as error:
            return failed(broken_promise(error.__cause__) or error)
        return await call_asgi(self._app, delivery, state)

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        running = self._running_lifespan()
        if running is not None and running.host.is_running and not running.host.runs_in_this_thread:
            # Call the application in its own loop, to which its resources belong.
            return await in_thread(self._perform_in, running, delivery, deadlines)
        state = running.state if running is not None else {}
        answer = await deadlines.within_cap(call_asgi(self._app, delivery, state))
        return _outcome(answer, self.where)


class FunctionRoute(DestinationRoute):
    """Answers deliveries with a function or coroutine function of one ``DeliveredRequest``."""

    def __init__(self, spec: RouteSpec, *, handler: Handler) -> None:
        super().__init__(spec)
        self._handler = handler

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        try:
            value = self._handler(DeliveredRequest(delivery))
            if inspect.isawaitable(value):
                value = self._table.loops.runner().run(value, deadlines)
        except CapReached:
            raise
        except Exception as error:
            return _outcome(failed(error), self.where)
        return outcome_of(as_reply(value), delivery, self.where)

    async def _aperform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        try:
            value = self._handler(DeliveredRequest(delivery))
            if inspect.isawaitable(value):
                value = await deadlines.within_cap(value)
        except CapReached:
            raise
        except Exception as error:
            return _outcome(failed(error), self.where)
        return outcome_of(as_reply(value), delivery, self.where)


class ForwardRoute(DestinationRoute):
    """Sends each delivery to a server at another address."""

    def __init__(self, spec: RouteSpec, *, target: str) -> None:
        super().__init__(spec)
        self._target = target.rstrip("/")

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        outcome = self._table._forwarder(deadlines).send(self._forwarded(delivery))
        return replace(outcome, where=self.where)

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
    """Answers deliveries with prepared answers in turn, and repeats the last one."""

    def __init__(self, spec: RouteSpec, *, replies: Sequence[Reply | BaseException]) -> None:
        super().__init__(spec)
        self._replies = replies
        self.given = 0
        self._lock = threading.Lock()

    def _saved(self) -> Any:
        with self._lock:
            return *super()._saved(), self.given

    def _restore(self, saved: Any) -> None:
        super()._restore(saved)
        with self._lock:
            self.given = saved[1]

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        with self._lock:
            reply = self._replies[min(self.given, len(self._replies) - 1)]
            self.given += 1
        if isinstance(reply, BaseException):
            return _outcome(failed(reply), self.where)
        return outcome_of(reply, delivery, self.where)


def _outcome(answer: AppAnswer, where: str) -> Outcome:
    return Outcome(
        answer.status, answer.headers, answer.body, exception=answer.exception, where=where
    )
