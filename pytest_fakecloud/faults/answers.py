"""Makes and validates the responses that faults send, in the format of the service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import ContractError, ServiceError, shown
from ..core.field_types import TOKEN
from ..http.encoding import SET_BY_SERVER, phrase
from ..http.messages import JSON_TYPE, Answer, AnyResponse, Effect, HeaderPairs, Serve
from .kinds import lost, truncated
from .response import Response

if TYPE_CHECKING:
    from ..http.app import App

_VALUE = r"[^\x00-\x08\x0a-\x1f\x7f]*"
Step = (
    int | None | tuple[int, Any] | Response | Literal["drop", "hang", "lose_response", "truncate"]
)
"""A step of a sequence: a status, None for no fault, ``(status, body)``, a ``Response``, or a fault's
name.
"""


class AnswerMaker:
    """Checks and encodes the responses that a test defines; without ``app`` only bytes and text."""

    def __init__(self) -> None:
        self.app: App | None = None

    def render(self, error: ServiceError) -> Answer:
        """Return an error in the service's format, for faults with a status but no body."""
        if self.app is None:
            return Answer(f"{error.message}\n".encode(), error.status, error.headers, "text/plain")
        return self.encoded(self.app.render_error(error))

    def responder(
        self,
        status: int,
        body: object = None,
        headers: HeaderPairs | Mapping[str, str] = (),
        content_type: str | None = None,
    ) -> Callable[[Serve], Answer]:
        """Return a function that responds instead of the endpoint.

        Raises ``ContractError`` for invalid values.
        """
        checked_status(status)
        named = checked_headers(headers)
        others = tuple(pair for pair in named if pair[0].lower() != "content-type")
        types = [value for name, value in named if name.lower() == "content-type"]
        kind = checked_type(types[-1] if types else content_type)
        if body is not None:
            raw = self.encoded_body(body)
            usual = "text/plain; charset=utf-8" if isinstance(body, bytes | str) else JSON_TYPE
            return lambda serve: Answer(raw, status, others, kind or usual)

        def respond(serve: Serve) -> Answer:
            answer = self.render(ServiceError(status, phrase(status), headers=others))
            return answer if kind is None else replace(answer, content_type=kind)

        return respond

    def encoded(self, answer: Answer) -> Answer:
        """Return an error's ``Answer`` with an encoded body; raise ``ContractError`` if invalid."""
        body = answer.body if isinstance(answer.body, bytes) else self._as_json(answer.body)
        kind = checked_type(answer.content_type)
        return Answer(body, checked_status(answer.status), checked_headers(answer.headers), kind)

    def prepared(self, response: Response) -> AnyResponse:
        """Return what to send for the test's ``Response``; raise ``ContractError`` if impossible."""
        if response.ending == "hang":
            return Effect("hang")
        if response.ending == "refuse":
            return Effect("refuse", reset=True)
        if response._after_us:
            raise ContractError(
                f"after={shown(response.after)} is the time that a queue's destination takes: leave "
                "it out, and inject faults.delay() too"
            )
        headers, body = response._encoded
        named = checked_headers(headers)
        others = tuple(pair for pair in named if pair[0].lower() != "content-type")
        types = [value for name, value in named if name.lower() == "content-type"]
        kind = checked_type(types[-1] if types else None)
        return Answer(body, checked_status(response.status), others, kind)

    def encoded_body(self, body: object) -> bytes:
        """Return a body as bytes: ``bytes`` unchanged, a string as UTF-8, anything else as JSON."""
        if isinstance(body, bytes):
            return body
        return _encodable(body).encode() if isinstance(body, str) else self._as_json(body)

    def _as_json(self, body: object) -> bytes:
        if self.app is None:
            raise ContractError(f"the faults of this fake can only send bytes, got {shown(body)}")
        try:
            return self.app.dump(body)
        except (TypeError, ValueError, RecursionError) as error:
            raise ContractError(
                f"the body {shown(body):.80} cannot be sent as JSON ({error}): pass bytes, a string "
                "or a JSON value"
            ) from error

    def step(self, step: Step) -> Callable[[Serve], AnyResponse]:
        """Return a function that applies a step; raise ``ContractError`` for an invalid one."""
        if step is None:
            return lambda serve: serve()
        if isinstance(step, str) and step in _NAMED_STEPS:
            return _NAMED_STEPS[step]
        if isinstance(step, Response):
            ready = self.prepared(step)
            return lambda serve: replace(ready) if isinstance(ready, Answer) else ready
        if isinstance(step, tuple) and len(step) == 2:
            return self.responder(*step)
        if isinstance(step, int):
            return self.responder(step)
        raise ContractError(
            f"{shown(step)} is not a step: pass a status, None, (status, body), a Response, "
            "or one of 'drop', 'hang', 'lose_response', 'truncate'"
        )


_NAMED_STEPS: Mapping[str, Callable[[Serve], AnyResponse]] = {
    "drop": lambda serve: Effect("drop"),
    "hang": lambda serve: Effect("hang"),
    "lose_response": lambda serve: lost(serve()),
    "truncate": lambda serve: truncated(serve()),
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
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise _bad_headers(headers)
    listed = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise _bad_headers(headers)
        name, value = pair
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(name, str) or not TOKEN.fullmatch(name) or not isinstance(value, str):
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


def _bad_headers(headers: object) -> ContractError:
    return ContractError(
        f"headers={shown(headers):.80} is not valid: pass a mapping, or pairs of name and value"
    )
