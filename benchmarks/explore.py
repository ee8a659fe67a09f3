"""Measure the cost of schedules, and how many bugs ``explore()`` and other tools find.

It measures schedules of calls and of a workflow, the reset between schedules, and the time until
ten bugs are found. It prints the table of the guide, without frontrun if that is not installed
(``pip install frontrun``).

Run ``python -m benchmarks.explore`` in the repository. It exits with 1 if a figure exceeds its
limit.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any
from unittest import mock

import httpx
import hypothesis
from upstash_redis import Redis

from pytest_fakecloud import BrokenPromiseError, Cloud
from pytest_fakecloud.explore.patches import explored
from pytest_fakecloud.explore.search.explorer import Explorer
from pytest_fakecloud.explore.search.player import Player
from pytest_fakecloud.explore.simulation.calls import Calls
from pytest_fakecloud.explore.simulation.scheduler import Simulation
from pytest_fakecloud.explore.simulation.state import RunState
from pytest_fakecloud.explore.simulation.turns import Turns
from pytest_fakecloud.explore.world import World
from pytest_fakecloud.http.app import App
from pytest_fakecloud.outside.shortcut import Shortcut
from tests.explore.bugs import queues
from tests.explore.bugs.ten import TEN

from .explorers import compared
from .timing import limit

START = "2026-01-01T00:00:00Z"
CALLS = 10
SCHEDULES = 1_000
ROUNDS = 20
COMPARED = 100
"""How many bugs of the cookbook are searched for by all tools, at most."""
PARTS: dict[str, tuple[tuple[type, str], ...]] = {
    "client library": ((Redis, "execute"),),
    "in-process transport": ((Shortcut, "body_length"), (Shortcut, "send")),
    "HTTP pipeline and journal": ((App, "answer"),),
    "engine": ((App, "_serve"),),
    "points and events of calls": ((Calls, "at_call"),),
    "accesses of steps": ((RunState, "touch"),),
    "choice of the next strand": ((Simulation, "choose"),),
    "turns of the threads": ((Turns, "run_strands"), (Turns, "_wake"), (Turns, "yield_turn")),
    "start and end of a run": ((Simulation, "__init__"), (Simulation, "play")),
    "return to the baseline": ((World, "reset"),),
    "check of the promise": ((Player, "_broken_promise"),),
    "search": ((Explorer, "search"),),
}
"""The parts of a schedule, with the functions that belong to each."""


def small_cloud(cloud: Cloud) -> Redis:
    """Start every service of a cloud, each with some data."""
    kv = cloud.kv_server()
    kv.load({f"key {number}": str(number) for number in range(20)})
    cloud.vector_index(dimension=4).load([(f"v{n}", [float(n + 1)] * 4) for n in range(20)])
    broker = cloud.broker(topics={"orders": 2})
    for number in range(20):
        broker.produce("orders", str(number))
    queue = cloud.queue()
    queue.destinations.accept()
    for number in range(5):
        queue.publish("https://app.example.com", body=str(number), delay=3600)
    return Redis(kv.url, kv.token)


def holds() -> None:
    """A promise that nothing breaks."""


def schedules_of_ten_calls() -> bool:
    """Measure ten REST calls of one client, and of two, against the client library alone."""
    good = True
    library = cost_of_the_library()
    print(f"      {library:.2f} ms of processor time are ten calls of the client library alone")
    for clients in (1, 2):
        with Cloud(seed=1, delivery="driven", now=START) as cloud:
            run = ten_calls(cloud, clients)
            started, busy = perf_counter(), process_time()
            found = cloud.explore([run] * clients, holds, budget=SCHEDULES, trust=False)
            seconds, busy = perf_counter() - started, process_time() - busy
            each = 1000 * busy / max(1, found.tried)
            print(f"{found!r}; {busy:.1f} s of processor time")
            print_shares(cloud, [run] * clients)
        of = f"ten calls by {clients} client{'s' * (clients > 1)}"
        good = limit(f"schedules of {of} tried", found.tried, at_least=SCHEDULES) and good
        good = limit(f"times the client library alone: {of}", each / library, 3.0) and good
        limit(f"milliseconds for a schedule of {of}", each, 3.0)
        limit(f"seconds for {SCHEDULES:,} schedules of {of}", seconds, 4.0)
    return good


def ten_calls(cloud: Cloud, clients: int) -> Callable[[], None]:
    """Return the code of each of some clients that make ten calls together."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token)

    def run() -> None:
        for number in range(CALLS // clients):
            redis.set(f"key {number}", "value", ex=60)

    return run


def print_shares(cloud: Cloud, runs: list[Callable[[], None]]) -> None:
    """Print the processor time that each part of a schedule takes, without the parts it calls."""
    spent: Counter[str] = Counter()
    inner = threading.local()

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def measured(*args: Any, **options: Any) -> Any:
            outer, inner.spent = getattr(inner, "spent", 0.0), 0.0
            began = thread_time()
            try:
                return function(*args, **options)
            finally:
                took = thread_time() - began
                spent[part] += took - inner.spent
                inner.spent = outer + took

        return measured

    with ExitStack() as patches:
        for part, functions in PARTS.items():
            for owner, name in functions:
                made = timed(part, getattr(owner, name))
                patches.enter_context(mock.patch.object(owner, name, made))
        busy = process_time()
        tried = cloud.explore(runs, holds, budget=SCHEDULES // 2, trust=False).tried
        busy = process_time() - busy
    spent["other"] = busy - sum(spent.values())
    for part, took in spent.most_common():
        print(f"      {100 * took / busy:5.1f} %  {1000 * took / tried:5.2f} ms  {part}")


def milliseconds(run: Callable[[], None]) -> float:
    """Return the least processor time of several calls, in milliseconds."""
    spent = []
    for _ in range(ROUNDS):
        busy = process_time()
        for _ in range(10):
            run()
        spent.append(process_time() - busy)
    return 1000 * min(spent) / 10


def cost_of_the_library() -> float:
    """Return the milliseconds of ten calls of the client library over a transport that does
    nothing.

    This is the lower bound of a schedule of ten calls.
    """

    def handle_request(_: httpx.HTTPTransport, __: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"result": "T0s="})

    redis = Redis("http://127.0.0.1:9", "token")

    def run() -> None:
        for number in range(CALLS):
            redis.set(f"key {number}", "value", ex=60)

    with mock.patch.object(httpx.HTTPTransport, "handle_request", handle_request):
        return milliseconds(run)


def a_workflow() -> bool:
    """Measure a workflow of three steps in Flask: four deliveries, and the calls they make."""
    with Cloud(seed=1, delivery="driven", now=START) as cloud:
        of = queues.work_outside_a_step(cloud, corrected=True)
        busy = process_time()
        found = cloud.explore(of.run, of.check, budget=max(3, SCHEDULES // 10))
        each = 1000 * (process_time() - busy) / max(1, found.tried)
    return limit("milliseconds for a schedule of a workflow", each, 30.0)


def back_to_the_baseline() -> bool:
    """Measure the reset of four services with a little data before each run."""
    with Cloud(seed=1, delivery="driven", now=START) as cloud:
        small_cloud(cloud)
        spent = []
        with explored(cloud) as world:
            for _ in range(200):
                started = perf_counter()
                world.reset()
                spent.append(perf_counter() - started)
    return limit("milliseconds to return four fakes to the baseline", 1000 * median(spent), 1.0)


def ten_bugs() -> bool:
    """Measure how long the search for each of ten bugs takes at most."""
    slowest = 0.0
    for make in TEN:
        name = make.__name__
        with Cloud(seed=1, delivery="driven", now=START) as cloud:
            of = make(cloud, False)
            started = perf_counter()
            try:
                cloud.explore(of.run, of.check, workers=of.workers, setup=of.setup, **of.options)
            except BrokenPromiseError as found:
                seconds = perf_counter() - started
                slowest = max(slowest, seconds)
                print(f"      {name}: {found.tried} schedules, {seconds:.2f} s: {found.schedule}")
            else:
                print(f"MISS  {name} was not found")
                return False
    return limit("seconds until the slowest of ten bugs is found", slowest, 10.0)


def main() -> int:
    """Run all measurements; return 1 if a figure exceeds its limit."""
    hypothesis.settings.register_profile("bare", database=None)
    hypothesis.settings.load_profile("bare")
    results = [schedules_of_ten_calls(), a_workflow(), back_to_the_baseline(), ten_bugs()]
    compared(COMPARED)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
