import pytest


def titles(index, vector):
    return [(one.metadata or {}).get("title") for one in index.query(vector, top_k=2)]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_titles_are_shown(vector_index):
    index = vector_index.client()
    index.upsert([("a", [1.0, 0.0], {"title": "Tea"}), ("b", [0.0, 1.0], {"title": "Rum"})])
    assert titles(index, [1.0, 0.1]) == ["Tea", "Rum"]
