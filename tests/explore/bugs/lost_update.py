"""An account that receives two payments at the same time."""

from __future__ import annotations

import json
from functools import partial

from upstash_redis import Redis

from pytest_fakecloud import Cloud

from . import Scenario

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


def scenario(cloud: Cloud, corrected: bool) -> Scenario:
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
