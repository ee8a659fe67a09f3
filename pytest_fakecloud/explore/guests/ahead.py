"""Forked processes that play schedules before the search asks for them.

One process decides which schedules count, in an order that depends on nothing else, so its verdict
and its first failing schedule are the same for any number of processes. It plays few of them
itself: the processes, each of which has a copy of the fakes and of the code, play those that
probably follow. For a branch of the tree of interleavings, a process goes on with the branches
below it. Only what the search needs of a trial is sent. A trial that is remarkable in any way is
played again in the search's process.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection

from ...core.errors import ContractError, shown
from ..schedule import Schedule
from ..search.dpor import Branch, Interleavings
from ..search.jobs import Job, Jobs, perform
from ..search.player import Player
from ..trial import Trial

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


def jobs_in_processes(processes: int, player: Player, undisturbed: Trial) -> Jobs:
    """Return what plays trials in several processes or, if that is impossible, in this one."""
    if processes > 1:
        player.tally.alone = _why_alone(undisturbed)
    return Jobs(player) if processes == 1 or player.tally.alone else Ahead(player, processes)


def _why_alone(undisturbed: Trial) -> str:
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


class Ahead(Jobs):
    """Plays the trials of a search in its own process or, ahead of time, in other processes."""

    def __init__(self, player: Player, processes: int) -> None:
        super().__init__(player)
        self.processes = processes
        self._missing = processes
        """The number of processes that have not been started yet."""
        self._processes: dict[Connection, multiprocessing.process.BaseProcess] = {}
        self._offers: socket.socket | None = None
        self._taken: socket.socket | None = None
        """The other end of ``_offers``, from which the processes take what they play."""
        self._offered: set[Job] = set()
        """The jobs that have been offered, and are not done yet."""
        self._played: dict[Job, Trial | None] = {}

    def through(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs, and play them and those that follow, which must not depend on earlier outcomes."""
        coming: deque[Job] = deque()
        source = iter(jobs)
        window = self.processes * _WINDOW
        while True:
            while len(coming) <= window and (job := next(source, None)) is not None:
                coming.append(job)
            if not coming:
                return
            self.offer(coming)
            yield coming.popleft()

    def below(self, tree: Interleavings) -> Iterator[Branch]:
        """Yield the branches of a tree, and play parts of it; the caller learns from each branch."""
        while (branch := tree.next()) is not None:
            following = itertools.islice(tree.upcoming(), self.processes)
            self.offer(Job(Schedule(), plan=plan) for plan in (branch, *following))
            yield branch

    def offer(self, jobs: Iterable[Job]) -> None:
        """Let the processes, if there are any, play jobs that have not been offered yet."""
        while self._missing:
            self._start()
        if not self._processes:
            return
        assert self._offers is not None
        for job in jobs:
            if job in self._played or (job.plan is None and job.schedule in self._player.outcomes):
                continue
            if self._part_with(job) is None:
                with contextlib.suppress(OSError):  # It is offered again soon, or too long.
                    self._offers.send(pickle.dumps(job))
                    self._offered.add(job)

    def play(self, job: Job) -> Trial:
        """Return the trial of a job, which another process may have played already."""
        trial = self.take(job)
        if trial is None:
            return perform(self._player, job)
        if "redundant" not in trial.flags:
            if job.plan is None:
                self._player.outcomes[job.schedule] = None
            self._player.tally.coverage.add(trial)
        return trial

    def take(self, job: Job) -> Trial | None:
        """Return a trial of another process, or None if the job has to be played in this one."""
        self._receive(waits=False)
        while job not in self._played and self._part_with(job) is not None:
            self._receive(waits=True)
        return self._played.pop(job, None)

    def _part_with(self, job: Job) -> Job | None:
        """Return the offer of a job, or of a part of a tree that contains its branch."""
        if job in self._offered or job.plan is None:
            return job if job in self._offered else None
        for offer in self._offered:
            if offer.plan is not None and offer.plan.contains(job.plan):
                return offer
        return None

    def close(self) -> None:
        """End the processes."""
        for end in (self._offers, self._taken, *self._processes):
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
                job, trial, is_done = process.recv()
            except (EOFError, OSError):
                # The code has ended the process. Let it do that, or report it, in this one.
                self._processes.pop(process).join()
                self._offered.clear()
                continue
            if is_done:
                self._offered.discard(job)
            else:
                self._played[job] = trial

    def _start(self) -> None:
        self._missing -= 1
        if self._offers is None:
            self._offers, self._taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._offers.setblocking(False)
        near, far = multiprocessing.Pipe(duplex=False)
        unused = [self._offers, near, *self._processes]
        process = multiprocessing.get_context("fork").Process(
            target=_play_all, args=(self._player, self._taken, far, unused), daemon=True
        )
        with warnings.catch_warnings():
            # Python warns of other threads, but those of the search are idle now.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        far.close()
        self._processes[near] = process


def _play_all(
    player: Player,
    offers: socket.socket,
    results: Connection,
    unused: Iterable[socket.socket | Connection],
) -> None:
    """Play the offered jobs in a forked process, until the search ends."""
    for connection in unused:
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    player.after_fork()
    with contextlib.suppress(OSError):
        while offer := offers.recv(_MOST_BYTES):
            job = pickle.loads(offer)
            for part in _parts(player, job):
                try:
                    results.send((*part, False))
                except (TypeError, AttributeError, pickle.PicklingError):
                    results.send((part[0], None, False))
            results.send((job, None, True))
    os._exit(0)  # without the finalizers of the test session


def _parts(player: Player, job: Job) -> Iterator[tuple[Job, Trial | None]]:
    """Play a job or, for a branch, also some of the branches below it; yield what is played."""
    if job.plan is None:
        yield job, _unremarkable(player, job)
        return
    tree = Interleavings(job.plan)
    for _ in range(_MOST_BELOW):
        branch = tree.next()
        if branch is None:
            return
        part = job._replace(plan=branch)
        trial = _unremarkable(player, part)
        yield part, trial
        if trial is None:
            return
        tree.learn(trial)


def _unremarkable(player: Player, job: Job) -> Trial | None:
    """Play a job; return what the search needs of it, or None if it has to play it itself."""
    before = player.findings()
    try:
        trial = perform(player, job)
    except BaseException:
        return None
    if trial.broken is not None or player.findings() != before:
        return None
    return trial.without_details()
