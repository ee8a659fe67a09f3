"""The conditions that ``explore()`` checks, such as linearizability, effects that happen once, and
invariants.
"""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from ..core.errors import ContractError, shown
from ..core.timeparse import Duration, duration_us, to_datetime
from .simulation.state import simulation

if TYPE_CHECKING:
    from .history import History, Operation

P = ParamSpec("P")
T = TypeVar("T")
Check = Callable[["History"], None]


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
        self.steps = [each.at_step for each in self._all if isinstance(each, _OverTime)]
        self._sometimes = [each for each in self._all if isinstance(each, _Sometimes)]
        for promise in self._sometimes:
            promise.was_reached = False
        self.reads_history = any(
            each._takes if isinstance(each, _OverTime) else takes_argument(each)
            for each in self._all
        )

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


def takes_argument(function: Callable[..., object]) -> bool:
    """Return whether a check takes the history."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in parameters
    )


class _OverTime:
    """A promise that is checked after every step and at the end."""

    def __init__(self, predicate: Callable[..., object], name: str) -> None:
        if not callable(predicate):
            raise ContractError(f"{name}() expects a function, got {shown(predicate)}")
        self._predicate = predicate
        self._word = name
        self._takes = takes_argument(predicate)
        inner = getattr(predicate, "__name__", "")
        self.name = inner if inner.isidentifier() else "the predicate"

    def _value(self, history: History) -> object:
        __tracebackhide__ = True
        try:
            return self._predicate(history) if self._takes else self._predicate()
        except AssertionError:
            raise
        except Exception as error:
            error.add_note(
                f"raised by {self.name}, the predicate of {self._word}(). A predicate must not fail "
                "in any schedule: read from the fakes, such as kv_server.value('key'), instead of "
                "through a client"
            )
            raise

    def at_step(self, history: History) -> None:
        """Check the promise in the middle of a run."""

    def __call__(self, history: History) -> None:
        __tracebackhide__ = True
        self.at_step(history)


class _Always(_OverTime):
    def __init__(self, predicate: Callable[..., object], name: str, wanted: bool) -> None:
        super().__init__(predicate, name)
        self._wanted = wanted

    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        found = self._value(history)
        if found is None:
            return  # a predicate that returns None contains assertions
        if bool(found) is not self._wanted:
            raise AssertionError(f"{self._word}: {self.name} returned {shown(found)}")


class _AtMostOne(_OverTime):
    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        found = self._value(history)
        count = _count_of(found)
        if count is None:
            raise ContractError(
                f"at_most_one(): {self.name} returned {shown(found)}, which is not a count: return a "
                "number, a collection, or None for no item"
            )
        if count > 1:
            raise AssertionError(f"at most one: {self.name} returned {shown(found)}")


class _Follows(_OverTime):
    """A promise that each result equals a model's result."""

    def __init__(self, model: Callable[[], Any]) -> None:
        super().__init__(model, "follows")
        self._model = model
        self._takes = True
        self._history: object = None
        self._seen = 0

    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        operations = history.operations
        ended = sum(each.ended is not None for each in operations)
        if not ended or (self._history is history and self._seen == ended):
            return
        _check_names(operations, self._model)
        if not _explained(operations, self._model, None):
            latest = max(operations, key=lambda each: each.ended or -1)
            raise AssertionError(
                f"the result differs from the model's: {latest!r}, after "
                f"{', '.join(repr(each) for each in operations if each is not latest) or 'nothing'}"
            )
        self._history, self._seen = history, ended


class _Sometimes(_OverTime):
    was_reached = False

    def at_step(self, history: History) -> None:
        if not self.was_reached and self._value(history):
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


def follows(model: Callable[[], Any]) -> Check:
    """Check each result against a model, at the step at which it is returned.

    ``model`` returns an object whose methods are the operations, such as the class ``Counter``. The
    operations are the calls of functions marked with ``observed``. Concurrent operations may have
    taken effect in either order, as with ``linearizable``. The failure is reported at the first
    result that no order explains. Raises ``ContractError`` for an operation that the model does not
    have.
    """
    if not callable(model):
        raise ContractError(
            f"follows() expects a class that needs no arguments, got {shown(model)}"
        )
    return _Follows(model)


def sometimes(predicate: Callable[..., object]) -> Check:
    """Check that a predicate is true after at least one step of at least one schedule.

    Use it with other promises, to detect that the code never reaches the state that they are about.
    """
    return _Sometimes(predicate, "sometimes")


def eventually(predicate: Callable[..., object], *, within: Duration) -> Check:
    """Check that a predicate is true at the end of a run, or becomes true within a time limit.

    The clock advances by up to ``within``, timer by timer, and queues deliver their messages on the
    way.
    """
    if not callable(predicate):
        raise ContractError(f"eventually() expects a function, got {shown(predicate)}")
    span = duration_us(within)
    name = getattr(predicate, "__name__", "")
    name = name if name.isidentifier() else "the predicate"
    takes = takes_argument(predicate)

    def check(history: History) -> None:
        __tracebackhide__ = True
        clock = history.cloud.clock
        end = clock.now_us() + span
        while not (predicate(history) if takes else predicate()):
            due = clock._timers.next_due_us()
            now = clock.now_us()
            if now >= end:
                raise AssertionError(f"eventually: {name} did not hold within {within}")
            clock.move_to(to_datetime(min(end, max(due if due is not None else end, now + 1))))

    return check


def observed(function: Callable[P, T]) -> Callable[P, T]:
    """Make ``explore`` record each call of a function: its client, start, end and result.

    The function may be plain or asynchronous. Outside ``explore`` the decorator has no effect. A
    call that raises an exception may or may not have taken effect.
    """
    if not callable(function):
        raise ContractError(f"{shown(function)} is not a function: mark one with @observed")
    name = getattr(function, "__name__", type(function).__name__)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def noted_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            running = simulation.get()
            if running is None:
                return await function(*args, **kwargs)
            noted = running.began(name, args, kwargs)
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                noted.error = error
                raise
            running.finished(noted, result)
            return result

        return cast("Callable[P, T]", noted_async)

    @functools.wraps(function)
    def noted(*args: P.args, **kwargs: P.kwargs) -> T:
        running = simulation.get()
        if running is None:
            return function(*args, **kwargs)
        noted = running.began(name, args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            noted.error = error
            raise
        running.finished(noted, result)
        return result

    return noted


# -- linearizable ----------------------------------------------------------------------------------


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
            listing = "\n".join(f"  {each!r}" for each in operations)
            end = " and the fakes' data" if final is not None else ""
            raise AssertionError(
                f"no order of these operations explains their results{end}:\n{listing}"
            )

    return check


def _check_names(operations: Sequence[Operation], model: Callable[[], Any]) -> None:
    for each in operations:
        if not callable(getattr(model(), each.name, None)):
            raise ContractError(
                f"{shown(model)} has no method {each.name}, which a client has called"
            )


def _explained(
    operations: Sequence[Operation], model: Callable[[], Any], final: Callable[[Any], object] | None
) -> bool:
    """Return whether some order explains the results of the operations (Wing and Gong 1993)."""
    must = frozenset(i for i, each in enumerate(operations) if each.ended is not None)
    seen: set[tuple[frozenset[int], bytes]] = set()
    todo: list[tuple[frozenset[int], Any]] = [(frozenset(), model())]
    while todo:
        done, state = todo.pop()
        if must <= done and (final is None or final(state)):
            return True
        key = done, _frozen(state)
        if key in seen:
            continue
        seen.add(key)
        ends = [operations[i].ended or 0 for i in must - done]
        first_end = min(ends, default=None)
        for index, each in enumerate(operations):
            if index in done or (first_end is not None and each.began > first_end):
                continue
            after = copy.deepcopy(state)
            try:
                result = getattr(after, each.name)(*each.args, **each.kwargs)
            except Exception:
                continue  # the operation is impossible in this state
            if each.ended is None or result == each.result:
                todo.append((done | {index}, after))
    return False


def _frozen(state: object) -> bytes:
    try:
        return pickle.dumps(getattr(state, "__dict__", state))
    except Exception:
        return repr(getattr(state, "__dict__", state)).encode()


# -- invariants ------------------------------------------------------------------------------------


def once(key: str) -> Check:
    """Check that an effect that is recorded under a key happened exactly once.

    The key holds a counter, or a list, set, hash, sorted set or stream with one element for each
    effect. If a client gave up or a message became a dead letter, no effect is also correct; more
    than one never is.
    """
    if not isinstance(key, str):
        raise ContractError(f"once() expects the name of a key, got {shown(key)}")

    def check(history: History) -> None:
        __tracebackhide__ = True
        servers = [h for h in history.cloud.handles if h.fixture == "kv_server"]
        if not servers:
            raise ContractError("once() checks a key, but no key-value server is open")
        times = sum(_effects(key, cast("Any", server).value(key)) for server in servers)
        if times > 1:
            raise AssertionError(f"{key} counts {times} effects instead of one")
        if times == 0 and not _gave_up(history):
            raise AssertionError(f"{key} counts no effect, although no client gave up")

    return check


def _effects(key: str, value: object) -> float:
    count = _count_of(value)
    if count is None:
        raise ContractError(
            f"once({key!r}): the key holds {shown(value)}, which is not a count: pass a key that "
            "holds a number or a collection"
        )
    return count


def _count_of(value: object) -> float | None:
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


def _gave_up(history: History) -> bool:
    queues = (h for h in history.cloud.handles if h.fixture == "queue")
    return bool(
        history.errors
        or history.crashed
        or any(cast("Any", queue).dead_letters() for queue in queues)
    )


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
        lost = [each for each in _sent(history, sent) if each not in came]
        if lost:
            raise AssertionError(f"lost: {', '.join(map(shown, lost))}")

    return check


def _sent(history: History, sent: str | Callable[[], Iterable[object]]) -> list[object]:
    if not isinstance(sent, str):
        return list(sent())
    brokers = [cast("Any", h) for h in history.cloud.handles if h.fixture == "broker"]
    known = [broker for broker in brokers if sent in broker.topics()]
    if not known:
        raise ContractError(f"no broker has the topic {sent!r}: create it, or pass a function")
    return [record.value for broker in known for record in broker.records(sent)]


def monotonic_reads(name: str) -> Check:
    """Check that no client reads a smaller value after a greater one.

    ``name`` is the name of a function marked with ``observed``, whose results can be compared. None
    is less than any other result.
    """
    if not isinstance(name, str):
        raise ContractError(
            f"monotonic_reads() expects the name of an operation, got {shown(name)}"
        )

    def check(history: History) -> None:
        __tracebackhide__ = True
        reads = [
            each for each in history.operations if each.name == name and each.ended is not None
        ]
        latest: dict[str, Any] = {}
        for read in sorted(reads, key=lambda each: each.ended or 0):
            before, now = latest.get(read.client), cast("Any", read.result)
            if before is not None and (now is None or now < before):
                raise AssertionError(
                    f"{read.client} read {shown(before)}, and later the smaller {shown(now)}"
                )
            latest[read.client] = now

    return check
