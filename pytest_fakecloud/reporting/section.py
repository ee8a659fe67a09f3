"""What happened on all fakes of a cloud, as text for a failing test."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

from ..core.calls import Call
from ..core.errors import telling
from ..core.timeparse import to_datetime
from ..handle import gone_of
from .bodies import CONTROLS, printable
from .facts import Fact, facts
from .masking import Mask
from .rows import CLIENT, Row, rows, scene_of
from .summaries import Scene
from .thinning import folded, kept, merged, without_held_runs
from .waiting import waiting

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..handle import Handle
    from .applications import Served

__all__ = ["counted", "findings", "refused", "section"]

WIDTH = 80
WIDEST = 140
"""No line is longer, however wide the terminal: nobody reads such lines."""
# What a terminal would obey instead of showing it.
LONG = 60
"""A remark that is longer stands once, and then only as ``as above``."""
LINES_OF_A_TEXT = 3
LINES_OF_A_SCRIPT = 20
_OF_A_MESSAGE = re.compile(r" \(message [^)]*\)")
_STAMP = len("12:00:00.000 ")


# -- credentials -----------------------------------------------------------------------------------


def refused(
    cloud: AnyCloud, *, every_call: bool = False, meant: Callable[[Call], bool] = lambda call: False
) -> Iterator[tuple[Handle, str]]:
    """The handles that answered 401, each with a sentence on why.

    ``every_call`` gives only those that answered nothing else; what was ``meant`` to be is left out.
    """
    for handle in cloud.handles:
        calls = handle.journal.calls()
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if not wrong or (every_call and len(wrong) < len(calls)):
            continue
        wrong = [call for call in wrong if not meant(call)]
        if not wrong:
            continue
        why = dict.fromkeys(_credentials(call, cloud, handle) for call in wrong)
        yield (
            handle,
            f"{handle.name} answered 401 to {len(wrong)} of {len(calls)} call(s): "
            + "; ".join(why),
        )


def _credentials(call: Call, cloud: AnyCloud, refusing: Handle) -> str:
    given = call.header("Authorization")
    if given is None:
        return "no credentials came with it" if "_token=" not in call.target else "a wrong _token"
    if given == f"Bearer {getattr(refusing, 'read_only_token', None)}":
        return "the credentials are the read-only ones"
    for handle in cloud.handles:
        if handle is not refusing and handle.headers.get("Authorization") == given:
            return f"the credentials are those of {handle.name}"
    return f"the credentials are not {refusing.name}'s"


# -- as text ---------------------------------------------------------------------------------------


def section(
    cloud: AnyCloud,
    *,
    link: str = "",
    width: int = WIDTH,
    idle_s: float | None = None,
    served: Sequence[Served] = (),
    raised: BaseException | None = None,
) -> str:
    """The section a failing test gets, newest last.

    ``link`` names a longer report, ``width`` is the terminal's in columns, ``idle_s`` how long the
    test waited for anything, in real seconds, ``served`` what the application under test was asked,
    ``raised`` what the test failed with.
    """
    width = max(40, min(width, WIDEST))
    now = cloud.clock.now()
    part_of_second = f".{now.microsecond // 1000:03}".removesuffix(".000")
    head = [
        f"clock {cloud.clock.mode} at {now:%Y-%m-%d %H:%M:%S}{part_of_second}Z, seed {cloud.seed!r}",
        *_homes(cloud),
    ]
    lines = [part for line in _packed(head, width) for part in _wrapped(line, "  ", width)]
    if link:
        lines.append(f"timeline: {link}")
    mask = Mask(cloud)
    every: list[Row] = []
    worth: list[Fact] = []
    scene = Scene()
    # A part that cannot be told leaves the others theirs.
    with telling("what to look up for the calls cannot be told", lines.append):
        scene = scene_of(cloud, list(cloud.journal.entries))
    with telling("what is worth a look cannot be told", lines.append):
        worth = facts(cloud, scene, idle_s, raised, served)
    with telling("the calls cannot be told", lines.append):
        every = rows(cloud, served=served)
        if not every:
            lines.append("no client has called")
    marks: dict[int, int] = {}
    with telling("the calls cannot be told", lines.append):
        marks = _marks(every, worth)
        lines += _timeline(every, marks, width, now.date())
    ends: list[str] = []
    with telling("what is worth a look cannot be told", ends.append):
        ends += _block("worth a look:", [_with_mark(fact, marks) for fact in worth], mask, width)
    with telling("what is unfinished cannot be told", ends.append):
        ends += _block("unfinished:", _left(cloud, scene, worth), mask, width)
    with telling("[problems] they cannot be told", ends.append):
        for text, _ in findings(cloud):
            ends += _wrapped(text.translate(CONTROLS), "    ", width)
    return printable("\n".join([*lines, *([""] if ends else []), *ends]))


def _left(cloud: AnyCloud, scene: Scene, worth: Sequence[Fact]) -> Iterator[str]:
    """What waits, without groups that are behind: that comes of the facts about their broker."""
    behind = tuple(f"{fact.text.partition(':')[0]}: group" for fact in worth)
    for one in waiting(cloud, scene):
        if not (one.startswith(behind) and one.endswith("(nothing committed)")):
            yield one


def _homes(cloud: AnyCloud) -> Iterator[str]:
    """Where each fake is; of those that follow on the same host, the port."""
    host = ""
    for handle in cloud.handles:
        here, _, port = handle.url.rpartition(":")
        yield f"{handle.name} {f':{port}' if here == host else handle.url}"
        host = here
    for name, (_, url) in gone_of(cloud).homes.items():
        yield f"{name} {url}, closed"


def findings(cloud: AnyCloud) -> list[tuple[str, str]]:
    """What a strict test would fail for, and who was refused: a line each, and what follows it."""
    mask = Mask(cloud)
    found: list[tuple[str, str]] = []
    with telling("[problems] they cannot be told", lambda line: found.append((line, ""))):
        for text in counted(f"[{one.kind}] {one.text}" for one in cloud.problems):
            first, _, rest = text.partition("\n")
            found.append((first, rest))
    found += [(f"[credentials] {why}", "") for _, why in refused(cloud)]
    return [(mask.text(first), mask.text(rest)) for first, rest in found]


def counted(texts: Iterable[str]) -> Iterator[str]:
    """Texts that are the same but for the message they name, once each and with their count."""
    times: dict[str, list[str]] = {}
    for text in texts:
        times.setdefault(_OF_A_MESSAGE.sub("", text), []).append(text)
    for alike, several in times.items():
        if len(several) == 1:
            yield several[0]
        else:
            first, line_end, rest = alike.partition("\n")
            yield f"{first} ({len(several)} times){line_end}{rest}"


def _block(title: str, texts: Iterable[str], mask: Mask, width: int) -> list[str]:
    told = [mask.text(text).translate(CONTROLS) for text in texts]
    if len(told) == 1:
        return _wrapped(f"{title} {told[0]}", "  ", width)
    lines = [line for text in told for line in _wrapped(f"- {text}", "  ", width)]
    return [title, *lines] if lines else []


def _marks(every: Sequence[Row], worth: Sequence[Fact]) -> dict[int, int]:
    """The mark of each row that a fact is about, by the row's number, in the order of the rows."""
    wanted = {fact.number for fact in worth if fact.number}
    marked = [row for row in every if {row.number, row.also} & wanted]
    found = {}
    for mark, row in enumerate(marked, 1):
        found[row.number] = mark
        if row.also:
            found[row.also] = mark
    return found


def _with_mark(fact: Fact, marks: Mapping[int, int]) -> str:
    mark = marks.get(fact.number)
    return fact.text if mark is None else f"[{mark}] {fact.text}"


# -- the rows --------------------------------------------------------------------------------------


def _timeline(every: list[Row], marks: Mapping[int, int], width: int, today: date) -> Iterator[str]:
    """The rows as lines; the day stands before them unless all are of the clock's."""
    every, held = without_held_runs(every)
    every = merged(every, marks)
    shown = kept(every, marks)
    day, known, left = None, set[str](), 0
    if all(to_datetime(row.at_us).date() == today for row in every):
        day = today
    if held:
        yield f"... {held} run{'s' * (held > 1)} left out, in which the promise held"
    groups = list(folded(every))
    held_back: list[tuple[int, list[str]]] = []
    for same, after in itertools.zip_longest(groups, groups[1:]):
        while held_back and held_back[-1][0] >= same[0].depth:
            yield from held_back.pop()[1]
        if not any(one.number in shown for one in same):
            left += len(same)
            continue
        if left:
            yield f"... {left} row{'s' * (left > 1)} left out"
            left = 0
        at = to_datetime(same[0].at_us)
        if at.date() != day:
            day = at.date()
            yield f"-- {day} --"
        note: list[str] = []
        yield from _lines(same, marks, known, width, note)
        if after is not None and after[0].depth > same[0].depth:
            held_back.append((same[0].depth, note))  # what came of what stands below it
        else:
            yield from note
    for _, note in reversed(held_back):
        yield from note


def _lines(
    same: Sequence[Row], marks: Mapping[int, int], known: set[str], width: int, note: list[str]
) -> Iterator[str]:
    """The lines of rows that read the same, but for their note: it is added to ``note``."""
    row = same[0]
    lead = " " * (2 * row.depth)
    indent = " " * (_STAMP + 2) + lead
    more = [*row.below, *row.remarks, *([f"note: {row.note}"] if row.note else [])]
    alike = "\n".join(more)
    is_known = len(alike) > LONG and alike in known
    known.add(alike)
    head = f"{_stamp(row)} {lead}{_ends(row)} {_what(same)}"
    for mark in dict.fromkeys(marks[one.number] for one in same if one.number in marks):
        head += f" [{mark}]"
    told = _wrapped(head.translate(CONTROLS), indent, width, LINES_OF_A_TEXT)
    answer = [f"<-- {row.answer}{' (as above)' * is_known}"] if row.answer else []
    for text in [*answer, *([f"fault: {row.fault}"] if row.fault else [])]:
        text = text.translate(CONTROLS)
        if len(told[-1]) + 1 + len(text) <= width:
            told[-1] += f" {text}"
        else:
            told += _wrapped(indent + text, indent + "    ", width, LINES_OF_A_TEXT)
    yield from told
    if not is_known:
        for text in [*row.below, *_packed(row.remarks, width - len(indent))]:
            yield from _wrapped(
                indent + text.translate(CONTROLS), indent + "  ", width, LINES_OF_A_TEXT
            )
        if row.note:
            text = f"{indent}note: {row.note}".translate(CONTROLS)
            note += _wrapped(text, indent + "  ", width, LINES_OF_A_TEXT)
    if row.script is not None and row.script[0] not in known:
        known.add(row.script[0])
        yield from _script(*row.script, indent, width)


def _what(same: Sequence[Row]) -> str:
    """What the rows say; the counts of attempts from the first to the last."""
    row, last = same[0], same[-1]
    what = f"{row.what} {row.detail}" if row.detail else row.what
    if len(same) == 1:
        # The first attempt is said of messages only: of callbacks, the number reads like their count.
        return (
            what.replace(" 1 of ", " ", 1) if row.attempt == 1 and "callback 1 of" in what else what
        )
    until = f" until {_stamp(last)}" if last.at_us != row.at_us else ""
    if row.attempt != last.attempt:
        what = what.replace(f" {row.attempt} of ", f" {row.attempt} to {last.attempt} of ", 1)
        return what + (until and f" ({until.strip()})")
    return f"{what} (x{len(same)}{until})"


def _packed(texts: Iterable[str], room: int) -> Iterator[str]:
    """The texts, as many in a line as it takes."""
    line = ""
    for text in texts:
        if line and len(line) + 2 + len(text) <= room:
            line += f"; {text}"
            continue
        if line:
            yield line
        line = text
    if line:
        yield line


def _script(sha: str, text: str, indent: str, width: int) -> Iterator[str]:
    whole = textwrap.dedent(text.replace("\t", "  ")).strip("\n").splitlines()
    yield f"{indent}script {sha}:"
    for line in whole[:LINES_OF_A_SCRIPT]:
        yield f"{indent}  {line.translate(CONTROLS)}"[:width].rstrip()
    more = len(whole) - LINES_OF_A_SCRIPT
    if more > 0:
        yield f"{indent}  ... {more} more line{'s' * (more > 1)}"


def _stamp(row: Row) -> str:
    at = to_datetime(row.at_us)
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def _ends(row: Row) -> str:
    if row.source == row.target:
        return f"* {row.source}"
    if "://" in row.target:
        return f"{row.source} -->"
    # An arrow names both ends, unless it comes from the client, as most do.
    return f"--> {row.target}" if row.source == CLIENT else f"{row.source} --> {row.target}"


def _wrapped(text: str, indent: str, width: int, most: int | None = None) -> list[str]:
    lead = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(
        text.strip(),
        width,
        initial_indent=lead,
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        # What is there to be copied stays in one piece.
        break_long_words=most is not None,
        break_on_hyphens=False,
    )
