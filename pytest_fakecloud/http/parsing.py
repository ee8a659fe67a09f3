"""The parser of requests: from the bytes of a connection to ``ReceivedRequest``.

``httptools`` parses, and rejects a request that two servers could interpret differently. What it does
not do is done here:

- It limits nothing: a head, a body, trailers and the number of headers have limits.
- What it reports depends on how TCP splits the bytes, and it goes on into the next request. So
  ``_feed_head`` feeds it a head as a whole, and ``feed`` and ``_feed_chunks`` a body to its end.
- It waits for a blank line, which a client of another protocol does not send: ``_BEGINNING``.
- It rejects methods that are not registered and non-ASCII bytes in a target, and reads no body after the
  header ``Upgrade``: ``_no_method`` and ``_parse_head``.
- It would call a function for each header. Their lines are kept as they were sent, for ``Headers``.
"""

from __future__ import annotations

import re
import sys
from collections import deque

import httptools

from ..core.calls import Headers
from ..core.errors import shown
from .messages import Request, asks_to_close

HEAD_LIMIT = 64 * 1024
"""Maximum bytes of a request line with headers, and of trailers. Larger ones get a 431."""
HEADERS_LIMIT = 1000
"""Maximum number of headers in a request. A header takes more memory than its bytes."""
BODY_LIMIT = 64 * 1024 * 1024
"""Maximum bytes of a request body, above the limits of all services, so that those apply."""

_METHOD = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}"
_BEGINNING = re.compile(rb"\x16?\Z|" + _METHOD + rb"(\r?\Z| [^\n]*(\Z| [A-Z]+/\d\.\d\r?\n))")
"""The first byte of a TLS connection, or a request line, which may be incomplete."""
_BLANK_LINE = b"\r\n\r\n"
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_END_OF_CHUNKS = re.compile(_BLANK_LINE)
_PART_BYTES = 4096
"""Number of bytes of a body in chunks after which the limit for what surrounds the chunks is checked."""
_UPGRADE = re.compile(rb"\n(?=upgrade:)", re.IGNORECASE)
_DISGUISE = b"!"
"""The beginning of the name that the parser gets for the header ``Upgrade``."""
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

    version = "1.1"
    keep_alive = False
    expects = False
    is_admitted = False


class RequestReader:
    """Reads the requests of one connection.

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
        self.malformed: MalformedRequest | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._head = bytearray()
        """The beginning of a request whose head is incomplete."""
        self.pending: ReceivedRequest | None = None
        self._target = b""
        self._header_lines = ""
        """The headers of the request, whose head is complete, with the blank line that follows them."""
        self._body: bytes | bytearray = b""
        self._length: int | None = None
        """The size of the body; None if it is sent in chunks."""
        self._tail = b""
        """The latest bytes of a body in chunks, which can be the beginning of its end."""
        self._overhead = 0
        """The number of bytes since the last byte of such a body: of trailers and chunk extensions."""

    def close(self) -> None:
        """Drop the parser, which refers to this reader, so that both are freed now."""
        del self._parser

    def feed(self, data: bytes) -> None:
        try:
            while data and self.malformed is None:
                if self.pending is None:
                    data = self._feed_head(data)
                elif self._length is not None:
                    end = self._length - len(self._body)
                    self._parse(data[:end])
                    data = data[end:]
                else:
                    data = self._feed_chunks(data)
        except MemoryError as error:
            self._run_out_of_memory(error)

    def _feed_head(self, data: bytes) -> bytes:
        """Feed the head of a request to the parser once it is complete; return the other bytes."""
        head = self._head
        size = len(head)
        # A client may send line breaks between two requests.
        head += data if size else data.lstrip(b"\r\n")
        blank_line = _END_OF_HEAD.search(head, max(0, size - 2))
        end = blank_line.end() if blank_line else len(head)
        if blank_line and end <= self.head_limit:
            self._head = bytearray()
            self._parse_head(bytes(head[:end]))
        elif _BEGINNING.match(head) is None:
            # Do not wait for the rest: a client of another protocol does not send a blank line.
            line = bytes(head).partition(b"\n")[0]
            self._parse_head(line.removesuffix(b"\r") + _BLANK_LINE)
        elif end > self.head_limit:
            self.malformed = self._too_large(_HEAD)
        return bytes(head[end:])

    def _parse_head(self, head: bytes) -> None:
        """Feed a head to the parser in a form that it accepts as other servers do.

        Raw non-ASCII bytes in the target are percent-encoded (``curl http://…/set/key/é`` sends one),
        and the header ``Upgrade`` is disguised. The parser would assume that the upgrade is granted,
        and read no body, but the fakes ignore it.
        """
        line, newline, header_lines = head.partition(b"\n")
        # Clients send the same lines repeatedly, and the journal keeps them.
        self._header_lines = sys.intern(header_lines.decode("latin-1"))
        if not line.isascii():
            method, space, rest = line.partition(b" ")
            escaped = re.sub(rb"[\x80-\xff]", lambda byte: b"%%%02X" % ord(byte[0]), rest)
            head = method + space + escaped + newline + header_lines
        self._parse(_UPGRADE.sub(b"\n" + _DISGUISE, head))

    def _feed_chunks(self, data: bytes) -> bytes:
        """Feed a part of a body in chunks to the parser, at most to its end; return the other bytes."""
        part = data[:_PART_BYTES]
        blank_line = _END_OF_CHUNKS.search(self._tail + part)
        if blank_line:
            part = part[: blank_line.end() - len(self._tail)]
        self._tail = (self._tail + part)[-3:]
        self._overhead += len(part)
        self._parse(part)
        if self._overhead > self.head_limit and self.malformed is None:
            self.malformed = self._too_large(_TAIL)
        return data[len(part) :]

    def _run_out_of_memory(self, error: MemoryError) -> None:
        """Reject the request that did not fit into memory, and free what was read of it."""
        self._body = b""
        self._head = bytearray()
        reason = f"the request does not fit into memory: {shown(error)}"
        self.malformed = MalformedRequest(500, reason)

    def _parse(self, data: bytes) -> None:
        """Feed bytes to the parser, which calls the methods below; set ``malformed`` if it fails."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            reason = error.__context__
            if isinstance(reason, MemoryError):
                raise reason from None
            if isinstance(reason, MalformedRequest):
                self.malformed = reason
                return
            unknown = isinstance(error, httptools.HttpParserInvalidMethodError)
            self.malformed = (unknown and _no_method(data)) or MalformedRequest(400, str(error))

    def _too_large(self, parts: str) -> MalformedRequest:
        return MalformedRequest(431, f"{parts} are limited to {self.head_limit} bytes")

    # -- called by the parser --------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._target = url  # in one part, because the head is fed as a whole

    def on_headers_complete(self) -> None:
        parser = self._parser
        version = parser.get_http_version()
        count = self._header_lines.count("\n") - 1
        if count > HEADERS_LIMIT:
            raise MalformedRequest(431, f"a request is limited to {HEADERS_LIMIT} headers")
        if version not in ("1.1", "1.0"):
            raise MalformedRequest(505, f"HTTP/{version} is not supported, only HTTP/1.1")
        request = ReceivedRequest(
            sys.intern(parser.get_method().decode("ascii")),  # The journal keeps all of them.
            self._target.decode("latin-1"),
            Headers(self._header_lines),
            b"",
            self.client,
        )
        request.version = version
        fields = request.fields
        if len(fields) < count and len(request.headers.getlist("Host")) > 1:
            raise MalformedRequest(400, _TWO_HOSTS)
        if "host" not in fields and version == "1.1":
            raise MalformedRequest(400, "an HTTP/1.1 request needs a Host header")
        is_chunked = "transfer-encoding" in fields
        if is_chunked:
            _check_coding(request)
        length = int(fields.get("content-length", "0"))
        if length > self.body_limit:
            raise MalformedRequest(
                413, f"a body is limited to {self.body_limit} bytes, got {length}"
            )
        if "expect" in fields and version == "1.1":
            _check_expectation(request)
            request.expects = is_chunked or length > 0
        if request.method == "CONNECT":
            reason = "CONNECT is for proxies; this is not a proxy"
            raise MalformedRequest(405, reason, request.method, request.target)
        self.pending = request
        self._length = None if is_chunked else length
        self._body, self._tail, self._overhead = b"", b"", 0

    def on_body(self, data: bytes) -> None:
        if len(self._body) + len(data) > self.body_limit:
            raise MalformedRequest(413, f"a body is limited to {self.body_limit} bytes")
        if not self._body:
            self._body = data
        else:
            # Use a bytearray from the second part on: a body can arrive in millions of parts.
            if type(self._body) is bytes:
                self._body = bytearray(self._body)
            self._body += data
        self._overhead = 0

    def on_message_complete(self) -> None:
        request = self.pending
        if request is None:  # pragma: no cover - the parser always completes the head first
            return
        request.body = bytes(self._body)
        self._body = b""
        request.keep_alive = self._parser.should_keep_alive()
        if request.keep_alive and request.version == "1.0":
            # Check for "close", which the parser lets "keep-alive" override (RFC 9112, 9.3).
            request.keep_alive = not asks_to_close(",".join(request.headers.getlist("Connection")))
        self.requests.append(request)
        self.pending = None


def _check_coding(request: ReceivedRequest) -> None:
    coding = ", ".join(request.headers.getlist("Transfer-Encoding"))
    if coding.lower() != "chunked":
        raise MalformedRequest(501, f"transfer coding {coding!r} is not supported, only 'chunked'")


def _check_expectation(request: ReceivedRequest) -> None:
    expectation = ", ".join(request.headers.getlist("Expect"))
    if {part.strip().lower() for part in expectation.split(",")} != {"100-continue"}:
        raise MalformedRequest(
            417, f"the expectation {expectation!r} is not supported, only '100-continue'"
        )


def _no_method(data: bytes) -> MalformedRequest | None:
    """Return the reason to reject an unknown method or TLS; None for other data."""
    if re.match(_METHOD + b" ", data):
        # The parser rejects methods that are not registered, but any token is valid syntax.
        method, target, *_ = [*data.split(b"\r\n")[0].decode("latin-1").split(" "), ""]
        return MalformedRequest(501, f"the method {method!r} is not known", method, target)
    if data.startswith(b"\x16\x03"):
        return MalformedRequest(
            400, "received TLS, but this server uses plain HTTP: use http:// (or tls=True)"
        )
    return None
