import pytest


class Charges:
    def __init__(self, redis, bank):
        self.redis, self.bank = redis, bank

    def charge(self, request):
        order = request.json()["order"]
        if not self.redis.set(f"done:{order}", 1, nx=True, ex=86400):
            return 200
        self.bank(order)
        self.redis.rpush("charged", order)
        return 200


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_charge_is_made_once_the_bank_answers(queue, kv_server):
    closed = [True]

    def bank(order):
        if closed:
            closed.clear()
            raise TimeoutError("the bank does not answer")

    queue.destinations.call(
        "https://pay.example.com/charge", Charges(kv_server.client(), bank).charge
    )
    queue.client().message.publish_json(url="https://pay.example.com/charge", body={"order": 7})
    queue.run_until_idle()
    assert kv_server.value("charged") == ["7"]
