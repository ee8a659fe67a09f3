import pytest


def remember(redis, name):
    for _ in range(3):
        try:
            return redis.hset("people", name, 1)
        except Exception:
            continue


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_refused_write_is_tried_again(kv_server):
    fault = kv_server.faults.answer(503, command="SET", times=1)
    remember(kv_server.client(), "ada")
    assert len(fault.hits) == 1
