"""Reads the keys of a fake from a real server, as plain Python values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError
from ..python_values import Converted, word
from ..reply import Status

if TYPE_CHECKING:
    from .share import Share


class RedisContents:
    """The keys of a fake on a real server, with the interface of a keyspace."""

    def __init__(self, share: Share) -> None:
        self._share = share

    def __iter__(self) -> Iterator[bytes]:
        prefix = len(self._share.prefixes.keys)
        return (key[prefix:] for key in self._share.full_names())

    def peek(self, key: bytes) -> Converted | None:
        """Return the value of a key, or None; raise ``ContractError`` for an unsupported type."""
        share = self._share
        name = share.prefixes.keys + key
        reply = share.link.call([b"TYPE", name])
        type_name = reply.text.decode() if isinstance(reply, Status) else "none"
        if type_name == "none":
            return None
        if type_name not in _READERS:
            raise ContractError(
                f"{key!r} is of type {type_name!r}, which cannot be converted to Python: read it "
                "with execute()"
            )
        line, convert = _READERS[type_name]
        reply = share.link.call([line[0], name, *line[1:]])
        if reply is None:
            return None  # The key expired after TYPE.
        return Converted(type_name, convert(share.prefixes.strip(reply)))


def _pairs(flat: Any) -> list[tuple[Any, Any]]:
    return [(word(flat[at]), word(flat[at + 1])) for at in range(0, len(flat), 2)]


_READERS: dict[str, tuple[list[bytes], Callable[[Any], Any]]] = {
    "string": ([b"GET"], word),
    "hash": ([b"HGETALL"], lambda reply: dict(_pairs(reply))),
    "list": ([b"LRANGE", b"0", b"-1"], lambda reply: list(map(word, reply))),
    "set": ([b"SMEMBERS"], lambda reply: set(map(word, reply))),
    "zset": (
        [b"ZRANGE", b"0", b"-1", b"WITHSCORES"],
        lambda reply: [(member, float(score)) for member, score in _pairs(reply)],
    ),
    "stream": (
        [b"XRANGE", b"-", b"+"],
        lambda reply: [(word(entry), dict(_pairs(fields))) for entry, fields in reply],
    ),
    "ReJSON-RL": ([b"JSON.GET"], json.loads),
}
"""For each type, the command that reads a whole value, and the function that converts its reply."""
