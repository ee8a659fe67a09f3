"""The replies in this folder, compared with those of the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from pytest_fakecloud.explore.footprint import READS_CLOCK
from pytest_fakecloud.explore.touches import touches_of_command
from pytest_fakecloud.kv.engine.client import Client
from pytest_fakecloud.kv.engine.keyspace import Keyspace
from pytest_fakecloud.reporting.findings.kv.commands import Command
from tests.kv.conftest import Run
from tests.kv.scenarios import FOLDER, Scenario, play, scenarios


def cases(files: str, dialect: str) -> list[ParameterSet]:
    """Return the scenarios of some files, each marked with its dialect."""
    found = []
    for file in sorted(FOLDER.glob(files)):
        stem = file.relative_to(FOLDER).with_suffix("").as_posix()
        for title, scenario in scenarios(stem).items():
            own = re.search(r" \[(\w+) ?(\S*)\]$", title)
            settings = (own[1], own[2] or None) if own else (dialect, None)
            mark = pytest.mark.dialect(settings[0], version=settings[1])
            found.append(pytest.param(scenario, marks=mark, id=f"{stem}: {title}"))
    return found


TTL_FORGOTTEN = {
    "COPY", "MOVE", "MSETEX", "RENAME", "RENAMENX", "RESTORE", "RESTORE-ASKING",
}  # fmt: skip
"""Commands that set or copy a TTL. Findings treat the keys that these commands name as keys without
a TTL.
"""


@pytest.fixture
def noticed(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that `explore()` and findings know each command that reads the time or sets a TTL."""
    engine: Any = run.engine
    store = Keyspace._set_expiry
    missing: set[str] = set()

    def now_ms(session: Client) -> int:
        if engine.running is not None:
            touches = touches_of_command("kv", session, engine.running, engine.line)
            if READS_CLOCK not in touches:
                missing.add(f"{engine.running.name}: its row lacks the effect time")
        return session.db.now_ms

    def set_expiry(keyspace: Keyspace, key: bytes, at_ms: int) -> None:
        store(keyspace, key, at_ms)
        if engine.running is not None and engine.running.name not in TTL_FORGOTTEN:
            name, *arguments = [word.decode("latin-1") for word in engine.line]
            entry: Any = SimpleNamespace(at_us=engine.now_us)
            if Command(entry, [name.upper(), *arguments], None).deadline_us() != at_ms * 1000:
                missing.add(f"{engine.running.name}: Command.expiry of reporting/findings/kv")

    monkeypatch.setattr(Client, "now_ms", property(now_ms))
    monkeypatch.setattr(Keyspace, "_set_expiry", set_expiry)
    yield
    assert missing == set()


@pytest.mark.usefixtures("noticed")
@pytest.mark.parametrize(
    "scenario", [*cases("*.txt", "redis"), *cases("vendor/**/*.txt", "vendor")]
)
def test_scenario(run: Run, scenario: Scenario) -> None:
    play(run, scenario)
