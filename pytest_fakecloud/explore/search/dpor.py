"""Dynamic partial-order reduction: try one of all equivalent orders of conflicting steps.

Two steps conflict when they access the same data and at least one of them writes it. After each
trial, every race (two conflicting steps of different strands whose order nothing else determines) is
reversed in a later trial. Source sets select the strand that runs instead; sleep sets prevent
orders from being run twice (Flanagan and Godefroid, POPL 2005; Abdulla and others, POPL 2014).

For example, ``ann`` writes x and then y (a1, a2), and ``bob`` writes x (b1):

    trial 1: a1 a2 b1    a1 and b1 race: ``bob`` is the *initial* to run instead of a1 (``todo``)
    trial 2: b1 a1 a2    begins with ``sleep`` = {ann: a1}; b1 wakes ann, because it conflicts with a1

Nothing else is tried. To run a1 before b1 again would reverse the race of trial 2, but ann sleeps there.
The order a1 b1 a2 is equivalent to trial 1, because b1 and a2 do not conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..values.disturbances import CLOCK
from ..values.footprint import Footprint
from ..values.plan import Redundant, Strategy, SwitchKind
from ..values.trial import Outline, Step


class Decision(NamedTuple):
    """A decision of a trial: the index of the next step, the strands that could run, and one of them."""

    step: int
    options: tuple[str, ...]
    chosen: str


@dataclass(frozen=True)
class Branch:
    """The decisions with which a trial begins; all others avoid orders that are known.

    ``sleep`` has the footprints of the next steps, by strand, that earlier trials made in an equivalent
    order. Footprints have no hash, so ``asleep``, their strands, represents them in comparisons of
    branches.
    """

    decisions: tuple[Decision, ...] = ()
    asleep: frozenset[str] = frozenset()
    sleep: Mapping[str, Footprint] = field(default_factory=dict, compare=False)
    late: bool = False
    moves_clock: bool = False

    def strategy(self) -> BranchStrategy:
        return BranchStrategy(self)


class Reversal(NamedTuple):
    """Two racing steps, whose order a later trial reverses at a decision: ``initials`` are the
    strands that can begin such an order, and ``later_strand`` is that of the later step.
    """

    decision: int
    initials: tuple[str, ...]
    later_strand: str


class Lesson(NamedTuple):
    """What the search for interleavings learns from a trial."""

    repeated: int
    """The number of decisions of the branch that the trial made again; fewer if it took another way."""
    decisions: tuple[Decision, ...]
    """The further decisions."""
    sleeps: tuple[Mapping[str, Footprint], ...]
    """The steps not to make at each of them."""
    footprints: Mapping[int, tuple[Footprint, frozenset[str]]]
    """The footprint of the step after each decision from the last one of the branch on, and the options
    that it disabled, by the number of the decision in the trial.
    """
    reversals: tuple[Reversal, ...]
    is_exact: bool


@dataclass
class _Frame:
    """One decision of the current trial, with its alternatives."""

    decision: Decision
    sleep: Mapping[str, Footprint]
    todo: set[str]
    done: dict[str, Footprint] = field(default_factory=dict)

    def untried(self) -> str | None:
        """Return the next option to try, or None."""
        for name in self.decision.options:
            if name in self.todo and name not in self.done and name not in self.sleep:
                return name
        return None


class InterleavingTree:
    """The tree of distinct interleavings, or the part of it below a branch.

    Call ``next()`` before each trial and ``learn()`` after it, until ``next()`` returns None.
    ``trials`` is then the total number of interleavings, provided that ``is_exact`` is True.
    """

    def __init__(self, root: Branch) -> None:
        self.root = root
        self.trials = 0
        self.is_exact = True
        self._frames: dict[int, _Frame] = {}
        """The decisions below the root, by their numbers in the latest trial, in order."""
        self._has_begun = False

    def contains(self, branch: Branch) -> bool:
        """Return whether a branch begins with the decisions of the root."""
        root = self.root
        return (
            branch.decisions[: len(root.decisions)] == root.decisions
            and (root.late, root.moves_clock) == (branch.late, branch.moves_clock)
        )  # fmt: skip

    def next(self) -> Branch | None:
        """Return the next branch to run; None when there is none."""
        if not self._has_begun:
            self._has_begun = True
            return self.root
        while self._frames:
            number, frame = next(reversed(self._frames.items()))
            if (name := frame.untried()) is not None:
                frame.decision = frame.decision._replace(chosen=name)
                return self._branch(number, name)
            del self._frames[number]
        return None

    def upcoming(self) -> Iterator[Branch]:
        """Yield the branches that follow, if no trial before them finds others, the next one first.
        Until the trial of the latest one is learned, that is the latest one again.
        """
        for number, frame in reversed(self._frames.items()):
            if (name := frame.untried()) is not None:
                yield self._branch(number, name)

    def _branch(self, number: int, name: str) -> Branch:
        """Return the branch that chooses an option at a decision."""
        frame = self._frames[number]
        decisions = [frame.decision for other, frame in self._frames.items() if other < number]
        chosen = frame.decision._replace(chosen=name)
        sleep = {
            other: step for other, step in {**frame.sleep, **frame.done}.items() if other != name
        }
        return replace(
            self.root,
            decisions=(*self.root.decisions, *decisions, chosen),
            asleep=frozenset(sleep),
            sleep=sleep,
        )

    def learn(self, trial: Outline) -> None:
        """Learn the races of a trial, and plan trials that reverse them.

        The decisions of the root have no frames, because other parts of the tree are not tried.
        """
        lesson: Lesson = trial.lesson
        self.trials += "redundant" not in trial.flags
        self.is_exact = self.is_exact and lesson.is_exact and "limited" not in trial.flags
        # The trial has replaced all decisions after those that it repeated.
        frames = {at: frame for at, frame in self._frames.items() if at < lesson.repeated}
        decided = zip(lesson.decisions, lesson.sleeps, strict=True)
        for number, (decision, sleep) in enumerate(decided, lesson.repeated):
            frames[number] = _Frame(decision, sleep, {decision.chosen})
        for number, (footprint, disabled) in lesson.footprints.items():
            if (frame := frames.get(number)) is not None:
                frame.done[frame.decision.chosen] = footprint
                frame.todo |= disabled.intersection(frame.decision.options)
        for reversal in lesson.reversals:
            if (frame := frames.get(reversal.decision)) is not None:
                _reverse(frame, reversal)
        self._frames = frames


class BranchStrategy(Strategy):
    """A strategy that begins with the decisions of a branch, and then makes no step that sleeps."""

    def __init__(self, branch: Branch) -> None:
        self.switch_kinds = frozenset(
            {"switch", "wake", "late"} if branch.late else {"switch", "wake"}
        )
        self.moves_clock = branch.moves_clock
        self._branch = branch
        self._repeated = 0
        self._has_strayed = False
        """Whether the same steps led to another state: the code depends on more than the fakes."""
        self._decisions: list[Decision] = []
        self._sleeps: list[Mapping[str, Footprint]] = []

    def pick(self, steps: Sequence[Step], options: Sequence[str], kind: SwitchKind) -> str:
        """Return the name of the strand to run next; the first option is the default."""
        step, names = len(steps), tuple(options)
        if self._has_strayed:
            return names[0]
        if self._repeated < len(self._branch.decisions):
            decision = self._branch.decisions[self._repeated]
            if (decision.step, decision.options) != (step, names):
                self._has_strayed = True
                return names[0]
            self._repeated += 1
            return decision.chosen
        sleep = self._sleep(steps)
        awake = [name for name in names if name not in sleep]
        if not awake:
            raise Redundant
        self._decisions.append(Decision(step, names, awake[0]))
        self._sleeps.append(sleep)
        return awake[0]

    def _sleep(self, steps: Sequence[Step]) -> Mapping[str, Footprint]:
        """Return the footprints of the next steps, by strand, that earlier trials made in an equivalent
        order.
        """
        if self._decisions:
            sleep, last = self._sleeps[-1], self._decisions[-1]
        elif self._branch.decisions:
            sleep, last = self._branch.sleep, self._branch.decisions[-1]
        else:
            return {}
        asleep = {name: touched for name, touched in sleep.items() if name != last.chosen}
        for step in steps[last.step :]:
            asleep = {
                name: touched
                for name, touched in asleep.items()
                if name != step.strand and not touched.depends_on(step.footprint)
            }
        return asleep

    def lesson(self, steps: Sequence[Step]) -> Lesson:
        """Find the races of the trial."""
        repeated = self._repeated
        decisions = [*self._branch.decisions[:repeated], *self._decisions]
        by_step = {decision.step: index for index, decision in enumerate(decisions)}
        before = _happens_before(steps)
        reversals: dict[Reversal, None] = {}
        for later in range(len(steps)):
            for earlier in _races(steps, before, later):
                if (index := by_step.get(earlier)) is not None:
                    initials = _initials(steps, before, earlier, later)
                    reversals[Reversal(index, initials, steps[later].strand)] = None
        # The last decision that it repeated chose an option for the first time, as the new ones did.
        footprints = {
            number: (steps[decision.step].footprint, frozenset(steps[decision.step].disabled))
            for number, decision in enumerate(decisions)
            if number >= repeated - 1 and decision.step < len(steps)
        }
        return Lesson(
            repeated,
            tuple(self._decisions),
            tuple(self._sleeps),
            footprints,
            tuple(reversals),
            not self._has_strayed,
        )


def _happens_before(steps: Sequence[Step]) -> list[int]:
    """Return, for each step, a bit set of the steps that precede it in every equivalent order."""
    before: list[int] = []
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        # Steps that precede this one whatever data it accesses.
        predecessors = (1 << step.barrier + 1) - 1
        for cause in (last.get(step.strand, -1), step.enabled_by):
            if cause >= 0:
                predecessors |= before[cause] | 1 << cause
        candidates = ~predecessors & (1 << index) - 1
        while candidates:
            other = candidates.bit_length() - 1
            candidates ^= 1 << other
            if step.footprint.depends_on(steps[other].footprint):
                predecessors |= before[other] | 1 << other
                candidates &= ~predecessors
        before.append(predecessors)
        last[step.strand] = index
    return before


def _races(steps: Sequence[Step], before: Sequence[int], later: int) -> list[int]:
    """Return the earlier steps that precede a step only because the two conflict."""
    step, candidates = steps[later], before[later]
    races: list[int] = []
    while (index := candidates.bit_length() - 1) > step.barrier:
        # Leave out the steps that precede through this one.
        candidates &= ~(before[index] | 1 << index)
        is_other = steps[index].strand != step.strand and index != step.enabled_by
        if is_other and step.footprint.depends_on(steps[index].footprint):
            races.append(index)
    return races


def _initials(
    steps: Sequence[Step], before: Sequence[int], earlier: int, later: int
) -> tuple[str, ...]:
    """Return the strands that can begin an order in which the later of two racing steps is first."""
    between = [i for i in range(earlier + 1, later) if not before[i] >> earlier & 1]
    sequence = [*between, later]
    initials: list[str] = []
    seen: set[str] = set()
    for place, index in enumerate(sequence):
        strand = steps[index].strand
        if strand in seen:
            continue
        seen.add(strand)
        if not any(before[index] >> other & 1 for other in sequence[:place]):
            initials.append(strand)
    return tuple(initials)


def _reverse(frame: _Frame, reversal: Reversal) -> None:
    """Plan a trial that executes the later of two racing steps first."""
    initials, options = reversal.initials, frame.decision.options
    if frame.todo & set(initials):
        return
    possible = [name for name in initials if name in options]
    if initials == (CLOCK,) and not possible:
        return  # The client would have to wait longer than ``patience`` allows.
    if possible:
        frame.todo.add(reversal.later_strand if reversal.later_strand in possible else possible[0])
    else:
        # The strand cannot run yet, so try every option that could enable it.
        frame.todo.update(options)
