"""The list of promises of one ``explore()`` call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...core.errors import ContractError, shown
from .check import takes_argument
from .over_time import Sometimes, StepPromise

if TYPE_CHECKING:
    from ..history import History


class Promises:
    """The checks of one ``explore()`` call: some run at the end of each run, others after every
    step.

    Raises ``ContractError`` for anything other than a function or a list of functions.
    """

    def __init__(
        self, given: Callable[..., object] | Sequence[Callable[..., object]] | None
    ) -> None:
        several = [] if given is None else [given] if callable(given) else given
        if isinstance(several, str) or not isinstance(several, Sequence):
            raise ContractError(f"check={shown(given)} is not a function, nor a list of functions")
        self._all = list(several)
        for each in self._all:
            if not callable(each):
                raise ContractError(f"check={shown(each)} is not a function")
        self.steps = [each.at_step for each in self._all if isinstance(each, StepPromise)]
        self._sometimes = [each for each in self._all if isinstance(each, Sometimes)]
        for promise in self._sometimes:
            promise.was_reached = False
        self.reads_history = any(map(_takes_history, self._all))

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def check(self) -> Callable[..., object] | None:
        """A function that checks all promises at the end of a run."""
        if len(self._all) <= 1:
            return self._all[0] if self._all else None
        return self._check_all

    def _check_all(self, history: History) -> object:
        __tracebackhide__ = True
        for each in self._all:
            result = each(history) if takes_argument(each) else each()
            if result is False or inspect.iscoroutine(result):
                return result
        return None

    def finish(self) -> None:
        """Check the promises that had to hold at least once in any run."""
        __tracebackhide__ = True
        for promise in self._sometimes:
            if not promise.was_reached:
                raise AssertionError(
                    f"no schedule reached {promise.name}: the code cannot reach it, or the budget "
                    "is too small"
                )


def _takes_history(check: Callable[..., object]) -> bool:
    return check.takes_history if isinstance(check, StepPromise) else takes_argument(check)
