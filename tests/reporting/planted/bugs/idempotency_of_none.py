import flask
import pytest


def create_app(redis, orders):
    app = flask.Flask("shop")

    @app.post("/orders")
    def order():
        token = flask.request.headers.get("Idempotency-Key")
        if not redis.set(f"idempotency:{token}", "1", nx=True, ex=86400):
            return {"status": "known already"}, 200
        number = redis.incr("order:number")
        redis.hset(f"order:{number}", "item", flask.request.json["item"])
        orders.message.publish_json(
            url="https://warehouse.example.com/pick", body={"order": number}, retries=1
        )
        return {"order": number}, 201

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_each_order_is_picked(kv_server, queue):
    route = queue.destinations.accept("https://warehouse.example.com")
    client = create_app(kv_server.client(), queue.client()).test_client()
    client.post("/orders", json={"item": "tea"})
    client.post("/orders", json={"item": "rum"})
    queue.run_until_idle()
    assert len(route.deliveries) == 2
