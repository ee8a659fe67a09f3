"""Fingerprints of states: what the fakes contain in the course of a trial, and which call is next.

Two trials have the same fingerprint where they differ only in names drawn at random, or in times
that have both passed or both not passed (decided here): a search that extends the trials with a
new fingerprint then explores states, and not the instants at which they were reached.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from ...core.timers import instant_us
from ...core.touches import ALL, Touch
from ...inspect.data import State, state_of
from ...kv.reply import python_value
from ...kv.touches import text_of
from ..values.names import actor_of
from .fakes import Fakes

_Subject: TypeAlias = tuple[str, str, str]
"""A key, or a whole fake: the fields of a ``Touch`` that say what is accessed."""
_SHORTEST, _LONGEST = 10, 20_000
"""Numbers of characters below and above which a value is compared as it is."""
_VARYING = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?)"
    r"|(?<![\w.-])(?P<time>\d{10}(?:\d{3}){0,2})(?:\.\d+)?(?![\w-])"
    r"|(?<![\w-])(?P<name>(?=[\w-]*\d)[\w-]{15,})"
)
"""A date, a time since the Unix epoch, or an ID such as a UUID, a token or that of a stream's entry."""
_LARGE = 100_000
"""Number of characters above which data is read only once in a trial, because trials have many steps."""
_UNITS_US = {10: 1_000_000, 13: 1_000, 16: 1}
"""Microseconds of the last digit of a time, by its number of digits."""
_WITH_TTL = " with a TTL"
_HISTORIES = frozenset({"attempts", "generation"})
"""Fields of states that grow with each attempt to deliver a message, and with each rebalance."""
_MOST_APART_US = 10 * 365 * 86_400 * 1_000_000
"""Microseconds from now within which a number counts as a time."""


class Fingerprints:
    """The fingerprints of one trial. Only data that a step has written is read again."""

    def __init__(self, fakes: Fakes) -> None:
        self._fakes = fakes
        self._before: dict[_Subject, str] = {}
        """The keys and fakes that were written so far, as they were before."""
        self._parts: dict[_Subject, int] = {}
        """The fingerprints of those that differ from before."""
        self._data = 0
        """All parts combined; 0 for data that is as it was before."""
        # Dictionaries, because the order of a set's members depends on the process.
        self._written: dict[_Subject, None] = {}
        """What was written since the last fingerprint."""
        self._timed: dict[_Subject, None] = {}
        """Data that may look different at another time."""
        self._large: set[_Subject] = set()
        """Data that takes too long to read after each step, of which further changes do not count."""
        self._at_us = fakes.now_us()
        self._names: dict[str, str] = {}
        self._calls: Counter[str] = Counter()
        """The points of each strand since the data changed."""

    def note(self, touches: Iterable[Touch]) -> None:
        """Note accesses to data, before they happen."""
        for touch in touches:
            if touch.writes and touch.fake:
                for subject in self._subjects(touch):
                    if subject not in self._before:
                        self._before[subject] = self._text(subject)
                    self._written[subject] = None

    def take(self, strand: str, switch_kind: str = "") -> int:
        """Return the fingerprint at a point of a strand."""
        if self._at_us != (now_us := self._fakes.now_us()):
            self._at_us = now_us
            self._written |= self._timed
        if self._written:
            before = self._data
            for subject in self._written:
                if subject not in self._large:
                    self._read(subject)
            self._written.clear()
            if self._data != before:
                self._calls.clear()
        if not switch_kind:
            self._calls[strand] += 1
        return hash((self._data, actor_of(strand), switch_kind or self._calls[strand]))

    def left(self) -> tuple[dict[_Subject, str], dict[_Subject, str]]:
        """Return what differs from the beginning of the trial, by key and record; apart from it, what
        had or has a TTL. The order of elements, names drawn at random and times do not count.
        """
        lasting: dict[_Subject, str] = {}
        expiring: dict[_Subject, str] = {}
        for subject, before in self._before.items():
            now = self._text(subject)
            if now == before:
                continue
            fake, kind, name = subject
            keyspace = self._fakes.keyspaces.get((fake, kind))
            if keyspace is None:
                lasting.update(_records(fake, state_of(self._fakes.by_name[fake])))
                continue
            value = keyspace.values.get(name.encode())
            has_ttl = now.endswith(_WITH_TTL) or before.endswith(_WITH_TTL)
            (expiring if has_ttl else lasting)[subject] = _text_of_value(value)
        return lasting, expiring

    def _read(self, subject: _Subject) -> None:
        text = self._text(subject)
        part = self._parts.pop(subject, 0)
        if text != self._before[subject]:
            varies = _SHORTEST < len(text) < _LONGEST
            normalised = _VARYING.sub(self._name, text) if varies else text
            self._parts[subject] = new = hash((subject, normalised))
            part ^= new
        # A part is added and removed by XOR: the order in which data was written does not count.
        self._data ^= part

    def _subjects(self, touch: Touch) -> Sequence[_Subject]:
        """Return the keys, or the whole fake of another service, to which an access belongs."""
        fake, kind, name, _ = touch
        keyspace = self._fakes.keyspaces.get((fake, kind))
        if keyspace is None:
            is_whole = self._fakes.by_name[fake].fixture != "kv_server"
            return ((fake, "", ALL),) if is_whole else ()
        if name != ALL:
            return ((fake, kind, name),)
        written = [subject for subject in self._before if subject[:2] == (fake, kind)]
        return *written, *((fake, kind, text_of(key)) for key in keyspace.values)

    def _text(self, subject: _Subject) -> str:
        """Return the content of a subject, and note if it is large."""
        text = self._content(subject)
        if len(text) > _LARGE:
            self._large.add(subject)
        return text

    def _content(self, subject: _Subject) -> str:
        """Return the content of a key or a fake; of a key with a TTL, also that it has one."""
        fake, kind, name = subject
        keyspace = self._fakes.keyspaces.get((fake, kind))
        if keyspace is None:
            self._timed[subject] = None
            return repr(_without_histories(state_of(self._fakes.by_name[fake])))
        key = name.encode()
        value, deadline_ms = keyspace.values.get(key), keyspace.expires.get(key)
        if value is None:
            return ""
        content = content_of(value)
        if deadline_ms is None:
            return content
        self._timed[subject] = None
        return "" if deadline_ms * 1000 <= self._at_us else f"{content}{_WITH_TTL}"

    def _name(self, match: re.Match[str]) -> str:
        """Return whether a time has passed, or the number of a name in the order of appearance."""
        kind, text = match.lastgroup, match[0]
        if kind != "name":
            at_us = _time_us(match)
            if abs(at_us - self._at_us) <= _MOST_APART_US:
                return "past" if at_us <= self._at_us else "future"
        return self._names.setdefault(text, f"name {len(self._names)}")


def varied(text: str) -> str:
    """Return a text in which all names drawn at random are equal, and all times."""
    return _VARYING.sub(lambda match: f"a {match.lastgroup}", text)


def _text_of_value(value: Any) -> str:
    """Return the content of a key in words, without the order of its elements."""
    if value is None:
        return "gone"
    if isinstance(value, bytes | bytearray):
        return varied(text_of(bytes(value)))
    content = _plain(value)
    if not isinstance(content, list):
        return varied(str(content))
    items = (" ".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in content)
    return ", ".join(sorted(map(varied, items)))


def _records(fake: str, state: State) -> Iterator[tuple[_Subject, str]]:
    """Yield the vectors of an index; what other services hold is sent as messages."""
    for section, items in state.items():
        if "namespace" in section:
            for name, fields in items.items():
                yield (fake, section, name), varied(str(fields))


def _without_histories(state: State) -> object:
    """Return the state of a fake without its counters of retries and restarts, which are no progress."""
    return [
        (section, name, [field for field in fields.items() if field[0] not in _HISTORIES])
        for section, items in state.items()
        for name, fields in items.items()
    ]


def content_of(value: Any) -> str:
    """Return the content of a key as text."""
    return repr(bytes(value) if isinstance(value, bytes | bytearray) else _plain(value))


def _plain(value: Any) -> object:
    """Return the content of a key without the order of fields and members, which says nothing."""
    content = python_value(value)
    if isinstance(content, set):
        return sorted(content, key=repr)
    if isinstance(content, dict):
        return sorted(content.items(), key=repr)
    groups = getattr(value, "groups", None)
    if groups:
        return content, [_pending(name, groups[name]) for name in sorted(groups)]
    return content


def _pending(name: bytes, group: Any) -> object:
    """Return what a stream's group has read, and who holds which entries for which time."""
    held = [
        (entry_id, pending.consumer.name, pending.deliveries)
        for entry_id, pending in sorted(group.pending.items())
    ]
    return name, group.last_id, held


def _time_us(match: re.Match[str]) -> int:
    if match["date"]:
        return instant_us(datetime.fromisoformat(match["date"]).replace(tzinfo=UTC))
    return int(match["time"]) * _UNITS_US[len(match["time"])]
