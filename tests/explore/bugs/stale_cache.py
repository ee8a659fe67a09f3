"""A page that is rendered from a product and cached."""

from __future__ import annotations

from upstash_redis import Redis

from pytest_fakecloud import Cloud

from . import Scenario


def render(price: str | None) -> str:
    return f"<p>A kettle for {price} €</p>"


def show(redis: Redis) -> str:
    """Return the page; render it if it is not cached."""
    page = redis.get("page:kettle")
    if page is None:
        page = render(redis.get("price:kettle"))
        redis.set("page:kettle", page)
    return page


KEEP = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[2], ARGV[2]) end
"""


def show_corrected(redis: Redis) -> str:
    """Return the page; cache it only if its price has not changed."""
    page = redis.get("page:kettle")
    if page is None:
        price = redis.get("price:kettle")
        page = render(price)
        redis.eval(KEEP, keys=["price:kettle", "page:kettle"], args=[price or "", page])
    return page


def reprice(redis: Redis, price: str) -> None:
    """Change the price and delete the cached page, atomically."""
    change = redis.multi()
    change.set("price:kettle", price)
    change.delete("page:kettle")
    change.exec()


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
    server = cloud.kv_server()
    server.load({"price:kettle": "30"})
    redis = Redis(server.url, server.token)
    function = show_corrected if corrected else show

    def check() -> None:
        kept = server.value("page:kettle")
        assert kept in (None, render(server.value("price:kettle"))), f"the page kept is {kept}"

    run = {"visitor": lambda: function(redis), "owner": lambda: reprice(redis, "25")}
    return Scenario(run, check)
