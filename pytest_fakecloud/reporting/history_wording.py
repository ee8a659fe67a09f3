"""The words of the history of a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType

from ..cloud.services import report_part
from ..core.calls import Call, on_connection
from ..core.errors import counted, listed
from ..core.timers import to_datetime
from .asserted import source_at
from .calls import Lookups
from .model import (
    DataAccess,
    HistoryRow,
    Origin,
    Place,
    ReportRow,
    Sought,
    UnwrittenKind,
    ValueHistory,
)
from .values import shortened, visible

_LONG = 16
"""Minimum length of a value that is not shown twice, in characters."""
_LONGEST_WRITE = 48
"""Maximum length of a write of an item that was as expected, in characters."""
_LONGEST_SOURCE = 180
"""Maximum length of the source in the first line of a history, in characters."""
_IN_HEADLINE = 3
"""Maximum number of writes in the first line of a history: the newest."""


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """The words of a row: ``what``, its ``answer``, who did it (``by``), its ``origin``, its ``source``
    line, and how many ``times`` it was done.
    """

    row: HistoryRow
    what: str
    answer: str
    by: str
    origin: str
    source: str
    times: str = ""
    short_origin: str = ""
    """The origin without the values that other rows show."""
    caller: str = ""
    """The line that called the function of the source line."""


def headline(history: ValueHistory, rows: Mapping[int, ReportRow], lookups: Lookups) -> str:
    """Return what a history says in one sentence, for lists of failed tests."""
    return visible(lookups.mask.text(_headline(history, rows, lookups)))


def _headline(history: ValueHistory, rows: Mapping[int, ReportRow], lookups: Lookups) -> str:
    writes = [row for row in history.rows if row.step == 0 and row.access.writes]
    if not writes:
        return f"{_start(history, lookups)}{_unwritten(history, lookups)}"
    compared = [row for row in writes
                if any(sought.has(row.access.subject) for sought in history.start.sought)]  # fmt: skip
    last = (compared or writes)[-1]
    related = [row for row in writes if row.access.subject == last.access.subject][-_IN_HEADLINE:]
    parts = []
    for row in related:
        access, by = row.access, who(row.cause, rows, lookups)
        done = access.result if _is_value(row) else shortened(access.what, 60)
        done += f" <-- {access.result}" if access.succeeded is not True else ""
        records = [origin.access.part for origin in row.origins
                   if origin.has_value and origin.access.subject.kind == "topic"]  # fmt: skip
        origin = f" from {records[0]}" if records else ""
        parts.append(f"{done}{f' by {by}' if by else ''}{origin}")
    name = lookups.short(last.access.subject.name)
    parts_named = {row.access.part for row in related}
    part = f" {last.access.part}" if last.access.part and len(parts_named) == 1 else ""
    source = f"; {shortened(source_of(last.where), _LONGEST_SOURCE)}" if last.where else ""
    what = f"{f'{name}{part}'.strip()}: {', then '.join(parts)}{source}"
    if history.unwritten:
        return f"{_start(history, lookups)}{_unwritten(history, lookups)}; the last writes: {what}"
    return f"last call: {what}" if history.start.kind == "last_call" else what


def _is_value(row: HistoryRow) -> bool:
    """Return whether the result of a write is the new value, as that of an increment."""
    return "INCR" in row.access.what.split(" ")[0] or row.access.what.startswith("DECR")


def lines(
    history: ValueHistory, rows: Mapping[int, ReportRow], lookups: Lookups
) -> list[HistoryLine]:
    """Return the words of each row."""
    described: list[HistoryLine] = []
    connections = _connections(history, rows)
    shown: dict[tuple[str, str], int] = {}
    listed_rows = {row.number for row in history.rows}
    for at, row in enumerate(history.rows):
        access, by = row.access, who(row.cause, rows, lookups) or connections.get(row.number, "")
        by += ", which wrote nothing" if row.is_idle else ""
        if row.failed is not None and row.failed.number not in listed_rows:
            by += f", then {row.failed.access.what} <-- {row.failed.access.result}"
        origins = () if row.is_idle else row.origins
        texts = [access.what, access.result, by, _origins(origins, lookups), source_of(row.where)]
        if row.lost:
            texts[1] += f" (removed {' and '.join(row.lost)})"
        short_origin = _origins(origins, lookups, shown, list(_below(history.rows, at)))
        texts += [short_origin, source_of(row.caller)]
        what, answer, by, origin, source, short_origin, caller = (
            visible(lookups.mask.text(text)) for text in texts
        )
        described.append(
            HistoryLine(row, what, answer, by, origin, source, _times(row), short_origin, caller)
        )
        shown |= {_origin(origin.access, lookups): origin.number for origin in origins}
    return described


def _below(rows: Sequence[HistoryRow], at: int) -> Iterator[str]:
    """Yield the descriptions of the rows from which the value of another row was made."""
    for row in rows[at + 1 :]:
        if row.step <= rows[at].step:
            return
        yield row.access.what


def _times(row: HistoryRow) -> str:
    if row.times == 1:
        return ""
    if row.first_result != row.access.result:
        return f"x{row.times}, first <-- {row.first_result}"
    if row.since_us == row.at_us:
        return f"x{row.times}"
    since, at = to_datetime(row.since_us), to_datetime(row.at_us)
    day = "" if since.date() == at.date() else f"{since:%m-%d} "
    return f"x{row.times}, first at {day}{since:%H:%M:%S}"


def _origins(
    origins: Sequence[Origin],
    lookups: Lookups,
    shown: Mapping[tuple[str, str], int] = MappingProxyType({}),
    below: Sequence[str] = (),
) -> str:
    """Return from what a value was made, and what else the same request read before. Of a value that is
    ``shown`` already, or in rows ``below``, return only the name; nothing of the same read once more.
    """
    values: list[str] = []
    others: list[str] = []
    for origin in origins:
        name, value = _origin(origin.access, lookups)
        content = value.removeprefix("<-- ").strip("'")
        is_below = len(content) >= _LONG and any(content in what for what in below)
        is_shown = (name, value) in shown or is_below
        text = name if is_shown else f"{name} {value}".strip()
        if origin.changed is not None:
            text += f" (changed before this write: {shortened(origin.changed.what, 80)})"
        if origin.has_value:
            values.append(text)
        elif shown.get((name, value)) != origin.number:
            others.append(text)
    texts = [
        f"from {listed(values)}" if values else "",
        f"after {listed(others)}" if others else "",
    ]
    return ", ".join(filter(None, texts))


def _origin(access: DataAccess, lookups: Lookups) -> tuple[str, str]:
    """Return the name of an origin, and the value that was read."""
    name = access.subject.name
    if access.subject.kind == "request":
        return "the request", f"with {access.result}" if access.result else ""
    if access.subject.kind == "topic":
        return f"record {access.part}", access.result.removeprefix(access.part).strip()
    if access.subject.kind == "message":
        return f"message {lookups.short(name)}", access.result
    if access.subject.kind == "key":
        return access.what, f"<-- {access.result}"
    return name, access.result


def who(cause: int, rows: Mapping[int, ReportRow], lookups: Lookups) -> str:
    """Return the request or delivery during which a row was made, with its outcome; empty if it was
    none.
    """
    row = rows.get(cause)
    if row is None:
        return ""
    if row.kind == "attempt" and row.delivery is not None:
        words = report_part(row.delivery.service, "wording")
        text: str = words.delivery_name(row, lookups)
        return text
    if row.kind == "request":
        outcome = "raised an exception" if row.status is None and not row.ok else row.status
        return row.operation if outcome is None else f"{row.operation} ({outcome})"
    if row.kind == "call" and any(fault.kind == "call" for fault in row.faults):
        return f"the function of a fault of {row.peer}"
    return ""


def _connections(history: ValueHistory, rows: Mapping[int, ReportRow]) -> dict[int, str]:
    """Return the name of the connection on which each write of the test itself was made, in the order
    of their first calls; empty if all were made on one.
    """
    clients: dict[int, object] = {}
    for row in rows.values():
        if isinstance(row.entry, Call) and on_connection(row.entry):
            clients[row.number] = row.peer, row.entry.client
    order = list(dict.fromkeys(clients.values()))
    own = {row.number for row in history.rows if not row.cause and row.number in clients}
    if len({clients[number] for number in own}) < 2:
        return {}
    return {number: f"connection {order.index(clients[number]) + 1}" for number in own}


def source_of(place: Place | None) -> str:
    """Return a place with its source line."""
    if place is None:
        return ""
    line = source_at(place.file, place.line)
    name = f"{PurePath(place.file).name}:{place.line}"
    return f"{name} {line}" if line else name


def start_text(history: ValueHistory, lookups: Lookups) -> str:
    text = f"{_start(history, lookups)}{_at(history.start.place)}{_unwritten(history, lookups)}"
    text = visible(text)
    has_writes = any(row.access.writes and not row.step for row in history.rows)
    return f"{text}; the last writes of the test:" if history.unwritten and has_writes else text


_WHICH: Mapping[UnwrittenKind, str] = {
    "never": "which nothing has written",
    "later": "which nothing had written before",
    "baseline": "which was in the baseline and which nothing has written since",
    "unrecorded": "which no recorded call has written",
}
_OF_NAMES: Mapping[UnwrittenKind, str] = {
    "never": "nothing has written {}",
    "later": "nothing had written {} before",
    "baseline": "nothing has written {} since the baseline, which had it",
    "unrecorded": "no recorded call has written {}",
}


def _unwritten(history: ValueHistory, lookups: Lookups) -> str:
    """Return why there is no write of the data that the failing statement compared; empty if there is
    one.
    """
    kinds = dict.fromkeys(history.unwritten.values())
    if len(kinds) == 1 and history.start.kind != "last_call":
        return f", {_WHICH[next(iter(kinds))]}"
    texts = []
    for kind in kinds:
        unwritten = [sought for sought in history.unwritten if history.unwritten[sought] == kind]
        names = _names(unwritten, lookups)
        texts.append(_OF_NAMES[kind].format(names))
    return "".join(f"; {text}" for text in texts)


def _start(history: ValueHistory, lookups: Lookups) -> str:
    start = history.start
    if start.kind == "last_call":
        read = "The failing statement read none of the fakes' data"
        reason = read if start.is_of_statement else "No statement failed"
        return f"{reason}; this is the history of the last call"
    names = _names([sought for sought in start.sought if sought not in start.earlier], lookups)
    if start.kind == "changed":
        function_names = ["a lambda" if name == "<lambda>" else f"{name}()" for name in start.by]
        functions = listed(function_names, 3)
        verb = "reads" if start.is_read else "writes"
        text = f"The failing statement compared the result of {verb} of {names}"
        return f"{text} in {functions}" if functions else text
    if start.looks:
        return f"The failing statement read {listed(list(start.looks), 3)}"
    text = f"The failing statement {'read' if start.is_read else 'wrote'} {names}"
    if not start.earlier:
        return text
    return f"{text}; an earlier equal request had read {_names(start.earlier, lookups)}"


def _names(all_sought: Iterable[Sought], lookups: Lookups) -> str:
    """Return the names of data, with ids as short as in the rows."""
    names = []
    for sought in all_sought:
        kind = sought.subject.kind
        default = "the default namespace" if kind == "namespace" else f"the {kind}"
        name = "" if sought.part and not sought.subject.name else sought.subject.name or default
        name = lookups.short(name)
        names.append(f"{name} {sought.part}".strip())
    return listed(names, 4)


def _at(place: Place | None) -> str:
    return "" if place is None else f" ({PurePath(place.file).name}:{place.line})"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_WRITE else f"{text[:_LONGEST_WRITE].rstrip()}…"


def expected_texts(history: ValueHistory) -> Iterator[str]:
    """Yield the items that were as expected, with the last writes of their data."""
    for expected in history.expected:
        writes = [_cut(access.what) for access in expected.writes]
        yield visible(f"As expected: {expected.item} ({listed(writes, 3)})")


def gap_texts(history: ValueHistory) -> Iterator[str]:
    return map(visible, _gap_texts(history))


def _gap_texts(history: ValueHistory) -> Iterator[str]:
    for gap in history.gaps:
        name, what = gap.access.subject.name, gap.access.what
        missing = "read" if gap.access.writes else "wrote"
        if gap.is_deletion and gap.missed is not None:
            vectors = [f"{access.part} in {access.subject.name or 'the default namespace'}"
                       for access in (gap.access, gap.missed)]  # fmt: skip
            yield f"nothing deleted {vectors[0]}; {vectors[1]} was deleted"
        elif gap.missed is not None and not gap.access.writes:
            yield f"{what}: nothing wrote {name}, and nothing read {gap.missed.subject.name}"
        elif gap.access.subject.kind == "message":
            yield f"nothing was sent to {name}"
        elif gap.neighbour is not None:
            yield f"{what}: nothing {missing} {name}; {gap.neighbour.name} was written and read"


def left_out_text(history: ValueHistory) -> str:
    if not history.left_out:
        return ""
    return f"... {counted(history.left_out, 'further write')} of this data left out"
