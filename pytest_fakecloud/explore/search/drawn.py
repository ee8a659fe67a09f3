"""Random search: random schedules of several events, and runs with random priorities.

In probabilistic concurrency testing, strands have random priorities, which change a few times during
a run, at random decisions. The new priorities are below all initial ones, and in random order as
well. With n strands and k decisions, one run finds a bug that needs d ordered switches with a
probability of at least 1 / (n * k^(d-1)) (Burckhardt and others, ASPLOS 2010).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

from ..run import Run
from ..schedule import SWITCHES, Event, Schedule
from ..simulation.strands import Place
from .dpor import decided_places
from .player import Player
from .tally import MOST_EVENTS

DEPTHS = (2, 3, 4)
"""The bug depths (numbers of ordered switches) to search for, in turn."""
MOST_REPEATED = 100
"""Number of consecutive random schedules already tried, after which the search ends."""
_MUTATED = 0.5
"""Share of the random schedules that are a change of a schedule that reached a new state."""


class Priorities:
    """Runs the strand with the highest priority, and lowers priorities at random decisions."""

    records = False
    moves_time = False

    def __init__(self, chance: random.Random, depth: int, decisions: int, *, late: bool) -> None:
        self.places = decided_places(late=late)
        self.depth = depth
        self.most_decisions = max(1, decisions)
        """The number of decisions among which the changes of priority are drawn."""
        self.strands = 0
        """The number of strands that ran, so far."""
        self.decisions = 0
        """The number of decisions so far."""
        self._chance = chance
        changed = chance.sample(range(self.most_decisions), min(depth - 1, self.most_decisions))
        self._changes = {decision: priority for priority, decision in enumerate(changed)}
        self._priorities: dict[str, float] = {}

    def pick(self, run: Run, options: Sequence[str], place: Place) -> str:
        for name in options:
            if name not in self._priorities:
                # Every changed priority is lower than every initial one.
                self._priorities[name] = self.depth + self._chance.random()
        chosen = max(options, key=self._priorities.__getitem__)
        if self.decisions in self._changes:
            self._priorities[chosen] = self._changes[self.decisions]
            chosen = max(options, key=self._priorities.__getitem__)
        self.decisions += 1
        self.strands = len(self._priorities)
        return chosen


class RandomRuns:
    """Runs random schedules of several events, and runs with random priorities, in turn.

    Schedules that reached a new state are kept, and some later schedules are changes of them.
    """

    def __init__(self, player: Player, runs: Iterable[Run], chance: random.Random) -> None:
        self._player = player
        self._chance = chance
        self._events = sorted({e for run in runs for point in run.points for e in point.events()})
        self._kept: list[Schedule] = []
        self._reached: set[object] = set()

    def runs(self) -> Iterator[Run]:
        """Run schedules of all sources in turn, until one source has tried nearly all of its own."""
        if not self._events:
            return
        switches = {event.kind for event in self._events} & SWITCHES
        others = [event for event in self._events if event.kind not in SWITCHES]
        sources: list[Iterator[Run | None]] = []
        if switches & self._player.subject.scope.kinds:
            sources.append(self._with_priorities(others))
        if others or not sources:
            sources.append(self._of_schedules())
        for source in itertools.cycle(sources):
            try:
                run = next(source)
            except StopIteration:
                return
            if run is not None:
                pairs = _call_pairs(run)
                if not pairs <= self._reached:
                    self._reached |= pairs
                    self._kept.append(Schedule(run.fired))
                yield run

    def _with_priorities(self, others: Sequence[Event]) -> Iterator[Run]:
        """Run strands by random priorities; in every other run, one of ``others`` happens, too."""
        tally, kinds = self._player.tally, self._player.subject.scope.kinds
        for number, depth in enumerate(itertools.cycle(DEPTHS)):
            is_odd = bool(number % 2)
            late = "late" in kinds and is_odd
            has_event = bool(others) and (tally.is_exhaustive or not is_odd)
            strategy = Priorities(
                self._chance, depth, tally.priority_runs.most_decisions, late=late
            )
            schedule = Schedule(self._chance.sample(others, 1) if has_event else ())
            tally.drawn += 1
            run = self._player.play(schedule, strategy=strategy)
            chose_all = late or "late" not in kinds
            tally.priority_runs.add(strategy, is_counted=chose_all and not has_event)
            yield run

    def _of_schedules(self) -> Iterator[Run | None]:
        """Run random schedules; yield None instead of a run if a schedule was already tried."""
        repeated = 0
        while repeated < MOST_REPEATED:
            schedule = self._schedule()
            if schedule in self._player.known:
                repeated += 1
                yield None
                continue
            repeated = 0
            self._player.tally.drawn += 1
            yield self._player.play(schedule)

    def _schedule(self) -> Schedule:
        chance, events = self._chance, self._events
        if self._kept and chance.random() < _MUTATED:
            return _mutated(chance.choice(self._kept), events, chance)
        count = chance.randint(min(2, len(events)), min(MOST_EVENTS, len(events)))
        return Schedule(sorted(chance.sample(events, count)))


def _mutated(schedule: Schedule, pool: Sequence[Event], chance: random.Random) -> Schedule:
    """Return a schedule with one event added or replaced; a full one may remain the same."""
    events = list(schedule)
    if events and chance.random() < 0.5:
        events.pop(chance.randrange(len(events)))
    if len(events) < MOST_EVENTS:
        events.append(chance.choice(pool))
    return Schedule(events)


def _call_pairs(run: Run) -> set[object]:
    """Return each pair of consecutive calls with their outcomes; a new pair shows a new state."""
    calls = [
        (line.strand, line.call.route, line.call.status, line.words)
        for line in run.lines
        if line.call is not None
    ]
    return set(itertools.pairwise(calls))
