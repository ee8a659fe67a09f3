import pytest


def learn_and_answer(index, id, vector):
    index.upsert([(id, vector)])
    return [one.id for one in index.query(vector, top_k=1)]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1, vector_index={"ready_after": "5s"})
def test_what_was_learned_is_found(vector_index):
    assert learn_and_answer(vector_index.client(), "tea", [1.0, 0.0]) == ["tea"]
