"""Connections to real servers, given their URLs, and connections to a cluster.

All keys of a fake are in one slot of a cluster, which can move between nodes. While the slot moves,
the new node serves commands on keys that it has already received (ASK). After the move, it serves
all commands (MOVED). Commands without keys, and commands on several keys of which only some have
moved, wait until the move has ended.

Decided here: users are created on every primary, because nodes do not exchange users.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from itertools import chain
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, ConnectionPool, parse_url
from redis.crc import key_slot
from redis.retry import Retry

from ...core.errors import ContractError
from ...core.timers import monotonic
from ..errors import CommandError, as_reply
from ..reply import Reply
from .connection import (
    CONNECT_TIMEOUT,
    REPLY_TIMEOUT,
    Address,
    Link,
    Login,
    RawParser,
    SentinelLink,
    Unreachable,
)
from .rewriting import find_spec

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
_MAX_CONNECTIONS = 100_000
"""Size of a pool: so large that the pool never limits a fake's requests (decided here)."""


def open_link(url: str) -> Link:
    """Return the connections to the server at a URL; raise ``ContractError`` if the URL is invalid."""
    scheme, _, rest = url.partition("://")
    if scheme not in _REDIS_SCHEMES or not rest:
        raise ContractError(
            f"engine={_without_password(url)!r} is not the URL of a server: pass a URL such as "
            f"'redis://127.0.0.1:6379/0'; supported schemes: {', '.join(_REDIS_SCHEMES)}"
        )
    try:
        return _link(url)
    except (ValueError, TypeError) as error:
        shown = _without_password(url)
        raise ContractError(f"engine={shown!r} is not a valid URL: {error}") from None


def _link(url: str) -> Link:
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
    return Link(options(path))


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
        "max_connections": _MAX_CONNECTIONS,
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


PAUSE = 0.01
"""Seconds between two attempts while a slot moves."""
_REDIRECTIONS = (b"MOVED", b"ASK", b"TRYAGAIN", b"CLUSTERDOWN")
_USER_COMMANDS = ([b"ACL", b"SETUSER"], [b"ACL", b"DELUSER"])
T = TypeVar("T")


class ClusterLink(Link):
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
        reply = self._follow(lambda node, asked: self._run(argv, login, node, asking=asked))
        self._run_on_other_primaries(argv)
        return reply

    def transaction(self, lines: list[list[bytes]], login: Login | None = None) -> list[Reply]:
        """Run a transaction. Repeat it if a node aborted it because the slot moved."""
        if not any(map(_has_keys, lines)):
            self._wait_until_slot_is_whole()

        def send(node: Address, asked: bool) -> list[Reply]:
            # If ASKING is sent before MULTI, it applies to the whole transaction.
            first = [[b"ASKING"], [b"MULTI"]] if asked else [[b"MULTI"]]
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
        if not lines:
            return []
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
        asked: Address | None = None
        redirections = 0
        while True:
            if redirections > 1:
                # Follow the first redirection immediately, and later ones after a pause.
                _pause()
            node = asked or self._home()
            try:
                return send(node, asked is not None)
            except CommandError as error:
                if not _is_redirection(error):
                    raise
                word, _, rest = error.text.partition(b" ")
                if word == b"CLUSTERDOWN" or monotonic() > until:
                    self._slot_node = None
                    raise self.unreachable(str(error)) from None
            except Unreachable:
                # The primary may have changed (failover), so the next request looks it up again.
                self._slot_node = None
                raise
            redirections += 1
            asked = None
            if word == b"ASK":
                asked = _redirection_target(rest, node)
            elif word == b"MOVED":
                self._slot_node = _redirection_target(rest, node)

    def _wait_until_slot_is_whole(self) -> None:
        """Wait until one node serves the whole slot: commands without keys are not redirected."""

        def send(node: Address, asked: bool) -> Reply:
            if asked:
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
                    self._slot_node = found = self._primaries[at]
                    return found
            failed = f"no node has slot {self._slot}"
        raise self.unreachable(failed)


def _pause() -> None:
    # An event waits in real time even if a test has replaced time.sleep().
    threading.Event().wait(PAUSE)


def _address(host: bytes | None, port: int, asked: Address) -> Address:
    # A node that does not know its own host name sends none: use the one at which it was queried.
    return (host.decode() if host and host != b"?" else asked[0], port)


def _redirection_target(text: bytes, asked: Address) -> Address:
    host, _, port = text.split()[-1].rpartition(b":")
    return _address(host, int(port), asked)


def _is_redirection(reply: object) -> bool:
    return isinstance(reply, CommandError) and reply.text.partition(b" ")[0] in _REDIRECTIONS


def _has_keys(argv: list[bytes]) -> bool:
    spec = find_spec(argv)
    return spec is not None and bool(spec.key_positions(argv))
