"""An order in two steps: take an item from stock, then charge the buyer."""

from __future__ import annotations

from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest

from . import Scenario

ORDER = "https://shop.example.com/order"
CANCEL = "https://shop.example.com/cancel"

RESERVE = """
if redis.call('HSETNX', KEYS[1], 'state', 'reserved') == 1 then redis.call('DECR', KEYS[2]) end
"""
PAY = """
if redis.call('HGET', KEYS[1], 'state') == 'reserved' then
  redis.call('HSET', KEYS[1], 'state', 'paid')
end
"""
RELEASE = """
if redis.call('HGET', KEYS[1], 'state') ~= 'paid' then
  if redis.call('HGET', KEYS[1], 'state') == 'reserved' then redis.call('INCR', KEYS[2]) end
  redis.call('HSET', KEYS[1], 'state', 'cancelled')
end
"""


def fulfil(redis: Redis, order: str) -> None:
    """Take an item from stock and charge the buyer, each at most once."""
    redis.eval(RESERVE, keys=[f"order:{order}", "stock"])
    redis.eval(PAY, keys=[f"order:{order}"])


def cancel(redis: Redis, order: str) -> None:
    """Return the item of an unpaid order to stock."""
    redis.eval(RELEASE, keys=[f"order:{order}", "stock"])


def place(qstash: QStash, order: str) -> None:
    """Have the queue process an order, with one retry."""
    qstash.message.publish_json(url=ORDER, body={"order": order}, retries=1)


def place_corrected(qstash: QStash, order: str) -> None:
    """Have the queue process an order, and cancel it if all attempts fail."""
    qstash.message.publish_json(
        url=ORDER, body={"order": order}, retries=1, failure_callback=f"{CANCEL}/{order}"
    )


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server, queue = cloud.kv_server(), cloud.queue()
    server.load({"stock": "5"})
    redis = Redis(server.url, server.token)
    qstash = QStash(queue.token, base_url=queue.url)

    def on_order(request: DeliveredRequest) -> None:
        fulfil(redis, request.json()["order"])

    def on_cancel(request: DeliveredRequest) -> None:
        cancel(redis, request.url.rpartition("/")[2])

    queue.destinations.call(ORDER, on_order)
    queue.destinations.call(CANCEL, on_cancel)

    def check() -> None:
        order = server.value("order:A-1") or {}
        taken = 5 - int(server.value("stock"))
        paid = int(order.get("state") == "paid")
        assert taken == paid, f"{taken} taken from stock, {paid} paid"

    function = place_corrected if corrected else place
    return Scenario({"buyer": lambda: function(qstash, "A-1")}, check)
