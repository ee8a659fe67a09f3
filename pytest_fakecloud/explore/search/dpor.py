"""Dynamic partial-order reduction: run one of all equivalent orders of conflicting steps.

Two steps conflict when they access the same data and at least one of them writes it. After each
run, every race (two conflicting steps of different strands whose order nothing else determines) is
reversed in a later run. Source sets select the strand that runs instead; sleep sets prevent orders
from being run twice (Flanagan and Godefroid, POPL 2005; Abdulla and others, POPL 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..footprint import Footprint
from ..schedule import CLOCK
from ..trial import Place, Redundant, Step, Trial


def decided_places(*, late: bool) -> frozenset[Place]:
    return frozenset({"switch", "wake", "late"} if late else {"switch", "wake"})


@dataclass
class _Frame:
    """One decision of the current run, with its alternatives."""

    step: int
    options: tuple[str, ...]
    chosen: str
    sleep: dict[str, Footprint]
    todo: set[str]
    done: dict[str, Footprint] = field(default_factory=dict)


class Interleavings:
    """A strategy that runs each distinct interleaving once.

    Call ``next()`` before each run and ``learn()`` after it, until ``next()`` returns False.
    ``trials`` is then the total number of interleavings, provided that ``is_exact`` is True.
    """

    records = True

    def __init__(self, *, late: bool, moves_time: bool = False) -> None:
        self.places = decided_places(late=late)
        self.moves_time = moves_time
        self.trials = 0
        self.is_exact = True
        self._frames: list[_Frame] = []
        self._depth = 0

    def next(self) -> bool:
        """Prepare the next run; return False when there is none."""
        self._depth = 0
        if not self.trials:
            return True
        while self._frames:
            frame = self._frames[-1]
            untried = [
                name
                for name in frame.options
                if name in frame.todo and name not in frame.done and name not in frame.sleep
            ]
            if untried:
                frame.chosen = untried[0]
                return True
            self._frames.pop()
        return False

    def pick(self, trial: Trial, options: Sequence[str], place: Place) -> str:
        """Return the name of the strand to run next; the first option is the default."""
        at = self._depth
        self._depth += 1
        if at < len(self._frames):
            frame = self._frames[at]
            if frame.options != tuple(options) or frame.step != len(trial.steps):
                # The same steps led to another state, so the code depends on more than the fakes.
                self.is_exact = False
                del self._frames[at:]
                return options[0]
            return frame.chosen
        if at > len(self._frames):
            return options[0]
        sleep = _sleep_after(self._frames[-1], trial.steps) if at else {}
        awake = [name for name in options if name not in sleep]
        if not awake:
            raise Redundant(trial)
        self._frames.append(_Frame(len(trial.steps), tuple(options), awake[0], sleep, {awake[0]}))
        return awake[0]

    def learn(self, trial: Trial, *, was_redundant: bool) -> None:
        """Find the races of a run and plan runs that reverse them."""
        if not was_redundant:
            self.trials += 1
        if trial.is_cut:
            self.is_exact = False
        del self._frames[self._depth :]
        for frame in self._frames:
            if frame.step < len(trial.steps):
                step = trial.steps[frame.step]
                frame.done[frame.chosen] = step.footprint
                frame.todo |= step.disabled.intersection(frame.options)
        by_step = {frame.step: frame for frame in self._frames}
        before = _happens_before(trial.steps)
        for later in range(len(trial.steps)):
            for earlier in _races(trial.steps, before, later):
                decision = by_step.get(earlier)
                if decision is not None:
                    _reverse(trial.steps, before, earlier, later, decision)


def _sleep_after(frame: _Frame, steps: Sequence[Step]) -> dict[str, Footprint]:
    """Return the strands whose next steps earlier runs made in an equivalent order."""
    sleep = {**frame.sleep, **frame.done}
    sleep.pop(frame.chosen, None)
    for step in steps[frame.step :]:
        sleep = {
            name: touched
            for name, touched in sleep.items()
            if name != step.strand and not touched.depends_on(step.footprint)
        }
    return sleep


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


def _reverse(
    steps: Sequence[Step], before: Sequence[int], earlier: int, later: int, frame: _Frame
) -> None:
    """Plan a run that executes the later of two racing steps first."""
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
    if frame.todo & set(initials):
        return
    possible = [name for name in initials if name in frame.options]
    if initials == [CLOCK] and not possible:
        return  # The client would have to wait longer than ``patience`` allows.
    if possible:
        wanted = steps[later].strand
        frame.todo.add(wanted if wanted in possible else possible[0])
    else:
        # The strand cannot run yet, so try every option that could enable it.
        frame.todo.update(frame.options)
