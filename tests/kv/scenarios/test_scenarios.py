"""The replies in this folder, compared with those of the engine."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.commands import arguments
from pytest_fakecloud.kv.engine import messages
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.keyspace import Keyspace
from pytest_fakecloud.kv.engine.limits import STARTUP
from pytest_fakecloud.kv.engine.messages import _CLASS_OF
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import Blocked
from pytest_fakecloud.kv.report.history import Command, Expiries
from pytest_fakecloud.kv.saved import load_saved, saved
from pytest_fakecloud.kv.settings import VERSION
from pytest_fakecloud.kv.table.registry import CommandSpec, command_table, spec_of
from pytest_fakecloud.kv.values.array import ArrayValue
from pytest_fakecloud.kv.values.containers import HashValue, QuickList, SetValue
from pytest_fakecloud.kv.values.measures import ENTRY, content_size, usage
from pytest_fakecloud.kv.values.stream import StreamValue
from pytest_fakecloud.kv.values.zset import SortedSet
from pytest_fakecloud.reporting.data import state_of
from tests.kv.conftest import Run, argv
from tests.kv.scenarios import FOLDER, Scenario, play, scenarios
from tests.kv.table.test_repetition import TABLE_FILE
from tests.notations import complete

STOCK = command_table("redis", VERSION["redis"])
"""The commands whose flags `tests/kv/test_self_description.py` compares with those of Redis."""


def cases(files: str, dialect: str) -> list[ParameterSet]:
    """Return the scenarios of some files, each marked with its dialect."""
    params = []
    for file in sorted(FOLDER.glob(files)):
        stem = file.relative_to(FOLDER).with_suffix("").as_posix()
        for title, (settings, scenario) in scenarios(stem).items():
            own = {"dialect": dialect, "version": None, "modules": [], **settings}
            mark = pytest.mark.dialect(own.pop("dialect"), **own)
            params.append(pytest.param(scenario, marks=mark, id=f"{stem}: {title}"))
    return params


class ObservedEffects:
    """Compares what commands do with the effects that their rows declare in the command table.

    ``needed`` are the declared effects that the commands had, by the attributes of their specs. The
    flags of commands outside `STOCK` are compared, too.
    """

    def __init__(self, engine: Any, needed: set[tuple[str, ...]]) -> None:
        self.engine = engine
        self.needed = needed
        self.undeclared: set[str] = set()
        self.unknown_events: set[str] = set()
        self.inside = False
        """Whether a command is running."""
        self.expiries: dict[int, Expiries] = defaultdict(Expiries)
        """The TTLs that the findings of reports know from the commands so far, by database."""

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Session, "now_ms", property(self._now_ms))
        stored = property(self._now_us, lambda engine, now_us: vars(engine).update(now_us=now_us))
        monkeypatch.setattr(KVEngine, "now_us", stored, raising=False)
        for owner, method, check in (
            (Keyspace, "_set_expiry", self._check_ttl), (Keyspace, "set", self._check_write),
            (Keyspace, "touch", self._check_write), (Keyspace, "touch_unwatched", self._check_write),
            (Keyspace, "announce", self._check_event),
            (HashValue, "expire_at", lambda field, at_ms: self._need("ttl_at")),
        ):  # fmt: skip
            monkeypatch.setattr(owner, method, self._checked(getattr(owner, method), check))
        run = self.engine.run

        def followed(session: Session, spec: CommandSpec, argv: list[bytes]) -> Any:
            within, self.inside = self.inside, True
            size = self._size()
            try:
                reply = run(session, spec, argv)
            finally:
                self.inside = within
            is_later = spec.name not in STOCK.commands
            if is_later and self._size() > size and "denyoom" not in spec.flags:
                self._note("the flag denyoom, because it adds data")
            if not isinstance(reply, Blocked):
                self._follow(session.db, argv, reply)
            value_at = spec.effects.value_at
            if value_at and session.db.values.get(argv[spec.only_key]) == argv[value_at]:
                self._need("value_at")
            return reply

        monkeypatch.setattr(self.engine, "run", followed, raising=False)

    def _note(self, effect: str) -> None:
        self.undeclared.add(f"to the row of {self.engine.running.name}: {effect}")

    def _need(self, attribute: str) -> None:
        self.needed.add((self.engine.running.name, attribute))

    def _now_ms(self, session: Session) -> int:
        spec = self.engine.running
        if spec is not None:
            self._need("reads_clock")
            if not spec.depends_on_time(self.engine.line):
                self._note("the effect time")
        return session.db.now_ms

    def _now_us(self, engine: Any) -> int:
        if self.inside:
            self._need("reads_clock")
        now_us: int = vars(engine)["now_us"]
        return now_us

    def _checked(self, method: Any, check: Any) -> Any:
        def checked(owner: Any, *args: Any, **named: Any) -> Any:
            if self.engine.running is not None:
                check(*args, **named)
            return method(owner, *args, **named)

        return checked

    def _check_ttl(self, key: bytes, at_ms: int) -> None:
        deadline_us = _command(self.engine, self.engine.line).deadline_us
        if deadline_us == at_ms * 1000:
            self._need("ttl_at")
        elif self.engine.running.effects.takes_ttl:
            self._need("takes_ttl")
        else:
            self._note("the effect seconds@N (or with another unit)")

    def _size(self) -> int:
        return sum(self.engine.sizes.measure(db)[1] for db in self.engine.databases)

    def _check_write(self, key: bytes, *args: Any, **named: Any) -> None:
        spec, line = self.engine.running, self.engine.line
        keys = [key_spec for at, key_spec in spec.key_positions(line) if line[at] == key]
        is_later = spec.name not in STOCK.commands
        if is_later and keys and not any(key_spec.writes for key_spec in keys):
            self._note(
                "flags of the key that it writes: RW, OW or RM, and update, insert or delete"
            )
        self._check_event(key, *args, **named)

    def _check_event(self, *args: Any, event: str | None = None, **_: Any) -> None:
        event = next((argument for argument in args if isinstance(argument, str)), event)
        default = self.engine.running.event
        if event is None:
            self._need("event")
        if event and event not in _CLASS_OF:
            self.unknown_events.add(
                f"to _CLASSES: {event}, the event of {self.engine.running.name}"
            )
        if event is None and default and default not in _CLASS_OF:
            self._note(
                f"the effect event=NAME or no-event; or, if {default} is an event, its name to "
                "_CLASSES of kv/engine/messages.py"
            )

    def _follow(self, db: Keyspace, argv: list[bytes], reply: Any) -> None:
        expiries = self.expiries[db.index]
        expiries.follow(_command(self.engine, argv, reply))
        for key, expiry in expiries.items():
            real_ms = db.expires.get(key.encode("latin-1"))
            if self.engine.clock.now_us() < (expiry.deadline_us or 0) != (real_ms or 0) * 1000:
                self._note(f"an effect: {key} expires at {real_ms} and not at {expiry}")


def _command(engine: Any, argv: list[bytes], reply: Any = None) -> Command:
    name, *arguments = [word.decode("latin-1") for word in argv]
    entry: Any = SimpleNamespace(at_us=engine.clock.now_us())
    return Command(entry, [name.upper(), *arguments], reply)


@pytest.fixture
def effects(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that the rows of the commands that a scenario runs declare their effects."""
    effects = ObservedEffects(run.engine, run.notes.effects)
    effects.watch(monkeypatch)
    yield
    complete(TABLE_FILE, sorted(effects.undeclared))
    complete(Path(messages.__file__), sorted(effects.unknown_events))


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
    assert state_of(other) == state_of(server)


def server_of(engine: KVEngine) -> Any:
    """Return what the functions for the data of a server use of one."""
    return SimpleNamespace(
        fixture="kv_server",
        _engine=engine,
        _time=engine.clock,
        _memory=lambda *_: engine,
        _new_session=engine.session,
        _password="",
        _set_password=lambda _: None,
        execute=partial(engine.execute, engine.session()),
    )


@pytest.mark.usefixtures("kept", "effects", "sizes")
@pytest.mark.parametrize(
    "scenario", [*cases("*.txt", "redis"), *cases("vendor/**/*.txt", "vendor")]
)
def test_scenario(run: Run, scenario: Scenario) -> None:
    play(run, scenario)


def test_no_command_changes_the_shared_empty_values(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line is played on an empty database, in which it finds no keys."""
    shared: dict[Any, object] = {}
    monkeypatch.setattr(arguments, "_empty", lambda kind: shared.setdefault(kind, kind()))
    played: Any = [case.values[0] for case in cases("**/*.txt", "vendor")]
    for line in sorted({line for scenario in played for line, _ in scenario}):
        words = argv((line,))
        spec = spec_of([word.decode("latin-1") for word in words])
        if spec is None or spec.group not in (
            *("array", "geo", "hash", "list", "set", "sorted-set", "stream"),
        ):
            continue
        run("FLUSHALL")
        with suppress(CommandError):
            run.engine.execute(run.session, words)
        for kind, value in shared.items():
            assert pickle.dumps(value) == pickle.dumps(kind()), line
    assert {kind.type_name for kind in shared} == {
        *("array", "hash", "list", "set", "stream", "zset")
    }
