import pytest
import requests

MANUAL = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}


class Worker:
    def __init__(self, broker, name, mails):
        self.url, self.auth, self.name = broker.url, (broker.username, broker.password), name
        self.mails, self.open = mails, []

    def take(self):
        url = f"{self.url}/consume/mailers/{self.name}/mails"
        self.open = requests.get(url, auth=self.auth, headers=MANUAL, timeout=5).json()
        self.mails.extend(one["value"] for one in self.open)

    def finish(self):
        done = [
            {"topic": "mails", "partition": one["partition"], "offset": one["offset"] + 1}
            for one in self.open
        ]
        url = f"{self.url}/commit/mailers/{self.name}"
        requests.post(url, json=done, auth=self.auth, timeout=5)


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_each_mail_goes_out_once(broker):
    broker.create_topic("mails", partitions=2)
    for partition, name in ((0, "ada"), (1, "bob")):
        broker.produce("mails", name, partition=partition)
    mails = []
    first, second = Worker(broker, "first", mails), Worker(broker, "second", mails)
    first.take()
    second.take()
    first.finish()
    second.finish()
    assert sorted(mails) == ["ada", "bob"]
