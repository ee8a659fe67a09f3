import pytest


class Sessions:
    def __init__(self, redis):
        self.redis = redis

    def login(self, sid, user):
        self.redis.set(f"session:{sid}", user, ex=1800)

    def rename(self, sid, user):
        if self.redis.exists(f"session:{sid}"):
            self.redis.set(f"session:{sid}", user)

    def user(self, sid):
        return self.redis.get(f"session:{sid}")


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_session_ends_after_half_an_hour(kv_server, fakecloud):
    sessions = Sessions(kv_server.client())
    sessions.login("s1", "ada")
    sessions.rename("s1", "ada lovelace")
    fakecloud.clock.advance("31m")
    assert sessions.user("s1") is None
