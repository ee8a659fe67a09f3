"""A nightly report that only one machine at a time may write."""

from __future__ import annotations

import secrets

from upstash_redis import Redis

from pytest_fakecloud import Cloud

from . import Scenario


def write_report(redis: Redis) -> bool:
    """Write the report, unless another machine is writing it."""
    if not redis.set("report:lock", "taken", nx=True):
        return False
    try:
        redis.set("report", "all is well")
    finally:
        redis.delete("report:lock")
    return True


RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"


def write_report_corrected(redis: Redis) -> bool:
    """Write the report, with a lock that expires and that only its owner releases."""
    owner = secrets.token_hex(8)
    if not redis.set("report:lock", owner, nx=True, ex=30):
        return False
    try:
        redis.set("report", "all is well")
    finally:
        redis.eval(RELEASE, keys=["report:lock"], args=[owner])
    return True


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server = cloud.kv_server()
    redis = Redis(server.url, server.token)
    function = write_report_corrected if corrected else write_report

    def check() -> None:
        cloud.clock.advance("1h")
        fresh = Redis(server.url, server.token)
        assert function(fresh), "an hour later nobody can write the report"

    return Scenario({"machine": lambda: function(redis)}, check)
