import pytest


class Lock:
    def __init__(self, redis, owner):
        self.redis, self.owner = redis, owner

    def take(self):
        return self.redis.set("lock:report", self.owner, nx=True, ex=30)

    def release(self):
        self.redis.delete("lock:report")


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_slow_worker_leaves_the_lock_of_another_alone(kv_server, fakecloud):
    redis = kv_server.client()
    slow, quick = Lock(redis, "slow"), Lock(redis, "quick")
    assert slow.take()
    fakecloud.clock.advance("40s")
    assert quick.take()
    slow.release()
    assert kv_server.value("lock:report") == "quick"
