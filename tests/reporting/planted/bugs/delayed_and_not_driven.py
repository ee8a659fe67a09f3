import pytest


class Reminders:
    def __init__(self, client):
        self.client = client

    def remind(self, user, after):
        self.client.message.publish_json(
            url="https://app.example.com/remind", body={"user": user}, delay=after
        )


@pytest.mark.fakecloud(now="2026-03-01T20:00:00Z", seed=1)
def test_a_reminder_comes_after_thirteen_minutes(queue):
    route = queue.destinations.accept("https://app.example.com")
    Reminders(queue.client()).remind("ada", "13h")
    queue.advance("13m")
    assert [one.json() for one in route.deliveries] == [{"user": "ada"}]
