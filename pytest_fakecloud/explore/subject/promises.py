"""Promises that ``explore()`` checks: after every step, at the end of a trial, or against a model."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence, Sized
from itertools import takewhile
from types import FunctionType
from typing import Any, cast

from ...cloud.base import context_of
from ...cloud.fake import Fake, core_of
from ...core.errors import ContractError, brief, shown
from ...core.field_types import positional_parameters
from ...core.frames import code_place
from ...core.recorder import Look
from ...core.timers import Duration, duration_us, to_datetime
from ..values.history import History, Operation
from .programs import check_has_run

Check = Callable[[History], None]


def expect(is_valid: bool, promise: str, kind: str, argument: object) -> None:
    """Raise ``ContractError`` for an invalid argument of a promise."""
    if not is_valid:
        raise ContractError(f"{promise}() expects {kind}, got {shown(argument)}")


def _takes_argument(function: Callable[..., object]) -> bool:
    return any(
        parameter.kind is not parameter.VAR_POSITIONAL and parameter.default is parameter.empty
        for parameter in positional_parameters(function)
    )


class Predicate:
    """A function that a promise calls, with the history if it takes an argument."""

    def __init__(self, function: Callable[..., object], promise: str) -> None:
        expect(callable(function), promise, "a function", function)
        self._function = function
        self.promise = promise
        self.takes_history = _takes_argument(function)
        name = getattr(function, "__name__", "")
        self.name = name if name.isidentifier() else "the predicate"
        self._look_before: Look | None = None
        """The test's last look at data before the function was called."""

    def value(self, history: History) -> object:
        """Call the function; add a note to any exception but a failed assertion.

        Raises ``ContractError`` for a coroutine or a generator, which would count as true.
        """
        __tracebackhide__ = True
        looks = context_of(history.cloud).recorder.shared.looks
        self._look_before = looks[-1] if looks else None
        try:
            value = self._function(history) if self.takes_history else self._function()
        except AssertionError:
            raise
        except Exception as error:
            error.add_note(
                f"raised by {self.name}, the predicate of {self.promise}(). A predicate must not "
                "fail in any schedule: read from the fakes, such as kv_server.value('key'), instead "
                "of through a client"
            )
            raise
        check_has_run(value, f"{self.promise}(): {self.name}", "without async and yield")
        return value

    def looks(self, history: History) -> list[Look]:
        """Return the looks at data of the last call."""
        newest_first = reversed(context_of(history.cloud).recorder.shared.looks)
        return [*takewhile(lambda look: look is not self._look_before, newest_first)][::-1]

    def verdict(self, history: History) -> object:
        """Call the function; return its value, whose truth is meant."""
        __tracebackhide__ = True
        value = self.value(history)
        _check_verdict(value, f"{self.promise}(): {self.name}")
        return value


def _check_verdict(value: object, subject: str) -> None:
    """Raise ``ContractError`` for a value that is true whatever it contains: a tuple or a function."""
    if callable(value) or isinstance(value, tuple):
        raise ContractError(
            f"{subject} returned {brief(value)}, which always counts as true: return True or False"
        )


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


class StepPromise:
    """A promise that is checked after every step and at the end.

    ``at_step()`` raises ``AssertionError`` if the promise does not hold after this step.
    """

    def __init__(self, at_step: Check, *, takes_history: bool = True) -> None:
        self.at_step = at_step
        self.takes_history = takes_history

    def __call__(self, history: History) -> None:
        __tracebackhide__ = True
        self.at_step(history)


class _Sometimes(StepPromise):
    """A promise that holds if its predicate is true after any step of any schedule."""

    def __init__(self, predicate: Predicate) -> None:
        super().__init__(self._look, takes_history=predicate.takes_history)
        self.predicate = predicate
        self.was_reached = False

    def _look(self, history: History) -> None:
        if not self.was_reached and self.predicate.verdict(history):
            self.was_reached = True


def always(predicate: Callable[..., object]) -> Check:
    """Check after every step of every schedule that a predicate is true.

    The predicate takes no argument or the ``History``. It returns a boolean, or None if it contains
    assertions itself. Its own reads of the fakes are not steps.
    """
    return _at_each_step(Predicate(predicate, "always"), True)


def never(predicate: Callable[..., object]) -> Check:
    """Check after every step of every schedule that a predicate does not hold."""
    return _at_each_step(Predicate(predicate, "never"), False)


def _at_each_step(predicate: Predicate, expected: bool) -> StepPromise:
    def at_step(history: History) -> None:
        __tracebackhide__ = True
        value = predicate.verdict(history)
        # A predicate that returns None contains assertions.
        if value is not None and bool(value) is not expected:
            text = f"{predicate.promise}: {predicate.name} returned {shown(value)}"
            raise _broken(text, predicate.looks(history))

    return StepPromise(at_step, takes_history=predicate.takes_history)


def at_most_one(items: Callable[..., object]) -> Check:
    """Check after every step that a function returns at most one item, or a number of at most one.

    None counts as no item, as for a key that does not exist.
    """
    predicate = Predicate(items, "at_most_one")

    def at_step(history: History) -> None:
        __tracebackhide__ = True
        value = predicate.value(history)
        count = count_of(value)
        if count is None:
            raise ContractError(
                f"at_most_one(): {predicate.name} returned {shown(value)}, which is not a count: "
                "return a number, a collection, or None for no item"
            )
        if count > 1:
            text = f"at most one: {predicate.name} returned {shown(value)}"
            raise _broken(text, predicate.looks(history))

    return StepPromise(at_step, takes_history=predicate.takes_history)


def sometimes(predicate: Callable[..., object]) -> Check:
    """Check that a predicate is true after at least one step of at least one schedule.

    Use it with other promises, to detect that the code never reaches the state that they are about.
    """
    return _Sometimes(Predicate(predicate, "sometimes"))


def eventually(predicate: Callable[..., object], *, within: Duration) -> Check:
    """Check that a predicate is true at the end of a trial, or becomes true within a time limit.

    The clock advances by up to ``within``, timer by timer, and queues deliver their messages.
    """
    condition = Predicate(predicate, "eventually")
    span = duration_us(within)

    def check(history: History) -> None:
        __tracebackhide__ = True
        clock = context_of(history.cloud).timekeeper
        end = clock.now_us() + span
        while not condition.verdict(history):
            due, now = clock.next_due_us(), clock.now_us()
            if now >= end:
                text = f"eventually: {condition.name} did not hold within {within}"
                raise _broken(text, condition.looks(history))
            target = end if due is None else min(end, max(due, now + 1))
            clock.move_to(to_datetime(target))

    return check


class Promises:
    """The checks of one ``explore()`` call, at the end of each trial and some also after every step."""

    def __init__(
        self, checks: Callable[..., object] | Sequence[Callable[..., object]] | None
    ) -> None:
        several = [] if checks is None else [checks] if callable(checks) else checks
        if isinstance(several, str) or not isinstance(several, Sequence):
            raise ContractError(f"check={shown(checks)} is not a function, nor a list of functions")
        self.checks = list(several)
        """The checks as the caller passed them."""
        for check in self.checks:
            if not callable(check):
                raise ContractError(f"check={shown(check)} is not a function")
        self.at_end = [_with_history(check) for check in self.checks]
        self.at_step = [check.at_step for check in self.checks if isinstance(check, StepPromise)]
        self._sometimes = [check for check in self.checks if isinstance(check, _Sometimes)]
        for promise in self._sometimes:
            promise.was_reached = False
        self.reads_ends = any(
            check.takes_history for check in self.checks if isinstance(check, StepPromise)
        )
        """Whether a promise can read after a step which clients have ended."""

    def reached(self) -> int:
        """Return the number of the promises that had to hold at least once and did."""
        return sum(promise.was_reached for promise in self._sometimes)

    def finish(self) -> None:
        """Check the promises that had to hold at least once in any trial."""
        __tracebackhide__ = True
        for promise in self._sometimes:
            if not promise.was_reached:
                name = promise.predicate.name
                raise AssertionError(
                    f"no schedule reached {name}: the code cannot reach it, or the budget is too small"
                )


def _with_history(check: Callable[..., object]) -> Callable[[History], object]:
    if _takes_argument(check):
        return check

    def without_history(_: History) -> object:
        __tracebackhide__ = True
        return check()

    return without_history


def once(key: str) -> Check:
    """Check that an effect that is recorded under a key happened exactly once.

    The key holds a counter, or a list, set, hash, sorted set, stream or array with one element for
    each effect. If a client gave up or a message became a dead letter, no effect is also correct; more
    than one never is.
    """
    expect(isinstance(key, str), "once", "the name of a key", key)

    def check(history: History) -> None:
        __tracebackhide__ = True
        servers = [fake for fake in history.cloud.fakes() if fake.fixture == "kv_server"]
        if not servers:
            raise ContractError("once() checks a key, but no key-value server is open")
        looks = [_look(server, "value", key) for server in servers]
        times = sum(_effects(key, cast("Any", server).value(key)) for server in servers)
        if times > 1:
            raise _broken(f"{key} counts {times} effects instead of one", looks)
        queues = (cast("Any", fake) for fake in history.cloud.fakes() if fake.fixture == "queue")
        gave_up = history.errors or history.crashed or any(queue.dead_letters() for queue in queues)
        if times == 0 and not gave_up:
            raise _broken(f"{key} counts no effect, although no client gave up", looks)

    return check


def _look(fake: Fake, method: str, name: str) -> Look:
    """Return the look of a promise at the data of a fake."""
    return core_of(fake).recorder.look(method, code_place(sys._getframe(1)), ((name,), {}))


def _broken(text: str, looks: Sequence[Look]) -> AssertionError:
    """Return the error of a broken promise, with its looks at data for the report of the test."""
    error = AssertionError(text)
    vars(error)["_fakecloud_looks"] = tuple(looks)
    return error


def _effects(key: str, value: object) -> float:
    count = count_of(value)
    if count is None:
        raise ContractError(
            f"once({key!r}): the key holds {shown(value)}, which is not a count: pass a key that "
            "holds a number or a collection"
        )
    return count


def nothing_lost(
    sent: str | Callable[[], Iterable[object]], handled: Callable[[], Iterable[object]]
) -> Check:
    """Check that everything that was sent was handled at least once.

    ``sent`` is a topic of the broker, whose record values are then compared, or a function that
    returns what was sent. ``handled`` is a function that returns what was handled. Equal values
    count as one, because a client may repeat a request: include an ID in each value.
    """
    if not isinstance(sent, str) and not callable(sent):
        raise ContractError(f"sent={shown(sent)} is neither the name of a topic nor a function")
    if not callable(handled):
        raise ContractError(
            f"handled={shown(handled)} is not a function: pass one that returns a list"
        )

    def check(history: History) -> None:
        __tracebackhide__ = True
        came = list(handled())
        all_sent = _sent(history, sent)
        lost = [value for value in all_sent if value not in came]
        if lost:
            text = f"lost: {', '.join(map(shown, lost))}"
            if came and len(lost) == len(all_sent):
                # They may be the same things in two forms, such as JSON and an ID.
                handled_values = ", ".join(map(shown, came[:3]))
                text += f". None of it is equal to what was handled: {handled_values}"
            looks: list[Look] = []
            if isinstance(sent, str):
                looks = [_look(broker, "records", sent) for broker in _brokers(history, sent)]
            raise _broken(text, looks)

    return check


def _sent(history: History, sent: str | Callable[[], Iterable[object]]) -> list[object]:
    if not isinstance(sent, str):
        return list(sent())
    brokers = _brokers(history, sent)
    if not brokers:
        raise ContractError(f"no broker has the topic {sent!r}: create it, or pass a function")
    return [record.value for broker in brokers for record in broker.records(sent)]


def _brokers(history: History, topic: str) -> list[Any]:
    """Return the brokers that have a topic."""
    brokers = [cast("Any", fake) for fake in history.cloud.fakes() if fake.fixture == "broker"]
    return [broker for broker in brokers if topic in (view.name for view in broker.topics())]


def monotonic_reads(name: str) -> Check:
    """Check that no client reads a smaller value after a greater one.

    ``name`` is the name of a function marked with ``observed``, whose results can be compared. None
    is less than any other result.
    """
    expect(isinstance(name, str), "monotonic_reads", "the name of an operation", name)

    def check(history: History) -> None:
        __tracebackhide__ = True
        reads = [
            operation
            for operation in history.operations
            if operation.name == name and operation.ended is not None
        ]
        latest: dict[str, Any] = {}
        for read in sorted(reads, key=lambda read: read.ended or 0):
            before, now = latest.get(read.client), cast("Any", read.result)
            if before is not None and (now is None or now < before):
                raise AssertionError(
                    f"{read.client} read {shown(before)}, and later the smaller {shown(now)}"
                )
            latest[read.client] = now

    return check


def linearizable(
    model: Callable[[], Any], *, final: Callable[[Any], object] | None = None
) -> Check:
    """Check that one order of the operations explains all their results.

    ``model`` returns an object whose methods are the operations, such as the class ``Counter``. The
    operations are the calls of functions marked with ``observed`` or, if there are none, the
    clients themselves, by name. The order must respect time: an operation that began after another
    one ended comes after it. An operation that raised an exception may or may not have taken
    effect. ``final`` is called with the model at the end of an order and returns whether the fakes
    hold the same data. Raises ``ContractError`` for an operation that the model does not have.
    """
    if not callable(model):
        raise ContractError(
            f"model={shown(model)} is not a class: pass one that needs no arguments"
        )

    def check(history: History) -> None:
        __tracebackhide__ = True
        operations = history.operations or history.clients
        _check_names(operations, model)
        if not _explained(operations, model, final):
            listing = "\n".join(f"  {operation!r}" for operation in operations)
            end = " and the fakes' data" if final is not None else ""
            raise AssertionError(
                f"no order of these operations explains their results{end}:\n{listing}"
            )

    return check


def follows(model: Callable[[], Any]) -> Check:
    """Check each result against a model, at the step at which it is returned.

    ``model`` returns an object whose methods are the operations, such as the class ``Counter``. The
    operations are the calls of functions marked with ``observed``. Concurrent operations may have
    taken effect in either order, as with ``linearizable``. The failure is reported at the first
    result that no order explains. Raises ``ContractError`` for an operation without a method.
    """
    expect(callable(model), "follows", "a class that needs no arguments", model)
    checked: tuple[object, int] = None, 0  # the history, and the number of its results

    def at_step(history: History) -> None:
        __tracebackhide__ = True
        nonlocal checked
        operations = history.operations
        ended = sum(operation.ended is not None for operation in operations)
        if not ended or (checked[0] is history and checked[1] == ended):
            return
        _check_names(operations, model)
        if not _explained(operations, model, None):
            latest = max(operations, key=lambda operation: operation.ended or -1)
            others = ", ".join(repr(other) for other in operations if other is not latest)
            raise AssertionError(
                f"the result differs from the model's: {latest!r}, after {others or 'nothing'}"
            )
        checked = history, ended

    return StepPromise(at_step)


def _check_names(operations: Sequence[Operation], model: Callable[[], Any]) -> None:
    sample = model()
    for operation in operations:
        if not callable(getattr(sample, operation.name, None)):
            raise ContractError(
                f"{shown(model)} has no method {operation.name}, which a client has called"
            )


def _explained(
    operations: Sequence[Operation], model: Callable[[], Any], final: Callable[[Any], object] | None
) -> bool:
    """Return whether some order explains the results of the operations (Wing and Gong 1993)."""
    ended = (operation.ended is not None for operation in operations)
    must = frozenset(index for index, has_ended in enumerate(ended) if has_ended)
    seen: set[tuple[frozenset[int], object]] = set()
    todo: list[tuple[frozenset[int], Any]] = [(frozenset(), model())]
    while todo:
        done, state = todo.pop()
        if must <= done and (final is None or _agrees(final, state)):
            return True
        key = done, _frozen(state)
        if key in seen:
            continue
        seen.add(key)
        ends = (operations[index].ended or 0 for index in must - done)
        first_end = min(ends, default=None)
        for index, operation in enumerate(operations):
            if index in done or (first_end is not None and operation.began > first_end):
                continue
            after = copy.deepcopy(state)
            try:
                result = getattr(after, operation.name)(*operation.args, **operation.kwargs)
            except Exception:
                continue  # the operation is impossible in this state
            if operation.ended is None or result == operation.result:
                todo.append((done | {index}, after))
    return False


def _agrees(final: Callable[[Any], object], state: object) -> bool:
    result = final(state)
    check_has_run(result, "final=")
    _check_verdict(result, "final=")
    return bool(result)


class _Pickler(pickle.Pickler):
    """Pickles classes and functions by identity, because ``deepcopy()`` does not copy them."""

    def persistent_id(self, value: object) -> int | None:
        return id(value) if isinstance(value, type | FunctionType) else None


def _frozen(state: object) -> object:
    """Return a value that only copies of an equal state share, or an object that none share."""
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(state)
    except Exception:
        return object()
    return stream.getvalue()
