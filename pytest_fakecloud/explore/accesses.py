"""What a trial does to the data of the fakes: its commands and calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product, starmap
from operator import eq
from typing import Any

from ..core.accesses import Touch
from ..core.calls import Call
from ..kv.accesses import text_of
from ..kv.report.wording import command_text
from ..kv.table import kinds
from ..kv.table.synopsis import BoundLine
from ..queue.rest.app import PUBLISHING
from ..reporting.calls import Lookups
from ..reporting.values import parsed
from ..reporting.wording import summarise

MESSAGES = frozenset({*PUBLISHING, "produce"})
"""Routes of other services by which a client sends a message."""
_JSON_STEP = re.compile(r"""\.?([^.\[\]*?@'"$]+)|\[(\d+|'[^']*'|"[^"]*")\]""")
"""A key or an index in a path that leads to a single value of a document."""
_SETS_VALUES = kinds.CREATES & kinds.LOSES_UPDATES
_ADDS_FIELDS = (kinds.CREATES & kinds.FIELDS) - kinds.LOSES_UPDATES - kinds.SCORES
_REMOVES_FIELDS = (kinds.REMOVALS | kinds.DELETES_ANY) & kinds.FIELDS
# Only the names of these commands tell which members of a sorted set they remove or rank.
_REMOVES_RANGES = frozenset({"ZREMRANGEBYLEX", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE"})
_RANKS = frozenset({"ZRANK", "ZREVRANK"})
NUMBER = re.compile(r"-?\d+(\.\d+)?")
_VARIABLE = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|\d+")
"""Numbers and IDs, which can differ between two trials of the same code."""


@dataclass(eq=False)
class Access:
    """A command that a key-value engine ran, or a call of another service.

    ``unit`` identifies the script or the single command, which nobody interrupts. ``keys`` are the
    keys of a command, or the subjects of a call, as reads. ``before`` are the values of a command's
    keys before it ran. The ``words`` of a call are its route and path.
    """

    client: str
    unit: object
    words: tuple[str, ...]
    keys: tuple[Touch, ...]
    before: tuple[object, ...] = ()
    is_write: bool = True
    call: Call | None = None
    bound: BoundLine = field(default_factory=BoundLine)
    """The arguments of a command with their names."""
    at_us: int = 0
    expires: bool = False
    """Whether a key of a command had a TTL before it ran."""

    def __post_init__(self) -> None:
        self.name = self.words[0]
        if self.before.count(None) < len(self.before):
            # Look at the values before the command changes them.
            _ = self.changes, self.creates, self.rank, self.rescored, self.removed

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def content(self) -> str:
        """The arguments of a command, or the body of a call."""
        if self.call is None:
            return " ".join(self.words[1:])
        return self.call.request_body.decode("utf-8", "replace")

    @cached_property
    def changes(self) -> bool:
        """Whether it changes data, as far as its arguments and the values of its keys tell. The TTL of a
        value that stays the same does not count.
        """
        if self.call is not None:
            return self.is_write and self.call.reached
        if not self.is_write:
            return False
        finds_nothing = all(value is None for value in self.before)
        if self.has_condition:
            return finds_nothing
        if finds_nothing and self.name in kinds.ONLY_DELETES:
            return False
        if self.name in _REMOVES_FIELDS or self.name in _REMOVES_RANGES:
            return bool(self.removed)
        if self.name in _ADDS_FIELDS:
            return not all(map(self._has, self.fields))
        if self.name in kinds.SCORES:
            return bool(self.rescored or self.creates)
        if self.name in _SETS_VALUES:
            return not self._finds_its_values
        is_increment = self.name in kinds.CHANGES_AGAIN
        return not (is_increment and self.bound.named("increment", "decrement") == ("0",))

    @property
    def _finds_its_values(self) -> bool:
        """Whether the keys or fields have the values that a command sets, or do not exist with XX."""
        old_values: Sequence[Any] = self.before
        if self.name in kinds.FIELDS:
            fields = getattr(self.before[0], "fields", {})
            old_values = [fields.get(field.encode()) for field in self.fields]
        elif "XX" in self.options and None in self.before:
            return True
        pairs = zip(old_values, self.values, strict=False)
        return all(old_value == value.encode() for old_value, value in pairs)

    @property
    def is_vector_deletion(self) -> bool:
        return self.name == "delete" and self.call is not None and self.call.service == "vector"

    @property
    def deletes_vectors(self) -> bool:
        """Whether a call deletes vectors that were there."""
        if self.call is None or not self.is_vector_deletion:
            return False
        answer: Any = parsed(self.call.response_body)
        result = answer.get("result") if isinstance(answer, dict) else None
        return isinstance(result, dict) and bool(result.get("deleted"))

    @property
    def counts(self) -> bool:
        """Whether it sets numbers that are there already: two clients may have computed the same."""
        return not self.changes and bool(self.values) and all(map(NUMBER.fullmatch, self.values))

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it sets, if it only sets values."""
        return self.bound.with_role("value") if self.name in _SETS_VALUES else ()

    def _has(self, field: str) -> bool:
        """Return whether the first key had a field or member before the command."""
        old_value: Any = self.before[0]
        if getattr(old_value, "type_name", "") == "array":
            return field.isdecimal() and int(field) in old_value.values
        is_known = getattr(old_value, "type_name", "") in ("hash", "set", "vectorset", "zset")
        return is_known and field.encode() in old_value

    @cached_property
    def creates(self) -> tuple[str, ...]:
        """The fields or members that the first key did not have, or else the key if it is new."""
        if self.name in kinds.FIELDS:
            return tuple(field for field in self.fields if not self._has(field))
        return () if self.before[0] is not None else (self.keys[0].name,)

    @cached_property
    def rank(self) -> int | None:
        """The rank that the command reads, of a member in a sorted set."""
        if self.name not in _RANKS or not self._has(self.words[2]):
            return None
        sorted_set: Any = self.before[0]
        rank: int = sorted_set.rank(self.words[2].encode(), reverse=self.name == "ZREVRANK")
        return rank

    @cached_property
    def rescored(self) -> frozenset[str]:
        """The members of a sorted set to which the command gives another score."""
        if self.name not in kinds.SCORES or "NX" in self.options:
            return frozenset()
        members = filter(self._has, self.fields)
        numbers = dict(zip(self.fields, self.bound.named("score", "increment"), strict=False))
        if not numbers:
            return frozenset(members)  # It has coordinates, which count as new ones.
        return frozenset(member for member in members if self._rescores(member, numbers[member]))

    def _rescores(self, member: str, number: str) -> bool:
        """Return whether a score or an increment changes the score of a member."""
        sorted_set: Any = self.before[0]
        old: float = sorted_set.scores[member.encode()]
        try:
            new = float(number)
        except ValueError:
            return False  # The server rejects it.
        if self.name in kinds.CHANGES_AGAIN or "INCR" in self.options:
            new += old
        is_refused = ("GT" in self.options and new < old) or ("LT" in self.options and new > old)
        return new != old and not is_refused

    @cached_property
    def removed(self) -> frozenset[str]:
        """The fields or members that the command removes: those in its arguments, or in a range."""
        old_value: Any = self.before[0]
        if self.name in _REMOVES_FIELDS:
            return frozenset(filter(self._has, self.fields))
        is_range = self.name in _REMOVES_RANGES and len(self.words) == 4
        if not is_range or getattr(old_value, "type_name", "") != "zset":
            return frozenset()
        with suppress(ValueError):  # The server rejects limits that are not numbers.
            return frozenset(_members_within([*old_value], *self.words))
        return frozenset()

    @property
    def has_condition(self) -> bool:
        """Whether a command only sets keys of which none exists."""
        if self.name in kinds.FIELDS:
            return False
        return self.name in kinds.IF_NEW or (self.name in _SETS_VALUES and "NX" in self.options)

    @property
    def acquires(self) -> bool:
        """Whether the command takes a lock: a key that only its first writer sets."""
        return self.has_condition and self.changes and len(self.keys) == 1

    @property
    def commits_records(self) -> bool:
        """Whether a call of a consumer commits records: by itself, or those that it receives. The answer
        that shows them may be lost.
        """
        if self.call is None or not self.call.reached:
            return False
        if self.name != "consume":
            return self.name == "commit"
        setting = self.call.request_headers.get("Kafka-Enable-Auto-Commit", "true")
        has_records = parsed(self.call.response_body) != []
        return has_records and setting.strip().lower() != "false"

    @property
    def is_message(self) -> bool:
        """Whether a call sends a message that nobody recognises as a duplicate."""
        if self.call is None or not self.changes or self.name not in MESSAGES:
            return False
        return not any("deduplication" in name.lower() for name in self.call.request_headers)

    @property
    def is_relative(self) -> bool:
        """Whether a second run of the command or call has a second effect."""
        return self.changes and (self.call is not None or self.name in kinds.CHANGES_AGAIN)

    def overwrites(self, other: Access) -> bool:
        """Return whether a call writes a vector again that another call has written or deleted."""
        return other.changes and self.is_about(other)

    def is_about(self, other: Access) -> bool:
        """Return whether two calls access a common vector."""
        if self.call is None or other.call is None or self.keys != other.keys:
            return False
        mine, (theirs, prefix) = self._vectors()[0], other._vectors()
        return bool(mine & theirs) or (prefix != "" and any(id.startswith(prefix) for id in mine))

    def _vectors(self) -> tuple[frozenset[str], str]:
        """Return the IDs of the vectors that a call writes or deletes, and the prefix of IDs."""
        facts = self.call.facts if self.call is not None else {}
        ids, prefix = facts.get("ids", [facts.get("id")]), str(facts.get("prefix") or "")
        # The index rejects a request whose IDs are not a list.
        return frozenset(map(str, ids if isinstance(ids, list) else ())), prefix

    @property
    def summary(self) -> str:
        """The command or call as the story shows it."""
        if self.call is None:
            return command_text(self.words)
        summary = summarise(self.call, Lookups())
        return self.text if summary is None else summary.what

    @property
    def subject(self) -> str:
        """The key, or the destination, group, topic, vectors or fake that a call is about."""
        if self.call is None:
            return self.keys[0].name
        facts = [
            self.call.facts.get(name) for name in ("destination", "group", "topic", "ids", "prefix")
        ]
        named: Any = next(filter(None, facts), self.keys[0].fake)
        return named if isinstance(named, str) else ", ".join(map(str, named))

    @cached_property
    def shape(self) -> tuple[str, str, str]:
        """The fake, the command or route, and what it is about, without numbers and IDs."""
        about = self.subject if self.call is None else self.text
        return self.keys[0].fake, self.name, _VARIABLE.sub("#", about)

    def meets(self, other: Access) -> bool:
        """Return whether two commands can access the same field, member or path of their common key."""
        if self.paths and other.paths:
            return any(starmap(_is_same_or_inside, product(self.paths, other.paths)))
        mine, others = self.fields, other.fields
        return not (mine and others) or not set(mine).isdisjoint(others)

    def replaces(self, other: Access) -> bool:
        """Return whether a command changes what another one accesses, and appends nothing."""
        is_change = self.changes and self.name not in kinds.OF_QUEUES | kinds.APPENDS
        return is_change and other.keys[0] in self.keys and self.meets(other)

    @cached_property
    def options(self) -> frozenset[str]:
        """The option words of a command, in upper case."""
        return self.bound.options

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields, members or indexes that a command accesses, if its words name them."""
        if self.name not in kinds.FIELDS:
            return ()
        fields = self.bound.with_role("field")
        if self.name == "ARSET" and fields[0].isdecimal():
            first = int(fields[0])
            return tuple(map(str, range(first, first + len(self.bound.with_role("value")))))
        return fields

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of a document that a command accesses."""
        if not self.name.startswith("JSON."):
            return ()
        return self.bound.with_role("path") or ("$",)


def _is_same_or_inside(path: str, other: str) -> bool:
    """Return whether two paths of a document lead to the same value, or one into the other's value."""
    mine, others = _steps(path), _steps(other)
    return None in (mine, others) or all(map(eq, mine or (), others or ()))


def _steps(path: str) -> list[str] | None:
    """Return the keys and indexes in a path; None if it can lead to several values."""
    relative_path = path.removeprefix("$")
    if relative_path in ("", "."):
        return []
    if _JSON_STEP.sub("", relative_path):
        return None
    return [name or quoted.strip("'\"") for name, quoted in _JSON_STEP.findall(relative_path)]


def _members_within(
    items: Sequence[tuple[float, bytes]], name: str, key: str, low: str, high: str
) -> list[str]:
    """Return the members that a command such as ZREMRANGEBYSCORE removes, given all of them in order."""
    if name == "ZREMRANGEBYRANK":
        first, last = (int(end) + len(items) * (int(end) < 0) for end in (low, high))
        items = items[max(first, 0) : max(last + 1, 0)]
    elif name == "ZREMRANGEBYSCORE":
        bottom, top = (float(end.removeprefix("(")) for end in (low, high))
        items = [item for item in items if bottom <= item[0] <= top]
        items = [item for item in items if not (low[0] == "(" and item[0] == bottom)]
        items = [item for item in items if not (high[0] == "(" and item[0] == top)]
    else:
        items = [item for item in items if low == "-" or low[1:].encode() <= item[1]]
        items = [item for item in items if high == "+" or item[1] <= high[1:].encode()]
        excluded = {end[1:].encode() for end in (low, high) if end[0] == "("}
        items = [item for item in items if item[1] not in excluded]
    return [text_of(member) for _, member in items]
