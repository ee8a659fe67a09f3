import pytest


class Wallet:
    def __init__(self, redis):
        self.redis = redis

    def spend(self, user, amount):
        key = f"wallet:{user}"
        balance = int(self.redis.get(key) or 0)
        if balance < amount:
            return False
        self.redis.set(key, balance - amount)
        return True


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_two_purchases_are_both_charged(kv_server):
    kv_server.load({"wallet:ada": "10"})
    shop, phone = Wallet(kv_server.client()), Wallet(kv_server.client())
    kv_server.faults.call(lambda *_: phone.spend("ada", 3), command="SET", times=1)
    shop.spend("ada", 4)
    assert kv_server.value("wallet:ada") == "3"
