"""Promises that are checked after every step or until a time limit, and all promises of one search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Sized

from ...core.conditions import has_not_run, positional_parameters
from ...core.errors import ContractError, shown
from ...core.timeparse import Duration, duration_us, to_datetime
from ...core.wording import brief
from ..run import History

Check = Callable[[History], None]


def expect(is_valid: bool, promise: str, kind: str, given: object) -> None:
    """Raise ``ContractError`` for an invalid argument of a promise."""
    if not is_valid:
        raise ContractError(f"{promise}() expects {kind}, got {shown(given)}")


def _takes_argument(function: Callable[..., object]) -> bool:
    """Return whether a check takes the history."""
    return any(
        each.kind is not each.VAR_POSITIONAL and each.default is each.empty
        for each in positional_parameters(function)
    )


class Predicate:
    """A function that a promise calls, with the history if it takes an argument.

    Raises ``ContractError`` for anything other than a function.
    """

    def __init__(self, function: Callable[..., object], promise: str) -> None:
        expect(callable(function), promise, "a function", function)
        self._function = function
        self._promise = promise
        self.takes_history = _takes_argument(function)
        name = getattr(function, "__name__", "")
        self.name = name if name.isidentifier() else "the predicate"

    def value(self, history: History) -> object:
        """Call the function; add a note to any exception but a failed assertion.

        Raises ``ContractError`` for a coroutine or a generator, which would count as true.
        """
        __tracebackhide__ = True
        try:
            value = self._function(history) if self.takes_history else self._function()
        except AssertionError:
            raise
        except Exception as error:
            error.add_note(
                f"raised by {self.name}, the predicate of {self._promise}(). A predicate must not "
                "fail in any schedule: read from the fakes, such as kv_server.value('key'), instead "
                "of through a client"
            )
            raise
        if has_not_run(value):
            raise ContractError(
                f"{self._promise}(): {self.name} returned {brief(value)}, whose code has not run: "
                "pass a function without async and yield"
            )
        return value


def count_of(value: object) -> float | None:
    """Return a number, or the size of a collection; None for any other value."""
    if value is None:
        return 0
    if isinstance(value, int | float):
        return value
    if isinstance(value, str | bytes):
        try:
            return int(value)
        except ValueError:
            return None
    return len(value) if isinstance(value, Sized) else None


class StepPromise(ABC):
    """A promise that is checked after every step and at the end."""

    takes_history = True

    @abstractmethod
    def at_step(self, history: History) -> None:
        """Raise ``AssertionError`` if the promise does not hold after this step."""

    def __call__(self, history: History) -> None:
        __tracebackhide__ = True
        self.at_step(history)


class _Always(Predicate, StepPromise):
    def __init__(self, function: Callable[..., object], promise: str, wanted: bool) -> None:
        super().__init__(function, promise)
        self._wanted = wanted

    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        value = self.value(history)
        if value is None:
            return  # a predicate that returns None contains assertions
        if bool(value) is not self._wanted:
            raise AssertionError(f"{self._promise}: {self.name} returned {shown(value)}")


class _AtMostOne(Predicate, StepPromise):
    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        value = self.value(history)
        count = count_of(value)
        if count is None:
            raise ContractError(
                f"at_most_one(): {self.name} returned {shown(value)}, which is not a count: return a "
                "number, a collection, or None for no item"
            )
        if count > 1:
            raise AssertionError(f"at most one: {self.name} returned {shown(value)}")


class _Sometimes(Predicate, StepPromise):
    """A promise that holds if its predicate is true after any step of any schedule."""

    was_reached = False

    def at_step(self, history: History) -> None:
        if not self.was_reached and self.value(history):
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
    return _Sometimes(predicate, "sometimes")


def eventually(predicate: Callable[..., object], *, within: Duration) -> Check:
    """Check that a predicate is true at the end of a run, or becomes true within a time limit.

    The clock advances by up to ``within``, timer by timer, and queues deliver their messages.
    """
    condition = Predicate(predicate, "eventually")
    span = duration_us(within)

    def check(history: History) -> None:
        __tracebackhide__ = True
        clock = history.cloud._time
        end = clock.now_us() + span
        while not condition.value(history):
            due, now = clock.next_due_us(), clock.now_us()
            if now >= end:
                raise AssertionError(f"eventually: {condition.name} did not hold within {within}")
            target = end if due is None else min(end, max(due, now + 1))
            clock.move_to(to_datetime(target))

    return check


class Promises:
    """The checks of one ``explore()`` call, at the end of each run and some also after every step.

    Raises ``ContractError`` for anything other than a function or a list of functions.
    """

    def __init__(
        self, given: Callable[..., object] | Sequence[Callable[..., object]] | None
    ) -> None:
        several = [] if given is None else [given] if callable(given) else given
        if isinstance(several, str) or not isinstance(several, Sequence):
            raise ContractError(f"check={shown(given)} is not a function, nor a list of functions")
        self.given = list(several)
        """The checks as the caller passed them."""
        for each in self.given:
            if not callable(each):
                raise ContractError(f"check={shown(each)} is not a function")
        self.at_end = [_with_history(each) for each in self.given]
        self.at_step = [each.at_step for each in self.given if isinstance(each, StepPromise)]
        self._sometimes = [each for each in self.given if isinstance(each, _Sometimes)]
        for promise in self._sometimes:
            promise.was_reached = False
        self.reads_history = any(
            each.takes_history if isinstance(each, StepPromise) else _takes_argument(each)
            for each in self.given
        )

    def finish(self) -> None:
        """Check the promises that had to hold at least once in any run."""
        __tracebackhide__ = True
        for promise in self._sometimes:
            if not promise.was_reached:
                raise AssertionError(
                    f"no schedule reached {promise.name}: the code cannot reach it, or the budget "
                    "is too small"
                )


def _with_history(check: Callable[..., object]) -> Callable[[History], object]:
    if _takes_argument(check):
        return check

    def without_history(_: History) -> object:
        __tracebackhide__ = True
        return check()

    return without_history
