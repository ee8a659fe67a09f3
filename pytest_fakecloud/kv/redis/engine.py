"""The second engine, which lets a real Redis or Valkey server run the commands.

As with the in-memory engine, the fake provides routes, tokens, faults, limits and the journal. The
server provides keys and time. The setting ``isolation`` determines which part of the server belongs
to the fake: the keys with a prefix of its own (``"prefix"``, the default), a numbered database of
its own (``"database"``), or everything in the URL's database (``"none"``).

Decided here:

- When the fake closes, its data is removed, except with ``"none"``.
- With a prefix, commands about all keys run as scripts, so they are atomic and do not see other
  keys. Their duration grows with the number of keys on the server.
- If the server allows creating users, scripts run as a user that can reach only the fake's own keys
  and channels.
- In a cluster, all keys of a fake share a hash tag, so commands on several keys work. To use
  several nodes, create several fakes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from ...core.errors import ContractError
from ...core.ids import Ids
from ...core.timekeeper import Timekeeper
from .. import errors
from ..errors import CommandError
from ..reply import OK, QUEUED, Reply
from ..settings import Isolation
from ..table.availability import check_family_over_rest, check_over_rest
from ..table.documented import DOCUMENTED
from ..table.registry import EVERYTHING, CommandSpec, find_family
from .acl import RedisUser, RedisUsers, prepare_acl
from .addresses import open_link
from .claims import Claim, claim_database
from .connection import Link, Unreachable
from .contents import RedisContents
from .names import Names, Prepared, find_spec
from .pubsub import MonitorFeed, Subscriptions
from .scripts import RedisScripts

CLOSE_PATIENCE = 0.5
"""Seconds for which a closing fake waits for the server's response before removing its data."""
_MARK = b"fakecloud-"
"""Prefix of the names that fakes create for themselves on a server."""
_PAGE = b"1000"
_BATCH = 500


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


class RedisSession:
    """A client's session: its user and its open transaction."""

    def __init__(self, user: Any, transport: str, address: str) -> None:
        self.user = user
        self.transport = transport
        self.address = address
        self.queue: list[Prepared] | None = None
        """The commands of the open transaction, which EXEC sends together; None without one."""
        self.aborted = False
        self.deliver: Callable[[list[Any]], None] | None = None
        self.wake: Callable[[], None] | None = None

    @property
    def login(self) -> Any:
        """The login of the server's user that runs the commands, or None for the user in the URL."""
        return self.user.login if isinstance(self.user, RedisUser) else None

    def push(self, message: list[Any]) -> None:
        if self.deliver is not None:
            self.deliver(message)


class RedisEngine:
    """A key-value store whose commands a real server runs.

    The scheme of ``url`` is ``redis``, ``rediss``, ``unix``, ``valkey``, ``valkeys``,
    ``redis+cluster`` or ``redis+sentinel`` (``redis+sentinel://host:port/primary``). The query of
    the URL can contain connection settings of redis-py, and ``prefix=`` to let several processes
    share a prefix. ``max_key_size`` limits the size in bytes of keys that clients write.
    ``documented_only`` rejects commands that the vendor does not document, except in scripts.

    Raises ``ContractError`` for an invalid URL, an unreachable server, and a clock that does not
    follow real time.
    """

    def __init__(
        self,
        clock: Timekeeper,
        ids: Ids,
        url: str,
        *,
        isolation: Isolation = "prefix",
        dialect: str = "vendor",
        max_key_size: int | None = None,
        documented_only: bool = False,
    ) -> None:
        clock.check_real_time()
        self.clock = clock
        self.ids = ids
        self.dialect = dialect
        self.table = EVERYTHING
        self.isolation = isolation
        self._max_key_size = max_key_size
        self._documented_only = documented_only
        # A lock that does nothing: the routes need no lock, because the server runs one command at
        # a time.
        self.lock = nullcontext()
        url, prefix = _split_prefix(url)
        self.link: Link = open_link(url)
        if self.link.clustered and isolation != "prefix":
            raise ContractError(
                f"isolation={isolation!r} is not possible in a cluster, which has a single database: "
                'pass isolation="prefix" (the default)'
            )
        self._kept = prefix is not None or isolation == "none"
        self._claim: Claim | None = None
        self.pubsub = Subscriptions(self.link, lambda: self.names)
        self.names = self._share(prefix)
        self.monitors = MonitorFeed(self.link, lambda: self.names)
        self.streaming: set[RedisSession] = set()
        """The sessions of open event streams."""
        self.users = RedisUsers(self.link, self.names)
        self._scripts = RedisScripts() if dialect == "vendor" else None
        try:
            self.link.pin(self.names.keys)
            self.link.call([b"PING"])
            if isolation == "database":
                self._claim = claim_database(self.link, url)
                self.names = self._share(None)
                self.users.names = self.names
            self._script_login = self._make_script_user()
        except CommandError as error:
            raise ContractError(
                f"the server at {self.link.where} rejected a command: {error}"
            ) from None
        except Unreachable as error:
            raise ContractError(f"cannot use the server at {self.link.where}: {error}") from error
        self._first_copy = True
        self._release_clock = clock.tie_to_real_time(
            f"the real server behind it ({self.link.where}) runs in real time. To move the clock, use "
            "the in-memory engine (leave out engine=)"
        )
        self.closed = False

    def _share(self, prefix: str | None) -> Names:
        mark = _MARK + secrets.token_hex(6).encode()
        keys = b""
        if self.isolation == "prefix":
            keys = prefix.encode() if prefix is not None else mark + b":"
            if self.link.clustered and b"{" not in keys:
                keys = b"{" + keys.rstrip(b":") + b"}:"
        if self.isolation == "database":
            mark = _MARK + b"db%d" % self.link.database
        if prefix is not None:
            mark = keys.strip(b"{}:")
        shared = self.isolation != "none"
        random = self.ids.stream("kv", "random")
        return Names(
            keys,
            mark + b":" if shared else b"",
            mark + b"-" if shared else b"",
            shared=shared,
            fraction=random.random,
            patterns=self.pubsub.patterns,
        )

    def _make_script_user(self) -> Any:
        if not self.names.shared:
            return None
        login = (self.names.users[:-1] + b"+scripts", secrets.token_hex(16).encode())
        rules = [b"reset", b"on", b">" + login[1], b"~" + self.names.keys + b"*",
                 b"&" + self.names.channels + b"*", b"+@all", b"-@dangerous", b"-select",
                 b"+keys", b"+sort", b"+sort_ro", b"+info"]  # fmt: skip
        try:
            self.link.keep_user(login, rules)
        except CommandError:
            # Without permission to create users, scripts cannot be confined to the fake's own keys.
            return None
        return login

    # -- running commands ------------------------------------------------------------------------

    def session(
        self,
        user: Any = None,
        transport: str = "local",
        resp: int = 2,
        address: str = "",
        at_us: int | None = None,
    ) -> RedisSession:
        """Open a session for a user, by default ``default``."""
        return RedisSession(user or self.users["default"], transport, address)

    def _check_offered(
        self, session: RedisSession, spec: CommandSpec | None, argv: list[bytes]
    ) -> None:
        if session.transport == "rest":
            if spec is not None:
                check_over_rest(spec, argv)
            elif (family := find_family(argv)) is not None:
                check_family_over_rest(family)
        limited = self._documented_only and session.transport != "local"
        if spec is not None and limited and spec.name not in DOCUMENTED:
            raise CommandError(errors.not_available(spec.name))

    def give_way(self) -> None:
        """Do nothing, because the server itself takes turns between its clients."""

    def execute(self, session: RedisSession, argv: list[bytes]) -> Reply:
        """Run or queue a client's command line; raise ``CommandError`` or ``Unreachable``."""
        spec = find_spec(argv)
        try:
            self._check_offered(session, spec, argv)
        except CommandError:
            session.aborted = True
            raise
        self._check_claim()
        name = spec.name if spec is not None else ""
        if name in ("MULTI", "EXEC", "DISCARD") and len(argv) == 1:
            return self._transaction(session, name)
        if spec is not None and not session.user.unrestricted:
            session.user.check(spec, argv)
        prepared: Prepared | None = None
        limit = self._max_key_size
        if limit is not None and spec is not None and session.transport != "local":
            for place, key in spec.key_positions(argv):
                if key.writes and len(argv[place]) > limit:
                    session.aborted = True
                    raise CommandError(errors.max_key_size(limit, len(argv[place])))
        if name.startswith("ACL ") and spec is not None and len(argv) >= spec.least:
            self.names.prepare(spec, argv)
            prepared = prepare_acl(self.names, self.users, session.user, argv)
        try:
            if prepared is None:
                prepared = self.names.prepare(spec, argv)
                if self._scripts is not None:
                    self._scripts.adapt(name, prepared)
            reply = self._run(session, prepared, argv)
        except CommandError as error:
            session.aborted = True
            raise CommandError(self.names.without(error.text)) from None
        if name == "ACL DELUSER":
            self._end_streams({word.decode("utf-8", "replace") for word in argv[2:]})
        return reply

    def _check_claim(self) -> None:
        """Raise ``ContractError`` if another process has claimed this fake's database."""
        if self._claim is not None:
            self._claim.check()

    def _end_streams(self, users: set[str]) -> None:
        for session in tuple(self.streaming):
            if session.login is not None and session.user.name in users and session.wake:
                session.wake()

    def _run(self, session: RedisSession, prepared: Prepared, argv: list[bytes]) -> Reply:
        if prepared.local:
            if session.queue is not None:
                raise CommandError(b"ERR Command not allowed inside a transaction")
            return cast("Callable[[Reply], Reply]", prepared.answer)(None)
        if session.queue is not None:
            session.queue.append(prepared)
            return QUEUED
        login = session.login
        if login is not None and prepared.emulated:
            # Check the user's permission for the original command (such as FLUSHDB), because the
            # user may not have permission for the script that replaces it.
            verdict = self.link.call([b"ACL", b"DRYRUN", login[0], *argv])
            if isinstance(verdict, bytes):
                raise CommandError(b"NOPERM " + verdict)
            login = None
        elif login is None and prepared.script:
            login = self._script_login
        return self._answered(prepared, self.link.call(prepared.argv, login))

    def _answered(self, prepared: Prepared, reply: Reply) -> Reply:
        if prepared.answer is not None and not isinstance(reply, CommandError):
            reply = prepared.answer(reply)
        return self.names.strip(reply)

    def _transaction(self, session: RedisSession, name: str) -> Reply:
        if name == "MULTI":
            if session.queue is not None:
                raise CommandError(errors.NESTED_MULTI)
            session.queue, session.aborted = [], False
            return OK
        queue, session.queue = session.queue, None
        if queue is None:
            raise CommandError(
                errors.EXEC_WITHOUT_MULTI if name == "EXEC" else errors.DISCARD_WITHOUT_MULTI
            )
        if name == "DISCARD":
            return OK
        if session.aborted:
            raise CommandError(errors.EXECABORT)
        login = session.login
        if login is None and any(prepared.script for prepared in queue):
            login = self._script_login
        lines = [prepared.argv for prepared in queue]
        *queued, replies = self.link.transaction(lines, login)
        for reply in queued:
            if isinstance(reply, CommandError):
                reason = reply.text.removeprefix(b"ERR ")
                raise CommandError(errors.exec_aborted_by(reason))
        if not isinstance(replies, list):
            raise replies if isinstance(replies, CommandError) else CommandError(errors.EXECABORT)
        return [self._answered(*pair) for pair in zip(queue, replies, strict=True)]

    def abandon(self, session: RedisSession) -> None:
        """End a session and discard its open transaction."""
        session.queue = None
        self.pubsub.drop(session)

    # -- reading ---------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[RedisContents]:
        """Provide the fake's keys within a ``with`` block. Each access reads from the server."""
        self._check_claim()
        yield RedisContents(self)

    def full_names(self) -> list[bytes]:
        """Return the sorted names of the fake's keys on the server, with their prefix."""
        found: set[bytes] = set()
        cursor: Any = b"0"
        while True:
            line = [b"SCAN", cursor, b"MATCH", self.names.everything, b"COUNT", _PAGE]
            cursor, page = cast("list[Any]", self.link.call(line))
            found.update(page)
            if cursor == b"0":
                return sorted(found)

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> RedisCopy:
        """Copy the fake's keys and users.

        With ``isolation="none"``, the copy includes the function libraries and all users except
        ``default`` and the user in the URL. Otherwise libraries are not copied, because they belong
        to all users of the server. Scripts are not copied, because a server does not list its
        cached scripts. Parameters (CONFIG SET) are not copied either. With ``isolation="none"``,
        the first copy, which becomes the fake's baseline, is empty, because the data existed before
        the fake.
        """
        first, self._first_copy = self._first_copy, False
        if first and self.isolation == "none":
            return RedisCopy(None)
        self._check_claim()
        held: dict[bytes, tuple[bytes, int]] = {}
        keys = self.full_names()
        for at in range(0, len(keys), _BATCH):
            batch = keys[at : at + _BATCH]
            lines = [line for key in batch for line in ([b"DUMP", key], [b"PTTL", key])]
            *replies, time_now = cast("list[Any]", self.link.many([*lines, [b"TIME"]]))
            now_ms = int(time_now[0]) * 1000 + int(time_now[1]) // 1000
            for place, key in enumerate(batch):
                payload, left = replies[2 * place], replies[2 * place + 1]
                if isinstance(payload, CommandError):
                    raise payload
                if payload is not None:
                    held[key] = (payload, now_ms + left if left >= 0 else 0)
        return RedisCopy(held, self._user_rules(), self._functions())

    def _functions(self) -> bytes | None:
        if self.names.shared:
            return None
        # Servers before Redis 7 have no functions, and the user in the URL may not have permission
        # to dump them.
        with suppress(CommandError):
            return cast("bytes", self.link.call([b"FUNCTION", b"DUMP"]))
        return None

    def restore(self, saved: RedisCopy) -> None:
        """Restore keys, users and functions, except keys that have expired since the copy.

        Raises ``ContractError`` for a copy without keys, and for a copy of the in-memory engine.
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
        for at in range(0, len(lines), _BATCH):
            for reply in self.link.many(lines[at : at + _BATCH]):
                if isinstance(reply, CommandError):
                    raise reply
        for name in self._user_rules():
            if name not in saved.users:
                self.link.call([b"ACL", b"DELUSER", name])
        for name, rules in saved.users.items():
            self.link.call([b"ACL", b"SETUSER", name, b"reset", *rules])
        if saved.functions is not None:
            self.link.call([b"FUNCTION", b"RESTORE", saved.functions, b"FLUSH"])

    def clear(self) -> None:
        """Remove all keys of the fake."""
        self._check_claim()
        keys = self.full_names()
        for at in range(0, len(keys), _BATCH):
            self.link.call([b"UNLINK", *keys[at : at + _BATCH]])

    def _user_rules(self) -> dict[bytes, list[bytes]]:
        try:
            lines = cast("list[bytes]", self.link.call([b"ACL", b"LIST"]))
        except CommandError:
            return {}
        found = {}
        for line in lines:
            _, name, *rules = line.split(b" ")
            if self._is_own(name):
                found[name] = _joined(rules)
        return found

    def _is_own(self, user: bytes) -> bool:
        if self.names.shared:
            return user.startswith(self.names.users)
        return user not in (b"default", self.link.user) and not user.startswith(_MARK)

    # -- closing ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Remove the fake's data from the server and close all connections. Later calls do nothing."""
        if self.closed:
            return
        self.closed = True
        self._release_clock()
        self.pubsub.close()
        self.monitors.close()
        # First check that the server responds. If it has stopped, there is nothing to remove, and
        # if it hangs, every command would wait for its timeout.
        if self.link.answers(within=CLOSE_PATIENCE):
            with suppress(Exception):
                self._remove_own()
            if self._claim is not None:
                with suppress(Exception):
                    self._claim.release()
        if self._claim is not None:
            self._claim.close()
        self.link.close()

    def _remove_own(self) -> None:
        self._check_claim()
        if not self._kept:
            self.clear()
        if self.names.users:
            names = [*self._user_rules()] if not self._kept else []
            if self._script_login is not None:
                names.append(self._script_login[0])
            if names:
                self.link.call([b"ACL", b"DELUSER", *names])


def _split_prefix(url: str) -> tuple[str, str | None]:
    base, _, text = url.partition("?")
    query = dict(parse_qsl(text))
    prefix = query.pop("prefix", None)
    return (f"{base}?{urlencode(query)}" if query else base), prefix


def _joined(rules: list[bytes]) -> list[bytes]:
    """Return the rules in a line of ACL LIST, of which those in parentheses contain spaces."""
    found: list[bytes] = []
    depth = 0
    for rule in rules:
        if depth:
            found[-1] += b" " + rule
        else:
            found.append(rule)
        depth += rule.count(b"(") - rule.count(b")")
    return found
