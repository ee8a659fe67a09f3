"""The commands that key-value servers executed, as the detectors read them from the journal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from ....core.calls import Action, Call, Entry
from ....kv.table.rows import ROWS
from ...bodies import each_from_base64, parsed
from ...connections import is_error, on_connection, reply
from ...lookups import executed_at
from ...model import Finding
from ..detectors import ObservedTest, about_key

UNKNOWN: Any = object()
"""The result of a command that may have been executed, but whose response is not known."""
EXPIRING = {"EX", "PX", "EXAT", "PXAT"}
"""Options of SET and GETEX that set a TTL."""
SPANS = {"EXPIRE", "SETEX", "PEXPIRE", "PSETEX"}
"""Commands that set a relative expiry."""
_INSTANTS = {"EXPIREAT", "PEXPIREAT"}
WRITES = {
    "SET", "SETEX", "PSETEX", "SETNX", "MSET", "HSET", "HMSET", "LPUSH", "RPUSH", "SADD", "ZADD",
    "INCR", "INCRBY", "JSON.SET", "APPEND", "GETSET",
}  # fmt: skip
COUNTING = {"INCR", "INCRBY", "INCRBYFLOAT", "DECR", "DECRBY"}
ADDING = {"RPUSH", "LPUSH", "XADD", "HINCRBY", "ZINCRBY", "APPEND", *COUNTING}
"""Commands that change the data again each time they are repeated."""
READS = {"GET", "HGET", "HGETALL", "EXISTS", "LRANGE", "SMEMBERS", "JSON.GET"}
_ZADD_OPTIONS = {"NX", "XX", "GT", "LT", "CH", "INCR"}
SCRIPTS = {"EVAL", "EVALSHA", "FCALL"}
_UNCHANGING = {
    name for name, _, group, _, flags, *_ in ROWS
    if "write" not in flags.split() and name not in (*SCRIPTS, "DEBUG")
}  # fmt: skip
"""Commands that change no data themselves."""
EXPIRY_ONLY = {"EXPIRE", "PEXPIRE", *_INSTANTS, "PERSIST", "GETEX"}
_KEEPING = {"HSET", "HMSET", "HSETNX", "SADD", "ZADD", "SETRANGE", *ADDING, *EXPIRY_ONLY}
"""Commands that change a key, but neither remove nor replace its whole value."""
_QUEUED = b"+QUEUED\r\n"
"""The reply to a command in a transaction; EXEC executes the command."""
_OF_ANY_KEY = {"", "FLUSHALL", "FLUSHDB", "SWAPDB", "DEBUG"}


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a server executed or, if the result is ``UNKNOWN``, may have executed.

    ``words`` are its name, in capitals, and its arguments. A command with an empty name may have
    been any command. ``entry`` is the call, or the action of the test that changed the data.
    """

    entry: Entry
    words: list[str]
    result: Any

    @property
    def name(self) -> str:
        return self.words[0]

    @property
    def arguments(self) -> list[str]:
        return self.words[1:]

    @property
    def key(self) -> str:
        """The first argument; empty if there is none."""
        return self.words[1] if len(self.words) > 1 else ""

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
        return self.name not in _UNCHANGING

    @property
    def changes_any(self) -> bool:
        """Whether the command may have changed keys that are not among its arguments."""
        return self.name in _OF_ANY_KEY or (self.name in SCRIPTS and self.words[2:3] == ["0"])

    @property
    def replaces(self) -> bool:
        """Whether the command may have removed or replaced keys among its arguments."""
        if self.sets_nx and self.result is not UNKNOWN and "GET" not in self.options:
            return self.succeeded
        return self.changes and self.name not in _KEEPING

    def drop_replaced(self, by_key: dict[str, Any]) -> None:
        """Remove the keys that the command may have removed or replaced from a mapping."""
        if self.changes_any:
            by_key.clear()
        elif self.replaces:
            for key in self.arguments:
                by_key.pop(key, None)

    @property
    def expiry(self) -> tuple[str, str] | None:
        """The option or command that sets a TTL, such as ``EX``, and its number; None without a TTL."""
        words = self.words
        if self.name in SPANS | _INSTANTS:
            return (self.name, words[2]) if len(words) > 2 else None
        options = {"SET": words[3:], "GETEX": words[2:]}.get(self.name, [])
        pairs = itertools.pairwise(options)
        return next(
            ((one.upper(), number) for one, number in pairs if one.upper() in EXPIRING), None
        )

    def deadline_us(self) -> int | None:
        """Return the time at which the command lets its key expire; None if it sets no TTL."""
        if self.expiry is not None:
            option, number = self.expiry
            unit = 1_000 if option.startswith("P") else 1_000_000
            with suppress(ValueError):
                return int(number) * unit + (0 if option.endswith("AT") else self.at_us)
        return None

    def finding(self, kind: str, evidence: Iterable[int] = (), /, **values: Any) -> Finding:
        """Return a finding about the command's key; ``evidence`` are the numbers of other entries."""
        return about_key(kind, self.entry, self.key, evidence, **values)


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
            self[command.key] = Expiry(deadline, command)
        elif command.name in EXPIRY_ONLY:
            keeps = command.name == "GETEX" and len(command.words) == 2
            if not keeps and (command.result is UNKNOWN or command.succeeded):
                self.pop(command.key, None)
        elif not (command.name == "SET" and command.succeeded and "KEEPTTL" in command.options):
            command.drop_replaced(self)


def with_expiries(test: ObservedTest, handle: Any) -> Iterator[tuple[Command, Expiries]]:
    """Yield each command of the history with the expiries of the keys before it."""
    expiries = Expiries()
    for command in history(test, handle):
        yield command, expiries
        expiries.follow(command)


def commands(test: ObservedTest, handle: Any) -> list[Command]:
    """Return each command that was executed, with its result."""
    return [one for one in history(test, handle) if one.result is not UNKNOWN]


def history(test: ObservedTest, handle: Any) -> list[Command]:
    """Return each command that changed the data or may have changed it, and each known read."""
    if handle.name not in test.commands:
        since = getattr(handle, "_rewound", 0)
        actions = [one for one in test.actions_on(handle) if one.number > since]
        entries: list[Call | Action] = [*test.calls_of(handle), *actions]
        entries.sort(key=lambda one: one.number)
        test.commands[handle.name] = [
            command
            for entry in entries
            for command in (_of_call(test, entry) if isinstance(entry, Call) else _of_action(entry))
        ]
    return test.commands[handle.name]


def _of_call(test: ObservedTest, call: Call) -> Iterator[Command]:
    lines = call.facts.get("words")
    if not call.reached or call.number in test.lookups.without_row or call.answer == _QUEUED:
        return
    if not isinstance(lines, list) or "words" in call.cut:
        if call.cut:
            yield Command(call, [""], UNKNOWN)
        return
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
        yield Command(call, words, result)


def _answers(call: Call) -> list[Any]:
    """Return the answer to each command of a REST request; an empty list if they are unknown."""
    body = parsed(call.answer)
    answers = body if call.route in ("pipeline", "multi-exec") else [body]
    return answers if isinstance(answers, list) else []


def _replied(test: ObservedTest, call: Call) -> tuple[list[list[str]], list[Any]]:
    """Return the commands that a call on a database connection executed, and their results.

    The results are an empty list if they are unknown.
    """
    steps = test.lookups.grouped_calls.get(call.number)
    known = bool(call.answer) and "answer" not in call.cut
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


def _of_action(action: Action) -> Iterator[Command]:
    given, named = action.call or ((), {})
    data = given[0] if given else named.get("data")
    if action.kind == "execute" and given:
        yield Command(action, [_word(given[0]).upper(), *map(_word, given[1:])], UNKNOWN)
    elif action.kind == "load" and isinstance(data, Mapping):
        yield Command(action, ["LOAD", *map(_word, data)], UNKNOWN)
    elif action.kind in ("load", "reset", "restore"):
        yield Command(action, [""], UNKNOWN)


def _word(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def by_execution(test: ObservedTest, handle: Any) -> list[Command]:
    """Return the history in order of execution: a fault's function may run before its call."""
    return sorted(history(test, handle), key=lambda command: executed_at(command.entry))
