"""Statistics of the server: INFO, MEMORY, LATENCY and SLOWLOG."""

from __future__ import annotations

from ... import errors
from ...engine.session import Session
from ...errors import CommandError
from ...reply import OK, Map, Reply, Verbatim
from ...table.registry import Args, command
from ...table.syntax import parse_int
from ...values.sizes import ENTRY, usage
from ..arguments import options, subcommand_error
from .info import SECTIONS, script_memory

_SEVERAL = {
    "default": [name for name in SECTIONS if name not in ("commandstats", "latencystats")],
    "all": [*SECTIONS],
    "everything": [*SECTIONS],
}
"""The sections of INFO that a single word requests."""


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "replace")


@command("INFO")
def info(session: Session, args: Args) -> Reply:
    """Return information and statistics about the server."""
    wanted: list[str] = []
    for word in args or [b"default"]:
        name = _decoded(word).lower()
        wanted += _SEVERAL.get(name, [name])
    parts = []
    for name in dict.fromkeys(wanted):
        if name in SECTIONS:
            heading = "# CPU" if name == "cpu" else f"# {name.capitalize()}"
            parts.append("\r\n".join([heading, *SECTIONS[name](session.engine)]) + "\r\n")
        elif session.engine.dialect == "vendor":
            # For an unknown section, the vendor returns only the heading.
            parts.append(f"# {name.capitalize()}\r\n")
    return Verbatim("\r\n".join(parts).encode())


@command("MEMORY USAGE")
def memory_usage(session: Session, args: Args) -> Reply:
    """Return an estimate of the memory that a key and its value use, in bytes.

    Redis measures some elements of a large value, as many as SAMPLES says. A fake knows the length of
    all elements without looking at them, so SAMPLES does not change the reply (decided here).
    """
    for _, (samples,) in options(args, 1, {b"SAMPLES": 1}):
        if parse_int(samples) < 0:
            raise CommandError(errors.SYNTAX)
    value = session.db.find(args[0])
    return None if value is None else usage(args[0], value)


@command("MEMORY STATS")
def memory_stats(session: Session, args: Args) -> Reply:
    """Return the memory usage of the server.

    The fields are those of Redis, in the same order. A fake has no buffers and no allocator, so
    sizes of buffers are 0 and ratios are 1 (decided here).
    """
    engine = session.engine
    databases = [engine.database(index) for index in range(len(engine.databases))]
    total = engine.sizes.used_memory()
    overhead = 0
    tables = Map()
    for db in databases:
        if db.values:
            main, expires = ENTRY * len(db.values), ENTRY * len(db.expires)
            overhead += main + expires
            tables += [b"db.%d" % db.index, Map([
                b"overhead.hashtable.main", main, b"overhead.hashtable.expires", expires,
                b"overhead.hashtable.slot-to-keys", 0,
            ])]  # fmt: skip
    keys = sum(len(db.values) for db in databases)
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


@command("MEMORY PURGE")
def memory_purge(session: Session, args: Args) -> Reply:
    """Ask the allocator to release memory; has no effect."""
    return OK


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
    samples = session.engine.statistics.latency.get(_decoded(args[0]), [])
    return [[at, ms] for at, ms in samples]


@command("LATENCY GRAPH")
def latency_graph(session: Session, args: Args) -> Reply:
    """Return the samples of a latency event as an ASCII graph."""
    name = _decoded(args[0])
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
    names = list(map(_decoded, args)) or list(latency)
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
    wanted = {_decoded(name).lower() for name in args}
    found = Map()
    for spec, count in session.engine.statistics.commands.items():
        names = {spec.full_name, spec.full_name.split("|")[0]}
        if not count.calls or (wanted and not wanted & names):
            continue
        buckets, total = Map(), 0
        for bucket, calls in sorted(count.buckets.items()):
            total += calls
            buckets += [bucket, total]
        figures = Map([b"calls", count.calls, b"histogram_usec", buckets])
        found += [spec.full_name.encode(), figures]
    return found


@command("SLOWLOG GET")
def slowlog_get(session: Session, args: Args) -> Reply:
    """Return the latest slow commands, newest first."""
    if len(args) > 1:
        raise subcommand_error(session)
    count = parse_int(args[0], -1, 2**63 - 1, errors.SLOWLOG_COUNT) if args else 10
    entries = list(session.engine.statistics.slow)
    return [
        [
            entry.id, entry.at_us // 1_000_000, entry.usec, entry.argv, entry.address.encode(),
            entry.name,
        ]
        for entry in (entries if count == -1 else entries[:count])
    ]  # fmt: skip


@command("SLOWLOG LEN")
def slowlog_len(session: Session, args: Args) -> Reply:
    """Return the number of commands in the slow log."""
    return len(session.engine.statistics.slow)


@command("SLOWLOG RESET")
def slowlog_reset(session: Session, args: Args) -> Reply:
    """Clear the slow log."""
    session.engine.statistics.slow.clear()
    return OK
