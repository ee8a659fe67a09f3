"""What an open cloud changes in its process, and gives back: proxies, clients' cost, shortcuts."""

from __future__ import annotations

from . import client_cost, environment

__all__ = ["Changes"]


class Changes:
    """The changes one cloud asks for, from construction to ``close()``.

    Several may be open at once; the last one out gives everything back. ``shares_tls_context`` and
    ``in_process`` are the cloud's settings.
    """

    def __init__(self, *, shares_tls_context: bool, in_process: bool) -> None:
        self._shares_tls_context = shares_tls_context
        self._in_process = in_process
        self._open = True
        environment.enter()
        if shares_tls_context:
            client_cost.enter()
        if in_process:
            from .inprocess import origins

            origins.enter()

    def refresh(self) -> None:
        """Reach libraries imported since, and those another tool has put back."""
        if self._shares_tls_context:
            client_cost.refresh()
        if self._in_process:
            from .inprocess import origins

            origins.refresh()

    def close(self) -> None:
        """Ask no more; any number of calls."""
        if not self._open:
            return
        self._open = False
        if self._in_process:
            from .inprocess import origins

            origins.leave()
        if self._shares_tls_context:
            client_cost.leave()
        environment.leave()
