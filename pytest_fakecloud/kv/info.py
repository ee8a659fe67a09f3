"""The sections of INFO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .memory import usage

if TYPE_CHECKING:
    from .engine import Engine
    from .model import Session

__all__ = ["SECTIONS", "VERSION", "section"]

VERSION = {"vendor": "8.2.0", "redis": "7.0.15"}
"""The version each dialect reports of itself (vendor: the documentation)."""

SECTIONS = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "modules",
    "commandstats",
    "errorstats",
    "latencystats",
    "cluster",
    "keyspace",
]


def section(session: Session, name: str) -> Iterator[str]:
    """The ``name:value`` lines of one section."""
    yield from _MAKERS[name](session.engine)


def _server(engine: Engine) -> Iterator[str]:
    uptime = (engine.now_us - engine.started_us) // 1_000_000
    yield f"redis_version:{VERSION[engine.dialect]}"
    yield "redis_git_sha1:00000000"
    yield "redis_git_dirty:0"
    yield "redis_mode:standalone"
    yield "arch_bits:64"
    yield "process_id:1"
    yield f"run_id:{engine.run_id}"
    yield f"tcp_port:{engine.config.text('port')}"
    yield f"server_time_usec:{engine.now_us}"
    yield f"uptime_in_seconds:{uptime}"
    yield f"uptime_in_days:{uptime // 86400}"
    yield f"hz:{engine.config.text('hz')}"


def _clients(engine: Engine) -> Iterator[str]:
    yield f"connected_clients:{len(engine.connected)}"
    yield f"maxclients:{engine.config.text('maxclients')}"
    yield f"blocked_clients:{len(engine.waiters)}"
    yield f"tracking_clients:{sum(s.tracking is not None for s in engine.connected.values())}"


def _memory(engine: Engine) -> Iterator[str]:
    used = sum(usage(key, value) for db in engine.databases for key, value in db.values.items())
    yield f"used_memory:{used}"
    yield f"used_memory_human:{used / 1024:.2f}K"
    yield f"used_memory_peak:{used}"
    yield f"maxmemory:{engine.config.text('maxmemory')}"
    yield f"maxmemory_policy:{engine.config.text('maxmemory-policy')}"
    yield "mem_fragmentation_ratio:1.00"


def _persistence(engine: Engine) -> Iterator[str]:
    yield "loading:0"
    yield "async_loading:0"
    yield f"rdb_changes_since_last_save:{sum(db.changes for db in engine.databases)}"
    yield "rdb_bgsave_in_progress:0"
    yield f"rdb_last_save_time:{engine.last_save_us // 1_000_000}"
    yield "rdb_last_bgsave_status:ok"
    yield "aof_enabled:0"
    yield "aof_rewrite_in_progress:0"


def _stats(engine: Engine) -> Iterator[str]:
    counts = engine.statistics.commands.values()
    yield f"total_commands_processed:{sum(count.calls for count in counts)}"
    yield f"expired_keys:{sum(db.expired for db in engine.databases)}"
    yield "evicted_keys:0"
    yield f"pubsub_channels:{len(engine.pubsub.names('channel'))}"
    yield f"pubsub_patterns:{len(engine.pubsub.names('pattern'))}"
    yield f"pubsubshard_channels:{len(engine.pubsub.names('shard'))}"
    yield f"total_error_replies:{sum(engine.statistics.errors.values())}"


def _replication(engine: Engine) -> Iterator[str]:
    yield "role:master"
    yield "connected_slaves:0"
    yield "master_failover_state:no-failover"
    yield f"master_replid:{engine.run_id}"
    yield "master_repl_offset:0"
    yield "repl_backlog_active:0"


def _cpu(engine: Engine) -> Iterator[str]:
    # Real seconds of a processor are no part of a test's world.
    yield "used_cpu_sys:0.000000"
    yield "used_cpu_user:0.000000"


def _modules(engine: Engine) -> Iterator[str]:
    yield from ()


def _commandstats(engine: Engine) -> Iterator[str]:
    for spec, count in engine.statistics.commands.items():
        average = count.usec / count.calls if count.calls else 0.0
        yield (
            f"cmdstat_{spec.full_name}:calls={count.calls},usec={count.usec},"
            f"usec_per_call={average:.2f},rejected_calls={count.rejected},"
            f"failed_calls={count.failed}"
        )


def _errorstats(engine: Engine) -> Iterator[str]:
    for word, count in engine.statistics.errors.items():
        yield f"errorstat_{word}:count={count}"


def _latencystats(engine: Engine) -> Iterator[str]:
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


def _cluster(engine: Engine) -> Iterator[str]:
    yield "cluster_enabled:0"


def _keyspace(engine: Engine) -> Iterator[str]:
    for index in range(len(engine.databases)):
        db = engine.database(index)
        keys = len(db)
        if keys:
            left = [at - db.now_ms for at in db.expires.values()]
            average = sum(left) // len(left) if left else 0
            yield f"db{index}:keys={keys},expires={len(left)},avg_ttl={average}"


_MAKERS = {
    "server": _server,
    "clients": _clients,
    "memory": _memory,
    "persistence": _persistence,
    "stats": _stats,
    "replication": _replication,
    "cpu": _cpu,
    "modules": _modules,
    "commandstats": _commandstats,
    "errorstats": _errorstats,
    "latencystats": _latencystats,
    "cluster": _cluster,
    "keyspace": _keyspace,
}
