import pytest


class Orders:
    def __init__(self, client):
        self.client = client

    def changed(self, order, status):
        self.client.message.publish_json(
            url="https://shop.example.com/orders",
            body={"order": order, "status": status},
            deduplication_id=f"order-{order}",
        )


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_every_change_is_told(queue, fakecloud):
    route = queue.destinations.accept("https://shop.example.com")
    orders = Orders(queue.client())
    orders.changed(7, "paid")
    queue.run_until_idle()
    fakecloud.clock.advance("1m")
    orders.changed(7, "shipped")
    queue.run_until_idle()
    assert [one.json()["status"] for one in route.deliveries] == ["paid", "shipped"]
