"""Connections to real servers through redis-py, given their URLs: a node, Sentinel or a cluster.

redis-py handles addresses, TLS, logins and pools. Replies have the types of RESP2, in which the
REST interface returns them, and not those to which redis-py would convert them.

All keys of a fake are in one slot of a cluster, which can move between nodes. While the slot moves,
the new node serves commands on keys that it has already received (ASK). After the move, it serves
all commands (MOVED). Commands without keys, and commands on several keys of which only some have
moved, wait until the move has ended.

Decided here: users are created on every primary, because nodes do not exchange users.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from inspect import Parameter, signature
from itertools import chain
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis._parsers.resp2 import _RESP2Parser
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, ConnectionPool, parse_url
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import TimeoutError as LateReply
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from ...core.errors import ContractError
from ...core.timers import monotonic
from ..errors import REPLY_TOO_DEEP, REST_UNAUTHORIZED, CommandError, RestError, as_reply
from ..reply import NIL_ARRAY, OK, Reply, Status
from ..scripting.errors import LEVELS
from ..table.registry import EVERYTHING

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


class RedisLink:
    """Connections to one server: pools by login, and connections that wait without a time limit."""

    clustered = False

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._pools: dict[tuple[Login | None, Address | None], Any] = {}
        self._users: dict[Login, list[bytes]] = {}
        self._make_pool: Callable[..., Any] = ConnectionPool
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
        return self._batch(lines, None, self._home(), [])

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
        """Take a connection from the pool; raise ``LoginRefused``, or ``Unreachable`` without one.

        If it is lost because the user was deleted meanwhile, the error is that of a wrong token.
        """
        pool = self._pool(login, node)
        connection = self._connection(pool, login, node)
        try:
            yield connection
        except (LostConnection, LateReply, OSError) as error:
            connection.disconnect()
            if login is not None and isinstance(error, LostConnection):
                # A server closes the connections of a user that it has deleted.
                try:
                    pool.release(self._connection(pool, login, node))
                except LoginRefused:
                    raise RestError(401, REST_UNAUTHORIZED) from None
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
        try:
            connection = self._pool(None, self._home()).make_connection()
            connection.socket_timeout = connection.socket_connect_timeout = within
            try:
                exchange(connection, [b"PING"])
            finally:
                connection.disconnect()
        except (RedisError, OSError, CommandError, Unreachable):
            return False
        return True

    def admits(self, login: Login) -> bool:
        try:
            with self._leased(login, self._home()):
                return True
        except LoginRefused:
            return False

    def log_out(self, user: bytes) -> None:
        """Forget the idle connections of a user, so that the next command has to log in again."""
        with self._lock:
            of_user = [key for key in self._pools if key[0] is not None and key[0][0] == user]
            pools = [self._pools.pop(key) for key in of_user]
        for pool in pools:
            pool.disconnect(inuse_connections=False)

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
                    options["redis_connect_func"] = partial(_connect, login)
                pool = self._pools[login, node] = self._make_pool(**options)
            return pool


def _connect(login: Login, connection: Any) -> None:
    # Log in as another user only after `on_connect()` has selected the database, because that user
    # may not have permission to select it.
    connection.on_connect()
    connection.send_command(b"AUTH", *login, check_health=False)
    connection.read_response()


class SentinelLink(RedisLink):
    """Connections to the primary that Sentinel names, which is looked up for each connection."""

    def __init__(self, service: str, sentinels: list[Address], options: dict[str, Any]) -> None:
        super().__init__({k: v for k, v in options.items() if k not in ("host", "port")})
        self._service = service
        sentinel = Sentinel(
            sentinels,
            sentinel_kwargs={
                "socket_connect_timeout": CONNECT_TIMEOUT,
                "socket_timeout": CONNECT_TIMEOUT,
                "retry": Retry(NoBackoff(), 0),
            },
        )
        self._make_pool = partial(SentinelConnectionPool, service, sentinel)

    @property
    def where(self) -> str:
        return f"Sentinel's {self._service!r}"


PAUSE = 0.01
"""Seconds between two attempts while a slot moves."""
_REDIRECTIONS = (b"MOVED", b"ASK", b"TRYAGAIN", b"CLUSTERDOWN")
_USER_COMMANDS = ([b"ACL", b"SETUSER"], [b"ACL", b"DELUSER"])
T = TypeVar("T")


class ClusterLink(RedisLink):
    """Connections to the node that serves one slot of a cluster."""

    clustered = True

    def __init__(self, nodes: list[Address], options: dict[str, Any]) -> None:
        super().__init__(options)
        self._nodes = nodes
        """The nodes that can be queried for the slots: those in the URL, and all that they listed."""
        self._primaries: list[Address] = []
        self._key = b""
        self._slot = 0
        self._slot_node: Address | None = None

    def pin(self, key: bytes) -> None:
        """Use the node that serves a key's slot, and follow the slot when it moves."""
        self._key, self._slot = key, key_slot(key)

    def call(self, argv: list[bytes], login: Login | None = None) -> Reply:
        """Run a command line on the slot's node. Follow the slot if it has moved or is moving."""
        if not _has_keys(argv):
            self._wait_until_slot_is_whole()
        reply = self._follow(lambda node, asking: self._run(argv, login, node, asking=asking))
        self._run_on_other_primaries(argv)
        return reply

    def transaction(self, lines: list[list[bytes]], login: Login | None = None) -> list[Reply]:
        """Run a transaction. Repeat it if a node aborted it because the slot moved."""
        if not any(map(_has_keys, lines)):
            self._wait_until_slot_is_whole()

        def send(node: Address, asking: bool) -> list[Reply]:
            # If ASKING is sent before MULTI, it applies to the whole transaction.
            first = [[b"ASKING"], [b"MULTI"]] if asking else [[b"MULTI"]]
            replies = self._batch([*lines, [b"EXEC"]], login, node, first)
            for reply in replies:
                if _is_redirection(reply):
                    raise cast("CommandError", reply)
            return replies

        replies = self._follow(send)
        results = replies[-1]
        if isinstance(results, list):
            for line, result in zip(lines, results, strict=True):
                if not isinstance(result, CommandError):
                    self._run_on_other_primaries(line)
        return replies

    def many(self, lines: list[list[bytes]]) -> list[Reply]:
        """Run command lines together. Lines that a node redirected are repeated one by one."""
        replies = self._follow(lambda node, _: self._batch(lines, None, node, []))
        for at, reply in enumerate(replies):
            if _is_redirection(reply):
                try:
                    replies[at] = self.call(lines[at])
                except CommandError as error:
                    replies[at] = as_reply(error)
        return replies

    def dedicated(self, login: Login | None = None) -> Any:
        try:
            return super().dedicated(login)
        except Exception:
            self._slot_node = None
            raise

    def _follow(self, send: Callable[[Address, bool], T]) -> T:
        """Call ``send`` with the node that serves the slot, again after each redirection.

        Its second argument says whether a node redirected only this request (ASK). Raises
        ``Unreachable`` after ``REPLY_TIMEOUT`` seconds.
        """
        until = monotonic() + REPLY_TIMEOUT
        redirected: Address | None = None
        redirections = 0
        while True:
            if redirections > 1:
                # Follow the first redirection immediately, and later ones after a pause.
                _pause()
            node = redirected or self._home()
            try:
                return send(node, redirected is not None)
            except CommandError as error:
                if not _is_redirection(error):
                    raise
                word, _, details = error.text.partition(b" ")
                if word == b"CLUSTERDOWN" or monotonic() > until:
                    self._slot_node = None
                    raise self.unreachable(str(error)) from None
            except Unreachable:
                # The primary may have changed (failover), so the next request looks it up again.
                self._slot_node = None
                raise
            redirections += 1
            redirected = None
            if word == b"ASK":
                redirected = _redirection_target(details, node)
            elif word == b"MOVED":
                self._slot_node = _redirection_target(details, node)

    def _wait_until_slot_is_whole(self) -> None:
        """Wait until one node serves the whole slot: commands without keys are not redirected."""

        def send(node: Address, asking: bool) -> Reply:
            if asking:
                raise CommandError(b"TRYAGAIN the slot is moving")
            return self._run([b"EXISTS", self._key], None, node)

        self._follow(send)

    def _run_on_other_primaries(self, argv: list[bytes]) -> None:
        """Repeat a command that has changed a user on all other primaries; ignore other commands."""
        # Repeat only a command that the slot's node has accepted: it checks the permissions of the
        # client's user, and the other nodes run the command as the user in the URL.
        if [word.upper() for word in argv[:2]] not in _USER_COMMANDS:
            return
        self._discover()
        for node in self._primaries:
            if node != self._slot_node:
                with suppress(CommandError, Unreachable):
                    self._run(argv, None, node)

    def _home(self) -> Address:
        return self._slot_node or self._discover()

    def _discover(self) -> Address:
        """Query the known nodes for the slots; return the node that serves the fake's slot."""
        failed: object = "it has no nodes"
        for node in self._nodes:
            try:
                ranges = cast("list[Any]", self._run([b"CLUSTER", b"SLOTS"], None, node))
            except Unreachable as error:
                failed = error.message
                continue
            listed = [
                [_address(host, port, node) for host, port, *_ in nodes] for _, _, *nodes in ranges
            ]
            self._primaries = [nodes[0] for nodes in listed]
            self._nodes = list(dict.fromkeys([*self._nodes, *chain(*listed)]))
            for at, (first, last, *_) in enumerate(ranges):
                if first <= self._slot <= last:
                    self._slot_node = primary = self._primaries[at]
                    return primary
            failed = f"no node has slot {self._slot}"
        raise self.unreachable(failed)


def _pause() -> None:
    # An event waits in real time even if a test has replaced time.sleep().
    threading.Event().wait(PAUSE)


def _address(host: bytes | None, port: int, queried: Address) -> Address:
    # A node that does not know its own host name sends none: use the one at which it was queried.
    return (host.decode() if host and host != b"?" else queried[0], port)


def _redirection_target(text: bytes, queried: Address) -> Address:
    host, _, port = text.split()[-1].rpartition(b":")
    return _address(host, int(port), queried)


def _is_redirection(reply: object) -> bool:
    return isinstance(reply, CommandError) and reply.text.partition(b" ")[0] in _REDIRECTIONS


def _has_keys(argv: list[bytes]) -> bool:
    spec = EVERYTHING.find(argv)
    return spec is not None and bool(spec.key_positions(argv))


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
        kind, content = line[:1], line[1:]
        if kind == b"$":
            return None if content == b"-1" else buffer.read(_number(content, 0, LONGEST))
        if kind == b"+":
            return _StatusLine(content)
        if kind == b":":
            return _number(content)
        if kind == b"*":
            if content == b"-1":
                return NIL_ARRAY
            count = _number(content, 0)
            if levels:
                return [self._read_response(levels=levels - 1) for _ in range(count)]
            self._skip(count)
            kind, content = b"-", REPLY_TOO_DEEP
        if kind != b"-":
            raise LostConnection(f"the reply is not RESP2: {line[:40]!r}")
        error: Any = self.parse_error(content.decode("utf-8", "replace"))  # type: ignore[no-untyped-call]
        error.line = content
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


_REDIS_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "redis+cluster": "redis",
    "redis+sentinel": "redis",
    "valkey": "redis",
    "valkeys": "rediss",
}
"""For each supported scheme, the scheme with which redis-py connects."""
_NAMELESS = (
    {"driver_info": None}
    if "driver_info" in signature(AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)
"""Options that keep redis-py from sending its name and version on each connection."""


def open_link(url: str) -> RedisLink:
    """Return the connections to the server at a URL; raise ``ContractError`` if the URL is invalid."""
    scheme, _, location = url.partition("://")
    if scheme not in _REDIS_SCHEMES or not location:
        raise ContractError(
            f"engine={_without_password(url)!r} is not the URL of a server: pass a URL such as "
            f"'redis://127.0.0.1:6379/0'; supported schemes: {', '.join(_REDIS_SCHEMES)}"
        )
    try:
        return _link(url)
    except (ValueError, TypeError) as error:
        shown = _without_password(url)
        raise ContractError(f"engine={shown!r} is not a valid URL: {error}") from None


def _link(url: str) -> RedisLink:
    scheme, netloc, path, query_string, _ = urlsplit(url)
    query = dict(parse_qsl(query_string))
    clustered = query.pop("cluster", "") in ("1", "true", "yes") or scheme == "redis+cluster"
    user, separator, host_list = netloc.rpartition("@")
    hosts = host_list.split(",")

    def options(path: str) -> dict[str, Any]:
        # redis-py parses a single host, so pass the first one.
        address = f"{_REDIS_SCHEMES[scheme]}://{user}{separator}{hosts[0]}{path}"
        return _options(f"{address}?{urlencode(query)}")

    if scheme == "redis+sentinel":
        primary, _, database = path.strip("/").partition("/")
        if not primary:
            raise ContractError(
                f"engine={_without_password(url)!r} does not name the primary: pass a URL such as "
                "'redis+sentinel://host:26379/mymaster'"
            )
        sentinels = [_url_address(host, 26379) for host in hosts]
        return SentinelLink(primary, sentinels, options(f"/{database}" if database else ""))
    if clustered:
        return ClusterLink([_url_address(host, 6379) for host in hosts], options(path))
    return RedisLink(options(path))


def _options(url: str) -> dict[str, Any]:
    """Return redis-py's options for a connection; raise an error if the URL has invalid ones."""
    chosen = parse_url(url)
    options: dict[str, Any] = {
        "socket_connect_timeout": CONNECT_TIMEOUT,
        "socket_timeout": REPLY_TIMEOUT,
        **({} if "lib_name" in chosen else _NAMELESS),
        **chosen,
        "parser_class": RawParser,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": 100_000,  # Decided here: no pool limits a fake's requests.
    }
    # Creating a connection object does not connect, but raises an error for unknown settings.
    ConnectionPool(**options).make_connection()
    return options


def _url_address(host: str, port: int) -> Address:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError(f"{host!r} is not a host name with an optional port")
    return parts.hostname, parts.port or port


def _without_password(url: str) -> str:
    shown = re.sub(r"^([\w+]+://)?.*@", r"\1***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", shown)
