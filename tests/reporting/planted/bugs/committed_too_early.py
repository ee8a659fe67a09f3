import json

import pytest
import requests


class Ledger:
    def __init__(self, broker):
        self.url, self.auth = broker.url, (broker.username, broker.password)
        self.booked = []

    def post(self, path, **options):
        answer = requests.post(f"{self.url}/{path}", auth=self.auth, timeout=5, **options)
        return answer.json()

    def work(self):
        headers = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
        records = self.post("consume/ledger/w1", json={"topic": "payments"}, headers=headers)
        self.post("commit/ledger/w1")
        for record in records:
            self.booked.append(json.loads(record["value"])["amount"])


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_bad_record_stops_nothing(broker):
    broker.create_topic("payments", partitions=1)
    for value in ('{"amount": 1}', '{"amont": 2}', '{"amount": 3}'):
        broker.produce("payments", value)
    ledger = Ledger(broker)
    for _ in range(3):
        try:
            ledger.work()
        except KeyError:
            continue
    assert ledger.booked == [1, 3]
