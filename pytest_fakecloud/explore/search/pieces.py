"""Trials in one piece: each client, worker and delivery runs to its end before another one begins.

They show what the code leaves if nothing happens at the same time, with which ``judge.serial`` compares
other trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.errors import ContractError
from ..judge.serial import differences, idle_programs, is_compared
from ..subject.options import Subject
from ..subject.promises import Promises
from ..values.names import StrandName
from ..values.plan import PieceBegin, Plan, SwitchKind
from ..values.trial import Step, Trial
from ..world.world import World
from .capture import TrialCapture

MOST_PIECES = 100
"""Maximum number of trials in one piece; code that has more orders is not judged."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """An order of clients, workers and deliveries, each of which ends before another one begins.

    ``choices`` are the indexes of the strands that run where several can; 0 from then on. What a client
    writes before it has read data depends on nothing, so others may also run between these writes, if
    pieces begin at the first read.
    """

    begin: PieceBegin
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
    """A strategy that runs each client, with its tasks and threads, worker and delivery in one piece."""

    switch_kinds: frozenset[SwitchKind] = frozenset({"switch", "wake"})
    moves_clock = False

    def __init__(self, order: Pieces) -> None:
        self._order = order
        self._choices_made: list[tuple[int, int]] = []
        """The choices so far, each with the number of strands that could run."""
        self._latest = ""

    def pick(self, steps: Sequence[Step], options: Sequence[str], kind: SwitchKind) -> str:
        programs = {StrandName.of(option).program for option in options}
        goes_on = self._order.begin == "start" or len(programs) == 1
        if self._latest not in options or not goes_on:
            at = len(self._choices_made)
            choice = self._order.choices[at] if at < len(self._order.choices) else 0
            self._choices_made.append((choice, len(options)))
            self._latest = options[choice]
        return self._latest

    def lesson(self, steps: Sequence[Step]) -> Sequence[tuple[int, int]]:
        """Return the choices that the trial has made, from which the next order follows."""
        return self._choices_made


class PiecePlayer:
    """Plays the trials in one piece, when another trial has to be compared with them."""

    def __init__(self, world: World, subject: Subject, capture: TrialCapture) -> None:
        self._world = world
        self._subject = subject
        self._capture = capture
        programs = subject.programs
        self._programs = frozenset(program.name for program in programs)
        self._clients = frozenset(program.name for program in programs if not program.is_worker)
        self._played: dict[tuple[frozenset[str], PieceBegin], list[Trial] | None] = {}
        """The trials in one piece without some of the clients, from the start or from the first read on;
        None if not all orders can be played.
        """

    def differences(self, trial: Trial) -> Sequence[tuple[str, str]]:
        """Return what a trial leaves that no trial in one piece leaves, each with a description."""
        if not is_compared(trial):
            return ()
        idle = idle_programs(trial, self._programs)
        closest: list[tuple[str, str]] = []
        nobody = frozenset[str]()
        ways: list[tuple[frozenset[str], PieceBegin]] = [
            (nobody, "start"), (idle, "start"), (nobody, "read"), (idle, "read")
        ]  # fmt: skip
        for way in dict.fromkeys(ways):
            if way not in self._played:
                self._played[way] = self._play_all(*way)
            pieces = self._played[way]
            if pieces is None:
                return ()
            for piece in pieces:
                different = [*differences(trial, piece, self._clients - idle)]
                if not different:
                    return ()
                if not closest or len(different) < len(closest):
                    closest = different
        return closest

    def _play_all(self, absent: frozenset[str], begin: PieceBegin) -> list[Trial] | None:
        pieces: list[Trial] = []
        order: Pieces | None = Pieces(begin)
        while order is not None:
            trial = self._play(Plan(strategy_factory=order, in_pieces_from=begin), absent)
            if trial is None or {"redundant", "stuck", "numbers"} & trial.flags:
                return None
            pieces.append(trial)
            order = order.next(trial)
            if order is not None and len(pieces) == MOST_PIECES:
                return None
        return pieces

    def _play(self, plan: Plan, absent: frozenset[str]) -> Trial | None:
        """Play a trial without some clients; return None if that fails."""
        programs = [program for program in self._subject.programs if program.name not in absent]
        subject = replace(self._subject, programs=programs, promises=Promises(None))
        # The data of the compared trial remain, for those that read them after ``Player.play()``.
        left = self._world.cloud.snapshot()
        with self._capture.discarding(plan):
            try:
                return self._world.play_unjudged(subject, plan)[0]
            except ContractError:
                return None
            finally:
                self._world.cloud.restore(left)
