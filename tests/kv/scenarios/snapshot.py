"""What a command line has done to its keys, and what its row in the command table lacks to say so. All
of this follows from the data before and after and from the reply.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from pytest_fakecloud.kv.syntax import decoded
from pytest_fakecloud.kv.table.groups import GROUPS
from pytest_fakecloud.kv.table.kinds import REMOVALS
from pytest_fakecloud.kv.table.registry import CommandSpec
from pytest_fakecloud.kv.table.synopsis import all_arguments
from pytest_fakecloud.kv.values.array import ArrayValue
from pytest_fakecloud.kv.values.containers import HashValue, QuickList, SetValue
from pytest_fakecloud.kv.values.measures import content_size
from pytest_fakecloud.kv.values.stream import StreamValue
from pytest_fakecloud.kv.values.types import type_name
from pytest_fakecloud.kv.values.zset import SortedSet

SILENT = frozenset({"BITFIELD"})
"""Commands that can create a key and not report it, as real servers do (BITFIELD: OVERFLOW FAIL)."""
LARGE = 2000
"""The bytes of a value from which on no command that accesses it is compared: a copy takes too long."""


class Lack(NamedTuple):
    """What a row lacks. ``flag`` is the word, if it is a flag."""

    text: str
    flag: str = ""


class Snapshot(NamedTuple):
    """A command line that has run, with the values of its keys and copies of their elements. There are
    none of either if one of the values is large.
    """

    spec: CommandSpec
    line: list[bytes]
    values_before: dict[bytes, Any]
    values_after: dict[bytes, Any]
    before: dict[bytes, Any]
    after: dict[bytes, Any]
    reply: Any = None

    @property
    def text(self) -> str:
        return " ".join(map(decoded, self.line))

    @property
    def flags(self) -> dict[bytes, set[str]]:
        """The flags of the row for each key."""
        flags: dict[bytes, set[str]] = defaultdict(set)
        for at, key_spec in self.spec.key_positions(self.line):
            flags[self.line[at]].update(key_spec.flags)
        return flags


# -- what the row lacks ----------------------------------------------------------------------------


def lacks(snapshot: Snapshot) -> Iterator[Lack]:
    """Yield what the row lacks about the values, elements and reply of a command that has succeeded."""
    yield from _storage(snapshot)
    yield from _access(snapshot)
    yield from _removals(snapshot)
    yield from _fields(snapshot)


def _storage(snapshot: Snapshot) -> Iterator[Lack]:
    """Check the flags RW, OW and RM of keys that have a value before and after, and another one."""
    text = snapshot.text
    for key, value in snapshot.values_before.items():
        new, flags = snapshot.values_after.get(key), snapshot.flags[key]
        if value is None or new is None or snapshot.before[key] == snapshot.after[key]:
            continue
        if "RM" in flags:
            yield Lack(f"RW (or OW) instead of RM, because of `{text}`")
        elif "OW" in flags and new is value:
            yield Lack(f"RW instead of OW: `{text}` does not replace the value")
        elif "RW" in flags and type_name(new) != type_name(value):
            yield Lack(f"OW instead of RW: `{text}` replaces another type", "OW")


def _access(snapshot: Snapshot) -> Iterator[Lack]:
    """Check the flag `access` of keys whose data are in the reply."""
    texts = texts_in(snapshot.reply) - {*snapshot.line}
    for key, value in snapshot.before.items():
        if texts & texts_in(value) and "access" not in snapshot.flags[key]:
            yield Lack(f"access of the key {decoded(key)} in `{snapshot.text}`", "access")


def _removals(snapshot: Snapshot) -> Iterator[Lack]:
    """Check that the command counts as one that removes the elements in the line, if it does and
    does not return them, or as one that takes elements, if it returns others than those in the line.

    A field that expires is not removed, and an element that moves is not only removed.
    """
    spec = snapshot.spec
    removes = spec.ttl_unit is None and spec.repetition != "moves" and spec.name not in REMOVALS
    for named, returned in _gone(snapshot):
        if removes and named and not returned:
            yield Lack(
                "RW delete, and field, member, index or element as the name of the argument that "
                f"`{snapshot.text}` removes"
            )
        if returned and not named and spec.repetition not in ("takes", "moves"):
            yield Lack(f"the effect takes (or moves), because of `{snapshot.text}`")


def _gone(snapshot: Snapshot) -> Iterator[tuple[set[bytes], set[bytes]]]:
    """Yield, of the elements that each key has lost, those in the line, and those in the reply."""
    for key, value in snapshot.before.items():
        new = snapshot.after.get(key) or {}
        if isinstance(value, dict) and isinstance(new, dict):
            gone = {name: data for name, data in value.items() if name not in new}
            named = texts_in([*gone]) & {*snapshot.line}
            yield named, texts_in([*gone.items()]) & texts_in(snapshot.reply)


def _fields(snapshot: Snapshot) -> Iterator[Lack]:
    """Check that the fields and members in the line that the command adds or changes are called so."""
    spec = snapshot.spec
    if not (GROUPS[spec.group].has_fields and spec.only_key):
        return
    declared = spec.fields_of([word.decode("latin-1") for word in snapshot.line])
    for key, new in snapshot.after.items():
        old = snapshot.before.get(key) or {}
        if isinstance(new, dict) and isinstance(old, dict):
            changed = texts_in([name for name in new if new[name] != old.get(name)])
            if changed & {*snapshot.line} - {name.encode("latin-1") for name in declared}:
                yield Lack(
                    "field, member or index as the name of the argument that says what "
                    f"`{snapshot.text}` changes"
                )


def lacks_of_changes(snapshot: Snapshot) -> Iterator[Lack]:
    """Yield the flags that the row lacks to say how elements have changed, also if the command fails."""
    for key, ways in _changes(snapshot):
        for way in ways:
            if not snapshot.flags[key] & {way, "update"}:
                yield Lack(
                    f"RW (or OW, RM) and {way} of the key {decoded(key)} in `{snapshot.text}`", way
                )
            if not snapshot.spec.write:
                yield Lack(f"the flag write instead of readonly, because of `{snapshot.text}`")


def lacks_of_keys(spec: CommandSpec, line: list[bytes], touched: set[bytes]) -> Iterator[Lack]:
    """Yield the positions and flags that the row lacks of keys that the command has read or written."""
    text = " ".join(map(decoded, line))
    keys = {line[at] for at, _ in spec.key_positions(line)}
    if not any(key_spec.unknown for key_spec in spec.keys):
        for key in touched - keys:
            if spec.keys or key in line:
                yield Lack(f"the position of the key {decoded(key)} in `{text}`")
    is_declared = spec.readonly or spec.write or not GROUPS[spec.group].has_data
    if touched and not is_declared:
        yield Lack(f"the flag readonly (or write), because of `{text}`")


# -- what the function lacks -----------------------------------------------------------------------


def unreported_changes(snapshot: Snapshot, reported: set[bytes]) -> Iterator[str]:
    """Yield the calls that the command's function lacks, given the keys whose change it has reported."""
    name, text = snapshot.spec.name, snapshot.text
    for key, ways in _changes(snapshot):
        is_empty = snapshot.after.get(key) == {} and snapshot.spec.group != "stream"
        if "delete" in ways and is_empty:
            yield (
                f"{name}: session.db.note_removal() instead of touch(), because `{text}` leaves "
                f"{decoded(key)} without elements"
            )
        if ways and key not in reported and name not in SILENT:
            yield f"{name}: session.db.touch(), because `{text}` changes {decoded(key)}"


# -- what it shows ---------------------------------------------------------------------------------


def shown_by(snapshot: Snapshot) -> Iterator[str]:
    """Yield what the line shows of its command, for tests that look at all lines of a command."""
    yield from _shown_by_values(snapshot)
    if any(returned and not named for named, returned in _gone(snapshot)):
        yield "effect takes"


def _shown_by_values(snapshot: Snapshot) -> Iterator[str]:
    """Yield whether a line with another value leaves what exists, or changes it."""
    if not any(argument.role == "value" for argument in all_arguments(snapshot.spec.arguments)):
        return
    for key, value in snapshot.before.items():
        new = snapshot.after.get(key)
        if isinstance(value, bytes):
            exists, is_left = True, value == new
        elif isinstance(value, dict):
            exists = bool(value.keys() & {*snapshot.line})
            is_left = isinstance(new, dict) and value.items() <= new.items()
        else:
            continue
        if not is_left:
            yield "changes what exists"
        elif exists and snapshot.line[-1] not in texts_in(value):
            yield "leaves what exists"


# -- values ----------------------------------------------------------------------------------------


def copies_of(values: dict[bytes, Any], now_ms: int) -> dict[bytes, Any] | None:
    """Return copies of the elements of values; None if one of them is large."""
    if any(value is not None and content_size(value) > LARGE for value in values.values()):
        return None
    return {key: _elements(value, now_ms) for key, value in values.items()}


def _elements(value: Any, now_ms: int) -> Any:
    """Return a copy of a value's elements; the value itself if it has none, or if its bytes are a
    HyperLogLog, whose registers are no elements.
    """
    if isinstance(value, HashValue):
        return {
            field: (text, value.expires.get(field))
            for field, text in value.fields.items()
            if value.expires.get(field, now_ms + 1) > now_ms
        }
    if isinstance(value, SortedSet):
        return {member: score for score, member in value}
    if isinstance(value, StreamValue | ArrayValue):
        return dict(value.range() if isinstance(value, StreamValue) else value)
    if isinstance(value, QuickList | SetValue):
        return {
            (element, n): True for element, count in Counter(value).items() for n in range(count)
        }
    if isinstance(value, bytes | bytearray) and value.startswith(b"HYLL"):
        return ("hyperloglog", bytes(value))
    return bytes(value) if isinstance(value, bytearray) else value


def texts_in(value: Any) -> set[bytes]:
    """Return the strings in a reply or in the elements of a value."""
    if isinstance(value, bytes):
        return {value}
    if isinstance(value, dict):
        return texts_in([*value.items()])
    if isinstance(value, list | tuple):
        return {text for item in value for text in texts_in(item)}
    return set()


def _changes(snapshot: Snapshot) -> Iterator[tuple[bytes, set[str]]]:
    """Yield the keys with the ways in which their elements have changed."""
    for key in snapshot.before.keys() | snapshot.after.keys():
        yield key, _ways(snapshot.before.get(key), snapshot.after.get(key))


def _ways(before: Any, after: Any) -> set[str]:
    """Return how elements have changed, as flags of keys."""
    if isinstance(before, bytes) and isinstance(after, bytes):
        before, after = (dict(enumerate(text)) for text in (before, after))
    if not (isinstance(before, dict | None) and isinstance(after, dict | None)):
        return {"insert"} if before is None else {"delete"} if after is None else set()
    before, after = before or {}, after or {}
    ways = {
        "insert": after.keys() - before.keys(),
        "delete": before.keys() - after.keys(),
        "update": {key for key in before.keys() & after.keys() if before[key] != after[key]},
    }
    return {way for way, keys in ways.items() if keys}
