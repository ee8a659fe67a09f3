"""The lock of an engine, which a script of one client can hold while others wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

from ...core.threads import step_aside
from ..errors import CommandError
from .keyspace import Keyspace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_ASK_SECONDS = 0.02
"""Time between two checks of a waiting client whether its line may run during a script."""
_PATIENCE_SECONDS = 0.005
"""Time for which a thread waits for the lock before it steps aside."""
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
        self.waiting: dict[Any, None] = {}
        """A taken lock for each thread that waits for its turn, in the order in which they came."""
        self._taken = threading.Event()
        """Set when a waiting thread has taken the lock."""
        self._databases = databases
        self._runs_during_script = runs_during_script

    def in_turn(self, line: list[bytes] | None, action: Callable[[*Ts], T], *args: *Ts) -> T:
        """Wait for the lock, and return ``action(*args)``, called while it is held.

        Raises ``ScriptRunning`` if the lock is held by a script of another client, during which the
        line, if there is one, is handled. An exception other than ``CommandError``, such as that of a
        signal's handler at any moment, leaves the data consistent and the lock free; during the wait,
        it ends it at once.
        """
        # ``with self.lock`` would wait for the script. Of a handler that raises between acquire() and
        # the next instruction, only the lock knows whether it was taken: ask it like
        # threading.Condition does.
        is_outer = not self.lock._is_owned()  # type: ignore[attr-defined]
        try:
            if is_outer and (self.waiting or not self.lock.acquire(blocking=False)):
                self._wait_for_lock(line)
            return action(*args)
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

    def _wait_for_lock(self, line: list[bytes] | None) -> None:
        """Wait for the lock, behind the threads that wait already, and take it; raise
        ``ScriptRunning``.
        """
        turn = threading.Lock()
        turn.acquire()
        try:
            self.waiting[turn] = None
            if self._has_turn(turn) and self.lock.acquire(timeout=_PATIENCE_SECONDS):
                return
            step_aside()
            while not (self._has_turn(turn) and self.lock.acquire(timeout=_ASK_SECONDS)):
                if line is not None and self._runs_during_script(line):
                    raise ScriptRunning
                if not self._has_turn(turn):
                    turn.acquire(timeout=_ASK_SECONDS)
        finally:
            self.waiting.pop(turn, None)
            for next_turn in [*self.waiting][:1]:
                with suppress(RuntimeError):  # It was woken before.
                    next_turn.release()
            self._taken.set()

    def _has_turn(self, turn: object) -> bool:
        """Return whether no other thread has waited longer."""
        return next(iter([*self.waiting])) is turn

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
