"""Anomalies: patterns in a trial that are wrong whatever the application promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import combinations, product

from ..core.accesses import Touch
from ..core.errors import ContractError, shown, unknown_name
from ..kv.table import kinds
from .accesses import NUMBER, Access
from .evidence import (
    LOSSES,
    OF_CONSUMERS,
    Evidence,
    drawn_number,
    effects_of,
    is_id,
    lasts,
    root_of,
)
from .schedule import CLOCK, DELAYS, PAUSES
from .trial import Anomaly, Trial

_SECOND_TIME = frozenset({
    "lose_response", "duplicate", "crash_after_response", "fail", "redeliver", "rebalance", "crash",
})  # fmt: skip
"""Kinds of disturbances after which code runs, or a request arrives, a second time."""
_MOVES_OF_TIME = PAUSES | DELAYS
"""Kinds of disturbances that let time pass."""
_UPSERTS = frozenset({"upsert", "upsert-data", "update"})


Findings = Iterator[tuple[str, str]]
"""Subjects of a pattern, each with what happened in words."""


def _description(*accesses: Access) -> str:
    return ", then ".join(f"{access.client}: {access.summary}" for access in accesses)


# -- orders of commands ----------------------------------------------------------------------------


def _lost_update(evidence: Evidence) -> Findings:
    for read, other, write, key in evidence.stale_writes:
        is_score = (read.name, write.name) == ("ZSCORE", "ZADD")
        is_overwritten = write.name in kinds.LOSES_UPDATES or is_score
        if not write.meets(other):
            continue  # For example, the other client wrote another field.
        if read.name in kinds.ASKS_FOR_NAMES and write.name in kinds.DELETES_ANY:
            continue  # A client that does not look at a value removes any.
        if is_overwritten and any(value is not None for value in read.before):
            yield key.name, _description(read, other, write)
    for at, write in enumerate(accesses := evidence.trial.effects.accesses):
        if write.name not in _UPSERTS or not write.changes:
            continue
        again = (access for access in accesses[at + 1 :] if access.client == write.client)
        if not any(map(write.is_about, again)):
            earlier = [
                (place, access)
                for place, access in enumerate(accesses[:at])
                if write.is_about(access)
            ]
            own = [place for place, access in earlier if access.client == write.client]
            news = [
                access for place, access in earlier if own and place > own[-1] and access.changes
            ]
            if news and accesses[own[-1]].name == "fetch" and news[-1].content != write.content:
                yield write.subject, _description(accesses[own[-1]], news[-1], write)


def _check_then_act(evidence: Evidence) -> Findings:
    for read, other, write, key in evidence.stale_writes:
        was_absent = all(value is None for value in read.before)
        is_kept = write.name in kinds.REPEATABLE and read.name not in kinds.COUNTS
        if was_absent or not is_kept:
            yield key.name, _description(read, other, write)
    yield from _same_rank(evidence)
    yield from _late_mark(evidence)


def _same_rank(evidence: Evidence) -> Findings:
    """Two clients act at the same time, because each has the same rank in a sorted set.

    Both add a member, read its rank, change other data, and remove the member.
    """
    held: list[tuple[int, int, Access]] = []
    for at, read in evidence.raced:
        if read.rank is None:
            continue
        commands = enumerate(evidence.commands)
        own = [
            (place, command)
            for place, command in commands
            if command.client == read.client and command.changes
        ]
        of_member = [
            (place, command.name)
            for place, command in own
            if command.keys == read.keys and read.words[2] in command.fields
        ]
        has_entered = any(place < at and name == "ZADD" for place, name in of_member)
        end = next((place for place, name in of_member if place > at and name == "ZREM"), at)
        if has_entered and any(
            at < place < end and command.keys != read.keys for place, command in own
        ):
            held.append((at, end, read))
    for at, end, mine in held:
        for later, _, other in held:
            is_same = mine.rank == other.rank and mine.keys == other.keys
            if at < later < end and is_same and mine.client != other.client:
                yield mine.subject, _description(mine, other)


def _late_mark(evidence: Evidence) -> Findings:
    """Two clients act on the same state, although only one of them removes or adds the element."""
    accesses = evidence.trial.effects.accesses
    for at, late in evidence.raced:
        key, is_addition = late.keys[0], late.name == "SADD"
        marks = {"SADD"} if is_addition else kinds.DELETIONS | kinds.REMOVALS
        if late.name not in marks or late.changes or not evidence.is_blind(late):
            continue
        earlier = evidence.earlier(at, key)
        read = evidence.commands[earlier[-1]] if earlier else late
        # A client that reads several members may have acted on another one.
        is_about = late.name in kinds.DELETIONS or (read.name in kinds.FIELDS and read.meets(late))
        if read.is_write or not is_about or (read.before[0] is None and not is_addition):
            continue
        mine = _changes_by(late.client, accesses[accesses.index(read) :])
        for other in evidence.of_key(key, earlier[-1], at):
            if other.client == late.client or other.name not in marks or not other.changes:
                continue
            acts = product(mine, _changes_by(other.client, accesses))
            is_different = any(a.shape == b.shape and a.content != b.content for a, b in acts)
            if is_different and other.meets(late):
                yield key.name, _description(read, other, late)


def _changes_by(client: str, accesses: Iterable[Access]) -> list[Access]:
    return [access for access in accesses if access.client == client and access.changes]


def _write_skew(evidence: Evidence) -> Findings:
    read_at: dict[tuple[str, Touch], list[int]] = {}
    writes: dict[tuple[str, Touch], tuple[int, Access]] = {}
    for at, command in evidence.raced:
        for key in () if command.is_write else command.keys:
            read_at.setdefault((command.client, key), []).append(at)
        if command.changes and evidence.is_blind(command):
            writes.setdefault((command.client, command.keys[0]), (at, command))
    for (at, first), (later, second) in combinations(writes.values(), 2) if read_at else ():
        mine, others = first.keys[0], second.keys[0]
        if first.client == second.client or mine == others:
            continue
        # Each writes what the other one read.
        reads = read_at.get((first.client, others), [later])
        places = read_at.get((second.client, mine), [later])
        again = any(at < place < later for place in places)
        if max(reads[0], places[0]) < at and not again:
            yield f"{mine.name}, {others.name}", _description(first, second)


def _foreign_release(evidence: Evidence) -> Findings:
    for mine, other, key, place in evidence.takeovers:
        for command in evidence.of_key(key, place):
            is_late = command.client == mine.client and command.changes
            # XX only tells that somebody holds the lock.
            if is_late and (evidence.is_blind(command) or "XX" in command.options):
                yield key.name, _description(mine, other, command)
            if is_late or (command.client == other.client and command.is_write):
                break


def _expired_lock(evidence: Evidence) -> Findings:
    for mine, other, key, place in evidence.takeovers:
        peers = [command for command in evidence.commands if command.client == other.client]
        for command in evidence.commands[place + 1 :]:
            is_late = command.client == mine.client and command.changes and key not in command.keys
            is_shared = any(command.keys[0] in peer.keys and command.meets(peer) for peer in peers)
            if is_late and evidence.is_blind(command) and is_shared:
                yield key.name, _description(mine, other, command)
                break


def _stale_copy(evidence: Evidence) -> Findings:
    """A value or vector that comes from a key or a vector overwrites one that comes from a newer
    value of it.
    """
    if not any(map(_is_copied, evidence.trial.effects.accesses)) or any(
        disturbance.kind in LOSSES for disturbance in evidence.trial.fired
    ):
        return  # The writer may have been about to look at the source again.
    accesses = [*enumerate(evidence.trial.effects.accesses)]
    reads: dict[str, list[tuple[int, Access]]] = {}
    for at, write in accesses:
        earlier, target = reads.setdefault(write.client, []), write.keys[0]
        if _is_copied(write):
            earlier.append((at, write))
        if not (earlier and write.changes) or all(r.keys[0] == target for _, r in earlier):
            continue
        is_vector = write.name in _UPSERTS
        # Elements are a copy if their key did not exist, because somebody has deleted the older copy.
        is_filled = write.name in kinds.ADDS and write.before[0] is None
        # A member that is there may have been added once more, for the newer value.
        is_removed = write.name in ("SREM", "ZREM")
        is_copy = is_filled or is_removed or write.name in kinds.LOSES_UPDATES - kinds.DELETIONS
        if not (is_vector or (is_copy and evidence.is_blind(write))):
            continue
        own = root_of(write.client)
        copies = [
            (place, access)
            for place, access in accesses
            if access.is_write
            and (
                write.overwrites(access)
                if is_vector
                else target in access.keys and write.meets(access)
            )
            and (access is write or not is_filled or access.name in kinds.DELETIONS)
        ]
        # A value without TTL that nobody replaces stays, also if its source changes later.
        is_latest = copies[-1][1] is write
        stays = evidence.trial.effects.remaining.get(target) and is_latest and not is_removed
        for place, read in earlier:
            if (source := read.keys[0]) == target:
                continue
            later = [
                (there, access) for there, access in accesses[place + 1 :] if source in access.keys
            ]
            if any(root_of(access.client) == own for _, access in later):
                continue
            news = [
                access
                for there, access in later
                if access.replaces(read)
                and (read.call is None or access.is_about(read))
                and (stays or there < at)
            ]
            authors = {access.client for access in news}
            # Others may have read the new value, and written what comes from it.
            informed = {access.client for _, access in later} if news else set()
            for there, newer in copies:
                is_newer = place < there < at and newer.client in informed
                # Who deletes an older copy may do so once more.
                is_newer = is_newer and (is_latest or newer.name not in kinds.DELETIONS)
                is_kept = stays and newer.client in authors
                if (is_newer or is_kept) and newer.client != write.client:
                    yield write.subject, _description(read, news[0], newer, write)
                    break


def _is_copied(access: Access) -> bool:
    """Return whether an access reads values that a client may copy: of keys, or of vectors by ID."""
    if access.is_write or access.name == "XREADGROUP":
        return False
    return access.call is None or (access.call.service, access.name) == ("vector", "fetch")


def _stale_removal(evidence: Evidence) -> Findings:
    """A client removes a member of a sorted set that got a new score since the client read it."""
    for at, write in evidence.raced:
        if not write.removed or not evidence.is_blind(write):
            continue
        key = write.keys[0]
        place = evidence.read_before(at, key)
        read = write if place is None else evidence.commands[place]
        # A client that removes another range than it has read, such as an old window, relies on nothing.
        is_read = write.name == "ZREM" or {*write.words[2:]} <= {*read.words[2:]}
        if place is None or read.name in kinds.COUNTS or not is_read:
            continue
        # Members that were there when the client read; a range may also contain those that were not.
        unread: set[str] = set()
        gone: set[str] = set()
        for other in evidence.of_key(key, place, at):
            if other.client == write.client:
                continue
            gone |= other.removed
            added = {*other.creates} if other.name in kinds.SCORES else set()
            unread |= added - gone if write.name == "ZREM" else set()
            if ({*other.rescored} | added) & write.removed - unread:
                yield key.name, _description(read, other, write)
                break


def _stale_write(evidence: Evidence) -> Findings:
    yield from _stale_copy(evidence)
    yield from _stale_removal(evidence)


# -- effects that are lost, or that happen twice ---------------------------------------------------


def _repeated_effect(evidence: Evidence) -> Findings:
    # A call that arrives twice is the network's doing: each INCR in the world would be accused.
    trial = evidence.trial
    if any(disturbance.kind == "duplicate" and disturbance.point for disturbance in trial.fired):
        return
    before = evidence.usual.effects
    if not before:
        return
    count: Counter[object] = Counter()
    roots = {root_of(access.client) for access in evidence.plain.effects.accesses}
    end_us = (
        max(access.at_us for access in evidence.plain.effects.accesses) - evidence.plain.start_us
    )
    usual = Counter(
        (effect, root_of(access.client)) for effect, access in effects_of(evidence.plain)
    )
    here: Counter[object] = Counter()
    is_again = any(disturbance.kind in _SECOND_TIME for disturbance in trial.fired)
    # A quota, a bucket or a window may allow more when time has passed.
    is_allowed = any(
        disturbance.kind in _MOVES_OF_TIME or disturbance.detail == CLOCK
        for disturbance in trial.fired
    )
    written = _consumed_into_stores(evidence)
    for effect, access in effects_of(trial):
        root = root_of(access.client)
        count[effect] += 1
        here[effect, root] += 1
        is_new = 0 < before[effect] == count[effect] - 1
        # A client whose first attempt was refused something may get it here, or later than usual.
        is_second = here[effect, root] > max(1, usual[effect, root])
        is_later = access.at_us - trial.start_us > end_us
        is_attempt = is_again and (access.client.startswith("delivery") or "/" in access.client)
        is_attempt = is_attempt and (is_second or root not in roots)
        is_own = access.call is None or root not in evidence.workers
        is_own = is_own and not (access.name == "produce" and access.keys[0].fake in written)
        is_relative = access.is_relative and not is_allowed and (is_second or not is_later)
        is_more = is_attempt or is_relative
        if is_new and is_own and is_more and not evidence.counts_attempts(access):
            # Who does something else with a key may compensate for an earlier effect.
            shapes = {other.shape for other in evidence.plain.effects.accesses}
            others = (other for other in trial.effects.accesses if other.shape not in shapes)
            if all(
                (other.client, other.keys[0]) != (access.client, access.keys[0]) for other in others
            ):
                yield access.subject, f"{_description(access)} once too often"


def _consumed_into_stores(evidence: Evidence) -> set[str]:
    """Return the brokers whose consumers change data of the fakes, which show if a record is repeated
    there.
    """
    accesses = evidence.plain.effects.accesses
    writers = {
        root_of(access.client)
        for access in accesses
        if access.changes and access.name not in OF_CONSUMERS
    }
    reads = (access for access in accesses if access.name in ("consume", "fetch") and access.call)
    return {access.keys[0].fake for access in reads if root_of(access.client) in writers}


def _early_end(evidence: Evidence, *, of_delivery: bool) -> Findings:
    """Work counts as done without its effect, because a handler has answered, a worker has gone on,
    or a client has taken it.
    """
    client = evidence.disturbed
    if client.startswith("delivery") is not of_delivery or not evidence.lost:
        return
    usual, here = _ends(evidence.plain, client), _ends(evidence.trial, client)
    if usual and not here:
        return  # It has taken nothing that could be lost.
    taken = [end for end in here if end.call is None]
    # A worker that starts again takes more, which it does not lose.
    stopped = {disturbance.strand for disturbance in evidence.trial.fired}
    lost = [end for end in taken if end.client in stopped]
    last = [] if of_delivery else lost[-1:] or taken[-1:] or here[-1:]
    is_over = len(here) >= len(usual) > 0
    if client in evidence.workers or of_delivery:
        is_left = evidence.residue or evidence.trial.effects.pending
        is_over = evidence.has_gone_on and (of_delivery or not is_left)
    ending = _description(*last) or f"{client} {'was acknowledged' if of_delivery else 'went on'}"
    for effect in evidence.lost if is_over else ():
        yield last[0].subject if last else client, f"{ending}, and nobody ran {effect.summary}"


def _ends(trial: Trial, client: str) -> list[Access]:
    """Return the accesses by which a client and its restarts took work for good."""
    own = [access for access in trial.effects.accesses if root_of(access.client) == client]
    # A script that notes elsewhere what it takes loses nothing.
    noted_units = {
        access.unit for access in own if access.changes and access.name not in kinds.CONSUMES
    }
    taken = [
        access for access in own if access.name in kinds.CONSUMES and access.before[0] is not None
    ]
    consumed = [access for access in own if access.commits_records]
    consumed = [access for access in consumed if access.name == "commit"] or consumed
    return [*consumed, *(access for access in taken if access.unit not in noted_units)]


def _partial_update(evidence: Evidence) -> Findings:
    """A client that was disturbed has one of two effects on a server, and nobody has the other."""
    client = evidence.disturbed
    if client in evidence.workers or client.startswith("delivery") or not evidence.lost:
        return
    plain, accesses = evidence.plain.effects.accesses, evidence.trial.effects.accesses
    if any(access.name == "consume" for access in plain if root_of(access.client) == client):
        return  # It is a worker.
    # Gaps between numbers that a counter gave out are no state.
    usual = {access.shape for at, access in enumerate(plain) if not is_id(access, plain, at)}
    lasting = [
        access
        for access in evidence.mine
        if lasts(access, evidence.trial) and access.shape in usual
    ]
    numbered = [access for access in lasting if _is_numbered(access, evidence.mine)]
    compared = set(_comparing_units(evidence.mine))
    lasting = [access for access in lasting if access.unit not in compared]
    # A second attempt repairs all but what it cannot repeat.
    # A script that also notes an entry can recognise that it has run.
    noted = {access.unit: access for access in evidence.mine if _is_entry(access)}
    lasting = [
        access
        for access in lasting
        if access.call is None
        and (access.acquires or access.is_relative)
        and noted.get(access.unit, access) is access
        and not evidence.counts_attempts(access)
    ]
    for lost in evidence.lost:
        is_repeated = any(
            access.text == lost.text and access.content == lost.content and access.changes
            for access in accesses
        )
        # Who looks for what is lost does not find it, and takes another number.
        is_sought = any(
            not (access.is_write or access.call)
            and lost.keys[0] in access.keys
            and access.meets(lost)
            for access in evidence.mine
        )
        again = numbered if is_sought else []
        for effect in () if is_repeated else lasting + again:
            is_one_store = effect.keys[0].fake == lost.keys[0].fake
            if is_one_store and {*effect.keys}.isdisjoint(lost.keys):
                yield (
                    f"{effect.subject}, {lost.subject}",
                    f"{_description(effect)}, and nobody ran {lost.summary}",
                )
                break


def _is_entry(access: Access) -> bool:
    """Return whether a command notes something that was not there, such as an ID that has been used."""
    is_creation = access.name in kinds.CREATES | kinds.IF_NEW and bool(access.creates)
    return access.call is None and access.changes and (is_creation or access.name in kinds.APPENDS)


def _comparing_units(accesses: Sequence[Access]) -> Iterator[object]:
    """Yield the scripts that read what they set to a word, such as the status of an order: a script that
    has run can recognise it.
    """
    reads: dict[object, list[Access]] = {}
    for access in accesses:
        if not access.is_write:
            reads.setdefault(access.unit, []).append(access)
        elif access.changes and not all(map(NUMBER.fullmatch, access.values)):
            own = reads.get(access.unit, ())
            if any(read.keys[0] in access.keys and read.meets(access) for read in own):
                yield access.unit


def _is_numbered(access: Access, own: Sequence[Access]) -> bool:
    """Return whether a command creates something under a number that its client has drawn."""
    is_new = access.call is None and access.before[0] is None
    names = (access.subject,) * is_new + (() if access.call else access.creates)
    return any(
        number.search(name) for number in filter(None, map(drawn_number, own)) for name in names
    )


# -- all patterns ----------------------------------------------------------------------------------


PATTERNS: dict[str, tuple[Callable[[Evidence], Findings], str]] = {
    "lost update": (_lost_update, "the new value does not depend on the one read"),
    "check then act": (
        _check_then_act,
        "the client acts only after it has checked the answer of the write",
    ),
    "write skew": (_write_skew, "no rule connects the two keys"),
    "foreign release": (_foreign_release, "the holder does not rely on the lock"),
    "expired lock": (_expired_lock, "the late write repeats one that another holder made"),
    "early commit": (partial(_early_end, of_delivery=False), "the effect may be lost"),
    "early acknowledgement": (partial(_early_end, of_delivery=True), "the effect may be lost"),
    "partial update": (_partial_update, "a later request or a person repairs the difference"),
    "repeated effect": (
        _repeated_effect,
        "the number counts attempts, or consumers recognise the record",
    ),
    "stale write": (_stale_write, "the value written does not come from the one read"),
}
"""All patterns, in the order in which they are reported, by the names that the literature uses: the
function that finds the pattern, and when it does no harm.
"""


LAST = frozenset({"partial update"})
"""The patterns that a search without a promise only reports if it has found no other: what is correct
depends on whether the caller of a client that failed tries again.
"""


class AnomalyError(AssertionError):
    """The assertion that an anomaly stands for in a search without a promise."""

    def __init__(self, anomaly: Anomaly) -> None:
        allowed = f"{anomaly.name}: {anomaly.subject}"
        _, harmless = PATTERNS[anomaly.name]
        super().__init__(f"{anomaly}. It is harmless if {harmless}: then pass allow={allowed!r}")


class Allowed:
    """The anomalies that the caller allows: a name, or a name with a subject ("name: key*")."""

    def __init__(self, allow: str | Iterable[str]) -> None:
        texts = (allow,) if isinstance(allow, str) else tuple(allow)
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

    def unused(self) -> int:
        """Return the number of entries that no trial has needed."""
        return len(self._unused)

    def check_used(self) -> None:
        """Raise ``ContractError`` for an entry that no trial needed."""
        if self._unused:
            text = next(iter(self._unused))
            raise ContractError(f"allow={text!r}: no trial shows this anomaly: leave it out")


def find_anomalies(evidence: Evidence, allowed: Allowed) -> list[Anomaly]:
    """Return the anomalies of a trial that are not allowed, one for each name and subject."""
    anomalies: dict[tuple[str, str], Anomaly] = {}
    for name, (find, _) in PATTERNS.items():
        for subject, words in find(evidence):
            anomalies.setdefault((name, subject), Anomaly(name, subject, words))
    return [anomaly for anomaly in anomalies.values() if not allowed.covers(anomaly)]
