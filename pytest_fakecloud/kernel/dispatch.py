"""The thread that delivers in the background, as the clock passes."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

from .clock import Clock, Lane

__all__ = ["Dispatcher"]

_LANES: tuple[Lane, ...] = ("background",)
# A running clock follows the process's wall clock, which tools may move without telling anybody.
_LONGEST_NAP = 0.05


class Dispatcher:
    """Fires the timers of lane ``"background"`` when they fall due; starts with the first of them.

    ``report`` takes what a timer raises; without it, it is printed. Either way the next timer fires.
    """

    def __init__(
        self, clock: Clock, report: Callable[[Exception], None] = traceback.print_exception
    ) -> None:
        self._clock = clock
        self._report = report
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._unlisten = clock.on_move(self._look)

    def _look(self) -> None:
        if self._thread is None and not self._stopped:
            if self._clock.next_due_us(_LANES) is None:
                return
            with self._lock:
                if self._thread is None and not self._stopped:
                    self._thread = threading.Thread(
                        target=self._run, name="fakecloud-dispatcher", daemon=True
                    )
                    self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            try:
                self._clock.dispatch(_LANES, lambda: self._stopped)
            except Exception as error:
                # The timer is gone; those behind it must not wait for ever.
                self._report(error)
            due = self._clock.next_due_us(_LANES)
            if due is None:
                self._wake.wait()
            else:
                left = (due - self._clock.now_us()) / 1e6
                self._wake.wait(min(max(left, 0.0), _LONGEST_NAP))

    @property
    def place(self) -> str:
        """Where in its code the thread is at this moment, for who waits for it in vain."""
        thread = self._thread
        frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None
        return "".join(traceback.format_stack(frame)[-3:]) if frame is not None else ""

    def stop(self, timeout: float = 6.0) -> bool:
        """Deliver nothing more and wait for the delivery under way; whether it ended in time."""
        self._stopped = True
        self._wake.set()
        self._unlisten()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()
