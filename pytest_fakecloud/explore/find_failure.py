"""The search for a failing schedule of the code, with one of its inputs if any are drawn."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from ..core.errors import ContractError
from ..core.timers import monotonic
from .judge.anomalies import AnomalyError
from .search.explorer import Explorer
from .search.player import Player
from .search.shrinking import smallest
from .search.store import Store
from .search.tally import SearchBudget, Tally, merged
from .undisturbed import REPEATED, check_calls, check_code, check_repeats
from .values.plan import Plan
from .values.schedule import UNDISTURBED
from .values.trial import FailingTrial, Trial
from .without_guests import InputSearch, Processes


class SearchResult(NamedTuple):
    """The result of a search: its player, its tally, and the trials that it found. Of searches with
    several inputs, the tally is that of all.
    """

    player: Player
    tally: Tally
    undisturbed: Trial
    failing: FailingTrial | None = None
    """The trial of the smallest schedule found that breaks the promise, if any."""


def search_inputs(
    player: Player,
    inputs: InputSearch,
    budget: SearchBudget,
    seed: int | str,
    cache: Any,
    processes: Processes,
) -> SearchResult:
    """Search for a failure with one input after the other. Return the result of the search that has
    found one, or else of that with most calls.
    """
    __tracebackhide__ = True
    results: list[SearchResult] = []
    for next_player in inputs.players(player):
        used = sum(ended.tally.tried for ended in results)
        if results and budget.remaining(used) <= 0:
            break
        left = inputs.budget_of_next(budget, used)
        results.append(find_failure(next_player, left, seed, cache, processes))
        if results[-1].failing is not None:
            break
    result = results[-1]
    if result.failing is None:
        result = max(results, key=lambda ended: len(ended.undisturbed.call_lines))
    return result._replace(tally=merged(ended.tally for ended in results))


def find_failure(
    player: Player, budget: SearchBudget, seed: int | str, cache: Any, processes: Processes
) -> SearchResult:
    """Search for a schedule that breaks the promise, and shrink it. The undisturbed trial comes first.

    ``cache`` is that of pytest, for the schedule that failed last time; None if the search does not
    use it.
    """
    __tracebackhide__ = True
    tally = Tally.of(player, seed)
    undisturbed = player.play_undisturbed(Plan.first())
    tally.record(Plan.first(), undisturbed)
    check_code(player, undisturbed)
    if undisturbed.broken is not None:
        first = FailingTrial.of(undisturbed)
        return SearchResult(player, tally, undisturbed, first)
    if player.subject.inputs and not undisturbed.calls:
        return SearchResult(player, tally, undisturbed)  # Other inputs may lead to calls.
    check_calls(undisturbed)
    tally.record(REPEATED, check_repeats(player, undisturbed, "the second time"))
    _check_can_fail(player, undisturbed)
    store = Store.of(player.subject, cache)
    failing: FailingTrial | None = None
    with contextlib.closing(processes.plan_player(player, tally, undisturbed)) as plan_player:
        began = monotonic()
        explorer = Explorer(plan_player, undisturbed, budget)
        trial = _stored_failure(player, tally, store) or explorer.search()
        if trial is not None:
            first = FailingTrial.of(trial)
            failing = smallest(player, first, undisturbed, tally.outcomes)
            if "stuck" not in failing.trial.flags:
                store.save(failing.schedule)
        tally.seconds = monotonic() - began
    if failing is None and tally.anomalies and player.judge.anomalies_break:
        # Trials that only show a doubtful pattern have counted as held.
        player = player.counting_doubtful()
        anomaly, schedule, _ = next(iter(tally.anomalies.values()))
        trial = player.play(Plan(schedule))
        again = FailingTrial(trial, trial.broken or AnomalyError(anomaly))
        failing = smallest(player, again, undisturbed, {})
    if failing is None:
        tally.record(REPEATED, check_repeats(player, undisturbed, "after the search"))
    return SearchResult(player, tally, undisturbed, failing)


def _check_can_fail(player: Player, undisturbed: Trial) -> None:
    """Raise ``ContractError`` if nothing is promised, and the code accesses no data."""
    uses_other_services = any(line.call and line.call.service != "kv" for line in undisturbed.lines)
    can_show_anomalies = undisturbed.effects.accesses or uses_other_services
    if player.judge.anomalies_break and not can_show_anomalies:
        raise ContractError(
            "nothing can fail: there is no check=, the code asserts nothing, and it reads and writes "
            "no data of a fake. Pass check=, a function that asserts what must hold after a trial"
        )


def _stored_failure(player: Player, tally: Tally, store: Store) -> Trial | None:
    """Return the trial of the schedule that failed last time, and forget it if it does not fail now."""
    schedule = store.load()
    if not schedule:
        return None
    tally.count("replayed")
    trial = player.play(Plan(schedule))
    tally.record(Plan(schedule), trial)
    if trial.broken is not None and len(trial.applied) == len(schedule):
        return trial
    store.save(UNDISTURBED)
    return None
