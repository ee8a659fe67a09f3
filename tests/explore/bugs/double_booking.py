"""A handler of queue deliveries that books a seat for each order."""

from __future__ import annotations

from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import Cloud, DeliveredRequest, once

from . import Scenario

HANDLER = "https://tickets.example.com/book"


def request_seat(qstash: QStash, order: str) -> None:
    """Accept an order, whose seat is booked when the queue delivers it."""
    qstash.message.publish_json(url=HANDLER, body={"order": order})


def book(redis: Redis, order: str) -> None:
    """Book a seat for an order."""
    seat = redis.incr("seats:taken")
    redis.hset("bookings", f"seat {seat}", order)


def book_corrected(redis: Redis, order: str) -> None:
    """Book a seat for an order that has no seat yet."""
    redis.hsetnx("bookings", order, "any seat")


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server, queue = cloud.kv_server(), cloud.queue()
    redis = Redis(server.url, server.token)
    qstash = QStash(queue.token, base_url=queue.url)
    function = book_corrected if corrected else book

    def handle(request: DeliveredRequest) -> None:
        function(redis, request.json()["order"])

    queue.destinations.call(HANDLER, handle)
    return Scenario({"buyer": lambda: request_seat(qstash, "A-1")}, once("bookings"))
