"""Functions that undo changes, called even if some of them raise or a signal interrupts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec

P = ParamSpec("P")


def call_all(functions: Iterable[Callable[[], object]]) -> None:
    """Call all functions even if some raise, then raise the first exception."""
    first: BaseException | None = None
    for function in functions:
        try:
            function()
        except BaseException as error:
            if first is None:
                first = error
    if first is not None:
        raise first


class Exits:
    """Functions that close what was opened or undo what was changed, the latest first.

    Like ``contextlib.ExitStack``, except that an interruption loses no function. A handler of a
    signal (Ctrl+C, pytest-timeout) can raise an exception where any function written in Python
    begins, also in one that a ``finally`` calls. ``ExitStack.close()`` removes a function before it
    calls it, so an interrupted function would never be called again, and a lock or a patch of the
    process would stay. Here a function stays registered until it has returned, and ``close()`` calls
    it again if it raises. So there are three rules for a function:

    - Register it before its change is made, and let it do nothing for what has not begun.
    - Let it be one that can be repeated, also after an exception at any place in it. ``Once`` is for
      one that cannot, such as a test's own.
    - If it ends a part of something, register it in the exits of the whole, even if the part has exits
      itself. If an interruption comes where ``close()`` of the part begins, nothing has been called.
    """

    def __init__(self) -> None:
        self._functions: dict[Callable[[], object], None] = {}
        """The functions that have not returned yet, in the order in which they were registered."""

    def __len__(self) -> int:
        """Return the number of functions that have not returned yet."""
        return len(self._functions)

    def register(self, *functions: Callable[[], object]) -> None:
        """Register functions to be called before all functions so far, the last one first."""
        self._functions.update(dict.fromkeys(map(partial, functions)))

    def callback(
        self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> Callable[[], None]:
        """Register a function to be called with these arguments, before all functions so far. Return one
        that calls it earlier. A function that is registered twice is called twice.
        """
        registered = partial(function, *args, **kwargs)
        self._functions[registered] = None
        return partial(self._call, registered)

    def close(self) -> None:
        """Call the functions even if some raise, call these again, then raise the first exception, or an
        interruption of the second round. Any exception can be an interruption: a signal's handler may
        raise an ordinary one, such as ``TimeoutError``.
        """
        try:
            self._call_all()
        except BaseException:
            try:  # noqa: SIM105 - suppress() is written in Python, so it can be interrupted.
                self._call_all()
            except Exception:
                pass  # It has raised before.
            raise

    def _call_all(self) -> None:
        first: BaseException | None = None
        for function in reversed([*self._functions]):
            # A function can close the exits itself, and another thread can close them at the same time.
            if function not in self._functions:
                continue
            try:
                function()
                self._functions.pop(function, None)
            except BaseException as error:
                if first is None:
                    first = error
        if first is not None:
            raise first

    def _call(self, function: Callable[[], object]) -> None:
        if function in self._functions:
            function()
            self._functions.pop(function, None)


class Once:
    """A function that exits must not repeat, also if it raises. An interruption before it begins can
    lose it.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._has_begun = False

    def __call__(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._function()


@contextmanager
def exiting() -> Iterator[Exits]:
    """Return new exits for a with-block, which are closed at its end, also if a signal interrupts it."""
    # Not a class with __exit__(): if a signal's handler raises an exception before that method has
    # begun, nothing would call it again. A generator is closed when nothing refers to it.
    exits = Exits()
    try:
        yield exits
    finally:
        try:
            exits.close()
        finally:
            # An interruption may have come where the first call began.
            exits.close()
