"""``Response``, with which a test prepares a response: of a fault, or of a queue's destination."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ..core.errors import ContractError
from ..core.timeparse import Duration, duration_us
from ..http.messages import JSON_TYPE

TEXT_TYPE = "text/plain; charset=utf-8"
Ending = Literal["respond", "hang", "refuse"]


@dataclass(frozen=True)
class Response:
    """A prepared response, of a fault or of a destination.

    ``body`` is bytes, a string, or any JSON value. The latter two also set the content type.
    ``after`` is the time that a destination takes on the queue's clock; a fault rejects it, because
    ``faults.delay()`` delays requests. ``Response.hang()`` never responds, ``Response.refuse()``
    refuses the connection. Raises ``ContractError`` for an invalid
    status, invalid headers, a body that cannot be encoded, or an invalid duration.
    """

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = ()
    after: Duration = 0
    ending: Ending = "respond"

    _encoded: tuple[list[tuple[str, str]], bytes] = field(init=False, repr=False, compare=False)
    """The headers, with a content type if the body implies one, and the body as bytes."""
    _after_us: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        status: object = self.status
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
            raise ContractError(f"{status!r} is not an HTTP status; pass a number from 100 to 599")
        object.__setattr__(self, "_after_us", duration_us(self.after))
        # Encode now, because an iterator of headers would be empty when the response is used again.
        headers = _header_pairs(self.headers, self.body)
        object.__setattr__(self, "headers", tuple(headers))
        kind, body = _typed_body(self.body)
        if kind is not None and all(name.lower() != "content-type" for name, _ in headers):
            headers.append(("Content-Type", kind))
        object.__setattr__(self, "_encoded", (headers, body))

    @classmethod
    def hang(cls) -> Response:
        """Return a response that is never sent, so that the request times out."""
        return cls(ending="hang")

    @classmethod
    def refuse(cls) -> Response:
        """Return a response that refuses the connection, as if no server listened."""
        return cls(ending="refuse")


def _typed_body(body: object) -> tuple[str | None, bytes]:
    """Return a body as bytes, and the content type that it implies."""
    if body is None:
        return None, b""
    if isinstance(body, bytes | bytearray | memoryview):
        return None, bytes(body)
    if isinstance(body, str):
        return TEXT_TYPE, bytes_of(body)
    return JSON_TYPE, json_bytes("body", body)


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


def _header_pairs(headers: object, body: object) -> list[tuple[str, str]]:
    """Return headers as pairs; raise ``ContractError`` unless they are strings or numbers."""
    given = headers.items() if isinstance(headers, Mapping) else headers
    try:
        if isinstance(given, str | bytes):
            raise TypeError
        pairs = [(name, value) for name, value in cast("Iterable[tuple[Any, Any]]", given)]
    except (TypeError, ValueError):
        swapped = isinstance(body, Mapping | list | tuple) and isinstance(headers, str | bytes)
        hint = ", so body and headers seem to be swapped" if swapped else ""
        raise ContractError(
            f"{headers!r} are not headers{hint}; pass a dict or a list of (name, value), in a tuple"
            " as (status, body, headers)"
        ) from None
    for name, value in pairs:
        if not isinstance(name, str) or not name or not isinstance(value, str | int | float):
            raise ContractError(
                f"{(name, value)!r} is not a header; pass a name and a value, both strings"
            )
        if re.search(r"[\r\n]", f"{name}{value}"):
            raise ContractError(f"{(name, value)!r} is not a header: it contains a line break")
    return [(name, str(value)) for name, value in pairs]
