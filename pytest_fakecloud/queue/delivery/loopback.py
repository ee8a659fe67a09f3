"""HTTP requests to servers on loopback addresses, sent byte for byte and with a real-time limit."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any, Self, cast
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, IncompleteRead, NewConnectionError
from urllib3.exceptions import TimeoutError as SocketTimeout

from ...core.timeparse import monotonic
from ..model import Delivery, HeaderList, Outcome
from ..wire.header_maps import HOP_BY_HOP
from .deadlines import Deadlines
from .replies import timed_out

LARGEST_ANSWER = 100 * 1024 * 1024
IDLE_SECONDS = 0.05


def sendable(delivery: Delivery) -> HeaderList:
    return [pair for pair in delivery.headers if pair[0].lower() not in HOP_BY_HOP]


class LoopbackSender:
    """Sends deliveries to servers on loopback addresses.

    With ``keeps``, connections stay open during a burst of sequential deliveries. Without it, each
    delivery has its own connection, because an idle connection beside parallel deliveries could
    block a single-threaded server.
    """

    def __init__(self, deadlines: Deadlines, *, keeps: bool = True) -> None:
        self._deadlines = deadlines
        self._keeps = keeps
        self._lock = threading.Lock()
        self._under_way: set[_Wire] = set()
        self._manager: urllib3.PoolManager | None = None
        self._used = 0.0
        self._watched = False

    def send(self, delivery: Delivery) -> Outcome:
        """Send a delivery and return its outcome, which includes any error."""
        limit = self._deadlines.limit(delivery.timeout_us)
        wire = _Wire(sendable(delivery))
        planned = self._deadlines.start(wire.time_out, limit)
        self._under_way.add(wire)
        try:
            outcome = self._exchange(delivery, wire, limit or self._deadlines.cap)
        except NewConnectionError as error:
            # Keep the operating system's error, because urllib3's message describes our connection
            # class.
            cause = error.__cause__ or error.__context__
            shown = cause if isinstance(cause, OSError) else error
            outcome = Outcome(exception=shown, where="loopback")
        except (HTTPError, OSError, ValueError) as error:
            outcome = Outcome(exception=error, where="loopback")
        finally:
            self._under_way.discard(wire)
            self._deadlines.cancel(planned)
            if self._keeps:
                self._close_when_idle()
        if wire.timed_out or _is_timeout(outcome.exception):
            text = (
                f"no answer within {limit:g} s, its timeout"
                if limit is not None
                else (self._deadlines.timeout_text("the connection was made in this thread"))
            )
            return timed_out(delivery, "loopback", text)
        return outcome

    def _exchange(self, delivery: Delivery, wire: _Wire, seconds: float) -> Outcome:
        parts = urlsplit(delivery.url)
        wire.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        plain = host.rstrip(".")
        if plain != host or plain.endswith(".localhost"):
            # Do not resolve these loopback names: some resolvers do not know them, or reject the
            # dot at the end of an absolute name.
            wire.host = parts.netloc.rpartition("@")[2]
            host = "127.0.0.1" if plain.endswith(".localhost") else plain
        scheme = parts.scheme.lower()
        if self._keeps:
            pool = self._pools().connection_from_host(host, parts.port, scheme)
            return self._answer(pool, delivery, wire, seconds)
        pool = (
            _HTTPPool(host, parts.port)
            if scheme == "http"
            else _HTTPSPool(host, parts.port, ssl_context=_unverified_tls())
        )
        try:
            return self._answer(pool, delivery, wire, seconds)
        finally:
            pool.close()

    def _answer(
        self, pool: urllib3.HTTPConnectionPool, delivery: Delivery, wire: _Wire, seconds: float
    ) -> Outcome:
        response = pool.urlopen(
            delivery.method,
            wire.target,
            body=delivery.body or None,
            headers=wire,
            retries=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=seconds, read=seconds),
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

    def close(self) -> None:
        """Close the idle connections and interrupt the exchanges in progress."""
        self.release()
        for wire in list(self._under_way):
            with contextlib.suppress(OSError):
                wire.cut()

    def release(self) -> None:
        with self._lock:
            manager, self._manager = self._manager, None
        if manager is not None:
            manager.clear()

    def _pools(self) -> urllib3.PoolManager:
        with self._lock:
            if self._manager is None:
                manager = urllib3.PoolManager(ssl_context=_unverified_tls(), maxsize=32)
                manager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
                self._manager = manager
            return self._manager

    def _close_when_idle(self) -> None:
        # Keep a connection open only during a burst of attempts. An idle connection blocks a
        # single-threaded server and prevents a threaded server from stopping.
        self._used = monotonic()
        if not self._watched:
            self._watched = True
            self._deadlines.start(self._close_if_idle, IDLE_SECONDS)

    def _close_if_idle(self) -> None:
        left = self._used + IDLE_SECONDS - monotonic()
        if left > 0:
            self._deadlines.start(self._close_if_idle, left)
            return
        self._watched = False
        self.release()


class _Wire(urllib3.HTTPHeaderDict):
    """The headers of a request, with the target and the host that urllib3 would otherwise rewrite."""

    def __init__(self, headers: HeaderList) -> None:
        super().__init__()
        for name, value in headers:
            self.add(name, value)
        self.target = "/"
        self.host: str | None = None
        self.connection: HTTPConnection | None = None
        self.timed_out = False
        self.is_cut = False

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def copy(self) -> Self:
        """Return this object itself, because the copy that urllib3 needs must have the connection,
        too.
        """
        return self

    def time_out(self) -> None:
        """Interrupt the exchange because its time is over."""
        self.timed_out = True
        self.cut()

    def cut(self) -> None:
        """Interrupt the exchange. Called from another thread."""
        self.is_cut = True
        connection = self.connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def raise_if_cut(self) -> None:
        """Raise an error if the exchange was interrupted before it had a socket to shut down."""
        if self.is_cut:
            raise ConnectionAbortedError("the delivery was interrupted")


class _ExactRequest(HTTPConnection):
    """A connection that sends the target and the headers byte for byte."""

    wire: _Wire | None = None

    def request(  # type: ignore[override]
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(headers, _Wire) and headers.host is not None:
            headers.add("Host", headers.host)
        self._given = {name.lower() for name in headers or ()}
        super().request(method, url, body=body, headers=headers, **options)

    def connect(self) -> None:
        super().connect()
        if self.wire is not None:
            self.wire.raise_if_cut()

    def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
        kwargs["skip_accept_encoding"] = True
        super().putrequest(method, url, **kwargs)

    def _encode_request(self, request: str) -> bytes:
        # Encode as Latin-1 to keep the publisher's bytes, because http.client would allow only
        # ASCII.
        return request.encode("latin-1", "replace")

    def putheader(self, header: str | bytes, *values: Any) -> None:
        if header == "User-Agent" and "user-agent" not in self._given:
            return
        super().putheader(cast(str, header), *map(_wire_value, values))


class _SecureExactRequest(_ExactRequest, HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        # Do not check certificates and do not warn, because a test's own server may have any
        # certificate.
        self.is_verified = True


class _ExactPool(urllib3.HTTPConnectionPool):
    def _make_request(self, conn: Any, method: str, url: str, **options: Any) -> Any:  # type: ignore[override]
        wire = options.get("headers")
        if isinstance(wire, _Wire):
            wire.connection, conn.wire = conn, wire
            wire.raise_if_cut()
            # urlopen() normalizes escapes before a connection or an in-process transport sees the
            # target.
            url = wire.target
        return super()._make_request(conn, method, url, **options)


class _HTTPPool(_ExactPool):
    ConnectionCls = _ExactRequest


class _HTTPSPool(_ExactPool, urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureExactRequest


def _unverified_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _is_timeout(error: BaseException | None) -> bool:
    # urllib3's class for refused connections is a subclass of its timeout.
    return isinstance(error, SocketTimeout) and not isinstance(error, NewConnectionError)


def _wire_value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()
