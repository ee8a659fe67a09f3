import pytest


class Till:
    def __init__(self, client):
        self.client = client

    def sold(self, item):
        self.client.message.publish_json(
            url="https://ledger.example.com/sales",
            body={"item": item},
            content_based_deduplication=True,
        )


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_each_sale_is_booked(queue, fakecloud):
    route = queue.destinations.accept("https://ledger.example.com")
    till = Till(queue.client())
    for item in ("tea", "rum", "tea"):
        till.sold(item)
        fakecloud.clock.advance("1m")
    queue.run_until_idle()
    assert len(route.deliveries) == 3
