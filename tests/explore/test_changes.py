"""The causes of failures of several disturbances, and what each disturbance changed."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from upstash_redis import Redis

from pytest_fakecloud import BrokenPromiseError, Cloud, History, KVServer
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.explore.result.cause import LastDisturbance
from pytest_fakecloud.explore.values.trial import Line

from .bugs import Make, deep
from .conftest import broken, expects, failure, found_cause, opened
from .test_bugs import explored, named


def _failure(make: Make, schedule: str) -> BrokenPromiseError:
    with opened() as cloud, pytest.raises(BrokenPromiseError) as caught:
        explored(cloud, make(cloud, False), schedule=schedule)
    return caught.value


def _words(line: Line | None) -> str:
    """Return a call as its first words: a command with its key, or a route."""
    if line is None or line.call is None:
        return ""
    command = line.call.facts.get("command")
    return " ".join(map(str, command)) if command else line.call.route


def _changes(error: BrokenPromiseError) -> list[tuple[str, str, str]]:
    return [
        (change.kind, _words(change.calls[0]), _words(change.calls[1])) for change in error._changes
    ]


_CRASHES = "worker.4 crash, worker/2.5 crash, worker/3.5 crash, worker/4.6 crash"
_LOST = ", ".join(f"monitor.{point} lose_response" for point in (1, 3, 5, 7))
_RECOUNT = "delivery1.1 lose_response, delivery2.1 crash, delivery1/2.3 delay 30"


@pytest.mark.parametrize(
    ("make", "schedule", "data"),
    [
        (deep.buried_job, _CRASHES, "key dead"),
        (deep.failed_compensation, "guest.2 drop, guest.3 drop, guest.4 drop", "key rooms"),
        (deep.failed_over, _LOST, "key primary"),
        (deep.recounted_by_a_retry, _RECOUNT, "key total"),
        (
            deep.rebuilt_after_restarts,
            "job.3 crash, job/2.3 crash, job/3.5 crash",
            "namespace default",
        ),
        (
            deep.closed_during_a_retry,
            "close.0 delay 105, delivery1.1 crash, delivery1/2.2 delay 30",
            "key orders",
        ),
        (deep.skipped_record, "worker.4 crash, worker/2.4 crash, worker/3.5 crash", "key aside"),
    ],
    ids=lambda value: named(value) if callable(value) else "",
)
def test_the_last_decision_is_the_cause_with_the_first_data_on_which_its_sides_conflict(
    make: Make, schedule: str, data: str
) -> None:
    error = _failure(make, schedule)
    cause = found_cause(error)
    assert isinstance(cause, LastDisturbance)
    assert str(cause.data) == data
    assert ", ".join(map(str, cause.disturbances)) == schedule
    assert cause.decisive is not None
    assert cause.decisive.is_disturbance
    assert [change.breaks for change in error._changes] == [
        *itertools.repeat(False, len(cause.disturbances) - 1),
        True,
    ]


def test_of_more_disturbances_than_needed_the_first_that_breaks_the_promise_is_the_cause() -> None:
    error = _failure(deep.buried_job, f"{_CRASHES}, worker/5.1 crash")
    cause = found_cause(error)
    assert isinstance(cause, LastDisturbance)
    assert ", ".join(map(str, cause.disturbances)) == _CRASHES


def test_an_undisturbed_trial_that_breaks_the_promise_has_no_cause(
    cloud: Cloud, redis: Redis
) -> None:
    def run() -> None:
        redis.set("a", "1")
        redis.set("b", "1")

    error = failure(cloud, run, broken, schedule="run.1 duplicate, run.2 duplicate")
    assert error._cause is None


@pytest.mark.parametrize(
    ("make", "schedule", "changes"),
    [
        (deep.buried_job, _CRASHES, [*[("call", "SADD", "")] * 3, ("call", "RPUSH", "")]),
        (
            deep.failed_over,
            _LOST,
            [
                ("call", "SET", "INCR"),
                ("call", "SET", "INCR"),
                ("call", "", "INCR"),
                ("call", "SET", ""),
            ],
        ),
        (
            deep.recounted_by_a_retry,
            _RECOUNT,
            [("call", "", "EVAL"), ("call", "EVAL", ""), ("order", "SET", "EVAL")],
        ),
    ],
    ids=lambda value: named(value) if callable(value) else "",
)
def test_each_disturbance_changes_a_call(
    make: Make, schedule: str, changes: list[tuple[str, str, str]]
) -> None:
    error = _failure(make, schedule)
    assert _changes(error) == changes
    lines = error.story.splitlines()
    for change in error._changes:
        assert any(line.startswith(f"{change.disturbance}: ") for line in lines)


def test_a_disturbance_that_changes_no_call_says_so(cloud: Cloud, redis: Redis) -> None:
    def check(history: History) -> None:
        assert history.schedule.count("delay") < 2

    clients = {"ann": lambda: redis.get("a"), "bob": lambda: redis.get("b")}
    error = failure(cloud, clients, check, schedule="ann.1 delay 1, bob.1 delay 1")
    assert [change.calls for change in error._changes] == [(None, None)] * 2
    assert error.story.count(": changes no call") == 2


def test_one_disturbance_has_no_line_of_its_own(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    error = failure(
        cloud, {"run": lambda: redis.incr("n")}, expects(kv, "1"), schedule="run.1 duplicate"
    )
    assert found_cause(error).data is None
    assert "run.1 duplicate:" not in error.story


@pytest.mark.parametrize(
    "make", [deep.failed_compensation, deep.resumed_import, deep.open_breaker], ids=named
)
def test_no_part_of_a_schedule_that_a_search_reports_breaks_the_promise(make: Make) -> None:
    with opened() as cloud:
        scenario = make(cloud, False)
        with pytest.raises(BrokenPromiseError) as caught:
            explored(cloud, scenario, seed=1)
        disturbances = caught.value.disturbances
        assert len(disturbances) >= 3
        for size in range(1, len(disturbances)):
            for part in itertools.combinations(disturbances, size):
                # A disturbance of a later restart has no place if there is none.
                with contextlib.suppress(ContractError):
                    explored(cloud, scenario, schedule=", ".join(part))
