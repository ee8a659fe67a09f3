"""Interruptions of pipelines by commands of another client."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Self, TypeAlias

from ..core.errors import ContractError
from ..core.matching import Condition, Question
from ..core.wording import counted
from .command_fields import COMMAND, command_name

Place: TypeAlias = int | tuple[Condition[str], Condition[str]] | None
"""A position: a number of commands before it, two names, or None for all in turn."""


class Interruptions(list["Between"]):
    """The planned interruptions of a server's pipelines."""

    def begin(self, lines: list[list[bytes]]) -> Callable[[int], None]:
        """Return a function to call with the index of each command of a pipeline but the first."""
        names = [
            command_name([word.decode("utf-8", "replace") for word in line[:2]]) for line in lines
        ]
        planned = [(between, between._positions(names)) for between in self]

        def at(place: int) -> None:
            for between, chosen in planned:
                if place in chosen:
                    between._interrupt(place)

        return at


def _choice_of(
    commands: int | tuple[Condition[str], Condition[str]],
) -> Callable[[list[str]], Collection[int]]:
    """Return a function from the names of a pipeline's commands to the positions to interrupt."""
    if type(commands) is int:
        if commands < 1:
            raise ContractError(
                f"commands={commands} is not a position between two commands: pass at least 1"
            )
        return lambda names: (commands,)
    pair = commands if isinstance(commands, tuple | list) else ()
    if len(pair) != 2 or any(name is None for name in pair):
        raise ContractError(
            f"commands={commands!r} is not a position: pass a number of commands, the names of two "
            "neighbours such as ('GET', 'SET'), or leave it out for every position in turn"
        )
    before, after = (Question("commands", name, COMMAND) for name in pair)
    return lambda names: [
        place
        for place, (first, second) in enumerate(pairwise(names), 1)
        if before.agrees(first) and after.agrees(second)
    ]


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
        self._choice = None if commands is None else _choice_of(commands)
        if inspect.iscoroutinefunction(run):
            raise ContractError(
                f"run={run!r} is a coroutine function, which a pipeline cannot await: "
                "pass a plain function, or a command such as ['SET', 'k', 'v']"
            )
        self._plan = plan
        self._commands = commands
        self._run = run
        self._turn = 0
        """The number of the position to interrupt next, if all are used in turn."""
        self._passed: int | None = None
        """Number of positions that earlier pipelines of a loop's turn had; None outside a loop."""
        self.hits = 0
        self.place = 0
        plan.append(self)

    def _positions(self, names: list[str]) -> Collection[int]:
        """Return the positions to interrupt in a pipeline of commands with these names."""
        if self._choice is not None:
            return self._choice(names)
        if self._passed is None:
            self._turn += 1
            return (self._turn,)
        # Number the positions of several pipelines in one turn of the loop consecutively.
        gaps = len(names) - 1
        place = self._turn - self._passed
        self._passed += gaps
        return (place,) if 1 <= place <= gaps else ()

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
        if self._choice is not None:
            raise ContractError(
                f"between(commands={self._commands!r}) cannot be iterated: "
                "leave out commands= to iterate over all positions"
            )
        try:
            hits, self._turn = -1, 0
            # End the loop after a turn without an interruption: no positions are left.
            while self.hits != hits:
                hits, self._passed = self.hits, 0
                self._turn += 1
                yield self._turn
        finally:
            self.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()
