"""Every function with a part in a report raises in its turn: the run goes on, the report says so."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import pytest_fakecloud.queue.attempt_details
import pytest_fakecloud.queue.refusals
import pytest_fakecloud.reporting
from pytest_fakecloud.reporting import page

from ..harness import Run

PACKAGE = pytest_fakecloud.reporting
BESIDE = (
    pytest_fakecloud.queue.attempt_details,
    pytest_fakecloud.queue.refusals,
)
"""Modules outside of the package whose only use is in reports."""
LEFT_OUT = {"pytest_fakecloud.reporting.tracebacks", "pytest_fakecloud.reporting.applications"}
"""What works before a report is made; tests of its own show that it raises nothing."""
REPLAY = f"{PACKAGE.__name__}.replay"
"""Its errors become a note on the page (``test_replay.py``), not a line of the report."""
DELIVERS = {"listening", "watched", "awatched", "forget", "_collect", "of"}
"""What of the details is a part of the delivery itself, or keeps it from what raises."""


def modules() -> list[ModuleType]:
    names = [one.name for one in pkgutil.walk_packages(PACKAGE.__path__, f"{PACKAGE.__name__}.")]
    return [*(importlib.import_module(name) for name in names if wanted(name)), *BESIDE]


def wanted(name: str) -> bool:
    return name not in LEFT_OUT and not name.startswith(REPLAY)


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


# A builder that is broken or counted has another code for a while, which finds the rest by its globals.
BUILDERS = '''
import importlib
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType

NAMES = Path("builders.txt").read_text().split()
CALLED = {"test": set(), "report": set()}
PHASE = ["test"]
OWN = {}
BROKEN = []

COUNTS = """
def other(*given, **named):
    builders.CALLED[builders.PHASE[-1]].add({0!r})
    return builders.OWN[{0!r}](*given, **named)
"""
BREAKS = """
def other(*given, **named):
    builders.BROKEN.append({0!r})
    raise RuntimeError("it broke")
"""


@contextmanager
def changed(name, source):
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    found = getattr(found, "__wrapped__", found)
    own = found.__code__
    if own.co_freevars:  # a closure, whose code can only be another closure's
        yield
        return
    OWN[name] = FunctionType(own, found.__globals__, path, found.__defaults__)
    OWN[name].__kwdefaults__ = found.__kwdefaults__
    space = {}
    exec(compile(source.format(name), "other.py", "exec"), space)
    found.__globals__["builders"] = importlib.import_module(__name__)
    found.__code__ = space["other"].__code__
    BROKEN.clear()
    try:
        yield
    finally:
        found.__code__ = own


def write(name, names):
    with Path(name).open("a") as file:
        file.write("".join(f"{one}\\n" for one in names))
'''

# A test that has something of everything.
SCENE = """
import httpx
import redis
import requests


def play(kv_server, vector_index, broker, queue):
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
"""

# The first test counts which builders a test calls and which its report calls. The second is reported on
# again and again, each time with another builder of reports broken.
REPORTS = """
from contextlib import ExitStack

import builders
import pytest


@pytest.fixture
def counted():
    with ExitStack() as stack:
        for name in builders.NAMES:
            stack.enter_context(builders.changed(name, builders.COUNTS))
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    builders.PHASE.append("report")
    report = yield
    builders.PHASE.pop()
    return report


def pytest_exception_interact(node, call):
    if node.name != "test_reported":
        return
    for name in sorted(builders.CALLED["report"]):
        with builders.changed(name, builders.BREAKS):
            report = node.ihook.pytest_runtest_makereport(item=node, call=call)
        node.ihook.pytest_runtest_logreport(report=report)
        builders.write("heard.txt", set(builders.BROKEN))


def pytest_sessionfinish():
    for phase, names in builders.CALLED.items():
        builders.write(f"called_in_{phase}.txt", names)
"""
REPORTED = """
import pytest
import scene

pytestmark = pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)


def test_counted(counted, kv_server, vector_index, broker, queue):
    scene.play(kv_server, vector_index, broker, queue)
    assert False, "counted"


def test_reported(kv_server, vector_index, broker, queue):
    scene.play(kv_server, vector_index, broker, queue)
    assert False, "own reason"


def test_after():
    pass
"""

# What a test calls itself, or what is kept from one report for the next, is broken from its beginning.
BROKEN = """
from pathlib import Path

import builders
import pytest
import scene
from pytest_fakecloud.queue import refusals

pytestmark = pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)


@pytest.fixture
def broken(request):
    with builders.changed(request.param, builders.BREAKS):
        yield
    builders.write("heard.txt", set(builders.BROKEN))
    refusals._watching.clear()  # a delivery whose end is broken stays there


@pytest.mark.parametrize("broken", Path("early.txt").read_text().split(), indirect=True)
def test_it(broken, kv_server, vector_index, broker, queue):
    scene.play(kv_server, vector_index, broker, queue)
    assert False, "own reason"


def test_after():
    pass
"""


def silent(result: pytest.RunResult, broken: set[str], *, unbroken: int) -> set[str]:
    """Which builders a run broke and its reports say nothing of; ``unbroken`` reports come first."""
    names = sorted(broken)
    text = "\n".join([*result.outlines, *result.errlines])
    assert "INTERNALERROR" not in text
    counts = result.parseoutcomes()
    assert (counts["failed"], counts["passed"]) == (len(names) + unbroken, 1), counts
    assert text.count("own reason") >= len(names)
    sections = [one.partition("\n____")[0] for one in text.split("- fakecloud -")[1:]]
    assert len(sections) == len(names) + unbroken
    assert not any("it broke" in one for one in sections[:unbroken])
    heard = read("heard.txt")
    return {
        name
        for name, section in zip(names, sections[unbroken:], strict=True)
        if name in heard and "it broke" not in section
    }


def read(name: str) -> set[str]:
    """The names in a file that a run inside the test wrote."""
    return set(Path(name).read_text(encoding="utf-8").split())


@pytest.mark.slow
def test_a_report_is_made_whatever_breaks(
    run: Run, pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The replay, which no builder that breaks here is part of, would be a quarter of each report.
    monkeypatch.setattr(page, "states", lambda cloud, report: {"initial": {}, "steps": []})
    pytester.makepyfile(builders=BUILDERS, scene=SCENE, conftest=REPORTS)
    Path("builders.txt").write_text("\n".join(builders()), encoding="utf-8")
    report = f"--fakecloud-report={tmp_path}"

    result = run(REPORTED, report)
    called, in_a_test = read("called_in_report.txt"), read("called_in_test.txt")
    assert silent(result, called, unbroken=2) == set()

    early = in_a_test | (called - read("heard.txt"))
    assert early
    Path("early.txt").write_text("\n".join(sorted(early)), encoding="utf-8")
    assert silent(run(BROKEN, report), early, unbroken=0) == set()

    heard = read("heard.txt")
    assert len(heard) > 150
    assert heard == called | in_a_test
