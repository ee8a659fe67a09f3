"""Findings when clients use several databases: a key of one is not the key of another."""

from __future__ import annotations

import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.errors import CommandError

from .cases import Scene, commands, kinds

SCENES = {
    "lock_of_another": "~a: SET lock a NX EX 5 | @ 6s | ~b: SET lock b NX EX 5 | ~b: DEL lock",
    "ttl_removed": "~a: SET k a EX 50 | ~b: SET k b",
}
"""For each kind of finding, commands that cause it if both clients use the same database."""
HIDDEN = {
    "expire_not_executed": "~a: SET lock a NX | ~a: EXPIRE lock soon | ~b: SET lock b EX 9",
    "ttl_removed": "~a: SET k a EX 50 | ~a: SET k b | ~b: SET k c EX 50",
}
"""For each kind of finding, commands that cause it unless both clients use the same database."""


def scene(a: int, b: int, steps: str) -> Scene:
    return commands(f"~a: SELECT {a} | ~b: SELECT {b} | {steps}", dialect="redis")


@pytest.mark.parametrize("kind", SCENES)
def test_a_finding_is_about_one_database(cloud: Cloud, kind: str) -> None:
    scene(1, 0, SCENES[kind])(cloud)
    assert kinds(cloud) == []


@pytest.mark.parametrize("kind", SCENES)
def test_any_database_has_findings(cloud: Cloud, kind: str) -> None:
    scene(1, 1, SCENES[kind])(cloud)
    assert kinds(cloud) == [kind]


@pytest.mark.parametrize("kind", HIDDEN)
def test_another_database_hides_no_finding(cloud: Cloud, kind: str) -> None:
    scene(1, 0, HIDDEN[kind])(cloud)
    assert kinds(cloud) == [kind]


@pytest.mark.parametrize(
    "steps",
    [
        "~a: MULTI | ~a: SELECT 1 | ~a: SETEX k 50 v | ~a: EXEC | ~b: SET k w",
        "~a: SETEX k 50 v | ~b: SELECT 1 | ~b: SET k w",
        "~a: SETEX k 50 v | ~a: MOVE k 1 | ~b: SET k w",
        "~b: SETEX k 50 v | ~a: SELECT 1 | ~a: SET other v | ~a: COPY other k DB 0 REPLACE | "
        "~b: SET k w",
        "~a: SELECT 1 | ~a: SET x v | ~b: SETEX k 50 v | ~a: EVAL "
        "\"redis.call('SELECT', 0) redis.call('DEL', 'k')\" 0 | ~b: SET k w",
        "~a: SELECT 1 | ~b: SETEX k 50 v | ~a: FUNCTION LOAD '#!lua name=l\nredis.register_function("
        '"f", function() redis.call("SELECT", 0) redis.call("DEL", "k") end)\' | ~a: FCALL f 0 | '
        "~b: SET k w",
    ],
)
def test_commands_of_several_databases(cloud: Cloud, steps: str) -> None:
    commands(steps, dialect="redis")(cloud)
    assert "ttl_removed" not in kinds(cloud)


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (["SELECT 1"], ["ttl_removed"]),
        (["SELECT 1", "SELECT 0"], []),
        (["SELECT 1", "RESET"], []),
        (["SELECT 1", "reset"], []),
    ],
    ids=str,
)
def test_the_test_itself_selects_a_database(
    cloud: Cloud, between: list[str], expected: list[str]
) -> None:
    server = cloud.kv_server(dialect="redis")
    for line in between:
        server.reset() if line == "reset" else server.execute(*line.split())
    with redis.Redis.from_url(server.database_url) as client:
        client.set("k", "v", ex=50)
        server.execute("DEL", "k")
        client.set("k", "w")
    assert kinds(cloud) == expected


def test_a_database_that_does_not_exist(cloud: Cloud) -> None:
    server = cloud.kv_server()
    with pytest.raises(CommandError):
        server.execute("SELECT", 1)
    server.execute("SETEX", "k", 5, "v")
    assert kinds(cloud) == []
