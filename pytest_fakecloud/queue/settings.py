"""What a queue may be told: how it behaves, and what its plan allows.

Numbers of the plans: the vendor's pricing pages and error texts seen by users. Decided here: without
a profile nothing is limited but 20 retries, 50 MB messages, two hours for one answer, and a week in
which a dead letter is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict

from ..core.errors import ContractError, shown
from ..core.timeparse import Duration
from .model import DAY, HOUR, MINUTE, SECOND

DeliveryMode = Literal["driven", "background"]
Unstubbed = Literal["refuse", "accept"]
SignatureClock = Literal["receiver", "real", "virtual"]
SourceSpelling = Literal["both", "service", "specification"]
HeaderPrefix = Literal["Upstash", "Service"]
Profile = Literal["free", "payg"]


class QueueSettings(TypedDict, total=False):
    """The settings of a ``Queue``, which says what each of them means."""

    name: str | None
    """What reports and the control API call it; the fixture's name unless given."""
    delivery: DeliveryMode | None
    """Who delivers: the test's driving calls, or threads as the clock passes; None: the cloud's way."""
    unstubbed: Unstubbed
    """What happens at a host nobody stands in for: a problem, or a 200."""
    raise_exceptions: bool
    """Whether what leaves a handler leaves the driving call too."""
    dev_credentials: bool
    """Use the vendor's public development token and signing keys."""
    profile: Profile | None
    """The plan whose limits hold, ``"free"`` or ``"payg"``; None: hardly any."""
    limits: Mapping[str, int | None] | None
    """Single limits, by the names below."""
    header_prefix: HeaderPrefix
    """Of the headers that go out; both are understood."""
    signature_clock: SignatureClock
    """Which clock a signature's times are of: the receiver's, the real one, the fakes'."""
    region: str
    """The text of the region's header."""
    retries: int
    """Of a message that names none."""
    callback_retries: Literal["inherit"] | int
    """Of a callback that names none: the message's, or a number."""
    delayed_callbacks: bool
    """Allow a delay of callbacks, which the service refuses."""
    dedup_window: Duration
    """How long a duplicate is known."""
    dlq_retention: Duration | None
    """How long a dead letter is kept; None: as the plan says, 7 days without one."""
    message_grace: Duration
    """How long a finished message can be read over HTTP."""
    history: Duration | None
    """How long what has ended is remembered; None: for ever in a test, 7 days in a server."""
    no_answer_status: int
    """Stands in callbacks and records where no HTTP answer came."""
    source_id: SourceSpelling
    """How callbacks spell the source's id: the service's way, the specification's, or both."""
    production_checks: bool
    """Refuse destinations without a public address, as the service does."""
    loop_limit: int
    """How many deliveries may cause each other at one instant."""
    attempt_cap: float
    """Most real seconds of an attempt over a socket or in a loop; a day at most."""


def one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """Raise ``ContractError`` for a setting that is none of those that have a meaning."""
    if value not in allowed:
        words = ", ".join(repr(one) for one in allowed if one is not None)
        raise ContractError(f"{name}={shown(value)} is unknown: give one of {words}")


def number(name: str, value: object, *, least: int = 0, whole: bool = True) -> None:
    """Raise ``ContractError`` for what is no number of at least ``least``."""
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    # Written so that a float that is not a number is refused as well.
    if isinstance(value, bool) or not isinstance(value, kinds) or not value >= least:  # type: ignore[operator]
        kind = "whole number" if whole else "number"
        raise ContractError(f"{name}={shown(value)}: give a {kind} of at least {least}")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a queue behaves, apart from its plan. Durations in microseconds.

    ``no_answer_status`` stands for the status where no HTTP answer came. ``source_spelling`` is
    ``both``, ``service`` or ``specification``. ``callback_retries`` is ``inherit`` (from the
    message) or a number. ``grace_us`` is how long a finished message can still be read,
    ``history_us`` how long the queue remembers it at all (None: for ever). ``loop_limit`` is how
    many messages may publish each other at one instant before the queue calls it an endless loop.
    """

    header_prefix: str = "Upstash"
    region: str = "US-EAST-1"
    default_retries: int = 3
    callback_retries: Literal["inherit"] | int = "inherit"
    delayed_callbacks: bool = False
    no_answer_status: int = 0
    source_spelling: SourceSpelling = "both"
    grace_us: int = 30 * SECOND
    history_us: int | None = None
    deduplication_us: int = 600 * SECOND
    production_checks: bool = False
    loop_limit: int = 1000


MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The limits of a plan; None means unlimited. Sizes in bytes, spans in microseconds.

    ``daily_messages`` counts every message created since midnight UTC, callbacks included;
    ``burst`` counts publish requests per second, ``parallelism`` deliveries in flight.
    """

    message_size: int = 50 * MEGABYTE
    batch_size: int = 100 * MEGABYTE
    delay_us: int | None = None
    retries: int = 20
    timeout_us: int = 2 * HOUR
    retention_us: int = 7 * DAY
    schedules: int | None = None
    groups: int | None = None
    endpoints_per_group: int | None = None
    queues: int | None = None
    queue_parallelism: int | None = None
    daily_messages: int | None = None
    burst: int | None = None
    parallelism: int | None = None


PROFILES: Mapping[str, PlanLimits] = {
    "free": PlanLimits(
        message_size=MEGABYTE,
        delay_us=7 * DAY,
        retries=5,
        timeout_us=15 * MINUTE,
        retention_us=3 * DAY,
        schedules=10,
        groups=1,
        endpoints_per_group=100,
        queues=10,
        queue_parallelism=2,
        daily_messages=1000,
    ),
    "payg": PlanLimits(
        message_size=10 * MEGABYTE,
        delay_us=365 * DAY,
        timeout_us=2 * HOUR,
        retention_us=7 * DAY,
        schedules=1000,
        groups=100,
        endpoints_per_group=100,
        queues=100,
        queue_parallelism=100,
    ),
}


def plan(profile: str | None, overrides: Mapping[str, Any] | None = None) -> PlanLimits:
    """Return the limits of a profile (None: the default), some of them replaced.

    Raises ``ContractError`` naming the known profiles or limits for an unknown one, and for a limit
    that is no whole number of at least 0 (or None, where a plan may be without it).
    """
    if profile is not None and not (isinstance(profile, str) and profile in PROFILES):
        raise ContractError(f"unknown profile {profile!r}, expected one of {', '.join(PROFILES)}")
    if not isinstance(overrides, Mapping | None):
        raise ContractError(f"limits={overrides!r}: give a dict of limits, such as {{'burst': 10}}")
    limits = PlanLimits() if profile is None else PROFILES[profile]
    known = {field.name for field in fields(PlanLimits)}
    unknown = set(overrides or {}) - known
    if unknown:
        raise ContractError(
            f"unknown limit {', '.join(sorted(map(str, unknown)))},"
            f" expected one of {', '.join(sorted(known))}"
        )
    optional = {field.name for field in fields(PlanLimits) if field.default is None}
    for name, value in (overrides or {}).items():
        if value is not None or name not in optional:
            number(name, value)
    return replace(limits, **(overrides or {}))
