"""Run code once per call it makes, with a fault in a different call each time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from .core.calls import Call
from .core.conditions import discard_awaitable
from .core.errors import ContractError, broken_promise, ends_the_test, shown
from .core.journal import recorder_of
from .core.results import Results
from .core.wording import unknown_name
from .faults.fault import rule_of

if TYPE_CHECKING:
    from .any_cloud import AnyCloud
    from .handle import Handle

FailureName = Literal["answer", "drop", "lose_answer"]
FAILURES: tuple[FailureName, ...] = ("answer", "drop", "lose_answer")
MOST_CALLS = 1_000
"""Maximum number of calls of the code; for each call and kind of fault, the code runs once."""


class FailureOptions(TypedDict, total=False):
    """The options of ``every_failure()``."""

    services: str | Iterable[str] | None
    faults: FailureName | Sequence[FailureName]
    status: int
    check: Callable[[], object] | None


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """One run with one failing call.

    ``number`` is the call's position in the run, counted from 1, ``fault`` the kind of fault,
    ``call`` the recorded call. ``exception`` is the exception that the code raised, or None.
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
        outcome = "held" if self.held else f"BROKEN: {self.broken}"
        gave_up = self.exception is not None and self.held
        raised = f", raised {shown(self.exception)}" if gave_up else ""
        return f"<call {self.number} ({_named(self.call)}) {self.fault}: {outcome}{raised}>"


class Failures(Results[Failure]):
    """All runs of one call of ``every_failure()``."""

    @property
    def broken(self) -> Results[Failure]:
        """The runs in which the promise was broken."""
        return Results(failure for failure in self if not failure.held)

    def assert_held(self) -> None:
        """Fail if the promise was broken in any run, and list these runs."""
        __tracebackhide__ = True
        if self.broken:
            listing = "\n".join(f"  {shown(failure)}" for failure in self)
            raise AssertionError(
                f"the promise was broken in {len(self.broken)} of {len(self)} runs:\n{listing}"
            )


def every_failure(
    cloud: AnyCloud, run: Callable[[], object], **options: Unpack[FailureOptions]
) -> Failures:
    """Run the code once without faults, then once per call and fault, failing each call in turn.

    ``run`` does the work; ``check``, if given, is called after it without faults. The promise is
    everything that the two assert: an ``AssertionError`` breaks it, also inside an exception group.
    Any other ``Exception`` means that the code gave up, which may be correct. Everything else ends
    the test: the outcomes of pytest (``fail``, ``skip``, ``xfail``, ``exit``), a timeout of
    pytest-timeout, ``KeyboardInterrupt``, ``SystemExit``. ``services`` limits the calls that fail
    to those of some fakes, given by fixture or name. ``faults`` are ``"answer"`` (respond with
    ``status``; the engine is not reached), ``"drop"`` (no response, no effect) and
    ``"lose_answer"`` (an effect, but no response). Every run starts from the original data.

    Raises ``ContractError`` if the code makes no call, and any exception of the run without faults.
    """
    __tracebackhide__ = True
    try:
        _Runs(cloud, False, run, **options).fail_each_call().send(None)
    except StopIteration as end:
        found: Failures = end.value
        return found
    raise AssertionError("unreachable: nothing is awaited")


async def every_failure_async(
    cloud: AnyCloud, run: Callable[[], object], **options: Unpack[FailureOptions]
) -> Failures:
    """Run ``every_failure()`` for asynchronous code; ``run`` and ``check`` may also be synchronous."""
    __tracebackhide__ = True
    return await _Runs(cloud, True, run, **options).fail_each_call()


class _Runs:
    """The runs of one call of ``every_failure()``; ``awaits`` allows asynchronous code."""

    def __init__(
        self,
        cloud: AnyCloud,
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
        for name, given in (("run", run), ("check", check)):
            if given is not None and not callable(given):
                raise ContractError(
                    f"{name}={shown(given)} is not a function: pass one without arguments"
                )
        self._handles = chosen_handles(cloud, services)
        first = self._handles[0] if self._handles else cloud
        self._recorder = recorder_of(first.journal)

    async def fail_each_call(self) -> Failures:
        """Run the code without faults, then once per call and fault."""
        __tracebackhide__ = True
        start = self._cloud.snapshot()
        await self._run_without_faults()
        found = Failures()
        try:
            for fault in self._faults:
                for number in range(1, MOST_CALLS + 1):
                    self._cloud.restore(start)
                    failure = await self._fail_one(_OneFault(fault, number, self._status))
                    if failure is None:
                        break
                    found.append(failure)
        finally:
            self._cloud.restore(start)
        return found

    async def _run_without_faults(self) -> None:
        __tracebackhide__ = True
        before, began = self._count_calls(), self._recorder.reserve()
        for step in filter(None, (self._run, self._check)):
            error = await self._exception_of(step)
            if error is not None:
                raise ends_the_test(error) or error
        calls = self._count_calls() - before
        if calls > MOST_CALLS:
            raise ContractError(
                f"the code made {calls:,} calls, and every_failure() fails at most {MOST_CALLS:,}: pass "
                "less code, or services=..."
            )
        if not calls:
            raise ContractError(
                "the code made no call to "
                + (", ".join(handle.name for handle in self._handles) or "any fake")
                + ", so there is nothing to fail"
            )
        self._end_run(began, "no call was to fail")

    async def _fail_one(self, one: _OneFault) -> Failure | None:
        """Run the code with one fault; return None if the code made too few calls for it."""
        began = self._recorder.reserve()
        with one.active(self._handles):
            exception = await self._exception_of(self._run)
        _end_as_itself(exception, one)
        if one.hit is None:
            self._end_run(began, "no call was left to fail")
            return None
        broken = broken_promise(exception)
        if broken is None and self._check is not None:
            error = await self._exception_of(self._check)
            _end_as_itself(error, one)
            broken = broken_promise(error)
            if broken is None and error is not None:
                raise error
        failure = Failure(one.number, one.fault, one.hit, exception, broken)
        self._end_run(began, shown(failure)[1:-1].partition("\n")[0], failure.held)
        return failure

    async def _exception_of(self, function: Callable[[], object]) -> BaseException | None:
        """Call a function of the test and return what it raises."""
        try:
            result = function()
            if self._awaits and inspect.isawaitable(result):
                await result
        except BaseException as error:
            return error
        if not self._awaits and discard_awaitable(result):
            raise ContractError("the code must be awaited: use cloud.aio.every_failure")
        return None

    def _count_calls(self) -> int:
        return sum(len(handle.journal.calls()) for handle in self._handles)

    def _end_run(self, began: int, text: str, held: bool | None = None) -> None:
        """Record the end of a run: reports assign everything recorded since ``began`` to it.

        ``held`` is None for a run in which no call failed, which is not in the result.
        """
        self._recorder.add_event("run", text, began=began, alone=True, held=held)


@dataclass
class _OneFault:
    """A fault in one call of a run, counted over all of its fakes; ``hit`` is the failed call."""

    fault: FailureName
    number: int
    status: int
    hit: Call | None = None
    seen: int = 0

    @contextmanager
    def active(self, handles: Sequence[Handle]) -> Iterator[None]:
        """Add the fault to the fakes for a with-block."""
        with ExitStack() as added:
            for handle in handles:
                arguments = (self.status,) if self.fault == "answer" else ()
                add = getattr(handle.faults, self.fault)
                rule = rule_of(add(*arguments, when=self._is_the_one))
                # Do not require this fault to be used: in the last round no call is left to fail.
                rule.must_fire = False
                added.callback(rule.table.remove, rule)
            yield

    def _is_the_one(self, request: Any) -> bool:
        self.seen += 1
        if self.seen == self.number:
            self.hit = request.call
        return self.seen == self.number


def _end_as_itself(error: BaseException | None, one: _OneFault) -> None:
    """If an exception must end the test, add a note about the run and raise it."""
    ending = ends_the_test(error)
    if ending is not None:
        if one.hit is not None:
            ending.add_note(
                f"every_failure: in the run that failed {_named(one.hit)} by {one.fault!r}"
            )
        raise ending


def _named(call: Call) -> str:
    return f"{call.handle} {call.facts.get('command') or f'{call.method} {call.path}'}"


def names_of(what: str, given: str | Iterable[str]) -> list[str]:
    """Return one or more names as a list; raise ``ContractError`` for a value of another type."""
    if isinstance(given, str):
        return [given]
    names = list(given) if isinstance(given, Iterable) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise ContractError(f"{what}={shown(given)} is not valid: pass a name or a list of names")
    return names


def chosen_handles(cloud: AnyCloud, services: str | Iterable[str] | None) -> list[Handle]:
    """Return the fakes whose calls can fail: the fakes with the given fixtures or names, or all."""
    handles = [handle for handle in cloud.handles if hasattr(handle, "faults")]
    if services is None:
        return handles
    wanted = set(names_of("services", services))
    known = {name for handle in handles for name in (handle.name, handle.fixture)}
    if wanted - known:
        raise ContractError(unknown_name("fake", min(wanted - known), sorted(known)))
    return [handle for handle in handles if {handle.name, handle.fixture} & wanted]
