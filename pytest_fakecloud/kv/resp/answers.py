"""Encodes partly encoded replies, and the responses of injected faults."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from ..errors import CommandError
from ..reply import Reply, Status, to_resp


class Raw(bytes):
    """Bytes in a reply that are already encoded."""

    __slots__ = ()


def is_raw_list(reply: Reply) -> TypeGuard[list[Any]]:
    return isinstance(reply, list) and any(isinstance(item, Raw) for item in reply)


def written(reply: Reply, version: int) -> bytes:
    """Encode a reply, leaving ``Raw`` items unchanged because they are already encoded."""
    if is_raw_list(reply):
        parts = [item if isinstance(item, Raw) else to_resp(item, version) for item in reply]
        return b"*%d\r\n" % len(reply) + b"".join(parts)
    return to_resp(reply, version)


def as_resp(body: bytes, status: int, version: int) -> bytes:
    """Encode a fault's response, which is given in the form of an HTTP response.

    The body ``{"result": ...}`` becomes a reply with this result. ``{"error": text}``, and any body
    with a status of 400 or more, becomes an error, with ``ERR`` added unless the text starts with a
    class word. Any other body becomes a string.
    """
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    fields = value if isinstance(value, dict) else {}
    if "result" in fields:
        return to_resp(_reply_of(fields["result"]), version)
    if "error" not in fields and status < 400:
        return to_resp(body, version)
    text = str(fields.get("error", body.decode("latin-1"))).strip()
    if not text.partition(" ")[0].isupper():
        text = f"ERR {text}"
    return to_resp(CommandError(text.encode("utf-8", "surrogateescape")))


def _reply_of(value: Any) -> Reply:
    if isinstance(value, list):
        return [_reply_of(item) for item in value]
    if isinstance(value, str):
        return Status(b"OK") if value == "OK" else value.encode("utf-8", "surrogateescape")
    if value is None or isinstance(value, int):
        return None if value is None else int(value)
    return json.dumps(value).encode()
