"""The lifespans of ASGI applications: those that are run here, and those that run elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from types import CellType, CoroutineType, FrameType, FunctionType
from typing import Any, TypeAlias

__all__ = ["AsgiApp", "Elsewhere", "Event", "Lifespan", "lifespan_elsewhere"]

Event: TypeAlias = MutableMapping[str, Any]
AsgiApp: TypeAlias = Callable[..., Awaitable[None]]


class Lifespan:
    """A lifespan that is run here, in the running loop; ``state`` is the application's."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self.state: dict[str, Any] = {}
        self._startup = asyncio.Event()
        self._shutdown = asyncio.Event()
        self._done = asyncio.Event()
        self._told = False
        self._error: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def started(self) -> Mapping[str, Any]:
        """Wait for the start and return the state; raises ``RuntimeError`` when it failed."""
        await self._startup.wait()
        if self._error is not None:
            raise self._error
        return self.state

    async def stop(self) -> None:
        """End it and wait for its end."""
        self._shutdown.set()
        await self._done.wait()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        try:
            await self.app(scope, self._receive, self._send)
        except Exception:
            # By the protocol an application without lifespan support raises here.
            pass
        finally:
            self._startup.set()
            self._done.set()

    async def _receive(self) -> Event:
        if not self._told:
            self._told = True
            return {"type": "lifespan.startup"}
        await self._shutdown.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, event: Event) -> None:
        if event["type"] == "lifespan.startup.failed":
            text = event.get("message") or "no reason given"
            self._error = RuntimeError(f"the application's lifespan did not start: {text}")
        if event["type"].startswith("lifespan.startup"):
            self._startup.set()
        else:
            self._done.set()


@dataclass(frozen=True)
class Elsewhere:
    """A lifespan that somebody else runs: the application's coroutine, its state and its loop."""

    coroutine: CoroutineType[Any, Any, Any]
    state: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self.coroutine.cr_frame is not None


def lifespan_elsewhere(app: AsgiApp) -> Elsewhere | None:
    """Return the lifespan of an application that runs right now in a loop of asyncio, or None.

    The protocol does not tell. But as long as a lifespan runs, the application's own coroutine is
    suspended in a task, called with a scope of type "lifespan".
    """
    for loop in _running_loops():
        for task in asyncio.all_tasks(loop):
            coroutine: object = task.get_coro()
            while isinstance(coroutine, CoroutineType):
                frame = coroutine.cr_frame
                scope = None if frame is None else _lifespan_scope(app, frame)
                if scope is not None:
                    return Elsewhere(coroutine, scope.get("state") or {}, loop)
                coroutine = coroutine.cr_await
    return None


def _running_loops() -> set[asyncio.AbstractEventLoop]:
    """Return the loops that run in the threads of this process, as their stacks show."""
    found: set[asyncio.AbstractEventLoop] = set()
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code.co_name in ("run", "run_until_complete", "run_forever"):
                for value in list(frame.f_locals.values()):
                    if isinstance(value, asyncio.AbstractEventLoop):
                        found.add(value)
                    elif isinstance(value, asyncio.Task):
                        # A loop that is not written in Python has no frame of its own.
                        found.add(value.get_loop())
            frame = frame.f_back
    return found


def _lifespan_scope(app: Any, frame: FrameType) -> Mapping[str, Any] | None:
    """Return the scope when a frame is the application's call for its lifespan."""
    function = getattr(app, "__func__", app)
    code = getattr(function, "__code__", None) or getattr(type(app).__call__, "__code__", None)
    if frame.f_code is not code:
        return None
    inside = frame.f_locals
    owner = getattr(app, "__self__", None if function.__class__ is FunctionType else app)
    names = code.co_varnames
    if owner is not None and inside.get(names[0]) is not owner:
        return None
    # Applications that one function made have their code in common, but not what it is about.
    about = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False)
    if any(inside.get(name) is not _content(cell) for name, cell in about):
        return None
    for value in list(inside.values()):
        if isinstance(value, MutableMapping) and value.get("type") == "lifespan":
            return value
    return None


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None
