import pytest


class Syncs:
    """Syncs the data of customers, each with a system that accepts one call per minute."""

    def __init__(self, client):
        self.client = client

    def start(self, customer):
        self.client.message.publish_json(
            url=f"https://{customer}.example.com/sync",
            body={"customer": customer},
            flow_control={"key": "customer", "rate": 1, "period": "1m"},
        )


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_customers_do_not_wait_for_each_other(queue):
    hosts = [queue.destinations.accept(f"https://{one}.example.com") for one in ("acme", "bolt")]
    syncs = Syncs(queue.client())
    syncs.start("acme")
    syncs.start("bolt")
    queue.advance("10s")
    assert [len(one.deliveries) for one in hosts] == [1, 1]
