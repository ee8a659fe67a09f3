"""Cases of findings, and the findings expected in each.

A file in ``expected/`` has a section for each case: ``== NAME``, and for each finding a line with
its kind and values and a line with its sentence. A section without lines is a case without
findings. ``FAKECLOUD_WRITE_REPORTS=1`` (without ``-n``) rewrites the findings; read them before you
commit them. In ``commands.txt`` the name is followed by the scene, which `commands` reads.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud, Response
from pytest_fakecloud.faults.plan import FaultPlan
from pytest_fakecloud.reporting.calls import lookups_of
from pytest_fakecloud.reporting.model import Finding
from pytest_fakecloud.reporting.report import ObservedTest, find
from pytest_fakecloud.reporting.text import section
from pytest_fakecloud.reporting.wording import sentence

from ..shown import deliver

EXPECTED = Path(__file__).parent / "expected"
HOOK = "https://app.example.com/hook"
Scene = Callable[[Cloud], object]
Inject = Callable[[FaultPlan], object]


def loses_answer(faults: FaultPlan) -> None:
    faults.lose_response(times=1)


def fails_afterwards(faults: FaultPlan) -> None:
    """Replace the answer to a request that was executed by an error."""
    faults.call(lambda: Response(500, {"error": "x"}), "after", times=1)


def found(cloud: Cloud, **given: Any) -> list[Finding]:
    """Return the findings about a cloud, except those about fakes that received no call."""
    every = find(ObservedTest(cloud, lookups_of(cloud, list(cloud.journal.entries)), **given))
    return [one for one in every if one.kind != "never_called"]


def kinds(cloud: Cloud, **given: Any) -> list[str]:
    """Return the kinds of the findings about a cloud."""
    return [one.kind for one in found(cloud, **given)]


def judge(file: str, name: str, cloud: Cloud) -> None:
    """Compare the findings about a cloud with those expected in the case's section of the file."""
    every = found(cloud)
    lookups = lookups_of(cloud, list(cloud.journal.entries))
    numbers = {entry.number for entry in cloud.journal.entries}
    lines = []
    for one in every:
        assert set(one.rows) <= numbers
        lines += [f"{one.kind} {json.dumps(one.values)}", f"  {sentence(one, lookups)}"]
    assert "failed:" not in section(cloud)
    compare(EXPECTED / f"{file}.txt", name, lines)


def compare(path: Path, name: str, found: list[str]) -> None:
    """Compare lines with the section of a file that has this name."""
    known = read(path)
    if os.environ.get("FAKECLOUD_WRITE_REPORTS"):
        known[name] = found
        path.parent.mkdir(exist_ok=True)
        sections = ("\n".join([f"== {case}", *lines, ""]) for case, lines in known.items())
        path.write_text("".join(sections), encoding="utf-8")
    assert found == known.get(name)


def read(path: Path) -> dict[str, list[str]]:
    """Return the expected lines of a file, by the text after ``==`` above them."""
    sections = path.read_text(encoding="utf-8").split("== ")[1:] if path.exists() else ()
    return {one.splitlines()[0]: one.splitlines()[1:] for one in sections}


def check(file: str, cases: dict[str, Scene]) -> Any:
    """Return a test that runs all cases of a file."""

    @pytest.mark.parametrize("name", cases)
    def test_findings(cloud: Cloud, name: str) -> None:
        cases[name](cloud)
        judge(file, name, cloud)

    return test_findings


def commands(text: str, **settings: Any) -> Scene:
    """Return a scene in which a key-value server receives commands, which are separated by ``|``.

    ``settings`` are those of the server.

    - ``CLIENT: COMMAND`` is sent on that client's own connection. A client ``~NAME`` uses the Redis
      protocol, ``NAME64`` receives Base64, and ``read-only`` uses the read-only token.
    - ``pipeline: COMMAND & COMMAND`` and ``multi-exec: …`` are one request.
    - ``attempts 500 200: COMMAND & COMMAND`` is a message whose handler sends the commands at each
      attempt and answers with the statuses in turn; ``{n}`` is the number of the attempt.
    - ``load KEY VALUE`` sets a key without a call, ``fault 503 COMMAND`` makes a command fail, and
      ``+61s`` advances the clock.
    - ``m{40}=v`` stands for ``m0 v m1 v …``, and ``1=m{5}`` for ``1 m0 1 m1 …``.
    """

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server(**settings)
        with ExitStack() as stack:
            clients: dict[str, Any] = {}
            queues: list[Any] = []

            def client(name: str) -> Any:
                if name not in clients:
                    headers = {**server.headers}
                    if name.endswith("64"):
                        headers["Upstash-Encoding"] = "base64"
                    if name == "read-only":
                        headers["Authorization"] = f"Bearer {server.read_only_token}"
                    clients[name] = stack.enter_context(
                        redis.Redis.from_url(server.database_url, single_connection_client=True)
                        if name[:1] == "~"
                        else httpx.Client(headers=headers)
                    )
                return clients[name]

            for step in text.split(" | "):
                name, _, line = step.rpartition(": ")
                lines = [_words(one) for one in line.split(" & ")]
                if name.startswith("attempts "):
                    queues = queues or [cloud.queue()]
                    _deliver(queues[0], server, list(map(int, name.split()[1:])), lines)
                elif name in ("pipeline", "multi-exec"):
                    client("").post(f"{server.url}/{name}", json=lines)
                elif name[:1] == "~":
                    client(name).connection.send_command(*lines[0])
                    with suppress(redis.ResponseError):
                        client(name).connection.read_response()
                elif line[0] == "+":
                    cloud.clock.advance(line[1:])
                elif line.startswith("load "):
                    server.load({lines[0][1]: lines[0][2]})
                elif line.startswith("fault "):
                    server.faults.respond(int(lines[0][1]), command=lines[0][2])
                else:
                    client(name).post(server.url, json=lines[0])

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


def query(filter: str, metadata: dict[str, Any] | None = None, **more: Any) -> Scene:
    """Query an index that contains one record."""

    def run(cloud: Cloud) -> None:
        index = cloud.vector_index()
        index.load([{"id": "a", "vector": [1, 0], "metadata": metadata or {"n": 1}}])
        body = {"vector": [1, 0], "filter": filter, "includeMetadata": True, **more}
        httpx.post(f"{index.url}/query", json=body, headers=index.headers)

    return run


def answered(*answers: Any) -> Scene:
    """Deliver one message for each answer, without retries."""

    def run(cloud: Cloud) -> None:
        queue = cloud.queue()
        queue.destinations.respond(HOOK, *answers)
        for _ in answers:
            queue.publish(HOOK, retries=0)
        queue.run_until_idle()

    return run


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
