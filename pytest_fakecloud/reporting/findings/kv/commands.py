"""The commands that key-value servers executed, as the detectors read them from the journal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....core.calls import faults_ended
from ...bodies import as_plain, parsed
from ...connections import is_error, on_connection, reply
from ..look import Look, executed

if TYPE_CHECKING:
    from ....core.calls import Call

EXPIRING = {"EX", "PX", "EXAT", "PXAT"}
SPANS = {"EXPIRE": 1_000_000, "SETEX": 1_000_000, "PEXPIRE": 1_000, "PSETEX": 1_000}
"""Commands that set a relative expiry, with the length of its unit in microseconds."""
INSTANTS = {"EXPIREAT": 1_000_000, "PEXPIREAT": 1_000}
"""Commands that set an absolute expiry, with the length of its unit in microseconds."""
WRITES = {
    "SET", "SETEX", "PSETEX", "SETNX", "MSET", "HSET", "HMSET", "LPUSH", "RPUSH", "SADD", "ZADD",
    "INCR", "INCRBY", "JSON.SET", "APPEND", "GETSET",
}  # fmt: skip
MAKING = {"INCR", "INCRBY", "INCRBYFLOAT", "DECR", "DECRBY"}
ADDING = {"RPUSH", "LPUSH", "XADD", "HINCRBY", "ZINCRBY", "APPEND", *MAKING}
"""Commands that change the data again each time they are repeated."""


READS = {"GET", "HGET", "HGETALL", "EXISTS", "LRANGE", "SMEMBERS", "JSON.GET"}
ZADD_OPTIONS = {"NX", "XX", "GT", "LT", "CH", "INCR"}


def commands(look: Look, handle: Any) -> list[tuple[Call, list[str], Any]]:
    """Return each executed command with its call and its result."""
    if handle.name not in look.commands:
        look.commands[handle.name] = list(_commands(look, handle))
    return look.commands[handle.name]


def _commands(look: Look, handle: Any) -> Iterator[tuple[Call, list[str], Any]]:
    for call in look.calls_of(handle):
        lines = call.facts.get("words")
        if not isinstance(lines, list) or not executed(call):
            continue
        if on_connection(call):
            lines, answers = _replied(look, call)
        else:
            body = parsed(call.answer)
            answers = body if call.route in ("pipeline", "multi-exec") else [body]
        if not isinstance(answers, list) or len(answers) != len(lines):
            continue
        for line, came in zip(lines, answers, strict=True):
            if isinstance(came, dict) and "result" in came and "error" not in came:
                decodes = call.facts.get("encoding") == "base64"
                result = as_plain(came["result"]) if decodes else came["result"]
                yield call, [line[0].upper(), *line[1:]], result


def _replied(look: Look, call: Call) -> tuple[list[list[str]], list[Any]]:
    """Return the commands that a call on a database connection executed, and their results."""
    if call.number in look.scene.told or "answer" in call.cut or not call.answer:
        return [], []
    steps, envelope = look.scene.gathered.get(call.number), reply(call)
    if not steps:
        return call.facts["words"], [envelope]
    results = envelope.get("result") if call.facts["command"] == ["EXEC"] else None
    if not isinstance(results, list):
        return [], []
    lines = [step.facts["words"][0] for step in steps]
    return lines, [one if is_error(one) else {"result": one} for one in results]


def sets_nx(line: list[str]) -> bool:
    """Return whether a command sets a key only if the key does not exist."""
    return line[0] == "SETNX" or (line[0] == "SET" and "NX" in map(str.upper, line[3:]))


def deadline_of(call: Call, line: list[str]) -> int | None:
    """Return the time in microseconds at which a command lets its key expire; None if it sets no
    TTL.
    """
    words = [word.upper() for word in line]
    try:
        if words[0] in SPANS and len(words) > 2:
            return call.at_us + int(words[2]) * SPANS[words[0]]
        if words[0] in INSTANTS and len(words) > 2:
            return int(words[2]) * INSTANTS[words[0]]
        options = {"SET": words[3:], "GETEX": words[2:]}.get(words[0], [])
        for option, number in itertools.pairwise(options):
            if option in EXPIRING:
                since = 0 if option.endswith("AT") else call.at_us
                return since + int(number) * (1_000 if option.startswith("P") else 1_000_000)
    except ValueError:
        pass
    return None


def by_execution(look: Look, handle: Any) -> list[tuple[Call, list[str], Any]]:
    """Return the commands in order of execution: a fault's function may run before its call."""
    return sorted(
        commands(look, handle),
        key=lambda one: faults_ended(one[0]) if held_up(one[0]) else one[0].number,
    )


def held_up(call: Call) -> bool:
    return any(one.get("moment") == "before" for one in call.faults)
