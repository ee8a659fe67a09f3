"""Engines to run commands on, and a record of what passing tests exercised.

``run("ZADD k NX 1 a")`` splits a line like a shell and returns the reply; ``run(b"SET", key,
value)`` takes the arguments unchanged. ``run.error(...)`` expects an error reply and returns its
text. Both record the command, its option words and the error text; ``test_completeness.py`` compares
the records of all passing tests with the table of commands.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from docs.generate.kv_commands import REASONS
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.settings import KVConfig
from tests.harness import one_tls_context as one_tls_context

NOW = "2026-01-01T00:00:00Z"
NOW_MS = 1767225600000


class Exercised:
    """What passing tests ran: commands, pairs of a command and an option word or effect, errors."""

    def __init__(
        self,
        commands: Iterable[str] = (),
        options: Iterable[Iterable[str]] = (),
        effects: Iterable[Iterable[str]] = (),
        errors: Iterable[str] = (),
    ) -> None:
        self.commands = set(commands)
        self.options = set(map(tuple, options))
        self.effects = set(map(tuple, effects))
        self.errors = set(errors)

    def note(self, engine: KVEngine, argv: list[bytes], reply: Any) -> None:
        if isinstance(reply, CommandError):
            self.errors.add(str(reply))
        elif isinstance(reply, list):
            for item in reply:
                self.note(engine, [], item)
        if not argv:
            return
        try:
            spec = engine.table.resolve(argv)
        except CommandError:
            return
        # A command that is always rejected is exercised by its rejection.
        if isinstance(reply, CommandError) and spec.name not in REASONS:
            return
        self.commands.add(spec.name)
        words = {word.upper() for word in argv[spec.argument_words]}
        for sign in (b"=", b"~", b"*", b"$"):
            if sign in words:
                self.options.add((spec.name, sign.decode()))
        for option in spec.options:
            if option.encode() in words:
                self.options.add((spec.name, option))

    def dump(self) -> str:
        """Return the record in one line."""
        return json.dumps(list(map(sorted, vars(self).values())))

    @classmethod
    def read(cls, line: str) -> Exercised:
        return cls(*json.loads(line))

    def merge(self, other: Exercised) -> None:
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine |= theirs


EXERCISED = pytest.StashKey[Exercised]()
NOTES = pytest.StashKey[Exercised]()
WHOLE = pytest.StashKey[bool]()
CASES = pytest.StashKey[int]()
EXERCISED_FILE = "PYTEST_FAKECLOUD_KV_EXERCISED"
"""The environment variable with the file for the record of a run."""


_QUOTES = frozenset("\"'\\")


def _split(line: str) -> tuple[str, ...]:
    """Split a line like a shell; most lines contain nothing special."""
    is_plain = line.isascii() and line.isprintable() and _QUOTES.isdisjoint(line)
    return tuple(line.split() if is_plain else shlex.split(line))


def argv(words: tuple[Any, ...]) -> list[bytes]:
    """Return a command line as the engine takes it."""
    if len(words) == 1 and isinstance(words[0], str):
        words = _split(words[0])
    return [
        word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        for word in words
    ]


class Run:
    """Runs command lines in one session and records them."""

    def __init__(self, engine: KVEngine, session: Session, notes: Exercised) -> None:
        self.engine = engine
        self.session = session
        self.notes = notes

    def __call__(self, *words: Any) -> Any:
        line = argv(words)
        reply = self.engine.execute(self.session, line)
        self.notes.note(self.engine, line, reply)
        return reply

    def each(self, *lines: str) -> list[Any]:
        return [self(line) for line in lines]

    def error(self, *words: Any) -> str:
        line = argv(words)
        with pytest.raises(CommandError) as caught:
            self.engine.execute(self.session, line)
        self.notes.note(self.engine, line, caught.value)
        return str(caught.value)

    def other(self, resp: int = 2, **settings: Any) -> Run:
        """Return another client of the same engine."""
        session = self.engine.session(**settings)
        session.resp = resp
        return Run(self.engine, session, self.notes)


@pytest.fixture
def clock() -> Timekeeper:
    """A frozen clock at ``NOW``."""
    return Timekeeper(NOW)


@pytest.fixture
def dialect(request: pytest.FixtureRequest) -> str:
    """The engine's dialect, which ``@pytest.mark.dialect("redis")`` sets."""
    marker = request.node.get_closest_marker("dialect")
    return marker.args[0] if marker else "vendor"


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The engine's settings, e.g. of ``@pytest.mark.dialect("redis", version="7.2.0")``."""
    marker = request.node.get_closest_marker("dialect")
    return marker.kwargs if marker else {}


@pytest.fixture
def engine(clock: Timekeeper, dialect: Any, settings: dict[str, Any]) -> KVEngine:
    return KVEngine(clock, Ids(7), KVConfig(dialect=dialect, **settings))


@pytest.fixture
def notes(request: pytest.FixtureRequest) -> Exercised:
    exercised: Exercised = request.node.stash.setdefault(NOTES, Exercised())
    return exercised


@pytest.fixture
def run(engine: KVEngine, notes: Exercised) -> Run:
    return Run(engine, engine.session(), notes)


@pytest.fixture
def context() -> Context:
    return Context.alone()


@pytest.fixture
def server(context: Context) -> Iterator[KVServer]:
    """A server with a REST interface."""
    with KVServer(context) as server:
        yield server


@pytest.fixture
def http(server: KVServer) -> Iterator[httpx.Client]:
    """A client with the server's address and token."""
    with httpx.Client(base_url=server.url, headers=server.headers, trust_env=False) as client:
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: Any
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    config = item.config
    if report.when == "call" and not report.passed:
        item.stash[NOTES] = Exercised()
    elif report.when == "teardown":
        notes = item.stash.get(NOTES, Exercised())
        config.stash.setdefault(EXERCISED, Exercised()).merge(notes)
        if hasattr(config, "workerinput") and is_whole(config) and item.path in case_files():
            with worker_files(config)[0].open("a", encoding="utf-8") as file:
                file.write(f"{notes.dump()}\n")
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    last_file = Path(__file__).with_name("test_completeness.py")
    last = [item for item in items if item.path == last_file]
    items[:] = [item for item in items if item not in last] + last
    files = case_files()
    config.stash[WHOLE] = {item.path for item in items} >= files
    config.stash[CASES] = sum(item.path in files for item in items)


@cache
def case_files() -> frozenset[Path]:
    """Return the test modules with the cases of commands."""
    here = Path(__file__).parent
    folders = [*(here / "commands").rglob("test_*.py"), *(here / "scripting").glob("test_*.py")]
    search = [here / "search" / f"test_{name}.py" for name in ("index", "queries", "aggregations")]
    others = [here / "engine" / "test_engine.py", here / "scenarios" / "test_scenarios.py"]
    return frozenset([*folders, *search, *others])


def is_whole(config: pytest.Config) -> bool:
    """Return whether this run includes all cases."""
    selects = config.option.keyword or config.option.markexpr
    return config.stash.get(WHOLE, False) and not selects


def worker_files(config: pytest.Config) -> list[Path]:
    """Return this worker's file of exercised cases, one per line, and those of other workers."""
    own = Path(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
    others = [path / "exercised" for path in own.parent.glob("popen-*") if path != own]
    return [own / "exercised", *others]


def session_record(config: pytest.Config) -> Exercised | None:
    """Return what this run exercised, or None for a partial run.

    Waits for the last cases of other workers, as long as any of them arrive.
    """
    if not is_whole(config):
        return None
    if not hasattr(config, "workerinput"):
        return config.stash.get(EXERCISED, None)
    lines: list[str] = []
    patience = 60.0
    while patience > 0:
        before = len(lines)
        texts = [path.read_text("utf-8") for path in worker_files(config) if path.exists()]
        lines = [line for text in texts for line in text.splitlines(True) if line.endswith("\n")]
        if len(lines) == config.stash[CASES]:
            record = Exercised()
            for line in lines:
                record.merge(Exercised.read(line))
            return record
        patience = 60.0 if len(lines) > before else patience - 0.1
        Event().wait(0.1)
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = os.environ.get(EXERCISED_FILE)
    if file and EXERCISED in session.config.stash:
        Path(file).write_text(session.config.stash[EXERCISED].dump())


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "dialect(name, **settings): the engine fixture's")
