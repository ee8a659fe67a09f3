"""The schedules that the search tries, and their order."""

from __future__ import annotations

import contextlib
import itertools
import selectors
import socket
import threading
import time
import types
from typing import Any

import pytest
from upstash_redis import Redis

from pytest_fakecloud import Cloud, ContractError, History, KVServer
from pytest_fakecloud.explore.explore import player_for
from pytest_fakecloud.explore.fakes.connections import Connections
from pytest_fakecloud.explore.search.explorer import Explorer, Phase, PlanPlayer, Share
from pytest_fakecloud.explore.search.shrinking import minimal, smallest
from pytest_fakecloud.explore.search.sources import NoPlan, Source
from pytest_fakecloud.explore.search.store import key_of
from pytest_fakecloud.explore.search.tally import Coverage, Tally, budget_of
from pytest_fakecloud.explore.simulation.current_thread import ThreadBetweenTrials
from pytest_fakecloud.explore.simulation.simulation import Simulation
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.subject.programs import programs_of
from pytest_fakecloud.explore.values.plan import Plan
from pytest_fakecloud.explore.values.schedule import Schedule
from pytest_fakecloud.explore.values.trial import FailingTrial, Outline
from pytest_fakecloud.explore.world.asyncio_loops import FakeTimeLoop

from .conftest import failure, holds, outline


def test_the_window_of_truncated_seconds_is_found_from_a_whole_second(
    cloud: Cloud, redis: Redis
) -> None:
    sent: list[float] = []

    def send() -> None:
        for number in range(4):
            at = time.time()
            redis.zremrangebyscore("sent", 0, int(at) - 10)
            if redis.zcard("sent") < 2:
                redis.zadd("sent", {str(number): int(at)})
                sent.append(at)

    def check() -> None:
        for first in sent:
            assert sum(first <= at < first + 10 for at in sent) <= 2

    error = failure(cloud, send, check, setup=sent.clear, kinds=("switch", "nearly", "tick"))
    assert all("tick" in text or "edge" in text for text in error.disturbances)


def test_an_answer_is_slow_below_the_timeouts_of_clients(cloud: Cloud, kv: KVServer) -> None:
    spans: set[float] = set()

    def run() -> None:
        began = time.time()
        kv.client().ping()
        spans.add(time.time() - began)

    cloud.explore(run, holds, kinds="slow")
    assert {4.0, 30.0} <= spans


def test_the_only_order_of_several_strands_is_exhaustive(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        redis.ping()
        other = threading.Thread(target=redis.ping)
        other.start()
        other.join()

    result = cloud.explore(run, holds, kinds=("switch", "wake"))
    assert (result.is_exhaustive, result.orders) == (True, 1)
    assert "the only possible interleaving of calls to the fakes (exhaustive)" in str(result)
    with pytest.raises(ContractError, match="no schedule was possible"):
        cloud.explore(redis.ping, holds, kinds=("switch", "wake"))


def test_answers_arrive_in_the_order_of_their_sockets() -> None:
    fakes = types.SimpleNamespace(now_us=lambda: 0, connections=Connections([]))
    world: Any = types.SimpleNamespace(fakes=fakes, current_thread=ThreadBetweenTrials())
    loop = FakeTimeLoop(world)
    pairs = [socket.socketpair() for _ in range(3)]
    try:
        for near, _ in pairs:
            loop.selector.register(near, selectors.EVENT_READ)
        for _, far in reversed(pairs):
            far.send(b"x")
        ready = [key.fileobj for key, _ in loop.selector.select(0)]
        assert ready == [near for near, _ in pairs]
    finally:
        loop.close()
        for pair in pairs:
            for sock in pair:
                sock.close()


def test_all_interleavings_is_said_only_if_every_search_for_them_ended(
    cloud: Cloud, redis: Redis
) -> None:
    def run() -> None:
        for number in range(3):
            redis.set(f"key {number}", "value")

    cut = cloud.explore([run, run], holds, kinds=("switch", "late"), budget=20)
    assert "all" not in str(cut).partition(" distinct")[0]
    whole = cloud.explore([redis.dbsize, redis.flushdb], holds, kinds=("switch", "late"))
    assert str(whole).startswith("the promise held in all")


def test_two_delays_are_tried_together_early(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def run(after: float) -> None:
        time.sleep(after)
        if not redis.get("running"):
            redis.set("running", "yes")
            for job in redis.lrange("jobs", 0, 0):
                redis.rpush("done", job)
                redis.lpop("jobs")
            redis.delete("running")

    kv.load({"jobs": ["a"]})

    def once() -> None:
        assert (kv.value("done") or []) in ([], ["a"])

    clients = {"first": lambda: run(0), "second": lambda: run(1)}
    error = failure(cloud, clients, once, kinds=("slow", "tick", "nearly", "drop", "crash"))
    assert error.schedule.count(" slow ") >= 2
    assert error.tried < 60


def test_a_fault_is_repeated_at_the_retries_that_it_causes(cloud: Cloud, kv: KVServer) -> None:
    """The third attempt exists only after two failures, so no trial with one disturbance contains it."""
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def run() -> None:
        redis.set("begun", "yes")
        for _ in range(3):
            with contextlib.suppress(Exception):
                redis.set("done", "yes")
                return
        redis.set("given up", "yes")

    def check() -> None:
        assert kv.value("given up") is None

    for kinds in (None, ("respond", "delay"), ("drop", "crash")):
        error = failure(cloud, run, check, kinds=kinds, budget=150)
        assert error.schedule.count("run.") == 3, error.schedule


def test_a_time_budget_that_allows_no_disturbance_is_an_error(cloud: Cloud, redis: Redis) -> None:
    with pytest.raises(ContractError, match="budget='1ms' allowed only 0 schedules, and none of"):
        cloud.explore([lambda: redis.incr("n")] * 2, holds, budget="1ms")


def test_kinds_that_the_budget_does_not_allow_are_listed(cloud: Cloud, redis: Redis) -> None:
    result = cloud.explore(lambda: redis.get("n"), holds, kinds=("lose_response", "slow"), budget=1)
    assert not result.untried
    assert len(result.unreached) == 1
    assert f"not reached within the budget: {result.unreached[0]}" in str(result)


def test_switches_of_independent_calls_are_not_missing(cloud: Cloud, redis: Redis) -> None:
    clients = {"ann": lambda: redis.incr("n"), "bob": lambda: redis.incr("m")}
    result = cloud.explore(clients, holds, kinds="switch")
    assert (result.is_exhaustive, result.orders) == (True, 1)
    assert not result.untried
    assert not result.unreached
    assert "could only exchange independent calls: switch" in str(result)


def test_each_kind_gets_its_turn_within_a_small_budget(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        for number in range(20):
            redis.incr(f"n{number} {time.time()}")

    result = cloud.explore(run, holds, budget=25)
    assert (result.tried, result.all_singles > 250) == (25, True), "the schedules are sampled"
    assert result.singles >= 18
    assert not result.unreached


def test_disturbances_with_an_effect_of_their_own_come_first(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    tried: list[str] = []

    def run() -> None:
        for _ in range(2):
            redis.get("a")
        redis.set("a", "1")

    def note(history: History) -> None:
        tried.append(history.schedule)

    cloud.explore(run, note, kinds=("drop", "lose_response", "crash"))
    assert tried[2:11] == [
        # A lost answer of a call that writes nothing is like a lost request, and a crash after such
        # a call like a crash before it.
        "run.3 lose_response",
        "run.1 drop",
        "run.3 drop",
        "run.2 drop",
        "run.1 crash",
        "run.1 lose_response",
        "run.3 crash",
        "run.2 lose_response",
        "run.2 crash",
    ]


def test_orders_and_disturbances_take_turns(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        for _ in range(4):
            redis.incr("n")

    result = cloud.explore([run, run], holds, budget=80)
    assert result.orders > 20
    assert result.singles > 40
    assert result.extended


@pytest.mark.parametrize("size", range(1, 6))
def test_no_part_of_a_shrunk_schedule_breaks_the_promise(size: int) -> None:
    """Also if a part breaks it, and no larger part does except the whole."""
    whole = Schedule.parse(", ".join(f"run.{point} crash" for point in range(1, 7)))
    parts = [Schedule(part) for part in itertools.combinations(whole, size)]
    for part in parts:
        breaks = {whole: whole, part: part}.get
        assert minimal(whole, breaks) == part


@pytest.mark.parametrize(
    ("found", "plainest", "kinds"),
    [
        ("run.3 partition 60", "run.3 drop", ("partition", "drop", "respond")),
        ("run.2 slow 30", "run.3 delay 30", ("slow", "delay")),
        ("run.2 past", "run.2 jump", ("past", "jump")),
        ("run.1 drop, run.2 drop, run.3 respond", "run.1 drop", ("drop", "respond")),
    ],
)
def test_a_disturbance_is_replaced_by_one_that_is_easier_to_explain(
    cloud: Cloud, kv: KVServer, found: str, plainest: str, kinds: Any
) -> None:
    """Any fault breaks the promise, and any pause before the third call."""
    redis = Redis(kv.url, kv.token, rest_retries=0)
    ends: list[object] = []

    def run() -> None:
        redis.set("a", "1", ex=60)
        for _ in range(2):
            began = time.time()
            with contextlib.suppress(Exception):
                redis.set("b", "1")
                ends.append(time.time() - began < 1)
        ends.append(cloud.clock.now().second == 0)

    def check() -> None:
        assert ends == [True, True, True]

    options = Options(kinds=kinds, setup=ends.clear)
    with player_for(cloud, programs_of(run, ()), check, options) as player:
        undisturbed = player.play(Plan(notes_points=True))
        assert undisturbed.broken is None
        trial = player.play(Plan(Schedule.parse(found)))
        failing = FailingTrial.of(trial)
        assert str(smallest(player, failing, undisturbed, {}).schedule) == plainest


def test_a_plainer_disturbance_can_make_another_one_needless(cloud: Cloud, kv: KVServer) -> None:
    """The second call has no point while its token is rejected."""
    redis = Redis(kv.url, kv.token, rest_retries=0)
    failing = (
        {"run.1 rotate_token", "run.2 respond"},
        {"run.3 drop", "run.2 respond"},
        {"run.3 drop"},
    )

    def run() -> None:
        for number in range(3):
            with contextlib.suppress(Exception):
                redis.set("n", number)
            time.sleep(number * 20)

    def check(history: History) -> None:
        assert set(history.schedule.split(", ")) not in failing

    kinds: Any = ("rotate_token", "respond", "drop")
    with player_for(cloud, programs_of(run, ()), check, Options(kinds=kinds)) as player:
        undisturbed = player.play(Plan(notes_points=True))
        trial = player.play(Plan(Schedule.parse("run.1 rotate_token, run.2 respond")))
        assert len(trial.applied) == 2
        found = FailingTrial.of(trial)
        assert str(smallest(player, found, undisturbed, {}).schedule) == "run.3 drop"


def test_a_success_of_a_handler_is_remembered_after_many_failures(
    cloud: Cloud, redis: Redis
) -> None:
    coverage = Coverage()
    handler = "call", "https://example.com/"
    with player_for(cloud, programs_of(redis.ping, ()), holds, Options()) as player:
        for outcomes in ([False] * 100, [True], [False]):
            log = Simulation(player.world, player.subject, Plan(), player.learned).log
            for succeeded in outcomes:
                log.note_handler_call(handler, succeeded=succeeded)
            coverage.merge(Coverage.of(Plan(), outline(Schedule(), handlers=log.handlers)))
    assert coverage.succeeded == {handler: True}


def test_the_key_of_stored_failures_is_the_same_in_every_process() -> None:
    """The order of a set's members depends on the process."""
    keys = set()
    for members in (frozenset([0, 8]), frozenset([8, 0])):
        assert members == {0, 8}
        function = types.FunctionType(is_zero.__code__.replace(co_consts=((members,),)), {})
        keys.add(key_of([function], (), (), ""))
    assert len(keys) == 1


def is_zero() -> bool:
    return time.time() == 0


class _Repeats(Source):
    """A source of the undisturbed plan that ends after some number of trials."""

    counter = "drawn"

    def __init__(self, most: int) -> None:
        self.most = most
        self.trials = 0

    def next_plan(self) -> Plan | NoPlan:
        return NoPlan.LEFT if self.trials == self.most else Plan()

    def learn(self, trial: Outline) -> None:
        self.trials += 1


@pytest.mark.parametrize(("most", "trials"), [(0, 0), (3, 3), (1_000, 5)])
def test_a_source_plays_until_it_or_the_budget_ends(
    cloud: Cloud, redis: Redis, most: int, trials: int
) -> None:
    def visit() -> None:
        redis.incr("visits")

    source, budget = _Repeats(most), budget_of(5)
    with player_for(cloud, programs_of(visit, ()), holds, Options()) as player:
        undisturbed = player.play_undisturbed(Plan.first())
        tally = Tally.of(player, seed=1)
        explorer = Explorer(PlanPlayer(player, tally), undisturbed, budget)
        assert explorer.search_phase(Phase([Share(source)], budget)) is None
    assert (source.trials, tally.counts["drawn"], tally.tried) == (trials,) * 3


class _Curious(Explorer):
    """An explorer that asks a source for upcoming plans at any time."""

    def _play_plan(self, plan: Plan, source: Source) -> Outline:
        assert [*source.upcoming()] == [*source.upcoming()]
        return super()._play_plan(plan, source)


def test_upcoming_plans_change_no_search(cloud: Cloud, redis: Redis) -> None:
    def add() -> None:
        with contextlib.suppress(Exception):
            redis.set("n", int(redis.get("n") or 0) + 1)

    schedules = []
    for make in (Explorer, _Curious):
        with player_for(cloud, programs_of([add, add], ()), holds, Options()) as player:
            undisturbed = player.play_undisturbed(Plan.first())
            tally, budget = Tally.of(player, seed=1), budget_of(200)
            make(PlanPlayer(player, tally), undisturbed, budget).search()
        assert tally.counts["extended"] > 4
        schedules.append([*tally.outcomes])
    assert schedules[0] == schedules[1]


class _Twice(Source):
    """A source of one plan, whose trial it wants to be played again."""

    counter = "extended"

    def __init__(self) -> None:
        self.learned: list[str] = []

    def next_plan(self) -> Plan | NoPlan:
        return NoPlan.LEFT if self.learned else Plan(Schedule.parse("visit.1 crash"))

    def second_plan(self, trial: Outline) -> Plan | None:
        return Plan()

    def learn(self, trial: Outline) -> None:
        self.learned += map(str, trial.applied or ["nothing"])


@pytest.mark.parametrize(
    ("visits", "failing", "learned"), [(0, True, "visit.1 crash"), (1, False, "nothing")]
)
def test_a_failing_trial_is_not_played_again(
    cloud: Cloud, kv: KVServer, visits: int, failing: bool, learned: str
) -> None:
    def visit() -> None:
        Redis(kv.url, kv.token).incr("visits")

    def check() -> None:
        assert kv.value("visits") is not None or visits

    source, budget = _Twice(), budget_of(5)
    with player_for(cloud, programs_of(visit, ()), check, Options()) as player:
        undisturbed = player.play_undisturbed(Plan.first())
        tally = Tally.of(player, seed=1)
        explorer = Explorer(PlanPlayer(player, tally), undisturbed, budget)
        found = explorer.search_phase(Phase([Share(source)], budget))
    assert (found is not None, source.learned) == (failing, [learned])
    assert tally.counts == ({"extended": 1} if failing else {"extended": 1, "drawn": 1})
