"""Handles of fakes on a stand-alone server, which are instances of the local handle classes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.errors import ContractError
from ..services import find, handle_class
from .remote_objects import Connection, cannot_set, member
from .wire import surface_of

if TYPE_CHECKING:
    from ..handle import Handle

_LOCAL = frozenset({"client", "async_client"})
"""Methods of a remote handle that run in this process, with data from the server."""
_IN_PROCESS_ONLY = {
    "intercept": "requests of this process cannot be redirected by another process",
    "between": "a function cannot be sent to another process",
    "on_close": "a function cannot be sent to another process",
}


class _RemoteHandle:
    """Mixin for handle classes that forwards attribute access to the fake on the server."""

    _connection: Connection
    _remote_name: str
    _handle_class: ClassVar[type[Handle]]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in _LOCAL or name in ("service", "fixture", "closed"):
            return object.__getattribute__(self, name)
        if name in _IN_PROCESS_ONLY:
            raise ContractError(
                f"{name} does not work over a stand-alone server: {_IN_PROCESS_ONLY[name]}. "
                "Use fakes in the test's own process for it"
            )
        if name == "name":
            return self._remote_name
        if name == "close":
            return self._close
        _, surface = surface_of(type(self)._handle_class)
        return member(self._connection, self._remote_name, surface, name, self)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name != "closed":
            raise cannot_set(self, name)
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _RemoteHandle):
            return self._identity() == other._identity()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str]:
        return self._connection.url, self._remote_name

    def __repr__(self) -> str:
        shown = type(self)._handle_class.__name__
        return f"<{shown} {self._remote_name} at {self._connection.url}>"

    def _close(self) -> None:
        if not object.__getattribute__(self, "closed"):
            object.__setattr__(self, "closed", True)
            # The fake may already be closed by another client or by a restart of the server.
            if any(one["name"] == self._remote_name for one in self._connection.state()["handles"]):
                self._connection.call(self._remote_name, "close")


@cache
def _remote_class(original: type[Handle]) -> type:
    """Return a subclass of a handle class whose instances are remote, so that isinstance() works."""
    return type(original.__name__, (_RemoteHandle, original), {"_handle_class": original})


def remote_handle(connection: Connection, fixture: str, name: str) -> Handle:
    """Return a handle of a fake on the server, as an instance of the fixture's handle class."""
    # The __init__ of a handle class would start a fake in this process.
    made = _remote_class(handle_class(find(fixture)))  # type: ignore[arg-type]
    handle: Any = object.__new__(made)
    handle._connection = connection
    handle._remote_name = name
    handle._exits = connection.exits
    handle.closed = False
    return handle  # type: ignore[no-any-return]
