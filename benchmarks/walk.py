"""The way of a request through the package: ``python -m benchmarks.walk [--calls]``.

Two walks: one ``ZADD`` over REST, and one publish until its callback is delivered. Each tells the
modules in the order in which they are first reached, how many calls are made, how often the walk goes
from one module into another (visits), and how many of these lead into a module where it was before
(steps back). ``--calls`` prints every call. Both are walked once before, so that what is made once is
made; Python's own frames of comprehensions count in 3.11 only.
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
    """One call: the module below the package, and the function."""

    module: str
    function: str


class Walk(NamedTuple):
    """All calls of a walk, in all threads, in their order."""

    name: str
    calls: list[Step]

    @property
    def visits(self) -> list[str]:
        """The modules as the walk comes into them."""
        names = [call.module for call in self.calls]
        return [name for at, name in enumerate(names) if not at or names[at - 1] != name]

    @property
    def modules(self) -> list[str]:
        """Each module once, in the order of the first visit."""
        return list(dict.fromkeys(self.visits))

    @property
    def steps_back(self) -> int:
        """How many visits lead into a module where the walk was before."""
        return len(self.visits) - len(self.modules)

    def __str__(self) -> str:
        told = (
            f"{self.name}: {len(self.modules)} modules, {len(self.calls)} calls, "
            f"{len(self.visits)} visits, {self.steps_back} steps back"
        )
        return f"{told}\n  {' > '.join(self.modules)}"


class Tracer:
    """Notes the calls within the package, in every thread that begins while it watches."""

    def __init__(self) -> None:
        self._calls: list[Step] | None = None

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        calls, file = self._calls, frame.f_code.co_filename
        if event == "call" and calls is not None and file.startswith(ROOT):
            module = file.removeprefix(ROOT).removesuffix(".py").replace("/", ".")
            calls.append(Step(module, frame.f_code.co_qualname))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A block in which calls can be noted."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def walk(self, name: str, way: Callable[[], object]) -> Walk:
        """Go a way once to know it, and once to note it."""
        way()
        self._calls = calls = []
        try:
            way()
        finally:
            self._calls = None
        return Walk(name, calls)


def walks() -> list[Walk]:
    """The two walks, each in a cloud that stands."""
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
