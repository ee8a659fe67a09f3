import json

import pytest


class Shop:
    def __init__(self):
        self.shipped = []

    def handle(self, request):
        order = json.loads(request.body)
        self.ship(order["customer"])

    def ship(self, customer):
        self.shipped.append(customer["id"])


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_an_order_is_shipped(queue):
    shop = Shop()
    queue.destinations.call("https://shop.example.com/orders", shop.handle)
    queue.client().message.publish_json(
        url="https://shop.example.com/orders",
        body={"order": 7, "customer": {"name": "ada"}},
        retries=1,
    )
    queue.run_until_idle()
    assert shop.shipped
