"""What the first fake of a run imports: what its service needs, and nothing that only others need."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    "asyncio", "confluent_kafka", "cryptography", "http.server", "httpx", "jsonpath", "jwt", "lupa",
    "pydantic", "pytest", "redis", "requests", "responses", "snowballstemmer", "subprocess",
    "trustme", "unittest", "urllib.request", "urllib3", "werkzeug", "zoneinfo",
}  # fmt: skip
"""What no first answer needs: libraries for what came later, and costly parts of the standard one."""


@pytest.mark.parametrize("service", FIRSTS)
def test_the_first_answer_imports_what_it_needs(service: str) -> None:
    code = f"{ASK}{CLIENT}{FIRSTS[service]}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    # numpy is the vector index's own, and imports some of these.
    assert ("numpy" in loaded) == (service == "vector")
    base = subprocess.run(
        [sys.executable, "-c", "import sys, numpy\nprint(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    allowed = set(base.stdout.split()) if service == "vector" else set()
    assert loaded & NOBODYS - allowed == set()
    assert "pytest_fakecloud.vector.filter" not in loaded
    others = {name for name in FIRSTS if name != service}
    assert not {name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in others
                and name.startswith("pytest_fakecloud.")}  # fmt: skip


def test_a_command_imports_its_own_group() -> None:
    code = f"{ASK}{CLIENT}{FIRSTS['kv']}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    start = "pytest_fakecloud.kv.commands."
    groups = {
        name.removeprefix(start).split(".")[0] for name in done.stdout.split() if start in name
    }
    assert groups == {"string"}


def test_every_command_finds_its_function_whichever_is_asked_first() -> None:
    code = (
        "import subprocess, sys, pytest_fakecloud.kv\n"
        "from pytest_fakecloud.kv.table.registry import COMMANDS\n"
        "print(*(n for n, s in reversed(COMMANDS.items()) if not (s.function or s.subcommands)))\n"
        "print(COMMANDS['COMMAND'].function is not None, COMMANDS['XGROUP'].function)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\nTrue None\n"
