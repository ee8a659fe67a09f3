import pytest

TAKE = """
local left = tonumber(redis.call('GET', KEYS[1]) or ARGV[1])
if left < 1 then return 0 end
redis.call('SET', KEYS[1], left - 1)
return 1
"""


class Limiter:
    def __init__(self, redis, limit):
        self.redis, self.limit = redis, limit

    def take(self, user):
        return self.redis.eval(TAKE, [f"left:{self.limit}"], [user]) == 1


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_second_call_is_refused(kv_server):
    limiter = Limiter(kv_server.client(), 1)
    assert limiter.take("7")
    assert not limiter.take("7")
