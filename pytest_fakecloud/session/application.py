"""Observation of the requests that the application under test serves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..reporting.applications import Listener, Served

_FRAMEWORKS = ("flask", "django.core.signals", "starlette.testclient", "httpx")
"""Modules of frameworks whose requests are observed (see ``reporting.applications``)."""


class ApplicationObserver:
    """Records the requests that the application serves, if its framework announces them."""

    def __init__(self) -> None:
        self._listener: Listener | None = None

    def observe(self, cloud: AnyCloud) -> None:
        """Record the requests of the test that uses a cloud, if a framework is loaded."""
        if sys.modules.keys().isdisjoint(_FRAMEWORKS):
            return
        if self._listener is None:
            from ..reporting.applications import Listener

            self._listener = Listener()
        self._listener.listen(cloud)

    def pause(self) -> None:
        """Record no requests until the next test."""
        if self._listener is not None:
            self._listener.listen(None)

    def served(self, cloud: AnyCloud) -> list[Served]:
        """Return the requests served during the test that used a cloud."""
        listener = self._listener
        return list(listener.served) if listener is not None and listener.cloud is cloud else []

    def close(self) -> None:
        """Stop observing."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
