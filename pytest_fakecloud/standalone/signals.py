"""Signals of commands: the first ends a command within a time limit, the second immediately."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

STOP_SECONDS = 1.5
"""Maximum real seconds that a command may take to end after a signal."""
_SIGNALS = ("SIGINT", "SIGTERM", "SIGBREAK")


@contextlib.contextmanager
def ended_by_signals(
    take: Callable[[int], object], exit_code: Callable[[int], int]
) -> Iterator[None]:
    """Pass the first signal to ``take``, and end the process if the block does not end in time.

    ``take`` runs inside a signal handler, which may interrupt this thread while it holds a lock.
    ``exit_code`` returns the exit code of a process that is ended this way. A second signal ends
    the process by the signal's default action, which does not need to run Python code.
    """
    signals = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in signals}
    # The handler may interrupt this thread while it holds a lock; put() is reentrant.
    received: SimpleQueue[int | None] = SimpleQueue()

    def handle_first(number: int, frame: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        received.put(number)
        take(number)

    def watch() -> None:
        number = received.get()
        if number is None:
            return
        with contextlib.suppress(Empty):
            received.get(timeout=STOP_SECONDS)
            return
        # Use os.write and os._exit, because a thread that is stuck may hold a lock of sys.stderr.
        name = signal.Signals(number).name
        text = f"pytest-fakecloud: still busy {STOP_SECONDS:g} s after {name}; exiting anyway\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())
        os._exit(exit_code(number))

    threading.Thread(target=watch, name="fakecloud end", daemon=True).start()
    for number in signals:
        signal.signal(number, handle_first)
    try:
        yield
    finally:
        received.put(None)
        for number, handler in before.items():
            # After a first signal, the default action stays: a second one ends the process.
            if signal.getsignal(number) is handle_first and handler is not None:
                signal.signal(number, handler)
