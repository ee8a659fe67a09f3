"""What commands do, as their scenarios show it, compared with their rows in the command table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fakecloud.kv.engine.execution import Execution
from pytest_fakecloud.kv.engine.keyspace import Keyspace
from pytest_fakecloud.kv.engine.messages import _CLASS_OF
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.reply import Blocked
from pytest_fakecloud.kv.report.history import Command, Expiries
from pytest_fakecloud.kv.table.arguments import UNITS
from pytest_fakecloud.kv.table.groups import GROUPS
from pytest_fakecloud.kv.table.registry import CommandSpec
from pytest_fakecloud.kv.values.containers import HashValue
from pytest_fakecloud.kv.values.types import type_name
from tests.kv.scenarios.snapshot import (
    Lack,
    Snapshot,
    copies_of,
    lacks,
    lacks_of_changes,
    lacks_of_keys,
    shown_by,
    unreported_changes,
)

TYPES = {"$": "string", "l": "list", "s": "set", "h": "hash", "z": "zset", "t": "stream"}
"""For classes of events, the type of the key that has changed."""

REPORTED_OTHERWISE = {
    ("HSETEX", "update"), ("RENAME", "denyoom"), ("SINTERSTORE", "OW"), ("XAUTOCLAIM", "access"),
    ("XCLAIM", "access"), ("VSETATTR", "denyoom"),
}  # fmt: skip
"""Flags that commands would have by what they do, and that real servers do not report, with their
commands. The rows have what real servers report.
"""


class Running:
    """A command that is running, and the keys that it has read or written, and changed, so far."""

    def __init__(self, spec: CommandSpec, line: list[bytes]) -> None:
        self.spec = spec
        self.line = line
        self.touched: set[bytes] = set()
        self.changed: set[bytes] = set()
        """Those whose change it has reported."""


class ObservedEffects:
    """Compares what commands do with their rows in the command table.

    ``undeclared`` are what rows lack, ``unknown_events`` events without a class, and ``unreported``
    changes that functions did not report to the keyspace. ``shown`` are what commands showed: effects
    by their words, ``ttl`` and ``value`` for arguments that are a TTL or a value, and what replies and
    changes look like, from which only all lines of a command let one conclude. Not compared are
    commands of groups without data, which can run other commands, and large values.

    `snapshot.py` has what follows from the data before and after a command. This class notices what a
    command does while it is running: which keys it reads, whether it reads the clock, and which TTLs
    and events it causes.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self._run = engine.run
        self.shown: set[tuple[str, str]] = set()
        self.undeclared: set[str] = set()
        self.unknown_events: set[str] = set()
        self.unreported: set[str] = set()
        self.running: Running | None = None
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
            (HashValue, "expire_at", lambda running, *_: self._show(running.spec, "ttl")),
        ):  # fmt: skip
            monkeypatch.setattr(owner, method, self._checked(getattr(owner, method), check))
        monkeypatch.setattr(self.engine, "run", self._run_and_compare, raising=False)

    def _checked(self, method: Callable[..., Any], check: Callable[..., None]) -> Any:
        """Return a method that calls a check first, if a command is running."""

        def checked(owner: Any, *args: Any, **named: Any) -> Any:
            if self.running is not None:
                check(self.running, owner, *args, **named)
            return method(owner, *args, **named)

        return checked

    def _run_and_compare(
        self, session: Session, spec: CommandSpec, line: list[bytes], **options: bool
    ) -> Any:
        """Run a command, which can run others, and compare it with its row."""
        outer, self.running = self.running, Running(spec, line)
        db, size = session.db, self._size()
        values = self._values(db, spec, line)
        elements = copies_of(values, self._real_ms())
        snapshot = Snapshot(spec, line, {}, {}, {}, {})
        try:
            reply = self._run(session, spec, line, **options)
        finally:
            # A command that fails can have changed data, too.
            new_values = self._values(db, spec, line)
            new_elements = copies_of(new_values, self._real_ms())
            if elements is not None and new_elements is not None:
                snapshot = Snapshot(spec, line, values, new_values, elements, new_elements)
            self._note(spec, lacks_of_keys(spec, line, self.running.touched))
            self._note(spec, lacks_of_changes(snapshot))
            self.unreported.update(unreported_changes(snapshot, self.running.changed))
            self.running = outer
        snapshot = snapshot._replace(reply=reply)
        self._note(spec, lacks(snapshot))
        self._show(spec, *shown_by(snapshot))
        adds_data = self._size() > size and GROUPS[spec.group].has_data
        if adds_data and "denyoom" not in spec.flags:
            self._note(spec, [Lack("the flag denyoom, because it adds data", "denyoom")])
        if not isinstance(reply, Blocked):
            self._follow(session.db, snapshot)
        value_at = spec.value_at
        if value_at and session.db.values.get(line[spec.only_key]) == line[value_at]:
            self._show(spec, "value")
        return reply

    def _note(self, spec: CommandSpec, lacks: Iterable[Lack]) -> None:
        """Note what a row lacks, except flags that real servers do not report."""
        for text, flag in lacks:
            if (spec.name, flag) not in REPORTED_OTHERWISE:
                self.undeclared.add(f"to the row of {spec.name}: {text}")

    def _show(self, spec: CommandSpec, *words: str) -> None:
        self.shown.update((spec.name, word) for word in words)

    # -- data ----------------------------------------------------------------------------------------

    def _values(self, db: Keyspace, spec: CommandSpec, line: list[bytes]) -> dict[bytes, Any]:
        """Return the values of the keys of a command line, without what has expired; for a command
        that only runs others, none.
        """
        if not GROUPS[spec.group].has_data:
            return {}
        now_ms = self._real_ms()
        return {
            line[at]: db.values.get(line[at])
            for at, _ in spec.key_positions(line)
            if db.expires.get(line[at], now_ms + 1) > now_ms
        }

    def _real_ms(self) -> int:
        """Return the time of the clock, without the command counting as one that reads it."""
        now_ms: int = self.engine.clock.now_us() // 1000
        return now_ms

    def _size(self) -> int:
        return sum(self.engine.sizes.measure(db)[1] for db in self.engine.databases)

    def _follow(self, db: Keyspace, snapshot: Snapshot) -> None:
        """Check that the row says what a command does to TTLs."""
        expiries = self.expiries[db.index]
        expiries.follow(_command(self.engine, snapshot.line, snapshot.reply))
        for key, expiry in expiries.items():
            real_ms = db.expires.get(key.encode("latin-1"))
            expected_us = expiry.deadline_us or 0
            if self.engine.clock.now_us() < expected_us != (real_ms or 0) * 1000:
                lack = (
                    f"what changes the TTL in `{snapshot.text}`, e.g. the argument seconds or the "
                    f"option EX, because {key} expires at {real_ms or 'no time'}, and reports expect "
                    f"{expected_us // 1000}"
                )
                self._note(snapshot.spec, [Lack(lack)])

    # -- while a command is running ------------------------------------------------------------------

    def _note_key(self, running: Running, _: Keyspace, key: bytes, **__: Any) -> None:
        running.touched.add(key)

    def _note_change(
        self, running: Running, db: Keyspace, key: bytes, *args: Any, **named: Any
    ) -> None:
        running.changed.add(key)
        self._check_event(running, db, key, *args, **named)

    def _now_ms(self, session: Session) -> int:
        if self.running is not None:
            spec = self.running.spec
            self._show(spec, "time")
            if not spec.depends_on_time(self.running.line):
                self._note(spec, [Lack("the effect time")])
        return session.db.now_ms

    def _now_us(self, execution: Any) -> int:
        if self.running is not None:
            self._show(self.running.spec, "time")
        now_us: int = vars(execution)["now_us"]
        return now_us

    def _check_ttl(self, running: Running, db: Keyspace, key: bytes, at_ms: int) -> None:
        deadline_us = _command(self.engine, running.line).deadline_us
        if deadline_us == at_ms * 1000:
            self._show(running.spec, "ttl")
        elif running.spec.other_ttl:
            self._show(running.spec, "other TTL")
        else:
            lack = (
                f"an argument {', '.join(UNITS)} (or, if no argument is the TTL, the name of the "
                "command to OTHER_TTLS of kv/table/exceptions.py)"
            )
            self._note(running.spec, [Lack(lack)])

    def _check_event(
        self,
        running: Running,
        db: Keyspace,
        key: bytes,
        *args: Any,
        event: str | None = None,
        **_: Any,
    ) -> None:
        running.touched.add(key)
        event = next((argument for argument in args if isinstance(argument, str)), event)
        spec = running.spec
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


def _command(engine: Any, line: list[bytes], reply: Any = None) -> Command:
    name, *arguments = [word.decode("latin-1") for word in line]
    entry: Any = SimpleNamespace(at_us=engine.clock.now_us())
    return Command(entry, [name.upper(), *arguments], reply)
