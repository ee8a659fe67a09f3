"""Another client's commands between two of a pipeline: the race a pipeline allows, on purpose."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Self, TypeAlias

from ..core.errors import ContractError
from ..core.matching import Asked, Question
from .rest.requests import COMMAND, command_name

Place: TypeAlias = int | tuple[Asked[str], Asked[str]] | None
"""After how many commands, between which two neighbours, or (None) at every place in turn.

Neighbours are told by their commands' names, with all that ``core.matching`` knows."""


class Betweens:
    """What is planned for the pipelines of one server."""

    def __init__(self) -> None:
        self._planned: list[Between] = []

    def __bool__(self) -> bool:
        return bool(self._planned)

    def add(self, between: Between) -> None:
        """Plan one more."""
        self._planned.append(between)

    def remove(self, between: Between) -> None:
        """Plan it no longer; may be called any number of times."""
        if between in self._planned:
            self._planned.remove(between)

    def clear(self) -> None:
        """Plan nothing."""
        self._planned.clear()

    def begin(self, lines: list[list[bytes]]) -> Callable[[int], None]:
        """Take a pipeline's commands; returns what to call before each but the first."""
        places = [(between, between._places(lines)) for between in self._planned]

        def at(index: int) -> None:
            for between, chosen in places:
                if index in chosen:
                    between._happen(index)

        return at


class Between:
    """An interruption of pipelines: ``run()`` is called between two of their commands.

    ``commands`` is a number (after that many commands of each pipeline), a pair of command names
    (between those neighbours; each a name, a glob, a pattern or a function), or None: every place in
    turn, one per pipeline, beginning after the first command. A with-block ends it. With
    ``commands=None`` it can be iterated: the body runs once per place, as long as its pipelines have
    places left::

        for place in kv_server.between(run=steal):
            kv_server.restore(before)
            transfer_money()

    ``hits`` counts how often it happened, ``place`` is the latest place.
    """

    def __init__(self, plan: Betweens, commands: Place, run: Callable[[], object]) -> None:
        self._neighbours = _neighbours(commands)
        if inspect.iscoroutinefunction(run):
            raise ContractError(
                f"run={run!r} is asynchronous, and a pipeline does not wait for a loop: "
                "give a plain function, or a command such as ['SET', 'k', 'v']"
            )
        self._plan = plan
        self._commands = commands
        self._run = run
        self._turn = 0
        self._passed = 0
        self._iterated = False
        self.hits = 0
        self.place = 0
        plan.add(self)

    def _places(self, lines: list[list[bytes]]) -> set[int]:
        """Where it happens in a pipeline of these commands."""
        if isinstance(self._commands, int):
            return {self._commands}
        if self._commands is None:
            return self._next_place(len(lines) - 1)
        first, second = self._neighbours
        names = [_name(line) for line in lines]
        return {
            at
            for at in range(1, len(lines))
            if first.why_not(names[at - 1]) is None and second.why_not(names[at]) is None
        }

    def _next_place(self, gaps: int) -> set[int]:
        if not self._iterated:
            self._turn += 1
            return {self._turn}
        # Within one turn of a loop the places of all its pipelines count on.
        place = self._turn - self._passed
        self._passed += gaps
        return {place} if 1 <= place <= gaps else set()

    def _happen(self, place: int) -> None:
        """Run what was given, as if another client had been quicker.

        Raises ``ContractError`` when it fails: the pipeline is answered 500, the test is told why. What
        is no ``Exception``, such as a ``pytest.fail()`` or a time-out, passes through.
        """
        self.hits += 1
        self.place = place
        try:
            self._run()
        except Exception as error:
            raise ContractError(
                f"what between(run=…) runs after {place} command(s) failed: {error!r}"
            ) from error

    def remove(self) -> None:
        """Let pipelines run undisturbed again."""
        self._plan.remove(self)

    def __iter__(self) -> Iterator[int]:
        if self._commands is not None:
            raise ContractError("only between(run=…), without commands=, goes through every place")
        self._iterated = True
        try:
            place, hits = 0, -1
            # In the end the pipelines of the body do not have that many places.
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
            raise ContractError(f"commands={commands}: the first place is after 1 command")
        return ()
    names = commands if isinstance(commands, tuple | list) else ()
    if len(names) == 2 and not any(name is None for name in names):
        return tuple(Question("commands", name, COMMAND) for name in names)
    raise ContractError(
        f"commands={commands!r}: give a number of commands, the names of two neighbours such as "
        "('GET', 'SET'), or leave it out for every place in turn"
    )


def _name(line: list[bytes]) -> str:
    return command_name([word.decode("utf-8", "replace") for word in line[:2]])
