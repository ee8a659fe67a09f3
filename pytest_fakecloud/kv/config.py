"""The configuration parameters of a server, as CONFIG GET and CONFIG SET access them.

``PARAMETERS`` has their defaults in a new container of Redis 7.0. The parsers of values accept what
Redis 7.0 accepts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from . import errors
from .algorithms.glob import matcher
from .errors import CommandError
from .syntax import I64_MAX, I64_MIN, decoded, encoded, try_int
from .table.registry import EVERYTHING, Table
from .table.versions import FIELD_EVENTS, LATER_PARAMETERS, LEAST_RECENTLY_MODIFIED

Parser: TypeAlias = Callable[[str], str]
"""Returns the value to store, given the value that a client sent.

Raises ``ValueError`` with the reason if the value is invalid.
"""
I32_MIN, I32_MAX = -(2**31), 2**31 - 1
U64_MAX = 2**64 - 1


def word_in(*words: str, reason: str = "") -> Parser:
    def parse(value: str) -> str:
        if value.lower() not in words:
            expected = f"argument(s) must be one of the following: {', '.join(words)}"
            raise ValueError(reason or expected)
        return value.lower()

    return parse


yes_or_no = word_in("yes", "no", reason=errors.CONFIG_NOT_BOOLEAN)


def without_tls(value: str) -> str:
    """Parse a switch that needs a configured TLS certificate, which the fake does not have."""
    if yes_or_no(value) == "yes":
        raise ValueError(errors.NO_TLS)
    return "no"


_SHUTDOWN_WORDS = ("default", "save", "nosave", "now", "force")
_shutdown_word = word_in(*_SHUTDOWN_WORDS)


def shutdown_options(value: str) -> str:
    """Parse ``shutdown-on-sigint``: words of SHUTDOWN, stored in the order of Redis."""
    chosen = {_shutdown_word(word) for word in value.split(" ")}
    if {"save", "nosave"} <= chosen:
        raise ValueError(errors.CONFIG_SAVE_AND_NOSAVE)
    return " ".join(word for word in _SHUTDOWN_WORDS[1:] if word in chosen) or "default"


def host_name(value: str) -> str:
    """Parse ``cluster-announce-hostname``, which may be empty."""
    if len(encoded(value)) >= 256:
        raise ValueError(errors.CONFIG_LONG_HOSTNAME)
    if re.fullmatch(r"[a-zA-Z0-9.-]*", value) is None:
        raise ValueError(errors.CONFIG_HOSTNAME)
    return value


_TITLE_VARIABLES = {
    **dict.fromkeys(("listen-addr", "port", "tls-port"), "shown"),
    **dict.fromkeys(("title", "server-mode", "config-file", "unixsocket"), ""),
}
"""The variables of ``proc-title-template``. The values of some are empty in a new container."""


def title_template(value: str) -> str:
    """Parse ``proc-title-template``, whose variables are in braces; two braces stand for one."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        if name == "{":
            return name
        if not name.endswith("}") or name[:-1] not in _TITLE_VARIABLES:
            raise ValueError(errors.CONFIG_TITLE)
        return _TITLE_VARIABLES[name[:-1]]

    if not re.sub(r"\{(\{|[^}]*\}?)", replaced, value).strip(" "):
        raise ValueError(errors.CONFIG_TITLE)
    return value


# -- addresses -----------------------------------------------------------------------------------

_WILDCARDS = {"*": "0.0.0.0", "::*": "::", "localhost": "127.0.0.1"}


def check_addresses(value: str) -> None:
    """Raise ``ValueError`` if a server could not listen on the addresses of ``bind``.

    An address after ``-`` may be missing on the machine. Decided here: the machine has all loopback
    addresses and no others, and no host name but ``localhost``. A wildcard includes all addresses
    of its family, so it can neither follow nor precede another one.
    """
    words = _words(value)
    if len(words) > 16:
        raise ValueError(errors.TOO_MANY_ADDRESSES)
    bound: list[IPv4Address | IPv6Address] = []
    for word in words:
        name = word.removeprefix("-")
        try:
            address = ip_address(_WILDCARDS.get(name, name))
        except ValueError:
            raise ValueError(errors.CANNOT_BIND) from None
        if not (address.is_loopback or address.is_unspecified):
            if word != name:
                continue
            raise ValueError(errors.CANNOT_BIND)
        for other in bound:
            either_is_any = address.is_unspecified or other.is_unspecified
            if address == other or (either_is_any and address.version == other.version):
                raise ValueError(errors.CANNOT_BIND)
        bound.append(address)


# -- numbers -------------------------------------------------------------------------------------


def integer(low: int, high: int) -> Parser:
    return _ranged(lambda value: try_int(encoded(value)), errors.CONFIG_NOT_INTEGER, low, high)


def memory(low: int, high: int) -> Parser:
    return _ranged(memory_bytes, errors.CONFIG_NOT_MEMORY, low, high)


def _ranged(read: Callable[[str], int | None], reason: str, low: int, high: int) -> Parser:
    def parse(value: str) -> str:
        number = read(value)
        if number is None:
            raise ValueError(reason)
        if not low <= number <= high:
            raise ValueError(f"argument must be between {low} and {high} inclusive")
        return str(number)

    return parse


def clamped(parse: Parser, low: int, high: int) -> Parser:
    """Change valid numbers to the nearest one in a range, as Redis does for some parameters."""
    return lambda value: str(min(max(int(parse(value)), low), high))


def memory_share(value: str) -> str:
    """Parse an amount of memory, given in bytes or as a percentage of ``maxmemory``."""
    number = memory_bytes(value)
    percent = try_int(encoded(value[:-1])) if value.endswith("%") else None
    if number is not None and number > I64_MAX:
        percent = U64_MAX + 1 - number  # Redis stores a percentage as a negative number.
    if percent is not None and percent > 100:
        raise ValueError(errors.CONFIG_PERCENT)
    if percent is not None and percent >= 0:
        return f"{percent}%" if percent else "0"
    if number is None:
        raise ValueError(errors.CONFIG_NOT_SHARE)
    return str(number)


_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 10**6, "mb": 2**20, "g": 10**9, "gb": 2**30}


def memory_bytes(word: str) -> int | None:
    """Return the bytes of an amount such as ``64mb``, modulo 2**64, or None if it is invalid."""
    match = re.fullmatch(r"(\d{0,127})([a-z]*)", word.lower(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        return None
    return min(int(match[1] or "0"), U64_MAX) * _UNITS[match[2]] & U64_MAX


# -- lists of words ------------------------------------------------------------------------------


def _words(value: str) -> list[str]:
    return value.split(" ") if value else []


def _clamped_integer(word: str) -> int | None:
    """Parse an integer like ``strtoll``, clamping it to 64 bits; return None if it is invalid.

    An empty word, as between two spaces, is 0.
    """
    if not word:
        return 0
    if re.fullmatch(r"[+-]?\d{1,100}", word, re.ASCII) is None:
        return None
    return min(max(int(word), I64_MIN), I64_MAX)


def save_points(value: str) -> str:
    """Parse ``save``: pairs of a number of seconds and a number of changes."""
    numbers = [_clamped_integer(word) for word in _words(value)]
    seconds, changes = numbers[::2], numbers[1::2]
    if (
        len(seconds) != len(changes)
        or any(number is None or number < 1 for number in seconds)
        or any(number is None or number < 0 for number in changes)
    ):
        raise ValueError(errors.CONFIG_SAVE)
    return " ".join(map(str, numbers))


_CLIENT_CLASSES = {"normal": 0, "slave": 1, "replica": 1, "pubsub": 2}
"""The positions of client classes in the value of ``client-output-buffer-limit``."""


def output_buffer_limits(value: str, before: str) -> str:
    """Replace the limits of the named client classes in the current value, and keep the others.

    A class has four words: its name, the hard limit, the soft limit, and a number of seconds.
    """
    words = _words(value)
    if len(words) % 4:
        raise ValueError(errors.CONFIG_LIMIT_COUNT)
    limits = before.split(" ")
    for at in range(0, len(words), 4):
        position = _CLIENT_CLASSES.get(words[at].lower())
        if position is None:
            raise ValueError(errors.CONFIG_LIMIT_CLASS)
        hard, soft = memory_bytes(words[at + 1]), memory_bytes(words[at + 2])
        seconds = _clamped_integer(words[at + 3])
        if hard is None or soft is None or seconds is None or not 0 <= seconds < I64_MAX:
            raise ValueError(errors.CONFIG_LIMIT_NUMBER)
        limits[4 * position + 1 : 4 * position + 4] = map(str, (hard, soft, seconds))
    return " ".join(limits)


def percentiles(value: str) -> str:
    """Parse ``latency-tracking-info-percentiles``: numbers from 0 to 100."""
    return " ".join(map(_percentile, _words(value)))


def _percentile(word: str) -> str:
    number = math.nan
    if word.isascii() and "_" not in word and word == word.strip():
        with suppress(ValueError):
            number = float(word)
    if math.isnan(number):
        raise ValueError(errors.CONFIG_PERCENTILE)
    if not 0 <= number <= 100:
        raise ValueError(errors.CONFIG_PERCENTILE_RANGE)
    return f"{number:.6f}".rstrip("0").rstrip(".")


def oom_scores(value: str) -> str:
    """Parse ``oom-score-adj-values``: three numbers for the kernel's out-of-memory killer."""
    words = _words(value)
    if len(words) != 3:
        raise ValueError(errors.CONFIG_OOM_COUNT)
    numbers = [_clamped_integer(word) for word in words]
    if any(number is None or not -2000 <= number <= 2000 for number in numbers):
        raise ValueError(errors.CONFIG_OOM_NUMBER)
    return " ".join(map(str, numbers))


# -- event classes -------------------------------------------------------------------------------

ALL_EVENTS = "g$lshzxetd"
"""The event classes that the letter ``A`` selects."""


FIELD_LETTERS = "STIV"
"""The letters for notifications about fields, which the letter ``A`` does not select."""


def event_classes(value: str, others: str = "") -> str:
    """Return the letters of event classes in the order of Redis, with ``A`` for all of them. The letters
    in ``others`` are also valid, and come last.
    """
    if not set(value) <= set("A" + ALL_EVENTS + "KEmn" + others):
        raise ValueError(errors.CONFIG_EVENTS)
    chosen = set(value.replace("A", ALL_EVENTS))
    first = "A" if chosen >= set(ALL_EVENTS) else ALL_EVENTS
    return "".join(
        letter for letter in first + "nKEm" + others if letter == "A" or letter in chosen
    )


# -- parameters ------------------------------------------------------------------------------------


class Parameter(NamedTuple):
    """A parameter: its default value, and the parser of values that CONFIG SET stores."""

    default: str
    parse: Parser
    refusal: str = ""
    """The reason why CONFIG SET rejects every value of this parameter, if it does."""
    update: Callable[[str, str], str] | None = None
    """Returns the value to store, given a parsed value that is a part of it, and the current one."""


def _group(parse: Parser, defaults: str, refusal: str = "") -> dict[str, Parameter]:
    """Return parameters with the same parser, given the text ``name=default`` for each of them."""
    pairs = (pair.partition("=") for pair in defaults.split())
    return {name: Parameter(default, parse, refusal) for name, _, default in pairs}


OPTIMISTIC = "optimistic-volatile"
"""The vendor's own policy of eviction."""
_POLICIES = (
    "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu",
    "allkeys-random", "noeviction",
)  # fmt: skip
# fmt: off
_UNSORTED = {
    **_group(yes_or_no, """
    activedefrag=no activerehashing=yes aof-disable-auto-gc=no aof-load-truncated=yes
    aof-rewrite-incremental-fsync=yes aof-timestamp-enabled=no aof-use-rdb-preamble=yes
    appendonly=no cluster-allow-pubsubshard-when-down=yes cluster-allow-reads-when-down=no
    cluster-allow-replica-migration=yes cluster-replica-no-failover=no
    cluster-require-full-coverage=yes crash-log-enabled=yes crash-memcheck-enabled=yes
    dynamic-hz=yes jemalloc-bg-thread=yes latency-tracking=yes lazyfree-lazy-eviction=no
    lazyfree-lazy-expire=no lazyfree-lazy-server-del=no lazyfree-lazy-user-del=no
    lazyfree-lazy-user-flush=no no-appendfsync-on-rewrite=no protected-mode=yes
    rdb-del-sync-files=no rdb-save-incremental-fsync=yes rdbcompression=yes
    repl-disable-tcp-nodelay=no repl-diskless-sync=yes replica-announced=yes
    replica-ignore-disk-write-errors=no replica-ignore-maxmemory=yes replica-lazy-flush=no
    replica-read-only=yes replica-serve-stale-data=yes stop-writes-on-bgsave-error=yes
    tls-prefer-server-ciphers=no tls-session-caching=yes use-exit-on-panic=no
    """),
    **_group(without_tls, "tls-cluster=no tls-replication=no"),
    **_group(integer(0, I32_MAX), """
    auto-aof-rewrite-percentage=100 cluster-migration-barrier=1 cluster-replica-validity-factor=10
    lfu-decay-time=1 lfu-log-factor=10 list-compress-depth=0 min-replicas-max-lag=10
    min-replicas-to-write=0 repl-diskless-sync-delay=5 repl-diskless-sync-max-replicas=0
    replica-priority=100 shutdown-timeout=10 tcp-keepalive=300 timeout=0
    tls-session-cache-size=20480 tls-session-cache-timeout=300 watchdog-period=0
    """),
    **_group(integer(0, I64_MAX), """
    acllog-max-len=128 busy-reply-threshold=5000 cluster-node-timeout=15000
    hash-max-listpack-entries=512 latency-monitor-threshold=0 repl-backlog-ttl=3600
    set-max-intset-entries=512 set-max-listpack-entries=128 set-max-listpack-value=64
    slowlog-max-len=128 stream-node-max-entries=100 tracking-table-max-keys=1000000
    zset-max-listpack-entries=128
    """),
    **_group(integer(0, 65535), """
    cluster-announce-bus-port=0 cluster-announce-port=0 cluster-announce-tls-port=0 port=6379
    replica-announce-port=0 tls-port=0
    """),
    **_group(memory(0, I64_MAX), """
    auto-aof-rewrite-min-size=67108864 hash-max-listpack-value=64 hll-sparse-max-bytes=3000
    stream-node-max-bytes=4096 zset-max-listpack-value=64
    """),
    **_group(str, """
    bind-source-addr= cluster-announce-ip= ignore-warnings= masterauth=
    masteruser= replica-announce-ip= requirepass= tls-ca-cert-dir= tls-ca-cert-file= tls-cert-file=
    tls-ciphers= tls-ciphersuites= tls-client-cert-file= tls-client-key-file=
    tls-client-key-file-pass= tls-dh-params-file= tls-key-file= tls-key-file-pass= tls-protocols=
    """),
    **_group(str, """
    aclfile= always-show-logo=no aof_rewrite_cpulist= appenddirname=appendonlydir
    appendfilename=appendonly.aof bgsave_cpulist= bio_cpulist= cluster-config-file=nodes.conf
    cluster-enabled=no cluster-port=0 daemonize=no databases=16 disable-thp=yes
    enable-debug-command=no enable-module-command=no enable-protected-configs=no io-threads=1
    io-threads-do-reads=no logfile= pidfile= rdbchecksum=yes replicaof= server_cpulist=
    set-proc-title=yes socket-mark-id=0 supervised=no syslog-enabled=no syslog-facility=local0
    syslog-ident=redis tcp-backlog=511 unixsocket= unixsocketperm=0
    """, errors.CONFIG_FIXED),
    "acl-pubsub-default": Parameter("resetchannels", word_in("allchannels", "resetchannels")),
    **_group(integer(1, 99), "active-defrag-cycle-max=25 active-defrag-cycle-min=1"),
    **_group(integer(0, 1000), "active-defrag-threshold-lower=10 active-defrag-threshold-upper=100"),
    **_group(integer(1, I32_MAX), """
    maxmemory-samples=5 repl-ping-replica-period=10 repl-timeout=60
    """),
    **_group(integer(I32_MIN, I32_MAX), """
    key-load-delay=0 list-max-listpack-size=-2 rdb-key-save-delay=0
    """),
    **_group(memory(0, U64_MAX), "cluster-link-sendbuf-limit=0 maxmemory=0"),
    "active-defrag-ignore-bytes": Parameter("104857600", memory(1, I64_MAX)),
    "repl-backlog-size": Parameter("1048576", clamped(memory(1, I64_MAX), 16384, I64_MAX)),
    **_group(memory(1_048_576, I64_MAX), """
    client-query-buffer-limit=1073741824 proto-max-bulk-len=536870912
    """),
    **_group(shutdown_options, "shutdown-on-sigint=default shutdown-on-sigterm=default"),
    "active-defrag-max-scan-fields": Parameter("1000", integer(1, I64_MAX)),
    "active-expire-effort": Parameter("1", integer(1, 10)),
    "appendfsync": Parameter("everysec", word_in("everysec", "always", "no")),
    "bind": Parameter("* -::*", str),
    "client-output-buffer-limit": Parameter(
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", str,
        update=output_buffer_limits,
    ),
    "cluster-announce-hostname": Parameter("", host_name),
    "cluster-preferred-endpoint-type": Parameter("ip", word_in("ip", "hostname", "unknown-endpoint")),
    "dbfilename": Parameter("dump.rdb", str, errors.CONFIG_PROTECTED),
    "dir": Parameter("/data", str, errors.CONFIG_PROTECTED),
    "hz": Parameter("10", clamped(integer(0, I32_MAX), 1, 500)),
    "latency-tracking-info-percentiles": Parameter("50 99 99.9", percentiles),
    "loading-process-events-interval-bytes": Parameter("2097152", integer(1024, I32_MAX)),
    "loglevel": Parameter("notice", word_in("debug", "verbose", "notice", "warning")),
    "maxclients": Parameter("10000", integer(1, 2**32 - 1)),
    "maxmemory-clients": Parameter("0", memory_share),
    "maxmemory-eviction-tenacity": Parameter("10", integer(0, 100)),
    "maxmemory-policy": Parameter("noeviction", word_in(*_POLICIES)),
    "notify-keyspace-events": Parameter("", event_classes),
    "oom-score-adj": Parameter("no", word_in("no", "yes", "relative", "absolute")),
    "oom-score-adj-values": Parameter("0 200 800", oom_scores),
    "proc-title-template": Parameter("{title} {listen-addr} {server-mode}", title_template),
    "propagation-error-behavior": Parameter("ignore", word_in("ignore", "panic", "panic-on-replicas")),
    "repl-diskless-load": Parameter("disabled", word_in("disabled", "on-empty-db", "swapdb")),
    "sanitize-dump-payload": Parameter("no", word_in("no", "yes", "clients")),
    "save": Parameter("3600 1 300 100 60 10000", save_points),
    "slowlog-log-slower-than": Parameter("10000", integer(-1, I64_MAX)),
    "tls-auth-clients": Parameter("yes", word_in("no", "yes", "optional")),
}
# fmt: on
_OLD_NAMES = """
cluster-slave-no-failover cluster-slave-validity-factor hash-max-ziplist-entries
hash-max-ziplist-value list-max-ziplist-size lua-time-limit min-slaves-max-lag min-slaves-to-write
repl-ping-slave-period slave-announce-ip slave-announce-port slave-ignore-maxmemory slave-lazy-flush
slave-priority slave-read-only slave-serve-stale-data slaveof zset-max-ziplist-entries
zset-max-ziplist-value
"""


def _current_name(name: str) -> str:
    """Return the current name of a parameter, which may have been renamed."""
    if name == "lua-time-limit":
        return "busy-reply-threshold"
    renamed = name.replace("slave", "replica").replace("ziplist", "listpack")
    return renamed if renamed in _UNSORTED else name


_UNSORTED |= {name: _UNSORTED[_current_name(name)] for name in _OLD_NAMES.split()}
PARAMETERS = dict(sorted(_UNSORTED.items()))
"""The parameters by name, in alphabetical order."""
_VENDOR = PARAMETERS | {
    "databases": PARAMETERS["databases"]._replace(default="1"),
    "maxmemory-policy": Parameter("noeviction", word_in(OPTIMISTIC, *_POLICIES)),
}
"""The parameters of the vendor's dialect, some of which differ from those of a stock server."""
ENCODING_LIMITS = frozenset(
    name
    for name in PARAMETERS
    if name.partition("-max-")[2].startswith(("listpack-", "ziplist-", "intset-"))
)
"""Parameters that limit the sizes of small encodings."""
HIDDEN = frozenset({
    "key-load-delay", "loading-process-events-interval-bytes", "rdb-key-save-delay",
    "use-exit-on-panic", "watchdog-period",
})  # fmt: skip
"""Parameters that CONFIG GET returns only if they are requested by their exact names."""


# -- CONFIG GET and CONFIG SET ---------------------------------------------------------------------


class Config:
    """The configuration parameters of one server. Values are stored as strings."""

    def __init__(
        self,
        dialect: str = "vendor",
        table: Table = EVERYTHING,
        *,
        debug_command: bool = False,
        is_cluster: bool = False,
    ) -> None:
        self._own = _VENDOR if dialect == "vendor" else _stock_parameters(table)
        # All servers share this dictionary until a parameter is first changed.
        self._texts = _defaults(dialect, table)
        if debug_command:
            self._texts = {**self._texts, "enable-debug-command": "yes"}
        if is_cluster:
            self._texts = {**self._texts, "cluster-enabled": "yes"}
        self._first = self._texts
        self._numbers: dict[str, int] = {}
        self.packs_lists_and_sets = table.knows["lists and sets are listpacks"]
        """Whether lists and sets can have the encoding ``listpack``."""
        self.slow_threshold_us = 0
        """Microseconds below which a command is neither slow nor a latency event."""
        self._refresh()

    def number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = int(self._texts[name])
        return number

    def text(self, name: str) -> str:
        return self._texts[name]

    def changed(self) -> dict[str, str]:
        """Return the parameters that differ from those with which the server started."""
        return {name: text for name, text in self._texts.items() if text != self._first[name]}

    def matching(self, pattern: bytes) -> list[tuple[str, str]]:
        """Return the names and values of the parameters that match a case-insensitive glob pattern.

        As in Redis, a parameter that is requested by its name gets the name as the client wrote it.
        """
        if set(pattern).isdisjoint(b"*?["):
            shown = pattern.decode("latin-1")
            names = {shown.lower(): shown} if shown.lower() in self._texts else {}
        else:
            matches = matcher(pattern, nocase=True)
            names = {
                name: name for name in self._texts if name not in HIDDEN and matches(name.encode())
            }
        values = {shown: self._texts[name] for name, shown in names.items()}
        if events := names.get("notify-keyspace-events"):
            # Redis omits "n" after "A", although it sends events for new keys.
            values[events] = values[events].replace("An", "A")
        return list(values.items())

    def change(
        self, pairs: list[tuple[bytes, bytes]], check: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Change parameters, or none if one is invalid; ``check`` may reject the parsed values."""
        values: dict[str, str] = {}
        for raw_name, raw_value in pairs:
            name = raw_name.decode("latin-1").lower()
            if name not in self._texts:
                raise CommandError(errors.unknown_config(raw_name))
            refusal = PARAMETERS[name].refusal
            if refusal:
                raise CommandError(errors.config_failed(raw_name, refusal))
            if name in values:
                raise CommandError(errors.config_failed(raw_name, errors.CONFIG_DUPLICATE))
            values[name] = decoded(raw_value)
        changes: dict[str, str] = {}
        for name, value in values.items():
            parameter = self._own[name]
            try:
                changes[name] = parameter.parse(value)
                if parameter.update:
                    changes[name] = parameter.update(changes[name], self._texts[name])
            except ValueError as error:
                raise CommandError(errors.config_failed(name, str(error))) from None
        check(changes)
        texts = dict(self._texts)
        for name, text in changes.items():
            current = _current_name(name)
            texts |= {other: text for other in PARAMETERS if _current_name(other) == current}
        self._texts = texts
        self._refresh()

    def snapshot(self) -> Mapping[str, str]:
        return self._texts

    def restore(self, saved: Mapping[str, str]) -> None:
        self._texts = saved
        self._refresh()

    def _refresh(self) -> None:
        """Update what is derived from the parameters."""
        self._numbers.clear()
        slowlog_us = int(self._texts["slowlog-log-slower-than"])
        latency_ms = int(self._texts["latency-monitor-threshold"])
        # A negative threshold, or 0 for latency events, is disabled.
        thresholds = [slowlog_us] if slowlog_us >= 0 else []
        thresholds += [latency_ms * 1000] if latency_ms else []
        self.slow_threshold_us = min(thresholds, default=2**63)


@cache
def _stock_parameters(table: Table) -> Mapping[str, Parameter]:
    """Return all parameters, with the values that a stock server of some version accepts."""
    parameters = PARAMETERS
    if table.knows[FIELD_EVENTS]:
        parse: Parser = partial(event_classes, others=FIELD_LETTERS)
        parameters = parameters | {"notify-keyspace-events": Parameter("", parse)}
    if table.knows[LEAST_RECENTLY_MODIFIED]:
        parse = word_in(*_POLICIES, "volatile-lrm", "allkeys-lrm")
        parameters = parameters | {"maxmemory-policy": Parameter("noeviction", parse)}
    return parameters


@cache
def _defaults(dialect: str, table: Table) -> Mapping[str, str]:
    own = _VENDOR if dialect == "vendor" else PARAMETERS
    later = {name for name, since in LATER_PARAMETERS.items() if not table.has(since)}
    names = (name for name in PARAMETERS if name not in later)
    return MappingProxyType({name: own[name].default for name in names})
