"""Check whether a history of calls is linearizable, that is, whether some order of the calls
explains all answers.

Each call takes effect at one time between its start and its end (Wing and Gong). The search tries
every call that no unfinished call precedes, and remembers which sets of calls led to which state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """A client's call: the command, the answer, and the start and end (in any unit)."""

    line: tuple[str, ...]
    answer: Any
    start: int
    end: int


Model = Callable[[Any, tuple[str, ...]], tuple[Any, Any]]
"""Returns the next state and the answer for a state and a command line."""


def is_linearizable(calls: Sequence[Call], model: Model, start: Hashable) -> bool:
    """Return whether some order of the calls explains every answer."""
    seen: set[tuple[int, Hashable]] = set()
    everything = (1 << len(calls)) - 1

    def search(done: int, state: Hashable) -> bool:
        if done == everything:
            return True
        if (done, state) in seen:
            return False
        seen.add((done, state))
        left = [number for number in range(len(calls)) if not done >> number & 1]
        first_end = min(calls[number].end for number in left)
        for number in left:
            call = calls[number]
            if call.start <= first_end:
                after, answer = model(state, call.line)
                if answer == call.answer and search(done | 1 << number, after):
                    return True
        return False

    return search(0, start)
