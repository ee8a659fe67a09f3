"""What exploring costs: a thousand schedules, the way back to the baseline, ten bugs until found.

Run from the repository: ``python -m benchmarks.explore``. Exits with 1 when a limit is missed.
"""

from __future__ import annotations

import importlib
import sys
from statistics import median
from time import perf_counter, process_time

import hypothesis
from upstash_redis import Redis

from pytest_fakecloud import BrokenSchedule, Cloud
from pytest_fakecloud.explore.world import World
from tests.explore.bugs import NAMES

from .timing import limit

START = "2026-01-01T00:00:00Z"
CALLS = 10
SCHEDULES = 1_000


def small_cloud(cloud: Cloud) -> Redis:
    """Every service, with some data in each."""
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


def a_thousand_schedules() -> bool:
    """A piece of code with ten calls, and nothing to deliver."""
    with Cloud(seed=1, delivery="driven", now=START) as cloud:
        kv = cloud.kv_server()
        redis = Redis(kv.url, kv.token)

        def run() -> None:
            for number in range(CALLS):
                redis.set(f"key {number}", "value", ex=60)

        started, busy = perf_counter(), process_time()
        found = cloud.explore(run, budget=SCHEDULES)
        seconds, busy = perf_counter() - started, process_time() - busy
    print(f"{found}; {busy:.1f} s of processor time")
    good = limit("schedules tried", found.tried, at_least=SCHEDULES)
    return limit(f"seconds for {SCHEDULES:,} schedules of ten calls", seconds, 15.0) and good


def back_to_the_baseline() -> bool:
    """What each run begins with: four services with a little data return to it."""
    with Cloud(seed=1, delivery="driven", now=START) as cloud:
        small_cloud(cloud)
        spent = []
        with World(cloud) as world:
            for _ in range(200):
                started = perf_counter()
                world.reset()
                spent.append(perf_counter() - started)
    return limit("milliseconds to return four fakes to the baseline", 1000 * median(spent), 1.0)


def ten_bugs() -> bool:
    """How long the slowest of the ten takes to be found."""
    slowest = 0.0
    for name in NAMES:
        module = importlib.import_module(f"tests.explore.bugs.{name}")
        with Cloud(seed=1, delivery="driven", now=START) as cloud:
            of = module.scenario(cloud, corrected=False)
            started = perf_counter()
            try:
                cloud.explore(of.run, of.check, workers=of.workers, setup=of.setup, **of.options)
            except BrokenSchedule as found:
                seconds = perf_counter() - started
                slowest = max(slowest, seconds)
                print(f"      {name}: {found.tried} schedules, {seconds:.2f} s: {found.schedule}")
            else:
                print(f"MISS  {name} was not found")
                return False
    return limit("seconds until the slowest of ten bugs is found", slowest, 10.0)


def main() -> int:
    """Run all; 1 when a limit is missed."""
    hypothesis.settings.register_profile("bare", database=None)
    hypothesis.settings.load_profile("bare")
    results = [a_thousand_schedules(), back_to_the_baseline(), ten_bugs()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
