import pytest
from upstash_vector import Index


def related(url, token):
    try:
        return Index(url=url, token=token).query([1.0, 0.0], top_k=1)
    except Exception:
        return []


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_related_pages_are_found(vector_index, kv_server):
    vector_index.load([{"id": "a", "vector": [1.0, 0.0]}])
    assert related(vector_index.url, kv_server.token)
