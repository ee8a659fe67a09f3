"""The pool of threads: their names, their jobs and their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud.core.threads import WorkerPool

from ..harness import wait_until


def never() -> None:
    """An abandon callback that must not be called."""
    raise AssertionError("a thread could be had")


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(name="pool")
    yield pool
    pool.close()


def test_a_thread_runs_one_job_after_the_other(pool: WorkerPool) -> None:
    ran: list[threading.Thread] = []
    for _ in range(3):
        pool.submit(lambda: ran.append(threading.current_thread()), never)
        wait_until(lambda: len(pool.idle) == 1)
    assert [thread.name for thread in ran] == ["fakecloud-pool-1"] * 3
    assert len(set(ran)) == 1
    assert ran[0].daemon
    assert len(pool.threads) == 1


def test_the_thread_that_was_busy_last_is_the_next_to_work(pool: WorkerPool) -> None:
    events = [threading.Event() for _ in range(3)]
    threads: dict[int, threading.Thread] = {}

    def job(number: int) -> None:
        threads[number] = threading.current_thread()
        events[number].wait(10)

    for number in range(3):
        pool.submit(lambda number=number: job(number), never)  # type: ignore[misc]
    wait_until(lambda: len(threads) == 3)
    for at, number in enumerate((0, 2, 1)):
        events[number].set()
        wait_until(lambda at=at: len(pool.idle) == at + 1)  # type: ignore[misc]
    ran: list[threading.Thread] = []
    pool.submit(lambda: ran.append(threading.current_thread()), never)
    wait_until(lambda: ran != [])
    assert ran == [threads[1]]


def test_the_job_of_whom_no_thread_can_be_started_is_given_up(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("pytest_fakecloud.core.threads.start_thread", refuse)
    reports: list[str] = []
    pool.submit(never, lambda: reports.append("given up"))
    assert reports == ["given up"]
    assert (len(pool.threads), len(pool.idle)) == (0, 0)


def test_closing_ends_the_idle_at_once_and_the_busy_after_their_job() -> None:
    pool = WorkerPool()
    go_on, ended = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def busy() -> None:
        threads.append(threading.current_thread())
        go_on.wait(10)
        ended.set()

    together = threading.Barrier(2, timeout=10)
    pool.submit(lambda: together.wait() and None, never)
    pool.submit(lambda: together.wait() and None, never)
    wait_until(lambda: len(pool.idle) == 2)
    pool.submit(busy, never)
    wait_until(lambda: threads != [])
    assert (len(pool.threads), len(pool.idle)) == (2, 1)
    started = time.monotonic()
    assert not pool.close(0.01)
    assert time.monotonic() - started < 0.9
    go_on.set()
    assert pool.close(10)
    assert ended.is_set()
    assert (len(pool.threads), len(pool.idle)) == (0, 0)
    assert not any(thread.is_alive() for thread in threads)


def test_closing_a_pool_that_is_idle_needs_no_time() -> None:
    pool = WorkerPool(linger=60.0)
    pool.submit(lambda: None, never)
    wait_until(lambda: len(pool.idle) == 1)
    assert pool.close()
    assert (len(pool.threads), len(pool.idle)) == (0, 0)


def test_a_job_may_close_its_pool() -> None:
    pool = WorkerPool()
    closed: list[bool] = []
    pool.submit(lambda: closed.append(pool.close(10)), never)
    wait_until(lambda: len(pool.threads) == 0)
    assert closed == [True]


@pytest.mark.parametrize(
    "options",
    [{"keep": 1, "linger": 0.01}, {"keep": 0, "linger": 60.0, "spare": 1}],
    ids=["after a while", "when enough are idle"],
)
def test_an_idle_thread_ends_but_for_those_that_are_kept(options: dict[str, Any]) -> None:
    pool = WorkerPool(**options)
    together = threading.Barrier(3, timeout=10)
    for _ in range(3):
        pool.submit(lambda: together.wait() and None, never)
    wait_until(lambda: (len(pool.threads), len(pool.idle)) == (1, 1))
    pool.close()
