"""The imports of a run's first fake: what its service needs, and nothing that only others need."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from .harness import UNMEASURED

ASK = """
import sys
from pytest_fakecloud import Cloud

cloud = Cloud(1, delivery="driven")
"""
CLIENT = """
import json, socket

def ask(fake, path, body):
    host, port = fake.url.split("//")[1].split("/")[0].split(":")
    data = json.dumps(body).encode()
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            f"POST {path} HTTP/1.1\\r\\nHost: x\\r\\n"
            f"Authorization: {fake.headers['Authorization']}\\r\\n"
            f"Content-Length: {len(data)}\\r\\n\\r\\n".encode() + data)
        assert sock.recv(65536).startswith(b"HTTP/1.1 20")
"""
FIRSTS = {
    "kv": "ask(cloud.kv_server(), '/', ['SET', 'key', 'value'])",
    "queue": "ask(cloud.queue(), '/v2/publish/https://app.test/hook', {'n': 1})",
    "vector": "ask(cloud.vector_index(dimension=2), '/upsert', {'id': 'a', 'vector': [1, 2]})",
    "broker": "b = cloud.broker(); b.create_topic('t'); b.produce('t', 'value')",
}
NOBODYS = {
    "asyncio", "calendar", "concurrent", "confluent_kafka", "cronsim", "cryptography",
    "decimal", "difflib", "email", "fractions", "http.client", "http.server", "httpx",
    "jsonpath", "jwt", "locale", "logging", "lupa", "multiprocessing", "numbers", "pathlib", "pydantic",
    "pytest", "pytest_httpserver", "qstash", "queue", "redis", "requests", "responses", "secrets",
    "Stemmer", "ssl", "string", "subprocess", "sysconfig", "tempfile", "textwrap", "traceback",
    "trustme", "unittest", "urllib.request", "urllib3", "werkzeug", "xml", "zipfile", "zoneinfo",
}  # fmt: skip
"""Modules that no first answer needs, except those that pytest imports in every run."""
MOST = {"kv": 62, "queue": 63, "vector": 41, "broker": 40}
"""Most modules of the package that a first answer may import; each takes at least 0.1 ms."""


def told(code: str) -> str:
    """Return the output of a program in its own process."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=UNMEASURED
    )
    return done.stdout


@cache
def loaded_by(service: str) -> frozenset[str]:
    """Return the modules that a process has imported after the first answer of a service's fake."""
    return frozenset(told(f"{ASK}{CLIENT}{FIRSTS[service]}\nprint(*sys.modules)").split())


@pytest.mark.parametrize("service", FIRSTS)
def test_the_first_answer_imports_what_it_needs(service: str) -> None:
    loaded = loaded_by(service)
    # The vector index needs numpy, which imports some of these.
    assert ("numpy" in loaded) == (service == "vector")
    base = "import sys, numpy\nprint(*sys.modules)"
    allowed = set(told(base).split()) if service == "vector" else set()
    assert loaded & NOBODYS - allowed == set()
    assert "pytest_fakecloud.vector.filter" not in loaded
    assert len([name for name in loaded if name.startswith("pytest_fakecloud.")]) <= MOST[service]
    others = {name for name in FIRSTS if name != service}
    assert not {name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in others
                and name.startswith("pytest_fakecloud.")}  # fmt: skip


@pytest.mark.parametrize("service", FIRSTS)
def test_the_first_answer_generates_no_dataclasses(service: str) -> None:
    # These libraries import dataclasses themselves. After them, an import of dataclasses raises.
    forbid = "import sys, numpy, orjson\nsys.modules['dataclasses'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{forbid}{ASK}{CLIENT}{FIRSTS[service]}"],
        capture_output=True, text=True, check=False, env=UNMEASURED,
    )  # fmt: skip
    assert done.returncode == 0, (
        f"{done.stderr}\nThe first fake of {service} imports this module, so write its dataclasses "
        "out as classes with __init__, or as named tuples: each start generates them again"
    )


@pytest.mark.slow
def test_the_first_fake_of_a_run_imports_what_it_needs(pytester: pytest.Pytester) -> None:
    line = FIRSTS["kv"].replace("cloud.kv_server()", "request.getfixturevalue('kv_server')")
    pytester.makepyfile(
        f"{CLIENT}\nimport sys\n\ndef test_first(request):\n"
        "    before = set(sys.modules)\n"
        f"    {line}\n"
        "    print('came', *(set(sys.modules) - before))\n"
    )
    result = pytester.run(sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    (told,) = [line for line in result.outlines if " came " in f" {line}"]
    came = set(told.split("came ")[1].split())
    assert "pytest_fakecloud.kv.commands.string" in came
    assert came & NOBODYS == set()
    ours = [name for name in came if name.startswith("pytest_fakecloud.")]
    assert len([name for name in ours if ".session" not in name]) <= MOST["kv"]


def test_a_command_imports_its_own_group() -> None:
    start = "pytest_fakecloud.kv.commands."
    groups = {name.removeprefix(start).split(".")[0] for name in loaded_by("kv") if start in name}
    assert groups == {"arguments", "string"}, "several groups share the first"


def test_every_command_finds_its_function_whichever_is_asked_first() -> None:
    code = (
        "import subprocess, sys, pytest_fakecloud.kv\n"
        "from pytest_fakecloud.kv.table.registry import COMMANDS, function_of\n"
        "specs = reversed([*COMMANDS.values()])\n"
        "print(*(one.name for one in specs if not (function_of(one) or one.subcommands)))\n"
        "print(function_of(COMMANDS['COMMAND']) is not None, function_of(COMMANDS['XGROUP']))"
    )
    assert told(code) == "\nTrue None\n"
