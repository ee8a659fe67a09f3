"""Cases of findings, and the findings expected in each.

A file in ``expected/`` has a section for each case: ``== NAME``, and for each finding a line with
its kind and values and a line with its sentence. `golden` in `tests/notations.py` compares and
rewrites them.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.faults.plan import FaultPlan
from pytest_fakecloud.reporting.findings import find
from pytest_fakecloud.reporting.lookups import lookups_of
from pytest_fakecloud.reporting.model import Finding
from pytest_fakecloud.reporting.observed import ObservedTest
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.render.wording import sentence
from pytest_fakecloud.reporting.rows.rows import rows

from ...notations import Player, golden
from ..shown import deliver

EXPECTED = Path(__file__).parent / "expected"
SCENES = Path(__file__).parents[1] / "scenarios"
HOOK = "https://app.example.com/hook"
Scene = Callable[[Cloud], object]
Inject = Callable[[FaultPlan], object]


def loses_answer(faults: FaultPlan) -> None:
    faults.lose_response(times=1)


def found(cloud: Cloud, **options: Any) -> list[Finding]:
    """Return the findings about a cloud, of which no detector raises an exception."""
    errors: list[str] = []
    lookups = lookups_of(cloud, list(cloud.journal.entries), errors)
    own_rows = rows(cloud, lookups=lookups, errors=errors)
    findings = find(ObservedTest(cloud, lookups, own_rows, errors=errors, **options))
    assert errors == []
    return findings


def kinds(cloud: Cloud, **options: Any) -> list[str]:
    """Return the kinds of the findings about a cloud."""
    return [finding.kind for finding in found(cloud, **options)]


def judge(file: str, name: str, cloud: Cloud) -> None:
    """Compare the findings about a cloud with those expected in the case's section of the file."""
    every = found(cloud)
    lookups = lookups_of(cloud, list(cloud.journal.entries), [])
    numbers = {row.number for row in rows(cloud, lookups=lookups)}
    lines = []
    for finding in every:
        assert set(finding.row_numbers) <= numbers
        lines += [f"{finding.kind} {json.dumps(finding.values)}", f"  {sentence(finding, lookups)}"]
    assert "failed:" not in section(cloud)
    golden(EXPECTED / f"{file}.txt", lines, name)


def check(file: str, cases: dict[str, Scene]) -> Any:
    """Return a test that runs all cases of a file."""

    @pytest.mark.parametrize("name", cases)
    def test_findings(cloud: Cloud, name: str) -> None:
        cases[name](cloud)
        judge(file, name, cloud)

    return test_findings


class CommandPlayer(Player):
    """Sends the commands of a scenario to a key-value server.

    - ``CLIENT: COMMAND`` is sent on that client's own connection. A client ``~NAME`` uses the Redis
      protocol, ``NAME64`` receives Base64, and ``read-only`` uses the read-only token.
    - ``pipeline: COMMAND & COMMAND`` and ``multi-exec: …`` are one request.
    - ``attempts 500 200: COMMAND & COMMAND`` is a message whose handler sends the commands at each
      attempt and answers with the statuses in turn; ``{n}`` is the number of the attempt.
    - ``load KEY VALUE`` sets a key without a call, ``fault 503 COMMAND`` makes a command fail.
    - ``m{40}=v`` stands for ``m0 v m1 v …``, and ``1=m{5}`` for ``1 m0 1 m1 …``.
    """

    def __init__(self, cloud: Cloud, stack: ExitStack, **settings: Any) -> None:
        super().__init__()
        self.cloud = cloud
        self.server = cloud.kv_server(**settings)
        self.stack = stack
        self.clients: dict[str, Any] = {}
        self.queues: list[Any] = []

    @property
    def fake(self) -> Any:
        return self.cloud

    def client(self, name: str) -> Any:
        if name not in self.clients:
            headers = {**self.server.headers}
            if name.endswith("64"):
                headers["Upstash-Encoding"] = "base64"
            if name == "read-only":
                headers["Authorization"] = f"Bearer {self.server.read_only_token}"
            self.clients[name] = self.stack.enter_context(
                redis.Redis.from_url(self.server.database_url, single_connection_client=True)
                if name[:1] == "~"
                else httpx.Client(headers=headers)
            )
        return self.clients[name]

    def step(self, line: str, reply: str) -> None:
        name, _, line = line.rpartition(": ")
        lines = [_words(command) for command in line.split(" & ")]
        if name.startswith("attempts "):
            self.queues = self.queues or [self.cloud.queue()]
            _deliver(self.queues[0], self.server, list(map(int, name.split()[1:])), lines)
        elif name in ("pipeline", "multi-exec"):
            self.client("").post(f"{self.server.url}/{name}", json=lines)
        elif name[:1] == "~":
            self.client(name).connection.send_command(*lines[0])
            with suppress(redis.ResponseError):
                self.client(name).connection.read_response()
        elif line.startswith("load "):
            self.server.load({lines[0][1]: lines[0][2]})
        elif line.startswith("fault "):
            self.server.faults.respond(int(lines[0][1]), command=lines[0][2])
        else:
            self.client(name).post(self.server.url, json=lines[0])


def commands(text: str, **settings: Any) -> Scene:
    """Return a scene of commands: the lines of a scenario, separated by ``|``."""
    return scene(text.split(" | "), **settings)


def scene(lines: list[str], **settings: Any) -> Scene:
    """Return a scene of commands: the lines of a scenario, for a server with these settings."""

    def run(cloud: Cloud) -> None:
        with ExitStack() as stack:
            CommandPlayer(cloud, stack, **settings).play(lines)

    return run


def _words(line: str) -> list[str]:
    words = []
    for word in shlex.split(line):
        many = re.search(r"\{(\d+)\}", word)
        for number in range(int(many[1])) if many else ():
            words += word.replace(many[0], str(number)).split("=")  # type: ignore[index]
        words += [] if many else [word]
    return words


def _deliver(queue: Any, server: Any, statuses: list[int], lines: list[list[str]]) -> None:
    left = iter(enumerate(statuses))

    def take(request: Any) -> int:
        number, status = next(left)
        for line in lines:
            command = [word.replace("{n}", str(number)) for word in line]
            httpx.post(server.url, json=command, headers=server.headers)
        return status

    queue.destinations.call(HOOK, take)
    deliver(queue, HOOK, retries=len(statuses) - 1)


def logs(*statuses: int) -> Scene:
    """Deliver messages to a receiver that logs an exception and answers with these statuses."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        left = iter(statuses)

        def take(request: Any) -> int:
            try:
                raise KeyError("total")
            except KeyError:
                logging.getLogger("shop").exception("no total")
            return next(left)

        queue.destinations.call(HOOK, take)
        for _ in statuses:
            queue.publish(HOOK, retries=0)
        queue.run_until_idle()

    return run
