"""HyperLogLog commands, apart from the scenarios of real servers."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.algorithms import hyperloglog
from tests.kv.conftest import Run


def test_a_failed_self_test_says_what_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hyperloglog, "self_test", lambda seed: "the estimate is wrong")
    assert run.error("PFSELFTEST") == "TESTFAILED the estimate is wrong"
