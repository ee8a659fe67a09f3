"""CONFIG parameters: names, defaults of Redis 7.0 in a new container, and valid values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from .. import errors
from ..algorithms.glob import matcher
from ..errors import CommandError
from .config_words import SEVERAL_WORDS, memory_bytes
from .registry import EVERYTHING, Table
from .syntax import decoded, encoded, try_int

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
        """Microseconds below which a command is neither slow nor a latency event."""
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
        """Change parameters, or none if one is invalid; ``check`` may reject the parsed values."""
        changes: dict[str, str] = {}
        for raw_name, raw_value in pairs:
            name = raw_name.decode("latin-1").lower()
            kind = _KINDS.get(name)
            if kind is None or name not in self._texts:
                raise CommandError(errors.unknown_config(raw_name))
            if name in changes:
                raise CommandError(errors.config_failed(name, errors.CONFIG_DUPLICATE))
            value = decoded(raw_value)
            try:
                changes[name] = _read(name, kind, value, self._texts[name])
            except ValueError as error:
                raise CommandError(errors.config_failed(name, str(error))) from None
        if check is not None:
            check(changes)
        texts = dict(self._texts)
        for name, text in changes.items():
            spellings = (each for each in _KINDS if _main_name(each) == _main_name(name))
            texts.update(dict.fromkeys(spellings, text))
        self._texts = texts
        self._changed()

    def snapshot(self) -> Mapping[str, str]:
        return self._texts

    def restore(self, saved: Mapping[str, str]) -> None:
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


def _main_name(name: str) -> str:
    """Return the current name of a renamed parameter."""
    renamed = name.replace("slave", "replica")
    return _ALIASES.get(name, renamed if renamed in _KINDS else name)


def _read(name: str, kind: str, text: str, before: str) -> str:
    """Return the new value of a parameter; raise `ValueError` with the reason if it is invalid."""
    word, *bounds = kind.split()
    if word in SEVERAL_WORDS:
        return SEVERAL_WORDS[word](text.split(" ") if text else [], before)
    if word == "fixed":
        raise ValueError(errors.CONFIG_FIXED)
    if word == "bool" and text.lower() not in ("yes", "no"):
        raise ValueError(errors.CONFIG_NOT_BOOLEAN)
    if word == "enum" and text.lower() not in bounds:
        raise ValueError(f"argument(s) must be one of the following: {', '.join(bounds)}")
    if word == "int":
        number = _within(bounds, _integer(text), errors.CONFIG_NOT_INTEGER)
        return str(min(max(number, 1), 500) if name == "hz" else number)
    if word == "memory":
        return str(_within(bounds, memory_bytes(text), errors.CONFIG_NOT_MEMORY))
    if word == "events":
        return _events(text)
    if word == "share":
        return _share(text)
    return text.lower() if word in ("bool", "enum") else text


def _integer(text: str) -> int | None:
    return try_int(encoded(text))


def _within(bounds: list[str], number: int | None, error: str) -> int:
    if number is None:
        raise ValueError(error)
    if not int(bounds[0]) <= number <= int(bounds[1]):
        raise ValueError(f"argument must be between {bounds[0]} and {bounds[1]} inclusive")
    return number


_ALL_EVENTS = "g$lshzxetd"


def _events(text: str) -> str:
    """Return the letters of event classes in the order of Redis, with ``A`` for all of them."""
    if not set(text) <= set("A" + _ALL_EVENTS + "KEmn"):
        raise ValueError(errors.CONFIG_EVENTS)
    chosen = set(text.replace("A", _ALL_EVENTS))
    first = "A" if chosen >= set(_ALL_EVENTS) else _ALL_EVENTS
    return "".join(letter for letter in first + "nKEm" if letter == "A" or letter in chosen)


def _share(text: str) -> str:
    """Parse an amount of memory, given in bytes or as a percentage of ``maxmemory``."""
    if text.endswith("%"):
        percent = _integer(text[:-1])
        if percent is not None and percent > 100:
            raise ValueError(errors.CONFIG_PERCENT)
        if percent is not None and percent >= 0:
            return f"{percent}%" if percent else "0"
    found = memory_bytes(text)
    if found is None:
        raise ValueError(errors.CONFIG_NOT_SHARE)
    return str(found)


# fmt: off
_PARAMETERS = {
    ("bool", "yes"):
        "activerehashing aof-load-truncated aof-rewrite-incremental-fsync aof-use-rdb-preamble "
        "cluster-allow-pubsubshard-when-down cluster-allow-replica-migration "
        "cluster-require-full-coverage crash-log-enabled crash-memcheck-enabled dynamic-hz "
        "jemalloc-bg-thread latency-tracking protected-mode rdb-save-incremental-fsync "
        "rdbcompression repl-diskless-sync replica-announced replica-ignore-maxmemory "
        "replica-read-only replica-serve-stale-data slave-ignore-maxmemory slave-read-only "
        "slave-serve-stale-data stop-writes-on-bgsave-error tls-session-caching",
    ("bool", "no"):
        "activedefrag aof-disable-auto-gc aof-timestamp-enabled appendonly "
        "cluster-allow-reads-when-down cluster-replica-no-failover cluster-slave-no-failover "
        "lazyfree-lazy-eviction lazyfree-lazy-expire lazyfree-lazy-server-del "
        "lazyfree-lazy-user-del lazyfree-lazy-user-flush no-appendfsync-on-rewrite "
        "rdb-del-sync-files repl-disable-tcp-nodelay replica-ignore-disk-write-errors "
        "replica-lazy-flush slave-lazy-flush tls-cluster tls-prefer-server-ciphers tls-replication "
        "use-exit-on-panic",
    ("enum allchannels resetchannels", "resetchannels"): "acl-pubsub-default",
    ("enum debug verbose notice warning", "notice"): "loglevel",
    ("enum default save nosave now force", "default"): "shutdown-on-sigint shutdown-on-sigterm",
    ("enum disabled on-empty-db swapdb", "disabled"): "repl-diskless-load",
    ("enum everysec always no", "everysec"): "appendfsync",
    ("enum ignore panic panic-on-replicas", "ignore"): "propagation-error-behavior",
    ("enum ip hostname unknown-endpoint", "ip"): "cluster-preferred-endpoint-type",
    ("enum no yes clients", "no"): "sanitize-dump-payload",
    ("enum no yes optional", "yes"): "tls-auth-clients",
    ("enum no yes relative absolute", "no"): "oom-score-adj",
    ("enum volatile-lru volatile-lfu volatile-random volatile-ttl allkeys-lru allkeys-lfu "
     "allkeys-random noeviction", "noeviction"): "maxmemory-policy",
    ("int -1 9223372036854775807", "10000"): "slowlog-log-slower-than",
    ("int -2147483648 2147483647", "-2"): "list-max-listpack-size list-max-ziplist-size",
    ("int -2147483648 2147483647", "0"): "key-load-delay rdb-key-save-delay",
    ("int 0 100", "10"): "maxmemory-eviction-tenacity",
    ("int 0 1000", "10"): "active-defrag-threshold-lower",
    ("int 0 1000", "100"): "active-defrag-threshold-upper",
    ("int 0 2147483647", "0"):
        "list-compress-depth min-replicas-to-write min-slaves-to-write "
        "repl-diskless-sync-max-replicas timeout watchdog-period",
    ("int 0 2147483647", "1"): "cluster-migration-barrier lfu-decay-time",
    ("int 0 2147483647", "10"):
        "cluster-replica-validity-factor cluster-slave-validity-factor hz lfu-log-factor "
        "min-replicas-max-lag min-slaves-max-lag shutdown-timeout",
    ("int 0 2147483647", "100"): "auto-aof-rewrite-percentage replica-priority slave-priority",
    ("int 0 2147483647", "20480"): "tls-session-cache-size",
    ("int 0 2147483647", "300"): "tcp-keepalive tls-session-cache-timeout",
    ("int 0 2147483647", "5"): "repl-diskless-sync-delay",
    ("int 0 65535", "0"):
        "cluster-announce-bus-port cluster-announce-port cluster-announce-tls-port "
        "replica-announce-port slave-announce-port tls-port",
    ("int 0 65535", "6379"): "port",
    ("int 0 9223372036854775807", "0"): "latency-monitor-threshold",
    ("int 0 9223372036854775807", "100"): "stream-node-max-entries",
    ("int 0 9223372036854775807", "1000000"): "tracking-table-max-keys",
    ("int 0 9223372036854775807", "128"):
        "acllog-max-len set-max-listpack-entries slowlog-max-len zset-max-listpack-entries "
        "zset-max-ziplist-entries",
    ("int 0 9223372036854775807", "15000"): "cluster-node-timeout",
    ("int 0 9223372036854775807", "3600"): "repl-backlog-ttl",
    ("int 0 9223372036854775807", "5000"): "busy-reply-threshold lua-time-limit",
    ("int 0 9223372036854775807", "512"):
        "hash-max-listpack-entries hash-max-ziplist-entries set-max-intset-entries",
    ("int 0 9223372036854775807", "64"): "set-max-listpack-value",
    ("int 1 10", "1"): "active-expire-effort",
    ("int 1 2147483647", "10"): "repl-ping-replica-period repl-ping-slave-period",
    ("int 1 2147483647", "5"): "maxmemory-samples",
    ("int 1 2147483647", "60"): "repl-timeout",
    ("int 1 4294967295", "10000"): "maxclients",
    ("int 1 9223372036854775807", "1000"): "active-defrag-max-scan-fields",
    ("int 1 99", "1"): "active-defrag-cycle-min",
    ("int 1 99", "25"): "active-defrag-cycle-max",
    ("int 1024 2147483647", "2097152"): "loading-process-events-interval-bytes",
    ("memory 0 18446744073709551615", "0"): "cluster-link-sendbuf-limit maxmemory",
    ("memory 0 9223372036854775807", "3000"): "hll-sparse-max-bytes",
    ("memory 0 9223372036854775807", "4096"): "stream-node-max-bytes",
    ("memory 0 9223372036854775807", "64"):
        "hash-max-listpack-value hash-max-ziplist-value zset-max-listpack-value "
        "zset-max-ziplist-value",
    ("memory 0 9223372036854775807", "67108864"): "auto-aof-rewrite-min-size",
    ("memory 1 9223372036854775807", "1048576"): "repl-backlog-size",
    ("memory 1 9223372036854775807", "104857600"): "active-defrag-ignore-bytes",
    ("memory 1048576 9223372036854775807", "1073741824"): "client-query-buffer-limit",
    ("memory 1048576 9223372036854775807", "536870912"): "proto-max-bulk-len",
    ("share", "0"): "maxmemory-clients",
    ("text", ""):
        "bind-source-addr cluster-announce-hostname cluster-announce-ip ignore-warnings masterauth "
        "masteruser replica-announce-ip requirepass slave-announce-ip tls-ca-cert-dir "
        "tls-ca-cert-file tls-cert-file tls-ciphers tls-ciphersuites tls-client-cert-file "
        "tls-client-key-file tls-client-key-file-pass tls-dh-params-file tls-key-file "
        "tls-key-file-pass tls-protocols",
    ("text", "* -::*"): "bind",
    ("text", "{title} {listen-addr} {server-mode}"): "proc-title-template",
    ("events", ""): "notify-keyspace-events",
    ("save", "3600 1 300 100 60 10000"): "save",
    ("limits", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"):
        "client-output-buffer-limit",
    ("percentiles", "50 99 99.9"): "latency-tracking-info-percentiles",
    ("scores", "0 200 800"): "oom-score-adj-values",
    ("protected", "/data"): "dir",
    ("protected", "dump.rdb"): "dbfilename",
    ("fixed", "yes"): "disable-thp rdbchecksum set-proc-title",
    ("fixed", ""):
        "aclfile aof_rewrite_cpulist bgsave_cpulist bio_cpulist logfile pidfile replicaof "
        "server_cpulist slaveof unixsocket",
    ("fixed", "0"): "cluster-port socket-mark-id unixsocketperm",
    ("fixed", "1"): "io-threads",
    ("fixed", "16"): "databases",
    ("fixed", "511"): "tcp-backlog",
    ("fixed", "appendonly.aof"): "appendfilename",
    ("fixed", "appendonlydir"): "appenddirname",
    ("fixed", "local0"): "syslog-facility",
    ("fixed", "no"):
        "always-show-logo cluster-enabled daemonize enable-debug-command enable-module-command "
        "enable-protected-configs io-threads-do-reads supervised syslog-enabled",
    ("fixed", "nodes.conf"): "cluster-config-file",
    ("fixed", "redis"): "syslog-ident",
}
"""The names of parameters by kind and default."""
# fmt: on
_HIDDEN = {
    "key-load-delay",
    "loading-process-events-interval-bytes",
    "rdb-key-save-delay",
    "use-exit-on-panic",
    "watchdog-period",
}
"""Parameters that CONFIG GET returns only if they are requested by their exact names."""
_KINDS = {name: kind for (kind, _), names in _PARAMETERS.items() for name in names.split()}
_TOLD = dict(
    sorted((name, default) for (_, default), names in _PARAMETERS.items() for name in names.split())
)


@cache
def _defaults(table: Table) -> Mapping[str, str]:
    knows = table.knows
    return MappingProxyType(
        {name: default for name, default in _TOLD.items() if knows.get(f"CONFIG {name}", True)}
    )


_VENDOR_DEFAULTS = MappingProxyType({**_TOLD, "databases": "1"})
