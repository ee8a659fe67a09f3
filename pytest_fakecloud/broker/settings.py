"""What nobody documents, as settings with defaults; and the vendor's plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ..core.errors import ContractError
from ..core.timeparse import Duration
from .errors import STATUSES


def choice(name: str, value: object, *known: object) -> None:
    """Reject a value that is none of the known ones, and name them."""
    if value not in known:
        raise ContractError(
            f"{name}={value!r} is unknown: give one of {', '.join(map(repr, known))}"
        )


def whole(
    name: str,
    value: object,
    minimum: int | None,
    maximum: int | None = None,
    *,
    optional: bool = False,
) -> None:
    """Reject what is no whole number, or out of bounds; ``optional`` lets None pass."""
    if value is None and optional:
        return
    if (
        type(value) is int
        and (minimum is None or value >= minimum)
        and (maximum is None or value <= maximum)
    ):
        return
    bound = "" if minimum is None else f" of at least {minimum}"
    if type(value) is int and maximum is not None and value > maximum:
        bound = f" of at most {maximum}"
    or_none = ", or None" if optional else ""
    raise ContractError(f"{name} must be a whole number{bound}{or_none}, got {value!r:.200}")


def string(name: str, value: object, *, optional: bool = False) -> None:
    """Reject what is no text; ``optional`` lets None pass."""
    if not isinstance(value, str) and not (value is None and optional):
        raise ContractError(f"{name} must be text{', or None' if optional else ''}, got {value!r}")


def strings(name: str, value: object) -> tuple[str, ...]:
    """Return the texts of a list; reject one text, and whatever else is no list of texts."""
    if isinstance(value, str):
        raise ContractError(f"{name}={value!r} is one text: give a list of texts")
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        texts = tuple(value)
        if all(isinstance(text, str) for text in texts):
            return texts
    raise ContractError(f"{name} must be a list of texts, got {value!r:.200}")


class BrokerSettings(TypedDict, total=False):
    """The keywords that make a ``Broker``, which explains them, and ``Behaviour`` most of them."""

    name: str | None
    """What reports and the control API call it; the fixture's name unless given."""
    topics: Mapping[str, int | Mapping[str, Any]] | None
    """Topics there are from the start: partitions by name, or what ``create_topic`` takes."""
    retention: Duration | None
    """How long records are kept where a topic does not say; None: for ever."""
    retention_bytes: int | None
    """Bytes kept of each partition where a topic does not say; None: all."""
    username: str
    """Of HTTP Basic."""
    password: str | None
    """Of HTTP Basic; a random one unless given."""
    limits: str | BrokerLimits | None
    """A plan (``"free"``, ``"payg"``, ``"pro"``, ``"pro-5k"``) or a ``BrokerLimits``."""
    header_prefixes: Sequence[str]
    idle_close: Duration | None
    session_timeout: Duration
    heartbeats: Literal["background", "consume"]
    join_delay: Duration
    offset_retention: Duration | None
    max_timeout: Duration
    max_poll_records: int
    max_partition_bytes: int
    interleave: Literal["rotate", "random"]
    fetch_single_topic: bool
    fetch_beyond_end: Literal["error", "wait"]
    delete_leaves: bool
    resubscribe: Literal["rebalance", "ignore"]
    concurrent_consume: Literal["wait", "error"]
    instance_limit: Literal["cluster", "group"] | None
    commit_by_unknown: Literal["error", "store"]
    unknown_group: Literal["error", "uncommitted"]
    never_committed: int
    no_such_time: int
    keyless: Literal["rotate", "random"]
    empty_key: Literal["key", "absent"]
    batches: Literal["atomic", "in order"]
    coerce_scalars: bool
    webhook_answer: Literal["list", "object"]
    webhook_drop: Sequence[str]
    webhook_keep: Sequence[str]
    errors: Mapping[str, int | tuple[int, str]] | None
    engine: str | None
    """The address of a real cluster (``"kafka://host:port,…"``); None: in memory."""
    isolation: Literal["prefix", "none"]
    """This handle's share of a real cluster: names with a prefix, or all there is."""


@dataclass(frozen=True, slots=True)
class BrokerLimits:
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

    def __post_init__(self) -> None:
        whole("max_message_bytes", self.max_message_bytes, 1)
        for name in _AMOUNTS:
            whole(name, getattr(self, name), 0, optional=True)


_AMOUNTS = (
    "max_partitions",
    "messages_per_day",
    "messages_per_second",
    "storage_bytes",
    "retention_ms",
    "retention_bytes",
)
_WEEK_MS = 7 * 24 * 3600 * 1000
PRESETS: Mapping[str, BrokerLimits] = {
    "free": BrokerLimits(
        max_partitions=10,
        messages_per_day=10_000,
        messages_per_second=1000,
        storage_bytes=256 * 1024 * 1024,
        retention_ms=_WEEK_MS,
    ),
    "payg": BrokerLimits(max_partitions=100, messages_per_second=1000),
    "pro": BrokerLimits(max_partitions=1000),
    "pro-5k": BrokerLimits(max_partitions=5000),
}


def preset(name: str) -> BrokerLimits:
    """The limits of a plan: ``"free"``, ``"payg"``, ``"pro"`` or ``"pro-5k"``."""
    choice("limits", name, *PRESETS)
    return PRESETS[name]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Everything nobody documents, as a choice with a default; times in milliseconds.

    The defaults are decided here, most of them after Kafka's Java client or its REST proxies.
    ``Broker`` takes the same names as keywords, with durations in the project's usual forms.
    Raises ``ContractError`` for a value without meaning.
    """

    header_prefixes: Sequence[str] = ("Kafka-", "Broker-")
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
    webhook_drop: Sequence[str] = ()
    """Further header names (``*`` at the end is a wildcard) that never become message headers."""
    webhook_keep: Sequence[str] = ()
    """Header names kept although they are standard."""
    errors: Mapping[str, int | tuple[int, str]] = field(default_factory=dict)
    """Other statuses, or (status, text), by kind of error."""
    limits: BrokerLimits = field(default_factory=BrokerLimits)

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            choice(name, getattr(self, name), *known)
        for name in _SWITCHES:
            choice(name, getattr(self, name), True, False)
        if not isinstance(self.errors, Mapping):
            raise ContractError(
                f"errors={self.errors!r:.200} is not understood: give a mapping from a kind of error "
                "to a status, or to a pair of status and text"
            )
        for kind, other in self.errors.items():
            choice("errors key", kind, *STATUSES)
            if not _is_answer(other):
                raise ContractError(
                    f"errors[{kind!r}]={other!r} is not understood: give a status from 400 to 599, "
                    "or a pair of status and text"
                )
        for name in _POSITIVE:
            whole(name, getattr(self, name), 1, optional=name == "idle_close_ms")
        whole("never_committed", self.never_committed, None)
        whole("no_such_time", self.no_such_time, None)
        if not isinstance(self.limits, BrokerLimits):
            raise ContractError(
                f"limits={self.limits!r} is not understood: give the name of a plan "
                f"({', '.join(map(repr, PRESETS))}) or a BrokerLimits"
            )
        for name in ("header_prefixes", "webhook_drop", "webhook_keep"):
            object.__setattr__(self, name, strings(name, getattr(self, name)))


_CHOICES: Mapping[str, tuple[object, ...]] = {
    "heartbeats": ("background", "consume"),
    "interleave": ("rotate", "random"),
    "fetch_beyond_end": ("error", "wait"),
    "resubscribe": ("rebalance", "ignore"),
    "concurrent_consume": ("wait", "error"),
    "instance_limit": ("cluster", "group", None),
    "commit_by_unknown": ("error", "store"),
    "unknown_group": ("error", "uncommitted"),
    "keyless": ("rotate", "random"),
    "empty_key": ("key", "absent"),
    "batches": ("atomic", "in order"),
    "webhook_answer": ("list", "object"),
}
_SWITCHES = ("fetch_single_topic", "delete_leaves", "coerce_scalars")
_POSITIVE = ("idle_close_ms", "session_timeout_ms", "max_poll_records", "max_partition_bytes")


def _is_answer(value: object) -> bool:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):
        value = value[0]
    return type(value) is int and 400 <= value <= 599
