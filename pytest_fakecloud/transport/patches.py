"""Changes the process while clouds are open: NO_PROXY, client libraries, in-process requests."""

from __future__ import annotations

import threading
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from . import client_cost, environment

if TYPE_CHECKING:
    from .inprocess import Origins


class Changes:
    """The changes for all clouds with the same settings, with a count of the open clouds."""

    def __init__(self, shares_tls_context: bool, in_process: bool) -> None:
        self._shares_tls_context = shares_tls_context
        self._in_process = in_process
        self._users = 0

    @cached_property
    def _parts(self) -> list[ModuleType | Origins]:
        parts: list[ModuleType | Origins] = [environment]
        if self._shares_tls_context:
            parts.append(client_cost)
        if self._in_process:
            from .inprocess import origins

            parts.append(origins)
        return parts

    def refresh(self) -> None:
        """Redo the changes that other code has undone."""
        for part in self._parts:
            part.refresh()

    def enter(self) -> None:
        """Add a cloud. The first cloud applies the changes."""
        with _lock:
            self._users += 1
            if self._users == 1:
                for part in self._parts:
                    part.enter()

    def close(self) -> None:
        """Remove a cloud. The last cloud undoes the changes."""
        with _lock:
            self._users -= 1
            if not self._users:
                for part in reversed(self._parts):
                    part.leave()


_lock = threading.Lock()
_all = {
    (shares, in_process): Changes(shares, in_process)
    for shares in (False, True)
    for in_process in (False, True)
}


def changes(*, shares_tls_context: bool, in_process: bool) -> Changes:
    """Apply the changes for a cloud with these settings; call ``close()`` to undo them."""
    found = _all[shares_tls_context, in_process]
    found.enter()
    return found
