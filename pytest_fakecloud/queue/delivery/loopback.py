"""HTTP requests to servers on loopback addresses, sent byte for byte and with a real-time limit.

HTTP clients normalize targets and add headers, so the requests are written to a socket directly.
"""

from __future__ import annotations

import contextlib
import http.client
import selectors
import socket
import ssl
import threading
from typing import TypeAlias

from ...core.timers import monotonic, weakly
from ...http.ports import below_tls, connect
from ..model import Delivery, Outcome
from ..wire.values import HOP_BY_HOP
from .applications import Address, Deadlines, header_bytes, timed_out

LARGEST_ANSWER = 100 * 1024 * 1024
"""Maximum size of a response in bytes."""
IDLE_SECONDS = 0.05
"""Real seconds after which an idle connection is closed."""
_Server: TypeAlias = tuple[str, str, int]
"""The scheme, the host and the port of a server."""


class LoopbackSender:
    """Sends deliveries to servers on loopback addresses, and to those that a route names."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._lock = threading.Lock()
        self._under_way: set[_Exchange] = set()
        self._idle: dict[_Server, list[socket.socket]] = {}
        self._last_use = 0.0
        self._will_release = False

    def send(self, delivery: Delivery, keeps: bool) -> Outcome:
        """Send a request and return the response.

        With ``keeps``, connections stay open during a burst of sequential deliveries. Without it,
        the delivery has its own connection, because an idle connection beside parallel deliveries
        could block a single-threaded server.
        """
        exchange = _Exchange(keeps)
        limit = self._deadlines.limit(delivery.timeout_us)
        planned = self._deadlines.start(exchange.time_out, limit)
        with self._lock:
            self._under_way.add(exchange)
        try:
            address = Address.of(delivery.url)
            outcome = self._perform(delivery, address, exchange, limit or self._deadlines.cap)
        except (http.client.HTTPException, OSError, ValueError) as error:
            outcome = Outcome(exception=error)
        finally:
            with self._lock:
                self._under_way.discard(exchange)
            if keeps:
                self._release_later()
            self._deadlines.cancel(planned)
        if exchange.timed_out or isinstance(outcome.exception, TimeoutError):
            text = f"no answer within {limit:g} s, its timeout" if limit is not None else None
            here = "the connection was made in this thread"
            outcome = timed_out(delivery, text or self._deadlines.timeout_text(here))
        return outcome._replace(where="loopback")

    def _perform(
        self, delivery: Delivery, address: Address, exchange: _Exchange, seconds: float
    ) -> Outcome:
        request = _request_bytes(delivery, address)
        host = address.host.rstrip(".")
        if host.endswith(".localhost"):
            # Do not resolve these loopback names, because some resolvers do not know them.
            host = "127.0.0.1"
        server = (address.scheme, host, address.port)
        sock = self._take_idle(server) if exchange.keeps else None
        if sock is None:
            sock = exchange.connect(server, seconds)
        try:
            exchange.sock = sock
            if exchange.is_interrupted:
                raise ConnectionAbortedError("the delivery was interrupted")
            sock.settimeout(seconds)
            # A server may respond and close the connection before it has read the whole body.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(request)
            outcome, reusable = _read_answer(sock, delivery.method)
        except BaseException:
            sock.close()
            raise
        exchange.sock = None
        if exchange.keeps and reusable:
            with self._lock:
                self._idle.setdefault(server, []).append(sock)
        else:
            sock.close()
        return outcome

    def _take_idle(self, server: _Server) -> socket.socket | None:
        while True:
            with self._lock:
                idle = self._idle.get(server)
                if not idle:
                    return None
                sock = idle.pop()
            with selectors.DefaultSelector() as selector:
                selector.register(sock, selectors.EVENT_READ)
                # Nothing but the end of the connection can be read between two responses.
                if not selector.select(0):
                    return sock
            sock.close()

    def close(self) -> None:
        self.release()
        with self._lock:
            interrupted = list(self._under_way)
        for exchange in interrupted:
            with contextlib.suppress(OSError):
                exchange.interrupt()

    def release(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for socks in idle.values():
            for sock in socks:
                sock.close()

    def _release_later(self) -> None:
        """Close idle connections when ``IDLE_SECONDS`` have passed since the last delivery.

        An idle connection blocks a single-threaded server and prevents a threaded server from
        stopping.
        """
        with self._lock:
            self._last_use = monotonic()
            if self._will_release:
                return
            self._will_release = True
        self._deadlines.start(weakly(self._release_if_idle), IDLE_SECONDS)

    def _release_if_idle(self) -> None:
        with self._lock:
            left = self._last_use + IDLE_SECONDS - monotonic()
            self._will_release = left > 0
        if left > 0:
            self._deadlines.start(weakly(self._release_if_idle), left)
        else:
            self.release()


class _Exchange:
    """One request and its response, which another thread may interrupt."""

    def __init__(self, keeps: bool) -> None:
        self.keeps = keeps
        self.sock: socket.socket | None = None
        self.timed_out = False
        self.is_interrupted = False

    def connect(self, server: _Server, seconds: float) -> socket.socket:
        scheme, host, port = server
        sock = connect(host, port, seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if scheme == "http":
            return sock
        self.sock = sock
        # Do not check the certificate, because a test's own server may have any.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(sock, server_hostname=host)

    def time_out(self) -> None:
        self.timed_out = True
        self.interrupt()

    def interrupt(self) -> None:
        self.is_interrupted = True
        sock = self.sock
        if sock is not None:
            # Do not call the method of a TLS socket, which another thread is using.
            below_tls(sock).shutdown(socket.SHUT_RDWR)


def _request_bytes(delivery: Delivery, address: Address) -> bytes:
    """Return the bytes of a request; raise ``ValueError`` if HTTP cannot represent it."""
    headers = [pair for pair in delivery.headers if pair[0].lower() not in HOP_BY_HOP]
    if delivery.body or delivery.method in ("POST", "PUT", "PATCH"):
        headers.append(("Content-Length", str(len(delivery.body))))
    lines = [f"{delivery.method} {address.target} HTTP/1.1".encode("latin-1", "replace")]
    for name, value in [("Host", address.netloc.rstrip(":")), *headers]:
        encoded = value.encode() if value.isascii() else header_bytes(value)
        lines.append(name.encode("latin-1") + b": " + encoded)
    head = b"\r\n".join(lines)
    breaks = len(lines) - 1
    if lines[0].count(b" ") != 2 or head.count(b"\r") != breaks or head.count(b"\n") != breaks:
        raise ValueError("the method, the target or a header contains a space or a line break")
    return head + b"\r\n\r\n" + delivery.body


def _read_answer(sock: socket.socket, method: str) -> tuple[Outcome, bool]:
    """Return a server's response, and whether the connection can be used again."""
    with http.client.HTTPResponse(sock, method=method) as response:
        response.begin()
        body = response.read(LARGEST_ANSWER + 1)
        if len(body) > LARGEST_ANSWER:
            raise ValueError(f"the answer is larger than {LARGEST_ANSWER} bytes")
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
        outcome = Outcome(response.status, response.getheaders(), body)
        return outcome, not response.will_close
