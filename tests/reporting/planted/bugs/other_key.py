import pytest


class Carts:
    def __init__(self, redis):
        self.redis = redis

    def add(self, user, item):
        self.redis.hset(f"cart:{user}:items", item, 1)

    def items(self, user):
        return self.redis.hgetall(f"carts:{user}:items")


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_cart_keeps_its_items(kv_server):
    carts = Carts(kv_server.client())
    carts.add("ada", "tea")
    assert carts.items("ada") == {"tea": "1"}
