"""An API that allows three requests per minute."""

from __future__ import annotations

from upstash_redis import Redis

from pytest_fakecloud import Cloud

from . import Scenario

LIMIT, WINDOW_MS = 3, 60_000

FIXED = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
if count > tonumber(ARGV[1]) then return false end
return at
"""
SLIDING = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', at - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return false end
redis.call('ZADD', KEYS[1], at, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return at
"""


def admit(redis: Redis, request: str) -> int | None:
    """Return the time of a request if it is allowed, else None. Counts in fixed windows of a
    minute.
    """
    return redis.eval(FIXED, keys=["rate"], args=[str(LIMIT), str(WINDOW_MS)])


def admit_corrected(redis: Redis, request: str) -> int | None:
    """Return the time of a request if it is allowed, else None. Counts in a sliding window of a
    minute.
    """
    return redis.eval(SLIDING, keys=["rate"], args=[str(LIMIT), str(WINDOW_MS), request])


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server = cloud.kv_server()
    redis = Redis(server.url, server.token)
    function = admit_corrected if corrected else admit
    passed: list[int] = []

    def traffic() -> None:
        for number in range(6):
            at = function(redis, str(number))
            if at is not None:
                passed.append(at)

    def check() -> None:
        for first, later in zip(passed, passed[LIMIT:], strict=False):
            assert later - first >= WINDOW_MS, (
                f"{LIMIT + 1} requests passed within {(later - first) / 1000:g} s"
            )

    return Scenario({"visitor": traffic}, check, setup=passed.clear)
