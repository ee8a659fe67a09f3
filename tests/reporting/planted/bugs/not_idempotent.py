import pytest


class Stock:
    def __init__(self, redis):
        self.redis = redis

    def take(self, request):
        item = request.json()["item"]
        left = self.redis.decr(f"stock:{item}")
        if left < 0:
            self.redis.incr(f"stock:{item}")
            return 409, {"error": "sold out"}
        self.redis.lpush("taken", item)
        return 200


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_one_order_takes_one_item(queue, kv_server):
    kv_server.load({"stock:tea": "5"})
    stock = Stock(kv_server.client())
    queue.faults.duplicate(times=1)
    queue.destinations.call("https://shop.example.com/take", stock.take)
    queue.client().message.publish_json(url="https://shop.example.com/take", body={"item": "tea"})
    queue.run_until_idle()
    assert kv_server.value("stock:tea") == "4"
