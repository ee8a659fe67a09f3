"""The part of a real server that belongs to one fake, with its keys and copies of them.

The part consists of the keys with a prefix, a database, or everything. With
``isolation="database"``, a fake claims a numbered database in a key of database 0.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from ...core.errors import ContractError
from ...core.timers import monotonic
from ..acl import make_token
from ..errors import CommandError
from ..reply import Converted, Reply, Status, word, word_pairs
from ..settings import Isolation
from ..values.array import MAX_INDEX
from ..values.json import JsonValue
from .links import Login, RedisLink, Unreachable, open_link
from .rewriting import Prefixes, escaped

CLOSE_PATIENCE = 0.5
"""Seconds for which a closing fake waits for the server's response before removing its data."""
_MARK = b"fakecloud-"
"""Prefix of the names that fakes create for themselves on a server."""
BATCH = 500
"""Maximum number of keys whose commands are sent together."""


class Namespace:
    """The part of the server that belongs to one fake; the user ``script_login`` runs scripts."""

    def __init__(self, url: str, isolation: Isolation) -> None:
        base, _, text = url.partition("?")
        query = dict(parse_qsl(text))
        prefix = query.pop("prefix", None)
        url = f"{base}?{urlencode(query)}" if query else base
        self.link: RedisLink = open_link(url)
        if self.link.clustered and isolation != "prefix":
            raise ContractError(
                f"isolation={isolation!r} is not possible in a cluster, which has a single database: "
                'pass isolation="prefix" (the default)'
            )
        self._keeps_data = prefix is not None or isolation == "none"
        self._claim: Claim | None = None
        try:
            if isolation == "database":
                self._claim = claim_database(self.link, url)
            self.prefixes = self._new_prefixes(isolation, prefix)
            self.link.pin(self.prefixes.keys)
            self.link.call([b"PING"])
            self.script_login = self._create_script_user()
        except BaseException as error:
            self._disconnect(release=True)
            where = self.link.where
            if isinstance(error, CommandError):
                raise ContractError(f"the server at {where} rejected a command: {error}") from None
            if isinstance(error, Unreachable):
                raise ContractError(f"cannot use the server at {where}: {error}") from error
            raise

    def _new_prefixes(self, isolation: Isolation, prefix: str | None) -> Prefixes:
        if isolation == "none":
            return Prefixes(b"", b"", b"", shared=False)
        if isolation == "database":
            mark = _MARK + b"db%d" % self.link.database
            return Prefixes(b"", mark + b":", mark + b"-", shared=True)
        keys = _MARK + secrets.token_hex(6).encode() + b":" if prefix is None else prefix.encode()
        if self.link.clustered and b"{" not in keys:
            # A hash tag, because all keys of a fake must be in the same slot.
            keys = b"{" + keys.rstrip(b":") + b"}:"
        mark = keys.strip(b"{}:")
        return Prefixes(keys, mark + b":", mark + b"-", shared=True)

    def _create_script_user(self) -> Login | None:
        if not self.prefixes.shared:
            return None
        login = (self.prefixes.users[:-1] + b"+scripts", make_token(secrets.token_bytes()))
        rules = [b"reset", b"on", b">" + login[1], b"~" + self.prefixes.everything,
                 b"&" + escaped(self.prefixes.channels) + b"*", b"+@all", b"-@dangerous", b"-select",
                 b"+keys", b"+sort", b"+sort_ro", b"+info"]  # fmt: skip
        try:
            self.link.keep_user(login, rules)
        except CommandError:
            # Without permission to create users, scripts cannot be confined to the fake's own keys.
            return None
        return login

    def check_claim(self) -> None:
        """Raise ``ContractError`` if another process has claimed the fake's database."""
        if self._claim is not None:
            self._claim.check()

    def full_names(self) -> list[bytes]:
        """Return the sorted names of the fake's keys on the server, with their prefix."""
        names: set[bytes] = set()
        cursor: Any = b"0"
        while True:
            line = [b"SCAN", cursor, b"MATCH", self.prefixes.everything, b"COUNT", b"1000"]
            cursor, page = cast("list[Any]", self.link.call(line))
            names.update(page)
            if cursor == b"0":
                return sorted(names)

    def clear(self) -> None:
        self.check_claim()
        keys = self.full_names()
        for at in range(0, len(keys), BATCH):
            self.link.call([b"UNLINK", *keys[at : at + BATCH]])

    def user_rules(self) -> dict[bytes, list[bytes]]:
        """Return the rules of each user that clients of the fake have created."""
        try:
            lines = cast("list[bytes]", self.link.call([b"ACL", b"LIST"]))
        except CommandError:
            return {}
        rules_by_user = {}
        for line in lines:
            _, name, *rules = line.split(b" ")
            if self._is_own(name):
                rules_by_user[name] = rules
        return rules_by_user

    def _is_own(self, user: bytes) -> bool:
        if self.prefixes.shared:
            return user.startswith(self.prefixes.users)
        return user not in (b"default", self.link.user) and not user.startswith(_MARK)

    def close(self) -> None:
        # If the server hangs, every command would wait for its timeout, so check it first.
        responds = self.link.answers(within=CLOSE_PATIENCE)
        if responds:
            with suppress(Exception):
                self.check_claim()
                users = [] if self.script_login is None else [self.script_login[0]]
                if not self._keeps_data:
                    self.clear()
                    users += self.user_rules()
                if users:
                    self.link.call([b"ACL", b"DELUSER", *users])
        self._disconnect(release=responds)

    def _disconnect(self, *, release: bool) -> None:
        if self._claim is not None:
            if release:
                self._claim.release()
            self._claim.close()
        self.link.close()

    # -- contents, with the interface of a keyspace ----------------------------------------------

    def __iter__(self) -> Iterator[bytes]:
        prefix_length = len(self.prefixes.keys)
        return (key[prefix_length:] for key in self.full_names())

    def peek(self, key: bytes) -> Converted | None:
        """Return the value of a key, or None; raise ``ContractError`` for an unsupported type."""
        name = self.prefixes.keys + key
        reply = self.link.call([b"TYPE", name])
        type_name = reply.text.decode() if isinstance(reply, Status) else "none"
        if type_name == "none":
            return None
        if type_name == "json":
            # The vendor's name for the type, which stock servers call ReJSON-RL.
            type_name = JsonValue.type_name
        if type_name not in _READERS:
            raise ContractError(
                f"{key!r} is of type {type_name!r}, which cannot be converted to Python: read it "
                "with execute()"
            )
        line, convert = _READERS[type_name]
        reply = self.link.call([line[0], name, *line[1:]])
        if reply is None or (reply == [] and type_name != "stream"):
            return None  # The key expired after TYPE: only strings and streams can be empty.
        return Converted(type_name, convert(self.prefixes.strip(reply)))

    def ttl_ms(self, key: bytes) -> int:
        return cast("int", self.link.call([b"PTTL", self.prefixes.keys + key]))

    # -- copies ----------------------------------------------------------------------------------

    def copy(self) -> RedisCopy:
        self.check_claim()
        functions = None
        if not self.prefixes.shared:
            # Servers before Redis 7 have no functions, and the URL's user may not be allowed to dump.
            with suppress(CommandError):
                functions = cast("bytes", self.link.call([b"FUNCTION", b"DUMP"]))
        return RedisCopy(self._dumped(), self.user_rules(), functions)

    def restore(self, saved: object) -> None:
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
        self.clear()
        lines = [
            [b"RESTORE", key, b"%d" % until_ms, payload, b"REPLACE", b"ABSTTL"]
            for key, (payload, until_ms) in saved.keys.items()
        ]
        for at in range(0, len(lines), BATCH):
            _checked(self.link.many(lines[at : at + BATCH]))
        for name in self.user_rules():
            if name not in saved.users:
                self.link.call([b"ACL", b"DELUSER", name])
        for name, rules in saved.users.items():
            self.link.call([b"ACL", b"SETUSER", name, b"reset", *rules])
        if saved.functions is not None:
            self.link.call([b"FUNCTION", b"RESTORE", saved.functions, b"FLUSH"])

    def _dumped(self) -> dict[bytes, tuple[bytes, int]]:
        payloads: dict[bytes, tuple[bytes, int]] = {}
        keys = self.full_names()
        for at in range(0, len(keys), BATCH):
            batch = keys[at : at + BATCH]
            lines = [line for key in batch for line in ([b"DUMP", key], [b"PTTL", key])]
            *replies, time_now = _checked(self.link.many([*lines, [b"TIME"]]))
            now_ms = int(time_now[0]) * 1000 + int(time_now[1]) // 1000
            for key, payload, left_ms in zip(batch, replies[::2], replies[1::2], strict=True):
                if payload is not None:
                    payloads[key] = (payload, now_ms + left_ms if left_ms >= 0 else 0)
        return payloads


_CLAIM_MS = 600_000
"""Milliseconds after which a claim ends unless it is extended."""
_EXTEND_SECONDS = 60.0
"""Minimum number of seconds between two extensions of a claim."""
_EXTEND = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])"""
_RELEASE = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])"""


class Claim:
    """A fake's claim on a numbered database, which is stored in database 0 (``registry``)."""

    def __init__(self, registry: RedisLink, number: int) -> None:
        self.number = number
        self._registry = registry
        self._key = b"pytest-fakecloud:database:%d" % number
        self._mark = secrets.token_hex(8).encode()
        self._lock = threading.Lock()
        self._extended = monotonic()
        self._lost = False

    def take(self) -> bool:
        line = [b"SET", self._key, self._mark, b"NX", b"PX", b"%d" % _CLAIM_MS]
        return self._registry.call(line) is not None

    def check(self) -> None:
        """Extend the claim, or take it again; raise ``ContractError`` if another fake has it."""
        with self._lock:
            if not self._lost and monotonic() - self._extended >= _EXTEND_SECONDS:
                self._lost = not (self._run(_EXTEND, b"%d" % _CLAIM_MS) or self.take())
                self._extended = monotonic()
            if self._lost:
                raise ContractError(
                    f"another process has claimed database {self.number}, because this fake sent no "
                    f"command for {_CLAIM_MS // 60_000} minutes: create a new fake"
                )

    def release(self) -> None:
        """Delete the claim, if the server responds, so that other fakes can use the database."""
        with suppress(Exception):
            self._run(_RELEASE)

    def close(self) -> None:
        self._registry.close()

    def _run(self, script: bytes, *arguments: bytes) -> Reply:
        return self._registry.call([b"EVAL", script, b"1", self._key, self._mark, *arguments])


def claim_database(link: RedisLink, url: str) -> Claim:
    """Claim the URL's database, or the first free one but 0; empty it and connect ``link`` to it.

    Raises ``ContractError`` if no database is free.
    """
    wanted = link.database
    with ExitStack() as undo:
        registry = open_link(url)
        undo.callback(registry.close)
        registry.select(0)
        numbers = [wanted] if wanted else range(1, _databases(registry))
        for number in numbers:
            claim = Claim(registry, number)
            if claim.take():
                undo.callback(claim.release)
                link.select(number)
                link.call([b"FLUSHDB"])
                undo.pop_all()
                return claim
        taken = f"database {wanted}" if wanted else f"every database but 0 (of {len(numbers) + 1})"
        raise ContractError(
            f"{taken} of {link.where} is in use by another process: pass isolation='prefix', or the "
            "URL of a server with more databases"
        )


def _databases(link: RedisLink) -> int:
    with suppress(CommandError):
        setting = link.call([b"CONFIG", b"GET", b"databases"])
        if isinstance(setting, list) and len(setting) == 2:
            return int(setting[1])
    return 16


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
    "array": (
        [b"ARSCAN", b"0", b"%d" % MAX_INDEX],
        lambda reply: {int(index): word(value) for index, value in reply},
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


def _checked(replies: list[Reply]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, CommandError):
            raise reply
    return replies
