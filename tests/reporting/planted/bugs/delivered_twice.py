import pytest
import requests

MANUAL = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}


class Counter:
    def __init__(self, broker):
        self.url, self.auth = broker.url, (broker.username, broker.password)
        self.total = 0

    def work(self, instance):
        url = f"{self.url}/consume/totals/{instance}/amounts"
        records = requests.get(url, auth=self.auth, headers=MANUAL, timeout=5).json()
        self.total += sum(int(one["value"]) for one in records)


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_restart_changes_no_total(broker):
    broker.create_topic("amounts", partitions=1)
    for amount in (1, 2, 3):
        broker.produce("amounts", str(amount))
    counter = Counter(broker)
    counter.work("w1")
    broker.leave("totals", "w1")
    counter.work("w2")
    assert counter.total == 6
