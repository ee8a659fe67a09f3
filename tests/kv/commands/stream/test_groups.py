"""Consumer groups: XGROUP, XREADGROUP, XACK."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run
from tests.kv.scenarios import play
from tests.kv.scenarios.streams import GROUPS, SCENARIOS


@pytest.mark.dialect("redis")
@pytest.mark.parametrize("name", GROUPS)
def test_as_real_servers_answer(run: Run, name: str) -> None:
    play(run, SCENARIOS[name])
