"""What a trial does to the data of the fakes: its commands and calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from ...core.calls import Call
from ...core.touches import Touch
from ...kv.report.wording import command_text
from ...kv.table import kinds as commands
from ...kv.table.synopsis import BoundLine
from ...kv.touches import fields_of, has_field
from ...reporting.lookups import Lookups
from ...reporting.rows.sources import summarise
from .names import StrandName

_SETS_VALUES = commands.CREATES & commands.LOSES_UPDATES
NUMBER = re.compile(r"-?\d+(\.\d+)?")
_VARIABLE = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|\d+")
"""Numbers and IDs, which can differ between two trials of the same code."""


@dataclass(eq=False)
class Access:
    """A command that a key-value engine ran, or a call of another service.

    ``unit`` identifies the script or the single command, which nobody interrupts. ``keys`` are the
    keys of a command, or the subjects of a call, as reads. ``before`` are the objects
    that a command's keys held before it ran, which it may have changed since. The ``words`` of a call
    are its route and path.
    """

    strand: str
    unit: object
    words: tuple[str, ...]
    keys: tuple[Touch, ...]
    before: tuple[object, ...]
    is_write: bool
    at_us: int
    call: Call | None = None
    bound: BoundLine = field(default_factory=BoundLine)
    """The arguments of a command with their names."""
    has_changed: bool = False
    """Whether a command has changed the content of a key, which is known after it has run."""

    def __post_init__(self) -> None:
        self.name = self.words[0]
        if self.is_write and self.call is None:
            _ = self.creates  # before the command changes the value of its key

    @cached_property
    def made_by(self) -> StrandName:
        return StrandName.of(self.strand)

    @cached_property
    def actor(self) -> str:
        """The strand that made it, without the number of its start or attempt."""
        return str(self.made_by.first)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def content(self) -> str:
        """The arguments of a command, or the body of a call."""
        if self.call is None:
            return " ".join(self.words[1:])
        return self.call.request_body.decode("utf-8", "replace")

    @property
    def has_effect(self) -> bool:
        """Whether it has changed data. A TTL counts only if nothing else can change."""
        if self.call is not None:
            return self.is_write and self.call.reached
        has_key = self.before.count(None) < len(self.before)
        return self.has_changed or (self.name in commands.EXPIRIES and has_key)

    @property
    def sets_number_again(self) -> bool:
        """Whether it sets a number that is there already: two clients may have computed the same."""
        is_overwriting = (
            self.name in commands.LOSES_UPDATES and not self.options & commands.CONDITIONS
        )
        values = self.bound.with_role("value") if is_overwriting and not self.has_effect else ()
        return any(map(NUMBER.fullmatch, values))

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it sets, if it only sets values."""
        return self.bound.with_role("value") if self.name in _SETS_VALUES else ()

    @cached_property
    def creates(self) -> tuple[str, ...]:
        """The fields or members that the first key did not have, or else the key if it is new."""
        if self.name in commands.FIELDS:
            return tuple(field for field in self.fields if not has_field(self.before[0], field))
        return () if self.before[0] is not None else (self.keys[0].name,)

    @property
    def has_condition(self) -> bool:
        """Whether a command only sets keys of which none exists."""
        if self.name in commands.FIELDS:
            return False
        return self.name in commands.IF_NEW or (self.name in _SETS_VALUES and "NX" in self.options)

    @property
    def acquires(self) -> bool:
        """Whether the command takes a lock: a key that only its first writer sets."""
        return self.has_condition and self.has_effect and len(self.keys) == 1

    @property
    def is_relative(self) -> bool:
        """Whether a second run of the command or call has a second effect."""
        return self.has_effect and (self.call is not None or self.name in commands.CHANGES_AGAIN)

    @property
    def summary(self) -> str:
        """The command or call as the story shows it."""
        if self.call is None:
            return command_text(self.words)
        summary = summarise(self.call, Lookups())
        return self.text if summary is None else summary.what

    @cached_property
    def shape(self) -> tuple[str, str, str]:
        """The fake, the command or route, and what it is about, without numbers and IDs."""
        about = self.keys[0].name if self.call is None else self.text
        return self.keys[0].fake, self.name, _VARIABLE.sub("#", about)

    def meets(self, other: Access) -> bool:
        """Return whether two commands can access the same field or member of their common key."""
        mine, others = self.fields, other.fields
        return not (mine and others) or not set(mine).isdisjoint(others)

    @cached_property
    def options(self) -> frozenset[str]:
        """The option words of a command, in upper case."""
        return self.bound.options

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields, members or indexes that a command accesses, if its words name them."""
        return fields_of(self.name, self.bound) if self.name in commands.FIELDS else ()
