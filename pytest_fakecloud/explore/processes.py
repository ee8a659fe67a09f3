"""Pieces of code that run one at a time, and hand on whose turn it is at their calls."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from ..core.errors import ContractError
from ..failures import broken_promise
from .sleeping import Sleeper, await_in_own_loop

if TYPE_CHECKING:
    from .world import Due

__all__ = ["Crash", "Process", "Role", "Turns", "Who"]

Role = Literal["client", "worker", "delivery"]
_STUCK = 20.0
"""Real seconds after which a process that does not come back is given up."""


class Crash(BaseException):
    """Ends a process at a call, as if its machine had lost power; no ``except Exception`` sees it."""


@dataclass(eq=False)
class Process:
    """One piece of code with its place in a run.

    ``points`` counts its calls, ``state`` is ``"new"``, ``"running"``, ``"parked"`` (it has given
    its turn away), ``"asleep"`` until ``wake_us``, or ``"ended"``, with a ``result`` or an ``error``.
    ``ended`` is its place in the order of all ends; ``is_restart`` says that it follows one that
    failed. ``members`` are the consumers it was in groups of the broker.
    """

    name: str
    role: Role
    body: Callable[[], object]
    due: Due | None = None
    state: Literal["new", "running", "parked", "asleep", "ended"] = "new"
    points: int = 0
    wake_us: int = 0
    crashed: bool = False
    starts: int = 1
    is_restart: bool = False
    ended: int = 0
    result: object = None
    error: BaseException | None = None
    members: set[tuple[Any, str, str]] = field(default_factory=set)
    thread: int = 0
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Who(Protocol):
    """Who says whose turn it is."""

    def next_turn(self) -> Process | None:
        """The process that goes on, one that is new or parked; None when all is done."""

    def begins(self, process: Process) -> None:
        """A process begins."""

    def ended(self, process: Process) -> None:
        """A process has ended."""

    def waiting(self) -> list[Process]:
        """The processes that have begun and wait for their turn."""


class Turns:
    """Runs processes, one at a time: those that can in the caller's thread, the others in their own.

    A process that gives its turn away in the middle keeps its thread, so the next one gets another.
    """

    def __init__(self, who: Who, sleeper: Sleeper) -> None:
        self._who = who
        self._sleeper = sleeper
        self._home = threading.Semaphore(0)
        self._home_is_idle = False
        self._done = False
        self._threads: list[threading.Thread] = []
        self.failure: BaseException | None = None
        self.current: Process | None = None
        self._context = contextvars.copy_context()

    def run(self) -> None:
        """Let all processes run until none is left; raises what is not theirs to raise."""
        self._work(home=True)
        for thread in self._threads:
            thread.join(_STUCK)
        if self.failure is not None:
            raise self.failure

    @property
    def here(self) -> bool:
        """Whether this is the thread of the process whose turn it is."""
        current = self.current
        return current is not None and current.thread == threading.get_ident()

    def give_way(self, target: Process | None) -> None:
        """Let another process go on, or whichever is next; returns when it is our turn again."""
        process = self.current
        assert process is not None
        self.current = None
        if target is None:
            target = self._who.next_turn()
        if target is not process:
            if target is None:
                self.fail(ContractError("explore() has lost a process: please report this bug"))
            self._hand_to(target)
            self._wait(process.go, process.name)
        if self._done or self.failure is not None:
            raise Crash
        process.state = "running"
        self.current = process

    # -- inside ----------------------------------------------------------------------------------

    def _hand_to(self, target: Process) -> None:
        if target.state != "new":
            target.go.release()
            return
        context = self._context.copy()
        thread = threading.Thread(
            target=context.run,
            args=(self._begin, target),
            name=f"explore {target.name}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def _begin(self, process: Process) -> None:
        self._perform(process)
        self._work(home=False)

    def _work(self, *, home: bool) -> None:
        """Do what there is to do in this thread, until it belongs to another."""
        while not self._done:
            if not home and self._home_is_idle:
                self._home.release()
                return
            try:
                process = None if self.failure is not None else self._who.next_turn()
            except BaseException as error:
                self.failure, process = error, None
            if process is None:
                self._done = True
                # After a failure those in the middle of something end there.
                for each in self._who.waiting():
                    each.go.release()
                if not home:
                    self._home.release()
                return
            if process.state == "new":
                self._perform(process)
                continue
            process.go.release()
            if not home:
                return
            self._home_is_idle = True
            self._wait(self._home, "what has the turn")
            self._home_is_idle = False

    def fail(self, error: BaseException) -> NoReturn:
        """End everything, since the code cannot be explored; the caller's process ends here."""
        self.failure = error
        raise Crash

    def _wait(self, turn: threading.Semaphore, name: str) -> None:
        if not turn.acquire(timeout=_STUCK):
            current = self.current
            error = ContractError(
                f"{name} has waited {_STUCK:g} real seconds for its turn, which "
                f"{current.name if current else 'another process'} keeps: code that is explored must "
                "not wait for anything but its calls and sleep, such as a lock that another client "
                "of the same process holds"
            )
            self.fail(error)

    def _perform(self, process: Process) -> None:
        process.thread = threading.get_ident()
        process.state = "running"
        self.current = process
        self._who.begins(process)
        try:
            if inspect.iscoroutinefunction(process.body):
                process.result = await_in_own_loop(self._sleeper, process.body)
            else:
                result = process.body()
                if inspect.iscoroutine(result):
                    result = await_in_own_loop(self._sleeper, lambda: _awaited(result))
                process.result = result
        except Crash:
            process.crashed = True
        except ContractError as error:
            self.failure = error
        except Exception as error:
            process.error = error
        except BaseException as error:
            if broken_promise(error) is not None:
                process.error = error
            else:
                self.failure = error
        finally:
            process.state = "ended"
            self.current = None
        try:
            self._who.ended(process)
        except BaseException as error:
            self.failure = error


async def _awaited(value: Any) -> Any:
    return await value
