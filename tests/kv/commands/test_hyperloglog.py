"""HyperLogLog commands, apart from the scenarios of real servers."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.algorithms import hyperloglog
from pytest_fakecloud.kv.reply import Status
from tests.kv.conftest import Run


def test_registers_are_shown_and_make_the_value_dense(run: Run) -> None:
    run("PFADD h a b")
    registers = run("PFDEBUG GETREG h")
    assert len(registers) == 16384
    assert sum(map(bool, registers)) == 2
    assert run("PFDEBUG ENCODING h") == Status(b"dense")


def test_a_failed_self_test_says_what_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperloglog, "self_test", lambda seed: "the estimate is wrong")
    assert run.error("PFSELFTEST") == "TESTFAILED the estimate is wrong"
