"""Whether a command changes data, which is compared before and after it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from upstash_redis.errors import UpstashError

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.explore.explore import player_for
from pytest_fakecloud.explore.subject.options import Options
from pytest_fakecloud.explore.subject.programs import programs_of
from pytest_fakecloud.explore.values.plan import Plan

DATA = (
    "SET s 1", "HSET h f 1", "SADD m a", "ZADD z 1 a", "ARSET a 0 x", "RPUSH l x", "JSON.SET j $ 1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("HDEL h g", False), ("HDEL h f", True), ("HSETEX h EX 9 FIELDS 1 f 1", False),
        ("SADD m a", False), ("SADD m a b", True), ("SETNX s 2", False), ("MSETNX n 1 o 2", True),
        ("SET s 1 EX 9", False), ("SET s 2 NX", False), ("SET s 2 IFEQ 3", False),
        ("SET s 2 IFEQ 1", True), ("DEL new", False), ("DEL new s", True), ("LPOP l", True),
        ("LMOVE l new LEFT LEFT", True), ("ZADD z GT 0 a", False), ("ZADD z 2 a", True),
        ("ZREMRANGEBYRANK z 1 5", False), ("ZREMRANGEBYRANK z 0 0", True), ("INCRBY s 0", False),
        ("INCR h", False), ("SETRANGE s 0 1", False), ("JSON.SET j $ 1", False),
        ("JSON.NUMINCRBY j $ 1", True), ("ARDEL a 7", False), ("EXPIRE s 9", True),
        ("EXPIRE new 9", False), ("EVAL return#redis.call('INCR',KEYS[1]) 1 s", True),
    ],
)  # fmt: skip
def test_a_command_that_leaves_its_keys_as_they_were_changes_nothing(
    cloud: Cloud, kv: KVServer, line: str, changes: bool
) -> None:
    for command in DATA:
        kv.execute(*command.split())
    kv.set_baseline()
    redis = kv.client()

    def run() -> None:
        with suppress(UpstashError):
            redis.execute([word.replace("#", " ") for word in line.split()])

    with player_for(cloud, programs_of(run, ()), None, Options()) as player:
        trial = player.play(Plan())
    assert any(access.has_effect for access in trial.effects.accesses) is changes
