"""Processes that fork, are killed, run out of descriptors or exit at a bad moment must not hang."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest

pytestmark = pytest.mark.slow
SECONDS = 30
POSIX = pytest.mark.skipif(os.name == "nt", reason="signals and limits of POSIX")

HEAD = """
import os, sys, threading, requests
from pytest_fakecloud import Cloud
def ask(fake, path="/ping"):
    return requests.get(fake.url + path, headers=fake.headers, timeout=10)
def ask_on(fake):
    try:
        while True: ask(fake)
    except requests.RequestException:
        pass  # the fakes went with the interpreter
"""


def run(code: str, *options: str, code_of_exit: int = 0, **more: Any) -> str:
    """Run a script in an interpreter that shows every warning; return its output."""
    script = HEAD + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, *options, "-c", script],
        capture_output=True, text=True, timeout=SECONDS, check=False, **more,
    )  # fmt: skip
    assert done.returncode == code_of_exit, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_no_warning_in_development_mode() -> None:
    """In development mode, unclosed sockets, threads and files are errors."""
    out = run(
        """
        import gc
        with Cloud(seed=1) as cloud:
            for fake in (cloud.kv_server(), cloud.vector_index(dimension=2), cloud.broker(),
                           cloud.queue(), cloud.callback_capture(), cloud.destination()):
                ask(fake)
            cloud.queue(name="more").publish("https://x.test", body="x", delay="1h")
        gc.collect()
        print("ended")
        """,
        "-X", "dev", "-W", "error",
    )  # fmt: skip
    assert out.strip().endswith("ended")
    assert "Warning" not in out


@pytest.mark.parametrize("way", ["plain", "sys.exit", "exception", "daemon thread", "open stream"])
def test_an_exit_with_everything_open(way: str) -> None:
    """An interpreter that exits while fakes are open ends immediately."""
    ends = {
        "plain": "",
        "sys.exit": "sys.exit(0)",
        "exception": "raise SystemExit(0)",
        "daemon thread": "threading.Thread(target=ask_on, args=(kv,), daemon=True).start()",
        "open stream": "s = requests.get(kv.url + '/subscribe/c', headers=kv.headers, stream=True)",
    }
    out = run(
        f"""
        cloud = Cloud(delivery="background")
        kv, queue, broker = cloud.kv_server(), cloud.queue(), cloud.broker(topics={{"t": 1}})
        queue.publish("http://127.0.0.1:9/x", body="x")
        ask(kv)
        print("open", flush=True)
        {ends[way]}
        """
    )
    assert out.startswith("open")


def serve_and_ask(number: int) -> str:
    """Use a cloud in a worker process of a pool."""
    import requests

    from pytest_fakecloud import Cloud

    with Cloud() as cloud:
        kv = cloud.kv_server()
        kv.execute("SET", "n", str(number))
        answer = requests.get(f"{kv.url}/get/n", headers=kv.headers, timeout=10)
        result: str = answer.json()["result"]
        return result


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_of_every_kind(method: str) -> None:
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.map_async(serve_and_ask, range(4)).get(SECONDS) == ["0", "1", "2", "3"]
        pool.close()
        pool.join()


@POSIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_server_under_load(number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_fakecloud", "serve", "kv", "--random", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        process.send_signal(number)
        process.wait(SECONDS)
    finally:
        process.kill()
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_cloud_closed_by_another_thread_while_it_serves() -> None:
    out = run(
        """
        cloud = Cloud()
        kv = cloud.kv_server()
        stop, errors, served = threading.Event(), [], []
        def client():
            while not stop.is_set():
                try:
                    answer = ask(kv)
                    (served if answer.status_code == 200 else errors).append(answer.status_code)
                except requests.RequestException:
                    return
        threads = [threading.Thread(target=client) for _ in range(4)]
        for one in threads: one.start()
        while len(served) < 50: pass
        cloud.close()
        for one in threads: one.join(10)
        assert not any(one.is_alive() for one in threads)
        print("served", len(served) >= 50, errors)
        """
    )
    assert out.strip() == "served True []"
