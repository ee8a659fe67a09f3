"""The replies in this folder, compared with those of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.inspect.data import state_of
from pytest_fakecloud.kv import commands
from pytest_fakecloud.kv.engine import messages
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.limits import STARTUP
from pytest_fakecloud.kv.fake import _first_snapshot
from pytest_fakecloud.kv.saved import load_saved, saved
from pytest_fakecloud.kv.values.array import ArrayValue
from pytest_fakecloud.kv.values.containers import HashValue, QuickList, SetValue
from pytest_fakecloud.kv.values.measures import ENTRY, content_size, usage
from pytest_fakecloud.kv.values.stream import StreamValue
from pytest_fakecloud.kv.values.zset import SortedSet
from tests.kv.conftest import Run
from tests.kv.scenarios import Scenario, every_scenario, play
from tests.kv.scenarios.observed import ObservedEffects
from tests.kv.table import TABLE_FILE
from tests.notations import complete


@pytest.fixture
def effects(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that the rows of the commands that a scenario runs declare their effects."""
    effects = ObservedEffects(run.engine)
    effects.watch(monkeypatch)
    yield
    complete(TABLE_FILE, sorted(effects.undeclared))
    complete(Path(messages.__file__), sorted(effects.unknown_events))
    complete(Path(commands.__file__).parent, sorted(effects.unreported))


@pytest.fixture
def sizes(run: Run) -> Iterator[None]:
    """Check that the sizes that are kept up to date are those of the keys after a scenario."""
    account = run.engine.sizes
    account.used_memory()
    yield
    memory = STARTUP
    for db in run.engine.databases:
        memory += ENTRY * len(db.expires)
        memory += sum(usage(key, value) for key, value in db.values.items())
        for key, value in db.values.items():
            assert content_size(value) == measured(value), key
        assert account.measure(db)[1] == sum(
            len(key) + measured(db.values[key]) for key in db.values
        )
    assert account.used_memory() == memory


def measured(value: Any) -> int:
    """Return the bytes of a value's strings, scores and stream IDs, counted one by one."""
    if isinstance(value, HashValue):
        return sum(len(field) + len(text) for field, text in value.fields.items())
    if isinstance(value, SortedSet):
        return sum(8 + len(member) for _, member in value)
    if isinstance(value, StreamValue):
        return sum(8 + sum(map(len, words)) for _, words in value.range())
    if isinstance(value, QuickList | SetValue):
        return sum(map(len, value))
    if isinstance(value, ArrayValue):
        return sum(len(item) for _, item in value)
    return content_size(value)


@pytest.fixture
def kept(run: Run, clock: Timekeeper) -> Iterator[None]:
    """Check that another engine has the same data if it loads what a file would keep."""
    yield
    server = server_of(run.engine)
    content = json.loads(json.dumps(saved(server)))
    other = server_of(KVEngine(clock, Ids(7), run.engine.settings))
    load_saved(other, content, "saved")
    # Like a real server, an engine chooses the encodings of values anew when it loads them.
    assert {**saved(other), "rdb": None} == {**content, "rdb": None}
    # A file keeps the data, and not which node owns a slot.
    assert {**state_of(other), "nodes": {}} == {**state_of(server), "nodes": {}}


def server_of(engine: KVEngine) -> Any:
    """Return what the functions for the data of a server use of one."""
    return SimpleNamespace(
        fixture="kv_server",
        _engine=engine,
        _first_snapshot=lambda: partial(_first_snapshot, engine.clock, Ids(7), engine.settings),
        _timekeeper=engine.clock,
        **dict.fromkeys(("_context", "_recorder", "_mounts", "_given_settings", "_baseline")),
        _rewound=0,
        _memory=lambda *_: engine,
        _new_session=engine.session,
        _password="",
        _app=SimpleNamespace(set_password=lambda _: None),
        execute=partial(engine.execute, engine.session()),
    )


@pytest.mark.completeness
@pytest.mark.usefixtures("kept", "effects", "sizes")
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, marks=pytest.mark.dialect(dialect, **settings), id=name)
        for name, (dialect, settings, scenario) in every_scenario().items()
    ],
)
def test_scenario(run: Run, scenario: Scenario) -> None:
    play(run, scenario)
