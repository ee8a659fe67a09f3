"""The story of a failing trial: what happened, on one clock, and which of its calls are shown."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

from ...core.characters import visible
from ...core.errors import counted
from ...core.touches import Touch
from ...kv.report.calls import command_of
from ...kv.report.lookups import gathered
from ...kv.table import kinds as commands
from ...reporting.lookups import Lookups
from ..judge.anomalies import AnomalyError
from ..values.names import StrandName
from ..values.trial import Line, Trial
from .wording import answer_text, call_text, change_text, line_text, lookups_of_trial, reason

if TYPE_CHECKING:
    from .changes import Change

_SHOWN = 3
"""Number of calls that an entry shows if fewer are decisive."""
_NOT_WORTH_HIDING = 2
"""Number of calls that are shown too, rather than counted, if an entry has no others to hide."""
_REFUSED = {
    *commands.IF_NEW, *commands.IF_EQUAL, *commands.REMOVALS, *commands.DELETIONS,
    *commands.EXPIRIES, "SADD",
}  # fmt: skip
"""Commands that answer 0 if they had no effect."""


def story(trial: Trial, undisturbed: Trial | None = None, changes: Sequence[Change] = ()) -> str:
    """Return the story as a numbered list; consecutive calls of one strand at one time share an entry,
    up to a disturbance.

    A call that has another answer than in the undisturbed trial is shown. The last entry are the calls
    that the check makes. Of several disturbances, a line each says what it changed.
    """
    entries = _entries(trial.lines)
    broken = next((at for at, entry in enumerate(entries, 1) if entry[0].breaks), len(entries))
    later = len(entries) - broken
    entries, repeated = _without_repeats(entries[:broken], trial)
    while entries and _is_look(entries[-1], trial):
        entries.pop()
    entries += [calls] if (calls := _lines_of_check(trial)) else []
    rows = _rows_of(entries, trial, undisturbed)
    width = max((len(at) for at, _ in rows), default=0)
    lines = [
        f"{number:>{len(str(len(rows)))}}. {at:>{width}}  {text}"
        for number, (at, text) in enumerate(rows, 1)
    ]
    lines += [
        f"{worker} restarts {counted(times, 'more time')}, with the same calls"
        for worker, times in repeated.items()
    ]
    if later:
        lines.append(f"afterwards: {counted(later, 'more step')}")
    lines += map(change_text, changes if len(changes) > 1 else ())
    what = "anomaly" if isinstance(trial.broken, AnomalyError) else "check"
    return visible("\n".join([*lines, f"{what}: {reason(trial.broken)}"]))


def _rows_of(
    entries: Sequence[list[Line]], trial: Trial, undisturbed: Trial | None
) -> list[tuple[str, str]]:
    """Return the time and the text of each entry; count the times that a strand repeats an entry."""
    lookups = lookups_of_trial(trial)
    decisive = _decisive_calls(trial)
    decisive.update(_with_telling_answers(trial, undisturbed))
    rows: list[tuple[str, list[str]]] = []
    """The text of each entry, with its time and those of the entries that repeat it."""
    latest: dict[str, tuple[str, list[str]]] = {}
    for entry in entries:
        line, text = entry[0], _entry_text(entry, lookups, _calls_to_show(entry, decisive))
        latest_text, times = latest.get(line.strand, ("", []))
        if text != latest_text or any(line.is_disturbance for line in entry):
            times = []
            latest[line.strand] = text, times
            rows.append((text, times))
        times.append(_at(trial, line.at_us))
    return [(times[0], f"{text}{_repeats(times[1:])}") for text, times in rows]


def _repeats(times: Sequence[str]) -> str:
    if not times:
        return ""
    count = "once, at" if len(times) == 1 else f"{len(times)} times, until"
    return f"; repeated {count} {times[-1]}"


def _lines_of_check(trial: Trial) -> list[Line]:
    """Return the calls that the check makes, without those that a transaction contains."""
    calls = [line.call for line in trial.verdict.lines if line.call is not None]
    _, without_row = gathered(calls)
    lines = zip(trial.verdict.lines, calls, strict=True)
    return [line for line, call in lines if call.number not in without_row]


def _is_look(entry: Sequence[Line], trial: Trial) -> bool:
    """Return whether an entry only shows that a restarted worker found no work."""
    is_call = len(entry) == 1 and entry[0].call is not None
    return is_call and entry[0].strand in trial.wording.idle_restarts


def _without_repeats(
    entries: Sequence[list[Line]], trial: Trial
) -> tuple[list[list[Line]], dict[str, int]]:
    """Leave out and count several restarts with the same calls as the worker's previous start."""
    by_start: dict[str, list[Line]] = {}
    for entry in entries:
        by_start.setdefault(_start_of(entry[0]), []).extend(entry)
    repeated: dict[str, list[str]] = {}
    latest: dict[str, list[object]] = {}
    for start, lines in by_start.items():
        worker, calls = StrandName.of(start).program, _calls_of(lines)
        has_disturbance = any(line.is_disturbance for line in lines)
        is_repeated = latest.get(worker) == calls and not has_disturbance
        if is_repeated and start in trial.wording.idle_restarts:
            repeated.setdefault(worker, []).append(start)
        latest[worker] = calls
    several = {worker: starts for worker, starts in repeated.items() if len(starts) > 1}
    left_out = set(itertools.chain(*several.values()))
    distinct = [entry for entry in entries if _start_of(entry[0]) not in left_out]
    return distinct, {worker: len(starts) for worker, starts in several.items()}


def _calls_of(lines: Sequence[Line]) -> list[object]:
    return [
        (line.call.service, line.call.route, line.call.facts.get("command"), line.call.status)
        for line in lines
        if line.call is not None
    ]


def _start_of(line: Line) -> str:
    """Return the strand that a line belongs to; each restart of a worker is a strand of its own."""
    return StrandName.of(line.strand).root


def _entries(lines: Sequence[Line]) -> list[list[Line]]:
    entries: list[list[Line]] = []
    for line in lines:
        last = entries[-1][-1] if entries else None
        if last is None or (last.strand, last.at_us) != (line.strand, line.at_us):
            entries.append([line])
        elif last.call is not None and (line.is_disturbance or last.is_disturbance):
            # A disturbance shares the entry of the call after it; a call with a fault has its own entry.
            entries.append([line])
        else:
            entries[-1].append(line)
    return entries


def _calls_to_show(entry: Sequence[Line], decisive: Container[Line]) -> set[Line]:
    """Return the calls that are shown of an entry.

    These are all decisive calls, the last write from each line of the application, and others if
    there is space: first the first call from a line that has no other, then writes.
    """
    calls = [line for line in entry if line.call is not None]
    last_writes = {_origin(line): line for line in calls if _writes(line)}
    calls_to_show = {line for line in calls if line.is_disturbance or line in decisive} | {
        *last_writes.values()
    }
    times = Counter(map(_origin, calls_to_show))
    priorities: dict[Line, tuple[int, bool]] = {}
    for line in calls:
        if line not in calls_to_show:
            priorities[line] = times[_origin(line)], not _writes(line)
            times[_origin(line)] += 1
    calls_to_show.update(
        sorted(priorities, key=priorities.__getitem__)[: max(0, _SHOWN - len(calls_to_show))]
    )
    return set(calls) if len(calls) - len(calls_to_show) <= _NOT_WORTH_HIDING else calls_to_show


def _origin(line: Line) -> tuple[str, str, str]:
    """Return the line of the application that made a call, with the route and the command."""
    assert line.call is not None
    return line.source, line.call.route, str(line.call.facts.get("command"))


def _entry_text(entry: Sequence[Line], lookups: Lookups, shown: Container[Line]) -> str:
    words: list[str] = []
    for is_hidden, lines in itertools.groupby(
        entry, lambda line: line.call is not None and line not in shown
    ):
        if is_hidden:
            words.append(counted(len(list(lines)), "more call"))
        else:
            words += [line_text(line, lookups) for line in lines]
    if entry[0].breaks:
        return f"{entry[0].strand} {entry[0].words}"
    return f"{StrandName.of(entry[0].strand).shown}: {'; '.join(words)}"


def _at(trial: Trial, at_us: int) -> str:
    span = (at_us - trial.start_us) / 1e6
    return f"+{span:.0f} s" if span == int(span) else f"+{span:.3f} s"


# -- decisive calls --------------------------------------------------------------------------------


def _decisive_calls(trial: Trial) -> set[Line]:
    """Return the calls that may have broken the promise."""
    broken = next((at for at, line in enumerate(trial.lines) if line.breaks), len(trial.lines))
    lines = trial.lines[:broken]
    calls = [line for line in lines if line.call is not None]
    return {
        *calls[-1:],
        *filter(_is_rejected, calls),
        *_conflicting(calls),
        *_beside_disturbances(lines),
        *_pending_reads(lines, trial),
    }


def _is_rejected(line: Line) -> bool:
    return line.call is not None and (line.call.status is None or line.call.status >= 400)


def _writes(line: Line) -> bool:
    return line.writes and not _is_rejected(line)


def _conflicting(calls: Sequence[Line]) -> Iterator[Line]:
    """Yield the calls that conflict with a call of another strand."""
    of_data = [line for line in calls if line.has_own_data and not _is_rejected(line)]
    touches: defaultdict[str, set[Touch]] = defaultdict(set)
    for line in of_data:
        touches[_strand(line)].update(line.data)
    for line in of_data:
        others = [accessed for strand, accessed in touches.items() if strand != _strand(line)]
        pairs = itertools.product(line.data, itertools.chain(*others))
        if any(touch.conflicts(other) for touch, other in pairs):
            yield line


def _strand(line: Line) -> str:
    """Return the strand that made a call; a strand and its restarts are the same."""
    return StrandName.of(line.strand).first.shown


def _with_telling_answers(trial: Trial, undisturbed: Trial | None) -> Iterator[Line]:
    """Yield the calls that were refused, and those whose answers the undisturbed trial did not give to
    the same calls of the same strand.
    """
    undisturbed_answers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    if undisturbed is not None:
        lookups = lookups_of_trial(undisturbed)
        for line in undisturbed.call_lines:
            assert line.call is not None
            call = _strand(line), call_text(line.call, lookups)
            undisturbed_answers[call].add(answer_text(line.call, lookups))
    lookups = lookups_of_trial(trial)
    for line in trial.call_lines:
        assert line.call is not None
        answer = answer_text(line.call, lookups)
        answers = undisturbed_answers.get((_strand(line), call_text(line.call, lookups)), {answer})
        if answer not in answers or _is_refusal(command_of(line.call), answer):
            yield line


def _is_refusal(command: str, answer: str) -> bool:
    """Return whether an answer says that a write had no effect."""
    is_missing = answer == "null" and command in commands.CREATES
    return is_missing or (answer == "0" and command in _REFUSED)


def _beside_disturbances(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the call before and the call after each disturbance that is not itself a call."""
    latest: dict[str, Line] = {}
    waiting: set[str] = set()
    for line in lines:
        if line.call is not None:
            latest[line.strand] = line
            if line.strand in waiting:
                waiting.remove(line.strand)
                yield line
        elif line.is_disturbance:
            waiting.add(line.strand)
            if line.strand in latest:
                yield latest[line.strand]


def _pending_reads(lines: Sequence[Line], trial: Trial) -> Iterator[Line]:
    """Yield the reads of vector indexes after changes were first kept pending."""
    if "hold" not in trial.applied.kinds:
        return
    for line in lines:
        is_search = line.call is not None and line.call.service == "vector" and line.data
        if is_search and not line.writes and not _is_rejected(line):
            yield line
