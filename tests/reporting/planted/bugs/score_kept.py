import pytest


class Scores:
    def __init__(self, redis):
        self.redis = redis

    def record(self, player, points):
        self.redis.zadd("board", {player: points}, nx=True)
        self.redis.hincrby("games", player, 1)

    def best(self):
        return self.redis.zrange("board", 0, 0, rev=True, withscores=True)[0]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_best_score_counts(kv_server):
    scores = Scores(kv_server.client())
    scores.record("ada", 10)
    scores.record("bob", 20)
    scores.record("ada", 50)
    assert scores.best() == ("ada", 50.0)
