import pytest


class Mailer:
    def __init__(self, redis, client):
        self.redis, self.client = redis, client

    def welcome(self, user):
        for _ in range(2):
            try:
                self.client.message.publish_json(
                    url="https://mail.example.com/welcome", body={"user": user}
                )
                break
            except Exception:
                continue
        self.redis.sadd("welcomed", user)


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_one_mail_although_the_network_is_bad(queue, kv_server):
    route = queue.destinations.accept("https://mail.example.com")
    queue.faults.lose_response(times=1)
    Mailer(kv_server.client(), queue.client(retry=False)).welcome("ada")
    queue.run_until_idle()
    assert len(route.deliveries) == 1
