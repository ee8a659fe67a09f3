"""The words of rows, findings and what a failing statement read, for all renderers.

Those of a row are in its `RowSource`, and those of a service in its ``wording``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath

from ...core.bodies import compact
from ...core.characters import first_words, shortened, visible
from ...core.errors import counted, describe_error, listed
from ...core.statements import handler_at, source_at, source_of, statements_beside
from ..contract import IN_USE
from ..errors import MALFORMED
from ..lookups import Lookups
from ..model import Finding, Place, Repeated, ReportRow, Sentences, Summary, Values
from ..report import Report
from ..rows.replaced import replaced_text
from ..statement.read_data import LastAccess, ReadData, unwritten_text


def describe(row: ReportRow, lookups: Lookups, last: ReportRow | None = None) -> Summary:
    """Return the description of a row; ``last`` is the last of several that are folded into it."""
    words = row.source.words(row, last or row, lookups)
    if words.answer and (was := replaced_text(lookups.replaced.get(row.number, ()))):
        words = replace(words, answer=f"{words.answer} ({was})")

    def mask(text: str) -> str:
        return visible(lookups.mask.text(lookups.with_short_ids(text))) if text else text

    return Summary(
        mask(words.what), mask(words.answer), below=tuple(map(mask, words.below)),
        script=words.script and words.script._replace(source=mask(words.script.source)),
        remarks=tuple(map(mask, words.remarks)), note=mask(words.note),
        repeated=[Repeated(mask(text), short, shown_by) for text, short, shown_by in words.repeated],
        refused=tuple(map(mask, words.refused)),
    )  # fmt: skip


class ShortUrls:
    """Shortens addresses where an earlier text has shown them."""

    def __init__(self, rows: Iterable[ReportRow]) -> None:
        urls = {row.address for row in rows}
        ends = {url: f"…/{url.rpartition('/')[2]}" for url in urls if url.count("/") > 2}
        counts = Counter(ends.values())
        self._ends = {url: end for url, end in ends.items() if counts[end] == 1 and len(end) > 2}
        self._shown: set[str] = set()

    def shorten(self, text: str) -> str:
        for url, end in self._ends.items():
            if url not in text:
                continue
            whole_url = re.compile(rf"{re.escape(url)}(?![\w/?&=.#%-])")
            if url in self._shown:
                text = whole_url.sub(end.replace("\\", r"\\"), text)
            elif whole_url.search(text):
                self._shown.add(url)
        return text


# -- the failing statement -------------------------------------------------------------------------


def read_data_text(read_data: ReadData, lookups: Lookups, most: int = 4) -> str:
    """Return what a failing statement read, and which of it nothing has written, with at most so many
    names of each.
    """
    place, line = read_data.place, read_data.assigned_at
    value = f", value from line {line}" if line else ""
    at = "" if place is None else f" ({_name_of(place)}{value})"
    described = read_data.described(f"failing statement{at}", lookups, most)
    return visible(lookups.mask.text(described + unwritten_text(read_data, lookups, most)))


def headline(report: Report) -> str:
    """Return what a failing statement read, and the last rows that wrote it, for lists of failures."""
    read_data, lookups = report.read_data, report.lookups
    if read_data is None:
        return ""
    if isinstance(read_data, LastAccess):
        parts = [f"last call: {_in_short(row, lookups, True)}" for row in report.rows
                 if row.number in read_data.row_numbers]  # fmt: skip
    else:
        described = read_data.described("failing statement", lookups, 4)
        parts = [described + unwritten_text(read_data, lookups, 4)]
        parts += writes_in_short(report, with_code=True)
    return visible(lookups.mask.text("; ".join(parts)))


def writes_in_short(report: Report, *, with_code: bool = False) -> list[str]:
    """Return the row that wrote what a failing statement read last, with the request or delivery around
    it, and the last write that did nothing, unless a finding may explain the value. Each has the code
    that made it, or only the place of the code.
    """
    marks, lookups = report.marks, report.lookups
    rows = {row.number: row for row in report.rows}
    written, refused = rows.get(marks.last_writer), rows.get(marks.refused_write)
    texts = []
    if written is not None:
        parent = rows.get(written.parent)
        within = ""
        if parent is not None and parent.rules.surrounds:
            words = describe(parent, lookups)
            words = words if with_code else words.with_short(words.repeated)
            within = f" in {first_words(words.what, 100)}"
        texts.append(f"last written by {_in_short(written, lookups, with_code, within)}")
    if refused is not None and not report.findings:
        did = "did nothing" if refused.ok else "failed"
        text = _in_short(refused, lookups, with_code, is_refused=True)
        is_later = bool(marks.writers) and refused.number > max(marks.writers)
        texts.append(f"a{' later' * is_later} write {did}: {text}")
    return texts


def _in_short(
    row: ReportRow, lookups: Lookups, with_code: bool, within: str = "", is_refused: bool = False
) -> str:
    words = describe(row, lookups)
    # The commands of a pipeline are below it, each with its own answer. Any of these may have decided.
    deciding = [line for line in words.below if (line in words.refused) is is_refused]
    commands = "; ".join(first_words(command, 60) for command in deciding or words.below)
    # The row has the whole, and the last write seldom decides alone.
    most = 160 if with_code or is_refused else 80
    what, most = (f"{words.what}: {commands}", 260) if commands else (words.what, most)
    answer = f" <-- {words.answer}" if words.answer and not commands else ""
    if row.where is None:
        return f"{first_words(what, most)}{answer}{within}"
    place = shortened(f"; {code_at(row.where)}", 180) if with_code else f" ({_name_of(row.where)})"
    return f"{first_words(what, most)}{answer}{within}{place}"


def code_beside(place: Place) -> list[list[str]]:
    """Return the statements above a place, below it, and after the loop around it, as by `code_at()`."""
    beside = statements_beside(place.file, place.line)
    name = PurePath(place.file).name
    return [[f"{name}:{span.first} {source_of(span)}" for span in spans] for spans in beside]


def code_at(place: Place) -> str:
    """Return a place with its statement, in one line."""
    return f"{_name_of(place)} {source_at(place.file, place.line)}".strip()


def handler_text(place: Place) -> str:
    """Return the ``except`` of the ``try`` around a place, in one line; empty if there is none."""
    handler = handler_at(place.file, place.line)
    if handler is None:
        return ""
    line, code = handler
    return f"in a try: {_name_of(replace(place, line=line))} {code}"


def _name_of(place: Place) -> str:
    return f"{PurePath(place.file).name}:{place.line}"


# -- findings -------------------------------------------------------------------------------------


def sentence(finding: Finding, lookups: Lookups) -> str:
    """Return the sentence of a finding, with the name of its fake."""
    text = _sentence_of(finding.kind, {**finding.values, "fake": finding.fake})
    if likewise := finding.values.get("likewise"):
        names = [shortened(lookups.short(name)) for name in likewise]
        text += f"; likewise for {listed(names, 3)}"
    # The text of a violation contains the name of its fake, and a message's ID to look it up by.
    if finding.kind == "violation":
        return visible(text)
    return visible(lookups.with_short_ids(f"{finding.fake}: {text}" if finding.fake else text))


def _sentence_of(kind: str, values: Values) -> str:
    """Return the sentence of a kind of finding or of a reason; without one, the kind and the values."""
    words = sentences().get(kind)
    try:
        if isinstance(words, str):
            return words.format_map({name: shortened(str(value)) for name, value in values.items()})
        if words is not None:
            return words(values)
        why = "no sentence"
    except MALFORMED as error:
        why = describe_error(error)
    return f"{kind} {compact({name: values[name] for name in values if name != 'fake'})} ({why})"


def violation(finding: Finding, lookups: Lookups) -> str:
    """Describe a strict-mode violation, or rejected credentials, in one or more lines."""
    if finding.kind != "violation":
        return f"[credentials] {sentence(finding, lookups)}"
    times = finding.values["times"]
    first, *rest = sentence(finding, lookups).split("\n")
    return "\n".join([f"{first} ({times} times)" if times > 1 else first, *rest])


def sentences() -> Sentences:
    """Return the sentence of each kind of finding, of the services that are in use."""
    owners = [_SENTENCES, *(functions.sentences for functions in IN_USE.values())]
    return {kind: words for own in owners for kind, words in own.items()}


def _differs_from_pass(values: Values) -> str:
    if not values["what"]:
        return "the last passing run of this test had ended before this row"
    differs = "then went on with" if values["ended"] else "first did otherwise here:"
    answer = f" <-- {first_words(values['answer'], 60)}" if values["answer"] else ""
    return f"the last passing run of this test {differs} {first_words(values['what'], 80)}{answer}"


def _rejected(values: Values) -> str:
    reasons = "; ".join(
        _sentence_of(f"rejected_{reason['kind']}", {**reason, "fake": values["fake"]})
        for reason in values["reasons"]
    )
    return f"answered 401 to {values['rejected']} of {counted(values['calls'], 'call')}: {reasons}"


_SENTENCES: Sentences = {
    "differs_from_pass": _differs_from_pass,
    "clock_frozen": "{seconds} s of wall-clock time passed while the fake clock was frozen; "
    "fakecloud.clock.advance() moves it, time.sleep() does not",
    "rejected": _rejected,
    "rejected_none": "no credentials were sent",
    "rejected_other": "the credentials are those of {other}",
    "rejected_unknown": "the credentials are not those of {fake}",
    "violation": lambda values: f"[{values['violation']}] {values['text']}",
    "more": "and {count} more",
}
