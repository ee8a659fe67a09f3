"""Hints about calls that were never made, and about answers that are bytes."""

from __future__ import annotations

import gc

import pytest

from ..harness import Run

pytestmark = pytest.mark.slow

SHOP = """
import asyncio
import redis, redis.asyncio
from upstash_redis.asyncio import Redis as Upstash

class Shop:
    def __init__(self, kv):
        self.kv = kv
        self.client = redis.Redis.from_url(kv.database_url, decode_responses=True)
        self.pipe = self.client.pipeline()
        self.waiting = []

    async def note(self):
        async with Upstash(self.kv.url, self.kv.token) as client:
            await client.set("a", "ten")

    async def forget(self):
        client = redis.asyncio.Redis.from_url(self.kv.database_url)
        client.set("a", "ten")
        await client.aclose()

{function}

def test_it(kv_server):
    shop = Shop(kv_server)
    {does}
    shop.client.set("b", 1)
    assert kv_server.value("a") == "nine"
"""
FUNCTIONS = {
    "move": """
def move(client):
    pipe = client.pipeline()
    pipe.decr("a")
    pipe.incr("b")
""",
    "passes": """
def passes(client):
    pipe = client.pipeline()
    pipe.decr("a")
    ends(pipe)

def ends(pipe):
    pipe.execute()
""",
    "runs": """
def runs(client):
    pipe = client.pipeline()
    pipe.decr("a").incr("b").execute()
""",
}
NEVER_SENT = {
    "a client's method": ("asyncio.run(shop.forget())", "execute_command() was never awaited"),
    "a method of the application": ("shop.note()", "Shop.note() was never awaited"),
    "a task that was kept": ("shop.waiting.append(shop.note())", "Shop.note() was never awaited"),
    "a pipeline": ("shop.pipe.set('a', 'ten')", "a pipeline has 1 command that was not executed"),
    "a pipeline of a function": (
        "move(shop.client)",
        "move() does not execute the pipeline that it",
    ),
    "a pipeline that is passed on": ("passes(shop.client)", ""),
    "a pipeline that a function executes": ("runs(shop.client)", ""),
    "commands of a pipeline": ("shop.pipe.set('a', 1).incr('b')", "a pipeline has 2 commands"),
    "an awaited method": ("asyncio.run(shop.note())", ""),
    "a pipeline that was executed": ("shop.pipe.set('a', 'ten').execute()", ""),
    "another value": ("shop.client.set('a', 'eleven')", ""),
}


@pytest.mark.parametrize("name", NEVER_SENT)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "default::RuntimeWarning")
def test_a_call_that_was_never_made_is_named(run: Run, name: str) -> None:
    gc.freeze()  # The collection at the end only inspects objects of this test.
    does, hint = NEVER_SENT[name]
    function = FUNCTIONS.get(does.partition("(")[0], "")
    source = SHOP.replace("{does}", does).replace("{function}", function)
    lines = run(source).stdout.str()
    assert hint in lines
    said = ("was never awaited, so", "a pipeline has", "does not execute")
    assert any(line in lines for line in said) is bool(hint)
    # A coroutine that the failed test kept warns here and not in a later test.
    gc.collect()


def test_only_functions_of_the_failed_test_are_named(run: Run) -> None:
    fixture = FUNCTIONS["move"].replace("move(client)", "moved(kv_server)")
    source = f"""
import pytest
@pytest.fixture
{fixture.replace("client.pipe", "kv_server.client().pipe").strip()}
{FUNCTIONS["move"]}
def test_it(kv_server, moved):
    assert kv_server.value("a") == "nine"

@pytest.mark.parametrize("does", [move])
def test_parameter(kv_server, does):
    does(kv_server.client())
    assert kv_server.value("a") == "nine"

def test_other(kv_server):
    assert kv_server.value("a") == "nine"
"""
    lines = run(source).stdout.lines
    ends = "does not execute the pipeline that it creates"
    named = [line.partition(": ")[2] for line in lines if line.endswith(ends)]
    assert named == [f"moved() {ends}", f"move() {ends}"]
