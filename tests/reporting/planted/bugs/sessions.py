import pytest
import redis


class Sessions:
    def __init__(self, url):
        self.redis = redis.Redis.from_url(url, decode_responses=True)

    def login(self, user):
        self.redis.set(f"session:{user}", "open", ex=1800)
        self.redis.zadd("online", {user: 1})

    def touch(self, user, page):
        with self.redis.pipeline() as pipe:
            pipe.set(f"session:{user}", page)
            pipe.zincrby("online", 1, user)
            pipe.execute()


def state(kv_server, user):
    return kv_server.value(f"session:{user}"), kv_server.ttl(f"session:{user}")


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_session_ends_half_an_hour_after_the_last_page(kv_server, fakecloud):
    sessions = Sessions(kv_server.database_url)
    sessions.login("ada")
    fakecloud.clock.advance("10m")
    sessions.touch("ada", "/cart")
    assert state(kv_server, "ada") == ("/cart", 1800)
