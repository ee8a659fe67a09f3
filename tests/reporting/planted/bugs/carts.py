import json

import flask
import pytest


def create_app(redis):
    app = flask.Flask("carts")

    @app.post("/cart/<user>")
    def add(user):
        cart = json.loads(redis.get(f"cart:{user}") or "[]")
        cart.append(flask.request.json["article"])
        redis.set(f"cart:{user}", json.dumps(cart), ex=600)
        return "", 204

    @app.get("/cart/<user>")
    def show(user):
        return json.loads(redis.get(f"cart:{user}") or "[]")

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_a_cart_is_kept_for_an_hour(kv_server, fakecloud):
    client = create_app(kv_server.client()).test_client()
    client.post("/cart/ada", json={"article": "tea"})
    fakecloud.clock.advance("5m")
    client.post("/cart/ada", json={"article": "cups"})
    fakecloud.clock.advance("30m")
    client.post("/cart/ada", json={"article": "milk"})
    assert client.get("/cart/ada").json == ["tea", "cups", "milk"]
