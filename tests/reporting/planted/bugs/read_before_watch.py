import pytest
import redis


class Shop:
    def __init__(self, url):
        self.redis = redis.Redis.from_url(url, decode_responses=True)

    def buy(self, item):
        left = int(self.redis.get(f"stock:{item}") or 0)
        with self.redis.pipeline() as pipe:
            pipe.watch(f"stock:{item}")
            if left < 1:
                return False
            pipe.multi()
            pipe.set(f"stock:{item}", left - 1)
            pipe.rpush("sold", item)
            pipe.execute()
        return True


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_last_piece_is_sold_once(kv_server):
    kv_server.load({"stock:tea": "1"})
    web, till = Shop(kv_server.database_url), Shop(kv_server.database_url)
    kv_server.faults.call(lambda *_: till.buy("tea"), command="WATCH", times=1)
    web.buy("tea")
    web.redis.close()
    till.redis.close()
    assert kv_server.value("sold") == ["tea"]
