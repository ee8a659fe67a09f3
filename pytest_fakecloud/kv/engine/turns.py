"""The lock of an engine, which a script of one client can hold while others wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ..errors import CommandError
from .keyspace import Keyspace

T = TypeVar("T")
_ASK_SECONDS = 0.02
"""Time between two checks of a waiting client whether its line may run during a script."""
_GIVE_WAY_TIMEOUT = 0.2
"""Maximum wall-clock time in seconds that ``give_way()`` waits."""


class ScriptRunning(Exception):
    """Raised in place of a wait for the lock, for a line that is handled during a script of another
    client.
    """


class CommandTurns:
    """Lets one thread at a time use the data of an engine, which ``lock`` protects. It is re-entrant.

    ``runs_during_script`` returns whether a command line is handled while a script holds the lock, as
    by a real server.
    """

    def __init__(
        self, databases: list[Keyspace], runs_during_script: Callable[[list[bytes]], bool]
    ) -> None:
        self.lock = threading.RLock()
        self.waiting: set[int] = set()
        """Identifiers of the threads that wait for their turn."""
        self._taken = threading.Event()
        """Set when a waiting thread has taken the lock."""
        self._databases = databases
        self._runs_during_script = runs_during_script

    def in_turn(self, line: list[bytes], action: Callable[[], T]) -> T:
        """Wait for the lock, and return ``action()``, called while it is held.

        Raises ``ScriptRunning`` if the lock is held by a script of another client, during which the
        line is handled. An exception other than ``CommandError``, such as that of a signal's handler
        at any moment, leaves the data consistent and the lock free; during the wait, it ends it at once.
        """
        # ``with self.lock`` would wait for the script. Of a handler that raises between acquire() and
        # the next instruction, only the lock knows whether it was taken: ask it like
        # threading.Condition does.
        is_outer = not self.lock._is_owned()  # type: ignore[attr-defined]
        try:
            if is_outer:
                self._take(line)
            return action()
        except (CommandError, ScriptRunning):
            raise
        except BaseException:
            if self.lock._is_owned():  # type: ignore[attr-defined]
                self.mend()
            raise
        finally:
            if is_outer:
                try:  # noqa: SIM105 - suppress() is written in Python, so it can be interrupted.
                    self.lock.release()
                except RuntimeError:
                    pass  # It was not taken.

    def _take(self, line: list[bytes]) -> None:
        """Wait for the lock and take it; raise ``ScriptRunning``."""
        if self.lock.acquire(blocking=False):
            return
        thread = threading.get_ident()
        try:
            self.waiting.add(thread)
            while not self.lock.acquire(timeout=_ASK_SECONDS):
                if self._runs_during_script(line):
                    raise ScriptRunning
        finally:
            self.waiting.discard(thread)
            self._taken.set()

    def mend(self) -> None:
        """Make the data consistent after an exception in the middle of a command, such as that of a
        signal's handler. The command may be half done.
        """
        with self.lock:
            for keyspace in self._databases:
                keyspace.mend()

    def give_way(self) -> None:
        """Let a waiting client run first. The caller must not hold the lock."""
        # Wait explicitly, because a thread that releases a lock usually takes it again first.
        self._taken.clear()
        if self.waiting:
            self._taken.wait(_GIVE_WAY_TIMEOUT)
