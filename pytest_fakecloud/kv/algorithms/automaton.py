"""Nondeterministic automata, which match a string in time linear in its length.

A parser of regular expressions describes an expression as a tree: `Character`, `Assertion`,
`Sequence`, `Alternatives` and `Repeat`. `Automaton` turns the tree into states, and follows all
states that a string can reach at the same time, so it never backtracks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ...core.budget import spend

_STEPS_PER_STATE = 3
_MAX_STATES = 2000

Test = Callable[[str], bool]
"""A condition on a character."""
Condition = Callable[[str, int], bool]
"""A condition on an index of a string."""


class RegexError(ValueError):
    """Raised for an invalid expression. The message continues a sentence about the expression."""


@dataclass(eq=False, slots=True)
class _State:
    """A state of an automaton.

    A state with a ``test`` consumes a character that passes it; other states consume nothing. A
    state with an ``assertion`` can only be entered where the assertion is true.
    """

    test: Test | None = None
    assertion: Condition | None = None
    next: list[_State] = field(default_factory=list)


class _States:
    """Creates the states of one automaton and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, test: Test | None = None, assertion: Condition | None = None) -> _State:
        self.count += 1
        if self.count > _MAX_STATES:
            raise RegexError(f"is too large (more than {_MAX_STATES} states)")
        return _State(test, assertion)


class Node(Protocol):
    """A part of an expression."""

    def build(self, states: _States) -> tuple[_State, _State]:
        """Create the states of this part, at least one, and return the first and the last state."""


@dataclass(frozen=True, slots=True)
class Character:
    """A single character that passes a test."""

    test: Test

    def build(self, states: _States) -> tuple[_State, _State]:
        start, end = states.new(self.test), states.new()
        start.next.append(end)
        return start, end


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition on an index of the string, such as the start of a word. It consumes nothing."""

    holds: Condition

    def build(self, states: _States) -> tuple[_State, _State]:
        state = states.new(assertion=self.holds)
        return state, state


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts that follow each other; without parts, the empty string."""

    parts: tuple[Node, ...]

    def build(self, states: _States) -> tuple[_State, _State]:
        start = end = states.new()
        for part in self.parts:
            first, last = part.build(states)
            end.next.append(first)
            end = last
        return start, end


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Parts of which one matches."""

    options: tuple[Node, ...]

    def build(self, states: _States) -> tuple[_State, _State]:
        start, end = states.new(), states.new()
        for option in self.options:
            first, last = option.build(states)
            start.next.append(first)
            last.next.append(end)
        return start, end


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part that is repeated; ``maximum`` is None if the number is unlimited."""

    part: Node
    minimum: int
    maximum: int | None

    def build(self, states: _States) -> tuple[_State, _State]:
        start, final = states.new(), states.new()
        first = last = start
        # An unlimited repetition loops over its last copy, so nested repetitions stay small.
        copies = max(self.minimum, 1) if self.maximum is None else self.maximum
        for number in range(copies):
            if number >= self.minimum:
                last.next.append(final)
            before = last
            first, last = self.part.build(states)
            before.next.append(first)
        if self.maximum is None:
            last.next.append(first)
        last.next.append(final)
        return start, final


class Automaton:
    """The states of an expression. Raises `RegexError` if the expression needs too many states."""

    def __init__(self, expression: Node) -> None:
        states = _States()
        self._start, self._end = expression.build(states)
        self.size = states.count
        """Number of states, which limits the steps for each character of a string."""

    def run(self, text: str, *, anywhere: bool) -> bool:
        """Return whether a string matches, as a whole or, with ``anywhere``, in any part."""
        current: dict[_State, None] = {}
        _enter(self._start, current, text, 0)
        for at, character in enumerate(text):
            if anywhere and self._end in current:
                return True
            spend(_STEPS_PER_STATE * (1 + len(current)))
            following: dict[_State, None] = {}
            for state in current:
                if state.test is not None and state.test(character):
                    for target in state.next:
                        _enter(target, following, text, at + 1)
            if anywhere:
                _enter(self._start, following, text, at + 1)
            elif not following:
                return False
            current = following
        return self._end in current


def _enter(state: _State, entered: dict[_State, None], text: str, at: int) -> None:
    """Add a state, and all states that can be reached from it without consuming a character."""
    waiting = [state]
    while waiting:
        state = waiting.pop()
        if state in entered:
            continue
        if state.assertion is not None and not state.assertion(text, at):
            continue
        entered[state] = None
        if state.test is None:
            waiting.extend(state.next)
