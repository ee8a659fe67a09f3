"""What a promise says: the data that it reads, and the lost writes that it notices (``trust=``)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ...cloud.base import BaseCloud
from ...cloud.fake import Fake, core_of
from ...core.errors import ContractError, counted, did_you_mean
from ...core.exits import exiting
from ...core.touches import ALL, Touch
from ...http.app import EXPLORATION
from ...http.messages import AnyResponse, Proceed, Request
from ...inspect.data import state_of
from ...kv.touches import KEY_OF_DB, touch_of_key
from ...process.replace import swap
from ..result.exploration import Trust
from ..result.wording import call_with_source, lookups_of_trial
from ..search.player import Player
from ..subject.assertions import may_assert, named_by
from ..subject.clients import functions_of_all
from ..subject.promises import Predicate
from ..values.footprint import touches_of_request
from ..values.history import History
from ..values.plan import Plan
from ..values.trial import Line, Trial
from ..without_guests import Examination
from ..world.world import World

MOST_LEFT_OUT = 100
"""Maximum number of writes that are left out, each in a trial of its own."""
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


class PromiseExamination(Examination):
    """Notes what promises read and what trials write, and leaves writes out."""

    _world: World

    def __init__(self) -> None:
        self._reads: dict[Touch, None] = {}
        """What the promises have read of the fakes and of the history."""
        self._written: set[Touch] = set()
        """What trials have written to key-value servers."""
        self._thread = 0
        """The thread that checks a promise; 0 if none does."""
        self._left_out: tuple[str, int] | None = None
        """The strand and the point of the call whose effect is undone, if any."""
        self._has_left_out = False
        """Whether its effect alone has changed the data of its fake."""

    @contextmanager
    def watching(self, world: World) -> Iterator[None]:
        self._world = world
        with exiting() as exits:
            for fake in world.fakes.members:
                app: Any = core_of(fake).app
                exits.callback(app.chain.add(EXPLORATION, partial(self._see_call, fake)))
                if fake.fixture == "kv_server":
                    listeners: Any = core_of(fake).engine.listeners
                    listener = partial(self._see_command, fake)
                    exits.callback(listeners.remove, listener)
                    listeners.add(listener)
            yield

    # -- what promises read

    def _see_command(self, fake: Fake, session: Any, spec: Any, argv: list[bytes]) -> None:
        """Note the accesses of a command that an engine is about to run."""
        databases = len(session.engine.databases)
        line = self._world.command_line(fake.name, session.db.index, databases, spec, tuple(argv))
        if self._world.simulation is None:
            self._add(line.touches)
        else:
            self._written.update(touch for touch in line.touches if touch.writes)

    def _see_call(self, fake: Fake, request: Request, proceed: Proceed) -> AnyResponse:
        """Process a call; if it is the one to leave out, restore the data that it has changed."""
        simulation = self._world.simulation
        if simulation is None:
            self._add(touch.read for touch in touches_of_request(fake, request))
            return proceed()
        lines = simulation.log.lines
        line = lines[-1] if lines else None
        is_left_out = line and (line.strand, line.point) == self._left_out
        if not is_left_out or line is None or line.call is not request.call:
            return proceed()
        before, saved = state_of(fake), fake.snapshot()
        response = proceed()
        if lines[-1] is line and state_of(fake) != before:
            self._has_left_out = True
            fake.restore(saved)
        return response

    def _add(self, touches: Iterable[Touch]) -> None:
        """Add what this thread reads, if it checks a promise."""
        if threading.get_ident() == self._thread:
            self._reads.update((touch, None) for touch in touches if touch.kind not in _NO_DATA)

    def _record(self, player: Player) -> None:
        """Play a trial without disturbances, and record what its checks read."""
        promises = player.subject.promises
        checks = promises.at_end
        promises.at_end = [partial(self._recorded, check) for check in checks]
        try:
            player.play(Plan(has_details=True))
        finally:
            promises.at_end = checks

    def _recorded(self, check: Callable[[History], object], history: History) -> object:
        fakes, keyspaces = self._world.fakes.members, self._world.fakes.keyspaces
        names = {id(keyspace): fake for (fake, _), keyspace in keyspaces.items()}
        with exiting() as exits:
            exits.callback(setattr, self, "_thread", 0)
            for owner in (History, *{type(fake) for fake in fakes}):
                read = self._noting(owner.__getattribute__, _read_attribute)
                swap(exits, owner, "__getattribute__", read)
            classes = {type(keyspace) for keyspace in keyspaces.values()}
            for owner, name in itertools.product(classes, _KEY_READERS):
                read = self._noting(getattr(owner, name), partial(_read_key, names))
                swap(exits, owner, name, read)
            self._thread = threading.get_ident()
            return self._world.awaited(check(history))

    def _noting(self, original: Any, touches: Callable[..., Iterable[Touch]]) -> Any:
        """Return a method that also adds what a call of it reads."""

        def read(owner: Any, *args: Any, **options: Any) -> Any:
            self._add(touches(owner, *args[:1]))
            return original(owner, *args, **options)

        return read

    # -- lost writes

    def trust(self, player: Player, undisturbed: Trial) -> Trust:
        """Leave out each write of the undisturbed trial, and see whether the promise breaks.

        Raises ``ContractError`` if the promise notices no lost write and reads nothing that a trial
        wrote.
        """
        self._record(player)
        touches = [touch for line in undisturbed.call_lines for touch in line.data if touch.writes]
        keys = [t for t in self._reads if t.kind.startswith(KEY_OF_DB) and t.name != ALL]
        unwritten = {
            key for key in keys if not any(write.conflicts(key) for write in self._written)
        }
        # A key that the promise writes itself, for example through the application, exists.
        own = {touch.read for touch in self._reads if touch.writes}
        reads = _named(self._reads)
        unwritten_names = tuple(sorted({key.name for key in unwritten if key.read not in own}))
        written = [touch.name for touch in touches if touch.kind.startswith(KEY_OF_DB)]
        left_out, missed = 0, list[str]()
        lookups = lookups_of_trial(undisturbed)
        writes = [line for line in undisturbed.call_lines if line.writes]
        for line in writes[:MOST_LEFT_OUT]:
            is_noticed = self._notices(player, line, undisturbed)
            if is_noticed is None:
                continue
            left_out += 1
            if not is_noticed:
                missed.append(call_with_source(line, lookups))
        checks = player.subject.promises.checks
        asserting = map(may_assert, functions_of_all(player.subject.programs))
        is_checked = bool(checks) and not any(asserting)
        reads_data = any(touch not in unwritten for touch in self._reads) or any(
            map(names_data, checks)
        )
        # Without writes, a key that stays as it was may be all that there is to promise.
        says_nothing = not reads_data and bool(left_out or not reads)
        if is_checked and says_nothing and len(missed) == left_out:
            text = f"it read {reads}, which no trial wrote" if reads else "it read nothing"
            if missed:
                text += f", and it does not notice if a write is lost, such as {missed[0]}"
            raise ContractError(
                f"the promise holds whatever the code does: {text}. Read what must hold from the "
                "fakes or the history, or leave out trust=True if the promise is meant to say so "
                "little"
            )
        lines = (
            *_lines_of_reads(reads, unwritten_names, written, has_checks=bool(checks)),
            *_lines_of_writes(left_out, missed),
        )
        return Trust(reads, unwritten_names, left_out, tuple(missed), lines)

    def _notices(self, player: Player, line: Line, undisturbed: Trial) -> bool | None:
        """Return whether the promise breaks without the effect of a call; None if that is unknown."""
        self._left_out, self._has_left_out = (line.strand, line.point), False
        try:
            trial = player.play(Plan())
        except (Exception, SystemExit):
            return True  # The promise, or the code, cannot handle the data.
        finally:
            self._left_out = None
        if not self._has_left_out:
            return None  # The call changes nothing.
        if trial.broken is not None:
            return True
        # The promise may allow that the code gives up.
        return None if trial.errors.keys() - undisturbed.errors.keys() else False


def _lines_of_reads(
    reads: str, unwritten: Sequence[str], written: Sequence[str], *, has_checks: bool
) -> Iterator[str]:
    """Yield the lines of the summary about what the promise read."""
    if reads:
        yield f"the promise read: {reads}"
    elif has_checks:
        yield (
            "the promise read nothing of the fakes: what memory, files and other servers hold is "
            "outside of the exploration, and only setup= restores it"
        )
    if unwritten:
        hints = [did_you_mean(key, written) for key in unwritten]
        named = ", ".join(map("".join, zip(unwritten, hints, strict=True)))
        is_meant = "" if hints[-1] else " (correct if it must not exist)"
        yield f"no trial wrote a key that the promise read: {named}{is_meant}"


def _lines_of_writes(left_out: int, missed: Sequence[str]) -> Iterator[str]:
    """Yield the line of the summary about lost writes."""
    if left_out:
        noticed = left_out - len(missed)
        unnoticed = f"; not {', '.join(missed)}" if missed else ""
        yield f"the promise notices {noticed} of {counted(left_out, 'lost write')}{unnoticed}"


def _read_attribute(owner: Any, name: str) -> Iterator[Touch]:
    # Ask for nothing but the type, because each attribute of the owner leads here again.
    if issubclass(type(owner), History):
        if name in _OF_HISTORY:
            yield Touch("", "history", name, False)
    elif kind := _KINDS.get(name.replace("_not_", "_").replace("_no_", "_")):
        yield Touch(owner.name, kind, ALL, False)


def _read_key(names: Mapping[int, str], keyspace: Any, key: bytes | None = None) -> Iterator[Touch]:
    fake = names.get(id(keyspace), "")
    if key is not None:
        yield touch_of_key(fake, keyspace.index, key, False)
    else:
        yield Touch(fake, f"{KEY_OF_DB}{keyspace.index}", ALL, False)


def _named(reads: Iterable[Touch]) -> str:
    names = (
        touch.name if touch.kind == "history" else str(touch).removeprefix("all ")
        for touch in reads
    )
    return ", ".join(dict.fromkeys(names))


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
