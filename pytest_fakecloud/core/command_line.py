"""What the subcommands of ``pytest-fakecloud`` share: parser, usage errors, messages and signals."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import NoReturn, TypeAlias

EXIT_USAGE = 2
EXIT_CANNOT_START = 3
_SIGNALS = ("SIGINT", "SIGTERM", "SIGBREAK")


class Usage(Exception):
    """A wrong option, variable or file. The message names it and lists the valid values."""


class Parser(argparse.ArgumentParser):
    """A parser of a command. ``details`` returns a text below the help, and is called only when the
    help is printed. ``missing`` are sentences about subcommands that are not installed, added to
    any error.
    """

    details: Callable[[], str] | None = None
    missing: tuple[str, ...] = ()

    def format_help(self) -> str:
        text = super().format_help()
        return text if self.details is None else f"{text}\n{self.details()}\n"

    def error(self, message: str) -> NoReturn:
        """Print the usage and an error, and exit with code 2."""
        super().error("; ".join((message, *self.missing)))


Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"


def complain(text: str) -> None:
    """Print an error of the command to standard error."""
    print(f"pytest-fakecloud: {text}", file=sys.stderr)


@contextlib.contextmanager
def ended_by_signals(
    take: Callable[[int], object], exit_code: Callable[[int], int], *, within_s: float
) -> Iterator[None]:
    """Pass the first signal to ``take``, and end the process with ``exit_code()`` if the block does
    not end within ``within_s`` real seconds. ``take`` runs inside a signal handler, which may
    interrupt this thread while it holds a lock. A second signal has its default action, which needs
    no Python code.
    """
    signals = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in signals}
    # The handler may interrupt this thread while it holds a lock; put() is reentrant.
    received: SimpleQueue[int | None] = SimpleQueue()

    def fake_first(number: int, frame: object) -> None:
        for handled in signals:
            signal.signal(handled, signal.SIG_DFL)
        received.put(number)
        take(number)

    def watch() -> None:
        number = received.get()
        if number is None:
            return
        with contextlib.suppress(Empty):
            received.get(timeout=within_s)
            return
        # Use os.write and os._exit, because a thread that is stuck may hold a lock of sys.stderr.
        name = signal.Signals(number).name
        text = f"pytest-fakecloud: still busy {within_s:g} s after {name}; exiting anyway\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())
        os._exit(exit_code(number))

    threading.Thread(target=watch, name="fakecloud-end", daemon=True).start()
    for number in signals:
        signal.signal(number, fake_first)
    try:
        yield
    finally:
        received.put(None)
        for number, handler in before.items():
            # After a first signal, the default action stays: a second one ends the process.
            if signal.getsignal(number) is fake_first and handler is not None:
                signal.signal(number, handler)
