import pytest


class Limiter:
    """Three requests in a minute."""

    def __init__(self, redis):
        self.redis = redis

    def allowed(self, user):
        key = f"hits:{user}"
        self.redis.set(key, 0, ex=60, nx=True)
        return self.redis.incr(key) <= 3


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_each_minute_begins_anew(kv_server, fakecloud):
    limiter = Limiter(kv_server.client())
    kv_server.faults.call(lambda *_: fakecloud.clock.advance("1m"), command="INCR", times=1, skip=1)
    for _ in range(4):
        limiter.allowed("ada")
    fakecloud.clock.advance("5m")
    assert limiter.allowed("ada")
