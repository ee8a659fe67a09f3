"""What a plan allows.  Without a profile nothing is limited but retries, sizes and spans.

Numbers: the vendor's pricing pages and error texts seen by users.  Decided here: without a profile
20 retries, 50 MB messages, a year of delay is not enforced, two hours for one answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ...core.errors import ContractError
from ..arguments import number
from ..model import DAY, HOUR, MINUTE

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a plan; None means unlimited.  Sizes in bytes, spans in microseconds.

    `daily_messages` counts every message created since midnight UTC, callbacks included;
    `burst` counts publish requests per second, `parallelism` deliveries in flight.
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


PROFILES: Mapping[str, Limits] = {
    "free": Limits(
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
    "payg": Limits(
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


def plan(profile: str | None, overrides: Mapping[str, Any] | None = None) -> Limits:
    """Return the limits of a profile (None: the default), some of them replaced.

    Raises `ContractError` naming the known profiles or limits for an unknown one, and for a limit
    that is no whole number of at least 0 (or None, where a plan may be without it).
    """
    if profile is not None and not (isinstance(profile, str) and profile in PROFILES):
        raise ContractError(f"unknown profile {profile!r}, expected one of {', '.join(PROFILES)}")
    if not isinstance(overrides, Mapping | None):
        raise ContractError(f"limits={overrides!r}: give a dict of limits, such as {{'burst': 10}}")
    limits = Limits() if profile is None else PROFILES[profile]
    known = {field.name for field in fields(Limits)}
    unknown = set(overrides or {}) - known
    if unknown:
        raise ContractError(
            f"unknown limit {', '.join(sorted(map(str, unknown)))},"
            f" expected one of {', '.join(sorted(known))}"
        )
    optional = {field.name for field in fields(Limits) if field.default is None}
    for name, value in (overrides or {}).items():
        if value is not None or name not in optional:
            number(name, value)
    return replace(limits, **(overrides or {}))
