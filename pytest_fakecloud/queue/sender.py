"""Performing deliveries: who answers a request of the queue, and the real HTTP behind it.

A delivery goes to the first of: a route of `Destinations`; a mock of the `responses` library, when
one is active in this process; a server on a loopback address.  Anything else is refused and named,
so no test reaches the network by accident, or answered 200 with `unstubbed="accept"`.

What leaves is exactly the published target, the headers of the delivery, `Host` and a length:
nothing from the environment (no proxies, no credentials), no redirects followed, no header of a
client library.  An attempt ends at a real-time cap whatever its timeout on the queue's clock says.
"""

from __future__ import annotations

import functools
import inspect
import ipaddress
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, Self, cast
from urllib.parse import parse_qsl, urlsplit

import urllib3
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException, Timeout
from requests.hooks import default_hooks
from requests.models import PreparedRequest, Response
from requests.structures import CaseInsensitiveDict
from requests.utils import requote_uri
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, IncompleteRead, NewConnectionError
from urllib3.exceptions import TimeoutError as SocketTimeout
from urllib3.util import SKIP_HEADER

from ..kernel.aio import in_thread
from ..kernel.errors import ContractError
from ..kernel.instants import monotonic
from .deadlines import DEFAULT_CAP, Deadlines
from .destinations import DestinationRoute, Destinations, timed_out
from .gateway import failed
from .model import Delivery, Headers, Outcome
from .signing import published_text

__all__ = [
    "HOP_BY_HOP",
    "ReportUnstubbed",
    "Sender",
    "SignatureClock",
    "Unstubbed",
    "UnstubbedDestination",
    "is_loopback",
    "signature_clock",
]

Unstubbed = Literal["refuse", "accept"]
SignatureClock = Literal["receiver", "real", "virtual"]

HOP_BY_HOP = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Header names that belong to one connection; a delivery makes its own or has none."""

LARGEST_ANSWER = 100 * 1024 * 1024
IDLE_SECONDS = 0.05


class UnstubbedDestination(ConnectionError):
    """The destination is neither a route, a mock nor a loopback server, so nothing was sent."""


class ReportUnstubbed(Protocol):
    """Told of each attempt to a destination nobody stands in for."""

    def __call__(self, text: str, *, url: str, message_id: str) -> object: ...


class Sender:
    """Performs deliveries, in the caller's thread (`send`) or in the running loop (`asend`).

    `unstubbed` is `"refuse"` (nothing is sent, and `report` is told) or `"accept"` (answered 200).
    `cap` is the most real seconds an attempt over a socket or in a loop may take.  `is_fake` tells
    the addresses of this cloud's own fakes: a route for `"*"` leaves those alone, or it would
    swallow the callbacks of a capture.
    """

    def __init__(
        self,
        destinations: Destinations | None = None,
        *,
        unstubbed: Unstubbed = "refuse",
        report: ReportUnstubbed | None = None,
        cap: float = DEFAULT_CAP,
        is_fake: Callable[[str], bool] = lambda url: False,
    ) -> None:
        if unstubbed not in ("refuse", "accept"):
            raise ContractError(f"unstubbed={unstubbed!r} is unknown: give 'refuse' or 'accept'")
        self.destinations = destinations if destinations is not None else Destinations()
        self.unstubbed = unstubbed
        self._report = report
        self._is_fake = is_fake
        self._deadlines = Deadlines(cap)
        self._sockets = _Sockets(self._deadlines)

    def send(self, delivery: Delivery) -> Outcome:
        """Perform one delivery and return what came of it.

        Never raises for what a destination does: exceptions are on the outcome.  What is no
        `Exception` (`KeyboardInterrupt`, `pytest.fail()` in a handler) passes through.
        """
        route = self._route(delivery.url)
        if route is not None:
            return route.take(delivery, self._deadlines)
        mocked = _through_responses(delivery)
        if isinstance(mocked, Outcome):
            return mocked
        if is_loopback(delivery.url):
            return self._sockets.send(delivery)
        return self._nobody(delivery, mocked)

    async def asend(self, delivery: Delivery) -> Outcome:
        """Perform one delivery in the running loop (asyncio or trio).

        ASGI applications and coroutine functions run in this loop, everything else in its thread,
        except that a real connection is made in a worker thread, so that a server on this very
        loop can answer.
        """
        route = self._route(delivery.url)
        if route is not None:
            return await route.atake(delivery, self._deadlines)
        mocked = _through_responses(delivery)
        if isinstance(mocked, Outcome):
            return mocked
        if is_loopback(delivery.url):
            return await in_thread(self._sockets.send, delivery)
        return self._nobody(delivery, mocked)

    def to_raise(self, delivery: Delivery, outcome: Outcome) -> BaseException | None:
        """Return the handler's exception when it shall leave the driving call."""
        route = self._route(delivery.url)
        if route is None or not route.raise_exceptions or route.where in ("hang", "refuse"):
            return None
        return outcome.exception if outcome.status is not None else None

    def release(self) -> None:
        """Close idle connections, so that no single-threaded server is kept busy by one."""
        self._sockets.release()

    def close(self) -> None:
        """Close connections, loops and threads; a closed sender can be used no more."""
        self._sockets.release()
        self._deadlines.close()
        self.destinations.close()

    def _route(self, url: str) -> DestinationRoute | None:
        route = self.destinations.find(url)
        if route is not None and route.prefix == "*" and self._is_fake(url):
            return None
        return route

    def _nobody(self, delivery: Delivery, mocks: str) -> Outcome:
        if self.unstubbed == "accept":
            return Outcome(200, where="accepted")
        url = published_text(delivery.url)
        text = (
            f"nothing stands in for {delivery.method} {url} (message {delivery.message_id}): it is "
            "neither a loopback address nor a destination of this queue, and nothing was sent. "
            f'Give it one, such as queue.destinations.answers("{url}", 200) or .wsgi(origin, app), '
            'or set queue={"unstubbed": "accept"}'
        )
        if mocks:
            text += f". {mocks}"
        if self._report is not None:
            self._report(text, url=url, message_id=delivery.message_id)
        return Outcome(
            exception=UnstubbedDestination(text), refused=True, unstubbed=text, where="unstubbed"
        )


def is_loopback(url: str) -> bool:
    """Whether a URL names this very machine: `localhost`, `*.localhost`, 127.0.0.0/8 or ::1."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# -- the clock of signatures -----------------------------------------------------------------------


def signature_clock(kind: SignatureClock, now_us: Callable[[], int]) -> Callable[[], float]:
    """Return what a signer reads its Unix seconds from.

    `"receiver"` is the process's own `time.time()`, frozen or not: what a receiver in this process
    sees.  `"real"` is true wall time even where freezegun or time-machine move it, for receivers in
    other processes.  `"virtual"` is the queue's clock (`now_us`, microseconds).
    """
    if kind == "receiver":
        # Looked up at each call: freezing tools replace the attribute.
        return lambda: time.time()
    if kind == "real":
        return real_time
    if kind == "virtual":
        return lambda: now_us() / 1_000_000
    raise ContractError(
        f"signature_clock={kind!r} is unknown: give 'receiver', 'real' or 'virtual'"
    )


def real_time(_read: Callable[[], float] = time.time) -> float:
    """Unix seconds that freezegun and time-machine do not move."""
    if sys.platform.startswith("linux"):
        # CLOCK_REALTIME_COARSE: no freezing tool knows of it; its 4 ms are nothing to a token.
        return time.clock_gettime(5)
    machine = sys.modules.get("time_machine")
    if machine is not None:
        return float(machine.escape_hatch.time.time())
    # freezegun replaces module attributes; a default argument keeps the function itself.
    return _read()


# -- mocks of the responses library ----------------------------------------------------------------


def _through_responses(delivery: Delivery) -> Outcome | str:
    """Return what an active mock answers, or else in words why none does ("" without mocks)."""
    mock = _active_mock()
    if mock is None:
        return ""
    request = _prepared(delivery)
    reasons = _why_no_mock(mock, request)
    if reasons is not None:
        return reasons
    try:
        # The class attribute is what `responses` has replaced; it answers in our stead.
        response = _adapter().send(request, timeout=DEFAULT_CAP, stream=True)
        return Outcome(
            response.status_code, _raw_headers(response), response.content or b"", where="responses"
        )
    except Timeout as error:
        return Outcome(exception=error, virtual_us=delivery.timeout_us, where="responses")
    except (RequestException, OSError) as error:
        return Outcome(exception=error, where="responses")
    except Exception as error:
        handled = failed(error)
        return Outcome(handled.status, handled.headers, handled.body, error, where="responses")


@functools.cache
def _adapter() -> HTTPAdapter:
    return HTTPAdapter()


def _active_mock() -> Any:
    """Return the `RequestsMock` that has replaced `HTTPAdapter.send` right now, or None."""
    if "responses" not in sys.modules:
        return None
    send: Any = HTTPAdapter.send
    while send is not None:
        if getattr(send, "__module__", None) == "responses":
            return inspect.getclosurevars(send).nonlocals.get("self")
        send = getattr(send, "__wrapped__", None)
    return None


def _why_no_mock(mock: Any, request: PreparedRequest) -> str | None:
    """Return None when the mock has an answer, else the reason of each of its entries.

    Looked up without asking the mock itself, which would record a refused call that the test's own
    code never made.
    """
    # What the matchers of the library read beyond the request itself.
    request.params = _query(str(request.url))  # type: ignore[attr-defined]
    request.req_kwargs = {"stream": True}  # type: ignore[attr-defined]
    reasons = []
    for entry in mock.registered():
        matched, reason = entry.matches(request)
        if matched:
            return None
        reasons.append(f"{entry.method} {entry.url}: {reason or 'does not match'}")
    url = str(request.url)
    for prefix in mock.passthru_prefixes:
        if prefix.match(url) if hasattr(prefix, "match") else url.startswith(prefix):
            reasons.append("a passthru prefix matches, but the queue goes to loopback only")
    listing = "; ".join(reasons) or "it has none"
    return f"The `responses` library is active, but no mock of it answers ({listing})"


def _query(url: str) -> dict[str, str | list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return {name: many[0] if len(many) == 1 else list(many) for name, many in values.items()}


def _prepared(delivery: Delivery) -> PreparedRequest:
    request = PreparedRequest()
    url = published_text(delivery.url)
    request.method = delivery.method
    # The published escapes, which requests would rewrite; raw non-ASCII text is quoted the way
    # the mock's own URL is.
    request.url = url if url.isascii() else requote_uri(url)
    request.headers = CaseInsensitiveDict(_sendable(delivery))
    request.headers["Content-Length"] = str(len(delivery.body))
    request.body = delivery.body
    request.hooks = default_hooks()
    return request


def _raw_headers(response: Response) -> Headers:
    raw = getattr(response.raw, "headers", None)
    pairs = raw.items() if raw is not None else response.headers.items()
    return [(str(name), str(value)) for name, value in pairs]


# -- real connections ------------------------------------------------------------------------------


class _Sockets:
    """HTTP to loopback servers: exact bytes, kept-open connections, one real-time cap."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._lock = threading.Lock()
        self._manager: urllib3.PoolManager | None = None
        self._used = 0.0
        self._watched = False

    def send(self, delivery: Delivery) -> Outcome:
        wire = _Wire(_sendable(delivery))
        for name in ("Accept-Encoding", "User-Agent"):
            if name not in wire:
                wire.add(name, SKIP_HEADER)
        planned = self._deadlines.start(wire.cut)
        try:
            outcome = self._exchange(delivery, wire)
        except (HTTPError, OSError, ValueError) as error:
            outcome = Outcome(exception=error, where="loopback")
        finally:
            in_time = self._deadlines.cancel(planned)
            self._let_go_soon()
        if not in_time or _was_late(outcome.exception):
            text = self._deadlines.late_text("the connection was made in this thread")
            return timed_out(delivery, "loopback", text)
        return outcome

    def _exchange(self, delivery: Delivery, wire: _Wire) -> Outcome:
        parts = urlsplit(delivery.url)
        wire.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        if host.endswith(".localhost"):
            # Not every system's resolver knows that these are loopback names.
            wire.host, host = parts.netloc.rpartition("@")[2], "127.0.0.1"
        pool = self._pools().connection_from_host(host, parts.port, parts.scheme.lower())
        response = pool.urlopen(
            delivery.method,
            wire.target,
            body=delivery.body or None,
            headers=wire,
            retries=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=self._deadlines.cap, read=self._deadlines.cap),
            preload_content=False,
            decode_content=False,
        )
        try:
            body = response.read(LARGEST_ANSWER + 1, decode_content=False)
            if len(body) > LARGEST_ANSWER:
                raise ValueError(f"the answer is larger than {LARGEST_ANSWER} bytes")
            if response.length_remaining:
                raise IncompleteRead(len(body), response.length_remaining)
        except BaseException:
            response.close()
            raise
        response.release_conn()
        headers = [(str(name), str(value)) for name, value in response.headers.items()]
        return Outcome(response.status, headers, body, where="loopback")

    def release(self) -> None:
        with self._lock:
            manager, self._manager = self._manager, None
        if manager is not None:
            manager.clear()

    def _pools(self) -> urllib3.PoolManager:
        with self._lock:
            if self._manager is None:
                manager = urllib3.PoolManager(ssl_context=_no_questions(), maxsize=4)
                manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
                self._manager = manager
            return self._manager

    def _let_go_soon(self) -> None:
        # A connection that stays open keeps a single-threaded server from anybody else, and keeps
        # a threaded one from ending; so it outlives its attempt only for a burst of them.
        self._used = monotonic()
        if not self._watched:
            self._watched = True
            self._deadlines.start(self._let_go, IDLE_SECONDS)

    def _let_go(self) -> None:
        left = self._used + IDLE_SECONDS - monotonic()
        if left > 0:
            self._deadlines.start(self._let_go, left)
            return
        self._watched = False
        self.release()


class _Wire(urllib3.HTTPHeaderDict):
    """The headers of one request, with what urllib3 would rewrite: target and host."""

    def __init__(self, headers: Headers) -> None:
        super().__init__()
        for name, value in headers:
            self.add(name, value)
        self.target = "/"
        self.host: str | None = None
        self.connection: HTTPConnection | None = None

    def copy(self) -> Self:
        """Return this very object: urllib3 copies headers, and these know their connection."""
        return self

    def cut(self) -> None:
        """End the exchange from another thread."""
        connection = self.connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _ExactRequest(HTTPConnection):
    """A connection that sends the target and the headers byte for byte."""

    def request(  # type: ignore[override]
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(headers, _Wire):
            headers.connection = self
            url = headers.target
            if headers.host is not None:
                headers.add("Host", headers.host)
        super().request(method, url, body=body, headers=headers, **options)

    def _encode_request(self, request: str) -> bytes:
        # http.client allows ASCII only; a publisher's bytes go out as they came.
        return request.encode("latin-1", "replace")

    def putheader(self, header: str | bytes, *values: Any) -> None:
        super().putheader(cast(str, header), *map(_wire_value, values))


class _SecureExactRequest(_ExactRequest, HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        # The certificate of a test's own server is nobody's business to check, or to warn about.
        self.is_verified = True


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _ExactRequest


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureExactRequest


def _no_questions() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _was_late(error: BaseException | None) -> bool:
    # urllib3 counts a refused connection among its time-outs.
    return isinstance(error, SocketTimeout) and not isinstance(error, NewConnectionError)


def _sendable(delivery: Delivery) -> Headers:
    return [pair for pair in delivery.headers if pair[0].lower() not in HOP_BY_HOP]


def _wire_value(value: Any) -> Any:
    if not isinstance(value, str) or value == SKIP_HEADER:
        return value
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()
