import pytest
from upstash_redis import Redis


def count_visit(url, token, page):
    try:
        with Redis(url=url, token=token) as redis:
            return redis.incr(f"visits:{page}")
    except Exception:
        return None


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_visits_are_counted(kv_server):
    assert count_visit(kv_server.url, kv_server.read_only_token, "home") == 1
