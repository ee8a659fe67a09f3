"""What open clouds change in their process, and give back: proxies, clients' cost, shortcuts."""

from __future__ import annotations

import threading

from . import client_cost, environment

__all__ = ["Changes", "changes"]


class Changes:
    """The changes that clouds of the same settings ask for; ``close()`` is for each of them."""

    def __init__(self, shares_tls_context: bool, in_process: bool) -> None:
        self._shares_tls_context = shares_tls_context
        self._in_process = in_process
        self._users = 0

    def refresh(self) -> None:
        """Make them anew where something else in the process has undone or evaded them."""
        environment.refresh()
        if self._shares_tls_context:
            client_cost.refresh()
        if self._in_process:
            from .inprocess import origins

            origins.refresh()

    def enter(self) -> None:
        """One more asks."""
        with _lock:
            self._users += 1
            if self._users > 1:
                return
            environment.enter()
            if self._shares_tls_context:
                client_cost.enter()
            if self._in_process:
                from .inprocess import origins

                origins.enter()

    def close(self) -> None:
        """One asks no more; the last one gives everything back."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            if self._in_process:
                from .inprocess import origins

                origins.leave()
            if self._shares_tls_context:
                client_cost.leave()
            environment.leave()


_lock = threading.Lock()
_all = {
    (shares, in_process): Changes(shares, in_process)
    for shares in (False, True)
    for in_process in (False, True)
}


def changes(*, shares_tls_context: bool, in_process: bool) -> Changes:
    """Ask for the changes of these settings, a cloud's own, until ``close()``."""
    found = _all[shares_tls_context, in_process]
    found.enter()
    return found
