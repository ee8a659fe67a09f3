"""HyperLogLog commands, apart from the scenarios of real servers."""

from __future__ import annotations

from hashlib import sha256

import pytest

from pytest_fakecloud.kv.algorithms import hyperloglog
from pytest_fakecloud.kv.reply import Status
from tests.kv.conftest import Run

DENSE_COUNT = 4972
DENSE_DIGEST = "5f3fc4393059c9ffb30143795fb4bb8414e7cc920fa82ff104a8f418abae2ec8"
SPARSE_DIGEST = "3dbe492774191a80bb0068644e25df1c0eedc1e2a331d5dabc9a4a5cb0340ce3"


def test_a_dense_value_is_that_of_the_real_server(run: Run) -> None:
    """The digest of GET on Redis 7.0.15 after the same 5,000 elements."""
    for start in range(0, 5000, 250):
        run("PFADD", "h", *(f"element-{n}" for n in range(start, start + 250)))
    assert run("PFDEBUG ENCODING h") == Status(b"dense")
    assert run("PFCOUNT h") == DENSE_COUNT
    assert sha256(run("GET h")).hexdigest() == DENSE_DIGEST


def test_a_sparse_value_is_that_of_the_real_server(run: Run) -> None:
    run("PFADD", "h", *(f"element-{n}" for n in range(700)))
    assert run("PFDEBUG ENCODING h") == Status(b"sparse")
    assert sha256(run("GET h")).hexdigest() == SPARSE_DIGEST


def test_registers_are_shown_and_make_the_value_dense(run: Run) -> None:
    run("PFADD h a b")
    registers = run("PFDEBUG GETREG h")
    assert len(registers) == 16384
    assert sum(map(bool, registers)) == 2
    assert run("PFDEBUG ENCODING h") == Status(b"dense")


def test_a_failed_self_test_says_what_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperloglog, "self_test", lambda seed: "the estimate is wrong")
    assert run.error("PFSELFTEST") == "TESTFAILED the estimate is wrong"
