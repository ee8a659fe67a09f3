import time

import pytest


def fresh(redis, key):
    redis.set(key, "seen", ex=1)
    time.sleep(1.2)
    return redis.get(key) is None


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", clock="frozen", seed=1)
def test_a_mark_expires(kv_server):
    assert fresh(kv_server.client(), "mark")
