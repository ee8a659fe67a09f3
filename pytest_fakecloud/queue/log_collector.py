"""Collect the exceptions that an application logs during a delivery."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .signature_checks import WATCHER

if TYPE_CHECKING:
    from .attempt_reports import StartedDelivery


class LogCollector(logging.Handler):
    """Collects the exceptions that are logged during deliveries.

    A queue uses one collector for all its deliveries, because creating a logging handler takes
    longer than a delivery.
    """

    def __init__(self) -> None:
        super().__init__()
        self._root = logging.getLogger()
        self._open: dict[int, list[BaseException]] = {}

    @contextmanager
    def collecting(self, started: StartedDelivery) -> Iterator[None]:
        """Collect what happens during one delivery. Deliveries may overlap."""
        with WATCHER.collecting(started.failed_checks):
            self._open[id(started)] = started.logged
            self._root.addHandler(self)
            try:
                yield
            finally:
                del self._open[id(started)]
                if not self._open:
                    self._root.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            for logged in tuple(self._open.values()):
                if error not in logged and len(logged) < 3:
                    logged.append(error)
