"""Explore the failures of each call, one at a time: a preset of ``explore()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from ...core.errors import ContractError, shown
from ...core.journal import Results
from ..explore import player_for
from ..result.reproduce import raise_broken, raise_undisturbed, replay_only
from ..search.player import Player
from ..search.tally import Tally
from ..subject.clients import has_drawn_inputs
from ..subject.options import Checks, Options
from ..subject.programs import names_of, programs_of, schedule_to_replay
from ..undisturbed import check_calls, check_code, check_repeats
from ..values.disturbances import Disturbance
from ..values.failures import FAILURES, Failure, FailureName
from ..values.plan import Plan
from ..values.schedule import Schedule
from ..values.trial import FailingTrial, Trial

if TYPE_CHECKING:
    from ...cloud.base import BaseCloud


class FailureOptions(TypedDict, total=False):
    """The options of ``every_failure()``."""

    services: str | Iterable[str] | None
    faults: FailureName | Sequence[FailureName]
    status: int


def every_failure(
    cloud: BaseCloud,
    run: Callable[[], object],
    check: Checks = None,
    *,
    services: str | Iterable[str] | None = None,
    faults: FailureName | Sequence[FailureName] = FAILURES,
    status: int = 503,
) -> Results[Failure]:
    """Explore a schedule for each call of the code and each way in which the call can fail.

    The promise is everything that ``run`` and ``check`` assert, as in ``explore()``, and the code is
    explored in the same way: fakes at their baseline, sleeps on fake time, queues that deliver, random
    numbers that are the same in each trial. Other disturbances do not happen, and the search
    goes on after a broken promise.

    ``services`` limits the calls that fail to those of some fakes, given by fixture or name. ``faults``
    are ``"respond"`` (respond with ``status``, over the Redis protocol with ``-LOADING``; the engine is
    not reached), ``"drop"`` (no response, no effect) and ``"lose_response"`` (an effect, but no
    response), and of a cluster the faults of ``kv_server`` with these names: ``"failover"``,
    ``"moved"``, ``"ask"`` (until the end of the trial) and ``"cluster_down"``.

    Returns the trials with a failing call. Raises ``BrokenPromiseError`` if the promise was broken in
    one of them, any exception of the trial without faults, and ``ContractError`` if the code makes
    no call or cannot be explored.
    """
    __tracebackhide__ = True
    names = cast("Sequence[FailureName]", names_of("faults", faults))
    unknown = [name for name in names if name not in FAILURES]
    if unknown:
        raise ContractError(
            f"{shown(unknown)} is not a kind of fault: pass one or more of {', '.join(FAILURES)}"
        )
    if not isinstance(status, int) or isinstance(status, bool) or not 400 <= status <= 599:
        raise ContractError(f"status={shown(status)} is not the status of an error: pass e.g. 503")
    programs = programs_of(run, ())
    if has_drawn_inputs(programs):
        raise ContractError(
            "every_failure() runs with one input: pass a function that calls the code with it, or use "
            "explore(), which draws inputs"
        )
    replayed = schedule_to_replay(None, programs)
    options = Options(services=services, kinds=names)
    with player_for(cloud, programs, check, options) as player:
        if replayed is not None:
            replay_only(player, replayed)
            return Results()
        undisturbed = player.play_undisturbed(Plan.first())
        tally = Tally.of(player)
        check_code(player, undisturbed)
        if undisturbed.broken is not None:
            failing = FailingTrial.of(undisturbed)
            raise_undisturbed(player, tally, failing)
        check_calls(undisturbed)
        check_repeats(player, undisturbed, "the second time")
        failures = tally.failures = Results(_fail_each_call(player, undisturbed, names, status))
        player.subject.promises.finish()
        broken = failures.where(held=False)
        if broken:
            first, error = broken[0], broken[0].broken
            assert error is not None
            trial = player.play(Plan(Schedule.parse(first.schedule)))
            failing = FailingTrial(trial, trial.broken or error)
            raise_broken(player, tally, failing)
    return failures


def _fail_each_call(
    player: Player, undisturbed: Trial, faults: Sequence[FailureName], status: int
) -> list[Failure]:
    points = [
        reached
        for reached in undisturbed.points
        if any(kind in FAILURES for kind, _ in reached.choices)
    ]
    if not points:
        names = ", ".join(sorted(player.subject.disturbable_fakes)) or "any fake"
        call_words = "call to"
        if not {"respond", "drop", "lose_response"}.intersection(faults):
            call_words = "command with keys over the Redis protocol to a cluster among"
        raise ContractError(f"the code made no {call_words} {names}, so there is nothing to fail")
    failures = []
    for fault in faults:
        detail = str(status) if fault == "respond" and status != 503 else ""
        for number, reached in enumerate(points, 1):
            if fault not in [kind for kind, _ in reached.choices]:
                continue  # a fault of clusters, at another call
            disturbance = Disturbance(reached.strand, reached.point, fault, detail)
            trial = player.play(Plan(Schedule([disturbance])))
            calls = {(line.strand, line.point): line.call for line in reversed(trial.call_lines)}
            call = calls.get(reached.point_id)
            if call is None or disturbance not in trial.applied:
                raise ContractError(
                    f"{disturbance} was to fail, but a further trial did not make this call: each trial "
                    "must make the same calls, so reset caches and other state outside the fakes in run="
                )
            error = next(iter(trial.errors.values()), None)
            schedule = str(trial.applied)
            failures.append(Failure(number, fault, call, error, trial.broken, schedule))
    return failures
