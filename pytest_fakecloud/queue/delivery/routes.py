"""The routes of a queue's destinations: the URLs they match, the handlers, and their responses."""

from __future__ import annotations

import inspect
import re
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from ...core.calls import Headers, parsed_body
from ...core.clock import asyncio_is_running, in_thread
from ...core.errors import ContractError, brief, broken_promise, shortfall, shown
from ...core.field_types import JSON, MESSAGE_ID, METHOD, TEXT, URL, Shaped, is_pattern
from ...core.frames import code_place, is_own
from ...core.journal import Results, results_of
from ...core.matching import HEADERS, Field, ItemFields, Question
from ...faults.answers import Response
from ..model import Delivery, Outcome
from ..views import json_of
from ..wire.headers import named_url
from ..wire.values import as_text
from .applications import (
    Address,
    CapReached,
    Deadlines,
    MissingState,
    call_asgi,
    call_wsgi,
    failed,
    origin_text,
    timed_out,
)

if TYPE_CHECKING:
    from .destinations import Destinations
    from .route_context import RouteContext

Url: TypeAlias = str | re.Pattern[str] | Callable[[str], object]
"""The URLs of a route: a prefix, a pattern with ``*``, a regular expression or a function."""


class SplitUrl(NamedTuple):
    """A URL split for comparison. ``origin`` is empty if the URL is malformed."""

    text: str
    origin: str
    rest: str


class Pattern:
    """Matches URLs by a wildcard, a regular expression or a function. Any prefix is longer."""

    def __init__(self, condition: object) -> None:
        self.wanted = condition
        self.length = -1 if condition == "*" else 0
        self._asked = Question("url", condition, TEXT)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.wanted == self.wanted

    def __hash__(self) -> int:
        return hash(self.wanted)

    def matches(self, url: SplitUrl) -> bool:
        # "*" matches every URL, so skip the comparison.
        return self.length < 0 or self._asked.agrees(url.text)


class Prefix(NamedTuple):
    """Matches the URLs of an origin at or below a path. Only whole path segments match."""

    origin: str
    rest: str
    length: int
    """The rank of the scope among all scopes that match a URL."""

    def matches(self, url: SplitUrl) -> bool:
        if self.origin != url.origin or not url.rest.startswith(self.rest):
            return False
        following = url.rest[len(self.rest) : len(self.rest) + 1]
        # A prefix with a query matches further parameters.
        return self.rest[-1:] in ("", "/") or following in ("", "/", "?", "&")


UrlScope: TypeAlias = Pattern | Prefix
"""The URLs that a route matches. If several scopes match a URL, the longest one wins."""


def scope_of(url: object) -> UrlScope:
    """Return the scope for a URL argument; raise ``ContractError`` if it is not a destination."""
    __tracebackhide__ = True
    split = split_text(named_url(url) or url) if isinstance(url, str) else SplitUrl("", "", "")
    has_wildcard = url == "*" or (split.origin and "*" in split.text)
    if has_wildcard or callable(url) or is_pattern(url):
        return Pattern(url)
    if not split.origin:
        raise ContractError(
            f"{shown(url)} is not a destination; pass an absolute URL such as "
            "'https://app.example.com/hook', one with * for anything, a pattern, a function of the "
            "URL, or '*' for all other destinations"
        )
    path = "" if split.rest == "/" else split.rest
    return Prefix(split.origin, path, len(split.origin) + len(path))


@lru_cache(maxsize=1024)  # A test delivers to few URLs, but often.
def split_wire(url: str) -> SplitUrl:
    """Split a URL that has one character per byte, as messages store it."""
    return split_text(as_text(url))


def split_text(url: str) -> SplitUrl:
    """Split a URL into a comparable origin, empty if the URL is malformed, and the rest."""
    try:
        address = Address.of(url)
    except ValueError:
        return SplitUrl(url, "", url)
    host = address.host.rstrip(".")
    if address.scheme not in ("http", "https") or not host:
        return SplitUrl(url, "", url)
    return SplitUrl(url, f"{address.scheme}://{host}:{address.port}", address.target)


class DestinationRoute:
    """A route of the destinations table, with the URLs it matches and the handler that answers
    them.
    """

    def __init__(
        self,
        table: Destinations,
        context: RouteContext,
        prefix: Url,
        where: str,
        to: Any,
        raise_exceptions: bool | None = None,
    ) -> None:
        self._prefix = prefix
        self._is_prefix = isinstance(prefix, str) and "*" not in prefix
        self._where = where
        """The kind of destination that outcomes and reports name."""
        self._to = to
        """The receiver of deliveries: an application, a function, a URL, or prepared responses."""
        self._deliveries: Results[DeliveredRequest] = results_of((), DELIVERIES, "delivery")
        self._table: Destinations = weakref.proxy(table)
        self._context = context
        self._raise_exceptions = raise_exceptions
        """If it is None, the table's setting applies."""
        self._given = 0
        """The number of prepared responses that were given."""
        self._most_given = 0
        """The largest value of ``_given``, which a restored snapshot does not reduce."""
        self._required = len(to) if where == "respond" and len(to) > 1 else 0
        """Number of prepared responses that a strict test must use. One alone need not be used."""
        self._lock = threading.Lock()

    @property
    def prefix(self) -> Url:
        """The URLs that the route matches: a prefix, a pattern with ``*``, a regular expression or a
        function.
        """
        return self._prefix

    @property
    def deliveries(self) -> Results[DeliveredRequest]:
        """The requests that this route received, oldest first. In a long-running server, it keeps only
        as many of them as the journal keeps entries.
        """
        caller, recorder = sys._getframe(1), self._context.recorder
        if recorder is not None and not is_own(caller):
            arguments = (self._prefix,), dict[str, object]()
            recorder.note_look("deliveries", code_place(caller), arguments, self._context.name)
        return self._deliveries

    @property
    def raise_exceptions(self) -> bool:
        """Whether the call that made a delivery raises the handler's exception."""
        if self._raise_exceptions is None:
            return self._table.raise_exceptions
        return self._raise_exceptions

    def remove(self) -> None:
        """Remove this route. The route with the next shorter prefix then receives its deliveries."""
        self._table.remove(self)

    def _forget_expectation(self) -> None:
        """Stop requiring that all prepared responses are used."""
        self._required = 0

    def _unmet(self) -> str | None:
        """Describe prepared responses that were not used, or return None."""
        if self._most_given >= self._required:
            return None
        used = shortfall("given", self._most_given, self._required)
        return f"the prepared responses of {brief(self.prefix)} were {used}"

    def _saved(self) -> Any:
        with self._lock:
            return list(self._deliveries), self._given

    def _restore(self, saved: Any) -> None:
        with self._lock:
            self._deliveries[:], self._given = saved

    def _written(self) -> Any:
        """Return the route as a state file has it; None if JSON cannot describe it."""
        return None

    async def _take(self, delivery: Delivery, deadlines: Deadlines, in_loop: bool) -> Outcome:
        self._record(delivery)
        try:
            answer = self._perform(delivery, deadlines, in_loop)
            if in_loop and inspect.isawaitable(answer):
                answer = await answer
        except CapReached as error:
            answer = timed_out(delivery, str(error))
        except Exception as error:
            answer = failed(error)
        outcome = answer if isinstance(answer, Outcome) else outcome_of(as_reply(answer), delivery)
        # Without a status, the exception is not from the handler, but a timeout, for example.
        of_handler = outcome.exception is not None and outcome.status is not None
        return outcome._replace(where=self._where, raises=of_handler and self.raise_exceptions)

    def _record(self, delivery: Delivery) -> None:
        self._deliveries.append(DeliveredRequest(delivery))
        recorder = self._context.recorder
        keep = None if recorder is None else recorder.keep
        # Remove old deliveries only when the list is a quarter too long, because removal is slow.
        if keep is not None and len(self._deliveries) > keep + keep // 4:
            del self._deliveries[: -keep or None]

    def _perform(self, delivery: Delivery, deadlines: Deadlines, in_loop: bool) -> object:
        """Return the outcome of a delivery or the result of a function. If ``in_loop``, it may be
        awaitable.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        prefix = self.prefix if isinstance(self.prefix, str) else brief(self.prefix)
        return f"<DestinationRoute {self._where} {prefix} deliveries={len(self.deliveries)}>"


class RouteParts(NamedTuple):
    """What other modules of this package need of a route beside what a test may use."""

    where: str
    """The kind of destination: ``wsgi``, ``asgi``, ``call``, ``respond``, …"""
    to: Any
    """The receiver of deliveries: an application, a function, a URL, or prepared responses."""


def parts_of(route: DestinationRoute) -> RouteParts:
    """Return the parts of a route."""
    return RouteParts(route._where, route._to)


ROUTES: Mapping[str, Field] = dict.fromkeys(
    ("prefix", "where", "deliveries", "raise_exceptions"), Field()
)
"""Fields by which routes can be filtered."""


class WsgiRoute(DestinationRoute):
    """Answers deliveries with a WSGI application."""

    def _perform(self, delivery: Delivery, deadlines: Deadlines, in_loop: bool) -> object:
        if not in_loop:
            return call_wsgi(self._to, delivery)
        # A server also calls a WSGI application outside its event loop.
        asgiref = sys.modules.get("asgiref.sync")
        # After async_to_sync(), the executor is None.
        has_executor = asgiref and getattr(asgiref.AsyncToSync.executors, "current", None)
        if asgiref is not None and has_executor and asyncio_is_running():
            # The loop runs for async_to_sync(), whose thread has the connection to Django's database.
            return asgiref.sync_to_async(call_wsgi)(self._to, delivery)
        return in_thread(call_wsgi, self._to, delivery)


_NOT_STARTED = "the queue does not run the lifespan with lifespan=False: pass lifespan=True"


_STARTED_BY_TEST = (
    "awaitable methods call the application in the test's event loop, in which the queue does not "
    "run its lifespan: use the other methods (queue.run_until_idle()) with lifespan=True, or pass "
    "asgi() an application that adds the state itself, such as the one of asgi-lifespan's manager"
)


class AsgiRoute(DestinationRoute):
    """Answers deliveries with an ASGI application."""

    def __init__(self, *given: Any, lifespan: bool) -> None:
        super().__init__(*given)
        self._lifespan = lifespan

    def _perform(self, delivery: Delivery, deadlines: Deadlines, in_loop: bool) -> object:
        if in_loop:
            state = MissingState(_STARTED_BY_TEST)
            return deadlines.within_cap(call_asgi(self._to, delivery, state))
        return self._context.run("asgi", self._start_and_call(delivery), deadlines)

    async def _start_and_call(self, delivery: Delivery) -> Outcome:
        if not self._lifespan:
            return await call_asgi(self._to, delivery, MissingState(_NOT_STARTED))
        try:
            state = await self._context.runner.lifespan(self._to)
        except RuntimeError as error:
            return failed(broken_promise(error.__cause__) or error)
        return await call_asgi(self._to, delivery, state)


class FunctionRoute(DestinationRoute):
    """Answers deliveries with a function or coroutine function of one ``DeliveredRequest``."""

    def _perform(self, delivery: Delivery, deadlines: Deadlines, in_loop: bool) -> object:
        value = self._to(DeliveredRequest(delivery))
        if not inspect.isawaitable(value):
            return value
        if in_loop:
            return deadlines.within_cap(value)
        return self._context.run("call", value, deadlines)


class ForwardRoute(DestinationRoute):
    """Sends each delivery to a server at another address."""

    def _written(self) -> Any:
        return {"forward": self._to}

    def _perform(self, delivery: Delivery, deadlines: Deadlines, in_loop: bool) -> object:
        sender = self._context.loopback(deadlines)
        send = partial(sender.send, self._forwarded(delivery), keeps=False)
        return in_thread(send) if in_loop else send()

    def _forwarded(self, delivery: Delivery) -> Delivery:
        published = urlsplit(delivery.url)
        target = split_wire(delivery.url).rest
        if self._is_prefix:
            prefix = split_text(named_url(str(self.prefix)) or str(self.prefix)).rest
            target = target[len(prefix.rstrip("/")) :]
        elif urlsplit(self._to).path:
            # Drop the published path, because a pattern has no prefix to replace.
            target = ""
        headers = [
            pair for pair in delivery.headers if not pair[0].lower().startswith("x-forwarded-")
        ]
        headers += [
            ("X-Forwarded-Host", published.netloc.rpartition("@")[2]),
            ("X-Forwarded-Proto", published.scheme.lower()),
        ]
        return delivery._replace(url=self._to + target, headers=headers)


class PreparedRoute(DestinationRoute):
    """Answers deliveries with prepared responses in turn, and repeats the last one."""

    def _written(self) -> Any:
        with self._lock:
            left = self._to[min(self._given, len(self._to) - 1) :]
        return (
            None
            if any(isinstance(reply, BaseException) for reply in left)
            else [reply._written() for reply in left]
        )

    def _perform(self, delivery: Delivery, deadlines: Deadlines, in_loop: bool) -> Outcome:
        with self._lock:
            reply = self._to[min(self._given, len(self._to) - 1)]
            self._given += 1
            self._most_given = max(self._most_given, self._given)
        if isinstance(reply, BaseException):
            return failed(reply)
        return outcome_of(reply, delivery)


ResponseLike: TypeAlias = (
    int
    | tuple[Any, ...]
    | Response
    | str
    | bytes
    | dict[str, Any]
    | list[Any]
    | BaseException
    | None
)
"""A response of a destination: a status, ``(status, body)``, ``(status, body, headers)``, a
``Response``, a body, None for 200, or an exception to raise.
"""


class DeliveredRequest(NamedTuple):
    """A delivery as a request, which is the argument of destination handlers."""

    delivery: Delivery

    def __repr__(self) -> str:
        more = "…" if len(self.body) > 60 else ""
        body = self.body[:60].decode("utf-8", "replace")
        return f"<DeliveredRequest {self.method} {self.url} {body}{more}>"

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.delivery.method

    @property
    def url(self) -> str:
        """The full URL, as published."""
        return as_text(self.delivery.url)

    @property
    def path(self) -> str:
        """The raw path, with percent-escapes."""
        return urlsplit(self.url).path or "/"

    @property
    def query(self) -> str:
        """The raw query, without the question mark."""
        return urlsplit(self.url).query

    @property
    def headers(self) -> Headers:
        """All headers, including the signature."""
        return Headers(tuple(self.delivery.headers))

    @property
    def body(self) -> bytes:
        """The raw body."""
        return self.delivery.body

    @property
    def text(self) -> str:
        """The body as a string, decoded as UTF-8."""
        return self.delivery.body.decode()

    @property
    def message_id(self) -> str:
        """The id of the message, which is the same for every attempt."""
        return self.delivery.message_id

    @property
    def retried(self) -> int:
        """The number of earlier attempts; 0 for the first attempt."""
        return self.delivery.attempt

    def json(self) -> Any:
        """Return the body parsed as JSON; raise ``ValueError`` if it is not JSON."""
        return parsed_body(self.delivery.body)


DELIVERIES = ItemFields(
    DeliveredRequest,
    message_id=Field(MESSAGE_ID, optional=False),
    method=Field(METHOD, optional=False),
    url=Field(URL, optional=False),
    path=Field(
        Shaped("a path without a query", "/hook", begins=("/",), never="[ ?#]"), optional=False
    ),
    headers=Field(HEADERS, optional=False),
    json=Field(JSON, json_of(DeliveredRequest.json, lambda request: request.body)),
)
"""Fields of a delivery, by name."""
Handler: TypeAlias = Callable[[DeliveredRequest], Any]


def as_reply(value: object) -> Response:
    """Return a handler's result as a ``Response``; raise ``ContractError`` if it is invalid."""
    if isinstance(value, Response):
        return value
    if value is None:
        return _status_only(200)
    if isinstance(value, int) and not isinstance(value, bool):
        return _status_only(value)
    if isinstance(value, tuple) and 1 <= len(value) <= 3 and isinstance(value[0], int):
        return Response(*value)
    if isinstance(value, str | bytes | dict | list):
        return Response(body=value)
    raise ContractError(
        f"{value!r} is not a response; pass a status, (status, body), (status, body, headers), "
        "a Response, a body (string, bytes, dict or list), or None for 200"
    )


@lru_cache(maxsize=1024, typed=True)  # A test responds with few statuses, but often.
def _status_only(status: int) -> Response:
    return Response(status)


def outcome_of(reply: Response, delivery: Delivery) -> Outcome:
    if reply.ending == "refuse":
        text = f"{origin_text(delivery.url)} refuses connections"
        return Outcome(exception=ConnectionRefusedError(text))
    took = reply._after_us
    if reply.ending == "hang" or (delivery.timeout_us and took > delivery.timeout_us):
        return timed_out(delivery)
    headers, body = reply._encoded
    return Outcome(reply.status, list(headers), body, virtual_us=took)
