"""Trials in one piece: whether an order of calls leaves data that no order of whole strands leaves.

A trial whose only disturbances are switches is *serializable* if some trial in which each strand runs
in one piece leaves the same data and the same results. A client that leaves nothing counts as one
that did not run, such as one that finds its lock taken and gives up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

from ...core.errors import counted, cut
from ...core.touches import Touch
from ...kv.table import kinds
from ...kv.touches import KEY_OF_DB
from ..fakes.fingerprint import varied
from ..subject.programs import Program
from ..values.accesses import Access
from ..values.disturbances import CLOCK, SWITCHES
from ..values.names import StrandName
from ..values.plan import Place, Plan
from ..values.trial import Step, Trial

MOST_PIECES = 100
"""Maximum number of trials in one piece; a program that has more orders of strands is not judged."""
_LONGEST = 120
"""Maximum number of characters of data in words."""

Play: TypeAlias = Callable[[Plan, Collection[str]], Trial | None]
"""Plays a trial in one piece without some of the clients; returns None if the code cannot run so."""
Begin = Literal["", "start", "read"]
"""From where on no other client, worker or delivery runs before one ends: from nowhere, from its start,
or from the first data that it reads.
"""
_Outcome: TypeAlias = Mapping[tuple[str, ...], str]
"""What a trial leaves, by what it is: keys, records, messages and results."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """An order of strands, each of which runs to its end before another one begins.

    ``choices`` are the indexes of the strands that run where several can; 0 from then on. What a strand
    writes before it has read data depends on nothing, so others may also run between these writes, if
    pieces begin at the first read.
    """

    begin: Begin
    choices: tuple[int, ...] = ()

    def strategy(self) -> InOnePiece:
        return InOnePiece(self)

    def next(self, trial: Trial) -> Pieces | None:
        """Return the order that follows the one in which a trial ran; None after the last one."""
        choices: list[tuple[int, int]] = [*trial.lesson]
        while choices and choices[-1][0] + 1 >= choices[-1][1]:
            choices.pop()
        if not choices:
            return None
        *earlier, last = (choice for choice, _ in choices)
        return Pieces(self.begin, (*earlier, last + 1))


class InOnePiece:
    """A strategy that runs each strand to its end before another one begins."""

    places: frozenset[Place] = frozenset({"switch", "wake"})
    moves_time = False

    def __init__(self, order: Pieces) -> None:
        self._begin = order.begin
        self._choices = order.choices
        self._choices_made: list[tuple[int, int]] = []
        """The choices so far, each with the number of strands that could run."""
        self._latest = ""

    def must_go_on(self, has_only_written: Callable[[], bool]) -> bool:
        # A piece that begins at the first read may still let others run after a write.
        return self._begin == "start" or (self._begin == "read" and not has_only_written())

    def pick(self, steps: Sequence[Step], options: Sequence[str], place: Place) -> str:
        programs = {StrandName.of(option).program for option in options}
        goes_on = self._begin == "start" or len(programs) == 1
        if self._latest not in options or not goes_on:
            at = len(self._choices_made)
            choice = self._choices[at] if at < len(self._choices) else 0
            self._choices_made.append((choice, len(options)))
            self._latest = options[choice]
        return self._latest

    def lesson(self, steps: Sequence[Step], *, is_cut: bool) -> Sequence[tuple[int, int]]:
        """Return the choices that the trial has made, from which the next order follows."""
        return self._choices_made


class Serial:
    """The outcomes of a program's trials in one piece, which are played when a trial needs them."""

    def __init__(self, play: Play, programs: Sequence[Program]) -> None:
        self._play = play
        self._programs = frozenset(program.name for program in programs)
        self._clients = frozenset(program.name for program in programs if not program.is_worker)
        self._pieces: dict[tuple[frozenset[str], Begin], list[Trial] | None] = {}
        """The trials in one piece without some of the clients, from the start or from the first read on;
        None if not all orders can be played.
        """

    def differences(self, trial: Trial) -> Iterator[tuple[str, str]]:
        """Yield what a trial leaves that no trial in one piece leaves, and describe it."""
        if not _is_judged(trial):
            return
        idle = self._idle(trial)
        closest: list[tuple[str, str]] = []
        nobody = frozenset[str]()
        ways: list[tuple[frozenset[str], Begin]] = [
            (nobody, "start"), (idle, "start"), (nobody, "read"), (idle, "read")
        ]  # fmt: skip
        for way in dict.fromkeys(ways):
            pieces = self._in_one_piece(*way)
            if pieces is None:
                return
            for piece in pieces:
                differences = [*_compare(trial, piece, self._clients - idle)]
                if not differences:
                    return
                if not closest or len(differences) < len(closest):
                    closest = differences
        yield from closest

    def _in_one_piece(self, absent: frozenset[str], begin: Begin) -> Sequence[Trial] | None:
        if (absent, begin) not in self._pieces:
            self._pieces[absent, begin] = self._played(absent, begin)
        return self._pieces[absent, begin]

    def _played(self, absent: frozenset[str], begin: Begin) -> list[Trial] | None:
        pieces: list[Trial] = []
        order: Pieces | None = Pieces(begin)
        while order is not None:
            trial = self._play(Plan(orders=order), absent) if len(pieces) < MOST_PIECES else None
            if trial is None or {"redundant", "stuck", "numbers"} & trial.flags:
                return None
            pieces.append(trial)
            order = order.next(trial)
        return pieces

    def _idle(self, trial: Trial) -> frozenset[str]:
        """Return the clients that leave nothing: all that they wrote is as it was before."""
        changed = {*trial.effects.left, *trial.effects.left_with_ttl}
        indexes = {fake for fake, kind, _ in changed if not kind.startswith(KEY_OF_DB)}
        busy = {
            access.made_by.program
            for access in trial.effects.accesses
            if access.is_message
            or (_has_written(access) and any(_is_of(key, changed, indexes) for key in access.keys))
        }
        return self._programs - busy


def _has_written(access: Access) -> bool:
    """Return whether a write has changed something, or set a number to which another one had set it."""
    return access.changes or access.counts


def _is_of(key: Touch, changed: Collection[tuple[str, str, str]], indexes: Collection[str]) -> bool:
    """Return whether a key has changed, or an index has that holds a vector."""
    return key[:3] in changed or key.fake in indexes


def _is_judged(trial: Trial) -> bool:
    """Return whether only orders differ in a trial, and strands have run between each other's calls."""
    if trial.notes or trial.flags & {"stuck", "numbers"}:
        return False
    if any(fired.kind not in SWITCHES or fired.detail == CLOCK for fired in trial.fired):
        return False
    accesses = trial.effects.accesses
    turns = [name for name, _ in groupby(accesses, lambda access: access.made_by.program)]
    return len(turns) > len({*turns})


def _compare(trial: Trial, piece: Trial, clients: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what two trials leave that differs, and both in words."""
    caches = _invalidated(trial)
    outcome, serial_outcome = _outcome(trial, caches, clients), _outcome(piece, caches, clients)
    for subject in dict.fromkeys((*outcome, *serial_outcome)):
        kind, name = subject[0], subject[-1]
        text, serial_text = (
            side.get(subject, _MISSING[kind]) for side in (outcome, serial_outcome)
        )
        if text != serial_text:
            text, serial_text = cut(text, _LONGEST), cut(serial_text, _LONGEST)
            yield name, f"{name} {text}; it {serial_text} if each client runs in one piece"


_MISSING = {
    "data": "is as before", "changes": "is not set", "messages": "is not sent", "results": "is missing"
}  # fmt: skip
"""The words for what is left by one of two trials only, by its kind."""


def _outcome(
    trial: Trial, caches: Collection[tuple[str, str, str]], clients: Collection[str]
) -> _Outcome:
    """Return what a trial leaves, in words: data, how often they were set, messages and results."""
    outcome: dict[tuple[str, ...], str] = {}
    for data, content in (*trial.effects.left.items(), *trial.effects.left_with_ttl.items()):
        if data in caches or data in trial.effects.left:
            outcome["data", *data] = f"is {content}"
    changes: Counter[tuple[str, ...]] = Counter()
    messages: Counter[str] = Counter()
    for access in trial.effects.accesses:
        if access.is_message:
            messages[varied(f"{access.text} {access.content}")] += 1
        elif access.name in kinds.LOSES_UPDATES - kinds.DELETES_ANY and access.changes:
            # Two clients that overwrite the same data have both acted, although one is seen.
            changes.update(key[:3] for key in access.keys if trial.effects.remaining.get(key))
    for subject, number in changes.items():
        outcome["changes", *subject] = f"is set {counted(number, 'time')}"
    for message, number in messages.items():
        outcome["messages", message] = f"is sent {counted(number, 'time')}"
    for name, strand in trial.strands.items():
        if name in clients and strand.result is not None and " at 0x" not in strand.result:
            outcome["results", f"the result of {name}"] = f"is {varied(strand.result)}"
    return {tuple(map(varied, subject)): words for subject, words in outcome.items()}


def _invalidated(trial: Trial) -> set[tuple[str, str, str]]:
    """Return the keys that a strand deletes and another one writes, such as the copies of a cache:
    whether one is left, although it has a TTL, is no matter of time.
    """
    deleters: dict[Touch, set[str]] = {}
    writers: dict[Touch, set[str]] = {}
    for access in trial.effects.accesses:
        if access.call is None and access.is_write:
            roles = deleters if access.name in kinds.DELETIONS else writers
            for key in access.keys:
                roles.setdefault(key, set()).add(access.actor)
    return {
        key[:3]
        for key, roots in deleters.items()
        if any(writer not in roots for writer in writers.get(key, ()))
    }
