import pytest


class Digest:
    """Sends a mail every morning at nine, Berlin time."""

    def __init__(self, client):
        self.client = client

    def subscribe(self, user):
        self.client.schedule.create(
            destination=f"https://mail.example.com/digest/{user}", cron="0 9 * * *"
        )


@pytest.mark.fakecloud(now="2026-03-02T00:00:00Z", seed=1)
def test_the_digest_comes_at_nine(queue, fakecloud):
    route = queue.destinations.accept("https://mail.example.com")
    Digest(queue.client()).subscribe("ada")
    queue.advance("8h30m")
    assert len(route.deliveries) == 1
