"""Connections to a real server through redis-py: a single node, or the primary that Sentinel names.

redis-py handles addresses, TLS, logins and pools. Replies have the types of RESP2, in which the
REST interface returns them, and not those to which redis-py would convert them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, cast

from redis._parsers.resp2 import _RESP2Parser
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import TimeoutError as LateReply
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from ..errors import REPLY_TOO_DEEP, CommandError, RestError
from ..reply import NIL_ARRAY, OK, Reply, Status
from ..scripting.errors import LEVELS

CONNECT_TIMEOUT = 2.0
"""Seconds after which connecting fails, unless the URL sets another limit."""
REPLY_TIMEOUT = 10.0
"""Seconds after which waiting for a reply fails, unless the URL sets another limit."""
_command_name = signature(ConnectionPool.get_connection).parameters.get("command_name")
_GET_CONNECTION_ARGUMENTS = (
    ("_",) if _command_name is not None and _command_name.default is Parameter.empty else ()
)
"""Arguments of redis-py's ``get_connection()``: version 5.2 requires one, later ones none."""

Login = tuple[bytes, bytes]
Address = tuple[str, int]


class Unreachable(RestError):
    """Raised if the real server does not respond. The response has HTTP status 503."""

    def __init__(self, where: str, reason: object) -> None:
        super().__init__(503, f"ERR the database at {where} is not reachable: {reason}")


class LoginRefused(Unreachable):
    """Raised if the server rejects a name or password."""


class Link:
    """Connections to one server: pools by login, and connections that wait without a time limit."""

    clustered = False

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._pools: dict[tuple[Login | None, Address | None], Any] = {}
        self._users: dict[Login, list[bytes]] = {}
        self.database = int(options.get("db") or 0)

    @property
    def where(self) -> str:
        if "path" in self._options:
            return str(self._options["path"])
        return f"{self._options.get('host', 'localhost')}:{self._options.get('port', 6379)}"

    @property
    def user(self) -> bytes:
        return (self._options.get("username") or "default").encode()

    def select(self, database: int) -> None:
        self.database = self._options["db"] = database
        self.close()

    def pin(self, key: bytes) -> None:
        """Use the node that serves a key. Only a cluster has several nodes."""

    def keep_user(self, login: Login, rules: list[bytes]) -> None:
        """Create a user on the server, and again whenever a server rejects the user's login.

        Replicas that become the primary, nodes that receive a slot and restarted servers do not
        know the user. Raises ``CommandError`` if the server does not allow creating users.
        """
        self.call([b"ACL", b"SETUSER", login[0], *rules])
        self._users[login] = rules

    def call(self, argv: list[bytes], login: Login | None = None) -> Reply:
        """Run a command line; raise ``CommandError`` or, if the server is down, ``Unreachable``."""
        return self._run(argv, login, self._home())

    def transaction(self, lines: list[list[bytes]], login: Login | None = None) -> list[Reply]:
        """Run lines in a transaction; return the replies to queueing them, then that to EXEC.

        Raises ``CommandError``, before any command has run, if the user may not start a
        transaction.
        """
        return self._batch([*lines, [b"EXEC"]], login, self._home(), [[b"MULTI"]])

    def many(self, lines: list[list[bytes]]) -> list[Reply]:
        """Run command lines together on one connection. Errors are returned among the replies."""
        return self._batch(lines, None, self._home(), []) if lines else []

    def _run(
        self, argv: list[bytes], login: Login | None, node: Address | None, *, asking: bool = False
    ) -> Reply:
        with self._leased(login, node) as connection:
            if asking:
                exchange(connection, [b"ASKING"])
            return exchange(connection, argv)

    def _batch(
        self,
        lines: list[list[bytes]],
        login: Login | None,
        node: Address | None,
        first: list[list[bytes]],
    ) -> list[Reply]:
        # The commands in `first` must succeed before the others are sent.
        with self._leased(login, node) as connection:
            for line in first:
                exchange(connection, line)
            connection.send_packed_command(connection.pack_commands(lines), check_health=False)
            return [read_reply(connection) for _ in lines]

    @contextmanager
    def _leased(self, login: Login | None, node: Address | None) -> Iterator[Any]:
        """Take a connection from the pool; raise ``LoginRefused``, or ``Unreachable`` without one."""
        pool = self._pool(login, node)
        connection = self._connection(pool, login, node)
        try:
            yield connection
        except (LostConnection, LateReply, OSError) as error:
            connection.disconnect()
            raise self.unreachable(error) from None
        finally:
            pool.release(connection)

    def _connection(self, pool: Any, login: Login | None, node: Address | None) -> Any:
        try:
            try:
                return pool.get_connection(*_GET_CONNECTION_ARGUMENTS)
            except AuthenticationError:
                if login is None or login not in self._users:
                    raise
                self._run([b"ACL", b"SETUSER", login[0], *self._users[login]], None, node)
                return pool.get_connection(*_GET_CONNECTION_ARGUMENTS)
        except AuthenticationError as error:
            raise LoginRefused(self.where, error) from None
        except (RedisError, OSError) as error:
            raise self.unreachable(error) from None

    def _home(self) -> Address | None:
        """Return the node to use, or None if the server has only one node."""
        return None

    def dedicated(self, login: Login | None = None) -> Any:
        """Open a connection outside the pools, without a time limit; raise redis-py's own errors."""
        connection = self._pool(login, self._home()).make_connection()
        connection.socket_timeout = None
        connection.connect()
        return connection

    def answers(self, within: float) -> bool:
        connection = None
        try:
            connection = self._pool(None, self._home()).make_connection()
            connection.socket_timeout = connection.socket_connect_timeout = within
            exchange(connection, [b"PING"])
        except (RedisError, OSError, CommandError, Unreachable):
            return False
        finally:
            if connection is not None:
                connection.disconnect()
        return True

    def admits(self, login: Login) -> bool:
        try:
            with self._leased(login, self._home()):
                return True
        except LoginRefused:
            return False

    def unreachable(self, reason: object) -> Unreachable:
        return Unreachable(self.where, reason)

    def close(self) -> None:
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.disconnect()

    def _pool(self, login: Login | None, node: Address | None) -> Any:
        with self._lock:
            pool = self._pools.get((login, node))
            if pool is None:
                options = dict(self._options)
                if node is not None:
                    options["host"], options["port"] = node
                if login is not None:
                    options["redis_connect_func"] = _becoming(login)
                pool = self._pools[login, node] = self._make_pool(options)
            return pool

    def _make_pool(self, options: dict[str, Any]) -> Any:
        return ConnectionPool(**options)


def _becoming(login: Login) -> Callable[[Any], None]:
    # Log in as another user only after `on_connect()` has selected the database, because that user
    # may not have permission to select it.
    def connect(connection: Any) -> None:
        connection.on_connect()
        connection.send_command(b"AUTH", *login, check_health=False)
        connection.read_response()

    return connect


class SentinelLink(Link):
    """Connections to the primary that Sentinel names, which is looked up for each connection."""

    def __init__(self, service: str, sentinels: list[Address], options: dict[str, Any]) -> None:
        super().__init__({k: v for k, v in options.items() if k not in ("host", "port")})
        self._service = service
        self._sentinel = Sentinel(
            sentinels,
            sentinel_kwargs={
                "socket_connect_timeout": CONNECT_TIMEOUT,
                "socket_timeout": CONNECT_TIMEOUT,
                "retry": Retry(NoBackoff(), 0),
            },
        )

    @property
    def where(self) -> str:
        return f"Sentinel's {self._service!r}"

    def _make_pool(self, options: dict[str, Any]) -> Any:
        return SentinelConnectionPool(self._service, self._sentinel, **options)


LONGEST = 512 << 20
"""Maximum string length that a server accepts: the default of ``proto-max-bulk-len``."""


class _StatusLine(bytes):
    """A simple string in a reply. redis-py returns it as bytes, like a bulk string."""


class RawParser(_RESP2Parser):
    """A parser for RESP2 that keeps the text of errors and the types of strings.

    redis-py has no public parser that does so. This class relies on the private ``_buffer``,
    ``_read_response()`` and ``parse_error()`` of its base class. The error of the in-memory engine
    replaces parts of a reply that are nested more than ``LEVELS`` deep.
    """

    def _read_response(self, *args: Any, levels: int = LEVELS, **options: Any) -> Any:
        buffer: Any = self._buffer
        line = buffer.readline()
        if not line:
            raise LostConnection("the server closed the connection")
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else buffer.read(_number(rest, 0, LONGEST))
        if kind == b"+":
            return _StatusLine(rest)
        if kind == b":":
            return _number(rest)
        if kind == b"*":
            if rest == b"-1":
                return NIL_ARRAY
            count = _number(rest, 0)
            if levels:
                return [self._read_response(levels=levels - 1) for _ in range(count)]
            self._skip(count)
            kind, rest = b"-", REPLY_TOO_DEEP
        if kind != b"-":
            raise LostConnection(f"the reply is not RESP2: {line[:40]!r}")
        error: Any = self.parse_error(rest.decode("utf-8", "replace"))  # type: ignore[no-untyped-call]
        error.line = rest
        if isinstance(error, LostConnection):
            raise error
        return error

    def _skip(self, count: int) -> None:
        buffer: Any = self._buffer
        while count:
            line = buffer.readline()
            if not line:
                raise LostConnection("the server closed the connection")
            count -= 1
            length = _number(line[1:], -1) if line[:1] in b"$*" else 0
            if line[:1] == b"$" and length >= 0:
                buffer.read(length)
            elif length > 0:
                count += length


def _number(text: bytes, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    if not re.fullmatch(rb"[+-]?\d{1,19}", text) or not least <= int(text) <= most:
        expected = f"a number from {least} to {most}"
        raise LostConnection(f"the reply contains {text[:40]!r} instead of {expected}")
    return int(text)


def reply_of(raw: Any) -> Reply:
    kind = type(raw)
    if kind is bytes or kind is int or raw is None or raw is NIL_ARRAY:
        return cast("Reply", raw)
    if kind is list:
        return [reply_of(item) for item in raw]
    if kind is _StatusLine:
        return OK if raw == b"OK" else Status(bytes(raw))
    return CommandError(_text(raw))


def read_reply(connection: Any) -> Reply:
    try:
        return reply_of(connection.read_response(disable_decoding=True))
    except ResponseError as error:
        return CommandError(_text(error))


def exchange(connection: Any, argv: list[bytes]) -> Reply:
    """Send a command line and return its reply; raise ``CommandError`` for an error reply."""
    connection.send_command(*argv, check_health=False)
    reply = read_reply(connection)
    if isinstance(reply, CommandError):
        raise reply
    return reply


def _text(error: Exception) -> bytes:
    line: bytes = getattr(error, "line", b"")
    return line or b"ERR " + str(error).encode()
