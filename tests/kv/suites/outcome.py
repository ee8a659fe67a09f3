"""The result of a suite for one server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The names of passed and failed tests, the reason for an early end, and the output."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ended: str = ""
    output: str = ""

    def beyond(self, other: Outcome) -> list[str]:
        """Return the tests that passed here and not there, repeated as often as they did."""
        return sorted((Counter(self.passed) - Counter(other.passed)).elements())
