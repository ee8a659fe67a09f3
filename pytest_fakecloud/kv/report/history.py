"""The history of a key-value server or of one of its databases: its commands, from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...cloud.fake import core_of
from ...core.calls import Action, Call
from ...reporting.accesses import ReportSubject
from ...reporting.findings import about
from ...reporting.model import Finding
from ...reporting.observed import ObservedTest
from ..fake import KVServer
from ..reply import encode
from ..resp.replies import is_error
from ..table import kinds
from ..table.registry import COMMANDS, CommandSpec, spec_of
from ..table.synopsis import BoundLine
from ..table.ttl import Ttl, find_ttl
from .accesses import KEY
from .calls import QUEUED, commands_of, executed_by_test, lines_of, loaded_keys
from .effects import did_something
from .lookups import KVLookups

UNKNOWN: Any = object()
"""The result of a command that may have been executed, but whose response is not known."""
_CONDITIONAL = kinds.IF_NEW | kinds.IF_EQUAL | {"COPY", "MOVE", "RENAMENX"}
"""Commands that have no effect unless a condition holds, which their result shows."""


@dataclass(frozen=True)
class Command:
    """A command that a server executed or, if the result is ``UNKNOWN``, may have executed.

    ``words`` are its name, in capitals, and its arguments. A command with an empty name may have
    been any command. ``entry`` is the call, or the action of the test that changed the data.
    ``database`` is the number of the database, or None if the command may concern several.
    """

    entry: Call | Action
    words: list[str]
    result: Any
    database: int | None = 0

    # Several detectors read each of these, so they are computed once.

    @cached_property
    def spec(self) -> CommandSpec | None:
        return spec_of(self.words)

    @cached_property
    def name(self) -> str:
        return self.words[0]

    @cached_property
    def keys(self) -> list[str]:
        """The keys of the command, or its first argument if it has no keys."""
        keys = [] if self.spec is None else [key for key, _ in self.spec.keys_of(self.words)]
        return keys or self.words[1:2]

    @cached_property
    def key(self) -> str:
        """The first of the keys, or an empty string without arguments."""
        return next(iter(self.keys), "")

    @cached_property
    def bound(self) -> BoundLine:
        """The arguments of the command with their names; none if the command is unknown."""
        return BoundLine() if self.spec is None else self.spec.bound(self.words)

    @cached_property
    def succeeded(self) -> bool:
        """Whether the command certainly did something."""
        return self._did_something is True

    @cached_property
    def _did_something(self) -> bool | None:
        if self.spec is None or self.result is UNKNOWN:
            return None
        return did_something(self.spec, self.words, self.result)

    @cached_property
    def changes(self) -> bool:
        spec = self.spec
        return spec is None or spec.write or self.name in kinds.SCRIPTS or self.name == "DEBUG"

    @cached_property
    def changes_any(self) -> bool:
        """Whether the command may have changed keys that are not among its arguments."""
        spec = self.spec
        if spec is None or self.name == "DEBUG":
            return self.name in ("", "DEBUG")
        has_no_key = self.name in kinds.SCRIPTS and self.words[2:3] == ["0"]
        return spec.changes_any_key or has_no_key

    @cached_property
    def changes_only_ttl(self) -> bool:
        """Whether the command changes the TTL of its key, and not the value."""
        return self.spec is not None and self.spec.changes_only_ttl

    @cached_property
    def replaces(self) -> bool:
        """Whether the command may have removed or replaced keys."""
        has_condition = self.name in _CONDITIONAL or not kinds.CONDITIONS.isdisjoint(
            self.bound.options
        )
        if has_condition and self._did_something is False:
            return False
        return self.changes and (self.spec is None or not self.spec.keeps_key)

    @cached_property
    def keys_kept(self) -> list[str]:
        """The keys that exist after the command and may have lost their TTL by it."""
        spec = self.spec
        if spec is None or not self.succeeded or self.database is None:
            return []
        if self.result == 0:  # Nothing was stored, and the key was deleted.
            return []
        if spec.changes_only_ttl:
            return self.keys
        if spec.other_ttl:
            return self.words[2:3] if self.name in _MOVING else []
        if self.name in _OVERWRITING:
            return self.keys[:1]
        return [key for key, key_spec in spec.keys_of(self.words) if "OW" in key_spec.flags]

    def drop_replaced(self, by_key: dict[str, Any]) -> None:
        """Remove the keys that the command may have removed or replaced from a mapping."""
        if self.changes_any:
            by_key.clear()
        elif self.replaces:
            keys = [] if self.spec is None else self.spec.keys_of(self.words)
            for key in [key for key, spec in keys if spec.writes] or self.words[1:]:
                by_key.pop(key, None)

    @cached_property
    def ttl(self) -> Ttl | None:
        """The TTL that the command sets for its keys; None if it sets none."""
        spec = self.spec
        return None if spec is None or spec.sets_ttl_of_fields else find_ttl(spec, self.words)

    @cached_property
    def deadline_us(self) -> int | None:
        """Return the time at which the command lets its keys expire; None if it sets no TTL."""
        ttl = self.ttl
        return None if ttl is None else ttl.deadline_us(self.entry.at_us)

    def finding(self, kind: str, key: str | None = None, /, **values: Any) -> Finding:
        """Return a finding about a key of the command, by default the first."""
        subject = ReportSubject(KEY, self.key if key is None else key, self.entry.fake)
        return about(kind, self.entry, subject, **values)


class Expiries(dict[str, Command]):
    """The command that set the TTL of each key, as far as the commands so far show it."""

    def expired(self, key: str, at_us: int) -> bool:
        """Return whether a key had a TTL that ended before or at a time."""
        return key in self and at_us >= (self[key].deadline_us or 0)

    def follow(self, command: Command) -> None:
        for key in command.words[1:] if command.changes else ():
            if self.expired(key, command.entry.at_us):
                del self[key]
        setter = self.get(command.key) if command.name in _MOVING else None
        if command.deadline_us is not None and command.succeeded:
            if not ("ENX" in command.bound.options and command.key in self):
                self.update(dict.fromkeys(command.keys, command))
        elif command.name == "INCREX" and "PERSIST" in command.bound.options and command.succeeded:
            self.pop(command.key, None)
        elif command.changes_only_ttl:
            keeps = command.name == "GETEX" and len(command.words) == 2
            if not keeps and (command.result is UNKNOWN or command.succeeded):
                self.pop(command.key, None)
        elif not (
            command.name == "SET" and command.succeeded and "KEEPTTL" in command.bound.options
        ):
            command.drop_replaced(self)
        if setter is not None and command.succeeded:
            self[command.words[2]] = setter


_MOVING = {name for name, spec in COMMANDS.items() if spec.other_ttl and len(spec.keys) == 2}
"""Commands that give a key's TTL to another key."""
_OVERWRITING = {"SET", "GETSET", "SINTERSTORE"}
"""Commands that overwrite a key without the flag for it (specification)."""


@dataclass(frozen=True)
class Database:
    """A numbered database of a key-value server, which a detector examines."""

    test: ObservedTest
    fake: KVServer
    number: int
    history: Sequence[Command]
    """Each command that changed the data or may have changed it, and each known read."""

    @cached_property
    def known_commands(self) -> list[Command]:
        return [command for command in self.history if command.result is not UNKNOWN]

    def with_expiries(self) -> Iterator[tuple[Command, Expiries]]:
        """Yield each command of the history with the expiries of the keys before it."""
        expiries = Expiries()
        for command in self.history:
            yield command, expiries
            expiries.follow(command)

    def ttl_ms(self, key: str) -> int:
        """Return the reply of PTTL."""
        if not self.number:
            return self.fake._ttl_ms(key)
        engine, session = core_of(self.fake).engine, self.fake._new_session()
        try:
            engine.execute(session, [b"SELECT", b"%d" % self.number])
            ttl_ms: Any = engine.execute(session, [b"PTTL", encode(key)])
            return int(ttl_ms)
        finally:
            engine.abandon(session)


def databases_of(test: ObservedTest, fake: KVServer) -> list[Database]:
    """Return the databases that a server's clients have used, or else the first."""
    commands = list(history(test, fake))
    used = {command.database for command in commands if command.database is not None}
    if used <= {0}:
        return [Database(test, fake, 0, commands)]
    # The test itself may have tried to select a database that does not exist. With a real server, a
    # fake has a single database.
    databases = getattr(core_of(fake).engine, "databases", [0])
    return [Database(test, fake, number, _concerning(number, commands))
            for number in sorted(used & set(range(len(databases))))]  # fmt: skip


def _concerning(number: int, commands: Iterable[Command]) -> list[Command]:
    """Return the commands that may concern a database; a script for several may have been any."""
    return [
        replace(command, words=[""], result=UNKNOWN)
        if command.database is None and command.name in kinds.SCRIPTS else command
        for command in commands if command.database in (number, None)
    ]  # fmt: skip


def history(test: ObservedTest, fake: KVServer) -> Iterator[Command]:
    """Yield each command that changed the data or may have changed it, and each known read."""
    entries: list[Call | Action] = [*test.calls_of(fake), *test.actions_on(fake)]
    entries.sort(key=lambda entry: entry.number)
    selected = 0  # by the test itself
    for entry in entries:
        if isinstance(entry, Call):
            yield from _of_call(test, entry)
            continue
        for command in _of_action(test, entry, selected):
            selected = _selected_after(command, selected)
            if entry.number > core_of(fake).rewound:
                yield command
        if entry.kind == "reset":
            selected = 0


def _selected_after(command: Command, selected: int) -> int:
    """Return the database that is selected after a command; ``selected`` was it before."""
    if command.name == "SELECT":
        return int(command.key) if command.key.isdecimal() else selected
    return 0 if command.name == "RESET" else selected


def source_of(test: ObservedTest, words: list[str]) -> str | None:
    """Return the source of the script that a command line runs; None if it is unknown."""
    name, argument = words[0].removesuffix("_RO"), next(iter(words[1:]), "")
    if name == "EVALSHA":
        return test.lookups.of(KVLookups).scripts.get(argument.lower()[:8])
    return argument if name == "EVAL" else None


def _database_of(test: ObservedTest, words: list[str], selected: int) -> int | None:
    """Return the database that a command concerns; None if it may concern several."""
    name = words[0]
    if name in kinds.SCRIPTS:
        source = source_of(test, words)
        return None if source is None or "select" in source.lower() else selected
    in_another = name == "COPY" and "DB" in COMMANDS["COPY"].bound(words).options
    several = in_another or name in ("", "MOVE", "SWAPDB", "FLUSHALL", "DEBUG")
    return None if several else selected


def _of_call(test: ObservedTest, call: Call) -> Iterator[Command]:
    if not call.reached or call.number in test.lookups.without_row or call.response_body == QUEUED:
        return
    if not lines_of(call) or "words" in call.cut:
        if call.cut:
            yield Command(call, [""], UNKNOWN, None)
        return
    selected = call.facts.get("database", 0)
    in_scripts = test.lookups.of(KVLookups).script_commands
    rejected = call.fault is None and call.status is not None and call.status >= 400
    for words, answer in commands_of(call, test.lookups):
        envelope = answer if call.status == 200 and isinstance(answer, dict) else {}
        # A script that raises an error may have changed data before.
        if (rejected or "error" in envelope) and words[0] not in kinds.SCRIPTS:
            continue
        if words[0] in kinds.RUNS_SCRIPT and len(lines_of(call)) == 1 and call.number in in_scripts:
            for database, (name, *arguments), own_answer in in_scripts[call.number]:
                if own_answer is None or not is_error(own_answer):
                    result = UNKNOWN if own_answer is None else own_answer["result"]
                    yield Command(call, [name.upper(), *arguments], result, database)
            continue
        result = envelope.get("result", UNKNOWN)
        command = Command(call, words, result, _database_of(test, words, selected))
        selected = _selected_after(command, selected)
        yield command


def _of_action(test: ObservedTest, action: Action, selected: int) -> Iterator[Command]:
    if words := executed_by_test(action):
        yield Command(action, words, UNKNOWN, _database_of(test, words, selected))
    elif keys := loaded_keys(action):
        yield Command(action, ["LOAD", *keys], UNKNOWN)
    elif action.kind in ("load", "reset", "restore"):
        yield Command(action, [""], UNKNOWN, None)
