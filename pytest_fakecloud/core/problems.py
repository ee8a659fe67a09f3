"""What a strict test fails for, whatever the test itself asserts."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from .lazy import dataclass

__all__ = ["Problem", "Problems", "shortened"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a strict test fails for.

    ``kind`` is ``unrouted``, ``unstubbed``, ``bug``, ``unused_fault``, ``unmet`` or ``rejected_step``;
    ``text`` says what came, what was nearest and how to allow it; ``facts`` are what ``allow``
    matches on.
    """

    kind: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    exception: BaseException | None = None


class Problems(list[Problem]):
    """The problems of one cloud, in the order they came: the newest ``keep`` at most.

    The exceptions of the first ``keep_exceptions`` keep their frames, which hold all that was under
    way when they were raised.
    """

    keep: int = 10_000
    keep_exceptions: int = 100

    def report(
        self, kind: str, text: str, *, exception: BaseException | None = None, **facts: Any
    ) -> Problem:
        """Remember one more problem."""
        if exception is not None and len(self) >= self.keep_exceptions:
            exception.__traceback__ = exception.__context__ = exception.__cause__ = None
        del self[: max(0, len(self) - self.keep + 1)]
        problem = Problem(kind, shortened(text, _LONGEST_PROBLEM), facts, exception)
        self.append(problem)
        return problem


_LONGEST_PROBLEM = 20_000


def shortened(text: str, most: int = 2000) -> str:
    """A text a stranger wrote, short enough to be kept."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
