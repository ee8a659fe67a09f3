"""What a suite says of a server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The names of the tests that passed and failed, why the suite ended early, what it printed."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ended: str = ""
    output: str = ""

    def beyond(self, other: Outcome) -> list[str]:
        """Return the tests that passed here and not there, a name as often as it did."""
        return sorted((Counter(self.passed) - Counter(other.passed)).elements())
