import pytest


class Sessions:
    def __init__(self, redis):
        self.redis = redis

    def open(self, user):
        self.redis.set(f"session:{user}", 1)

    def end_all(self):
        _, keys = self.redis.scan(0, match="session:*", count=10)
        for key in keys:
            self.redis.delete(key)


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_no_session_is_left(kv_server):
    sessions = Sessions(kv_server.client())
    kv_server.load({f"user:{number}": "1" for number in range(40)})
    for user in ("ada", "bob", "cy"):
        sessions.open(user)
    sessions.end_all()
    assert kv_server.keys("session:*") == []
