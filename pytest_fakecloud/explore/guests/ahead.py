"""Forked processes that play schedules before the search asks for them.

One process decides which schedules count, in an order that depends on nothing else, so its verdict
and its first failing schedule are the same for any number of processes. It plays few of them
itself: the processes, each of which has a copy of the fakes and of the code, play those that
probably follow. For a branch of the tree of interleavings, a process goes on with the branches
below it. Of a trial, only its ``Outline`` is sent. A trial that is remarkable in any way is played
again in the search's process.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from multiprocessing.connection import Connection

from ...core.errors import ContractError, shown
from ..search.dpor import Branch, InterleavingTree
from ..search.explorer import PlanPlayer
from ..search.player import Player
from ..search.tally import Tally
from ..values.plan import Plan
from ..values.trial import Outline, Trial
from ..without_guests import Processes

CAN_FORK = sys.platform.startswith("linux")
"""Whether a process with threads can be forked safely: libraries of macOS do not allow that."""
_WINDOW = 4
"""Number of schedules that are offered to each process, so that it need not wait for the next one."""
_MOST_BELOW = 8
"""Number of interleavings that a process plays of one part of their tree."""
_MOST_BYTES = 64 * 1024
"""Maximum size of an offer; the search's process plays a longer one itself."""


def number_of_processes(argument: object) -> int:
    """Return the number of processes; for "auto", the cores for each worker of pytest-xdist."""
    if argument == "auto":
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        return max(1, _cores() // workers) if CAN_FORK else 1
    if isinstance(argument, int) and not isinstance(argument, bool) and argument >= 1:
        return argument
    raise ContractError(
        f"processes={shown(argument)} is not a number of processes: pass 1 or more, or 'auto'"
    )


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ForkedProcesses(Processes):
    """Several processes that play the plans of a search or, if that is impossible, this one."""

    def __init__(self, number: int) -> None:
        self._number = number

    def plan_player(self, player: Player, tally: Tally, undisturbed: Trial) -> PlanPlayer:
        tally.one_process_reason = _reason_for_one_process(undisturbed)
        if tally.one_process_reason:
            return PlanPlayer(player, tally)
        return Ahead(player, tally, self._number)


def _reason_for_one_process(undisturbed: Trial) -> str:
    """Return why the search cannot use several processes, or an empty string."""
    if not CAN_FORK:
        return "only Linux can copy a process with threads"
    if undisturbed.notes:
        return f"a copy of the process would behave differently ({next(iter(undisturbed.notes))})"
    if any(where == "asgi" for where, _ in undisturbed.handlers):
        return (
            "an ASGI application has an event loop in a thread, which a copy of the process lacks"
        )
    if "numbers" in undisturbed.flags:
        return "the code draws random numbers, which differ with the schedules before"
    return ""


class Ahead(PlanPlayer):
    """Plays the trials of a search in its own process or, ahead of time, in other processes."""

    def __init__(self, player: Player, tally: Tally, processes: int) -> None:
        super().__init__(player, tally)
        self.processes = processes
        self._missing = processes
        """The number of processes that have not been started yet."""
        self._processes: dict[Connection, multiprocessing.process.BaseProcess] = {}
        self._offers: socket.socket | None = None
        self._offers_end: socket.socket | None = None
        """The other end of ``_offers``, from which the processes take what they play."""
        self._offered: dict[Plan, InterleavingTree | None] = {}
        """The plans that have been offered, and are not done yet, with the trees below them."""
        self._played: dict[Plan, Outline | None] = {}

    def offer(self, plan: Plan, upcoming: Iterator[Plan]) -> None:
        """Let the processes play plans, whatever the outcomes of those before them are.

        Each process also plays branches below the one that it gets, so they get fewer of them.
        """
        while self._missing:
            self._start()
        self._offer(plan)
        for number, following in enumerate(upcoming):
            if number >= self.processes * (_WINDOW if plan.strategy_factory is None else 1):
                return
            self._offer(following)

    def _offer(self, plan: Plan) -> None:
        """Let the processes, if there are any, play a plan that has not been offered yet."""
        factory = plan.strategy_factory
        is_known = factory is None and plan.schedule in self.tally.outcomes
        if is_known or plan in self._played or self._is_offered(plan):
            return
        if self._processes and self._offers is not None:
            with contextlib.suppress(OSError):  # It is offered again soon, or too long.
                self._offers.send(pickle.dumps(plan))
                self._offered[plan] = _tree_below(plan)

    def obtain(self, plan: Plan) -> Outline:
        return self.take(plan) or super().obtain(plan)

    def take(self, plan: Plan) -> Outline | None:
        """Return the outline of another process's trial; None if this process has to play the plan."""
        self._receive(waits=False)
        while plan not in self._played and self._is_offered(plan):
            self._receive(waits=True)
        trial = self._played.pop(plan, None)
        if trial is not None:
            self.tally.record(plan, trial)
        return trial

    def _is_offered(self, plan: Plan) -> bool:
        """Return whether the plan, or a tree that contains its branch, has been offered."""
        if plan in self._offered:
            return True
        branch = plan.strategy_factory
        return isinstance(branch, Branch) and any(
            tree and tree.contains(branch) for tree in self._offered.values()
        )

    def close(self) -> None:
        """End the processes."""
        for end in (self._offers, self._offers_end, *self._processes):
            if end is not None:
                end.close()
        for process in self._processes.values():
            process.kill()  # It works with nothing but its memory.
            process.join()
        self._processes.clear()

    def _receive(self, *, waits: bool) -> None:
        """Receive the results that are there; wait for the first one if that is asked."""
        if not self._processes:
            return
        # Connection.poll() measures time, which the exploration has stopped.
        poll = select.poll()
        by_fileno = {process.fileno(): process for process in self._processes}
        for fileno in by_fileno:
            poll.register(fileno, select.POLLIN)
        for fileno, _ in poll.poll(None if waits else 0):
            process = by_fileno[fileno]
            try:
                plan, trial, is_done = process.recv()
            except (EOFError, OSError):
                # The code has ended the process. Let it do that, or report it, in this one.
                self._processes.pop(process).join()
                self._offered.clear()
                continue
            if is_done:
                self._offered.pop(plan, None)
            else:
                self._played[plan] = trial

    def _start(self) -> None:
        self._missing -= 1
        if self._offers is None:
            self._offers, self._offers_end = socket.socketpair(
                socket.AF_UNIX, socket.SOCK_SEQPACKET
            )
            self._offers.setblocking(False)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        inherited = [self._offers, receiver, *self._processes]
        process = multiprocessing.get_context("fork").Process(
            target=_play_all,
            args=(PlanPlayer(self.player, self.tally), self._offers_end, sender, inherited),
            daemon=True,
        )
        with warnings.catch_warnings():
            # Python warns of other threads, but those of the search are idle now.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        sender.close()
        self._processes[receiver] = process


def _play_all(
    plan_player: PlanPlayer,
    offers: socket.socket,
    results: Connection,
    inherited: Iterable[socket.socket | Connection],
) -> None:
    """Play the offered plans in a forked process, until the search ends."""
    for connection in inherited:
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The child shares the position in a captured file of the parent, which reports the trials.
    sys.stdout = sys.stderr = io.StringIO()
    # The threads and the sockets of its parent are missing.
    plan_player.player.world.after_fork()
    with contextlib.suppress(OSError):
        while offer := offers.recv(_MOST_BYTES):
            plan = pickle.loads(offer)
            for played, trial in _played_for(plan_player, plan):
                try:
                    results.send((played, trial, False))
                except (TypeError, AttributeError, pickle.PicklingError):
                    results.send((played, None, False))
            results.send((plan, None, True))
    os._exit(0)  # without the finalizers of the test session


def _played_for(plan_player: PlanPlayer, plan: Plan) -> Iterator[tuple[Plan, Outline | None]]:
    """Play an offered plan or, for a branch, also some of those below it; yield what is played."""
    tree = _tree_below(plan)
    if tree is None:
        yield plan, _unremarkable(plan_player, plan)
        return
    for _ in range(_MOST_BELOW):
        branch = tree.next()
        if branch is None:
            return
        below = replace(plan, strategy_factory=branch)
        trial = _unremarkable(plan_player, below)
        yield below, trial
        if trial is None:
            return
        tree.learn(trial)


def _tree_below(plan: Plan) -> InterleavingTree | None:
    """Return the interleavings that a process plays for a plan: its branch, and those below it."""
    branch = plan.strategy_factory
    return InterleavingTree(branch) if isinstance(branch, Branch) else None


def _unremarkable(plan_player: PlanPlayer, plan: Plan) -> Outline | None:
    """Play a plan; return what the search learns from it, or None if it has to play it itself."""
    before = _findings(plan_player)
    try:
        trial = plan_player.obtain(plan)
    except BaseException:
        return None
    if trial.broken is not None or _findings(plan_player) != before:
        return None
    return Outline(**{each.name: getattr(trial, each.name) for each in fields(Outline)})


def _findings(plan_player: PlanPlayer) -> object:
    """Return a value that changes if a trial shows something that no trial has shown before."""
    learned, promises = plan_player.player.learned, plan_player.player.subject.promises
    anomalies, used = len(plan_player.tally.anomalies), len(learned.used_allowances)
    return anomalies, used, promises.reached(), learned.reads_order
