"""The history of a key-value server or of one of its databases: its commands, read from the journal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from ....core.calls import Action, Call
from ....kv.python_values import encode
from ...bodies import each_from_base64, parsed
from ...calls import QUEUED, SEVERAL, executed_at, on_connection
from ...connections import is_error, reply
from ...model import Finding
from ..detectors import ObservedTest
from .commands import SCRIPTS, UNKNOWN, Command, Expiries

if TYPE_CHECKING:
    from ....kv.handle import KVServer

ServerOrDatabase: TypeAlias = "KVServer | Database"
"""A server or one of its databases, which a detector examines."""


def history(test: ObservedTest, handle: ServerOrDatabase) -> list[Command]:
    """Return each command that changed the data or may have changed it, and each known read."""
    number = handle.number if isinstance(handle, Database) else None
    place = handle.name, number
    if place not in test.commands:
        if not isinstance(handle, Database):
            test.commands[place] = list(_history(test, handle))
        else:
            test.commands[place] = [
                replace(one, words=[""], result=UNKNOWN)
                if one.database is None and one.name in SCRIPTS else one
                for one in history(test, handle._handle)
                if one.database in (number, None)
            ]  # fmt: skip
    return test.commands[place]


def commands(test: ObservedTest, handle: ServerOrDatabase) -> list[Command]:
    """Return each command that was executed, with its result."""
    return [one for one in history(test, handle) if one.result is not UNKNOWN]


def by_execution(test: ObservedTest, handle: ServerOrDatabase) -> list[Command]:
    """Return the history in order of execution: a fault's function may run before its call."""
    return sorted(history(test, handle), key=lambda command: executed_at(command.entry))


def with_expiries(
    test: ObservedTest, handle: ServerOrDatabase
) -> Iterator[tuple[Command, Expiries]]:
    """Yield each command of the history with the expiries of the keys before it."""
    expiries = Expiries()
    for command in history(test, handle):
        yield command, expiries
        expiries.follow(command)


def _history(test: ObservedTest, handle: Any) -> Iterator[Command]:
    since = getattr(handle, "_rewound", 0)
    entries: list[Call | Action] = [*test.calls_of(handle), *test.actions_on(handle)]
    entries.sort(key=lambda one: one.number)
    selected = 0  # by the test itself
    for entry in entries:
        if isinstance(entry, Call):
            yield from _of_call(test, entry)
            continue
        for command in _of_action(test, entry, selected):
            selected = _selected_after(command, selected)
            if entry.number > since:
                yield command
        if entry.kind == "reset":
            selected = 0


def _selected_after(command: Command, selected: int) -> int:
    """Return the database that is selected after a command; ``selected`` was it before."""
    if command.name == "SELECT":
        return int(command.key) if command.key.isdecimal() else selected
    return 0 if command.name == "RESET" else selected


def _database_of(test: ObservedTest, words: list[str], selected: int) -> int | None:
    """Return the database that a command concerns; None if it may concern several."""
    name, *arguments = words
    if name in SCRIPTS:
        source = arguments[0] if name == "EVAL" and arguments else "select"
        if name == "EVALSHA" and arguments:
            source = test.lookups.scripts.get(arguments[0].lower()[:8], source)
        return None if "select" in source.lower() else selected
    in_another = name == "COPY" and "DB" in map(str.upper, arguments)
    several = in_another or name in ("", "MOVE", "SWAPDB", "FLUSHALL", "DEBUG")
    return None if several else selected


def _of_call(test: ObservedTest, call: Call) -> Iterator[Command]:
    lines = call.facts.get("words")
    if not call.reached or call.number in test.lookups.without_row or call.response_body == QUEUED:
        return
    if not isinstance(lines, list) or "words" in call.cut:
        if call.cut:
            yield Command(call, [""], UNKNOWN, None)
        return
    selected = call.facts.get("database", 0)
    lines, answers = _replied(test, call) if on_connection(call) else (lines, _answers(call))
    if answers and len(answers) != len(lines):
        lines, answers = [[""]], []
    rejected = call.fault is None and call.status is not None and call.status >= 400
    for line, answer in itertools.zip_longest(lines, answers):
        words = [line[0].upper(), *line[1:]]
        known = answer if call.status == 200 and isinstance(answer, dict) else {}
        # A script that raises an error may have changed data before.
        if (rejected or "error" in known) and words[0] not in SCRIPTS:
            continue
        result = known.get("result", UNKNOWN)
        if call.facts.get("encoding") == "base64" and result is not UNKNOWN:
            result = each_from_base64(result)
        command = Command(call, words, result, _database_of(test, words, selected))
        selected = _selected_after(command, selected)
        yield command


def _answers(call: Call) -> list[Any]:
    """Return the answer to each command of a REST request; an empty list if they are unknown."""
    body = parsed(call.response_body)
    answers = body if call.route in SEVERAL else [body]
    return answers if isinstance(answers, list) else []


def _replied(test: ObservedTest, call: Call) -> tuple[list[list[str]], list[Any]]:
    """Return the commands that a call on a database connection executed, and their results.

    The results are an empty list if they are unknown.
    """
    steps = test.lookups.grouped_calls.get(call.number)
    known = bool(call.response_body) and "response_body" not in call.cut
    envelope = reply(call) if known else None
    if not steps:
        return call.facts["words"], [envelope]
    results = envelope.get("result") if envelope is not None else UNKNOWN
    # If a watched key was changed, nothing was executed, and the result is None.
    if call.facts["command"] != ["EXEC"] or results is None:
        return [], []
    answers = results if isinstance(results, list) else []
    lines = [step.facts["words"][0] for step in steps]
    return lines, [one if is_error(one) else {"result": one} for one in answers]


def _of_action(test: ObservedTest, action: Action, selected: int) -> Iterator[Command]:
    given, named = action.call or ((), {})
    data = given[0] if given else named.get("data")
    if action.kind == "execute" and given:
        words = [_word(given[0]).upper(), *map(_word, given[1:])]
        yield Command(action, words, UNKNOWN, _database_of(test, words, selected))
    elif action.kind == "load" and isinstance(data, Mapping):
        yield Command(action, ["LOAD", *map(_word, data)], UNKNOWN)
    elif action.kind in ("load", "reset", "restore"):
        yield Command(action, [""], UNKNOWN, None)


def _word(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# -- databases -------------------------------------------------------------------------------------


Detector: TypeAlias = Callable[[ObservedTest, Any], Iterator[Finding]]


class Database:
    """A numbered database of a key-value server, which a detector examines instead of the server."""

    def __init__(self, handle: Any, number: int) -> None:
        self.name = handle.name
        self.number = number
        self._handle = handle
        self._rewound = getattr(handle, "_rewound", 0)

    def _ttl_ms(self, key: str) -> int:
        found: int = self._execute("PTTL", key)
        return found

    def keys(self) -> list[str]:
        return [_word(key) for key in self._execute("KEYS", "*")]

    def _execute(self, *words: str) -> Any:
        engine, session = self._handle._engine, self._handle._new_session()
        try:
            if self.number:
                engine.execute(session, [b"SELECT", b"%d" % self.number])
            return engine.execute(session, [encode(word) for word in words])
        finally:
            engine.abandon(session)


def of_each_database(detector: Detector) -> Detector:
    """Return a detector that examines each database that a server's clients have used."""

    @wraps(detector)
    def detect(test: ObservedTest, handle: Any) -> Iterator[Finding]:
        used = {one.database for one in history(test, handle) if one.database is not None}
        if used <= {0}:
            yield from detector(test, handle)
        else:
            # The test itself may have tried to select a database that does not exist. With a real
            # server, a fake has a single database.
            databases = getattr(handle._engine, "databases", [0])
            for number in sorted(used & set(range(len(databases)))):
                yield from detector(test, Database(handle, number))

    return detect
