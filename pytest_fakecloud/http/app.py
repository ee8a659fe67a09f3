"""The pipeline every request takes: record, authenticate, fault, route, endpoint, JSON."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from ..core.errors import ContractError, ServiceError, shown
from ..core.journal import Call, Journal
from ..core.matching import Field
from .readers import query_items
from .routing import Found, Route, RouteTable

if TYPE_CHECKING:
    from ..core.clock import Clock
    from ..faults.plan import FaultPlan

__all__ = ["Answer", "App", "Effect", "Problem", "Problems", "Request", "Response", "Stream"]

Headers = Sequence[tuple[str, str]]
JSON_TYPE = "application/json"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Request:
    """A request as it came in: nothing decoded, nothing merged.

    ``target`` is the raw request target (Latin-1 text of the bytes), ``path`` and ``query_string``
    its two halves, ``headers`` the raw list of names and values, ``client`` the peer's address,
    ``principal`` what authentication returned, ``params`` the raw parameters of the route's pattern,
    ``route`` the endpoint's name, ``call`` the journal's record until the answer is made.
    ``head_bytes`` is about how long target and headers are, where they came over a socket.
    """

    __slots__ = (
        "_lower",
        "body",
        "call",
        "client",
        "head_bytes",
        "headers",
        "method",
        "params",
        "path",
        "principal",
        "query_string",
        "route",
        "target",
    )

    def __init__(
        self,
        method: str,
        target: str,
        headers: Headers = (),
        body: bytes = b"",
        client: tuple[str, int] | None = None,
    ) -> None:
        self.method = method
        self.target = target
        path, _, self.query_string = target.partition("?")
        # A client behind a proxy setting sends the absolute form; only its path matters here.
        if not path.startswith("/"):
            _, _, rest = path.partition("://")
            path = "/" + rest.partition("/")[2]
        self.path = path
        self.headers = headers
        self.body = body
        self.client = client
        self.principal: Any = None
        self.params: dict[str, str] = {}
        self.route = ""
        self.head_bytes = 0
        self.call: Call = _NO_CALL
        self._lower: dict[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.target}"

    @property
    def client_address(self) -> str:
        """The peer's IP address; loopback when there is no socket."""
        return self.client[0] if self.client else "127.0.0.1"

    def header(self, name: str) -> str | None:
        """The first header of that name, whatever its spelling, or None."""
        lower = self._lower
        if lower is None:
            lower = self._lower = {}
            for key, value in self.headers:
                lower.setdefault(key.lower(), value)
        return lower.get(name.lower())

    def forget(self) -> None:
        """Let go of what only the pipeline needs: the journal keeps every request."""
        self._lower = None
        self.call = _NO_CALL

    def header_all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        wanted = name.lower()
        return [value for key, value in self.headers if key.lower() == wanted]

    def query_items(self) -> list[tuple[str, str]]:
        """Decoded names and values of the query, in order, duplicates and empty values kept."""
        return query_items(self.query_string) if self.query_string else []

    def query(self, name: str) -> str | None:
        """The first query value of that name, or None."""
        if not self.query_string:
            return None
        return next((value for key, value in self.query_items() if key == name), None)


_NO_CALL = Call(0, 0, "", "", "", "")


@dataclass(slots=True)
class Answer:
    """A whole response: ``bytes`` bodies go out as they are, any other object as JSON."""

    body: object = b""
    status: int = 200
    headers: Headers = ()
    content_type: str | None = JSON_TYPE


@dataclass(slots=True)
class Stream:
    """A response whose chunks come as they are made (server-sent events).

    ``chunks`` is closed when the client goes or the server does; ``on_close`` runs once after.
    """

    chunks: Iterator[bytes]
    content_type: str = "text/event-stream"
    status: int = 200
    headers: Headers = ()
    on_close: Callable[[], None] | None = None


@dataclass(slots=True)
class Effect:
    """What a fault does to the connection instead of answering well.

    ``kind`` is ``"drop"`` (close without an answer, the engine was not reached), ``"lose"`` (the
    same, after the engine did what ``answer`` would have told), ``"refuse"`` (as if nobody
    listened), ``"hang"`` (stay silent until the client gives up or the server closes) or
    ``"truncate"`` (announce the whole answer, send the first ``keep`` bytes of its body, close).
    ``reset`` closes with a TCP reset.
    """

    kind: str
    answer: Answer | None = None
    keep: int = 0
    reset: bool = False


Response = Answer | Stream | Effect

OUTCOMES = {
    "drop": "dropped",
    "refuse": "refused",
    "lose": "lost",
    "hang": "hung",
    "truncate": "truncated",
}
"""What the journal calls a request that an effect befell."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a strict test fails for.

    ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault`` or ``unmet``; ``text`` says what
    came, what was nearest and how to allow it; ``facts`` are what ``allow`` matches on.
    """

    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    exception: BaseException | None = None


class Problems(list[Problem]):
    """The problems of one cloud, in the order they came: the newest ``keep`` at most.

    The exceptions of the first ``keep_exceptions`` keep their frames, which hold all that was under
    way when they were raised.
    """

    keep: int = 10_000
    keep_exceptions: int = 100

    def report(
        self, kind: str, text: str, *, exception: BaseException | None = None, **facts: Any
    ) -> Problem:
        """Remember one more problem."""
        if exception is not None and len(self) >= self.keep_exceptions:
            exception.__traceback__ = exception.__context__ = exception.__cause__ = None
        del self[: max(0, len(self) - self.keep + 1)]
        problem = Problem(kind, _shown(text, _LONGEST_PROBLEM), facts, exception)
        self.append(problem)
        return problem


_LONGEST_PROBLEM = 20_000


def _shown(text: str, most: int = 2000) -> str:
    """A text a stranger wrote, short enough to be kept."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _slim(body: bytes) -> bytes:
    """The same bytes in no more memory than they need, for the journal to keep."""
    # orjson leaves 4 KB to each text it makes, however short.
    return b"%b" % body if len(body) < 4096 else body


class App:
    """One service's HTTP face; subclasses name the routes and the dialect of errors.

    A subclass gives ``service``, ``routes()``, ``authenticate()``, and where its dialect differs
    ``render_error()``, ``unknown_path()``, ``wrong_method()``, ``facts()`` and ``dump()``. Endpoints
    take a ``Request`` and return an ``Answer``, a ``Stream`` or any object to send as JSON; they
    raise ``ServiceError`` for what the service would refuse, and may wait only through the clock.
    """

    service: ClassVar[str] = ""
    fact_fields: ClassVar[Mapping[str, Field]] = {}
    """The facts that ``facts()`` can tell, as fields to ask about."""

    clock: Clock
    journal: Journal
    faults: FaultPlan
    problems: Problems
    name: str = ""

    def attach(
        self, *, clock: Clock, journal: Journal, faults: FaultPlan, problems: Problems, name: str
    ) -> None:
        """Connect the app to its cloud; done once by its handle."""
        self.clock = clock
        self.journal = journal
        self.faults = faults
        self.problems = problems
        self.name = name
        journal.learn(self.service, self)
        if not faults.fact_fields:
            faults.fact_fields = self.fact_fields
        faults.call_words = self.words
        faults.render = self.render_error
        faults.dump = self.dump

    @cached_property
    def table(self) -> RouteTable:
        """The routes, ready to be looked up; made with the first request."""
        return RouteTable(self.routes())

    # -- the dialect -----------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """All endpoints of the service."""
        raise NotImplementedError

    def authenticate(self, request: Request) -> object:
        """Who is asking; raises ``ServiceError`` for missing or wrong credentials."""
        return None

    def render_error(self, error: ServiceError) -> Answer:
        """The service's error envelope."""
        return Answer({"error": error.message}, error.status, error.headers)

    def unknown_path(self, request: Request) -> Answer:
        """The service's answer to a path it does not have."""
        raise ServiceError(404, f"Not Found: {request.method} {request.path}")

    def wrong_method(self, request: Request, allowed: frozenset[str]) -> Answer:
        """The service's answer to a method its path does not take."""
        raise ServiceError(
            405, "Method Not Allowed", headers=[("Allow", ", ".join(sorted(allowed)))]
        )

    def bug(self, request: Request, error: Exception) -> Answer:
        """The answer when the engine itself fails: a 500 in the service's envelope."""
        return self.render_error(ServiceError(500, f"internal error: {shown(error)}"))

    def facts(self, request: Request) -> dict[str, Any]:
        """What faults and reports may know of a request (``command``, ``topic``, …)."""
        return {}

    def words(self) -> Iterable[str]:
        """The names a call can be asked for by: those of its routes, and of commands."""
        return (route.name for route in self.table.routes)

    def dump(self, value: object) -> bytes:
        """The JSON bytes of an answer."""
        try:
            return orjson.dumps(value)
        except TypeError:
            # Integers beyond 64 bits, keys that are no text, lone surrogates.
            return _encode(value).encode("utf-8", "surrogatepass")

    # -- the pipeline ----------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """Take one request through the whole pipeline."""
        call = request.call = self.journal.open_call(
            request.method,
            request.target,
            request.headers,
            request.body,
            request.client,
            request.head_bytes,
        )
        call.read_facts = partial(self._facts_of, request)
        response: Response
        try:
            self.clock.settle()
            found = self.table.find(request.method, request.path)
            if isinstance(found, tuple):
                route, request.params = found
                request.route = call.route = route.name
            request.principal = self.authenticate(request)
            if self.faults.active:
                response = self.faults.run(request, partial(self._serve, request, found))
            else:
                response = self._serve(request, found)
        except ServiceError as error:
            response = self._finished(self.render_error(error))
            if error.status == 401 and request.principal is None:
                # Whoever it is, they were not let in: a beginning says what they wanted.
                self._record(call, response)
                self.journal.cut(call)
                return response
        except Exception as error:
            response = self._failed(request, error)
        except BaseException:
            call.outcome = "broken off"  # so that it does not count as one under way for ever
            raise
        self._record(call, response)
        if type(response) is Answer:
            request.forget()
        return response

    def _serve(self, request: Request, found: Found) -> Response:
        try:
            if isinstance(found, tuple):
                result = found[0].endpoint(request)
                request.call.reached = True
            elif found is None:
                self._unrouted(request)
                result = self.unknown_path(request)
            else:
                self._unrouted(request, found)
                result = self.wrong_method(request, found)
        except ServiceError as error:
            result = self.render_error(error)
        return self._finished(result)

    def _finished(self, result: object) -> Response:
        if not isinstance(result, Answer):
            if isinstance(result, (Stream, Effect)):
                return result
            return Answer(self.dump(result))
        if not isinstance(result.body, bytes):
            result.body = self.dump(result.body)
        return result

    def refused(self, status: int, reason: str) -> None:
        """Take down that the server has refused what was no request of the service yet."""
        shown = _shown(reason)
        self.journal.add_event("refused", f"{status} to what is no request: {shown}")

    def foreign(self, request: Request) -> Answer:
        """The answer to a method no path takes, of which nothing but method and target was read.

        It is an unrouted request like any other; nobody is asked for credentials, and where the
        path is unknown too, the methods of the whole service are named.
        """
        call = request.call = self.journal.open_call(
            request.method,
            request.target,
            request.headers,
            request.body,
            request.client,
            request.head_bytes,
        )
        found = self.table.find(request.method, request.path)
        allowed = found if isinstance(found, frozenset) else None
        self._unrouted(request, allowed)
        try:
            everywhere = (route.allowed for route in self.table.routes)
            answer = self.wrong_method(request, allowed or frozenset().union(*everywhere))
        except ServiceError as error:
            answer = self.render_error(error)
        self._finished(answer)
        self._record(call, answer)
        return answer

    def stream_failed(self, request: Request, error: Exception) -> None:
        """Report what broke a stream off; its client sees an answer without an end."""
        request.call.outcome = "broken off"
        self._report_bug(request, error)

    def _failed(self, request: Request, error: Exception) -> Response:
        self._report_bug(request, error)
        return self._finished(self.bug(request, error))

    def _report_bug(self, request: Request, error: Exception) -> None:
        call = request.call
        call.problem = "bug"
        call.note = "".join(traceback.format_exception(error))
        if isinstance(error, ContractError):
            blame = f"was answered 500, because of what the test does while it is served: {error}"
        else:
            blame = (
                f"made the fake itself fail: {shown(error)}\n"
                "This is a bug of pytest-fakecloud, please report it with the traceback:"
            )
        self.problems.report(
            "bug",
            f"{self.name}: {request.method} {_shown(request.target)} {blame}\n{call.note}",
            exception=error,
            path=_shown(request.path),
            handle=self.name,
        )

    def _unrouted(self, request: Request, allowed: frozenset[str] | None = None) -> None:
        call = request.call
        call.problem = "unrouted"
        if allowed is None:
            reason = f"no route for it; nearest: {self.table.nearest(request.method, request.path)}"
        else:
            reason = f"the path takes {', '.join(sorted(allowed))}"
        call.note = reason
        self.problems.report(
            "unrouted",
            f"{self.name} got {request.method} {_shown(request.target)}: {reason}. "
            f'To allow it: fakecloud.allow("unrouted", path="{_shown(request.path)}")',
            path=_shown(request.path),
            method=request.method,
            handle=self.name,
        )

    def _facts_of(self, request: Request) -> dict[str, Any]:
        try:
            return self.facts(request)
        except Exception:  # a body nobody can read has no facts; the endpoint says why
            return {}

    def _record(self, call: Call, response: Response) -> None:
        if isinstance(response, Answer):
            call.status = response.status
            call.answer_headers = response.headers
            call.answer = _slim(response.body)  # type: ignore[arg-type]
            call.outcome = "answered"
        elif isinstance(response, Stream):
            call.status = response.status
            call.outcome = "streamed"
        else:
            call.outcome = OUTCOMES[response.kind]
            if response.answer is not None:
                call.status = response.answer.status
        self.journal.answered(call)
