"""Small applications with a bug that occurs in practice, each with a corrected version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scenario:
    """The arguments of ``explore``: clients, workers, promise and setup."""

    run: Mapping[str, Callable[[], object]]
    check: Callable[..., object]
    workers: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    setup: Callable[[], object] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


NAMES: Sequence[str] = (
    "lost_update",
    "double_booking",
    "lock_without_expiry",
    "commit_before_work",
    "exactly_once",
    "stale_cache",
    "outbox",
    "saga",
    "rate_limiter",
    "scheduler",
)
