"""Run code once per call it makes, with a fault in a different call each time."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from ..core.calls import Call
from ..core.errors import (
    ContractError,
    FakecloudError,
    broken_promise,
    counted,
    ends_the_test,
    one_line,
    shown,
    unknown_name,
)
from ..core.exits import Exits, exiting
from ..core.field_types import check_returned, discard_awaitable
from ..core.journal import Results
from ..core.timers import finished
from ..faults.fault import Fault
from ..kv.command_fields import keys_of, only_prepares

if TYPE_CHECKING:
    from .base import BaseCloud
    from .fake import Fake

FailureName = Literal["respond", "drop", "lose_response"]
FAILURES: tuple[FailureName, ...] = ("respond", "drop", "lose_response")
MOST_CALLS = 1_000
"""Maximum number of calls of the code; for each call and kind of fault, the code runs once."""
MOST_MISSES = 3
"""Maximum number of runs that do not make the call that is to fail in them."""
_MOST_LISTED = 20
_MOST_COMPARED = 2_000
"""Number of characters of a call by which it is recognised."""


class FailureOptions(TypedDict, total=False):
    """The options of ``every_failure()``."""

    services: str | Iterable[str] | None
    faults: FailureName | Sequence[FailureName]
    status: int
    check: Callable[[], object] | None


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """One run with one failing call.

    ``number`` is the call's position in the run without faults, counted from 1, ``fault`` the kind
    of fault, ``call`` the recorded call. ``exception`` is the exception that the code raised, or None.
    ``broken`` is the ``AssertionError`` of a broken promise, or None.
    """

    number: int
    fault: FailureName
    call: Call
    exception: BaseException | None
    broken: AssertionError | None

    @property
    def held(self) -> bool:
        """Whether the code's promise held."""
        return self.broken is None

    def __repr__(self) -> str:
        outcome = "held"
        if not self.held:
            first = str(self.broken).partition("\n")[0]
            outcome = f"BROKEN: {first or shown(self.broken)}"
        elif self.exception is not None:
            outcome = f"held, raised {shown(self.exception)}"
        return f"<call {self.number} ({_Seen.of(self.call)}) {self.fault}: {one_line(outcome)}>"


class BrokenRunsError(FakecloudError, AssertionError):
    """Raised by ``every_failure()`` if the promise was broken.

    ``failures`` are all runs with a failing call, ``broken`` those in which the promise was broken.
    The first failed assertion is the ``__cause__``.
    """

    __module__ = "pytest_fakecloud"

    def __init__(self, failures: Results[Failure]) -> None:
        self.failures = failures
        self.broken = Results(failure for failure in failures if not failure.held)
        lines = [f"  {shown(failure)}" for failure in self.broken[:_MOST_LISTED]]
        if len(self.broken) > _MOST_LISTED:
            lines.append(f"  ... and {len(self.broken) - _MOST_LISTED:,} more")
        counts = f"{len(self.broken):,} of {counted(len(failures), 'run')}"
        super().__init__("\n".join([f"the promise was broken in {counts}:", *lines]))


def every_failure(
    cloud: BaseCloud, run: Callable[[], object], **options: Unpack[FailureOptions]
) -> Results[Failure]:
    """Run the code once without faults, then once per call and fault, failing each call in turn.

    ``run`` does the work; ``check``, if given, is called after it without faults. The promise is
    everything that the two assert: an ``AssertionError`` breaks it, also inside an exception group.
    Any other ``Exception`` of ``run`` means that the code gave up, which may be correct. Everything
    else ends the test: the outcomes of pytest (``fail``, ``skip``, ``xfail``, ``exit``), a timeout of
    pytest-timeout, ``KeyboardInterrupt``, ``SystemExit``. ``services`` limits the calls that fail
    to those of some fakes, given by fixture or name. ``faults`` are ``"respond"`` (respond with
    ``status``; the engine is not reached), ``"drop"`` (no response, no effect) and
    ``"lose_response"`` (an effect, but no response). Every run starts from the original data.

    The calls of the run without faults fail, but no commands of the Redis protocol that affect only
    their connection, such as ``HELLO`` and ``MULTI``. Later runs may make their calls in another
    order. A call is recognised by its command or endpoint, its keys or path, and its body, except
    for words that differ between runs.

    Returns the runs with a failing call. Raises ``BrokenRunsError`` if the promise was broken in one of
    them, and any exception of the run without faults. Raises ``ContractError`` if the code makes no
    call, if later runs do not make a call that is to fail, or if ``check`` returns anything other
    than None or True.
    """
    __tracebackhide__ = True
    return finished(_Runs(cloud, False, run, **options).fail_each_call())


async def every_failure_async(
    cloud: BaseCloud, run: Callable[[], object], **options: Unpack[FailureOptions]
) -> Results[Failure]:
    """Run ``every_failure()`` for asynchronous code; ``run`` and ``check`` may also be synchronous."""
    __tracebackhide__ = True
    return await _Runs(cloud, True, run, **options).fail_each_call()


class _Runs:
    """The runs of one call of ``every_failure()``; ``awaits`` allows asynchronous code."""

    def __init__(
        self,
        cloud: BaseCloud,
        awaits: bool,
        run: Callable[[], object],
        services: str | Iterable[str] | None = None,
        faults: FailureName | Sequence[FailureName] = FAILURES,
        status: int = 503,
        check: Callable[[], object] | None = None,
    ) -> None:
        self._cloud = cloud
        self._awaits = awaits
        self._run = run
        self._check = check
        self._status = status
        self._faults = cast("Sequence[FailureName]", names_of("faults", faults))
        unknown = [fault for fault in self._faults if fault not in FAILURES]
        if unknown:
            raise ContractError(
                f"{shown(unknown)} is not a kind of fault: pass one or more of {', '.join(FAILURES)}"
            )
        for name, function in (("run", run), ("check", check)):
            if not callable(function) and (name == "run" or function is not None):
                raise ContractError(
                    f"{name}={shown(function)} is not a function: pass one without arguments"
                )
        self._fakes = chosen_fakes(cloud, services)
        first = self._fakes[0] if self._fakes else cloud
        self._recorder = first.journal._recorder

    async def fail_each_call(self) -> Results[Failure]:
        __tracebackhide__ = True
        restore = partial(self._cloud.restore, self._cloud.snapshot())
        failures: Results[Failure] = Results()
        try:
            for plan in await self._run_without_faults():
                for number in range(1, len(plan.calls) + 1):
                    failure = await self._fail_call(plan, number, restore)
                    if failure is None:
                        _raise_if_broken(failures, plan.describe_miss(number))
                        raise ContractError(plan.describe_miss(number)) from plan.error
                    failures.append(failure)
        finally:
            try:
                restore()
            except BaseException:
                # A signal's handler may have interrupted it, and the fakes would keep a run's data.
                restore()
                raise
        _raise_if_broken(failures)
        return failures

    async def _run_without_faults(self) -> list[_Plan]:
        """Run the code, and return for each kind of fault the calls to which it can happen."""
        __tracebackhide__ = True
        began = self._recorder.reserve()
        # Watch with a fault of each kind: a fault of the test itself may respond to a call before it
        # reaches those of some kinds.
        watches = [_Watch(fault) for fault in self._faults]
        with _watching(watches, self._fakes, self._status):
            error = await self._exception_of(self._run)
        if error is None:
            error = await self._exception_of_check()
        if error is not None:
            error = ends_the_test(error) or error
            error.add_note("every_failure: in the run without faults")
            raise error
        calls = max(len(watch.seen) for watch in watches)
        if calls > MOST_CALLS:
            raise ContractError(
                f"the code made {calls:,} calls, and every_failure() fails at most {MOST_CALLS:,}: pass "
                "less code, or services=..."
            )
        if not calls:
            raise ContractError(
                "the code made no call to "
                + (", ".join(fake.name for fake in self._fakes) or "any fake")
                + ", so there is nothing to fail"
            )
        self._end_run(began, "no call was to fail")
        return [_Plan(watch.fault, watch.seen) for watch in watches]

    async def _fail_call(
        self, plan: _Plan, number: int, restore: Callable[[], None]
    ) -> Failure | None:
        """Run the code until a run has made the call, which fails; return None if no run did."""
        __tracebackhide__ = True
        for _ in range(MOST_MISSES):
            restore()
            began = self._recorder.reserve()
            watch = _Watch(plan.fault, plan.target(number))
            with _watching([watch], self._fakes, self._status):
                exception = await self._exception_of(self._run)
            _end_as_itself(exception, watch)
            if watch.hit is not None:
                broken = broken_promise(exception) or await self._promise_broken_by_check(watch)
                failure = Failure(number, plan.fault, watch.hit, exception, broken)
                self._end_run(began, shown(failure)[1:-1], failure.held)
                return failure
            if broken_promise(exception) is not None:
                assert exception is not None
                exception.add_note("every_failure: in a run without faults")
                raise exception
            self._end_run(began, "the call that was to fail was not made")
            plan.add_run(watch.seen, exception)
        return None

    async def _promise_broken_by_check(self, watch: _Watch) -> AssertionError | None:
        __tracebackhide__ = True
        error = await self._exception_of_check()
        _end_as_itself(error, watch)
        broken = broken_promise(error)
        if broken is None and error is not None:
            raise error
        return broken

    async def _exception_of_check(self) -> BaseException | None:
        return None if self._check is None else await self._exception_of(self._check, judge=True)

    async def _exception_of(
        self, function: Callable[[], object], *, judge: bool = False
    ) -> BaseException | None:
        """Call a function of the test and return what it raises; ``judge`` what it returns."""
        try:
            result = function()
            if self._awaits and inspect.isawaitable(result):
                result = await result
        except BaseException as error:
            return error
        if not self._awaits and discard_awaitable(result):
            raise ContractError("the code must be awaited: use cloud.aio.every_failure")
        if judge:
            check_returned(result)
        return None

    def _end_run(self, began: int, text: str, held: bool | None = None) -> None:
        """Record the end of a run. ``held`` is None if no call failed in it."""
        self._recorder.add_event("run", text, began=began, alone=True, held=held)


def _raise_if_broken(failures: Results[Failure], note: str = "") -> None:
    __tracebackhide__ = True
    if not all(failure.held for failure in failures):
        error = BrokenRunsError(failures)
        if note:
            error.add_note(f"every_failure: the other calls did not fail, because {note}")
        raise error from error.broken[0].broken


def _end_as_itself(error: BaseException | None, watch: _Watch) -> None:
    """If an exception must end the test, add a note about the run and raise it."""
    ending = ends_the_test(error)
    if ending is not None:
        if watch.hit is not None:
            ending.add_note(
                f"every_failure: in the run that failed {_Seen.of(watch.hit)} by {watch.fault!r}"
            )
        raise ending


# -- the calls of a run ----------------------------------------------------------------------------

_Detail = Literal["whole", "named", "kind"]
_DETAILS: tuple[_Detail, ...] = ("whole", "named", "kind")
_WORD = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[^\W_]+")
"""A word of a call. A UUID is one: its parts are so short that those of two calls may be equal."""
_DIFFERS = "\0"
"""Replaces the words of a call that differ between runs, and everything between two of them."""
_SEVERAL = re.compile(rf"{_DIFFERS}[\W_]*{_DIFFERS}")


@dataclass(frozen=True, slots=True)
class _Seen:
    """Descriptions of a call of a run: its command or endpoint; its keys or path; everything."""

    kind: str
    named: str
    whole: str

    @classmethod
    def of(cls, call: Call) -> _Seen:
        lines = call.facts.get("words") if call.service == "kv" else None
        if isinstance(lines, list) and lines:
            commands = [str(command) for command in call.facts["command"]]
            named = ", ".join(
                " ".join([command, *(keys_of(line) or line[1:2])])
                for command, line in zip(commands, lines, strict=False)
            )
            kind, whole = ", ".join(commands), ", ".join(map(" ".join, lines))
        else:
            body = call.request_body[:_MOST_COMPARED].decode("utf-8", "replace")
            kind, named = f"{call.method} {call.route}", f"{call.method} {call.path}"
            whole = f"{call.method} {call.target} {body}"
        return cls(*(f"{call.fake} {text[:_MOST_COMPARED]}" for text in (kind, named, whole)))

    def __str__(self) -> str:
        return one_line(self.named, 200)


@dataclass(frozen=True, slots=True)
class _Target:
    """The call to fail: the ``number``-th one described as ``text`` by the ``words`` of all runs."""

    kind: str
    detail: _Detail
    words: frozenset[str]
    text: str
    number: int

    def is_met_by(self, seen: _Seen) -> bool:
        if seen.kind != self.kind:
            return False
        return self.text == _common(getattr(seen, self.detail), self.words)

    def is_in(self, run: Iterable[_Seen]) -> bool:
        return sum(map(self.is_met_by, run)) >= self.number


def _common(text: str, words: frozenset[str]) -> str:
    """Return a description in which words that differ between runs are replaced."""
    common = _WORD.sub(lambda match: match[0] if match[0] in words else _DIFFERS, text)
    return _SEVERAL.sub(_DIFFERS, common)


class _Plan:
    """The calls to which one kind of fault happens, and the runs so far in which none of them
    failed, the last of which raised ``error``.
    """

    def __init__(self, fault: FailureName, calls: Sequence[_Seen]) -> None:
        self.fault = fault
        self.calls = calls
        self.error: BaseException | None = None
        self._runs = [calls]

    def add_run(self, calls: Sequence[_Seen], error: BaseException | None) -> None:
        """Add a run that did not make the call that was to fail."""
        self.error = error
        # A run that gave up without a fault may have used a connection that an earlier fault had
        # closed. It says nothing about the calls of a complete run.
        if error is None:
            self._runs.append(calls)

    def target(self, number: int) -> _Target:
        """Return the target for a call, with the most detail that finds it in all runs so far."""
        targets = [self._target(number, detail) for detail in _DETAILS]
        matching = (target for target in targets if all(map(target.is_in, self._runs)))
        return next(matching, targets[1])

    def _target(self, number: int, detail: _Detail) -> _Target:
        call = self.calls[number - 1]
        texts = (
            " ".join(getattr(seen, detail) for seen in run if seen.kind == call.kind)
            for run in self._runs
        )
        words = frozenset.intersection(*(frozenset(_WORD.findall(text)) for text in texts))
        target = _Target(call.kind, detail, words, _common(getattr(call, detail), words), 0)
        return replace(target, number=sum(map(target.is_met_by, self.calls[:number])))

    def describe_miss(self, number: int) -> str:
        """Return the error message for a call that further runs have not made."""
        text = (
            f"call {number} ({self.calls[number - 1]}) of the run without faults was to fail by "
            f"{self.fault!r}, but {MOST_MISSES} further runs did not make this call. "
        )
        latest = self._runs[-1]
        for first in range(1, len(self.calls) + 1):
            if not self._target(first, "named").is_in(latest):
                text += f"The first call that differs is call {first} ({self.calls[first - 1]}). "
                break
        if self.error is not None:
            text += f"The last of these runs raised {shown(self.error)}. "
        return (
            f"{text}Each run must make the same calls: seed random choices, wait for threads, and "
            "reset caches and other state outside of the fakes in run=. If only the first run makes "
            "the call, call the code once before every_failure(), and reset the fakes"
        )


class _Watch:
    """Records the calls of a run, and fails its target. ``seen`` are the calls that it could fail."""

    def __init__(self, fault: FailureName, target: _Target | None = None) -> None:
        self.fault = fault
        self.seen: list[_Seen] = []
        self._target = target
        self._left = 0 if target is None else target.number
        self._call: Call | None = None
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    @property
    def hit(self) -> Call | None:
        return self._call if any(fault.hits for fault in self._faults) else None

    def begin(self, exits: Exits, fakes: Sequence[Fake], status: int) -> None:
        """Add the fault to the fakes until the exits are closed."""
        exits.callback(self._end)
        for fake in fakes:
            exits.callback(self._remove_from, fake)
            arguments = (status,) if self.fault == "respond" else ()
            add = getattr(fake.faults, self.fault)
            fault: Fault = add(*arguments, when=self._is_target)
            # Only one of the fakes has the target.
            fault._allow_unused()
            self._faults.append(fault)

    def _remove_from(self, fake: Fake) -> None:
        # Not those of ``_faults``: a signal's handler may have kept one from being added there.
        for fault in fake.faults._active:
            if fault._when == self._is_target:
                fake.faults._remove(fault)

    def _end(self) -> None:
        # A fault that a signal's handler kept from being removed fails no call.
        self._left = 0

    def _is_target(self, request: Any) -> bool:
        if only_prepares(request.call):
            return False
        seen = _Seen.of(request.call)
        # Requests of several connections are served at the same time.
        with self._lock:
            self.seen.append(seen)
            if self._target is None or not self._left or not self._target.is_met_by(seen):
                return False
            self._left -= 1
            if not self._left:
                self._call = request.call
            return not self._left


@contextmanager
def _watching(watches: Sequence[_Watch], fakes: Sequence[Fake], status: int) -> Iterator[None]:
    """Add the faults of watches to the fakes for the duration of the block."""
    with exiting() as exits:
        for watch in watches:
            watch.begin(exits, fakes, status)
        yield


# -- arguments -------------------------------------------------------------------------------------


def names_of(what: str, value: str | Iterable[str]) -> list[str]:
    """Return one or more names as a list; raise ``ContractError`` for a value of another type."""
    if isinstance(value, str):
        return [value]
    names = list(value) if isinstance(value, Iterable) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ContractError(f"{what}={shown(value)} is not valid: pass a name or a list of names")
    return names


def chosen_fakes(cloud: BaseCloud, services: str | Iterable[str] | None) -> list[Fake]:
    """Return the fakes whose calls can fail: the fakes with the given fixtures or names, or all."""
    fakes = [fake for fake in cloud.fakes() if hasattr(fake, "faults")]
    if services is None:
        return fakes
    wanted = set(names_of("services", services))
    names = {name for fake in fakes for name in (fake.name, fake.fixture)}
    if wanted - names:
        raise ContractError(unknown_name("fake", min(wanted - names), sorted(names)))
    return [fake for fake in fakes if {fake.name, fake.fixture} & wanted]
