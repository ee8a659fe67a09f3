import base64
import json

import flask
import pytest

SHOP = "https://tickets.example.com"


def create_app(redis, queue):
    app = flask.Flask("tickets")

    @app.post("/orders")
    def order():
        who, price = flask.request.json["who"], flask.request.json["price"]
        redis.hincrby("accounts", who, -price)
        redis.hset(f"order:{who}", values={"price": str(price), "state": "reserved"})
        queue.message.publish_json(
            url="https://venue.example.com/reserve",
            body={"who": who},
            retries=4,
            callback=f"{SHOP}/reserved",
        )
        return "", 202

    @app.post("/reserved")
    def reserved():
        report = flask.request.json
        who = json.loads(base64.b64decode(report["sourceBody"]))["who"]
        price = int(redis.hget(f"order:{who}", "price"))
        if report["status"] != 200:
            redis.hincrby("accounts", who, price)
            return ""
        redis.hset(f"order:{who}", "state", "sold")
        return ""

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_reservation_that_is_retried_is_paid(kv_server, queue):
    app = create_app(kv_server.client(), queue.client())
    queue.destinations.wsgi(SHOP, app)
    queue.destinations.respond("https://venue.example.com", 503, 200)
    app.test_client().post("/orders", json={"who": "ada", "price": 9000})
    queue.run_until_idle()
    accounts = kv_server.value("accounts")
    assert accounts["ada"] == "-9000"
