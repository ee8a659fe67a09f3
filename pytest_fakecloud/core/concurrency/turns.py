"""Mutual exclusion of clock advances and background deliveries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import ContractError
from ..wording import counted

_PATIENCE = 10.0  # real seconds that an advance and a delivery wait for each other
_YIELDING_PATIENCE = 0.01  # real seconds that a yielding advance waits for a delivery
_current_job: ContextVar[object] = ContextVar("current_job", default=None)
"""The handed-over function that this thread or task is running, as an object of ``Turns._jobs``."""


class Occupied(Exception):
    """Raised when another thread is advancing this clock and does not finish in time."""


class Turn:
    """An advance in progress. ``breach`` is the error of an advance attempted during this one."""

    breach: ContractError | None = None


class Turns:
    """Lets one thread at a time move a clock: by an advance, or by a background delivery.

    An advance waits for a background delivery, and for the functions that a delivery has handed
    over to other threads. If a second advance begins during the first, both raise an error.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._turn: Turn | None = None
        self._dispatcher: int | None = None
        """The ID of the thread that makes a background delivery."""
        self._jobs: frozenset[object] = frozenset()
        """One object for each handed-over function that has not returned."""
        self._waiting = 0
        """The number of advances that wait for background deliveries."""

    @property
    def moving(self) -> bool:
        return self._turn is not None

    @contextmanager
    def move(self, yielding: bool = False) -> Iterator[Turn]:
        """Take the turn for an advance, or raise ``ContractError`` (``Occupied`` if yielding)."""
        with self._lock:
            inside = _current_job.get() in self._jobs
            in_another_thread = self._dispatcher not in (None, threading.get_ident())
            if not inside and (in_another_thread or self._jobs):
                self._waiting += 1
                try:
                    self._changed.wait_for(
                        lambda: self._is_free() and not self._jobs,
                        _YIELDING_PATIENCE if yielding else _PATIENCE,
                    )
                finally:
                    self._waiting -= 1
                    self._changed.notify_all()
            if not self._is_free() or self._jobs:
                raise Occupied if yielding else self._refusal(inside)
            self._turn = turn = Turn()
        try:
            yield turn
        finally:
            with self._lock:
                self._turn = None
                self._changed.notify_all()

    def _refusal(self, inside: bool) -> ContractError:
        """Return the error of an advance that cannot begin, which also fails one in progress."""
        if self._is_free() and not inside:
            return ContractError(
                f"the clock cannot be moved, because within {_PATIENCE:g} s of real time"
                f" {counted(len(self._jobs), 'attempt')} in the background did not end,"
                " and their effects belong before the move. Let their destinations answer, or"
                " end them sooner with a lower attempt_cap="
            )
        breach = ContractError(
            "the clock is already being advanced: it cannot be advanced again from inside "
            "a handler or from a second thread. Let the outer call return first; to make "
            "an answer take time, give the destination a duration instead"
        )
        if self._turn is not None:
            self._turn.breach = breach
        return breach

    @contextmanager
    def dispatch(self) -> Iterator[bool]:
        """Take the turn for a background delivery; yield False if an advance does not end in time."""
        with self._lock:
            free = self._changed.wait_for(lambda: self._is_free() and not self._waiting, _PATIENCE)
            if free:
                self._dispatcher = threading.get_ident()
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._dispatcher = None
                    self._changed.notify_all()

    def hand_over(self, function: Callable[[], object]) -> Callable[[], None]:
        """Return a function that calls ``function`` in any thread. Advances wait until it returns."""
        with self._lock:
            # An object of its own: the same function can be handed over twice.
            job = object()
            self._jobs |= {job}

        def run() -> None:
            _current_job.set(job)  # not reset, because a job that has returned is not in ``_jobs``
            try:
                function()
            finally:
                with self._lock:
                    self._jobs -= {job}
                    self._changed.notify_all()

        return run

    def _is_free(self) -> bool:
        return self._turn is None and self._dispatcher is None
