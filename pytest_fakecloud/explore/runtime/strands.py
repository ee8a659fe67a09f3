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


@dataclass(eq=False)
class Strand:
    """A sequence of steps in a run: a client, worker, delivery, task or thread.

    ``points`` counts its calls. ``state`` is ``"new"``, ``"running"``, ``"parked"`` at a ``place``,
    ``"waiting"`` until ``wake_us`` or until ``ready()`` is true, or ``"ended"`` with a ``result``
    or an ``error``. ``root`` is the client, worker or delivery to which it belongs. ``host`` is the
    strand whose thread runs it; for a task, the strand of its event loop. ``paused_us`` is the fake
    time for which events have paused it, at most ``patience_us``. ``port`` is the local port of the
    connection whose last call a fake's thread delayed until the strand's turn. ``is_settled`` is
    true for a strand whose event loop can read the answers to all of its requests, ``is_blocking``
    for a task whose last request blocks its event loop.
    """

    name: str
    role: Role
    body: Callable[[], object]
    due: Due | None = None
    parent: Strand | None = None
    state: Literal["new", "running", "parked", "waiting", "ended"] = "new"
    place: Place = "switch"
    points: int = 0
    wake_us: int | None = None
    ready: Callable[[], bool] | None = None
    why: str = ""
    held_until_us: int = 0
    yields_to_others: bool = False
    began_us: int = 0
    paused_us: int = 0
    patience_us: int | None = None
    parked_at: int = 0
    crashed: bool = False
    starts: int = 1
    is_restart: bool = False
    is_daemon: bool = False
    first_call: int = 0
    last_call: int = 0
    result: object = None
    error: BaseException | None = None
    members: set[tuple[Any, str, str]] = field(default_factory=set)
    thread: int = 0
    port: int = 0
    is_stepped_over: bool = False
    real_waits: int = 0
    locks_created: int = 0
    urandom_calls: int = 0
    gate: Gate = field(default_factory=Gate)
    host: Strand = field(init=False)
    root: Strand = field(init=False)
    loop: asyncio.AbstractEventLoop | None = None
    chosen: Strand | None = None
    turn_future: asyncio.Future[None] | None = None
    granted: bool = False
    turn_is_async: bool = False
    inline: bool = False
    is_idle: bool = False
    is_settled: bool = False
    is_blocking: bool = False
    main_task: Strand | None = None
    title: str = ""

    def __post_init__(self) -> None:
        self.root = self if self.parent is None else self.parent.root
        self.title = self.name
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

    @property
    def root_has_crashed(self) -> bool:
        """Return whether a crash has ended its root."""
        return self.root.crashed
