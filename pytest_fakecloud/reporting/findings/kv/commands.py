"""Commands of key-value servers, with the properties that detectors need."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from ....core.calls import Call, Entry
from ....kv.table.registry import COMMANDS, CommandSpec, spec_of
from ....kv.table.ttl import Ttl, find_ttl, sets_ttl
from ...model import Finding
from ..detectors import about_key

UNKNOWN: Any = object()
"""The result of a command that may have been executed, but whose response is not known."""
_WRITING_EVENTS = {
    "set", "hset", "lpush", "rpush", "sadd", "zadd", "incrby", "append", "json.set",
}  # fmt: skip
_UNSURE = {"LPUSHX", "RPUSHX", "HSETEX", "MSETEX", "MSETNX"}
"""Commands that may write nothing, so that their key need not exist afterwards."""
WRITES = {
    name for name, spec in COMMANDS.items()
    if spec.event in _WRITING_EVENTS and len(spec.keys) == 1
} - _UNSURE  # fmt: skip
COUNTING = {name for name, spec in COMMANDS.items() if spec.event in ("incrby", "incrbyfloat")}
ADDING = {
    name for name, spec in COMMANDS.items()
    if spec.event in ("rpush", "lpush", "xadd", "hincrby", "hincrbyfloat", "zincr", "append")
} | COUNTING  # fmt: skip
"""Commands that change the data again each time they are repeated."""
READS = {"GET", "HGET", "HGETALL", "EXISTS", "LRANGE", "SMEMBERS", "JSON.GET"}
"""Reads of a key whose absence is worth a finding; their results are then empty."""
SCRIPTS = {
    name for name, spec in COMMANDS.items()
    if "no_mandatory_keys" in spec.flags and not spec.readonly
}  # fmt: skip
_ZADD_OPTIONS = COMMANDS["ZADD"].options


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a server executed or, if the result is ``UNKNOWN``, may have executed.

    ``words`` are its name, in capitals, and its arguments. A command with an empty name may have
    been any command. ``entry`` is the call, or the action of the test that changed the data.
    ``database`` is the number of the database, or None if the command may concern several.
    ``spec`` is the command in the command table, or None.
    """

    entry: Entry
    words: list[str]
    result: Any
    database: int | None = 0
    spec: CommandSpec | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", spec_of(self.words))

    @property
    def name(self) -> str:
        return self.words[0]

    @property
    def arguments(self) -> list[str]:
        return self.words[1:]

    @property
    def keys(self) -> list[str]:
        """The keys of the command, or its first argument if it has no keys."""
        spec, words = self.spec, self.words
        positions = [1]
        if spec is not None and spec.only_key != 1 and spec.keys:
            line = [word.encode("utf-8", "replace") for word in words]
            positions = [at for at, _ in spec.key_positions(line)] or positions
        return [words[at] for at in positions if at < len(words)]

    @property
    def key(self) -> str:
        """The first of the keys, or an empty string without arguments."""
        return next(iter(self.keys), "")

    @property
    def options(self) -> set[str]:
        """The words after the first two arguments, in capitals."""
        return {word.upper() for word in self.words[3:]}

    @property
    def zadd_options(self) -> list[str]:
        """The options of a ZADD, which precede its scores and members, in capitals."""
        return list(itertools.takewhile(_ZADD_OPTIONS.__contains__, map(str.upper, self.words[2:])))

    @property
    def at_us(self) -> int:
        return self.entry.at_us

    @property
    def client(self) -> object:
        return self.entry.client if isinstance(self.entry, Call) else None

    @property
    def sets_nx(self) -> bool:
        """Whether the command sets a key only if the key does not exist."""
        return self.name == "SETNX" or (self.name == "SET" and "NX" in self.options)

    @property
    def succeeded(self) -> bool:
        """Whether a command that sets a value or a TTL certainly did so."""
        if self.name == "SET" and "GET" in self.options:
            # The result is the former value, also if NX or XX prevented the write.
            return self.result is not UNKNOWN and not self.options & {"NX", "XX"}
        return self.result is not UNKNOWN and self.result not in (None, 0)

    @property
    def changes(self) -> bool:
        """Whether the command may have changed data."""
        spec = self.spec
        return spec is None or spec.write or self.name in SCRIPTS or self.name == "DEBUG"

    @property
    def changes_any(self) -> bool:
        """Whether the command may have changed keys that are not among its arguments."""
        spec = self.spec
        if spec is None or self.name == "DEBUG":
            return self.name in ("", "DEBUG")
        of_all_keys = spec.write and not spec.keys and "@keyspace" in spec.categories
        return of_all_keys or (self.name in SCRIPTS and self.words[2:3] == ["0"])

    @property
    def changes_only_ttl(self) -> bool:
        """Whether the command changes the TTL of its key, and not the value."""
        return self.spec is not None and _changes_only_ttl(self.spec)

    @property
    def replaces(self) -> bool:
        """Whether the command may have removed or replaced keys among its arguments."""
        if self.sets_nx and self.result is not UNKNOWN and "GET" not in self.options:
            return self.succeeded
        return self.changes and (self.spec is None or not _keeps_key(self.spec))

    def drop_replaced(self, by_key: dict[str, Any]) -> None:
        """Remove the keys that the command may have removed or replaced from a mapping."""
        if self.changes_any:
            by_key.clear()
        elif self.replaces:
            for key in self.arguments:
                by_key.pop(key, None)

    @property
    def ttl(self) -> Ttl | None:
        """The TTL that the command sets for its keys; None if it sets none."""
        spec = self.spec
        if spec is None or not sets_ttl(spec) or spec.group == "hash":
            return None
        return find_ttl(spec, self.words)

    def deadline_us(self) -> int | None:
        """Return the time at which the command lets its keys expire; None if it sets no TTL."""
        ttl = self.ttl
        return None if ttl is None else ttl.deadline_us(self.at_us)

    def finding(self, kind: str, evidence: Iterable[int] = (), /, **values: Any) -> Finding:
        """Return a finding about the command's key; ``evidence`` are the numbers of other entries."""
        return about_key(kind, self.entry, self.key, evidence, **values)


@cache
def _changes_only_ttl(spec: CommandSpec) -> bool:
    if not spec.write or "denyoom" in spec.flags or _has_ttl_of_fields(spec):
        return False
    return sets_ttl(spec) or spec.event == "persist"


def _has_ttl_of_fields(spec: CommandSpec) -> bool:
    return spec.group == "hash" and sets_ttl(spec)


@cache
def _keeps_key(spec: CommandSpec) -> bool:
    """Return whether a command changes a key in place, so that the key exists and keeps its TTL.

    The flags of key specs do not show that MOVE, a script or a JSON command can remove a key, and
    that a field's TTL can remove the last field.
    """
    if len(spec.keys) != 1 or spec.effects.value_at or spec.effects.takes_ttl:
        return False
    if spec.group in ("json", "scripting", "search") or _has_ttl_of_fields(spec):
        return False
    flags = spec.keys[0].flags
    return "RW" in flags and "delete" not in flags


class Expiry(NamedTuple):
    """The time in microseconds at which a key expires, and the command that set it."""

    deadline_us: int
    setter: Command


class Expiries(dict[str, Expiry]):
    """The expiry of each key, as far as the commands so far show it."""

    def expired(self, key: str, at_us: int) -> bool:
        """Return whether a key had a TTL that ended before or at a time."""
        return key in self and at_us >= self[key].deadline_us

    def follow(self, command: Command) -> None:
        for key in command.arguments if command.changes else ():
            if self.expired(key, command.at_us):
                del self[key]
        deadline = command.deadline_us()
        if deadline is not None and command.succeeded:
            self.update(dict.fromkeys(command.keys, Expiry(deadline, command)))
        elif command.changes_only_ttl:
            keeps = command.name == "GETEX" and len(command.words) == 2
            if not keeps and (command.result is UNKNOWN or command.succeeded):
                self.pop(command.key, None)
        elif not (command.name == "SET" and command.succeeded and "KEEPTTL" in command.options):
            command.drop_replaced(self)
