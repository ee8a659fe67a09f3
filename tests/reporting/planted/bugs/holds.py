"""A cinema: who adds a snack to the hold of a seat keeps the seat for ever, so nobody is offered it."""

import pytest


class Seats:
    def __init__(self, redis, queue):
        self.redis, self.queue = redis, queue

    def hold(self, seat, customer):
        self.redis.set(f"hold:{seat}", customer, nx=True, ex=600)
        self.queue.message.publish_json(
            url="https://cinema.example.com/lapsed", body={"seat": seat}, delay="601s"
        )

    def add_snack(self, seat, snack):
        customer = self.redis.get(f"hold:{seat}")
        self.redis.set(f"hold:{seat}", f"{customer} with {snack}")

    def pay(self, seat):
        self.redis.set(f"hold:{seat}", "paid")

    def lapsed(self, request):
        seat = request.json()["seat"]
        if not self.redis.exists(f"hold:{seat}"):
            self.redis.rpush("offers", seat)
        return 200


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_holds_lapse_after_ten_minutes(kv_server, queue):
    seats = Seats(kv_server.client(), queue.client())
    queue.destinations.call("https://cinema.example.com/lapsed", seats.lapsed)
    seats.hold("A1", "eve")
    seats.hold("A2", "bob")
    seats.hold("A3", "ada")
    seats.add_snack("A2", "popcorn")
    seats.pay("A1")
    queue.clock.advance("11m")
    assert kv_server.value("offers") == ["A2", "A3"]
