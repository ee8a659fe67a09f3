"""Value types of the broker, such as messages, records, offsets, and views of topics and groups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Literal, NamedTuple

from ..core.errors import ContractError, unknown_name
from ..core.field_types import DOCUMENT, TEXT, OneOf, Shaped, WholeNumber
from ..core.journal import Results, results_of
from ..core.matching import PAIRS, Field, ItemFields
from ..core.settings import optional, whole
from ..core.timers import Duration, duration_us, instant_us
from .errors import BrokerError, can_name_a_topic, illegal_argument, string

EventKind = Literal[
    "assigned", "auto commit", "close", "commit", "crash", "dead", "expire", "join", "leave", "lost",
    "offsets set", "rebalance", "rebalance started", "redeliver", "reset", "return", "revoked",
]  # fmt: skip
"""The kinds of consumer-group events that are recorded in the journal."""
INT64_MAX = 2**63 - 1
"""Largest valid offset and timestamp. Timestamps are in milliseconds since the epoch."""

NO_OFFSET = -1
"""The offset of a partition in which nothing was committed, or no record is at or after a time."""


class Header(NamedTuple):
    """A message header. A message can repeat header names, and the order of its headers is kept."""

    key: str
    value: str


class ProducerRecord(NamedTuple):
    """A record to produce. The broker chooses ``partition`` and ``timestamp`` (in ms) if None."""

    topic: str
    value: str
    key: str | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()


class Metadata(NamedTuple):
    """The location of a produced message. ``timestamp`` is in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Record(NamedTuple):
    """A record in the log. ``key`` is None if it was produced without a key (``""`` in the API).

    ``timestamp`` is in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str
    headers: tuple[Header, ...] = ()

    def json(self) -> Any:
        """Return the value parsed as JSON."""
        return json.loads(self.value)

    def header(self, name: str) -> str | None:
        """Return the last header with exactly this name, like Kafka's ``lastHeader``, or None."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class TopicPartitionOffset(NamedTuple):
    """An offset in a partition of a topic."""

    topic: str
    partition: int
    offset: int


def distinct_positions(positions: Sequence[TopicPartitionOffset]) -> list[TopicPartitionOffset]:
    """Return the positions without duplicates; raise ``BrokerError`` if two contradict."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in positions:
        tp = TopicPartition(topic, partition)
        if offsets.setdefault(tp, offset) != offset:
            raise BrokerError(
                "conflicting_offsets",
                f"Partition {topic}-{partition} is given twice with different offsets: "
                f"{offsets[tp]} and {offset}",
            )
    return [TopicPartitionOffset(*tp, offset) for tp, offset in offsets.items()]


TOPIC = Shaped("the name of a topic", "orders", never=r"[^A-Za-z0-9._-]", fits=can_name_a_topic)
RECORD_FIELDS: Mapping[str, Field] = {
    "topic": Field(TOPIC, optional=False),
    "partition": Field(WholeNumber(0), optional=False),
    "offset": Field(WholeNumber(0), optional=False),
    "timestamp": Field(WholeNumber(0), optional=False),
    "key": Field(TEXT, lambda record: record.key or "", optional=False),
    "value": Field(DOCUMENT, optional=False),
    "headers": Field(PAIRS, optional=False),
}
"""Fields by which records can be filtered. Values can be matched as strings or as JSON."""


def record_fields(partitions: int) -> Mapping[str, Field]:
    """Return the fields by which the records of a topic with that many partitions can be filtered."""
    return {**RECORD_FIELDS, "partition": Field(WholeNumber(0, partitions - 1), optional=False)}


OFFSET_FIELDS: Mapping[str, Field] = {
    name: RECORD_FIELDS[name] for name in TopicPartitionOffset._fields
}
"""Fields by which committed offsets can be filtered."""


class TopicConfig(NamedTuple):
    """The configuration of a new topic. A limit that is None defaults to that of the plan."""

    partitions: int = 1
    retention_ms: int | None = None
    retention_bytes: int | None = None
    max_message_bytes: int | None = None
    first_offset: int = 0


def milliseconds(duration: Duration | None) -> int | None:
    return None if duration is None else duration_us(duration) // 1000


Assignments = dict[str, dict[str, dict[str, list[int]]]]
"""Partition numbers by group, instance and topic."""

CONSUMER_HEADERS = (
    "enable-auto-commit", "auto-commit-interval", "auto-offset-reset", "session-timeout-ms",
)  # fmt: skip
"""Names of the consumer configuration headers, in lower case and without a prefix."""

AUTO_OFFSET_RESETS = ("earliest", "latest", "none")


class ConsumerConfig(NamedTuple):
    """Configuration of a consumer instance, read from the headers of its first consume request.

    Defaults are the vendor's. As in the Java client, an auto-commit interval of 0 means to commit
    as often as possible.
    """

    auto_commit: bool = True
    auto_commit_interval_ms: int = 5000
    auto_offset_reset: str = "latest"
    session_timeout_ms: int = 120_000


class ConsumeRequest(NamedTuple):
    """A request for the next records of an instance, which ``headers`` configure if it is new."""

    group: str
    instance: str
    topics: Sequence[str]
    headers: Mapping[str, str]
    timeout_ms: int = 0
    call: object = None
    """What the events that it causes are recorded with as their cause."""


def consumer_config(headers: Mapping[str, str], *, session_timeout_ms: int) -> ConsumerConfig:
    """Parse the ``CONSUMER_HEADERS`` of a consume request; raise ``BrokerError`` if invalid."""
    default = ConsumerConfig(session_timeout_ms=session_timeout_ms)
    auto_commit = headers.get("enable-auto-commit", "true").strip().lower()
    if auto_commit not in ("true", "false"):
        raise _bad_header("Enable-Auto-Commit", headers["enable-auto-commit"], "true or false")
    reset = headers.get("auto-offset-reset", default.auto_offset_reset).strip().lower()
    if reset not in AUTO_OFFSET_RESETS:
        raise _bad_header(
            "Auto-Offset-Reset", headers["auto-offset-reset"], "earliest, latest or none"
        )
    interval, session = headers.get("auto-commit-interval"), headers.get("session-timeout-ms")
    return ConsumerConfig(
        auto_commit == "true",
        _ms("Auto-Commit-Interval", interval, default.auto_commit_interval_ms, minimum=0),
        reset,
        _ms("Session-Timeout-Ms", session, default.session_timeout_ms, minimum=1),
    )


def _ms(name: str, text: str | None, default: int, *, minimum: int) -> int:
    if text is None:
        return default
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) >= minimum):
        raise _bad_header(name, text, f"a number of milliseconds from {minimum}, below 10^10")
    return int(digits)


def _bad_header(name: str, value: str, expected: str) -> BrokerError:
    return illegal_argument(f"Invalid value {value[:40]!r} for header {name}: expected {expected}")


class MemberView(NamedTuple):
    """A consumer instance.

    ``state`` is ``joining``, ``active``, ``closed``, ``crashed`` or ``expired``. ``position`` is
    the next offset to deliver (None if there is no offset and the reset policy is ``none``).
    ``delivered`` is the offset that a commit without offsets would store.
    """

    name: str
    state: str
    topics: tuple[str, ...]
    assignment: list[TopicPartition]
    position: dict[TopicPartition, int | None]
    delivered: dict[TopicPartition, int]
    config: ConsumerConfig


MEMBER_FIELDS = ItemFields(
    MemberView,
    state=Field(
        OneOf("state of a member", ("joining", "active", "closed", "crashed", "expired")),
        optional=False,
    ),
    topics=Field(TOPIC, several=True),
)
"""Fields by which a group's members can be filtered."""


GROUP_STATES = ("Empty", "PreparingRebalance", "Stable")
"""Kafka's names of the states of a group that exists."""


class GroupDescription(NamedTuple):
    """All data of a consumer group at one moment; ``GroupView`` explains the fields."""

    name: str
    state: str
    generation: int
    members: Results[MemberView]
    assignment: dict[str, list[TopicPartition]]
    committed: dict[TopicPartition, int]
    position: dict[TopicPartition, int | None]
    lag: dict[TopicPartition, int]

    @property
    def total_lag(self) -> int:
        """The sum of the lags of all partitions."""
        return sum(self.lag.values())


def found_members(members: Iterable[MemberView]) -> Results[MemberView]:
    return results_of(members, MEMBER_FIELDS, "member")


# -- records that tests supply -----------------------------------------------------------------

Loadable = (
    Mapping[str, Iterable[object]]
    | Iterable[ProducerRecord | Mapping[str, object]]
    | str
    | PathLike[str]
)
"""Records to load: a mapping ``{topic: [value or message, ...]}``, a list of messages that contain
their topic, or JSON lines.
"""

Headers = Mapping[str, str] | Iterable[tuple[str, str] | Mapping[str, str]]
"""Headers as a mapping, as pairs of name and value, or as mappings with ``key`` and ``value`` like
in the API.
"""

_PARTITION = optional(whole())
_TIMESTAMP = optional(whole(maximum=INT64_MAX))


def stored_value(value: Any) -> str:
    """Return a record's value as stored: a string unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractError(
            f"the value {value!r:.200} is neither a string nor a JSON value: {error}"
        ) from None


def timestamp_ms(timestamp: int | datetime | str | None) -> int | None:
    """Return a time in milliseconds since the epoch. An integer is already in milliseconds."""
    if timestamp is None or isinstance(timestamp, int):
        return timestamp
    return instant_us(timestamp) // 1000


def header_list(headers: Headers | None) -> tuple[Header, ...]:
    """Convert headers from any form that ``Headers`` allows."""
    if headers is None:
        return ()
    try:
        items = list(headers.items() if isinstance(headers, Mapping) else headers)
        return tuple(_header(item) for item in items)
    except (TypeError, ValueError):
        raise ContractError(
            f"headers={headers!r:.200} must be a mapping, or pairs of name and value"
        ) from None


def _header(item: Any) -> Header:
    """Convert a pair or a mapping; raise ``TypeError`` or ``ValueError`` if the item is neither."""
    if isinstance(item, Mapping):
        return Header(**{"key": None, "value": None, **item})
    if isinstance(item, str):
        raise TypeError("a string is not a pair of strings")
    name, value = item
    return Header(name, value)


def checked_message(message: ProducerRecord) -> ProducerRecord:
    """Return a message with its headers as a tuple; raise ``ContractError`` for invalid types."""
    string("topic", message.topic)
    string("value", message.value)
    # Skip what most messages lack, because reading a setting is slow.
    if message.key is not None:
        string("key", message.key, optional=True)
    if message.partition is not None:
        _PARTITION.read("partition", message.partition)
    if message.timestamp is not None:
        _TIMESTAMP.read("timestamp", message.timestamp)
    if message.headers == ():
        return message
    headers = header_list(message.headers)
    for name, value in headers:
        string("a header's name", name)
        string(f"header {name!r}", value)
    return message._replace(headers=headers) if headers else message


def messages_in(data: Any) -> Iterator[ProducerRecord]:
    """Yield the messages from data in any form that ``Broker.load()`` accepts, except files."""
    if isinstance(data, str):
        data = [_json(n, line) for n, line in enumerate(data.split("\n"), 1) if line.strip()]
    if isinstance(data, Mapping):
        for topic, items in data.items():
            for item in _each(items, f"the records of topic {topic!r}"):
                yield checked_message(_message(item, topic))
    else:
        for item in _each(data, "the data"):
            yield checked_message(_message(item, None))


def _json(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"line {number} is not JSON: {error}: {line[:80]!r}") from None


def _each(items: Any, what: str) -> Iterable[Any]:
    if isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping):
        return items
    raise ContractError(
        f"{what} must be a list of values or messages, got {items!r:.200}; load() takes "
        "{topic: [value or message, ...]}, messages that name their topic, or JSON lines"
    )


def _message(item: Any, topic: str | None) -> ProducerRecord:
    if isinstance(item, ProducerRecord):
        return item
    if isinstance(item, Mapping) and "value" in item:
        return _message_of_fields(item, topic)
    if topic is None:
        raise ContractError(f"{item!r:.200} is not a message: pass a mapping with topic and value")
    return ProducerRecord(topic, stored_value(item))


def _message_of_fields(fields: Mapping[Any, Any], topic: str | None) -> ProducerRecord:
    unknown = set(fields) - set(ProducerRecord._fields)
    if unknown:
        first = min(unknown, key=str)
        raise ContractError(unknown_name("field of a message", first, ProducerRecord._fields))
    topic = fields.get("topic", topic)
    if topic is None:
        raise ContractError(
            f"{fields!r:.200} has no topic: add one, or load {{topic: [message, ...]}}"
        )
    return ProducerRecord(
        topic,
        stored_value(fields["value"]),
        fields.get("key"),
        fields.get("partition"),
        timestamp_ms(fields.get("timestamp")),
        header_list(fields.get("headers")),
    )
