"""The search with one drawn input after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ....core.errors import ContractError
from ....core.timers import monotonic
from ...search.player import Player
from ...search.tally import SearchBudget
from ...subject.clients import Inputs
from ...subject.programs import Program
from ...values.trial import FailingTrial
from ...without_guests import InputSearch
from .drawing import Drawing, check_inputs, distinct_inputs, sources_of
from .joint import JointShrinking

INPUTS = 40
"""Number of drawn inputs among which the budget is divided (decided here)."""
_LEAST_TRIALS = 10
"""Minimum number of trials with each of several inputs. Not measured."""


class DrawnInputSearch(InputSearch):
    """A part for one input after the other; ``inputs`` are the only ones if they are given.

    Raises ``ContractError`` for inputs that do not fit the clients, and if a schedule is to be
    replayed without the inputs that its clients need.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        inputs: Mapping[str, Any] | None,
        seed: int | str,
        *,
        is_replayed: bool,
    ) -> None:
        self._sources = sources_of(programs)
        self._drawing = Drawing(seed)
        self._only = None if inputs is None else check_inputs(inputs, self._sources)
        if inputs is None and is_replayed:
            raise ContractError(
                "a schedule of clients with drawn inputs needs these inputs: pass inputs= as the "
                "failure has printed it"
            )

        if self._only is None:
            self._inputs = distinct_inputs(self._sources, self._drawing)
        else:
            self._inputs = iter([self._only])

    @cached_property
    def _first_inputs(self) -> list[Inputs]:
        return list(itertools.islice(self._inputs, INPUTS))

    def players(self, player: Player) -> Iterator[Player]:
        """Yield a player for each input."""
        for values in itertools.chain(self._first_inputs, self._inputs):
            yield player.with_inputs(values)

    def budget_of_next(self, budget: SearchBudget, used: int) -> SearchBudget:
        if not any(self._first_inputs):
            return budget
        left, count = budget.remaining(used), len(self._first_inputs)
        if budget.began is None:
            return replace(budget, end=min(left, max(_LEAST_TRIALS, budget.end / count)))
        now = monotonic()
        return replace(budget, end=now + min(left, (budget.end - budget.began) / count), began=now)

    def shrink_inputs(
        self, original: Player, player: Player, failing: FailingTrial
    ) -> tuple[Player, FailingTrial]:
        return JointShrinking(
            player, failing, original.with_inputs, self._sources, self._drawing
        ).shrink_inputs()
