"""The schedules to try: with one event, with two events, random ones, and random priorities.

In probabilistic concurrency testing, strands have random priorities, which change a few times during
a run, at random decisions. The new priorities are below all initial ones, and in random order as
well. With n strands and k decisions, one run finds a bug that needs d ordered switches with a
probability of at least 1 / (n * k^(d-1)) (Burckhardt and others, ASPLOS 2010).
"""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from ..footprint import READS_CLOCK, Footprint
from ..run import Place, Run
from ..schedule import DELAYS, DUE, EDGE, SLOW, SWITCHES, TRIED, WINDOWS, Event, Schedule
from .dpor import decided_places
from .player import MOST_EVENTS, Player

MOST_LISTED = 100_000
"""Maximum number of pairs to list and shuffle; above it, pairs are sampled at random."""
_LASTING = frozenset({"hold", "rotate_token"})
"""Kinds of events that begin a disturbance that a timer ends."""
_NEXT = 2
"""Number of calls after a slow answer at which the same strand is delayed again."""


class Singles:
    """All schedules with one event at a point of a run.

    ``others`` probably have the same effect as one of ``first``, such as a lost answer of a call that
    writes nothing. In both lists, kinds of events take turns, so that a bug that needs a certain kind
    is found after a few rounds. Events of one kind come first at the first call that each line of the
    application makes, then at the second call of that line, and so on. With ``chance``, events that
    are equal in this respect are in random order, and otherwise in the order of the run.
    """

    def __init__(self, run: Run, chance: random.Random | None = None) -> None:
        self._points = {(point.strand, point.number) for point in run.points}
        self._touched: dict[tuple[str, int], Footprint] = {}
        self._strands: dict[str, Footprint] = {}
        for step in run.steps:
            if step.place == "switch":
                self._touched.setdefault((step.strand, step.point), step.footprint)
            whole = self._strands.setdefault(step.strand, Footprint())
            whole.touches.update(step.footprint.touches)
            whole.is_everything = whole.is_everything or step.footprint.is_everything
        self._reads_clock = any(READS_CLOCK in step.footprint.touches for step in run.steps)
        """Whether the code, or a call that it makes, reads the time."""
        events = list(dict.fromkeys(event for point in run.points for event in point.events()))
        if chance is not None:
            chance.shuffle(events)
        visits = _visits(run)
        events.sort(key=lambda event: visits.get((event.strand, event.point), 0))
        self.first = _in_turn(event for event in events if not self._is_like_another(event))
        self.others = _in_turn(event for event in events if self._is_like_another(event))

    def _is_like_another(self, event: Event) -> bool:
        """Return whether an event probably has the same effect as another one."""
        kind, here = event.kind, self._touched.get((event.strand, event.point))
        before = self._touched.get((event.strand, event.point - 1))
        if kind in ("jump", "past", "nearly") and event.detail.isdigit():
            return True  # The next known time is the likeliest to matter.
        if kind == "tick" or event.detail == EDGE:
            return not self._reads_clock
        if kind in ("lose_response", "duplicate"):  # like a lost request, or a single one
            return here is not None and not _writes(here)
        if kind == "crash":  # like a crash at the call before
            return before is not None and not _writes(before)
        if kind == "late":  # like a switch at the next call
            return (event.strand, event.point + 1) in self._points
        if kind == "switch":  # like a switch at the call before
            other = self._strands.get(event.detail, Footprint())
            return before is not None and not before.depends_on(other)
        return False


def _visits(run: Run) -> dict[tuple[str, int], int]:
    """Return, for each call, how many earlier calls the same line of the application made."""
    visits: dict[tuple[str, int], int] = {}
    made: dict[object, int] = {}
    for line in run.lines:
        if (call := line.call) is not None and (step := line.step) is not None:
            command = tuple(call.facts.get("command") or ())
            where = line.lines, call.service, call.route, command
            visits[step.strand, step.point] = made.get(where, 0)
            made[where] = made.get(where, 0) + 1
    return visits


def _writes(footprint: Footprint) -> bool:
    return footprint.is_everything or any(t.writes and t.fake for t in footprint.touches)


def _in_turn(events: Iterable[Event]) -> list[Schedule]:
    """Return a schedule for each event, so that kinds of events take turns."""
    by_kind: dict[tuple[int, str], list[Event]] = {}
    for event in events:
        detail = "" if event.kind in SWITCHES else event.detail
        by_kind.setdefault((TRIED.index(event.kind), detail), []).append(event)
    rounds = itertools.zip_longest(*(by_kind[kind] for kind in sorted(by_kind)))
    return [Schedule([event]) for event in itertools.chain(*rounds) if event is not None]


class Pairs:
    """All schedules that extend the schedule of a given run by one event, at the last event or later.

    A hundred calls have a million such schedules, so each is created only when it is requested.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._later: list[tuple[Run, int, list[Event]]] = []
        self._ends: list[int] = []
        total = 0
        for run in runs:
            after = run.last_event
            if after is None:
                continue
            begins = _point_of(run, after)
            here = [
                event
                for event in run.points[begins].events()
                if event.order > after.order and not (event.ends_call and after.ends_call)
            ]
            total += len(here) + sum(len(point.choices) for point in run.points[begins + 1 :])
            self._later.append((run, begins, here))
            self._ends.append(total)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Schedule:
        which = bisect_right(self._ends, index)
        run, begins, here = self._later[which]
        left = index - (self._ends[which - 1] if which else 0)
        if left < len(here):
            return run.schedule + here[left]
        left -= len(here)
        for point in run.points[begins + 1 :]:
            if left < len(point.choices):
                return run.schedule + Event(point.strand, point.number, *point.choices[left])
            left -= len(point.choices)
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


def delayed_again(run: Run) -> list[Schedule]:
    """Return schedules that also delay a strand that woke up while a run's event delayed another.

    A strand that was delayed until something is due also runs in the middle of what the others do
    then. After a slow answer, the next calls of the same strand are delayed as well, because the
    strand may have counted a lease from the answer.
    """
    event = run.last_event
    if event is None or event.kind not in DELAYS:
        return []
    after = run.points[_point_of(run, event) + 1 :]
    if event.detail == DUE:
        later = [each for point in after for each in point.events()]
        return [run.schedule + each for each in later if each.detail == event.strand]
    others = [point for point in after if point.strand != event.strand]
    events = [each for point in others for each in point.events()] if run.overlaps else []
    if event.kind == "slow":
        own = [point for point in after if point.strand == event.strand]
        events += [each for point in own[:_NEXT] for each in point.events() if each.kind == "delay"]
    return [run.schedule + each for each in events if each.kind in DELAYS]


def paused_again(run: Run) -> list[Schedule]:
    """Return schedules that pause until a time that the event of a run makes interesting."""
    event = run.last_event
    if event is None or not (event.detail == EDGE or event.kind in _LASTING):
        return []
    after = run.points[_point_of(run, event) + 1 :]
    later = [each for point in after for each in point.events()]
    if event.detail == EDGE:
        # Code that truncates times to seconds fails only just before the end of a window.
        return [run.schedule + each for each in later if each.detail in WINDOWS]
    # A disturbance that ends in between affects only some of the calls.
    return [run.schedule + each for each in later if each.kind == "jump" and not each.detail]


def likelihood(pair: Schedule) -> int:
    """Return a number that is higher for pairs that are more likely to find something new."""
    first, second = pair.with_series(0)
    # A slow answer mostly acts like a delay of the next call, but a short one ends before a timeout.
    is_long = first.kind == "slow" and first.detail != str(min(SLOW))
    return -(second.kind == "slow") - is_long


def _point_of(run: Run, event: Event) -> int:
    """Return the index of an event's point; 0 for a point of the run that was not recorded."""
    place = event.strand, event.point
    found = (at for at, p in enumerate(run.points) if (p.strand, p.number) == place)
    return next(found, 0)


DEPTHS = (2, 3, 4)
"""The bug depths (numbers of ordered switches) to search for, in turn."""
MOST_REPEATED = 100
"""Number of consecutive random schedules already tried, after which the search ends."""


class Priorities:
    """Runs the strand with the highest priority, and lowers priorities at random decisions."""

    records = False
    moves_time = False

    def __init__(self, chance: random.Random, depth: int, decisions: int, *, late: bool) -> None:
        self.places = decided_places(late=late)
        self.depth = depth
        self.most_decisions = max(1, decisions)
        """The number of decisions among which the changes of priority are drawn."""
        self.decisions = 0
        """The number of decisions so far."""
        self._chance = chance
        changed = chance.sample(range(self.most_decisions), min(depth - 1, self.most_decisions))
        self._changes = {decision: priority for priority, decision in enumerate(changed)}
        self.priorities: dict[str, float] = {}
        """The priority of each strand that could run so far."""

    def pick(self, run: Run, options: Sequence[str], place: Place) -> str:
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


class RandomRuns:
    """Runs random schedules and random priorities, in turn."""

    def __init__(self, player: Player, runs: Iterable[Run], chance: random.Random) -> None:
        self._player = player
        self._chance = chance
        points = {point for run in runs for point in run.points}
        self._events = sorted({event for point in points for event in point.events()})

    def runs(self) -> Iterator[Run]:
        """Run schedules of all sources in turn, until one source has tried nearly all of its own."""
        if not self._events and not self._player.varies_numbers:
            return
        switches = {event.kind for event in self._events} & SWITCHES
        others = [event for event in self._events if event.kind not in SWITCHES]
        sources: list[Iterator[Run | None]] = []
        if switches & self._player.subject.kinds:
            sources.append(self._with_priorities(others))
        if others or not sources:
            sources.append(self._of_schedules())
        for source in itertools.cycle(sources):
            try:
                run = next(source)
            except StopIteration:
                return
            if run is not None:
                yield run

    def _with_priorities(self, others: Sequence[Event]) -> Iterator[Run]:
        """Run strands by random priorities; in every other run, one of ``others`` happens, too."""
        tally, kinds = self._player.tally, self._player.subject.kinds
        for number, depth in enumerate(itertools.cycle(DEPTHS)):
            is_odd = bool(number % 2)
            late = "late" in kinds and is_odd
            has_event = bool(others) and (tally.is_exhaustive or not is_odd)
            strategy = Priorities(
                self._chance, depth, tally.priority_runs.most_decisions, late=late
            )
            schedule = Schedule(self._chance.sample(others, 1) if has_event else ())
            schedule = self._player.varied(schedule)
            tally.drawn += 1
            run = self._player.play(schedule, strategy=strategy)
            is_counted = not has_event and (late or "late" not in kinds)
            tally.priority_runs.add(strategy, is_counted=is_counted)
            yield run

    def _of_schedules(self) -> Iterator[Run | None]:
        """Run random schedules; yield None instead of a run if a schedule was already tried."""
        repeated = 0
        while repeated < MOST_REPEATED:
            schedule = self._player.varied(self._schedule())
            if schedule in self._player.known:
                repeated += 1
                yield None
                continue
            repeated = 0
            self._player.tally.drawn += 1
            yield self._player.play(schedule)

    def _schedule(self) -> Schedule:
        chance, events = self._chance, self._events
        # With other random numbers, one event may break a promise that it did not break before.
        least = 1 if self._player.varies_numbers else 2
        count = chance.randint(min(least, len(events)), min(MOST_EVENTS, len(events)))
        return Schedule(sorted(chance.sample(events, count)))
