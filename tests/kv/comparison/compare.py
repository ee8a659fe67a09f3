"""Runs command lines on an interface of the engine and on real servers, and counts differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.table.over_rest import check_over_rest
from pytest_fakecloud.kv.table.registry import EVERYTHING

from .faces import Face, as_json
from .known import reason_for
from .normalise import normalise
from .servers import RealServer
from .templates import RANDOM
from .values import KINDS
from .wire import Error, Typed

RUN = 60
"""Command lines between two flushes."""

_POPULATION = {
    b"SPOP": b"SMEMBERS",
    b"SRANDMEMBER": b"SMEMBERS",
    b"HRANDFIELD": b"HGETALL",
    b"ZRANDMEMBER": b"ZRANGE",
}
_CONTENT: dict[bytes, list[bytes]] = {
    b"string": [b"GET"],
    b"list": [b"LRANGE", b"0", b"-1"],
    b"set": [b"SMEMBERS"],
    b"zset": [b"ZRANGE", b"0", b"-1", b"WITHSCORES"],
    b"hash": [b"HGETALL"],
    b"stream": [b"XINFO", b"STREAM", b"FULL", b"COUNT", b"0"],
}


@dataclass(frozen=True)
class Difference:
    """A reply that no server gave."""

    group: str
    line: list[bytes]
    ours: Any
    theirs: dict[str, Any]
    reason: str | None

    def __str__(self) -> str:
        def short(value: Any) -> str:
            text = repr(value)
            return text if len(text) <= 1000 else text[:997] + "..."

        words = b" ".join(word or b'""' for word in self.line)
        lines = [f"[{self.group}] {short(words)}", f"    ours    {short(self.ours)}"]
        lines += [f"    {name:8}{short(reply)}" for name, reply in self.theirs.items()]
        lines.append(f"    {self.reason or 'unexplained'}")
        return "\n".join(lines)


@dataclass
class Tally:
    """The numbers of compared and of different replies, by group."""

    compared: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def rate(self, group: str | None = None) -> float:
        """The share of different replies, of one group or of all."""
        if group is None:
            return len(self.differences) / max(sum(self.compared.values()), 1)
        count = sum(difference.group == group for difference in self.differences)
        return count / max(self.compared[group], 1)


class Comparison:
    """The comparison of one interface with some servers."""

    def __init__(self, face: Face, servers: list[RealServer]) -> None:
        self.face = face
        self.servers = servers
        self.tally = Tally()
        for server in servers:
            server.speak(face.resp)

    def run(self, group: str, lines: Iterable[list[bytes]], *, state: bool = True) -> None:
        """Run the lines on empty databases, then compare the data (with `state`).

        With `state`, a difference ends the run, because the data differ from then on.
        """
        self._everywhere([b"FLUSHALL"])
        for line in lines:
            if self.face.as_json and not (_is_text(line) and _is_offered(line)):
                continue
            if not self._one(group, line) and state:
                return
        if state:
            self._state(group)

    def _everywhere(self, line: list[bytes]) -> None:
        self.face.call(line)
        for server in self.servers:
            server.call(line)

    def _one(self, group: str, line: list[bytes]) -> bool:
        name = line[0].upper()
        population = self._population(line) if name.decode("latin-1") in RANDOM else None
        ours = self.face.call(line)
        able = [server for server in self.servers if name in server.commands]
        theirs = {server.name: server.call(line) for server in able}
        if not able:
            return True
        self.tally.compared[group] += 1
        if population is not None:
            same = any(self._same_shape(line, ours, reply, population) for reply in theirs.values())
        else:
            same = any(self._same(line, ours, reply) for reply in theirs.values())
        if not same:
            reason = reason_for(line, ours, theirs)
            self.tally.differences.append(Difference(group, line, ours, theirs, reason))
            return False
        if name == b"SPOP" and len(line) > 1:
            # A random command left different data, so continue without its key.
            self._everywhere([b"DEL", line[1]])
        return True

    def _same(self, line: list[bytes], ours: Any, reply: Any) -> bool:
        if self.face.as_json:
            reply = _error_as_json(reply) if isinstance(reply, Error) else as_json(reply)
        return bool(normalise(line, reply) == normalise(line, ours))

    def _population(self, line: list[bytes]) -> list[Any]:
        name = line[0].upper()
        if name == b"RANDOMKEY":
            reply = self.face.call([b"KEYS", b"*"])
        elif len(line) > 1:
            tail = [b"0", b"-1", b"WITHSCORES"] if name == b"ZRANDMEMBER" else []
            reply = self.face.call([_POPULATION[name], line[1], *tail])
        else:
            reply = []
        return _flat(reply) if isinstance(reply, list | Typed) else []

    def _same_shape(self, line: list[bytes], ours: Any, reply: Any, population: list[Any]) -> bool:
        """Return whether random replies have the same size, and their items are in the collection."""
        many = isinstance(reply, list | Typed)
        if many and isinstance(ours, list | Typed) and _kind(reply) == _kind(ours):
            distinct = len(line) < 3 or not line[2].startswith(b"-")
            width = 2 if line[-1].upper() in (b"WITHSCORES", b"WITHVALUES") else 1
            items = _flat(ours)
            chosen = [repr(item) for item in items[::width]]
            return (
                len(_flat(reply)) == len(items)
                and all(item in population for item in items)
                and (not distinct or len(set(chosen)) == len(chosen))
            )
        if isinstance(reply, bytes) and ours is not None and not isinstance(ours, Error):
            return ours in population
        return self._same(line, ours, reply)

    def _state(self, group: str) -> None:
        for kind in KINDS:
            for number in range(3):
                key = f"{kind}{number}".encode()
                type_line = [b"TYPE", key]
                kind_of = self.servers[0].call(type_line)
                command = _CONTENT.get(kind_of.text)
                if command is None:
                    continue
                if not self._one(group, type_line):
                    return
                at = 2 if command[0] == b"XINFO" else 1
                line = [*command[:at], key, *command[at:]]
                for lookup in (line, [b"OBJECT", b"ENCODING", key], [b"TTL", key]):
                    if not self._one(group, lookup):
                        return


def _kind(reply: Any) -> bytes:
    return reply.kind if isinstance(reply, Typed) else b"*"


def _flat(reply: Any) -> list[Any]:
    """Return all scalars of a reply, whatever the nesting of RESP3."""
    if isinstance(reply, Typed):
        return _flat(reply.value)
    if isinstance(reply, list):
        return [part for item in reply for part in _flat(item)]
    return [reply]


def _error_as_json(error: Error) -> Error:
    return Error(error.text.decode("utf-8", "replace").encode())


def _is_offered(line: list[bytes]) -> bool:
    spec = EVERYTHING.find(line[:1])
    try:
        if spec is not None:
            check_over_rest(spec, line)
    except CommandError:
        return False
    return True


def _is_text(line: list[bytes]) -> bool:
    try:
        for word in line:
            word.decode()
    except UnicodeDecodeError:
        return False
    return True
