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

Names and key patterns of ACL users get the prefixes of the fake that created them (``ACL SETUSER ann
~cache:*``), so two tests can each have a user called ann. A REST token encodes the user's name and
password, so any process that receives the token can log in. The server checks the user's rules.
When a user is deleted, its tokens become invalid.

Messages of the server (subscriptions and MONITOR) are received by threads. A lost connection is
reopened as long as its session is subscribed. As for any client of a real server, messages that are
published in the meantime are lost. If the session's user may no longer log in or subscribe, the
session ends instead.
"""

from __future__ import annotations

import re
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from ...core.calls import Call
from ...core.clock import Timekeeper
from ...core.ids import Ids
from .. import errors
from ..acl import first_user, read_only_user, wrapping_token
from ..algorithms.quoting import split_words
from ..errors import CommandError, as_reply
from ..model import ClientConnection, Interface
from ..reply import OK, QUEUED, Push, Reply
from ..settings import KVConfig
from ..table.over_rest import check_container_over_rest, check_over_rest
from ..table.registry import EVERYTHING, CommandSpec
from .links import Login, RedisLink, Unreachable
from .namespace import Namespace, RedisCopy
from .rewriting import DEFAULT_USERS, Answered, Prefixes, Prepared, RedisScripts, Rewriter, escaped

_TOKEN = "acl-"
RECONNECT = 0.2
"""Seconds between attempts to reconnect."""
_UNKNOWN = b"ERR unknown command ", b"ERR unknown subcommand "
"""The beginnings of errors for which the vendor's service has its own."""
_MONITOR_PATIENCE = 2.0
"""Maximum number of seconds to wait for the server's confirmation of MONITOR."""


class RedisUser(NamedTuple):
    """A user on the server, which checks the permissions of this user's commands itself."""

    name: str
    login: Login
    unrestricted: bool = True


class RedisUsers:
    """The two default users, and the users on the server, which are looked up by REST token."""

    def __init__(self, link: RedisLink, prefixes: Prefixes) -> None:
        self._link = link
        self._prefixes = prefixes
        self.read_only = read_only_user("vendor")
        """The user to whom the read-only token belongs."""
        self.default = first_user("vendor")

    def permit(self, session: Any, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise a NOPERM error if the session's user may not run the command."""
        session.user.check(spec, argv)

    def make_token(self, name: bytes, password: bytes) -> bytes:
        """Return a REST token for a user; raise ``CommandError`` for a wrong name or password."""
        if name in DEFAULT_USERS:
            raise CommandError(errors.rest_token_failed(name))
        user = self._prefixes.users + name
        if not self._link.admits((user, password)):
            password = wrapping_token(name, password)
            if not self._link.admits((user, password)):
                raise CommandError(errors.rest_token_failed(name))
        sealed = urlsafe_b64encode(b"%d:%b%b" % (len(name), name, password))
        return _TOKEN.encode() + sealed.rstrip(b"=")

    def holder_of(self, token: str) -> Any:
        """Return the user of a REST token, or None if the server rejects the user's password."""
        if not token.startswith(_TOKEN):
            return None
        # The rest is, in Base64, ``<length of name>:<name and password>``.
        sealed = token[len(_TOKEN) :]
        try:
            opened = urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
            length, _, credentials = opened.partition(b":")
            credentials.decode()
            name, password = credentials[: int(length)], credentials[int(length) :]
        except ValueError:
            return None
        login = (self._prefixes.users + name, password)
        user = RedisUser(name.decode("utf-8", "replace"), login)
        return user if self._link.admits(login) else None


@dataclass(eq=False)
class RedisSession:
    """A client's session: its user and its open transaction."""

    user: Any
    interface: str
    address: str
    queue: list[Prepared] | None = None
    """The commands of the open transaction, which EXEC sends together; None without one."""
    aborted: bool = False
    """Whether EXEC will fail, because a command of the open transaction was rejected."""
    connection: ClientConnection | None = None
    call: Call | None = None

    @property
    def login(self) -> Any:
        """The login of the server's user that runs the commands, or None for the user in the URL."""
        return self.user.login if isinstance(self.user, RedisUser) else None

    def push(self, message: list[Any]) -> None:
        if self.connection is not None:
            self.connection.push(message)

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.cut()


class Feed(threading.Thread):
    """A thread that sends a command and passes all replies to ``take`` until ``stop()``.

    A lost connection is opened again. If the login or the command is rejected, the thread calls
    ``rejected`` and ends, or tries again without it. ``opened`` is set after the first reply.
    """

    def __init__(
        self,
        link: RedisLink,
        login: Login | None,
        opening: list[bytes],
        take: Callable[[Any], None],
        *,
        name: str,
        rejected: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name=f"fakecloud-{name}", daemon=True)
        self._link = link
        self._login = login
        self._opening = opening
        self._take = take
        self._rejected = rejected
        self._stopped = threading.Event()
        self._connection: Any = None
        self.opened = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except (RedisError, OSError, Unreachable) as error:
                is_rejection = isinstance(error, AuthenticationError | NoPermissionError)
                if is_rejection and self._rejected is not None:
                    self._rejected()
                    return
                # The connection was lost or rejected, or the server is not running: retry.
                self._stopped.wait(RECONNECT)
            except Exception:
                # A client that is reading may raise any error when `stop()` closes its connection.
                if not self._stopped.is_set():
                    raise

    def _read(self) -> None:
        connection = self._link.dedicated(self._login)
        self._connection = connection
        try:
            connection.send_command(*self._opening, check_health=False)
            while not self._stopped.is_set():
                self._take(connection.read_response(disable_decoding=True))
                self.opened.set()
        finally:
            connection.disconnect()

    def stop(self) -> None:
        self._stopped.set()
        if self._connection is not None:
            self._connection.disconnect()


class _Subscription(Feed):
    """A session's subscription to a channel (``kind="channel"``) or a pattern."""

    def __init__(
        self, link: RedisLink, prefixes: Prefixes, session: Any, kind: str, name: bytes
    ) -> None:
        is_pattern = kind == "pattern"
        channels = escaped(prefixes.channels) if is_pattern else prefixes.channels
        super().__init__(
            link,
            session.login,
            [b"PSUBSCRIBE" if is_pattern else b"SUBSCRIBE", channels + name],
            self._pass_on,
            name=f"subscription to {name!r}",
            rejected=session.disconnect if session.login is not None else None,
        )
        self._prefixes = prefixes
        self._session = session
        self._confirmation = b"psubscribe" if is_pattern else b"subscribe", name
        self._lock = threading.Lock()
        self._unconfirmed: list[int] | None = []
        """Numbers of subscriptions to report in confirmations; None once the server has confirmed."""

    def confirm(self, count: int) -> None:
        """Push a confirmation with this number of subscriptions, once the server has confirmed."""
        with self._lock:
            if self._unconfirmed is not None:
                self._unconfirmed.append(count)
                return
        self._session.push(Push("reply", [*self._confirmation, count]))

    def _pass_on(self, message: Any) -> None:
        head, *names, payload = message
        if bytes(head) == self._confirmation[0]:
            with self._lock:
                counts, self._unconfirmed = self._unconfirmed or (), None
            for count in counts:
                self._session.push(Push("reply", [*self._confirmation, count]))
            return
        # Remove the prefix only from the names. The payload was chosen by the client.
        self._session.push(
            Push("message", [bytes(head), *map(self._prefixes.strip, names), payload])
        )


class Subscriptions:
    """The subscriptions of all sessions, each on its own connection to the real server."""

    def __init__(self, link: RedisLink, prefixes: Prefixes) -> None:
        self._link = link
        self._prefixes = prefixes
        self._lock = threading.Lock()
        self._feeds: dict[Any, dict[tuple[str, bytes], _Subscription]] = {}
        """The subscriptions of each session by their kind and name."""
        self._closed = False

    def subscribe(self, session: Any, kind: str, name: bytes) -> None:
        with self._lock:
            # A client can subscribe while the fake is being closed.
            if self._closed:
                return
            feeds = self._feeds.setdefault(session, {})
            feed = feeds.get((kind, name))
            if feed is None:
                feed = _Subscription(self._link, self._prefixes, session, kind, name)
                feeds[kind, name] = feed
                feed.start()
            feed.confirm(len(feeds))

    def drop(self, session: Any) -> None:
        with self._lock:
            feeds = self._feeds.pop(session, {})
        for feed in feeds.values():
            feed.stop()

    def patterns(self) -> int:
        """Return the number of different patterns to which sessions of this process are subscribed."""
        with self._lock:
            names = (key for feeds in self._feeds.values() for key in feeds)
            return len({name for kind, name in names if kind == "pattern"})

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sessions = list(self._feeds)
        for session in sessions:
            self.drop(session)


_LINE = re.compile(rb"(\d+)\.(\d{6}) \[(\d+) (.*?)\] (.*)", re.DOTALL)
_DATABASE = SimpleNamespace(index=0)
"""The only database that a fake has for its clients."""


class MonitorFeed:
    """The functions that receive all commands. While there are any, one connection runs MONITOR."""

    def __init__(self, link: RedisLink, prefixes: Prefixes) -> None:
        self._link = link
        self._prefixes = prefixes
        self._lock = threading.Lock()
        self._monitors: tuple[Callable[[int, Any, list[bytes]], None], ...] = ()
        self._feed: Feed | None = None
        self._closed = False

    def append(self, monitor: Callable[[int, Any, list[bytes]], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._monitors = (*self._monitors, monitor)
            if self._feed is None:
                self._feed = Feed(self._link, None, [b"MONITOR"], self._pass_on, name="monitor")
                self._feed.start()
            feed = self._feed
        feed.opened.wait(_MONITOR_PATIENCE)

    def remove(self, monitor: Callable[[int, Any, list[bytes]], None]) -> None:
        with self._lock:
            self._monitors = tuple(other for other in self._monitors if other != monitor)
            if self._monitors or self._feed is None:
                return
            feed, self._feed = self._feed, None
        feed.stop()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            feed, self._feed, self._monitors = self._feed, None, ()
        if feed is not None:
            feed.stop()

    def _pass_on(self, line: bytes) -> None:
        match = _LINE.fullmatch(line)
        if match is None:
            return
        seconds, micros, database, address, words = match.groups()
        prefixes = self._prefixes
        is_own = int(database) == self._link.database
        if prefixes.keys:
            # Hide commands without names of this fake, because another client could have sent them.
            is_own = prefixes.keys in words or prefixes.channels in words
        if prefixes.shared and not is_own:
            return
        argv = list(map(prefixes.without, split_words(words) or ()))
        at_us = int(seconds) * 1_000_000 + int(micros)
        # The client has only the attributes that `monitor_line()` needs.
        client = SimpleNamespace(
            db=_DATABASE, in_script=address == b"lua", address=address.decode("utf-8", "replace")
        )
        for monitor in self._monitors:
            monitor(at_us, client, argv)


class RedisEngine:
    """A key-value store whose commands a real server runs.

    The scheme of ``url`` is ``redis``, ``rediss``, ``unix``, ``valkey``, ``valkeys``,
    ``redis+cluster`` or ``redis+sentinel`` (``redis+sentinel://host:port/primary``). The query of
    the URL can contain connection settings of redis-py, and ``prefix=`` to let several processes
    share a prefix. The setting ``documented_only`` does not apply to commands in scripts.

    Raises ``ContractError`` for an invalid URL, an unreachable server, and a clock with fake time.
    """

    def __init__(self, clock: Timekeeper, ids: Ids, url: str, settings: KVConfig) -> None:
        clock.check_real_time()
        self.clock = clock
        self.table = EVERYTHING
        self.settings = settings
        self.lock = nullcontext()  # The server itself runs one command at a time.
        self.namespace = namespace = Namespace(url, settings.isolation)
        self.restore = namespace.restore
        self._prefixes = namespace.prefixes
        self.pubsub = Subscriptions(namespace.link, namespace.prefixes)
        self.monitors = MonitorFeed(namespace.link, namespace.prefixes)
        self.streaming: set[RedisSession] = set()
        """The sessions of open event streams."""
        self.users = RedisUsers(namespace.link, namespace.prefixes)
        fraction = ids.stream("kv", "random").random
        self._rewriter = Rewriter(namespace.prefixes, fraction, self.pubsub.patterns)
        self._scripts = RedisScripts() if settings.dialect == "vendor" else None
        # The first copy becomes the baseline.
        self._has_baseline = settings.isolation != "none"
        self._release_clock = clock.tie_to_real_time(
            f"the real server behind it ({namespace.link.where}) runs in real time. To move the "
            "clock, use the in-memory engine (leave out engine=)"
        )

    def session(
        self,
        user: Any = None,
        interface: Interface = "local",
        address: str = "",
        at_us: int | None = None,
    ) -> RedisSession:
        """Open a session, by default for the user ``default``."""
        return RedisSession(user or self.users.default, interface, address)

    def _check_offered(
        self, session: RedisSession, spec: CommandSpec | None, argv: list[bytes]
    ) -> None:
        if session.interface == "rest":
            if spec is not None:
                check_over_rest(spec, argv)
            elif (container := EVERYTHING.find(argv[:1])) is not None:
                check_container_over_rest(container, argv)
        limited = self.settings.documented_only and session.interface != "local"
        if spec is not None and limited and not spec.documented:
            raise CommandError(errors.not_available(spec.name))

    def set_password(self, password: bytes) -> None:
        """Do nothing, because the server has its own users."""

    def give_way(self) -> None:
        """Do nothing, because the server itself takes turns between its clients."""

    def reply_to(self, session: RedisSession, line: list[bytes]) -> Reply:
        """Return the reply to a client's command line, which can be an error."""
        try:
            return self.execute(session, line)
        except CommandError as error:
            return as_reply(error)

    def execute(self, session: RedisSession, line: list[bytes]) -> Reply:
        """Execute a command line; raise ``CommandError``."""
        spec = EVERYTHING.find(line)
        name = spec.name if spec is not None else ""
        try:
            self._check_offered(session, spec, line)
            self.namespace.check_claim()
            if name in ("MULTI", "EXEC", "DISCARD") and len(line) == 1:
                return self._run_transaction_command(session, name)
            if spec is not None:
                self._check(session, spec, line)
            reply = self._run_or_queue(session, self._prepared(session, spec, line), line)
        except CommandError as error:
            # As on a real server, a nested MULTI does not abort the transaction.
            if session.queue is not None and name != "MULTI":
                session.aborted = True
            text = self._prefixes.without(error.text)
            if self.settings.dialect == "vendor" and text.startswith(_UNKNOWN):
                words = line[: 1 if EVERYTHING.find(line[:1]) is None else 2]
                text = errors.not_available(b" ".join(words).upper())
            raise CommandError(text) from None
        if name == "ACL SETUSER":
            # The server keeps connections that have logged in with a password that is removed.
            self.namespace.link.log_out(self._prefixes.users + line[2])
        if name == "ACL DELUSER":
            removed = {word.decode("utf-8", "replace") for word in line[2:]}
            for listener in tuple(self.streaming):
                if listener.login is not None and listener.user.name in removed:
                    listener.disconnect()
        return reply

    def _check(self, session: RedisSession, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` if the user's permissions or the limit for keys forbid a command."""
        if not session.user.unrestricted:
            session.user.check(spec, argv)
        limit = self.settings.max_key_size
        if limit is None or session.interface == "local":
            return
        for place, key in spec.key_positions(argv):
            if key.writes and len(argv[place]) > limit:
                raise CommandError(errors.max_key_size(limit, len(argv[place])))

    def _prepared(
        self, session: RedisSession, spec: CommandSpec | None, argv: list[bytes]
    ) -> Prepared | Answered:
        prepared = self._rewriter.prepare(spec, argv)
        if spec is not None and spec.name == "ACL RESTTOKEN":
            return Answered(self.users.make_token(argv[2], argv[3]))
        if spec is not None and spec.name == "ACL WHOAMI" and session.login is None:
            # On the server, the default tokens run as the user in the URL, whose name is different.
            return Answered(session.user.name.encode())
        if self._scripts is not None and spec is not None and isinstance(prepared, Prepared):
            self._scripts.adapt(spec.name, prepared)
        return prepared

    def _run_or_queue(
        self, session: RedisSession, prepared: Prepared | Answered, argv: list[bytes]
    ) -> Reply:
        if isinstance(prepared, Answered):
            if session.queue is not None:
                raise CommandError(errors.NOT_IN_TRANSACTION)
            return prepared.reply
        if session.queue is not None:
            session.queue.append(prepared)
            return QUEUED
        login = session.login
        if login is not None and prepared.emulated:
            # Check the user's permission for the original command (such as FLUSHDB), because the
            # user may not have permission for the script that replaces it.
            verdict = self.namespace.link.call([b"ACL", b"DRYRUN", login[0], *argv])
            if isinstance(verdict, bytes):
                raise CommandError(b"NOPERM " + verdict)
            login = None
        elif login is None and prepared.runs_script:
            login = self.namespace.script_login
        return self._answered(prepared, self.namespace.link.call(prepared.argv, login))

    def _answered(self, prepared: Prepared, reply: Reply) -> Reply:
        if prepared.answer is not None and not isinstance(reply, CommandError):
            reply = prepared.answer(reply)
        return self._prefixes.strip(reply)

    def _run_transaction_command(self, session: RedisSession, name: str) -> Reply:
        if name == "MULTI":
            if session.queue is not None:
                raise CommandError(errors.NESTED_MULTI)
            session.queue, session.aborted = [], False
            return OK
        queue, session.queue = session.queue, None
        if name == "DISCARD":
            if queue is None:
                raise CommandError(errors.DISCARD_WITHOUT_MULTI)
            return OK
        if queue is None:
            raise CommandError(errors.EXEC_WITHOUT_MULTI)
        if session.aborted:
            raise CommandError(errors.EXECABORT)
        login = session.login
        if login is None and any(prepared.runs_script for prepared in queue):
            login = self.namespace.script_login
        *queued, replies = self.namespace.link.transaction(
            [command.argv for command in queue], login
        )
        for reply in queued:
            if isinstance(reply, CommandError):
                raise CommandError(errors.exec_aborted_by(reply.text))
        if not isinstance(replies, list):
            raise replies if isinstance(replies, CommandError) else CommandError(errors.EXECABORT)
        return [self._answered(*pair) for pair in zip(queue, replies, strict=True)]

    def abandon(self, session: RedisSession) -> None:
        session.queue = None
        self.pubsub.drop(session)

    def current(self) -> Namespace:
        """Return the fake's keys. Each access reads from the server."""
        self.namespace.check_claim()
        return self.namespace

    def snapshot(self) -> RedisCopy:
        """Copy the fake's keys and users.

        With ``isolation="none"``, the copy includes the function libraries and all users except
        ``default`` and the user in the URL. Otherwise libraries are not copied, because they belong
        to all users of the server. Scripts are not copied, because a server does not list its
        cached scripts. Parameters (CONFIG SET) are not copied either. With ``isolation="none"``,
        the first copy, which becomes the baseline, is empty: the data existed before the fake.
        """
        if not self._has_baseline:
            self._has_baseline = True
            return RedisCopy(None)
        return self.namespace.copy()

    def close(self) -> None:
        """Remove the fake's data from the server and close all connections."""
        self._release_clock()
        self.pubsub.close()
        self.monitors.close()
        self.namespace.close()
