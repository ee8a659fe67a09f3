"""The way of a request through the package: ``python -m benchmarks.walk [--calls]``.

It records four walks: a ``GET`` and a ``ZADD`` over REST, a publish request until its callback is
delivered, and a failing test from its failure until its report is written: the requests that it
made went the way of the first walk. Requests come from ``requests``, outside the package. For each
walk it prints the modules in the order in which they are first reached, the number of calls, how
often the walk goes from one module into another (visits), and how many of these visits return to an
earlier module (steps back). ``--calls`` prints every call. Each walk is made once before it is
recorded, so that one-time initialisation is not counted. The calls of each thread stay together,
because threads run in a different order each time. Python 3.11 also counts the frames of
comprehensions. Constructors do not count: a reader does not follow them, and those of named tuples and
dataclasses have no module.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
import requests

import pytest_fakecloud
from pytest_fakecloud import Cloud
from pytest_fakecloud.http.hub import default_hub

ROOT = str(Path(pytest_fakecloud.__file__).parent) + "/"
URL = "https://app.example/job"
FAILING = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_fails(kv_server, number):
    client = kv_server.client()
    client.set("stock", 3)
    client.decrby("stock", 5)
    assert client.get("stock") == "3"
"""
"""A test module. Its second test is recorded, when everything has been imported."""


class Step(NamedTuple):
    """One call: the module in the package, and the function."""

    module: str
    function: str


class Walk(NamedTuple):
    """All calls of a walk, thread by thread."""

    name: str
    calls: list[Step]

    @property
    def visits(self) -> list[str]:
        """The modules in the order in which the walk enters them."""
        names = [call.module for call in self.calls]
        return [name for at, name in enumerate(names) if not at or names[at - 1] != name]

    @property
    def modules(self) -> list[str]:
        """Each module once, in the order of the first visit."""
        return list(dict.fromkeys(self.visits))

    @property
    def steps_back(self) -> int:
        """The number of visits that return to an earlier module."""
        return len(self.visits) - len(self.modules)

    def __str__(self) -> str:
        told = (
            f"{self.name}: {len(self.modules)} modules, {len(self.calls)} calls, "
            f"{len(self.visits)} visits, {self.steps_back} steps back"
        )
        return f"{told}\n  {' > '.join(self.modules)}"


Calls = dict[int, list[Step]]
"""The calls of each thread."""


def _thread_by_thread(calls: Calls) -> list[Step]:
    return [step for own in calls.values() for step in own]


class Tracer:
    """Records the calls within the package, in every thread that starts during a walk."""

    def __init__(self) -> None:
        self._calls: Calls | None = None
        self._recorded: Calls = {}

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        calls, file = self._calls, frame.f_code.co_filename
        is_constructor = frame.f_code.co_name == "__init__"
        if event == "call" and calls is not None and file.startswith(ROOT) and not is_constructor:
            module = file.removeprefix(ROOT).removesuffix(".py").replace("/", ".")
            own = calls.setdefault(threading.get_ident(), [])
            own.append(Step(module, frame.f_code.co_qualname))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Install the tracer for the duration of a block."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def walk(self, name: str, way: Callable[[], object]) -> Walk:
        """Make a walk once as preparation, and three times to record it, each to the end of its threads.

        Return the shortest. The others include what real time did meanwhile, such as closing an idle
        connection.
        """
        pool = default_hub().workers
        # The client keeps one connection to the fake, which the preparation opens.
        most = len(pool.threads) - len(pool.idle) + 1
        recorded: list[Calls] = [{}, {}, {}]
        for calls in (None, *recorded):
            self._calls = calls
            way()
            give_up = time.monotonic() + 10
            while len(pool.threads) - len(pool.idle) > most:
                assert time.monotonic() < give_up, "a connection of the walk did not end"
                time.sleep(0.001)
            self._calls = None
        return min(
            (Walk(name, _thread_by_thread(one)) for one in recorded), key=lambda one: one.steps_back
        )

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """Begin to record when the function of the last test of a session has failed."""
        try:
            return (yield)
        finally:
            if pyfuncitem is pyfuncitem.session.items[-1]:
                self._calls = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Stop recording, because the report of the test has been written."""
        self._recorded, self._calls = self._calls or {}, None

    def walk_of_a_failing_test(self) -> Walk:
        """Run ``FAILING`` in this process, and return the walk of its second test."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_it.py").write_text(FAILING, encoding="utf-8")
            options = ["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", folder]
            with contextlib.redirect_stdout(io.StringIO()) as out:
                pytest.main(options, plugins=[self])
        assert "2 failed" in out.getvalue(), out.getvalue()
        assert "kv_server http://" in out.getvalue(), "the failing test has no report"
        assert self._recorded
        return Walk("A failing test until its report", _thread_by_thread(self._recorded))


def walks() -> list[Walk]:
    """Return all walks. Those of requests are made in an open cloud."""
    tracer = Tracer()
    with tracer.watching():
        failing = tracer.walk_of_a_failing_test()
        return [*_walks_of_requests(tracer), failing]


def _walks_of_requests(tracer: Tracer) -> list[Walk]:
    with Cloud(seed=1, clock="frozen", delivery="driven") as cloud, requests.Session() as client:
        client.trust_env = False
        kv, queue, capture = cloud.kv_server(), cloud.queue(), cloud.callback_capture()
        queue.destinations.call(URL, lambda request: 200)

        # Read before a walk begins, because applications know these from their environment.
        kv_url, kv_headers = kv.url, {"Authorization": f"Bearer {kv.token}"}
        publish_url = f"{queue.url}/v2/publish/{URL}"
        publish_headers = {
            "Authorization": f"Bearer {queue.token}",
            "Upstash-Callback": capture.callback_url,
        }

        def get() -> None:
            answer = client.get(f"{kv_url}/get/name", headers=kv_headers)
            assert "result" in answer.json(), answer.text

        def zadd() -> None:
            answer = client.post(kv_url, json=["ZADD", "board", "1", "ann"], headers=kv_headers)
            assert "result" in answer.json(), answer.text

        def publish() -> None:
            answer = client.post(publish_url, data=b"x", headers=publish_headers)
            assert answer.ok, answer.text
            queue.run_until_idle()

        found = [
            tracer.walk("A GET over REST", get),
            tracer.walk("ZADD over REST", zadd),
            tracer.walk("A publish until its callback is delivered", publish),
        ]
        assert len(capture.callbacks()) == 4, "a walk did not get to its end"
        return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walk", description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print every call too")
    given = parser.parse_args()
    for walk in walks():
        print(walk)
        if given.calls:
            print(*(f"    {call.module}: {call.function}" for call in walk.calls), sep="\n")


if __name__ == "__main__":
    main()
