"""The parser of requests: from the bytes of a connection to ``ReceivedRequest``.

``httptools`` parses, and rejects a request that two servers could interpret differently. It limits
nothing, and what it reports depends on how TCP splits the bytes. ``RequestReader`` adds limits, waits
for the whole first line of a request, and feeds the parser no more than to the end of that request.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from functools import lru_cache

import httptools

from ..core.errors import shown
from .messages import Request, asks_to_close

HEAD_LIMIT = 64 * 1024
"""Maximum bytes of a request line with headers, and of trailers. Larger ones get a 431."""
HEADERS_LIMIT = 1000
"""Maximum number of headers in a request. A header takes more memory than its bytes."""
BODY_LIMIT = 64 * 1024 * 1024
"""Maximum bytes of a request body, above the limits of all services, so that those apply."""

_METHOD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32} "
_BEGINNING = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}( .*)?|\x16"
"""The beginning of a request line, or the first byte of a TLS connection."""
_END_OF_HEAD = rb"\n\r?\n"
_END_OF_CHUNKS = rb"\r\n\r\n"
_LONGEST_CACHED = 512
"""Maximum length of the value of a header that is decoded only once."""
_HEAD = "request line and headers"
_TAIL = "trailers and chunk extensions"
_TWO_HOSTS = "more than one Host header"


class MalformedRequest(Exception):
    """A request that the server itself rejects, with the status and the reason. ``method`` and
    ``target`` are set only if the reason is the method.
    """

    def __init__(self, status: int, reason: str, method: str = "", target: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.method = method
        self.target = target


class ReceivedRequest(Request):
    """A request with details that matter to its connection.

    ``version`` is ``"1.0"`` or ``"1.1"``, ``keep_alive`` is True if the connection stays open after
    the response, ``expects`` is True while the client waits for a ``100 Continue``, and ``is_admitted``
    is True once the server has decided to read a large body.
    """

    version: str
    keep_alive: bool
    expects: bool
    is_admitted = False


class RequestReader:
    """Reads the requests of one connection.

    Its state is that of the request that is being read, from ``_start()`` on: first its incomplete
    line, then its head, its body, and what surrounds the chunks of a body.

    ``feed()`` appends complete requests to ``requests``. After invalid bytes, ``malformed`` contains
    the reason, and the caller must feed nothing more. ``pending`` is a request whose body is
    incomplete. ``client`` is the peer's address, which is passed to each request.
    """

    def __init__(
        self,
        client: tuple[str, int] | None = None,
        *,
        head_limit: int = HEAD_LIMIT,
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self.client = client
        self.head_limit = head_limit
        self.body_limit = body_limit
        self.requests: deque[ReceivedRequest] = deque()
        self.pending: ReceivedRequest | None
        self.malformed: MalformedRequest | None = None
        self._line = b""
        """The beginning of a request whose first line is incomplete."""
        self._restart()

    def close(self) -> None:
        """Drop the parser, which refers to this reader, so that both are freed now."""
        del self._parser

    def _restart(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._start()

    def _start(self) -> None:
        self.pending = None
        self._target = b""
        self._headers: list[tuple[str, str]] = []
        self._body: bytes | bytearray = b""
        self._length: int | None = None
        """The size of the body; None if it is sent in chunks."""
        self._tail = b""
        """The latest bytes of the request, which can be the beginning of a blank line."""
        self._overhead = 0
        """The number of bytes of the head so far or, once it is complete, those since the last byte of
        the body: of trailers and chunk extensions.
        """
        self._trailers = 0
        """The number of bytes of the trailers so far."""
        self._begun = False
        """Whether the first line of the request is complete."""

    def feed(self, data: bytes) -> None:
        try:
            while data and self.malformed is None:
                if self._begun:
                    end = self._end_of_part(data)
                    self._parse(data[:end])
                    data = data[end:]
                else:
                    data = self._begin(data)
        except MemoryError as error:
            self._run_out_of_memory(error)

    def _begin(self, data: bytes) -> bytes:
        """Read the beginning of a request, at least its whole first line; return the other bytes."""
        data = (self._line + data).lstrip(b"\r\n")
        self._line = b""
        length = data.find(b"\n") + 1
        if not length and re.fullmatch(_BEGINNING, data, re.DOTALL):
            # Wait for the rest of the line, so that the response does not depend on how TCP splits it.
            self._line = data
            if len(data) > self.head_limit:
                self.malformed = self._too_large(_HEAD)
            return b""
        data = _escape(data[:length]) + data[length:]
        end = self._end_of_part(data)
        self._parse(data[:end])
        return data[end:]

    def _end_of_part(self, data: bytes) -> int:
        """Return the number of bytes to parse next: no more than to the end of the request, because the
        first line of the next one is read differently.
        """
        if self.pending is not None and self._length is not None:
            return self._length - len(self._body)
        blank_line = _END_OF_HEAD if self.pending is None else _END_OF_CHUNKS
        match = re.search(blank_line, self._tail + data)
        if match is None:
            self._tail = (self._tail + data)[-3:]
            return len(data)
        end = match.end() - len(self._tail)
        self._tail = b""
        return end

    def _run_out_of_memory(self, error: MemoryError) -> None:
        """Reject the request that did not fit into memory, and free what was read of it."""
        self._body = self._line = b""
        reason = f"the request does not fit into memory: {shown(error)}"
        self.malformed = MalformedRequest(500, reason)

    def _add(self, part: bytes) -> None:
        # Use a bytearray from the second part on: a body can arrive in millions of parts.
        if not self._body:
            self._body = part
            return
        if type(self._body) is bytes:
            self._body = bytearray(self._body)
        self._body += part

    def _parse(self, data: bytes) -> None:
        fresh = not self._begun
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._serve_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._fail(error, data if fresh else b"")
            return
        # The parser calls no method while it reads an endless header, trailer or chunk extension.
        if self._overhead > self.head_limit:
            self.malformed = self._too_large(_HEAD if self.pending is None else _TAIL)

    def _fail(self, error: httptools.HttpParserError, beginning: bytes) -> None:
        """Reject data that cannot be parsed. ``beginning`` is the data if a request begins with it."""
        reason = error.__context__
        if isinstance(reason, MemoryError):
            raise reason
        if isinstance(reason, MalformedRequest):
            self.malformed = reason
            return
        self.malformed = MalformedRequest(400, str(error))
        if isinstance(error, httptools.HttpParserInvalidMethodError):
            self.malformed = _no_method(beginning) or self.malformed

    def _serve_without_upgrade(self, data: bytes) -> None:
        # Parse the head again without the Upgrade header. The parser assumes that an upgrade is
        # granted and reads no body after it, but the fakes do not support upgrades.
        upgrade = self.requests.pop()
        if upgrade.method == "CONNECT":
            reason = "CONNECT is for proxies; this is not a proxy"
            self.malformed = MalformedRequest(405, reason, upgrade.method, upgrade.target)
            return
        headers = [f"{n}: {v}" for n, v in upgrade.headers.pairs if n.lower() != "upgrade"]
        lines = [f"{upgrade.method} {upgrade.target} HTTP/{upgrade.version}", *headers, "", ""]
        self._restart()
        self.feed("\r\n".join(lines).encode("latin-1"))
        request = self.pending or (self.requests[-1] if self.requests else None)
        if request is not None:
            request.headers, request.fields = upgrade.headers, upgrade.fields
        if data and self.malformed is None:
            self.feed(data)

    def _too_large(self, parts: str) -> MalformedRequest:
        return MalformedRequest(431, f"{parts} are limited to {self.head_limit} bytes")

    # -- called by the parser --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begun = True

    def on_url(self, url: bytes) -> None:
        self._target = url  # in one part, because the first line is fed as a whole

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.pending is not None:
            # A trailer, which no service uses. One packet can have many of them.
            self._trailers += len(name) + len(value) + 4
            if self._trailers > self.head_limit:
                raise self._too_large(_TAIL)
            return
        decode = _cached_header if len(value) <= _LONGEST_CACHED else _decoded_header
        self._headers.append(decode(name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        request = ReceivedRequest(
            sys.intern(parser.get_method().decode("ascii")),  # The journal keeps all of them.
            self._target.decode("latin-1"),
            self._headers,
            b"",
            self.client,
        )
        version = request.version = parser.get_http_version()
        request.expects = False
        size = len(self._target) + sum([len(n) + len(v) + 4 for n, v in self._headers])
        self._overhead = 0
        if size > self.head_limit:
            raise self._too_large(_HEAD)
        if len(self._headers) > HEADERS_LIMIT:
            raise MalformedRequest(431, f"a request is limited to {HEADERS_LIMIT} headers")
        if version not in ("1.1", "1.0"):
            raise MalformedRequest(505, f"HTTP/{version} is not supported, only HTTP/1.1")
        hosts = request.headers.getlist("Host")
        if len(hosts) > 1:
            raise MalformedRequest(400, _TWO_HOSTS)
        if not hosts and version == "1.1":
            raise MalformedRequest(400, "an HTTP/1.1 request needs a Host header")
        self._frame(request)
        self.pending = request

    def _frame(self, request: ReceivedRequest) -> None:
        def value_of(name: str) -> str | None:
            return ", ".join(request.headers.getlist(name)) if name in request.fields else None

        coding = value_of("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise MalformedRequest(
                501, f"transfer coding {coding!r} is not supported, only 'chunked'"
            )
        length = int(request.fields.get("content-length", "0"))
        self._length = length if coding is None else None
        if length > self.body_limit:
            raise MalformedRequest(
                413, f"a body is limited to {self.body_limit} bytes, got {length}"
            )
        expect = value_of("expect")
        if expect is not None and request.version == "1.1":
            if {expectation.strip().lower() for expectation in expect.split(",")} != {
                "100-continue"
            }:
                raise MalformedRequest(
                    417, f"the expectation {expect!r} is not supported, only '100-continue'"
                )
            request.expects = coding is not None or length > 0

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self.body_limit:
            raise MalformedRequest(413, f"a body is limited to {self.body_limit} bytes")
        self._add(data)
        self._overhead = 0

    def on_message_complete(self) -> None:
        request = self.pending
        if request is None:  # pragma: no cover - the parser always completes the head first
            return
        if self._body:
            request.body = bytes(self._body)
        request.keep_alive = self._parser.should_keep_alive()
        if request.keep_alive and request.version == "1.0":
            # Check for "close", which the parser lets "keep-alive" override (RFC 9112, 9.3).
            request.keep_alive = not asks_to_close(",".join(request.headers.getlist("Connection")))
        self.requests.append(request)
        self._start()


def _decoded_header(name: bytes, value: bytes) -> tuple[str, str]:
    return name.decode("latin-1"), value.rstrip(b" \t").decode("latin-1")


_cached_header = lru_cache(maxsize=256)(_decoded_header)
"""Clients send the same headers repeatedly, and the journal keeps them. Without this cache, it takes
half as much memory again.
"""


def _no_method(data: bytes) -> MalformedRequest | None:
    """Return the reason to reject an unknown method or TLS; None for other data."""
    if re.match(_METHOD, data):
        # The parser rejects methods that are not registered, but any token is valid syntax.
        method, target, *_ = [*data.split(b"\r\n")[0].decode("latin-1").split(" "), ""]
        return MalformedRequest(501, f"the method {method!r} is not known", method, target)
    if data.startswith(b"\x16\x03"):
        return MalformedRequest(
            400, "received TLS, but this server uses plain HTTP: use http:// (or tls=True)"
        )
    return None


def _escape(line: bytes) -> bytes:
    """Percent-encode the raw non-ASCII bytes in the target of a request line, which other servers
    accept (``curl http://…/set/key/é`` sends one).
    """
    if line.isascii():
        return line
    method, space, rest = line.partition(b" ")
    return method + space + re.sub(rb"[\x80-\xff]", lambda byte: b"%%%02X" % ord(byte[0]), rest)
