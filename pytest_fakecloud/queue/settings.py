"""How a queue behaves, what may go wrong on purpose, and the end of an endless loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .model import (
    SECOND,
    Delivery,
    Kind,
    Message,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a queue behaves, apart from its plan.  Durations in microseconds.

    `no_answer_status` stands for the status where no HTTP answer came.  `source_spelling` is
    `both`, `service` or `seed`.  `callback_retries` is `inherit` (from the message) or a number.
    `grace_us` is how long a finished message can still be read, `history_us` how long the queue
    remembers it at all (None: for ever).  `loop_limit` is how many messages
    may publish each other at one instant before the queue calls it an endless loop.
    """

    header_prefix: str = "Upstash"
    region: str = "US-EAST-1"
    default_retries: int = 3
    callback_retries: Literal["inherit"] | int = "inherit"
    delayed_callbacks: bool = False
    no_answer_status: int = 0
    source_spelling: str = "both"
    grace_us: int = 30 * SECOND
    history_us: int | None = None
    deduplication_us: int = 600 * SECOND
    production_checks: bool = False
    loop_limit: int = 1000


class Mishaps:
    """What goes wrong with a delivery on purpose; the faults of a queue subclass it."""

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        """Return the names of the faults that hit this delivery."""
        return ()

    def callback(self, message: Message, kind: Kind, url: str) -> bool:
        """Whether this callback gets lost before it is published."""
        return False

    def overtaken(self, message: Message) -> bool:
        """Whether the next delivery comes before this one, out of order."""
        return False


class Loop(AssertionError):
    """Messages publish each other without end; what was about to go out stays pending.

    Raised by the driving call, which would never return: by default after 1,000 deliveries that
    caused each other at one instant (the setting `loop_limit`), or ten times as many in one call.
    """
