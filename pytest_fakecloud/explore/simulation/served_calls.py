"""The calls that threads handle at the moment, and for which strands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from .current_thread import CurrentThread
from .strand import Strand


class ServedCalls:
    """The strand whose call each thread handles: its own thread, or one of the fakes."""

    def __init__(self, current_thread: CurrentThread) -> None:
        self._current_thread = current_thread
        self._by_thread: dict[int, Strand] = {}

    @contextlib.contextmanager
    def serving(self, strand: Strand) -> Iterator[None]:
        """Handle a call of a strand in the block."""
        me = threading.get_ident()
        self._by_thread[me] = strand
        try:
            yield
        finally:
            self._by_thread.pop(me, None)

    def is_served(self, strand: Strand) -> bool:
        """Return whether any thread handles a call of a strand."""
        return strand in self._by_thread.values()

    def served_here(self) -> Strand | None:
        """Return the strand whose call this thread handles."""
        is_checking = self._current_thread.is_checking_promise()
        return None if is_checking else self._by_thread.get(threading.get_ident())

    def executing(self) -> Strand | None:
        """Return the strand whose command this thread executes, in a call or by itself."""
        thread = self._current_thread
        return None if thread.has_ended() else self.served_here() or thread.registered_strand()
