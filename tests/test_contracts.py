"""Public calls of Cloud, Timekeeper, Journal, faults and fakes validate their arguments.

Every call here receives a value of each wrong kind and must raise ``ContractError`` with a message.
Accepting it would fail later and elsewhere, and another error would not say what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.base_cloud import begin_test, context_of, fixture_fake
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timekeeper import Timekeeper

from .harness import check_each

NOON = "2026-01-01T12:00:00Z"


class Unshowable:
    """An object without a repr, which the error message must survive."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


async def coroutine(*_: object) -> None:
    """A coroutine that is never awaited."""


KINDS: dict[str, Any] = {
    "none": None,
    "bool": True,
    "int": 5,
    "negative": -1,
    "float": 1.5,
    "nan": float("nan"),
    "text": "nonsense\0",
    "empty": "",
    "bytes": b"x",
    "list": [],
    "numbers": [5],
    "texts": ["a"],
    "dict": {"a": 1},
    "object": object(),
    "function": lambda *_: None,
    "coroutine": coroutine,
}
SECONDS = "int float"
FUNCTIONS = "function"

CALLS: dict[str, tuple[Callable[[Cloud, Any], object], str]] = {
    # the call, and the kinds that it accepts
    "Cloud(seed=)": (lambda cloud, v: Cloud(seed=v).close(), "none int negative text empty"),
    "Cloud(now=)": (lambda cloud, v: Cloud(now=v).close(), "none"),
    "Cloud(clock=)": (lambda cloud, v: Cloud(clock=v).close(), "none"),
    "Cloud(process_time=)": (lambda cloud, v: Cloud(process_time=v).close(), "bool"),
    "Cloud(delivery=)": (lambda cloud, v: Cloud(delivery=v).close(), ""),
    "Cloud(transport=)": (lambda cloud, v: Cloud(transport=v).close(), ""),
    "Cloud(tls=)": (lambda cloud, v: Cloud(tls=v).close(), "bool"),
    "Cloud._reseed": (lambda cloud, v: context_of(cloud).ids.reseed(v), "int negative text empty"),
    "Cloud.start(fixture)": (lambda cloud, v: cloud._start(v, {}), ""),
    "Cloud.start(settings)": (lambda cloud, v: cloud._start("kv_server", v), ""),
    "Cloud.start(a name)": (
        lambda cloud, v: cloud._start("kv_server", {v if _hashable(v) else "": 1}),
        "",
    ),
    "Cloud.start(name=)": (lambda cloud, v: cloud.kv_server(name=v), "none text"),
    "Cloud.start(port=)": (lambda cloud, v: cloud.kv_server(port=v), "none int"),
    "Cloud.start(token=)": (lambda cloud, v: cloud.kv_server(token=v), "none"),
    "Cloud.fixture_handle": (lambda cloud, v: fixture_fake(cloud, v), ""),
    "Cloud.allow": (lambda cloud, v: cloud.allow(v), ""),
    "Cloud.restore": (lambda cloud, v: cloud.restore(v), ""),
    "Cloud.begin(now)": (lambda cloud, v: begin_test(cloud, v), "none"),
    "Cloud.begin(clock)": (lambda cloud, v: begin_test(cloud, None, v), "none"),
    "Cloud.every_failure(run)": (lambda cloud, v: cloud.every_failure(v), ""),
    "Cloud.explore(run)": (lambda cloud, v: cloud.explore(v), ""),
    "Cloud.explore(check)": (lambda cloud, v: _explored(cloud, check=v), "none function coroutine"),
    "Cloud.explore(workers)": (
        lambda cloud, v: _explored(cloud, workers=v),
        "list dict function coroutine",
    ),
    "Cloud.explore(services)": (lambda cloud, v: _explored(cloud, services=v), "none"),
    "Cloud.explore(kinds)": (lambda cloud, v: _explored(cloud, kinds=v), ""),
    "Cloud.explore(setup)": (lambda cloud, v: _explored(cloud, setup=v), "none function coroutine"),
    "Cloud.explore(budget)": (lambda cloud, v: _explored(cloud, budget=v), "int"),
    "Cloud.explore(schedule)": (lambda cloud, v: _explored(cloud, schedule=v), "none empty"),
    "Cloud.replay": (lambda cloud, v: cloud.replay(v), ""),
    "Ids": (lambda cloud, v: Ids(v), "int negative text empty"),
    "Ids.reseed": (lambda cloud, v: Ids(1).reseed(v), "int negative text empty"),
    "Clock(now)": (lambda cloud, v: Timekeeper(v), "none"),
    "Clock(mode)": (lambda cloud, v: Timekeeper(None, v), "none"),
    "Timekeeper.wait_cap": (lambda cloud, v: setattr(cloud._time, "wait_cap", v), SECONDS),
    "Clock.advance": (lambda cloud, v: cloud.clock.advance(v), "int float"),
    "Clock.move_to": (lambda cloud, v: cloud.clock.move_to(v), ""),
    "Clock.aio.advance": (lambda cloud, v: asyncio.run(cloud.clock.aio.advance(v)), "int float"),
    "Clock.aio.move_to": (lambda cloud, v: asyncio.run(cloud.clock.aio.move_to(v)), ""),
    "Cloud.aio.every_failure": (lambda cloud, v: asyncio.run(cloud.aio.every_failure(v)), ""),
    "Cloud.aio.replay": (lambda cloud, v: asyncio.run(cloud.aio.replay(v)), ""),
    "Journal.calls": (lambda cloud, v: cloud.journal.calls(v), "none function coroutine"),
    "Journal.assert_called": (
        lambda cloud, v: cloud.journal.assert_called(v, times=0),
        "none text empty",
    ),
    "Journal.assert_called(times=)": (
        lambda cloud, v: (
            cloud.journal.assert_not_called() if v is None else cloud.journal.assert_called(times=v)
        ),
        "none int",
    ),
    "Handle.on_close": (lambda cloud, v: _kv(cloud).on_close(v), FUNCTIONS),
    "Handle.restore": (lambda cloud, v: _kv(cloud).restore(v), ""),
    "Handle.intercept": (lambda cloud, v: _kv(cloud).intercept(v), ""),
    "Handle.assert_not_called": (
        lambda cloud, v: _kv(cloud).assert_not_called(v),
        "none text empty",
    ),
    "FaultPlan.delay": (lambda cloud, v: _kv(cloud).faults.delay(v), "int float"),
    "FaultPlan.answer": (lambda cloud, v: _kv(cloud).faults.respond(v), ""),
    "FaultPlan.sequence": (lambda cloud, v: _kv(cloud).faults.sequence(v), ""),
    "FaultPlan.random": (lambda cloud, v: _kv(cloud).faults.random(v), ""),
}


def _explored(cloud: Cloud, **options: Any) -> None:
    with Cloud(delivery="driven") as own:
        own.explore(own.kv_server().client().ping, **{"budget": 1, **options})


CASES = {
    call: [(call, kind) for kind in KINDS if kind not in taken.split()]
    for call, (_, taken) in CALLS.items()
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cloud]:
    with Cloud(seed=1, now=NOON, delivery="driven") as opened:
        yield opened


def _kv(cloud: Cloud) -> Any:
    return fixture_fake(cloud, "kv_server")


def _hashable(value: object) -> bool:
    return type(value).__hash__ is not None


@pytest.mark.parametrize("call", CASES)
def test_what_is_of_no_use_is_refused_in_words(shared: Cloud, call: str) -> None:
    check_each(partial(_is_refused, shared), CASES[call])


def _is_refused(shared: Cloud, call: str, kind: str) -> None:
    before = shared.fakes()
    with pytest.raises(ContractError) as refusal:
        CALLS[call][0](shared, KINDS[kind])
    assert len(str(refusal.value)) > 20
    # A rejected call has changed nothing.
    assert shared.fakes() == before or "kv_server" in {handle.name for handle in shared.fakes()}
    assert shared.seed == 1


PLAIN = ("Journal.", "Handle.intercept", "Handle.assert")
WITH_CARE = [call for call in CALLS if not call.startswith(PLAIN)]


def test_what_cannot_even_be_shown_is_refused_in_words(shared: Cloud) -> None:
    def check(call: str) -> None:
        with pytest.raises(ContractError, match="<Unshowable, whose repr raises>"):
            CALLS[call][0](shared, Unshowable())

    check_each(check, zip(WITH_CARE))


def test_a_number_beyond_all_printing_is_refused_in_words() -> None:
    for call in (lambda: Cloud(seed=10**5000), lambda: Timekeeper().advance(10**5000)):
        with pytest.raises(ContractError, match=r"bits is too large for a seed|exceed 100 years"):
            call()


def test_a_seed_of_any_text_will_do() -> None:
    assert Ids("\ud800").stream("a").random() != Ids("x").stream("a").random()
