"""The broker's records and settings, and the engine interface the routes stand on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from .errors import illegal_argument

__all__ = [
    "AUTO_OFFSET_RESETS",
    "CONSUMER_HEADERS",
    "BrokerEngine",
    "ConsumerConfig",
    "GroupAssignments",
    "Header",
    "Limits",
    "Message",
    "Metadata",
    "Record",
    "Settings",
    "TopicPartition",
    "TopicPartitionOffset",
]

INT64_MAX = 2**63 - 1


class Header(NamedTuple):
    """One header of a message; names may repeat and keep their order."""

    key: str
    value: str


class Message(NamedTuple):
    """What a producer sends. ``partition`` and ``timestamp`` (ms) are chosen when None."""

    topic: str
    value: str
    key: str | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()


class Metadata(NamedTuple):
    """Where a message went; ``timestamp`` in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Record(NamedTuple):
    """A message in the log. ``key`` is None when the producer gave none (read back as ``""``)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str
    headers: tuple[Header, ...] = ()

    def json(self) -> Any:
        """The value parsed as JSON."""
        return json.loads(self.value)

    def header(self, name: str) -> str | None:
        """The last header of that exact name, as Kafka's ``lastHeader`` reads it; None if absent."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class TopicPartitionOffset(NamedTuple):
    """An offset in one partition."""

    topic: str
    partition: int
    offset: int


class GroupAssignments(NamedTuple):
    """One group as ``/consumers`` lists it: instance name to topic to partitions."""

    name: str
    instances: dict[str, dict[str, list[int]]]


CONSUMER_HEADERS = (
    "enable-auto-commit",
    "auto-commit-interval",
    "auto-offset-reset",
    "session-timeout-ms",
)
"""The consumer configuration headers without their prefix, in lower case."""

AUTO_OFFSET_RESETS = ("earliest", "latest", "none")


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How an instance was created: by its first consume request's headers, else the defaults.

    Defaults are the vendor's: auto commit on, every 5000 ms, reset to latest, session 120000 ms.
    """

    auto_commit: bool = True
    auto_commit_interval_ms: int = 5000
    auto_offset_reset: str = "latest"
    session_timeout_ms: int = 120_000

    @classmethod
    def read(cls, headers: Mapping[str, str], *, session_timeout_ms: int) -> ConsumerConfig:
        """The configuration that raw header values (keys of ``CONSUMER_HEADERS``) ask for.

        Raises ``BrokerError`` naming the header, what came and what is expected.
        """
        auto_commit = headers.get("enable-auto-commit", "true").strip().lower()
        if auto_commit not in ("true", "false"):
            raise _bad_header("Enable-Auto-Commit", headers["enable-auto-commit"], "true or false")
        reset = headers.get("auto-offset-reset", "latest").strip().lower()
        if reset not in AUTO_OFFSET_RESETS:
            raise _bad_header(
                "Auto-Offset-Reset", headers["auto-offset-reset"], "earliest, latest or none"
            )
        return cls(
            auto_commit == "true",
            _positive("Auto-Commit-Interval", headers.get("auto-commit-interval"), 5000),
            reset,
            _positive("Session-Timeout-Ms", headers.get("session-timeout-ms"), session_timeout_ms),
        )


def _positive(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) > 0):
        raise _bad_header(name, text, "a positive number of milliseconds, below 10^10")
    return int(digits)


def _bad_header(name: str, value: str, expected: str) -> Exception:
    return illegal_argument(f"Invalid value {value[:40]!r} for header {name}: expected {expected}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan allows; None means without limit. Sizes in bytes, retention in milliseconds.

    The figures of the presets are the vendor's documented plans. ``messages_per_day`` counts
    produced messages per UTC day of the clock; ``storage_bytes`` counts keys, values and headers of
    all partitions, ``retention_bytes`` those of each.
    """

    max_message_bytes: int = 1024 * 1024
    max_partitions: int | None = None
    messages_per_day: int | None = None
    messages_per_second: int | None = None
    storage_bytes: int | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None

    @classmethod
    def preset(cls, name: str) -> Limits:
        """The limits of a plan: ``"free"``, ``"payg"``, ``"pro"`` or ``"pro-5k"``."""
        return PRESETS[name]


_WEEK_MS = 7 * 24 * 3600 * 1000
PRESETS: Mapping[str, Limits] = {
    "free": Limits(
        max_partitions=10,
        messages_per_day=10_000,
        messages_per_second=1000,
        storage_bytes=256 * 1024 * 1024,
        retention_ms=_WEEK_MS,
    ),
    "payg": Limits(max_partitions=100, messages_per_second=1000),
    "pro": Limits(max_partitions=1000),
    "pro-5k": Limits(max_partitions=5000),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything nobody documents, as a choice with a default; times in milliseconds.

    The defaults are decided here, most of them after Kafka's Java client or its REST proxies.
    ``Broker`` takes the same names as keywords, with durations in the project's usual forms.
    """

    header_prefixes: tuple[str, ...] = ("Kafka-", "Broker-")
    """Prefixes of the consumer configuration headers; the first one found wins."""
    idle_close_ms: int | None = 300_000
    """An instance without a consume request for this long is closed; None: never."""
    session_timeout_ms: int = 120_000
    """How long the partitions of a vanished instance stay its own, unless its header says."""
    heartbeats: Literal["background", "consume"] = "background"
    """Who keeps a session alive: the server's consumer, or only the client's consume requests."""
    join_delay_ms: int = 0
    """How long each rebalance takes."""
    offset_retention_ms: int | None = 7 * 24 * 3600 * 1000
    """Committed offsets are forgotten this long after the group's last member left."""
    max_timeout_ms: int = 600_000
    """The longest long poll; a longer timeout is refused, because it can only be a mistake."""
    max_poll_records: int = 500
    """Most records in one consume answer."""
    max_partition_bytes: int = 1024 * 1024
    """Most bytes from one partition in one answer; one record is always given."""
    interleave: Literal["rotate", "random"] = "rotate"
    """Order across partitions in an answer: partition by partition, or seeded random."""
    fetch_single_topic: bool = False
    """Whether one fetch answers with records of one topic only, as the JS client describes."""
    fetch_beyond_end: Literal["error", "wait"] = "error"
    """Whether a fetch behind the end of the log is an error or waits for the offset to exist."""
    delete_leaves: bool = True
    """Whether delete-consumer leaves the group at once, or only vanishes until session timeout."""
    resubscribe: Literal["rebalance", "ignore"] = "rebalance"
    """What a later consume with other topics does."""
    concurrent_consume: Literal["wait", "error"] = "wait"
    """Whether a second consume on a busy instance waits its turn or is refused."""
    instance_limit: Literal["cluster", "group"] | None = "cluster"
    """Whose instances are counted against the total partition count; None: no limit."""
    commit_by_unknown: Literal["error", "store"] = "error"
    """Whether a commit by an unknown instance is refused or stored for the group."""
    unknown_group: Literal["error", "uncommitted"] = "error"
    """What ``/committed`` answers for a group that does not exist."""
    never_committed: int = -1
    """The offset ``/committed`` answers where nothing was committed."""
    no_such_time: int = -1
    """The offset ``/offsets`` answers where no record is that young."""
    keyless: Literal["rotate", "random"] = "rotate"
    """Where a request's keyless messages go: the next partition each time, or a seeded random one."""
    empty_key: Literal["key", "absent"] = "key"
    """Whether key ``""`` is a key (it is hashed) or the same as none."""
    batches: Literal["atomic", "in order"] = "atomic"
    """Whether a batch with one bad message appends nothing or all before it."""
    coerce_scalars: bool = False
    """Whether a number or boolean given as text is taken as its JSON source text."""
    webhook_answer: Literal["list", "object"] = "list"
    """Whether ``/webhook`` answers a list of one metadata object or the object itself."""
    webhook_drop: tuple[str, ...] = ()
    """Further header names (``*`` at the end is a wildcard) that never become message headers."""
    webhook_keep: tuple[str, ...] = ()
    """Header names kept although they are standard."""
    errors: Mapping[str, int | tuple[int, str]] = field(default_factory=dict)
    """Other statuses, or (status, text), by kind of error."""
    limits: Limits = field(default_factory=Limits)


class BrokerEngine(Protocol):
    """What the routes need of a broker, in memory or real.

    Timeouts are milliseconds and bound the call; every method may raise ``BrokerError``.
    """

    settings: Settings

    def produce(self, messages: Sequence[Message]) -> list[Metadata]:
        """Append the messages; their places in request order."""
        ...

    def fetch(self, positions: Sequence[TopicPartitionOffset], timeout_ms: int) -> list[Record]:
        """Records from the positions on; waits for the first, ``[]`` at the timeout."""
        ...

    def consume(
        self,
        group: str,
        instance: str,
        topics: Sequence[str],
        timeout_ms: int,
        headers: Mapping[str, str],
    ) -> list[Record]:
        """The next records for an instance, created on its first call from the raw ``headers``."""
        ...

    def commit(self, group: str, instance: str, offsets: Sequence[TopicPartitionOffset]) -> None:
        """Store offsets verbatim; none given: what was last consumed."""
        ...

    def delete_consumer(self, group: str, instance: str) -> None:
        """Stop and remove an instance."""
        ...

    def topics(self) -> dict[str, int]:
        """Partition counts by topic name."""
        ...

    def consumers(self) -> list[GroupAssignments]:
        """The groups with instances known here."""
        ...

    def committed(
        self, group: str, instance: str, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> list[TopicPartitionOffset]:
        """Committed offsets in request order."""
        ...

    def offsets(
        self,
        at: int | Literal["earliest", "latest"],
        partitions: Sequence[TopicPartition],
        timeout_ms: int,
    ) -> list[TopicPartitionOffset]:
        """The first offset at or after a time in ms, or an end of the log, in request order."""
        ...

    def close(self) -> None:
        """End every waiting call."""
        ...


def distinct(items: Iterable[str]) -> tuple[str, ...]:
    """The items without repetitions, sorted."""
    return tuple(sorted(set(items)))
