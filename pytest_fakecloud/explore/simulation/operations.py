"""The operations and the outcomes of a trial, and the promises that check them after every step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...core.errors import broken_by_check
from ...core.touches import ALL, Touch
from ..values.history import Operation, TrialHistory
from ..values.schedule import Schedule, add_schedule
from .part import Common, Part
from .strand import Strand


class Operations(Part):
    """Records the calls of observed functions, the clients, and how each strand has ended: the history,
    with which it checks the promises after each step.
    """

    def __init__(self, common: Common) -> None:
        super().__init__(common)
        self._observed: list[Operation] = []
        self._clients: list[Operation] = []
        """The lists of the history, which only checks read there."""
        self._by_client: dict[Strand, Operation] = {}
        self._positions: Iterator[int] = itertools.count()
        self.history = TrialHistory(
            self._fakes.cloud,
            str(self._script.schedule),
            self._observed,
            self._clients,
            inputs=self._script.subject.inputs,
        )

    def begin(
        self, client: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Operation:
        self._touch(writes=False)
        return Operation(client, name, args, kwargs, next(self._positions))

    def end(self, operation: Operation, result: object) -> None:
        self._touch(writes=True)
        operation.ended, operation.result = next(self._positions), result

    def _touch(self, *, writes: bool) -> None:
        reads_ends = writes and self._script.subject.promises.reads_ends
        if reads_ends or self._script.learned.reads_order:
            self._access_log.touch([Touch("", "history", ALL, writes)])

    @contextmanager
    def observing(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[Callable[[object], None]]:
        """Record a call of an observed function."""
        strand = self._current_thread.strand() or self._turns.holder
        client = strand.root.name if strand is not None else ""
        operation = self.begin(client, name, args, kwargs)
        self._observed.append(operation)
        try:
            yield partial(self.end, operation)
        except BaseException as error:
            operation.error = error
            raise

    def begin_client(self, strand: Strand) -> None:
        """Record the start of a client as that of an operation."""
        operation = self.begin(strand.name, strand.name, (), {})
        self._by_client[strand] = operation
        self._clients.append(operation)

    def store(self, strand: Strand) -> None:
        history, error = self.history, strand.error
        if strand.crashed and strand.root is strand:
            history.crashed.append(strand.name)
        has_returned = error is None and not strand.crashed
        if strand.type in ("client", "worker") and has_returned:
            history.results[strand.name] = strand.result
        if strand.type != "delivery" and error is not None:
            history.errors[strand.name] = error
        operation = self._by_client.get(strand)
        if operation is not None:
            operation.error = error
            if has_returned:
                self.end(operation, strand.result)
            else:
                self._touch(writes=True)

    def sort_outcomes(self) -> None:
        """Sort the outcomes by client, because checks must not see in which order clients have ended."""
        self._sort_by_client(self.history.results)
        self._sort_by_client(self.history.errors)

    def _sort_by_client(self, outcomes: dict[str, Any]) -> None:
        """Sort a dict by its keys: the clients and workers in their order, then other strands."""
        programs = [program.name for program in self._script.subject.programs]
        places = {name: place for place, name in enumerate(programs)}
        names = sorted(outcomes, key=lambda name: (places.get(name, len(places)), name))
        in_order = {name: outcomes[name] for name in names}
        outcomes.clear()
        outcomes.update(in_order)

    def check_promises(self) -> None:
        """Call each promise that is checked after a step, while no strand runs. Record the error of one
        that is broken, and raise any other.
        """
        if not self._script.subject.promises.at_step or self._log.broken is not None:
            return
        # The clients of a promise have the old tokens, as those of the code do.
        with self._current_thread.checking_promise(), self._fakes.lasting_events.old_tokens():
            for promise in self._script.subject.promises.at_step:
                try:
                    promise(self.history)
                except BaseException as error:
                    broken = broken_by_check(error, is_disturbed=bool(self._log.applied))
                    if broken is not None:
                        self._log.broken = broken
                        self._log.add_line("the promise", "breaks here").breaks = True
                        return
                    add_schedule(error, "during", Schedule(self._log.applied))
                    raise
