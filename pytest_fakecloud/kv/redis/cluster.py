"""Connections to a cluster. All keys of a fake are in one slot, which can move between nodes.

While the slot moves, the new node serves commands on keys that it has already received (ASK). After
the move, it serves all commands (MOVED). Commands without keys, and commands on several keys of
which only some have moved, wait until the move has ended.

Decided here: users are created on every primary, because nodes do not exchange users.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar, cast

from redis.crc import key_slot

from ...core.timeparse import monotonic
from ..errors import CommandError
from ..reply import Reply
from .connection import REPLY_TIMEOUT, Address, Link, Login, Unreachable
from .rewriting import find_spec

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
                    replies[at] = error
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
    """Return the address in a redirection such as ``MOVED <slot> <host>:<port>``."""
    host, _, port = text.split()[-1].rpartition(b":")
    return _address(host, int(port), asked)


def _is_redirection(reply: object) -> bool:
    return isinstance(reply, CommandError) and reply.text.partition(b" ")[0] in _REDIRECTIONS


def _has_keys(argv: list[bytes]) -> bool:
    spec = find_spec(argv)
    return spec is not None and bool(spec.key_positions(argv))
