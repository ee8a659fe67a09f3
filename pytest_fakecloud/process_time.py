"""Process time that follows a cloud's clock, through time-machine (extra ``time``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .core.clock import Clock
from .core.errors import ContractError

__all__ = ["ProcessTime"]


class ProcessTime:
    """What makes ``time.time()`` and ``datetime.now()`` of this process follow a clock.

    ``start()`` freezes the clock for good, since a process time that follows a clock that follows
    process time has no anchor; the tester moves both with the clock. Raises ``ContractError``
    without time-machine.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._traveller: Any = None
        self._coordinates: Any = None
        self._unlisten: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to steer process time."""
        try:
            import time_machine
        except ModuleNotFoundError as error:
            raise ContractError(
                "process_time=True needs time-machine: pip install 'pytest-fakecloud[time]'"
            ) from error
        self._clock.anchor()
        traveller: Any = time_machine.travel(self._clock.now(), tick=False)
        self._traveller = traveller
        self._coordinates = traveller.start()
        self._unlisten = self._clock.on_move(self._follow)

    def _follow(self) -> None:
        with self._lock:
            if self._coordinates is not None:
                self._coordinates.move_to(self._clock.now(), tick=False)

    def stop(self) -> None:
        """Give process time back."""
        self._unlisten()
        with self._lock:
            if self._traveller is not None:
                self._traveller.stop()
                self._traveller = self._coordinates = None
