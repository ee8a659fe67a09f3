"""Every function with a part in a report raises in its turn: the run goes on, the report says so."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import pytest_fakecloud.queue.evidence
import pytest_fakecloud.queue.refusals
import pytest_fakecloud.reporting

from ..harness import Run

PACKAGE = pytest_fakecloud.reporting
BESIDE = (
    pytest_fakecloud.queue.evidence,
    pytest_fakecloud.queue.refusals,
)
"""Modules outside of the package whose only use is in reports."""
LEFT_OUT = {"pytest_fakecloud.reporting.tracebacks", "pytest_fakecloud.reporting.applications"}
"""What works before a report is made; tests of its own show that it raises nothing."""
DELIVERS = {"listening", "watched", "awatched", "forget", "_collect", "of"}
"""What of the evidence is a part of the delivery itself, or keeps it from what raises."""


def modules() -> list[ModuleType]:
    names = [one.name for one in pkgutil.walk_packages(PACKAGE.__path__, f"{PACKAGE.__name__}.")]
    return [*(importlib.import_module(name) for name in names if name not in LEFT_OUT), *BESIDE]


def builders() -> list[str]:
    """Every function and method of those modules, as ``module:name``."""
    found = []
    for module in modules():
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                found.append(f"{module.__name__}:{name}")
            elif isinstance(value, type) and value.__module__ == module.__name__:
                found += [
                    f"{module.__name__}:{name}.{each}"
                    for each, method in vars(value).items()
                    if isinstance(method, FunctionType) and not each.startswith("__")
                ]
    return sorted(one for one in found if one.rpartition(":")[2].rpartition(".")[2] not in DELIVERS)


# A failing test that has something of everything; each of its runs has another broken builder, whose
# code is another while the call and the report of the test are made.
SOURCE = '''
import importlib
from pathlib import Path

import httpx
import pytest
import requests


BROKEN = []
CODE = compile(
    "def broke(*given, **named):\\n    heard.append(1)\\n    raise RuntimeError('it broke')",
    "broke.py",
    "exec",
)


def code_of(function):
    """The code of a function that only raises, for one with other globals."""
    space = {"heard": BROKEN}
    exec(CODE, space)
    function.__globals__["heard"] = BROKEN
    return space["broke"].__code__


@pytest.fixture
def broken(request):
    module, _, name = request.param.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    found = getattr(found, "__wrapped__", found)
    before = found.__code__
    if before.co_freevars:
        pytest.skip("a closure")
    found.__code__ = code_of(found)
    BROKEN.clear()
    yield
    found.__code__ = before
    with Path("heard.txt").open("a") as file:
        file.write(f"{request.param} {len(BROKEN)}\\n")


@pytest.mark.parametrize("broken", Path("builders.txt").read_text().split(), indirect=True)
@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
def test_it(broken, kv_server, vector_index, broker, queue, fakecloud):
    kv = kv_server.client(rest_retries=0)
    mails = queue.client(retry=False)
    for command in (
        ["SET", "lock:a", "me", "NX"], ["SET", "s", "1", "EX", "9"], ["SET", "s", "None"],
        ["GET", "carts:a"], ["HSET", "cart:a", "f", "1"], ["SCAN", "0"], ["EVAL", "return 1", "0"],
    ):
        httpx.post(kv_server.url, json=command, headers=kv_server.headers)
    httpx.post(kv_server.url + "/pipeline", json=[["SET", "a", "x"], ["INCR", "a"]],
               headers=kv_server.headers)
    httpx.post(kv_server.url + "/nowhere", headers={"Authorization": "Bearer no"})
    import redis
    with redis.Redis.from_url(kv_server.database_url) as native:
        with native.pipeline() as pipe:
            pipe.set("a", "1").get("a").execute()
    for path, body in (
        ("upsert", {"id": "a", "vector": [1, 0], "metadata": {"n": "1"}}),
        ("query", {"vector": [1, 0], "topK": 1, "filter": "n = 1"}),
        ("query/none", {"vector": [1, 0], "topK": 1}), ("delete", ["zz"]), ("fetch", {"ids": ["a"]}),
    ):
        httpx.post(f"{vector_index.url}/{path}", json=body, headers=vector_index.headers)
    broker.create_topic("t", partitions=2)
    auth = (broker.username, broker.password)
    requests.post(f"{broker.url}/produce/t", json=[{"value": "v"}, {"value": "w"}], auth=auth)
    early = {"Kafka-Auto-Offset-Reset": "earliest", "Kafka-Enable-Auto-Commit": "false"}
    requests.get(f"{broker.url}/consume/g/i/t", auth=auth, headers=early)
    requests.post(f"{broker.url}/commit/g/i", json={"topic": "t", "partition": 0, "offset": 9},
                  auth=auth)
    def handler(request):
        kv.incr("n")
        raise KeyError(request.json()["id"])
    queue.destinations.call("https://a.example.com/x", handler)
    queue.destinations.answers("https://a.example.com/y", 401, (308, "", {"Location": "/z"}))
    queue.destinations.accept("https://a.example.com/cb")
    for place in "xy":
        mails.message.publish_json(
            url=f"https://a.example.com/{place}", body={"n": 1}, retries=1,
            callback="https://a.example.com/cb", headers={"X-A": "b"})
    mails.schedule.create(destination="https://a.example.com/y", cron="0 9 * * *")
    queue.deliver_due()
    kv_server.faults.answer(503, command="GET")
    try:
        kv.get("a")
    except Exception:
        pass
    assert False, "own reason"


def test_after():
    pass
'''


@pytest.mark.slow
def test_a_report_is_made_whatever_breaks(
    run: Run, pytester: pytest.Pytester, tmp_path: Path
) -> None:
    names = builders()
    Path("builders.txt").write_text("\n".join(names), encoding="utf-8")
    result = run(SOURCE, f"--fakecloud-report={tmp_path}")
    counts = result.parseoutcomes()
    text = "\n".join([*result.outlines, *result.errlines])
    assert "INTERNALERROR" not in text
    assert (counts["failed"], counts["passed"]) == (len(names), 1), counts
    heard = dict(line.split() for line in Path("heard.txt").read_text("utf-8").splitlines())
    sections = text.split("- fakecloud -")[1:]
    assert len(sections) == len(names)
    assert text.count("own reason") >= len(names)
    silent = [
        name
        for name, section in zip(names, sections, strict=True)
        if heard[name] != "0" and "it broke" not in section.partition("\n____")[0]
    ]
    assert len([name for name in names if heard[name] != "0"]) > 150
    assert silent == []
