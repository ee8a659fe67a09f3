"""Trials in one piece: each client, worker and delivery runs to its end before another one begins.

They show what the code leaves if nothing happens at the same time, with which ``judge.serial`` compares
other trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from ...core.errors import ContractError
from ..judge.serial import differences, idle_programs, is_compared
from ..subject.options import Subject
from ..subject.promises import Promises
from ..values.accesses import Access
from ..values.learned import Learned
from ..values.names import StrandName
from ..values.plan import Plan, Redundant, Strategy, SwitchKind
from ..values.trial import Step, Trial
from ..world.world import World
from .capture import TrialCapture

MOST_ORDERS = 100
"""Maximum number of trials in one piece; code that has more orders is not judged."""

Begin: TypeAlias = Literal["start", "read"]
"""From where on nothing else runs until a client ends: its start, or the first data that it reads."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order of clients, workers and deliveries, each of which ends before another one begins.

    ``choices`` are the indexes of the strands that run, at each place where another strand has to be
    chosen, also if only one can run; 0 from then on. What a client writes before it has read data
    depends on nothing, so others may run between these writes if nothing else runs from the first read
    on.
    """

    begin: Begin
    choices: tuple[int, ...] = ()

    def strategy(self) -> InOnePiece:
        return InOnePiece(self)

    def next(self, trial: Trial) -> Order | None:
        """Return the order that follows the one in which a trial ran; None after the last one."""
        choices: list[tuple[int, int]] = [*trial.lesson]
        while choices and choices[-1][0] + 1 >= choices[-1][1]:
            choices.pop()
        if not choices:
            return None
        *earlier, last = (choice for choice, _ in choices)
        return Order(self.begin, (*earlier, last + 1))


class InOnePiece(Strategy):
    """A strategy that runs each client, with its tasks and threads, worker and delivery in one piece."""

    switch_kinds: frozenset[SwitchKind] = frozenset({"switch", "wake"})
    moves_clock = False

    def __init__(self, order: Order) -> None:
        self._order = order
        self._choices_made: list[tuple[int, int]] = []
        """The choices so far, each with the number of strands that could run."""
        self._latest = ""

    def allowed(
        self, options: Sequence[str], last_root: str, accesses: Sequence[Access]
    ) -> Sequence[str]:
        """Return the options of the client, worker or delivery that ran last, unless it has ended.
        Raises ``Redundant`` if it waits while others could run.
        """
        may_let_run = self._order.begin == "read" and _has_only_written(last_root, accesses)
        if not last_root or may_let_run:
            return options
        own = [option for option in options if StrandName.of(option).root == last_root]
        if not own:
            raise Redundant
        return own

    def pick(self, steps: Sequence[Step], options: Sequence[str], kind: SwitchKind) -> str:
        programs = {StrandName.of(option).program for option in options}
        # If others may run between the first writes of a client, it does not go on by itself: the next
        # strand is chosen again at each step.
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


def _has_only_written(root: str, accesses: Iterable[Access]) -> bool:
    """Return whether a client, worker or delivery has written data of fakes and read none."""
    own = [access for access in accesses if access.made_by.root == root]
    return bool(own) and all(access.is_write and access.name != "consume" for access in own)


class SerialPlayer:
    """Plays the trials in one piece, when another trial has to be compared with them."""

    def __init__(self, world: World, subject: Subject, capture: TrialCapture) -> None:
        self._world = world
        self._subject = subject
        self._capture = capture
        self._programs = frozenset(program.name for program in subject.programs)
        self._clients = self._programs - subject.workers
        self._played: dict[tuple[frozenset[str], Begin], list[Trial] | None] = {}
        """The trials in one piece without some of the clients, from the start or from the first read on;
        None if not all orders can be played.
        """

    def unserial_differences(self, trial: Trial) -> Sequence[tuple[str, str]]:
        """Return what a trial leaves that no trial in one piece leaves, each with a description."""
        if not is_compared(trial):
            return ()
        idle = idle_programs(trial, self._programs)
        closest: list[tuple[str, str]] = []
        nobody = frozenset[str]()
        ways: list[tuple[frozenset[str], Begin]] = [
            (nobody, "start"), (idle, "start"), (nobody, "read"), (idle, "read")
        ]  # fmt: skip
        for way in dict.fromkeys(ways):
            if way not in self._played:
                self._played[way] = self._play_all(*way)
            serial_trials = self._played[way]
            if serial_trials is None:
                return ()
            for serial_trial in serial_trials:
                different = [*differences(trial, serial_trial, self._clients - idle)]
                if not different:
                    return ()
                if not closest or len(different) < len(closest):
                    closest = different
        return closest

    def _play_all(self, absent: frozenset[str], begin: Begin) -> list[Trial] | None:
        serial_trials: list[Trial] = []
        order: Order | None = Order(begin)
        while order is not None:
            trial = self._play(Plan(strategy_factory=order), absent)
            if trial is None or {"redundant", "stuck", "numbers"} & trial.flags:
                return None
            serial_trials.append(trial)
            order = order.next(trial)
            if order is not None and len(serial_trials) == MOST_ORDERS:
                return None
        return serial_trials

    def _play(self, plan: Plan, absent: frozenset[str]) -> Trial | None:
        """Play a trial without some clients; return None if that fails."""
        programs = [program for program in self._subject.programs if program.name not in absent]
        subject = replace(self._subject, programs=programs, promises=Promises(None))
        # The data of the compared trial remain, for those that read them after ``Player.play()``.
        left = self._world.cloud.snapshot()
        with self._capture.discarding(plan):
            try:
                return self._world.play_unjudged(subject, plan, Learned())[0]
            except ContractError:
                return None
            finally:
                self._world.cloud.restore(left)
