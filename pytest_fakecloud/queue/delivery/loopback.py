"""HTTP requests to servers on loopback addresses, sent byte for byte and with a real-time limit."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self, cast
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, IncompleteRead, NewConnectionError
from urllib3.exceptions import TimeoutError as SocketTimeout

from ...core.timeparse import monotonic
from ..model import Delivery, HeaderList, Outcome
from ..wire.text import HOP_BY_HOP
from .applications import header_bytes
from .deadlines import Deadlines
from .replies import timed_out

LARGEST_ANSWER = 100 * 1024 * 1024
"""Maximum size of a response in bytes."""
IDLE_SECONDS = 0.05
"""Real seconds after which an idle connection is closed."""


def headers_to_send(delivery: Delivery) -> HeaderList:
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
        self._under_way: set[_Exchange] = set()
        self._manager: urllib3.PoolManager | None = None
        self._idle_timer = _IdleTimer(deadlines, self.release)

    def send(self, delivery: Delivery) -> Outcome:
        limit = self._deadlines.limit(delivery.timeout_us)
        exchange = _Exchange(headers_to_send(delivery))
        planned = self._deadlines.start(exchange.time_out, limit)
        with self._lock:
            self._under_way.add(exchange)
        try:
            outcome = self._send_in_pool(delivery, exchange, limit or self._deadlines.cap)
        except (HTTPError, OSError, ValueError) as error:
            outcome = Outcome(exception=_original_error(error), where="loopback")
        finally:
            with self._lock:
                self._under_way.discard(exchange)
            self._deadlines.cancel(planned)
            if self._keeps:
                self._idle_timer.restart()
        if exchange.timed_out or _is_timeout(outcome.exception):
            return timed_out(delivery, "loopback", self._timeout_text(limit))
        return outcome

    def _timeout_text(self, limit: float | None) -> str:
        if limit is not None:
            return f"no answer within {limit:g} s, its timeout"
        return self._deadlines.timeout_text("the connection was made in this thread")

    def _send_in_pool(self, delivery: Delivery, exchange: _Exchange, seconds: float) -> Outcome:
        parts = urlsplit(delivery.url)
        exchange.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        plain = host.rstrip(".")
        if plain != host or plain.endswith(".localhost"):
            # Do not resolve these loopback names: some resolvers do not know them, or reject the
            # dot at the end of an absolute name.
            exchange.host_header = parts.netloc.rpartition("@")[2]
            host = "127.0.0.1" if plain.endswith(".localhost") else plain
        scheme = parts.scheme.lower()
        if self._keeps:
            pool = self._pools().connection_from_host(host, parts.port, scheme)
            return self._answer(pool, delivery, exchange, seconds)
        pool = (
            _HTTPPool(host, parts.port)
            if scheme == "http"
            else _HTTPSPool(host, parts.port, ssl_context=_unverified_tls())
        )
        try:
            return self._answer(pool, delivery, exchange, seconds)
        finally:
            pool.close()

    def _answer(
        self,
        pool: urllib3.HTTPConnectionPool,
        delivery: Delivery,
        exchange: _Exchange,
        seconds: float,
    ) -> Outcome:
        response = pool.urlopen(
            delivery.method,
            exchange.target,
            body=delivery.body or None,
            headers=exchange,
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
        with self._lock:
            interrupted = list(self._under_way)
        for exchange in interrupted:
            with contextlib.suppress(OSError):
                exchange.interrupt()

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


class _IdleTimer:
    """Calls ``close`` when ``IDLE_SECONDS`` have passed since the last ``restart()``.

    A connection stays open only during a burst of attempts. An idle connection blocks a
    single-threaded server and prevents a threaded server from stopping.
    """

    def __init__(self, deadlines: Deadlines, close: Callable[[], object]) -> None:
        self._deadlines = deadlines
        self._close = close
        self._lock = threading.Lock()
        self._restarted = 0.0
        self._is_waiting = False

    def restart(self) -> None:
        with self._lock:
            self._restarted = monotonic()
            if self._is_waiting:
                return
            self._is_waiting = True
        self._deadlines.start(self._expire, IDLE_SECONDS)

    def _expire(self) -> None:
        with self._lock:
            left = self._restarted + IDLE_SECONDS - monotonic()
            self._is_waiting = left > 0
        if left > 0:
            self._deadlines.start(self._expire, left)
        else:
            self._close()


class _Exchange(urllib3.HTTPHeaderDict):
    """One request, in the form of its headers.

    Of the arguments of ``urlopen()``, only the headers reach the connection unchanged. They therefore
    carry the target and the ``Host`` that urllib3 would rewrite, and the connection to interrupt.
    """

    def __init__(self, headers: HeaderList) -> None:
        super().__init__()
        for name, value in headers:
            self.add(name, value)
        self.target = "/"
        self.host_header: str | None = None
        self.connection: HTTPConnection | None = None
        self.timed_out = False
        self.is_interrupted = False

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def copy(self) -> Self:
        """Return this object itself, because urllib3's copy must have the connection, too."""
        return self

    def time_out(self) -> None:
        self.timed_out = True
        self.interrupt()

    def interrupt(self) -> None:
        self.is_interrupted = True
        connection = self.connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def raise_if_interrupted(self) -> None:
        """Raise an error if the exchange was interrupted before it had a socket to shut down."""
        if self.is_interrupted:
            raise ConnectionAbortedError("the delivery was interrupted")


class _ExactRequest(HTTPConnection):
    """A connection that sends the target and the headers byte for byte."""

    exchange: _Exchange | None = None

    def request(  # type: ignore[override]
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(headers, _Exchange) and headers.host_header is not None:
            headers.add("Host", headers.host_header)
        self._given = {name.lower() for name in headers or ()}
        super().request(method, url, body=body, headers=headers, **options)

    def connect(self) -> None:
        super().connect()
        if self.exchange is not None:
            self.exchange.raise_if_interrupted()

    def putrequest(self, method: str, url: str, *args: Any, **kwargs: Any) -> None:
        kwargs["skip_accept_encoding"] = True
        super().putrequest(method, url, **kwargs)

    def _encode_request(self, request: str) -> bytes:
        # Keep the publisher's bytes. http.client would allow only ASCII.
        return request.encode("latin-1", "replace")

    def putheader(self, header: str | bytes, *values: Any) -> None:
        if header == "User-Agent" and "user-agent" not in self._given:
            return
        encoded: Any = [header_bytes(one) if isinstance(one, str) else one for one in values]
        super().putheader(cast(str, header), *encoded)


class _SecureExactRequest(_ExactRequest, HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        # Do not check or warn, because a test's own server may have any certificate.
        self.is_verified = True


class _ExactPool(urllib3.HTTPConnectionPool):
    def _make_request(self, conn: Any, method: str, url: str, **options: Any) -> Any:  # type: ignore[override]
        exchange = options.get("headers")
        if isinstance(exchange, _Exchange):
            exchange.connection, conn.exchange = conn, exchange
            exchange.raise_if_interrupted()
            # urlopen() normalizes escapes before any connection or transport sees the target.
            url = exchange.target
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


def _original_error(error: Exception) -> Exception:
    """Return the operating system's error for a failed connection, if there is one."""
    cause = error.__cause__ or error.__context__
    return cause if isinstance(error, NewConnectionError) and isinstance(cause, OSError) else error


def _is_timeout(error: BaseException | None) -> bool:
    # urllib3's class for refused connections is a subclass of its timeout.
    return isinstance(error, SocketTimeout) and not isinstance(error, NewConnectionError)
