"""CONFIG parameters: their names, defaults and valid values.

The defaults are those of Redis 7.0. Paths and ports are those of a new container.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from ..algorithms.glob import matcher
from ..errors import (
    CONFIG_DUPLICATE,
    CONFIG_EVENTS,
    CONFIG_FIXED,
    CONFIG_NOT_BOOLEAN,
    CONFIG_NOT_INTEGER,
    CONFIG_NOT_MEMORY,
    CONFIG_NOT_SHARE,
    CONFIG_PERCENT,
    CommandError,
    config_failed,
    unknown_config,
)
from .config_words import SEVERAL_WORDS, memory_bytes
from .registry import EVERYTHING, Table
from .syntax import try_int

_ALIASES = {
    "hash-max-ziplist-entries": "hash-max-listpack-entries",
    "hash-max-ziplist-value": "hash-max-listpack-value",
    "list-max-ziplist-size": "list-max-listpack-size",
    "zset-max-ziplist-entries": "zset-max-listpack-entries",
    "zset-max-ziplist-value": "zset-max-listpack-value",
    "lua-time-limit": "busy-reply-threshold",
}


class Config:
    """The configuration parameters of one server. Values are stored as strings."""

    def __init__(
        self, dialect: str = "vendor", table: Table = EVERYTHING, *, debug_command: bool = False
    ) -> None:
        # All servers share this dictionary until a parameter is first changed.
        self._texts = _VENDOR_DEFAULTS if dialect == "vendor" else _defaults(table)
        if debug_command:
            self._texts = {**self._texts, "enable-debug-command": "yes"}
        self._numbers: dict[str, int] = {}
        self.packs_lists_and_sets = table.knows["lists and sets are listpacks"]
        """Whether lists and sets can have the encoding ``listpack``."""
        self.patience_us = 0
        """Duration in microseconds. A command that takes less time is neither slow nor a latency
        event.
        """
        self._changed()

    def number(self, name: str) -> int:
        """Return the value of an integer parameter, such as ``zset-max-listpack-entries``."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = int(self._texts[name])
        return found

    def text(self, name: str) -> str:
        """Return the value of a parameter as CONFIG GET shows it."""
        return self._texts[name]

    def matching(self, pattern: bytes) -> list[tuple[str, str]]:
        """Return the names and values of the parameters that match a case-insensitive glob pattern."""
        matches = matcher(pattern, nocase=True)
        return [
            (name, _shown(name, text))
            for name, text in self._texts.items()
            if matches(name.encode())
            if name not in _HIDDEN or name == pattern.decode("latin-1").lower()
        ]

    def change(
        self,
        pairs: list[tuple[bytes, bytes]],
        check: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        """Change several parameters atomically; raise `CommandError` if one is invalid.

        ``check`` is called with the parsed values and may raise the same error.
        """
        changes: dict[str, str] = {}
        for raw_name, raw_value in pairs:
            name = raw_name.decode("latin-1").lower()
            kind = _KINDS.get(name)
            if kind is None or name not in self._texts:
                raise CommandError(unknown_config(raw_name))
            if name in changes:
                raise CommandError(config_failed(name, CONFIG_DUPLICATE))
            value = raw_value.decode("utf-8", "surrogateescape")
            changes[name] = _read(name, kind, value, self._texts[name])
        if check is not None:
            check(changes)
        texts = dict(self._texts)
        for name, text in changes.items():
            for spelling in _spellings(name):
                texts[spelling] = text
        self._texts = texts
        self._changed()

    def snapshot(self) -> Mapping[str, str]:
        """Return the current values of all parameters."""
        return self._texts

    def restore(self, saved: Mapping[str, str]) -> None:
        """Restore the values of all parameters."""
        self._texts = saved
        self._changed()

    def _changed(self) -> None:
        self._numbers.clear()
        self.patience_us = _patience_us(
            self._texts["slowlog-log-slower-than"], self._texts["latency-monitor-threshold"]
        )


@cache
def _patience_us(slower: str, event: str) -> int:
    bounds = [int(slower)] if int(slower) >= 0 else []
    bounds += [int(event) * 1000] if int(event) else []
    return min(bounds, default=2**63)


def _shown(name: str, text: str) -> str:
    # In the value of this parameter, Redis omits "n" after "A", although it sends events for new
    # keys.
    return text.replace("An", "A") if name == "notify-keyspace-events" else text


def _spellings(name: str) -> list[str]:
    return [each for each in _KINDS if _main_name(each) == _main_name(name)]


def _main_name(name: str) -> str:
    """Return the current name of a renamed parameter."""
    renamed = name.replace("slave", "replica")
    return _ALIASES.get(name, renamed if renamed in _KINDS else name)


def _read(name: str, kind: str, text: str, before: str) -> str:
    word, *bounds = kind.split()
    if word in SEVERAL_WORDS:
        try:
            return SEVERAL_WORDS[word](text.split(" ") if text else [], before)
        except ValueError as error:
            raise CommandError(config_failed(name, str(error))) from None
    if word == "fixed":
        raise CommandError(config_failed(name, CONFIG_FIXED))
    if word == "bool" and text.lower() not in ("yes", "no"):
        raise CommandError(config_failed(name, CONFIG_NOT_BOOLEAN))
    if word == "enum" and text.lower() not in bounds:
        listed = ", ".join(bounds)
        raise CommandError(
            config_failed(name, f"argument(s) must be one of the following: {listed}")
        )
    if word == "int":
        number = try_int(text.encode("utf-8", "surrogateescape"))
        if number is None:
            raise CommandError(config_failed(name, CONFIG_NOT_INTEGER))
        _check_bounds(name, number, bounds)
        if name == "hz":
            return str(min(max(number, 1), 500))
    if word == "events":
        return _events(name, text)
    if word == "memory":
        number = _memory(name, text)
        _check_bounds(name, number, bounds)
        return str(number)
    if word == "share":
        return _share(name, text)
    return text.lower() if word in ("bool", "enum") else text


def _check_bounds(name: str, number: int, bounds: list[str]) -> None:
    if not int(bounds[0]) <= number <= int(bounds[1]):
        raise CommandError(
            config_failed(name, f"argument must be between {bounds[0]} and {bounds[1]} inclusive")
        )


_ALL_EVENTS = "g$lshzxetd"


def _events(name: str, text: str) -> str:
    """Return the classes of keyspace events in the order that Redis uses, with ``A`` for all of
    ``g$lshzxetd``.
    """
    if not set(text) <= set("A" + _ALL_EVENTS + "KEmn"):
        raise CommandError(config_failed(name, CONFIG_EVENTS))
    chosen = set(text.replace("A", _ALL_EVENTS))
    first = "A" if chosen >= set(_ALL_EVENTS) else _ALL_EVENTS
    return "".join(letter for letter in first + "nKEm" if letter == "A" or letter in chosen)


def _memory(name: str, text: str) -> int:
    found = memory_bytes(text)
    if found is None:
        raise CommandError(config_failed(name, CONFIG_NOT_MEMORY))
    return found


def _share(name: str, text: str) -> str:
    """Parse an amount of memory, given in bytes or as a percentage of ``maxmemory``."""
    if text.endswith("%"):
        percent = try_int(text[:-1].encode("utf-8", "surrogateescape"))
        if percent is not None and percent > 100:
            raise CommandError(config_failed(name, CONFIG_PERCENT))
        if percent is not None and percent >= 0:
            return f"{percent}%" if percent else "0"
    found = memory_bytes(text)
    if found is None:
        raise CommandError(config_failed(name, CONFIG_NOT_SHARE))
    return str(found)


# fmt: off
_PARAMETERS = (
    ("acl-pubsub-default", "resetchannels", "enum allchannels resetchannels"),
    ("aclfile", "", "fixed"),
    ("acllog-max-len", "128", "int 0 9223372036854775807"),
    ("active-defrag-cycle-max", "25", "int 1 99"),
    ("active-defrag-cycle-min", "1", "int 1 99"),
    ("active-defrag-ignore-bytes", "104857600", "memory 1 9223372036854775807"),
    ("active-defrag-max-scan-fields", "1000", "int 1 9223372036854775807"),
    ("active-defrag-threshold-lower", "10", "int 0 1000"),
    ("active-defrag-threshold-upper", "100", "int 0 1000"),
    ("active-expire-effort", "1", "int 1 10"),
    ("activedefrag", "no", "bool"),
    ("activerehashing", "yes", "bool"),
    ("always-show-logo", "no", "fixed"),
    ("aof-disable-auto-gc", "no", "bool"),
    ("aof-load-truncated", "yes", "bool"),
    ("aof-rewrite-incremental-fsync", "yes", "bool"),
    ("aof-timestamp-enabled", "no", "bool"),
    ("aof-use-rdb-preamble", "yes", "bool"),
    ("aof_rewrite_cpulist", "", "fixed"),
    ("appenddirname", "appendonlydir", "fixed"),
    ("appendfilename", "appendonly.aof", "fixed"),
    ("appendfsync", "everysec", "enum everysec always no"),
    ("appendonly", "no", "bool"),
    ("auto-aof-rewrite-min-size", "67108864", "memory 0 9223372036854775807"),
    ("auto-aof-rewrite-percentage", "100", "int 0 2147483647"),
    ("bgsave_cpulist", "", "fixed"),
    ("bind", "* -::*", "text"),
    ("bind-source-addr", "", "text"),
    ("bio_cpulist", "", "fixed"),
    ("busy-reply-threshold", "5000", "int 0 9223372036854775807"),
    ("client-output-buffer-limit",
     "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
     "limits"),
    ("client-query-buffer-limit", "1073741824", "memory 1048576 9223372036854775807"),
    ("cluster-allow-pubsubshard-when-down", "yes", "bool"),
    ("cluster-allow-reads-when-down", "no", "bool"),
    ("cluster-allow-replica-migration", "yes", "bool"),
    ("cluster-announce-bus-port", "0", "int 0 65535"),
    ("cluster-announce-hostname", "", "text"),
    ("cluster-announce-ip", "", "text"),
    ("cluster-announce-port", "0", "int 0 65535"),
    ("cluster-announce-tls-port", "0", "int 0 65535"),
    ("cluster-config-file", "nodes.conf", "fixed"),
    ("cluster-enabled", "no", "fixed"),
    ("cluster-link-sendbuf-limit", "0", "memory 0 18446744073709551615"),
    ("cluster-migration-barrier", "1", "int 0 2147483647"),
    ("cluster-node-timeout", "15000", "int 0 9223372036854775807"),
    ("cluster-port", "0", "fixed"),
    ("cluster-preferred-endpoint-type", "ip", "enum ip hostname unknown-endpoint"),
    ("cluster-replica-no-failover", "no", "bool"),
    ("cluster-replica-validity-factor", "10", "int 0 2147483647"),
    ("cluster-require-full-coverage", "yes", "bool"),
    ("cluster-slave-no-failover", "no", "bool"),
    ("cluster-slave-validity-factor", "10", "int 0 2147483647"),
    ("crash-log-enabled", "yes", "bool"),
    ("crash-memcheck-enabled", "yes", "bool"),
    ("daemonize", "no", "fixed"),
    ("databases", "16", "fixed"),
    ("dbfilename", "dump.rdb", "protected"),
    ("dir", "/data", "protected"),
    ("disable-thp", "yes", "fixed"),
    ("dynamic-hz", "yes", "bool"),
    ("enable-debug-command", "no", "fixed"),
    ("enable-module-command", "no", "fixed"),
    ("enable-protected-configs", "no", "fixed"),
    ("hash-max-listpack-entries", "512", "int 0 9223372036854775807"),
    ("hash-max-listpack-value", "64", "memory 0 9223372036854775807"),
    ("hash-max-ziplist-entries", "512", "int 0 9223372036854775807"),
    ("hash-max-ziplist-value", "64", "memory 0 9223372036854775807"),
    ("hll-sparse-max-bytes", "3000", "memory 0 9223372036854775807"),
    ("hz", "10", "int 0 2147483647"),
    ("ignore-warnings", "", "text"),
    ("io-threads", "1", "fixed"),
    ("io-threads-do-reads", "no", "fixed"),
    ("jemalloc-bg-thread", "yes", "bool"),
    ("key-load-delay", "0", "int -2147483648 2147483647"),
    ("latency-monitor-threshold", "0", "int 0 9223372036854775807"),
    ("latency-tracking", "yes", "bool"),
    ("latency-tracking-info-percentiles", "50 99 99.9", "percentiles"),
    ("lazyfree-lazy-eviction", "no", "bool"),
    ("lazyfree-lazy-expire", "no", "bool"),
    ("lazyfree-lazy-server-del", "no", "bool"),
    ("lazyfree-lazy-user-del", "no", "bool"),
    ("lazyfree-lazy-user-flush", "no", "bool"),
    ("lfu-decay-time", "1", "int 0 2147483647"),
    ("lfu-log-factor", "10", "int 0 2147483647"),
    ("list-compress-depth", "0", "int 0 2147483647"),
    ("list-max-listpack-size", "-2", "int -2147483648 2147483647"),
    ("list-max-ziplist-size", "-2", "int -2147483648 2147483647"),
    ("logfile", "", "fixed"),
    ("loglevel", "notice", "enum debug verbose notice warning"),
    ("lua-time-limit", "5000", "int 0 9223372036854775807"),
    ("masterauth", "", "text"),
    ("masteruser", "", "text"),
    ("loading-process-events-interval-bytes", "2097152", "int 1024 2147483647"),
    ("maxclients", "10000", "int 1 4294967295"),
    ("maxmemory", "0", "memory 0 18446744073709551615"),
    ("maxmemory-clients", "0", "share"),
    ("maxmemory-eviction-tenacity", "10", "int 0 100"),
    ("maxmemory-policy",
     "noeviction",
     "enum volatile-lru volatile-lfu volatile-random volatile-ttl "
     "allkeys-lru allkeys-lfu allkeys-random noeviction"),
    ("maxmemory-samples", "5", "int 1 2147483647"),
    ("min-replicas-max-lag", "10", "int 0 2147483647"),
    ("min-replicas-to-write", "0", "int 0 2147483647"),
    ("min-slaves-max-lag", "10", "int 0 2147483647"),
    ("min-slaves-to-write", "0", "int 0 2147483647"),
    ("no-appendfsync-on-rewrite", "no", "bool"),
    ("notify-keyspace-events", "", "events"),
    ("oom-score-adj", "no", "enum no yes relative absolute"),
    ("oom-score-adj-values", "0 200 800", "scores"),
    ("pidfile", "", "fixed"),
    ("port", "6379", "int 0 65535"),
    ("proc-title-template", "{title} {listen-addr} {server-mode}", "text"),
    ("propagation-error-behavior", "ignore", "enum ignore panic panic-on-replicas"),
    ("protected-mode", "yes", "bool"),
    ("proto-max-bulk-len", "536870912", "memory 1048576 9223372036854775807"),
    ("rdb-del-sync-files", "no", "bool"),
    ("rdb-key-save-delay", "0", "int -2147483648 2147483647"),
    ("rdb-save-incremental-fsync", "yes", "bool"),
    ("rdbchecksum", "yes", "fixed"),
    ("rdbcompression", "yes", "bool"),
    ("repl-backlog-size", "1048576", "memory 1 9223372036854775807"),
    ("repl-backlog-ttl", "3600", "int 0 9223372036854775807"),
    ("repl-disable-tcp-nodelay", "no", "bool"),
    ("repl-diskless-load", "disabled", "enum disabled on-empty-db swapdb"),
    ("repl-diskless-sync", "yes", "bool"),
    ("repl-diskless-sync-delay", "5", "int 0 2147483647"),
    ("repl-diskless-sync-max-replicas", "0", "int 0 2147483647"),
    ("repl-ping-replica-period", "10", "int 1 2147483647"),
    ("repl-ping-slave-period", "10", "int 1 2147483647"),
    ("repl-timeout", "60", "int 1 2147483647"),
    ("replica-announce-ip", "", "text"),
    ("replica-announce-port", "0", "int 0 65535"),
    ("replica-announced", "yes", "bool"),
    ("replica-ignore-disk-write-errors", "no", "bool"),
    ("replica-ignore-maxmemory", "yes", "bool"),
    ("replica-lazy-flush", "no", "bool"),
    ("replica-priority", "100", "int 0 2147483647"),
    ("replica-read-only", "yes", "bool"),
    ("replica-serve-stale-data", "yes", "bool"),
    ("replicaof", "", "fixed"),
    ("requirepass", "", "text"),
    ("sanitize-dump-payload", "no", "enum no yes clients"),
    ("save", "3600 1 300 100 60 10000", "save"),
    ("server_cpulist", "", "fixed"),
    ("set-max-intset-entries", "512", "int 0 9223372036854775807"),
    ("set-max-listpack-entries", "128", "int 0 9223372036854775807"),
    ("set-max-listpack-value", "64", "int 0 9223372036854775807"),
    ("set-proc-title", "yes", "fixed"),
    ("shutdown-on-sigint", "default", "enum default save nosave now force"),
    ("shutdown-on-sigterm", "default", "enum default save nosave now force"),
    ("shutdown-timeout", "10", "int 0 2147483647"),
    ("slave-announce-ip", "", "text"),
    ("slave-announce-port", "0", "int 0 65535"),
    ("slave-ignore-maxmemory", "yes", "bool"),
    ("slave-lazy-flush", "no", "bool"),
    ("slave-priority", "100", "int 0 2147483647"),
    ("slave-read-only", "yes", "bool"),
    ("slave-serve-stale-data", "yes", "bool"),
    ("slaveof", "", "fixed"),
    ("slowlog-log-slower-than", "10000", "int -1 9223372036854775807"),
    ("slowlog-max-len", "128", "int 0 9223372036854775807"),
    ("socket-mark-id", "0", "fixed"),
    ("stop-writes-on-bgsave-error", "yes", "bool"),
    ("stream-node-max-bytes", "4096", "memory 0 9223372036854775807"),
    ("stream-node-max-entries", "100", "int 0 9223372036854775807"),
    ("supervised", "no", "fixed"),
    ("syslog-enabled", "no", "fixed"),
    ("syslog-facility", "local0", "fixed"),
    ("syslog-ident", "redis", "fixed"),
    ("tcp-backlog", "511", "fixed"),
    ("tcp-keepalive", "300", "int 0 2147483647"),
    ("timeout", "0", "int 0 2147483647"),
    ("tls-auth-clients", "yes", "enum no yes optional"),
    ("tls-ca-cert-dir", "", "text"),
    ("tls-ca-cert-file", "", "text"),
    ("tls-cert-file", "", "text"),
    ("tls-ciphers", "", "text"),
    ("tls-ciphersuites", "", "text"),
    ("tls-client-cert-file", "", "text"),
    ("tls-client-key-file", "", "text"),
    ("tls-client-key-file-pass", "", "text"),
    ("tls-cluster", "no", "bool"),
    ("tls-dh-params-file", "", "text"),
    ("tls-key-file", "", "text"),
    ("tls-key-file-pass", "", "text"),
    ("tls-port", "0", "int 0 65535"),
    ("tls-prefer-server-ciphers", "no", "bool"),
    ("tls-protocols", "", "text"),
    ("tls-replication", "no", "bool"),
    ("tls-session-cache-size", "20480", "int 0 2147483647"),
    ("tls-session-cache-timeout", "300", "int 0 2147483647"),
    ("tls-session-caching", "yes", "bool"),
    ("tracking-table-max-keys", "1000000", "int 0 9223372036854775807"),
    ("unixsocket", "", "fixed"),
    ("unixsocketperm", "0", "fixed"),
    ("use-exit-on-panic", "no", "bool"),
    ("watchdog-period", "0", "int 0 2147483647"),
    ("zset-max-listpack-entries", "128", "int 0 9223372036854775807"),
    ("zset-max-listpack-value", "64", "memory 0 9223372036854775807"),
    ("zset-max-ziplist-entries", "128", "int 0 9223372036854775807"),
    ("zset-max-ziplist-value", "64", "memory 0 9223372036854775807"),
)
# fmt: on
_HIDDEN = {
    "key-load-delay",
    "loading-process-events-interval-bytes",
    "rdb-key-save-delay",
    "use-exit-on-panic",
    "watchdog-period",
}
"""Parameters that CONFIG GET returns only if they are requested by their exact names."""
_TOLD = {name: default for name, default, _ in _PARAMETERS}


@cache
def _defaults(table: Table) -> Mapping[str, str]:
    knows = table.knows
    return MappingProxyType(
        {name: default for name, default in _TOLD.items() if knows.get(f"CONFIG {name}", True)}
    )


_VENDOR_DEFAULTS = MappingProxyType({**_TOLD, "databases": "1"})
_KINDS = {name: kind for name, _, kind in _PARAMETERS}
