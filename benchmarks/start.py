"""The processor time that the plugin adds to a run without a fake, and for its first fake.

Run ``python -m benchmarks.start``; ``--python`` selects another environment, for example one with
fakeredis and moto. Every figure comes from separate processes in interleaved rounds. ``bytecode``
uses bytecode that an earlier round wrote; ``no bytecode`` sets ``PYTHONDONTWRITEBYTECODE`` and uses
what the installer and one run of pytest, which rewrites plugins, have compiled. Exits with 1 if a
limit is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from .timing import limit, line

QUIET = ["-q", "-p", "no:cacheprovider", "--no-header"]

# -- without a fake --------------------------------------------------------------------------------

PARTS = '''
"""Collect with pytest, and print the milliseconds that two plugins took of the process."""
import functools, importlib.metadata, sys, time
import pluggy

taken = {"fakecloud": 0, "pytest_httpserver": 0}


def timed(name, function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        started = time.process_time_ns()
        try:
            return function(*args, **kwargs)
        finally:
            taken[name] += time.process_time_ns() - started

    return run


def name_of(module):
    return {"pytest_fakecloud": "fakecloud"}.get(module.partition(".")[0], module.partition(".")[0])


load = importlib.metadata.EntryPoint.load


def loading(self):
    name = name_of(self.module)
    return timed(name, load)(self) if name in taken else load(self)


importlib.metadata.EntryPoint.load = loading
import _pytest.config

manager = _pytest.config.PytestPluginManager
register = manager.register


def registering(self, plugin, name=None):
    return timed(name, register)(self, plugin, name) if name in taken else register(self, plugin, name)


manager.register = registering
add = pluggy._hooks.HookCaller._add_hookimpl


def adding(self, hook):
    name = name_of(getattr(hook.plugin, "__name__", ""))
    if name in taken and not hook.wrapper and hook.function.__name__ != "pytest_addoption":
        hook.function = timed(name, hook.function)
    return add(self, hook)


pluggy._hooks.HookCaller._add_hookimpl = adding
import pytest

pytest.main(sys.argv[1:])
print("taken", *(f"{name}={ns / 1e6}" for name, ns in taken.items()))
'''
"""Time parts inside a run, because the time of a whole process varies more between runs."""


def cpu_ms(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> tuple[float, str]:
    """Return the processor time of a process and its children in milliseconds, and its output."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command} failed: {done.stdout}{done.stderr}")
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds * 1e3, done.stdout


def plain() -> dict[str, str]:
    """Return the environment of a run that writes bytecode where Python looks for it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def environments(folder: Path) -> dict[str, dict[str, str]]:
    """Return the two kinds of run, by whether bytecode may be written."""
    return {
        "bytecode": {**plain(), "PYTHONPYCACHEPREFIX": str(folder / "compiled")},
        "no bytecode": {**plain(), "PYTHONDONTWRITEBYTECODE": "1"},
    }


def collecting(python: str, rounds: int, folder: Path) -> list[bool]:
    """Measure ``pytest --collect-only`` of one test with none, one or both of the plugins."""
    (folder / "test_nothing.py").write_text("def test_nothing(): pass\n")
    parts = folder / "parts.py"
    parts.write_text(PARTS)
    choices = {
        "neither": ["-p", "no:fakecloud", "-p", "no:pytest_httpserver"],
        "ours": ["-p", "no:pytest_httpserver"],
        "pytest-httpserver": ["-p", "no:fakecloud"],
        "both": [],
    }
    holds = []
    cpu_ms([python, "-m", "pytest", "--collect-only", *QUIET], folder, plain())
    for kind, environment in environments(folder).items():
        whole: dict[str, list[float]] = {name: [] for name in choices}
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(rounds + 1):
            for name in sorted(choices, reverse=bool(turn % 2)):
                command = [python, "-m", "pytest", "--collect-only", *QUIET, *choices[name]]
                taken, _ = cpu_ms(command, folder, environment)
                if turn:
                    whole[name].append(taken)
            _, output = cpu_ms([python, str(parts), "--collect-only", *QUIET], folder, environment)
            figures = dict(word.split("=") for word in output.split("taken ")[1].split())
            if turn:
                ours.append(float(figures["fakecloud"]))
                theirs.append(float(figures["pytest_httpserver"]))
        print(f"\npytest --collect-only, {kind}, {rounds} interleaved rounds, processor time in ms")
        for name, times in whole.items():
            more = median(a - b for a, b in zip(times, whole["neither"], strict=True))
            print(f"  {name:18} median {median(times):7.1f}   over neither {more:6.1f}")
        limit(f"our plugin's part of such a run, {kind}, ms", median(ours))
        limit(f"pytest-httpserver's part, {kind}, ms", median(theirs))
        part = median(ours) / median(theirs)
        holds.append(line(f"our plugin's part / pytest-httpserver's, {kind}", part, 2 / 18))
    return holds


# -- the first fake --------------------------------------------------------------------------------

ASK = """
import json, socket

def ask(fake, path, body):
    host, port = fake.url.split("//")[1].split("/")[0].split(":")
    data = json.dumps(body).encode()
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            (f"POST {path} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n"
             f"Authorization: {fake.headers['Authorization']}\\r\\n"
             f"Content-Length: {len(data)}\\r\\n\\r\\n").encode() + data)
        answer = sock.recv(65536)
    assert answer.startswith(b"HTTP/1.1 20"), answer

from pytest_fakecloud import Cloud

cloud = Cloud(1, delivery="driven")
"""
FIRSTS = {
    "kv_server, SET": ASK + "ask(cloud.kv_server(), '/', ['SET', 'key', 'value'])",
    "queue, publish": ASK + "ask(cloud.queue(), '/v2/publish/https://app.test/hook', {'n': 1})",
    "broker, produce": ASK
    + "broker = cloud.broker()\nbroker.create_topic('t')\nbroker.produce('t', 'value')",
    "vector_index, upsert": ASK
    + "ask(cloud.vector_index(dimension=2), '/upsert', {'id': 'a', 'vector': [1, 2]})",
    "numpy, import": "import numpy",
    "pytest-httpserver, import": "import pytest_httpserver",
    "fakeredis, SET": "import fakeredis\nassert fakeredis.FakeRedis().set('key', 'value')",
    "moto, SQS send_message": """
import os
os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
import boto3, moto
with moto.mock_aws():
    sqs = boto3.client("sqs")
    sqs.send_message(QueueUrl=sqs.create_queue(QueueName="q")["QueueUrl"], MessageBody="1")
""",
}
CLOCKED = """
import os, time
{before}
started = time.process_time()
{source}
print("taken", (time.process_time() - started) * 1e3, flush=True)
os._exit(0)
"""
BEFORE = {"vector_index, upsert": "import numpy"}
"""Imports before the measurement: numpy takes 40 ms or more, and this time varies."""
MOST = {
    "kv_server, SET": 35 / 45,
    "queue, publish": 40 / 45,
    "broker, produce": 30 / 45,
    "vector_index, upsert": 30 / 45,
}
"""The most time of a first answer, relative to the import of pytest-httpserver in a fresh
interpreter. The numbers are milliseconds on one machine.
"""
NEEDS = {"fakeredis, SET": "fakeredis", "moto, SQS send_message": "moto, boto3"}


def firsts(python: str, rounds: int, folder: Path) -> list[bool]:
    """Measure the time from the import to the first answer, in a new interpreter and in one that
    runs pytest.
    """
    # Threads that numpy's library starts at its import spin for tens of milliseconds afterwards.
    environment = {**environments(folder)["bytecode"], "OPENBLAS_NUM_THREADS": "1"}
    there = dict(FIRSTS)
    for name, modules in NEEDS.items():
        if subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode:
            print(f"{name}: not installed")
            del there[name]
    holds, peer = [], 0.0
    for kind, before in {"a fresh interpreter": "", "a run of pytest": "import pytest"}.items():
        taken: dict[str, list[float]] = {name: [] for name in there}
        for turn in range(rounds + 1):
            for name in sorted(there, reverse=bool(turn % 2)):
                first = f"{before}\n{BEFORE.get(name, '')}"
                code = CLOCKED.format(before=first, source=there[name])
                _, output = cpu_ms([python, "-c", code], folder, environment)
                if turn:
                    taken[name].append(float(output.split()[1]))
        typical = {name: median(times) for name, times in taken.items()}
        print(
            f"\nimport to first answer in {kind}, {rounds} interleaved rounds, processor time in ms"
        )
        for name, times in taken.items():
            print(f"  {name:24} median {typical[name]:7.1f}   least {min(times):7.1f}")
        peer = peer or typical["pytest-httpserver, import"]  # in a fresh interpreter
        for name, most in MOST.items():
            limit(f"{name}, in {kind}, ms", typical[name])
            ratio = typical[name] / peer
            holds.append(line(f"{name}, in {kind} / import of pytest-httpserver", ratio, most))
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", choices=("collect", "first"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        holds = []
        if options.only != "first":
            holds += collecting(options.python, options.rounds, Path(name))
        if options.only != "collect":
            holds += firsts(options.python, options.rounds, Path(name))
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
