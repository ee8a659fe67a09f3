import flask
import pytest


def create_app(redis):
    app = flask.Flask("stock")

    @app.put("/stock/<sku>")
    def fill(sku):
        redis.set(f"stock:{sku.upper()}", flask.request.json["count"])
        return "", 204

    @app.get("/stock/<sku>")
    def count(sku):
        return {"count": int(redis.get(f"stock:{sku}") or 0)}

    return app


@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_stock_is_counted(kv_server):
    client = create_app(kv_server.client()).test_client()
    client.put("/stock/TEA-1", json={"count": 5})
    assert client.get("/stock/TEA-1").json == {"count": 5}
    client.put("/stock/tea-2", json={"count": 7})
    response = client.get("/stock/tea-2")
    assert response.json == {"count": 7}
