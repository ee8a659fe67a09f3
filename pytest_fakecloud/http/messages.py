"""Requests, responses, and the effects of faults on connections."""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from ..core.calls import Call, HeaderPairs, Headers, Outcome
from ..core.errors import ContractError

JSON_TYPE = "application/json"
EffectKind: TypeAlias = Literal["drop", "refuse", "lose", "hang", "truncate"]
_NO_CALL = Call(0, 0, "", "", "", "")
"""The call of requests that are not recorded, which must not change it."""


class Request:
    """A request as received: nothing is decoded, and repeated headers are not merged.

    ``target`` is the raw request target (its bytes as Latin-1); ``path`` and ``query_string`` are
    its two parts. ``headers`` is a case-insensitive mapping, ``fields`` maps lower-case header names
    to first values. ``client`` is the peer's address, None for a request that used no socket
    (``transport="inprocess"``). ``principal`` is the result of authentication, ``route`` the name of
    the matched endpoint, ``params`` are the raw parameters in its path, ``call`` is the request's
    entry in the journal.
    """

    def __init__(
        self,
        method: str,
        target: str,
        headers: Headers | HeaderPairs = (),
        body: bytes = b"",
        client: tuple[str, int] | None = None,
    ) -> None:
        self.method = method
        self.target = target
        path, _, self.query_string = target.partition("?")
        # Remove the origin from an absolute URL, which clients send to a fake that is their proxy.
        if not path.startswith("/"):
            _, _, after_scheme = path.partition("://")
            path = "/" + after_scheme.partition("/")[2]
        self.path = path
        self.headers = headers if isinstance(headers, Headers) else Headers(tuple(headers))
        self.body = body
        self.client = client
        self.principal: Any = None
        self.params: Mapping[str, str] = {}
        self.route = ""
        self.call: Call = _NO_CALL
        # Reversed, so that the first value of a repeated header wins.
        self.fields: dict[str, str] = {}
        for name, value in reversed(self.headers.pairs):
            self.fields[name.lower()] = value

    def __str__(self) -> str:
        return f"{self.method} {self.target}"

    def segment(self, name: str) -> str:
        """Return a parameter of the path, decoded."""
        return decode_segment(self.params[name])

    def query_items(self) -> list[tuple[str, str]]:
        """Return the decoded names and values of the query in order, including duplicates."""
        return query_items(self.query_string)

    def query(self, name: str) -> str | None:
        """Return the first value of a query parameter, or None."""
        return next((value for key, value in self.query_items() if key == name), None)


def asks_to_close(connection: str) -> bool:
    """Return whether the value of a Connection header contains ``close``."""
    return "close" in map(str.strip, connection.lower().split(","))


@dataclass
class Answer:
    """A complete response, whose body is sent unchanged. ``altered`` is True if the endpoint responded
    and a fault has replaced the body.
    """

    body: bytes = b""
    status: int = 200
    headers: HeaderPairs = ()
    content_type: str | None = JSON_TYPE
    altered: bool = field(default=False, init=False, compare=False)


class Json(NamedTuple):
    """The result of an endpoint that the app sends as JSON, with a status or headers of its own."""

    value: object
    status: int = 200
    headers: HeaderPairs = ()


class Stream:
    """A response whose chunks are sent as they are produced (server-sent events).

    ``on_close`` makes a waiting ``chunks`` end. It is called in another thread when the client
    disconnects, and in any case after ``chunks`` was closed, so it can be called twice.
    """

    def __init__(
        self,
        chunks: Iterator[bytes],
        content_type: str = "text/event-stream",
        status: int = 200,
        headers: HeaderPairs = (),
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.chunks = chunks
        self.content_type = content_type
        self.status = status
        self.headers = headers
        self.on_close = on_close

    def end(self) -> None:
        close_chunks(self.chunks)
        if self.on_close is not None:
            self.on_close()


class ConnectionEffect(NamedTuple):
    """The effect that an injected fault has on the connection, instead of a response.

    ``kind`` is ``"drop"`` (close without a response, before the engine), ``"lose"`` (close without
    sending ``answer``, after the engine), ``"refuse"`` (as if no server listened), ``"hang"`` (send
    nothing until the client or the server closes) or ``"truncate"`` (announce the whole response,
    send the first ``keep`` bytes of its body, close). ``reset`` closes with a TCP reset.
    """

    kind: EffectKind
    answer: Answer | None = None
    keep: int = 0
    reset: bool = False


def close_chunks(chunks: object) -> None:
    """Close a generator; do nothing for an iterable without ``close()``."""
    close = getattr(chunks, "close", None)
    if close is not None:
        close()


AnyResponse: TypeAlias = Answer | Stream | ConnectionEffect
Result: TypeAlias = Answer | Json | Stream
"""What an endpoint may return, besides any other object that the app sends as JSON."""
Proceed: TypeAlias = Callable[[], AnyResponse]
"""A function that returns the response of the rest of a chain; after its last interceptor, that of the
endpoint.
"""

OUTCOME_OF_EFFECT: Mapping[EffectKind, Outcome] = {
    "drop": "dropped",
    "refuse": "refused",
    "lose": "lost",
    "hang": "hung",
    "truncate": "truncated",
}
"""The outcome that the journal records for a call, by the kind of its effect."""


def decode_segment(raw: str) -> str:
    """Return one raw path segment as a string; invalid UTF-8 becomes U+FFFD."""
    return decode_bytes(raw).decode("utf-8", "replace")


def decode_bytes(raw: str) -> bytes:
    """Return the bytes of a raw path segment, without its percent-encoding."""
    if "%" not in raw:
        return raw.encode("latin-1")
    return unquote_to_bytes(raw.encode("latin-1"))


def query_items(query_string: str) -> list[tuple[str, str]]:
    """Return the decoded names and values of a raw query string in order, including empty values."""
    items = []
    for part in filter(None, query_string.split("&")):
        name, _, value = part.replace("+", " ").partition("=")
        items.append((decode_segment(name), decode_segment(value)))
    return items


def bytes_of(body: object) -> bytes:
    """Return bytes unchanged and a string as UTF-8; raise ``ContractError`` for anything else."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if not isinstance(body, str):
        raise ContractError(f"body={body!r} is invalid; pass bytes or a string")
    try:
        return body.encode()
    except UnicodeEncodeError:
        raise ContractError(f"body={body!r} contains characters that UTF-8 cannot encode") from None


def json_bytes(name: str, value: object) -> bytes:
    """Return an argument as JSON; raise ``ContractError`` if it is not JSON-serializable."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        raise ContractError(f"{name}= is nested too deeply for JSON") from None
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"{name}={value!r} is not JSON-serializable ({error}); pass a dict, a list, a string,"
            " a number, True, False or None"
        ) from None


def json_value(body: bytes) -> Any:
    """Parse a body as JSON; raise ``ValueError``, also for NaN and for values nested too deeply."""
    try:
        return json.loads(body, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except UnicodeDecodeError:
        raise ValueError("the body is not valid UTF-8") from None
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None


def _reject_constant(name: str) -> Any:
    """Raise ``ValueError`` for ``NaN`` and ``Infinity``, which Python accepts and JSON does not have."""
    raise ValueError(f"{name} is not a JSON value")


def bearer_token(header: str | None) -> str | None:
    """Return the token of an ``Authorization: Bearer`` header, or None."""
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def basic_credentials(header: str | None) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization: Basic`` header, for ``same()``, or None."""
    scheme, _, encoded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = binascii.a2b_base64(encoded.strip(), strict_mode=True)
    except ValueError:
        return None
    user, colon, password = decoded.partition(b":")
    return (user, password) if colon else None


def same(credential: str | bytes | None, expected: str) -> bool:
    """Return whether a credential equals the expected one, encoded as UTF-8 or as Latin-1.

    The time does not depend on how many bytes agree.
    """
    if credential is None:
        return False
    if isinstance(credential, str):
        credential = credential.encode("utf-8", "surrogatepass")
    is_same = compare_digest(credential, expected.encode())
    if not expected.isascii():
        with suppress(UnicodeEncodeError):
            is_same |= compare_digest(credential, expected.encode("latin-1"))
    return is_same
