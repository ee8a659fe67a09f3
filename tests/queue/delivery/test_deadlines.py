# mypy: disable-error-code="func-returns-value"
"""Test the real-time caps of deliveries: order, cancelling, and independence of frozen time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import trio

from pytest_fakecloud.core.clock import loop_is_running
from pytest_fakecloud.core.timers import monotonic
from pytest_fakecloud.queue.delivery.applications import CapReached, Deadlines

from ..edge import frozen


@pytest.fixture
def deadlines() -> Iterator[Deadlines]:
    deadlines = Deadlines(0.05)
    yield deadlines
    deadlines.close()


def test_callbacks_come_in_the_order_of_their_instants(deadlines: Deadlines) -> None:
    came: list[str] = []
    done = threading.Event()
    deadlines.start(lambda: (came.append("last"), done.set()), 0.09)
    deadlines.start(lambda: came.append("second"), 0.04)
    deadlines.start(lambda: came.append("first"), 0.01)
    assert done.wait(5)
    assert came == ["first", "second", "last"]


def test_a_cancelled_one_never_comes(deadlines: Deadlines) -> None:
    came: list[str] = []
    held, released, done = threading.Event(), threading.Event(), threading.Event()
    # Keep the thread busy, so that the next deadline cannot fire before it is cancelled.
    deadlines.start(lambda: (held.set(), released.wait(30)), 0)
    assert held.wait(30)
    number = deadlines.start(lambda: came.append("cancelled"), 0)
    assert deadlines.cancel(number)
    assert not deadlines.cancel(number)
    later = deadlines.start(done.set, 0)
    released.set()
    assert done.wait(30)
    assert came == []
    assert not deadlines.cancel(later)


def test_a_callback_that_fails_does_not_stop_the_others(deadlines: Deadlines) -> None:
    done = threading.Event()
    deadlines.start(lambda: 1 / 0, 0.01)
    deadlines.start(done.set, 0.02)
    assert done.wait(5)


def test_no_thread_before_the_first_and_none_after_the_end() -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if "deadlines" in thread.name]

    before = threads()
    deadlines = Deadlines(5.0)
    assert threads() == before
    deadlines.cancel(deadlines.start(lambda: None))
    assert len(threads()) == len(before) + 1
    deadlines.close()
    deadlines.close()
    assert threads() == before


def test_a_callback_may_close(deadlines: Deadlines) -> None:
    done = threading.Event()
    deadlines.start(lambda: (deadlines.close(), done.set()), 0.01)
    assert done.wait(5)


@pytest.mark.parametrize("tool", ["freezegun", "time_machine"])
def test_frozen_time_does_not_hold_them_up(deadlines: Deadlines, tool: str) -> None:
    done = threading.Event()

    async def main() -> None:
        # The timers of the running loop are frozen, too.
        with frozen(tool), pytest.raises(CapReached):
            await deadlines.within_cap(asyncio.Event().wait())

    with frozen(tool):
        deadlines.start(done.set)
        assert done.wait(5)
    asyncio.run(main())


async def forever() -> str:
    if loop_is_running():
        await (asyncio.sleep(60) if _is_asyncio() else trio.sleep(60))
    return "never"


async def answer() -> str:
    return "answer"


def _is_asyncio() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_work_within_the_cap_and_beyond_it(deadlines: Deadlines, library: str) -> None:
    async def main() -> None:
        assert await deadlines.within_cap(answer()) == "answer"
        with pytest.raises(CapReached, match=r"^no answer within 0\.05 s of real time$"):
            await deadlines.within_cap(forever())

    started = monotonic()
    asyncio.run(main()) if library == "asyncio" else trio.run(main)
    assert monotonic() - started < 5


def test_an_exception_of_the_work_comes_through(deadlines: Deadlines) -> None:
    async def broken() -> None:
        raise KeyError("boom")

    with pytest.raises(KeyError):
        asyncio.run(deadlines.within_cap(broken()))
    with pytest.raises(KeyError):
        trio.run(deadlines.within_cap, broken())


def test_work_that_cancels_itself_is_cancelled_and_not_late() -> None:
    deadlines = Deadlines(60)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await deadlines.within_cap(cancelled())

    asyncio.run(main())
    deadlines.close()


def test_timeout_texts_name_the_awaitable_method_in_a_running_loop(deadlines: Deadlines) -> None:
    assert deadlines.timeout_text("why") == "no answer within 0.05 s of real time"

    async def inside() -> str:
        return deadlines.timeout_text("why")

    assert "await queue.aio.run_until_idle()" in asyncio.run(inside())
    assert "await queue.aio.run_until_idle()" in trio.run(inside)


def test_deadlines_that_were_met_leave_nothing_behind() -> None:
    deadlines = Deadlines(86_400)
    deadline = deadlines.start(lambda: None)
    assert deadlines.cancel(deadlines.start(lambda: None))
    assert [*deadlines._planned] == [deadline]
    assert deadlines.cancel(deadline)
    deadlines.close()
