"""The code that ``explore()`` runs: its programs, the options that name parts of it, and decorators."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from ...cloud.base import BaseCloud
from ...cloud.fake import Fake
from ...core.errors import ContractError, brief, shown, unknown_name
from ...core.field_types import has_not_run
from ..values.disturbances import CLOCK, KINDS, RANDOM, Kind
from ..values.names import StrandName, is_program_name, is_taken
from ..values.schedule import Schedule

Functions = (
    Callable[[], object] | Iterable[Callable[[], object]] | Mapping[str, Callable[[], object]]
)
"""One function, several that run concurrently, or several by name."""


@dataclass(frozen=True, slots=True)
class Program:
    """A function that runs as a client or worker; workers are restarted."""

    name: str
    function: Callable[[], object]
    is_worker: bool = False


def programs_of(run: Functions, workers: Functions) -> list[Program]:
    """Return clients and workers with distinct names; raise ``ContractError`` for none."""
    programs = [*_programs("run", run, is_worker=False), *_programs("workers", workers, True)]
    if not programs:
        raise ContractError("run= is empty, and so is workers=: pass the code to explore")
    taken = {program.name for program in programs}
    named: dict[str, Program] = {}
    for program in programs:
        name = program.name
        if name in named:
            name = next(f"{name}{n}" for n in itertools.count(2) if f"{name}{n}" not in taken)
            taken.add(name)
        if is_taken(name):
            raise ContractError(
                f"{shown(name)} cannot be the name of a client: schedules and stories use it for a "
                "delivery, the clock or a check. Pass the function by another name, such as "
                "run={'ann': function}"
            )
        named[name] = replace(program, name=name)
    return list(named.values())


def _programs(what: str, functions: Functions, is_worker: bool) -> list[Program]:
    named = named_functions(what, functions)
    for name, _ in named:
        if not is_program_name(name):
            raise ContractError(f"{shown(name)} is not a valid client name: pass a single word")
    return [Program(name, function, is_worker) for name, function in named]


def named_functions(what: str, functions: Functions) -> list[tuple[str, Callable[[], object]]]:
    """Return functions with their names, two of which can be equal."""
    if isinstance(functions, Mapping):
        named = list(functions.items())
    else:
        listed = [functions] if callable(functions) else functions
        if isinstance(listed, str) or not isinstance(listed, Iterable):
            raise ContractError(
                f"{what}={shown(listed)} is not a function: pass one without arguments, or several"
            )
        named = [(_name(function), function) for function in listed]
    for _, function in named:
        if not callable(function):
            raise ContractError(
                f"{what}={shown(function)} is not a function: pass one that needs no arguments"
            )
    return named


def _name(function: object) -> str:
    function = getattr(function, "func", function)
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "client"


def check_has_run(result: object, subject: str, needed: str = "without yield") -> None:
    """Raise ``ContractError`` if a function returned a generator or a coroutine instead of running."""
    if has_not_run(result):
        raise ContractError(
            f"{subject} returned {brief(result)}, whose code has not run: pass a function {needed}"
        )


def kinds_of(kinds: Kind | Sequence[Kind] | None) -> frozenset[Kind]:
    if kinds is None:
        return frozenset(KINDS)
    names = names_of("kinds", kinds)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ContractError(unknown_name("kind of disturbance", unknown[0], KINDS))
    return frozenset(cast("Sequence[Kind]", names))


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
    requested_names = set(names_of("services", services))
    known_names = {name for fake in fakes for name in (fake.name, fake.fixture)}
    if requested_names - known_names:
        raise ContractError(
            unknown_name("fake", min(requested_names - known_names), sorted(known_names))
        )
    return [fake for fake in fakes if {fake.name, fake.fixture} & requested_names]


def schedule_to_replay(argument: str | None, programs: Sequence[Program]) -> Schedule | None:
    """Return the only schedule to run: that of the argument, or that of ``replay_schedule``."""
    replay = current_replay.get()
    if replay is not None:
        replay.is_explored = True
    text = argument if argument is not None or replay is None else replay.text
    if text is None:
        return None
    schedule = Schedule.parse(text)
    _check_names(schedule, programs)
    return schedule


def inputs_to_replay(argument: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the only inputs to run with: those of the argument, or those of ``replay_schedule``."""
    replay = current_replay.get()
    return argument if argument is not None or replay is None else replay.inputs


def _check_names(schedule: Schedule, programs: Sequence[Program]) -> None:
    """Raise ``ContractError`` for a disturbance of a strand that no program can begin."""
    clients = [program.name for program in programs]
    for disturbance in schedule:
        for name in filter(None, (disturbance.strand, disturbance.runs_first)):
            parsed = StrandName.of(name)
            if parsed.program not in (*clients, CLOCK, RANDOM) and not parsed.is_delivery:
                raise ContractError(
                    f"{shown(str(disturbance))}: {unknown_name('client', parsed.program, clients)}"
                )


P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_Recording: TypeAlias = AbstractContextManager[Callable[[object], None]]
"""A block around a call, with a function that takes the result of the call."""


@dataclass(slots=True)
class Replay:
    """A schedule that ``replay_schedule`` makes a test run, with these inputs if any are drawn."""

    text: str
    inputs: Mapping[str, Any] | None = None
    is_explored: bool = False
    """Whether the test has called ``explore()``."""


current_replay: ContextVar[Replay | None] = ContextVar("replay", default=None)
"""The replay of this test, if it is decorated."""


_Recorder: TypeAlias = Callable[[str, tuple[Any, ...], dict[str, Any]], _Recording]
current_observer: ContextVar[_Recorder | None] = ContextVar("observer", default=None)
"""Records a call, by name and arguments, of the trial in which the current code runs."""


def observed(function: Callable[P, T]) -> Callable[P, T]:
    """Make ``explore`` record each call of a function: its client, start, end and result.

    The function may be plain or asynchronous. Outside ``explore`` the decorator has no effect. A
    call that raises an exception may or may not have taken effect.
    """
    if not callable(function):
        raise ContractError(f"{shown(function)} is not a function: mark one with @observed")
    name = getattr(function, "__name__", type(function).__name__)

    def recording(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Recording:
        record = current_observer.get()
        return nullcontext(lambda _: None) if record is None else record(name, args, kwargs)

    return _within(recording, function)


def replay_schedule(text: str, *, inputs: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Decorate a test so that ``explore`` runs only this schedule in it, with these drawn inputs.

    The test raises ``ContractError`` if it ends without a call of ``explore``.
    """
    Schedule.parse(text)

    @contextmanager
    def replaying(*_: object) -> Iterator[Callable[[object], None]]:
        replay = Replay(text, inputs)
        token = current_replay.set(replay)
        try:
            yield lambda result: None
        finally:
            current_replay.reset(token)
        if not replay.is_explored:
            raise ContractError(
                f"replay_schedule({shown(text)}) had no effect: the test did not call explore(). "
                "Remove the decorator, or call explore() in the test"
            )

    return functools.partial(_within, replaying)


def _within(block: Callable[..., _Recording], function: F) -> F:
    """Return a plain or asynchronous function whose calls run in a ``with`` block."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def within_async(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with block(args, kwargs) as take_result:
                result = await function(*args, **kwargs)
                take_result(result)
            return result

        return cast("F", within_async)

    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with block(args, kwargs) as take_result:
            result = function(*args, **kwargs)
            take_result(result)
        return result

    return cast("F", within)
