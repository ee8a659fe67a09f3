import pytest


class Board:
    def __init__(self, redis):
        self.redis = redis

    def record(self, player, score):
        self.redis.zadd("board", {f"{score}:{player}": 0})

    def best(self):
        return self.redis.zrange("board", 0, 0, rev=True)[0].split(":")[1]


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_highest_score_leads(kv_server):
    board = Board(kv_server.client())
    for player, score in (("ada", 70), ("bob", 100), ("cy", 85)):
        board.record(player, score)
    assert board.best() == "bob"
