"""CLIENT commands about connections, apart from the scenarios: what they do to sessions."""

from __future__ import annotations

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import NOW_MS, Run, pushing_to


@pytest.fixture
def port(run: Run) -> Run:
    return run.other(interface="port", address="127.0.0.1:5001")


@pytest.fixture
def second(run: Run) -> Run:
    return run.other(interface="port", address="127.0.0.1:5002")


def test_quit_closes_the_session(run: Run) -> None:
    assert run("QUIT") == OK
    assert run.session.closing


def test_tracking_leaves_no_record(run: Run, port: Run, second: Run) -> None:
    port(f"CLIENT TRACKING ON REDIRECT {second.session.id}")
    port("GET a")
    assert run.engine.tracking
    run.engine.abandon(port.session)
    assert not run.engine.tracking
    assert run.engine.databases[0].ready is None


def test_restoring_invalidates_all_keys(run: Run, port: Run) -> None:
    messages: list[object] = []
    port.session.connection = pushing_to(messages.append)
    for line in ("HELLO 3", "CLIENT TRACKING ON", "GET a"):
        port(line)
    run.engine.restore(run.engine.snapshot())
    assert messages == [[b"invalidate", None]]


def test_pause(port: Run, clock: Timekeeper) -> None:
    pauses = port.engine.pauses
    for seconds, line, ends_ms, writes_only in (
        (0, "PAUSE 1000 WRITE", NOW_MS + 1000, True), (0, "PAUSE 1000 ALL", NOW_MS + 1000, False),
        (2, "PAUSE 500 WRITE", NOW_MS + 2500, True), (0, "UNPAUSE", 0, False),
    ):  # fmt: skip
        clock.advance(seconds)
        assert port(f"CLIENT {line}") == OK
        assert (pauses.pause_ends_us, pauses.writes_only) == (ends_ms * 1000, writes_only)
