"""Search for a schedule that breaks the promise.

The search tries, in this order:

1. Failures that an earlier search stored.
2. If only the order of calls is explored: interleavings alone, for a part of the budget.
3. First phase: interleavings and schedules with one event take turns, and soon schedules with two
   events that the first ones make likely, until each likely single event has been tried.
4. Second phase: the other schedules with one event, then all with two events, take turns with
   interleavings (also of timers), schedules that repeat a fault, and random schedules.

A failing schedule is then shrunk, and stored for later searches.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import ContractError, importing
from ...core.timers import monotonic
from ..run import Point, Redundant, Run
from ..schedule import AT_DELIVERIES, EDGE, ENDS, ORDERS, SWITCHES, TRIED, Event, Kind, Schedule
from .dpor import Interleavings
from .events import Pairs, RandomRuns, Singles, delayed_again, likelihood, paused_again
from .player import MOST_EVENTS, Budget, Player, Search

_HEAD_START = 20
"""Number of interleavings to run before anything else, because they explain a failure best."""
_BEFORE_PAIRS = 25
"""Number of rounds of the other searches before the first schedules with two events."""
_FOR_ORDERS_ALONE = 0.25
"""Share of the remaining budget for interleavings, if only the order of calls is explored."""
_FOR_FIRST_SINGLES = 0.8
"""Maximum share of the budget for the first phase."""
_LIKELY_PAIRS = ((delayed_again, 1.0), (paused_again, 0.5))
"""Functions that list likely schedules with two events, and their weights; two pauses are rarer."""
_REPEATED = 0.5
"""Weight of the schedules that repeat a fault, relative to one search for interleavings."""
_BEFORE_REPEATED = 5
"""Number of rounds of the second phase before them, so that a small budget has all single events."""
_FIRST_SINGLES = 1.5
"""Weight of the likely single events, relative to all other searches of the first phase."""
_SPARE_FOR_SINGLES = 1.25
"""Factor for the turns of the remaining single events, so that pairs can follow in the budget."""
_LEAST_SHARE, _MOST_SHARE = 0.4, 0.8
"""Limits of the share of single events and pairs in the second phase."""


class Explorer:
    """Searches for a schedule that breaks the promise, within a budget."""

    def __init__(self, player: Player, undisturbed: Run, budget: Budget, seed: int | str) -> None:
        self._player = player
        self._undisturbed = undisturbed
        self._kinds = player.subject.kinds
        self._has_timers = undisturbed.has_timers
        self._tally = player.tally
        self._tally.seed = seed
        self._budget = budget
        self._chance = random.Random(str(seed))
        self._runs_of_singles: list[Run] = []
        """The runs of schedules with one event, which schedules with two events extend."""

    def search(self) -> Run | None:
        """Return the smallest failing run that was found; None if no schedule broke the promise."""
        began = monotonic()
        player = self._player
        try:
            subject = player.subject
            functions = [*(one.function for one in subject.programs), *subject.promises.given]
            key = key_of(functions, subject.kinds, subject.disturbed)
            run = stored_failure(player, key) or self._search()
            if run is None:
                return None
            run = smallest(player, run, self._undisturbed)
            examples = hypothesis().settings().database
            if examples is not None and not run.is_stuck:
                examples.save(key, str(run.schedule).encode())
            return run
        finally:
            self._tally.seconds = monotonic() - began

    def _search(self) -> Run | None:
        choices = sum(len(step.options) > 1 for step in self._undisturbed.steps)
        self._tally.priority_runs.most_decisions = choices
        orders = self._searches_of_calls()
        if self._kinds <= SWITCHES:
            for search in orders:
                budget = self._budget.part(self._tally.tried, _FOR_ORDERS_ALONE)
                run = self._take_turns([search], budget)
                if run is not None:
                    return run
            if self._has_run_all():
                return None
        singles = Singles(self._undisturbed)
        tally = self._tally
        tally.all_singles = len(singles.first) + len(singles.others)
        if tally.all_singles > self._budget.expected(tally.tried):
            # The budget is too small for all of them, so try them in random order.
            singles = Singles(self._undisturbed, self._chance)
        likely = self._run_singles(singles.first)
        pairs = (
            Search(self._run_likely_pairs(extend), weight, _BEFORE_PAIRS)
            for extend, weight in _LIKELY_PAIRS
        )
        others = [*orders, *pairs]
        first = Search(likely, _FIRST_SINGLES * len(others), _HEAD_START)
        budget = self._budget.part(self._tally.tried, _FOR_FIRST_SINGLES)
        run = self._take_turns([first, *others], budget, until=first)
        if run is not None:
            return run
        if self._has_timers and {"switch", "jump"} <= self._kinds:
            others.append(self._interleavings(late="late" in self._kinds, moves_time=True))
        return self._second_phase(
            itertools.chain(likely, self._run_singles(singles.others)), others
        )

    def _take_turns(
        self, searches: Sequence[Search], budget: Budget, *, until: Search | None = None
    ) -> Run | None:
        """Run schedules of several searches in turn; return the first run that breaks the promise."""
        going = list(searches)
        while going and budget.left(self._tally.tried) > 0 and not self._has_run_all():
            if until is not None and until.is_over:
                break
            search = min(going, key=lambda each: each.rounds)
            run = search.next()
            if run is not None and run.broken is not None:
                return run
            if search.is_over:
                going.remove(search)
        return None

    def _has_run_all(self) -> bool:
        """Return whether the search ran all that ``kinds`` allows, which is only orders of calls."""
        return self._tally.is_complete and self._kinds <= SWITCHES

    def _second_phase(self, singles: Iterator[Run | None], others: list[Search]) -> Run | None:
        tally = self._tally
        expected = max(1.0, self._budget.expected(tally.tried))
        systematic = itertools.chain(singles, self._all_pairs())
        known = [self._undisturbed, *self._runs_of_singles]
        drawn = RandomRuns(self._player, known, self._chance).runs()
        # All searches go on without a head start.
        others = [Search(each.runs, each.weight) for each in others]
        others.append(Search(self._run_repeated(), _REPEATED, _BEFORE_REPEATED))
        # Random schedules come last if the budget is enough for all schedules with two events.
        if tally.all_singles**2 / 2 < expected:
            systematic = itertools.chain(systematic, drawn)
        else:
            others.append(Search(drawn))
        wanted = _SPARE_FOR_SINGLES * (tally.all_singles - tally.singles) / expected
        share = min(_MOST_SHARE, max(_LEAST_SHARE, wanted))
        weight = share / (1 - share) * len(others)  # as if the others had a weight of 1 each
        return self._take_turns([Search(systematic, weight), *others], self._budget)

    # -- interleavings ---------------------------------------------------------------------------

    def _searches_of_calls(self) -> list[Search]:
        """Return a search without late answers, and one with them that begins after a head start."""
        if "switch" not in self._kinds:
            return []
        can_differ = any(len(step.options) > 1 for step in self._undisturbed.steps)
        has_clients = self._kinds <= SWITCHES and len(self._undisturbed.strands) > 1
        if not can_differ and not has_clients:
            return []
        searches = [self._interleavings(late=False)]
        if "late" in self._kinds:
            searches.append(self._interleavings(late=True, head_start=_HEAD_START))
        return searches

    def _interleavings(
        self, *, late: bool, moves_time: bool = False, head_start: float = 0.0
    ) -> Search:
        self._tally.unfinished_order_searches += 1
        runs = self._run_interleavings(Interleavings(late=late, moves_time=moves_time))
        return Search(runs, head_start=head_start)

    def _run_interleavings(self, strategy: Interleavings) -> Iterator[Run | None]:
        tally = self._tally
        while strategy.next():
            try:
                run = self._player.play(Schedule(), strategy=strategy)
            except Redundant as end:
                strategy.learn(end.run, was_redundant=True)
                yield None
                continue
            strategy.learn(run, was_redundant=False)
            self._has_timers = self._has_timers or run.has_timers
            tally.orders += 1
            yield run
        tally.unfinished_order_searches -= 1
        # Each interleaving runs with the random numbers of the undisturbed run.
        is_one_of_many = self._player.varies_numbers
        tally.has_all_orders = strategy.is_exact and not tally.coverage.notes and not is_one_of_many
        late = "late" in strategy.places
        has_all_times = strategy.moves_time or not self._has_timers
        if tally.has_all_orders and (late or "late" not in self._kinds):
            tally.is_complete = has_all_times or "jump" not in self._kinds
            if has_all_times:
                tally.is_exhaustive = True
                if late or strategy.moves_time:
                    tally.orders = strategy.runs

    # -- events ----------------------------------------------------------------------------------

    def _run_singles(self, schedules: Iterable[Schedule]) -> Iterator[Run]:
        for schedule in self._player.ahead.through(schedules, notes=True):
            varied = self._player.varied(schedule)
            run = self._player.play_planned(varied, notes=True)
            if varied != schedule and schedule[0] not in run.fired and run.broken is None:
                # Other random numbers have led the code past the point of the event.
                self._tally.drawn += 1
                run = self._player.play(schedule, notes=True)
            self._tally.singles += 1
            self._runs_of_singles.append(run.without_details())
            yield run

    def _run_likely_pairs(self, extend: Callable[[Run], list[Schedule]]) -> Iterator[Run | None]:
        """Run schedules that extend those with one event, likely ones first."""
        tally, runs, seen = self._tally, self._runs_of_singles, 0
        waiting: list[Schedule] = []
        while waiting or seen < len(runs) or tally.singles < tally.all_singles:
            added = [schedule for run in runs[seen:] for schedule in extend(run)]
            seen = len(runs)
            if added:
                waiting += added
                self._chance.shuffle(waiting)
                waiting.sort(key=likelihood)
            if waiting:
                yield from self._run_pairs([waiting.pop()])
            else:
                yield None

    def _all_pairs(self) -> Iterator[Run]:
        pairs = Pairs(self._runs_of_singles)
        self._tally.all_pairs = len(pairs)
        yield from self._run_pairs(pairs.in_any_order(self._chance))
        self._tally.all_pairs = self._tally.pairs

    def _run_repeated(self) -> Iterator[Run | None]:
        """Repeat the fault of a run at each call that only it led to, such as a retry, and so on."""
        tally, singles = self._tally, self._runs_of_singles
        known = {(point.strand, point.number, "") for point in self._undisturbed.points}
        seen, further = 0, list[Run]()
        while further or seen < len(singles) or tally.singles < tally.all_singles:
            if not further:
                further = singles[seen : seen + 1]
                seen += len(further)
            if not further:
                yield None
                continue
            run = further.pop(0)
            event = run.last_event
            if event is None or event.kind in ORDERS or len(run.fired) >= MOST_EVENTS:
                continue
            for point in run.points:
                here = point.strand, point.number, event.kind
                is_new = not known & {here, (*here[:2], "")}
                if is_new and (event.kind, event.detail) in point.choices:
                    known.add(here)
                    tally.drawn += 1
                    again = Event(point.strand, point.number, event.kind, event.detail)
                    further.append(self._player.play(Schedule(run.fired) + again, notes=True))
                    yield further[-1]

    def _run_pairs(self, schedules: Iterable[Schedule]) -> Iterator[Run]:
        for schedule in self._player.ahead.through(schedules):
            if schedule not in self._player.known:
                self._tally.pairs += 1
                yield self._player.play_planned(schedule)


SHRINK_SECONDS = 5.0
"""Wall-clock seconds for shrinking a failing schedule, in addition to the budget."""
MOST_SWITCHES = 40
"""Maximum number of single switches that are tried instead of several events."""
_NEXT_POINTS = 4
"""Number of points of one strand, and of all others, at which a plainer event is tried instead."""
REPLAYS = 5
"""Number of times a failing schedule is replayed before it is reported."""


def smallest(player: Player, run: Run, undisturbed: Run) -> Run:
    """Shrink a failing run's schedule; return the run of the smallest one found."""
    until = monotonic() + SHRINK_SECONDS
    run.schedule = Schedule(run.fired)

    def breaks(schedule: Schedule) -> Schedule | None:
        if schedule not in player.known:
            player.play(schedule)
        return player.known[schedule]

    if run.is_stuck or breaks(run.schedule) is None:
        return run
    found = shrink(run.schedule, breaks, lambda: monotonic() < until, player.subject.kinds)
    again = player.play(found, notes=True)
    if again.broken is None:
        return run
    for plainer in _plainer(again, undisturbed):
        if monotonic() >= until:
            break
        if (applied := breaks(plainer)) is not None and len(applied) == len(again.fired):
            again = player.play(applied)
            break
    if len(again.fired) > 1:
        for switch in itertools.islice(_single_switches(again, undisturbed), MOST_SWITCHES):
            if (applied := breaks(switch)) is not None and len(applied) == 1:
                return player.play(switch)
    return again


def _plainer(run: Run, undisturbed: Run) -> Iterator[Schedule]:
    """Yield schedules with an event of a plainer kind in the place of another: at the same point, or
    at a later one, because some kinds take effect at a later call, perhaps of another strand.
    """
    for event in run.fired:
        points = _points_from(event, run)
        # A call that is rejected in the run is a point of the undisturbed run only.
        points += [one for one in _points_from(event, undisturbed) if one not in points]
        own = [one for one in points if one.strand == event.strand]
        others = [one for one in points if one.strand != event.strand]
        near = own[:_NEXT_POINTS] + others[:_NEXT_POINTS]
        kinds = () if event.kind in ORDERS else TRIED[: TRIED.index(event.kind)]
        for kind, point in itertools.product([one for one in kinds if one not in ORDERS], near):
            for instead in point.events():
                if instead.kind == kind:
                    yield Schedule(instead if one == event else one for one in run.fired)


def _points_from(event: Event, run: Run) -> list[Point]:
    """Return the points of a run from that of an event on."""
    places = [(point.strand, point.number) for point in run.points]
    here = event.strand, event.point
    return run.points[places.index(here) :] if here in places else []


def _single_switches(run: Run, undisturbed: Run) -> Iterator[Schedule]:
    """Yield schedules with one switch of the undisturbed run, at strands of the run's events."""
    strands = {event.strand for event in run.fired} | {event.detail for event in run.fired}
    for point in undisturbed.points:
        for event in point.events():
            if event.kind == "switch" and {event.strand, event.detail} <= strands:
                yield Schedule([event])


def shrink(
    schedule: Schedule,
    breaks: Callable[[Schedule], Schedule | None],
    may_go_on: Callable[[], bool],
    kinds: Collection[Kind],
) -> Schedule:
    """Return the smallest schedule found that still breaks the promise.

    ``breaks`` runs a schedule and returns the events that were applied, or None if the promise held.
    """
    best = schedule
    while True:
        for smaller in _smaller(best, kinds):
            if not may_go_on():
                return best
            applied = breaks(smaller)
            if applied is not None:
                best = applied if len(applied) <= len(smaller) else smaller
                break
        else:
            return best


def _smaller(schedule: Schedule, kinds: Collection[Kind]) -> Iterator[Schedule]:
    """Yield one half, then schedules without one or two events, then those with a simpler event."""
    events = list(schedule)
    half = len(events) // 2
    if half > 1:
        yield Schedule(events[:half])
        yield Schedule(events[half:])
    for gone in range(1, 3):
        if len(events) > gone:
            for removed in itertools.combinations(events, gone):
                yield schedule.without(removed)
    for index, event in enumerate(events):
        for simpler in _simpler(event):
            if simpler.kind in kinds:
                yield Schedule([*events[:index], simpler, *events[index + 1 :]])


def _simpler(event: Event) -> Iterator[Event]:
    """Yield events that could replace an event and are easier to explain."""
    strand, point, kind, detail = event.strand, event.point, event.kind, event.detail
    if kind in ("past", "nearly") and detail != EDGE:
        yield Event(strand, point, "jump", detail)
    if kind in ("jump", "past", "nearly") and detail:
        yield Event(strand, point, kind)
    if kind == "slow":
        yield Event(strand, point + 1, "delay", detail)
    if kind == "late":
        yield Event(strand, point + 1, "switch", detail)
    if kind in ("fail", "unreachable") and detail not in ("", "1"):
        yield Event(strand, point, kind, str(int(detail) - 1))
    if kind not in ORDERS:
        for clearer in TRIED[: TRIED.index(kind)]:
            if clearer in (AT_DELIVERIES if point == 0 else ENDS):
                yield Event(strand, point, clearer)


@dataclass(frozen=True, slots=True)
class Replays:
    """The result of replaying a failing schedule; ``run`` is the last run that failed, if any."""

    run: Run | None
    failed: int
    total: int


def replay(player: Player, run: Run) -> Replays:
    """Run a failing schedule again; the last of these runs keeps its journal and its stacks."""
    # Replay a stuck run only once, because each replay takes seconds and leaves threads behind.
    total = 1 if run.is_stuck else REPLAYS
    found, failed = None, 0
    for number in range(total):
        is_last = number == total - 1
        again = player.play(run.schedule, keep=is_last, stacks=is_last)
        if again.broken is not None:
            found, failed = again, failed + 1
    return Replays(found, failed, total)


# -- the database of Hypothesis --------------------------------------------------------------------


def stored_failure(player: Player, key: bytes) -> Run | None:
    """Return the first run of a stored schedule that still fails; delete those that do not."""
    examples = hypothesis().settings().database
    if examples is None:
        return None
    for stored in sorted(examples.fetch(key), key=lambda text: (len(text), text)):
        try:
            schedule = Schedule.parse(stored.decode("utf-8", "replace"))
        except ContractError:
            schedule = Schedule()
        if schedule:
            player.tally.drawn += 1
            run = player.play(schedule)
            if run.broken is not None and len(run.fired) == len(schedule):
                return run
        examples.delete(key, stored)
    return None


def hypothesis() -> Any:
    """Return the Hypothesis package; raise ``ContractError`` if it is not installed."""
    with importing("explore()", extra="explore"):
        import hypothesis
    return hypothesis


def key_of(
    functions: Iterable[Callable[..., object]], kinds: Iterable[Kind], fakes: Iterable[str]
) -> bytes:
    """Return the key under which failures of this code with these options are stored."""
    parts = [*sorted(kinds), *sorted(fakes)]
    for function in functions:
        inner = getattr(function, "func", function)
        code = getattr(inner, "__code__", None)
        name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', '')}"
        parts += [name, "" if code is None else _text_of(code)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"pytest_fakecloud.explore.{digest}".encode()


def _text_of(value: object) -> str:
    """Return code, or one of its constants, as text that is the same in every process."""
    if isinstance(value, types.CodeType):
        return " ".join([value.co_code.hex(), *value.co_names, *map(_text_of, value.co_consts)])
    if isinstance(value, frozenset):
        return f"{{{' '.join(sorted(map(_text_of, value)))}}}"
    if isinstance(value, tuple):
        return f"({' '.join(map(_text_of, value))})"
    return repr(value)
