"""Calls of explored code, with their disturbances ("One call, in turn and awaited" in the map)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from ...cloud.fake import Fake, core_of
from ...core.errors import ContractError, Crash, report_failure
from ...http.messages import AnyResponse, ConnectionEffect, Proceed, Request
from ...kv.report.calls import SEVERAL
from ...kv.touches import text_of
from ..values.accesses import Access
from ..values.disturbances import PAUSES
from ..values.footprint import times_in, touches_of_request
from ..values.plan import SwitchKind
from ..values.trial import Line
from .call_disturbances import CallDisturbances, Target, faults_of_nodes, possible_disturbances
from .callers import Caller, Callers
from .decisions import Decisions
from .known_times import KnownTimes
from .part import Common, Part
from .pauses import Pauses
from .stacks import CallSites, describe_places
from .strand import Strand
from .workers import Workers

MOST_POINTS = 2_000
"""Maximum number of points of one strand; more count as an endless loop, at the next call."""
T = TypeVar("T")
_Rests = Generator[SwitchKind, None, None]
"""A generator that yields wherever the strand must give up its turn, and how. So the points before and
after a call are the same code for callers that block and for those that await.
"""


class Calls(Part):
    """Lets other strands run at the points of calls, and serves each call with its disturbances."""

    def __init__(
        self,
        common: Common,
        *,
        known_times: KnownTimes,
        call_sites: CallSites,
        callers: Callers,
        pauses: Pauses,
        decisions: Decisions,
        call_disturbances: CallDisturbances,
        workers: Workers,
    ) -> None:
        super().__init__(common)
        self._known_times = known_times
        self._call_sites = call_sites
        self._callers = callers
        self._pauses = pauses
        self._decisions = decisions
        self._call_disturbances = call_disturbances
        self._workers = workers

    def at_call(self, fake: Fake, request: Request, proceed: Proceed) -> AnyResponse:
        """Handle a request at its endpoint, in the strand's own thread or in the fake's."""
        caller = self._callers.caller_of(fake, request)
        try:
            if caller.strand is not None:
                self._turns.check_alive(caller.strand)
            match caller:
                case Caller("in turn", Strand() as strand):
                    with self._current_thread.serving(strand):
                        return self._serve_in_turn(strand, fake, request, proceed)
                case Caller("without turn", Strand() as strand):
                    with self._current_thread.serving(strand):
                        return self._serve_without_turn(strand, fake, request, proceed)
                case Caller("awaited", Strand() as strand, point=point):
                    with self._current_thread.serving(strand):
                        return self._serve(strand, point, fake, request, proceed)
                case Caller("unexplored", Strand() as strand):
                    self._callers.admit_unexplored(strand, self._fakes.now_us())
                    return self._serve_without_turn(strand, fake, request, proceed)
                case Caller("dropped"):
                    return ConnectionEffect("drop")
                case _:  # no point
                    if caller.strand is not None and self._script.plan.has_details:
                        self._log.silent_calls.append(request.call)
                    return proceed()
        except Crash:
            if caller.is_in_strand_thread and request.client is None:
                raise
            # The strand ends after this request, or another thread runs its code until its next turn.
            return ConnectionEffect("drop")

    def _serve_in_turn(
        self, strand: Strand, fake: Fake, request: Request, proceed: Proceed
    ) -> AnyResponse:
        """Serve a call between the points before and after it, at which other strands may run."""
        point = self._next_point(strand)
        for rest in self._approach(strand, point, fake, request):
            self._turns.yield_turn(strand, rest)
        response = self._serve(strand, point, fake, request, proceed)
        for rest in self._receive(strand, point):
            self._turns.yield_turn(strand, rest)
        return response

    def _serve_without_turn(
        self, strand: Strand, fake: Fake, request: Request, proceed: Proceed
    ) -> AnyResponse:
        """Serve a call at which no other strand can run, but which can have a fault."""
        point = strand.next_point()
        self._note_disturbances(strand, fake, request, may_wait=False)
        return self._serve(strand, point, fake, request, proceed)

    async def exchange(self, fake: Fake, send: Callable[[], T]) -> T:
        """Make an asynchronous request; let other tasks and strands run before and after it."""
        strand = self._current_thread.strand()
        if strand is None or strand.type != "task":
            return send()
        self._turns.check_alive(strand)
        point = self._next_point(strand)
        for rest in self._approach(strand, point, fake, None):
            await self._turns.yield_turn_async(strand, rest)
        with self._callers.awaiting(strand, point):
            response = send()  # comes to ``at_call()`` in this thread
        for rest in self._receive(strand, point):
            await self._turns.yield_turn_async(strand, rest)
        return response

    def _next_point(self, strand: Strand) -> int:
        """Return the number of a strand's next point; end the trial of a strand with too many."""
        point = strand.next_point()
        if point > MOST_POINTS:
            self._turns.fail_trial(
                ContractError(
                    f"{describe_places([strand])} has made {MOST_POINTS:,} calls, with the gaps in "
                    "pipelines, and goes on: explore() is for code that ends, so give its loop an end"
                )
            )
        return point

    def _approach(self, strand: Strand, point: int, fake: Fake, request: Request | None) -> _Rests:
        """Process the point before a call; yield wherever the strand must give up its turn."""
        may_wait = not self._fakes.clock.is_moving
        self._note_disturbances(strand, fake, request, may_wait=may_wait)
        if may_wait:
            yield from self._let_others_run(strand, point, fake)

    def _let_others_run(self, strand: Strand, point: int, fake: Fake) -> _Rests:
        """Yield for each pause of a point and, unless the fake is excluded, for a switch."""
        if disturbances := self._script.schedule.at(strand.scheduled_name, point):
            for disturbance in disturbances:
                if disturbance.kind in PAUSES and self._pauses.apply(strand, disturbance):
                    yield "switch"
        is_point = fake.name in self._script.subject.disturbable_fakes
        if is_point or self._decisions.has_switch(strand.scheduled_name, point):
            yield "switch"

    def _note_disturbances(
        self, strand: Strand, fake: Fake, request: Request | None, *, may_wait: bool
    ) -> None:
        if self._is_noted(fake):
            route = "" if request is None else request.call.route
            node_faults = () if request is None else faults_of_nodes(fake, request)
            target = Target(fake.fixture, route, node_faults, may_wait)
            self._pauses.note_point(strand, possible_disturbances(target))

    def _is_noted(self, fake: Fake) -> bool:
        """Return whether the points of calls of a fake are recorded."""
        disturbable_fakes = self._script.subject.disturbable_fakes
        return self._script.plan.notes_points and fake.name in disturbable_fakes

    def _receive(self, strand: Strand, point: int) -> _Rests:
        """Process the point before the code receives an answer; yield like ``_approach()``."""
        if self._fakes.clock.is_moving or strand.state == "ended":
            return
        if disturbances := self._script.schedule.at(strand.scheduled_name, point):
            for disturbance in disturbances:
                if disturbance.kind == "slow" and self._pauses.apply(strand, disturbance):
                    yield "late"
        if self._script.is_late:
            yield "late"

    def rejected(self, request: Request) -> None:
        """Add a call without valid credentials to the story; it has no point for disturbances."""
        if not self._script.plan.has_details:
            return
        strand = self._callers.of_rejected(request)
        if strand is not None:
            self._add_line(strand, request)

    def add_command_of_test(self, argv: Sequence[bytes]) -> None:
        """Add a command that the test itself executes to the story, before the one it interrupts."""
        strand = self._current_thread.executing()
        if strand is None:
            return
        lines, interrupted = self._log.lines, strand.line
        self._log.add_line("test", " ".join(map(text_of, argv)))
        call = None if interrupted is None else interrupted.call
        is_served = self._current_thread.is_served(strand)
        if is_served and interrupted and call and call.route not in SEVERAL:
            lines.insert(lines.index(interrupted), lines.pop())

    def at_gap(self, fake: Fake) -> None:
        """Let other strands run between two commands of a pipeline, as at a call."""
        strand = self._current_thread.executing()
        if strand is None or self._fakes.clock.is_moving:
            return
        if strand.type == "task" and self._current_thread.role().is_explored:
            # The request of a task that awaits is handled in the thread of its event loop. To rest here
            # would block the loop, and with it the other tasks.
            return
        point = strand.next_point()
        if self._is_noted(fake):
            self._pauses.note_point(strand)
        for rest in self._let_others_run(strand, point, fake):
            self._turns.yield_turn(strand, rest)

    def _serve(
        self, strand: Strand, point: int, fake: Fake, request: Request, proceed: Proceed
    ) -> AnyResponse:
        """Apply the disturbances of a call, add the call to the story, and return its outcome."""
        self._workers.note_call(strand, fake, request)
        if fake.fixture != "kv_server":  # which reports its commands
            self._known_times.note_data(times_in(request.body))
        planned = self._script.schedule.at(strand.scheduled_name, point)
        fault = self._call_disturbances.apply(planned, strand, fake, request) if planned else None
        line = strand.line = self._record(strand, point, fake, request)
        if (partition := self._call_disturbances.partition(strand, fake)) is not None:
            line.disturbances, line.words = (partition,), f"does not reach {fake.name}"
            return ConnectionEffect("drop")
        try:
            if fault is not None:
                return self._call_disturbances.serve(fault, fake, request, proceed, line)
            return proceed()
        finally:
            self._access_log.note_changes()

    def _record(self, strand: Strand, point: int, fake: Fake, request: Request) -> Line:
        """Add a call to the journal, the story and the accesses; return its line."""
        now, name = self._fakes.now_us(), strand.scheduled_name
        self._log.call_counts[strand.name] += 1
        app: Any = core_of(fake).app
        app.recorder.renumber(request.call, now)
        line = self._add_line(strand, request, point)
        if touches := touches_of_request(fake, request):
            self._access_log.touch(touches)
            subjects = tuple(touch.read for touch in touches if touch.fake)
            words = request.route, request.call.path
            writes = any(touch.writes for touch in touches)
            access = Access(name, line, words, subjects, (), writes, now, request.call)
            self._access_log.accesses.append(access)
        return line

    def _add_line(self, strand: Strand, request: Request, point: int = 0) -> Line:
        line = self._log.add_line(strand.scheduled_name, call=request.call)
        line.point = point
        if self._script.plan.has_details:
            lines: list[str] = []
            # A search for lines must not change the trial whose lines it adds.
            with report_failure("the line of a call could not be found", lines.append):
                lines += self._call_sites.of_call(strand, request)
            line.call_site = tuple(lines)
        return line
