"""Anomalies: patterns in a run that are wrong whatever the application promises."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from ..core.errors import ContractError, shown, unknown_name
from ..reporting.calls import PUBLISHING
from .schedule import HOLD_US

if TYPE_CHECKING:
    from ..core.calls import Call
    from .footprint import Touch
    from .run import Run

_OVERWRITES = frozenset({
    "SET", "SETEX", "PSETEX", "GETSET", "MSET", "HSET", "HMSET", "JSON.SET", "DEL", "UNLINK",
    "GETDEL", "HDEL",
})  # fmt: skip
"""Commands whose effect does not depend on the value that they replace."""
_REPEATABLE = frozenset({
    "SETNX", "HSETNX", "SADD", "SREM", "ZADD", "ZREM", "EXPIRE", "PEXPIRE", "EXPIREAT",
    "PEXPIREAT", "PERSIST", "PFADD", "XGROUP", "XACK", "LREM", "RENAME",
})  # fmt: skip
"""Further commands that have no effect the second time."""
_TAKES = frozenset({"LPOP", "RPOP", "BLPOP", "BRPOP", "SPOP", "ZPOPMIN", "ZPOPMAX"})
"""Commands that take an element away, which a second one cannot take."""
_CONSUMES = _TAKES | {"XACK", "XDEL"}
"""Commands after which nobody gets the element of a list or the entry of a stream again."""
_DELETIONS = frozenset({"DEL", "UNLINK", "GETDEL"})
_REMOVALS = frozenset({"DEL", "UNLINK", "HDEL", "SREM", "ZREM", "LREM", "XDEL"})
"""Commands whose answer says how much they removed."""
_EXPIRIES = frozenset({"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"})
_FIELDS = {
    **dict.fromkeys(("HSET", "HMSET"), slice(2, None, 2)),
    **dict.fromkeys(("HMGET", "HDEL", "SADD", "SREM", "SMISMEMBER", "ZREM"), slice(2, None)),
    **dict.fromkeys(("HGET", "HSETNX", "HINCRBY", "HINCRBYFLOAT", "HEXISTS"), slice(2, 3)),
    **dict.fromkeys(("SISMEMBER", "ZSCORE"), slice(2, 3)), "ZINCRBY": slice(3, 4),
}  # fmt: skip
"""The words of a command that are the fields or members which it accesses."""
_SENDS = frozenset({*PUBLISHING, "produce", "upsert", "upsert-data"})
"""Routes of other services by which a client stores or sends something that stays."""
_SECOND_TIME = frozenset({
    "lose_response", "duplicate", "crash_after_response", "fail", "redeliver", "rebalance", "crash",
})  # fmt: skip
"""Kinds of events after which code runs, or a request arrives, a second time."""
_LOSSES = frozenset({
    "respond", "drop", "lose_response", "crash", "partition", "rotate_token", "fail", "unreachable",
    "crash_after_response",
})  # fmt: skip
"""Kinds of events that can keep a client from having an effect."""
_UPSERTS = frozenset({"upsert", "upsert-data", "update"})
_QUERIES = ("query", "resumable-query")
_VARIABLE = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|\d+")
"""Numbers and IDs, which can differ between two runs of the same code."""


@dataclass(frozen=True, eq=False)
class Access:
    """A command that a key-value engine ran, or a call of another service.

    ``unit`` identifies the script or the single command, which nobody interrupts. ``keys`` are the
    keys of a command, or the subjects of a call, as reads. ``before`` are the values of a command's
    keys before it ran. The ``words`` of a call are its route and path.
    """

    client: str
    unit: object
    words: tuple[str, ...]
    keys: tuple[Touch, ...]
    before: tuple[object, ...] = ()
    is_write: bool = True
    call: Call | None = None

    @property
    def name(self) -> str:
        return self.words[0]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def content(self) -> str:
        """The arguments of a command, or the body of a call."""
        if self.call is None:
            return " ".join(self.words[1:])
        return self.call.request_body.decode("utf-8", "replace")

    @cached_property
    def options(self) -> frozenset[str]:
        return frozenset(word.upper() for word in self.words[3:])

    @cached_property
    def changes(self) -> bool:
        """Whether it changes data, as far as its arguments and its first key tell."""
        if self.call is not None:
            return self.is_write and self.call.reached
        if not self.is_write:
            return False
        known = self.before[0]
        if self.name in ("INCRBY", "DECRBY", "INCRBYFLOAT") and self.words[2] == "0":
            return False
        if self.name in _DELETIONS:
            return any(value is not None for value in self.before)
        if self.name == "SETNX" or (self.name == "SET" and "NX" in self.options):
            return known is None
        if self.name == "SET":
            return known != self.words[2].encode() and not (known is None and "XX" in self.options)
        return True

    @cached_property
    def acquires(self) -> bool:
        """Whether the command takes a lock: a key that only its first writer sets."""
        has_condition = self.name == "SETNX" or (self.name == "SET" and "NX" in self.options)
        return has_condition and self.changes

    def repeats(self, other: Access) -> bool:
        return (self.text, self.content) == (other.text, other.content)

    @property
    def is_relative(self) -> bool:
        """Whether a second run of the command has a second effect."""
        return self.changes and self.name not in _OVERWRITES | _REPEATABLE | _TAKES

    def overwrites(self, other: Access) -> bool:
        """Return whether a call writes a vector again that another call has written or deleted."""
        if self.call is None or other.call is None or self.keys != other.keys or not other.changes:
            return False
        mine, (theirs, prefix) = self._vectors()[0], other._vectors()
        return bool(mine & theirs) or (prefix != "" and any(id.startswith(prefix) for id in mine))

    def _vectors(self) -> tuple[frozenset[str], str]:
        """Return the IDs of the vectors that a call writes or deletes, and the prefix of IDs."""
        facts = self.call.facts if self.call is not None else {}
        ids, prefix = facts.get("ids", [facts.get("id")]), str(facts.get("prefix") or "")
        # The index rejects a request whose IDs are not a list.
        return frozenset(map(str, ids if isinstance(ids, list) else ())), prefix

    @property
    def subject(self) -> str:
        return self.keys[0].name if self.call is None else self.name

    @property
    def shape(self) -> tuple[str, str, str]:
        """The fake, the command or route, and what it is about, without numbers and IDs."""
        about = self.subject if self.call is None else self.text
        return self.keys[0].fake, self.name, _VARIABLE.sub("#", about)

    def meets(self, other: Access) -> bool:
        """Return whether two commands can access the same field or member of their common key."""
        if self.name not in _FIELDS or other.name not in _FIELDS:
            return True
        mine, others = self.words[_FIELDS[self.name]], other.words[_FIELDS[other.name]]
        return not set(mine).isdisjoint(others)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A pattern that a run shows: its name, the key or call that it is about, and what happened."""

    name: str
    subject: str
    words: str

    def __str__(self) -> str:
        return f"{self.name} ({self.subject}): {self.words}"


class Record:
    """What patterns look at: the accesses of a run, and those of the run without events."""

    def __init__(self, run: Run, plain: Run) -> None:
        self.run = run
        self.plain = plain
        self.commands = [one for one in run.accesses if one.call is None]
        self.places: dict[Touch, list[int]] = {}
        """The indexes of the commands that access each key, in order."""
        for at, one in enumerate(self.commands):
            for key in one.keys:
                self.places.setdefault(key, []).append(at)
        self._reading = {one.unit for one in self.commands if not one.is_write}
        self.has_peers = len({one.client for one in self.commands}) > 1

    def of_key(self, key: Touch, after: int = -1, before: int | None = None) -> Iterator[Access]:
        """Yield the commands that access a key, between two indexes of ``commands``."""
        end = len(self.commands) if before is None else before
        return (self.commands[at] for at in self.places[key] if after < at < end)

    def is_blind(self, write: Access) -> bool:
        """Return whether a write has no condition, and its script does not read."""
        is_guarded = bool(write.options & {"XX", "GT", "LT"}) or write.unit in self._reading
        return not write.acquires and not is_guarded

    @property
    def disturbed(self) -> str:
        """The client or delivery that the only event of the run can have kept from an effect."""
        return root_of(self._attempt)

    @property
    def _attempt(self) -> str:
        events = [one for one in self.run.fired if one.kind != "numbers"]
        return events[0].strand if len(events) == 1 and events[0].kind in _LOSSES else ""

    @cached_property
    def lost(self) -> Sequence[Access]:
        """The lasting effects of the disturbed client that it has without the event, but that neither
        it nor anybody else had here; none if it did something else instead.

        An effect on data that a later attempt looked at is not lost: the code decided against it.
        """
        own = [one for one in self.plain.accesses if root_of(one.client) == self.disturbed]
        # A command that sets the value that its key has already counts as done.
        done = Counter(
            one.shape
            for one in self.run.accesses
            if one.changes or (one.call is None and one.is_write and not one.acquires)
        )
        usual = Counter(one.shape for one in self.plain.accesses if one.changes)
        mine = [one for one in self.run.accesses if root_of(one.client) == self.disturbed]
        if any(one.changes and one.shape not in usual for one in mine):
            return ()
        later = [one for one in mine if one.client != self._attempt and one.call is None]
        return [
            one
            for one in own
            if lasts(one, self.plain)
            and done[one.shape] < usual[one.shape]
            and not any(one.keys[0] in other.keys and one.meets(other) for other in later)
        ]


def lasts(access: Access, run: Run) -> bool:
    """Return whether an effect remains at the end of a run: something sent, or a key without TTL."""
    if access.call is not None:
        return access.changes and access.name in _SENDS
    return access.changes and any(run.left.get(key, False) for key in access.keys)


def root_of(client: str) -> str:
    """Return the name of a client or delivery without the number of its attempt or restart."""
    return re.sub(r"/\d+$", "", client)


Found = Iterator[tuple[str, str]]
"""Subjects of a pattern, each with what happened in words."""


def _told(*accesses: Access) -> str:
    return ", then ".join(f"{one.client}: {one.text}" for one in accesses)


# -- orders of commands ----------------------------------------------------------------------------


def _stale_writes(record: Record) -> Iterator[tuple[Access, Access, Access, Touch]]:
    """Yield a read, another client's change of the key, and an unguarded write by the reader.

    Only the reader's last access to the key counts.
    """
    for at, write in enumerate(record.commands):
        known = write.before[0]
        # Two clients that set the same number may have counted from the same one.
        counts = write.name == "SET" and isinstance(known, bytes) and known.isdigit()
        if not (write.changes or counts) or not record.is_blind(write):
            continue
        for key in write.keys:
            earlier = [
                place
                for place in record.places[key]
                if place < at and record.commands[place].client == write.client
            ]
            read = record.commands[earlier[-1]] if earlier else write
            if read.is_write or not read.meets(write):
                continue
            for other in record.of_key(key, earlier[-1], at):
                if other.client != write.client and other.changes and other.meets(read):
                    yield read, other, write, key
                    break


def _lost_update(record: Record) -> Found:
    for read, other, write, key in _stale_writes(record):
        if write.name in _OVERWRITES and any(value is not None for value in read.before):
            yield key.name, _told(read, other, write)


def _check_then_act(record: Record) -> Found:
    yield from _unchecked_removals(record)
    for read, other, write, key in _stale_writes(record):
        was_absent = all(value is None for value in read.before)
        if was_absent or write.name not in _OVERWRITES | _REPEATABLE:
            yield key.name, _told(read, other, write)


def _unchecked_removals(record: Record) -> Found:
    """Two clients remove what both have read, and the second goes on as if it had removed it."""
    accesses = record.run.accesses
    for at, mine in enumerate(accesses):
        if mine.name not in _REMOVALS or mine.call is not None or not record.is_blind(mine):
            continue
        key = mine.keys[0]
        of_key = [place for place in range(at) if key in accesses[place].keys]
        own = [place for place in of_key if accesses[place].client == mine.client]
        if not own or accesses[own[-1]].is_write:
            continue
        since = [place for place in of_key if place > own[-1] and accesses[place].changes]
        # Only if the last change is the same removal, nothing was left for this one.
        if not since or accesses[since[-1]].text != mine.text:
            continue
        other = accesses[since[-1]]
        following = (one for one in accesses[at + 1 :] if one.client == mine.client)
        effect = next(following, None)
        theirs = (one for one in accesses[since[-1] + 1 :] if one.client == other.client)
        if effect is not None and effect.changes and any(effect.repeats(one) for one in theirs):
            yield key.name, _told(accesses[own[-1]], other, mine, effect)


def _write_skew(record: Record) -> Found:
    read_at: dict[tuple[str, Touch], list[int]] = {}
    writes: dict[tuple[str, Touch], tuple[int, Access]] = {}
    for at, one in enumerate(record.commands):
        for key in one.keys:
            if not one.is_write:
                read_at.setdefault((one.client, key), []).append(at)
        if one.changes and record.is_blind(one):
            writes.setdefault((one.client, one.keys[0]), (at, one))
    for at, first in writes.values():
        for later, second in writes.values():
            mine, others = first.keys[0], second.keys[0]
            if later <= at or first.client == second.client or mine == others:
                continue
            # Each writes what the other one read.
            reads = [
                read_at.get((client, key), [later])[0]
                for client, key in ((first.client, others), (second.client, mine))
            ]
            again = any(at < place < later for place in read_at.get((second.client, mine), ()))
            if max(reads) < at and not again:
                yield f"{mine.name}, {others.name}", _told(first, second)


def _takeovers(record: Record) -> Iterator[tuple[Access, Access, Touch, int]]:
    """Yield a client's lock, the next holder's, and the index of the latter."""
    for at, mine in enumerate(record.commands):
        key = mine.keys[0]
        for place in record.places[key] if mine.acquires else ():
            other = record.commands[place]
            if place <= at or not other.is_write:
                continue
            if other.client == mine.client or other.acquires:
                if other.client != mine.client:
                    yield mine, other, key, place
                break


def _foreign_release(record: Record) -> Found:
    for mine, other, key, place in _takeovers(record):
        for one in record.of_key(key, place):
            if one.client == other.client and one.is_write:
                break
            if one.client == mine.client and one.changes:
                if record.is_blind(one):
                    yield key.name, _told(mine, other, one)
                break


def _expired_lock(record: Record) -> Found:
    for mine, other, key, place in _takeovers(record):
        peers = {
            shared for one in record.commands if one.client == other.client for shared in one.keys
        }
        for one in record.commands[place + 1 :]:
            is_late = one.client == mine.client and one.changes and key not in one.keys
            if is_late and record.is_blind(one) and one.keys[0] in peers:
                yield key.name, _told(mine, other, one)
                break


def _stale_copy(record: Record) -> Found:
    yield from _stale_records(record)
    yield from _stale_values(record)


def _stale_records(record: Record) -> Found:
    """A vector is written because of a key, after another client changed the key and the vector."""
    accesses = record.run.accesses
    for at, write in enumerate(accesses):
        if write.name not in _UPSERTS or not write.changes:
            continue
        for place, read in enumerate(accesses[:at]):
            if read.client != write.client or read.call is not None or read.is_write:
                continue
            between, source = accesses[place + 1 : at], read.keys[0]
            # A client that reads the key again, also after the write, can repair it.
            later = [one for one in accesses[place + 1 :] if source in one.keys]
            again = any(root_of(one.client) == root_of(write.client) for one in later)
            news = [one for one in between if one.client != write.client and source in one.keys]
            authors = {one.client for one in news if one.changes}
            newer = [one for one in between if one.client in authors and write.overwrites(one)]
            if newer and not again:
                yield write.keys[0].name, _told(read, news[0], newer[-1], write)


def _stale_values(record: Record) -> Found:
    """A value that is derived from another key overwrites one derived from a newer value."""
    for at, write in enumerate(record.commands):
        is_copy = write.name in _OVERWRITES - _DELETIONS and write.changes
        if not is_copy or not record.is_blind(write):
            continue
        target = write.keys[0]
        fresh = [one for one in record.of_key(target, -1, at) if one.is_write]
        if not any(one.client != write.client for one in fresh):
            continue
        for place, read in enumerate(record.commands[:at]):
            source = read.keys[0]
            if read.client != write.client or read.is_write or source == target:
                continue
            news = [one for one in record.of_key(source, place, at) if one.changes]
            authors = {one.client for one in news} - {write.client}
            again = any(one.client == write.client for one in record.of_key(source, place, at))
            newer = [one for one in record.of_key(target, place, at) if one.is_write]
            newer = [one for one in newer if one.client in authors]
            if newer and not again:
                yield target.name, _told(read, news[0], newer[-1], write)


def _overtaken(record: Record) -> Found:
    """The value of a message overwrites that of a message which was published later."""
    for key, places in record.places.items():
        writes = [record.commands[at] for at in places if record.commands[at].is_write]
        last = writes[-1] if writes else None
        if last is None or last.name not in _OVERWRITES - _DELETIONS or not record.is_blind(last):
            continue
        for one in writes:
            is_newer = 0 < _number_of_message(last) < _number_of_message(one)
            if is_newer and one.name == last.name and one.words != last.words and last.meets(one):
                yield key.name, _told(one, last)
                break


def _number_of_message(access: Access) -> int:
    """Return the number of the message whose delivery made an access; 0 for clients."""
    found = re.fullmatch(r"delivery(\d+)(/\d+)?", access.client)
    return int(found[1]) if found else 0


# -- effects that are lost, or that happen twice ---------------------------------------------------


def _key_without_ttl(record: Record) -> Found:
    if not record.run.fired:
        return
    for at, one in enumerate(record.plain.accesses):
        key = one.keys[0]
        # What a script does before is never done without its EXPIRE.
        is_split = record.plain.accesses[at - 1].unit is not one.unit
        if one.name in _EXPIRIES and is_split and record.run.left.get(key):
            wrote = [peer for peer in record.of_key(key) if peer.changes]
            if wrote:
                yield key.name, f"{_told(wrote[-1])}, and {one.text} never ran"
    released = {
        one.shape
        for one in record.plain.accesses
        if one.call is None and one.acquires and one.keys[0] not in record.plain.left
    }
    for one in record.commands:
        key = one.keys[0]
        if one.acquires and one.shape in released and record.run.left.get(key):
            yield key.name, f"{_told(one)}, and nobody deleted it: it stays forever"


def _repeated_effect(record: Record) -> Found:
    # A call that arrives twice is the network's doing: each INCR in the world would be accused.
    fired = record.run.fired
    if any(event.kind == "duplicate" and event.point for event in fired):
        return
    if not any(event.kind in _SECOND_TIME for event in fired):
        return
    before = Counter((_worker(one.client), one.text) for one in record.plain.accesses)
    count: Counter[tuple[str, str]] = Counter()
    for at, one in enumerate(record.run.accesses):
        is_kept = any(key in record.run.left for key in one.keys)
        if (
            one.is_relative
            and is_kept
            and not _is_id(one, islice(record.run.accesses, at + 1, None))
        ):
            effect = _worker(one.client), one.text
            count[effect] += 1
            if before[effect] and count[effect] == before[effect] + 1:
                yield one.keys[0].name, f"{_told(one)} once too often"


def _is_id(access: Access, later: Iterable[Access]) -> bool:
    """Return whether a counter gives out numbers: something later of the client contains the new one."""
    known = access.before[0]
    if access.name != "INCR" or not isinstance(known, bytes | None):
        return False
    try:
        new = int(known or 0) + 1
    except ValueError:  # The server rejects the command.
        return False
    number = re.compile(rf"\b{new}\b")
    mine = (one for one in later if one.client == access.client and one.keys != access.keys)
    return any(number.search(one.content) for one in mine)


def _worker(client: str) -> str:
    """Return one name for all deliveries, and for a client and its restarts."""
    return "delivery" if client.startswith("delivery") else root_of(client)


def _outside_step(record: Record) -> Found:
    """An effect of a workflow that is not in a step happens in each call of the workflow."""
    if record.run.fired:
        return
    calls: dict[tuple[str, str], list[Access]] = {}
    for one in record.run.accesses:
        of_run = record.run.workflow_runs.get(one.client)
        is_effect = one.is_relative if one.call is None else one.changes and one.name == "produce"
        if of_run is not None and is_effect:
            calls.setdefault((of_run, one.text), []).append(one)
    for (_, text), made in calls.items():
        clients = list(dict.fromkeys(one.client for one in made))
        if len(clients) > 1:
            times = f"{text} ran in {len(clients)} calls of one workflow run"
            yield made[0].subject, f"{times} ({', '.join(clients)}), outside every step"


def _early_commit(record: Record) -> Found:
    yield from _early_removal(record)
    if not (record.disturbed and _count(record.plain, record.disturbed, "consume")):
        return
    route = "commit" if _count(record.plain, record.disturbed, "commit") else "consume"
    usual = _count(record.plain, record.disturbed, route)
    if _count(record.run, record.disturbed, route) >= usual:
        for one in record.lost:
            yield record.disturbed, f"{record.disturbed} committed, and nobody ran {one.text}"


def _early_removal(record: Record) -> Found:
    """An element of a job queue is taken away before its effect, which nobody has then."""
    usual, here = (_removed(run, record.disturbed) for run in (record.plain, record.run))
    if record.disturbed and 0 < len(usual) <= len(here):
        for one in record.lost:
            yield here[-1].subject, f"{_told(here[-1])}, and nobody ran {one.text}"


def _removed(run: Run, client: str) -> list[Access]:
    """Return the commands by which a client and its restarts took an element away for good."""
    own = [one for one in run.accesses if root_of(one.client) == client and one.call is None]
    kept = {one.unit for one in own if one.changes and one.name not in _CONSUMES}
    # A script that notes elsewhere what it takes loses nothing.
    taken = (one for one in own if one.name in _CONSUMES and one.unit not in kept)
    return [one for one in taken if one.before[0] is not None]


def _count(run: Run, client: str, route: str) -> int:
    """Return how many calls of a route a client and its restarts made."""
    return sum(
        one.name == route and one.call is not None and one.call.reached
        for one in run.accesses
        if root_of(one.client) == client
    )


def _early_acknowledgement(record: Record) -> Found:
    delivery = record.disturbed
    if delivery and any(root_of(one) == delivery for one in record.run.acknowledged):
        for one in record.lost:
            yield delivery, f"{delivery} was acknowledged, and nobody ran {one.text}"


def _dual_write(record: Record) -> Found:
    client = record.disturbed
    if not client or client.startswith("delivery") or _count(record.plain, client, "consume"):
        return
    usual = {one.shape for one in record.plain.accesses}
    kept = [
        one
        for one in record.run.accesses
        if root_of(one.client) == client and lasts(one, record.run) and one.shape in usual
        # Gaps between numbers that a counter gave out, and claims that are made once, are no state.
        if not one.acquires and one.name != "INCR"
    ]
    others = (one for one in record.run.accesses if root_of(one.client) != client)
    looked_at = {key for one in others for key in one.keys}
    for lost in record.lost:
        for one in kept if lost.name != "INCR" else ():
            # Somebody who gets a message may check that the data it is about were saved.
            may_be_checked = one.call is not None and lost.keys[0] in looked_at
            if not may_be_checked and one.keys[0].fake != lost.keys[0].fake:
                yield f"{one.subject}, {lost.subject}", f"{_told(one)}, and nobody ran {lost.text}"
                break


def _early_search(record: Record) -> Found:
    """A client searches before its upsert is visible, and does not search again afterwards."""
    if not any(event.kind == "hold" for event in record.run.fired):
        return
    searches: dict[str, tuple[str, str, bool]] = {}
    written_us: dict[str, int] = {}
    for line in record.run.lines:
        call = line.call
        if call is None or call.service != "vector":
            continue
        if call.route.startswith("upsert"):
            written_us[call.handle] = line.at_us
        elif call.route.startswith(_QUERIES) and call.handle in written_us:
            is_early = line.at_us < written_us[call.handle] + HOLD_US
            searches[line.strand] = line.strand, call.handle, is_early
    for client, handle, is_early in searches.values():
        if is_early:
            yield handle, f"{client} searched before the upsert was visible"


# -- all patterns ----------------------------------------------------------------------------------


PATTERNS: dict[str, tuple[Callable[[Record], Found], str]] = {
    "lost update": (_lost_update, "the new value does not depend on the one read"),
    "check then act": (_check_then_act, "the answer of the write is checked"),
    "write skew": (_write_skew, "no rule connects the two keys"),
    "foreign release": (_foreign_release, "the holder does not rely on the lock"),
    "expired lock": (_expired_lock, "the late write repeats one that another holder made"),
    "key without TTL": (_key_without_ttl, "something else deletes the key"),
    "effect outside a step": (_outside_step, "the number counts the calls"),
    "early commit": (_early_commit, "the effect may be lost"),
    "early acknowledgement": (_early_acknowledgement, "the effect may be lost"),
    "dual write": (_dual_write, "a later request or a person repairs the difference"),
    "repeated effect": (_repeated_effect, "the number counts attempts"),
    "stale write": (_stale_copy, "the value written does not come from the one read"),
    "overtaken message": (_overtaken, "the order of the messages does not matter"),
    "early search": (_early_search, "the search need not see the newest vectors"),
}
"""All patterns, in the order in which they are reported, by the names that the literature uses: the
function that finds the pattern, and when it does no harm.
"""


_ORDERS = frozenset({
    _lost_update, _check_then_act, _write_skew, _foreign_release, _expired_lock, _stale_copy, _overtaken
})  # fmt: skip
"""The patterns of commands of several clients."""


class AnomalyError(AssertionError):
    """The assertion that an anomaly stands for in a search without a promise."""

    def __init__(self, anomaly: Anomaly) -> None:
        allowed = f"{anomaly.name}: {anomaly.subject}"
        _, harmless = PATTERNS[anomaly.name]
        super().__init__(f"{anomaly}. It is harmless if {harmless}: then pass allow={allowed!r}")


class Allowed:
    """The anomalies that the caller allows: a name, or a name with a subject ("name: key*")."""

    def __init__(self, given: str | Iterable[str]) -> None:
        texts = (given,) if isinstance(given, str) else tuple(given)
        self._unused = dict.fromkeys(texts)
        self._entries = []
        for text in texts:
            if not isinstance(text, str):
                raise ContractError(f"allow={shown(text)} is not the name of an anomaly")
            name, _, subject = text.partition(":")
            if name not in PATTERNS:
                raise ContractError(unknown_name("anomaly", name, PATTERNS, "allow"))
            self._entries.append((text, name, subject.strip() or "*"))

    def covers(self, anomaly: Anomaly) -> bool:
        for text, name, subject in self._entries:
            if anomaly.name == name and fnmatchcase(anomaly.subject, subject):
                self._unused.pop(text, None)
                return True
        return False

    def check_used(self) -> None:
        """Raise ``ContractError`` for an entry that no run needed."""
        if self._unused:
            text = next(iter(self._unused))
            raise ContractError(f"allow={text!r}: no run shows this anomaly: leave it out")


def find_anomalies(record: Record, allowed: Allowed) -> list[Anomaly]:
    """Return the anomalies of a run that are not allowed, one for each name and subject."""
    found: dict[tuple[str, str], Anomaly] = {}
    for name, (find, _) in PATTERNS.items():
        if find in _ORDERS and not record.has_peers:
            continue
        for subject, words in find(record):
            found.setdefault((name, subject), Anomaly(name, subject, words))
    return [anomaly for anomaly in found.values() if not allowed.covers(anomaly)]
