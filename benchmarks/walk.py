"""Print the path of a request through the package: ``python -m benchmarks.walk [--calls]``.

There are two walks: a ``ZADD`` over REST, and a publish with its delivery and its callback. For
each, the output lists the modules in the order of their first call, the number of calls, the number
of times a call leads from one module into another (visits), and how many of these return to a
module visited before (steps back). ``--calls`` prints every call. Each walk runs once before it is
recorded, so that one-time set-up is not part of it. Python 3.11 also counts the frames of
comprehensions.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import requests

import pytest_fakecloud
from pytest_fakecloud import Cloud

ROOT = str(Path(pytest_fakecloud.__file__).parent) + "/"
URL = "https://app.example/job"


class Step(NamedTuple):
    """A call: its module inside the package, and its function."""

    module: str
    function: str


class Walk(NamedTuple):
    """All calls of a walk, in all threads, in order."""

    name: str
    calls: list[Step]

    @property
    def visits(self) -> list[str]:
        """The module of each visit."""
        names = [call.module for call in self.calls]
        return [name for at, name in enumerate(names) if not at or names[at - 1] != name]

    @property
    def modules(self) -> list[str]:
        """Each module once, in the order of the first visit."""
        return list(dict.fromkeys(self.visits))

    @property
    def steps_back(self) -> int:
        """Number of visits to a module that the walk visited before."""
        return len(self.visits) - len(self.modules)

    def __str__(self) -> str:
        told = (
            f"{self.name}: {len(self.modules)} modules, {len(self.calls)} calls, "
            f"{len(self.visits)} visits, {self.steps_back} steps back"
        )
        return f"{told}\n  {' > '.join(self.modules)}"


class Tracer:
    """Records the calls inside the package, in every thread that starts while it is active."""

    def __init__(self) -> None:
        self._calls: list[Step] | None = None

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        calls, file = self._calls, frame.f_code.co_filename
        if event == "call" and calls is not None and file.startswith(ROOT):
            module = file.removeprefix(ROOT).removesuffix(".py").replace("/", ".")
            calls.append(Step(module, frame.f_code.co_qualname))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the calls of a block."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def walk(self, name: str, way: Callable[[], object]) -> Walk:
        """Run a walk twice, and record the second run."""
        way()
        self._calls = calls = []
        try:
            way()
        finally:
            self._calls = None
        return Walk(name, calls)


def walks() -> list[Walk]:
    """Return the two walks, each in a new cloud."""
    tracer = Tracer()
    with (
        tracer.watching(),
        Cloud(seed=1, clock="frozen", delivery="driven") as cloud,
        requests.Session() as client,
    ):
        client.trust_env = False
        kv, queue, capture = cloud.kv_server(), cloud.queue(), cloud.callback_capture()
        queue.destinations.call(URL, lambda request: 200)

        def zadd() -> None:
            headers = {"Authorization": f"Bearer {kv.token}"}
            answer = client.post(kv.url, json=["ZADD", "board", "1", "ann"], headers=headers)
            assert "result" in answer.json(), answer.text

        def publish() -> None:
            headers = {
                "Authorization": f"Bearer {queue.token}",
                "Upstash-Callback": capture.callback_url,
            }
            answer = client.post(f"{queue.url}/v2/publish/{URL}", data=b"x", headers=headers)
            assert answer.ok, answer.text
            queue.run_until_idle()

        found = [
            tracer.walk("ZADD over REST", zadd),
            tracer.walk("A publish until its callback is delivered", publish),
        ]
        assert len(capture.callbacks) == 2, "a walk did not get to its end"
        return found


def main() -> None:
    """Print both walks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walk", description=__doc__)
    parser.add_argument("--calls", action="store_true", help="print every call too")
    given = parser.parse_args()
    for walk in walks():
        print(walk)
        if given.calls:
            print(*(f"    {call.module}: {call.function}" for call in walk.calls), sep="\n")


if __name__ == "__main__":
    main()
