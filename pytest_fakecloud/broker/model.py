"""The broker's records and settings, and the engine interface the routes stand on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from .errors import illegal_argument
from .settings import Settings

__all__ = [
    "AUTO_OFFSET_RESETS",
    "CONSUMER_HEADERS",
    "BrokerEngine",
    "ConsumerConfig",
    "GroupAssignments",
    "Header",
    "Message",
    "Metadata",
    "Record",
    "TopicPartition",
    "TopicPartitionOffset",
]

INT64_MAX = 2**63 - 1
"""The largest offset, and the largest timestamp."""


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

    Defaults are the vendor's: auto commit on, every 5000 ms, reset to latest, session 120000 ms. An
    interval of 0 is allowed, as by the Java client: as often as can be.
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
            _ms("Auto-Commit-Interval", headers.get("auto-commit-interval"), 5000, minimum=0),
            reset,
            _ms(
                "Session-Timeout-Ms",
                headers.get("session-timeout-ms"),
                session_timeout_ms,
                minimum=1,
            ),
        )


def _ms(name: str, text: str | None, default: int, *, minimum: int) -> int:
    if text is None:
        return default
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) >= minimum):
        raise _bad_header(name, text, f"a number of milliseconds from {minimum}, below 10^10")
    return int(digits)


def _bad_header(name: str, value: str, expected: str) -> Exception:
    return illegal_argument(f"Invalid value {value[:40]!r} for header {name}: expected {expected}")


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
