"""Names of strands, as schedules and stories write them."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"(?P<program>[^/:+]*)(?:/(?P<attempt>\d+))?(?P<part>.*)")
_DELIVERY = re.compile(r"delivery\d+")
_TAKEN = re.compile(rf"{_DELIVERY.pattern}|clock|check")
"""The names that schedules and stories use for deliveries, moves of the clock and calls of checks."""
_LOOP = ":loop"


class StrandName(NamedTuple):
    """The name of a strand in its parts.

    ``relay`` is a client or a worker, and ``delivery1`` the delivery of the first message. ``relay/2``
    is the second start of a worker, and ``delivery1/2`` the second attempt of a delivery. A task of
    ``ann`` has a name such as ``ann:add``, a thread ``ann+add``. Her event loop is ``ann:loop`` while
    its main task is a strand of its own.
    """

    program: str
    """The client or worker, or the delivery of a message."""
    attempt: int = 1
    part: str = ""
    """The task or the thread, with the sign before it."""

    @classmethod
    def of(cls, text: str) -> StrandName:
        match = _NAME.fullmatch(text)
        assert match is not None
        return cls(match["program"], int(match["attempt"] or 1), match["part"])

    @classmethod
    def of_delivery(cls, ordinal: int, attempt: int) -> StrandName:
        return cls(f"delivery{ordinal}", attempt)

    def __str__(self) -> str:
        return f"{self.program}{f'/{self.attempt}' * (self.attempt > 1)}{self.part}"

    @property
    def root(self) -> str:
        """The client, worker or delivery, with the number of its start or attempt."""
        return str(self._replace(part=""))

    @property
    def first(self) -> StrandName:
        """The same strand in the first start or attempt."""
        return self._replace(attempt=1)

    @property
    def shown(self) -> str:
        """The name in stories, in which an event loop acts for its client."""
        return str(self).removesuffix(_LOOP)

    def is_part_of(self, root: str) -> bool:
        """Return whether it is a task or a thread of another strand, as ``ann:add`` of ``ann``."""
        return bool(self.part) and self.root == root

    @property
    def is_delivery(self) -> bool:
        return bool(_DELIVERY.fullmatch(self.program))

    def task(self, function: str) -> str:
        return f"{self.root}:{function}"

    def thread(self, function: str) -> str:
        return f"{self.root}+{function}"

    def loop(self) -> str:
        return f"{self}{_LOOP}"


def actor_of(strand: str) -> str:
    """Return the name of a strand without the number of its start or attempt."""
    return str(StrandName.of(strand).first)


def is_program_name(name: object) -> bool:
    """Return whether a client or a worker can have a name, which schedules and stories contain."""
    return isinstance(name, str) and bool(re.fullmatch(r"[^\s,./:+@]+", name))


def is_taken(name: str) -> bool:
    """Return whether an exploration uses a name itself, so that no client or worker can have it."""
    return bool(_TAKEN.fullmatch(name))
