from datetime import UTC, datetime

import pytest


class Reminders:
    def __init__(self, client):
        self.client = client

    def at(self, instant, text):
        self.client.message.publish_json(
            url="https://app.example.com/remind",
            body={"text": text},
            not_before=int(instant.timestamp() * 1000),
        )


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_reminder_comes_at_its_time(queue):
    route = queue.destinations.accept("https://app.example.com")
    Reminders(queue.client()).at(datetime(2026, 3, 1, 13, tzinfo=UTC), "tea")
    queue.clock.advance("2h")
    assert len(route.deliveries) == 1
