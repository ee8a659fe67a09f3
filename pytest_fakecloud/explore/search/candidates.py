"""The schedules to try: with one disturbance, with two disturbances, random ones, and random
priorities.

In probabilistic concurrency testing, strands have random priorities, which change a few times
during a trial, at random decisions. The new priorities are below all initial ones, and in random
order as well. With n strands and k decisions, one trial finds a bug that needs d ordered switches
with a probability of at least 1 / (n * k^(d-1)) (Burckhardt and others, ASPLOS 2010).
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.accesses import READS_CLOCK
from ..footprint import Footprint
from ..schedule import DELAYS, DUE, EDGE, SLOW, SWITCHES, TRIED, WINDOWS, Disturbance, Schedule
from ..trial import Place, Trial
from .ahead import Ahead, Job
from .dpor import decided_places
from .player import MOST_DISTURBANCES, Player

MOST_LISTED = 100_000
"""Maximum number of pairs to list and shuffle; above it, pairs are sampled at random."""
_LASTING = frozenset({"hold", "rotate_token"})
"""Kinds of disturbances that begin a disturbance that a timer ends."""
_Schedules: TypeAlias = list[Schedule]
_NEXT = 2
"""Number of calls after a slow answer at which the same strand is delayed again."""


def singles(trial: Trial, chance: random.Random | None = None) -> tuple[_Schedules, _Schedules]:
    """Return all schedules with one disturbance at a point of a trial: those to try first, and others.

    The others probably have the same effect as one of the first, such as a lost answer of a call
    that writes nothing. In both lists, kinds of disturbances take turns, so that a bug that needs
    a certain kind is found after a few rounds. Disturbances of one kind come first at the first
    call that each line of the application makes, then at the second call of that line, and so on.
    With ``chance``, disturbances that are equal in this respect are in random order, and otherwise
    in the order of the trial.
    """
    points = (point.disturbances() for point in trial.points)
    disturbances = list(dict.fromkeys(itertools.chain(*points)))
    if chance is not None:
        chance.shuffle(disturbances)
    visits = _visits(trial)
    disturbances.sort(key=lambda disturbance: visits.get(_place_of(disturbance), 0))
    first: list[Disturbance] = []
    others: list[Disturbance] = []
    is_like_another = _likeness(trial)
    for disturbance in disturbances:
        (others if is_like_another(disturbance) else first).append(disturbance)
    return _in_turn(first), _in_turn(others)


def _likeness(trial: Trial) -> Callable[[Disturbance], bool]:
    """Return a function: whether a disturbance of a trial probably has the effect of another one."""
    points = {(point.strand, point.number) for point in trial.points}
    touched: dict[tuple[str, int], Footprint] = {}
    strands: dict[str, Footprint] = {}
    for step in trial.steps:
        if step.place == "switch":
            touched.setdefault((step.strand, step.point), step.footprint)
        whole = strands.setdefault(step.strand, Footprint())
        whole.touches.update(step.footprint.touches)
        whole.is_everything = whole.is_everything or step.footprint.is_everything
    # Whether the code, or a call that it makes, reads the time.
    reads_clock = any(READS_CLOCK in step.footprint.touches for step in trial.steps)

    def is_like_another(disturbance: Disturbance) -> bool:
        kind, here = disturbance.kind, touched.get(_place_of(disturbance))
        before = touched.get((disturbance.strand, disturbance.point - 1))
        if kind in ("jump", "past", "nearly") and disturbance.detail.isdigit():
            return True  # The next known time is the likeliest to matter.
        if kind == "tick" or disturbance.detail == EDGE:
            return not reads_clock
        if kind in ("lose_response", "duplicate"):  # like a lost request, or a single one
            return here is not None and not _writes(here)
        if kind == "crash":  # like a crash at the call before
            return before is not None and not _writes(before)
        if kind == "late":  # like a switch at the next call
            return (disturbance.strand, disturbance.point + 1) in points
        if kind == "switch":  # like a switch at the call before
            other = strands.get(disturbance.detail, Footprint())
            return before is not None and not before.depends_on(other)
        return False

    return is_like_another


def _place_of(disturbance: Disturbance) -> tuple[str, int]:
    return disturbance.strand, disturbance.point


def _visits(trial: Trial) -> dict[tuple[str, int], int]:
    """Return, for each call, how many earlier calls the same line of the application made."""
    visits: dict[tuple[str, int], int] = {}
    counts: dict[object, int] = {}
    for line in trial.lines:
        if (call := line.call) is not None and (step := line.step) is not None:
            command = tuple(call.facts.get("command") or ())
            where = line.lines, call.service, call.route, command
            visits[step.strand, step.point] = counts.get(where, 0)
            counts[where] = counts.get(where, 0) + 1
    return visits


def _writes(footprint: Footprint) -> bool:
    return footprint.is_everything or any(t.writes and t.fake for t in footprint.touches)


def _in_turn(disturbances: Iterable[Disturbance]) -> list[Schedule]:
    """Return a schedule for each disturbance, so that kinds of disturbances take turns."""
    by_kind: dict[tuple[int, str], list[Disturbance]] = {}
    for disturbance in disturbances:
        detail = "" if disturbance.kind in SWITCHES else disturbance.detail
        by_kind.setdefault((TRIED.index(disturbance.kind), detail), []).append(disturbance)
    rounds = itertools.zip_longest(*(by_kind[kind] for kind in sorted(by_kind)))
    return [
        Schedule([disturbance])
        for disturbance in itertools.chain(*rounds)
        if disturbance is not None
    ]


class Pairs:
    """All schedules that extend the schedule of a given trial by one disturbance, at the last
    disturbance or later.

    A hundred calls have a million such schedules, so each is created only when it is requested.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._later: list[tuple[Trial, int, list[Disturbance]]] = []
        self._ends: list[int] = []
        total = 0
        for trial in trials:
            after = trial.last_disturbance
            if after is None:
                continue
            begins = _point_of(trial, after)
            here = [
                disturbance
                for disturbance in trial.points[begins].disturbances()
                if disturbance.order > after.order
                and not (disturbance.ends_call and after.ends_call)
            ]
            total += len(here) + sum(len(point.choices) for point in trial.points[begins + 1 :])
            self._later.append((trial, begins, here))
            self._ends.append(total)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Schedule:
        which = bisect_right(self._ends, index)
        trial, begins, here = self._later[which]
        offset = index - (self._ends[which - 1] if which else 0)
        if offset < len(here):
            return trial.schedule + here[offset]
        offset -= len(here)
        for point in trial.points[begins + 1 :]:
            if offset < len(point.choices):
                return trial.schedule + Disturbance(
                    point.strand, point.number, *point.choices[offset]
                )
            offset -= len(point.choices)
        raise IndexError(index)

    def in_any_order(self, chance: random.Random) -> Iterator[Schedule]:
        if len(self) <= MOST_LISTED:
            order = list(range(len(self)))
            chance.shuffle(order)
            yield from map(self.__getitem__, order)
            return
        chance, drawn = random.Random(chance.random()), set[int]()
        while len(drawn) < len(self):
            index = chance.randrange(len(self))
            if index not in drawn:
                drawn.add(index)
                yield self[index]


def delayed_again(trial: Trial) -> list[Schedule]:
    """Return schedules that also delay a strand that woke up while a trial's disturbance delayed
    another.

    A strand that was delayed until something is due also runs in the middle of what the others do
    then. After a slow answer, the next calls of the same strand are delayed as well, because the
    strand may have counted a lease from the answer.
    """
    disturbance = trial.last_disturbance
    if disturbance is None or disturbance.kind not in DELAYS:
        return []
    after = trial.points[_point_of(trial, disturbance) + 1 :]
    if disturbance.detail == DUE:
        later = [other for point in after for other in point.disturbances()]
        return [trial.schedule + other for other in later if other.detail == disturbance.strand]
    others = [point for point in after if point.strand != disturbance.strand]
    disturbances = (
        [other for point in others for other in point.disturbances()] if trial.overlaps else []
    )
    if disturbance.kind == "slow":
        own = [point for point in after if point.strand == disturbance.strand]
        disturbances += [
            other
            for point in own[:_NEXT]
            for other in point.disturbances()
            if other.kind == "delay"
        ]
    return [trial.schedule + other for other in disturbances if other.kind in DELAYS]


def paused_again(trial: Trial) -> list[Schedule]:
    """Return schedules that pause until a time that the disturbance of a trial makes
    interesting.
    """
    disturbance = trial.last_disturbance
    if disturbance is None or not (disturbance.detail == EDGE or disturbance.kind in _LASTING):
        return []
    after = trial.points[_point_of(trial, disturbance) + 1 :]
    later = [other for point in after for other in point.disturbances()]
    if disturbance.detail == EDGE:
        # Code that truncates times to seconds fails only just before the end of a window.
        return [trial.schedule + other for other in later if other.detail in WINDOWS]
    # A disturbance that ends in between affects only some of the calls.
    return [trial.schedule + other for other in later if other.kind == "jump" and not other.detail]


def likelihood(pair: Schedule) -> int:
    """Return a number that is higher for pairs that are more likely to find something new."""
    first, second = pair.with_series(0)
    # A slow answer mostly acts like a delay of the next call, but a short one ends before a timeout.
    is_long = first.kind == "slow" and first.detail != str(min(SLOW))
    return -(second.kind == "slow") - is_long


def _point_of(trial: Trial, disturbance: Disturbance) -> int:
    """Return the index of a disturbance's point; 0 for a point of the trial that was not
    recorded.
    """
    place = disturbance.strand, disturbance.point
    indexes = (at for at, p in enumerate(trial.points) if (p.strand, p.number) == place)
    return next(indexes, 0)


DEPTHS = (2, 3, 4)
"""The bug depths (numbers of ordered switches) to search for, in turn."""
_DRAWN_AHEAD = 16
"""Number of random schedules that are drawn together, so that several processes can run them."""
MOST_REPEATED = 100
"""Number of consecutive random schedules already tried, after which the search ends."""


@dataclass(frozen=True)
class PriorityPlan:
    """All that determines the priorities of a trial.

    ``depth`` is the number of ordered switches to search for, and ``most_decisions`` the number of
    decisions among which the changes of priority are drawn.
    """

    seed: float
    depth: int
    most_decisions: int
    late: bool

    def strategy(self) -> Priorities:
        return Priorities(self)


class Priorities:
    """Runs the strand with the highest priority, and lowers priorities at random decisions."""

    records = False
    moves_time = False

    def __init__(self, plan: PriorityPlan) -> None:
        self.places = decided_places(late=plan.late)
        self.depth = plan.depth
        self.decisions = 0
        """The number of decisions so far."""
        self._chance = random.Random(plan.seed)
        most = max(1, plan.most_decisions)
        changed = self._chance.sample(range(most), min(plan.depth - 1, most))
        self._changes = {decision: priority for priority, decision in enumerate(changed)}
        self.priorities: dict[str, float] = {}
        """The priority of each strand that could run so far."""

    def pick(self, trial: Trial, options: Sequence[str], place: Place) -> str:
        for name in options:
            if name not in self.priorities:
                # Every changed priority is lower than every initial one.
                self.priorities[name] = self.depth + self._chance.random()
        chosen = max(options, key=self.priorities.__getitem__)
        if self.decisions in self._changes:
            self.priorities[chosen] = self._changes[self.decisions]
            chosen = max(options, key=self.priorities.__getitem__)
        self.decisions += 1
        return chosen

    def lesson(self, trial: Trial) -> tuple[int, int]:
        """Return the numbers of decisions and of strands."""
        return self.decisions, len(self.priorities)


class RandomTrials:
    """Runs random schedules and random priorities, in turn."""

    def __init__(
        self, player: Player, ahead: Ahead, trials: Iterable[Trial], chance: random.Random
    ) -> None:
        self._player = player
        self._ahead = ahead
        self._chance = chance
        points = {point for trial in trials for point in trial.points}
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
