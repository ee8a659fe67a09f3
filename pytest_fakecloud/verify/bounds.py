"""The limits of a run of ``verify``: its duration, the size of responses, and its end after a
signal.
"""

from __future__ import annotations

import time

SECONDS = 30.0
"""Time limit in seconds of a request, and of waiting until an index has processed a write."""
RUN_SECONDS = 900.0
"""Default time limit of a run in seconds."""
ANSWER_BYTES = 4 << 20
"""Maximum size of a response in bytes."""
RUN_BYTES = 64 << 20
"""Maximum total size of a run's responses in bytes. A report keeps all of them in memory."""
GRACE_SECONDS = 0.4
"""Seconds that the current request may still take after an interruption."""
CLEAN_SECONDS = 10.0
"""Time limit in seconds of a scenario's clean-up."""
INTERRUPTED_CLEAN_SECONDS = 1.1
"""Time limit in seconds of the clean-up after an interruption."""


class Unreachable(Exception):
    """Raised if a service returns no usable response. The message says what to do."""


class Interrupted(Exception):
    """Raised in a run that was interrupted by a signal."""


class Bounds:
    """The limits of a run, which all of its requests share."""

    def __init__(self, seconds: float = RUN_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._bytes = RUN_BYTES
        self._interrupted_at: float | None = None
        self._clean_until: float | None = None

    def interrupt(self) -> None:
        """End the run soon. Can be called from a signal handler."""
        self._interrupted_at = time.monotonic()

    def begin_cleaning(self) -> None:
        """Apply the time limit of a clean-up instead of the limit of the run, which may have
        passed.
        """
        self._clean_until = time.monotonic() + CLEAN_SECONDS

    def end_cleaning(self) -> None:
        self._clean_until = None

    def check(self, when: str = "") -> None:
        """Raise ``Interrupted`` or ``Unreachable`` if no more requests may be sent."""
        if self._interrupted_at is not None and self._clean_until is None:
            raise Interrupted(f"interrupted{when}")
        if self.until() <= time.monotonic():
            if self._clean_until is None:
                raise Unreachable(
                    f"the run did not end within {self._seconds:g} s: pass a longer --timeout SECONDS"
                )
            raise Unreachable("the clean-up did not end in time")

    def until(self) -> float:
        """Return the time, on the monotonic clock, by which the current request must end."""
        ends = [self._until if self._clean_until is None else self._clean_until]
        if self._interrupted_at is not None:
            cleaning = self._clean_until is not None
            after = INTERRUPTED_CLEAN_SECONDS if cleaning else GRACE_SECONDS
            ends.append(self._interrupted_at + after)
        return min(ends)

    def count(self, size: int) -> None:
        """Count the bytes of a response; raise ``Unreachable`` if the total is too large."""
        self._bytes -= size
        if self._bytes < 0:
            raise Unreachable(f"its responses are larger than {RUN_BYTES >> 20} MiB in total")
