r"""Command lines with their replies, as text: `<line> => <reply>`.

A reply is JSON, or one of RESP: `+OK` (also inside JSON), `-ERR …`, `*-1` for the nil of arrays.
JSON strings hold bytes as Latin-1, JSON floats are doubles. `-WRONGTYPE` and `-ARITY` abbreviate the
errors of a wrong type and of a wrong number of arguments. An error may end with ` ...`; `has <JSON>`
and `lacks <JSON>` are about a part of a reply. The first `=> $name` keeps a reply, which `$name` is
from then on, in lines and as a reply. A line without a reply has to succeed.

`{a|b}` in a line makes one line of each alternative, all with the same reply, or each with its own
(`<reply> | <reply>`). `<line> ; <line>` sends both for each alternative, and compares the last reply.
`{x*40}` repeats a string, `m{0..9}` is ten words, `%0A` a byte. `@ 5s` advances the clock. `port>
<line>` is sent by another client, whose name is one of `CLIENTS`, with or without a number; `port
ends` closes its connection. A command that has to wait replies `waits`, and `port< <reply>` is what
it finally returned; for a client that is not waiting, `port< <list>` are the messages it received
since the last such line. If the server has several nodes, the number is that of the client's node.

Each scenario (`== <name>`) starts with an empty database, and with the lines before the first one.
`test_scenarios.py` plays them on the engine. The replies in this folder are those of real servers,
and the comparison sends the same lines to these. The scenarios in `vendor/` apply to the vendor's
dialect, or to the one in their settings: `{"dialect": "redis", "version": "7.4.0"}`.

They have a player of their own, and not a `RequestPlayer` of `tests/notations.py`: replies are values of
RESP and no JSON, and a client can wait for its reply while others continue.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from pytest_fakecloud.kv.engine.replication import NodeClient
from pytest_fakecloud.kv.engine.sessions import Waiter
from pytest_fakecloud.kv.errors import WRONGTYPE, CommandError, wrong_arity
from pytest_fakecloud.kv.reply import (
    NIL_ARRAY,
    BigNumber,
    Blocked,
    Bool,
    Status,
    Verbatim,
    double_text,
)
from pytest_fakecloud.kv.table.registry import spec_of
from tests import notations
from tests.kv.conftest import Run, argv, pushing_to
from tests.notations import alternatives, repeated

FOLDER = Path(__file__).parent
Scenario = list[tuple[str, Any]]
"""Command lines, split like a shell splits them, each with its reply."""
CLIENTS: dict[str, dict[str, Any]] = {
    "other": {},
    "port": {"interface": "port"},
    "rest": {"interface": "rest"},
    "resp3": {"resp": 3},
}
"""Names of clients, with the settings of their sessions."""

FAILURES = (AssertionError, CommandError, pytest.fail.Exception)
"""The exceptions of a scenario that fails."""

_SUCCESS = object()
"""The reply of a line without one."""
_ANY = object()
"""The reply of a line before the last one of a block."""
_COUNTED = re.compile(r"([^\s{}]*)\{(\d+)\.\.(\d+)\}([^\s{}]*)")
_CLIENT = re.compile(rf"(({'|'.join(CLIENTS)})(\d*))( ends|[<>]) ?(.*)")


class _Kept(str):
    """The name of a kept reply."""


@dataclass(eq=False)
class _Part:
    """A reply that has, or lacks, an item of a list or a piece of a string."""

    part: Any
    has: bool

    def __eq__(self, reply: object) -> bool:
        return (self.part in (reply if isinstance(reply, list) else shown(reply))) is self.has


def scenarios(file: str) -> dict[str, tuple[dict[str, Any], Scenario]]:
    """Return the settings and the steps of each scenario of a file, by its name."""
    return {
        name: (settings, [step for line in lines for step in _lines(line)])
        for name, (settings, lines) in notations.scenarios(FOLDER / f"{file}.txt").items()
    }


def every_scenario() -> dict[str, tuple[str, dict[str, Any], Scenario]]:
    """Return the dialect, the settings and the steps of each scenario, by its file and name."""
    by_name = {}
    for file in sorted(FOLDER.rglob("*.txt")):
        stem = file.relative_to(FOLDER).with_suffix("").as_posix()
        dialect = "vendor" if stem.startswith("vendor/") else "redis"
        for title, (settings, scenario) in scenarios(stem).items():
            own = {"dialect": dialect, "version": None, "modules": [], **settings}
            by_name[f"{stem}: {title}"] = (own.pop("dialect"), own, scenario)
    return by_name


def _lines(text: str) -> Scenario:
    command, has_reply, reply = text.partition(" => ")
    if match := re.fullmatch(r"(\w+<) (.*)", text):
        return [(match[1] + " ", _reply(match[2], ""))]
    commands = [_expanded(line) for line in alternatives(command)]
    replies = reply.split(" | ") if len(commands) > 1 else [reply]
    if len(replies) == 1:
        replies *= len(commands)
    lines: Scenario = []
    for block, expected in zip(commands, replies, strict=True):
        *before, line = block.split(" ; ")
        lines += [(line_before, _ANY) for line_before in before]
        lines.append((line, _reply(expected, line) if has_reply else _SUCCESS))
    return lines


def _expanded(line: str) -> str:
    def counted(match: re.Match[str]) -> str:
        numbers = range(int(match[2]), int(match[3]) + 1)
        return " ".join(f"{match[1]}{number}{match[4]}" for number in numbers)

    whole = repeated(line)
    # Most lines count nothing, and the search takes long in a word of thousands of characters.
    return _COUNTED.sub(counted, whole) if ".." in line else whole


def _reply(text: str, line: str) -> Any:
    if text == "-WRONGTYPE":
        return CommandError(WRONGTYPE)
    if text == "-ARITY":
        words = line.rpartition("> ")[2].split()
        spec = spec_of([word.upper() for word in words])
        return CommandError(wrong_arity(words[0].lower() if spec is None else spec.full_name))
    if text[0] == "-" and text[1].isalpha():
        return CommandError(text[1:].encode())
    if text == "waits":
        return Blocked
    if text.startswith(("has ", "lacks ")):
        word, _, part = text.partition(" ")
        return _Part(_value(json.loads(part)), word == "has")
    if text[0] == "$":
        return _Kept(text)
    return _value(text if text.startswith(("+", "*")) else json.loads(text))


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if not isinstance(value, str):
        return value
    if value == "*-1":
        return NIL_ARRAY
    if re.match("-[A-Z]+ ", value):
        return CommandError(value[1:].encode())
    return Status(value[1:].encode()) if value.startswith("+") else value.encode("latin-1")


def shown(reply: Any) -> Any:
    """Return a reply in the shapes of RESP2: doubles and big numbers as strings, booleans as 1 and 0."""
    if isinstance(reply, Bool):
        return int(reply.value)
    if isinstance(reply, float):
        return double_text(reply)
    if isinstance(reply, list):
        return [shown(item) for item in reply]
    return reply.text if isinstance(reply, BigNumber | Verbatim) else reply


class _Play:
    """A scenario on its way: its clients, the messages they received, and the kept replies."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._clients: dict[str, Run] = {}
        self._received: dict[str, list[Any]] = {}
        self._waiting: dict[str, Waiter] = {}
        self._kept: dict[bytes, Any] = {}

    def step(self, line: str, expected: Any) -> None:
        if line.startswith("@ "):
            self._run.engine.clock.advance(line[2:])
            return
        run, name, match = self._run, "", _CLIENT.fullmatch(line)
        if match:
            name, kind, number, action, line = match.groups()
            run = self._client(name, kind, number)
            if action == " ends":
                run.engine.abandon(run.session)
                return
            if action == "<":
                self._compare(self._arrived(name), expected)
                return
        words = [self._kept.get(word, unquote_to_bytes(word)) for word in argv((line,))]
        if expected is _ANY:
            with suppress(CommandError):
                run(*words)
            return
        reply = run.error(*words) if isinstance(expected, CommandError) else run(*words)
        if isinstance(reply, Blocked):
            assert expected is Blocked
            self._waiting[name] = run.engine.block(run.session, reply, run.engine.clock.signal())
        else:
            self._compare(reply, expected)

    def _client(self, name: str, kind: str, number: str) -> Run:
        if name not in self._clients:
            address = f"127.0.0.1:500{number or 1}"
            client = self._clients[name] = self._run.other(**CLIENTS[kind], address=address)
            topology = self._run.engine.topology
            if topology is not None:
                place = (int(number or 1) - 1) % len(topology.nodes)
                client.session.node = NodeClient(topology, topology.nodes[place])
            received = self._received.setdefault(name, [])
            client.session.connection = pushing_to(received.append)
        return self._clients[name]

    def _arrived(self, name: str) -> Any:
        if name in self._waiting:
            return self._run.engine.unblock(self._waiting.pop(name))
        messages = self._received[name][:]
        self._received[name].clear()
        return messages

    def _compare(self, reply: Any, expected: Any) -> None:
        if isinstance(expected, _Kept):
            expected = self._kept.setdefault(expected.encode(), reply)
        if isinstance(expected, CommandError):
            reply, expected = str(reply), str(expected)
        if isinstance(expected, str) and expected.endswith(" ..."):
            is_expected = reply.startswith(expected[:-4])
        else:
            is_expected = expected is _SUCCESS or expected in (reply, shown(reply))
        assert is_expected, f"the reply is {shown(reply)!r}, not {expected!r}"


def play(run: Run, scenario: Scenario) -> None:
    """Run the lines in order; fail at the first unexpected reply."""
    played = _Play(run)
    for line, expected in scenario:
        try:
            played.step(line, expected)
        except FAILURES as error:
            error.add_note(f"in the line {line}")
            raise
