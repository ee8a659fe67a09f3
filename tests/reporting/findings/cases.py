"""Cases of findings, and the findings expected in each.

A file of ``expected/`` has a section for each case: ``== NAME``, and for each finding a line with its
kind and values and a line with its sentence. A section without lines is a case without findings.
``FAKECLOUD_WRITE_REPORTS=1`` (without ``-n``) rewrites them; read them before you commit them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.findings import find
from pytest_fakecloud.reporting.model import Finding
from pytest_fakecloud.reporting.scene import scene_of
from pytest_fakecloud.reporting.text import section
from pytest_fakecloud.reporting.wording import sentence

EXPECTED = Path(__file__).parent / "expected"
HOOK = "https://app.example.com/hook"
Scene = Callable[[Cloud], object]


def found(cloud: Cloud, **given: Any) -> list[Finding]:
    """The findings about a cloud, without those about fakes that received no call."""
    every = find(cloud, scene_of(cloud, list(cloud.journal.entries)), **given)
    return [one for one in every if one.kind != "never_called"]


def kinds(cloud: Cloud, **given: Any) -> list[str]:
    """Return the kinds of the findings about a cloud."""
    return [one.kind for one in found(cloud, **given)]


def judge(file: str, name: str, cloud: Cloud) -> None:
    """Compare the findings about a cloud with those that the file has for the case."""
    every = found(cloud)
    scene = scene_of(cloud, list(cloud.journal.entries))
    numbers = {entry.number for entry in cloud.journal.entries}
    lines = []
    for one in every:
        assert set(one.rows) <= numbers
        lines += [f"{one.kind} {json.dumps(one.values)}", f"  {sentence(one, scene)}"]
    assert "failed:" not in section(cloud)
    path = EXPECTED / f"{file}.txt"
    known = _read(path)
    if os.environ.get("FAKECLOUD_WRITE_REPORTS"):
        known[name] = lines
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "".join(f"== {case}\n" + "".join(f"{line}\n" for line in told)
                    for case, told in known.items()),
            encoding="utf-8",
        )  # fmt: skip
    assert lines == known.get(name)


def _read(path: Path) -> dict[str, list[str]]:
    if not path.exists():
        return {}
    sections = path.read_text(encoding="utf-8").split("== ")[1:]
    return {one.splitlines()[0]: one.splitlines()[1:] for one in sections}


# -- scenes of the key-value store that several modules use ----------------------------------------


def kv(*commands: Sequence[Any], **settings: Any) -> Scene:
    """A key-value server that receives some commands."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server(**settings)
        for command in commands:
            httpx.post(server.url, json=command, headers=server.headers)

    return run


def timed(*steps: list[Any] | str) -> Scene:
    """A key-value server that receives commands; a string is a duration that passes."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        for step in steps:
            if isinstance(step, str):
                cloud.clock.advance(step)
            else:
                httpx.post(server.url, json=step, headers=server.headers)

    return run


def pipelined(path: str, *lines: list[Any]) -> Scene:
    """A key-value server that receives one pipeline or transaction."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        httpx.post(f"{server.url}/{path}", json=lines, headers=server.headers)

    return run


def two_clients(*steps: str) -> Scene:
    """A wallet of 10 that receives commands of several clients, each with its own connection."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        server.load({"w": "10"})
        with ExitStack() as stack:
            clients: dict[str, httpx.Client] = {}
            for step in steps:
                name, *command = step.split()
                if name not in clients:
                    clients[name] = stack.enter_context(httpx.Client(headers=server.headers))
                clients[name].post(server.url, json=command)

    return run


def connected(use: Callable[[redis.Redis, redis.Redis], object]) -> Scene:
    """Two clients on connections of their own."""

    def run(cloud: Cloud) -> None:
        url = cloud.kv_server().database_url
        with (
            redis.Redis.from_url(url, decode_responses=True) as one,
            redis.Redis.from_url(url, decode_responses=True) as two,
        ):
            use(one, two)

    return run


def read_only(command: list[str]) -> Scene:
    """A command that is sent with the read-only token."""

    def run(cloud: Cloud) -> None:
        server = cloud.kv_server()
        headers = {"Authorization": f"Bearer {server.read_only_token}"}
        httpx.post(server.url, json=command, headers=headers)

    return run


def query(filter: str, metadata: dict[str, Any] | None = None, **more: Any) -> Scene:
    """A query of an index with one record."""

    def run(cloud: Cloud) -> None:
        index = cloud.vector_index()
        index.load([{"id": "a", "vector": [1, 0], "metadata": metadata or {"n": 1}}])
        body = {"vector": [1, 0], "filter": filter, "includeMetadata": True, **more}
        httpx.post(f"{index.url}/query", json=body, headers=index.headers)

    return run


def check(file: str, cases: dict[str, Scene]) -> Any:
    """A test of all cases of a file."""

    @pytest.mark.parametrize("name", cases)
    def test_findings(cloud: Cloud, name: str) -> None:
        cases[name](cloud)
        judge(file, name, cloud)

    return test_findings
