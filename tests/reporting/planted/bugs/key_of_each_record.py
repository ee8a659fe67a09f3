import pytest
import requests


class Tickets:
    def __init__(self, broker):
        self.url, self.auth = broker.url, (broker.username, broker.password)
        self.state = {}

    def change(self, ticket, number, state):
        body = {"key": f"{ticket}-{number}", "value": f"{ticket} {state}"}
        requests.post(f"{self.url}/produce/tickets", json=body, auth=self.auth, timeout=5)

    def catch_up(self):
        headers = {"Kafka-Auto-Offset-Reset": "earliest"}
        url = f"{self.url}/consume/board/w1/tickets"
        for one in requests.get(url, auth=self.auth, headers=headers, timeout=5).json():
            ticket, state = one["value"].split()
            self.state[ticket] = state


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_last_state_counts(broker):
    broker.create_topic("tickets", partitions=4)
    tickets = Tickets(broker)
    for number, state in enumerate(("open", "started", "tested", "closed")):
        tickets.change("T7", number, state)
    tickets.catch_up()
    assert tickets.state == {"T7": "closed"}
