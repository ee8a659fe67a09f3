"""Routes of the destinations table: applications, functions, prepared responses and other servers.

Applications and functions run in the caller's thread. Coroutines run in the running event loop if
the test awaits the delivery, otherwise in the queue's own event loop. Source: decided here, except
that an exception in a handler is a 500, as in any server.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ...core.concurrency.aio import in_thread
from ...core.errors import broken_promise
from ...core.matching import Field
from ...core.results import Results, results_of
from ...core.wording import brief, shortfall
from ...faults.answers import Response
from ..model import Delivery, Outcome
from ..wire.targets import named_url
from .applications import AsgiApp, WsgiApp, call_asgi, call_wsgi, failed
from .deadlines import CapReached, Deadlines
from .replies import DELIVERIES, DeliveredRequest, Handler, as_reply, outcome_of, timed_out
from .url_scopes import Url, split_text, split_wire

if TYPE_CHECKING:
    from .destinations import Destinations
    from .event_loops import AsgiRunner
    from .running_lifespans import RunningLifespan


LifespanMode: TypeAlias = Literal["auto"] | bool


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
        self._prefix = spec.prefix
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


class AsgiRoute(DestinationRoute):
    """Answers deliveries with an ASGI application."""

    def __init__(self, spec: RouteSpec, *, app: AsgiApp, lifespan: LifespanMode) -> None:
        super().__init__(spec)
        self._app = app
        self._lifespan = lifespan

    def _running_lifespan(self) -> RunningLifespan | None:
        return (
            None if self._lifespan is True else self._table._event_loops.running_lifespan(self._app)
        )

    def _perform(self, delivery: Delivery, deadlines: Deadlines) -> Outcome:
        return self._perform_in(self._running_lifespan(), delivery, deadlines)

    def _perform_in(
        self, running: RunningLifespan | None, delivery: Delivery, deadlines: Deadlines
    ) -> Outcome:
        """Call the application in the loop of its running lifespan or in the queue's own loop."""
        from .event_loops import LoopEnded

        runner = self._table._event_loops.runner()
        work = self._start_and_call(runner, running, delivery)
        try:
            return runner.run(work, deadlines, running.host if running else None)
        except LoopEnded as error:
            return failed(error)

    async def _start_and_call(
        self, runner: AsgiRunner, running: RunningLifespan | None, delivery: Delivery
    ) -> Outcome:
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
        if running is not None and running.host.runs_elsewhere:
            # Call the application in its own loop, to which its resources belong.
            return await in_thread(self._perform_in, running, delivery, deadlines)
        state = running.state if running is not None else {}
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
                value = self._table._event_loops.runner().run(value, deadlines)
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
