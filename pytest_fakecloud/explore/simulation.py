"""One run of explored code under one schedule: what could have happened, and what did."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.errors import ContractError, shown
from ..failures import broken_promise
from ..faults.kinds import lost
from ..http.messages import Effect, Request, Response, Serve
from .history import History, Operation, begin, begin_client, end
from .processes import Crash, Process, Turns
from .schedule import DELAY, Event, Kind, Schedule
from .world import HOLD_US, ROTATED_US, Due, World, refusal

if TYPE_CHECKING:
    from ..core.calls import Call
    from ..handle import Handle

__all__ = ["Line", "Point", "Program", "Run", "Simulation", "simulation"]

MOST_POINTS = 2_000
"""Calls of one process after which it is taken to have no end."""
MOST_STARTS = 12
"""How often a worker is started at most."""
_AT_CALLS: tuple[Kind, ...] = ("answer", "drop", "lose_answer", "duplicate", "crash")
simulation: ContextVar[Simulation | None] = ContextVar("simulation", default=None)
"""The run that the present code belongs to."""


@dataclass(frozen=True, slots=True)
class Program:
    """A function of the tester's to run as a process, and whether it is started again."""

    name: str
    function: Callable[[], object]
    is_worker: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What schedules may consist of: calls to which handles, and events of which kinds."""

    handles: frozenset[str]
    kinds: frozenset[Kind]


@dataclass(frozen=True, slots=True)
class Point:
    """A place where a schedule may deviate, and the deviations there are."""

    process: str
    number: int
    choices: Sequence[tuple[Kind, str]]

    def events(self) -> list[Event]:
        """The deviations as events."""
        return [Event(self.process, self.number, kind, detail) for kind, detail in self.choices]


@dataclass(slots=True)
class Line:
    """One thing that happened: a call of a process, or words; ``event`` when the schedule did it."""

    at_us: int
    process: str
    words: str = ""
    call: Call | None = None
    event: bool = False


@dataclass
class Run:
    """What came of one schedule.

    ``broken`` says that the promise did not hold; ``fired`` are the events that found their point.
    """

    schedule: Schedule
    broken: AssertionError | None = None
    points: list[Point] = field(default_factory=list)
    fired: list[Event] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    start_us: int = 0
    calls: int = 0
    errors: dict[str, BaseException] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    looks: set[str] = field(default_factory=set)


class Simulation:
    """Runs programs, the queue's deliveries and time under one schedule.

    By default a process goes on until it ends or sleeps; the one that gave way last is next, then
    clients in their order, deliveries as they fall due, workers, and at last time moves on.
    """

    def __init__(
        self, world: World, programs: Sequence[Program], schedule: Schedule, choice: Choice
    ) -> None:
        self._world = world
        self._choice = choice
        self._schedule = schedule
        self._turns = Turns(self, world)
        self._processes = [
            Process(one.name, "worker" if one.is_worker else "client", one.function)
            for one in programs
        ]
        self._parked: list[Process] = []
        self._wanted: Due | None = None
        self._mishaps: dict[str, tuple[str, ...]] = {}
        self._clients: dict[str, Operation] = {}
        self._ended = 0
        self._lock = threading.Lock()
        self.run = Run(schedule, start_us=world.now_us())
        self.history = History(world.cloud, str(schedule))

    def play(self) -> Run:
        """Run everything to its end; the promise is not looked at yet."""
        token = simulation.set(self)
        turns = self._turns = Turns(self, self._world)
        self._world.stage = self
        try:
            turns.run()
        finally:
            self._world.stage = None
            simulation.reset(token)
        self._world.settle()
        run = self.run
        run.ids = self._world.message_names()
        for process in self._processes:
            if process.error is not None:
                run.errors[process.name] = process.error
                run.broken = run.broken or broken_promise(process.error)
        return run

    # -- whose turn it is ------------------------------------------------------------------------

    def next_turn(self) -> Process | None:
        """The process that goes on; time moves where nobody can."""
        while True:
            now = self._world.now_us()
            if self._parked:
                return self._parked.pop()
            awake = [p for p in self._processes if p.state == "asleep" and p.wake_us <= now]
            if awake:
                return min(awake, key=lambda process: process.wake_us)
            process = self._new("client") or self._delivery() or self._new_worker()
            if process is not None:
                return process
            if not self._pass_time():
                return None

    def waiting(self) -> list[Process]:
        """The processes that have begun and wait for their turn."""
        return [p for p in self._processes if p.state in ("parked", "asleep")]

    def _new(self, role: str) -> Process | None:
        now = self._world.now_us()
        return next(
            (
                p
                for p in self._processes
                if p.state == "new" and p.role == role and p.wake_us <= now
            ),
            None,
        )

    def _new_worker(self) -> Process | None:
        # Last of all, when what they are to work on is there.
        if self._world.next_delivery_us(after_us=self._world.now_us()) is not None:
            return None
        if any(p.state == "asleep" for p in self._processes):
            return None
        if any(p.state == "new" and p.wake_us for p in self._processes):
            return self._new("worker")
        return self._new("worker") or self._worker_again()

    def _worker_again(self) -> Process | None:
        """A worker that had ended before there was all it is for; it would have gone on looking."""
        for process in self._processes:
            if process.role != "worker" or process.starts >= MOST_STARTS:
                continue
            own = [p for p in self._processes if p.role == "worker" and p.body is process.body]
            if process is not own[-1]:
                continue
            behind = self._is_behind(process)
            if behind:
                self._leave_groups(process)
            if behind or any(
                other.ended > process.ended and (other.role != "worker" or other.is_restart)
                for other in self._processes
                if other not in own
            ):
                return self._start_again(process)
        return None

    def _is_behind(self, process: Process) -> bool:
        """Whether a consumer was given what it has not committed; it comes again to the next one."""
        groups = {(broker, group) for broker, group, _ in process.members}
        return any(
            group in broker.groups() and broker.group(group).total_lag for broker, group in groups
        )

    def _start_again(self, process: Process, *, failed: bool = False) -> Process:
        starts = process.starts + 1
        name = f"{process.name.partition('/')[0]}/{starts}"
        again = Process(name, "worker", process.body, starts=starts, is_restart=failed)
        if failed:
            # As those do that start processes again: each time after twice as long.
            again.wake_us = self._world.now_us() + 1_000_000 * min(2 ** (process.starts - 1), 30)
        self._processes.append(again)
        if not failed:
            self.run.looks.add(name)
        return again

    def _pass_time(self) -> bool:
        """Move on to what is next; whether there is anything."""
        now = self._world.now_us()
        found = [p.wake_us for p in self._processes if p.state in ("asleep", "new")]
        # What is due by now, and has not begun, waits for something else, such as a paused queue.
        found.append(self._world.next_delivery_us(after_us=now) or 0)
        target = min((at for at in found if at > now), default=None)
        if target is None:
            return False
        self._world.move_to(target)
        return True

    def _delivery(self) -> Process | None:
        while due := self._world.due():
            one = self._first_of(due)
            self._note_beginning(one, due)
            kinds: tuple[Kind, ...] = ("duplicate", "crash_after_answer")
            hit = [e for e in self._schedule.at(one.name, 0) if e.kind in kinds]
            self._mishaps[one.message.id] = tuple(event.kind for event in hit)
            body = one.begin()
            if body is None:
                continue
            self.run.fired += hit
            process = Process(one.name, "delivery", body, one)
            self._processes.append(process)
            self._say(one.name, _delivered(one, hit), event=bool(hit))
            return process
        return None

    def _first_of(self, due: list[Due]) -> Due:
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            for each in due:
                if each.name == wanted.name:
                    return each
        one = due[0]
        for event in self._schedule.at(one.name, 0):
            if event.kind == "switch":
                for each in due[1:]:
                    if each.name == event.detail:
                        self.run.fired.append(event)
                        self._say(each.name, f"comes before {one.name}", event=True)
                        return each
        return one

    def _note_beginning(self, one: Due, due: list[Due]) -> None:
        choices: list[tuple[Kind, str]] = [("switch", each.name) for each in due if each is not one]
        choices += [("duplicate", ""), ("crash_after_answer", "")]
        self._note(one.name, 0, choices)

    def begins(self, process: Process) -> None:
        """A process begins: a client is an operation too."""
        if process.role == "client":
            self._clients[process.name] = begin_client(self.history, process.name)

    def ended(self, process: Process) -> None:
        """A process has ended: what it returned is kept, and a worker that failed starts again."""
        history = self.history
        self._ended += 1
        process.ended = self._ended
        if process.crashed:
            history.crashed.append(process.name)
        if process.role != "delivery":
            history.results[process.name] = process.result
            if process.error is not None:
                history.errors[process.name] = process.error
        if process.role == "client":
            operation = self._clients[process.name]
            operation.error = process.error
            if process.error is None and not process.crashed:
                end(history, operation, process.result)
        if process.due is not None:
            attempt = process.due.message.attempts[-1]
            if attempt.state != "delivered":
                said = attempt.status if attempt.status is not None else "nothing"
                again = ", so it will come again" if process.due.message.state == "RETRY" else ""
                self._say(process.name, f"answered {said}{again}")
        failed = process.crashed or (
            process.error is not None and broken_promise(process.error) is None
        )
        if failed:
            self._leave_groups(process)
        if failed and process.role == "worker" and process.starts < MOST_STARTS:
            self._start_again(process, failed=True)

    def _leave_groups(self, process: Process) -> None:
        for broker, group, instance in sorted(process.members, key=lambda one: one[1:]):
            try:
                broker.expire(group, instance)
            except ContractError:
                continue  # it was no member any more
            self._say(process.name, f"the session of {instance} in {group} ended")

    # -- what calls say --------------------------------------------------------------------------

    def at_call(self, handle: Handle, request: Request, serve: Serve) -> Response:
        """A request has come to its endpoint; what becomes of it."""
        process = self._turns.current
        if process is None:
            return serve()
        if process.crashed or self._turns.failure is not None:
            return self._end(process, request)
        with self._lock:
            process.points += 1
            number = process.points
        if number > MOST_POINTS:
            self._turns.fail(
                ContractError(
                    f"{process.name} has made {MOST_POINTS} calls and goes on: explore() is for "
                    "code that ends, so give it a loop with an end"
                )
            )
        self.run.calls += 1
        self._join(process, handle, request)
        if handle.name in self._choice.handles:
            self._note_call(process, number, handle, request)
        fault = ""
        for event in self._schedule.at(process.name, number):
            # Of several faults of one call the first befalls it.
            if event.kind in _WORDS and not fault:
                fault = event.kind
            elif event.kind in _WORDS or not self._before(process, event, handle, request):
                continue
            self.run.fired.append(event)
            if process.crashed:
                return self._end(process, request)
        line = Line(self._world.now_us(), process.name, call=request.call)
        self.run.lines.append(line)
        if not fault:
            return serve()
        line.event, line.words = True, _WORDS[fault]
        request.call.fault = fault
        return _befallen(fault, handle, serve)

    def at_place(self, handle: Handle) -> None:
        """Between two commands of a pipeline others may have their turn."""
        process = self._turns.current
        if process is None or process.crashed or not self._may_give_way():
            return
        process.points += 1
        choices = [*self._others(process), *self._moves()]
        self._note(process.name, process.points, choices)
        for event in self._schedule.at(process.name, process.points):
            if event.kind in ("jump", "nearly", "switch") and self._before(
                process, event, None, None
            ):
                self.run.fired.append(event)

    def _end(self, process: Process, request: Request) -> Response:
        if request.client is not None and request.client[1]:
            # Over a socket the caller is elsewhere; what it tries from now on comes to nothing.
            return Effect("drop")
        raise Crash

    def _join(self, process: Process, handle: Handle, request: Request) -> None:
        if handle.fixture == "broker" and request.route in ("consume", "commit"):
            group, instance = request.params.get("group"), request.params.get("instance")
            if group and instance:
                process.members.add((handle, group, instance))

    def _note_call(self, process: Process, number: int, handle: Handle, request: Request) -> None:
        choices: list[tuple[Kind, str]] = []
        if self._may_give_way():
            choices += self._others(process)
        choices += self._moves()
        if handle.fixture == "broker" and request.route in ("consume", "commit"):
            choices += [("rebalance", ""), ("redeliver", "")]
        if handle.fixture == "vector_index" and request.route.startswith(("upsert", "update")):
            choices.append(("hold_pending", ""))
        # Over the Redis protocol, nothing but the client itself can send a command again.
        once = request.method == "RESP"
        choices += [(kind, "") for kind in _AT_CALLS if not (once and kind == "duplicate")]
        choices += [("delay", str(DELAY)), ("rotate_token", "")]
        self._note(process.name, number, choices)

    def _note(self, process: str, number: int, choices: list[tuple[Kind, str]]) -> None:
        kinds = self._choice.kinds
        allowed = [choice for choice in choices if choice[0] in kinds]
        self.run.points.append(Point(process, number, allowed))

    def _others(self, process: Process) -> list[tuple[Kind, str]]:
        now = self._world.now_us()
        found = [
            p.name
            for p in self._processes
            if p is not process and (p.state == "parked" or (p.state == "new" and p.wake_us <= now))
        ]
        found += [due.name for due in self._world.due()]
        return [("switch", name) for name in found]

    def _moves(self) -> list[tuple[Kind, str]]:
        if self._world.clock.driving or self._world.next_due_us() is None:
            return []
        return [("jump", ""), ("nearly", "")]

    def _may_give_way(self) -> bool:
        # In a loop of several, in a server's thread, or while code drives the clock, others would
        # wait for whoever waits.
        return self._turns.here and not self._world.clock.driving

    # -- what the schedule does ------------------------------------------------------------------

    def _before(self, process: Process, event: Event, handle: Any, request: Request | None) -> bool:
        """Let an event happen that comes before its call; whether it could."""
        kind = event.kind
        if kind in ("jump", "nearly", "delay"):
            return self._move(process, event)
        if kind == "switch":
            return self._switch(process, event.detail)
        if handle is None or request is None:
            return False
        if kind == "crash":
            process.crashed = True
            self._say(process.name, "crashes", event=True)
            return True
        if kind == "rotate_token":
            self._world.rotate(handle)
            text = (
                f"the token of {handle.name} is rotated, and known to the code after "
                f"{seconds(ROTATED_US)}"
            )
            self._say(process.name, text, event=True)
            return True
        if kind == "hold_pending":
            if handle.fixture != "vector_index":
                return False
            self._world.hold(handle)
            text = f"changes of {handle.name} stay pending for {HOLD_US // 1_000_000} s"
            self._say(process.name, text, event=True)
            return True
        if kind in ("rebalance", "redeliver"):
            return self._disturb(process, kind, handle, request)
        return False

    def _disturb(self, process: Process, kind: str, broker: Any, request: Request) -> bool:
        group = request.params.get("group")
        if broker.fixture != "broker" or not group or group not in broker.groups():
            return False
        if kind == "rebalance":
            broker.rebalance(group)
            self._say(process.name, f"{group} rebalances", event=True)
            return True
        try:
            again = broker.redeliver(group)
        except ContractError:
            return False  # nothing was delivered yet
        if not again:
            return False
        self._say(process.name, f"the last commit of {group} is lost", event=True)
        return True

    def _move(self, process: Process, event: Event) -> bool:
        clock = self._world.clock
        if clock.driving:
            return False
        now = clock.now_us()
        if event.kind == "delay":
            target: int | None = now + int(event.detail or DELAY) * 1_000_000
        else:
            target = self._world.next_due_us()
            if target is not None and event.kind == "nearly":
                target -= 1000
        if target is None or target <= now:
            return False
        self._world.move_to(target)
        words = (
            f"{seconds(target - now)} pass"
            if event.kind != "delay"
            else (f"its call is {seconds(target - now)} late")
        )
        self._say(process.name, words, event=True)
        return True

    def _switch(self, process: Process, name: str) -> bool:
        if not self._may_give_way():
            return False
        target = next(
            (p for p in self._processes if p.name == name and p.state in ("new", "parked")), None
        )
        if target is process:
            return False
        if target is None:
            self._wanted = next((due for due in self._world.due() if due.name == name), None)
            if self._wanted is None:
                return False
            target = self._delivery()
            if target is None:
                return False
        if target in self._parked:
            self._parked.remove(target)
        self._say(target.name, f"has its turn before {process.name} goes on", event=True)
        process.state = "parked"
        self._parked.append(process)
        self._turns.give_way(target)
        return True

    def faults_of(self, message_id: str) -> tuple[str, ...]:
        """What is to go wrong with the delivery that begins."""
        return self._mishaps.pop(message_id, ())

    # -- sleep -----------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> bool:
        """Sleep on the cloud's clock, while others have their turn."""
        turns = self._turns
        process = turns.current
        if process is None or not turns.here:
            return False
        if turns.failure is not None or process.crashed:
            raise Crash
        if self._world.clock.driving or seconds <= 0:
            return True
        process.wake_us = self._world.now_us() + math.ceil(seconds * 1e6)
        process.state = "asleep"
        turns.give_way(None)
        return True

    def pass_time(self, seconds: float) -> bool:
        """Let time pass where nobody else can have a turn."""
        if self._turns.current is None:
            return False
        if not self._world.clock.driving and seconds > 0:
            self._world.move_to(self._world.now_us() + math.ceil(seconds * 1e6))
        return True

    # -- for the story and for checks ------------------------------------------------------------

    def _say(self, process: str, words: str, *, event: bool = False) -> None:
        self.run.lines.append(Line(self._world.now_us(), process, words, event=event))

    def began(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operation:
        """An operation of a client has begun."""
        process = self._turns.current
        client = process.name if process is not None else ""
        return begin(self.history, client, name, args, kwargs)


_WORDS: dict[str, str] = {
    "answer": "is refused with 503",
    "drop": "never arrives",
    "lose_answer": "is done, and its answer is lost",
    "duplicate": "arrives twice",
}


def _befallen(kind: str, handle: Handle, serve: Serve) -> Response:
    if kind == "answer":
        return refusal(handle)
    if kind == "drop":
        return Effect("drop")
    if kind == "lose_answer":
        return lost(serve())
    serve()
    return serve()


def _delivered(due: Due, hit: Sequence[Event]) -> str:
    words = f"comes to {_place(due.message.url)}"
    kinds = {event.kind for event in hit}
    if "duplicate" in kinds:
        words += ", twice"
    if "crash_after_answer" in kinds:
        words += ", and the queue forgets that it was answered"
    return words


def _place(url: Any) -> str:
    return url if isinstance(url, str) else shown(url)


def seconds(span_us: int) -> str:
    """A span in words."""
    return f"{span_us / 1e6:.6g} s"
