"""Reads, copies and restores the data of a fake on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from ...core.errors import ContractError
from ..errors import CommandError
from ..python_values import Converted, word, word_pairs
from ..reply import Reply, Status
from .namespace import BATCH, Namespace


class RedisContents:
    """The keys of a fake on a real server, with the interface of a keyspace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def __iter__(self) -> Iterator[bytes]:
        prefix_length = len(self._namespace.prefixes.keys)
        return (key[prefix_length:] for key in self._namespace.full_names())

    def peek(self, key: bytes) -> Converted | None:
        """Return the value of a key, or None; raise ``ContractError`` for an unsupported type."""
        namespace = self._namespace
        name = namespace.prefixes.keys + key
        reply = namespace.link.call([b"TYPE", name])
        type_name = reply.text.decode() if isinstance(reply, Status) else "none"
        if type_name == "none":
            return None
        if type_name not in _READERS:
            raise ContractError(
                f"{key!r} is of type {type_name!r}, which cannot be converted to Python: read it "
                "with execute()"
            )
        line, convert = _READERS[type_name]
        reply = namespace.link.call([line[0], name, *line[1:]])
        if reply is None or (reply == [] and type_name != "stream"):
            return None  # The key expired after TYPE: only strings and streams can be empty.
        return Converted(type_name, convert(namespace.prefixes.strip(reply)))


_READERS: dict[str, tuple[list[bytes], Callable[[Any], Any]]] = {
    "string": ([b"GET"], word),
    "hash": ([b"HGETALL"], lambda reply: dict(word_pairs(reply))),
    "list": ([b"LRANGE", b"0", b"-1"], lambda reply: list(map(word, reply))),
    "set": ([b"SMEMBERS"], lambda reply: set(map(word, reply))),
    "zset": (
        [b"ZRANGE", b"0", b"-1", b"WITHSCORES"],
        lambda reply: [(member, float(score)) for member, score in word_pairs(reply)],
    ),
    "stream": (
        [b"XRANGE", b"-", b"+"],
        lambda reply: [(word(entry), dict(word_pairs(fields))) for entry, fields in reply],
    ),
    "ReJSON-RL": ([b"JSON.GET"], json.loads),
}
"""For each type, the command that reads a whole value, and the function that converts its reply."""


@dataclass(frozen=True, slots=True)
class RedisCopy:
    """A copy of a fake's data: its keys, the rules of its users, and function libraries.

    ``keys`` maps each key to its DUMP payload and its expiry in Unix milliseconds (0: no expiry).
    It is None if the keys were not copied because they existed before the fake. ``functions`` is a
    FUNCTION DUMP payload, or None if the libraries do not belong to the fake.
    """

    keys: dict[bytes, tuple[bytes, int]] | None
    users: dict[bytes, list[bytes]] = field(default_factory=dict)
    functions: bytes | None = None


def copy_of(namespace: Namespace) -> RedisCopy:
    namespace.check_claim()
    return RedisCopy(_dumped(namespace), namespace.user_rules(), _functions(namespace))


def restore_copy(namespace: Namespace, saved: object) -> None:
    """Restore keys, users and functions, except keys that have expired since the copy.

    The present keys are removed first, so they are lost if the server rejects a saved key. Raises
    ``ContractError`` for a copy without keys, and for a copy of the in-memory engine.
    """
    if not isinstance(saved, RedisCopy):
        raise ContractError(
            "this snapshot is from another kind of kv_server: with a real server, only snapshots "
            "of a real server can be restored. To copy data, use load(other.values())"
        )
    if saved.keys is None:
        raise ContractError(
            'the first snapshot with isolation="none" contains no keys, because they existed '
            "before this fake: call set_baseline() to define the state that reset() restores"
        )
    namespace.clear()
    _restore_keys(namespace, saved.keys)
    for name in namespace.user_rules():
        if name not in saved.users:
            namespace.link.call([b"ACL", b"DELUSER", name])
    for name, rules in saved.users.items():
        namespace.link.call([b"ACL", b"SETUSER", name, b"reset", *rules])
    if saved.functions is not None:
        namespace.link.call([b"FUNCTION", b"RESTORE", saved.functions, b"FLUSH"])


def _dumped(namespace: Namespace) -> dict[bytes, tuple[bytes, int]]:
    found: dict[bytes, tuple[bytes, int]] = {}
    keys = namespace.full_names()
    for at in range(0, len(keys), BATCH):
        batch = keys[at : at + BATCH]
        lines = [line for key in batch for line in ([b"DUMP", key], [b"PTTL", key])]
        *replies, time_now = _checked(namespace.link.many([*lines, [b"TIME"]]))
        now_ms = int(time_now[0]) * 1000 + int(time_now[1]) // 1000
        for key, payload, left_ms in zip(batch, replies[::2], replies[1::2], strict=True):
            if payload is not None:
                found[key] = (payload, now_ms + left_ms if left_ms >= 0 else 0)
    return found


def _restore_keys(namespace: Namespace, keys: dict[bytes, tuple[bytes, int]]) -> None:
    lines = [
        [b"RESTORE", key, b"%d" % until_ms, payload, b"REPLACE", b"ABSTTL"]
        for key, (payload, until_ms) in keys.items()
    ]
    for at in range(0, len(lines), BATCH):
        _checked(namespace.link.many(lines[at : at + BATCH]))


def _checked(replies: list[Reply]) -> list[Any]:
    """Return the replies, or raise the first error among them."""
    for reply in replies:
        if isinstance(reply, CommandError):
            raise reply
    return replies


def _functions(namespace: Namespace) -> bytes | None:
    if namespace.prefixes.shared:
        return None
    # Servers before Redis 7 have no functions, and the user in the URL may not be allowed to dump.
    with suppress(CommandError):
        return cast("bytes", namespace.link.call([b"FUNCTION", b"DUMP"]))
    return None
