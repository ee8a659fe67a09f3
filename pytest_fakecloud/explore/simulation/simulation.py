"""One trial of explored code under one schedule: its parts, and the start and the end of its strands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.errors import ContractError, Crash, broken_promise, ends_the_test
from ..subject.options import Subject
from ..subject.programs import check_has_run
from ..values.disturbances import CLOCK
from ..values.learned import Learned
from ..values.plan import Plan, Redundant
from ..values.schedule import Schedule
from ..values.trial import NOT_JUDGED, CloudState, Effects, StrandRecord, Trial, Wording
from .access_log import AccessLog
from .call_disturbances import CallDisturbances
from .callers import Callers
from .calls import Calls
from .clock import TrialClock
from .current_thread import ThreadInTrial
from .decisions import Decisions
from .delivery_strands import DeliveryStrands
from .known_times import KnownTimes
from .log import TrialLog
from .loops import Loops
from .operations import Operations
from .part import Common
from .pauses import Pauses
from .real_waits import RealWaits
from .scheduler import Scheduler
from .script import Script
from .sleepers import Sleepers
from .stacks import CallSites, describe_places, distinct_places
from .strand import Strand, Strands
from .strand_waits import StrandWaits
from .turns import MOST_CRASHES, Callbacks, Turns
from .watchdog import Watchdog
from .workers import MOST_STARTS, Workers

if TYPE_CHECKING:
    from ..world.world import World


class Simulation:
    """Runs clients, workers, deliveries and the clock under one schedule, one strand at a time.

    It makes the parts. Each gets what is ``Common`` to all and, by name, those that it calls, which are
    made before it. Only the ``Turns`` call later ones, through ``Callbacks``, and with the ``Watchdog``.
    What is replaced in the process, and the interceptors of the fakes, call the public parts.
    """

    def __init__(self, world: World, subject: Subject, plan: Plan, learned: Learned) -> None:
        self._world = world
        self._fakes = fakes = world.fakes
        self.script = script = Script(subject, plan, learned)
        self.strands = strands = Strands(subject.programs)
        self.turns = turns = Turns(world.threads, fakes.connections, strands)
        self.current_thread = current = ThreadInTrial(turns, strands, world.outsiders)
        self.access_log = access_log = AccessLog(fakes, script, current)
        self.log = log = TrialLog(fakes, script, access_log)
        common = Common(
            fakes=fakes,
            script=script,
            strands=strands,
            turns=turns,
            current_thread=current,
            log=log,
            access_log=access_log,
        )
        self.known_times = known_times = KnownTimes(fakes)
        self.operations = Operations(common)
        self.callers = Callers(common, outsiders=world.outsiders)
        self.loops = Loops(common)
        self.delivery_strands = DeliveryStrands(common)
        self._workers = Workers(common)
        self._sleepers = Sleepers(common)
        self._pauses = Pauses(common, known_times=known_times)
        self.real_waits = RealWaits(common, outsiders=world.outsiders, sleepers=self._sleepers)
        self.clock = clock = TrialClock(
            common, known_times=known_times, sleepers=self._sleepers, pauses=self._pauses
        )
        self._decisions = Decisions(common, clock=clock)
        self.strand_waits = StrandWaits(
            common, outsiders=world.outsiders, sleepers=self._sleepers, clock=clock
        )
        self.call_sites = CallSites(world.async_library, are_noted=plan.has_details)
        self.calls = Calls(
            common,
            known_times=known_times,
            call_sites=self.call_sites,
            callers=self.callers,
            pauses=self._pauses,
            decisions=self._decisions,
            call_disturbances=CallDisturbances(common),
            workers=self._workers,
        )
        self._scheduler = Scheduler(
            common,
            real_waits=self.real_waits,
            operations=self.operations,
            pauses=self._pauses,
            clock=clock,
            decisions=self._decisions,
            delivery_strands=self.delivery_strands,
            workers=self._workers,
        )

    def run_strands(self) -> None:
        """Run all strands to their end, and check the promises that apply to every step."""
        try:
            self._pauses.delay_starts()
            callbacks = Callbacks(
                advance=self._scheduler.advance,
                advance_meanwhile=self._scheduler.advance_meanwhile,
                run_code=self.run_code,
                end_strand=self.end_strand,
                abandon_strand=self.abandon_strand,
                note=self.log.note,
            )
            self.turns.run(callbacks, Watchdog(self.turns, self.real_waits))
        except Redundant:
            self.log.flags.add("redundant")
        finally:
            self._sleepers.end()
            self._close_connections(lambda s: s.crashed or s.host.crashed or s.root.crashed)
        self._fakes.lasting_events.end()
        self._fakes.deliveries.resume_queue_schedules()
        if "redundant" not in self.log.flags:
            self._end()
        self.access_log.note_changes()

    def _end(self) -> None:
        """Complete the steps and the history of a trial that has run to its end."""
        log = self.log
        if self.script.has_steps and log.broken is None:
            self._decisions.end_step((CLOCK,))
        if self.script.moves_clock and log.broken is None:
            self.clock.foresee()
        self.operations.sort_outcomes()
        for strand in self.strands:
            log.note_error(strand.error)

    def _close_connections(self, concerned: Callable[[Strand], bool]) -> None:
        """Close the connections of the strands that ``concerned`` selects, as if these had died."""
        connections = self._fakes.connections
        for link in [*connections.by_fileno.values()]:
            strand = self.callers.at_port(link.port)
            if strand is not None and concerned(strand):
                link.end()
        connections.sweep()

    def make_trial(self, state: CloudState | None = None) -> Trial:
        """Complete the log (its flag ``overlap``, and the sources of its lines), and return its trial.
        ``state`` are the data of the cloud at its end, if they are kept. Called before a check changes
        the data of the fakes.
        """
        log, plan, strategy = self.log, self.script.plan, self.script.strategy
        steps = self.access_log.steps
        if plan.has_details:
            places = distinct_places([line.call_site for line in log.lines])
            for line, source in zip(log.lines, places, strict=True):
                line.source = source
        if log.has_overlap():
            log.flags.add("overlap")
        results = {name: repr(result) for name, result in self.operations.history.results.items()}
        begun = {strand.name for strand in self.strands if strand.has_begun}
        errors = {s.name: s.error for s in self.strands if s.error is not None}
        names = dict.fromkeys((*log.call_counts, *sorted(begun), *errors))
        applied, effects = Schedule(log.applied), Effects()
        if "redundant" not in log.flags:
            effects = self.access_log.effects(applied, log.acknowledged)
        return Trial(
            verdict=NOT_JUDGED,
            applied=applied,
            points=tuple(log.points),
            strands={
                name: StrandRecord(log.call_counts[name], results.get(name)) for name in names
            },
            handlers=log.handlers,
            notes=tuple(log.notes),
            flags=frozenset(log.flags),
            lesson=None if strategy is None else strategy.lesson(steps),
            start_us=log.start_us,
            lines=tuple(log.lines),
            steps=tuple(steps),
            errors=errors,
            broken_in_run=log.broken,
            effects=effects,
            state=state,
            wording=Wording(self._fakes.deliveries.names(), log.silent_calls, log.idle_restarts),
        )

    # -- the start and the end of a strand

    def run_code(self, strand: Strand) -> object:
        """Run the code of a strand, and return what it returns or, for a coroutine, awaits."""
        if strand.type == "client":
            self.operations.begin_client(strand)
        result = self._world.awaited(strand.body())
        if strand.type != "delivery":
            check_has_run(result, strand.name)
        return result

    def end_strand(self, strand: Strand) -> None:
        """Record how a strand has ended; end the client of a crash, and start a failed worker again.
        Raises an exception that ends the test.
        """
        error = strand.error
        if isinstance(error, ContractError) and strand.type != "thread":
            raise error
        if (outcome := ends_the_test(error)) is not None:
            raise outcome
        if strand.crashed:
            strand.crash()
            self._close_connections(lambda other: other.root is strand.root)
        self.operations.store(strand)
        if strand.due is not None:
            self.delivery_strands.report(strand.scheduled_name, strand.due)
        if strand.crashed or (error is not None and broken_promise(error) is None):
            self._workers.leave_groups(strand)
            if strand.type == "worker" and strand.work.starts < MOST_STARTS:
                self._workers.start_again(strand, failed=True)

    def abandon_strand(self, strand: Strand) -> None:
        """Note that a crashed strand goes on, and end the tasks of its event loop."""
        note = f"{describe_places([strand])} caught its crash {MOST_CRASHES} times"
        self.log.note(f"{note}: its thread was abandoned. Do not catch BaseException")
        for task in self.strands:
            if task.type == "task" and task.host is strand:
                task.end()
                task.note_error(Crash())
