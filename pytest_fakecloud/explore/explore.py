"""Run code under many schedules and report the smallest one that breaks a promise."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ..core.errors import ContractError, brief, broken_promise, counted, shown
from ..core.timers import Duration, duration_us
from ..every_failure import chosen_handles, names_of
from .anomalies import Allowed
from .patches import explored
from .programs import Runs, kinds_of, may_assert, programs_of, schedule_to_replay
from .promises import Promises
from .result.cause import find_cause
from .result.exploration import BrokenPromiseError, Exploration
from .result.story import line_text, lookups_of_run, reason
from .run import Line, Run
from .schedule import KINDS, SWITCHES, Kind, Schedule
from .search.ahead import CAN_FORK, Ahead
from .search.explorer import Explorer, Replays, hypothesis, replay
from .search.player import Budget, Player, Tally, budget_of
from .simulation.state import Subject
from .trust import examine

if TYPE_CHECKING:
    from ..base_cloud import BaseCloud

RUNS = 1_000
"""Default budget: the number of runs of one ``explore()`` call."""

Checks = Callable[..., object] | Sequence[Callable[..., object]] | None
"""One check, a list of checks, or None."""


class ExploreOptions(TypedDict, total=False):
    """The options of ``explore()``."""

    workers: Runs
    services: str | Iterable[str] | None
    kinds: Kind | Sequence[Kind] | None
    setup: Callable[[], object] | None
    budget: int | Duration
    seed: int | str | None
    schedule: str | None
    processes: int
    process_time: bool | None
    patience: Duration
    horizon: Duration | None
    trust: bool
    allow: str | Iterable[str]


def explore(
    cloud: BaseCloud,
    run: Runs,
    check: Checks = None,
    *,
    workers: Runs = (),
    services: str | Iterable[str] | None = None,
    kinds: Kind | Sequence[Kind] | None = None,
    setup: Callable[[], object] | None = None,
    budget: int | Duration = RUNS,
    seed: int | str | None = None,
    schedule: str | None = None,
    processes: int = 1,
    process_time: bool | None = None,
    patience: Duration = "1h",
    horizon: Duration | None = None,
    trust: bool = True,
    allow: str | Iterable[str] = (),
) -> Exploration:
    """Run code under many schedules; raise an error with the smallest one that breaks a promise.

    A schedule is a list of events: faults, crashes, orders of calls, slow clients, repeated deliveries
    (see ``schedule.Kind``). Before each run, the fakes return to their baseline. Queues deliver their
    messages. An ``AssertionError`` of ``check`` or of the code breaks the promise; any other exception
    of the code means that this client gave up.

    - ``run``: the code, a function (plain or asynchronous), or several that run concurrently as
      separate clients.
    - ``check``: a function that is called at the end of each run, with the ``History`` if it takes an
      argument; a promise such as ``once("key")``; or a list of them.
    - ``workers``: functions such as consumers, which start after the clients and are restarted when
      they fail.
    - ``services``: the fixtures or fakes whose calls can have events (default: all).
    - ``kinds``: the kinds of events (default: all).
    - ``setup``: a function that is called before each run, to reset state outside the fakes.
    - ``budget``: a number of runs, or wall-clock time such as ``"10s"``.
    - ``seed``: determines the random choices (default: the cloud's seed).
    - ``schedule``: the only schedule to run, as a failure prints it.
    - ``processes``: the number of processes that run schedules (Linux). The result does not depend on
      it, but what the code and the checks keep outside of the fakes stays in each process.
    - ``process_time``: whether ``time.time()`` follows the clock (default: if time-machine is
      installed).
    - ``patience``: how long a client may be slow in one run; a delivery may be slow until its timeout.
    - ``horizon``: how long after the start a queue's schedules fire (default: they fire three times).
    - ``trust``: whether to try if the promise notices lost writes, after the search.
    - ``allow``: anomalies that do no harm here, such as ``"lost update"`` or ``"lost update: views"``.

    Without ``check``, and without assertions in the code, an anomaly breaks the promise.

    Raises ``BrokenPromiseError``; the error of the undisturbed run; exceptions that end a test, such as
    ``pytest.skip()``; and ``ContractError`` if the code makes no call or cannot be explored, or if
    nothing that was requested could be tried.
    """
    __tracebackhide__ = True
    if asyncio._get_running_loop() is not None:
        raise ContractError(
            "explore() cannot run in an event loop: use await cloud.aio.explore(...)"
        )
    hypothesis()
    programs = programs_of(run, workers)
    if setup is not None and not callable(setup):
        raise ContractError(f"setup={shown(setup)} is not a function")
    if not isinstance(processes, int) or isinstance(processes, bool) or processes < 1:
        raise ContractError(
            f"processes={shown(processes)} is not a number of processes: pass 1 or more"
        )
    promises = Promises(check)
    allowed_anomalies = Allowed(allow)
    given = schedule_to_replay(schedule, programs)
    allowed = budget_of(budget)
    asked = () if kinds is None else names_of("kinds", kinds)
    asserts = bool(promises.given) or any(may_assert(program.function) for program in programs)
    seed = cloud.seed if seed is None else seed
    with explored(cloud, programs, process_time=process_time, seed=seed) as world:
        subject = Subject(
            world,
            programs,
            promises,
            world.threads,
            world.awaited,
            handles=frozenset(handle.name for handle in chosen_handles(cloud, services)),
            kinds=kinds_of(kinds),
            patience_us=duration_us(patience),
            horizon_us=None if horizon is None else duration_us(horizon),
        )
        player = Player(world, subject, setup, allowed_anomalies)
        player.tally.has_promise = asserts
        if given is not None:
            _replay(player, given)
        else:
            undisturbed = _search(player, allowed, seed, processes)
            _check_budget(player.tally, allowed)
            _check_covered(player, asked)
            promises.finish()
            allowed_anomalies.check_used()
            if trust and asserts:
                player.tally.trust = examine(player, undisturbed)
    return Exploration(player.tally, asked if asked or given is not None else KINDS)


def _replay(player: Player, schedule: Schedule) -> None:
    __tracebackhide__ = True
    tally = player.tally
    tally.given = schedule
    player.is_last = True
    if not tally.has_promise and [*schedule]:
        player.play(Schedule())  # with which patterns compare the run
    run = player.play(schedule, keep=True, stacks=True)
    missed = [event for event in schedule if event not in run.fired]
    if run.broken is not None:
        run.schedule = schedule.without(missed)
        raise _broken_schedule(player, run) from run.broken
    if missed:
        workers = "|".join(re.escape(event.strand) for event in missed)
        starts = sorted(one for one in run.strands if re.fullmatch(rf"({workers})/\d+", one))
        again = f"{starts[0]} began after a failure, and counts its own calls. " if starts else ""
        raise ContractError(
            f"these events of the schedule were not applied: {', '.join(map(str, missed))}. {again}The "
            "code may have changed, or makes fewer calls: run explore() again without schedule="
        )
    tally.drawn = 1


def _search(player: Player, budget: Budget, seed: int | str, processes: int) -> Run:
    """Search for a schedule that breaks the promise; raise ``BrokenPromiseError`` if there is one.

    Returns the undisturbed run.
    """
    __tracebackhide__ = True
    undisturbed = player.play(Schedule(), notes=True, stacks=True, shows=True)
    _check_undisturbed(player, undisturbed)
    _check_repeats(player, undisturbed, "the second time")
    uses_other_services = any(line.call and line.call.service != "kv" for line in undisturbed.lines)
    if not (player.tally.has_promise or undisturbed.accesses or uses_other_services):
        raise ContractError(
            "nothing can fail: there is no check=, the code asserts nothing, and it reads and writes "
            "no data of a fake. Pass check=, a function that asserts what must hold after a run"
        )
    player.tally.coverage.kinds.clear()
    player.world.note_unwritten(undisturbed)
    if processes > 1:
        player.tally.alone = _why_alone(undisturbed)
    with contextlib.closing(Ahead(player, 1 if player.tally.alone else processes)) as player.ahead:
        broken = Explorer(player, undisturbed, budget, seed).search()
    if broken is None and not player.tally.has_promise and player.tally.anomalies:
        player.is_last = True
        _, schedule = next(iter(player.tally.anomalies.values()))
        broken = player.play(Schedule.parse(schedule), stacks=True)
    if broken is None:
        _check_repeats(player, undisturbed, "after the search")
        return undisturbed
    replays = replay(player, broken)
    if replays.run is None:
        raise ContractError(
            f"the schedule {broken.schedule} broke the promise ({broken.broken}), but not in "
            f"{replays.total} further runs of it: the code depends on a state outside the fakes. "
            f"{'; '.join(['Reset that state in setup=', *broken.notes])}"
        )
    raise _broken_schedule(player, replays.run, replays) from replays.run.broken


def _why_alone(undisturbed: Run) -> str:
    """Return why the search cannot use several processes, or an empty string."""
    if not CAN_FORK:
        return "only Linux can copy a process with threads"
    if undisturbed.notes:
        return f"a copy of the process would behave differently ({next(iter(undisturbed.notes))})"
    if any(where == "asgi" for where, _ in undisturbed.handler_outcomes):
        return (
            "an ASGI application has an event loop in a thread, which a copy of the process lacks"
        )
    if undisturbed.draws_numbers:
        return "the code draws random numbers, which differ with the schedules before"
    return ""


def _broken_schedule(
    player: Player, run: Run, replays: Replays | None = None
) -> BrokenPromiseError:
    undisturbed = None
    if run.fired and not run.is_stuck:
        undisturbed = player.play(Schedule(), stacks=True)
    run.cause = find_cause(
        run, undisturbed, partial(player.play, stacks=True), player.world.state_of
    )
    return BrokenPromiseError(run, player.tally, undisturbed, replays=replays)


def _check_undisturbed(player: Player, run: Run) -> None:
    __tracebackhide__ = True
    for name, error in run.errors.items():
        # Raise the code's own error first, because it explains more than the broken promise.
        if broken_promise(error) is None:
            error.add_note(
                f"raised by {name} in the undisturbed run, to which no event was applied: "
                "catch it in the client if it is expected"
            )
            raise error
    if run.broken is not None:
        again = run if run.is_stuck else player.play(Schedule(), keep=True, stacks=True)
        shown_run = again if again.broken is not None else run
        raise BrokenPromiseError(shown_run, player.tally) from run.broken
    if not run.calls:
        raise ContractError("the code made no call to any fake, so there is nothing to explore")


def _check_repeats(player: Player, first: Run, when: str) -> None:
    """Raise ``ContractError`` if another undisturbed run makes other calls or gets other answers.

    ``when`` completes the sentence, such as "the second time".
    """
    __tracebackhide__ = True
    second = player.play(Schedule(), stacks=True)
    # Without the process's time, arguments and answers contain wall-clock times.
    has_content = player.world.process_time is not None
    pairs = itertools.zip_longest(first.call_lines, second.call_lines)
    for number, (one, other) in enumerate(pairs, 1):
        if not (one and other and _content(one, has_content) == _content(other, has_content)):
            was = f"was '{_call_text(one, first)}'" if one else "did not exist"
            now = f"'{_call_text(other, second)}'" if other else "there was none"
            if one and other and was == f"was {now}":
                now = f"the same except for {_difference(one, other)},"
            found = f"call {number} {was}, and {'was ' if other and not one else ''}{now} {when}"
            raise _remembers(found, {**first.notes, **second.notes})
    if first.broken is None and second.broken is not None:
        raise _remembers(f"the promise held, and was broken {when} ({reason(second.broken)})", {})


def _remembers(difference: str, notes: Iterable[str]) -> ContractError:
    text = (
        f"two runs in which no event was applied differ: {difference}. The code remembers an earlier "
        "run, for example in a cache, a counter or a client that it keeps, or depends on something "
        "outside the fakes: create it within the explored functions, or reset it in setup="
    )
    return ContractError("; ".join([text, *notes]))


def _content(line: Line, has_content: bool) -> tuple[object, ...]:
    call = line.call
    assert call is not None
    key = line.strand, call.handle, call.route
    if not has_content:
        return key
    # Compare bytes, because a body that the journal has cut refuses comparisons.
    sent, answer = bytes(call.request_body), bytes(call.response_body)
    return *key, call.method, call.target, sent, call.status, call.outcome, answer


def _difference(one: Line, other: Line) -> str:
    """Describe the first difference of two calls whose lines in a story are alike."""
    assert one.call is not None
    assert other.call is not None
    for part in ("target", "request_body", "status", "outcome", "response_body"):
        before, after = getattr(one.call, part), getattr(other.call, part)
        if isinstance(before, bytes):
            before, after = bytes(before), bytes(after)
            pairs = enumerate(zip(before, after, strict=False))
            at = next((at for at, (one_byte, other_byte) in pairs if one_byte != other_byte), 0)
            before, after = before[max(0, at - 20) : at + 60], after[max(0, at - 20) : at + 60]
        if before != after:
            return (
                f"its {part.replace('_', ' ')}, which had {shown(before)} and then {shown(after)}"
            )
    return "its route"


def _call_text(line: Line, run: Run) -> str:
    return f"{line.strand}: {line_text(line, lookups_of_run(run))}"


def _check_budget(tally: Tally, budget: Budget) -> None:
    """Raise ``ContractError`` if a time budget ended before the search tried any event."""
    tried_something = tally.singles or not tally.all_singles or tally.orders > 1
    if budget.began is None or tried_something or tally.is_exhaustive:
        return
    raise ContractError(
        f"budget={shown(budget.given)} allowed only {counted(tally.tried, 'schedule')}, and none of "
        f"the {tally.all_singles:,} with one event: pass a larger budget=, fewer kinds=, or less code"
    )


def _check_covered(player: Player, asked: Sequence[str]) -> None:
    """Raise ``ContractError`` if the promise held only because too little was explored.

    That is if a kind of event never happened, or if no destination handler was called successfully.
    """
    tally, found = player.tally, player.tally.coverage.possible
    if not tally.tried:
        raise ContractError(
            f"no schedule was possible: the code has no point for {', '.join(asked) or 'any event'}. "
            "Pass more clients (for switches), other kinds=, or other services="
        )
    possible = found | SWITCHES if tally.orders or found & SWITCHES else found
    missing = [kind for kind in asked if kind not in possible]
    if missing:
        raise ContractError(
            f"{', '.join(missing)} cannot happen in this code: leave it out of kinds=; "
            f"the possible kinds are: {', '.join(sorted(found, key=KINDS.index))}"
        )
    handlers = [
        route
        for handle in player.world.cloud.fakes()
        if handle.fixture == "queue"
        for route in cast("Any", handle).destinations.routes()
        if route._where == "call"
    ]
    if handlers and not tally.coverage.succeeded and not asked:
        raise ContractError(
            f"no handler was ever called: nothing was delivered to {handlers[0].prefix}. Publish "
            "to its URL within run=, or remove the handler"
        )
    for (where, url), has_succeeded in tally.coverage.succeeded.items():
        if not has_succeeded:
            raise ContractError(
                f"each call of the handler given to destinations.{where}({brief(url)}) raised an "
                "exception, also in the undisturbed run, so the promise was never tested with it. "
                "Correct the handler; if it is meant to fail, return 500"
            )
