"""Promises that are checked after every step, or until a time limit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.errors import ContractError, shown
from ...core.timeparse import Duration, duration_us, to_datetime
from .check import Check, Predicate, count_of

if TYPE_CHECKING:
    from ..history import History


class StepPromise(ABC):
    """A promise that is checked after every step and at the end."""

    takes_history = True

    @abstractmethod
    def at_step(self, history: History) -> None:
        """Raise ``AssertionError`` if the promise does not hold after this step."""

    def __call__(self, history: History) -> None:
        __tracebackhide__ = True
        self.at_step(history)


class _PredicatePromise(StepPromise):
    def __init__(self, function: Callable[..., object], promise: str) -> None:
        self._predicate = Predicate(function, promise)
        self._promise = promise
        self.takes_history = self._predicate.takes_history
        self.name = self._predicate.name


class _Always(_PredicatePromise):
    def __init__(self, function: Callable[..., object], promise: str, wanted: bool) -> None:
        super().__init__(function, promise)
        self._wanted = wanted

    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        value = self._predicate.value(history)
        if value is None:
            return  # a predicate that returns None contains assertions
        if bool(value) is not self._wanted:
            raise AssertionError(f"{self._promise}: {self.name} returned {shown(value)}")


class _AtMostOne(_PredicatePromise):
    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        value = self._predicate.value(history)
        count = count_of(value)
        if count is None:
            raise ContractError(
                f"at_most_one(): {self.name} returned {shown(value)}, which is not a count: return a "
                "number, a collection, or None for no item"
            )
        if count > 1:
            raise AssertionError(f"at most one: {self.name} returned {shown(value)}")


class Sometimes(_PredicatePromise):
    """A promise that holds if its predicate is true after any step of any schedule."""

    was_reached = False

    def at_step(self, history: History) -> None:
        if not self.was_reached and self._predicate.value(history):
            self.was_reached = True


def always(predicate: Callable[..., object]) -> Check:
    """Check after every step of every schedule that a predicate is true.

    The predicate takes no argument or the ``History``. It returns a boolean, or None if it contains
    assertions itself. Its own reads of the fakes are not steps.
    """
    return _Always(predicate, "always", True)


def never(predicate: Callable[..., object]) -> Check:
    """Check after every step of every schedule that a predicate does not hold."""
    return _Always(predicate, "never", False)


def at_most_one(found: Callable[..., object]) -> Check:
    """Check after every step that a function returns at most one item, or a number of at most one.

    None counts as no item, as for a key that does not exist.
    """
    return _AtMostOne(found, "at_most_one")


def sometimes(predicate: Callable[..., object]) -> Check:
    """Check that a predicate is true after at least one step of at least one schedule.

    Use it with other promises, to detect that the code never reaches the state that they are about.
    """
    return Sometimes(predicate, "sometimes")


def eventually(predicate: Callable[..., object], *, within: Duration) -> Check:
    """Check that a predicate is true at the end of a run, or becomes true within a time limit.

    The clock advances by up to ``within``, timer by timer, and queues deliver their messages on the
    way.
    """
    condition = Predicate(predicate, "eventually")
    span = duration_us(within)

    def check(history: History) -> None:
        __tracebackhide__ = True
        clock = history.cloud.clock
        end = clock.now_us() + span
        while not condition.value(history):
            due = clock._timers.next_due_us()
            now = clock.now_us()
            if now >= end:
                raise AssertionError(f"eventually: {condition.name} did not hold within {within}")
            clock.move_to(to_datetime(min(end, max(due if due is not None else end, now + 1))))

    return check
