"""Settings of a queue, the limits of its plan, and settings of its destinations.

The limits of the plans come from the vendor's pricing pages and from error messages seen by users.
Decided here: without a plan, the only limits are 20 retries, 50 MB per message, two hours per
response, and seven days of retention for dead letters. No plan limits the requests per second
(``burst``), because the vendor publishes no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from ..core.errors import ContractError
from ..core.settings import (
    DELIVERY,
    SWITCH,
    DeliveryMode,
    FakeConfig,
    FakeSettings,
    Kind,
    Settings,
    choice,
    duration,
    either,
    number,
    optional,
    read_some,
    setting,
    text,
    whole,
)
from .model import DAY, HOUR, MINUTE

Unstubbed = Literal["refuse", "accept"]
SignatureClock = Literal["receiver", "real", "virtual"]
SourceSpelling = Literal["both", "service", "specification"]
HeaderPrefix = Literal["Upstash", "Service"]
Profile = Literal["free", "payg"]
MEGABYTE = 1024 * 1024
DEFAULT_CAP = 5.0
"""Default of ``attempt_cap``."""
_KEYS: Kind[Mapping[str, str]] = Kind(
    Mapping[str, str],
    "a mapping from name to signing key, all non-empty strings",
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(name, str) for name in value)
        and all(isinstance(key, str) and key for key in value.values())
    ),
    dict,
)


class PlanLimits(Settings):
    """The limits of a plan; None means unlimited. Sizes are in bytes, durations in microseconds.

    ``daily_messages`` limits the messages created since midnight UTC, including callbacks,
    ``burst`` the other requests per second (the vendor limits listings and administration, but
    neither publishing nor triggers, notifications and waits), and ``parallelism`` the deliveries in
    flight.
    """

    message_size: int = setting(50 * MEGABYTE, whole(0))
    batch_size: int = setting(100 * MEGABYTE, whole(0))
    delay_us: int | None = setting(None, optional(whole(0)))
    retries: int = setting(20, whole(0))
    timeout_us: int = setting(2 * HOUR, whole(0))
    retention_us: int = setting(7 * DAY, whole(0))
    schedules: int | None = setting(None, optional(whole(0)))
    groups: int | None = setting(None, optional(whole(0)))
    endpoints_per_group: int | None = setting(None, optional(whole(0)))
    queues: int | None = setting(None, optional(whole(0)))
    queue_parallelism: int | None = setting(None, optional(whole(0)))
    daily_messages: int | None = setting(None, optional(whole(0)))
    burst: int | None = setting(None, optional(whole(0)))
    parallelism: int | None = setting(None, optional(whole(0)))


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
        schedules=1000,
        groups=100,
        endpoints_per_group=100,
        queues=100,
        queue_parallelism=100,
    ),
}


_LIMITS: Kind[Mapping[str, int | None]] = Kind(
    Mapping[str, int | None],
    "a mapping of limits, such as {'burst': 10}",
    lambda value: isinstance(value, Mapping),
    lambda value: read_some(PlanLimits, value, "limits"),
)


class QueueConfig(FakeConfig):
    """Settings of a ``Queue``."""

    delivery: DeliveryMode | None = setting(None, optional(DELIVERY))
    """Whether messages are delivered when the test calls a delivering method, or by background
    threads; None: the cloud's mode.
    """
    unstubbed: Unstubbed = setting("refuse", choice(*get_args(Unstubbed)))
    """Whether a delivery to an unstubbed host is a strict-mode violation or is answered with 200."""
    raise_exceptions: bool = setting(False, SWITCH)
    """Whether the call that delivers raises the exceptions of handlers."""
    dev_credentials: bool = setting(False, SWITCH, connects=True)
    """Whether to use the vendor's public development token and signing keys."""
    profile: Profile | None = setting(None, optional(choice(*get_args(Profile))))
    """The plan whose limits apply, ``"free"`` or ``"payg"``; None: a few generous limits."""
    limits: Mapping[str, int | None] | None = setting(None, optional(_LIMITS))
    """Individual limits that replace those of the plan."""
    header_prefix: HeaderPrefix = setting("Upstash", choice(*get_args(HeaderPrefix)))
    """Prefix of the headers that the queue sends. Requests to the queue may use either prefix."""
    signature_clock: SignatureClock = setting("receiver", choice(*get_args(SignatureClock)))
    """Clock for the times in signatures: the receiver's, the wall clock, or the fake's."""
    region: str = setting("US-EAST-1", text("a string of printable characters", str.isprintable))
    """Value of the region header of deliveries."""
    retries: int = setting(3, whole(0))
    """Default number of retries of a message."""
    callback_retries: Literal["inherit"] | int = setting(
        "inherit", either(choice("inherit"), whole(0))
    )
    """Default number of retries of a callback. ``"inherit"`` uses the number of the message it
    reports on.
    """
    delayed_callbacks: bool = setting(False, SWITCH)
    """Whether callbacks can be delayed. The service rejects delayed callbacks."""
    dedup_window_us: int = setting("10m", duration("us"))
    """Period in which a message with a known deduplication id counts as a duplicate."""
    dlq_retention_us: int | None = setting(None, optional(duration("us")))
    """How long dead letters are kept; None: as long as the plan says, or 7 days without a plan."""
    message_grace_us: int = setting("30s", duration("us"))
    """How long a finished message can still be read over HTTP."""
    history_us: int | None = setting(None, optional(duration("us")))
    """How long finished messages are kept; None: forever in a test, 7 days in a stand-alone server."""
    no_answer_status: int = setting(0, whole(0))
    """Status shown in callbacks and API records if there was no HTTP response."""
    source_id: SourceSpelling = setting("both", choice(*get_args(SourceSpelling)))
    """Name of the message-id field in callbacks: the service's spelling, the specification's, or
    both.
    """
    bulk_action_time_us: int = setting("0s", duration("us"))
    """How long the cancellation of all messages or workflow runs that match filters takes."""
    event_lookback: bool = setting(True, SWITCH)
    """Whether a notification of a workflow run that does not wait for the event yet is kept for it, as
    the vendor documents. (The workflow client's source says that the service drops it.)
    """
    production_checks: bool = setting(False, SWITCH)
    """Whether to reject destinations that have no public address, as the service does."""
    loop_limit: int = setting(1000, whole(1))
    """Maximum number of deliveries that may cause each other at the same point in time."""
    attempt_cap: float = setting(DEFAULT_CAP, number(0))
    """Maximum wall-clock seconds of an attempt over a socket or in an event loop; at most one day."""

    def __post_init__(self) -> None:
        if self.dlq_retention_us is not None and "retention_us" in (self.limits or {}):
            raise ContractError(
                "dlq_retention and limits['retention_us'] are the same: leave out one"
            )

    @property
    def plan(self) -> PlanLimits:
        """The limits of the plan, including the replacements from other settings."""
        limits: dict[str, Any] = dict(self.limits or {})
        if self.dlq_retention_us is not None:
            limits["retention_us"] = self.dlq_retention_us
        plan = {} if self.profile is None else vars(PROFILES[self.profile])
        return PlanLimits(**plan | limits)


class DestinationSettings(FakeSettings, total=False):
    """Keyword arguments of ``Cloud.destination()`` and of the marker."""


class CallbackCaptureConfig(FakeConfig):
    """Settings of a ``CallbackCapture``."""

    keys: Mapping[str, str] | None = setting(None, optional(_KEYS))
    """Signing keys, by name, of a queue outside this cloud; None: the keys of this cloud's queues."""
