"""Connection commands, apart from the scenarios: QUIT."""

from __future__ import annotations

from pytest_fakecloud.kv.reply import OK
from tests.kv.conftest import Run


def test_quit_closes_the_session(run: Run) -> None:
    assert run("QUIT") == OK
    assert run.session.closing
