import pytest


class Limiter:
    """Five requests a minute for each user."""

    def __init__(self, redis):
        self.redis = redis

    def allow(self, user):
        key = f"rate:{user}"
        used = self.redis.incr(key)
        self.redis.expire(key, 60)
        return used <= 5


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_steady_user_is_let_through(kv_server, fakecloud):
    limiter = Limiter(kv_server.client())
    for _ in range(8):
        assert limiter.allow("ada")
        fakecloud.clock.advance("20s")
