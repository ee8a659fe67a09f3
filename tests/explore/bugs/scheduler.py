"""A scheduler that orders a daily report and is restarted when it dies."""

from __future__ import annotations

from upstash_redis import Redis

from pytest_fakecloud import Cloud, once

from . import Scenario

TODAY = "2026-11-20"


def tick(redis: Redis) -> None:
    """Order today's report, unless it has been ordered."""
    if redis.get("report:latest") != TODAY:
        redis.rpush("jobs", f"report {TODAY}")
        redis.set("report:latest", TODAY)


TICK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  redis.call('RPUSH', KEYS[2], 'report ' .. ARGV[1])
  redis.call('SET', KEYS[1], ARGV[1])
end
"""


def tick_corrected(redis: Redis) -> None:
    """Order today's report, unless it has been ordered, in one atomic step."""
    redis.eval(TICK, keys=["report:latest", "jobs"], args=[TODAY])


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server = cloud.kv_server()
    redis = Redis(server.url, server.token)
    function = tick_corrected if corrected else tick
    return Scenario({}, once("jobs"), workers={"scheduler": lambda: function(redis)})
