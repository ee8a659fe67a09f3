"""The limits of a plan on messages per second, messages per day and stored bytes."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BrokerError
from ..settings import BrokerLimits

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


class BrokerQuota:
    """Counts produced messages per second and per UTC day of the fake clock.

    The vendor does not document when these periods start. Whole seconds and UTC days are decided
    here.
    """

    def __init__(self, limits: BrokerLimits) -> None:
        self._windows = [
            (span, limit, name)
            for span, limit, name in (
                (_SECOND_US, limits.messages_per_second, "second"),
                (_DAY_US, limits.messages_per_day, "day"),
            )
            if limit is not None
        ]
        self._storage = limits.storage_bytes
        self._counts: dict[str, tuple[int, int]] = {}

    def take(self, messages: int, size: int, stored: Callable[[], int], now_us: int) -> None:
        """Count messages that are about to be appended.

        ``size`` is the total size of the messages in bytes, and ``stored`` returns the bytes stored
        so far. If the plan is used up, raises ``BrokerError`` (429) and counts nothing.
        """
        counts = {}
        for span, limit, name in self._windows:
            window, used = self._counts.get(name, (-1, 0))
            used = used if window == now_us // span else 0
            if used + messages > limit:
                raise BrokerError(
                    "quota_exceeded",
                    f"Exceeded the plan's limit of {limit} messages per {name}: "
                    f"{used} were produced in this {name}, {messages} more were sent",
                )
            counts[name] = (now_us // span, used + messages)
        if self._storage is not None and stored() + size > self._storage:
            raise BrokerError(
                "quota_exceeded", f"Exceeded the plan's limit of {self._storage} bytes of storage"
            )
        self._counts.update(counts)

    def reset(self) -> None:
        self._counts.clear()
