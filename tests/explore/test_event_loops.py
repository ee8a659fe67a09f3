"""Event loops of other libraries than asyncio: what a simulation needs of one is ``EventLoop``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from upstash_redis import Redis

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.explore.explore import player_for
from pytest_fakecloud.explore.simulation.loops import EventLoop
from pytest_fakecloud.explore.simulation.rest import Wakeup
from pytest_fakecloud.explore.simulation.simulation import Simulation
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.subject.programs import programs_of
from pytest_fakecloud.explore.values.plan import Plan
from pytest_fakecloud.explore.values.schedule import Schedule

from .conftest import expects

Task = Coroutine[Any, Any, None]


class Loop(EventLoop):
    """A loop whose tasks are bare coroutines, which await nothing but wakeups."""

    def __init__(self, *tasks: Task) -> None:
        self.pending = [*tasks]
        self.ready = deque(tasks)
        self.current: Task | None = None

    def run(self, simulation: Simulation) -> None:
        simulation.loops.start(self)
        while self.pending:
            if not self.ready:
                simulation.loops.idle(self, None)
            self.current = self.ready.popleft()
            try:
                self.current.send(None)
            except StopIteration:
                self.pending.remove(self.current)
            self.current = None
        simulation.loops.end(self)

    def current_task(self) -> Task | None:
        return self.current

    def pending_tasks(self) -> list[Task]:
        return []

    def function_of(self, task: Any) -> str:
        return str(task.__name__)

    def new_wakeup(self) -> Wakeup:
        assert self.current is not None
        return _Wakeup(self, self.current)

    def has_events(self, seconds: float = 0.0) -> bool:
        return bool(self.ready)

    def has_strangers(self) -> bool:
        return False

    def wake(self) -> None:
        raise NotImplementedError


class _Wakeup(Wakeup):
    def __init__(self, loop: Loop, task: Task) -> None:
        self._loop, self._task = loop, task

    def __await__(self) -> Generator[Any, None, None]:
        yield

    def resume(self) -> None:
        self._loop.ready.append(self._task)

    def wake_elsewhere(self, is_over: Callable[[], bool]) -> None:
        raise NotImplementedError


def test_tasks_of_another_loop_are_strands(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def simulation() -> Simulation:
        assert player.world.simulation is not None
        return player.world.simulation

    async def add() -> None:
        exchange = simulation().calls.exchange
        value = await exchange(kv, lambda: redis.get("n"))
        await exchange(kv, lambda: redis.set("n", int(value or 0) + 1))

    def ann() -> None:
        Loop(add(), add()).run(simulation())

    programs = programs_of({"ann": ann}, workers=())
    with player_for(cloud, programs, expects(kv, "2"), Options(kinds="switch")) as player:
        undisturbed = player.play(Plan.first())
        trial = player.play(Plan(Schedule.parse("ann:add2.1 switch ann:add"), has_details=True))
    # By default, the tasks of a loop take turns.
    calls = [line.strand for line in undisturbed.call_lines]
    assert calls == ["ann:add", "ann:add2", "ann:add", "ann:add2"]
    assert str(undisturbed.broken).startswith("n is 1")
    calls = [line.strand for line in trial.call_lines]
    assert calls == ["ann:add", "ann:add", "ann:add2", "ann:add2"]
    assert trial.broken is None
