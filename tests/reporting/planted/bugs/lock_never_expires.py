import pytest
from upstash_redis import Redis


class Importer:
    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def run(self, source: str) -> bool:
        if not self.redis.set(f"lock:import:{source}", "worker", nx=True):
            return False
        rows = self.redis.lrange(f"rows:{source}", 0, -1)
        if not rows:
            raise LookupError(source)
        self.redis.rpush("imported", *rows)
        self.redis.delete(f"lock:import:{source}")
        return True


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_an_import_can_be_tried_again(kv_server, fakecloud):
    importer = Importer(kv_server.client())
    with pytest.raises(LookupError):
        importer.run("crm")
    kv_server.load({"rows:crm": ["a", "b"]})
    fakecloud.clock.advance("10m")
    assert importer.run("crm")
