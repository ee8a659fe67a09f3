"""Settings of a broker and the limits of the vendor's plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..core.errors import ContractError, unknown_name
from ..core.settings import (
    SWITCH,
    FakeConfig,
    Kind,
    Settings,
    check,
    check_engine,
    choice,
    duration,
    first_of,
    mapping,
    optional,
    setting,
    text,
    texts,
    whole,
)
from .errors import STATUSES
from .model import TopicConfig, milliseconds

_AMOUNT = optional(whole(0))


class BrokerLimits(Settings):
    """Limits of a plan; None means no limit. Sizes are in bytes, retention in milliseconds.

    The presets contain the documented limits of the vendor's plans. ``messages_per_day`` counts
    produced messages per UTC day of the fake clock. ``storage_bytes`` limits the total size of all
    keys, values and headers, ``retention_bytes`` their size in each partition.
    """

    max_message_bytes: int = setting(1024 * 1024, whole(1), engines="both")
    max_partitions: int | None = setting(None, _AMOUNT)
    messages_per_day: int | None = setting(None, _AMOUNT)
    messages_per_second: int | None = setting(None, _AMOUNT)
    storage_bytes: int | None = setting(None, _AMOUNT)
    retention_ms: int | None = setting(None, _AMOUNT, engines="both")
    retention_bytes: int | None = setting(None, _AMOUNT, engines="both")

    def __post_init__(self) -> None:
        check(self, "BrokerLimits")


PRESETS: Mapping[str, BrokerLimits] = {
    "free": BrokerLimits(
        max_partitions=10,
        messages_per_day=10_000,
        messages_per_second=1000,
        storage_bytes=256 * 1024 * 1024,
        retention_ms=7 * 24 * 3600 * 1000,
    ),
    "payg": BrokerLimits(max_partitions=100, messages_per_second=1000),
    "pro": BrokerLimits(max_partitions=1000),
    "pro-5k": BrokerLimits(max_partitions=5000),
}


def _is_status_or_pair(value: object) -> bool:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):
        value = value[0]
    return type(value) is int and 400 <= value <= 599


def _is_sendable(value: str) -> bool:
    """Return whether a credential can be encoded as UTF-8: it must not contain lone surrogates."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


_LIMITS: Kind[BrokerLimits] = Kind(
    accepts=str | BrokerLimits | None,
    expected=f"the name of a plan ({', '.join(map(repr, PRESETS))}), a BrokerLimits, or None",
    fits=lambda value: (
        isinstance(value, BrokerLimits | None) or (isinstance(value, str) and value in PRESETS)
    ),
    convert=lambda value: BrokerLimits() if value is None else PRESETS.get(value, value),
)
_ERRORS: Kind[Mapping[str, int | tuple[int, str]]] = Kind(
    accepts=Mapping[str, int | tuple[int, str]],
    expected="a mapping from a kind of error to a status from 400 to 599, or to a pair of status "
    f"and text; the kinds are {', '.join(STATUSES)}",
    fits=lambda value: (
        isinstance(value, Mapping)
        and STATUSES.keys() >= value.keys()
        and all(map(_is_status_or_pair, value.values()))
    ),
)


class BrokerConfig(FakeConfig):
    """The settings of a ``Broker``.

    Some settings select a behaviour that the vendor's documentation leaves open, and that clients
    notice. Their defaults are decided here, and follow Kafka's Java client or its REST proxies.
    """

    topics: Mapping[str, int | Mapping[str, Any]] | None = setting(
        None,
        optional(
            mapping(
                Mapping[str, int | Mapping[str, Any]],
                "a mapping from name to partition count, such as {'orders': 3}",
            )
        ),
        engines="both",
    )
    """Topics to create: partition counts, or arguments of ``create_topic()``, by topic name."""
    retention_ms: int | None = setting(None, optional(duration("ms")), engines="both")
    """How long topics without their own retention keep records; None: as long as the plan allows."""
    retention_bytes: int | None = setting(None, _AMOUNT, engines="both")
    """Bytes that each partition of a topic without its own limit keeps; None: the plan's limit."""
    username: str = setting(
        "fakecloud",
        text(
            "a string without ':' and without lone surrogates",
            lambda name: ":" not in name and _is_sendable(name),
        ),
        engines="both",
        connects=True,
    )
    """User name for HTTP Basic authentication."""
    password: str | None = setting(
        None,
        optional(text("a string without lone surrogates", _is_sendable)),
        engines="both",
        connects=True,
    )
    """Password for HTTP Basic authentication; random by default."""
    limits: BrokerLimits = setting(None, _LIMITS, engines="both")
    """The plan whose limits apply (``"free"``, ``"payg"``, ``"pro"``, ``"pro-5k"``), or a
    ``BrokerLimits``; None: only the maximum message size of 1 MiB.
    """
    header_prefixes: Sequence[str] = setting(("Kafka-", "Broker-"), texts(), engines="both")
    """Prefixes of the consumer configuration headers. If a header is sent with several of them, the
    first prefix in this list wins.
    """
    idle_close_ms: int | None = setting("300s", optional(duration("ms", 1)), engines="both")
    """Time without consume requests after which an instance is closed; None: never."""
    session_timeout_ms: int = setting("120s", duration("ms", 1), engines="both")
    """How long a crashed or closed instance keeps its partitions. A header of its consume request
    can override this.
    """
    join_delay_ms: int = setting(0, duration("ms"))
    """Duration of each rebalance."""
    offset_retention_ms: int | None = setting("7d", optional(duration("ms")))
    """How long committed offsets are kept after the group's last member has left; None: forever."""
    max_poll_records: int = setting(500, whole(1), engines="both")
    """Maximum number of records in one consume response."""
    max_partition_bytes: int = setting(1024 * 1024, whole(1), engines="both")
    """Maximum bytes per partition in one response. A first record that is larger is still returned."""
    interleave: Literal["rotate", "random"] = first_of("rotate", "random")
    """Whether a response contains partitions one after the other, or in seeded random order."""
    fetch_single_topic: bool = setting(False, SWITCH, engines="both")
    """Whether a fetch returns records of only one topic, as the JS client describes."""
    instance_limit: Literal["cluster", "group"] | None = setting(
        "cluster", optional(choice("cluster", "group")), engines="both"
    )
    """Whether all instances of the cluster, or those of each group, are limited to the total number
    of partitions; None: no limit.
    """
    errors: Mapping[str, int | tuple[int, str]] | None = setting(
        None, optional(_ERRORS), engines="both"
    )
    """Statuses of error responses by kind of error, or pairs of status and message."""
    engine: str | None = setting(None, optional(text()), engines="both")
    """URL of a real Kafka cluster to use (``"kafka://host:port,…"``); None: the in-memory engine."""
    isolation: Literal["prefix", "none"] = first_of("prefix", "none", engines="real")
    """Whether the fake uses only its own topics and groups on a real cluster, or all of them."""

    def __post_init__(self) -> None:
        if self.token is not None and self.password is not None:
            raise ContractError("token and password are the same credential: leave out one of them")
        check_engine(self, self.engine)
        check_engine(self.limits, self.engine, "limits.")
        for name in ("retention_ms", "retention_bytes"):
            wanted, limit = getattr(self, name), getattr(self.limits, name)
            if wanted is not None and limit is not None and wanted > limit:
                raise ContractError(
                    f"{name}={wanted} of broker is more than limits= allows ({limit}): pass a smaller "
                    "value, or other limits"
                )
        retention = {"retention_ms": self.retention_ms, "retention_bytes": self.retention_bytes}
        limits = {name: value for name, value in retention.items() if value is not None}
        self.limits = BrokerLimits(**vars(self.limits) | limits)


def topic_config(topic: str, options: object) -> TopicConfig:
    """Return the configuration of a topic in the ``topics`` setting."""
    names = [name.removesuffix("_ms") for name in TopicConfig._fields]
    if isinstance(options, int) and not isinstance(options, bool):
        return TopicConfig(options)
    if not isinstance(options, Mapping):
        raise ContractError(
            f"topics[{topic!r}]={options!r} is invalid: pass a partition count, or a mapping with "
            f"any of {', '.join(names)}"
        )
    for option in options:
        if option not in names:
            raise ContractError(unknown_name(f"option of topics[{topic!r}]", option, names))
    values = dict(options)
    return TopicConfig(retention_ms=milliseconds(values.pop("retention", None)), **values)
