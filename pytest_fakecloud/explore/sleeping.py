"""Sleep that moves the cloud's clock instead of taking time, in code that is explored."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Protocol, TypeVar

__all__ = ["Sleeper", "await_in_own_loop", "sleeps_follow"]

T = TypeVar("T")
_SOON = 0.005
"""Real seconds in which sockets and threads of a loop may show that they have something."""


class Sleeper(Protocol):
    """Who decides what sleeping means."""

    def now_us(self) -> int:
        """The present instant on the cloud's clock."""

    def sleep(self, seconds: float) -> bool:
        """Sleep on the cloud's clock; False for a thread that is not explored."""

    def pass_time(self, seconds: float) -> bool:
        """The same in a loop that is not a process of its own, where nobody else can have a turn."""


@contextlib.contextmanager
def sleeps_follow(sleeper: Sleeper) -> Iterator[None]:
    """Let ``time.sleep`` and ``asyncio.sleep`` follow the sleeper within the block.

    Modules that have imported the functions by name get the others' too. All give them back, those
    that were imported within the block as well.
    """
    real, real_async = time.sleep, asyncio.sleep

    def sleep(seconds: float, /) -> None:
        if isinstance(seconds, int | float) and seconds >= 0 and sleeper.sleep(seconds):
            return
        real(seconds)

    async def sleep_async(delay: float, result: Any = None) -> Any:
        if isinstance(asyncio.get_running_loop(), OwnLoop) or not sleeper.pass_time(delay):
            return await real_async(delay, result)
        return await real_async(0, result)

    modules = list(sys.modules.values())
    _exchange(modules, (real, sleep), (real_async, sleep_async))
    try:
        yield
    finally:
        # Of the modules from before, one or another may be forgotten by now.
        _exchange([*modules, *sys.modules.values()], (sleep, real), (sleep_async, real_async))


def _exchange(modules: Iterable[object], *pairs: tuple[object, object]) -> None:
    """Put the second of each pair where modules have the first as their ``sleep``."""
    for module in modules:
        names = getattr(module, "__dict__", {})
        for before, after in pairs:
            if names.get("sleep") is before:
                names["sleep"] = after
                break


class _Selector(selectors.DefaultSelector):
    """Waits for what is real, and otherwise lets the cloud's clock pass."""

    loop: OwnLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout is None or timeout <= 0:
            return ready or super().select(timeout)
        # Beside the loop's own pipe: a socket, or a thread that will write into the pipe.
        if len(self.get_map()) > 1 or self.loop.has_threads():
            ready = super().select(_SOON)
            if ready:
                return ready
        if not self.loop.sleeper.sleep(timeout):
            return super().select(timeout)
        return []


class OwnLoop(asyncio.SelectorEventLoop):
    """The event loop of one asynchronous process; its time is the cloud's."""

    def __init__(self, sleeper: Sleeper) -> None:
        self.sleeper = sleeper
        # Small numbers, in which a float tells microseconds apart.
        self._began_us = sleeper.now_us()
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return (self.sleeper.now_us() - self._began_us) / 1e6

    def has_threads(self) -> bool:
        """Whether something may be under way in threads of the loop."""
        return getattr(self, "_default_executor", None) is not None


def await_in_own_loop(sleeper: Sleeper, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await what the function returns, in a loop whose time is the cloud's."""
    with asyncio.Runner(loop_factory=lambda: OwnLoop(sleeper)) as runner:
        return runner.run(function())
