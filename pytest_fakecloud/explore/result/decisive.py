"""Selection of the calls that may have broken a promise, which a story always shows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..footprint import ALL, Touch
from ..run import Line, Run


def decisive_calls(run: Run) -> set[Line]:
    """Return the calls that may have broken the promise.

    These are the calls that were rejected, that conflict with a call of another strand, that come
    just before or after an event of their strand, or that read vectors whose changes an event keeps
    pending, and the last call before the promise broke.
    """
    broken = next((at for at, line in enumerate(run.lines) if line.breaks), len(run.lines))
    lines = run.lines[:broken]
    calls = [line for line in lines if line.call is not None]
    return {
        *calls[-1:],
        *filter(_is_rejected, calls),
        *_conflicting(calls, run),
        *_beside_events(lines),
        *_pending_reads(lines, run),
    }


def _is_rejected(line: Line) -> bool:
    """Return whether a call got an error or no answer."""
    return line.call is not None and (line.call.status is None or line.call.status >= 400)


def _data_of(line: Line, run: Run) -> list[Touch]:
    """Return the accesses of a call to the data of fakes."""
    if _is_rejected(line) or not 0 <= line.step < len(run.steps):
        return []
    return [touch for touch in run.steps[line.step].footprint.touches if touch.fake]


def _conflicting(calls: Sequence[Line], run: Run) -> Iterator[Line]:
    """Yield the calls that conflict with a call of another strand."""
    # The strands that access each thing of a fake, or anything of a kind, and whether they write.
    accesses: defaultdict[tuple[str, str, str], set[tuple[str, bool]]] = defaultdict(set)
    everything: defaultdict[tuple[str, str], set[tuple[str, bool]]] = defaultdict(set)
    touched: list[tuple[Line, str, list[Touch]]] = []
    for line in calls:
        if line.call is None or line.call.service == "queue":
            continue
        strand, data = _strand(line), _data_of(line, run)
        touched.append((line, strand, data))
        for touch in data:
            accesses[touch.fake, touch.kind, touch.name].add((strand, touch.writes))
            everything[touch.fake, touch.kind].add((strand, touch.writes))
    for line, strand, data in touched:
        for touch in data:
            if touch.name == ALL:
                others = everything[touch.fake, touch.kind]
            else:
                named = (accesses[touch.fake, touch.kind, name] for name in (touch.name, ALL))
                others = set().union(*named)
            if any(other != strand and (writes or touch.writes) for other, writes in others):
                yield line
                break


def _strand(line: Line) -> str:
    """Return the strand that made a call; a strand and its restarts are the same."""
    return re.sub(r"/\d+|:loop$", "", line.process)


def _beside_events(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the call before and the call after each event that is not itself a call."""
    latest: dict[str, Line] = {}
    waiting: set[str] = set()
    for line in lines:
        if line.call is not None:
            latest[line.process] = line
            if line.process in waiting:
                waiting.remove(line.process)
                yield line
        elif line.event:
            waiting.add(line.process)
            if line.process in latest:
                yield latest[line.process]


def _pending_reads(lines: Sequence[Line], run: Run) -> Iterator[Line]:
    """Yield the reads of vector indexes after changes were first kept pending."""
    if not any(event.kind == "hold_pending" for event in run.fired):
        return
    for line in lines:
        if line.call is not None and line.call.service == "vector":
            data = _data_of(line, run)
            if data and not any(touch.writes for touch in data):
                yield line


def writes(line: Line, run: Run) -> bool:
    return any(touch.writes for touch in _data_of(line, run))
