"""The log of a trial that is played, which becomes the trial when it has ended."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...core.calls import Call
from ...core.errors import broken_promise
from ..fakes.fakes import Fakes
from ..values.disturbances import DELAYS, KINDS, RANDOM, Disturbance, Kind
from ..values.trial import Choices, Flag, Handler, Line, ReachedPoint
from .access_log import AccessLog
from .script import Script


@dataclass(slots=True)
class TrialLog:
    """What has happened in a trial so far; the simulation makes a ``Trial`` of it at the end."""

    _fakes: Fakes
    _script: Script
    _access_log: AccessLog
    start_us: int = field(init=False)
    broken: BaseException | None = None
    """The first of these: a failed assertion of the code, a promise that does not hold after a step, and
    the report of strands that are stuck.
    """
    applied: list[Disturbance] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    points: list[ReachedPoint] = field(default_factory=list)
    silent_calls: list[Call] = field(default_factory=list)
    call_counts: Counter[str] = field(default_factory=Counter)
    """The number of calls of each strand, by name, in the order of the first calls."""
    idle_restarts: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    handlers: dict[Handler, bool] = field(default_factory=dict)
    flags: set[Flag] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    """Sentences about code that was not explored, in order."""

    def __post_init__(self) -> None:
        self.start_us = self._fakes.now_us()

    def add_point(self, strand: str, point: int, choices: Choices, switch_kind: str = "") -> None:
        """Record a point, and the fingerprint of the state in which the trial reaches it."""
        script = self._script
        fingerprints = self._access_log.fingerprints
        state = fingerprints.take(strand, switch_kind) if script.plan.notes_points else 0
        choices = _allowed(choices, script.subject.kinds)
        self.points.append(ReachedPoint(strand, point, choices, state, self._fakes.now_us()))

    def add_line(self, strand: str, words: str = "", call: Call | None = None) -> Line:
        steps = self._access_log.steps
        step = steps[-1] if steps else None
        line = Line(self._fakes.now_us(), strand, words, call, step=step)
        self.lines.append(line)
        return line

    def note_applied(self, disturbances: Sequence[Disturbance], strand: str, words: str) -> None:
        """Count disturbances as applied, and add their line to the story, unless ``words`` is empty."""
        self.applied += disturbances
        if words:
            self.add_line(strand, words).disturbances = tuple(disturbances)

    def note(self, text: str) -> None:
        """Add a sentence about code that was not explored, unless it is there."""
        self.notes[text] = None

    def note_error(self, error: BaseException | None) -> bool:
        """Note an error of the code, and return whether it breaks the promise: a failed assertion, also
        in a group. The first one counts.
        """
        failed = broken_promise(error)
        self.broken = self.broken or failed
        return failed is not None

    def note_handler_call(self, handler: Handler, *, succeeded: bool) -> None:
        """Note a call of a destination handler."""
        self.handlers[handler] = self.handlers.get(handler, False) or succeeded

    def note_numbers(self, series: int) -> None:
        """Note that the code has drawn random numbers, for 0 those of the undisturbed trial."""
        self.flags.add("numbers")
        if series:
            words = KINDS["numbers"].words.format(series)
            disturbance = Disturbance(RANDOM, series, "numbers")
            line = Line(self.start_us, "the code", words, disturbances=(disturbance,))
            self.lines.insert(0, line)
            self.applied.insert(0, disturbance)

    def postpone(self, line: Line, now_us: int) -> None:
        """Move the line of a call that has waited to the time of its answer."""
        at = self.lines.index(line)
        if self.lines[-1] is line and line.at_us == now_us:
            return
        self.lines[at] = Line(line.at_us, line.strand, "waits in a call", step=line.step)
        line.at_us = now_us
        self.lines.append(line)

    def has_overlap(self) -> bool:
        """Return whether another strand made a call while the last disturbance delayed a strand."""
        disturbance = self.applied[-1] if self.applied else None
        if disturbance is None or disturbance.kind not in DELAYS or disturbance.is_until_due:
            return False
        strand = disturbance.strand
        own = (line.at_us for line in self.lines if line.is_disturbance and line.strand == strand)
        began = next(own, self.start_us)
        ended = began + disturbance.span_us
        others = (line.at_us for line in self.lines if line.call and line.strand != strand)
        return any(began < at_us < ended for at_us in others)


@functools.cache
def _allowed(choices: Choices, kinds: frozenset[Kind]) -> Choices:
    """Return the choices of these kinds, as one tuple for all points and trials that have them."""
    return tuple(choice for choice in choices if choice[0] in kinds)


def span_text(span_us: int) -> str:
    """Return a span in seconds, such as ``"0.5 s"``."""
    return f"{span_us / 1e6:.6g} s"
