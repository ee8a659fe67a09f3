"""Findings about keys: their TTL, clients that compete for them, and their names."""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote

from ...core.calls import Call, Event
from ...core.timers import process_seconds, to_datetime
from ...reporting.calls import QUEUED, executed_at, lines_of
from ...reporting.model import Finding
from ...reporting.report import NONE, ObservedTest, about, with_message
from ...reporting.values import parsed
from ..table import kinds
from .history import (
    COUNTING,
    UNKNOWN,
    WRITES,
    Command,
    Database,
    ServerOrDatabase,
    by_execution,
    clients_of,
    commands,
    has_no_ttl,
    history,
    source_of,
    with_expiries,
)

# -- TTL -------------------------------------------------------------------------------------------

_FAR_US = 24 * 3600 * 1_000_000
"""Difference in microseconds below which two times are taken to come from the same clock."""


def ttl_ended(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find SETs that removed a TTL, reads after its end, and keys that were recreated without it."""
    recreated: dict[str, tuple[Command, str]] = {}
    missing: dict[str, str] = {}
    late: dict[str, tuple[Command, Command]] = {}
    for command, expiries in with_expiries(test, fake):
        key, sets_ttl = command.key, command.deadline_us is not None
        ended = expiries.expired(key, command.at_us)
        # If a fault's function ran first, the time of the execution is unknown.
        was_held_up = executed_at(command.entry) > command.entry.number
        if sets_ttl and command.succeeded:
            for written_key in command.keys:
                recreated.pop(written_key, None)
        elif command.name in ("DEL", "UNLINK"):
            missing |= {
                removed_key: command.name
                for removed_key in command.keys
                if removed_key in expiries and not ended
            }
        elif sets_ttl and command.result == 0:
            missing[key] = command.name
        elif key in missing and command.changes and command.result is not UNKNOWN:
            recreated[key] = command, missing.pop(key)
        elif command.name in COUNTING and key in expiries and (ended or was_held_up):
            if _starts_at_zero(command):
                recreated[key] = command, ""
        elif command.name in kinds.READS and not command.result and ended:
            late[key] = command, expiries[key]
        elif command.name == "SET" and command.succeeded and "KEEPTTL" not in command.options:
            removed = key in expiries and not ended and has_no_ttl(fake, key)
            yield from [command.finding("ttl_removed")] if removed else ()
    for key, (command, by) in recreated.items():
        if has_no_ttl(fake, key):
            severity = "hint" if by else "cause"
            yield command.finding("recreated", command=command.name, after=by, severity=severity)
    for command, setter in late.values():
        deadline_us = setter.deadline_us or 0
        ttl = f"{setter.ttl} of {setter.key}" if setter.key != command.key else str(setter.ttl)
        kind, values = "read_after_expiry", {"seconds": (command.at_us - deadline_us) / 1e6}
        if deadline_us <= setter.at_us:
            kind, values = "read_after_past_expiry", {}
        yield command.finding(kind, [setter.entry.number], **values, ttl=ttl, severity="hint")


def ttl_renewed(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find counters whose TTL was renewed repeatedly before it expired."""
    counted: set[str] = set()
    # The first of a key's commands set its TTL, and the others renewed it.
    setters: dict[str, list[Command]] = {}
    for command, expiries in with_expiries(test, fake):
        key, chain = command.key, setters.get(command.key, [])
        if command.name in ("INCR", "INCRBY"):
            counted.add(key)
        renews = command.name in ("EXPIRE", "PEXPIRE") and len(command.words) == 3
        if not renews or not command.succeeded or key not in counted:
            continue
        if key not in expiries or expiries.expired(key, command.at_us):
            setters[key] = [command]
        else:  # Another command may have set the TTL since then.
            chain = chain if expiries[key] in chain[-1:] else [expiries[key]]
            setters[key] = [*chain, command]
    for first, *renewals in setters.values():
        end_us = first.deadline_us or 0
        if len(renewals) > 1 and renewals[-1].at_us >= end_us:
            span = f"{(end_us - first.at_us) / 1e6:g}"
            yield renewals[-1].finding("ttl_renewed", seconds=span, times=len(renewals))


_TIMES = {"seconds": range(10**8, 10**11), "milliseconds": range(10**11, 10**14)}
"""Numbers that are Unix time in each unit, from 1973 on."""
_UNITS_US = {"seconds": 1_000_000, "milliseconds": 1000}
_NEAR_US = 5 * 366 * _FAR_US
"""Difference in microseconds from the fake clock below which a number is taken for Unix time."""


def wrong_time(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find absolute expiries computed from the wall clock while the fake clock shows another time,
    and Unix time in another unit in expiries, TTLs and ranges of scores.
    """
    real_us = int(process_seconds() * 1e6)
    scores: dict[str, list[str]] = {}
    for command in commands(test, fake):
        ttl, deadline = command.ttl, command.deadline_us
        if command.name == "ZADD":
            scores_and_members = command.words[2 + len(command.zadd_options) :: 2]
            scores.setdefault(command.key, []).extend(scores_and_members)
        elif ttl is not None and deadline is not None:
            now_us = command.at_us
            is_real = abs(deadline - real_us) < _FAR_US <= abs(now_us - real_us)
            if ttl.unit.is_absolute and is_real and abs(deadline - now_us) > _FAR_US:
                at, now = (
                    f"{to_datetime(time_us):%Y-%m-%d %H:%M:%SZ}" for time_us in (deadline, now_us)
                )
                yield command.finding("expires_by_wall_clock", command=ttl.word, at=at, now=now)
            own = "milliseconds" if ttl.unit.milliseconds == 1 else "seconds"
            units = _UNITS_US.keys() - ({own} if ttl.unit.is_absolute else set())
            for unit in units:
                if abs(int(ttl.number) * _UNITS_US[unit] - now_us) < _NEAR_US:
                    values = {"given": str(ttl), "unit": own, "is_time": ttl.unit.is_absolute}
                    yield command.finding("ttl_in_other_unit", meant=unit, **values)
            if not ttl.unit.is_absolute and _is_unlikely(int(ttl.number), own):
                values = {"given": str(ttl), "seconds": (deadline - now_us) / 1e6}
                yield command.finding("unlikely_ttl", severity="hint", **values)
        elif earlier_scores := scores.get(command.key):
            by_score = command.name.endswith(("BYSCORE", "ZCOUNT")) or "BYSCORE" in command.options
            bounds = command.words[2:4] if by_score else []
            for unit, in_unit in _TIMES.items():
                bound = next((edge for edge in bounds if _whole(edge) in in_unit), "")
                (other,) = _TIMES.keys() - {unit}
                if bound and all(_whole(score) in _TIMES[other] for score in earlier_scores):
                    values = {"command": command.name, "bound": bound, "unit": unit, "other": other}
                    yield command.finding("score_in_other_unit", score=earlier_scores[-1], **values)


def _is_unlikely(number: int, unit: str) -> bool:
    """Return whether a duration is a usual one in the other unit: minutes, as a number of it."""
    if unit == "seconds":
        # Ten years, for example, are a multiple of a day.
        return number % 60_000 == 0 and (number % 86_400 > 0 or number in (86_400_000, 604_800_000))
    return number <= 3600 and number % 60 == 0


def _whole(text: str) -> int:
    digits = text.removeprefix("(").partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0


def _starts_at_zero(command: Command) -> bool:
    """Return whether a counter did not exist before a command, so that it is now one step."""
    step = command.words[2] if len(command.words) > 2 else "1"
    try:
        return abs(float(command.result)) == abs(float(step))
    except (TypeError, ValueError):
        return False


# -- clients that compete for a key ----------------------------------------------------------------

_RACE_US = 1_000_000
"""Maximum time in microseconds from the first check to the second write of a race."""
_CHECKS = {"GET": 2, "EXISTS": 2, "HGET": 3, "HEXISTS": 3}
"""Commands that check for a value, with the number of words up to the key or field."""
_UNCHECKED = {"SET", "HSET"}
"""Writes that are unconditional without options."""
_LOCK_NAME = re.compile(
    r"(?i)(^|[^a-z])(locks?|locked|mutex|lease|idempoten\w*|dedup\w*|once|processed|seen)([^a-z]|$)"
)


@dataclass(slots=True)
class _Updates:
    """The last write of a key or field, and the reads and WATCHes of clients around it."""

    last: tuple[object, Command, str] | None = None
    """With the client and the value; None if another command may have changed the value since."""
    current: dict[object, Command] = field(default_factory=dict)
    """The last read of each client, if after the last write."""
    outdated: dict[object, Command] = field(default_factory=dict)
    """The last read of each client, if before the last write."""
    late_watchers: set[object] = field(default_factory=set)
    """Clients that have sent WATCH since the last write."""
    race: list[tuple[Command, Command]] = field(default_factory=list)
    """The check and the write of each client that found no value, since the first such write."""

    def note_write(
        self, client: object, command: Command, item: Iterable[str], value: str
    ) -> Finding | None:
        """Note a write; return a finding if it loses a write by another client."""
        before, self.last = self.last, (client, command, value)
        first, read = self.current.pop(client, None), self.outdated.pop(client, None)
        late = client in self.late_watchers
        self.outdated |= self.current
        self.current.clear()
        self.late_watchers.clear()
        if read is None or before is None or before[0] == client:
            if first or before is None or before[0] != client:
                self.race = [(first, command)] if first and first.result in (None, 0) else []
            return None
        _, lost, overwritten = before
        if read.result in (None, 0):
            self.race += [(read, command)] if self.race else []
            is_over = all(write.result not in (None, 0) for write in self.outdated.values())
            return _check_then_set(self.race, item) if self.race and is_over else None
        if read.result == overwritten or (lost.deadline_us or math.inf) <= command.at_us:
            return None
        values = {"written": value, "overwritten": overwritten, "read": read.result}
        values |= {"write": command.name, "check": read.name, "item": " ".join(item)}
        values["own"] = "connection" if client == command.client else "task"
        values["other"] = "connection" if before[0] == lost.client else "task"
        return command.finding("lost_update", watch_late=late, **values)


def races(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find writes that replaced what another client wrote after this client's read, and clients that
    all found a value missing, within a second, and then all wrote it.

    Examples: client A sends ``GET k``, client B sends ``SET k 1``, A sends ``SET k 2``. Both send
    ``GET k``, which does not exist, and then ``SET k``.
    """
    client_of = clients_of(test, fake)
    updates = defaultdict[str, Any](lambda: defaultdict[tuple[str, ...], _Updates](_Updates))
    for command in by_execution(test, fake):
        client, of_key = client_of(command), updates[command.key]
        is_write = command.name in _UNCHECKED and not command.options & {"NX", "XX"}
        written = _written(command) if is_write and command.result is not UNKNOWN else {}
        if command.name == "WATCH":
            for key in updates.keys() & command.arguments:
                for update in updates[key].values():
                    update.late_watchers.add(client)
        elif len(command.words) == _CHECKS.get(command.name):
            if command.name.endswith("GET") or command.result == 0:
                update = of_key[tuple(command.arguments)]
                update.outdated.pop(client, None)
                update.current[client] = command
        elif client is not None and written:
            for item, value in written.items():
                if finding := of_key[item].note_write(client, command, item, value):
                    yield finding
        elif command.changes:
            for key in updates if command.changes_any else updates.keys() & command.arguments:
                for update in updates[key].values():
                    update.last = None


def _check_then_set(race: Sequence[tuple[Command, Command]], item: Iterable[str]) -> Finding | None:
    """Return a finding if all happened within a second, and each write replaced the one before it."""
    checks = sorted((check for check, _ in race), key=lambda check: check.entry.number)
    writes = [write for _, write in race]
    replaced = all(
        (deadline := earlier.deadline_us) is None or later.at_us < deadline
        for earlier, later in itertools.pairwise(writes)
    )
    if not replaced or writes[-1].at_us - checks[0].at_us > _RACE_US:
        return None
    evidence = [command.entry.number for command in (*checks, *writes)]
    reads = " or ".join(dict.fromkeys(check.name for check in checks))
    values: dict[str, Any] = {"read": reads, "write": writes[-1].name, "item": " ".join(item)}
    values |= {"many": len(race) if len(race) > 2 else 0, "of_field": writes[-1].name == "HSET"}
    return writes[-1].finding("check_then_set", evidence, **values)


def expire_not_executed(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find keys that have no TTL because the command that sets it failed: a fault prevented it, or it
    was rejected.
    """
    for command in _missed_expires(test, fake).values():
        yield command.finding("expire_not_executed", command=command.name)


def _missed_expires(test: ObservedTest, fake: ServerOrDatabase) -> dict[str, Command]:
    """Return the last command such as EXPIRE of each key that was not executed, if its key has no TTL
    and no later command replaced the key.
    """
    number = fake.number if isinstance(fake, Database) else None
    executed = {(command.entry.number, *command.words) for command in commands(test, fake)}
    later = {command.key: command for command in commands(test, fake) if command.replaces}
    missed: dict[str, Command] = {}
    for call in test.calls_of(fake):
        database = call.facts.get("database", 0)
        if number not in (None, database) or call.response_body == QUEUED:
            continue
        for name, *arguments in lines_of(call):
            command = Command(call, [name.upper(), *arguments], UNKNOWN, database)
            sets = len(arguments) > 1 and command.changes_only_ttl and command.ttl is not None
            if sets and (call.number, *command.words) not in executed:
                missed[command.key] = command
    return {
        key: command
        for key, command in missed.items()
        if has_no_ttl(fake, key)
        and (key not in later or later[key].entry.number <= command.entry.number)
    }


def lock_without_ttl(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find locks and idempotency keys that were set with NX and have no TTL."""
    missed = _missed_expires(test, fake)
    deleted = {
        key: command.entry.number
        for command in commands(test, fake)
        if command.name in ("DEL", "UNLINK")
        for key in command.arguments
    }
    for command in commands(test, fake):
        key = command.key
        sets = command.sets_nx and command.succeeded and command.ttl is None
        stays = deleted.get(key, 0) <= command.entry.number and key not in missed
        if sets and stays and _LOCK_NAME.search(key) and has_no_ttl(fake, key):
            yield command.finding("lock_without_ttl")


def lock_of_another(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find locks that were deleted while they held a value set after another one had expired."""
    holders: dict[str, list[str]] = {}
    for command, expiries in with_expiries(test, fake):
        key = command.key
        for removed in holders.keys() - expiries.keys():
            del holders[removed]
        if command.name == "SET" and command.sets_nx and command.succeeded:
            earlier = holders.get(key, []) if expiries.expired(key, command.at_us) else []
            holders[key] = [*earlier, command.words[2]]
            continue
        values = holders.get(key, [])
        deletes = command.name == "DEL" and command.result == 1 and len(command.words) == 2
        if deletes and len(set(values)) > 1 and not expiries.expired(key, command.at_us):
            yield command.finding("lock_of_another", holder=values[-1], earlier=values[0])
        command.drop_replaced(holders)


def held_by_failed_attempt(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find NX commands that had no effect because a failed attempt of the same message set the key."""
    setters: dict[str, Command] = {}
    """The command that set each key with NX; replaced keys are removed."""
    for command in history(test, fake):
        setter = setters.get(command.key)
        command.drop_replaced(setters)
        if command.sets_nx and command.succeeded:
            setters[command.key] = command
        is_known = command.sets_nx and command.result is not UNKNOWN
        earlier = _failed_before(test, setter, command) if setter and is_known else None
        if earlier is not None and not command.succeeded:
            message, number = (earlier.data.get(name) for name in ("message_id", "number"))
            values = {"command": command.name, "message": str(message), "attempt": number}
            yield with_message(command.finding("held_by_failed_attempt", **values), earlier)


def _failed_before(test: ObservedTest, earlier: Command, command: Command) -> Event | None:
    """Return the attempt that sent an earlier command and failed, before another of its message."""
    attempt = _attempt_before(test, earlier, command)
    if attempt is None or attempt.number > command.entry.number:
        return None
    status = attempt.data.get("status")
    return None if isinstance(status, int) and status < 300 else attempt


def _written(command: Command) -> dict[tuple[str, ...], str]:
    """Return the values that a command wrote to a key, to fields or to members with its scores."""
    key, words = command.key, command.words
    if command.name == "SET" and command.succeeded:
        return {(key,): words[2]}
    if command.name == "HSET":
        return {(key, name): value for name, value in zip(words[2::2], words[3::2], strict=False)}
    if command.name == "ZADD" and not command.zadd_options:
        return {(key, name): score for score, name in zip(words[2::2], words[3::2], strict=False)}
    return {}


def _attempt_before(test: ObservedTest, earlier: Command, command: Command) -> Event | None:
    """Return the attempt that sent an earlier command, if one of the same message sent the other."""
    attempts = [test.attempt_around(attempted.entry) for attempted in (earlier, command)]
    messages = {attempt.data.get("message_id") for attempt in attempts if attempt is not None}
    return attempts[0] if None not in attempts and len(messages) == 1 else None


def found_nothing(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find names that a command did not find and nothing ever wrote, while the same name in another
    spelling was written (in capitals, with other separators, as a plural), names like a pattern, or
    longer names than that to remove; of JSON, the same object with other numbers.
    """
    every = history(test, fake)
    written: dict[tuple[str, ...], Command] = {}
    for command in every:
        if command.name == "" or command.name in kinds.SCRIPTS:
            return
        places = dict.fromkeys((key,) for key in command.keys) if command.changes else {}
        if command.name not in _SEEKING:
            for item in (*places, *_written(command), *_members(command)):
                written.setdefault(item, command)
    loaded = {key for load in every if load.name == "LOAD" for key in load.arguments}
    read = {reading.key for reading in every if reading.name in kinds.READS}
    spelled = {tuple(map(_plain, item)): item for item in written}
    for command in commands(test, fake):
        is_missing = not command.result or command.result == -2
        for item in _sought(command) if is_missing else ():
            name, other = " ".join(item), spelled.get(tuple(map(_plain, item)), item)
            patterns = [name] if any(character in name for character in "*?[") else []
            if command.name in ("DEL", "UNLINK"):
                patterns.append(f"{name}[!0-9A-Za-z]*")
            for pattern in patterns:
                other = next((x for x in written if fnmatchcase(" ".join(x), pattern)), other)
            is_mismatch = command.name in _EXPECTING and other[0] not in read  # see `key_mismatch`
            write = None if item in written or item[0] in loaded else written.get(other)
            if write is None or is_mismatch or not _fits(command, write):
                continue
            if (number := write.entry.number) <= command.entry.number:
                values = {"item": name, "other": " ".join(other)}
                yield command.finding("found_nothing", [number], command=command.name, **values)


_OF_MEMBERS = {"HGET", "HDEL", "HEXISTS", "SREM", "SISMEMBER", "ZREM", "ZSCORE", "ZRANK"}
"""Those of the next commands that look for members; others return a list for several of them."""
_SEEKING = _OF_MEMBERS | {
    "GET", "EXISTS", "TTL", "PTTL", "DEL", "UNLINK", "GETDEL", "EXPIRE", "PEXPIRE", "EXPIREAT",
    "PEXPIREAT", "PERSIST", "HGETALL", "SMEMBERS", "LRANGE", "LPOP", "RPOP", "LREM",
}  # fmt: skip
"""Commands whose result shows that a key, or a field or member of it, does not exist."""


def _sought(command: Command) -> list[tuple[str, ...]]:
    """Return what a command looks for: keys, or members of a key."""
    if command.name in _OF_MEMBERS:
        return [(command.key, name) for name in command.words[2:]]
    if command.name == "LREM":
        return [(command.key, command.words[3])]
    return [(key,) for key in command.keys] if command.name in _SEEKING else []


_PLACES = {
    "SADD": slice(2, None), "RPUSH": slice(2, None), "LPUSH": slice(2, None),
    "HINCRBY": slice(2, 3), "HSETNX": slice(2, 3), "ZINCRBY": slice(3, 4),
}  # fmt: skip
"""The words of a command that are elements, members or fields of its key."""


def _members(command: Command) -> list[tuple[str, ...]]:
    """Return what a command adds to a set or a list, and the field or member that it increments."""
    if command.name in ("LMOVE", "BLMOVE", "RPOPLPUSH", "BRPOPLPUSH"):
        return [(command.words[2], str(command.result))]
    return [(command.key, name) for name in command.words[_PLACES.get(command.name, slice(0))]]


def _plain(name: str) -> str:
    """Return a name without differences in capitals, separators, spaces and plurals.

    Of a JSON object, return the strings and the values of fields such as ``id`` and ``userId``.
    """
    if isinstance(item := parsed(name), dict):
        identifying = {
            f: v for f, v in item.items() if isinstance(v, str) or f.lower().endswith("id")
        }
        return repr([sorted(item), sorted(identifying.items())]) if identifying else name
    parts = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", ":", unquote(name)))
    return ":".join(part.casefold().removesuffix("s") for part in parts)


def started_late(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find groups and reads of streams that start at the end, after entries had been added."""
    added: dict[str, list[int]] = {}
    for command in history(test, fake):
        words = command.words
        if command.name == "XADD":
            added.setdefault(command.key, []).append(command.entry.number)
        elif command.name == "XGROUP" and words[1:2] and words[1].upper() == "CREATE":
            if words[4:5] == ["$"] and (numbers := added.get(words[2])):
                values = {"group": words[3], "skipped": len(numbers)}
                yield about("key", "started_late", command.entry, words[2], numbers, **values)
        elif command.name == "XREAD" and not command.result:
            for key in (stream for stream in command.keys if "$" in words and stream in added):
                values = {"group": "", "skipped": len(added[key]), "severity": "hint"}
                yield about("key", "started_late", command.entry, key, added[key], **values)
        command.drop_replaced(added)


def newest_first(test: ObservedTest, fake: ServerOrDatabase) -> Iterator[Finding]:
    """Find pops from the end of a list at which elements are pushed, while it has several."""
    pushed: dict[str, tuple[Command, str]] = {}
    for command in history(test, fake):
        side = _SIDES.get(command.name.removeprefix("B"))
        if command.name in ("LPUSH", "RPUSH"):
            pushed[command.key] = command, command.name[0]
        elif side and command.result and command.key in pushed:
            push, end = pushed.pop(command.key)
            if side == end and isinstance(push.result, int) and push.result > 1:
                numbers, values = [push.entry.number], {"push": push.name, "pop": command.name}
                yield command.finding("newest_first", numbers, severity="hint", **values)


_SIDES = {"LPOP": "L", "RPOP": "R", "RPOPLPUSH": "R"}
"""Pops whose names say from which end of a list they take an element."""


# -- names of keys and channels --------------------------------------------------------------------

_EXPECTING = {
    "GET", "HGET", "HGETALL", "EXISTS", "LRANGE", "SMEMBERS", "ZRANGE", "ARGET", "ARSCAN", "JSON.GET",
    "TTL",
}  # fmt: skip
"""Reads of keys that should exist. Libraries also count, scan and block on keys that need not exist."""
_BYTES = re.compile(r"""(?<![A-Za-z0-9])b(?:'[^']*'|"[^"]*")""")
_MOST_KEYS = 20  # that are compared with others, which takes long
_MIN_SIMILARITY = 0.8
"""Similarity, from 0 to 1, from which two keys that do not meet are reported."""


def key_mismatch(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find keys that were read but never written, while others were written but never used.

    The written keys hold a value that the command can read; the most similar of them is named. Other
    keys than similar ones, or the only ones with their prefix, are left out: a program also reads keys
    that are optional, and writes keys that other programs read.
    """
    every = history(test, fake)
    if any(command.name == "" for command in every):
        return
    present = {str(key) for key in fake.keys()}  # noqa: SIM118 (a fake is no dict)
    read_keys = {command.key for command in every if command.name in _EXPECTING}
    read = _used_only_by(every, lambda command: command.name in _EXPECTING)
    written = _used_only_by(every, _writes)
    for key, command in [*read.items()][-_MOST_KEYS:]:
        # Names that differ only in a number refer to different things.
        name = re.sub(r"\d", "", key)
        others = [
            written_key for written_key, write in written.items()
            if key not in present and re.sub(r"\d", "", written_key) != name and _fits(command, write)
        ]  # fmt: skip
        prefix, last = _parted(key)
        of_same = [
            other
            for other in others
            if all(_parted(other)) and prefix and _parted(other)[1] == last
        ]
        others = [*of_same, *others][: 10 * _MOST_KEYS]
        of_kind = {other for other in others if _parted(other)[0] == prefix != ""}
        is_only = len(of_kind) == sum(_parted(read_key)[0] == prefix for read_key in read_keys) == 1
        alike = difflib.get_close_matches(key, others, 1, _MIN_SIMILARITY)
        alike = alike or (list(of_kind) if is_only else [])
        for other in alike:
            yield command.finding("key_mismatch", [written[other].entry.number], other=other)


def _fits(command: Command, write: Command) -> bool:
    groups = [used.spec.group if used.spec is not None else "" for used in (command, write)]
    return groups[0] in ("generic", groups[1])


def _parted(key: str) -> tuple[str, str]:
    """Return a key up to its last separator, and the part after it, which usually identifies a thing."""
    start = 1 + max(map(key.rfind, ":/.|"))
    return key[:start], key[start:]


def _writes(command: Command) -> bool:
    """Return whether a command certainly wrote its key, and did not read it."""
    reads_too = command.name == "GETSET" or "GET" in command.options
    return command.name in WRITES and not reads_too and command.result is not UNKNOWN


def _used_only_by(every: Iterable[Command], uses: Callable[[Command], bool]) -> dict[str, Command]:
    """Return the keys that no other commands mention, each with the first command that uses it."""
    first_uses: dict[str, Command] = {}
    others: set[str] = set()
    for command in every:
        if uses(command):
            first_uses.setdefault(command.key, command)
        else:
            others.update(command.arguments)
    return {key: command for key, command in first_uses.items() if key not in others}


_OF_PYTHON = re.compile(rf"None|True|False|{_BYTES.pattern}|[\[{{]'.*[\]}}]")
_OF_JAVASCRIPT = {"undefined", "[object Object]"}
"""How a language writes a value that is no string."""


def value_of_other_kind(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find keys and values that were formatted as another kind: ``None``, ``b'...'``, JSON in JSON."""
    formatting = [
        command
        for command in commands(test, fake)
        if command.name in kinds.READS | WRITES | kinds.ADDS_AGAIN
    ]
    for key, command in {command.key: command for command in formatting}.items():
        if NONE.search(key):
            yield command.finding("none_in_key")
        elif match := _BYTES.search(key):
            yield command.finding("bytes_in_key", text=match[0])
    for command in formatting:
        for value in command.words[2:] if command.name not in kinds.READS else ():
            by = "Python" if _OF_PYTHON.fullmatch(value) and parsed(value) is None else ""
            by = "JavaScript" if value in _OF_JAVASCRIPT else by
            by = "JSON" if value in ("true", "false") and _sent_booleans(command) else by
            inner = parsed(value) if value[:1] == '"' else None
            if by or (isinstance(inner, str) and isinstance(parsed(inner), dict | list)):
                values = {"command": command.name, "value": value, "by": by}
                yield command.finding("value_of_other_kind", severity="hint", **values)
                break


def _sent_booleans(command: Command) -> bool:
    body = parsed(command.entry.request_body) if isinstance(command.entry, Call) else None
    lines = body if isinstance(body, list) and isinstance(body[:1], list) else []
    return any(type(x) is bool for line in (lines, *lines) if isinstance(line, list) for x in line)


def null_in_script(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find scripts that decode JSON with null in an argument or a key, and do not mention cjson.null."""
    stored: dict[str, str] = {}
    for command in commands(test, fake):
        if command.name == "SET":
            stored[command.key] = command.words[2]
        source = source_of(test, command.words) or ""
        if "cjson.decode" not in source or "cjson.null" in source:
            continue
        for text in (*command.words[3:], *map(stored.get, command.keys)):
            if text is not None and _has_null(parsed(text)):
                yield command.finding("null_in_script", severity="hint", value=text)
                break


def _has_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and any(x is None or _has_null(x) for x in inner)


def no_subscriber(test: ObservedTest, fake: Any) -> Iterator[Finding]:
    """Find messages to a channel without subscribers, while a channel with subscribers had none."""
    subscribed: dict[str, int] = {}
    heard: set[str] = set()
    unheard: dict[str, tuple[Command, int]] = {}
    for call in test.calls_of(fake):
        for line in lines_of(call) if call.reached else ():
            if line[0].upper() == "SUBSCRIBE":
                subscribed.update(dict.fromkeys(line[1:], call.number))
    for command in history(test, fake):
        if command.name == "PUBLISH" and command.result == 0 and isinstance(command.entry, Call):
            steps = test.lookups.grouped_calls.get(command.entry.number) or [command.entry]
            lines = [[line[0].upper(), *line[1:]] for step in steps for line in lines_of(step)]
            unheard[command.key] = command, lines.index(command.words)
        elif command.name == "PUBLISH":
            heard.add(command.key)
    others = [channel for channel in subscribed if channel not in heard and channel not in unheard]
    for channel, (command, index) in unheard.items():
        late = [channel] if subscribed.get(channel, 0) > command.entry.number else []
        if channel not in heard and (late or (others and channel not in subscribed)):
            values = {"others": [] if late else others, "line": index}
            evidence = [subscribed[channel] for channel in late or others]
            yield about("channel", "no_subscriber", command.entry, channel, evidence, **values)
