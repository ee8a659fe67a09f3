"""Delays of commands: CLIENT PAUSE and DEBUG SLEEP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CommandError

if TYPE_CHECKING:
    from ...core.timers import Signal
    from .engine import Engine
    from .session import Session


class Pauses:
    """Decides which commands of the database port are delayed, and until when."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._resumed: Signal | None = None
        self._sleep_ends_us = 0
        """Time in microseconds at which the last DEBUG SLEEP ends."""
        self.pause_ends_us = 0
        """Time in microseconds at which the last CLIENT PAUSE ends."""
        self.writes_only = False
        """Whether the last CLIENT PAUSE delays write commands only."""
        self.delays_end_us = 0
        """Time in microseconds at which the last pause or sleep ends; 0 before the first."""
        self.delayed: set[int] = set()
        """Ids of the sessions whose next command is being delayed."""
        self.exec_sleep_ms = 0
        """Milliseconds of DEBUG SLEEP in a transaction, by which EXEC delays its reply."""
        self.command_sleep_us = 0
        """Microseconds of DEBUG SLEEP to add to the running command's duration on the clock."""

    @property
    def resumed(self) -> Signal:
        """Signal that is notified when a pause changes."""
        with self._engine.lock:
            if self._resumed is None:
                self._resumed = self._engine.clock.signal()
            return self._resumed

    def pause(self, until_us: int, writes_only: bool) -> None:
        """Delay commands until a time; 0 ends the pause.

        If two pauses overlap, the later end applies, and the pause that also delays read-only
        commands takes precedence (measured on Redis 7.0).
        """
        if until_us and self._engine.clock.now_us() < self.pause_ends_us:
            until_us = max(until_us, self.pause_ends_us)
            writes_only = writes_only and self.writes_only
        self.pause_ends_us = until_us
        self.writes_only = writes_only
        self._update()

    def sleep(self, until_us: int) -> None:
        """Delay all commands until a time, including commands that CLIENT PAUSE does not delay."""
        self._sleep_ends_us = until_us
        self._update()

    def end(self) -> None:
        if self.delays_end_us:
            self._sleep_ends_us = 0
            self.pause(0, writes_only=False)

    def _update(self) -> None:
        self.delays_end_us = max(self.pause_ends_us, self._sleep_ends_us)
        self.resumed.notify()

    def holds_back(self, session: Session, argv: list[bytes]) -> bool:
        """Return whether a command line is delayed. A line that would be rejected is not delayed."""
        engine = self._engine
        now_us = engine.clock.now_us()
        if now_us >= self.delays_end_us:
            return False
        try:
            spec = engine.table.resolve(argv)
            if not spec.least <= len(argv) <= spec.most:
                return False
            session.user.check(spec, argv)
            if not self.writes_only or now_us < self._sleep_ends_us:
                return True
            may_write = engine.scripting.may_write
            if spec.name == "EXEC":
                return any(may_write(each, line) for each, line in session.queue or ())
            return may_write(spec, argv)
        except CommandError:
            return False
