"""Collects the exceptions that are logged, and the signature checks that fail, during a delivery."""

from __future__ import annotations

import logging

from .signature_checks import Refusal, Refusals


class LogCollector:
    """Collects the exceptions that are logged during deliveries.

    A queue uses one collector for all its deliveries, because creating a logging handler takes
    longer than a delivery.
    """

    def __init__(self) -> None:
        self._root = logging.getLogger()
        self._handler = logging.Handler()
        self._handler.addFilter(self._collect)
        self._open: dict[int, list[BaseException]] = {}

    def listen(self, logged: list[BaseException]) -> None:
        """Start to add logged exceptions to a list."""
        self._open[id(logged)] = logged
        self._root.addHandler(self._handler)

    def leave(self, logged: list[BaseException]) -> None:
        """Stop adding logged exceptions to a list."""
        del self._open[id(logged)]
        if not self._open:
            self._root.removeHandler(self._handler)

    def _collect(self, record: logging.LogRecord) -> bool:
        """Collect the exception of a log record, and suppress the record."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            for logged in tuple(self._open.values()):
                if error not in logged and len(logged) < 3:
                    logged.append(error)
        return False


class DeliveryLog:
    """Context manager that collects what happens during one delivery. Deliveries may overlap.

    ``logged`` are the exceptions that were logged, ``refused`` the signature checks that failed.
    """

    __slots__ = ("_collector", "_refusals", "logged", "refused")

    def __init__(self, collector: LogCollector) -> None:
        self.logged: list[BaseException] = []
        self.refused: list[Refusal] = []
        self._collector = collector
        self._refusals = Refusals(self.refused)

    def __enter__(self) -> None:
        self._refusals.__enter__()
        self._collector.listen(self.logged)

    def __exit__(self, *error: object) -> None:
        self._collector.leave(self.logged)
        self._refusals.__exit__(*error)
