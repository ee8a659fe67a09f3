"""Replies of the Redis protocol as Python values. Source: the specifications of RESP2 and RESP3."""

from __future__ import annotations

from typing import Any

_STRINGS = b"$=!"
_ARRAYS = b"*~>"


def value_of(reply: bytes) -> Any:
    """Return the value of a reply; an error is ``{"error": text}``, also inside an array.

    Raises ``ValueError`` for an incomplete reply.
    """
    value, _ = _read(reply, 0)
    return value


def is_error(value: Any) -> bool:
    """Return whether a value of a reply is an error."""
    return isinstance(value, dict) and list(value) == ["error"]


def _read(data: bytes, start: int) -> tuple[Any, int]:
    """Return the value that begins at an index, and the index after the value."""
    end = data.index(b"\r\n", start)
    kind, text = data[start : start + 1], data[start + 1 : end].decode("utf-8", "replace")
    after = end + 2
    if kind == b"_" or (text == "-1" and kind in (b"$", b"*")):
        return None, after
    if kind and kind in _STRINGS:
        return _read_string(data, kind, after, int(text))
    if kind and kind in _ARRAYS:
        return _read_array(data, after, int(text))
    if kind in (b"%", b"|"):
        pairs, after = _read_array(data, after, 2 * int(text))
        # An attribute precedes the value that it describes, so return the next value.
        return _read(data, after) if kind == b"|" else (_as_mapping(pairs), after)
    return _scalar(kind, text), after


def _scalar(kind: bytes, text: str) -> Any:
    if kind == b"-":
        return {"error": text}
    if kind == b":":
        return int(text)
    if kind == b",":
        return float(text)
    if kind == b"#":
        return text == "t"
    return text  # status ("+") or large number ("(")


def _read_string(data: bytes, kind: bytes, start: int, size: int) -> tuple[Any, int]:
    end = start + size
    if len(data) < end + 2:
        raise ValueError("the reply was cut")
    value = data[start:end].decode("utf-8", "replace")
    if kind == b"!":
        return {"error": value}, end + 2
    # A verbatim string begins with its format, such as "txt:".
    return value[4:] if kind == b"=" else value, end + 2


def _read_array(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        item, start = _read(data, start)
        items.append(item)
    return items, start


def _as_mapping(pairs: list[Any]) -> dict[str, Any]:
    names = (name if isinstance(name, str) else str(name) for name in pairs[::2])
    return dict(zip(names, pairs[1::2], strict=True))
