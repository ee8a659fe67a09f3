"""Mutual exclusion of clock advances and background deliveries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import ContractError
from ..wording import counted

_PATIENCE = 10.0  # real seconds that an advance waits for another one to finish
_COURTESY = 0.01  # seconds of wall-clock time that a move of the clock waits for another move
_handed_over: ContextVar[object] = ContextVar("handed_over", default=None)
"""The function from ``Turns.hand_over()`` that this thread or task is running."""


class Occupied(Exception):
    """Raised when another thread is advancing this clock and does not finish in time."""


class Turn:
    """An advance in progress. ``breach`` is the error of an advance attempted during this one."""

    breach: ContractError | None = None


class Turns:
    """Lets one thread at a time move a clock: a thread that advances it, or the background
    delivery.

    An advance waits for a background delivery, and for the functions that a delivery has handed
    over to other threads. If a second advance begins during the first, both raise an error.
    """

    _handed: frozenset[object] = frozenset()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: threading.Condition | None = None
        self._turn: Turn | None = None
        self._dispatcher: int | None = None
        self._waiting = 0

    @property
    def moving(self) -> bool:
        """Whether an advance is in progress."""
        return self._turn is not None

    @contextmanager
    def move(self, yielding: bool = False) -> Iterator[Turn]:
        """Take the turn for an advance. Raises ``ContractError`` if another advance or a
        handed-over function is in progress, or with ``yielding`` only ``Occupied``.
        """
        with self._lock:
            inside = _handed_over.get() in self._handed
            if not inside and (self._in_another_thread() or self._handed):
                self._waiting += 1
                try:
                    self._wait_until(
                        lambda: self._is_free() and not self._handed,
                        _COURTESY if yielding else _PATIENCE,
                    )
                finally:
                    self._waiting -= 1
                    self._wake()
            if yielding and (not self._is_free() or inside or self._handed):
                raise Occupied
            if not self._is_free() or inside:
                breach = ContractError(
                    "the clock is already being advanced: it cannot be advanced again from inside "
                    "a handler or from a second thread. Let the outer call return first; to make "
                    "an answer take time, give the destination a duration instead"
                )
                if self._turn is not None:
                    self._turn.breach = breach
                raise breach
            if self._handed:
                raise ContractError(
                    f"the clock cannot be moved, because within {_PATIENCE:g} s of real time"
                    f" {counted(len(self._handed), 'attempt')} in the background did not end,"
                    " and their effects belong before the move. Let their destinations answer, or"
                    " end them sooner with a lower attempt_cap="
                )
            self._turn = turn = Turn()
        try:
            yield turn
        finally:
            with self._lock:
                self._turn = None
                self._wake()

    @contextmanager
    def dispatch(self) -> Iterator[bool]:
        """Take the turn for a background delivery; yield False if an advance does not end in time."""
        with self._lock:
            free = self._wait_until(lambda: self._is_free() and not self._waiting)
            if free:
                self._dispatcher = threading.get_ident()
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._dispatcher = None
                    self._wake()

    def hand_over(self, function: Callable[[], object]) -> Callable[[], None]:
        """Return a function that calls ``function`` in any thread. Advances wait until it returns."""
        with self._lock:
            # An object of its own: the same function can be handed over twice.
            handed = object()
            self._handed |= {handed}

        def run() -> None:
            token = _handed_over.set(handed)
            try:
                function()
            finally:
                _handed_over.reset(token)
                with self._lock:
                    self._handed -= {handed}
                    self._wake()

        return run

    def _is_free(self) -> bool:
        return self._turn is None and self._dispatcher is None

    def _in_another_thread(self) -> bool:
        return self._dispatcher not in (None, threading.get_ident())

    def _wait_until(self, free: Callable[[], bool], patience_s: float = _PATIENCE) -> bool:
        if self._changed is None:
            self._changed = threading.Condition(self._lock)
        return self._changed.wait_for(free, patience_s)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.notify_all()
