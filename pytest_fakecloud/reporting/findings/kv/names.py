"""Findings about the names of keys and channels: mismatches and Python values in a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ....core.calls import Call, Entry
from ...calls import lines_of
from ...model import Finding
from ..detectors import NONE, ObservedTest, about
from .commands import READS, UNKNOWN, WRITES, Command
from .history import commands, history

_READS = {*READS, "ZRANGE", "TTL"}
_BYTES = re.compile(r"""(?<![A-Za-z0-9])b(?:'[^']*'|"[^"]*")""")
_MIN_SIMILARITY = 0.8
"""Minimum similarity, from 0 to 1, at which two keys are reported as a mismatch."""


def key_mismatch(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find pairs of similar keys where one was only read and the other only written."""
    every = history(test, handle)
    if any(one.name == "" for one in every):
        return
    present = {str(key) for key in handle.keys()}  # noqa: SIM118 (a handle is no dict)
    read_keys = {one.key for one in every if _reads(one)}
    read = _used_only_by(every, _reads)
    written = _used_only_by(every, _writes)
    for key, command in read.items():
        if key in present:
            continue
        similar = difflib.get_close_matches(key, written, 1, _MIN_SIMILARITY)
        similar = similar or _of_one_kind(key, read_keys, written)
        # Names that differ only in a number refer to different things.
        if similar and re.sub(r"\d", "", key) != re.sub(r"\d", "", similar[0]):
            write = written[similar[0]].entry
            run = _same_run(test, command.entry, write)
            yield command.finding("key_mismatch", [write.number], other=similar[0], run=run)


def _reads(command: Command) -> bool:
    return command.name in _READS


def _writes(command: Command) -> bool:
    """Return whether a command certainly wrote its key, and did not read it."""
    reads_too = command.name == "GETSET" or "GET" in command.options
    return command.name in WRITES and not reads_too and command.result is not UNKNOWN


def _used_only_by(every: Iterable[Command], uses: Callable[[Command], bool]) -> dict[str, Command]:
    """Return the keys that no other commands mention, each with the first command that uses it."""
    found: dict[str, Command] = {}
    others: set[str] = set()
    for command in every:
        if uses(command):
            found.setdefault(command.key, command)
        else:
            others.update(command.arguments)
    return {key: command for key, command in found.items() if key not in others}


def _same_run(test: ObservedTest, *entries: Entry) -> str:
    """Return the ID of the workflow run that contains all entries; empty if there is none."""
    attempts = map(test.attempt_around, entries)
    numbers = {one.data["began"] if one is not None else None for one in attempts}
    runs = {test.lookups.header(number, "upstash-workflow-runid") for number in numbers}
    return runs.pop() if len(runs) == 1 else ""


def _of_one_kind(key: str, read: Iterable[str], written: Iterable[str]) -> list[str]:
    """Return the only written key with the same prefix, if only one key with the prefix was read."""
    prefix, colon, _ = key.rpartition(":")
    alike = [one for one in written if one.rpartition(":")[:2] == (prefix, colon)]
    others = [one for one in read if one.rpartition(":")[:2] == (prefix, colon)]
    return alike if colon and len(alike) == len(others) == 1 else []


def python_value_in_key(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find keys that contain ``None`` or ``b'...'``, as Python formats missing values and bytes."""
    known = (one for one in commands(test, handle) if one.name in _READS | WRITES)
    for key, command in {one.key: one for one in known}.items():
        if NONE.search(key):
            yield command.finding("none_in_key")
        elif found := _BYTES.search(key):
            yield command.finding("bytes_in_key", text=found[0])


def counter_mismatch(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find counters decremented without an initial value, if one number was set but never used."""
    every = history(test, handle)
    if any(one.name == "" for one in every):
        return
    mentioned: set[str] = set()
    used: set[str] = set()
    numbers: dict[str, str] = {}
    decremented: dict[str, Command] = {}
    for command in every:
        is_first = command.key not in mentioned
        sets = command.name == "SET" and command.succeeded and command.words[2].isdigit()
        if sets and is_first:
            numbers[command.key] = command.words[2]
        else:
            used.update(command.arguments)
        if command.name == "DECR" and is_first and command.result == -1:
            decremented[command.key] = command
        mentioned.update(command.arguments)
    unused = [key for key in numbers if key not in used]
    for command in decremented.values() if len(unused) == 1 else ():
        yield command.finding("counter_mismatch", other=unused[0], value=numbers[unused[0]])


def no_subscriber(test: ObservedTest, handle: Any) -> Iterator[Finding]:
    """Find messages to a channel without subscribers, while a channel with subscribers had none."""
    subscribed: dict[str, int] = {}
    heard: set[str] = set()
    unheard: dict[str, tuple[Command, int]] = {}
    for call in test.calls_of(handle):
        for line in lines_of(call) if call.reached else ():
            if line[0].upper() == "SUBSCRIBE":
                subscribed.update(dict.fromkeys(line[1:], call.number))
    for command in history(test, handle):
        if command.name == "PUBLISH" and command.result == 0 and isinstance(command.entry, Call):
            steps = test.lookups.grouped_calls.get(command.entry.number) or [command.entry]
            lines = [[line[0].upper(), *line[1:]] for one in steps for line in lines_of(one)]
            unheard[command.key] = command, lines.index(command.words)
        elif command.name == "PUBLISH":
            heard.add(command.key)
    others = [one for one in subscribed if one not in heard and one not in unheard]
    for channel, (command, index) in unheard.items():
        if others and channel not in heard and channel not in subscribed:
            values = {"others": others, "line": index}
            evidence = [subscribed[one] for one in others]
            yield about("channel", "no_subscriber", command.entry, channel, evidence, **values)
