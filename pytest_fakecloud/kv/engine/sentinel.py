"""A sentinel: what it replies about a primary and its replicas, and what it publishes at a failover.

It is alone, so it can always decide, and reports constants for what real ones measure. A failover takes
no time: all its events are published at once. Its options can be set and read, but change nothing else,
and it simulates no crash. Which primary it watches cannot be changed (decided here).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...core.assets import asset
from .. import errors
from ..algorithms.glob import matcher
from ..errors import CommandError
from ..reply import NIL_ARRAY, OK, Map, Reply, Status, Verbatim
from ..syntax import parse_int, try_int
from ..table.registry import Args
from .engine import KVEngine
from .replication import Node, NodeClient, Replication
from .sessions import Session

MASTER_NAME = "mymaster"
"""The name of the primary unless a setting names it, as in the configuration that servers ship with."""
_ALLOWED = frozenset({
    b"ACL", b"AUTH", b"CLIENT", b"COMMAND", b"HELLO", b"PING", b"PSUBSCRIBE", b"PUNSUBSCRIBE", b"QUIT",
    b"RESET", b"SUBSCRIBE", b"UNSUBSCRIBE",
})  # fmt: skip
"""Commands that a sentinel handles like any server."""
_MEASURED = (
    "link-pending-commands", "0", "link-refcount", "1", "last-ping-sent", "0", "last-ok-ping-reply", "0",
    "last-ping-reply", "0",
)  # fmt: skip
"""Fields with constant values, which both the primary and the replicas have."""
_NUMBERS = {
    "down-after-milliseconds": "30000", "failover-timeout": "180000", "parallel-syncs": "1",
    "quorum": "1",
}  # fmt: skip
"""The options of SENTINEL SET with positive numbers, which its replies have as fields."""
_SCRIPTS = ("client-reconfig-script", "notification-script")
"""The options of SENTINEL SET that are always denied."""
_SIZES = {
    **dict.fromkeys((*_NUMBERS, *_SCRIPTS), 1), "auth-pass": 1, "auth-user": 1,
    "master-reboot-down-after-period": 1, "rename-command": 2,
}  # fmt: skip
"""The number of values of each option of SENTINEL SET."""
_GLOBAL = {
    "resolve-hostnames": "no", "announce-hostnames": "no", "announce-ip": "", "announce-port": "0",
    "sentinel-user": "", "sentinel-pass": "",
}  # fmt: skip
"""The options of SENTINEL CONFIG, in the order in which it lists them."""
_PERIODS = {
    "info-period": "10000", "ping-period": "1000", "ask-period": "1000", "publish-period": "2000",
    "default-down-after": "30000", "default-failover-timeout": "180000", "tilt-trigger": "2000",
    "tilt-period": "30000", "slave-reconf-timeout": "10000", "min-link-reconnect-period": "15000",
    "election-timeout": "10000", "script-max-runtime": "60000", "script-retry-delay": "30000",
}  # fmt: skip
"""The options of SENTINEL DEBUG, in milliseconds."""
_CRASHES = (b"crash-after-election", b"crash-after-promotion")
_SECTIONS = ("server", "clients", "stats", "cpu", "sentinel")
"""The sections of INFO, in order."""


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
                return self._info(session, line[1:])
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

    def _set_options(self, defaults: Mapping[str, str]) -> dict[str, str]:
        """Return options with the values that clients have set."""
        options = self._topology.sentinel_options
        return {name: options.get(name, default) for name, default in defaults.items()}

    def _watching(self) -> tuple[str, ...]:
        """Return the fields of how a server is watched."""
        down_after = self._set_options(_NUMBERS)["down-after-milliseconds"]
        return *_MEASURED, "down-after-milliseconds", down_after, "info-refresh", "0"

    def _master_fields(self) -> Map:
        primary, numbers = self._topology.current_primary(), self._set_options(_NUMBERS)
        return _fields(
            "name", self.name.decode("utf-8", "replace"), *_identity(primary), "flags", "master",
            *self._watching(), "role-reported", "master", "role-reported-time", "0",
            "config-epoch", str(self._topology.epoch),
            "num-slaves", str(len(self._topology.replicas_of(primary))),
            "num-other-sentinels", "0", "quorum", numbers["quorum"],
            "failover-timeout", numbers["failover-timeout"],
            "parallel-syncs", numbers["parallel-syncs"],
        )  # fmt: skip

    def _replicas(self, args: Args) -> Reply:
        self._check(args[0])
        primary = self._topology.current_primary()
        return [
            _fields(
                "name", replica.address, *_identity(replica), "flags", "slave", *self._watching(),
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
        name, host, port, quorum = args
        if (try_int(quorum) or 0) < 1:
            raise CommandError(errors.INVALID_QUORUM)
        if not _is_port(port):
            raise CommandError(errors.INVALID_PORT)
        if not _is_ip(host):
            raise CommandError(errors.INVALID_HOST)
        raise CommandError(errors.DUPLICATE_MASTER if name == self.name else errors.FIXED_NODES)

    def _remove(self, args: Args) -> Reply:
        self._check(args[0])
        raise CommandError(errors.FIXED_NODES)

    def _set(self, args: Args) -> Reply:
        self._check(args[0])
        words, at = args[1:], 0
        while at < len(words):
            name = words[at].decode("utf-8", "replace").lower()
            values = words[at + 1 : at + 1 + _SIZES.get(name, 0)]
            if not values or len(values) < _SIZES[name]:
                raise CommandError(errors.unknown_sentinel_option("SET", words[at]))
            if name in _SCRIPTS:
                raise CommandError(errors.SCRIPTS_DENIED)
            if name in _NUMBERS:
                self._keep_number(name, values[0], "SET", words[at])
            at += 1 + len(values)
        return OK

    def _keep_number(self, name: str, text: bytes, subcommand: str, word: bytes) -> None:
        """Keep an option whose value has to be a positive number."""
        number = try_int(text)
        if number is None or number < 1:
            raise CommandError(errors.invalid_sentinel_option(text, subcommand, word))
        self._topology.sentinel_options[name] = str(number)

    def _config(self, args: Args) -> Reply:
        word = args[0].upper()
        if word == b"GET" and len(args) == 2:
            matches = matcher(args[1].lower())
            options = self._set_options(_GLOBAL)
            pairs = [(name, value) for name, value in options.items() if matches(name.encode())]
            return _fields(*(word for pair in pairs for word in pair))
        if word == b"SET" and len(args) == 3:
            name, value = args[1].decode("utf-8", "replace").lower(), args[2]
            if name not in _GLOBAL:
                raise CommandError(errors.unknown_sentinel_config(args[1]))
            if name.endswith("-hostnames"):
                value = value.lower()
                is_valid = value in (b"yes", b"no")
            else:
                is_valid = name != "announce-port" or _is_port(value)
            if not is_valid:
                raise CommandError(errors.invalid_sentinel_config(args[2], args[1]))
            self._topology.sentinel_options[name] = value.decode("utf-8", "surrogateescape")
            return OK
        raise CommandError(errors.SENTINEL_CONFIG_FORMS)

    def _debug(self, args: Args) -> Reply:
        if not args:
            periods = self._set_options(_PERIODS)
            return _fields(*(word for name in periods for word in (name.upper(), periods[name])))
        for at in range(0, len(args), 2):
            name, values = args[at].decode("utf-8", "replace").lower(), args[at + 1 : at + 2]
            if name not in _PERIODS or not values:
                raise CommandError(errors.unknown_sentinel_option("DEBUG", args[at]))
            self._keep_number(name, values[0], "DEBUG", args[at])
        return OK

    def _simulate_failure(self, args: Args) -> Reply:
        for word in args:
            if word.lower() == b"help":
                return list(_CRASHES)
            if word.lower() not in _CRASHES:
                raise CommandError(errors.UNKNOWN_SIMULATION)
        return OK

    def _info_cache(self, args: Args) -> Reply:
        if self.name not in args:
            return []
        primary = self._topology.current_primary()
        nodes = [primary, *self._topology.replicas_of(primary)]
        return Map([self.name, [[0, self._info_of(node)] for node in nodes]])

    def _info_of(self, node: Node) -> bytes:
        """Return the text of INFO of a server."""
        session = self._watched.session(self._watched.users.visitor(), "local")
        session.node = NodeClient(self._topology, node)
        return _text_of(self._watched.execute(session, [b"INFO"]))

    def _help(self, args: Args) -> Reply:
        return [Status(line.encode()) for line in asset(__file__, "sentinel_help.txt").splitlines()]

    def _myid(self, args: Args) -> Reply:
        return self._id.encode()

    def _pending_scripts(self, args: Args) -> Reply:
        return []

    def _flushconfig(self, args: Args) -> Reply:
        return OK

    def _info(self, session: Session, sections: Args) -> Reply:
        names = {section.lower().decode("utf-8", "replace") for section in sections} or {"default"}
        if names & {"default", "all", "everything"}:
            names |= set(_SECTIONS)
        texts = []
        for section in _SECTIONS:
            if section not in names:
                continue
            if section == "sentinel":
                texts.append(self._own_section())
            else:
                text = _text_of(self.engine.execute(session, [b"INFO", section.encode()]))
                texts.append(text.replace(b"redis_mode:standalone", b"redis_mode:sentinel"))
        return b"\r\n".join(texts)

    def _own_section(self) -> bytes:
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


def _is_port(text: bytes) -> bool:
    port = try_int(text)
    return port is not None and 0 <= port <= 65535


def _is_ip(host: bytes) -> bool:
    try:
        ipaddress.ip_address(host.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True


def _text_of(reply: Reply) -> bytes:
    """Return the text of a reply to INFO."""
    text = reply.text if isinstance(reply, Verbatim) else reply
    assert isinstance(text, bytes)
    return text


def _identity(node: Node) -> tuple[str, ...]:
    return "ip", node.host, "port", str(node.port), "runid", node.id


def _fields(*words: str) -> Map:
    return Map([word.encode() for word in words])


_SUBCOMMANDS = {
    "CKQUORUM": _Subcommand(Sentinel._ckquorum, 1, 1),
    "CONFIG": _Subcommand(Sentinel._config, 1, 10**6),
    "DEBUG": _Subcommand(Sentinel._debug, 0, 10**6),
    "FAILOVER": _Subcommand(Sentinel._failover, 1, 1),
    "FLUSHCONFIG": _Subcommand(Sentinel._flushconfig, 0, 0),
    "GET-MASTER-ADDR-BY-NAME": _Subcommand(Sentinel._address, 1, 1),
    "HELP": _Subcommand(Sentinel._help, 0, 0),
    "INFO-CACHE": _Subcommand(Sentinel._info_cache, 1, 10**6),
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
    "SIMULATE-FAILURE": _Subcommand(Sentinel._simulate_failure, 1, 10**6),
    "SLAVES": _Subcommand(Sentinel._replicas, 1, 1),
}
