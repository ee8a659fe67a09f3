"""The results of ``explore()``: an exploration without a failure, or a broken promise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import FakecloudError
from ...core.wording import counted
from ..run import Run
from ..search.failures import Replays
from ..search.tally import MOST_EVENTS, Tally
from .cause_text import cause_text
from .story import story

if TYPE_CHECKING:
    from ...base_cloud import BaseCloud
    from ...reporting.model import Report


class Exploration:
    """The result of an ``explore()`` call that found no broken promise.

    ``tried`` is the number of schedules: ``orders`` distinct interleavings (``is_exhaustive`` if
    there are no others), ``singles`` with one event, ``pairs`` with two events, and ``drawn``
    random ones. ``all_singles`` and ``all_pairs`` are the numbers that exist (None if unknown).
    ``calls`` maps each client to its calls, ``points`` to the points at which events were tried;
    ``kinds`` maps each kind of event to the number of times it was applied. ``untried`` are the
    kinds that were never possible, ``unreached`` those that the budget did not allow. ``likely``
    maps a number of ordered switches to the minimum probability that a bug that needs them was
    found. ``notes`` describe unexplored code, ``seconds`` is wall-clock time, ``str()`` a summary.
    """

    def __init__(self, tally: Tally, wanted: Iterable[str]) -> None:
        self.tried = tally.tried
        self.orders, self.is_exhaustive = tally.orders, tally.is_exhaustive
        self.singles, self.all_singles = tally.singles, tally.all_singles
        self.pairs, self.all_pairs = tally.pairs, tally.all_pairs
        self.drawn = tally.drawn
        covered = tally.coverage
        self.calls = dict(covered.calls)
        self.points = {name: len(points) for name, points in covered.points.items()}
        self.kinds = dict(covered.kinds)
        missing = [kind for kind in wanted if kind not in covered.kinds]
        left = covered.possible - covered.attempted
        self.untried = tuple(kind for kind in missing if kind not in left)
        self.unreached = tuple(kind for kind in missing if kind in left)
        self.likely = tally.priority_runs.likely
        self.notes = tuple(covered.notes)
        self.seconds = tally.seconds
        self.seed = tally.seed
        self._text = _summary(tally)

    def __str__(self) -> str:
        lines = [f"the promise held in {self._text}"]
        if self.calls:
            texts = (f"{name} {counted(calls, 'call')}" for name, calls in self.calls.items())
            lines.append(f"calls: {', '.join(texts)}")
        if self.kinds:
            texts = (f"{kind} {times:,}" for kind, times in self.kinds.items())
            lines.append(f"events: {', '.join(texts)}")
        if self.untried:
            lines.append(f"never had a place: {', '.join(self.untried)}")
        if self.unreached:
            lines.append(f"not reached within the budget: {', '.join(self.unreached)}")
        lines += self.notes
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Exploration: the promise held in {self._text}>"


class BrokenPromiseError(FakecloudError, AssertionError):
    """Raised with the smallest schedule found that breaks a promise.

    ``schedule`` is the schedule as a string, for ``explore(..., schedule=...)`` and
    ``replay_schedule``; it is empty for the undisturbed run. ``events`` is its number of events.
    ``cause`` describes the event or the conflict that broke the promise, or is empty. ``story`` lists
    what happened up to the step that broke the promise, on one clock. ``tried`` is the number of
    schedules tried before. ``runs`` are the failing run and the undisturbed run, for the report's
    page. The failed assertion is the ``__cause__``.
    """

    __module__ = "pytest_fakecloud"

    def __init__(
        self,
        run: Run,
        tally: Tally,
        undisturbed: Run | None = None,
        *,
        replays: Replays | None = None,
    ) -> None:
        self.runs = run, undisturbed
        self.schedule = str(run.schedule)
        self.events = len(run.schedule)
        self.cause = cause_text(run.cause, run)
        self.story = story(run)
        self.tried = tally.tried
        self.seconds = tally.seconds
        text = f"the promise was broken by {self._schedule_text(tally)}"
        if replays is not None and replays.failed < replays.total:
            text += (
                "; the code is not deterministic: it failed in "
                f"{replays.failed} of {replays.total} replays"
            )
        text += f":\ncause: {self.cause}\n" if self.cause else ":\n"
        text += self.story
        if self.events:
            text += f'\nreplay it with @pytest_fakecloud.replay_schedule("{self.schedule}")'
        super().__init__(text)

    def _fakecloud_picture(
        self, cloud: BaseCloud, report: Report, states: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the data of the report's page, which shows both runs."""
        from .picture import picture

        return picture(cloud, report, states, self)

    def _schedule_text(self, tally: Tally) -> str:
        if tally.given is not None and self.events == len(tally.given):
            return "the given schedule"
        if not self.events:
            return "the undisturbed run: no event was applied"
        if tally.given is not None:
            missed = tally.given.without(self.runs[0].schedule)
            return f"the given schedule, of which these events were not applied: {missed}"
        return f"a schedule of {counted(self.events, 'event')}, after {_summary(tally)}"


def _summary(tally: Tally) -> str:
    if tally.given is not None:
        return "the given schedule"
    interleavings = counted(tally.orders, "distinct interleaving")
    if tally.is_exhaustive and not tally.singles:
        which = "the only possible interleaving" if tally.orders == 1 else f"all {interleavings}"
        return f"{which} (exhaustive) in {tally.seconds:.1f} s"
    parts = []
    if tally.orders > 1:
        has_all = tally.has_all_orders and not tally.unfinished_order_searches
        text = f"all {interleavings}" if has_all else interleavings
        parts.append(f"{text} (exhaustive)" if tally.is_exhaustive else text)
    if tally.all_singles:
        parts.append(_of(tally.singles, tally.all_singles, "of one event"))
    if tally.pairs:
        parts.append(_of(tally.pairs, tally.all_pairs, "of two"))
    if tally.drawn:
        parts.append(f"{tally.drawn:,} drawn, of up to {MOST_EVENTS}")
    many = f"{counted(tally.tried, 'schedule')} in {tally.seconds:.1f} s"
    return f"{many} ({', '.join(parts)}; seed {tally.seed!r}){_certainty(tally)}"


def _certainty(tally: Tally) -> str:
    """Return the greatest bug depth that was probably found, or the smallest one, in words."""
    likely = tally.priority_runs.likely
    if tally.is_exhaustive or not likely:
        return ""
    depth = max((d for d, least in likely.items() if least >= 0.05), default=min(likely))
    return (
        f"; a bug that needs {depth} ordered switches is found with a probability of at "
        f"least {likely[depth]:.0%}"
    )


def _of(done: int, existing: int | None, what: str) -> str:
    if done == existing:
        return f"all {done:,} {what}"
    return f"{done:,} {what}" if existing is None else f"{done:,} of {existing:,} {what}"
