"""The search with one drawn input after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ....core.errors import ContractError
from ...clients import Inputs
from ...search.player import Player
from ...search.tally import SearchBudget, Tally
from ...trial import Program, Trial
from .drawing import Drawing, check_inputs, distinct_inputs, sources_of
from .joint import JointShrinking

INPUTS = 40
"""Number of drawn inputs among which the budget is divided (decided here): 40 trials each by default."""


class InputSearch:
    """Searches with one input after the other; ``inputs`` are the only ones if they are given.

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

    def run(
        self, player: Player, budget: SearchBudget, search: Callable[..., Trial]
    ) -> tuple[Player, Trial]:
        """Search with one input after the other, and divide the budget among them.

        Returns the player with the input of most calls, whose tally is that of all inputs, and its
        undisturbed trial.
        """
        __tracebackhide__ = True
        player_for = player.with_inputs
        shrunk = partial(self._shrunk, player_for)
        if self._only is None:
            inputs = distinct_inputs(self._sources, self._drawing)
        else:
            inputs = iter([self._only])
        first_inputs = list(itertools.islice(inputs, INPUTS))
        total: Tally | None = None
        searched: list[tuple[Player, Trial]] = []
        for values in itertools.chain(first_inputs, inputs):
            used = 0 if total is None else total.tried
            if searched and budget.remaining(used) <= 0:
                break
            player = player_for(values)
            part = budget.for_inputs(used, len(first_inputs)) if values else budget
            searched.append((player, search(player, part, total, shrunk=shrunk)))
            if total is None:
                total = player.tally
            else:
                total.merge(player.tally)
        assert total is not None
        player, undisturbed = max(searched, key=lambda search: len(search[1].call_lines))
        player.tally = total
        return player, undisturbed

    def _shrunk(
        self, player_for: Callable[[Inputs], Player], player: Player, trial: Trial
    ) -> tuple[Player, Trial]:
        return JointShrinking(player, trial, player_for, self._sources, self._drawing).smallest()
