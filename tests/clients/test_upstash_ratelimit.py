"""Test the official rate limiter, sync and async, with every algorithm.

The limiter reads the process's clock and the server reads its own. `process_time` synchronises
them, so that both compute the same windows and an hour takes no time. In front of a real server,
time is wall-clock time; ends of windows are then tested with short windows.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.kv.fake import KVServer
from tests.clients.surface import Api, Kept, Used, check_complete, surface
from tests.harness import wait_until
from tests.kv.backing import BINARIES, MISSING, OWN, Server, started

upstash_ratelimit = pytest.importorskip("upstash_ratelimit")
pytest.importorskip("time_machine")

from upstash_ratelimit import FixedWindow, Ratelimit, Response, SlidingWindow, TokenBucket  # noqa: E402
from upstash_ratelimit import asyncio as ratelimit_asyncio  # noqa: E402

NOW = "2026-01-01T00:00:00Z"
NOW_S = 1767225600
UNITS: dict[Any, int] = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FLAVOURS = {"sync": Ratelimit, "async": ratelimit_asyncio.Ratelimit}


LOOP = asyncio.new_event_loop()


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[None]:
    yield
    LOOP.close()


@dataclass
class World:
    """The server, limiters and time of one scenario; ``real`` is true in front of a real server."""

    cloud: Cloud
    server: KVServer
    flavour: str
    used: Used
    stack: ExitStack
    real: bool

    def limiter(self, algorithm: Any, **options: Any) -> Any:
        """Return a recorded limiter, whose client is closed at the end."""
        cls = FLAVOURS[self.flavour]
        sync = self.flavour == "sync"
        client = self.server.client() if sync else self.server.aio.client()
        self.stack.callback(self._close, client)
        self.used.note("Ratelimit", "__init__", ["redis", "limiter", *options])
        return Api(cls(client, algorithm, **options), {cls: "Ratelimit"}, self.used, LOOP)

    @staticmethod
    def _close(client: Any) -> None:
        result = client.close()
        if inspect.isawaitable(result):
            LOOP.run_until_complete(result)

    def end_of(self, window_ms: int) -> float:
        """Return when the current window ends, in seconds."""
        now_ms = self.cloud.clock.now_us() // 1000
        return (now_ms // window_ms + 1) * window_ms / 1000

    def pass_time(self, seconds: float, until: Callable[[], bool]) -> None:
        """Let the time pass after which a condition becomes true."""
        if self.real:
            wait_until(until)
        else:
            self.cloud.clock.advance(seconds)
            assert until()


Scenario = Callable[[World], None]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def run(function: Scenario, flavour: str, used: Used, url: str | None = None) -> None:
    time: dict[str, Any] = {} if url else {"now": NOW, "process_time": True}
    with ExitStack() as stack:
        cloud = stack.enter_context(Cloud(**time))
        server = cloud.kv_server(engine=url)
        function(World(cloud, server, flavour, used, stack, url is not None))


@scenario
def fixed_window(w: World) -> None:
    limit = w.limiter(FixedWindow(max_requests=3, window=10, unit="h"))
    end = w.end_of(36_000_000)
    assert limit.get_remaining("ann") == 3
    assert limit.limit("ann") == Response(True, 3, 2, end)
    assert limit.limit("ann", rate=2) == Response(True, 3, 0, end)
    assert limit.limit("ann").allowed is False
    assert limit.limit("bob").allowed is True
    assert limit.get_remaining("ann") == 0
    assert limit.get_reset("ann") == end


@scenario
def fixed_window_that_ends(w: World) -> None:
    limit = w.limiter(FixedWindow(max_requests=2, window=500, unit="ms"))
    if not w.real:
        assert limit.limit("ann", rate=2) == Response(True, 2, 0, NOW_S + 0.5)
    exhaust(limit)
    w.pass_time(0.5, lambda: limit.limit("ann").allowed)
    if not w.real:
        assert limit.limit("ann") == Response(True, 2, 0, NOW_S + 1)


def exhaust(limit: Any) -> None:
    """Send requests until one is rejected; in wall-clock time, a window may end in between."""
    wait_until(lambda: not limit.limit("ann").allowed)


@scenario
def sliding_window(w: World) -> None:
    limit = w.limiter(SlidingWindow(max_requests=4, window=10, unit="h"), prefix="mine")
    assert [limit.limit("ann").remaining for _ in range(4)] == [3, 2, 1, 0]
    assert limit.limit("ann").allowed is False
    assert limit.get_remaining("ann") == 0
    assert limit.get_reset("ann") == w.end_of(36_000_000)
    keys = w.server.keys()
    assert keys
    assert all(key.startswith("mine:ann") for key in keys)


@scenario
def sliding_window_that_moves(w: World) -> None:
    limit = w.limiter(SlidingWindow(max_requests=4, window=400, unit="ms"))
    exhaust(limit)
    # After half a window, half of the previous window's requests still count.
    w.pass_time(0.6, lambda: limit.get_remaining("ann") >= 2)
    if not w.real:
        assert [limit.limit("ann").allowed for _ in range(3)] == [True, True, False]
        assert limit.get_reset("ann") == NOW_S + 0.8
    w.pass_time(1, lambda: limit.get_remaining("ann") == 4)


@scenario
def token_bucket(w: World) -> None:
    limit = w.limiter(TokenBucket(max_tokens=5, refill_rate=2, interval=10, unit="h"))
    started_s = w.cloud.clock.now_us() / 1_000_000
    assert limit.get_remaining("ann") == 5
    assert [limit.limit("ann").remaining for _ in range(5)] == [4, 3, 2, 1, 0]
    assert limit.limit("ann").allowed is False
    assert limit.get_reset("ann") >= started_s


@scenario
def token_bucket_that_fills(w: World) -> None:
    limit = w.limiter(TokenBucket(max_tokens=3, refill_rate=2, interval=200, unit="ms"))
    exhaust(limit)
    w.pass_time(0.2, lambda: limit.limit("ann", rate=2).allowed)
    assert w.real or limit.limit("ann").allowed is False
    w.pass_time(0.4, lambda: limit.get_remaining("ann") == 3)


@scenario
def waiting_until_ready(w: World) -> None:
    limit = w.limiter(FixedWindow(max_requests=1, window=1, unit="d"))
    assert limit.block_until_ready("ann", timeout=0.1, rate=1).allowed is True
    with pytest.raises(ValueError, match="Timeout must be positive"):
        limit.block_until_ready("ann", timeout=0)


@scenario
def units(w: World) -> None:
    for unit, milliseconds in UNITS.items():
        # Use windows of hours, so that none ends during the test in wall-clock time.
        window = max(10, 36_000_000 // milliseconds)
        limit = w.limiter(FixedWindow(max_requests=1, window=window, unit=unit), prefix=unit)
        assert limit.limit("ann") == Response(True, 1, 0, w.end_of(window * milliseconds))
        assert limit.limit("ann").allowed is False


CALLS = Kept(run)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("function", SCENARIOS, ids=lambda function: function.__name__)
def test_scenario(function: Scenario, flavour: str) -> None:
    CALLS.run(function, flavour)


SERVERS = [OWN, *BINARIES]
FRONTS = [(name, [*FLAVOURS][at % 2]) for at, name in enumerate(SERVERS)]
"""Run a scenario; the asynchronous limiter runs in front of servers, too, with the same requests."""


@pytest.fixture(
    scope="module",
    params=FRONTS if BINARIES else [*FRONTS, pytest.param(("none", "sync"), marks=MISSING)],
    ids="-".join,
)
def front(request: pytest.FixtureRequest) -> Iterator[tuple[Server, str]]:
    pytest.importorskip("redis")
    name, flavour = request.param
    real = started(name)
    yield real, flavour
    real.close()


@pytest.mark.parametrize("function", SCENARIOS, ids=lambda function: function.__name__)
@pytest.mark.slow
def test_scenario_in_front_of_a_server(function: Scenario, front: tuple[Server, str]) -> None:
    real, flavour = front
    run(function, flavour, Used(), real.url)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nothing_of_the_surface_is_left_out(flavour: str) -> None:
    used = CALLS.calls(SCENARIOS, flavour)
    wanted = surface(FLAVOURS[flavour], "Ratelimit", special={"__init__"})
    check_complete(__file__, wanted - used)
    # Ratelimit calls the limiters' own methods; their parameters are covered above.
    for algorithm, parameters in (
        (FixedWindow, {"max_requests", "window", "unit"}),
        (SlidingWindow, {"max_requests", "window", "unit"}),
        (TokenBucket, {"max_tokens", "refill_rate", "interval", "unit"}),
    ):
        assert set(inspect.signature(algorithm).parameters) == parameters
