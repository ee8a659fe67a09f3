"""INFO, and the other statistics of the server: MEMORY, LATENCY and SLOWLOG.

The sections of INFO have the fields of Redis 7.0 in the same order. Fields without a meaning for a
fake, e.g. about its network, have a fixed value (decided here).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from ....core.assets import asset
from ... import errors
from ...engine.engine import KVEngine
from ...engine.replication import Replication, info_fields, node_of
from ...engine.sessions import Session
from ...errors import CommandError
from ...reply import OK, Map, Reply, Verbatim
from ...syntax import I64_MIN, decoded, parse_int
from ...table.registry import Args, command
from ...table.versions import MODULE_VERSIONS
from ...values.measures import ENTRY, usage
from ..arguments import parse_options, readable, subcommand_error


def script_memory(engine: KVEngine) -> tuple[int, int]:
    """Return the total sizes in bytes of all scripts and of all function libraries."""
    scripting = engine.scripting
    return (
        sum(len(script.source) for script in scripting.scripts.values()),
        sum(map(len, scripting.libraries.sources())),
    )


_UNITS = "BKMGTP"


def _readable(size: int) -> str:
    """Format a number of bytes, e.g. ``1.50K``."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size / 1024**unit:.2f}{_UNITS[unit]}" if unit else f"{size}B"


_FIELDS = {
    section: fields
    for section, *fields in map(str.split, asset(__file__, "info.txt").split("== ")[1:])
}
"""The fields of each section that has a fixed number of them. Those that change have no value."""


_FACTS: dict[str, Callable[[KVEngine], Any]] = {
    "redis_version": lambda engine: engine.version,
    "os": lambda engine: "Linux x86_64",
    "monotonic_clock": lambda engine: "POSIX clock_gettime",
    **dict.fromkeys(
        ("run_id", "master_replid"), lambda engine: engine.ids.stream("kv", "run id").hex(40)
    ),
    "tcp_port": lambda engine: engine.config.text("port"),
    "server_time_usec": lambda engine: engine.execution.now_us,
    "uptime_in_seconds": lambda engine: (engine.execution.now_us - engine.started_us) // 1_000_000,
    "uptime_in_days": lambda engine: (engine.execution.now_us - engine.started_us) // 86_400_000_000,
    **dict.fromkeys(("hz", "configured_hz"), lambda engine: engine.config.text("hz")),
    "lru_clock": lambda engine: engine.execution.now_us // 1_000_000 & 0xFFFFFF,
    "connected_clients": lambda engine: len(engine.connected),
    "maxclients": lambda engine: engine.config.text("maxclients"),
    "blocked_clients": lambda engine: len(engine.waiters) + len(engine.pauses.delayed),
    "tracking_clients": lambda engine: sum(
        client.tracking is not None for client in engine.connected.copy().values()
    ),
    # The whole memory is in use: a fake has no allocator, and does not record the peak.
    **dict.fromkeys(
        (
            "used_memory", "used_memory_rss", "used_memory_peak", "used_memory_dataset",
            "allocator_allocated", "allocator_active", "allocator_resident",
        ),
        lambda engine: engine.sizes.used_memory(),
    ),
    "used_memory_scripts_eval": lambda engine: script_memory(engine)[0],
    "number_of_cached_scripts": lambda engine: len(engine.scripting.scripts),
    "number_of_functions": lambda engine: len(engine.scripting.libraries.functions),
    "number_of_libraries": lambda engine: len(engine.scripting.libraries),
    "used_memory_functions": lambda engine: script_memory(engine)[1],
    "used_memory_scripts": lambda engine: sum(script_memory(engine)),
    "maxmemory": lambda engine: engine.config.number("maxmemory"),
    "maxmemory_policy": lambda engine: engine.config.text("maxmemory-policy"),
    "total_connections_received": lambda engine: engine.statistics.received_connections,
    "rejected_connections": lambda engine: engine.statistics.rejected_connections,
    "lazyfreed_objects": lambda engine: engine.statistics.freed_lazily,
    "rdb_changes_since_last_save": lambda engine: sum(db.changes for db in engine.databases),
    "rdb_last_save_time": lambda engine: engine.last_save_us // 1_000_000,
    "total_commands_processed": lambda engine: sum(
        count.calls for count in engine.statistics.commands.values()
    ),
    "tracking_total_keys": lambda engine: engine.tracking.sizes()[0],
    "tracking_total_items": lambda engine: engine.tracking.sizes()[1],
    "tracking_total_prefixes": lambda engine: engine.tracking.sizes()[2],
    "expired_keys": lambda engine: sum(db.expired for db in engine.databases),
    "evicted_keys": lambda engine: engine.memory.evicted,
    "pubsub_channels": lambda engine: len(engine.pubsub.names("channel")),
    "pubsub_patterns": lambda engine: len(engine.pubsub.names("pattern")),
    "pubsubshard_channels": lambda engine: len(engine.pubsub.names("shard")),
    "keyspace_hits": lambda engine: sum(db.hits for db in engine.databases),
    "keyspace_misses": lambda engine: sum(db.misses for db in engine.databases),
    "total_error_replies": lambda engine: sum(engine.statistics.errors.values()),
    "repl_backlog_size": lambda engine: engine.config.text("repl-backlog-size"),
}  # fmt: skip
"""The values of the other fields."""


def _filled(section: str, engine: KVEngine) -> Iterator[str]:
    """Yield the lines of a section, with the current values of names without a value.

    A name such as ``used_memory_human`` has the value of ``used_memory`` in readable form.
    """
    for line in _FIELDS[section]:
        name, colon, value = line.partition(":")
        if not colon:
            base = name.removesuffix("_human")
            fact = _FACTS[base](engine)
            value = fact if base == name else _readable(fact)
        yield f"{name}:{value}"


def _commandstats(engine: KVEngine) -> Iterator[str]:
    for spec, count in engine.statistics.commands.items():
        average = count.usec / count.calls if count.calls else 0.0
        yield (
            f"cmdstat_{spec.full_name}:calls={count.calls},usec={count.usec},"
            f"usec_per_call={average:.2f},rejected_calls={count.rejected},"
            f"failed_calls={count.failed}"
        )


def _latencystats(engine: KVEngine) -> Iterator[str]:
    for spec, count in engine.statistics.commands.items():
        if count.calls:
            shown = ",".join(f"p{p}={_percentile(count.buckets, p):.3f}" for p in (50, 99, 99.9))
            yield f"latency_percentiles_usec_{spec.full_name}:{shown}"


def _percentile(buckets: dict[int, int], percent: float) -> float:
    needed = sum(buckets.values()) * percent / 100
    passed = 0
    for bucket, calls in sorted(buckets.items()):
        passed += calls
        if passed >= needed:
            return float(bucket)
    return 0.0


def _keyspace(engine: KVEngine) -> Iterator[str]:
    for index in range(len(engine.databases)):
        db = engine.databases[index]
        keys = len(db)
        if keys:
            ttls = [at - db.now_ms for at in db.expires.values()]
            average = sum(ttls) // len(ttls) if ttls else 0
            yield f"db{index}:keys={keys},expires={len(ttls)},avg_ttl={average}"


SECTIONS: dict[str, Callable[[KVEngine], Iterator[str]]] = {
    **{name: partial(_filled, name) for name in _FIELDS if name != "cluster"},
    "modules": lambda engine: (
        f"module:name={name},ver={MODULE_VERSIONS[name]},api=1,filters=0,usedby=[],using=[],options=[]"
        for name in engine.table.modules
    ),
    "commandstats": _commandstats,
    "errorstats": lambda engine: (
        f"errorstat_{word}:count={count}" for word, count in engine.statistics.errors.items()
    ),
    "latencystats": _latencystats,
    "cluster": partial(_filled, "cluster"),
    "keyspace": _keyspace,
}


_SEVERAL = {
    "default": [name for name in SECTIONS if name not in ("commandstats", "latencystats")],
    **dict.fromkeys(("all", "everything"), tuple(SECTIONS)),
}
"""The sections of INFO that a single word requests."""
_OF_VENDOR = ("server", "clients", "memory", "stats", "cluster", "keyspace")
"""The sections that clients of the vendor's service get, by default all of them."""
_SEVERAL_OF_VENDOR = {word: list(_OF_VENDOR) for word in ("default", "all")}
_VENDOR_VERSION = "1.0.0"  # The number is decided here.


def _of_node(session: Session, topology: Replication, section: str, lines: list[str]) -> list[str]:
    """Return the lines of a section of INFO for the node to which a client is connected."""
    node = node_of(session)
    replaced = {
        "redis_mode": topology.mode,
        "run_id": node.id,
        "tcp_port": node.port,
        "cluster_enabled": int(session.engine.cluster is not None),
    }
    if section == "replication":
        heading, _, _, *others = lines
        return [heading, *info_fields(topology, node), *others]
    if section == "keyspace" and not topology.has_all_keys():
        keys = topology.keys(session)
        expires = [session.db.expires[key] for key in keys if key in session.db.expires]
        average = sum(at - session.now_ms for at in expires) // len(expires) if expires else 0
        shown = f"db0:keys={len(keys)},expires={len(expires)},avg_ttl={average}"
        return [lines[0], shown] if keys else lines[:1]
    names = [line.partition(":")[0] for line in lines]
    return [
        f"{name}:{replaced[name]}" if name in replaced else line
        for name, line in zip(names, lines, strict=True)
    ]


@command("INFO")
def info(session: Session, args: Args) -> Reply:
    """Return information and statistics about the server."""
    wanted: list[str] = []
    is_vendor = session.engine.dialect == "vendor"
    is_limited = is_vendor and session.interface != "local"
    several = _SEVERAL_OF_VENDOR if is_limited else _SEVERAL
    for word in args or [b"default"]:
        name = word.decode("utf-8", "replace").lower()
        wanted += several.get(name, [name])
    parts = []
    for name in dict.fromkeys(wanted):
        heading = "# CPU" if name == "cpu" else f"# {name.capitalize()}"
        if name in (_OF_VENDOR if is_limited else SECTIONS):
            lines = [heading, *SECTIONS[name](session.engine)]
            if session.engine.topology is not None:
                lines = _of_node(session, session.engine.topology, name, lines)
            if is_vendor and name == "server":
                lines.insert(2, f"upstash_version:{_VENDOR_VERSION}")
            parts.append("\r\n".join(lines) + "\r\n")
        elif is_vendor:
            # For a section that it does not have, the vendor returns only the heading.
            parts.append(f"{heading}\r\n")
    return readable(session, "\r\n".join(parts).encode())


# -- MEMORY --------------------------------------------------------------------------------------


@command("MEMORY USAGE")
def memory_usage(session: Session, args: Args) -> Reply:
    """Return an estimate of the memory that a key and its value use, in bytes.

    Redis measures some elements of a large value, as many as SAMPLES says. A fake knows the length of
    all elements without looking at them, so SAMPLES does not change the reply (decided here). The
    vendor raises a number below the minimum instead of rejecting it.
    """
    least = I64_MIN if session.engine.dialect == "vendor" else 0
    for _, (samples,) in parse_options(args, 1, session.command.option_sizes):
        parse_int(samples, least, outside=errors.SYNTAX)
    value = session.db.find(args[0])
    return None if value is None else usage(args[0], value)


@command("MEMORY STATS")
def memory_stats(session: Session, args: Args) -> Reply:
    """Return the memory usage of the server.

    The fields are those of Redis, in the same order. A fake has no buffers and no allocator, so
    sizes of buffers are 0 and ratios are 1 (decided here).
    """
    engine = session.engine
    total = engine.sizes.used_memory()
    overhead = keys = 0
    tables = Map()
    for db in engine.databases:
        keys += len(db.values)
        if db.values:
            main, expires = ENTRY * len(db.values), ENTRY * len(db.expires)
            overhead += main + expires
            tables += [b"db.%d" % db.index, Map([
                b"overhead.hashtable.main", main, b"overhead.hashtable.expires", expires,
                b"overhead.hashtable.slot-to-keys", 0,
            ])]  # fmt: skip
    scripts, libraries = script_memory(engine)
    data = total - overhead
    double = engine.print_double or float
    return Map([
        b"peak.allocated", total, b"total.allocated", total, b"startup.allocated", 0,
        b"replication.backlog", 0, b"clients.slaves", 0, b"clients.normal", 0,
        b"cluster.links", 0, b"aof.buffer", 0,
        b"lua.caches", scripts, b"functions.caches", libraries,
        *tables,
        b"overhead.total", overhead,
        b"keys.count", keys, b"keys.bytes-per-key", total // keys if keys else 0,
        b"dataset.bytes", data,
        b"dataset.percentage", double(100.0 * data / total if total else 0.0),
        b"peak.percentage", 100.0,
        b"allocator.allocated", total, b"allocator.active", total, b"allocator.resident", total,
        b"allocator-fragmentation.ratio", 1.0, b"allocator-fragmentation.bytes", 0,
        b"allocator-rss.ratio", 1.0, b"allocator-rss.bytes", 0,
        b"rss-overhead.ratio", 1.0, b"rss-overhead.bytes", 0,
        b"fragmentation", 1.0, b"fragmentation.bytes", 0,
    ])  # fmt: skip


_HEALTHY = (
    b"Hi Sam, I can't find any memory issue in your instance. "
    b"I can only account for what occurs on this base.\n"
)
_ALMOST_EMPTY = (
    b"Hi Sam, this instance is empty or is using very little memory, my issues detector can't be "
    b"used in these conditions. Please, leave for your mission on Earth and fill it with some "
    b"data. The new Sam and I will be back to our programming as soon as I finished rebooting.\n"
)


@command("MEMORY DOCTOR")
def memory_doctor(session: Session, args: Args) -> Reply:
    """Return a report on memory problems, which never finds any."""
    is_almost_empty = session.engine.sizes.used_memory() < 5 * 2**20
    return Verbatim(_ALMOST_EMPTY if is_almost_empty else _HEALTHY)


@command("MEMORY MALLOC-STATS")
def memory_malloc_stats(session: Session, args: Args) -> Reply:
    """Reply that statistics of the memory allocator are not supported."""
    return Verbatim(b"Stats not supported for the current allocator")


# -- LATENCY -------------------------------------------------------------------------------------


@command("LATENCY LATEST")
def latency_latest(session: Session, args: Args) -> Reply:
    """Return the latest sample of each latency event."""
    return [
        [event.encode(), samples[-1][0], samples[-1][1], max(ms for _, ms in samples)]
        for event, samples in session.engine.statistics.latency.items()
    ]


@command("LATENCY HISTORY")
def latency_history(session: Session, args: Args) -> Reply:
    """Return the samples of a latency event."""
    samples = session.engine.statistics.latency.get(decoded(args[0]), [])
    return [[at, ms] for at, ms in samples]


@command("LATENCY GRAPH")
def latency_graph(session: Session, args: Args) -> Reply:
    """Return the samples of a latency event as an ASCII graph."""
    name = decoded(args[0])
    samples = session.engine.statistics.latency.get(name)
    if not samples:
        raise CommandError(errors.no_samples(args[0]))
    latest = samples[-1][1]
    high, low = max(ms for _, ms in samples), min(ms for _, ms in samples)
    head = f"{name} - high {high} ms, low {low} ms (all time high {high} ms, latest {latest} ms)"
    bars = "\n".join("#" * max(1, 20 * ms // max(high, 1)) for _, ms in samples)
    return Verbatim(f"{head}\n{bars}\n".encode())


@command("LATENCY RESET")
def latency_reset(session: Session, args: Args) -> Reply:
    """Reset latency events and return the number of events that were reset."""
    latency = session.engine.statistics.latency
    names = list(map(decoded, args)) or list(latency)
    return sum(latency.pop(name, None) is not None for name in names)


@command("LATENCY DOCTOR")
def latency_doctor(session: Session, args: Args) -> Reply:
    """Return a report on latency problems, which never finds any."""
    if session.engine.config.number("latency-monitor-threshold") == 0:
        return Verbatim(
            b"I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis "
            b'instance. You may use "CONFIG SET latency-monitor-threshold <milliseconds>." in '
            b"order to enable it.\n"
        )
    return Verbatim(
        b"Dave, no latency spike was observed during the lifetime of this Redis instance, "
        b"not in the slightest bit. I honestly think you ought to sit down calmly, take a stress "
        b"pill, and think things over.\n"
    )


@command("LATENCY HISTOGRAM")
def latency_histogram(session: Session, args: Args) -> Reply:
    """Return a histogram of call durations in microseconds for each command."""
    wanted = {decoded(name).lower() for name in args}
    histograms = Map()
    for spec, count in session.engine.statistics.commands.items():
        names = {spec.full_name, spec.full_name.split("|")[0]}
        if not count.calls or (wanted and not wanted & names):
            continue
        buckets, total = Map(), 0
        for bucket, calls in sorted(count.buckets.items()):
            total += calls
            buckets += [bucket, total]
        figures = Map([b"calls", count.calls, b"histogram_usec", buckets])
        histograms += [spec.full_name.encode(), figures]
    return histograms


# -- SLOWLOG -------------------------------------------------------------------------------------


@command("SLOWLOG GET")
def slowlog_get(session: Session, args: Args) -> Reply:
    """Return the latest slow commands, newest first."""
    if len(args) > 1:
        raise subcommand_error(session)
    count = parse_int(args[0], -1, 2**63 - 1, errors.SLOWLOG_COUNT) if args else 10
    return [
        [
            entry.id,
            entry.at_us // 1_000_000,
            entry.usec,
            entry.line,
            entry.address.encode(),
            entry.name,
        ]
        for entry in islice(session.engine.statistics.slow, None if count == -1 else count)
    ]


@command("SLOWLOG LEN")
def slowlog_len(session: Session, args: Args) -> Reply:
    """Return the number of commands in the slow log."""
    return len(session.engine.statistics.slow)


@command("SLOWLOG RESET")
def slowlog_reset(session: Session, args: Args) -> Reply:
    """Clear the slow log."""
    session.engine.statistics.slow.clear()
    return OK
