"""Anomalies that are found without a promise: programs that have one, and similar ones that do not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx
import pytest
from upstash_redis import Redis
from upstash_redis.errors import UpstashError

from pytest_fakecloud import BrokenPromiseError, Cloud, ContractError, Exploration, KVServer
from pytest_fakecloud.explore.explore import player_for
from pytest_fakecloud.explore.judge.anomalies import PATTERNS
from pytest_fakecloud.explore.subject.options import TRIALS, Options
from pytest_fakecloud.explore.subject.programs import programs_of
from pytest_fakecloud.explore.values.plan import Plan
from pytest_fakecloud.explore.values.schedule import Schedule

from ..docs.blocks import DOCS
from .bugs import Make, Scenario, events, reads, ten, work
from .bugs.effects import DELETED, EFFECTS, HARMLESS
from .conftest import holds, opened

Clients = Mapping[str, Callable[[], object]]
TAKE = "if tonumber(redis.call('GET', KEYS[1])) > 0 then return redis.call('DECR', KEYS[1]) end"
ADD = "return redis.call('SET', KEYS[1], redis.call('GET', KEYS[1]) + 1)"
RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
HAND_OVER = (
    "if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[1]) end"
)
REFILL = """
local at, now = tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(redis.call('TIME')[1])
if now - at >= 60 then redis.call('SET', KEYS[1], '1') redis.call('SET', KEYS[2], now) end
if tonumber(redis.call('GET', KEYS[1])) > 0 then return redis.call('DECR', KEYS[1]) end
"""
COUNT = """
local visits = redis.call('INCR', KEYS[1])
if visits == 1 then redis.call('EXPIRE', KEYS[1], 60) end
return visits
"""
WINDOW = """
if redis.call('INCR', KEYS[1]) > 1 then return 0 end
redis.call('EXPIRE', KEYS[1], 60)
redis.call('INCR', KEYS[2])
return 1
"""
BUCKET = """
local at, tokens = unpack(redis.call('HMGET', KEYS[1], 'at', 'tokens'))
at, tokens = tonumber(at or ARGV[1]), tonumber(tokens or '1')
tokens = math.min(1, tokens + math.floor((ARGV[1] - at) / 2000))
if tokens < 1 then return 0 end
redis.call('HSET', KEYS[1], 'at', ARGV[1], 'tokens', tokens - 1)
return 1
"""
FENCED = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[2], ARGV[2]) end"


def both(work: Callable[[str], object]) -> Clients:
    return {name: (lambda name=name: work(name)) for name in ("ann", "bob")}


def renamed(program: Callable[[Redis], Clients], **names: str) -> Callable[[Redis], Clients]:
    """Return a program whose commands name other keys and fields."""

    def make(redis: Redis) -> Clients:
        execute = redis.execute

        def with_other_names(command: list[object]) -> object:
            return execute([names.get(str(word), word) for word in command])

        redis.execute = with_other_names  # type: ignore[method-assign, assignment]
        return program(redis)

    return make


# -- programs with an anomaly ----------------------------------------------------------------------


def add_view(redis: Redis) -> Clients:
    return both(lambda _: redis.set("views", int(redis.get("views") or 0) + 1))


def rename_field(redis: Redis) -> Clients:
    return both(lambda name: redis.hset("user", "name", f"{redis.hget('user', 'name')}{name}"))


def rename_field_for_an_hour(redis: Redis) -> Clients:
    def rename(name: str) -> None:
        redis.hsetex("user", values={"name": f"{redis.hget('user', 'name')}{name}"}, ex=3600)

    return both(rename)


def remove_field_that_it_returns(redis: Redis) -> Clients:
    redis.hset("settings", "theme", "dark")

    def remove() -> None:
        if redis.hget("settings", "theme") == "dark":
            redis.hgetdel("settings", "theme")

    return beside(remove, lambda: redis.hset("settings", "theme", "light"))


def count_in_array(redis: Redis) -> Clients:
    def add(_: str) -> None:
        count = int(redis.execute(["ARGET", "counts", "7"]))
        redis.execute(["ARSET", "counts", "6", "x", str(count + 1)])

    redis.execute(["ARSET", "counts", "7", "1"])
    return both(add)


def append_in_document(redis: Redis) -> Clients:
    return both(lambda name: redis.mset({"doc": f"{redis.get('doc')} {name}"}))


def submit_scores(redis: Redis, *, gt: bool) -> Clients:
    def submit(score: float) -> None:
        if score > (redis.zscore("due", "job") or 0):
            redis.zadd("due", {"job": score}, gt=gt)

    return {"ann": lambda: submit(7), "bob": lambda: submit(9)}


def settle_orders(redis: Redis) -> Clients:
    redis.hset("orders", values={"one": "new", "two": "new"})

    def settle() -> None:
        for order in redis.hgetall("orders"):
            redis.hset("orders", order, "sent")

    return {"relay": settle, "shop": lambda: redis.hset("orders", "two", "cancelled")}


def rename_in_document(redis: Redis) -> Clients:
    redis.json.set("paper", "$", {"author": {"name": "x"}})

    def rename(name: str) -> None:
        old = redis.json.get("paper", "$.author.name")
        redis.json.set("paper", "$['author']", {"name": f"{old}{name}"})

    return both(rename)


def raise_score(redis: Redis) -> Clients:
    return submit_scores(redis, gt=False)


def take_from_bucket(redis: Redis) -> Clients:
    redis.hset("bucket", "tokens", "5")
    return both(
        lambda _: redis.hset("bucket", "tokens", str(int(redis.hget("bucket", "tokens") or 0) - 1))
    )


def take_stock(redis: Redis) -> Clients:
    return both(lambda _: int(redis.get("stock") or 0) > 0 and redis.decr("stock"))


def claim_seat(redis: Redis) -> Clients:
    return both(lambda name: redis.get("seat") is None and redis.set("seat", name))


def join_room(redis: Redis) -> Clients:
    return both(lambda name: redis.llen("room") < 1 and redis.rpush("room", name))


def hand_over(redis: Redis) -> Clients:
    def work(_: str) -> None:
        for job in redis.zrange("due", 0, 0):
            redis.zrem("due", job)
            redis.rpush("outgoing", job)

    return both(work)


def pay_out(redis: Redis) -> Clients:
    return both(lambda _: redis.get("bonus") and (redis.delete("bonus"), redis.incrby("paid", 5)))


def reset_password(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.get("bonus"):
            redis.hset("passwords", "ann", name)
            redis.delete("bonus")

    return both(work)


def accept_invitation(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.sismember("tickets", "t1"):
            redis.set("owner", name)
            redis.srem("tickets", "t1")

    return both(work)


def register_name(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if not redis.sismember("names", "cat"):
            redis.sadd("names", "cat")
            redis.set("cat", name)

    return both(work)


def open_ticket(redis: Redis) -> Clients:
    def work(_: str) -> None:
        if redis.sismember("tickets", "t1"):
            redis.srem("tickets", "t1")
            redis.hincrby("visitors", "today", 1)

    return both(work)


def leave_call(redis: Redis) -> Clients:
    def leave(name: str) -> None:
        if sum(redis.get(doctor) == "on" for doctor in ("ann", "bob")) > 1:
            redis.set(name, "off")

    return both(leave)


def withdraw(redis: Redis) -> Clients:
    def take(name: str) -> None:
        if int(redis.get("ann") or 1) + int(redis.get("bob") or 1) >= 2:
            redis.decrby(name, 2)

    return both(take)


def open_both(redis: Redis) -> Clients:
    def open_valve(name: str) -> None:
        if set(redis.mget("ann", "bob")) != {"open"}:
            redis.set(name, f"open by {name}")

    return both(open_valve)


def swap_shifts(redis: Redis) -> Clients:
    def swap(name: str, other: str) -> None:
        if redis.get(other) == "on":
            redis.set(name, "off")

    return {"ann": lambda: swap("ann", "bob"), "bob": lambda: swap("bob", "ann")}


def pop_job(redis: Redis) -> Clients:
    return {"ann": lambda: (job := redis.rpop("jobs")) and redis.sadd("done", job)}


def pop_ticket(redis: Redis) -> Clients:
    return {"ann": lambda: (job := redis.spop("tickets")) and redis.rpush("visits", job)}


def pop_due(redis: Redis) -> Clients:
    return {"ann": lambda: redis.zpopmin("due") and redis.hset("sent", "job", 1)}


def under_lock(redis: Redis, end: Callable[[str], object]) -> Clients:
    def work(name: str) -> None:
        if redis.set("lock", name, nx=True, ex=10):
            redis.incr("work")
            end(name)

    return both(work)


def release_any(redis: Redis) -> Clients:
    return under_lock(redis, lambda _: redis.delete("lock"))


def extend_any(redis: Redis) -> Clients:
    return under_lock(redis, lambda _: redis.expire("lock", 10))


def renew_any(redis: Redis) -> Clients:
    return under_lock(redis, lambda name: redis.set("lock", name, xx=True, ex=10))


def mark_free(redis: Redis) -> Clients:
    return under_lock(redis, lambda _: redis.unlink("lock"))


def write_late(redis: Redis) -> Clients:
    return under_lock(redis, lambda name: redis.set("report", name))


def score_late(redis: Redis) -> Clients:
    return under_lock(redis, lambda name: redis.hset("board", "best", name))


def retried(work: Callable[[], object]) -> Clients:
    def run() -> None:
        for _ in range(2):
            try:
                work()
                return
            except Exception:
                continue

    return {"ann": run}


def pay_again(redis: Redis) -> Clients:
    return retried(lambda: redis.incrby("paid", 5))


def log_again(redis: Redis) -> Clients:
    return retried(lambda: redis.rpush("log", "paid"))


def raise_again(redis: Redis) -> Clients:
    return retried(lambda: redis.hincrby("account", "balance", 5))


def transfer(redis: Redis) -> Clients:
    return {"ann": lambda: (redis.decrby("stock", 1), redis.incrby("views", 1))}


def sell_then_note(redis: Redis) -> Clients:
    return both(lambda name: redis.decr("stock") >= 0 and redis.hset("sold", name, "1"))


def claim_name_first(redis: Redis) -> Clients:
    return {"ann": lambda: redis.setnx("name:ann", "1") and redis.rpush("users", "ann")}


def lock_for_good(redis: Redis) -> Clients:
    """A crash leaves the lock, which nobody releases."""

    def work() -> None:
        if redis.setnx("lock", "ann"):
            redis.rpush("users", "ann")
            redis.delete("lock")

    return {"ann": work}


def count_places(redis: Redis) -> Clients:
    return both(lambda name: redis.scard("tickets") < 4 and redis.sadd("tickets", f"new {name}"))


def run_twice(redis: Redis) -> Clients:
    def tick(_: str) -> None:
        if redis.get("last_run") != "today":
            redis.set("last_run", "today")
            redis.rpush("reports", "report")

    return both(tick)


def fill_after_deletion(redis: Redis) -> Clients:
    """The usual cache with a TTL: the writer deletes the copy, and a reader stores the older value."""

    def show() -> None:
        if redis.get("page") is None:
            redis.set("page", redis.get("doc"), ex=60)

    return {"visitor": show, "owner": lambda: (redis.set("doc", "new"), redis.delete("page"))}


def build_timeline(redis: Redis) -> Clients:
    def show() -> None:
        if not redis.exists("timeline"):
            steps = redis.multi()
            steps.sadd("timeline", *redis.smembers("tickets"))
            steps.expire("timeline", 60)
            steps.exec()

    def publish() -> None:
        redis.sadd("tickets", "new")
        redis.delete("timeline")

    return {"visitor": show, "author": publish}


def build_list(redis: Redis) -> Clients:
    def show() -> None:
        if not redis.lrange("newest", 0, -1):
            redis.rpush("newest", redis.hget("user", "name") or "")

    return {
        "visitor": show,
        "owner": lambda: (redis.hset("user", "name", "y"), redis.delete("newest")),
    }


def beside(work: Callable[[], object], other: Callable[[], object]) -> Clients:
    return {"worker": work, "shop": other}


def remove_moved(redis: Redis) -> Clients:
    redis.zadd("due", {"job 2": 2})

    def work() -> None:
        for job in redis.zrange("due", 0, 5, sortby="BYSCORE"):
            redis.zrem("due", job)

    return beside(work, lambda: redis.zadd("due", {"job 2": 99}))


def remove_idle(redis: Redis) -> Clients:
    return beside(
        lambda: (redis.zscore("due", "job") or 9) < 5 and redis.zrem("due", "job", "other"),
        lambda: redis.zincrby("due", 10, "job"),
    )


def remove_near(redis: Redis) -> Clients:
    redis.geoadd("cars", (13.36, 38.11, "a"))

    def leave() -> None:
        for car in redis.geosearch("cars", longitude=13, latitude=38, radius=99, unit="KM"):
            redis.zrem("cars", car)

    return beside(leave, lambda: redis.geoadd("cars", (2.35, 48.85, "a")))


def remove_silent_devices(redis: Redis) -> Clients:
    redis.hset("devices", values={"a": "1", "b": "100"})

    def clean() -> None:
        for device, seen in redis.hgetall("devices").items():
            if int(seen) < 50:
                redis.hdel("devices", device)

    return beside(clean, lambda: redis.hset("devices", "a", "101"))


def end_session(redis: Redis) -> Clients:
    redis.hset("sessions", "ann", "1")

    def end() -> None:
        if redis.hget("sessions", "ann") == "1":
            redis.hdel("sessions", "ann")

    return beside(end, lambda: redis.hincrby("sessions", "ann", 5))


# -- guarded programs ------------------------------------------------------------------------------


def add_by_script(redis: Redis) -> Clients:
    return both(lambda _: redis.eval(ADD, keys=["views"]))


def set_other_indexes(redis: Redis) -> Clients:
    def double(index: int) -> None:
        value = redis.execute(["ARGET", "counts", str(index)])
        redis.execute(["ARSET", "counts", str(index), f"{value}!", f"{value}?"])

    redis.execute(["ARSET", "counts", "0", "a", "b", "c", "d"])
    return {"ann": lambda: double(0), "bob": lambda: double(2)}


def set_other_fields(redis: Redis) -> Clients:
    return both(lambda name: redis.hset("user", name, f"{redis.hget('user', name)}!"))


def write_beside(redis: Redis, *commands: str) -> Clients:
    """A client that has read the whole of a key writes a part of it, others other parts."""
    redis.hset("parts", values={"a": "1", "b": "2", "c": "3", "d": "4"})
    redis.json.set("paper", "$", {"a": 1, "b": 2, "c": [3, 4]})
    first, *others = (line.split(" + ") for line in commands)
    work = {"first": first, **{f"other{number}": lines for number, lines in enumerate(others)}}
    return {
        name: lambda lines=lines: [redis.execute(line.split()) for line in lines]
        for name, lines in work.items()
    }


def write_fields_beside(redis: Redis) -> Clients:
    first = "HGETALL parts + HSET parts a 9 + HDEL parts d"
    return write_beside(redis, first, "HSET parts b 8", "HINCRBY parts c 1")


def write_read_field_beside(redis: Redis) -> Clients:
    return write_beside(redis, "HMGET parts a b + HSET parts a 9", "HDEL parts b")


def write_paths_beside(redis: Redis) -> Clients:
    first = "JSON.GET paper + JSON.SET paper $.c[0] 9"
    return write_beside(redis, first, "JSON.SET paper $['a'] 8", "JSON.NUMINCRBY paper c[1] 1")


def set_the_same(redis: Redis) -> Clients:
    return both(lambda _: redis.get("theme") != "dark" and redis.set("theme", "dark"))


def take_by_script(redis: Redis) -> Clients:
    return both(lambda _: redis.eval(TAKE, keys=["stock"]))


def claim_once(redis: Redis) -> Clients:
    return both(lambda name: redis.get("seat") is None and redis.set("seat", name, nx=True))


def claim_field_once(redis: Redis) -> Clients:
    def claim(name: str) -> None:
        if redis.hget("user", "owner") is None:
            redis.execute(["HSETEX", "user", "FNX", "FIELDS", "1", "owner", name])

    return both(claim)


def add_view_if_unchanged(redis: Redis) -> Clients:
    def add(_: str) -> None:
        views = redis.get("views")
        redis.execute(["SET", "views", str(int(views or 0) + 1), "IFEQ", str(views)])

    return both(add)


def reset_password_once(redis: Redis) -> Clients:
    return both(lambda name: redis.getdel("bonus") and redis.hset("passwords", "ann", name))


def reset_if_removed(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.get("bonus") and redis.delete("bonus"):
            redis.hset("passwords", "ann", name)

    return both(work)


def archive_bonus(redis: Redis) -> Clients:
    def work(_: str) -> None:
        if redis.get("bonus"):
            redis.hset("archive", "bonus", "yes")
            redis.delete("bonus")

    return both(work)


def raise_score_at_once(redis: Redis) -> Clients:
    return submit_scores(redis, gt=True)


def hand_over_several(redis: Redis) -> Clients:
    redis.zadd("due", {"job 2": 2})

    def work(_: str) -> None:
        for job in redis.zrange("due", 0, -1):
            redis.eval(HAND_OVER, keys=["due", "outgoing"], args=[job])

    return both(work)


def register_once(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if not redis.sismember("names", "cat") and redis.sadd("names", "cat"):
            redis.set("cat", name)

    return both(work)


def hand_over_once(redis: Redis) -> Clients:
    def work(_: str) -> None:
        for job in redis.zrange("due", 0, 0):
            if redis.zrem("due", job):
                redis.rpush("outgoing", job)

    return both(work)


def remove_same_score(redis: Redis) -> Clients:
    work = remove_idle(redis)["worker"]
    return beside(work, lambda: redis.zadd("due", {"job": 1}))


def take_by_time(redis: Redis) -> Clients:
    return both(lambda _: redis.eval(REFILL, keys=["bucket:tokens", "bucket:at"]))


def remind_by_time(redis: Redis) -> Clients:
    return both(lambda _: redis.eval(COUNT, keys=["window"]) == 1 and redis.incr("reminders"))


def count_attempts(redis: Redis) -> Clients:
    def work() -> None:
        redis.incr("attempts:ann")
        redis.hincrby("job", "failedTries", 1)
        redis.set("paid", "order-1")

    return retried(work)


def sell_with_entry(redis: Redis) -> Clients:
    sell = (
        "if redis.call('SADD', KEYS[2], ARGV[1]) == 1 then return redis.call('DECR', KEYS[1]) end"
    )
    return {
        "ann": lambda: (
            redis.eval(sell, keys=["stock", "entries"], args=["order-1"]),
            redis.hset("sold", "order-1", "ann"),
        )
    }


def remove_and_count(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.sismember("tickets", "t1"):
            redis.srem("tickets", "t1")
            redis.incr(f"tries:{name}")

    return both(work)


def remove_others(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.sismember("tickets", name):
            redis.srem("tickets", name)
            redis.incr("visitors")

    return both(work)


def join_once(redis: Redis) -> Clients:
    return both(lambda name: redis.sismember("room", name) or redis.sadd("room", name))


def move_job(redis: Redis) -> Clients:
    def work() -> None:
        if job := redis.lmove("jobs", "running"):
            redis.sadd("done", job)
            redis.lrem("running", 1, job)

    return {"ann": work}


def move_job_by_script(redis: Redis) -> Clients:
    move = "local j = redis.call('RPOP', KEYS[1]) redis.call('ZADD', KEYS[2], 1, j) return j"
    return {"ann": lambda: redis.sadd("done", redis.eval(move, keys=["jobs", "running"]))}


def do_before_pop(redis: Redis) -> Clients:
    return {"ann": lambda: redis.sadd("done", redis.lindex("jobs", 0)) and redis.lpop("jobs")}


def decrease_only(redis: Redis) -> Clients:
    return both(lambda _: redis.decr("stock") < 0 and redis.incr("stock"))


def release_own(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.set("lock", name, nx=True, ex=10):
            redis.eval(FENCED, keys=["lock", "report"], args=[name, name])
            redis.eval(RELEASE, keys=["lock"], args=[name])

    return both(work)


def release_if_equal(redis: Redis, *command: str) -> Clients:
    def work(name: str) -> None:
        if redis.set("lock", name, nx=True, ex=10):
            redis.eval(FENCED, keys=["lock", "report"], args=[name, name])
            redis.execute([*command, name])

    return both(work)


def write_fenced(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.set("lock", name, nx=True, ex=10):
            redis.eval(FENCED, keys=["lock", "report"], args=[name, name])

    return both(work)


def write_own(redis: Redis) -> Clients:
    def work(name: str) -> None:
        if redis.set("lock", name, nx=True, ex=10):
            redis.set(f"report:{name}", "done")

    return both(work)


def write_own_field(redis: Redis) -> Clients:
    def buy(name: str) -> None:
        if redis.set("hold", name, nx=True, ex=10):
            redis.hset("payments", name, "paid")
            if not redis.hsetnx("seats", "A7", name):
                redis.hset("refunds", name, "due")

    return both(buy)


def rank_players(redis: Redis) -> Clients:
    def play(name: str) -> None:
        redis.zadd("board", {name: len(name)})
        redis.hset("shown", name, str(redis.zrank("board", name)))

    return both(play)


def add_to_set_again(redis: Redis) -> Clients:
    return retried(lambda: redis.sadd("paid", "order-1"))


def set_again(redis: Redis) -> Clients:
    return retried(lambda: redis.set("paid", "order-1"))


def derive_again(redis: Redis) -> Clients:
    def work(_: str) -> None:
        with suppress(UpstashError):
            redis.xgroup_create("log", "group", "0", mkstream=True)
        redis.zunionstore("board", ["due", "late"])
        redis.copy("doc", "copy", replace=True)
        redis.setrange("doc", 0, "T")

    return both(work)


def fill_for_a_minute(redis: Redis) -> Clients:
    """Nobody deletes the copies of a cache, which may be as old as their TTL."""
    visitor = fill_after_deletion(redis)["visitor"]
    return {"visitor": visitor, "owner": lambda: redis.set("doc", "new")}


def score_again(redis: Redis) -> Clients:
    return retried(lambda: redis.zadd("paid", {"order-1": 5}))


def peek_and_pop(redis: Redis) -> Clients:
    def work() -> None:
        if job := redis.lindex("jobs", 0):
            redis.sadd("done", job)
            redis.lpop("jobs")

    return {"web": lambda: redis.rpush("jobs", "new"), "worker": work}


def sell_at_once(redis: Redis) -> Clients:
    sell = "redis.call('DECR', KEYS[1]) redis.call('HSET', KEYS[2], ARGV[1], '1')"
    return both(lambda name: redis.eval(sell, keys=["stock", "sold"], args=[name]))


def refund(redis: Redis) -> Clients:
    def buy() -> None:
        redis.decrby("stock", 1)
        try:
            redis.hset("sold", "ann", "1")
        except Exception:
            redis.incrby("stock", 1)

    return {"ann": buy}


def count_versions(redis: Redis) -> Clients:
    def write() -> None:
        steps = redis.multi()
        steps.hset("user", "name", "new")
        steps.hincrby("user", "version", 1)
        steps.exec()

    return retried(write)


def add_themselves(redis: Redis) -> Clients:
    return both(
        lambda name: redis.sismember("tickets", f"{name} 2") or redis.sadd("tickets", f"{name} 2")
    )


def remove_by_name(redis: Redis) -> Clients:
    """A client that only asks for the name removes whatever value it has."""
    redis.hset("settings", "theme", "dark")

    def remove() -> None:
        if redis.hexists("settings", "theme"):
            redis.hdel("settings", "theme")

    return beside(remove, lambda: redis.hset("settings", "theme", "light"))


def take_out_by_name(redis: Redis) -> Clients:
    redis.hset("settings", "theme", "dark")

    def take_out() -> None:
        for field in redis.hkeys("settings"):
            redis.hgetdel("settings", field)

    return beside(take_out, lambda: redis.hset("settings", "theme", "light"))


def retry_beside_window(redis: Redis) -> Clients:
    """A client whose request was lost gets the next token."""

    def serve(tries: int) -> None:
        for attempt in range(tries):
            time.sleep(4 * attempt)
            now = str(int(time.time() * 1000))
            try:
                is_allowed = redis.eval(BUCKET, keys=["bucket of tokens"], args=[now])
            except (UpstashError, OSError, httpx.HTTPError):
                continue
            if is_allowed:
                redis.incr("served")
            return

    return {"ann": lambda: serve(2), "bob": lambda: serve(1)}


def pay_by_status(redis: Redis) -> Clients:
    """A script compares the status that it writes, so it can be run again."""
    redis.hset("order", "status", "open")
    script = """
    if redis.call('HGET', KEYS[1], 'status') == 'paid' then return 0 end
    redis.call('INCRBY', KEYS[2], 5)
    redis.call('HSET', KEYS[1], 'status', 'paid')
    return 1
    """

    def pay() -> None:
        redis.eval(script, keys=["order", "account"])
        redis.sadd("paid", "order")

    return {"ann": pay}


def log_strikes(redis: Redis) -> Clients:
    def log_in() -> None:
        if redis.hincrby("strikes", "ann", 1) > 3:
            redis.set("locked", "ann")

    return retried(log_in)


FIRE: dict[str, tuple[Callable[[Redis], Clients], ...]] = {
    "not serializable": (
        add_view,
        rename_field,
        rename_field_for_an_hour,
        remove_field_that_it_returns,
        append_in_document,
        count_in_array,
        raise_score,
        take_from_bucket,
        rename_in_document,
        remove_silent_devices,
        end_session,
        take_stock,
        claim_seat,
        join_room,
        count_places,
        reset_password,
        accept_invitation,
        register_name,
        leave_call,
        withdraw,
        swap_shifts,
        fill_after_deletion,
        build_timeline,
        build_list,
        remove_moved,
        remove_idle,
        remove_near,
        hand_over,
        pay_out,
        open_ticket,
        remove_and_count,
        run_twice,
    ),
    "foreign release": (release_any, extend_any, renew_any, mark_free),
    "expired lock": (write_late, score_late),
    "partial update": (transfer, sell_then_note, lock_for_good),
    "early commit": (pop_job, pop_ticket, pop_due),
    "repeated effect": (pay_again, log_again, raise_again),
}
SILENT = (
    add_by_script, set_other_fields, set_the_same, take_by_script, claim_once, decrease_only,
    release_own, write_fenced, write_own,
    add_to_set_again, set_again, derive_again, score_again, hand_over_once,
    remove_others, settle_orders, open_both,
    join_once, move_job, move_job_by_script, do_before_pop,
    peek_and_pop, sell_at_once, count_versions, add_themselves,
    write_own_field, rank_players, claim_name_first, reset_password_once, reset_if_removed,
    archive_bonus, raise_score_at_once, register_once, hand_over_several,
    set_other_indexes, write_fields_beside, write_read_field_beside, write_paths_beside,
    remove_same_score, take_by_time, remind_by_time, count_attempts, sell_with_entry,

    remove_by_name, take_out_by_name, claim_field_once, add_view_if_unchanged,
    retry_beside_window, pay_by_status, log_strikes,
    fill_for_a_minute,
)  # fmt: skip


def filled(kv: KVServer) -> Redis:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    redis.mset({"views": 1, "stock": 1, "doc": "text", "ann": "on", "bob": "on"})
    redis.hset("user", "name", "x")
    redis.zadd("due", {"job": 1})
    redis.sadd("tickets", "t1", "ann", "bob")
    redis.set("bonus", "yes")
    redis.rpush("jobs", "job")
    return redis


@pytest.mark.parametrize(
    ("name", "program"),
    [(name, program) for name, programs in FIRE.items() for program in programs],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_anomaly_is_named_without_a_promise(
    cloud: Cloud, kv: KVServer, name: str, program: Callable[[Redis], Clients]
) -> None:
    redis = filled(kv)
    if program is withdraw:
        redis.delete("ann", "bob")
    others = [pattern for pattern in PATTERNS if pattern != name]
    # Only two disturbances together make a lock expire and its next holder slow.
    kinds = ("jump", "delay") if name == "foreign release" else None
    # The search reports a partial update after it has used up its budget.
    budget = 60 if PATTERNS[name].is_doubtful else TRIALS
    with pytest.raises(BrokenPromiseError) as caught:
        cloud.explore(program(redis), allow=others, kinds=kinds, budget=budget)
    assert str(caught.value.__cause__).startswith(f"{name} (")
    if program is FIRE[name][0]:
        with pytest.raises(BrokenPromiseError, match=name):
            cloud.explore(program(redis), schedule=caught.value.schedule, allow=others)


@pytest.mark.parametrize("program", SILENT, ids=lambda program: program.__name__)
def test_a_guarded_program_is_not_accused(
    cloud: Cloud, kv: KVServer, program: Callable[[Redis], Clients]
) -> None:
    clients = program(filled(kv))
    # A client alone has 15 single disturbances.
    result = cloud.explore(clients, budget=15 * len(clients), trust=False)
    assert not result.anomalies


@pytest.mark.parametrize(
    ("program", "name"),
    [(count_attempts, "attempts:ann"), (log_strikes, "strikes"), (pay_again, "paid")],
)
def test_names_of_keys_and_counters_change_no_verdict(
    program: Callable[[Redis], Clients], name: str
) -> None:
    verdicts = []
    for other in (name, "views", "retries"):
        with opened() as cloud:
            redis = filled(cloud.kv_server())
            try:
                cloud.explore(renamed(program, **{name: other})(redis), budget=40)
                verdicts.append("")
            except BrokenPromiseError as error:
                verdicts.append(str(error.__cause__).replace(other, name))
    assert len(set(verdicts)) == 1, verdicts


@pytest.mark.parametrize("command", ["DELIFEQ lock", "DELEX lock IFEQ"])
def test_a_release_of_the_own_lock_is_not_foreign(cloud: Cloud, kv: KVServer, command: str) -> None:
    clients = release_if_equal(filled(kv), *command.split())
    # Two disturbances make a lock expire and its next holder slow.
    result = cloud.explore(clients, kinds=("jump", "delay"), budget=60, trust=False)
    assert not result.anomalies


def test_a_compensation_is_no_half_of_an_update(cloud: Cloud, kv: KVServer) -> None:
    result = cloud.explore(refund(filled(kv)), kinds=("respond", "drop"), budget=20)
    assert not result.anomalies


def test_commands_that_the_server_rejects_have_no_effect(cloud: Cloud, kv: KVServer) -> None:
    redis = filled(kv)

    def work() -> None:
        for line in ("INCR doc", "INCRBY doc 5", "SET doc", "SET doc x NX XX", "HSET doc f v"):
            with suppress(UpstashError):
                redis.execute(line.split())

    assert not cloud.explore(work, kinds=("lose_response", "respond"), budget=40).anomalies


def test_an_anomaly_shows_commands_as_the_story_does(cloud: Cloud, kv: KVServer) -> None:
    redis = filled(kv)

    def begin() -> None:
        redis.rpop("jobs")
        redis.hset("job", values={"title": "two words", "error": "", "result": "x" * 1000})

    with pytest.raises(BrokenPromiseError, match="early commit") as caught:
        cloud.explore(begin, schedule="begin.2 crash")
    (shown,) = re.findall(r"anomaly: .*", str(caught.value))
    assert 'HSET job title "two words" error "" result xxx' in shown
    assert len(shown) < 500


def test_trials_in_one_piece_leave_the_data_of_the_judged_trial(cloud: Cloud, kv: KVServer) -> None:
    redis = filled(kv)
    with player_for(cloud, programs_of(add_view(redis), ()), None, Options()) as player:
        player.play_undisturbed(Plan())
        trial = player.play(Plan(Schedule.parse("ann.2 switch bob")))
        assert [anomaly.name for anomaly in trial.verdict.anomalies] == ["not serializable"]
        assert kv.value("views") == "2"


def test_data_of_an_anomaly_are_shortened(cloud: Cloud, redis: Redis) -> None:
    clients = both(lambda name: redis.set("log", f"{redis.get('log')}{name}" * 100))
    with pytest.raises(BrokenPromiseError, match="not serializable") as caught:
        cloud.explore(clients, kinds="switch")
    (shown,) = re.findall(r"anomaly: .*", str(caught.value))
    assert len(shown) < 500


def test_a_search_for_a_promise_lists_the_anomalies(cloud: Cloud, kv: KVServer) -> None:
    result = cloud.explore(add_view(filled(kv)), holds, budget=10)
    assert "anomaly: not serializable (views): views is 2; it is 3 if each client" in str(result)
    assert "'ann.2 switch bob'" in str(result)


@pytest.mark.parametrize("allow", ["not serializable", "not serializable: vi*"])
def test_an_anomaly_is_allowed_by_name_and_subject(cloud: Cloud, kv: KVServer, allow: str) -> None:
    result = cloud.explore(add_view(filled(kv)), allow=allow, budget=10)
    assert str(result).startswith("no anomaly was found in")


@pytest.mark.parametrize(
    ("allow", "text"),
    [
        ("early commits", "did you mean"),
        ("expired lock", "no trial shows"),
        ([3], "is not the name"),
    ],
)
def test_an_allowed_anomaly_must_exist(cloud: Cloud, redis: Redis, allow: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        cloud.explore(lambda: redis.set("k", 1), allow=allow, budget=20)


def test_the_reference_lists_every_pattern() -> None:
    page = (DOCS / "reference" / "exploration.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z A-Z-]+)` \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE)
    assert rows == [(name, pattern.harmless_if) for name, pattern in PATTERNS.items()]


SERVICES: dict[str, tuple[Make, ...]] = {
    "not serializable": (
        ten.stale_cache,
        reads.cached_vector,
        *DELETED,
        work.retagged,
        work.announced_twice,
        events.trimmed_log,
        events.moved_shard,
        events.revived_document,
    ),
    "early commit": (*EFFECTS["early commit"], *work.EARLY),
    "early acknowledgement": EFFECTS["early acknowledgement"],
    "repeated effect": work.REPEATED,
}


def explored(cloud: Cloud, of: Scenario, **options: Any) -> Exploration:
    options = {**of.options, "trust": False, **options}
    return cloud.explore(of.run, workers=of.workers, setup=of.setup, **options)


def test_a_lost_job_is_that_of_the_attempt_that_crashed(cloud: Cloud, kv: KVServer) -> None:
    kv.execute("RPUSH", "jobs", "ann", "bob")
    redis = kv.client()

    def worker() -> None:
        while (job := redis.lpop("jobs")) is not None:
            redis.sadd("done", job)

    with pytest.raises(BrokenPromiseError) as caught:
        cloud.explore(lambda: None, workers={"worker": worker}, schedule="worker.2 crash")
    text = "early commit (jobs): worker: LPOP jobs, and nobody ran SADD done ann"
    assert text in str(caught.value)


def _transfer(cloud: Cloud, source: str, effect: str) -> tuple[Callable[[], None], ...]:
    """Return a producer that ignores its failures, and a consumer with an effect for each record,
    element or entry.
    """
    kv, broker = cloud.kv_server(), cloud.broker(topics={"jobs": 1, "done": 1})
    index = cloud.vector_index(dimension=2).client()
    redis, http = Redis(kv.url, kv.token, rest_retries=0), broker.client()
    is_automatic = source == "topic with automatic commits"
    http.headers["Kafka-Enable-Auto-Commit"] = str(is_automatic).lower()
    http.headers["Kafka-Auto-Offset-Reset"] = "earliest"
    kv.execute("XGROUP", "CREATE", "entries", "group", "0", "MKSTREAM")
    kv.set_baseline()

    def produce() -> None:
        with suppress(UpstashError, httpx.HTTPError):
            if source == "list":
                redis.rpush("jobs", "job")
            elif source == "stream":
                redis.xadd("entries", "*", {"name": "job"})
            else:
                http.post("/produce/jobs", json={"value": "job"}).raise_for_status()

    def act() -> None:
        if effect == "field":
            redis.hset("done", "job", "yes")
        elif effect == "vector":
            index.upsert([("job", [1, 2])])
        else:
            http.post("/produce/done", json={"value": "job"}).raise_for_status()

    def consume() -> None:
        if source == "list":
            if redis.lpop("jobs"):
                act()
        elif source == "stream":
            for _, entries in redis.xreadgroup("group", "one", {"entries": ">"}):
                act()
                redis.xack("entries", "group", entries[0][0])
        else:
            poll = {"topic": "jobs", "timeout": 0}
            for record in http.post("/consume/group/one", json=poll).raise_for_status().json():
                act()
                place = {"topic": "jobs", "partition": 0, "offset": record["offset"] + 1}
                if not is_automatic:
                    http.post("/commit/group/one", json=place).raise_for_status()

    return produce, consume


@pytest.mark.parametrize("effect", ["field", "vector", "record"])
@pytest.mark.parametrize("source", ["topic", "topic with automatic commits", "list", "stream"])
@pytest.mark.parametrize("are_workers", [True, False], ids=["workers", "clients"])
def test_work_that_a_producer_could_not_send_is_not_lost(
    cloud: Cloud, source: str, effect: str, are_workers: bool
) -> None:
    produce, consume = _transfer(cloud, source, effect)

    def consume_twice() -> None:
        consume()
        time.sleep(20)
        consume()

    programs = {"consumer": consume if are_workers else consume_twice, "producer": produce}
    options: dict[str, Any] = {"schedule": "consumer.1 rotate_token"}
    if are_workers:
        result = cloud.explore(lambda: None, workers=programs, **options)
    else:
        result = cloud.explore(programs, **options)
    assert result.kinds == {"rotate_token": 1}
    assert not result.anomalies


@pytest.mark.parametrize("source", ["topic", "topic with automatic commits"])
@pytest.mark.parametrize("kind", ["respond", "drop"])
def test_a_consumer_loses_no_record_that_it_could_not_send_itself(
    cloud: Cloud, source: str, kind: str
) -> None:
    produce, consume = _transfer(cloud, source, "field")

    def run() -> None:
        produce()
        consume()

    assert not cloud.explore(run, schedule=f"run.1 {kind}").anomalies


@pytest.mark.parametrize("source", ["topic", "topic with automatic commits"])
def test_only_records_that_are_committed_can_be_committed_early(cloud: Cloud, source: str) -> None:
    produce, consume = _transfer(cloud, source, "field")
    clients = {"producer": produce, "consumer": consume}
    if source == "topic":
        assert not cloud.explore(clients, schedule="consumer.2 drop").anomalies
    else:
        with pytest.raises(BrokenPromiseError, match="early commit"):
            cloud.explore(clients, schedule="consumer.2 drop")


def test_a_field_or_member_that_only_a_second_attempt_adds_is_no_repeated_effect(
    cloud: Cloud, kv: KVServer
) -> None:
    redis = kv.client()

    def worker() -> None:
        if redis.hget("job", "state") is None:
            redis.hset("job", "state", "begun")
            redis.sadd("events", "begun")
        else:
            redis.hset("job", "resumed", "yes")
            redis.sadd("events", "resumed")
        redis.hset("job", "ended", "yes")

    found = cloud.explore(lambda: None, workers={"worker": worker}, schedule="worker.4 crash")
    assert not found.anomalies


@pytest.mark.parametrize(
    ("name", "make"),
    [(name, make) for name, makes in SERVICES.items() for make in makes],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_anomaly_of_several_services_is_named(name: str, make: Make, cloud: Cloud) -> None:
    others = [pattern for pattern in PATTERNS if pattern != name]
    with pytest.raises(BrokenPromiseError) as caught:
        explored(
            cloud,
            make(cloud, False),
            allow=others,
            budget=60 if PATTERNS[name].is_doubtful else TRIALS,
        )
    assert str(caught.value.__cause__).startswith(f"{name} (")


@pytest.mark.parametrize(
    "make",
    # `test_bugs` explores those of the TEN.
    [make for makes in SERVICES.values() for make in makes if make not in ten.TEN],
    ids=lambda make: make.__name__,
)
def test_a_correction_with_several_services_is_not_accused(make: Make, cloud: Cloud) -> None:
    assert not explored(cloud, make(cloud, True), budget=30).anomalies


@pytest.mark.parametrize("make", HARMLESS, ids=lambda make: make.__name__)
def test_a_harmless_half_or_repetition_is_not_accused(
    make: Callable[[Cloud], Scenario], cloud: Cloud
) -> None:
    assert not explored(cloud, make(cloud), budget=30).anomalies


@pytest.mark.parametrize("same", [True, False], ids=["one record", "two records"])
def test_updates_of_other_parts_of_records_are_no_anomaly(cloud: Cloud, same: bool) -> None:
    """Also if a promise holds: the vector of a record is updated beside metadata that others set."""
    index = cloud.vector_index(dimension=2)
    index.load([(id, [1.0, 2.0], {"hidden": False}) for id in ("a", "b")])
    vectors, other = index.client(), "a" if same else "b"

    def embed() -> None:
        if vectors.fetch("a", include_metadata=True):
            vectors.update("a", vector=[2.0, 1.0])

    def hide() -> None:
        if vectors.fetch(other, include_metadata=True):
            vectors.update(other, metadata={"hidden": True})

    clients = {"embedder": embed, "owner": hide}
    assert not cloud.explore(clients, holds, kinds="switch").anomalies


def test_pending_entries_that_the_check_finishes_are_no_anomaly(cloud: Cloud, kv: KVServer) -> None:
    kv.execute("XGROUP", "CREATE", "work", "g", "0", "MKSTREAM")
    kv.execute("XADD", "work", "1-0", "amount", "3")
    kv.set_baseline()
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def worker() -> None:
        _, entries, _ = redis.xautoclaim("work", "g", "c", 60_000, "0")
        if not entries:
            entries = (redis.xreadgroup("g", "c", {"work": ">"}, count=1) or [["", []]])[0][1]
        for number, (_, amount) in entries:
            redis.hset("billed", number, amount)
            redis.xack("work", "g", number)

    def check() -> None:
        cloud.clock.advance("2m")
        worker()
        assert kv.value("billed") == {"1-0": "3"}

    result = cloud.explore(lambda: None, check, workers=[worker], kinds="drop", budget=40)
    assert not result.anomalies


def test_a_window_that_ends_before_the_second_request_allows_it(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)
    clients = both(lambda _: redis.eval(WINDOW, keys=["window", "allowed"]))
    exploration = cloud.explore(clients, schedule="bob.1 switch @clock")
    assert "repeated effect" not in str(exploration)
