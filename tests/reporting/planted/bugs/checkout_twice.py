import flask
import pytest


def create_app(redis, mails):
    app = flask.Flask("shop")

    @app.post("/cart")
    def add():
        redis.hincrby("cart:ada", flask.request.json["item"], 1)
        return "", 204

    @app.post("/checkout")
    def checkout():
        items = redis.hgetall("cart:ada")
        if not items:
            return {"error": "the cart is empty"}, 409
        redis.rpush("orders", *items)
        mails.message.publish_json(url="https://mail.example.com/send", body={"items": items})
        redis.delete("cart:ada")
        return {}, 201

    @app.get("/cart")
    def cart():
        return flask.jsonify(redis.hgetall("cart:ada"))

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_the_cart_is_still_there_when_the_mail_fails(kv_server, queue):
    queue.faults.respond(503)
    queue.destinations.accept("https://mail.example.com")
    client = create_app(kv_server.client(), queue.client(retry=False)).test_client()
    client.post("/cart", json={"item": "tea"})
    client.post("/checkout")
    client.post("/checkout")
    assert kv_server.value("orders") == ["tea"]
