"""Makes the process's time follow a cloud's clock (extra ``time``), and lets sleeps move the clock."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..core.errors import ContractError
from ..core.timekeeper import Timekeeper
from .wall import Wall

if TYPE_CHECKING:
    from .sleepers import Sleepers

__all__ = ["AUTOJUMP", "ProcessTime", "ProcessTimeMode"]

ProcessTimeMode: TypeAlias = bool | Literal["autojump"]
"""True: the process's time follows the clock. ``"autojump"``: in addition, sleeps move the clock."""
AUTOJUMP: Literal["autojump"] = "autojump"
_lock = threading.Lock()
_sleeping: list[ProcessTime] = []
"""The instance that controls the sleeps of this process, if any."""


class ProcessTime:
    """Makes ``time.time()`` and ``datetime.now()`` of this process follow a clock.

    The clock is frozen between ``start()`` and ``stop()``, because it cannot follow the process's
    time at the same time. Both change only when the clock is moved or, with ``autojump``, when the
    process sleeps (see ``sleepers``). Raises ``ContractError`` without time-machine, or if the
    sleeps of this process already move another cloud's clock.
    """

    def __init__(self, clock: Timekeeper, mode: ProcessTimeMode = True) -> None:
        self._clock = clock
        self._autojump = mode == AUTOJUMP
        self._ends = ExitStack()
        self._sleepers: Sleepers | None = None
        self.wall = Wall(clock)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        if self._autojump and not self._claim():
            return
        with ExitStack() as ends:
            ends.callback(self._release)
            ends.callback(self._clock.anchor())
            self.wall.start()
            ends.callback(self.wall.stop)
            if self._autojump:
                from .replacements import Patches
                from .sleepers import Sleepers

                self._sleepers = Sleepers(self._clock)
                ends.callback(self._sleepers.stop)
                patches = Patches(self._sleepers)
                ends.callback(patches.stop)
                patches.start()
            self._ends = ends.pop_all()

    def _claim(self) -> bool:
        """Take control of the sleeps of this process; return False if they already move this clock."""
        with _lock:
            if _sleeping and _sleeping[0]._clock is self._clock:
                return False
            if _sleeping:
                raise ContractError(
                    "the sleeps of this process already move the clock of another cloud, and they "
                    "can move only one: end its autojump first"
                )
            _sleeping.append(self)
            return True

    def _release(self) -> None:
        with _lock:
            if self in _sleeping:
                _sleeping.remove(self)

    def stop(self) -> None:
        """Stop controlling the process's time. A clock that ran before continues from its time.

        Raises the exception of a handler that failed while the clock moved to a loop's timeout.
        """
        self._ends.close()
        sleepers, self._sleepers = self._sleepers, None
        if sleepers is not None and sleepers.failure is not None:
            raise sleepers.failure
