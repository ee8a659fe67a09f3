"""A report as text, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import PurePath
from typing import NamedTuple

from ..cloud.base import BaseCloud
from ..core.calls import Call
from ..core.errors import counted, cut
from ..core.timers import clock_time, to_datetime
from .calls import Lookups
from .history_wording import expected_texts, gap_texts, left_out_text, start_text
from .history_wording import lines as history_lines
from .model import Finding, HistoryRow, Report, ReportRow, ScriptSource, Summary
from .report import report_of
from .selection import FoldedRow, folded, merged, shortened_rows, touched_rows, without_untouched
from .values import visible
from .wording import describe, effect, sentence

WIDTH = 80
WIDEST = 140
"""Maximum width in columns, even in wider terminals, because long lines are hard to read."""
LONG = 60
"""Maximum length of an explanation that is repeated; a longer one becomes ``as above``."""
LINES_OF_A_TEXT = 12
LINES_OF_A_SCRIPT = 20
_STAMP = len("12:00:00.000 ")


class TextLine(NamedTuple):
    """One line of a report; ``marked`` if it belongs to the history, or states or proves a finding."""

    text: str
    marked: bool = False


def section(cloud: BaseCloud, *, width: int = WIDTH) -> str:
    """Return a cloud's report as a string, for use outside a test."""
    return text(report_of(cloud), width=width)


def text(report: Report, *, width: int = WIDTH) -> str:
    """Return a report as a string, with the newest row last."""
    return "\n".join(line.text for line in lines_of(report, width=width))


def lines_of(report: Report, *, link: str = "", width: int = WIDTH) -> list[TextLine]:
    """Return the lines of a report, with the newest row last.

    ``link`` is the path of the page, ``width`` the width of the terminal in columns.
    """
    lines = _Writer(report, max(40, min(width, WIDEST))).lines(link)
    return [TextLine(visible(line.text), line.marked) for line in lines]


def wrapped(hint: str, width: int) -> list[str]:
    """Return an indented line of a hint as lines of at most ``width`` columns."""
    lead = " " * (len(hint) - len(hint.lstrip()))
    return _wrapped(hint, f"{lead}  ", max(40, min(width, WIDEST)))


def violation(finding: Finding, lookups: Lookups) -> str:
    """Describe a strict-mode violation, or rejected credentials, in one or more lines."""
    if finding.kind != "violation":
        return f"[credentials] {sentence(finding, lookups)}"
    times = finding.values["times"]
    first, *rest = sentence(finding, lookups).split("\n")
    return "\n".join([f"{first} ({times} times)" if times > 1 else first, *rest])


def _addresses(report: Report) -> Iterator[str]:
    """Yield the address of each fake, or only the port if the previous fake has the same host."""
    host = ""
    for fake in report.fakes:
        here, _, port = fake.url.rpartition(":")
        if fake.closed:
            yield f"{fake.name} {fake.url}, closed"
        else:
            yield f"{fake.name} {f':{port}' if here == host else fake.url}"
            host = here


class _Writer:
    """Writes one report; ``_marks`` are the findings that each row decided, counted from 1."""

    def __init__(self, report: Report, width: int) -> None:
        self._report, self._lookups, self._width = report, report.lookups, width
        shown = {row.number for row in report.rows}
        self._marks: dict[int, list[int]] = {}
        for mark, finding in enumerate(report.findings, 1):
            for number in [number for number in finding.rows if number in shown][:1]:
                self._marks.setdefault(number, []).append(mark)
        self._shown_texts: set[str] = set()
        self._shown_scripts: set[str] = set()
        self._last_place = ""

    def lines(self, link: str) -> list[TextLine]:
        report, width = self._report, self._width
        now = clock_time(report.now_us)
        clock = (
            f"frozen at {now}" if report.clock == "frozen" else f"{report.clock}, {now} at the end"
        )
        seed = f"seed {report.seed!r}"
        if report.seed == report.test and len(seed) + 2 > width:
            seed = "seed: the test's node id"
        head = [f"clock {clock}, {seed}", *_addresses(report)]
        lines = [part for line in _packed(head, width) for part in _wrapped(line, "  ", width)]
        if link:
            lines.append(f"timeline: {link}")
        lines += report.failures
        if not report.rows and not report.failures:
            lines.append("no client has made a call")
        history = self._history()
        timeline = self._timeline(to_datetime(report.now_us).date())
        failed = [finding for finding in report.unfinished if finding.kind == "dead_letter"]
        ends = [
            *self._listed("Findings:", report.findings, marked=True),
            *self._listed(
                "Unfinished:", [finding for finding in report.unfinished if finding not in failed]
            ),
            *self._listed("Failed:", failed),
        ]
        for finding in report.violations:
            texts = _wrapped(violation(finding, self._lookups), "    ", width)
            ends += [TextLine(line, True) for line in texts]
        return [
            *history,
            *map(TextLine, lines),
            *timeline,
            *([TextLine("")] if ends else []),
            *ends,
        ]

    def _history(self) -> list[TextLine]:
        """Return the history of the data that the failing statement compared, and an empty line."""
        history = self._report.history
        if history is None:
            return []
        rows = {row.number: row for row in self._report.rows}
        texts = _wrapped(start_text(history, self._lookups), "  ", self._width)
        texts += list(filter(None, [left_out_text(history)]))
        sources: set[str] = set()
        answers: set[str] = set()
        days = {to_datetime(row.at_us).date() for row in history.rows}
        is_dated = days != {to_datetime(self._report.now_us).date()}
        for line in history_lines(history, rows, self._lookups):
            day = f"{to_datetime(line.row.at_us):%m-%d} " if is_dated else ""
            lead = f"{day}{_stamp(line.row)} {'  ' * line.row.step}"
            mark = " <== read" if line.row.is_read and line.row.step == 0 else ""
            result = line.answer
            if len(result) > LONG and result in answers:
                result = f"{result.partition(',')[0]} (as above)"
            answers.add(result)
            answer = f" <-- {result}" if result else ""
            answer += f" ({line.times})" if line.times else ""
            by = f" by {line.by}" if line.by else ""
            indent = " " * (_STAMP + 2 * line.row.step + 2)
            texts += _wrapped(f"{lead}{line.what}{answer}{by}{mark}", indent, self._width, 6)
            is_short = line.short_origin != line.origin
            if is_short and len(texts[-1]) + len(line.short_origin) < self._width:
                texts[-1] = f"{texts[-1]} {line.short_origin}".rstrip()
            elif line.short_origin:
                texts += _wrapped(f"{indent}{line.short_origin}", f"{indent}  ", self._width, 3)
            for source in filter(None, (line.source, line.caller)):
                if source not in sources:
                    most = 2 if line.row.access.writes else 1
                    texts += _lines_of_code(source, indent, self._width, most)
                sources.add(source)
        for text in (*gap_texts(history), *expected_texts(history)):
            texts += _wrapped(text, "  ", self._width)
        return [*(TextLine(self._lookups.mask.text(text), True) for text in texts), TextLine("")]

    def _listed(
        self, title: str, findings: Sequence[Finding], *, marked: bool = False
    ) -> list[TextLine]:
        """Return a list with its title; the rows of ``marked`` findings have their numbers."""
        numbered = {mark for marks in self._marks.values() for mark in marks} if marked else ()
        lines = [] if len(findings) == 1 else [TextLine(title)]
        for mark, finding in enumerate(findings, 1):
            lead = title if len(findings) == 1 else "-"
            number = f"[{mark}] " if mark in numbered else ""
            text = f"{lead} {number}{sentence(finding, self._lookups)}"
            lines += [TextLine(line, marked) for line in _wrapped(text, "  ", self._width)]
        return lines if findings else []

    def _timeline(self, today: date) -> Iterator[TextLine]:
        """Yield the rows as lines; the dates are omitted if all rows are on the clock's current day."""
        every = self._report.rows
        day = today if all(to_datetime(row.at_us).date() == today for row in every) else None
        held_back: list[tuple[int, list[str]]] = []
        every_line = folded(merged(every, self._marks))
        if self._report.history is not None:
            touched = touched_rows(self._report.history) | self._marks.keys()
            every_line = without_untouched(every_line, touched)
        lines = list(shortened_rows(every_line, self._marks))
        for line, nests in zip(lines, _have_nested(lines), strict=True):
            if isinstance(line, int):
                yield TextLine(f"... {counted(line, 'row')} left out")
                continue
            while held_back and held_back[-1][0] >= line.row.depth:
                yield from map(TextLine, held_back.pop()[1])
            at = to_datetime(line.row.at_us)
            if at.date() != day:
                day = at.date()
                yield TextLine(f"-- {day} --")
            head, note = self._entry(line, nests)
            marked = bool(self._marks_of(line))
            yield from (TextLine(head_line, marked) for head_line in head)
            if nests:
                # The note follows the nested rows, because it results from them.
                held_back.append((line.row.depth, note))
            else:
                yield from map(TextLine, note)
        for _, note in reversed(held_back):
            yield from map(TextLine, note)

    def _entry(self, line: FoldedRow, nests: bool) -> tuple[list[str], list[str]]:
        """Return the lines of a row, and of its note; ``nests`` is True if rows are nested in it."""
        if line.summary:
            return _wrapped(f"... {line.summary}", "    ", self._width), []
        row, indent = line.row, " " * (_STAMP + 2 + 2 * line.row.depth)
        words = self._described(line)
        place = self._new_place(row)
        note = [f"note: {words.note}"] if words.note else []
        whole = "\n".join([*words.below, *words.remarks, *note])
        is_known = len(whole) > LONG and whole in self._shown_texts
        self._shown_texts.add(whole)
        below = [] if is_known else list(words.below)
        marks = "".join(f" [{mark}]" for mark in self._marks_of(line))
        head = f"{_stamp(row)} {'  ' * row.depth}{_ends(row)} {words.what}{_times(line)}{marks}"
        parts = [head, f"<-- {words.answer}"] if words.answer else [head]
        parts[-1] += " (as above)" if is_known else ""
        lines = self._first_lines([*parts, *_faults(row, nests)], indent)
        if not is_known:
            packed = _packed([*place, *words.remarks], self._width - len(indent))
            lines += self._lines_below([*below, *packed], indent)
        # The scripts of a library are not the application's.
        if not row.library:
            lines += self._script_lines(words.script, indent)
        return lines, [] if is_known else self._lines_below(note, indent)

    def _described(self, line: FoldedRow) -> Summary:
        """Return the description of a line's row, with the effects of events that it caused."""
        row = line.row
        words = describe(row, self._lookups, line.rows[-1])
        call = row.entry if isinstance(row.entry, Call) else None
        effects = list(filter(None, (effect(event, call, self._lookups) for event in line.effects)))
        if row.actor == row.peer:
            return replace(words, what="; ".join([words.what, *effects]))
        return replace(words, remarks=[*words.remarks, *effects])

    def _lines_below(self, texts: Sequence[str], indent: str) -> list[str]:
        return [
            line
            for paragraph in texts
            for line in _wrapped(indent + paragraph, f"{indent}  ", self._width, LINES_OF_A_TEXT)
        ]

    def _new_place(self, row: ReportRow) -> list[str]:
        """Return the line of code that made a call, unless the previous such row has the same."""
        if row.where is None or row.kind == "action":
            return []
        places = row.where, *row.where.callers[:1]
        place = " from ".join(f"{PurePath(x.file).name}:{x.line} in {x.function}" for x in places)
        before, self._last_place = self._last_place, place
        return [place] if place != before else []

    def _marks_of(self, line: FoldedRow) -> list[int]:
        return [mark for row in line.rows for mark in self._marks.get(row.number, ())]

    def _first_lines(self, parts: Sequence[str], indent: str) -> list[str]:
        """Return the head of a row and its other parts, such as the answer: in one line if they fit."""
        lines = _wrapped(parts[0], indent, self._width, LINES_OF_A_TEXT)
        for part in parts[1:]:
            part = visible(part)
            if len(lines[-1]) + 1 + len(part) <= self._width:
                lines[-1] += f" {part}"
            else:
                lines += _wrapped(indent + part, f"{indent}    ", self._width, LINES_OF_A_TEXT)
        return lines

    def _script_lines(self, script: ScriptSource | None, indent: str) -> Iterator[str]:
        """Yield the source of a script that no earlier row has shown."""
        if script is None or script.sha in self._shown_scripts:
            return
        self._shown_scripts.add(script.sha)
        whole = textwrap.dedent(script.source.replace("\t", "  ")).strip("\n").splitlines()
        yield f"{indent}script {script.sha}:"
        for line in whole[:LINES_OF_A_SCRIPT]:
            lead = " " * (len(line) - len(line.lstrip()))
            yield from _wrapped(f"{indent}  {line}", f"{indent}    {lead}", self._width) or [""]
        more = len(whole) - LINES_OF_A_SCRIPT
        if more > 0:
            yield f"{indent}  ... {counted(more, 'more line')}"


def _have_nested(lines: Sequence[FoldedRow | int]) -> list[bool]:
    """Return for each line whether the next row is nested in its row."""
    have_nested: list[bool] = []
    next_depth = 0
    for line in reversed(lines):
        have_nested.append(isinstance(line, FoldedRow) and next_depth > line.row.depth)
        next_depth = line.row.depth if isinstance(line, FoldedRow) else next_depth
    return have_nested[::-1]


def _faults(row: ReportRow, nests: bool) -> Iterator[str]:
    if row.faults:
        text = ", ".join(fault.description for fault in row.faults)
        late = nests and any(fault.moment == "before" for fault in row.faults)
        yield f"(fault: {text}{' it; executed after the rows below' * late})"


def _times(line: FoldedRow) -> str:
    """Return how often a folded row happened, unless the attempt numbers show it."""
    row, last = line.row, line.rows[-1]
    if len(line.rows) == 1:
        return ""
    days = [to_datetime(timed_row.at_us).date() for timed_row in (row, last)]
    day = "" if days[0] == days[1] else f"{days[1]} "
    until = f"until {day}{_stamp(last)}" if last.at_us != row.at_us else ""
    if row.attempt != last.attempt:
        return until and f" ({until})"
    return f" (x{len(line.rows)}{until and f' {until}'})"


def _packed(texts: Sequence[str], room: int) -> list[str]:
    lines: list[str] = []
    for part in texts:
        if lines and len(lines[-1]) + 2 + len(part) <= room:
            lines[-1] += f"; {part}"
        else:
            lines.append(part)
    return lines


def _stamp(row: ReportRow | HistoryRow) -> str:
    at = to_datetime(row.at_us)
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def _ends(row: ReportRow) -> str:
    if row.actor == row.peer or row.kind == "action":
        return f"* {row.actor}"
    if row.kind == "attempt":
        return f"{row.actor} -->" if "://" in row.peer else f"{row.actor} --> {row.peer}"
    # A nested row is indented below its caller. Other rows are calls of the test's client.
    return f"--> {row.peer}"


def _lines_of_code(source: str, indent: str, width: int, most: int) -> list[str]:
    """Return a statement in one line or, if ``most`` is 2, in two: of a longer one its beginning, and in
    a second line its end, because a call's last arguments are there.
    """
    source, room = visible(source), width - len(indent)
    if len(source) <= room or most == 1:
        return [f"{indent}{source if len(source) <= room else cut(source, room - 1)}"]
    at = max(source.rfind(end, 0, room) for end in " (") + 1
    if len(source) - at > room - len("  "):
        at = room
    first, second = source[:at].rstrip(), source[at:]
    if len(second) > room - len("  "):
        first, second = cut(source, room - 1), f"…{second[-room + len('  …') :]}"
    return [f"{indent}{first}", f"{indent}  {second}"]


def _wrapped(text: str, indent: str, width: int, most: int | None = None) -> list[str]:
    # An arrow stays with its answer. No text contains this control character any more.
    text = visible(text).replace("<-- ", "<--\0")
    lead = text[: len(text) - len(text.lstrip())]
    # Do not break words, because users copy them.
    lines = textwrap.wrap(
        text.strip(), width, initial_indent=lead, subsequent_indent=indent, max_lines=most,
        placeholder=" ...", break_long_words=most is not None, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\0", " ") for line in lines]
