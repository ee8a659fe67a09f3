import pytest
import redis


class Accounts:
    def __init__(self, client):
        self.client = client

    def move(self, source, target, amount):
        with self.client.pipeline(transaction=True) as pipe:
            pipe.hincrby(f"account:{source}", "cents", -amount)
            pipe.hincrby(f"account:{target}", "cents", amount)
            try:
                pipe.execute()
            except redis.ResponseError:
                return False
        return True


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_refused_move_changes_nothing(kv_server):
    kv_server.load({"account:ada": {"cents": "500"}, "account:bob": {"cents": "7.50"}})
    with redis.Redis.from_url(kv_server.database_url, decode_responses=True) as client:
        assert not Accounts(client).move("ada", "bob", 200)
    assert kv_server.value("account:ada") == {"cents": "500"}
