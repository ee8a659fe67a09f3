"""What commands do, as their scenarios show it, compared with their rows in the command table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fakecloud.kv.engine.execution import Execution
from pytest_fakecloud.kv.engine.keyspace import Keyspace
from pytest_fakecloud.kv.engine.messages import _CLASS_OF
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.reply import Blocked
from pytest_fakecloud.kv.report.history import Command, Expiries
from pytest_fakecloud.kv.syntax import decoded
from pytest_fakecloud.kv.table.arguments import UNITS
from pytest_fakecloud.kv.table.kinds import REMOVALS
from pytest_fakecloud.kv.table.registry import CommandSpec
from pytest_fakecloud.kv.table.synopsis import all_arguments
from pytest_fakecloud.kv.values.array import ArrayValue
from pytest_fakecloud.kv.values.containers import HashValue, QuickList, SetValue
from pytest_fakecloud.kv.values.measures import content_size
from pytest_fakecloud.kv.values.stream import StreamValue
from pytest_fakecloud.kv.values.types import type_name
from pytest_fakecloud.kv.values.zset import SortedSet
from tests.kv.table import WITHOUT_DATA

TYPES = {"$": "string", "l": "list", "s": "set", "h": "hash", "z": "zset", "t": "stream"}
"""For classes of events, the type of the key that has changed."""

REPORTED_OTHERWISE = {
    ("HSETEX", "update"), ("RENAME", "denyoom"), ("SET", "OW"), ("SINTERSTORE", "OW"),
    ("XAUTOCLAIM", "access"), ("XCLAIM", "access"),
}  # fmt: skip
"""Flags that commands would have by what they do, and that real servers do not report, with their
commands. The rows have what real servers report.
"""
SILENT = frozenset({"BITFIELD"})
"""Commands that can create a key and not report it, as real servers do (BITFIELD: OVERFLOW FAIL)."""
LARGE = 2000
"""The bytes of a value from which on no command that accesses it is compared: a copy takes too long."""


class ObservedEffects:
    """Compares what commands do with their rows in the command table.

    ``undeclared`` are what rows lack, ``unknown_events`` events without a class, and ``unreported``
    changes that functions did not report to the keyspace. ``shown`` are what commands showed: effects
    by their words, ``ttl`` and ``value`` for arguments that are a TTL or a value, and what replies and
    changes look like, from which only all lines of a command let one conclude. Not compared are
    commands that only run other commands (`WITHOUT_DATA`), and large values.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.shown: set[tuple[str, str]] = set()
        self.undeclared: set[str] = set()
        self.unknown_events: set[str] = set()
        self.unreported: set[str] = set()
        self.inside = False
        """Whether a command is running."""
        self.spec: CommandSpec | None = None
        """The command that is running or has run last."""
        self.line: list[bytes] = []
        """The command line that is running."""
        self.touched: set[bytes] = set()
        """The keys that the running command has read or written so far."""
        self.changed: set[bytes] = set()
        """The keys whose change the running command has reported so far."""
        self.expiries: dict[int, Expiries] = defaultdict(Expiries)
        """The TTLs that the findings of reports know from the commands so far, by database."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Session, "now_ms", property(self._now_ms))
        stored = property(self._now_us, lambda state, now_us: vars(state).update(now_us=now_us))
        monkeypatch.setattr(Execution, "now_us", stored, raising=False)
        for owner, method, check in (
            *((Keyspace, name, self._note_key) for name in ("lookup", "peek", "find")),
            *((Keyspace, name, self._note_change) for name in ("set", "touch", "touch_unwatched")),
            (Keyspace, "_set_expiry", self._check_ttl), (Keyspace, "announce", self._check_event),
            (HashValue, "expire_at", lambda *_: self._show_ttl()),
        ):  # fmt: skip
            monkeypatch.setattr(owner, method, self._checked(getattr(owner, method), check))
        run = self.engine.run

        def followed(session: Session, spec: CommandSpec, argv: list[bytes]) -> Any:
            db = session.db
            self.line = argv
            within, self.inside = self.inside, True
            outer = self.touched, self.changed
            self.touched, self.changed = set(), set()
            size = self._size()
            stored = self._stored(db, spec, argv)
            before = self._contents(stored)
            after: dict[bytes, Any] = {}
            self.spec = spec
            try:
                reply = run(session, spec, argv)
            finally:
                self._check_keys(spec, argv)
                self._check_readonly(spec, argv)
                stored_after = self._stored(db, spec, argv)
                after = self._contents(stored_after)
                if not (before.keys() == stored.keys() and after.keys() == stored_after.keys()):
                    stored = stored_after = before = after = {}  # One of the values is large.
                self._check_changes(spec, argv, before, after)
                self.inside = within
                self.touched, self.changed = outer
            adds_data = self._size() > size and spec.group not in WITHOUT_DATA
            if adds_data and "denyoom" not in spec.flags:
                self._note(spec, "the flag denyoom, because it adds data", "denyoom")
            self._check_storage(spec, argv, stored, stored_after, before, after)
            self._check_access(spec, argv, before, reply)
            self._check_removals(spec, argv, before, after, reply)
            self._show(*shown_by_reply(spec, argv, before, reply))
            self._show(*shown_by_values(spec, argv, before, after))
            if not isinstance(reply, Blocked):
                self._follow(session.db, argv, reply)
            value_at = spec.value_at
            if value_at and session.db.values.get(argv[spec.only_key]) == argv[value_at]:
                self._show("value")
            return reply

        monkeypatch.setattr(self.engine, "run", followed, raising=False)

    def _note(self, spec: CommandSpec, addition: str, flag: str = "") -> None:
        """Note what a row lacks, unless it is a flag that real servers do not report."""
        if (spec.name, flag) not in REPORTED_OTHERWISE:
            self.undeclared.add(f"to the row of {spec.name}: {addition}")

    def _show(self, *words: str) -> None:
        self.shown.update((self.spec.name, word) for word in words)

    def _show_ttl(self) -> None:
        """Note that a TTL is the one in an argument."""
        self._show("ttl")

    # -- keys ----------------------------------------------------------------------------------------

    def _stored(self, db: Keyspace, spec: CommandSpec, argv: list[bytes]) -> dict[bytes, Any]:
        """Return the values of the keys of a command line, without what has expired; for a command
        that only runs others, none.
        """
        if spec.group in WITHOUT_DATA:
            return {}
        now_ms = self.engine.clock.now_us() // 1000
        return {
            argv[at]: db.values.get(argv[at])
            for at, _ in spec.key_positions(argv)
            if db.expires.get(argv[at], now_ms + 1) > now_ms
        }

    def _contents(self, stored: dict[bytes, Any]) -> dict[bytes, Any]:
        """Return a copy of the elements of these values, unless one is large."""
        if any(map(is_large, stored.values())):
            return {}
        now_ms = self.engine.clock.now_us() // 1000
        return {key: elements(value, now_ms) for key, value in stored.items()}

    def _check_keys(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Check that the row has the positions of the keys that the command has read or written."""
        keys = {argv[at] for at, _ in spec.key_positions(argv)}
        if any(key_spec.unknown for key_spec in spec.keys):
            return
        for key in self.touched - keys:
            if spec.keys or key in argv:
                self._note(spec, f"the position of the key {decoded(key)} in `{shown(argv)}`")

    def _check_readonly(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Check that a command that reads keys is a read or a write."""
        is_declared = spec.readonly or spec.write or spec.group in WITHOUT_DATA
        if self.touched and not is_declared:
            self._note(spec, f"the flag readonly (or write), because of `{shown(argv)}`")

    def _check_storage(
        self,
        spec: CommandSpec,
        argv: list[bytes],
        stored: dict[bytes, Any],
        stored_after: dict[bytes, Any],
        before: dict[bytes, Any],
        after: dict[bytes, Any],
    ) -> None:
        """Check the flags RW, OW and RM of keys that have a value before and after, and another one."""
        flags = flags_of(spec, argv)
        for key, value in stored.items():
            new = stored_after.get(key)
            if value is None or new is None or before[key] == after[key]:
                continue
            if "RM" in flags[key]:
                self._note(spec, f"RW (or OW) instead of RM, because of `{shown(argv)}`")
            elif "OW" in flags[key] and new is value:
                self._note(spec, f"RW instead of OW: `{shown(argv)}` does not replace the value")
            elif "RW" in flags[key] and type_name(new) != type_name(value):
                self._note(spec, f"OW instead of RW: `{shown(argv)}` replaces another type", "OW")

    def _check_access(
        self, spec: CommandSpec, argv: list[bytes], before: dict[bytes, Any], reply: Any
    ) -> None:
        """Check that the row has the flag `access` of a key whose data are in the reply."""
        texts = texts_in(reply) - {*argv}
        flags = flags_of(spec, argv)
        for key, value in before.items():
            if texts & texts_in(value) and "access" not in flags[key]:
                self._note(spec, f"access of the key {decoded(key)} in `{shown(argv)}`", "access")

    def _check_removals(
        self,
        spec: CommandSpec,
        argv: list[bytes],
        before: dict[bytes, Any],
        after: dict[bytes, Any],
        reply: Any,
    ) -> None:
        """Check that the command counts as one that removes the elements in the line, if it does and
        does not return them, or as one that takes elements, if it returns others than those in the line.

        A field that expires is not removed, and an element that moves is not only removed.
        """
        removes = spec.ttl_unit is None and spec.repetition != "moves"
        for key, value in before.items():
            new = after.get(key) or {}
            if not (isinstance(value, dict) and isinstance(new, dict)):
                continue
            gone = {name: data for name, data in value.items() if name not in new}
            named = texts_in([*gone]) & {*argv}
            returned = texts_in([*gone.items()]) & texts_in(reply)
            if removes and named and not returned and spec.name not in REMOVALS:
                self._note(
                    spec,
                    f"RW delete, and field, member, index or element as the name of the argument that "
                    f"`{shown(argv)}` removes",
                )
            if returned and not named:
                self.shown.add((spec.name, "effect takes"))
                if spec.repetition not in ("takes", "moves"):
                    self._note(spec, f"the effect takes (or moves), because of `{shown(argv)}`")

    def _check_changes(
        self,
        spec: CommandSpec,
        argv: list[bytes],
        before: dict[bytes, Any],
        after: dict[bytes, Any],
    ) -> None:
        """Check that the row has the flags that say how the values of keys have changed, and that
        the changes were reported.
        """
        flags = flags_of(spec, argv)
        for key in before.keys() | after.keys():
            ways = changes(before.get(key), after.get(key))
            if "delete" in ways and after.get(key) == {} and spec.group != "stream":
                self.unreported.add(
                    f"{spec.name}: session.db.note_removal() instead of touch(), because "
                    f"`{shown(argv)}` leaves {decoded(key)} without elements"
                )
            if ways and key not in self.changed and spec.name not in SILENT:
                self.unreported.add(
                    f"{spec.name}: session.db.touch(), because `{shown(argv)}` changes {decoded(key)}"
                )
            for way in ways:
                if not flags[key] & {way, "update"}:
                    self._note(
                        spec,
                        f"RW (or OW, RM) and {way} of the key {decoded(key)} in `{shown(argv)}`",
                        way,
                    )
                if not spec.write:
                    self._note(
                        spec, f"the flag write instead of readonly, because of `{shown(argv)}`"
                    )

    def _note_change(self, db: Keyspace, key: bytes, *args: Any, **named: Any) -> None:
        self.changed.add(key)
        self._check_event(db, key, *args, **named)

    def _note_key(self, _: Keyspace, key: bytes, **__: Any) -> None:
        self.touched.add(key)

    # -- effects -------------------------------------------------------------------------------------

    def _now_ms(self, session: Session) -> int:
        spec = self.spec
        if spec is not None:
            self._show("time")
            if not spec.depends_on_time(self.line):
                self._note(spec, "the effect time")
        return session.db.now_ms

    def _now_us(self, execution: Any) -> int:
        if self.inside:
            self._show("time")
        now_us: int = vars(execution)["now_us"]
        return now_us

    def _checked(self, method: Any, check: Any) -> Any:
        def checked(owner: Any, *args: Any, **named: Any) -> Any:
            if self.spec is not None:
                check(owner, *args, **named)
            return method(owner, *args, **named)

        return checked

    def _check_ttl(self, db: Keyspace, key: bytes, at_ms: int) -> None:
        deadline_us = _command(self.engine, self.line).deadline_us
        if deadline_us == at_ms * 1000:
            self._show_ttl()
        elif self.spec.other_ttl:
            self._show("other TTL")
        else:
            self._note(
                self.spec,
                f"an argument {', '.join(UNITS)} (or, if no argument is the TTL, the name of the "
                "command to OTHER_TTLS of kv/table/exceptions.py)",
            )

    def _size(self) -> int:
        return sum(self.engine.sizes.measure(db)[1] for db in self.engine.databases)

    def _check_event(
        self, db: Keyspace, key: bytes, *args: Any, event: str | None = None, **_: Any
    ) -> None:
        self.touched.add(key)
        event = next((argument for argument in args if isinstance(argument, str)), event)
        spec = self.spec
        default = spec.event
        if event and event not in _CLASS_OF:
            self.unknown_events.add(f"to _CLASSES: {event}, the event of {spec.name}")
        if event is None and default and default not in _CLASS_OF:
            self.unreported.add(
                f'{spec.name}: the event of a change, e.g. session.db.touch(key, "rpop"), or "" for '
                f"none; or, if {default} is an event, its name to _CLASSES of kv/engine/messages.py"
            )
        event = default if event is None else event
        stored = args[0] if args and not isinstance(args[0], str | None) else db.values.get(key)
        expected = TYPES.get(_CLASS_OF.get(event, ""))
        if expected and stored is not None and type_name(stored) != expected:
            self.unreported.add(f"{spec.name}: another event than {event}, about a {expected}")

    def _follow(self, db: Keyspace, argv: list[bytes], reply: Any) -> None:
        expiries = self.expiries[db.index]
        expiries.follow(_command(self.engine, argv, reply))
        for key, expiry in expiries.items():
            real_ms = db.expires.get(key.encode("latin-1"))
            expected_us = expiry.deadline_us or 0
            if self.engine.clock.now_us() < expected_us != (real_ms or 0) * 1000:
                self._note(
                    self.spec,
                    f"what changes the TTL in `{shown(argv)}`, e.g. the argument seconds or the option "
                    f"EX, because {key} expires at {real_ms or 'no time'}, and reports expect "
                    f"{expected_us // 1000}",
                )


def flags_of(spec: CommandSpec, argv: list[bytes]) -> dict[bytes, set[str]]:
    """Return the flags of the row for each key of a command line."""
    flags: dict[bytes, set[str]] = defaultdict(set)
    for at, key_spec in spec.key_positions(argv):
        flags[argv[at]].update(key_spec.flags)
    return flags


def shown_by_reply(
    spec: CommandSpec, argv: list[bytes], before: dict[bytes, Any], reply: Any
) -> Iterator[str]:
    """Yield what a reply can be: a size, the number of keys, data, or names or values of a hash."""
    values = [value for value in before.values() if value is not None]
    has_sizes = values and all(isinstance(value, bytes | dict) for value in values)
    if has_sizes and type(reply) is int and reply > 1:
        yield "a size" if reply in map(len, values) else "no size"
        keys = [word for word in argv if before.get(word) is not None]
        yield "the number of keys" if reply == len(keys) else "no number of keys"
    if texts_in(reply) & texts_in(values):
        yield "data"
    for value in values if spec.group == "hash" else ():
        if texts := texts_in(reply) & texts_in(value):
            yield "names of fields" if texts <= value.keys() else "values of fields"


def shown_by_values(
    spec: CommandSpec, argv: list[bytes], before: dict[bytes, Any], after: dict[bytes, Any]
) -> Iterator[str]:
    """Yield whether a line with another value leaves what exists, or changes it."""
    if not any(argument.name == "value" for argument in all_arguments(spec.arguments)):
        return
    for key, value in before.items():
        new = after.get(key)
        if isinstance(value, bytes):
            exists, is_left = True, value == new
        elif isinstance(value, dict):
            exists = bool(value.keys() & {*argv})
            is_left = isinstance(new, dict) and value.items() <= new.items()
        else:
            continue
        if not is_left:
            yield "changes what exists"
        elif exists and argv[-1] not in texts_in(value):
            yield "leaves what exists"


def shown(argv: list[bytes]) -> str:
    return " ".join(map(decoded, argv))


def _command(engine: Any, argv: list[bytes], reply: Any = None) -> Command:
    name, *arguments = [word.decode("latin-1") for word in argv]
    entry: Any = SimpleNamespace(at_us=engine.clock.now_us())
    return Command(entry, [name.upper(), *arguments], reply)


def is_large(value: Any) -> bool:
    """Return whether a value has too many elements, or too many bytes, to be copied for each command."""
    return value is not None and content_size(value) > LARGE


def elements(value: Any, now_ms: int) -> Any:
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


def changes(before: Any, after: Any) -> set[str]:
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
