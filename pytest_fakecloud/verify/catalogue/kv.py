"""Scenarios of the key-value service: the commands in ``kv.txt``, then scenarios that need HTTP.

In a line of ``kv.txt``, ``@name`` is a key that belongs to the run. If two correct replies can
differ, a word after ``~`` names the way to compare them (see ``COMPARISONS``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pkgutil import get_data

from . import Scenario, Step, read_lines, scenario


def _command_scenarios() -> Iterator[Scenario]:
    # Read the file through the import system, which also finds it in a zip file.
    text = get_data(__package__, "kv.txt")
    assert text is not None
    return read_lines(text.decode())


_scenario = partial(scenario, "kv")
_NO_SCRIPT = "0" * 40
_JSON = {"Content-Type": "application/json"}

SCENARIOS = (
    *_command_scenarios(),
    _scenario(
        "scripting: by hash",
        # The server keeps a script, and a flush would also remove other scripts. So load a
        # different script in each run.
        Step("POST", "/", json=["SCRIPT", "LOAD", "return '{p}'"], keep={"sha": "result"}),
        Step("POST", "/", json=["EVALSHA", "{sha}", "0"]),
        Step("POST", "/", json=["EVALSHA_RO", "{sha}", "0"]),
        Step("POST", "/", json=["SCRIPT", "EXISTS", "{sha}", _NO_SCRIPT]),
    ),
    _scenario(
        "REST: commands in paths",
        Step("GET", "/set/{p}a/value%20one"),
        Step("GET", "/get/{p}a"),
        Step("POST", "/set/{p}b", body="from the body"),
        Step("GET", "/get/{p}b"),
        Step("POST", "/set/{p}b?EX=100", body="with a query"),
        Step("GET", "/mget/{p}a/{p}b/{p}missing"),
        Step("GET", "/nosuchcommand/{p}a"),
        Step("GET", "/set/{p}a"),
        Step("GET", "/"),
        keys=("a", "b"),
    ),
    _scenario(
        "REST: bodies",
        Step("POST", "/", json=["SET", "{p}a", "ü"]),
        Step("POST", "/", json=["GET", "{p}a"]),
        Step("POST", "/", json=["SET", "{p}n", 1.5]),
        Step("POST", "/", json=["GET", "{p}n"]),
        Step("POST", "/", json=[]),
        Step("POST", "/", json={"a": 1}),
        Step("POST", "/", body="not json", headers=_JSON),
        Step("POST", "/", json=["GET", "{p}a"], headers={"Upstash-Encoding": "base64"}),
        Step("POST", "/", json=["GET", "{p}missing"], headers={"Upstash-Encoding": "base64"}),
        keys=("a", "n"),
    ),
    _scenario(
        "REST: pipelines and transactions",
        Step("POST", "/pipeline", json=[["SET", "{p}a", "1"], ["INCR", "{p}a"], ["BAD"]]),
        Step("POST", "/pipeline", json=[["LPUSH", "{p}a", "x"], ["GET", "{p}a"]]),
        Step("POST", "/pipeline", json=[]),
        Step("POST", "/pipeline", json=["GET", "{p}a"]),
        Step("POST", "/multi-exec", json=[["SET", "{p}a", "5"], ["INCR", "{p}a"]]),
        Step("POST", "/multi-exec", json=[["LPUSH", "{p}a", "x"], ["GET", "{p}a"]]),
        Step("POST", "/multi-exec", json=[["SET", "{p}a"], ["GET", "{p}a"]]),
        Step("POST", "/", json=["GET", "{p}a"]),
        keys=("a",),
    ),
    _scenario(
        "REST: credentials",
        Step("POST", "/", json=["GET", "{p}a"], token=None),
        Step("POST", "/", json=["GET", "{p}a"], token="wrong"),
    ),
)
