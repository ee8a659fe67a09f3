"""Failing schedules in the database of Hypothesis, which later searches try first."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Iterable
from typing import Any

from ...core.errors import ContractError
from ..run import Run, Scope
from ..schedule import Schedule
from .player import Player


def stored_failure(player: Player, key: bytes) -> Run | None:
    """Run the schedules stored under a key, shortest first; return the first run that still fails.

    Deletes those that no longer fail, and those that cannot be applied.
    """
    examples = database()
    if examples is None:
        return None
    for stored in sorted(examples.fetch(key), key=lambda text: (len(text), text)):
        try:
            schedule = Schedule.parse(stored.decode("utf-8", "replace"))
        except ContractError:
            schedule = Schedule()
        if schedule and all(event.kind in player.subject.scope.kinds for event in schedule):
            player.tally.drawn += 1
            run = player.play(schedule)
            if run.broken is not None and len(run.fired) == len(schedule):
                return run
        examples.delete(key, stored)
    return None


def database() -> Any:
    """Return the database of Hypothesis, or None without one."""
    return hypothesis().settings().database


def hypothesis() -> Any:
    """Return the Hypothesis package; raise ``ContractError`` if it is not installed."""
    try:
        import hypothesis
    except ModuleNotFoundError as error:
        raise ContractError(
            "explore() needs Hypothesis: pip install 'pytest-fakecloud[explore]'"
        ) from error
    return hypothesis


def key_of(functions: Iterable[Callable[..., object]], scope: Scope) -> bytes:
    """Return the key under which failures of this code with these options are stored."""
    parts = sorted(scope.kinds) + sorted(scope.handles)
    for function in functions:
        inner = getattr(function, "func", function)
        code = getattr(inner, "__code__", None)
        name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
        parts += [name, "" if code is None else _code_text(code)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"pytest_fakecloud.explore.{digest}".encode()


def _code_text(code: types.CodeType) -> str:
    return " ".join([code.co_code.hex(), *code.co_names, *map(_constant_text, code.co_consts)])


def _constant_text(constant: object) -> str:
    """Return a constant as text that is the same in every process."""
    if isinstance(constant, types.CodeType):
        return _code_text(constant)
    if isinstance(constant, frozenset):
        return f"{{{' '.join(sorted(map(_constant_text, constant)))}}}"
    if isinstance(constant, tuple):
        return f"({' '.join(map(_constant_text, constant))})"
    return repr(constant)
