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
LIBRARIES = {
    "confluent_kafka", "cronsim", "httpx", "jsonpath", "jwt", "lupa", "numpy", "qstash", "redis",
    "requests", "responses", "Stemmer", "trustme", "urllib3", "werkzeug", "xxhash",
}  # fmt: skip
"""Libraries that only some answers need."""
NEEDED = {"vector": {"numpy"}}


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
def test_a_first_answer_imports_no_other_service_and_no_library_of_others(service: str) -> None:
    loaded = loaded_by(service)
    assert loaded & LIBRARIES == NEEDED.get(service, set())
    rooms = {name.split(".")[1] for name in loaded if name.startswith("pytest_fakecloud.")}
    assert rooms & FIRSTS.keys() == {service}
