"""What a promise says: the data that it reads, and the lost writes that it notices."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ..cloud.base import BaseCloud
from ..cloud.fake import Fake
from ..core.errors import counted, did_you_mean
from ..core.exits import exiting
from ..core.touches import ALL, Touch
from ..kv.touches import KEY_OF_DB, touch_of_key
from ..process.replace import swap
from .assertions import named_by
from .promises import Predicate
from .trial import History

_OF_HISTORY = frozenset({"operations", "clients", "results", "errors", "crashed"})
"""The fields of a ``History`` that describe a trial."""
_KINDS: Mapping[str, str] = {
    "assert_caught_up": "group", "assert_committed": "group", "group": "group", "groups": "group",
    "assert_produced": "topic", "records": "topic", "topic": "topic", "topics": "topic",
    "assert_dead_lettered": "message", "assert_delivered": "message", "assert_idle": "message",
    "assert_published": "message", "attempts": "message", "dead_letters": "message",
    "message": "message", "messages": "message", "schedules": "schedule",
    "namespaces": "vector", "vectors": "vector", "assert_called": "call", "journal": "call",
    "assert_queried": "call", "assert_searched": "call", "assert_upserted": "call",
    "callbacks": "callback", "failures": "callback", "assert_callback": "callback",
    "assert_failure": "callback",
}  # fmt: skip
"""What the methods of fakes read, and the opposite assertions. The databases of a key-value server
report their keys.
"""
_FIXED = (
    str, bytes, int, float, tuple, frozenset, type(None), type, ModuleType, Fake, BaseCloud
)  # fmt: skip
"""Types of the values that a promise may name without reading data of the test."""
_NO_DATA = ("clock", "publishing")
"""Kinds of accesses that only order calls."""
_KEY_READERS = ("find", "lookup", "peek", "string", "exists", "__iter__")
"""The methods by which a key-value server reads a key, or all keys."""


class Reads:
    """What the promises have read of the fakes and of the history, in trials without
    disturbances.
    """

    def __init__(self, fakes: Sequence[Fake], keyspaces: Mapping[tuple[str, str], Any]) -> None:
        self._fakes = fakes
        self.touches: dict[Touch, None] = {}
        self._thread = 0
        """The thread that checks a promise; 0 if none does."""
        self._keyspaces = {type(keyspace) for keyspace in keyspaces.values()}
        self._names = {id(keyspace): fake for (fake, _), keyspace in keyspaces.items()}

    def add(self, touches: Iterable[Touch]) -> None:
        """Add what this thread reads, if it checks a promise."""
        if threading.get_ident() == self._thread:
            self.touches.update((touch, None) for touch in touches if touch.kind not in _NO_DATA)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what this thread reads within the block."""
        with exiting() as exits:
            exits.callback(self._forget_thread)
            for owner in (History, *{type(fake) for fake in self._fakes}):
                read = self._noting(owner.__getattribute__, self._read_attribute)
                swap(exits, owner, "__getattribute__", read)
            for kind, name in itertools.product(self._keyspaces, _KEY_READERS):
                read = self._noting(getattr(kind, name), self._read_key)
                swap(exits, kind, name, read)
            self._thread = threading.get_ident()
            yield

    def _forget_thread(self) -> None:
        self._thread = 0

    def _noting(self, original: Any, touches: Callable[..., Iterable[Touch]]) -> Any:
        """Return a method that also adds what a call of it reads."""

        def read(owner: Any, *args: Any, **options: Any) -> Any:
            self.add(touches(owner, *args[:1]))
            return original(owner, *args, **options)

        return read

    def _read_attribute(self, owner: Any, name: str) -> Iterator[Touch]:
        # Ask for nothing but the type, because each attribute of the owner leads here again.
        if issubclass(type(owner), History):
            if name in _OF_HISTORY:
                yield Touch("", "history", name, False)
        elif kind := _KINDS.get(name.replace("_not_", "_").replace("_no_", "_")):
            yield Touch(owner.name, kind, ALL, False)

    def _read_key(self, keyspace: Any, key: bytes | None = None) -> Iterator[Touch]:
        fake = self._names.get(id(keyspace), "")
        if key is not None:
            yield touch_of_key(fake, keyspace.index, key, False)
        else:
            yield Touch(fake, f"{KEY_OF_DB}{keyspace.index}", ALL, False)

    def __str__(self) -> str:
        names = (
            touch.name if touch.kind == "history" else str(touch).removeprefix("all ")
            for touch in self.touches
        )
        return ", ".join(dict.fromkeys(names))


@dataclass
class Trust:
    """What the promise read, and how many lost writes it notices.

    ``unwritten`` are the keys that it read and that neither it nor any trial wrote, ``written``
    those that the undisturbed trial wrote. ``unnoticed`` are the writes whose loss it does not
    notice, of the ``writes`` that were left out.
    """

    reads: str = ""
    unwritten: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    writes: int = 0
    unnoticed: tuple[str, ...] = ()
    is_outside: bool = False
    """Whether it reads nothing of the fakes."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of a verdict."""
        if self.reads:
            yield f"the promise read: {self.reads}"
        if self.is_outside:
            yield (
                "the promise read nothing of the fakes: what memory, files and other servers hold is "
                "outside of the exploration, and only setup= restores it"
            )
        if self.unwritten:
            hints = [did_you_mean(key, self.written) for key in self.unwritten]
            named = ", ".join(map("".join, zip(self.unwritten, hints, strict=True)))
            is_meant = "" if hints[-1] else " (correct if it must not exist)"
            yield f"no trial wrote a key that the promise read: {named}{is_meant}"
        if self.writes:
            noticed = self.writes - len(self.unnoticed)
            missed = f"; not {', '.join(self.unnoticed)}" if self.unnoticed else ""
            yield f"the promise notices {noticed} of {counted(self.writes, 'lost write')}{missed}"


def names_data(value: object, depth: int = 4) -> bool:
    """Return whether a promise names an object that code can change, such as a list of the test."""
    named: Iterable[object]
    if isinstance(value, _FIXED):
        return False
    if isinstance(value, MethodType):
        named = value.__self__, value.__func__
    elif isinstance(value, partial):
        named = value.func, *value.args, *value.keywords.values()
    elif isinstance(value, FunctionType):
        named = named_by(value)
    elif callable(value) or isinstance(value, Predicate):
        named = getattr(value, "__dict__", {}).values()
    else:
        return True
    return depth > 0 and any(names_data(item, depth - 1) for item in named)
