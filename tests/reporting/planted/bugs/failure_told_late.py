import pytest


class Orders:
    def __init__(self, client):
        self.client = client

    def send(self, order):
        self.client.message.publish_json(
            url="https://warehouse.example.com/orders",
            body={"order": order},
            failure_callback="https://shop.example.com/failed",
        )


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_shop_hears_of_a_failure_within_a_minute(queue):
    queue.destinations.respond("https://warehouse.example.com/orders", (500, "down"))
    failed = queue.destinations.accept("https://shop.example.com/failed")
    Orders(queue.client()).send(7)
    queue.clock.advance("1m")
    assert len(failed.deliveries) == 1
