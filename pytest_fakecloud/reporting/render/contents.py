"""What each group of rows shows in a timeline, without what the groups before it have shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..contract import functions_of
from ..errors import contained
from ..lookups import Lookups
from ..model import Place, ReportRow, Summary
from ..report import Report
from .folding import RowGroup, folded, merged, without_unlisted
from .wording import ShortUrls, code_at, code_beside, describe, handler_text

LONG_EXPLANATION = 60
"""Maximum length of an explanation that is repeated; a longer one becomes ``as above``."""
_BESIDE = 2
"""Maximum number of statements shown above a call, and below the last call of a function."""
_TRACE_DIGITS = 8
"""Number of digits of a trace's ID that a row shows."""


class GroupContent(NamedTuple):
    """What is shown of a group of rows, with lines of the application's ``code``. ``is_known`` if an
    earlier group has the same explanation, which is not repeated.
    """

    group: RowGroup
    words: Summary
    is_known: bool
    code: Sequence[str]


def contents_of(report: Report) -> list[GroupContent | str]:
    """Return the content of each group, in their order; of rows that are left out, what they called."""
    lookups = report.lookups
    apart = finding_numbers(report).keys()
    groups = without_unlisted(folded(merged(report.rows, apart)), report.listed)
    seen, callers = _Seen(report), _callers(report.rows)
    last = {replace(row.where, callers=()): row.number for row in report.rows if row.where}
    contents: list[GroupContent | str] = []
    for group in groups:
        if isinstance(group, str):
            contents.append(group)
            continue
        words = describe(group.row, lookups, group.rows[-1])
        words = _with_effects(group, seen.without_shown(words), lookups)
        code = [line for row in group.rows for line in _code_of(row, callers, last, report)]
        is_known, code = seen.has_explained(words), seen.without_known(code)
        contents.append(GroupContent(group, words, is_known, code))
    return contents


def finding_numbers(report: Report) -> dict[int, list[int]]:
    """Return the findings that each row decided, counted from 1, by the row's number."""
    row_numbers = {row.number for row in report.rows}
    numbers: dict[int, list[int]] = {}
    for finding_number, finding in enumerate(report.findings, 1):
        for number in [number for number in finding.row_numbers if number in row_numbers][:1]:
            numbers.setdefault(number, []).append(finding_number)
    return numbers


class _Seen:
    """What earlier groups have shown. Each method adds what the next group shows."""

    def __init__(self, report: Report) -> None:
        self._urls = ShortUrls(report.rows)
        self._text = ""
        self._explanations: set[str] = set()
        self._code: set[str] = set()

    def without_shown(self, words: Summary) -> Summary:
        """Return a description without what is ``repeated`` and the beginnings of URLs."""
        for part in words.repeated:
            if all(text in self._text for text in part.shown_by):
                words = words.with_short([part])
        self._text += f"{words.what} {words.answer}\n"
        return replace(words, what=self._urls.shorten(words.what))

    def has_explained(self, words: Summary) -> bool:
        """Return whether an earlier group has shown this long explanation, and note it."""
        explanation = explanation_of(words)
        is_known = len(explanation) > LONG_EXPLANATION and explanation in self._explanations
        self._explanations.add(explanation)
        return is_known

    def without_known(self, code: Iterable[str]) -> list[str]:
        new = [line for line in dict.fromkeys(code) if line not in self._code]
        self._code.update(new)
        return new


def _with_effects(group: RowGroup, words: Summary, lookups: Lookups) -> Summary:
    """Return a description with the events that the row caused, and the trace of its request."""
    row = group.row
    effects: list[str] = []
    for event in group.effects:
        effect = functions_of(event.service).events.effect
        with contained(f"{event.kind} cannot be described", effects):
            effects += filter(None, [effect(event, row.source.call, lookups)])
    if row.actor == row.peer:
        return replace(words, what="; ".join([words.what, *effects]))
    if row.trace is not None and len({own.trace and own.trace.trace_id for own in group.rows}) == 1:
        effects.append(f"trace {row.trace.trace_id[:_TRACE_DIGITS]}…")
    return replace(words, remarks=[*words.remarks, *effects])


def explanation_of(words: Summary) -> str:
    note = [f"note: {words.note}"] if words.note else []
    return "\n".join([*words.below, *words.remarks, *note])


def _callers(rows: Iterable[ReportRow]) -> dict[Place, set[Place]]:
    """Return the lines that called the function of each line which made a call."""
    callers: dict[Place, set[Place]] = {}
    for row in rows:
        if row.where is not None:
            place = replace(row.where, callers=())
            callers.setdefault(place, set()).update(row.where.callers[:1])
    return callers


def _code_of(
    row: ReportRow, callers: Mapping[Place, set[Place]], last: Mapping[Place, int], report: Report
) -> Iterator[str]:
    """Yield the line of the application that made a call, and those beside it; if several lines called
    its function, the one that did, and those above that; of a call that was refused or found nothing the
    line that catches an error of it. Left out are lines of the test's function, and what follows the
    loop around the call, if it is not the ``last`` one of its line.
    """
    if row.where is None or row.kind == "action" or row.library:
        return
    places = [replace(row.where, callers=())]
    if len(callers[places[0]]) > 1:
        places += [replace(place, callers=()) for place in row.where.callers[:1]]
    texts = list[str]()
    for place in places:
        if _is_of_test(place, report):
            continue
        above, below, after_loop = code_beside(place)
        texts += [*above[-_BESIDE:], code_at(place)]
        same_function = [other for other in callers if replace(other, line=place.line) == place]
        if place is places[0] and all(other.line <= place.line for other in same_function):
            after_loop = after_loop if last[place] == row.number else []
            texts += [*below, *after_loop][:_BESIDE]
    if row.number in report.marks.refused or any(own.succeeded is False for own in row.accesses):
        around = [*places, *row.where.callers]
        handlers = (handler_text(place) for place in around if not _is_of_test(place, report))
        texts += [text for text in handlers if text][:1]
    yield from map(report.lookups.mask.text, texts)


def _is_of_test(place: Place, report: Report) -> bool:
    test = None if report.read_data is None else report.read_data.place
    return test is not None and (place.file, place.function) == (test.file, test.function)
