"""The arguments of ``explore()``: programs, kinds of events, and a schedule to replay."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from ..core.errors import ContractError, shown
from ..core.wording import unknown_name
from ..every_failure import names_of
from .decorators import current_replay
from .run import Program
from .schedule import CLOCK, KINDS, SWITCHES, Kind, Schedule

Runs = Callable[[], object] | Iterable[Callable[[], object]] | Mapping[str, Callable[[], object]]
"""One function, several that run concurrently, or several by name."""


def programs_of(run: Runs, workers: Runs) -> list[Program]:
    """Return clients and workers with distinct names; raise ``ContractError`` for none."""
    programs = [*_programs("run", run, is_worker=False), *_programs("workers", workers, True)]
    if not programs:
        raise ContractError("run= is empty, and so is workers=: pass the code to explore")
    return _with_unique_names(programs)


def _programs(what: str, given: Runs, is_worker: bool) -> list[Program]:
    if isinstance(given, Mapping):
        named = list(given.items())
    else:
        functions = [given] if callable(given) else given
        if isinstance(functions, str) or not isinstance(functions, Iterable):
            raise ContractError(
                f"{what}={shown(given)} is not a function: pass one without arguments, or several"
            )
        named = [(_name(function), function) for function in functions]
    for name, function in named:
        if not callable(function):
            raise ContractError(
                f"{what}={shown(function)} is not a function: pass one that needs no arguments"
            )
        if not isinstance(name, str) or not name or any(c in " ,./" or c.isspace() for c in name):
            raise ContractError(f"{shown(name)} is not a valid client name: pass a single word")
    return [Program(name, function, is_worker) for name, function in named]


def _name(function: object) -> str:
    function = getattr(function, "func", function)
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "client"


def _with_unique_names(programs: Sequence[Program]) -> list[Program]:
    taken = {program.name for program in programs}
    named: list[Program] = []
    for program in programs:
        name = program.name
        if any(other.name == name for other in named):
            name = next(f"{name}{n}" for n in itertools.count(2) if f"{name}{n}" not in taken)
            taken.add(name)
        named.append(replace(program, name=name))
    return named


def kinds_of(given: Kind | Sequence[Kind] | None) -> frozenset[Kind]:
    if given is None:
        return frozenset(KINDS)
    names = names_of("kinds", given)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ContractError(unknown_name("kind of event", unknown[0], KINDS))
    return frozenset(cast("Sequence[Kind]", names))


def schedule_to_replay(given: str | None, programs: Sequence[Program]) -> Schedule | None:
    """Return the only schedule to run: the given one, or that of ``replay_schedule``."""
    replay = current_replay.get()
    if replay is not None:
        replay.is_explored = True
    text = given if given is not None or replay is None else replay.text
    if text is None:
        return None
    schedule = Schedule.parse(text)
    _check_names(schedule, programs)
    return schedule


def _check_names(schedule: Schedule, programs: Sequence[Program]) -> None:
    """Raise ``ContractError`` for an event of a strand that no program can begin."""
    known = [program.name for program in programs]
    for event in schedule:
        for name in (event.strand, event.detail) if event.kind in SWITCHES else (event.strand,):
            root = re.split(r"[/:+]", name)[0]
            if root not in (*known, CLOCK) and not re.fullmatch(r"delivery\d+", root):
                raise ContractError(f"{shown(str(event))}: {unknown_name('client', root, known)}")
