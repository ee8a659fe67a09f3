"""Forked processes that play schedules before the search asks for them.

The search itself stays in one process and decides one schedule after the other, so its verdict and
its first failing schedule are the same for any number of processes. A list of schedules that does not
depend on their outcomes, such as all with one event, is played ahead: each process has a copy of the
fakes and of the code. A run that is remarkable in any way is played again in the search's process,
so only what the search needs of all other runs is sent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pickle import PicklingError
from typing import TYPE_CHECKING, NamedTuple

from ..schedule import Schedule
from ..trial import Trial

if TYPE_CHECKING:
    from .player import Player

CAN_FORK = sys.platform.startswith("linux")
"""Whether a process with threads can be forked safely: libraries of macOS do not allow that."""
_WINDOW = 4
"""Number of schedules that are offered to each process, so that it need not wait for the next one."""
_MOST_BYTES = 64 * 1024


class _Job(NamedTuple):
    schedule: Schedule
    notes: bool

    @property
    def text(self) -> bytes:
        return f"{self.notes:d}{self.schedule}".encode()


def _job_of(text: bytes) -> _Job:
    return _Job(Schedule.parse(text[1:].decode()), text[:1] == b"1")


class Ahead:
    """The processes of one search; without any, it plays nothing."""

    def __init__(self, player: Player, processes: int) -> None:
        self._player = player
        self._missing = processes - 1
        """The number of processes that have not been started yet."""
        self._processes: dict[Connection, multiprocessing.process.BaseProcess] = {}
        self._offers: socket.socket | None = None
        self._taken: socket.socket | None = None
        """The other end of ``_offers``, from which whoever plays a schedule takes it."""
        self._offered: set[_Job] = set()
        """The schedules that have been offered, and have no result yet."""
        self._played: dict[_Job, Trial | None] = {}

    def through(self, schedules: Iterable[Schedule], *, notes: bool = False) -> Iterator[Schedule]:
        """Yield schedules, and play those that follow, which must not depend on earlier outcomes."""
        coming: deque[Schedule] = deque()
        source = iter(schedules)
        window = (self._missing + len(self._processes)) * _WINDOW
        while True:
            while len(coming) <= window and (schedule := next(source, None)) is not None:
                coming.append(schedule)
            if not coming:
                return
            schedule = coming.popleft()
            if coming:
                self._offer(_Job(schedule, notes) for schedule in coming)
            yield schedule

    def take(self, schedule: Schedule, *, notes: bool) -> Trial | None:
        """Return the run of a schedule, or None if it has to be played in this process."""
        job = _Job(schedule, notes)
        self._receive(waits=False)
        while job in self._offered and not self._withdraw(job):
            self._receive(waits=True)
        return self._played.pop(job, None)

    def close(self) -> None:
        """End the processes."""
        for end in (self._offers, self._taken, *self._processes):
            if end is not None:
                end.close()
        for process in self._processes.values():
            process.kill()  # It works with nothing but its memory.
            process.join()
        self._processes.clear()

    def _offer(self, jobs: Iterable[_Job]) -> None:
        while self._missing:
            self._start()
        for job in jobs:
            if job in self._offered or job in self._played or job.schedule in self._player.outcomes:
                continue
            assert self._offers is not None
            with contextlib.suppress(BlockingIOError):  # It is offered again soon.
                self._offers.send(job.text)
                self._offered.add(job)

    def _withdraw(self, job: _Job) -> bool:
        """Take back the oldest offer that no process has taken; return whether it is this one."""
        assert self._taken is not None
        try:
            withdrawn = _job_of(self._taken.recv(_MOST_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False
        self._offered.discard(withdrawn)
        return withdrawn == job

    def _receive(self, *, waits: bool) -> None:
        """Receive the results that are there; wait for the first one if that is asked."""
        # Connection.poll() measures time, which the exploration has stopped.
        poll = select.poll()
        by_fileno = {process.fileno(): process for process in self._processes}
        for fileno in by_fileno:
            poll.register(fileno, select.POLLIN)
        for fileno, _ in poll.poll(None if waits else 0) if by_fileno else ():
            process = by_fileno[fileno]
            try:
                job, trial = process.recv()
            except (EOFError, OSError):
                # The code has ended the process. Let it do that, or report it, in this one.
                self._processes.pop(process).join()
                self._offered.clear()
                continue
            self._offered.discard(job)
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
    """Play the offered schedules in a forked process, until the search ends."""
    for connection in unused:
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    player.after_fork()
    with contextlib.suppress(OSError):
        while offer := offers.recv(_MOST_BYTES):
            job = _job_of(offer)
            trial = _unremarkable(player, job)
            try:
                results.send((job, trial))
            except (TypeError, AttributeError, PicklingError):
                results.send((job, None))
    os._exit(0)  # without the finalizers of the test session


def _unremarkable(player: Player, job: _Job) -> Trial | None:
    """Play a schedule; return what the search needs of it, or None if it has to play it itself."""
    before = player.findings()
    try:
        trial = player.play(job.schedule, notes=job.notes)
    except BaseException:
        return None
    if trial.broken is not None or player.findings() != before:
        return None
    return trial.without_details()
