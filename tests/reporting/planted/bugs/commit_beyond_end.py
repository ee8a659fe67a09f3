import pytest
import requests


class Payments:
    def __init__(self, broker):
        self.url, self.auth = broker.url, (broker.username, broker.password)

    def ask(self, path, body=None):
        return requests.post(f"{self.url}/{path}", json=body, auth=self.auth, timeout=5).json()

    def next(self):
        return self.ask("consume/ledger/w1", {"topic": "payments"})

    def done(self, records):
        for one in records:
            self.ask(
                "commit/ledger/w1",
                {"topic": "payments", "partition": one["partition"], "offset": len(records) + 2},
            )


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_each_payment_is_booked_once(broker):
    broker.create_topic("payments", partitions=1)
    worker = Payments(broker)
    worker.next()
    broker.produce("payments", "p1")
    broker.produce("payments", "p2")
    worker.done(worker.next())
    assert broker.group("ledger").committed == {("payments", 0): 2}
