"""Replies in the Redis protocol (RESP2 and RESP3, as their specifications say) as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.calls import Call

_SCALARS: Mapping[bytes, Callable[[str], Any]] = {
    b"-": lambda text: {"error": text},
    b":": int,
    b",": float,
    b"#": lambda text: text == "t",
}
"""Functions that read values of one line. Status replies and large numbers remain strings."""


def reply(call: Call) -> Any:
    """Return the reply of a call as REST does: ``{"result": …}`` or ``{"error": text}``.

    Errors inside an array have the second form too. Raises ``ValueError`` for an incomplete reply.
    """
    value, _ = _read(call.response_body, 0)
    return value if is_error(value) else {"result": value}


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["error"]


def _read(data: bytes, start: int) -> tuple[Any, int]:
    """Return the value that begins at an index, and the index after the value."""
    end = data.index(b"\r\n", start)
    kind, text = data[start : start + 1], data[start + 1 : end].decode("utf-8", "replace")
    after = end + 2
    if kind == b"_" or (text == "-1" and kind in (b"$", b"*")):
        return None, after
    if kind in (b"$", b"=", b"!"):
        end = after + int(text)
        if len(data) < end + 2:
            raise ValueError("incomplete reply")
        return _string(kind, data[after:end].decode("utf-8", "replace")), end + 2
    if kind in (b"*", b"~", b">"):
        return _read_array(data, after, int(text))
    if kind in (b"%", b"|"):
        pairs, after = _read_array(data, after, 2 * int(text))
        if kind == b"|":  # an attribute, which precedes the value that it describes
            return _read(data, after)
        return dict(zip(map(str, pairs[::2]), pairs[1::2], strict=True)), after
    return _SCALARS.get(kind, str)(text), after


def _string(kind: bytes, text: str) -> Any:
    if kind == b"!":
        return {"error": text}
    return text[4:] if kind == b"=" else text  # a verbatim string begins with its format ("txt:")


def _read_array(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        item, start = _read(data, start)
        items.append(item)
    return items, start
