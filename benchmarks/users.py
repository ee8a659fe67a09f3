"""What a user feels: the processor time of whole pytest runs, and the memory of a long run.

Run ``python -m benchmarks.users``. An optimisation stays in the package only if one of these runs
shows at least 5 % (``python -m benchmarks compare OLD NEW users --rounds 7``). Every run is a process
of its own, and the runs take turns. Beside each suite runs the same suite without a fake, so the
difference is what the plugin costs a user.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from .timing import Row, Table, limit, results

ROUNDS = 3
TESTS = 300
PUBLISHING_TESTS = 100
REST_CALLS = 20_000

SUITES = {
    "U1: upstash_redis, set, get, incr": """
        from upstash_redis import Redis

        @pytest.mark.parametrize("number", range(TESTS))
        def test_counter(kv_server, number):
            redis = Redis(kv_server.url, kv_server.token)
            redis.set("key", number)
            assert redis.get("key") == str(number)
            assert redis.incr("key") == number + 1
    """,
    "U2: redis-py, 30 commands": """
        import redis

        @pytest.mark.parametrize("number", range(TESTS))
        def test_commands(kv_server, number):
            with redis.Redis.from_url(kv_server.database_url) as client:
                for field in range(10):
                    client.set(f"key:{field}", field)
                    client.hset("hash", str(field), field)
                    assert client.incr(f"key:{field}") == field + 1
    """,
    "U3: qstash, deliver, callback_capture": """
        from qstash import QStash

        @pytest.mark.parametrize("number", range(PUBLISHING_TESTS))
        def test_publish(queue, callback_capture, number):
            url = "https://app.example.com/hook"
            queue.destinations.respond(url, 200)
            client = QStash(queue.token, base_url=queue.url)
            client.message.publish_json(url=url, body={}, callback=callback_capture.callback_url)
            queue.run_until_idle()
            assert callback_capture.callbacks().only().status == 200
    """,
    "300 tests without a fake": """
        @pytest.mark.parametrize("number", range(TESTS))
        def test_nothing(number):
            assert number < TESTS
    """,
}
MEMORY = """
import os
from pathlib import Path
import requests
from pytest_fakecloud import Cloud

with Cloud(1) as cloud, requests.Session() as session:
    kv = cloud.kv_server()
    session.headers.update(kv.headers)
    for number in range(REST_CALLS):
        session.post(kv.url, json=["SET", f"key:{number % 100}", str(number)]).raise_for_status()
    resident = next(line for line in Path("/proc/self/status").read_text().splitlines()
                    if line.startswith("VmRSS:"))
    print("resident", int(resident.split()[1]) * 1024)
"""
"""Prints the resident bytes after REST calls in one cloud. Linux only."""


def processor_seconds(path: Path) -> float:
    """Run pytest on a file in a process of its own; return the processor time that it took."""
    import resource

    command = [
        sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-p",
        "pytest_fakecloud.plugin", "--rootdir", str(path.parent), str(path),
    ]  # fmt: skip
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        raise RuntimeError(f"{path.name} failed:\n{(run.stdout + run.stderr)[-4000:]}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def suites(folder: Path) -> list[bool]:
    """Measure every suite, and print what a test with a fake adds to a test without."""
    paths = {}
    for number, (name, source) in enumerate(SUITES.items()):
        paths[name] = folder / f"test_suite_{number}.py"
        constants = f"TESTS, PUBLISHING_TESTS = {TESTS}, {PUBLISHING_TESTS}"
        paths[name].write_text(f"import pytest\n\n{constants}\n{textwrap.dedent(source)}")
    microseconds: dict[str, list[float]] = {name: [] for name in paths}
    for number in range(ROUNDS + 1):
        for name in sorted(paths, reverse=bool(number % 2)):
            seconds = processor_seconds(paths[name])
            if number:  # the first round compiles what has no bytecode yet
                microseconds[name].append(seconds * 1e6)
    rows = [Row(name, tuple(rounds), 1) for name, rounds in microseconds.items()]
    table = Table(rows, "whole runs of pytest, processor time")
    results.tables.append(table)
    print(f"\n{table.title}\n{table}")
    base = table["300 tests without a fake"].best
    holds = []
    for name, row in zip(paths, rows, strict=True):
        if row.best != base:
            tests = PUBLISHING_TESTS if "qstash" in name else TESTS
            holds.append(limit(f"{name}: processor ms of a test", (row.best - base) / tests / 1e3))
    return holds


def memory() -> bool:
    """Measure the resident memory of a process after REST calls that its journal keeps."""
    if sys.platform != "linux":
        return True
    code = MEMORY.replace("REST_CALLS", str(REST_CALLS))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    megabytes = int(run.stdout.split()[1]) / 1e6
    return limit(f"resident MB after {REST_CALLS:,} REST calls", megabytes, 60)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        holds = [*suites(Path(name)), memory()]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
