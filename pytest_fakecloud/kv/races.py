"""Interruptions of pipelines by commands of another client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self, TypeAlias

from ..core.errors import ContractError
from ..core.matching import Condition, Question
from ..core.wording import counted
from .rest.requests import COMMAND, command_name

Place: TypeAlias = int | tuple[Condition[str], Condition[str]] | None
"""A position: a number of commands before it, two names, or None for all in turn."""


class Interruptions(list["Between"]):
    """The planned interruptions of a server's pipelines."""

    def begin(self, lines: list[list[bytes]]) -> Callable[[int], None]:
        """Return a function to call with the index of each command of a pipeline but the first."""
        places = [(between, between._positions(lines)) for between in self]

        def at(index: int) -> None:
            for between, chosen in places:
                if index in chosen:
                    between._interrupt(index)

        return at


class Between:
    """An interruption that calls ``run()`` between two commands of a pipeline.

    ``commands`` selects the position: a number for the position after that many commands of each
    pipeline, or a pair for the position between two neighbours with these names (each a name, a
    glob, a pattern or a function). None selects every position in turn, one per pipeline, starting
    after the first command.

    The interruption ends with its ``with`` block. With ``commands=None``, it can also be iterated:
    the loop body runs once per position, until its pipelines have no further positions::

        for place in kv_server.between(run=steal):
            kv_server.restore(before)
            transfer_money()

    ``hits`` is the number of interruptions so far, ``place`` the position of the latest one.
    """

    def __init__(self, plan: Interruptions, commands: Place, run: Callable[[], object]) -> None:
        self._neighbours = _neighbours(commands)
        if inspect.iscoroutinefunction(run):
            raise ContractError(
                f"run={run!r} is a coroutine function, which a pipeline cannot await: "
                "pass a plain function, or a command such as ['SET', 'k', 'v']"
            )
        self._plan = plan
        self._commands = commands
        self._run = run
        self._turn = 0
        """The number of pipelines so far or, if iterated, of turns of the loop."""
        self._passed = 0
        """The number of positions that earlier pipelines of this turn of the loop had."""
        self._iterated = False
        """Whether the turns of a loop, not the pipelines, determine the position."""
        self.hits = 0
        self.place = 0
        plan.append(self)

    def _positions(self, lines: list[list[bytes]]) -> set[int]:
        if isinstance(self._commands, int):
            return {self._commands}
        if self._commands is None:
            return self._next_place(len(lines) - 1)
        first, second = self._neighbours
        names = [
            command_name([word.decode("utf-8", "replace") for word in line[:2]]) for line in lines
        ]
        return {
            at
            for at in range(1, len(lines))
            if first.agrees(names[at - 1]) and second.agrees(names[at])
        }

    def _next_place(self, gaps: int) -> set[int]:
        if not self._iterated:
            self._turn += 1
            return {self._turn}
        # If one turn of the loop sends several pipelines, their positions are numbered
        # consecutively.
        place = self._turn - self._passed
        self._passed += gaps
        return {place} if 1 <= place <= gaps else set()

    def _interrupt(self, place: int) -> None:
        """Call ``run``, as if another client's command had arrived at this moment.

        If it raises an ``Exception``, the pipeline returns 500, and the test receives a
        ``ContractError``. Other exceptions, e.g. that of ``pytest.fail()``, propagate.
        """
        self.hits += 1
        self.place = place
        try:
            self._run()
        except Exception as error:
            raise ContractError(
                f"the run= of between() failed after {counted(place, 'command')} of the pipeline: "
                f"{error!r}"
            ) from error

    def remove(self) -> None:
        """End the interruption."""
        with suppress(ValueError):
            self._plan.remove(self)

    def __iter__(self) -> Iterator[int]:
        if self._commands is not None:
            raise ContractError(
                f"between(commands={self._commands!r}) cannot be iterated: "
                "leave out commands= to iterate over all positions"
            )
        self._iterated = True
        try:
            place, hits = 0, -1
            # Stop after the first turn of the loop without an interruption: no positions are left.
            while self.hits > hits:
                hits = self.hits
                place += 1
                self._turn, self._passed = place, 0
                yield place
        finally:
            self.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def _neighbours(commands: object) -> tuple[Question, ...]:
    if commands is None:
        return ()
    if type(commands) is int:
        if commands < 1:
            raise ContractError(
                f"commands={commands} is not a position between two commands: pass at least 1"
            )
        return ()
    names = commands if isinstance(commands, tuple | list) else ()
    if len(names) == 2 and not any(name is None for name in names):
        return tuple(Question("commands", name, COMMAND) for name in names)
    raise ContractError(
        f"commands={commands!r} is not a position: pass a number of commands, the names of two "
        "neighbours such as ('GET', 'SET'), or leave it out for every position in turn"
    )
