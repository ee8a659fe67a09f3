"""The official rate limiter, unmodified, sync and async, every algorithm, on one clock with it.

The limiter reads the process's clock and the server its own, so `process_time` ties the two: what
the library computes and what the server keeps agree, and an hour takes no time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_fakecloud.cloud import Cloud
from pytest_fakecloud.kv.handle import KVServer
from tests.clients.surface import Used

upstash_ratelimit = pytest.importorskip("upstash_ratelimit")
pytest.importorskip("time_machine")

from upstash_ratelimit import FixedWindow, Ratelimit, Response, SlidingWindow, TokenBucket  # noqa: E402
from upstash_ratelimit import asyncio as ratelimit_asyncio  # noqa: E402

NOW = "2026-01-01T00:00:00Z"
NOW_S = 1767225600
UNITS: dict[Any, int] = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FLAVOURS = {"sync": Ratelimit, "async": ratelimit_asyncio.Ratelimit}


class Limiter:
    """Either limiter with one synchronous face that notes what is called with what."""

    def __init__(self, flavour: str, server: KVServer, limiter: Any, used: Used, **options: Any):
        self.used = used
        cls = FLAVOURS[flavour]
        client = server.client() if flavour == "sync" else server.async_client()
        self.close = client.close
        self.target = cls(client, limiter, **options)
        used.note("Ratelimit", "__init__", ["redis", "limiter", *options])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        member = getattr(self.target, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(member).bind(*args, **kwargs)
            self.used.note("Ratelimit", name, bound.arguments)
            result = member(*args, **kwargs)
            return LOOP.run_until_complete(result) if inspect.isawaitable(result) else result

        return call


LOOP = asyncio.new_event_loop()


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[None]:
    yield
    LOOP.close()


Make = Callable[..., Limiter]
Scenario = Callable[[Cloud, Make], None]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def run(function: Scenario, flavour: str, used: Used) -> None:
    made: list[Limiter] = []
    with Cloud(now=NOW, process_time=True) as cloud:
        server = cloud.kv_server()

        def make(algorithm: Any, **options: Any) -> Limiter:
            made.append(Limiter(flavour, server, algorithm, used, **options))
            return made[-1]

        function(cloud, make)
        for each in made:
            result = each.close()
            if inspect.isawaitable(result):
                LOOP.run_until_complete(result)


@scenario
def fixed_window(cloud: Cloud, make: Make) -> None:
    limit = make(FixedWindow(max_requests=3, window=10, unit="s"))
    assert limit.get_remaining("ann") == 3
    assert limit.limit("ann") == Response(True, 3, 2, NOW_S + 10)
    assert limit.limit("ann", rate=2) == Response(True, 3, 0, NOW_S + 10)
    assert limit.limit("ann").allowed is False
    assert limit.limit("bob").allowed is True
    assert limit.get_remaining("ann") == 0
    assert limit.get_reset("ann") == NOW_S + 10
    cloud.clock.advance(10)
    assert limit.limit("ann") == Response(True, 3, 2, NOW_S + 20)


@scenario
def sliding_window(cloud: Cloud, make: Make) -> None:
    limit = make(SlidingWindow(max_requests=4, window=10, unit="s"), prefix="mine")
    assert [limit.limit("ann").remaining for _ in range(4)] == [3, 2, 1, 0]
    assert limit.limit("ann").allowed is False
    # Half a window on, half of the last window's requests still count.
    cloud.clock.advance(15)
    assert limit.get_remaining("ann") == 2
    assert [limit.limit("ann").allowed for _ in range(3)] == [True, True, False]
    assert limit.get_reset("ann") == NOW_S + 20
    keys = cloud.handles[0].keys()  # type: ignore[attr-defined]
    assert all(key.startswith("mine:ann") for key in keys)


@scenario
def token_bucket(cloud: Cloud, make: Make) -> None:
    limit = make(TokenBucket(max_tokens=5, refill_rate=2, interval=10, unit="s"))
    assert limit.get_remaining("ann") == 5
    assert [limit.limit("ann").remaining for _ in range(5)] == [4, 3, 2, 1, 0]
    assert limit.limit("ann").allowed is False
    cloud.clock.advance(10)
    assert limit.limit("ann", rate=2).remaining == 0
    cloud.clock.advance("1h")
    assert limit.get_remaining("ann") == 5
    assert limit.get_reset("ann") >= NOW_S


@scenario
def waiting_until_ready(cloud: Cloud, make: Make) -> None:
    limit = make(FixedWindow(max_requests=1, window=1, unit="h"))
    assert limit.block_until_ready("ann", timeout=0.1, rate=1).allowed is True
    with pytest.raises(ValueError, match="Timeout must be positive"):
        limit.block_until_ready("ann", timeout=0)


@scenario
def units(cloud: Cloud, make: Make) -> None:
    for unit, milliseconds in UNITS.items():
        limit = make(FixedWindow(max_requests=1, window=10, unit=unit), prefix=unit)
        window = 10 * milliseconds
        end = (NOW_S * 1000 // window + 1) * window
        assert limit.limit("ann") == Response(True, 1, 0, end / 1000)
        assert limit.limit("ann").allowed is False


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("function", SCENARIOS, ids=lambda function: function.__name__)
def test_scenario(function: Scenario, flavour: str) -> None:
    run(function, flavour, Used())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nothing_of_the_surface_is_left_out(flavour: str) -> None:
    used = Used()
    for function in SCENARIOS:
        run(function, flavour, used)
    cls = FLAVOURS[flavour]
    wanted = set()
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if name == "__init__" or not name.startswith("_"):
            wanted.add(f"Ratelimit.{name}")
            parameters = list(inspect.signature(member).parameters)[1:]
            wanted |= {f"Ratelimit.{name}({parameter})" for parameter in parameters}
    assert sorted(wanted - used.calls) == []
    # The limiters' own methods are what Ratelimit calls; their parameters are given above.
    for algorithm, given in (
        (FixedWindow, {"max_requests", "window", "unit"}),
        (SlidingWindow, {"max_requests", "window", "unit"}),
        (TokenBucket, {"max_tokens", "refill_rate", "interval", "unit"}),
    ):
        assert set(inspect.signature(algorithm).parameters) == given
