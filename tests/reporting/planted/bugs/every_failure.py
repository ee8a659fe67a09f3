import pytest


class Transfers:
    def __init__(self, redis):
        self.redis = redis

    def move(self, amount):
        self.redis.decrby("from", amount)
        self.redis.incrby("to", amount)
        self.redis.incr("moves")


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_no_money_is_lost(kv_server, fakecloud):
    kv_server.load({"from": "10", "to": "0"})
    transfers = Transfers(kv_server.client(rest_retries=0))

    def whole():
        assert int(kv_server.value("from")) + int(kv_server.value("to")) == 10

    fakecloud.every_failure(lambda: transfers.move(5), faults="respond", check=whole)
