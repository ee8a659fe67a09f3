"""Ten small applications with a bug that occurs in practice, each with a corrected version."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import httpx
from qstash import QStash
from upstash_redis import Redis

from pytest_fakecloud import Broker, Cloud, DeliveredRequest, nothing_lost, once

from . import Make, Scenario

EMPTY = {"balance": 0, "payments": []}


def deposit(redis: Redis, payment: str, amount: int) -> None:
    """Book a payment once, even if it is sent repeatedly."""
    account = json.loads(redis.get("account") or json.dumps(EMPTY))
    if payment not in account["payments"]:
        account["balance"] += amount
        account["payments"].append(payment)
        redis.set("account", json.dumps(account))


DEPOSIT = """
local account = cjson.decode(redis.call('GET', KEYS[1]) or '{"balance": 0, "payments": []}')
for _, payment in ipairs(account.payments) do
  if payment == ARGV[1] then return 0 end
end
account.balance = account.balance + tonumber(ARGV[2])
table.insert(account.payments, ARGV[1])
redis.call('SET', KEYS[1], cjson.encode(account))
return 1
"""


def deposit_corrected(redis: Redis, payment: str, amount: int) -> None:
    """Book a payment once, in one atomic step."""
    redis.eval(DEPOSIT, keys=["account"], args=[payment, str(amount)])


def lost_update(cloud: Cloud, corrected: bool) -> Scenario:
    """An account that receives two payments at the same time."""
    server = cloud.kv_server()
    redis = Redis(server.url, server.token)
    function = deposit_corrected if corrected else deposit
    amounts = {"alice": 10, "bob": 20}

    def check(history) -> None:
        account = json.loads(server.value("account") or json.dumps(EMPTY))
        for name in amounts:
            if name not in history.errors and name not in history.crashed:
                assert name in account["payments"], f"the payment of {name} is gone"
        assert account["balance"] == sum(amounts[name] for name in account["payments"])

    run = {name: partial(function, redis, name, amount) for name, amount in amounts.items()}
    return Scenario(run, check)


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


def double_booking(cloud: Cloud, corrected: bool) -> Scenario:
    """A handler of queue deliveries that books a seat for each order."""
    server, queue = cloud.kv_server(), cloud.queue()
    redis = Redis(server.url, server.token)
    qstash = QStash(queue.token, base_url=queue.url)
    function = book_corrected if corrected else book

    def handle(request: DeliveredRequest) -> None:
        function(redis, request.json()["order"])

    queue.destinations.call(HANDLER, handle)
    return Scenario({"buyer": lambda: request_seat(qstash, "A-1")}, once("bookings"))


def write_report(redis: Redis) -> bool:
    """Write the report, unless another machine is writing it."""
    if not redis.set("report:lock", "taken", nx=True):
        return False
    try:
        redis.set("report", "all is well")
    finally:
        redis.delete("report:lock")
    return True


RELEASE_LOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"


def write_report_corrected(redis: Redis) -> bool:
    """Write the report, with a lock that expires and that only its owner releases."""
    owner = secrets.token_hex(8)
    if not redis.set("report:lock", owner, nx=True, ex=30):
        return False
    try:
        redis.set("report", "all is well")
    finally:
        redis.eval(RELEASE_LOCK, keys=["report:lock"], args=[owner])
    return True


def lock_without_expiry(cloud: Cloud, corrected: bool) -> Scenario:
    """A nightly report that only one machine at a time may write."""
    server = cloud.kv_server()
    redis = Redis(server.url, server.token)
    function = write_report_corrected if corrected else write_report

    def check() -> None:
        cloud.clock.advance("1h")
        fresh = Redis(server.url, server.token)
        assert function(fresh), "an hour later nobody can write the report"

    return Scenario({"machine": lambda: function(redis)}, check)


Record = dict[str, Any]
AUTO_COMMIT = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}


def consume(http: httpx.Client) -> list[Record]:
    answer = http.get("/consume/mailers/one/orders", headers=AUTO_COMMIT)
    answer.raise_for_status()
    records: list[Record] = answer.json()
    return records


def commit(http: httpx.Client, record: Record) -> None:
    place = {"topic": "orders", "partition": record["partition"], "offset": record["offset"] + 1}
    http.post("/commit/mailers/one", json=place).raise_for_status()


def send_receipt(redis: Redis, order: str) -> None:
    redis.sadd("receipts", order)


def mail(http: httpx.Client, redis: Redis) -> None:
    """Mail receipts until no orders are left."""
    while records := consume(http):
        for record in records:
            commit(http, record)
            send_receipt(redis, record["value"])


def mail_corrected(http: httpx.Client, redis: Redis) -> None:
    """Mail receipts, and commit each order only after its receipt was mailed."""
    while records := consume(http):
        for record in records:
            send_receipt(redis, record["value"])
            commit(http, record)


def place_order(http: httpx.Client, order: str) -> None:
    http.post("/produce/orders", json={"value": order}).raise_for_status()


def client_of(broker: Broker) -> httpx.Client:
    return httpx.Client(base_url=broker.url, auth=(broker.username, broker.password))


def commit_before_work(cloud: Cloud, corrected: bool) -> Scenario:
    """A consumer that mails a receipt for each order in a topic."""
    server, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    redis = Redis(server.url, server.token)
    http = client_of(broker)
    function: Callable[[httpx.Client, Redis], None] = mail_corrected if corrected else mail
    return Scenario(
        {"shop": lambda: place_order(http, "kettle")},
        nothing_lost("orders", lambda: server.value("receipts") or ()),
        workers={"mailer": lambda: function(http, redis)},
    )


def add_up(redis: Redis, record: Record) -> None:
    """Add an order to the revenue."""
    redis.incrby("revenue", int(record["value"]))


ADD = """
local at = tonumber(ARGV[1])
if at < tonumber(redis.call('HGET', KEYS[1], 'next') or 0) then return 0 end
redis.call('HINCRBY', KEYS[1], 'total', ARGV[2])
return redis.call('HSET', KEYS[1], 'next', at + 1)
"""


def add_up_corrected(redis: Redis, record: Record) -> None:
    """Add an order to the revenue, once for each offset."""
    arguments = [str(record["offset"]), record["value"]]
    redis.eval(ADD, keys=[f"revenue:{record['partition']}"], args=arguments)


def count(http: httpx.Client, redis: Redis, add: Callable[[Redis, Record], None]) -> None:
    """Add up orders until none are left."""
    while records := consume(http):
        for record in records:
            add(redis, record)
            commit(http, record)


def exactly_once(cloud: Cloud, corrected: bool) -> Scenario:
    """A consumer that adds up the orders in a topic."""
    server, broker = cloud.kv_server(), cloud.broker(topics={"orders": 1})
    redis = Redis(server.url, server.token)
    http = client_of(broker)
    add = add_up_corrected if corrected else add_up

    def check() -> None:
        booked = server.value("revenue:0") or {"total": 0}
        revenue = int(booked["total"] if corrected else server.value("revenue") or 0)
        ordered = sum(int(record.value) for record in broker.records("orders"))
        assert revenue == ordered, f"revenue of {revenue} from orders of {ordered}"

    return Scenario(
        {"shop": lambda: place_order(http, "30")},
        check,
        workers={"accountant": lambda: count(http, redis, add)},
    )


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


def stale_cache(cloud: Cloud, corrected: bool) -> Scenario:
    """A page that is rendered from a product and cached."""
    server = cloud.kv_server()
    server.load({"price:kettle": "30"})
    redis = Redis(server.url, server.token)
    function = show_corrected if corrected else show

    def check() -> None:
        page = server.value("page:kettle")
        assert page in (None, render(server.value("price:kettle"))), f"the page kept is {page}"

    run = {"visitor": lambda: function(redis), "owner": lambda: reprice(redis, "25")}
    return Scenario(run, check)


WAREHOUSE = "https://warehouse.example.com/ship"


def order(redis: Redis, number: str) -> None:
    """Store an order, and a message for the warehouse in the outbox."""
    change = redis.multi()
    change.hset("orders", number, "placed")
    change.lrem("outbox", 0, number)
    change.rpush("outbox", number)
    change.exec()


def relay(redis: Redis, qstash: QStash) -> None:
    """Send the messages in the outbox."""
    while number := redis.lindex("outbox", 0):
        qstash.message.publish_json(url=WAREHOUSE, body={"order": number})
        redis.lrem("outbox", 1, number)


def ship(redis: Redis, number: str) -> None:
    """Send a parcel."""
    redis.rpush("parcels", number)


def ship_corrected(redis: Redis, number: str) -> None:
    """Send a parcel for an order, unless a parcel has already been sent."""
    redis.hsetnx("parcels", number, "on its way")


def outbox(cloud: Cloud, corrected: bool) -> Scenario:
    """Orders that are stored together with a message, which a relay sends."""
    server, queue = cloud.kv_server(), cloud.queue()
    redis = Redis(server.url, server.token)
    qstash = QStash(queue.token, base_url=queue.url)
    function = ship_corrected if corrected else ship

    def handle(request: DeliveredRequest) -> None:
        function(redis, request.json()["order"])

    queue.destinations.call(WAREHOUSE, handle)
    return Scenario(
        {"shop": lambda: order(redis, "A-1")},
        once("parcels"),
        workers={"relay": lambda: relay(redis, qstash)},
        # Repeated deliveries break the promise as well, but this scenario is about the relay.
        options={} if corrected else {"kinds": "crash"},
    )


ORDER = "https://shop.example.com/order"
CANCEL = "https://shop.example.com/cancel"

RESERVE = """
if redis.call('HSETNX', KEYS[1], 'state', 'reserved') == 1 then redis.call('DECR', KEYS[2]) end
"""
PAY = """
if redis.call('HGET', KEYS[1], 'state') == 'reserved' then
  redis.call('HSET', KEYS[1], 'state', 'paid')
end
"""
RELEASE_ITEM = """
if redis.call('HGET', KEYS[1], 'state') ~= 'paid' then
  if redis.call('HGET', KEYS[1], 'state') == 'reserved' then redis.call('INCR', KEYS[2]) end
  redis.call('HSET', KEYS[1], 'state', 'cancelled')
end
"""


def fulfil(redis: Redis, order: str) -> None:
    """Take an item from stock and charge the buyer, each at most once."""
    redis.eval(RESERVE, keys=[f"order:{order}", "stock"])
    redis.eval(PAY, keys=[f"order:{order}"])


def cancel(redis: Redis, order: str) -> None:
    """Return the item of an unpaid order to stock."""
    redis.eval(RELEASE_ITEM, keys=[f"order:{order}", "stock"])


def place(qstash: QStash, order: str) -> None:
    """Have the queue process an order, with one retry."""
    qstash.message.publish_json(url=ORDER, body={"order": order}, retries=1)


def place_corrected(qstash: QStash, order: str) -> None:
    """Have the queue process an order, and cancel it if all attempts fail."""
    qstash.message.publish_json(
        url=ORDER, body={"order": order}, retries=1, failure_callback=f"{CANCEL}/{order}"
    )


def saga(cloud: Cloud, corrected: bool) -> Scenario:
    """An order in two steps: take an item from stock, then charge the buyer."""
    server, queue = cloud.kv_server(), cloud.queue()
    server.load({"stock": "5"})
    redis = Redis(server.url, server.token)
    qstash = QStash(queue.token, base_url=queue.url)

    def on_order(request: DeliveredRequest) -> None:
        fulfil(redis, request.json()["order"])

    def on_cancel(request: DeliveredRequest) -> None:
        cancel(redis, request.url.rpartition("/")[2])

    queue.destinations.call(ORDER, on_order)
    queue.destinations.call(CANCEL, on_cancel)

    def check() -> None:
        order = server.value("order:A-1") or {}
        taken = 5 - int(server.value("stock"))
        paid = int(order.get("state") == "paid")
        # A cancellation that has failed each time waits for a person.
        is_waiting = bool(queue.dead_letters(url=f"{CANCEL}/A-1"))
        assert taken == paid or is_waiting, f"{taken} taken from stock, {paid} paid"

    function = place_corrected if corrected else place
    return Scenario({"buyer": lambda: function(qstash, "A-1")}, check)


LIMIT, WINDOW_MS = 3, 60_000

FIXED = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
if count > tonumber(ARGV[1]) then return false end
return at
"""
SLIDING = """
local now = redis.call('TIME')
local at = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', at - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return false end
redis.call('ZADD', KEYS[1], at, ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return at
"""


def admit(redis: Redis, request: str) -> int | None:
    """Return the time of a request if it is allowed, else None. Counts in fixed windows of a
    minute.
    """
    return redis.eval(FIXED, keys=["rate"], args=[str(LIMIT), str(WINDOW_MS)])


def admit_corrected(redis: Redis, request: str) -> int | None:
    """Return the time of a request if it is allowed, else None. Counts in a sliding window of a
    minute.
    """
    return redis.eval(SLIDING, keys=["rate"], args=[str(LIMIT), str(WINDOW_MS), request])


def rate_limiter(cloud: Cloud, corrected: bool) -> Scenario:
    """An API that allows three requests per minute."""
    server = cloud.kv_server()
    redis = Redis(server.url, server.token)
    function = admit_corrected if corrected else admit
    passed: list[int] = []

    def traffic() -> None:
        for number in range(6):
            at = function(redis, str(number))
            if at is not None:
                passed.append(at)

    def check() -> None:
        for first, later in zip(passed, passed[LIMIT:], strict=False):
            assert later - first >= WINDOW_MS, (
                f"{LIMIT + 1} requests passed within {(later - first) / 1000:g} s"
            )

    return Scenario({"visitor": traffic}, check, setup=passed.clear)


TODAY = "2026-11-20"


def tick(redis: Redis) -> None:
    """Order today's report, unless it has been ordered."""
    if redis.get("report:latest") != TODAY:
        redis.rpush("jobs", f"report {TODAY}")
        redis.set("report:latest", TODAY)


TICK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  redis.call('RPUSH', KEYS[2], 'report ' .. ARGV[1])
  redis.call('SET', KEYS[1], ARGV[1])
end
"""


def tick_corrected(redis: Redis) -> None:
    """Order today's report, unless it has been ordered, in one atomic step."""
    redis.eval(TICK, keys=["report:latest", "jobs"], args=[TODAY])


def scheduler(cloud: Cloud, corrected: bool) -> Scenario:
    """A scheduler that orders a daily report and is restarted when it dies."""
    server = cloud.kv_server()
    redis = Redis(server.url, server.token)
    function = tick_corrected if corrected else tick
    return Scenario({}, once("jobs"), workers={"scheduler": lambda: function(redis)})


TEN: Sequence[Make] = (
    lost_update, double_booking, lock_without_expiry, commit_before_work, exactly_once,
    stale_cache, outbox, saga, rate_limiter, scheduler,
)  # fmt: skip
