"""Trials of random schedules and of random priorities."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

from ..schedule import SWITCHES, Disturbance, Schedule
from ..trial import Trial
from .ahead import Ahead, Job
from .player import Player
from .priorities import DEPTHS, PriorityPlan
from .tally import MOST_DISTURBANCES

_DRAWN_AHEAD = 16
"""Number of random schedules that are drawn together, so that several processes can run them."""
MOST_REPEATED = 100
"""Number of consecutive random schedules already tried, after which the search ends."""


class RandomTrials:
    """Runs random schedules and random priorities, in turn."""

    def __init__(
        self, player: Player, ahead: Ahead, trials: Iterable[Trial], chance: random.Random
    ) -> None:
        self._player = player
        self._ahead = ahead
        self._chance = chance
        points = {point._replace(state=0) for trial in trials for point in trial.points}
        self._disturbances = sorted(
            {disturbance for point in points for disturbance in point.disturbances()}
        )

    def trials(self) -> Iterator[Trial]:
        """Run schedules of all sources in turn, until one source has tried nearly all of its own."""
        if not self._disturbances and not self._player.varies_numbers:
            return
        switches = {disturbance.kind for disturbance in self._disturbances} & SWITCHES
        others = [
            disturbance for disturbance in self._disturbances if disturbance.kind not in SWITCHES
        ]
        sources: list[Iterator[Trial | None]] = []
        if switches & self._player.subject.kinds:
            sources.append(self._with_priorities(others))
        if others or not sources:
            sources.append(self._of_schedules())
        for source in itertools.cycle(sources):
            try:
                trial = next(source)
            except StopIteration:
                return
            if trial is not None:
                yield trial

    def _with_priorities(self, others: Sequence[Disturbance]) -> Iterator[Trial]:
        """Run strands by random priorities; in every other trial, one of ``others`` happens, too."""
        tally, player = self._player.tally, self._player
        for first in itertools.count(step=_DRAWN_AHEAD):
            jobs = [
                self._job_with_priorities(number, others)
                for number in range(first, first + _DRAWN_AHEAD)
            ]
            for job in self._ahead.through(jobs):
                tally.drawn += 1
                trial = self._ahead.play(job)
                plan = job.plan
                assert isinstance(plan, PriorityPlan)
                is_counted = not job.schedule.with_series(0) and (
                    plan.late or "late" not in player.subject.kinds
                )
                tally.priority_trials.add(
                    plan.depth, plan.most_decisions, *trial.lesson, is_counted=is_counted
                )
                yield trial

    def _job_with_priorities(self, number: int, others: Sequence[Disturbance]) -> Job:
        player, is_odd = self._player, bool(number % 2)
        has_disturbance = bool(others) and (player.tally.is_exhaustive or not is_odd)
        schedule = Schedule(self._chance.sample(others, 1) if has_disturbance else ())
        plan = PriorityPlan(
            self._chance.random(),
            DEPTHS[number % len(DEPTHS)],
            player.tally.priority_trials.most_decisions,
            late="late" in player.subject.kinds and is_odd,
        )
        return Job(player.varied(schedule), plan=plan)

    def _of_schedules(self) -> Iterator[Trial | None]:
        """Run random schedules; yield None instead of a trial if a schedule was already tried."""
        repeated = 0
        while repeated < MOST_REPEATED:
            jobs = []
            for _ in range(_DRAWN_AHEAD):
                job = Job(self._player.varied(self._schedule()))
                is_known = job in jobs or job.schedule in self._player.outcomes
                repeated = repeated + 1 if is_known else 0
                if not is_known:
                    jobs.append(job)
            for job in self._ahead.through(jobs):
                if job.schedule in self._player.outcomes:
                    continue
                self._player.tally.drawn += 1
                yield self._ahead.play(job)
            if not jobs:
                yield None

    def _schedule(self) -> Schedule:
        chance, disturbances = self._chance, self._disturbances
        # With other random numbers, one disturbance may break a promise that it did not break before.
        least = 1 if self._player.varies_numbers else 2
        count = chance.randint(
            min(least, len(disturbances)), min(MOST_DISTURBANCES, len(disturbances))
        )
        return Schedule(sorted(chance.sample(disturbances, count)))
