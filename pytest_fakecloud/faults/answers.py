"""Responses of faults and destinations: as a test prepares them, as they are sent, and damaged."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

from ..core.calls import HeaderPairs
from ..core.errors import ContractError, ServiceError, shown
from ..core.field_types import TOKEN
from ..core.timers import Duration, duration_us
from ..http.messages import (
    JSON_TYPE,
    Answer,
    AnyResponse,
    ConnectionEffect,
    Json,
    Proceed,
    Stream,
    bytes_of,
    close_chunks,
    json_bytes,
)
from ..http.server import SET_BY_SERVER, phrase

if TYPE_CHECKING:
    from ..http.app import App

TEXT_TYPE = "text/plain; charset=utf-8"
Ending = Literal["respond", "hang", "refuse"]


class Response:
    """A prepared response, of a fault or of a destination.

    ``body`` is bytes, a string, or any JSON value. The latter two also set the content type.
    ``after`` is the time that a destination takes on the queue's clock; a fault rejects it, because
    ``faults.delay()`` delays requests. ``Response.hang()`` never responds, ``Response.refuse()``
    refuses the connection. Raises ``ContractError`` for an invalid status, invalid headers, a body
    that cannot be encoded, or an invalid duration. Do not change a response, but create another one:
    its body and headers are encoded already.
    """

    def __init__(
        self,
        status: int = 200,
        body: Any = b"",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        after: Duration = 0,
        ending: Ending = "respond",
    ) -> None:
        if isinstance(status, bool) or not isinstance(status, int) or not 100 <= status <= 599:
            raise ContractError(f"{status!r} is not an HTTP status; pass a number from 100 to 599")
        self._after_us = duration_us(after)
        # Encode now, because an iterator of headers would be empty when the response is used again.
        pairs = _header_pairs(headers, body)
        self.status = status
        self.body = body
        self.headers = tuple(pairs)
        self.after = after
        self.ending = ending
        kind, encoded = _typed_body(body)
        if kind is not None and all(name.lower() != "content-type" for name, _ in pairs):
            pairs.append(("Content-Type", kind))
        self._encoded = (pairs, encoded)
        """The headers, with a content type if the body implies one, and the body as bytes."""

    def __repr__(self) -> str:
        attributes = [f"{name}={value!r}" for name, value in vars(self).items() if name[0] != "_"]
        return f"Response({', '.join(attributes)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Response) and vars(self) == vars(other)

    def _written(self) -> Any:
        """Return the response as a state file has it."""
        if self.ending != "respond":
            return self.ending
        written: dict[str, Any] = {"status": self.status}
        if self.headers:
            written["headers"] = dict(self.headers)
        if isinstance(self.body, bytes | bytearray | memoryview):
            if self.body:
                written["body_base64"] = b64encode(self.body).decode()
        elif self.body is not None:
            written["body"] = self.body
        if self._after_us:
            written["after"] = self._after_us / 1e6
        return written

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


def _header_pairs(headers: object, body: object = b"") -> list[tuple[str, str]]:
    """Return headers as pairs; raise ``ContractError`` unless they are strings or numbers. With
    ``body``, the error says that the two seem to be swapped if they do.
    """
    items: Any = headers.items() if isinstance(headers, Mapping) else headers
    try:
        if isinstance(items, str | bytes):
            raise TypeError
        pairs = list(items)
        if any(isinstance(pair, str | bytes) or len(pair) != 2 for pair in pairs):
            raise TypeError
    except TypeError:
        swapped = isinstance(body, Mapping | list | tuple) and isinstance(headers, str | bytes)
        hint = ", so body and headers seem to be swapped" if swapped else ""
        form = ", in a tuple as (status, body, headers)" if swapped else ""
        raise ContractError(
            f"{shown(headers):.80} are not headers{hint}; pass a dict or a list of (name, value){form}"
        ) from None
    for name, value in pairs:
        is_value = isinstance(value, str | int | float) and not isinstance(value, bool)
        if not isinstance(name, str) or not name or not is_value:
            raise ContractError(
                f"{(name, value)!r} is not a header; pass a name and a value, both strings"
            )
        if re.search(r"[\r\n]", f"{name}{value}"):
            raise ContractError(f"{(name, value)!r} is not a header: it contains a line break")
    return [(name, str(value)) for name, value in pairs]


_VALUE = r"[^\x00-\x08\x0a-\x1f\x7f]*"
Step = (
    int | None | tuple[int, Any] | Response | Literal["drop", "hang", "lose_response", "truncate"]
)
"""A step of a sequence: a status, None for no fault, ``(status, body)``, a ``Response``, or a fault's
name.
"""


def no_app() -> App | None:
    """Return the app of faults that belong to none yet."""
    return None


class AnswerMaker:
    """Checks and encodes the responses that a test defines, in the formats of the app that ``app()``
    returns; without an app only bytes and text.
    """

    def __init__(self, app: Callable[[], App | None] = no_app) -> None:
        self.app = app

    def render(self, error: ServiceError) -> Answer:
        """Return an error in the service's format, for faults with a status but no body."""
        app = self.app()
        if app is None:
            return Answer(f"{error.message}\n".encode(), error.status, error.headers, "text/plain")
        return self.encoded(app.render_error(error))

    def responder(
        self,
        status: int,
        body: object = None,
        headers: HeaderPairs | Mapping[str, str] = (),
        content_type: str | None = None,
    ) -> Callable[[Proceed], Answer]:
        """Return a function that responds instead of the endpoint; raise ``ContractError`` if
        invalid.
        """
        checked_status(status)
        others, kind = _split_headers(headers, content_type)
        if body is not None:
            raw = self.encoded_body(body)
            usual = TEXT_TYPE if isinstance(body, bytes | str) else JSON_TYPE
            return lambda proceed: Answer(raw, status, others, kind or usual)

        def respond(proceed: Proceed) -> Answer:
            answer = self.render(ServiceError(status, phrase(status), headers=others))
            if kind is not None:
                answer.content_type = kind
            return answer

        return respond

    def encoded(self, result: Answer | Json) -> Answer:
        """Return an error as a complete response; raise ``ContractError`` if it is invalid."""
        status, headers = checked_status(result.status), checked_headers(result.headers)
        if isinstance(result, Json):
            return Answer(self._as_json(result.value), status, headers)
        return Answer(result.body, status, headers, checked_type(result.content_type))

    def prepared(self, response: Response) -> AnyResponse:
        """Return what to send for the test's ``Response``; raise ``ContractError`` if impossible."""
        if response.ending == "hang":
            return ConnectionEffect("hang")
        if response.ending == "refuse":
            return ConnectionEffect("refuse", reset=True)
        if response._after_us:
            raise ContractError(
                f"after={shown(response.after)} is the time that a queue's destination takes: leave "
                "it out, and inject faults.delay() too"
            )
        headers, body = response._encoded
        others, kind = _split_headers(headers)
        return Answer(body, checked_status(response.status), others, kind)

    def encoded_body(self, body: object) -> bytes:
        """Return a body as bytes: ``bytes`` unchanged, a string as UTF-8, anything else as JSON."""
        if isinstance(body, bytes):
            return body
        return _encodable(body).encode() if isinstance(body, str) else self._as_json(body)

    def _as_json(self, body: object) -> bytes:
        app = self.app()
        if app is None:
            raise ContractError(f"the faults of this fake can only send bytes, got {shown(body)}")
        try:
            return app.dump(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise ContractError(
                f"the body {shown(body):.80} cannot be sent as JSON ({error}): pass bytes, a string "
                "or a JSON value"
            ) from error

    def step(self, step: Step) -> Callable[[Proceed], AnyResponse]:
        """Return a function that applies a step; raise ``ContractError`` for an invalid one."""
        if step is None:
            return lambda proceed: proceed()
        if isinstance(step, str) and step in _NAMED_STEPS:
            return _NAMED_STEPS[step]
        if isinstance(step, Response):
            ready = self.prepared(step)
            return lambda proceed: copy(ready) if isinstance(ready, Answer) else ready
        if isinstance(step, tuple) and len(step) == 2:
            return self.responder(*step)
        if isinstance(step, int):
            return self.responder(step)
        raise ContractError(
            f"{shown(step)} is not a step: pass a status, None, (status, body), a Response, "
            "or one of 'drop', 'hang', 'lose_response', 'truncate'"
        )


_NAMED_STEPS: Mapping[str, Callable[[Proceed], AnyResponse]] = {
    "drop": lambda proceed: ConnectionEffect("drop"),
    "hang": lambda proceed: ConnectionEffect("hang"),
    "lose_response": lambda proceed: lost(proceed()),
    "truncate": lambda proceed: truncated(proceed()),
}


# -- validating ------------------------------------------------------------------------------------


def checked_status(status: object) -> int:
    """Return a status from 200 to 599; raise ``ContractError`` for anything else."""
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        raise ContractError(
            f"{shown(status)} is not a valid status: pass an integer from 200 to 599"
        )
    return status


def checked_headers(headers: object) -> HeaderPairs:
    """Return headers as pairs of strings; raise ``ContractError`` if one is invalid."""
    listed = []
    for name, value in _header_pairs(headers):
        if not re.fullmatch(TOKEN, name):
            raise ContractError(
                f"{shown(name)}: {shown(value)} is not a header: pass a name without spaces and a string"
            )
        if not re.fullmatch(_VALUE, value):
            raise ContractError(
                f"{shown(name)}: {shown(value)} is not a header: its value contains a line break or "
                "another control character"
            )
        if name.lower() in SET_BY_SERVER:
            raise ContractError(
                f"headers={{{name!r}: ...}} would be ignored: the server sets this header of every "
                "response; leave it out"
            )
        listed.append((name, _encodable(value)))
    return tuple(listed)


def _split_headers(headers: object, content_type: object = None) -> tuple[HeaderPairs, str | None]:
    """Return valid headers without the content type, and the content type, if any is given."""
    named = checked_headers(headers)
    others = tuple(pair for pair in named if pair[0].lower() != "content-type")
    types = [value for name, value in named if name.lower() == "content-type"]
    return others, checked_type(types[-1] if types else content_type)


def checked_type(content_type: object) -> str | None:
    """Return a content type without line breaks, or None; raise ``ContractError`` if it is invalid."""
    if content_type is None:
        return None
    if not isinstance(content_type, str) or not content_type.isprintable():
        raise ContractError(
            f"content_type={shown(content_type)} is not a content type: pass a "
            "string such as 'text/html'"
        )
    return _encodable(content_type)


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ContractError(f"{shown(text):.80} cannot be sent: {error.reason}") from error
    return text


# -- damaged responses ---------------------------------------------------------------------------


def lost(response: AnyResponse, reset: bool = False) -> AnyResponse:
    """Return an effect that closes the connection without sending the response."""
    if isinstance(response, Stream):
        response.end()
        return ConnectionEffect("lose", reset=reset)
    if isinstance(response, ConnectionEffect):
        return response
    return ConnectionEffect("lose", response, reset=reset)


def truncated(response: AnyResponse, keep: int | None = None) -> AnyResponse:
    """Return the first ``keep`` bytes of a response (usually half), or chunks of a stream (one)."""
    if isinstance(response, ConnectionEffect):
        return response
    if isinstance(response, Stream):
        response.chunks = _first(response.chunks, 1 if keep is None else keep)
        return response
    size = len(response.body)
    return ConnectionEffect(
        "truncate", response, min(size // 2 if keep is None else keep, max(0, size - 1))
    )


def _first(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    try:
        for _ in range(count):
            yield next(chunks)
        raise ConnectionAbortedError("the answer was truncated")
    except StopIteration:
        return
    finally:
        close_chunks(chunks)
