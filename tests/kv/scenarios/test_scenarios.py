"""The replies of real servers in this folder, compared with those of the engine."""

from __future__ import annotations

import pytest

from tests.kv.conftest import Run
from tests.kv.scenarios import FOLDER, play, scenarios

SCENARIOS = {
    f"{file.stem}: {name}": scenario
    for file in sorted(FOLDER.glob("*.txt"))
    for name, scenario in scenarios(file.stem).items()
}


@pytest.mark.dialect("redis")
@pytest.mark.parametrize("name", SCENARIOS)
def test_as_real_servers_answer(run: Run, name: str) -> None:
    play(run, SCENARIOS[name])
