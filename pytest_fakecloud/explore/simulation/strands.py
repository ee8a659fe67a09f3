"""Strands of explored code (clients, workers, deliveries, tasks, threads), which run one at a time."""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import asyncio

    from .deliveries import Due

Role = Literal["client", "worker", "delivery", "task", "thread"]
State = Literal["new", "running", "parked", "waiting", "ended"]
Place = Literal["switch", "late", "wake"]
"""The point at which a strand gave up its turn: before a call, before its answer, or before it
wakes up.
"""


class Gate:
    """A binary semaphore that works even while the locks of ``threading`` are replaced.

    The replacement locks use it themselves to let other strands run while they wait.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def release(self) -> None:
        """Release one waiting thread."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def acquire(self, timeout: float = -1) -> bool:
        """Wait for ``release()``; return False if it is not called within ``timeout`` wall-clock
        seconds.
        """
        return self._lock.acquire(True, timeout)


def pause(seconds: float) -> None:
    """Wait for some wall-clock seconds."""
    Gate().acquire(seconds)


class Crash(BaseException):
    """Raised in a strand to end it as if its machine had lost power; ``except Exception`` does not
    catch it.
    """


Why = Literal["", "sleep", "lock", "join", "answer", "wait", "loop", "blocked"]
"""The reason why a strand waits: ``wait`` is a blocking command of a fake, ``loop`` an idle event loop,
and ``blocked`` a lock that ``explore()`` does not control.
"""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The state of a strand before it was stepped over."""

    state: State
    ready: Callable[[], bool] | None
    wake_us: int | None
    why: Why


@dataclass(eq=False)
class Strand:
    """A sequence of steps in a run: a client, worker, delivery, task or thread."""

    name: str
    role: Role
    body: Callable[[], object]
    due: Due | None = None
    parent: Strand | None = None
    """The strand that started this thread, or whose event loop runs this task."""
    title: str = ""
    """The name in messages; the name of a strand with an event loop changes while the loop runs."""
    root: Strand = field(init=False)
    """The client, worker or delivery to which the strand belongs."""
    host: Strand = field(init=False)
    """The strand whose thread runs it: for a task, the strand of its event loop."""
    is_daemon: bool = False

    # The state.
    state: State = "new"
    place: Place = "switch"
    points: int = 0
    """Number of calls and gaps of pipelines so far."""
    crashed: bool = False
    result: object = None
    error: BaseException | None = None

    # The conditions under which a parked or waiting strand can run.
    ready: Callable[[], bool] | None = None
    wake_us: int | None = None
    why: Why = ""
    held_until_us: int = 0
    """The end of a pause that the schedule contains; the strand cannot run before."""
    yields_to_others: bool = False
    """Whether every other strand that can run comes first, after a pause of all strands."""
    parked_at: int = 0
    """Number of times that strands had parked when this strand parked."""
    is_stepped_over: bool = False
    """Whether other strands run although this strand is blocked in its turn."""
    real_waits: int = 0
    """Number of waits for threads of the fakes or other processes that are in progress."""

    # The fake time for which events may pause the strand.
    began_us: int = 0
    paused_us: int = 0
    patience_us: int | None = None

    # Starts of workers, and the work that they have seen.
    starts: int = 1
    is_restart: bool = False
    first_call: int = 0
    last_call: int = 0
    members: set[tuple[Any, str, str]] = field(default_factory=set)
    """The consumers of the strand, by broker, group and instance."""

    # The thread that runs the strand, and numbers that make its names the same in every run.
    thread: int = 0
    gate: Gate = field(default_factory=Gate)
    locks_created: int = 0
    urandom_calls: int = 0

    # A strand with an event loop.
    loop: asyncio.AbstractEventLoop | None = None
    main_task: Strand | None = None
    chosen: Strand | None = None
    """The strand that this thread continues when its gate is released: itself, or one of its tasks."""
    is_idle: bool = False
    """Whether the event loop waits, so that its tasks can be chosen."""
    is_settled: bool = False
    """Whether the event loop can read the answers to all of its requests."""

    # A task.
    port: int = 0
    """The local port of the connection whose last call a fake's thread delayed until its turn."""
    turn_future: asyncio.Future[None] | None = None
    """The future that ends when an awaiting task has its turn."""
    granted: bool = False
    """Whether the task has already had the turn for its next call, before it sent the request."""
    turn_is_async: bool = False
    """Whether the task also awaits the turn after its call."""
    inline: bool = False
    """Whether the task waits in the thread of its event loop, instead of awaiting."""
    is_blocking: bool = False
    """Whether the last request of the task blocks its event loop."""

    def __post_init__(self) -> None:
        self.root = self if self.parent is None else self.parent.root
        self.title = self.title or self.name
        if self.role == "task":
            assert self.parent is not None
            self.host = self.parent
        else:
            self.host = self

    @contextlib.contextmanager
    def waits_for_real(self) -> Iterator[None]:
        """Allow the block to wait for a thread of the fakes or for another process."""
        self.host.real_waits += 1
        try:
            yield
        finally:
            self.host.real_waits -= 1

    def begin_step_over(self) -> _Waiting:
        """Make the strand count as waiting; return the state to which it may return."""
        before = _Waiting(self.state, self.ready, self.wake_us, self.why)
        self.is_stepped_over = True
        self.state, self.ready, self.wake_us, self.why = "waiting", None, None, "blocked"
        return before

    def end_step_over(self, before: _Waiting) -> None:
        """Return to the state before ``begin_step_over()``."""
        self.is_stepped_over = False
        self.state, self.ready = before.state, before.ready
        self.wake_us, self.why = before.wake_us, before.why
