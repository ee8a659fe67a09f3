"""Play a failing schedule again, and raise the error that tells its story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ...core.errors import ContractError
from ...core.touches import Touch
from ..search.player import Player
from ..search.tally import Tally
from ..search.tuning import REPLAYS
from ..values.names import actor_of
from ..values.plan import Plan
from ..values.schedule import UNDISTURBED, Schedule
from ..values.trial import FailingTrial, Trial
from .cause import find_cause
from .changes import find_changes
from .exploration import BrokenPromiseError


def replay_only(player: Player, schedule: Schedule) -> Tally:
    """Play one schedule; raise an error if it breaks the promise or cannot be applied."""
    __tracebackhide__ = True
    tally = Tally.of(player, only_schedule=schedule)
    player = player.counting_doubtful()
    if not player.judge.anomalies_break:
        # No anomaly breaks the trial, so none has to be compared with the undisturbed trial.
        trial = player.play(Plan.reported(schedule))
    elif schedule:
        player.play_undisturbed(Plan())
        # The trials in one piece run for this one, and none runs after the trial that is kept.
        player.play(Plan(schedule))
        trial = player.play(Plan.reported(schedule))
    else:
        trial = player.play_undisturbed(Plan.reported(schedule))
    missed = [disturbance for disturbance in schedule if disturbance not in trial.applied]
    if trial.broken is not None:
        failing = FailingTrial.of(trial)
        raise _error_of(player, tally, failing) from failing.error
    if missed:
        names = {disturbance.strand for disturbance in missed}
        starts = sorted(
            name for name in trial.strands if name not in names and actor_of(name) in names
        )
        again = f"{starts[0]} began after a failure, and counts its own calls. " if starts else ""
        raise ContractError(
            "these disturbances of the schedule were not applied: "
            f"{', '.join(map(str, missed))}. {again}The code may have changed, or makes fewer "
            "calls: run explore() again without schedule="
        )
    tally.record(Plan(schedule), trial)
    tally.count("replayed")
    return tally


def raise_undisturbed(player: Player, tally: Tally, failing: FailingTrial) -> NoReturn:
    """Repeat an undisturbed trial that failed, and raise ``BrokenPromiseError`` with its story."""
    __tracebackhide__ = True
    if "stuck" not in failing.trial.flags:
        again = player.play(Plan.reported(UNDISTURBED))
        if again.broken is not None:
            failing = FailingTrial.of(again)
    error = BrokenPromiseError(failing, tally, inputs=player.subject.inputs)
    raise error from failing.error


def raise_broken(player: Player, tally: Tally, failing: FailingTrial) -> NoReturn:
    """Repeat a failing trial, and raise ``BrokenPromiseError`` with its story."""
    __tracebackhide__ = True
    # A stuck trial takes seconds and leaves threads behind, so it is repeated only once.
    number = 1 if "stuck" in failing.trial.flags else REPLAYS
    plans = [Plan(failing.schedule)] * (number - 1)
    replays = [player.play(plan) for plan in (*plans, Plan.reported(failing.schedule))]
    broken = [trial for trial in replays if trial.broken is not None]
    if not broken:
        raise ContractError(
            f"the schedule {failing.schedule} broke the promise ({failing.error}), but not in "
            f"{number} further trials of it: the code depends on a state outside the fakes. "
            f"{'; '.join(['Reset that state in setup=', *failing.trial.notes])}"
        )
    repeated = FailingTrial.of(broken[-1])
    error = _error_of(player, tally, repeated, replays)
    raise error from repeated.error


def _error_of(
    player: Player, tally: Tally, failing: FailingTrial, replays: Sequence[Trial] = ()
) -> BrokenPromiseError:
    trial, undisturbed = failing.trial, None
    if trial.applied and "stuck" not in trial.flags:
        undisturbed = player.play(Plan(has_details=True))

    def play(schedule: Schedule) -> Trial:
        return player.play(Plan(schedule, has_details=True))

    def play_and_read(schedule: Schedule, touch: Touch) -> tuple[Trial, object]:
        return play(schedule), player.world.fakes.state_of(touch)

    changes = find_changes(trial, undisturbed, play)
    cause = find_cause(trial, undisturbed, changes, play_and_read)
    return BrokenPromiseError(
        failing,
        tally,
        undisturbed,
        cause,
        changes=changes,
        inputs=player.subject.inputs,
        replays=replays,
    )
