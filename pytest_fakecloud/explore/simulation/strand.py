"""Strands of explored code (clients, workers, deliveries, tasks, threads), their states and names."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ...core.errors import Crash, is_crash
from ..fakes.deliveries import DueDelivery
from ..subject.programs import Program
from ..values.names import StrandName
from ..values.plan import SwitchKind
from ..values.trial import Line
from .rest import NOT_WAITING, Carrier, RequestThread, StrandThread, Waiting

if TYPE_CHECKING:
    from .loops import EventLoop

StrandType = Literal["client", "worker", "delivery", "task", "thread"]
CarrierT = TypeVar("CarrierT", bound=Carrier)
State = Literal["new", "running", "blocked", "parked", "waiting", "ended"]
_UNKNOWN = -1
"""The identifier of a thread of the code that has not begun."""


@dataclass(slots=True)
class Work:
    """The starts of a worker, and the first and last call of any root strand, by number.

    ``follows_failure``: whether the start before has failed; otherwise the worker looks for new work.
    """

    starts: int = 1
    follows_failure: bool = False
    first_call: int = 0
    last_call: int = 0
    consumers: set[tuple[Any, str, str]] = field(default_factory=set)
    """The consumers by broker, group and instance."""


@dataclass(slots=True)
class PauseState:
    """The pauses of a strand that the schedule contains."""

    until_us: int = 0
    """The end of the current pause, in which the strand cannot run, or 0."""
    lets_others_first: bool = False
    """Whether all others that can run come first, after a pause of all strands or until data are due."""
    total_us: int = 0
    """Microseconds by which pauses, and moves of the clock, have made the strand slower."""
    deadline_us: int | None = None
    """The latest end of a pause of a delivery."""


@dataclass(eq=False)
class Strand:
    """A sequence of steps in a trial: a client, worker, delivery, task or thread.

    A task of ``ann`` has a name such as ``ann:add``, and a thread ``ann+add``. ``relay/2`` is the
    second start of a worker, and ``delivery1/2`` the second attempt of a delivery.
    """

    name: str
    type: StrandType
    body: Callable[[], object] = lambda: None
    """The code, unless a thread or an event loop of the code runs it."""
    due: DueDelivery | None = None
    parent: InitVar[Strand | None] = None
    """The strand that started this thread, or whose event loop runs this task."""
    scheduled_name: str = field(init=False)
    """The name in schedules and steps: an event loop has one of its own while it has a main task, which
    is then meant by the name of their client.
    """
    root: Strand = field(init=False)
    """The client, worker or delivery to which the strand belongs."""
    host: Strand = field(init=False)
    """The strand whose thread runs it: for a task, the strand of its event loop."""
    is_daemon: bool = False

    _state: State = field(default="new", init=False)
    switch_kind: SwitchKind = "switch"
    line: Line | None = None
    """The line of the story of the latest call."""
    has_begun: bool = False
    points: int = 0
    """Number of calls and gaps of pipelines so far."""
    crashed: bool = False
    crashes: int = 0
    """Number of times that ``Crash`` was raised in the strand's code."""
    result: object = None
    error: BaseException | None = None

    # The conditions under which a parked or waiting strand can run.
    waiting: Waiting = NOT_WAITING
    pause: PauseState = field(default_factory=PauseState)
    rest_number: int = 0
    """The number of the strand's latest rest among those of all strands."""

    # What makes the names and the numbers of the strand the same in every trial.
    locks_created: int = 0
    random: Random | None = None

    thread: StrandThread = field(default_factory=StrandThread)
    """The thread that runs the code; for a task, that of its event loop."""
    work: Work = field(default_factory=Work)
    loop: EventLoop | None = None
    """The event loop that runs in the strand's thread."""
    main_task: Strand | None = None
    carrier: Carrier = field(init=False)
    """What holds the code until the turn: the thread, unless a task lets its event loop go on."""

    def __post_init__(self, parent: Strand | None) -> None:
        self.scheduled_name = self.name
        self.root = self if parent is None else parent.root
        self.host = self
        if self.type == "task":
            assert parent is not None
            self.host, self.thread = parent, parent.thread
        self.carrier = self.thread

    @contextlib.contextmanager
    def waits_for_real(self) -> Iterator[None]:
        """Allow the block to wait for a thread of the fakes or for another process."""
        self.thread.real_waits += 1
        try:
            yield
        finally:
            self.thread.real_waits -= 1

    # -- the state, which only these methods change ("The states of a strand" in the map)

    @property
    def state(self) -> State:
        """A *running* strand has the turn, or its event loop has. A *blocked* one has lost the turn,
        although its code may go on at any time. A *parked* strand can have the turn unless it is paused
        or held, one that is *waiting* needs its condition or its time for that. A *new* strand may have
        a time, too.
        """
        return self._state

    def _become(self, state: State, *before: State) -> None:
        """Change the state, which is one of those ``before``. Code of an ended strand crashes."""
        if self._state == "ended":
            raise Crash
        if self._state not in before:
            raise RuntimeError(f"{self.name} was {self._state}: please report this as a bug")
        self._state = state

    def start_at(self, at_us: int) -> None:
        """Begin at a time, or later."""
        self._become("new", "new")
        self.waiting = Waiting(wake_us=at_us)

    def begin(self) -> None:
        """Run for the first time: in a thread of the pool, or as a task of an event loop."""
        self._become("running", "new")
        self.has_begun = True

    def park(self, kind: SwitchKind, number: int) -> None:
        """Be ready to go on from a point; ``number`` counts how often strands have begun to rest."""
        self._become("parked", "running", "blocked")
        self.switch_kind, self.rest_number, self.host.rest_number = kind, number, number

    def wait(self, waiting: Waiting, number: int) -> None:
        """Wait for a condition or a time; ``number`` is that of ``park()``."""
        self._become("waiting", "running", "blocked")
        self.switch_kind, self.waiting = "wake", waiting
        if not waiting.is_of_loop:
            self.rest_number = self.host.rest_number = number

    def resume(self) -> None:
        """Go on, because it is the strand's turn. Its wait and its pause are over."""
        self._become("running", "new", "parked", "waiting")
        self.waiting, self.pause.until_us, self.pause.lets_others_first = NOT_WAITING, 0, False
        self.has_begun = True

    def block(self) -> None:
        """Lose the turn, because the code is blocked by something that is not explored."""
        self._become("blocked", "running")

    def go_on(self) -> None:
        """Go on without a turn of its own: a task that is cancelled, or that ends before its request, or
        a blocked strand beside which no other can run.
        """
        self._become("running", "running", "blocked", "parked", "waiting")

    def end(self) -> None:
        self._state = "ended"

    # -- what changes beside the state

    def pause_until(self, until_us: int, span_us: int, *, lets_others_first: bool) -> None:
        """Do not run until a time, which is a span from now, and perhaps after all others then."""
        self.pause.until_us, self.pause.lets_others_first = until_us, lets_others_first
        self.slow_down(span_us)

    def slow_down(self, span_us: int) -> None:
        """Count a span as time for which the strand was kept from running, unless it is new."""
        if self._state != "new":
            self.pause.total_us += span_us

    def crash(self) -> None:
        """End the client, worker or delivery: this strand, and all others of its root as they go on."""
        self.crashed = self.root.crashed = True

    def note_error(self, error: BaseException) -> None:
        """Note the exception that ended the strand's code: a crash, or an error of its own."""
        if is_crash(error):
            self.crashed = True
        else:
            self.error = error

    def next_point(self) -> int:
        self.points += 1
        return self.points

    def start_loop(self, loop: EventLoop) -> Strand | None:
        """Run an event loop in the thread; return its main task, a new strand, unless there is one. The
        task has the name of this strand, whose scheduled name is that of its loop until that ends.
        """
        self.loop = loop
        if self.main_task is not None:
            return None
        main = Strand(self.name, "task", parent=self, points=self.points)
        main.begin()
        self.main_task = main
        self.scheduled_name = StrandName.of(self.name).loop()
        return main

    def end_loop(self) -> None:
        self.loop = None
        if self.main_task is not None:
            self.points = self.main_task.points
            self.main_task, self.scheduled_name = None, self.name

    # -- what holds the code

    def release(self) -> None:
        """Let a thread go on that waits for the turn, because the strand or the trial ends."""
        if self.host is self or isinstance(self.carrier, RequestThread):
            self.carrier.resume()

    @contextlib.contextmanager
    def carried_by(self, carrier: CarrierT) -> Iterator[CarrierT]:
        """Let something else than the thread hold the code, which is that of a task, in the block."""
        self.carrier = carrier
        try:
            yield carrier
        finally:
            self.carrier = self.thread

    # -- whether it can run

    def is_ready(self, now_us: int) -> bool:
        """Return whether the strand has something to do now: its time has come, or its condition is
        true, if it waits. ``can_run()`` says whether a pause or its event loop keeps it from that.
        """
        match self._state:
            case "parked":
                return True
            case "waiting":
                ready, wake_us = self.waiting.ready, self.waiting.wake_us
                return (wake_us is not None and wake_us <= now_us) or (
                    ready is not None and ready()
                )
            case "new":
                return (self.waiting.wake_us or 0) <= now_us
        return False

    def can_run(self, now_us: int) -> bool:
        """Return whether the strand can have the turn now."""
        return not self._is_held() and not self.is_paused(now_us) and self.is_ready(now_us)

    def can_crash(self) -> bool:
        """Return whether the strand can have the turn to end because its client has crashed."""
        return not self._is_held() and self._state in ("parked", "waiting")

    def _is_held(self) -> bool:
        """Return whether an event loop keeps the strand from its turn, because another of its tasks
        runs: a task that awaits ``redis.get("k")`` goes on when all tasks of the loop wait. One that
        calls ``time.sleep(1)`` blocks the loop, and is not held.
        """
        return self.carrier.lets_loop_run and not self.host._has_idle_loop()

    def _has_idle_loop(self) -> bool:
        """Return whether the event loop of the thread waits, so that its tasks can have the turn."""
        return self._state == "waiting" and self.waiting.is_of_loop

    def next_us(self, now_us: int) -> int | None:
        """Return the time at which a pause, a wait or the time before its start ends, or None."""
        if self.is_paused(now_us):
            return self.pause.until_us
        return self.waiting.wake_us if self.state in ("waiting", "new") else None

    def is_paused(self, now_us: int) -> bool:
        return self.pause.until_us > now_us

    def is_waiting_for_other_thread(self) -> bool:
        """Return whether the strand waits for a lock, or for the end of a thread."""
        return self.state == "waiting" and self.waiting.is_for_other_thread


class Strands(list[Strand]):
    """All strands of one trial, in the order in which they were created."""

    def __init__(self, programs: Sequence[Program]) -> None:
        super().__init__(
            Strand(program.name, "worker" if program.is_worker else "client", program.function)
            for program in programs
        )
        self.tasks: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
        self.created_by: dict[str, int] = {}
        """The index of the step that created a strand or began a delivery, by its name."""
        self.ended_earlier: list[Strand] = []
        """The strands that had ended before the latest one was created."""
        self._names = {program.name for program in programs}

    def add(self, strand: Strand) -> Strand:
        self.ended_earlier = [other for other in self if other.state == "ended"]
        self.append(strand)
        return strand

    def new_thread(self, parent: Strand, thread: threading.Thread, created_by: int) -> Strand:
        """Add the strand of a thread that a strand starts in a step."""
        function = getattr(getattr(thread, "_target", None), "__name__", "").strip("_")
        name = self._new_name(StrandName.of(parent.root.name).thread, function, "thread")
        self.created_by[name] = created_by
        started = StrandThread(_UNKNOWN, thread)
        child = Strand(name, "thread", parent=parent, is_daemon=thread.daemon, thread=started)
        return self.add(child)

    def registered(self, host: Strand, loop: EventLoop, task: object) -> Strand:
        """Return the strand of a task in the event loop of a strand; add it at the first call."""
        strand = self.tasks.get(task)
        if strand is None:
            new_name = StrandName.of(host.root.name).task
            name = self._new_name(new_name, loop.function_of(task), "task")
            strand = self.add(Strand(name, "task", parent=host))
            strand.begin()
            self.tasks[task] = strand
        return strand

    def _new_name(self, named: Callable[[str], str], function: str, otherwise: str) -> str:
        """Return a name that no strand has, after the name of a function if it is an identifier."""
        name = named(function if function.isidentifier() else otherwise)
        names = itertools.chain([name], (f"{name}{number}" for number in itertools.count(2)))
        free_name = next(candidate for candidate in names if candidate not in self._names)
        self._names.add(free_name)
        return free_name
