import pytest
import requests


class Feed:
    def __init__(self, broker):
        self.url, self.auth = broker.url, (broker.username, broker.password)

    def say(self, room, text):
        body = {"value": f"{room}:{text}"}
        requests.post(f"{self.url}/produce/chat", json=body, auth=self.auth, timeout=5)

    def read(self, room):
        headers = {"Kafka-Auto-Offset-Reset": "earliest"}
        url = f"{self.url}/consume/web/w1/chat"
        records = requests.get(url, auth=self.auth, headers=headers, timeout=5).json()
        said = [one["value"].split(":", 1) for one in records]
        return [text for where, text in said if where == room]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_talk_is_read_in_its_order(broker):
    broker.create_topic("chat", partitions=3)
    feed = Feed(broker)
    for text in ("hi", "how are you", "fine", "bye"):
        feed.say("lobby", text)
    assert feed.read("lobby") == ["hi", "how are you", "fine", "bye"]
