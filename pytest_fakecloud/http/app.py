"""The base class of all HTTP applications.

``App.respond`` is the pipeline: it finds the route of a request, records the request,
authenticates it, applies faults, calls the endpoint, encodes its result, and records the response.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import orjson

from ..core.calls import EVENT_KINDS, Call, CutBytes, Headers, record_cut
from ..core.errors import ContractError, ServiceError, formatted, raised_by_test, shown
from ..core.matching import Field
from ..core.recorder import Recorder
from ..core.registry import Registry
from ..core.violations import Violations, shortened
from .messages import (
    OUTCOME_OF_EFFECT,
    Answer,
    AnyResponse,
    ConnectionEffect,
    Json,
    Proceed,
    Request,
    Stream,
)
from .routing import Match, Route, RouteTable

if TYPE_CHECKING:
    from ..core.clock import Timekeeper


_LARGEST_KEYS = 64 * 1024  # characters of the keys that a violation can be allowed by
_json_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


Interceptor: TypeAlias = Callable[[Request, Proceed], AnyResponse]
"""A function around the rest of an exchange: it gets the request and ``proceed()``, which returns the
response of the next interceptors and the endpoint. It returns this response, changed or not, or another
one without calling ``proceed()``.
"""
EXPLORATION, FAULTS = 1, 2
"""The positions in a chain, in the order in which an exchange reaches them. An exploration is first: it
decides when a call is processed, and so which faults are active.
"""


_changing = threading.Lock()
"""Protects all chains."""


class Chain:
    """The interceptors of one app around each authenticated exchange, in the order of their positions.

    An exchange is a REST call, or a command over the Redis protocol, of which AUTH and HELLO pass the
    chain before their client is authenticated. Its ``Request`` has the client, the bytes and the
    identity, and ``request.call`` is its record in the journal::

        remove = app.chain.add(FAULTS, lambda request, proceed: proceed())

    Interceptors see an error of the service as an ``Answer``, which they can change or lose like any
    other. An exception that passes them is an error of the fake or of the test.
    """

    members: tuple[tuple[int, Interceptor], ...] = ()
    """The positions and the interceptors, in order."""

    def __contains__(self, interceptor: Interceptor) -> bool:
        return any(interceptor == member for _, member in self.members)

    def has(self, position: int) -> bool:
        """Return whether an interceptor has this position."""
        return any(position == member for member, _ in self.members)

    def add(self, position: int, interceptor: Interceptor) -> Callable[[], None]:
        """Add an interceptor after those of the same position; return a function that removes it."""
        with _changing:
            members = [*self.members, (position, interceptor)]
            self.members = tuple(sorted(members, key=itemgetter(0)))
        return partial(self.remove, interceptor)

    def remove(self, interceptor: Interceptor) -> None:
        """Remove an interceptor, if it is in the chain."""
        with _changing:
            self.members = tuple([member for member in self.members if member[1] != interceptor])

    def run(self, request: Request, proceed: Proceed) -> AnyResponse:
        """Return the response of the interceptors around ``proceed()``, the endpoint's."""
        for _, interceptor in reversed(self.members):
            proceed = partial(interceptor, request, proceed)
        return proceed()


class Instruments(NamedTuple):
    """What an app needs of its fake: the clock, the recorder of the journal, and the violations."""

    clock: Timekeeper
    recorder: Recorder
    violations: Violations


class App:
    """The HTTP side of one service. Subclasses define its routes and error format.

    A subclass defines ``service``, ``routes()``, ``authenticate()``, and overrides
    ``render_error()``, ``unknown_path()``, ``no_route()``, ``wrong_method()``, ``facts()`` and
    ``dump()`` as needed. Endpoints take a ``Request`` and return a ``Result``, or any object that is
    sent as JSON. They raise ``ServiceError`` for requests that the service would
    reject. They may wait only for the clock.
    """

    service: ClassVar[str] = ""
    fact_fields: ClassVar[Mapping[str, Field]] = {}
    """The facts that ``facts()`` can return, by which calls can be filtered and faults limited."""
    event_kinds: ClassVar[frozenset[str]] = frozenset()
    """The kinds of events that the service records in its journal, beside those of every service."""
    event_fields: ClassVar[Mapping[str, Field]] = {}
    """The data of these events, by which they can be filtered."""

    clients: Collection[object] = ()
    """Open connections with another protocol, over which requests can have arrived before."""
    token: str = ""
    """The token that authenticates requests, for a service with one token."""
    _table_of_class: ClassVar[RouteTable | None] = None

    def __init_subclass__(cls) -> None:
        cls._table_of_class = None  # not that of the base class
        if reserved := sorted(cls.event_kinds & EVENT_KINDS):
            raise ContractError(
                f"{cls.__name__}.event_kinds has {reserved[0]!r}, a kind of events of every service; "
                "give the event another name"
            )

    def __init__(self, instruments: Instruments) -> None:
        self.clock, self.recorder, self.violations = instruments
        self.name = self.recorder.fake
        self.recorder.register_app(self.service, self)
        self.guards: Registry[Callable[[Request], object]] = Registry()
        """Functions that are called with a request before it is authenticated, and raise
        ``ServiceError`` to reject it: twice if it has a large body.
        """
        self.rejection_listeners: Registry[Callable[[Request, ServiceError], object]] = Registry()
        """Functions that are called with a rejected request whose call is open."""
        self.chain = Chain()

    def leave_fake(self) -> None:
        """Let go of the journal of the closing fake, whose calls refer to this app to read their facts.
        Requests that are still handled get a response, but are not recorded.
        """
        self.recorder = Recorder(self.clock.now_us)
        self.recorder.keep = 0

    @cached_property
    def table(self) -> RouteTable:
        """The route table, by default that of all apps of the class."""
        cls = type(self)
        if cls._table_of_class is None:
            cls._table_of_class = RouteTable(cls.routes())
        return cls._table_of_class

    # -- defined by each service -----------------------------------------------------------------

    @classmethod
    def routes(cls) -> Sequence[Route]:
        """Return the routes of the service, whose endpoints ``run_endpoint()`` calls."""
        raise NotImplementedError

    def authenticate(self, request: Request) -> object:
        """Return the client's identity; raise ``ServiceError`` for missing or wrong credentials. A
        request with a large body is authenticated twice.
        """
        return None

    def render_error(self, error: ServiceError) -> Answer | Json:
        """Return an error in the service's format."""
        return Json({"error": error.message}, error.status, error.headers)

    def unknown_path(self, request: Request) -> Answer:
        """Return or raise the service's response to an unknown path."""
        raise ServiceError(404, f"Not Found: {request.method} {request.path}")

    def no_route(self, request: Request) -> str:
        """Return why a request to an unknown path has no route, for reports."""
        return f"no route for it; nearest: {self.table.nearest(request.method, request.path)}"

    def wrong_method(self, request: Request, allowed: frozenset[str]) -> Answer:
        """Return or raise the service's response to a method that the path does not accept."""
        raise ServiceError(
            405, "Method Not Allowed", headers=[("Allow", ", ".join(sorted(allowed)))]
        )

    def facts(self, request: Request) -> dict[str, Any]:
        """Return the facts of a request for faults and reports (``command``, ``topic``, …)."""
        return {}

    def is_handshake(self, call: Call) -> bool:
        """Return whether client libraries make a call by themselves, to set up or end a connection."""
        return False

    def names_handshake(self, conditions: Mapping[str, object]) -> bool:
        """Return whether conditions on calls name commands for which ``is_handshake()`` is true."""
        return False

    def words(self) -> Iterable[str]:
        """Yield the names of routes and commands, by which calls can be filtered."""
        return (route.name for route in self.table.routes)

    def dump(self, value: object) -> bytes:
        try:
            return orjson.dumps(value)
        except TypeError:
            # orjson rejects integers beyond 64 bits, keys other than strings, lone surrogates.
            return _json_text(value).encode("utf-8", "surrogatepass")

    # -- the pipeline ----------------------------------------------------------------------------

    def respond(self, request: Request, *, in_client: bool = False) -> AnyResponse:
        """Return the response to a REST request, and record both before the response is sent, so that a
        client that has its response finds the whole call in the journal.

        With ``in_client``, the client's code runs in this thread, so exceptions such as those of Ctrl-C
        and ``pytest.fail()``, which are no ``Exception``, are raised in it.
        """
        if self.clients:
            self.catch_up()
        at_us = self.settle() if self.clock.state_timers else self.clock.now_us()
        match = self.route_request(request)
        self._open_call(request, at_us)
        response: AnyResponse
        try:
            try:
                self.admit(request)
            except ServiceError as error:
                response = self._rejection(request, error)
            else:
                if self.chain.members:
                    response = self.chain.run(request, partial(self.call_endpoint, request, match))
                else:
                    response = self.call_endpoint(request, match)
        except BaseException as error:
            if in_client and not isinstance(error, Exception):
                # Without an outcome, the call would count as in progress forever.
                request.call.outcome = "broken off"
                self.recorder.close_call(request.call)
                raise
            response = self.rendered(self.report_bug(request, error))
        self.record(request.call, response)
        return response

    def settle(self) -> int:
        """Change the data whose time has come, before a call sees it; return the time of the call."""
        try:
            return self.clock.settle()
        except Exception as error:
            self.violations.report_bug(error, f"{self.name}: a timer failed", fake=self.name)
            return self.clock.now_us()

    def catch_up(self) -> None:
        """Wait for requests that have arrived, if their clients need not wait for the responses."""

    def admit(self, request: Request) -> None:
        """Call the guards, and authenticate a request; raise ``ServiceError`` to reject it."""
        for guard in self.guards.items:
            guard(request)
        request.principal = self.authenticate(request)

    def reject_head(self, request: Request) -> Answer | None:
        """Record the rejection of a request of which only the head has arrived, and return the response;
        return None if the server must read the body.
        """
        self.route_request(request)
        try:
            self.admit(request)
        except ServiceError as error:
            self._open_call(request, self.settle())
            response = self._rejection(request, error)
            self.record(request.call, response)
            return response
        except Exception:
            return None  # respond() will raise and report it, once the body has arrived.
        return None

    def route_request(self, request: Request) -> Match:
        """Find the route of a request, and set its name and the parameters."""
        match = self.table.match(request.method, request.path)
        if match.route is not None:
            request.route, request.params = match.route.name, match.params
        return match

    def _open_call(self, request: Request, at_us: int) -> None:
        recorder, headers, body = self.recorder, request.headers, request.body
        request.call = Call(
            0, at_us, recorder.service, recorder.fake, request.method, request.target, headers, body,
            request.client, self, request.route,
        )  # fmt: skip
        recorder.begin_call(request.call, len(request.target) + headers.size + len(body))

    def call_endpoint(self, request: Request, match: Match) -> AnyResponse:
        """Return the response of the endpoint, also to an error of the service: the end of the chain."""
        try:
            if match.route is None:
                return self.no_endpoint(request, match.allowed)
            result = self.run_endpoint(request, match.route)
        except ServiceError as error:
            return self.rendered(error)
        request.call.reached = True
        return self._encoded(result)

    def run_endpoint(self, request: Request, route: Route) -> object:
        """Return the result of the endpoint of a route. Services override this for what all their
        endpoints share.
        """
        return route.endpoint(self, request)

    def _rejection(self, request: Request, error: ServiceError) -> Answer:
        """Return the response to a request that was not admitted."""
        length = int(request.fields.get("content-length", "0"))
        if len(request.body) < length:  # The server has not read all of it.
            record_cut(request.call, dict.fromkeys(("facts", "request_body"), length))
        if error.status == 401:
            # The journal keeps only the beginning of a request without valid credentials.
            self.recorder.shorten(request.call)
        for listener in self.rejection_listeners.items:
            listener(request, error)
        return self.rendered(error)

    def rendered(self, error: ServiceError) -> Answer:
        """Return the encoded response to an error."""
        response = self._encoded(self.render_error(error))
        assert isinstance(response, Answer)
        return response

    def _encoded(self, result: object) -> AnyResponse:
        """Return the response for an endpoint's result."""
        if isinstance(result, Json):
            return Answer(_compact(self.dump(result.value)), result.status, result.headers)
        if isinstance(result, (Answer, Stream, ConnectionEffect)):
            return result
        return Answer(_compact(self.dump(result)))

    def no_endpoint(self, request: Request, allowed: frozenset[str]) -> Answer:
        """Report a request without a route, whose path accepts the ``allowed`` methods; return or raise
        the service's response.
        """
        self._report_unrouted(request, allowed)
        if allowed:
            return self.wrong_method(request, allowed)
        return self.unknown_path(request)

    def record_malformed(self, status: int, reason: str) -> None:
        """Record that the server rejected bytes that are not a valid request."""
        what = "a request" if status >= 500 else "bytes that are not a valid request"
        text = f"{status} for {what}: {shortened(reason)}"
        self.recorder.add_event("refused", text)

    def unknown_method(self, request: Request) -> Answer:
        """Return the response to a request with a method that no path accepts, of which only the
        method and the target have been read. The response for an unknown path lists the methods of
        all paths.
        """
        self._open_call(request, self.clock.now_us())
        allowed = self.table.match(request.method, request.path).allowed
        self._report_unrouted(request, allowed)
        everywhere = (route.methods.split() for route in self.table.routes)
        try:
            response = self.wrong_method(request, allowed or frozenset().union(*everywhere))
        except ServiceError as error:
            response = self.rendered(error)
        self.record(request.call, response)
        return response

    def stream_failed(self, request: Request, error: Exception) -> None:
        """Report an exception that interrupted a stream. The client receives a truncated response."""
        request.call.outcome = "broken off"
        self.report_bug(request, error)

    def report_bug(self, request: Request, error: BaseException) -> ServiceError:
        """Report an exception while a request was handled: a bug, or an error in a callback. Return the
        error to respond with.
        """
        call = request.call
        internal = ServiceError(500, f"internal error: {shown(error)}")
        call.note = formatted(error)
        request_line = f"{self.name}: {request.method} {shortened(request.target)}"
        of_test = raised_by_test(error)
        if of_test is not None:
            call.violation = "assertion"
            facts = {"fake": self.name, **_keys_of(call)}
            self.violations.report_raised(of_test, f"{request_line} was answered 500", **facts)
            return internal
        call.violation = "bug"
        facts = {"path": shortened(request.path), "fake": self.name, **_keys_of(call)}
        if isinstance(error, ContractError):
            why = f"was answered 500, because of an error in a callback of the test: {error}"
            self.violations.report(
                "bug", f"{request_line} {why}\n{call.note}", exception=error, **facts
            )
        else:
            self.violations.report_bug(error, f"{request_line} made the fake itself fail", **facts)
        return internal

    def _report_unrouted(self, request: Request, allowed: frozenset[str]) -> None:
        call = request.call
        call.violation = "unrouted"
        accepted = f"the path accepts {', '.join(sorted(allowed))}"
        reason = accepted if allowed else self.no_route(request)
        call.note = reason
        self.violations.report(
            "unrouted",
            f"{self.name} got {request.method} {shortened(request.target)}: {reason}",
            path=shortened(request.path),
            method=request.method,
            fake=self.name,
        )

    def facts_of(self, call: Call) -> dict[str, Any]:
        """Return the facts of a recorded request."""
        # Parse the recorded request again, so that the journal need not keep requests as well.
        request = Request(
            call.method, call.target, call.request_headers, call.request_body, call.client
        )
        self.route_request(request)
        try:
            return self.facts(request)
        except Exception:
            # A body that cannot be parsed has no facts. The endpoint reports the error.
            return {}

    def record(self, call: Call, response: AnyResponse) -> None:
        """Record the response to a request, which ends its call."""
        if isinstance(response, Answer):
            call.status = response.status
            if response.headers:
                call.response_headers = Headers(tuple(response.headers))
            call.response_body = body = response.body
            if isinstance(body, CutBytes):
                record_cut(call, {"response_body": body.size})
            call.outcome = "altered" if response.altered else "answered"
        elif isinstance(response, Stream):
            call.status = response.status
            call.outcome = "streamed"
        else:
            call.outcome = OUTCOME_OF_EFFECT[response.kind]
            if response.answer is not None:
                call.status = response.answer.status
        self.recorder.close_call(call)


def _compact(data: bytes) -> bytes:
    """Copy a short result of orjson, which allocates at least 4 KB: the journal keeps it."""
    return b"%b" % data if len(data) < 4096 else data


def _keys_of(call: Call) -> dict[str, Any]:
    """Return the keys of a call's commands as a fact of a violation, unless they are too large."""
    keys = call.facts.get("key")
    if not keys or "key" in call.cut or sum(map(len, keys)) > _LARGEST_KEYS:
        return {}
    return {"key": keys}
