"""Find the lifespan of an ASGI application that other code runs, such as a test client.

The ASGI protocol offers no way to find it. While a lifespan runs, however, a coroutine of the
application is suspended in a task of an event loop and has a scope of type "lifespan". Importing
this module imports asyncio.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from types import CellType, CoroutineType, FrameType, FunctionType
from typing import Any

from .applications import AsgiApp
from .loop_hosts import Host, running_hosts


@dataclass(frozen=True)
class RunningLifespan:
    """A lifespan run by other code: the application, its coroutine, its state and its event loop.

    The reference to the application ensures that no other application gets the same ``id()``.
    """

    app: AsgiApp
    coroutine: CoroutineType[Any, Any, Any]
    state: Mapping[str, Any]
    host: Host

    @property
    def is_running(self) -> bool:
        return self.coroutine.cr_frame is not None


def find_running_lifespan(app: AsgiApp) -> RunningLifespan | None:
    for host in running_hosts():
        for coroutine in host.coroutines():
            while isinstance(coroutine, CoroutineType):
                frame = coroutine.cr_frame
                if frame is not None and _is_call(app, frame):
                    scope = _lifespan_scope(frame)
                    if scope is not None:
                        return RunningLifespan(app, coroutine, scope.get("state") or {}, host)
                coroutine = coroutine.cr_await
    return None


def _is_call(app: Any, frame: FrameType) -> bool:
    """Return whether a frame calls an application: a function, a method or a callable object."""
    function, owner = getattr(app, "__func__", app), getattr(app, "__self__", None)
    if not isinstance(function, FunctionType):
        function, owner = type(app).__call__, app
    if frame.f_code is not getattr(function, "__code__", None):
        return False
    inside = frame.f_locals
    if owner is not None and inside.get(frame.f_code.co_varnames[0]) is not owner:
        return False
    # Compare closure variables, in which applications created by the same function differ.
    cells = zip(frame.f_code.co_freevars, function.__closure__ or (), strict=False)
    return all(inside.get(name) is _content(cell) for name, cell in cells)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _lifespan_scope(frame: FrameType) -> Mapping[str, Any] | None:
    scopes = (value for value in list(frame.f_locals.values()) if isinstance(value, MutableMapping))
    return next((scope for scope in scopes if scope.get("type") == "lifespan"), None)
