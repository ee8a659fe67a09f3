"""Validates responses that a test defines, before a client receives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from ..core.errors import ContractError, shown
from ..core.field_types import TOKEN
from ..http.messages import Answer, HeaderPairs

_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def checked_status(status: object) -> int:
    """Return a status from 200 to 599; raise ``ContractError`` for anything else."""
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        raise ContractError(
            f"{shown(status)} is not a valid status: pass an integer from 200 to 599"
        )
    return status


def checked_headers(headers: object) -> HeaderPairs:
    """Return headers as pairs of strings, with numbers converted; raise ``ContractError`` if a
    header is invalid.
    """
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
        if not _VALUE.fullmatch(value):
            raise ContractError(
                f"{shown(name)}: {shown(value)} is not a header: its value contains a line break or "
                "another control character"
            )
        listed.append((name, _encodable(value)))
    return tuple(listed)


def checked_body(body: object, dump: Callable[[object], bytes] | None) -> bytes:
    """Return a body as bytes: ``bytes`` unchanged, a string as UTF-8, anything else as JSON."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return _encodable(body).encode()
    return _as_json(body, dump)


def checked_answer(answer: Answer, dump: Callable[[object], bytes] | None) -> Answer:
    """Return the test's ``Answer`` with an encoded body; raise ``ContractError`` if it is invalid."""
    body = answer.body if isinstance(answer.body, bytes) else _as_json(answer.body, dump)
    kind = checked_type(answer.content_type)
    return Answer(body, checked_status(answer.status), checked_headers(answer.headers), kind)


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


def _as_json(body: object, dump: Callable[[object], bytes] | None) -> bytes:
    if dump is None:
        raise ContractError(f"the faults of this fake can only send bytes, got {shown(body)}")
    try:
        return dump(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(
            f"the body {shown(body):.80} cannot be sent as JSON ({error}): pass bytes, a string "
            "or a JSON value"
        ) from error


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
