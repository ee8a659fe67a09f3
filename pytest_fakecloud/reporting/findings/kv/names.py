"""Findings about the names of keys and channels: mismatches and Python values in a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...model import Finding
from ..look import NONE, Look, about, about_key
from .commands import WRITES, commands

if TYPE_CHECKING:
    from ....core.calls import Call

_READS = {"GET", "HGET", "HGETALL", "LRANGE", "SMEMBERS", "ZRANGE", "EXISTS", "TTL", "JSON.GET"}
_BYTES = re.compile(r"""(?<![A-Za-z0-9])b(?:'[^']*'|"[^"]*")""")
NEAR = 0.8
"""Minimum similarity, from 0 to 1, at which two keys are reported as a mismatch."""


def other_name(look: Look, handle: Any) -> Iterator[Finding]:
    """Find pairs of similar keys where one was only read and the other only written."""
    read: dict[str, Call] = {}
    written: dict[str, Call] = {}
    touched: set[str] = set()
    for call, line, _ in commands(look, handle):
        if line[0] not in _READS:
            touched.update(line[1:])
        names = read if line[0] in _READS else written if line[0] in WRITES else None
        if names is not None and len(line) > 1:
            names.setdefault(line[1], call)
    present = {str(key) for key in handle.keys()}  # noqa: SIM118 (a handle is no dict)
    unread = [key for key in written if key not in read]
    for key, call in read.items():
        if key in touched or key in present:
            continue
        near = difflib.get_close_matches(key, unread, 1, NEAR) or _of_one_kind(key, read, unread)
        # Names that differ only in a number refer to different things.
        if near and re.sub(r"\d", "", key) != re.sub(r"\d", "", near[0]):
            run = _same_run(look, call, written[near[0]])
            write = written[near[0]].number
            yield about_key("key_mismatch", call, key, [write], other=near[0], run=run)


def _same_run(look: Look, *calls: Call) -> str:
    """Return the ID of the workflow run during which all calls were made; an empty string if there
    is none.
    """
    runs = set()
    for call in calls:
        around = look.attempt_around(call)
        began = around.data["began"] if around is not None else None
        runs.add(look.scene.header(began, "upstash-workflow-runid"))
    return runs.pop() if len(runs) == 1 else ""


def _of_one_kind(key: str, read: Iterable[str], unread: Iterable[str]) -> list[str]:
    """Return the only unread key with the same prefix, if only one key with the prefix was read."""
    prefix, colon, _ = key.rpartition(":")
    alike = [one for one in unread if one.rpartition(":")[:2] == (prefix, colon)]
    others = [one for one in read if one.rpartition(":")[:2] == (prefix, colon)]
    return alike if colon and len(alike) == len(others) == 1 else []


def python_in_key(look: Look, handle: Any) -> Iterator[Finding]:
    """Find keys that contain ``None`` or ``b'...'``, as Python formats missing values and bytes."""
    last: dict[str, Call] = {}
    for call, line, _ in commands(look, handle):
        if line[0] in _READS | WRITES and len(line) > 1:
            last[line[1]] = call
    for key, call in last.items():
        if NONE.search(key):
            yield about_key("none_in_key", call, key)
        elif found := _BYTES.search(key):
            yield about_key("bytes_in_key", call, key, text=found[0])


def other_counter(look: Look, handle: Any) -> Iterator[Finding]:
    """Find pairs of a counter that was decremented without an initial value and a number that was
    set but never used.
    """
    known: set[str] = set()
    used: set[str] = set()
    numbers: dict[str, str] = {}
    down: dict[str, Call] = {}
    for call, line, result in commands(look, handle):
        if line[0] == "SET" and len(line) > 2 and line[2].isdigit() and line[1] not in known:
            numbers[line[1]] = line[2]
        else:
            used.update(line[1:])
        first = len(line) > 1 and line[1] not in known
        if line[0] == "DECR" and first and result == -1:
            down[line[1]] = call
        known.update(line[1:])
    unused = [key for key in numbers if key not in used]
    for key, call in down.items():
        if len(unused) == 1:
            near = {"other": unused[0], "value": numbers[unused[0]]}
            yield about_key("counter_mismatch", call, key, **near)


def without_subscriber(look: Look, handle: Any) -> Iterator[Finding]:
    """Find messages published to a channel without subscribers, while a channel with subscribers
    received none.
    """
    subscribed: dict[str, int] = {}
    heard: set[str] = set()
    unheard: dict[str, tuple[Call, int]] = {}
    for call in look.calls_of(handle):
        for line in call.facts.get("words") or ():
            if line and line[0].upper() == "SUBSCRIBE":
                subscribed.update(dict.fromkeys(line[1:], call.number))
    for call, line, result in commands(look, handle):
        if line[0] == "PUBLISH" and result == 0:
            steps = look.scene.gathered.get(call.number) or [call]
            lines = [
                [words[0].upper(), *words[1:]] for one in steps for words in one.facts["words"]
            ]
            unheard[line[1]] = call, lines.index(line)
        elif line[0] == "PUBLISH":
            heard.add(line[1])
    others = [one for one in subscribed if one not in heard and one not in unheard]
    for channel, (call, at) in unheard.items():
        if others and channel not in heard and channel not in subscribed:
            values = {"others": others, "line": at}
            evidence = [subscribed[one] for one in others]
            yield about("channel", "no_subscriber", call, channel, evidence, **values)
