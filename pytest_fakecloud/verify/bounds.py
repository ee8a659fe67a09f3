"""What one run of ``verify`` may take: its time, the size of its answers, and who may stop it."""

from __future__ import annotations

import time

SECONDS = 30.0
"""How long a request may take, and how long an index may take in what was written."""
RUN_SECONDS = 900.0
"""How long a whole run may take unless the user says otherwise."""
ANSWER_BYTES = 4 << 20
"""The longest answer that is read."""
RUN_BYTES = 64 << 20
"""How many bytes of answers a run reads in all: a report keeps them."""
GRACE_SECONDS = 0.4
"""How long the request in flight may go on after an interruption."""
CLEAN_SECONDS = 10.0
"""How long the clean-up of a scenario may take."""
INTERRUPTED_CLEAN_SECONDS = 1.1
"""How long after an interruption the clean-up has to be done."""


class Unreachable(Exception):
    """A service that gives no usable answer; the text says what to do."""


class Interrupted(Exception):
    """A signal asked the run to end."""


class Bounds:
    """What one run may take, shared by all of its requests."""

    def __init__(self, seconds: float = RUN_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._bytes = RUN_BYTES
        self._interrupted_at: float | None = None
        self._clean_until: float | None = None

    def interrupt(self) -> None:
        """End the run soon; safe inside a signal handler."""
        self._interrupted_at = time.monotonic()

    def begin_cleaning(self) -> None:
        """Start the time of a clean-up, which the end of the run does not cut short."""
        self._clean_until = time.monotonic() + CLEAN_SECONDS

    def end_cleaning(self) -> None:
        """Return to the run's own time."""
        self._clean_until = None

    def check(self, when: str = "") -> None:
        """Raise ``Interrupted`` or ``Unreachable`` where no more requests may be sent."""
        if self._interrupted_at is not None and self._clean_until is None:
            raise Interrupted(f"interrupted{when}")
        if self.until() <= time.monotonic():
            if self._clean_until is None:
                raise Unreachable(
                    f"the run was not done after {self._seconds:g} s: give --timeout SECONDS"
                )
            raise Unreachable("the clean-up took too long")

    def until(self) -> float:
        """Return when the request that is in flight has to be done."""
        ends = [self._until if self._clean_until is None else self._clean_until]
        if self._interrupted_at is not None:
            cleaning = self._clean_until is not None
            after = INTERRUPTED_CLEAN_SECONDS if cleaning else GRACE_SECONDS
            ends.append(self._interrupted_at + after)
        return min(ends)

    def count(self, size: int) -> None:
        """Count the bytes of an answer; raise ``Unreachable`` where they are too many in all."""
        self._bytes -= size
        if self._bytes < 0:
            raise Unreachable(f"its answers are longer than {RUN_BYTES >> 20} MiB in all")
