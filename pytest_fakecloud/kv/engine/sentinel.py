"""A sentinel: what it replies about a primary and its replicas, and what it publishes at a failover.

It is alone, so it can always decide, and reports constants for what real ones measure. A failover takes
no time: all its events are published at once (decided here). Its configuration cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .. import errors
from ..algorithms.glob import matcher
from ..errors import CommandError
from ..reply import NIL_ARRAY, OK, Map, Reply, Status
from ..syntax import parse_int
from ..table.registry import Args
from .engine import KVEngine
from .replication import Node, Replication
from .sessions import Session

MASTER_NAME = "mymaster"
"""The name of the primary unless a setting names it, as in the configuration that servers ship with."""
_ALLOWED = frozenset({
    b"ACL", b"AUTH", b"CLIENT", b"COMMAND", b"HELLO", b"PING", b"PSUBSCRIBE", b"PUNSUBSCRIBE", b"QUIT",
    b"RESET", b"SUBSCRIBE", b"UNSUBSCRIBE",
})  # fmt: skip
"""Commands that a sentinel handles like any server."""
_CONSTANTS = (
    "link-pending-commands", "0", "link-refcount", "1", "last-ping-sent", "0", "last-ok-ping-reply", "0",
    "last-ping-reply", "0", "down-after-milliseconds", "30000", "info-refresh", "0",
)  # fmt: skip
"""Fields with constant values, which both the primary and the replicas have."""


class _Subcommand(NamedTuple):
    """A subcommand of SENTINEL: its function, and its lowest and highest number of arguments."""

    function: Callable[[Sentinel, Args], Reply]
    least: int
    most: int


class Sentinel:
    """A sentinel. ``engine`` is its own, which has its clients and their subscriptions."""

    def __init__(
        self, name: str, topology: Replication, engine: KVEngine, watched: KVEngine
    ) -> None:
        self.name = name.encode()
        self.engine = engine
        self._topology = topology
        self._watched = watched
        """The engine of the servers that it watches."""
        self._id = engine.ids.stream("kv", "sentinel").hex(40)

    def reply_to(self, session: Session, line: list[bytes]) -> Reply | None:
        """Return the reply to a client's command line; None for one that any server handles alike."""
        name = line[0].upper()
        try:
            if name == b"SENTINEL":
                return self._sentinel(line)
            if name == b"PUBLISH" and len(line) == 3:
                if line[1] != b"__sentinel__:hello":
                    raise CommandError(errors.ONLY_HELLO)
                return 1
            if name == b"ROLE" and len(line) == 1:
                return [b"sentinel", [self.name]]
            if name == b"INFO":
                return self._info(line[1:])
            if name not in _ALLOWED:
                raise CommandError(errors.unknown_command(line))
        except CommandError as error:
            return error
        return None

    def _sentinel(self, line: list[bytes]) -> Reply:
        if len(line) < 2:
            raise CommandError(errors.wrong_arity("sentinel"))
        word = line[1].upper().decode("latin-1")
        subcommand = _SUBCOMMANDS.get(word)
        if subcommand is None:
            raise CommandError(errors.unknown_subcommand(line[1], "SENTINEL"))
        if not subcommand.least <= len(line) - 2 <= subcommand.most:
            raise CommandError(errors.wrong_arity(f"sentinel|{word.lower()}"))
        return subcommand.function(self, line[2:])

    # -- subcommands -------------------------------------------------------------------------------

    def _check(self, name: bytes) -> None:
        if name != self.name:
            raise CommandError(errors.NO_SUCH_MASTER)

    def _address(self, args: Args) -> Reply:
        if args[0] != self.name:
            return NIL_ARRAY
        primary = self._topology.current_primary()
        return [primary.host.encode(), b"%d" % primary.port]

    def _masters(self, args: Args) -> Reply:
        return [self._master_fields()]

    def _master(self, args: Args) -> Reply:
        self._check(args[0])
        return self._master_fields()

    def _master_fields(self) -> Map:
        primary = self._topology.current_primary()
        return _fields(
            "name", self.name.decode("utf-8", "replace"), *_identity(primary), "flags", "master",
            *_CONSTANTS, "role-reported", "master", "role-reported-time", "0",
            "config-epoch", str(self._topology.epoch),
            "num-slaves", str(len(self._topology.replicas_of(primary))),
            "num-other-sentinels", "0", "quorum", "1", "failover-timeout", "180000",
            "parallel-syncs", "1",
        )  # fmt: skip

    def _replicas(self, args: Args) -> Reply:
        self._check(args[0])
        primary = self._topology.current_primary()
        return [
            _fields(
                "name", replica.address, *_identity(replica), "flags", "slave", *_CONSTANTS,
                "role-reported", "slave", "role-reported-time", "0", "master-link-down-time", "0",
                "master-link-status", "ok", "master-host", primary.host,
                "master-port", str(primary.port), "slave-priority", "100", "slave-repl-offset", "0",
                "replica-announced", "1",
            )
            for replica in self._topology.replicas_of(primary)
        ]  # fmt: skip

    def _sentinels(self, args: Args) -> Reply:
        self._check(args[0])
        return []

    def _ckquorum(self, args: Args) -> Reply:
        self._check(args[0])
        return Status(b"OK 1 usable Sentinels. Quorum and failover authorization can be reached")

    def _failover(self, args: Args) -> Reply:
        self._check(args[0])
        [replica, *_] = self._topology.replicas_of(self._topology.current_primary())
        self._watched.change_nodes(self._topology.promote, replica)
        return OK

    def _is_down(self, args: Args) -> Reply:
        parse_int(args[1])
        parse_int(args[2])
        return [0, b"*", 0]

    def _reset(self, args: Args) -> Reply:
        return int(bool(matcher(args[0])(self.name)))

    def _monitor(self, args: Args) -> Reply:
        raise CommandError(errors.DUPLICATE_MASTER if args[0] == self.name else errors.FIXED_NODES)

    def _remove(self, args: Args) -> Reply:
        self._check(args[0])
        raise CommandError(errors.FIXED_NODES)

    def _set(self, args: Args) -> Reply:
        self._check(args[0])
        raise CommandError(errors.FIXED_NODES)

    def _myid(self, args: Args) -> Reply:
        return self._id.encode()

    def _pending_scripts(self, args: Args) -> Reply:
        return []

    def _flushconfig(self, args: Args) -> Reply:
        return OK

    def _info(self, sections: Args) -> Reply:
        wanted = {section.lower() for section in sections} or {b"default"}
        if not wanted & {b"default", b"all", b"everything", b"sentinel"}:
            return b""
        primary = self._topology.current_primary()
        replicas = len(self._topology.replicas_of(primary))
        name = self.name.decode("utf-8", "replace")
        lines = [
            "# Sentinel", "sentinel_masters:1", "sentinel_tilt:0", "sentinel_tilt_since_seconds:-1",
            "sentinel_running_scripts:0", "sentinel_scripts_queue_length:0",
            "sentinel_simulate_failure_flags:0",
            f"master0:name={name},status=ok,address={primary.address},slaves={replicas},sentinels=1",
        ]  # fmt: skip
        return "".join(f"{line}\r\n" for line in lines).encode()

    # -- events ------------------------------------------------------------------------------------

    def publish_failover(self, former: Node, replica: Node) -> None:
        """Publish the events of a failover, in the order of real sentinels."""
        name = self.name.decode("utf-8", "replace")
        old, new = f"{former.host} {former.port}", f"{replica.host} {replica.port}"
        master = f"master {name} {old}"
        promoted = f"slave {replica.address} {new} @ {name} {old}"
        epoch = self._topology.epoch
        events = [
            ("+new-epoch", str(epoch)), ("+try-failover", master),
            ("+vote-for-leader", f"{self._id} {epoch}"), ("+elected-leader", master),
            ("+failover-state-select-slave", master), ("+selected-slave", promoted),
            ("+failover-state-send-slaveof-noone", promoted),
            ("+failover-state-wait-promotion", promoted),
            ("-role-change", f"{promoted} new reported role is master"),
            ("+promoted-slave", promoted), ("+failover-state-reconf-slaves", master),
            ("+failover-end", master), ("+switch-master", f"{name} {old} {new}"),
            ("+slave", f"slave {former.address} {old} @ {name} {new}"),
        ]  # fmt: skip
        with self.engine.lock:
            for channel, message in events:
                self.engine.pubsub.publish(channel.encode(), message.encode())


def _identity(node: Node) -> tuple[str, ...]:
    return "ip", node.host, "port", str(node.port), "runid", node.id


def _fields(*words: str) -> Map:
    return Map([word.encode() for word in words])


_SUBCOMMANDS = {
    "CKQUORUM": _Subcommand(Sentinel._ckquorum, 1, 1),
    "FAILOVER": _Subcommand(Sentinel._failover, 1, 1),
    "FLUSHCONFIG": _Subcommand(Sentinel._flushconfig, 0, 0),
    "GET-MASTER-ADDR-BY-NAME": _Subcommand(Sentinel._address, 1, 1),
    "IS-MASTER-DOWN-BY-ADDR": _Subcommand(Sentinel._is_down, 4, 4),
    "MASTER": _Subcommand(Sentinel._master, 1, 1),
    "MASTERS": _Subcommand(Sentinel._masters, 0, 0),
    "MONITOR": _Subcommand(Sentinel._monitor, 4, 4),
    "MYID": _Subcommand(Sentinel._myid, 0, 0),
    "PENDING-SCRIPTS": _Subcommand(Sentinel._pending_scripts, 0, 0),
    "REMOVE": _Subcommand(Sentinel._remove, 1, 1),
    "REPLICAS": _Subcommand(Sentinel._replicas, 1, 1),
    "RESET": _Subcommand(Sentinel._reset, 1, 1),
    "SENTINELS": _Subcommand(Sentinel._sentinels, 1, 1),
    "SET": _Subcommand(Sentinel._set, 3, 10**6),
    "SLAVES": _Subcommand(Sentinel._replicas, 1, 1),
}
