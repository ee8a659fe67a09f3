"""A small run of the comparison, with the real servers of this machine.

The whole: `python -m tests.kv.comparison --commands 100000`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.settings import VERSION
from tests.budget import cases
from tests.kv.comparison.templates import Generator

from .compare import RUN, Comparison
from .faces import Face, InProcess, Port, Rest
from .normalise import RULES, normalise
from .servers import RealServer, running
from .templates import RANDOM, TEMPLATES, UNORDERED
from .wire import Error, Status
from .written import hand_written, scripts, systematic

pytestmark = pytest.mark.slow

FACES = ["engine", "engine resp3", "rest", "port", "port resp3"]
PAIRS = [*(("redis", face) for face in FACES), ("valkey", "engine")]
"""Over a wire the stock dialect announces its own version; in process it can announce Valkey's. The
shapes of RESP3 do not depend on the version.
"""


@pytest.fixture(scope="module", params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    with running(request.param) as server:
        yield server


def _face(way: str, version: str) -> Iterator[Face]:
    resp = 3 if way.endswith("resp3") else 2
    if way.startswith("engine"):
        yield InProcess(resp=resp, version=version)
        return
    with Cloud() as cloud:
        fake = cloud.kv_server(dialect="redis", max_request_size=None)
        face: Face
        face = Rest(fake.url, fake.token) if way == "rest" else Port(fake.database_url, resp)
        yield face
        face.close()


@pytest.fixture(params=PAIRS, ids=" by ".join)
def comparison(request: pytest.FixtureRequest) -> Iterator[Comparison]:
    name, way = request.param
    with running(name, version=VERSION["redis"] if name == "redis" else "") as server:
        for face in _face(way, server.version):
            yield Comparison(face, [server])


def _check(comparison: Comparison) -> None:
    """Fail for an unexplained difference."""
    left = [difference for difference in comparison.tally.differences if difference.reason is None]
    assert not left, "\n".join(map(str, left))


def test_random_commands(comparison: Comparison) -> None:
    generator = Generator(20260101)
    # In process, commands are compared; over a wire, only the encoding of their replies, of which
    # one round contains every kind.
    rounds = cases(3) if isinstance(comparison.face, InProcess) else 1
    for group in TEMPLATES:
        for _ in range(rounds):
            comparison.run(group, generator.lines(group, RUN))
    assert set(comparison.tally.compared) == set(TEMPLATES)
    _check(comparison)


def test_of_two_mistakes_the_same_one_is_reported() -> None:
    with running("redis", version=VERSION["redis"]) as server:
        comparison = Comparison(InProcess(), [server])
        generator = Generator(20260102, broken=0.8, mistakes=2)
        for group in TEMPLATES:
            for _ in range(cases(3)):
                comparison.run(group, generator.lines(group, RUN))
    _check(comparison)


_OF_THE_SESSION = {b"INFO", b"CONFIG", b"CLIENT", b"MULTI", b"EXEC", b"DISCARD", b"WATCH"}
"""Commands that would disturb the next test."""


def test_random_commands_count_as_reads_and_end_watches() -> None:
    with running("redis", version=VERSION["redis"]) as server:
        pairs: list[tuple[Any, Any]] = [(face, face.again()) for face in (InProcess(), server)]
        generator = Generator(20260103)
        for group in TEMPLATES:
            for _ in range(cases(3)):
                for face, _ in pairs:
                    face.call([b"FLUSHALL"])
                for line in generator.lines(group, RUN):
                    if line[0].upper() in _OF_THE_SESSION:
                        continue
                    keys = server.call([b"COMMAND", b"GETKEYS", *line])
                    keys = keys if isinstance(keys, list) else []
                    (reply, *ours), (other, *theirs) = (
                        _effects(face, watcher, keys, line) for face, watcher in pairs
                    )
                    if line[0].upper() == b"SPOP":
                        # A random command left different data, so continue without its key.
                        for face, _ in pairs:
                            face.call([b"DEL", *keys])
                    elif normalise(line, reply) != normalise(line, other):
                        break  # The data differ for a reason that another test has to find.
                    assert ours == theirs, line


def _effects(face: Any, watcher: Any, keys: list[bytes], line: list[bytes]) -> tuple[Any, ...]:
    """Run a line; return its reply, its hits and misses, and whether it changed a watched key."""
    if keys:
        watcher.call([b"WATCH", *keys])
    face.call([b"CONFIG", b"RESETSTAT"])
    reply = face.call(line)
    reads = re.findall(rb"keyspace_\w+:\d+", face.call([b"INFO", b"stats"]))
    watcher.call([b"MULTI"])
    return reply, reads, watcher.call([b"EXEC"]) == []


def test_hand_written_commands(comparison: Comparison) -> None:
    for group, lines in hand_written():
        comparison.run(group, lines)
    _check(comparison)


def test_every_command_on_every_type(server: RealServer) -> None:
    comparison = Comparison(InProcess(version=server.version), [server])
    for group, lines in systematic():
        comparison.run(group, lines, state=False)
    _check(comparison)


def test_scripts(server: RealServer) -> None:
    comparison = Comparison(InProcess(version=server.version), [server])
    for group, lines in scripts():
        comparison.run(group, lines, state=False)
        assert comparison.tally.compared[group] == len(lines)
    _check(comparison)


def test_a_difference_is_reported(server: RealServer) -> None:
    """The comparison can fail."""

    class Wrong(InProcess):
        def call(self, argv: list[bytes]) -> object:
            reply = super().call(argv)
            return reply + 1 if argv[0] == b"SCARD" and isinstance(reply, int) else reply

    comparison = Comparison(Wrong(version=server.version), [server])
    comparison.run("set", [[b"SADD", b"s", b"a"], [b"SCARD", b"s"], [b"DEL", b"s"]])
    (difference,) = comparison.tally.differences
    assert "SCARD s" in str(difference)
    assert "unexplained" in str(difference)
    assert comparison.tally.rate("set") == 0.5


def test_no_command_line_breaks_the_engine() -> None:
    """Every line is answered, at worst with an error, although each contains something wrong."""
    face = InProcess()
    generator = Generator(4, broken=1.0)
    for group in TEMPLATES:
        for line in generator.lines(group, 600):
            face.call(line)


def test_every_rule_has_a_reason_and_known_commands() -> None:
    commands = {line.split()[0] for lines in TEMPLATES.values() for line in lines}
    assert commands >= RANDOM
    for rule in RULES:
        assert rule.reason
        assert rule.commands <= commands | {"HGETALL", "EVAL"}
    assert commands >= UNORDERED


def test_the_rules_keep_what_matters() -> None:
    assert normalise([b"SMEMBERS", b"s"], [b"b", b"a"]) == normalise(
        [b"SMEMBERS", b"s"], [b"a", b"b"]
    )
    assert normalise([b"LRANGE", b"l"], [b"b", b"a"]) != normalise([b"LRANGE", b"l"], [b"a", b"b"])
    assert normalise([b"HGETALL"], [b"a", b"1", b"b", b"2"]) != normalise(
        [b"HGETALL"], [b"a", b"2", b"b", b"1"]
    )
    assert normalise([b"TTL"], 100000) == normalise([b"TTL"], 100001)
    assert normalise([b"TTL"], 100000) != normalise([b"TTL"], 200000)
    assert normalise([b"TTL"], -1) != normalise([b"TTL"], -2)
    assert normalise([b"GET"], Error(b"ERR a")) != normalise([b"GET"], Error(b"ERR b"))
    scripts = [Error(b"ERR a script: %s, on line 1" % (digit * 40)) for digit in (b"0", b"f")]
    assert normalise([b"EVAL"], scripts[0]) == normalise([b"EVAL"], scripts[1])
    assert normalise([b"GET"], scripts[0]) != normalise([b"GET"], scripts[1])
    assert normalise([b"GET"], Status(b"OK")) != normalise([b"GET"], b"OK")


def test_the_same_seed_gives_the_same_commands() -> None:
    once = list(Generator(5).lines("stream", 200))
    assert once == list(Generator(5).lines("stream", 200))
    assert once != list(Generator(6).lines("stream", 200))
