"""Search for the bugs of the cookbook's page with ``explore()`` and with other tools.

``compared()`` gives each tool the same applications and the same promises. It runs the tests of the
page with another tool in place of ``Cloud.explore``, once with the bug and once with its
correction. Each test runs in its own process: ``python -m benchmarks.explorers TOOL FOLDER``.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, cast
from unittest import mock

from pytest_fakecloud import BrokenPromiseError, Cloud, History
from pytest_fakecloud.explore.search.sources import Extending, NoPlan
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.subject.promises import Promises
from pytest_fakecloud.explore.world.patches import explored
from pytest_fakecloud.queue.fake import Queue
from tests.docs.recipes import Recipe, recipes

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "cookbook" / "explore.md", ROOT / "tests" / "docs" / "bugs.md")
SEEDS = range(5)
"""The seeds with which the schedules are counted that a bug needs."""
SECONDS = 10
"""Wall-clock seconds of a search with each of frontrun's clocks."""
LIMIT = 45
"""Wall-clock seconds after which a search is ended, for each tool."""
MOVES = (0.001, 1, 10, 30, 60, 600)
"""Maximum seconds by which the state machine moves the clock in one step."""


@dataclass(frozen=True)
class Search:
    """The result of one search: whether the promise was broken, after how many runs and seconds."""

    broken: bool
    runs: int
    seconds: float
    error: str = ""
    counts: Sequence[int] = ()
    """The schedules with each seed, of a search that repeats with several."""


class Subject:
    """The arguments of a call of ``explore``, in a form that any tool can use."""

    def __init__(
        self,
        cloud: Cloud,
        run: Any,
        check: Any = None,
        *,
        workers: Any = (),
        setup: Callable[[], object] | None = None,
        **_: Any,
    ) -> None:
        self.cloud = cloud
        self.clients = _named(run)
        self.workers = _named(workers)
        self._promises = Promises(check)
        self._setup = setup
        self._start = cloud.snapshot()
        self.history = History(cloud, "")
        self.runs = 0

    def begin(self) -> None:
        """Reset the fakes to the state in which each run starts."""
        self.runs += 1
        self.cloud.restore(self._start)
        self.history = History(self.cloud, "")
        if self._setup is not None:
            self._setup()

    def call(self, name: str) -> None:
        """Run one client or worker to its end, and record what it returned or raised."""
        function = self.clients.get(name) or self.workers[name]
        try:
            result = function()
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            self.history.results[name] = result
        except AssertionError:
            raise
        except Exception as error:
            self.history.errors[name] = error

    def deliver(self) -> None:
        """Let the queues deliver until they are idle, with three firings of each schedule."""
        for queue in (fake for fake in self.cloud.fakes() if isinstance(fake, Queue)):
            if queue.schedules():
                queue.clock.advance("3m")
            else:
                queue.run_until_idle()

    def finish(self) -> None:
        """Complete the run after all clients have ended."""
        self.deliver()
        for name in self.workers:
            self.history.errors.pop(name, None)
            self.call(name)
            if name in self.history.errors:  # restart a worker, as a supervisor would
                self.call(name)
        self.deliver()

    def everything(self) -> None:
        """Run the clients one after the other, then complete the run."""
        self.begin()
        for name in self.clients:
            self.call(name)
        self.finish()

    def check(self) -> None:
        """Raise ``AssertionError`` if the promise does not hold."""
        for promise in self._promises.at_end:
            assert promise(self.history) is not False

    def check_step(self) -> None:
        """Check the promises that hold after every step."""
        for step in self._promises.at_step:
            step(self.history)


def _named(functions: Any) -> dict[str, Callable[[], object]]:
    if isinstance(functions, Mapping):
        return dict(functions)
    listed = [functions] if callable(functions) else list(functions)
    return {f"client {number}": function for number, function in enumerate(listed, 1)}


# -- the tools -------------------------------------------------------------------------------------


_explore = Cloud.explore


def by_explore(cloud: Cloud, *args: Any, **options: Any) -> tuple[bool, int]:
    """Search with ``explore`` and its default budget; the undisturbed trial counts as a run."""
    try:
        return False, 1 + _explore(cloud, *args, **options).tried
    except BrokenPromiseError as broken:
        return True, 1 + broken.tried


def with_seeds(cloud: Cloud, *args: Any, **options: Any) -> tuple[bool, int, list[int]]:
    """Search with ``explore`` and several seeds; return the sum of the schedules, and those of each."""
    outcomes = [by_explore(cloud, *args, **{**options, "seed": seed}) for seed in SEEDS]
    counts = [runs - 1 for _, runs in outcomes]
    return all(broken for broken, _ in outcomes), sum(counts), counts


def without_states(cloud: Cloud, *args: Any, **options: Any) -> tuple[bool, int, list[int]]:
    """Search as ``with_seeds()`` does, but in the plain order, which new states do not guide."""
    with unguided():
        return with_seeds(cloud, *args, **options)


def unguided() -> AbstractContextManager[object]:
    """Search without schedules that extend an earlier one, as long as the context is open."""
    return mock.patch.object(Extending, "next_plan", return_value=NoPlan.LEFT)


def by_every_failure(cloud: Cloud, *args: Any, **options: Any) -> tuple[bool, int]:
    """Fail each call in turn, with the clients one after the other."""
    subject = Subject(cloud, *args, **options)
    try:
        with explored(cloud, (), Options()):
            return False, len(cloud.every_failure(subject.everything, check=subject.check))
    except BrokenPromiseError as broken:
        return True, len(broken.failures)


def by_states(cloud: Cloud, *args: Any, **options: Any) -> tuple[bool, int]:
    """Let Hypothesis choose the order of clients, workers, deliveries and moves of the clock."""
    from hypothesis import HealthCheck, settings
    from hypothesis.stateful import (
        RuleBasedStateMachine,
        invariant,
        rule,
        run_state_machine_as_test,
    )
    from hypothesis.strategies import sampled_from

    subject = Subject(cloud, *args, **options)
    until_broken: list[int] = []

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        try:
            yield
        except AssertionError:
            until_broken.append(subject.runs)
            raise

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            subject.begin()
            self.waiting = list(subject.clients)

        @rule(name=sampled_from([*subject.clients, *subject.workers]))
        def work(self, name: str) -> None:
            with counted():
                if name in subject.workers or name in self.waiting:
                    subject.call(name)
            if name in self.waiting:
                self.waiting.remove(name)

        @rule(seconds=sampled_from(MOVES))
        def wait(self, seconds: float) -> None:
            with counted():
                cloud.clock.advance(seconds)

        @rule()
        def deliver(self) -> None:
            with counted():
                for queue in (fake for fake in cloud.fakes() if isinstance(fake, Queue)):
                    queue.deliver_due()

        @invariant()
        def holds(self) -> None:
            with counted():
                subject.check_step()

        def teardown(self) -> None:
            with counted():
                for name in self.waiting:
                    subject.call(name)
                subject.finish()
                subject.check()

    chosen = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    with explored(cloud, (), Options()):
        try:
            run_state_machine_as_test(Machine, settings=chosen)
        except AssertionError:
            return True, until_broken[0]
    return False, subject.runs


def by_frontrun(cloud: Cloud, *args: Any, **options: Any) -> tuple[bool, int]:
    """Interleave the clients with frontrun, with its default clock and with its explored one."""
    import frontrun

    subject = Subject(cloud, *args, **options)
    subject.begin()
    first = next(iter(subject.clients.values()))()
    are_async = inspect.iscoroutine(first)
    if inspect.iscoroutine(first):
        first.close()

    def holds(_: object) -> bool:
        try:
            subject.finish()
            subject.check()
        except AssertionError:
            return False
        return True

    def worker(name: str) -> Callable[[object], object]:
        if not are_async:
            return lambda _: subject.call(name)

        async def run(_: object) -> None:
            await cast("Awaitable[object]", subject.clients[name]())

        return run

    runs = 0
    for clock in ("real", "explored"):
        result = frontrun.explore(
            setup=subject.begin,
            workers=[worker(name) for name in subject.clients],
            invariant=holds,
            clock=clock,
            total_timeout=SECONDS,
        )
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
        runs += result.num_explored
        if result.property_holds is False:
            return True, runs
    return False, runs


async def _awaited(result: Any) -> Any:
    return await result


TOOLS: dict[str, Callable[..., tuple[bool, int]]] = {
    "explore": by_explore,
    "frontrun": by_frontrun,
    "Hypothesis": by_states,
    "every_failure": by_every_failure,
}
_SEARCHES: dict[str, Callable[..., tuple[Any, ...]]] = {
    **TOOLS,
    "seeds": with_seeds,
    "plain order": without_states,
}


# -- one search in a process of its own ------------------------------------------------------------


def search(recipe: Recipe, tool: str, *, bug: bool) -> Search:
    """Run the tests of one bug with one tool, and return what came of it."""
    files = {
        **recipe.files,
        **{buggy_file.name: buggy_file.text for buggy_file in recipe.bugs if bug},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
        for number, text in enumerate(recipe.tests, 1):
            (folder / f"test_{number}.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", __name__, tool, name]
        if tool == "frontrun":
            command = [str(Path(sys.executable).with_name("frontrun")), *command]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        try:
            subprocess.run(command, cwd=name, env=environment, capture_output=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return Search(False, 0, LIMIT, "time-out")
        result = folder / "result.json"
        if not result.exists():
            return Search(False, 0, 0, "crash")
        return Search(**json.loads(result.read_text(encoding="utf-8")))


def main(tool: str, folder: str) -> None:
    """Run the tests in a folder with a tool in the place of ``explore``; write what came of it."""
    import pytest

    def explore(cloud: Cloud, *args: Any, **options: Any) -> None:
        began = perf_counter()
        error = ""
        broken, runs, counts = False, 0, [()]
        try:
            broken, runs, *counts = _SEARCHES[tool](cloud, *args, **options)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"[:300]
        search_result = Search(broken, runs, perf_counter() - began, error, *counts)
        Path(folder, "result.json").write_text(json.dumps(vars(search_result)), encoding="utf-8")

    Cloud.explore = explore  # type: ignore[method-assign,assignment]
    pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", folder])


# -- the schedules that bugs need ------------------------------------------------------------------


def bugs() -> list[Recipe]:
    """Return the bugs of the cookbook, those of the site first."""
    return [recipe for page in PAGES for recipe in recipes(page)]


def needed() -> tuple[int, int]:
    """Return how many schedules the bugs of the cookbook need with all seeds, and one bug at most.

    Print those with each seed, beside those of a search that is not guided by states.
    """
    print(f"\n| Bug | guided, seeds {SEEDS[0]} to {SEEDS[-1]} | not guided |\n|---|---|---|")
    counts: list[int] = []
    for recipe in bugs():
        guided, plain = (search(recipe, tool, bug=True) for tool in ("seeds", "plain order"))
        counts += guided.counts
        print(f"| {recipe.title} | {_counts(guided)} | {_counts(plain)} |", flush=True)
    return sum(counts), max(counts)


def _counts(search: Search) -> str:
    counts = ", ".join(f"{count:,}" for count in search.counts)
    return counts if search.broken else f"not found {search.error or counts}"


# -- the table -------------------------------------------------------------------------------------


def compared(most: int | None = None, tools: Sequence[str] = tuple(TOOLS)) -> str:
    """Search for each bug with each tool, print the table as it grows, and return it.

    A correction is searched only by the tools that found its bug: ``most`` bugs, or all.
    """
    tools = [tool for tool in tools if tool != "frontrun" or importlib.util.find_spec("frontrun")]
    lines = [f"| Bug | {' | '.join(tools)} |", f"|---|{'---|' * len(tools)}"]
    print("\n" + "\n".join(lines), flush=True)
    found_by_tool = dict.fromkeys(tools, 0)
    accused = dict.fromkeys(tools, 0)
    listed = bugs()[:most]
    for recipe in listed:
        cells = []
        for tool in tools:
            bug = sound = search(recipe, tool, bug=True)
            if bug.broken:
                sound = search(recipe, tool, bug=False)
            found_by_tool[tool] += bug.broken and not sound.broken
            accused[tool] += bug.broken and sound.broken
            cells.append(_told(bug, sound))
        lines.append(f"| {recipe.title} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    totals = (f"{found_by_tool[tool]} of {len(listed)}; {accused[tool]} accused" for tool in tools)
    lines.append(f"| **Found; corrections accused** | {' | '.join(totals)} |")
    print(lines[-1], flush=True)
    if "frontrun" not in tools:
        print("frontrun is not installed; it needs a Python that has both")
    return "\n".join(lines)


def _told(bug: Search, sound: Search) -> str:
    if bug.error or sound.error:
        print(f"      {bug.error or sound.error}", file=sys.stderr)
    if not bug.broken:
        return _outcome(bug) or "–"
    if sound.broken:
        return "accuses the correction"
    verdict = f"{bug.runs} run{'s' * (bug.runs != 1)}, {bug.seconds:.1f} s"
    return f"{verdict}; correction: {_outcome(sound)}" if _outcome(sound) else verdict


def _outcome(search: Search) -> str:
    """Return "time-out", "crash" or "error" for a search without a result, otherwise an empty
    string.
    """
    if search.error in ("", "time-out", "crash"):
        return search.error
    return "error"


if __name__ == "__main__":
    main(*sys.argv[1:])
