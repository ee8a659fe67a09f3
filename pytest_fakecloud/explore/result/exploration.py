"""The results of ``explore()``: what held, or a broken promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import FakecloudError, counted, shown
from ...core.journal import Results
from ..search.interleavings import Extent
from ..search.tally import CounterName, ShownAnomaly, Tally
from ..subject.clients import Inputs, replay_text, text_of_inputs
from ..values.disturbances import SWITCHES
from ..values.failures import Failure
from ..values.schedule import Schedule
from ..values.trial import FailingTrial, Trial
from .cause import Cause
from .changes import Change
from .page import page_of_broken_promise
from .story import story
from .wording import cause_text

if TYPE_CHECKING:
    from ...cloud.base import BaseCloud
    from ...reporting.report import Report

_LABELS: dict[CounterName, str] = {
    "extended": "of several",
    "replayed": "that failed last time",
    "drawn": "with other random numbers",
}
"""How a summary describes the trials of a counter."""
_MOST_LISTED = 20
"""Maximum number of trials of ``every_failure()`` that an error lists."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What the promise read, and how many lost writes it notices.

    ``unwritten`` are the keys that it read and that neither it nor any trial wrote. ``unnoticed`` are
    the writes whose loss it does not notice, of the ``writes`` that were left out.
    """

    reads: str = ""
    unwritten: tuple[str, ...] = ()
    writes: int = 0
    unnoticed: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """The same in the words of the summary."""


class Exploration:
    """The result of an ``explore()`` call that found no broken promise.

    ``tried`` is the number of schedules: ``orders`` interleavings (``is_exhaustive`` if there are no
    others), ``singles`` with one disturbance, ``extended`` ones that extend an earlier schedule,
    ``drawn`` ones that are tried again with other random numbers, and ``replayed`` ones that were given
    or failed last time. The interleavings are distinct, except that searches with late answers and with
    timers begin with the first one again. ``all_singles`` is the number of ``singles`` that exists.
    ``states`` is the number of distinct states that the undisturbed trial, ``singles`` and ``extended``
    have reached, and ``last_new_state`` the number of the schedule that reached the last new one.
    ``calls`` maps each client to its calls in the trial in which it made most, ``points`` to the points
    at which disturbances were possible; ``kinds`` maps each kind of them to the number of times it was
    applied. ``untried`` are the kinds that were never possible, ``unreached`` those that the budget did
    not allow. ``reads`` is what the promise read, ``unwritten`` the keys of it that no trial wrote.
    Each of ``writes`` was left out in a trial of its own; the promise did not notice ``unnoticed``.
    ``inputs`` is the number of drawn inputs. ``anomalies`` are those that trials showed. ``notes``
    describe unexplored code, ``seconds`` is wall-clock time, ``str()`` a summary.
    """

    def __init__(self, tally: Tally, kinds_to_name: Sequence[str], trust: Trust) -> None:
        self.tried = tally.tried
        counts = tally.counts
        self.orders, self.is_exhaustive = counts["orders"], tally.interleavings.is_exhaustive
        self.singles, self.all_singles = counts["singles"], tally.all_singles
        self.extended, self.drawn = counts["extended"], counts["drawn"]
        self.replayed = counts["replayed"]
        self.states, self.last_new_state = tally.states, tally.last_new_state
        covered = tally.coverage
        self._ranges = {name: calls for name, calls in covered.calls.items() if calls[1]}
        self.calls = {name: most for name, (_, most) in self._ranges.items()}
        ids = dict.fromkeys(reached.point_id for reached in covered.points if reached.choices)
        self.points = dict(Counter(strand for strand, _ in ids))
        self.kinds = dict(covered.kinds)
        missing = [kind for kind in kinds_to_name if kind not in covered.kinds]
        reachable = covered.possible - covered.attempted
        self.untried = tuple(kind for kind in missing if kind not in reachable)
        # After all interleavings, another switch would only exchange independent calls.
        needless = SWITCHES if tally.interleavings.has_all else frozenset()
        self._needless = [kind for kind in missing if kind in reachable & needless]
        self.unreached = tuple(kind for kind in missing if kind in reachable - needless)
        self.notes = tuple(covered.notes)
        self.inputs = tally.input_count
        self._one_process_reason = tally.one_process_reason
        self.reads, self.unwritten = trust.reads, trust.unwritten
        self.writes, self.unnoticed = trust.writes, trust.unnoticed
        self._trust = trust.lines
        anomalies = tally.anomalies.values()
        self.anomalies = tuple(
            f"{shown_anomaly.anomaly}; {_replay(shown_anomaly)}" for shown_anomaly in anomalies
        )
        self.seconds = tally.seconds
        self.seed = tally.seed
        varies_numbers = "numbers" in kinds_to_name or tally.only_schedule
        self._has_same_numbers = covered.draws_numbers and not varies_numbers
        what = "no anomaly was found" if tally.anomalies_break else "the promise held"
        self._text = f"{what} in {_summary(tally)}"

    def __str__(self) -> str:
        lines = [self._text]
        if self._ranges:
            texts = (f"{name} {_range(*calls)}" for name, calls in self._ranges.items())
            lines.append(f"calls: {', '.join(texts)}")
        if self.kinds:
            texts = (f"{kind} {times:,}" for kind, times in self.kinds.items())
            lines.append(f"disturbances: {', '.join(texts)}")
        if self.states:
            last = f"the last new one in schedule {self.last_new_state:,}"
            lines.append(f"states of the fakes: {self.states:,}, {last}")
        lines += self._trust
        lines += (f"anomaly: {text}" for text in self.anomalies)
        if self.untried:
            lines.append(f"never had a place: {', '.join(self.untried)}")
        if self._needless:
            lines.append(f"could only exchange independent calls: {', '.join(self._needless)}")
        if self.unreached:
            lines.append(f"not reached within the budget: {', '.join(self.unreached)}")
        if self._has_same_numbers:
            lines.append("the random numbers were the same in each trial: kinds= omits 'numbers'")
        lines += self.notes
        if self._one_process_reason:
            lines.append(f"searched in one process: {self._one_process_reason}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Exploration: {self._text}>"


class BrokenPromiseError(FakecloudError, AssertionError):
    """Raised with the smallest schedule found that breaks a promise.

    ``schedule`` is the schedule as a string, for ``explore(..., schedule=...)`` and
    ``replay_schedule``; it is empty for the undisturbed trial. ``disturbances`` are those of the
    schedule, as strings. ``inputs`` are the drawn inputs of the clients, by name. ``cause`` describes
    the disturbance or the order of calls that broke the promise; it is empty if the undisturbed trial
    breaks it. ``story`` lists what happened up to the step that broke the promise, on one clock, and
    what each of several disturbances changed. ``tried`` is the number of schedules that a search has
    tried, with this one unless it was given or is empty. ``trials`` are the failing trial and the
    undisturbed one, for the report's page. ``failures`` are the trials of ``every_failure()``, whose
    story is that of the first that broke the promise. The failed assertion is the ``__cause__``.
    """

    __module__ = "pytest_fakecloud"

    def __init__(
        self,
        failing: FailingTrial,
        tally: Tally,
        undisturbed: Trial | None = None,
        cause: Cause | None = None,
        *,
        changes: Sequence[Change] = (),
        inputs: Inputs | None = None,
        replays: Sequence[Trial] = (),
    ) -> None:
        trial, schedule = failing.trial, failing.schedule
        self.trials = trial, undisturbed
        self.schedule = str(schedule)
        self.disturbances = tuple(map(str, schedule))
        self.inputs = dict(inputs or {})
        self._cause = cause
        self._changes = changes
        self.cause = cause_text(cause, trial)
        self.story = story(trial, undisturbed, changes)
        self.tried = tally.tried
        self.seconds = tally.seconds
        self.failures = tally.failures
        what = "an anomaly was found" if tally.anomalies_break else "the promise was broken"
        text = f"{what} by {_schedule_text(tally, schedule)}"
        if tally.failures:
            text = f"{what} in {_list_of_broken(tally.failures)}\nthe first of them"
        failed = sum(replay.broken is not None for replay in replays)
        if failed < len(replays):
            times = f"{failed} of {len(replays)} replays"
            text += f"; the code is not deterministic: it failed in {times}"
        text += ":\n"
        text += f"inputs: {text_of_inputs(self.inputs)}\n" if self.inputs else ""
        text += f"cause: {self.cause}\n" if self.cause else ""
        text += self.story
        if self.disturbances or self.inputs:
            arguments = replay_text(self.schedule, self.inputs)
            text += f"\nreplay it with @pytest_fakecloud.replay_schedule({arguments})"
        super().__init__(text)

    @contextmanager
    def _fakecloud_scene(self, cloud: BaseCloud) -> Iterator[None]:
        """Show the data that the failing trial left, for a report, within the block."""
        explored, state = self.trials[0].state or (None, None)
        if explored is not cloud or state is None:
            yield
            return
        present = cloud.snapshot()
        cloud.restore(state)
        try:
            yield
        finally:
            cloud.restore(present)

    def _fakecloud_picture(
        self, cloud: BaseCloud, report: Report, states: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the data of the report's page, which shows both trials."""
        return page_of_broken_promise(str(self), *self.trials, self._cause, cloud, report, states)


def _schedule_text(tally: Tally, schedule: Schedule) -> str:
    if tally.only_schedule is not None and len(schedule) == len(tally.only_schedule):
        return "the given schedule"
    if tally.only_schedule is not None:
        missed = tally.only_schedule.without(schedule)
        return f"the given schedule, of which these disturbances were not applied: {missed}"
    if not schedule:
        return "the undisturbed trial: no disturbance was applied"
    disturbances = counted(len(schedule), "disturbance")
    return f"a schedule of {disturbances}, after {_summary(tally)}"


def _replay(shown_anomaly: ShownAnomaly) -> str:
    schedule = str(shown_anomaly.schedule)
    if shown_anomaly.inputs:
        return f"replay it with replay_schedule({replay_text(schedule, shown_anomaly.inputs)})"
    return f"replay it with {schedule!r}" if schedule else "in the undisturbed trial"


def _list_of_broken(failures: Results[Failure]) -> str:
    broken = failures.where(held=False)
    lines = [f"{len(broken):,} of {counted(len(failures), 'trial')}:"]
    lines += [f"  {shown(failure)}" for failure in broken[:_MOST_LISTED]]
    if len(broken) > _MOST_LISTED:
        lines.append(f"  ... and {len(broken) - _MOST_LISTED:,} more")
    return "\n".join(lines)


def _summary(tally: Tally) -> str:
    if tally.only_schedule is not None:
        return "the given schedule"
    orders, counts, number = tally.interleavings, tally.counts, tally.counts["orders"]
    inputs = [counted(tally.input_count, "drawn input")] if tally.input_count else []
    interleavings = counted(number, "distinct interleaving")
    if orders.has_all:
        which = "the only possible interleaving" if number == 1 else f"all {interleavings}"
        interleavings = f"{which} of calls to the fakes"
    if orders.is_exhaustive:
        interleavings += " (exhaustive)"
        if not counts["singles"]:
            of_inputs = "".join(f" for {text}" for text in inputs)
            return f"{interleavings}{of_inputs} in {tally.seconds:.1f} s"
    parts, tried = inputs, counted(tally.tried, "schedule")
    if orders.has_all and tally.tried == number:
        tried = interleavings
    elif number:
        parts.append(interleavings)
    if orders.extent == Extent.ALL_OF_KINDS:
        parts.append("in which the clock moves only when all wait")
    if tally.all_singles:
        parts.append(_of(counts["singles"], tally.all_singles, "of one disturbance"))
    parts += [f"{counts[name]:,} {label}" for name, label in _LABELS.items() if counts[name]]
    shown = f"{', '.join(parts)}; " if parts else ""
    return f"{tried} in {tally.seconds:.1f} s ({shown}seed {tally.seed!r})"


def _range(least: int, most: int) -> str:
    return counted(most, "call") if least == most else f"{least:,} to {counted(most, 'call')}"


def _of(done: int, existing: int, what: str) -> str:
    return f"all {done:,} {what}" if done == existing else f"{done:,} of {existing:,} {what}"
