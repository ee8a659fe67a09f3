"""The kinds of faults and the responses they make, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pytest_fakecloud.core.clock import Clock, Timekeeper
from pytest_fakecloud.faults.answers import lost, truncated
from pytest_fakecloud.faults.fault import Fault
from pytest_fakecloud.faults.plan import FaultPlan, injector_of
from pytest_fakecloud.http.messages import Answer, ConnectionEffect, Request, Stream

from ..harness import error_of
from .conftest import sent


class Nameless:
    def __call__(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("prepare", "kind", "description"),
    [
        (lambda f: f.respond(503), "respond", "respond 503"),
        (lambda f: f.drop(), "drop", "drop"),
        (lambda f: f.lose_response(), "lose_response", "lose_response"),
        (lambda f: f.delay("0.25s"), "delay", "delay 0.25 s"),
        (lambda f: f.hang(), "hang", "hang"),
        (lambda f: f.truncate(), "truncate", "truncate"),
        (lambda f: f.down(), "down", "down"),
        (lambda f: f.down(502), "down", "down 502"),
        (lambda f: f.rate_limit(2, 1e6), "rate_limit", "rate_limit 2 per 1e+06 s"),
        (lambda f: f.rate_limit(0), "rate_limit", "rate_limit 0 per 60 s"),
        (lambda f: f.sequence([503, None, "drop"]), "sequence", "sequence [503, ok, drop]"),
        (lambda f: f.random(0.25), "random", "random 503 at 0.25"),
        (lambda f: f.random(1, "drop"), "random", "random drop at 1"),
        (lambda f: f.call(print), "call", "call print before"),
        (lambda f: f.call(Nameless(), "after"), "call", "call Nameless after"),
    ],
)
def test_every_kind_says_what_prepared_it_and_what_it_does(
    plan: FaultPlan, prepare: Callable[[FaultPlan], Fault], kind: str, description: str
) -> None:
    fault = prepare(plan)
    assert (fault.kind, fault.description) == (kind, description)


# -- ends of connections -------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [False, True])
def test_what_cuts_a_connection_says_how(plan: FaultPlan, reset: bool) -> None:
    with plan.drop(reset=reset):
        assert sent(plan) == ConnectionEffect("drop", reset=reset)
    with plan.lose_response(reset=reset):
        assert sent(plan) == ConnectionEffect("lose", Answer(b"fine"), reset=reset)
    with plan.lose_response(reset=reset):
        assert sent(plan, Stream(iter([b"1"]))) == ConnectionEffect("lose", reset=reset)


def test_by_themselves_connections_end_without_a_reset(plan: FaultPlan) -> None:
    for prepare in (plan.drop, plan.lose_response, plan.hang):
        with prepare():
            assert sent(plan).reset is False
    with plan.down():
        assert sent(plan) == ConnectionEffect("refuse", reset=True)
    assert lost(Answer()).reset is False  # type: ignore[union-attr]


@pytest.mark.parametrize("effect", [ConnectionEffect("drop"), ConnectionEffect("hang")])
def test_what_is_cut_already_cannot_be_spoilt(effect: ConnectionEffect) -> None:
    assert lost(effect, True) is effect
    assert truncated(effect, 1) is effect


@pytest.mark.parametrize(
    ("body", "keep", "expected"),
    [
        (b"12345", None, 2), (b"12345", 3, 3), (b"12345", 5, 4), (b"1", None, 0), (b"1", 5, 0),
        (b"", None, 0), (b"", 5, 0),
    ],
)  # fmt: skip
def test_a_truncated_answer_lacks_its_end(body: bytes, keep: int | None, expected: int) -> None:
    answer = Answer(body)
    assert truncated(answer, keep) == ConnectionEffect("truncate", answer, expected)


class Chunks:
    """The chunks of a stream, which record whether they were closed."""

    def __init__(self, count: int) -> None:
        self.left = iter(range(count))
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return b"%d" % next(self.left)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(("keep", "came"), [(None, [b"0"]), (0, []), (2, [b"0", b"1"])])
def test_a_truncated_stream_breaks_off(keep: int | None, came: list[bytes]) -> None:
    chunks = Chunks(3)
    stream = truncated(Stream(chunks), keep)
    assert isinstance(stream, Stream)
    assert [next(stream.chunks) for _ in came] == came
    with pytest.raises(ConnectionAbortedError, match=r"^the answer was truncated$"):
        next(stream.chunks)
    assert chunks.closed == 1


def test_a_stream_shorter_than_what_is_kept_ends_by_itself() -> None:
    chunks = Chunks(2)
    stream = truncated(Stream(chunks), 3)
    assert isinstance(stream, Stream)
    assert list(stream.chunks) == [b"0", b"1"]
    assert chunks.closed == 1


def test_a_stream_that_is_lost_is_closed() -> None:
    chunks = Chunks(2)
    ended: list[str] = []
    lost(Stream(chunks, on_close=lambda: ended.append("ended")))
    assert (chunks.closed, ended) == (1, ["ended"])
    # Some iterators have no close().
    assert lost(Stream(iter([b"1"]))) == ConnectionEffect("lose")


def test_a_delay_lasts_as_long_as_it_was_set_to(
    plan: FaultPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(injector_of(plan), "pause", paused.append)
    plan.delay("250ms")
    assert sent(plan) == Answer(b"fine")
    assert paused == [0.25]


# -- limits --------------------------------------------------------------------------------------


@pytest.fixture
def clock(plan: FaultPlan) -> Clock:
    injector_of(plan).clock.freeze()
    return injector_of(plan).clock


def test_a_refusal_says_how_long_the_span_lasts_in_whole_seconds_rounded_up(
    plan: FaultPlan, clock: Clock
) -> None:
    plan.rate_limit(7, per=10)
    for _ in range(7):
        assert sent(plan) == Answer(b"fine")
    for passed, left in [("0s", "10"), ("6999999us", "4"), ("1us", "3"), ("2500ms", "1")]:
        clock.advance(passed)
        assert list(sent(plan).headers) == [
            ("Retry-After", left), ("RateLimit-Limit", "7"), ("RateLimit-Remaining", "0"),
            ("RateLimit-Reset", left),
        ]  # fmt: skip


@pytest.mark.parametrize(
    "now", ["1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]
)
def test_a_limit_counts_at_any_time(plan: FaultPlan, now: str) -> None:
    injector_of(plan).clock = Timekeeper(now=now)
    plan.rate_limit(1, per="1h")
    assert [sent(plan).status for _ in range(3)] == [200, 429, 429]
    injector_of(plan).clock.advance(timedelta(hours=1))
    assert [sent(plan).status for _ in range(2)] == [200, 429]


def test_each_limit_has_a_span_of_its_own(plan: FaultPlan, clock: Clock) -> None:
    plan.rate_limit(0, per=1)
    assert sent(plan).status == 429
    clock.advance(1)
    assert sent(plan).status == 429


# -- chance --------------------------------------------------------------------------------------


def test_a_step_that_chance_takes_may_need_what_the_endpoint_does(plan: FaultPlan) -> None:
    plan.random(1, "lose_response")
    assert sent(plan) == ConnectionEffect("lose", Answer(b"fine"))


# -- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function_of", "count"),
    [
        (lambda see: lambda: see(), 0),
        (lambda see: lambda request: see(request), 1),
        (lambda see: lambda request=None: see(request), 1),
        (lambda see: lambda request, /: see(request), 1),
        (lambda see: lambda *requests: see(*requests), 1),
        (lambda see: lambda *, request=None: see(), 0),
        (lambda see: lambda **named: see(**named), 0),
    ],
)
def test_a_function_gets_the_request_where_it_takes_an_argument(
    plan: FaultPlan, function_of: Callable[[Callable[..., None]], Callable[..., object]], count: int
) -> None:
    seen: list[type] = []
    plan.call(function_of(lambda *args: seen.extend(map(type, args))))
    sent(plan)
    assert seen == [Request] * count


def test_a_function_that_says_nothing_of_its_arguments_gets_none(plan: FaultPlan) -> None:
    fault = plan.call(dict)  # a built-in type without a signature
    assert sent(plan) == Answer(b"fine")
    assert fault.hits == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_error_of_a_function_is_told_with_its_fault(plan: FaultPlan, moment: Any) -> None:
    def broken() -> None:
        raise KeyError("typo")

    plan.call(broken, moment)
    text = error_of(sent, plan)
    assert text.startswith(f"the function of <call broken {moment}, ")
    assert text.endswith("> failed: KeyError('typo')")
