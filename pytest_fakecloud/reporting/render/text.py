"""A report as text, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from ...cloud.base import BaseCloud
from ...core.characters import shortened, visible
from ...core.errors import counted
from ...core.timers import clock_time
from ..model import Finding, ReportRow
from ..report import Report, report_of
from ..statement.read_data import LastAccess
from .contents import GroupContent, contents_of, explanation_of, finding_numbers
from .folding import RowGroup
from .wording import read_data_text, sentence, violation, writes_in_short

WIDTH = 80
WIDE = 120
"""Width in columns of a report that is written to a file, such as the log of a CI server."""
WIDEST = 140
"""Maximum width in columns, even in wider terminals, because long lines are hard to read."""
LINES_OF_A_TEXT = 12
LINES_OF_A_SCRIPT = 20
_LINES_OF_THE_STATEMENT = 2
"""Number of lines for what the statement read: it has four names, or as many as fit in these lines."""
_LINES_OF_FINDINGS = 3
"""Number of lines of findings before the rows, of which the first may be longer. Others follow rows."""
_INDENT = 4
"""Indentation of the lines below a row. Little, because these lines are longer than that of the row."""


class TextLine(NamedTuple):
    """One line of a report; ``highlighted`` if it says what the statement read, a finding of it or a
    violation, or is of a row that touched what was read or decided a finding.
    """

    text: str
    highlighted: bool = False


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
    return [TextLine(visible(line.text), line.highlighted) for line in lines]


def wrapped(hint: str, width: int) -> list[str]:
    """Return an indented line of a hint as lines of at most ``width`` columns."""
    lead = " " * (len(hint) - len(hint.lstrip()))
    return _wrapped(hint, f"{lead}  ", max(40, min(width, WIDEST)))


def _addresses(report: Report) -> Iterator[str]:
    """Yield the address of each fake, or only the port if the previous fake has the same host."""
    host_before = ""
    for fake in report.fakes:
        host, _, port = fake.url.rpartition(":")
        if fake.closed:
            yield f"{fake.name} {fake.url}, closed"
        else:
            yield f"{fake.name} {f':{port}' if host == host_before else fake.url}"
            host_before = host


_GUTTER = {"refused": "! ", "touched": "> ", "linked": "- "}
"""The beginning of a line by the marks of its row, of which the first of these wins."""
_LEGEND = "> touched what {}, - linked, ! failed or did nothing, <== read: wrote it"
_LONGEST_CODE = 600
"""Maximum length of the lines of code below a row, in characters. Only a table in code is longer."""


class _Block(NamedTuple):
    """The lines of a row, of calls that share a line, or about rows that are left out.

    ``lines`` lack the ``code``, the application's lines. The ``note`` follows the rows that
    are nested in the row. Lines of blocks that are ``short`` may be joined: the ``calls`` after a
    ``lead``, each with the beginning of a line of its own.
    """

    rows: tuple[ReportRow, ...]
    lines: list[str]
    lead: str = ""
    calls: Sequence[tuple[str, str]] = ()
    code: Sequence[str] = ()
    note: Sequence[str] = ()
    nests: bool = False
    is_short: bool = False


class _Writer:
    """Lays out one report; no method changes its data, so their order does not matter."""

    def __init__(self, report: Report, width: int) -> None:
        self._report, self._lookups, self._width = report, report.lookups, width
        self._finding_numbers = finding_numbers(report)
        self._contents = contents_of(report)
        self._has_gutter = report.read_data is not None

    def lines(self, link: str) -> list[TextLine]:
        report, width = self._report, self._width
        begin = [TextLine(line, True) for line in self._statement()]
        first, later = self._findings()
        begin += first
        for finding in report.violations:
            texts = _wrapped(violation(finding, self._lookups), "    ", width)
            begin += [TextLine(line, True) for line in texts]
        begin += map(TextLine, report.errors)
        timeline = list(self._timeline())
        if not report.rows and not report.errors:
            timeline.append(TextLine("no client has made a call"))
        return [*begin, *timeline, *later, *self._script_lines(), *self._end(link)]

    def _statement(self) -> list[str]:
        """Return what the failing statement read, with as many names as there is room for, and what
        wrote it.
        """
        if (read_data := self._report.read_data) is None:
            return []
        writes = writes_in_short(self._report)
        for names in (4, 3, 2, 1):
            text = read_data_text(read_data, self._lookups, names)
            if len(_wrapped(text, "  ", self._width)) <= _LINES_OF_THE_STATEMENT:
                break
        return _wrapped("; ".join([text, *writes]), "  ", self._width)

    def _findings(self) -> tuple[list[TextLine], list[TextLine]]:
        """Return the lines of the first findings, and of those that follow the rows."""
        unfinished = self._report.unfinished
        failed = [finding for finding in unfinished if finding.failed]
        waiting = [finding for finding in unfinished if finding not in failed]
        blocks = [
            *self._listed("Findings:", self._report.findings, highlighted=True),
            *self._listed("Failed:", failed),
            *self._listed("Unfinished:", waiting),
        ]
        count, first = 0, list[TextLine]()
        while count < len(blocks) and (
            not first or len(first) + len(blocks[count]) <= _LINES_OF_FINDINGS
        ):
            first += blocks[count]
            count += 1
        later = [line for block in blocks[count:] for line in block]
        if later and later[0].text.startswith("- "):
            later.insert(0, TextLine("Further findings:"))
        return first, later

    def _end(self, link: str) -> Iterator[TextLine]:
        """Yield what is equal in most reports: the meaning of the marks, the clock and the addresses."""
        report, width = self._report, self._width
        is_last = isinstance(report.read_data, LastAccess)
        if self._has_gutter:
            sought = "the last call accessed" if is_last else "was read"
            yield from map(TextLine, _wrapped(_LEGEND.format(sought), "  ", width))
        mode, now = report.clock, clock_time(report.now_us)
        clock = f"frozen at {now}" if mode == "frozen" else f"{mode}, {now} at the end"
        seed = f"seed {report.seed!r}"
        if report.seed == report.test and len(seed) + 2 > width:
            seed = "seed: the test's node id"
        head = [f"clock {clock}, {seed}", *_addresses(report)]
        yield from (
            TextLine(part) for line in _packed(head, width) for part in _wrapped(line, "  ", width)
        )
        if link:
            yield TextLine(f"timeline: {link}")

    def _listed(
        self, title: str, findings: Sequence[Finding], *, highlighted: bool = False
    ) -> Iterator[list[TextLine]]:
        """Yield the lines of each finding; the rows of ``highlighted`` findings have their numbers."""
        numbered = set(chain(*self._finding_numbers.values())) if highlighted else set()
        for number, finding in enumerate(findings, 1):
            label = f"[{number}] " if number in numbered else ""
            text = f"{'-' if number > 1 else title} {label}{sentence(finding, self._lookups)}"
            yield [TextLine(line, highlighted) for line in _wrapped(text, "  ", self._width)]

    def _timeline(self) -> Iterator[TextLine]:
        """Yield the rows as lines."""
        important = {*self._report.marks.touched, *self._finding_numbers}
        for block in _notes_last(self._blocks()):
            highlighted = any(row.number in important for row in block.rows)
            indent = _indent_of(block.rows[0]) if block.rows else ""
            code = [shortened(text, _LONGEST_CODE) for text in block.code]
            lines = self._continued(block.lines, code, indent)
            yield from (TextLine(line, highlighted) for line in lines)
            yield from map(TextLine, block.note)

    def _blocks(self) -> list[_Block]:
        """Return the lines of each row, with short ones of the same sender and receiver in one line."""
        rows = [content.group.row for content in self._contents if not isinstance(content, str)]
        nesting = {row.number for row, after in pairwise(rows) if after.depth > row.depth}
        blocks: list[_Block] = []
        for content in self._contents:
            if isinstance(content, str):
                blocks.append(_Block((), _wrapped(f"... {content}", "    ", self._width)))
                continue
            row = content.group.row
            above = blocks[-1] if blocks and blocks[-1].rows else None
            lead = self._lead(row, above and above.rows[0])
            block = self._block(content, row.number in nesting, lead)
            shared = self._shared(above, block) if above and not lead.strip() else None
            blocks[-1:] = [shared] if shared else [*blocks[-1:], block]
        return blocks

    def _shared(self, before: _Block, block: _Block) -> _Block | None:
        """Return calls with the same lead in one line, such as ``> GET a <-- "1"; ! DEL b <-- 0``;
        None if they need lines of their own.
        """
        if not (before.is_short and block.is_short and len(before.lines) == len(block.lines) == 1):
            return None
        calls = [*before.calls, *block.calls]
        marks = [own for own, _ in calls]
        # A call without a mark would seem to have that of the call before it, or hide that of the next.
        is_unclear = any("  " in pair and pair[0] != pair[1] != "! " for pair in pairwise(marks))
        pairs = zip([marks[0], *marks], calls, strict=False)
        texts = [text if own == last else own + text for last, (own, text) in pairs]
        line = f"{marks[0]}{before.lead}{'; '.join(texts)}"
        if is_unclear or len(line) > self._width:
            return None
        rows, code = (*before.rows, *block.rows), [*before.code, *block.code]
        return before._replace(rows=rows, lines=[line], calls=calls, code=code)

    def _gutter(self, rows: Sequence[ReportRow]) -> str:
        if not self._has_gutter:
            return ""
        marks_of_rows = {mark for row in rows for mark in self._report.marks.of(row.number)}
        return next((text for mark, text in _GUTTER.items() if mark in marks_of_rows), "  ")

    def _continued(
        self, lines: Sequence[str], texts: Iterable[str], indent: str, most: int | None = None
    ) -> list[str]:
        """Return lines with texts: each at the end of the last line if it fits, or else below it. The
        first text is below several lines, because its beginning would be hard to find in them.
        """
        continued, between = [*lines], "  "
        for text in map(visible, texts):
            fits = len(continued[-1]) + len(between) + len(text) <= self._width
            if fits and (len(lines) == 1 or len(continued) > len(lines)):
                continued[-1] += between + text
            else:
                continued += _wrapped(indent + text, f"{indent}  ", self._width, most)
            between = "; "
        return continued

    def _lead(self, row: ReportRow, above: ReportRow | None) -> str:
        """Return the time, sender and receiver of a row, without what the row above it has, too. The
        first row has no date if it is that of the clock at the end.
        """
        nesting, ends = "  " * row.depth, f"{_ends(row)} "
        if above is None or above.at_us // 1000 != row.at_us // 1000:
            return f"{_time(row, above.at_us if above else self._report.now_us)} {nesting}{ends}"
        is_same = (above.depth, above.parent, _ends(above)) == (row.depth, row.parent, _ends(row))
        return nesting if is_same else nesting + ends

    def _block(self, content: GroupContent, nests: bool, lead: str) -> _Block:
        """Return the lines of a row; ``nests`` is True if rows are nested in it."""
        group, words, is_known = content.group, content.words, content.is_known
        row, indent = group.row, _indent_of(group.row)
        decided = [self._finding_numbers.get(row.number, ()) for row in group.rows]
        numbers = "".join(f" [{number}]" for number in chain(*decided))
        gutter = self._gutter(group.rows)
        head = f"{gutter}{lead}{words.what}{_times(group)}{numbers}"
        parts = [head, f"<-- {words.answer}"] if words.answer else [head]
        parts[-1] += " (as above)" if is_known else ""
        wrote = any(row.number in self._report.marks.writers for row in group.rows)
        parts[-1] += " <== read" if wrote else ""
        lines = self._first_lines([*parts, *_faults(row, nests)], indent)
        if not is_known:
            below = words.lines(with_marks=self._has_gutter)
            lines = self._continued(lines, below, indent, LINES_OF_A_TEXT)
        is_explained = bool(words.script or explanation_of(words))
        is_short = not (nests or row.faults or is_explained)
        note = f"{indent}note: {words.note}" if words.note and not is_known else ""
        note_lines = _wrapped(note, f"{indent}  ", self._width, LINES_OF_A_TEXT)
        calls = [(gutter, lines[0][len(gutter) + len(lead) :])]
        return _Block(group.rows, lines, lead, calls, content.code, note_lines, nests, is_short)

    def _first_lines(self, parts: Sequence[str], indent: str) -> list[str]:
        """Return the head of a row and its other parts, such as the answer: in one line if they fit."""
        lines = _wrapped(parts[0], indent, self._width, LINES_OF_A_TEXT)
        for part in parts[1:]:
            following = _wrapped(f"{lines[-1]} {part}", indent, self._width, LINES_OF_A_TEXT)
            below = _wrapped(indent + part, f"{indent}    ", self._width, LINES_OF_A_TEXT)
            lines[-1:] = following if len(following) <= len(below) else [lines[-1], *below]
        return lines

    def _script_lines(self) -> Iterator[TextLine]:
        """Yield the sources of the scripts of the rows; those of a library are not the application's."""
        summaries = [content.words for content in self._contents
                     if not isinstance(content, str) and not content.group.row.library]  # fmt: skip
        scripts = dict(summary.script for summary in summaries if summary.script is not None)
        for sha, source in scripts.items():
            source_lines = textwrap.dedent(source.replace("\t", "  ")).strip("\n").splitlines()
            yield TextLine(f"script {sha}:")
            for line in source_lines[:LINES_OF_A_SCRIPT]:
                lead = " " * (len(line) - len(line.lstrip()))
                wrapped = _wrapped(f"  {line}", f"    {lead}", self._width)
                yield from map(TextLine, wrapped or [""])
            more = len(source_lines) - LINES_OF_A_SCRIPT
            if more > 0:
                yield TextLine(f"  ... {counted(more, 'more line')}")


def _notes_last(blocks: Iterable[_Block]) -> Iterator[_Block]:
    """Yield the blocks, with the note of a row after the rows that are nested in it, because it results
    from them.
    """
    around: list[_Block] = []
    for block in blocks:
        while block.rows and around and around[-1].rows[0].depth >= block.rows[0].depth:
            yield _Block((), list(around.pop().note))
        if block.nests:
            around.append(block)
        yield block._replace(note=()) if block.nests else block
    yield from (_Block((), list(block.note)) for block in reversed(around))


def _indent_of(row: ReportRow) -> str:
    return " " * (_INDENT + 2 * row.depth)


def _faults(row: ReportRow, nests: bool) -> Iterator[str]:
    if row.faults:
        text = ", ".join(fault.description for fault in row.faults)
        late = nests and any(fault.moment == "before" for fault in row.faults)
        yield f"(fault: {text}{' it; executed after the rows below' * late})"


def _times(group: RowGroup) -> str:
    """Return how often a folded row happened, unless the attempt numbers show it."""
    row, last = group.row, group.rows[-1]
    if len(group.rows) == 1:
        return ""
    until = f"until {_time(last, row.at_us)}" if last.at_us != row.at_us else ""
    if row.attempt != last.attempt:
        return until and f" ({until})"
    return f" (x{len(group.rows)}{until and f' {until}'})"


def _packed(texts: Sequence[str], room: int) -> list[str]:
    lines: list[str] = []
    for part in texts:
        if lines and len(lines[-1]) + 2 + len(part) <= room:
            lines[-1] += f"; {part}"
        else:
            lines.append(part)
    return lines


def _time(row: ReportRow, like_us: int) -> str:
    return clock_time(row.at_us, like_us).removesuffix("Z")


def _ends(row: ReportRow) -> str:
    if row.actor == row.peer or row.kind == "action":
        return f"* {row.actor}"
    if row.kind == "delivery":
        return f"{row.actor} -->" if "://" in row.peer else f"{row.actor} --> {row.peer}"
    # A nested row is indented below its caller. Other rows are calls of the test's client.
    return f"--> {row.peer}"


def _wrapped(text: str, indent: str, width: int, most: int | None = None) -> list[str]:
    """Return a text as lines, broken at spaces."""
    # An arrow stays with its answer. No text contains this control character any more.
    text = visible(text).replace("<-- ", "<--\0")
    lead = text[: len(text) - len(text.lstrip())]
    # Do not break words, because users copy them.
    lines = textwrap.wrap(
        text.strip(), width, initial_indent=lead, subsequent_indent=indent, max_lines=most,
        placeholder=" ...", break_long_words=most is not None, break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\0", " ") for line in lines]
