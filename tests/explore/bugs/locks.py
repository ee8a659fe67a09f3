"""Locks, leases, rate limiters and clocks with slow clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis as redis_py
from upstash_redis import Redis

from pytest_fakecloud import Cloud

from . import Scenario


def lock_without_fencing(cloud: Cloud, corrected: bool) -> Scenario:
    """Two machines add credits to an account under a lock: no credit is lost."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    done: list[str] = []

    def add(name: str) -> None:
        while not redis.set("lock", name, nx=True, ex=10):
            time.sleep(1)
        balance = int(redis.get("balance") or 0)
        if corrected:
            script = (
                "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                "redis.call('SET', KEYS[2], ARGV[2]) return 1"
            )
            args = [name, str(balance + 1)]
            if redis.eval(script, keys=["lock", "balance"], args=args):
                done.append(name)
        else:
            redis.set("balance", str(balance + 1))
            done.append(name)
        redis.eval(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end",
            keys=["lock"],
            args=[name],
        )

    def check() -> None:
        balance = int(kv.value("balance") or 0)
        assert balance >= len(done), f"{len(done)} credits given, {balance} on the account"

    clients = {name: (lambda name=name: add(name)) for name in ("one", "two")}
    return Scenario(clients, check, setup=done.clear)


def lease_from_the_answer(cloud: Cloud, corrected: bool) -> Scenario:
    """A leader works during its lease of 20 s: no two leaders work at the same time."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    wrong: list[str] = []

    def lead(name: str) -> None:
        before = time.time()
        if not redis.set("leader", name, nx=True, ex=20):
            return
        until = (before if corrected else time.time()) + 20
        for _ in range(2):
            time.sleep(6)
            # This is the server's current state, read without a call.
            if time.time() < until - 1 and kv.value("leader") != name:
                wrong.append(name)

    def check() -> None:
        assert not wrong, f"{wrong[0]} works, and is not the leader"

    clients = {name: (lambda name=name: lead(name)) for name in ("one", "two")}
    return Scenario(clients, check, setup=wrong.clear)


def truncated_window(cloud: Cloud, corrected: bool) -> Scenario:
    """A limiter lets at most two requests pass within any second."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    passed: list[float] = []

    def visit() -> None:
        for number in range(4):
            now = time.time()
            if corrected:
                script = (
                    "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (ARGV[1] - 1000)) "
                    "if redis.call('ZCARD', KEYS[1]) >= 2 then return 0 end "
                    "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2]) return 1"
                )
                milliseconds = round(now * 1000)
                args = [str(milliseconds), str(number)]
                if redis.eval(script, keys=["recent"], args=args):
                    passed.append(milliseconds / 1000)
            elif redis.incr(f"second:{int(now)}") <= 2:
                passed.append(now)

    def check() -> None:
        for at in passed:
            near = sum(at <= other < at + 1 for other in passed)
            assert near <= 2, f"{near} requests passed within a second"

    kinds = ("nearly", "tick")
    return Scenario({"visitor": visit}, check, setup=passed.clear, options={"kinds": kinds})


def read_before_watch(cloud: Cloud, corrected: bool) -> Scenario:
    """Two buyers take items from stock in transactions: no item is sold twice."""
    kv = cloud.kv_server()
    kv.load({"stock": "5"})
    redis = redis_py.Redis.from_url(kv.database_url, decode_responses=True)
    sold: list[int] = []

    def buy() -> None:
        with redis.pipeline() as pipeline:
            for _ in range(5):
                stock = 0 if corrected else int(redis.get("stock") or 0)
                pipeline.watch("stock")
                if corrected:
                    stock = int(pipeline.get("stock") or 0)
                pipeline.multi()
                pipeline.set("stock", stock - 1)
                try:
                    pipeline.execute()
                    sold.append(1)
                    return
                except redis_py.WatchError:
                    continue

    def check() -> None:
        # A transaction may run again if its answer is lost. It then takes an item that is not sold.
        taken = 5 - int(kv.value("stock"))
        assert taken >= len(sold), f"{len(sold)} sold, {taken} taken from stock"

    return Scenario({"ann": buy, "bob": buy}, check, setup=sold.clear)


def clock_skew(cloud: Cloud, corrected: bool) -> Scenario:
    """Two machines write a profile: a write that began after another one ended wins."""
    kv = cloud.kv_server()
    redis = Redis(kv.url, kv.token, rest_retries=0)
    written: list[str] = []
    put = """
    local t = ARGV[2]
    if t == '' then local n = redis.call('TIME'); t = n[1] * 1000000 + n[2] end
    if tonumber(t) >= tonumber(redis.call('HGET', KEYS[1], 'at') or '0') then
      redis.call('HSET', KEYS[1], 'name', ARGV[1], 'at', t)
    end
    """

    def write(name: str, skew: float) -> Callable[[], None]:
        def run() -> None:
            at = "" if corrected else str(round((time.time() + skew) * 1e6))
            began = list(written)
            redis.eval(put, keys=["profile"], args=[name, at])
            written.append(name)
            assert len(began) < 2

        return run

    def check() -> None:
        profile: Any = kv.value("profile")
        if len(written) == 2 and isinstance(profile, dict):
            last.append(profile["name"])

    last: list[str] = []

    def kept(history: Any) -> None:
        check()
        ends = [client for client in history.clients if client.ended is not None]
        if len(ends) == 2:
            first, second = sorted(ends, key=lambda client: client.ended)
            profile: Any = kv.value("profile")
            if first.ended < second.began:
                assert profile["name"] == second.name, "a later write is lost"

    clients = {"fast": write("fast", 30), "slow": write("slow", 0)}
    return Scenario(clients, kept, setup=lambda: (written.clear(), last.clear()))
